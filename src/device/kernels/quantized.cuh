/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantized.cuh: all_reduce with 8 bits an element on the wire, in one hop or two.
 * The arithmetic is that of coll/quantize.c, to the bit.
 *
 * A warp takes a block of 512 elements: eight lanes a group, a lane 16 elements of it,
 * as vectors that lie 128 bytes apart, so that an access of the warp is four whole
 * lines. In a slot the values of all blocks come first, 512 bytes each, then the
 * scales, four a block:
 *
 *     load | largest of the group (shuffles) | round | push values, scale | leave ticket |
 *     poll both | add up in rank order | round and store | reset slots
 *
 * No word on the wire is ever MARK or ESCAPE (gpu_word.h), so there are no escapes:
 * the marks' first byte is 0x7f. E4M3 has it for a NaN, and then, since the group's
 * scale is one, in all bytes; INT8 travels inverted, where it would be -128, which no
 * group holds. Scales validate
 * themselves, 4 bytes at a time: they are positive or the canonical NaN, and both
 * halves of the mark are greater than that, as numbers without sign.
 *
 * In two hops the owner of a share rounds its sums again and sends those, in the
 * upper half of the slots, as in two_shot.cuh.
 *
 * Must never: shuffle while some lanes of the warp have left; add up an own
 * contribution that was not rounded as the others' are; set back a scale that a lane
 * of its group has not read.
 */
#ifndef SOL_DEVICE_KERNELS_QUANTIZED_CUH
#define SOL_DEVICE_KERNELS_QUANTIZED_CUH

#include "device/kernels/quantized_launch.h"
#include "device/prim/slots.cuh"
#include "solccl/quantized.h"

#define SOL_QUANTIZED_BLOCK                                                                        \
    512                         /* elements of a warp and turn: as many bytes of values in a slot  \
                                 */
#define SOL_QUANTIZED_SCALES 16 /* bytes of its scales */
#define SOL_QUANTIZED_WIRE (SOL_QUANTIZED_BLOCK + SOL_QUANTIZED_SCALES)

struct sol_quantized_args {
    const char *send;
    char *recv;
    uint64_t count;  /* elements of this launch */
    uint32_t blocks; /* of all (one hop), of a share (two) */
    uint32_t whole;  /* 1: send and recv are multiples of 16 */
};

/* What a lane sends and takes of a block: its values, and the scale of its group. */
struct sol_quantized {
    struct sol_vector values;
    float scale;
};

/* Where in a slot of parity 0. */
struct sol_quantized_place {
    uint32_t values, scale;
};

SOL_GPU_FN struct sol_quantized_place sol_quantized_place(uint32_t blocks, uint32_t block)
{
    const uint32_t lane = threadIdx.x & 31;
    const struct sol_quantized_place p = {block * SOL_QUANTIZED_BLOCK + lane * 16,
                                          blocks * SOL_QUANTIZED_BLOCK +
                                              block * SOL_QUANTIZED_SCALES + lane / 8 * 4};
    return p;
}

/* --- 16 elements of a lane: raw, as floats, on the wire --------------------------------------- */

template <int D> struct sol_quantized_raw {
    struct sol_vector v[16 / sol_element<D>::count];
};

/* The lane's first element; its v-th vector is v * 8 vectors further. */
template <int D> SOL_GPU_FN uint32_t sol_quantized_first(void)
{
    return (threadIdx.x & 31) / 8 * SOL_QUANTIZED_GROUP + (threadIdx.x & 7) * sol_element<D>::count;
}

/* A vector at the ragged end, or not aligned: rare. */
SOL_GPU_RARE struct sol_vector sol_quantized_load_part(const char *from, uint64_t left)
{
    return sol_load_vector<false>(from, left < 16 ? (uint32_t)left : 16);
}
SOL_GPU_RARE void sol_quantized_store_part(char *to, uint64_t left, struct sol_vector v)
{
    sol_store_vector<false>(to, left < 16 ? (uint32_t)left : 16, v);
}

