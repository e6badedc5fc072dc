/* SPDX-License-Identifier: Apache-2.0 */
/*
 * two_shot.cuh: all_reduce in two hops, for more than two ranks: each rank
 * reduces one share and sends the result to all. Every GPU sends 2 (n-1)/n of
 * the vector instead of (n-1) times all of it.
 *
 *     load shares | push share p to rank p | poll own share, reduce | push the result to all |
 *     poll the others' results | store
 *
 * The second hop starts per vector: no barrier between the hops. A slot's lower
 * half belongs to the first hop, its upper half to the second; both are of one
 * epoch. Share p: vectors p * share ... of the message; every rank sends whole
 * shares, zeros beyond the end of the message.
 *
 * Must never: be used for shares of more than half a slot.
 */
#ifndef SOL_DEVICE_KERNELS_TWO_SHOT_CUH
#define SOL_DEVICE_KERNELS_TWO_SHOT_CUH

#include "device/kernels/one_shot.cuh"

struct sol_two_shot_args {
    const char *send;
    char *recv;
    uint64_t bytes; /* of the whole message */
    uint32_t share; /* bytes of a share: a multiple of 16 */
    uint8_t redop, premul;
};

/* The part of share p that lies within the message. */
SOL_GPU_FN uint32_t sol_share_bytes(const struct sol_two_shot_args &args, int p)
{
    uint64_t from = (uint64_t)p * args.share;
    uint64_t left = args.bytes > from ? args.bytes - from : 0;
    return left < args.share ? (uint32_t)left : args.share;
}

template <int D, int OP, int N, bool EXACT>
__global__ void __launch_bounds__(256, 1)
    sol_two_shot_kernel(const __grid_constant__ struct sol_two_shot_args args,
                        const __grid_constant__ struct sol_link comm,
                        const __grid_constant__ struct sol_tail tail)
{
    const bool hot = OP >= 0; /* the general kernels take their blocks one after the other */
    const int n = comm.nranks;
    const uint32_t upper = comm.slot_bytes / 2;
    struct sol_place place = sol_first_place<1>();
    sol_await_predecessors();
    sol_admit_successor();
    struct sol_ticket ticket;
    bool left = false;

    for (uint32_t base = 0; base < args.share; base += place.turn, place.at += place.turn) {
        const int rank = sol_opaque(comm.rank);
        struct sol_vector own[1], out[hot ? N - 1 : 1][1], in[N - 1][1];
        if (hot) {
#pragma unroll
            for (int k = 0; k < N - 1; k++) {
                int peer = sol_push_peer(rank, n, k);
                if (k < n - 1)
                    sol_load_own<EXACT, 1>(args.send + (uint64_t)peer * args.share,
                                           sol_share_bytes(args, peer), place, out[hot ? k : 0]);
            }
            sol_load_own<EXACT, 1>(args.send + (uint64_t)rank * args.share,
                                   sol_share_bytes(args, rank), place, own);
        }
        if (!left)
            ticket = sol_take_ticket(comm);
        if (!left && ticket.dead)
            return;
        if (hot) {
#pragma unroll
            for (int k = 0; k < N - 1; k++)
                if (k < n - 1)
                    sol_send_to<1>(comm, ticket, k, args.share, place, out[hot ? k : 0]);
        } else {
            uint64_t scalar =
                tail.scalar_pointer ? sol_load_scalar<D>(tail.scalar_pointer) : tail.scalar;
#pragma unroll 1
            for (int k = 0; k < n; k++) { /* the last is this rank itself */
                int peer = sol_push_peer(rank, n, k);
                sol_load_own<EXACT, 1>(args.send + (uint64_t)peer * args.share,
                                       sol_share_bytes(args, peer), place, own);
                if (args.premul)
                    own[0] = sol_scale<D>(own[0], scalar);
                if (k < n - 1)
                    sol_send_to<1>(comm, ticket, k, args.share, place, own);
            }
        }
        if (!left) {
            sol_leave_ticket(comm, ticket);
            left = true;
        }
        if (!sol_receive<N, 1, true>(comm, ticket, rank, n, 0, args.share, place, tail.story, in))
            return;
        sol_reset<N, 1, true>(comm, ticket, rank, n, 0, args.share, place);
        const int op = !hot ? args.redop : args.redop == SOL_AVG ? (int)SOL_AVG : OP;
        own[0] = sol_reduce_ranks<D, N, 1>(op, rank, n, own[0], in, 0);

        struct sol_place raised = place;
        raised.at += upper;
        sol_send_to_all<N, 1, true>(comm, ticket, n, 0, args.share + upper, raised, own);
        sol_store_own<EXACT, 1>(args.recv + (uint64_t)rank * args.share,
                                sol_share_bytes(args, rank), place, own);
        if (!sol_receive<N, 1, true>(comm, ticket, rank, n, 0, args.share + upper, raised,
                                     tail.story, in))
            return;
#pragma unroll
        for (int q = 0; q < N - 1; q++) {
            int peer = sol_poll_peer(rank, q);
            if (q < n - 1)
                sol_store_own<EXACT, 1>(args.recv + (uint64_t)peer * args.share,
                                        sol_share_bytes(args, peer), place, in[q]);
        }
        sol_reset<N, 1, true>(comm, ticket, rank, n, 0, args.share + upper, raised);
    }
}

#endif
