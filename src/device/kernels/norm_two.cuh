/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_two.cuh: all_reduce, residual, norm and quantisation in two hops: a token is
 * added up, normalised and quantised by its owner alone, and the finished row is what
 * travels then. What each rank must do for all tokens in one hop (read the residual,
 * sum up, normalise, quantise), it does here for one n-th of them. With shards the
 * second hop carries less, or there is none: a reduce_scatter with a norm.
 *
 *     push each row to its owner | leave ticket |
 *     own rows: poll, h, sums, store (as norm.cuh, piece by piece) | push what was stored |
 *     others' rows: poll, store
 *
 * A CTA takes the i-th own row of this rank, and the i-th of every other. The lower
 * half of a slot is for contributions, its upper half for finished rows: output,
 * scales, h, each from a multiple of 16 on.
 *
 * Must never: poll before this CTA has pushed all its contributions; read back what
 * other threads of the CTA have stored without a barrier between.
 */
#ifndef SOL_DEVICE_KERNELS_NORM_TWO_CUH
#define SOL_DEVICE_KERNELS_NORM_TWO_CUH

#include "device/kernels/norm.cuh"

struct sol_norm_two_args {
    struct sol_norm_kernel_args own;      /* its row i is this rank's i-th */
    const char *input;                    /* all tokens' */
    char *output, *scales, *residual_out; /* all tokens': where others' rows go; NULL: nowhere */
    uint32_t first[SOL_GPU_MAX_RANKS];    /* token that is rank p's row 0 */
    uint32_t rows[SOL_GPU_MAX_RANKS];     /* of rank p, in this launch */
    uint32_t most;                        /* of them */
    uint32_t output_row, scales_row;      /* bytes */
    uint32_t scales_at, residual_at;      /* in a finished row */
    uint32_t finished; /* bytes of one in a slot: a multiple of 16; 0: they do not travel */
};

/* Row i of every other owner, to that owner. */
SOL_GPU_FN void sol_norm_two_push(const struct sol_norm_two_args &args, const struct sol_link &comm,
                                  const struct sol_ticket &ticket, uint32_t i)
{
#pragma unroll 1
    for (int k = 0; k < comm.nranks - 1; k++) {
        const int peer = sol_push_peer(comm.rank, comm.nranks, k);
        if (i >= args.rows[peer])
            continue;
        const char *from = args.input + (uint64_t)(args.first[peer] + i) * args.own.row;
        const uint32_t slot = i * args.own.pitch;
        for (uint32_t at = threadIdx.x * 16; at < args.own.row; at += blockDim.x * 16) {
            const struct sol_place place = {slot + at, 0, 0};
            const struct sol_vector own[1] = {sol_load_vector<false>(from + at, args.own.row - at)};
            sol_send_to<1>(comm, ticket, k, slot + args.own.pitch, place, own);
        }
    }
}

/* Own row i, from its contributions to the outputs. Its bits are those of sol_norm_long_kernel.
 * False, to all: gave up. */
template <int D>
SOL_GPU_FN bool sol_norm_two_own(const struct sol_norm_kernel_args &args,
                                 const struct sol_link &comm, const struct sol_ticket &ticket,
                                 const struct sol_story &story, struct sol_norm_shared &shared,
                                 unsigned &set, uint32_t i)
{
    const uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x % 32;
    float mean = 0, inverse = 1, *sums = shared.partial[set++ & 1];
    sol_norm_clear(sums, warp, warps, lane);
    const bool good = sol_norm_long_arrive<D>(args, comm, ticket, story, i, sums);
    if (__syncthreads_or(!good))
        return false;
    float sum = sol_norm_long_collect<false>(sums, lane);
    if (args.norm == SOL_NORM_LAYER) {
        mean = sol_mul_f32(sum, args.inverse);
        sums = shared.partial[set++ & 1];
        sol_norm_clear(sums, warp, warps, lane);
        sol_norm_long_pass<D>(args, comm, ticket, i, SOL_NORM_SQUARES, mean, 0, 0, sums);
        sum = sol_norm_long_collect<false>(sums, lane);
    }
    const float r = sol_norm_root(args, sum);
    if (args.quant == SOL_QUANT_TOKEN) {
        sums = shared.partial[set++ & 1];
        sol_norm_clear(sums, warp, warps, lane);
        sol_norm_long_pass<D>(args, comm, ticket, i, SOL_NORM_AMAX, mean, r, 0, sums);
        float scale =
            sol_norm_scale(sol_norm_long_collect<true>(sums, lane), args.output_dtype, false);
        if (threadIdx.x == 0)
            sol_norm_put_scale(args, i, scale);
        inverse = sol_div_f32(1.0f, scale);
    }
    sol_norm_long_pass<D>(args, comm, ticket, i, SOL_NORM_OUTPUT, mean, r, inverse, sums);
    return true;
}

/* `bytes` of own memory into byte `to` of this rank's slot at every peer. */
SOL_GPU_FN void sol_norm_two_share(const struct sol_link &comm, const struct sol_ticket &ticket,
                                   const char *from, uint32_t bytes, uint32_t to)
{
    for (uint32_t at = threadIdx.x * 16; at < bytes; at += blockDim.x * 16) {
        const struct sol_place place = {to + at, 0, 0};
        const struct sol_vector own[1] = {sol_load_vector<false>(from + at, bytes - at)};
        sol_send_to_all<SOL_GPU_MAX_RANKS, 1, true>(comm, ticket, comm.nranks, 0, UINT32_MAX, place,
                                                    own);
    }
}

