/* SPDX-License-Identifier: Apache-2.0 */
/*
 * one_shot.cuh: reductions in one hop: all_reduce, reduce_scatter, reduce.
 *
 * Every rank sends each receiver all that it needs; a receiver adds up in rank
 * order what came, its own contribution from registers. The vector that a
 * thread sends is the one it receives, so threads never wait for each other.
 *
 *     load inputs and epoch | push to every peer | leave ticket | poll all peers |
 *     reduce in rank order | store | reset slots
 *
 * For all_reduce with 2 ranks it sends every byte once, which no algorithm can
 * beat; with more ranks it is best up to where (n-1) times the bytes cost more
 * than a second hop.
 *
 * Must never: be used for more than slot_bytes a source; poll before its pushes
 * have been issued (two ranks would wait for each other).
 */
#ifndef SOL_DEVICE_KERNELS_ONE_SHOT_CUH
#define SOL_DEVICE_KERNELS_ONE_SHOT_CUH

#include "device/prim/slots.cuh"

struct sol_one_shot_args {
    const char *own;   /* this rank's block for itself */
    const char *first; /* its block for the 0-th peer to push to */
    char *recv;
    int64_t stride;    /* between blocks of neighbouring ranks; 0: all get the same */
    uint32_t bytes;    /* of a block */
    uint8_t to, from;  /* peers by bit: of k, of q; the kernels of common types mean all */
    uint8_t receives;  /* this rank wants the result */
    uint8_t redop : 7; /* sol_redop_t */
    uint8_t premul : 1;
};

/* This rank's block for the k-th peer. */
SOL_GPU_FN const char *sol_block_for(const char *own, const char *first, int64_t stride, int rank,
                                     int n, int k)
{
    return k == 0 ? first : own + (sol_push_peer(rank, n, k) - rank) * stride;
}

/* The reduction of own and received vectors in rank order, n of at most N ranks. */
template <int D, int N, int V>
SOL_GPU_FN struct sol_vector sol_reduce_ranks(int op, int rank, int n, struct sol_vector own,
                                              const struct sol_vector (&in)[N - 1][V], int v)
{
    struct sol_lanes<D> acc;
    if constexpr (N == 2) { /* every operation commutes, bit for bit: NaNs are made canonical */
        acc = sol_unpack<D>(own);
        sol_combine<D>(op, acc, sol_unpack<D>(in[0][v]));
    } else {
        acc = sol_unpack<D>(rank == 0 ? own : in[0][v]);
#pragma unroll
        for (int r = 1; r < N; r++) {
            if (r >= n)
                break;
            struct sol_vector x = r < rank && r < N - 1 ? in[r < N - 1 ? r : 0][v] : in[r - 1][v];
            sol_combine<D>(op, acc, sol_unpack<D>(r == rank ? own : x));
        }
    }
    return sol_finish<D>(op, acc, n);
}

/*
 * OP: SOL_SUM (AVG too), or -1: any, taken from the arguments. N: 2, or the most ranks. SPREAD:
 * receivers get different blocks. EXACT with a given OP, and neither with -1: a general kernel
 * takes its blocks one after the other in a loop, spread or not, so that it is small.
 */
template <int D, int OP, int N, int V, bool SPREAD, bool EXACT>
__global__ void __launch_bounds__(V == 4 || OP < 0 || N == 8 ? 256 : 512, N == 2 ? 2 : 1)
    sol_one_shot_kernel(const __grid_constant__ struct sol_one_shot_args args,
                        const __grid_constant__ struct sol_link comm,
                        const __grid_constant__ struct sol_tail tail)
{
    const bool hot = OP >= 0; /* roots and scalars are in the general kernels only */
    const int n = N == 2 ? 2 : comm.nranks;
    struct sol_place place = sol_first_place<V>();
    const char *own_at = sol_opaque(args.own), *first_at = sol_opaque(args.first);
    sol_await_predecessors();
    sol_admit_successor();
    struct sol_ticket ticket;
    bool left = false;

    for (uint32_t base = 0; base < args.bytes; base += place.turn, place.at += place.turn) {
        const int rank = N == 2 ? comm.rank : sol_opaque(comm.rank);
        struct sol_vector own[V], in[N - 1][V], out[hot && SPREAD ? N - 1 : 1][V];
        if (hot && SPREAD) {
#pragma unroll
            for (int k = 0; k < N - 1; k++)
                if (k < n - 1)
                    sol_load_own<EXACT, V>(sol_block_for(own_at, first_at, args.stride, rank, n, k),
                                           args.bytes, place, out[hot && SPREAD ? k : 0]);
        }
        if (hot)
            sol_load_own<EXACT, V>(own_at, args.bytes, place, own);
        if (!left)
            ticket = sol_take_ticket(comm);
        if (!left && ticket.dead)
            return;
        if (!hot) {
            uint64_t scalar =
                tail.scalar_pointer ? sol_load_scalar<D>(tail.scalar_pointer) : tail.scalar;
#pragma unroll 1
            for (int k = 0; k < n; k++) { /* the last is this rank itself */
                const char *block =
                    k == n - 1 ? own_at : sol_block_for(own_at, first_at, args.stride, rank, n, k);
                sol_load_own<EXACT, V>(block, args.bytes, place, own);
#pragma unroll
                for (int v = 0; v < V; v++)
                    if (args.premul)
                        own[v] = sol_scale<D>(own[v], scalar);
                if (k < n - 1 && (args.to >> k & 1))
                    sol_send_to<V>(comm, ticket, k, args.bytes, place, own);
            }
        } else if (SPREAD) {
#pragma unroll
            for (int k = 0; k < N - 1; k++)
                if (k < n - 1)
                    sol_send_to<V>(comm, ticket, k, args.bytes, place, out[hot && SPREAD ? k : 0]);
        } else {
            sol_send_to_all<N, V, hot>(comm, ticket, n, args.to, args.bytes, place, own);
        }
        if (!left) {
            if (!hot)
                sol_send_tokens(comm, ticket, ~args.to & ((1u << (n - 1)) - 1));
            sol_leave_ticket(comm, ticket);
            left = true;
        }
        if (!hot && !args.receives)
            continue;
        if (!sol_receive<N, V, hot>(comm, ticket, rank, n, args.from, args.bytes, place, tail.story,
                                    in))
            return;
        const int op = !hot ? args.redop : args.redop == SOL_AVG ? (int)SOL_AVG : OP;
#pragma unroll
        for (int v = 0; v < V; v++)
            own[v] = sol_reduce_ranks<D, N, V>(op, rank, n, own[v], in, v);
        sol_store_own<EXACT, V>(args.recv, args.bytes, place, own);
        sol_reset<N, V, hot>(comm, ticket, rank, n, args.from, args.bytes, place);
    }
    if (!hot)
        sol_await_tokens(comm, ticket, ~args.from & ((1u << (n - 1)) - 1), tail.story);
}

#endif
