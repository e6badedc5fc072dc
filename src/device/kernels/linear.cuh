/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear.cuh: the product of a few tokens with this rank's columns of the weights, and the
 * sum over the ranks, in one kernel, one hop. The order of a product's sum is in
 * coll/linear.h, whose bits these are.
 *
 *     a tile's product | push it to every peer | the next tile's ... || poll, sum, store
 *
 * A tile is 8 outputs of a group of T tokens: one warp's work, which ends in one vector
 * for each token. So the first tiles travel while later ones are computed. Groups of one
 * tile are in neighbouring warps, which find the weights in L1.
 *
 * Must never: poll before the pushes of all its tiles have been issued; let an order of
 * additions depend on anything but inputs and the type of the weights.
 */
#ifndef SOL_DEVICE_KERNELS_LINEAR_CUH
#define SOL_DEVICE_KERNELS_LINEAR_CUH

#include "device/kernels/one_shot.cuh"
#include "solccl/fused.h"

#ifndef SOL_LINEAR_THREADS /* (fewer in the emulator) */
#define SOL_LINEAR_THREADS 256
#endif
#define SOL_LINEAR_ROWS 8 /* outputs of a tile: a vector of bf16 */

struct sol_linear_kernel_args {
    const char *input, *weight, *scales; /* scales NULL: ones */
    char *output;
    uint32_t inputs;         /* columns of a row */
    uint32_t outputs;        /* rows of this launch */
    uint32_t all_outputs;    /* from one token's outputs to the next one's */
    uint32_t tokens, groups; /* groups of T tokens */
    uint32_t tiles;          /* of all groups: tile i is of rows i / groups, group i % groups */
};

/* The vector at column `at` of a row of `count` elements of which a vector has E; zeros beyond. */
template <int E>
SOL_GPU_FN struct sol_vector sol_linear_load(const char *row, uint32_t at, uint32_t count)
{
    struct sol_vector v = {0, 0};
    if (at < count)
        v = sol_load_vector<false>(row + (uint64_t)at * (16 / E),
                                   count - at < E ? (count - at) * (16 / E) : 16);
    return v;
}

/* Lane's sums of the tile: rows from `first` on, tokens from `token` on. */
template <int W, int T>
SOL_GPU_FN void sol_linear_sums(const struct sol_linear_kernel_args &args, uint32_t first,
                                uint32_t token, float (&sum)[SOL_LINEAR_ROWS][T])
{
    enum { E = sol_element<W>::count, R = SOL_LINEAR_ROWS, X = E / 8 };
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int t = 0; t < T; t++)
            sum[r][t] = 0;
    for (uint32_t block = 0; block < args.inputs; block += 32 * E) {
        const uint32_t at = block + lane * E;
        struct sol_vector w[R], x[T][X];
#pragma unroll
        for (int r = 0; r < R; r++) {
            w[r].a = w[r].b = 0;
            if (first + r < args.outputs)
                w[r] = sol_linear_load<E>(
                    args.weight + (uint64_t)(first + r) * args.inputs * (16 / E), at, args.inputs);
        }
#pragma unroll
        for (int t = 0; t < T; t++)
#pragma unroll
            for (int h = 0; h < X; h++) {
                x[t][h].a = x[t][h].b = 0;
                if (token + t < args.tokens)
                    x[t][h] =
                        sol_linear_load<8>(args.input + (uint64_t)(token + t) * args.inputs * 2,
                                           at + h * 8, args.inputs);
            }
#pragma unroll
        for (int r = 0; r < R; r++) {
            const struct sol_lanes<W> weight = sol_unpack<W>(w[r]);
#pragma unroll
            for (int t = 0; t < T; t++)
#pragma unroll
                for (int h = 0; h < X; h++) {
                    const struct sol_lanes<SOL_BFLOAT16> own = sol_unpack<SOL_BFLOAT16>(x[t][h]);
#pragma unroll
                    for (int i = 0; i < 8; i++)
                        sum[r][t] = sol_fma_f32(weight.x[h * 8 + i], own.x[i], sum[r][t]);
                }
        }
    }
}

/* Where the vector of `token` and rows `rows` lies in a slot. */
SOL_GPU_FN struct sol_place sol_linear_slot(const struct sol_linear_kernel_args &args,
                                            uint32_t token, uint32_t rows)
{
    const uint32_t vectors = (args.outputs + SOL_LINEAR_ROWS - 1) / SOL_LINEAR_ROWS;
    struct sol_place place = {(token * vectors + rows) * 16, 0, 0};
    return place;
}

/* This rank's own slot, where its products wait for the others', in plain words. */
SOL_GPU_FN char *sol_linear_kept(const struct sol_link &comm, const struct sol_ticket &ticket)
{
    const int from_first = comm.rank - sol_poll_peer(comm.rank, 0);
    return comm.in + (int64_t)from_first * comm.slot_bytes + ticket.shift;
}