/* Of the block that begins with element `first` of `count`: zeros beyond. */
template <int D>
SOL_GPU_FN void sol_quantized_load(const char *from, uint64_t first, uint64_t count, bool whole,
                                   struct sol_quantized_raw<D> &x)
{
    enum { per = sol_element<D>::count, size = 16 / per };
    const char *at = from + (first + sol_quantized_first<D>()) * size;
    if (!SOL_UNLIKELY(!whole || first + SOL_QUANTIZED_BLOCK > count)) {
#pragma unroll
        for (int v = 0; v < 16 / per; v++)
            x.v[v] = sol_load_16(at + v * 128);
        return;
    }
#pragma unroll
    for (int v = 0; v < 16 / per; v++) {
        const uint64_t element = first + sol_quantized_first<D>() + v * 8 * per;
        x.v[v].a = x.v[v].b = 0;
        if (element < count)
            x.v[v] = sol_quantized_load_part(at + v * 128, (count - element) * size);
    }
}

template <int D>
SOL_GPU_FN void sol_quantized_store(char *to, uint64_t first, uint64_t count, bool whole,
                                    const struct sol_quantized_raw<D> &x)
{
    enum { per = sol_element<D>::count, size = 16 / per };
    char *at = to + (first + sol_quantized_first<D>()) * size;
    if (!SOL_UNLIKELY(!whole || first + SOL_QUANTIZED_BLOCK > count)) {
#pragma unroll
        for (int v = 0; v < 16 / per; v++)
            sol_store_16(at + v * 128, x.v[v]);
        return;
    }
#pragma unroll
    for (int v = 0; v < 16 / per; v++) {
        const uint64_t element = first + sol_quantized_first<D>() + v * 8 * per;
        if (element < count)
            sol_quantized_store_part(at + v * 128, (count - element) * size, x.v[v]);
    }
}

template <int D>
SOL_GPU_FN void sol_quantized_floats(const struct sol_quantized_raw<D> &raw, float (&x)[16])
{
    enum { per = sol_element<D>::count };
#pragma unroll
    for (int v = 0; v < 16 / per; v++) {
        const struct sol_lanes<D> lanes = sol_unpack<D>(raw.v[v]);
#pragma unroll
        for (int i = 0; i < per; i++)
            x[v * per + i] = lanes.x[i];
    }
}

/* Rounded once to the type of the result, NaNs being the canonical one. `plain`: there are none. */
template <int D>
SOL_GPU_FN struct sol_quantized_raw<D> sol_quantized_round(const float (&x)[16], bool plain) {
    enum { per = sol_element<D>::count };
    struct sol_quantized_raw<D> raw;
#pragma unroll
    for (int v = 0; v < 16 / per; v++) {
        struct sol_lanes<D> lanes;
#pragma unroll
        for (int i = 0; i < per; i++)
            lanes.x[i] = x[v * per + i];
        raw.v[v] = plain ? sol_pack_numbers<D>(lanes) : sol_pack<D>(lanes);
    }
    return raw;
}

/* --- the scale ---------------------------------------------------------------------------------
 */

/* The largest magnitude of the group as the bits of a float. All lanes of the warp. */
SOL_GPU_FN uint32_t
sol_quantized_largest(const float (&x)[16])
{
    uint32_t largest = 0;
    __syncwarp(); /* a warp that polled or branched would shuffle in a detour otherwise */
#pragma unroll
    for (int i = 0; i < 16; i++)
        largest = max(largest, sol_bits_f32(x[i]) & 0x7fffffffu);
#pragma unroll
    for (int half = 1; half < 8; half *= 2)
        largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, half));
    return largest;
}

/* The greater of two and two magnitudes of 16-bit floats; NaN if either is. */
template <int D> SOL_GPU_FN uint32_t sol_quantized_greater(uint32_t a, uint32_t b)
{
    return D == SOL_BFLOAT16 ? sol_max_bf16x2(a, b) : sol_max_f16x2(a, b);
}

template <int D>
SOL_GPU_FN uint32_t sol_quantized_largest_of(const struct sol_quantized_raw<D> &raw)
{
    if constexpr (D == SOL_FLOAT32) {
        float x[16];
        sol_quantized_floats<D>(raw, x);
        return sol_quantized_largest(x);
    } else {
        const uint64_t w[4] = {raw.v[0].a, raw.v[0].b, raw.v[1].a, raw.v[1].b};
        uint32_t two = 0;
        float pair[2];
        __syncwarp(); /* as above */
#pragma unroll
        for (int i = 0; i < 4; i++)
            two = sol_quantized_greater<D>(
                two, sol_quantized_greater<D>((uint32_t)w[i] & 0x7fff7fffu,
                                              (uint32_t)(w[i] >> 32) & 0x7fff7fffu));
#pragma unroll
        for (int half = 1; half < 8; half *= 2)
            two = sol_quantized_greater<D>(two, __shfl_xor_sync(0xffffffffu, two, half));
        sol_unpack_u32<D>(pair, two);
        return max(sol_bits_f32(pair[0]), sol_bits_f32(pair[1]));
    }
}

