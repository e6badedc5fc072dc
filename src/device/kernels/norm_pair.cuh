/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_pair.cuh: norm.cuh for two ranks and batches in which no CTA has a second row:
 * RMS norm with weights, rows of whole vectors for every thread, aligned; output of the
 * input's type, or quantised to one byte. No loop, no bound to test, no address to work
 * out after the kernels before this one have ended: pair.cuh says why that counts. The
 * same slots, sums and bits as sol_norm_kernel; ranks may even mix the two.
 *
 * One vector a thread and up to 1024 threads a CTA: a row of 16 KB fits one CTA, and is
 * spread over a cluster of up to 8 where there are SMs for it.
 */
#ifndef SOL_DEVICE_KERNELS_NORM_PAIR_CUH
#define SOL_DEVICE_KERNELS_NORM_PAIR_CUH

#include "device/kernels/norm.cuh"
#include "device/kernels/pair.cuh"

/*
 * sol_pair_receive of a vector by a warp whose lanes stay together: what comes next exchanges
 * values between them, and lanes that a loop of their own has parted do that in code far away,
 * which costs 0.3 us (bench/NOTES.md). `good` and the result are the same in all lanes.
 */
SOL_GPU_FN bool sol_norm_pair_receive(const struct sol_link &comm, const struct sol_story &story,
                                      const struct sol_ticket &ticket, bool good, const char *slot,
                                      uint32_t at, struct sol_vector &in)
{
    const uint32_t all = 0xffffffffu;
    uint64_t deadline = 0;
    for (uint32_t look = 1; good; look++) {
        uint32_t polls = SOL_WATCH_POLLS;
        bool missing;
        do {
            in = sol_poll_vector(slot);
            missing = sol_warp_any(sol_vector_missing(in));
        } while (missing && --polls != 0);
        if (!missing)
            break;
        deadline = sol_watch_look(comm.bound, story, deadline, look, 1 - comm.rank);
        good = !sol_warp_any(deadline == 0);
    }
    good = __all_sync(all, good);
    if (good && SOL_UNLIKELY(__any_sync(all, sol_vector_suspect(in)))) {
        if (sol_vector_suspect(in)) {
            const struct sol_pair_vector r = sol_pair_unescape(comm, story, ticket.epoch, at, in);
            in = r.v;
            good = !r.failed;
        }
        good = __all_sync(all, good);
    }
    return good;
}

/*
 * The sums of a row: a float of each block and, above it, a mark that it has come. In a cluster a
 * barrier instead would first wait for this thread's pushes to reach the other GPU, since to
 * arrive is a release, and its machine code is longer. Each word is stored to once in a kernel, by
 * the warp that has the block, after all CTAs have cleared theirs; and no CTA ends before all that
 * are meant for it have come, since its warps wait for them.
 */
struct sol_norm_words {
    uint64_t sum[2][SOL_NORM_BLOCKS];
};
#define SOL_NORM_COME 0x100000000u

template <bool CLUSTER>
SOL_GPU_FN uint32_t sol_norm_pair_blocks(const struct sol_norm_kernel_args &args)
{
    return CLUSTER ? (uint32_t)args.spread * args.cta_blocks : args.cta_blocks;
}

SOL_GPU_FN void sol_norm_pair_clear(struct sol_norm_words &words, unsigned sets, uint32_t blocks)
{
#pragma unroll 1
    for (uint32_t b = threadIdx.x; b < blocks; b += blockDim.x)
        for (unsigned set = 0; set < sets; set++)
            words.sum[set][b] = 0;
}

/* Tell the cluster this warp's value. What is done before sol_norm_pair_collect delays nobody. */
template <bool CLUSTER>
SOL_GPU_FN void sol_norm_pair_tell(struct sol_norm_words &words, unsigned set,
                                   const struct sol_norm_kernel_args &args,
                                   const struct sol_norm_place &place, float x)
{
    const uint64_t word = SOL_NORM_COME | sol_bits_f32(x);
    if (!CLUSTER && place.lane == 0)
        words.sum[set][place.warp] = word;
    if (CLUSTER && place.lane < args.spread)
        sol_cluster_push_word(&words.sum[set][place.part * args.cta_blocks + place.warp],
                              place.lane, word);
}