/* Finished row i of this rank to all. */
SOL_GPU_FN void sol_norm_two_finished(const struct sol_norm_two_args &args,
                                      const struct sol_link &comm, const struct sol_ticket &ticket,
                                      uint32_t i)
{
    const uint32_t slot = comm.slot_bytes / 2 + i * args.finished;
    __syncthreads(); /* what all threads have stored is read here */
    if (args.output)
        sol_norm_two_share(comm, ticket, args.own.output + (uint64_t)i * args.output_row,
                           args.output_row, slot);
    if (args.scales)
        sol_norm_two_share(comm, ticket, args.own.scales + (uint64_t)i * args.scales_row,
                           args.scales_row, slot + args.scales_at);
    if (args.residual_out)
        sol_norm_two_share(comm, ticket, args.own.residual_out + (uint64_t)i * args.own.row,
                           args.own.row, slot + args.residual_at);
}

/* One vector of a finished row of `token`, which lies at byte `at` of it, to where it belongs. */
SOL_GPU_FN void sol_norm_two_put(const struct sol_norm_two_args &args, uint32_t token, uint32_t at,
                                 struct sol_vector v)
{
    char *to = args.output;
    uint32_t bytes = args.output_row;
    if (at >= args.residual_at) {
        at -= args.residual_at;
        to = args.residual_out;
        bytes = args.own.row;
    } else if (at >= args.scales_at) {
        at -= args.scales_at;
        to = args.scales;
        bytes = args.scales_row;
    }
    sol_store_vector<false>(to + (uint64_t)token * bytes + at, bytes - at, v);
}

/* Row i of every other owner, finished. False, to this thread: gave up. */
SOL_GPU_FN bool sol_norm_two_receive(const struct sol_norm_two_args &args,
                                     const struct sol_link &comm, const struct sol_ticket &ticket,
                                     const struct sol_story &story, uint32_t i)
{
    enum { N = SOL_GPU_MAX_RANKS };
    const int n = comm.nranks, rank = comm.rank;
    const uint32_t slot = comm.slot_bytes / 2 + i * args.finished;
    unsigned from = 0;
    for (int q = 0; q < n - 1; q++)
        from |= i < args.rows[sol_poll_peer(rank, q)] ? 1u << q : 0;
    for (uint32_t at = threadIdx.x * 16; at < args.finished && from; at += blockDim.x * 16) {
        const struct sol_place place = {slot + at, 0, 0};
        struct sol_vector in[N - 1][1];
        if (!sol_receive<N, 1, false>(comm, ticket, rank, n, from, UINT32_MAX, place, story, in))
            return false;
        sol_reset<N, 1, false>(comm, ticket, rank, n, from, UINT32_MAX, place);
#pragma unroll
        for (int q = 0; q < N - 1; q++)
            if (from >> q & 1)
                sol_norm_two_put(args, args.first[sol_poll_peer(rank, q)] + i, at, in[q][0]);
    }
    return true;
}

/* Which peers get no data from this rank, by k, or send it none, by q: tokens go there. */
SOL_GPU_FN unsigned sol_norm_two_silent(const struct sol_norm_two_args &args,
                                        const struct sol_link &comm, bool sending)
{
    const bool mine = args.rows[comm.rank] > 0;
    unsigned silent = 0;
    for (int j = 0; j < comm.nranks - 1; j++) {
        const int peer =
            sending ? sol_push_peer(comm.rank, comm.nranks, j) : sol_poll_peer(comm.rank, j);
        const bool theirs = args.rows[peer] > 0;
        const bool contributes = sending ? theirs : mine;
        const bool finishes = args.finished != 0 && (sending ? mine : theirs);
        silent |= contributes || finishes ? 0 : 1u << j;
    }
    return silent;
}

template <int D>
__global__ void __launch_bounds__(SOL_NORM_LONG_THREADS, 2) /* 128 registers, on sm_100 too */
    sol_norm_two_kernel(const __grid_constant__ struct sol_norm_two_args args,
                        const __grid_constant__ struct sol_link comm,
                        const __grid_constant__ struct sol_tail tail)
{
    SOL_SHARED(struct sol_norm_shared, shared);
    unsigned set = 0;
    sol_await_predecessors();
    sol_admit_successor();
    const struct sol_ticket ticket = sol_take_ticket(comm);
    if (!ticket.dead)
        for (uint32_t i = blockIdx.x; i < args.most; i += gridDim.x)
            sol_norm_two_push(args, comm, ticket, i);
    sol_leave_ticket(comm, ticket); /* a barrier: input may be written over from here on */
    if (ticket.dead)
        return;
    sol_send_tokens(comm, ticket, sol_norm_two_silent(args, comm, true));
    for (uint32_t i = blockIdx.x; i < args.rows[comm.rank]; i += gridDim.x) {
        if (!sol_norm_two_own<D>(args.own, comm, ticket, tail.story, shared, set, i))
            return;
        if (args.finished)
            sol_norm_two_finished(args, comm, ticket, i);
    }
    for (uint32_t i = blockIdx.x; i < args.most && args.finished; i += gridDim.x)
        if (!sol_norm_two_receive(args, comm, ticket, tail.story, i))
            return;
    sol_await_tokens(comm, ticket, sol_norm_two_silent(args, comm, false), tail.story);
}

#endif