/* a / 448 or a / 127, rounded to nearest even, for a from 2^-100 to the largest float: a product
 * with the reciprocal, once corrected. tests/emu/emu_quantized_scale.cu tries all mantissas. */
template <int W> SOL_GPU_FN float sol_quantized_divide(float a)
{
    const float most = W == SOL_INT8 ? 127.0f : 448.0f,
                reciprocal = W == SOL_INT8 ? 1.0f / 127.0f : 1.0f / 448.0f;
    const float q = sol_mul_f32(a, reciprocal);
    return sol_fma_f32(sol_fma_f32(-q, most, a), reciprocal, q);
}

/* The scale, from the largest magnitude: NaN if that is no finite number. */
template <int W> SOL_GPU_FN float sol_quantized_scale(uint32_t largest)
{
    const float least = 0x1p-100f,
                scale = sol_quantized_divide<W>(sol_f32_bits(max(largest, sol_bits_f32(least))));
    return largest >= 0x7f800000u ? sol_f32_bits(0x7fc00000u) : scale;
}

/* Are sums of what such scales stand for finite, with 8 ranks? (NaN: no.) */
SOL_GPU_FN bool sol_quantized_plain(float scale)
{
    return scale < 0x1p100f;
}

/* --- to the wire and back --------------------------------------------------------------------- */

/* Four numbers, of magnitudes up to the largest of the wire's type but for roundings. */
template <int W> SOL_GPU_FN uint32_t sol_quantized_four(const float *y)
{
    if constexpr (W == SOL_FLOAT8_E4M3)
        return sol_pack_u32<SOL_FLOAT8_E4M3>(y);
    uint32_t bits[4]; /* of 1.5 * 2^23 + y: the integer in the low byte, ties to even */
#pragma unroll
    for (int i = 0; i < 4; i++)
        bits[i] = sol_bits_f32(sol_add_f32(y[i], 0x1.8p23f));
    return ~sol_permute(sol_permute(bits[0], bits[1], 0x40), sol_permute(bits[2], bits[3], 0x40),
                        0x5410);
}

template <int W> SOL_GPU_FN struct sol_vector sol_quantized_pack(const float (&x)[16], float scale)
{
    const float inverse = sol_reciprocal_f32(scale);
    float y[16];
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 16; i++)
        y[i] = sol_mul_f32(x[i], inverse);
#pragma unroll
    for (int i = 0; i < 4; i++)
        w[i] = sol_quantized_four<W>(y + 4 * i);
    const struct sol_vector v = {w[0] | (uint64_t)w[1] << 32, w[2] | (uint64_t)w[3] << 32};
    return v;
}

template <int D, int W>
SOL_GPU_FN struct sol_quantized sol_quantized_make(const struct sol_quantized_raw<D> &raw)
{
    struct sol_quantized q;
    float x[16];
    q.scale = sol_quantized_scale<W>(sol_quantized_largest_of<D>(raw));
    sol_quantized_floats<D>(raw, x);
    q.values = sol_quantized_pack<W>(x, q.scale);
    return q;
}

template <int W> SOL_GPU_FN struct sol_quantized sol_quantized_again(const float (&x)[16])
{
    struct sol_quantized q;
    q.scale = sol_quantized_scale<W>(sol_quantized_largest(x));
    q.values = sol_quantized_pack<W>(x, q.scale);
    return q;
}

/* What they stand for. */
template <int W> SOL_GPU_FN void sol_quantized_open(const struct sol_quantized &q, float (&y)[16])
{
    const uint32_t w[4] = {(uint32_t)q.values.a, (uint32_t)(q.values.a >> 32), (uint32_t)q.values.b,
                           (uint32_t)(q.values.b >> 32)};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float four[4];
        if constexpr (W == SOL_FLOAT8_E4M3) {
            sol_unpack_u32<SOL_FLOAT8_E4M3>(four, w[i]);
        } else { /* inverted, and 128 more: the low byte of 2^23 + that */
            const uint32_t beyond = w[i] ^ 0x7f7f7f7fu;
#pragma unroll
            for (int k = 0; k < 4; k++)
                four[k] = sol_add_f32(sol_f32_bits(sol_permute(beyond, 0x4b000000u, 0x7440u + k)),
                                      -(0x1p23f + 128));
        }
#pragma unroll
        for (int k = 0; k < 4; k++)
            y[4 * i + k] = sol_mul_f32(four[k], q.scale);
    }
}

