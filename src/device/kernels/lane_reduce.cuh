/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_reduce.cuh: all_reduce, reduce_scatter and reduce of messages beyond a
 * slot, in chunks over lanes (proto/gpu_lanes.h). CTA b of every rank works on
 * lane b with all its peers; any number of chunks flows through a bounded ring.
 *
 * Two forms. One hop: every receiver gets the chunk of everybody (two ranks;
 * reduce_scatter; reduce). Two hops (all_reduce of more ranks): a unit of work is
 * n chunks; rank p reduces the p-th and sends the result to all, as the next
 * chunk on the same lanes.
 *
 * Must never: be launched with grids that differ between ranks.
 */
#ifndef SOL_DEVICE_KERNELS_LANE_REDUCE_CUH
#define SOL_DEVICE_KERNELS_LANE_REDUCE_CUH

#include "device/kernels/one_shot.cuh"
#include "device/prim/lane.cuh"

struct sol_lane_reduce_args {
    const char *send;
    char *recv;
    uint64_t stride; /* between the blocks for different receivers; 0: all get the same */
    uint64_t bytes;  /* of a block; two hops: of the message */
    int16_t root;    /* one hop: the only receiver, or -1 */
    uint8_t redop, premul;
    uint8_t hops;
};

/* Counters of this CTA's lane, in shared memory: next chunk to and from each peer. */
struct sol_lane_counters {
    uint64_t sent[SOL_GPU_MAX_RANKS], received[SOL_GPU_MAX_RANKS];
};

/* A unit of work: the block for peer p begins at at + p * between, and no unit goes beyond `end`
 * (one hop: of each block, two hops: of the message). */
struct sol_lane_unit {
    uint64_t at, between, end;
};

SOL_GPU_FN uint32_t sol_unit_bytes(const struct sol_lane_unit &u, int p, bool two)
{
    uint64_t from = u.at + (two ? p * (uint64_t)SOL_GPU_LANE_CHUNK : 0);
    uint64_t left = u.end > from ? u.end - from : 0;
    return left < SOL_GPU_LANE_CHUNK ? (uint32_t)left : SOL_GPU_LANE_CHUNK;
}

/* Wait for room for `chunks` more to every peer in `to`, and publish what has been consumed. All
 * threads; a barrier inside. False: gave up. */
SOL_GPU_FN bool sol_lane_turn(const struct sol_link &comm, const struct sol_story &story,
                              const struct sol_lane_counters &counters, int lane, unsigned to,
                              unsigned from, int chunks)
{
    int peer = (int)threadIdx.x;
    bool failed = false;
    if (peer < comm.nranks && (to >> peer & 1))
        failed = !sol_await_credit(comm, story, peer, lane, counters.sent[peer] + chunks - 1);
    if (__syncthreads_or(failed))
        return false;
    /* the barrier has put every thread's resets of the last turn before this */
    if (peer < comm.nranks && (from >> peer & 1)) {
        sol_fence_system();
        sol_push_credit(comm, peer, lane, counters.received[peer]);
    }
    return true;
}

/* What all threads of a CTA know of the work. */
struct sol_lane_task {
    int n, rank, lane, op;
    unsigned to, from; /* peers by bit */
    bool receives, premul;
    bool two; /* hops */
    uint64_t scalar;
};

/* One turn's first hop: send the blocks for the peers, reduce one's own from theirs, store it, and
 * in two hops send the result on. False: gave up. */
template <int D, int N, int V, bool EXACT>
SOL_GPU_FN bool sol_lane_first_hop(const struct sol_link &comm,
                                   const struct sol_lane_reduce_args &args,
                                   const struct sol_story &story, const struct sol_lane_task &task,
                                   const struct sol_lane_counters &counters,
                                   const struct sol_lane_unit &u, uint32_t at)
{
    const uint32_t step = blockDim.x * 16, own_bytes = sol_unit_bytes(u, task.rank, task.two);
    struct sol_vector own[V], out[V], in[N - 1][V];
#pragma unroll
    for (int k = 0; k < N - 1; k++) {
        int peer = sol_push_peer(task.rank, task.n, k);
        if (k >= task.n - 1 || !(task.to >> peer & 1))
            continue;
        uint32_t bytes = sol_unit_bytes(u, peer, task.two);
        const struct sol_place place = {at, step, 0};
        uint64_t s = counters.sent[peer];
        sol_load_own<EXACT, V>(args.send + u.at + peer * u.between, bytes, place, out);
#pragma unroll
        for (int v = 0; v < V; v++)
            if (task.premul)
                out[v] = sol_scale<D>(out[v], task.scalar);
        sol_put_into_lane<V>(sol_outgoing_slot(comm, peer, task.lane, s), s, at, step, bytes, out);
    }
    if (!task.receives)
        return true;
    const struct sol_place place = {at, step, 0};
    sol_load_own<EXACT, V>(args.send + u.at + task.rank * u.between, own_bytes, place, own);
#pragma unroll
    for (int v = 0; v < V; v++)
        if (task.premul)
            own[v] = sol_scale<D>(own[v], task.scalar);
    bool good =
        true; /* no way out of the loop, so that it is unrolled and `in` stays in registers */
#pragma unroll
    for (int q = 0; q < N - 1; q++) {
        int peer = sol_poll_peer(task.rank, q);
        uint64_t s = q < task.n - 1 ? counters.received[peer] : 0;
        if (q < task.n - 1)
            good = good &&
                   sol_take_from_lane<V>(comm, story, sol_incoming_slot(comm, peer, task.lane, s),
                                         peer, s, at, step, own_bytes, in[q]);
    }
    if (!good)
        return false;
#pragma unroll
    for (int v = 0; v < V; v++)
        own[v] = sol_reduce_ranks<D, N, V>(task.op, task.rank, task.n, own[v], in, v);
    char *result = args.recv + u.at + (task.two ? task.rank * u.between : 0);
    sol_store_own<EXACT, V>(result, own_bytes, place, own);
#pragma unroll
    for (int k = 0; k < N - 1; k++) {
        int peer = sol_push_peer(task.rank, task.n, k);
        if (!task.two || k >= task.n - 1)
            continue;
        uint64_t s = counters.sent[peer] + 1;
        sol_put_into_lane<V>(sol_outgoing_slot(comm, peer, task.lane, s), s, at, step, own_bytes,
                             own);
    }
    return true;
}