/* As sol_norm_collect. All CTAs tell, whatever has come of their waits for the peer: this wait
 * ends when those do, as a barrier would. */
template <bool MAX, bool CLUSTER>
SOL_GPU_FN float sol_norm_pair_collect(const struct sol_norm_words &words, unsigned set,
                                       const struct sol_norm_kernel_args &args,
                                       const struct sol_norm_place &place)
{
    const uint32_t blocks = sol_norm_pair_blocks<CLUSTER>(args);
    float x = 0;
    if (!CLUSTER)
        __syncthreads();
#pragma unroll 1
    for (uint32_t first = 0; first < blocks; first += 32) {
        const uint32_t b = first + place.lane;
        uint64_t word = SOL_NORM_COME;
        do {
            if (b < blocks)
                word = CLUSTER ? sol_cluster_poll_word(&words.sum[set][b]) : words.sum[set][b];
        } while (CLUSTER && sol_warp_any(!(word & SOL_NORM_COME)));
        x = sol_norm_join<MAX>(x, sol_f32_bits((uint32_t)word));
    }
    return sol_norm_fold<MAX, 32>(x);
}

/* What becomes of y. */
enum sol_norm_out { SOL_NORM_AS_IS, SOL_NORM_STATIC, SOL_NORM_TOKEN, SOL_NORM_GROUP };

/* A thread's addresses, known before the wait for the kernels before. */
struct sol_norm_pair_place {
    const char *from, *residual, *weight; /* residual: NULL for none */
    char *out, *in;                       /* slot at the peer and here, parity 0 */
    char *residual_out, *to; /* residual_out: NULL for none; to: of an output of the input's type */
    const void *epoch;
    uint32_t parity_step;
};

SOL_GPU_FN struct sol_norm_pair_place sol_norm_pair_place(const struct sol_norm_kernel_args &args,
                                                          const struct sol_link &comm, uint32_t at,
                                                          uint32_t at_row)
{
    const struct sol_norm_pair_place p = {
        sol_opaque(args.input + at),
        sol_opaque(args.residual ? args.residual + at : NULL),
        sol_opaque(args.weight + at_row),
        sol_opaque(comm.out[0] + at),
        sol_opaque(comm.in + at),
        sol_opaque(args.residual_out ? args.residual_out + at : NULL),
        sol_opaque(args.output + at),
        sol_opaque((const char *)&comm.state->epochs[blockIdx.x]),
        sol_opaque(comm.parity_step)};
    return p;
}

/* Eight elements to eight bytes. */
SOL_GPU_FN uint64_t sol_norm_pack_bytes(const float *y, int dtype)
{
    if (dtype == SOL_FLOAT8_E4M3)
        return sol_pack_u32<SOL_FLOAT8_E4M3>(y) | (uint64_t)sol_pack_u32<SOL_FLOAT8_E4M3>(y + 4)
                                                      << 32;
    if (dtype == SOL_FLOAT8_E5M2)
        return sol_pack_u32<SOL_FLOAT8_E5M2>(y) | (uint64_t)sol_pack_u32<SOL_FLOAT8_E5M2>(y + 4)
                                                      << 32;
    return sol_norm_pack_int8(y) | (uint64_t)sol_norm_pack_int8(y + 4) << 32;
}

/* The scale of this thread's elements. The first thread that it is for writes it. */
template <int Q, bool CLUSTER>
SOL_GPU_FN float sol_norm_pair_scale(struct sol_norm_words &words,
                                     const struct sol_norm_kernel_args &args,
                                     const struct sol_norm_place &place, uint32_t token,
                                     uint32_t column, const float *y, float static_scale)
{
    if constexpr (Q == SOL_NORM_STATIC)
        return static_scale;
    if constexpr (Q == SOL_NORM_GROUP)
        return sol_norm_group<8>(args, token, column, y);
    const float mine = sol_norm_fold<true, 32>(sol_norm_amax<8>(y, column, args.hidden));
    sol_norm_pair_tell<CLUSTER>(words, 1, args, place, mine);
    const float amax = sol_norm_pair_collect<true, CLUSTER>(words, 1, args, place);
    const float scale = sol_norm_scale(amax, args.output_dtype, false);
    if (place.part == 0 && threadIdx.x == 0)
        sol_norm_put_scale(args, token, scale);
    return scale;
}