/* By value: a choice between variables would put both into memory. */
SOL_GPU_FN struct sol_quantized sol_quantized_choose(bool first, const struct sol_quantized &a,
                                                     const struct sol_quantized &b)
{
    struct sol_quantized q;
    q.values.a = first ? a.values.a : b.values.a;
    q.values.b = first ? a.values.b : b.values.b;
    q.scale = first ? a.scale : b.scale;
    return q;
}

/* The sum in rank order. `plain`: it has no NaN. */
template <int W, int N>
SOL_GPU_FN void sol_quantized_sum(int rank, int n, const struct sol_quantized &own,
                                  const struct sol_quantized (&in)[N - 1], float (&sum)[16],
                                  bool &plain)
{
    plain = sol_quantized_plain(own.scale);
    sol_quantized_open<W>(sol_quantized_choose(N == 2 || rank == 0, own, in[0]), sum);
#pragma unroll
    for (int r = 1; r < N; r++) {
        if (r >= n)
            break;
        float y[16];
        struct sol_quantized x = in[r - 1];
        plain = plain && sol_quantized_plain(x.scale);
        x = sol_quantized_choose(N > 2 && r < rank && r < N - 1, in[r < N - 1 ? r : 0], x);
        x = sol_quantized_choose(N > 2 && r == rank, own, x);
        sol_quantized_open<W>(x, y); /* (with two ranks the other's: they commute, bit for bit) */
#pragma unroll
        for (int i = 0; i < 16; i++)
            sum[i] = sol_add_f32(sum[i], y[i]);
    }
}

/* --- the slots -------------------------------------------------------------------------------- */

/* To the k-th peer. */
SOL_GPU_FN void sol_quantized_send(const struct sol_link &comm, const struct sol_ticket &ticket,
                                   int k, const struct sol_quantized_place &place,
                                   const struct sol_quantized &q)
{
    char *slot = comm.out[k] + ticket.shift;
    sol_push_vector(slot + place.values, q.values);
    if ((threadIdx.x & 7) == 0)
        sol_push_u32((uint32_t *)(slot + place.scale), sol_bits_f32(q.scale));
}

/* Halves of the mark are greater than any scale. */
SOL_GPU_FN bool sol_quantized_missing(const struct sol_quantized &q)
{
    return (uint32_t)(q.values.a >> 32) == SOL_WORD_HIGH ||
           (uint32_t)(q.values.b >> 32) == SOL_WORD_HIGH || sol_bits_f32(q.scale) > 0x7fc00000u;
}

/* From each source. False, to all lanes of the warp: one gave up. True: all of them have read. */
template <int N>
SOL_GPU_FN bool sol_quantized_receive(const struct sol_link &comm, const struct sol_ticket &ticket,
                                      int rank, int n, const struct sol_quantized_place &place,
                                      const struct sol_story &story,
                                      struct sol_quantized (&in)[N - 1])
{
    struct sol_watch watch = {0, 0};
    int awaited;
    bool good = true;
    do {
        awaited = -1;
#pragma unroll
        for (int q = 0; q < N - 1; q++) {
            const char *slot = sol_source_slot(comm, rank, q) + ticket.shift;
            in[q].values.a = in[q].values.b = 0;
            in[q].scale = 0;
            if (q < n - 1) {
                in[q].values = sol_poll_vector(slot + place.values);
                in[q].scale = sol_f32_bits(sol_poll_u32((const uint32_t *)(slot + place.scale)));
            }
        }
#pragma unroll
        for (int q = 0; q < N - 1; q++)
            if (sol_quantized_missing(in[q]))
                awaited = sol_poll_peer(rank, q);
        if (awaited >= 0)
            good = !sol_watch_expired(comm, story, watch, awaited);
    } while (awaited >= 0 && good);
    return __all_sync(0xffffffffu, good);
}

