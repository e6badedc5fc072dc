/* SPDX-License-Identifier: Apache-2.0 */
/*
 * one_shot.cuh: reductions in one hop. all_reduce, reduce_scatter, reduce.
 *
 * Every rank sends each receiver all that it needs; a receiver adds up in rank
 * order what came, its own contribution from registers. Thread by thread: the
 * vector that a thread sends is the one it receives, so there is no barrier
 * between threads on the way.
 *
 *     load inputs and epoch | push to every peer | leave ticket | poll all peers |
 *     reduce in rank order | store | reset slots
 *
 * For all_reduce with 2 ranks it is the best at every size (it sends each byte
 * once); with more ranks up to where (n-1) times the bytes cost more than a
 * second hop.
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
    uint64_t bytes;  /* of one source's contribution to one receiver */
    uint64_t stride; /* between the blocks for different receivers in `send`; 0: all get the same */
    const void *scalar_pointer;
    uint64_t scalar;
    struct sol_story story;
    int root; /* the only receiver, or -1: all are */
    int redop;
    int premul;
};

/* The reduction of own and received vector v in rank order, of n <= N ranks. */
template <int D, int N, int V>
SOL_GPU_FN struct sol_vector sol_reduce_ranks(int op, int rank, int n, struct sol_vector own,
                                              const struct sol_vector (&in)[N - 1][V], int v)
{
    struct sol_lanes<D> acc;
    if constexpr (N == 2) { /* every operation commutes, bit for bit: NaNs are made canonical */
        acc = sol_unpack<D>(own);
        if (n == 2)
            sol_combine<D>(op, acc, sol_unpack<D>(in[0][v]));
        return sol_finish<D>(op, acc, n);
    }
#pragma unroll
    for (int r = 0; r < N; r++) {
        if (r >= n)
            break;
        struct sol_vector x = own;
        if (r < rank && r < N - 1)
            x = in[r < N - 1 ? r : 0][v];
        if (r > rank)
            x = in[r > 0 ? r - 1 : 0][v];
        if (r == 0)
            acc = sol_unpack<D>(x);
        else
            sol_combine<D>(op, acc, sol_unpack<D>(x));
    }
    return sol_finish<D>(op, acc, n);
}

template <int D, int OP, int N, int V>
__global__ void __launch_bounds__(512, SOL_GPU_CTAS_PER_SM)
    sol_one_shot_kernel(const __grid_constant__ struct sol_gpu_comm comm,
                        const __grid_constant__ struct sol_one_shot_args args)
{
    sol_await_predecessors();
    sol_admit_successor();
    const int n = N == 2 ? 2 : comm.nranks, op = OP >= 0 ? OP : args.redop;
    const unsigned others = ((1u << n) - 1) & ~(1u << comm.rank);
    const unsigned to = args.root < 0 ? others : others & 1u << args.root;
    const unsigned from = args.root < 0 || args.root == comm.rank ? others : 0;
    const uint64_t vectors = (args.bytes + SOL_GPU_VECTOR - 1) / SOL_GPU_VECTOR;
    const uint64_t turns = sol_turns(vectors, V);
    struct sol_ticket ticket = sol_take_ticket(comm);
    uint64_t scalar = args.scalar_pointer ? sol_load_scalar<D>(args.scalar_pointer) : args.scalar;

    for (uint64_t turn = 0; turn < turns; turn++) {
        struct sol_vector own[V], out[N - 1][V], in[N - 1][V];
        if (args.stride != 0) {
#pragma unroll
            for (int k = 0; k < N - 1; k++)
                if (k < n - 1)
                    sol_load_own<V>(args.send + sol_push_peer(comm, n, k) * args.stride, args.bytes,
                                    turn, out[k]);
        }
        sol_load_own<V>(args.send + comm.rank * args.stride, args.bytes, turn, own);
        if (ticket.dead)
            return;
        struct sol_slots slots = sol_find_slots(comm, ticket.epoch);
        if (args.premul) {
#pragma unroll
            for (int v = 0; v < V; v++)
                own[v] = sol_scale<D>(own[v], scalar);
        }
#pragma unroll
        for (int k = 0; k < N - 1; k++) {
            int peer = sol_push_peer(comm, n, k);
            if (k >= n - 1 || !(to >> peer & 1))
                continue;
            if (args.stride == 0) {
                sol_send_own<V>(comm, slots, ticket.epoch, peer, turn, vectors, own);
                continue;
            }
#pragma unroll
            for (int v = 0; v < V; v++)
                if (args.premul)
                    out[k][v] = sol_scale<D>(out[k][v], scalar);
            sol_send_own<V>(comm, slots, ticket.epoch, peer, turn, vectors, out[k]);
        }
        if (turn == 0) {
            sol_send_tokens(comm, ticket, others & ~to);
            sol_leave_ticket(comm, ticket);
        }
        if (from == 0)
            continue;
        if (!sol_receive<N, V>(comm, slots, ticket.epoch, turn, vectors, from, args.story, in))
            return;
#pragma unroll
        for (int v = 0; v < V; v++) {
            uint64_t at = sol_vector_index<V>(turn, v) * SOL_GPU_VECTOR;
            if (at < args.bytes)
                sol_store_vector(args.recv + at, args.bytes - at,
                                 sol_reduce_ranks<D, N, V>(op, comm.rank, n, own[v], in, v));
        }
        sol_reset<N, V>(comm, slots, turn, vectors, from);
    }
    sol_await_tokens(comm, ticket, others & ~from, args.story);
}

#endif
