/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multicast.cuh: collectives through the switch's multicast, where one address
 * stands for all ranks' staging (backend/cuda/cuda_multicast.h). Reached only
 * with SOLCCL_CUDA_MULTICAST=1. They compile for sm_90 and later, run in the
 * emulator, and have never been executed on a GPU.
 *
 * push: all_gather and broadcast as in push.cuh, the same slots, words and
 * epochs; a vector goes out once instead of n - 1 times. (The copy that lands
 * in our own staging lies in the slot of ourselves, which nobody reads.)
 *
 * reduce: all_reduce in two hops.
 *
 *     copy the input into our area | meet | load the sums of our share over all areas, store them
 *     into all areas | meet | copy the result out of our area
 *
 * "Meet" is between the CTAs of one number of all ranks, so every CTA copies in
 * and out of all shares what the CTAs of its number reduce of them. An area is
 * overwritten by the next call only, which begins after this grid has ended,
 * which is after all ranks' second meeting: nobody reads it any more.
 *
 * The switch adds up in an order of its own, in fp32: the sums are equal on all
 * ranks but need not be those of other protocols, bit for bit.
 *
 * Must never: be launched without a multicast address; have grids that differ
 * between ranks (reduce).
 */
#ifndef SOL_DEVICE_KERNELS_MULTICAST_CUH
#define SOL_DEVICE_KERNELS_MULTICAST_CUH

#include "device/kernels/push.cuh"
#include "solccl/device/multimem.cuh"

struct sol_multicast_push_args {
    struct sol_push_args push;
    char *all; /* our slot in every staging, parity 0 */
};

/* N: most ranks. Blocks of 16-byte vectors only. */
template <int N>
__global__ void __launch_bounds__(256, 1)
    sol_multicast_push_kernel(const __grid_constant__ struct sol_multicast_push_args args,
                              const __grid_constant__ struct sol_link comm,
                              const __grid_constant__ struct sol_tail tail)
{
    const struct sol_push_args &push = args.push;
    const int rank = comm.rank, n = comm.nranks;
    const unsigned all = (1u << (n - 1)) - 1;
    struct sol_place place = sol_first_place<1>();
    sol_await_predecessors();
    sol_admit_successor();
    struct sol_ticket ticket;
    bool left = false;

    for (uint32_t base = 0; base < push.bytes; base += place.turn, place.at += place.turn) {
        struct sol_vector own[1], in[N - 1][1];
        if (push.copy || push.to)
            sol_load_own<true, 1>(push.own, push.bytes, place, own);
        if (!left)
            ticket = sol_take_ticket(comm);
        if (!left && ticket.dead)
            return;
        if (push.to && place.at < push.bytes) {
            struct sol_parcel parcel = sol_wrap_vector(own[0], ticket.epoch);
            if (parcel.escape != 0)
                sol_multicast_word(args.all + sol_escape_offset(comm, rank) + ticket.shift +
                                       place.at / 2,
                                   parcel.escape);
            sol_multicast_word(args.all + (ticket.shift + place.at), parcel.v.a);
            sol_multicast_word(args.all + (ticket.shift + place.at) + 8, parcel.v.b);
        }
        if (!left) {
            if (push.to != all)
                sol_send_tokens(comm, ticket, all & ~push.to);
            sol_leave_ticket(comm, ticket);
            left = true;
        }
        if (push.copy)
            sol_store_own<true, 1>(push.own_to, push.bytes, place, own);
        if (push.from == 0)
            continue;
        if (!sol_receive<N, 1, false>(comm, ticket, rank, n, push.from, push.bytes, place,
                                      tail.story, in))
            return;
#pragma unroll
        for (int q = 0; q < N - 1; q++)
            if (push.from >> q & 1)
                sol_store_own<true, 1>(sol_push_place(push, rank, q), push.bytes, place, in[q]);
        sol_reset<N, 1, false>(comm, ticket, rank, n, push.from, push.bytes, place);
    }
    if (push.from != all)
        sol_await_tokens(comm, ticket, all & ~push.from, tail.story);
}