template <int N>
SOL_GPU_FN void sol_quantized_reset(const struct sol_link &comm, const struct sol_ticket &ticket,
                                    int rank, int n, const struct sol_quantized_place &place)
{
    const uint32_t half =
        (threadIdx.x & 8) != 0 ? SOL_WORD_HIGH : (uint32_t)SOL_WORD_MARK; /* that it lies in */
#pragma unroll
    for (int q = 0; q < N - 1; q++) {
        if (q >= n - 1)
            break;
        char *slot = sol_source_slot(comm, rank, q) + ticket.shift;
        sol_reset_vector(slot + place.values);
        if ((threadIdx.x & 7) == 0)
            sol_push_u32((uint32_t *)(slot + place.scale), half);
    }
}

/* --- one hop ---------------------------------------------------------------------------------- */

/* Two ranks. LOOP: a warp has several blocks; one is pushed, and the one after it loaded, before
 * the one before it is awaited. Otherwise each has one at most. */
template <int D, int W, bool LOOP>
__global__ void __launch_bounds__(512, 1)
    sol_quantized_pair_kernel(const __grid_constant__ struct sol_quantized_args args,
                              const __grid_constant__ struct sol_link comm,
                              const __grid_constant__ struct sol_tail tail)
{
    const uint32_t warps = gridDim.x * blockDim.x / 32, turn = LOOP ? warps : 0;
    const bool whole = args.whole != 0;
    uint32_t block = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const bool mine = block < args.blocks;
    struct sol_quantized_raw<D> raw;
    struct sol_quantized own, next, in[1];
    sol_await_predecessors();
    sol_admit_successor();
    if (mine)
        sol_quantized_load<D>(args.send, (uint64_t)block * SOL_QUANTIZED_BLOCK, args.count, whole,
                              raw);
    const struct sol_ticket ticket = sol_take_ticket(comm);
    if (mine)
        own = sol_quantized_make<D, W>(raw);
    const bool dead = __any_sync(0xffffffffu, ticket.dead);
    if (mine && !dead)
        sol_quantized_send(comm, ticket, 0, sol_quantized_place(args.blocks, block), own);
    sol_leave_ticket(comm, ticket); /* all threads of the CTA meet here */
    if (!mine || dead)
        return;
    if (LOOP && block + turn < args.blocks)
        sol_quantized_load<D>(args.send, (uint64_t)(block + turn) * SOL_QUANTIZED_BLOCK, args.count,
                              whole, raw);
#pragma unroll 1
    for (;;) {
        const bool more = LOOP && turn < args.blocks - block;
        float sum[16];
        bool plain;
        if (more) {
            next = sol_quantized_make<D, W>(raw);
            sol_quantized_send(comm, ticket, 0, sol_quantized_place(args.blocks, block + turn),
                               next);
            if (2 * turn < args.blocks - block)
                sol_quantized_load<D>(args.send, (uint64_t)(block + 2 * turn) * SOL_QUANTIZED_BLOCK,
                                      args.count, whole, raw);
        }
        const struct sol_quantized_place place = sol_quantized_place(args.blocks, block);
        if (!sol_quantized_receive<2>(comm, ticket, comm.rank, 2, place, tail.story, in))
            return;
        sol_quantized_reset<2>(comm, ticket, comm.rank, 2, place);
        sol_quantized_sum<W, 2>(comm.rank, 2, own, in, sum, plain);
        sol_quantized_store<D>(args.recv, (uint64_t)block * SOL_QUANTIZED_BLOCK, args.count, whole,
                               sol_quantized_round<D>(sum, plain));
        if (!more)
            return;
        block += turn;
        own = next;
    }
}

