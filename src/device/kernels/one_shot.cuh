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

#include "device/prim/reduce.cuh"
#include "device/prim/slots.cuh"

/* Kernel arguments beside the communicator. */
struct sol_one_shot_args {
    const char *send;
    char *recv;
    uint64_t stride; /* between the blocks for different receivers in `send`; 0: all get the same */
    uint32_t bytes;  /* of one source's contribution to one receiver */
    int16_t root;    /* the only receiver, or -1: all are */
    uint8_t redop, premul;
};

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
    sol_await_predecessors();
    sol_admit_successor();
    const bool hot = OP >= 0; /* roots and scalars are in the general kernels only */
    const int n = N == 2 ? 2 : comm.nranks;
    const int op = !hot ? args.redop : args.redop == SOL_AVG ? (int)SOL_AVG : OP;
    const unsigned others = ((1u << n) - 1) & ~(1u << comm.rank);
    const unsigned to = hot || args.root < 0 ? others : others & 1u << args.root;
    const bool receives = hot || args.root < 0 || args.root == comm.rank;
    const unsigned from = receives ? others : 0;
    struct sol_place place = sol_first_place<V>();
    struct sol_ticket ticket = sol_take_ticket(comm);
    bool left = false;

    for (uint32_t base = 0; base < args.bytes; base += place.turn, place.at += place.turn) {
        const int rank = sol_opaque(comm.rank);
        struct sol_vector own[V], in[N - 1][V], out[hot && SPREAD ? N - 1 : 1][V];
        if (hot && SPREAD) {
#pragma unroll
            for (int k = 0; k < N - 1; k++)
                if (k < n - 1)
                    sol_load_own<EXACT, V>(args.send + sol_push_peer(rank, n, k) * args.stride,
                                           args.bytes, place, out[hot && SPREAD ? k : 0]);
        }
        if (hot)
            sol_load_own<EXACT, V>(args.send + rank * args.stride, args.bytes, place, own);
        if (ticket.dead)
            return;
        struct sol_slots slots = sol_find_slots(comm, rank, ticket.epoch);
        if (!hot) {
            uint64_t scalar =
                tail.scalar_pointer ? sol_load_scalar<D>(tail.scalar_pointer) : tail.scalar;
#pragma unroll 1
            for (int k = 0; k < n; k++) { /* the last is this rank itself */
                int peer = sol_push_peer(rank, n, k);
                sol_load_own<EXACT, V>(args.send + peer * args.stride, args.bytes, place, own);
#pragma unroll
                for (int v = 0; v < V; v++)
                    if (args.premul)
                        own[v] = sol_scale<D>(own[v], scalar);
                if (to >> peer & 1)
                    sol_send_to<V>(comm, slots, ticket.epoch, peer, args.bytes, place, own);
            }
        } else if (SPREAD) {
#pragma unroll
            for (int k = 0; k < N - 1; k++)
                if (k < n - 1)
                    sol_send_to<V>(comm, slots, ticket.epoch, sol_push_peer(rank, n, k), args.bytes,
                                   place, out[hot && SPREAD ? k : 0]);
        } else {
            sol_send_to_all<N, V>(comm, slots, ticket.epoch, n, to, args.bytes, place, own);
        }
        if (!left) {
            sol_send_tokens(comm, ticket, others & ~to);
            sol_leave_ticket(comm);
            left = true;
        }
        if (!receives)
            continue;
        if (!sol_receive<N, V>(comm, slots, ticket.epoch, from, args.bytes, place, tail.story, in))
            return;
#pragma unroll
        for (int v = 0; v < V; v++)
            own[v] = sol_reduce_ranks<D, N, V>(op, rank, n, own[v], in, v);
        sol_store_own<EXACT, V>(args.recv, args.bytes, place, own);
        sol_reset<N, V>(comm, slots, from, args.bytes, place);
    }
    if (!hot)
        sol_await_tokens(comm, ticket, others & ~from, tail.story);
}

#endif
