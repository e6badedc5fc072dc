/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_two_rows.cuh: norm_two.cuh for rows that fit in registers: RMS norm with weights,
 * rows of whole blocks, aligned; output of the input's type, or quantised to one byte. A
 * row is spread over a cluster as in norm.cuh, one vector a thread, so that each step is
 * one access of all threads instead of one after the other for every 4 KB. The same slots
 * and bits as sol_norm_two_kernel; ranks may even mix the two.
 *
 *     load rows of others, own row, residual, weight | push theirs | leave ticket |
 *     own rows: poll, h, push h, sums, y, push y, from registers | others' rows: poll, store
 *
 * Failure. What a rank pushes must be right even if one of its threads gave up, since its
 * peers may not have noticed. h is each thread's own; y depends on all of the row: so a
 * warp with a thread that gave up gives -1 as its sum, which no sum of squares is, and all
 * who see it stop.
 *
 * Must never: push y before all sums of the row are known to be whole; poll before this CTA
 * has pushed all its contributions; leave the cluster between two of its barriers.
 */
#ifndef SOL_DEVICE_KERNELS_NORM_TWO_ROWS_CUH
#define SOL_DEVICE_KERNELS_NORM_TWO_ROWS_CUH

#include "device/kernels/norm_pair.cuh"
#include "device/kernels/norm_two.cuh"

struct sol_norm_two_shared {
    struct sol_norm_shared sums;
    float scales[2 * 32]; /* of a CTA's groups */
};

/* One vector of row i of every other owner. */
template <int N>
SOL_GPU_FN void sol_norm_two_load_theirs(const struct sol_norm_two_args &args,
                                         const struct sol_link &comm, uint32_t i, uint32_t at,
                                         struct sol_vector (&x)[N - 1])
{
#pragma unroll
    for (int k = 0; k < N - 1; k++) {
        const int peer = sol_push_peer(comm.rank, comm.nranks, k);
        if (k < comm.nranks - 1 && i < args.rows[peer])
            x[k] = sol_load_16(args.input + (uint64_t)(args.first[peer] + i) * args.own.row + at);
    }
}

template <int N>
SOL_GPU_FN void sol_norm_two_push_theirs(const struct sol_norm_two_args &args,
                                         const struct sol_link &comm,
                                         const struct sol_ticket &ticket, uint32_t i, uint32_t at,
                                         const struct sol_vector (&x)[N - 1])
{
#pragma unroll
    for (int k = 0; k < N - 1; k++) {
        const int peer = sol_push_peer(comm.rank, comm.nranks, k);
        const struct sol_vector own[1] = {x[k]};
        const struct sol_place place = {i * args.own.pitch + at, 0, 0};
        if (k < comm.nranks - 1 && i < args.rows[peer])
            sol_send_to<1>(comm, ticket, k, UINT32_MAX, place, own);
    }
}

/* One vector of this rank's row i, and of its residual. */
SOL_GPU_FN void sol_norm_two_load_own(const struct sol_norm_kernel_args &own, uint32_t i,
                                      uint32_t at, struct sol_vector &x,
                                      struct sol_vector &residual)
{
    if (i >= own.tokens)
        return;
    x = sol_load_16(own.input + (uint64_t)i * own.row + at);
    if (own.residual)
        residual = sol_load_16(own.residual + (uint64_t)i * own.row + at);
}

/* One vector to byte `at` of this rank's slot at all peers. */
template <int N>
SOL_GPU_FN void sol_norm_two_push_all(const struct sol_link &comm, const struct sol_ticket &ticket,
                                      uint32_t at, struct sol_vector v)
{
    const struct sol_place place = {at, 0, 0};
    const struct sol_vector own[1] = {v};
    sol_send_to_all<N, 1, true>(comm, ticket, N == 2 ? 2 : comm.nranks, 0, UINT32_MAX, place, own);
}

