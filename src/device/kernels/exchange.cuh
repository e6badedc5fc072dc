/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange.cuh: messages between pairs: send, recv, batches of them,
 * all_to_all_v, and every collective that moves bytes beyond a slot.
 *
 * A CTA has one role: it sends to one peer on one lane, or receives from one
 * peer on one lane, or copies this rank's message to itself. All roles of a
 * launch run at once, so that sends and receives cannot block each other.
 *
 * Must never: launch more CTAs than can be resident; let the two ends of a
 * message disagree about its lanes (sol_gpu_lanes_for of its bytes).
 */
#ifndef SOL_DEVICE_KERNELS_EXCHANGE_CUH
#define SOL_DEVICE_KERNELS_EXCHANGE_CUH

#include "device/prim/lane.cuh"

struct sol_message {
    char *data;
    uint64_t bytes;
};

/* CTA b finds its role by walking the peers: lanes to it, then lanes from it; at last the copy. No
 * lanes: no such message. */
struct sol_exchange_args {
    struct sol_message send[SOL_GPU_MAX_RANKS], recv[SOL_GPU_MAX_RANKS];
    uint8_t send_lanes[SOL_GPU_MAX_RANKS], recv_lanes[SOL_GPU_MAX_RANKS];
    int copy_ctas; /* own message: send[rank] to recv[rank] */
    int paired;    /* one CTA serves a lane both ways: for collectives in place, and to save CTAs */
};

#ifndef SOL_EXCHANGE_THREADS /* (the emulator has fewer) */
#define SOL_EXCHANGE_THREADS 512
#endif
#define SOL_EXCHANGE_VECTORS (SOL_GPU_LANE_CHUNK / 16 / SOL_EXCHANGE_THREADS)

/* One end of a message, as one CTA works on it. */
struct sol_lane_work {
    char *data;
    uint64_t bytes;
    int peer, lane, lanes;
    uint64_t first; /* number of this message's first chunk on the lane */
    uint64_t mine;  /* chunks of it on this lane */
};

SOL_GPU_FN struct sol_lane_work sol_lane_work(const struct sol_message &message, int peer, int lane,
                                              int lanes, const uint64_t *counter)
{
    struct sol_lane_work w = {message.data, message.bytes, peer, lane, lanes, 0, 0};
    w.first = sol_poll_word(counter);
    w.mine = lanes ? sol_gpu_chunks_of_lane(sol_gpu_chunks(w.bytes), lane, lanes) : 0;
    if (lane == 0 && w.mine == 0)
        w.mine = 1; /* an empty message is its header */
    return w;
}

/* The i-th chunk of this lane: where it begins in the message, and its bytes. */
SOL_GPU_FN uint64_t sol_chunk_offset(const struct sol_lane_work &w, uint64_t i)
{
    return (w.lane + i * w.lanes) * SOL_GPU_LANE_CHUNK;
}
SOL_GPU_FN uint32_t sol_chunk_bytes(const struct sol_lane_work &w, uint64_t i)
{
    uint64_t from = sol_chunk_offset(w, i), left = w.bytes > from ? w.bytes - from : 0;
    return left < SOL_GPU_LANE_CHUNK ? (uint32_t)left : SOL_GPU_LANE_CHUNK;
}

#define SOL_EXCHANGE_STEP (SOL_EXCHANGE_THREADS * 16)

/* All threads of the CTA. False: gave up, all of them. */
template <bool EXACT>
SOL_GPU_FN bool sol_send_chunk(const struct sol_link &comm, const struct sol_story &story,
                               const struct sol_lane_work &w, uint64_t i)
{
    const uint64_t s = w.first + i;
    const uint32_t bytes = sol_chunk_bytes(w, i), at = threadIdx.x * 16;
    const char *from = w.data + sol_chunk_offset(w, i);
    struct sol_vector out[SOL_EXCHANGE_VECTORS];
#pragma unroll
    for (int v = 0; v < SOL_EXCHANGE_VECTORS; v++) {
        uint32_t here = at + v * SOL_EXCHANGE_STEP;
        if (here < bytes)
            out[v] = sol_load_vector<EXACT>(from + here, bytes - here);
    }
    bool failed = threadIdx.x == 0 && !sol_await_credit(comm, story, w.peer, w.lane, s);
    if (__syncthreads_or(failed))
        return false;
    struct sol_lane_slot slot = sol_outgoing_slot(comm, w.peer, w.lane, s);
    if (w.lane == 0 && i == 0 && threadIdx.x == 0) {
        struct sol_vector header = {w.bytes, 0};
        sol_push_vector(slot.data + SOL_GPU_LANE_CHUNK, header);
    }
    sol_put_into_lane<SOL_EXCHANGE_VECTORS>(slot, s, at, SOL_EXCHANGE_STEP, bytes, out);
    return true;
}

/* The header of a message, in one thread. False: gave up, or the sender has another size in mind.
 */
SOL_GPU_FN bool sol_check_header(const struct sol_link &comm, const struct sol_story &story,
                                 const struct sol_lane_slot &slot, const struct sol_lane_work &w)
{
    struct sol_vector header[1];
    if (!sol_take_from_lane<1>(comm, story, slot, w.peer, 0, SOL_GPU_LANE_CHUNK, 0,
                               SOL_GPU_LANE_SLOT, header))
        return false;
    if (header[0].a == w.bytes)
        return true;
    sol_record(comm.bound, story, SOL_GPU_FAULT_MISMATCH, w.peer, header[0].a,
               sol_poll_word(&comm.state->epochs[0].epoch));
    return false;
}

