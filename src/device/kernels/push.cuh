/* SPDX-License-Identifier: Apache-2.0 */
/*
 * push.cuh: collectives that move bytes unchanged, in one hop: all_gather,
 * all_to_all, broadcast, gather, scatter, barrier.
 *
 * Every rank pushes a block to every peer in `to` and takes one from every peer
 * in `from`; pairs between which no data flows exchange a token, which is what
 * lets two buffers suffice (proto/gpu_epoch.h). The kernel knows nothing of
 * element types.
 *
 * Must never: be used for more than slot_bytes a source; write the user's
 * receive buffer before the inputs that may lie under it have been read (in
 * place, a thread's own reads come before its writes, vector by vector).
 */
#ifndef SOL_DEVICE_KERNELS_PUSH_CUH
#define SOL_DEVICE_KERNELS_PUSH_CUH

#include "device/prim/slots.cuh"

struct sol_push_args {
    const char *own;   /* this rank's block for itself */
    const char *first; /* its block for the 0-th peer to push to */
    uint32_t bytes;    /* of a block */
    uint8_t to, from;  /* peers by bit: of k, of q */
    uint8_t copy;      /* the own block goes to own_to here (not in place) */
    uint8_t reserved;
    char *recv_first;    /* where the block of the 0-th source goes */
    char *own_to;        /* where this rank's own goes, or would */
    int64_t send_stride; /* between blocks of neighbouring ranks; 0: all get the same */
    int64_t recv_stride;
};

/* This rank's block for the k-th peer. */
SOL_GPU_FN const char *sol_push_block(const struct sol_push_args &args, int rank, int n, int k)
{
    return k == 0 ? args.first : args.own + (sol_push_peer(rank, n, k) - rank) * args.send_stride;
}

/* Where the block of the q-th source goes. */
SOL_GPU_FN char *sol_push_place(const struct sol_push_args &args, int rank, int q)
{
    return q == 0 ? args.recv_first
                  : args.own_to + (sol_poll_peer(rank, q) - rank) * args.recv_stride;
}

/* SPREAD: peers get different blocks. Without EXACT blocks are taken one after the other in a loop,
 * spread or not, so that the kernel is small. */
template <int N, int V, bool SPREAD, bool EXACT>
__global__ void __launch_bounds__(V == 4 || !EXACT || N == 8 ? 256 : 512, N == 2 ? 2 : 1)
    sol_push_kernel(const __grid_constant__ struct sol_push_args args,
                    const __grid_constant__ struct sol_link comm,
                    const __grid_constant__ struct sol_tail tail)
{
    const int n = N == 2 ? 2 : comm.nranks;
    const bool many = EXACT && SPREAD; /* all blocks in registers at once */
    const unsigned all = (1u << (n - 1)) - 1;
    struct sol_place place = sol_first_place<V>();
    sol_await_predecessors();
    sol_admit_successor();
    struct sol_ticket ticket;
    bool left = false;

    for (uint32_t base = 0; base < args.bytes; base += place.turn, place.at += place.turn) {
        const int rank = N == 2 ? comm.rank : sol_opaque(comm.rank);
        struct sol_vector own[V], out[many ? N - 1 : 1][V], in[N - 1][V];
        if (many) {
#pragma unroll
            for (int k = 0; k < N - 1; k++)
                if (args.to >> k & 1)
                    sol_load_own<EXACT, V>(sol_push_block(args, rank, n, k), args.bytes, place,
                                           out[many ? k : 0]);
        }
        if (EXACT && (args.copy || (!SPREAD && args.to)))
            sol_load_own<EXACT, V>(args.own, args.bytes, place, own);
        if (!left)
            ticket = sol_take_ticket(comm);
        if (!left && ticket.dead)
            return;
        if (!EXACT) {
#pragma unroll 1
            for (int k = 0; k < n; k++) { /* the last is this rank itself */
                if (k < n - 1 ? !(args.to >> k & 1) : !args.copy)
                    continue;
                const char *block = k < n - 1 ? sol_push_block(args, rank, n, k) : args.own;
                sol_load_own<EXACT, V>(block, args.bytes, place, own);
                if (k < n - 1)
                    sol_send_to<V>(comm, ticket, k, args.bytes, place, own);
            }
        } else if (SPREAD) {
#pragma unroll
            for (int k = 0; k < N - 1; k++)
                if (args.to >> k & 1)
                    sol_send_to<V>(comm, ticket, k, args.bytes, place, out[many ? k : 0]);
        } else if (args.to) {
            sol_send_to_all<N, V, false>(comm, ticket, n, args.to, args.bytes, place, own);
        }
        if (!left) {
            if (args.to != all)
                sol_send_tokens(comm, ticket, all & ~args.to);
            sol_leave_ticket(comm, ticket);
            left = true;
        }
        if (args.copy)
            sol_store_own<EXACT, V>(args.own_to, args.bytes, place, own);
        if (args.from == 0)
            continue;
        if (!sol_receive<N, V, false>(comm, ticket, rank, n, args.from, args.bytes, place,
                                      tail.story, in))
            return;
#pragma unroll
        for (int q = 0; q < N - 1; q++)
            if (args.from >> q & 1)
                sol_store_own<EXACT, V>(sol_push_place(args, rank, q), args.bytes, place, in[q]);
        sol_reset<N, V, false>(comm, ticket, rank, n, args.from, args.bytes, place);
    }
    if (!left) { /* barrier */
        ticket = sol_take_ticket(comm);
        if (ticket.dead)
            return;
        sol_send_tokens(comm, ticket, all);
        sol_leave_ticket(comm, ticket);
    }
    if (args.from != all)
        sol_await_tokens(comm, ticket, all & ~args.from, tail.story);
}

#endif