/* The second hop: take the others' results. False: gave up. */
template <int V, bool EXACT>
SOL_GPU_FN bool sol_lane_second_hop(const struct sol_link &comm,
                                    const struct sol_lane_reduce_args &args,
                                    const struct sol_story &story, const struct sol_lane_task &task,
                                    const struct sol_lane_counters &counters,
                                    const struct sol_lane_unit &u, uint32_t at)
{
    const struct sol_place place = {at, blockDim.x * 16, 0};
#pragma unroll 1
    for (int q = 0; q < task.n - 1; q++) {
        int peer = sol_poll_peer(task.rank, q);
        uint32_t bytes = sol_unit_bytes(u, peer, true);
        uint64_t s = counters.received[peer] + 1;
        struct sol_vector in[V];
        if (!sol_take_from_lane<V>(comm, story, sol_incoming_slot(comm, peer, task.lane, s), peer,
                                   s, at, place.step, bytes, in))
            return false;
        sol_store_own<EXACT, V>(args.recv + u.at + peer * u.between, bytes, place, in);
    }
    return true;
}

/* V vectors a thread at a time: 4 with two ranks, to have enough on the link. */
template <int D, int OP, int N, int V, bool EXACT>
__global__ void __launch_bounds__(OP<0 || N> 2 ? 256 : 512, 1)
    sol_lane_reduce_kernel(const __grid_constant__ struct sol_lane_reduce_args args,
                           const __grid_constant__ struct sol_link comm,
                           const __grid_constant__ struct sol_tail tail)
{
    SOL_SHARED(struct sol_lane_counters, counters);
    sol_await_predecessors();
    sol_admit_successor();
    struct sol_lane_task task;
    task.n = N == 2 ? 2 : comm.nranks;
    task.rank = comm.rank;
    task.lane = (int)blockIdx.x;
    task.op = OP < 0 ? args.redop : args.redop == SOL_AVG ? (int)SOL_AVG : OP;
    const unsigned others = ((1u << task.n) - 1) & ~(1u << task.rank);
    task.to = args.root < 0 ? others : others & 1u << args.root;
    task.receives = args.root < 0 || args.root == task.rank;
    task.from = task.receives ? others : 0;
    task.premul = OP < 0 && args.premul;
    task.two = N > 2 && args.hops == 2;
    task.scalar = tail.scalar_pointer ? sol_load_scalar<D>(tail.scalar_pointer) : tail.scalar;
    const int chunks = task.two ? 2 : 1;
    const uint64_t unit_bytes = (uint64_t)SOL_GPU_LANE_CHUNK * (task.two ? task.n : 1);
    const uint64_t between = task.two ? SOL_GPU_LANE_CHUNK : args.stride;
    const unsigned me = threadIdx.x;

    if (me < (unsigned)task.n) {
        counters.sent[me] = sol_poll_word(&comm.state->sent[me][task.lane]);
        counters.received[me] = sol_poll_word(&comm.state->received[me][task.lane]);
    }
    if (sol_link_dead(comm)) /* a barrier too: the counters are there */
        return;
#pragma unroll 1
    for (uint64_t at = task.lane * unit_bytes; at < args.bytes; at += gridDim.x * unit_bytes) {
        const struct sol_lane_unit u = {at, between, args.bytes};
        if (!sol_lane_turn(comm, tail.story, counters, task.lane, task.to, task.from, chunks))
            return;
        bool good = true;
#pragma unroll 1
        for (uint32_t in = me * 16; in < SOL_GPU_LANE_CHUNK && good; in += V * blockDim.x * 16)
            good =
                sol_lane_first_hop<D, N, V, EXACT>(comm, args, tail.story, task, counters, u, in);
#pragma unroll 1
        for (uint32_t in = me * 16; task.two && in < SOL_GPU_LANE_CHUNK && good;
             in += blockDim.x * 16)
            good = sol_lane_second_hop<1, EXACT>(comm, args, tail.story, task, counters, u, in);
        if (__syncthreads_or(!good))
            return;
        if (me < (unsigned)task.n) {
            counters.sent[me] += task.to >> me & 1 ? chunks : 0;
            counters.received[me] += task.from >> me & 1 ? chunks : 0;
        }
        __syncthreads();
    }
    if (!sol_lane_turn(comm, tail.story, counters, task.lane, 0, task.from, chunks))
        return;
    if (me < (unsigned)task.n) {
        sol_push_word(&comm.state->sent[me][task.lane], counters.sent[me]);
        sol_push_word(&comm.state->received[me][task.lane], counters.received[me]);
    }
}

#endif