template <bool EXACT>
SOL_GPU_FN bool sol_recv_chunk(const struct sol_link &comm, const struct sol_story &story,
                               const struct sol_lane_work &w, uint64_t i)
{
    const uint64_t s = w.first + i;
    const uint32_t bytes = sol_chunk_bytes(w, i), at = threadIdx.x * 16;
    char *to = w.data + sol_chunk_offset(w, i);
    struct sol_lane_slot slot = sol_incoming_slot(comm, w.peer, w.lane, s);
    struct sol_vector in[SOL_EXCHANGE_VECTORS];
    bool failed = false;
    if (w.lane == 0 && i == 0 && threadIdx.x == 0)
        failed = !sol_check_header(comm, story, slot, w);
    if (!failed)
        failed = !sol_take_from_lane<SOL_EXCHANGE_VECTORS>(comm, story, slot, w.peer, s, at,
                                                           SOL_EXCHANGE_STEP, bytes, in);
    if (__syncthreads_or(failed))
        return false;
    if (threadIdx.x == 0) {
        sol_fence_system();
        sol_push_credit(comm, w.peer, w.lane, s + 1);
    }
#pragma unroll
    for (int v = 0; v < SOL_EXCHANGE_VECTORS; v++) {
        uint32_t here = at + v * SOL_EXCHANGE_STEP;
        if (here < bytes)
            sol_store_vector<EXACT>(to + here, bytes - here, in[v]);
    }
    return true;
}

/* Send on the lane, if it is one of send_lanes, and receive, if it is one of recv_lanes. Both by
 * one CTA (collectives in place; few CTAs): what is sent of a chunk is in registers before anything
 * is written over it, and chunk i is sent before chunk i is awaited, on both sides. */
template <bool EXACT>
SOL_GPU_FN void sol_exchange_lane(const struct sol_link &comm, const struct sol_exchange_args &args,
                                  const struct sol_story &story, int peer, int lane, int send_lanes,
                                  int recv_lanes)
{
    struct sol_gpu_state *state = comm.state;
    bool send = lane < send_lanes, recv = lane < recv_lanes;
    struct sol_lane_work out =
        sol_lane_work(args.send[peer], peer, lane, send_lanes, &state->sent[peer][lane]);
    struct sol_lane_work in =
        sol_lane_work(args.recv[peer], peer, lane, recv_lanes, &state->received[peer][lane]);
    out.mine = send ? out.mine : 0;
    in.mine = recv ? in.mine : 0;
#pragma unroll 1
    for (uint64_t i = 0; i < out.mine || i < in.mine; i++) {
        if (i < out.mine && !sol_send_chunk<EXACT>(comm, story, out, i))
            return;
        if (i < in.mine && !sol_recv_chunk<EXACT>(comm, story, in, i))
            return;
    }
    if (threadIdx.x == 0 && send)
        sol_push_word(&state->sent[peer][lane], out.first + out.mine);
    if (threadIdx.x == 0 && recv)
        sol_push_word(&state->received[peer][lane], in.first + in.mine);
}

template <bool EXACT>
SOL_GPU_FN void sol_exchange_copy(const struct sol_message &from, const struct sol_message &to,
                                  int cta, int ctas)
{
    const uint64_t step = (uint64_t)ctas * SOL_EXCHANGE_STEP;
#pragma unroll 1
    for (uint64_t at = ((uint64_t)cta * SOL_EXCHANGE_THREADS + threadIdx.x) * 16; at < from.bytes;
         at += step) {
        uint32_t left = from.bytes - at < 16 ? (uint32_t)(from.bytes - at) : 16;
        sol_store_vector<EXACT>(to.data + at, left, sol_load_vector<EXACT>(from.data + at, left));
    }
}

template <bool EXACT>
__global__ void __launch_bounds__(SOL_EXCHANGE_THREADS, 1)
    sol_exchange_kernel(const __grid_constant__ struct sol_exchange_args args,
                        const __grid_constant__ struct sol_link comm,
                        const __grid_constant__ struct sol_tail tail)
{
    sol_await_predecessors();
    sol_admit_successor();
    if (sol_link_dead(comm))
        return;
    int cta = (int)blockIdx.x;
    for (int peer = 0; peer < comm.nranks; peer++) {
        int send = args.send_lanes[peer], recv = args.recv_lanes[peer];
        int roles = args.paired ? max(send, recv) : send + recv;
        if (cta < roles) {
            if (args.paired)
                sol_exchange_lane<EXACT>(comm, args, tail.story, peer, cta, send, recv);
            else if (cta < send)
                sol_exchange_lane<EXACT>(comm, args, tail.story, peer, cta, send, 0);
            else
                sol_exchange_lane<EXACT>(comm, args, tail.story, peer, cta - send, 0, recv);
            return;
        }
        cta -= roles;
    }
    sol_exchange_copy<EXACT>(args.send[comm.rank], args.recv[comm.rank], cta, args.copy_ctas);
}

#endif
