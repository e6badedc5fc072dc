/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantized.cuh: all_reduce with 8 bits an element on the wire, in one hop or two.
 * The arithmetic is that of coll/quantize.c, to the bit.
 *
 * A warp takes a block of 512 elements, a lane 16 of them, eight lanes a group. On
 * the wire a block is 33 vectors: 32 of values, a lane each, and one with the four
 * scales, which lane 0 sends and takes:
 *
 *     load | largest of the group (shuffles) | round | push | leave ticket | poll |
 *     add up in rank order | round and store | reset slots
 *
 * In two hops the owner of a share rounds its sums again and sends those, in the
 * upper half of the slots, as in two_shot.cuh.
 *
 * Must never: shuffle while some lanes of the warp have left; add up an own
 * contribution that was not rounded as the others' are.
 */
#ifndef SOL_DEVICE_KERNELS_QUANTIZED_CUH
#define SOL_DEVICE_KERNELS_QUANTIZED_CUH

#include "device/kernels/quantized_launch.h"
#include "device/prim/slots.cuh"

#define SOL_QUANTIZED_BLOCK 512 /* elements of a warp and turn */
#define SOL_QUANTIZED_WIRE 528  /* their bytes in a slot */
#define SOL_QUANTIZED_THREADS 256
#define SOL_QUANTIZED_BEYOND 0x80000000u /* a place that no slot has */

struct sol_quantized_args {
    const char *send;
    char *recv;
    uint64_t count;  /* elements of this launch */
    uint32_t blocks; /* of all (one hop), of a share (two) */
    uint32_t int8;   /* the wire's type; otherwise E4M3 */
};

/* This lane's vectors of a block: values, and on lane 0 the scales. */
SOL_GPU_FN struct sol_place sol_quantized_place(uint32_t block, bool active)
{
    const uint32_t lane = threadIdx.x & 31;
    struct sol_place p;
    p.at = active ? block * SOL_QUANTIZED_WIRE + lane * 16 : SOL_QUANTIZED_BEYOND;
    p.step = lane == 0 ? SOL_QUANTIZED_BLOCK : SOL_QUANTIZED_BEYOND / 2;
    p.turn = 0;
    return p;
}

/* --- 16 elements ------------------------------------------------------------------------------ */

/* From element `first` on; zeros beyond `count`. */
template <int D>
SOL_GPU_FN void sol_quantized_load(const char *from, uint64_t first, uint64_t count, float (&x)[16])
{
    enum { per = sol_element<D>::count, size = 16 / per };
#pragma unroll
    for (int v = 0; v < 16 / per; v++) {
        const uint64_t at = first + v * per;
        struct sol_vector vector = {0, 0};
        if (at < count) {
            uint64_t left = (count - at) * size;
            vector = sol_load_vector<false>(from + at * size, left < 16 ? (uint32_t)left : 16);
        }
        struct sol_lanes<D> lanes = sol_unpack<D>(vector);
#pragma unroll
        for (int i = 0; i < per; i++)
            x[v * per + i] = lanes.x[i];
    }
}

template <int D>
SOL_GPU_FN void sol_quantized_store(char *to, uint64_t first, uint64_t count, const float (&x)[16])
{
    enum { per = sol_element<D>::count, size = 16 / per };
#pragma unroll
    for (int v = 0; v < 16 / per; v++) {
        const uint64_t at = first + v * per;
        struct sol_lanes<D> lanes;
#pragma unroll
        for (int i = 0; i < per; i++)
            lanes.x[i] = x[v * per + i];
        if (at < count) {
            uint64_t left = (count - at) * size;
            sol_store_vector<false>(to + at * size, left < 16 ? (uint32_t)left : 16,
                                    sol_pack<D>(lanes));
        }
    }
}

/* The group's scale: NaN if a number in it is not finite. All lanes of the warp. */
SOL_GPU_FN float sol_quantized_scale(const float (&x)[16], bool int8)
{
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < 16; i++)
        largest = max(largest, sol_bits_f32(x[i]) & 0x7fffffffu);
#pragma unroll
    for (int half = 1; half < 8; half *= 2)
        largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, half));
    if (largest >= 0x7f800000u)
        return sol_f32_bits(0x7fc00000u);
    const float amax = sol_f32_bits(largest);
    return sol_div_f32(amax < 0x1p-100f ? 0x1p-100f : amax, int8 ? 127.0f : 448.0f);
}