/* As sol_norm_collect. False, to all of the cluster: a thread of it gave up. */
SOL_GPU_FN bool sol_norm_two_collect(const struct sol_norm_shared &shared, unsigned set,
                                     const struct sol_norm_kernel_args &args,
                                     const struct sol_norm_place &place, float &sum)
{
    bool good = true;
    if (args.spread > 1)
        sol_cluster_wait();
    else
        __syncthreads();
    const float *partial = shared.partial[set & 1];
    float x = 0;
    for (uint32_t b = place.lane; b < (uint32_t)args.spread * args.cta_blocks; b += 32) {
        good = good && !(partial[b] < 0);
        x = sol_norm_join<false>(x, partial[b]);
    }
    sum = sol_norm_fold<false, 32>(x);
    return __all_sync(0xffffffffu, good);
}

/* The output of own row i, of the input's type. */
template <int D, int N>
SOL_GPU_FN void sol_norm_two_put_as_is(const struct sol_norm_two_args &args,
                                       const struct sol_link &comm, const struct sol_ticket &ticket,
                                       uint32_t i, uint32_t at, const struct sol_lanes<D> &y)
{
    const struct sol_vector v = sol_pack<D>(y);
    if (args.output)
        sol_norm_two_push_all<N>(comm, ticket, comm.slot_bytes / 2 + i * args.finished + at, v);
    sol_store_16(args.own.output + (uint64_t)i * args.own.row + at, v);
}

