/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.cuh: moving a thread's vectors into peers' slots and out of its own.
 * The slots belong to an epoch (proto/gpu_epoch.h) and their words validate
 * themselves (proto/gpu_word.h).
 *
 * Which thread takes which vector: in turn t, CTA c of C takes the V * threads
 * consecutive vectors from (t * C + c) * V * threads on, thread by thread, so
 * that a warp's access is 512 consecutive bytes.
 */
#ifndef SOL_DEVICE_PRIM_SLOTS_CUH
#define SOL_DEVICE_PRIM_SLOTS_CUH

#include "device/prim/epoch.cuh"
#include "device/prim/memory.cuh"
#include "device/prim/watch.cuh"
#include "device/prim/word.cuh"

/* The slots of this epoch: where this rank's data goes at any peer, and where its peers' comes. */
struct sol_slots {
    uint64_t outgoing, outgoing_escape; /* offsets into a peer's staging */
    char *incoming, *incoming_escape;   /* of source 0, here */
};

SOL_GPU_FN struct sol_slots sol_find_slots(const struct sol_gpu_comm &comm, uint64_t epoch)
{
    const struct sol_gpu_layout &l = comm.layout;
    struct sol_slots s;
    uint64_t parity = sol_gpu_slot(&l, epoch, 0);
    uint64_t own = (uint64_t)comm.rank * l.slot_bytes;
    s.outgoing = parity + own;
    s.outgoing_escape = parity + l.escape + own / 2;
    s.incoming = comm.staging[comm.rank] + parity;
    s.incoming_escape = s.incoming + l.escape;
    return s;
}

/* Vector v of V of a thread in turn `turn`: CTAs take runs of consecutive vectors. */
template <int V> SOL_GPU_FN uint64_t sol_vector_index(uint64_t turn, int v)
{
    return ((turn * gridDim.x + blockIdx.x) * V + v) * blockDim.x + threadIdx.x;
}

SOL_GPU_FN uint64_t sol_turns(uint64_t vectors, int per_thread)
{
    uint64_t per_turn = (uint64_t)gridDim.x * blockDim.x * per_thread;
    return (vectors + per_turn - 1) / per_turn;
}

/*
 * Poll the slots of up to N - 1 sources until all V vectors of each are there, all loads of a try in
 * flight at once. `from`: ranks that send; the vectors of others stay zero. False: gave up.
 */
template <int N, int V>
SOL_GPU_FN bool sol_receive(const struct sol_gpu_comm &comm, const struct sol_slots &slots,
                            uint64_t epoch, uint64_t turn, uint64_t vectors, unsigned from,
                            const struct sol_story &story, struct sol_vector (&in)[N - 1][V])
{
    struct sol_watch watch = {0, 0};
    int awaited;
    do {
        awaited = -1;
#pragma unroll
        for (int q = 0; q < N - 1; q++) {
            int peer = sol_poll_peer(comm, q);
            const char *slot = slots.incoming + (uint64_t)peer * comm.layout.slot_bytes;
#pragma unroll
            for (int v = 0; v < V; v++) {
                uint64_t i = sol_vector_index<V>(turn, v);
                in[q][v].a = in[q][v].b = 0;
                if (i < vectors && (from >> peer & 1))
                    in[q][v] = sol_poll_vector(slot + i * SOL_GPU_VECTOR);
            }
        }
#pragma unroll
        for (int q = 0; q < N - 1; q++) {
            int peer = sol_poll_peer(comm, q);
            const char *escape =
                slots.incoming_escape + (uint64_t)peer * comm.layout.slot_bytes / 2;
#pragma unroll
            for (int v = 0; v < V; v++) {
                uint64_t i = sol_vector_index<V>(turn, v);
                if (sol_vector_suspect(in[q][v]) &&
                    !sol_vector_settle(in[q][v], escape + i * 8, epoch))
                    awaited = peer;
            }
        }
        if (awaited >= 0 && sol_watch_expired(comm, story, watch, awaited))
            return false;
    } while (awaited >= 0);
    return true;
}

template <int N, int V>
SOL_GPU_FN void sol_reset(const struct sol_gpu_comm &comm, const struct sol_slots &slots,
                          uint64_t turn, uint64_t vectors, unsigned from)
{
#pragma unroll
    for (int q = 0; q < N - 1; q++) {
        int peer = sol_poll_peer(comm, q);
        char *slot = slots.incoming + (uint64_t)peer * comm.layout.slot_bytes;
#pragma unroll
        for (int v = 0; v < V; v++) {
            uint64_t i = sol_vector_index<V>(turn, v);
            if (i < vectors && (from >> peer & 1))
                sol_reset_vector(slot + i * SOL_GPU_VECTOR);
        }
    }
}

/* Load this thread's V vectors at `from`, a buffer of `bytes`. */
template <int V>
SOL_GPU_FN void sol_load_own(const char *from, uint64_t bytes, uint64_t turn,
                             struct sol_vector (&own)[V])
{
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint64_t at = sol_vector_index<V>(turn, v) * SOL_GPU_VECTOR;
        own[v].a = own[v].b = 0;
        if (at < bytes)
            own[v] = sol_load_vector(from + at, bytes - at);
    }
}

/* Store them at `to`, a buffer of `bytes`. */
template <int V>
SOL_GPU_FN void sol_store_own(char *to, uint64_t bytes, uint64_t turn,
                              const struct sol_vector (&own)[V])
{
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint64_t at = sol_vector_index<V>(turn, v) * SOL_GPU_VECTOR;
        if (at < bytes)
            sol_store_vector(to + at, bytes - at, own[v]);
    }
}

template <int V>
SOL_GPU_FN void sol_send_own(const struct sol_gpu_comm &comm, const struct sol_slots &slots,
                             uint64_t epoch, int peer, uint64_t turn, uint64_t vectors,
                             const struct sol_vector (&own)[V])
{
    char *slot = comm.staging[peer] + slots.outgoing;
    char *escape = comm.staging[peer] + slots.outgoing_escape;
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint64_t i = sol_vector_index<V>(turn, v);
        if (i < vectors)
            sol_send_vector(slot + i * SOL_GPU_VECTOR, escape + i * 8, own[v], epoch);
    }
}

#endif
