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
    uint64_t bytes;       /* of a block */
    uint64_t send_stride; /* between the blocks for different peers; 0: all get the same */
    uint64_t recv_stride; /* between the blocks from different peers */
    struct sol_story story;
    unsigned to, from; /* peers by bit, without this rank */
    int copy;          /* own block goes from send to recv here (not in place) */
};

template <int N, int V>
__global__ void __launch_bounds__(512, SOL_GPU_CTAS_PER_SM)
    sol_push_kernel(const __grid_constant__ struct sol_gpu_comm comm,
                    const __grid_constant__ struct sol_push_args args)
{
    sol_await_predecessors();
    sol_admit_successor();
    const int n = N == 2 ? 2 : comm.nranks;
    const unsigned others = ((1u << n) - 1) & ~(1u << comm.rank);
    const uint64_t vectors = (args.bytes + SOL_GPU_VECTOR - 1) / SOL_GPU_VECTOR;
    uint64_t turns = sol_turns(vectors, V);
    struct sol_ticket ticket = sol_take_ticket(comm);

    if (turns == 0) { /* barrier */
        sol_send_tokens(comm, ticket, others);
        sol_leave_ticket(comm, ticket);
    }
    for (uint64_t turn = 0; turn < turns; turn++) {
        struct sol_vector own[V], out[N - 1][V], in[N - 1][V];
        if (args.send_stride != 0) {
#pragma unroll
            for (int k = 0; k < N - 1; k++) {
                int peer = sol_push_peer(comm, n, k);
                if (k < n - 1 && (args.to >> peer & 1))
                    sol_load_own<V>(args.send + peer * args.send_stride, args.bytes, turn, out[k]);
            }
        }
        if (args.copy || (args.send_stride == 0 && args.to))
            sol_load_own<V>(args.send + comm.rank * args.send_stride, args.bytes, turn, own);
        if (ticket.dead)
            return;
        struct sol_slots slots = sol_find_slots(comm, ticket.epoch);
#pragma unroll
        for (int k = 0; k < N - 1; k++) {
            int peer = sol_push_peer(comm, n, k);
            if (k >= n - 1 || !(args.to >> peer & 1))
                continue;
            if (args.send_stride == 0)
                sol_send_own<V>(comm, slots, ticket.epoch, peer, turn, vectors, own);
            else
                sol_send_own<V>(comm, slots, ticket.epoch, peer, turn, vectors, out[k]);
        }
        if (turn == 0) {
            sol_send_tokens(comm, ticket, others & ~args.to);
            sol_leave_ticket(comm, ticket);
        }
        if (args.copy)
            sol_store_own<V>(args.recv + comm.rank * args.recv_stride, args.bytes, turn, own);
        if (args.from == 0)
            continue;
        if (!sol_receive<N, V>(comm, slots, ticket.epoch, turn, vectors, args.from, args.story, in))
            return;
#pragma unroll
        for (int q = 0; q < N - 1; q++) {
            int peer = sol_poll_peer(comm, q);
            if (args.from >> peer & 1)
                sol_store_own<V>(args.recv + peer * args.recv_stride, args.bytes, turn, in[q]);
        }
        sol_reset<N, V>(comm, slots, turn, vectors, args.from);
    }
    sol_await_tokens(comm, ticket, others & ~args.from, args.story);
}

#endif