SOL_GPU_FN uint32_t sol_quantized_four(const float *y, bool int8)
{
    uint32_t w = 0;
    if (!int8)
        return sol_pack_u32<SOL_FLOAT8_E4M3>(y);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float x = y[i] > 127.0f ? 127.0f : y[i] < -127.0f ? -127.0f : y[i];
        w |= ((uint32_t)(int32_t)sol_rint_f32(x) & 0xff) << 8 * i;
    }
    return w;
}

/* Values into v[0]; on lane 0 the warp's four scales into v[1]. All lanes of the warp. */
SOL_GPU_FN void sol_quantized_pack(const float (&x)[16], bool int8, struct sol_vector (&v)[2])
{
    const float scale = sol_quantized_scale(x, int8), inverse = sol_div_f32(1.0f, scale);
    float y[16];
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 16; i++)
        y[i] = scale != scale ? 0.0f : sol_mul_f32(x[i], inverse);
#pragma unroll
    for (int i = 0; i < 4; i++)
        w[i] = sol_quantized_four(y + 4 * i, int8);
    v[0].a = w[0] | (uint64_t)w[1] << 32;
    v[0].b = w[2] | (uint64_t)w[3] << 32;
#pragma unroll
    for (int g = 0; g < 4; g++)
        w[g] = __shfl_sync(0xffffffffu, sol_bits_f32(scale), 8 * g);
    v[1].a = w[0] | (uint64_t)w[1] << 32;
    v[1].b = w[2] | (uint64_t)w[3] << 32;
}

/* What a lane's v[0] stands for, with the scales in lane 0's v[1]. All lanes of the warp. */
SOL_GPU_FN void sol_quantized_unpack(const struct sol_vector (&v)[2], bool int8, float (&y)[16])
{
    const uint64_t a = __shfl_sync(0xffffffffu, v[1].a, 0), b = __shfl_sync(0xffffffffu, v[1].b, 0);
    const uint32_t group = threadIdx.x >> 3 & 3;
    const uint64_t two = group < 2 ? a : b;
    const float scale = sol_f32_bits((uint32_t)(group & 1 ? two >> 32 : two));
    const uint32_t w[4] = {(uint32_t)v[0].a, (uint32_t)(v[0].a >> 32), (uint32_t)v[0].b,
                           (uint32_t)(v[0].b >> 32)};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float four[4];
        sol_unpack_u32<SOL_FLOAT8_E4M3>(four, w[i]);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float value = int8 ? (float)(int8_t)(w[i] >> 8 * k) : four[k];
            y[4 * i + k] = sol_mul_f32(value, scale);
        }
    }
}

/* The sum in rank order. All lanes of the warp. */
template <int N>
SOL_GPU_FN void sol_quantized_sum(int rank, int n, const struct sol_vector (&own)[2],
                                  const struct sol_vector (&in)[N - 1][2], bool int8,
                                  float (&sum)[16])
{
#pragma unroll
    for (int r = 0; r < N; r++) {
        if (r >= n)
            break;
        struct sol_vector v[2];
        float y[16];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            struct sol_vector x =
                r < rank && r < N - 1 ? in[r < N - 1 ? r : 0][i] : in[r > 0 ? r - 1 : 0][i];
            v[i] = r == rank ? own[i] : x;
        }
        sol_quantized_unpack(v, int8, y);
#pragma unroll
        for (int i = 0; i < 16; i++)
            sum[i] = r == 0 ? y[i] : sol_add_f32(sum[i], y[i]);
    }
}

/* Did all lanes get what they waited for? */
SOL_GPU_FN bool sol_quantized_all(bool good)
{
    return __all_sync(0xffffffffu, good);
}

/* --- one hop ---------------------------------------------------------------------------------- */

