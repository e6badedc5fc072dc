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
    const char *send;
    char *recv;
    uint64_t send_stride; /* between the blocks for different peers; 0: all get the same */
    uint64_t recv_stride; /* between the blocks from different peers */
    uint32_t bytes;       /* of a block */
    uint8_t to, from;     /* peers by bit, without this rank */
    uint8_t copy;         /* own block goes from send to recv here (not in place) */
};

/* SPREAD: peers get different blocks. Without EXACT blocks are taken one after the other in a loop,
 * spread or not, so that the kernel is small. */
template <int N, int V, bool SPREAD, bool EXACT>
__global__ void __launch_bounds__(V == 4 || !EXACT || N == 8 ? 256 : 512, N == 2 ? 2 : 1)
    sol_push_kernel(const __grid_constant__ struct sol_push_args args,
                    const __grid_constant__ struct sol_link comm,
                    const __grid_constant__ struct sol_tail tail)
{
    sol_await_predecessors();
    sol_admit_successor();
    const int n = N == 2 ? 2 : comm.nranks;
    const unsigned others = ((1u << n) - 1) & ~(1u << comm.rank);
    const bool many = EXACT && SPREAD; /* all blocks in registers at once */
    struct sol_place place = sol_first_place<V>();
    struct sol_ticket ticket = sol_take_ticket(comm);
    bool left = false;

    for (uint32_t base = 0; base < args.bytes; base += place.turn, place.at += place.turn) {
        const int rank = sol_opaque(comm.rank);
        struct sol_vector own[V], out[many ? N - 1 : 1][V], in[N - 1][V];
        if (many) {
#pragma unroll
            for (int k = 0; k < N - 1; k++) {
                int peer = sol_push_peer(rank, n, k);
                if (k < n - 1 && (args.to >> peer & 1))
                    sol_load_own<EXACT, V>(args.send + peer * args.send_stride, args.bytes, place,
                                           out[many ? k : 0]);
            }
        }
        if (EXACT && (args.copy || (!SPREAD && args.to)))
            sol_load_own<EXACT, V>(args.send + rank * args.send_stride, args.bytes, place, own);
        if (ticket.dead)
            return;
        struct sol_slots slots = sol_find_slots(comm, rank, ticket.epoch);
        if (!EXACT) {
#pragma unroll 1
            for (int k = 0; k < n; k++) { /* the last is this rank itself */
                int peer = sol_push_peer(rank, n, k);
                if (!(args.to >> peer & 1) && !(args.copy && peer == rank))
                    continue;
                sol_load_own<EXACT, V>(args.send + peer * args.send_stride, args.bytes, place, own);
                if (peer != rank)
                    sol_send_to<V>(comm, slots, ticket.epoch, peer, args.bytes, place, own);
            }
        } else if (SPREAD) {
#pragma unroll
            for (int k = 0; k < N - 1; k++) {
                int peer = sol_push_peer(rank, n, k);
                if (k < n - 1 && (args.to >> peer & 1))
                    sol_send_to<V>(comm, slots, ticket.epoch, peer, args.bytes, place,
                                   out[many ? k : 0]);
            }
        } else if (args.to) {
            sol_send_to_all<N, V>(comm, slots, ticket.epoch, n, args.to, args.bytes, place, own);
        }
        if (!left) {
            sol_send_tokens(comm, ticket, others & ~args.to);
            sol_leave_ticket(comm);
            left = true;
        }
        if (args.copy)
            sol_store_own<EXACT, V>(args.recv + rank * args.recv_stride, args.bytes, place, own);
        if (args.from == 0)
            continue;
        if (!sol_receive<N, V>(comm, slots, ticket.epoch, args.from, args.bytes, place, tail.story,
                               in))
            return;
#pragma unroll
        for (int q = 0; q < N - 1; q++) {
            int peer = sol_poll_peer(rank, q);
            if (args.from >> peer & 1)
                sol_store_own<EXACT, V>(args.recv + peer * args.recv_stride, args.bytes, place,
                                        in[q]);
        }
        sol_reset<N, V>(comm, slots, args.from, args.bytes, place);
    }
    if (!left) { /* barrier */
        sol_send_tokens(comm, ticket, others);
        sol_leave_ticket(comm);
    }
    sol_await_tokens(comm, ticket, others & ~args.from, tail.story);
}

#endif