struct sol_multicast_reduce_args {
    const char *send;
    char *recv;
    char *area; /* ours */
    char *all;  /* everybody's at once */
    uint64_t bytes;
    uint64_t share; /* of each rank, a multiple of 16; the last ones may be shorter or empty */
};

/* The CTAs of our number of all ranks have come to `stage`, and what they stored before is visible
 * to all threads of this one. False: gave up, all of them. */
SOL_GPU_FN bool sol_multicast_meet(const struct sol_link &comm, const struct sol_story &story,
                                   uint64_t stage)
{
    const int peer = (int)threadIdx.x, rank = comm.rank;
    bool failed = false;
    __syncthreads(); /* everybody's stores come before the fence of the threads that tell */
    sol_fence_alias();
    if (peer < comm.nranks && peer != rank) {
        sol_fence_system();
        sol_push_word(comm.staging[peer] + sol_gpu_meeting_offset((int)blockIdx.x, rank), stage);
        const char *theirs = comm.staging[rank] + sol_gpu_meeting_offset((int)blockIdx.x, peer);
        struct sol_watch watch = {0, 0};
        while (!failed && (int64_t)(sol_poll_word_acquire(theirs) - stage) < 0)
            failed = sol_watch_expired(comm, story, watch, peer);
    }
    failed = __syncthreads_or(failed);
    sol_fence_alias();
    return !failed;
}

/* Bytes of share p. */
SOL_GPU_FN uint64_t sol_multicast_share(const struct sol_multicast_reduce_args &args, int p)
{
    uint64_t from = p * args.share, left = args.bytes > from ? args.bytes - from : 0;
    return left < args.share ? left : args.share;
}

/* Of the vector at `at`: a fraction of 16 bytes at the end. */
SOL_GPU_FN uint32_t sol_multicast_left(uint64_t at, uint64_t end)
{
    return end - at < 16 ? (uint32_t)(end - at) : 16;
}

/* SOL_SUM of D. Any alignment: all ranks must take this kernel or none. */
template <int D>
__global__ void __launch_bounds__(512, 1)
    sol_multicast_reduce_kernel(const __grid_constant__ struct sol_multicast_reduce_args args,
                                const __grid_constant__ struct sol_link comm,
                                const __grid_constant__ struct sol_tail tail)
{
    const uint64_t first = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) * 16;
    const uint64_t turn = (uint64_t)gridDim.x * blockDim.x * 16;
    sol_await_predecessors();
    sol_admit_successor();
    struct sol_ticket ticket = sol_take_ticket(comm);
    if (ticket.dead)
        return;
    sol_leave_ticket(comm, ticket);
    for (int p = 0; p < comm.nranks; p++)
        for (uint64_t at = first, end = sol_multicast_share(args, p); at < end; at += turn)
            sol_push_vector(args.area + p * args.share + at,
                            sol_load_vector<false>(args.send + p * args.share + at,
                                                   sol_multicast_left(at, end)));
    if (!sol_multicast_meet(comm, tail.story, ticket.epoch * 2))
        return;
    for (uint64_t at = first, end = sol_multicast_share(args, comm.rank); at < end; at += turn) {
        char *there = args.all + comm.rank * args.share + at;
        sol_multicast_vector(there, sol_multicast_sum<D>(there));
    }
    if (!sol_multicast_meet(comm, tail.story, ticket.epoch * 2 + 1))
        return;
    for (int p = 0; p < comm.nranks; p++)
        for (uint64_t at = first, end = sol_multicast_share(args, p); at < end; at += turn)
            sol_store_vector<false>(args.recv + p * args.share + at, sol_multicast_left(at, end),
                                    sol_poll_vector(args.area + p * args.share + at));
}

#endif
