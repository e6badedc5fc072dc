/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.cuh: moving a thread's vectors into peers' slots and out of its own.
 * The slots belong to an epoch (proto/gpu_epoch.h) and their words validate
 * themselves (gpu_word.h).
 *
 * Which thread takes which vector: CTA c takes V * threads consecutive vectors
 * from c * V * threads on, thread by thread, so that a warp's access is 512
 * consecutive bytes; the next turn begins where the last CTA ended.
 *
 * Peers are chosen by bits: `to` by k, `from` by q (link.cuh). With ALL, which
 * the kernels of common collectives use, every peer is meant and nothing is
 * tested. Offsets within the slots of both parities have 32 bits.
 */
#ifndef SOL_DEVICE_PRIM_SLOTS_CUH
#define SOL_DEVICE_PRIM_SLOTS_CUH

#include "device/prim/epoch.cuh"
#include "device/prim/link.cuh"

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

/* The escape words of a slot of `source` lie so far from its data, before halving the offset. */
SOL_GPU_FN uint64_t sol_escape_offset(const struct sol_link &comm, int source)
{
    return sol_gpu_escape(comm.nranks, comm.slot_bytes) - (uint64_t)source * comm.slot_bytes / 2;
}

/* Push a parcel to the k-th peer, at byte `at` of this rank's slot of the epoch. */
SOL_GPU_FN void sol_push_parcel(const struct sol_link &comm, int k, uint32_t shift, uint32_t at,
                                const struct sol_parcel &parcel)
{
    if (parcel.escape != 0)
        sol_push_word(comm.out[k] + sol_escape_offset(comm, comm.rank) + shift + at / 2,
                      parcel.escape);
    sol_push_vector(comm.out[k] + (shift + at), parcel.v);
}

/* Send V vectors to all peers in `to`. */
template <int N, int V, bool ALL>
SOL_GPU_FN void sol_send_to_all(const struct sol_link &comm, const struct sol_ticket &ticket, int n,
                                unsigned to, uint32_t bytes, const struct sol_place &place,
                                const struct sol_vector (&own)[V])
{
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint32_t at = place.at + v * place.step;
        if (at >= bytes)
            continue;
        struct sol_parcel parcel = sol_wrap_vector(own[v], ticket.epoch);
#pragma unroll
        for (int k = 0; k < N - 1; k++)
            if (k < n - 1 && (ALL || (to >> k & 1)))
                sol_push_parcel(comm, k, ticket.shift, at, parcel);
    }
}

/* Send them to the k-th. */
template <int V>
SOL_GPU_FN void sol_send_to(const struct sol_link &comm, const struct sol_ticket &ticket, int k,
                            uint32_t bytes, const struct sol_place &place,
                            const struct sol_vector (&own)[V])
{
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint32_t at = place.at + v * place.step;
        if (at < bytes)
            sol_push_parcel(comm, k, ticket.shift, at, sol_wrap_vector(own[v], ticket.epoch));
    }
}

/* The q-th source's slot here, parity 0. */
SOL_GPU_FN char *sol_source_slot(const struct sol_link &comm, int rank, int q)
{
    int from_first = sol_poll_peer(rank, q) - sol_poll_peer(rank, 0);
    return q == 0 ? comm.in : comm.in + (uint64_t)from_first * comm.slot_bytes;
}

/*
 * Take V vectors from each source in `from` (others' stay zero), all loads of a try in flight at
 * once. False: gave up.
 */
template <int N, int V, bool ALL>
SOL_GPU_FN bool sol_receive(const struct sol_link &comm, const struct sol_ticket &ticket, int rank,
                            int n, unsigned from, uint32_t bytes, const struct sol_place &place,
                            const struct sol_story &story, struct sol_vector (&in)[N - 1][V])
{
    struct sol_watch watch = {0, 0};
    bool suspect, missing;
    do {
        suspect = missing = false;
#pragma unroll
        for (int q = 0; q < N - 1; q++) {
            const char *slot = sol_source_slot(comm, rank, q);
#pragma unroll
            for (int v = 0; v < V; v++) {
                uint32_t at = place.at + v * place.step;
                in[q][v].a = in[q][v].b = 0;
                if (at < bytes && q < n - 1 && (ALL || (from >> q & 1)))
                    in[q][v] = sol_poll_vector(slot + (ticket.shift + at));
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
                    awaited = sol_poll_peer(rank, q);
                }
        if (missing && sol_watch_expired(comm, story, watch, awaited))
            return false;
    } while (missing);
#pragma unroll
    for (int q = 0; q < N - 1; q++) {
        int peer = sol_poll_peer(rank, q);
#pragma unroll
        for (int v = 0; v < V; v++) {
            uint32_t at = place.at + v * place.step;
            const char *escape = sol_source_slot(comm, rank, q) + sol_escape_offset(comm, peer) +
                                 ticket.shift + at / 2;
            if (!sol_unescape(comm.bound, story, in[q][v], escape, ticket.epoch, peer))
                return false;
        }
    }
    return true;
}

template <int N, int V, bool ALL>
SOL_GPU_FN void sol_reset(const struct sol_link &comm, const struct sol_ticket &ticket, int rank,
                          int n, unsigned from, uint32_t bytes, const struct sol_place &place)
{
#pragma unroll
    for (int q = 0; q < N - 1; q++) {
        char *slot = sol_source_slot(comm, rank, q);
#pragma unroll
        for (int v = 0; v < V; v++) {
            uint32_t at = place.at + v * place.step;
            if (at < bytes && q < n - 1 && (ALL || (from >> q & 1)))
                sol_reset_vector(slot + (ticket.shift + at));
        }
    }
}

#endif