/* The CTA's part of a row's scales to all: four groups a vector. All threads; barriers. */
template <int N>
SOL_GPU_FN void sol_norm_two_push_groups(const struct sol_norm_two_args &args,
                                         const struct sol_link &comm,
                                         const struct sol_ticket &ticket, float (&scales)[64],
                                         uint32_t part, uint32_t slot, uint32_t column, float scale)
{
    const uint32_t groups = 2u * args.own.cta_blocks, first = part * groups;
    if (column % SOL_QUANT_GROUP_COLUMNS == 0)
        scales[column / SOL_QUANT_GROUP_COLUMNS - first] = scale;
    __syncthreads();
    const uint32_t g = threadIdx.x * 4;
    if (g < groups) {
        uint32_t w[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            w[j] = g + j < groups ? sol_bits_f32(scales[g + j]) : 0;
        const struct sol_vector v = {w[0] | (uint64_t)w[1] << 32, w[2] | (uint64_t)w[3] << 32};
        sol_norm_two_push_all<N>(comm, ticket, slot + args.scales_at + (first + g) * 4, v);
    }
    __syncthreads(); /* before the next row's (whose sum has one too) */
}

/* The output of own row i, of one byte an element, and its scales. */
template <int D, int N, int Q>
SOL_GPU_FN void sol_norm_two_put_bytes(const struct sol_norm_two_args &args,
                                       const struct sol_link &comm, const struct sol_ticket &ticket,
                                       struct sol_norm_two_shared &shared, unsigned &set,
                                       const struct sol_norm_place &place, uint32_t i, uint32_t at,
                                       float static_scale, struct sol_lanes<D> &y)
{
    enum { E = sol_element<D>::count };
    const uint32_t slot = comm.slot_bytes / 2 + i * args.finished;
    float scale = static_scale;
    if constexpr (Q == SOL_NORM_TOKEN) {
        const float block[1] = {
            sol_norm_fold<true, 32>(sol_norm_amax<E>(y.x, at / 2, args.own.hidden))};
        sol_norm_tell<1>(shared.sums, set, args.own, place, block);
        const float amax = sol_norm_collect<true>(shared.sums, set++, args.own, place);
        scale = sol_norm_scale(amax, args.own.output_dtype, false);
        if (at == 0) {
            const struct sol_vector v = {sol_bits_f32(scale), 0};
            sol_norm_put_scale(args.own, i, scale);
            if (args.scales)
                sol_norm_two_push_all<N>(comm, ticket, slot + args.scales_at, v);
        }
    } else if constexpr (Q == SOL_NORM_GROUP) {
        scale = sol_norm_group<E>(args.own, i, at / 2, y.x);
    }
    const float inverse = sol_div_f32(1.0f, scale);
#pragma unroll
    for (int e = 0; e < E; e++)
        y.x[e] = sol_mul_f32(y.x[e], inverse);
    const uint64_t bytes = sol_norm_pack_bytes(y.x, args.own.output_dtype);
    sol_store_unit((uint64_t *)(args.own.output + (uint64_t)i * args.output_row + at / 2), bytes);
    const uint64_t other = __shfl_xor_sync(0xffffffffu, bytes, 1);
    const struct sol_vector v = {bytes, other}; /* of two lanes: the first of them sends it */
    if (args.output && (place.lane & 1) == 0)
        sol_norm_two_push_all<N>(comm, ticket, slot + at / 2, v);
    if (Q == SOL_NORM_GROUP && args.scales)
        sol_norm_two_push_groups<N>(args, comm, ticket, shared.scales, place.part, slot, at / 2,
                                    scale);
}

/* One vector of a finished row of `token`, which lies at byte `at` of it, to where it belongs. With
 * SCALES there may be some between output and h. */
template <bool SCALES>
SOL_GPU_FN void sol_norm_two_put_whole(const struct sol_norm_two_args &args, uint32_t token,
                                       uint32_t at, struct sol_vector v)
{
    if (at < args.scales_at)
        sol_store_16(args.output + (uint64_t)token * args.output_row + at, v);
    else if (!SCALES || at >= args.residual_at)
        sol_store_16(args.residual_out + (uint64_t)token * args.own.row + at - args.residual_at, v);
    else
        sol_norm_two_put(args, token, at, v);
}

/* V vectors of row i of every other owner, finished, `step` apart. False: gave up. */
template <int N, int V, bool SCALES>
SOL_GPU_FN bool sol_norm_two_take(const struct sol_norm_two_args &args, const struct sol_link &comm,
                                  const struct sol_ticket &ticket, const struct sol_story &story,
                                  uint32_t i, uint32_t at, uint32_t step)
{
    const int n = N == 2 ? 2 : comm.nranks, rank = comm.rank;
    const uint32_t slot = comm.slot_bytes / 2 + i * args.finished;
    const struct sol_place place = {slot + at, step, 0};
    struct sol_vector in[N - 1][V];
    unsigned from = 0;
#pragma unroll
    for (int q = 0; q < N - 1; q++)
        from |= q < n - 1 && i < args.rows[sol_poll_peer(rank, q)] ? 1u << q : 0;
    if (!sol_receive<N, V, false>(comm, ticket, rank, n, from, slot + args.finished, place, story,
                                  in))
        return false;
    sol_reset<N, V, false>(comm, ticket, rank, n, from, slot + args.finished, place);
#pragma unroll
    for (int q = 0; q < N - 1; q++) {
        const uint32_t token = args.first[sol_poll_peer(rank, q)] + i;
#pragma unroll
        for (int v = 0; v < V; v++)
            if ((from >> q & 1) && at + v * step < args.finished)
                sol_norm_two_put_whole<SCALES>(args, token, at + v * step, in[q][v]);
    }
    return true;
}

template <int D, int N, int Q>
__global__ void __launch_bounds__(N == 2 ? 1024 : 512, 1)
    sol_norm_two_rows_kernel(const __grid_constant__ struct sol_norm_two_args args,
                             const __grid_constant__ struct sol_link comm,
                             const __grid_constant__ struct sol_tail tail)
{
    /* AHEAD: registers for the next row's vectors while this one's are at work. KEEP: and for the
     * weights. */
    enum {
        E = sol_element<D>::count,
        AHEAD = N == 2 && Q != SOL_NORM_GROUP,
        KEEP = N != 2 || Q == SOL_NORM_AS_IS || Q == SOL_NORM_STATIC,
        V = N == 2 ? 2 : 1
    };
    SOL_SHARED(struct sol_norm_two_shared, shared);
    const int n = N == 2 ? 2 : comm.nranks, rank = comm.rank;
    const struct sol_norm_place place = {blockIdx.x % args.own.spread, threadIdx.x / 32,
                                         blockDim.x / 32, threadIdx.x % 32};
    const uint32_t at = (place.part * blockDim.x + threadIdx.x) * 16, row = args.own.row;
    const uint32_t cluster = blockIdx.x / args.own.spread, clusters = gridDim.x / args.own.spread;
    struct sol_vector theirs[N - 1], own, residual = {0, 0};
    float static_scale = 1;
    unsigned set = 0;
    if (args.own.spread > 1)
        sol_cluster_arrive(); /* nobody stores to a CTA that has not started: waited for below */
    sol_await_predecessors();
    sol_admit_successor();

    if (cluster < args.most)
        sol_norm_two_load_theirs<N>(args, comm, cluster, at, theirs);
    const struct sol_ticket ticket = sol_take_ticket(comm);
    sol_norm_two_load_own(args.own, cluster, at, own, residual);
    struct sol_vector raw_weight = {0, 0};
    if (KEEP)
        raw_weight = sol_load_16(args.own.weight + at);
    if constexpr (Q == SOL_NORM_STATIC)
        static_scale = sol_norm_static_scale(args.own);
    bool good = !ticket.dead; /* who has given up goes on to the barriers, but pushes nothing */
#pragma unroll 1
    for (uint32_t i = cluster; i < args.most; i += clusters) {
        struct sol_vector next[N - 1];
        const bool more = i + clusters < args.most;
        if (AHEAD && more)
            sol_norm_two_load_theirs<N>(args, comm, i + clusters, at, next);
        if (good)
            sol_norm_two_push_theirs<N>(args, comm, ticket, i, at, theirs);
        if (AHEAD) {
            theirs[0] = next[0];
        } else if (more) {
            sol_norm_two_load_theirs<N>(args, comm, i + clusters, at, theirs);
        }
    }
    sol_leave_ticket(comm, ticket); /* a barrier: input may be written over from here on */
    if (good)
        sol_send_tokens(comm, ticket, sol_norm_two_silent(args, comm, true));
    if (args.own.spread > 1)
        sol_cluster_wait();

    for (uint32_t i = cluster; i < args.rows[rank]; i += clusters) {
        const struct sol_place slot = {i * args.own.pitch + at, 0, 0};
        struct sol_vector in[N - 1][1], h;
        float sum;
        good = good &&
               sol_receive<N, 1, true>(comm, ticket, rank, n, 0, UINT32_MAX, slot, tail.story, in);
        __syncwarp(); /* a warp that has polled would shuffle in a detour otherwise */
        h = sol_norm_h<D, N, 1>(rank, n, own, in, 0, args.own.residual != NULL, residual);
        const float squares = sol_norm_block<D>(h, false, 0, true, 0, 0);
        const float block[1] = {__all_sync(0xffffffffu, good) ? squares : -1.0f};
        sol_norm_tell<1>(shared.sums, set, args.own, place, block);
        if (good) {
            sol_reset<N, 1, true>(comm, ticket, rank, n, 0, UINT32_MAX, slot);
            if (args.residual_out)
                sol_norm_two_push_all<N>(
                    comm, ticket, comm.slot_bytes / 2 + i * args.finished + args.residual_at + at,
                    h);
            if (args.own.residual_out)
                sol_store_16(args.own.residual_out + (uint64_t)i * row + at, h);
        }
        if (AHEAD)
            sol_norm_two_load_own(args.own, i + clusters, at, own, residual);
        if (!KEEP)
            raw_weight = sol_load_16(args.own.weight + at);
        struct sol_lanes<D> y = sol_unpack<D>(h), weight = sol_unpack<D>(raw_weight);
        if (!sol_norm_two_collect(shared.sums, set++, args.own, place, sum))
            return;
        const float r = sol_norm_root(args.own, sum);
#pragma unroll
        for (int e = 0; e < E; e++) {
            const float w = sol_add_f32(weight.x[e], args.own.weight_bias);
            y.x[e] = sol_mul_f32(sol_mul_f32(y.x[e], r), w);
        }
        if constexpr (Q == SOL_NORM_AS_IS)
            sol_norm_two_put_as_is<D, N>(args, comm, ticket, i, at, y);
        else
            sol_norm_two_put_bytes<D, N, Q>(args, comm, ticket, shared, set, place, i, at,
                                            static_scale, y);
        if (!AHEAD)
            sol_norm_two_load_own(args.own, i + clusters, at, own, residual);
    }
    if (!good)
        return;
    for (uint32_t i = cluster; i < args.most && args.finished; i += clusters)
        for (uint32_t to = at; to < args.finished; to += V * row) /* once, or twice */
            if (!sol_norm_two_take<N, V, Q != SOL_NORM_AS_IS>(args, comm, ticket, tail.story, i, to,
                                                              row))
                return;
    sol_await_tokens(comm, ticket, sol_norm_two_silent(args, comm, false), tail.story);
}

#endif