/* Any number of ranks. */
template <int D, int W>
__global__ void __launch_bounds__(256, 1)
    sol_quantized_kernel(const __grid_constant__ struct sol_quantized_args args,
                         const __grid_constant__ struct sol_link comm,
                         const __grid_constant__ struct sol_tail tail)
{
    enum { N = SOL_GPU_MAX_RANKS };
    const int n = comm.nranks, rank = comm.rank;
    const uint32_t warps = gridDim.x * blockDim.x / 32;
    const bool whole = args.whole != 0;
    uint32_t block = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    struct sol_quantized_raw<D> raw;
    sol_await_predecessors();
    sol_admit_successor();
    if (block < args.blocks)
        sol_quantized_load<D>(args.send, (uint64_t)block * SOL_QUANTIZED_BLOCK, args.count, whole,
                              raw);
    const struct sol_ticket ticket = sol_take_ticket(comm);
    sol_leave_ticket(comm, ticket); /* all threads of the CTA meet here */
    if (__any_sync(0xffffffffu, ticket.dead))
        return;
#pragma unroll 1
    for (; block < args.blocks; block += warps) {
        const struct sol_quantized_place place = sol_quantized_place(args.blocks, block);
        const uint64_t first = (uint64_t)block * SOL_QUANTIZED_BLOCK;
        struct sol_quantized in[N - 1];
        float sum[16];
        bool plain;
        const struct sol_quantized own = sol_quantized_make<D, W>(raw);
#pragma unroll
        for (int k = 0; k < N - 1; k++)
            if (k < n - 1)
                sol_quantized_send(comm, ticket, k, place, own);
        if (block + warps < args.blocks)
            sol_quantized_load<D>(args.send, first + (uint64_t)warps * SOL_QUANTIZED_BLOCK,
                                  args.count, whole, raw);
        if (!sol_quantized_receive<N>(comm, ticket, rank, n, place, tail.story, in))
            return;
        sol_quantized_reset<N>(comm, ticket, rank, n, place);
        sol_quantized_sum<W, N>(rank, n, own, in, sum, plain);
        sol_quantized_store<D>(args.recv, first, args.count, whole,
                               sol_quantized_round<D>(sum, plain));
    }
}

/* --- two hops --------------------------------------------------------------------------------- */

template <int D, int W>
__global__ void __launch_bounds__(256, 1)
    sol_quantized_two_kernel(const __grid_constant__ struct sol_quantized_args args,
                             const __grid_constant__ struct sol_link comm,
                             const __grid_constant__ struct sol_tail tail)
{
    enum { N = SOL_GPU_MAX_RANKS };
    const int n = comm.nranks, rank = comm.rank;
    const uint32_t warps = gridDim.x * blockDim.x / 32;
    const uint64_t share = (uint64_t)args.blocks * SOL_QUANTIZED_BLOCK;
    const bool whole = args.whole != 0;
    uint32_t block = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    sol_await_predecessors();
    sol_admit_successor();
    const struct sol_ticket ticket = sol_take_ticket(comm);
    sol_leave_ticket(comm, ticket); /* all threads of the CTA meet here */
    if (__any_sync(0xffffffffu, ticket.dead))
        return;
#pragma unroll 1
    for (; block < args.blocks; block += warps) {
        struct sol_quantized_place place = sol_quantized_place(args.blocks, block);
        const uint64_t first = (uint64_t)block * SOL_QUANTIZED_BLOCK;
        struct sol_quantized_raw<D> raw;
        struct sol_quantized own, in[N - 1];
        float x[16];
        bool plain;
        sol_quantized_load<D>(args.send, first + sol_push_peer(rank, n, 0) * share, args.count,
                              whole, raw);
#pragma unroll 1
        for (int k = 0; k < n; k++) { /* the last is this rank itself */
            const struct sol_quantized_raw<D> now = raw;
            if (k < n - 1)
                sol_quantized_load<D>(args.send, first + sol_push_peer(rank, n, k + 1) * share,
                                      args.count, whole, raw);
            own = sol_quantized_make<D, W>(now);
            if (k < n - 1)
                sol_quantized_send(comm, ticket, k, place, own);
        }
        if (!sol_quantized_receive<N>(comm, ticket, rank, n, place, tail.story, in))
            return;
        sol_quantized_reset<N>(comm, ticket, rank, n, place);
        sol_quantized_sum<W, N>(rank, n, own, in, x, plain);
        own = sol_quantized_again<W>(x);
        place.values += comm.slot_bytes / 2;
        place.scale += comm.slot_bytes / 2;
#pragma unroll
        for (int k = 0; k < N - 1; k++)
            if (k < n - 1)
                sol_quantized_send(comm, ticket, k, place, own);
        sol_quantized_open<W>(own, x);
        sol_quantized_store<D>(args.recv, first + rank * share, args.count, whole,
                               sol_quantized_round<D>(x, sol_quantized_plain(own.scale)));
        if (!sol_quantized_receive<N>(comm, ticket, rank, n, place, tail.story, in))
            return;
        sol_quantized_reset<N>(comm, ticket, rank, n, place);
#pragma unroll
        for (int q = 0; q < N - 1; q++) {
            if (q >= n - 1)
                break;
            sol_quantized_open<W>(in[q], x);
            sol_quantized_store<D>(args.recv, first + sol_poll_peer(rank, q) * share, args.count,
                                   whole,
                                   sol_quantized_round<D>(x, sol_quantized_plain(in[q].scale)));
        }
    }
}

#endif