/* Compute a tile and send it. A warp. */
template <int W, int T>
SOL_GPU_FN void sol_linear_tile(const struct sol_linear_kernel_args &args,
                                const struct sol_link &comm, const struct sol_ticket &ticket,
                                uint32_t tile)
{
    enum { R = SOL_LINEAR_ROWS };
    const uint32_t rows = tile / args.groups, token = tile % args.groups * T;
    const uint32_t lane = threadIdx.x % 32;
    float sum[R][T];
    struct sol_lanes<SOL_BFLOAT16> mine;
    sol_linear_sums<W, T>(args, rows * R, token, sum);
#pragma unroll
    for (int r = 0; r < R; r++) {
        float scale = 1;
        if (args.scales && rows * R + r < args.outputs)
            scale = sol_f32_bits(
                (uint32_t)sol_load_vector<false>(args.scales + (uint64_t)(rows * R + r) * 4, 4).a);
        mine.x[r] = 0;
#pragma unroll
        for (int t = 0; t < T; t++) {
            float x = sum[r][t];
#pragma unroll
            for (int half = 16; half > 0; half /= 2)
                x = sol_add_f32(x, __shfl_xor_sync(0xffffffffu, x, half));
            x = args.scales ? sol_mul_f32(x, scale) : x;
            mine.x[r] = lane == (uint32_t)t ? x : mine.x[r];
        }
    }
    if (lane >= T || token + lane >= args.tokens)
        return;
    const struct sol_place place = sol_linear_slot(args, token + lane, rows);
    const struct sol_vector own[1] = {sol_pack<SOL_BFLOAT16>(mine)};
    sol_send_to_all<SOL_GPU_MAX_RANKS, 1, true>(comm, ticket, comm.nranks, 0, UINT32_MAX, place,
                                                own);
    sol_push_vector(sol_linear_kept(comm, ticket) + place.at, own[0]);
}

/* Take all ranks' products of one token and 8 rows, sum, store. One thread. False: gave up. */
SOL_GPU_FN bool sol_linear_finish(const struct sol_linear_kernel_args &args,
                                  const struct sol_link &comm, const struct sol_ticket &ticket,
                                  const struct sol_story &story, uint32_t token, uint32_t rows)
{
    enum { N = SOL_GPU_MAX_RANKS };
    const struct sol_place place = sol_linear_slot(args, token, rows);
    char *kept = sol_linear_kept(comm, ticket) + place.at;
    struct sol_vector in[N - 1][1], own = sol_poll_vector(kept);
    if (!sol_receive<N, 1, true>(comm, ticket, comm.rank, comm.nranks, 0, UINT32_MAX, place, story,
                                 in))
        return false;
    sol_reset<N, 1, true>(comm, ticket, comm.rank, comm.nranks, 0, UINT32_MAX, place);
    sol_reset_vector(kept);
    own = sol_reduce_ranks<SOL_BFLOAT16, N, 1>(SOL_SUM, comm.rank, comm.nranks, own, in, 0);
    const uint32_t column = rows * SOL_LINEAR_ROWS, left = (args.outputs - column) * 2;
    sol_store_vector<false>(args.output + ((uint64_t)token * args.all_outputs + column) * 2, left,
                            own);
    return true;
}

/* Two CTAs on an SM hide more of the weights' latency; for sm_80 the compiler would spill. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define SOL_LINEAR_CTAS 1
#else
#define SOL_LINEAR_CTAS 2
#endif

template <int W, int T>
__global__ void __launch_bounds__(SOL_LINEAR_THREADS, SOL_LINEAR_CTAS)
    sol_linear_kernel(const __grid_constant__ struct sol_linear_kernel_args args,
                      const __grid_constant__ struct sol_link comm,
                      const __grid_constant__ struct sol_tail tail)
{
    const uint32_t warps = gridDim.x * (blockDim.x / 32), lane = threadIdx.x % 32;
    const uint32_t warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    sol_await_predecessors();
    sol_admit_successor();
    const struct sol_ticket ticket = sol_take_ticket(comm);
    sol_leave_ticket(comm, ticket);
    if (ticket.dead)
        return;
    for (uint32_t tile = warp; tile < args.tiles; tile += warps)
        sol_linear_tile<W, T>(args, comm, ticket, tile);
    for (uint32_t tile = warp; tile < args.tiles; tile += warps) {
        const uint32_t token = tile % args.groups * T + lane;
        if (lane < T && token < args.tokens &&
            !sol_linear_finish(args, comm, ticket, tail.story, token, tile / args.groups))
            return;
    }
}

#endif
