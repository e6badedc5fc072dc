/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.cuh: moving a thread's vectors into peers' slots and out of its own.
 * The slots belong to an epoch (proto/gpu_epoch.h) and their words validate
 * themselves (proto/gpu_word.h).
 *
 * Which thread takes which vector: CTA c takes V * threads consecutive vectors
 * from c * V * threads on, thread by thread, so that a warp's access is 512
 * consecutive bytes; the next turn begins where the last CTA ended.
 */
#ifndef SOL_DEVICE_PRIM_SLOTS_CUH
#define SOL_DEVICE_PRIM_SLOTS_CUH

#include "device/prim/epoch.cuh"
#include "device/prim/memory.cuh"
#include "device/prim/watch.cuh"
#include "device/prim/word.cuh"

/* The slots of one epoch: where this rank's data goes at any peer, and where its peers' comes.
 * Offsets within a slot, and so within a block of user data, have 32 bits. */
struct sol_slots {
    uint64_t outgoing, outgoing_escape; /* offsets into a peer's staging */
    char *incoming, *incoming_escape;   /* of source 0, here */
    int rank;
};

SOL_GPU_FN struct sol_slots sol_find_slots(const struct sol_link &comm, int rank, uint64_t epoch)
{
    struct sol_slots s;
    uint64_t parity = sol_gpu_slot(comm.nranks, comm.slot_bytes, epoch, 0);
    uint64_t own = (uint64_t)rank * comm.slot_bytes;
    uint64_t escape = sol_gpu_escape(comm.nranks, comm.slot_bytes);
    s.outgoing = parity + own;
    s.outgoing_escape = parity + escape + own / 2;
    s.incoming = comm.staging[rank] + parity;
    s.incoming_escape = s.incoming + escape;
    s.rank = rank;
    return s;
}

/* A thread's place: byte offset of its first vector in this turn, from one of its V to the next,
 * and from turn to turn. */
struct sol_place {
    uint32_t at, step, turn;
};

template <int V> SOL_GPU_FN struct sol_place sol_first_place(void)
{
    struct sol_place p;
    p.step = blockDim.x * 16;
    p.at = (blockIdx.x * V * blockDim.x + threadIdx.x) * 16;
    p.turn = gridDim.x * V * p.step;
    return p;
}

/* Load this thread's V vectors of the block of `bytes` at `from`. */
template <bool EXACT, int V>
SOL_GPU_FN void sol_load_own(const char *from, uint32_t bytes, const struct sol_place &place,
                             struct sol_vector (&own)[V])
{
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint32_t at = place.at + v * place.step;
        own[v].a = own[v].b = 0;
        if (at < bytes)
            own[v] = sol_load_vector<EXACT>(from + at, bytes - at);
    }
}

template <bool EXACT, int V>
SOL_GPU_FN void sol_store_own(char *to, uint32_t bytes, const struct sol_place &place,
                              const struct sol_vector (&own)[V])
{
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint32_t at = place.at + v * place.step;
        if (at < bytes)
            sol_store_vector<EXACT>(to + at, bytes - at, own[v]);
    }
}

/* Send them to all peers in `to`, k-th nearest neighbour first. */
template <int N, int V>
SOL_GPU_FN void sol_send_to_all(const struct sol_link &comm, const struct sol_slots &slots,
                                uint64_t epoch, int n, unsigned to, uint32_t bytes,
                                const struct sol_place &place, const struct sol_vector (&own)[V])
{
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint32_t at = place.at + v * place.step;
        if (at >= bytes)
            break;
        struct sol_parcel parcel = sol_wrap_vector(own[v], epoch);
#pragma unroll
        for (int k = 0; k < N - 1; k++) {
            int peer = sol_push_peer(slots.rank, n, k);
            if (k >= n - 1 || !(to >> peer & 1))
                continue;
            char *base = comm.staging[peer];
            sol_send_parcel(base + slots.outgoing + at, base + slots.outgoing_escape + at / 2,
                            parcel);
        }
    }
}

/* Send them to one. */
template <int V>
SOL_GPU_FN void sol_send_to(const struct sol_link &comm, const struct sol_slots &slots,
                            uint64_t epoch, int peer, uint32_t bytes, const struct sol_place &place,
                            const struct sol_vector (&own)[V])
{
    char *base = comm.staging[peer];
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint32_t at = place.at + v * place.step;
        if (at < bytes)
            sol_send_parcel(base + slots.outgoing + at, base + slots.outgoing_escape + at / 2,
                            sol_wrap_vector(own[v], epoch));
    }
}

/*
 * Take V vectors from each source in `from` (others' stay zero), all loads of a try in flight at
 * once. in[q] is that of the q-th other rank in ascending order. False: gave up.
 */
template <int N, int V>
SOL_GPU_FN bool sol_receive(const struct sol_link &comm, const struct sol_slots &slots,
                            uint64_t epoch, unsigned from, uint32_t bytes,
                            const struct sol_place &place, const struct sol_story &story,
                            struct sol_vector (&in)[N - 1][V])
{
    struct sol_watch watch = {0, 0};
    const uint32_t slot = (uint32_t)comm.slot_bytes;
    bool suspect, missing;
    do {
        suspect = missing = false;
#pragma unroll
        for (int q = 0; q < N - 1; q++) {
            int peer = sol_poll_peer(slots.rank, q);
#pragma unroll
            for (int v = 0; v < V; v++) {
                uint32_t at = place.at + v * place.step;
                in[q][v].a = in[q][v].b = 0;
                if (at < bytes && (from >> peer & 1))
                    in[q][v] = sol_poll_vector(slots.incoming + (uint64_t)peer * slot + at);
            }
        }
#pragma unroll
        for (int q = 0; q < N - 1; q++)
#pragma unroll
            for (int v = 0; v < V; v++)
                suspect |= sol_vector_suspect(in[q][v]);
        if (!suspect)
            return true;
        int awaited = 0;
#pragma unroll
        for (int q = 0; q < N - 1; q++)
#pragma unroll
            for (int v = 0; v < V; v++)
                if (sol_vector_missing(in[q][v])) {
                    missing = true;
                    awaited = sol_poll_peer(slots.rank, q);
                }
        if (missing && sol_watch_expired(comm, story, watch, awaited))
            return false;
    } while (missing);
#pragma unroll
    for (int q = 0; q < N - 1; q++) {
        int peer = sol_poll_peer(slots.rank, q);
#pragma unroll
        for (int v = 0; v < V; v++) {
            uint32_t at = place.at + v * place.step;
            const char *escape = slots.incoming_escape + ((uint64_t)peer * slot + at) / 2;
            if (!sol_unescape(comm, story, in[q][v], escape, epoch, peer))
                return false;
        }
    }
    return true;
}

template <int N, int V>
SOL_GPU_FN void sol_reset(const struct sol_link &comm, const struct sol_slots &slots, unsigned from,
                          uint32_t bytes, const struct sol_place &place)
{
    const uint32_t slot = (uint32_t)comm.slot_bytes;
#pragma unroll
    for (int q = 0; q < N - 1; q++) {
        int peer = sol_poll_peer(slots.rank, q);
#pragma unroll
        for (int v = 0; v < V; v++) {
            uint32_t at = place.at + v * place.step;
            if (at < bytes && (from >> peer & 1))
                sol_reset_vector(slots.incoming + (uint64_t)peer * slot + at);
        }
    }
}

#endif