template <int D, int N>
__global__ void __launch_bounds__(SOL_QUANTIZED_THREADS, N == 2 ? 2 : 1)
    sol_quantized_kernel(const __grid_constant__ struct sol_quantized_args args,
                         const __grid_constant__ struct sol_link comm,
                         const __grid_constant__ struct sol_tail tail)
{
    const int n = N == 2 ? 2 : comm.nranks, rank = comm.rank;
    const uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32,
                   warps = gridDim.x * blockDim.x / 32, bytes = args.blocks * SOL_QUANTIZED_WIRE;
    const bool int8 = args.int8 != 0;
    sol_await_predecessors();
    sol_admit_successor();
    struct sol_ticket ticket;
    bool left = false;
#pragma unroll 1
    for (uint32_t base = 0; base < args.blocks; base += warps) { /* as often for all warps */
        const uint32_t block = base + warp;
        const uint64_t first = (uint64_t)block * SOL_QUANTIZED_BLOCK + (threadIdx.x & 31) * 16;
        const struct sol_place place = sol_quantized_place(block, block < args.blocks);
        struct sol_vector own[2], in[N - 1][2];
        float x[16];
        sol_quantized_load<D>(args.send, first, args.count, x);
        if (!left)
            ticket = sol_take_ticket(comm);
        if (!left && !sol_quantized_all(!ticket.dead))
            return;
        sol_quantized_pack(x, int8, own);
        sol_send_to_all<N, 2, true>(comm, ticket, n, 0, bytes, place, own);
        if (!left)
            sol_leave_ticket(comm, ticket);
        left = true;
        if (!sol_quantized_all(
                sol_receive<N, 2, true>(comm, ticket, rank, n, 0, bytes, place, tail.story, in)))
            return;
        sol_quantized_sum<N>(rank, n, own, in, int8, x);
        sol_quantized_store<D>(args.recv, first, args.count, x);
        sol_reset<N, 2, true>(comm, ticket, rank, n, 0, bytes, place);
    }
}

/* --- two hops --------------------------------------------------------------------------------- */

template <int D, int N>
__global__ void __launch_bounds__(SOL_QUANTIZED_THREADS, 1)
    sol_quantized_two_kernel(const __grid_constant__ struct sol_quantized_args args,
                             const __grid_constant__ struct sol_link comm,
                             const __grid_constant__ struct sol_tail tail)
{
    const int n = comm.nranks, rank = comm.rank;
    const uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32,
                   warps = gridDim.x * blockDim.x / 32, bytes = args.blocks * SOL_QUANTIZED_WIRE,
                   upper = comm.slot_bytes / 2;
    const bool int8 = args.int8 != 0;
    sol_await_predecessors();
    sol_admit_successor();
    struct sol_ticket ticket;
    bool left = false;
#pragma unroll 1
    for (uint32_t base = 0; base < args.blocks; base += warps) {
        const uint32_t block = base + warp;
        const bool active = block < args.blocks;
        struct sol_place place = sol_quantized_place(block, active);
        struct sol_vector own[2], in[N - 1][2];
        float x[16];
        /* element of share p: a warp that has no block has none in any share */
        const uint64_t share = (uint64_t)args.blocks * SOL_QUANTIZED_BLOCK,
                       first = active
                                   ? (uint64_t)block * SOL_QUANTIZED_BLOCK + (threadIdx.x & 31) * 16
                                   : args.count;
        if (!left)
            ticket = sol_take_ticket(comm);
        if (!left && !sol_quantized_all(!ticket.dead))
            return;
#pragma unroll 1
        for (int k = 0; k < n; k++) { /* the last is this rank itself */
            const int peer = sol_push_peer(rank, n, k);
            sol_quantized_load<D>(args.send, first + peer * share, args.count, x);
            sol_quantized_pack(x, int8, own);
            if (k < n - 1)
                sol_send_to<2>(comm, ticket, k, bytes, place, own);
        }
        if (!left)
            sol_leave_ticket(comm, ticket);
        left = true;
        if (!sol_quantized_all(
                sol_receive<N, 2, true>(comm, ticket, rank, n, 0, bytes, place, tail.story, in)))
            return;
        sol_reset<N, 2, true>(comm, ticket, rank, n, 0, bytes, place);
        sol_quantized_sum<N>(rank, n, own, in, int8, x);
        sol_quantized_pack(x, int8, own);
        place.at += upper;
        sol_send_to_all<N, 2, true>(comm, ticket, n, 0, bytes + upper, place, own);
        sol_quantized_unpack(own, int8, x);
        sol_quantized_store<D>(args.recv, first + rank * share, args.count, x);
        if (!sol_quantized_all(sol_receive<N, 2, true>(comm, ticket, rank, n, 0, bytes + upper,
                                                       place, tail.story, in)))
            return;
#pragma unroll
        for (int q = 0; q < N - 1; q++) {
            if (q >= n - 1)
                break;
            sol_quantized_unpack(in[q], int8, x);
            sol_quantized_store<D>(args.recv, first + sol_poll_peer(rank, q) * share, args.count,
                                   x);
        }
        sol_reset<N, 2, true>(comm, ticket, rank, n, 0, bytes + upper, place);
    }
}

#endif