template <int D, int Q, bool CLUSTER>
__global__ void __launch_bounds__(1024, 1)
    sol_norm_pair_kernel(const __grid_constant__ struct sol_norm_kernel_args args,
                         const __grid_constant__ struct sol_link comm,
                         const __grid_constant__ struct sol_tail tail)
{
    enum { E = sol_element<D>::count };
    SOL_SHARED(struct sol_norm_words, words);
    const struct sol_norm_place place = {CLUSTER ? sol_cluster_cta() : 0, threadIdx.x / 32,
                                         blockDim.x / 32, threadIdx.x % 32};
    const uint32_t token = CLUSTER ? blockIdx.x / args.spread : blockIdx.x;
    const uint32_t at_row = (place.part * blockDim.x + threadIdx.x) * 16;
    const uint32_t at = token * args.row + at_row; /* in matrices and in the slot */
    const struct sol_norm_pair_place p = sol_norm_pair_place(args, comm, at, at_row);
    if (CLUSTER) {
        sol_norm_pair_clear(words, Q == SOL_NORM_TOKEN ? 2 : 1, sol_norm_pair_blocks<true>(args));
        sol_cluster_arrive(); /* a release, so before anything is on its way to the peer */
    }
    sol_await_predecessors();
    sol_admit_successor();

    struct sol_vector own[1], in[1][1], h[1], residual = {0, 0};
    float static_scale = 1;
    own[0] = sol_load_16(p.from);
    const struct sol_ticket ticket = sol_take_ticket_at(p.epoch, p.parity_step);
    if (p.residual)
        residual = sol_load_16(p.residual);
    const struct sol_vector raw_weight = sol_load_16(p.weight);
    if constexpr (Q == SOL_NORM_STATIC)
        static_scale = sol_f32_bits(sol_load_unit((const uint32_t *)args.static_scale));
    bool good = !ticket.dead; /* who has given up goes on to all barriers, but writes nothing */
    if (good)
        sol_pair_push<1>(ticket, p.out, 0, own);
    sol_leave_ticket(comm, ticket);
    if (good)
        sol_pair_push_rest<1>(comm, ticket, at, 0, own);
    if (CLUSTER)
        sol_cluster_wait(); /* all have started and cleared their words */
    good = sol_norm_pair_receive(comm, tail.story, ticket, __all_sync(0xffffffffu, good),
                                 p.in + ticket.shift, at, in[0][0]);
    h[0] = sol_norm_h<D, 2, 1>(comm.rank, 2, own[0], in, 0, p.residual != NULL, residual);
    sol_norm_pair_tell<CLUSTER>(words, 0, args, place,
                                sol_norm_block<D>(h[0], false, 0, true, 0, 0));
    sol_reset_vector(p.in + ticket.shift);
    if (p.residual_out && good)
        sol_store_16(p.residual_out, h[0]);
    struct sol_lanes<D> y = sol_unpack<D>(h[0]), weight = sol_unpack<D>(raw_weight);
    const float r =
        sol_norm_root(args, sol_norm_pair_collect<false, CLUSTER>(words, 0, args, place));
#pragma unroll
    for (int i = 0; i < E; i++) {
        const float w = sol_add_f32(weight.x[i], args.weight_bias);
        y.x[i] = sol_mul_f32(sol_mul_f32(y.x[i], r), w);
    }
    if constexpr (Q == SOL_NORM_AS_IS) {
        if (good)
            sol_store_16(p.to, sol_pack<D>(y));
    } else {
        const float inverse =
            sol_div_f32(1.0f, sol_norm_pair_scale<Q, CLUSTER>(words, args, place, token, at_row / 2,
                                                              y.x, static_scale));
#pragma unroll
        for (int i = 0; i < E; i++)
            y.x[i] = sol_mul_f32(y.x[i], inverse);
        /* (its address kept from before would be a register more than there are) */
        if (good)
            sol_store_unit((uint64_t *)(args.output + at / 2),
                           sol_norm_pack_bytes(y.x, args.output_dtype));
    }
}

#endif
