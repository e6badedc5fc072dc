/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane.cuh: a CTA's work on lanes. The protocol, with its argument, is in
 * proto/gpu_lanes.h.
 */
#ifndef SOL_DEVICE_PRIM_LANE_CUH
#define SOL_DEVICE_PRIM_LANE_CUH

#include "device/prim/link.cuh"
#include "proto/gpu_lanes.h"

/* Has the communicator failed? Then push nothing and return (proto/gpu_epoch.h). For kernels that
 * take no ticket. All threads; a barrier; the same answer for all. */
SOL_GPU_FN bool sol_link_dead(const struct sol_link &comm)
{
    return __syncthreads_or(sol_poll_word(&comm.state->fate.dead) != 0);
}

/* Wait, in one thread, until chunk `s` for `peer` may be pushed. False: gave up. */
SOL_GPU_FN bool sol_await_credit(const struct sol_link &comm, const struct sol_story &story,
                                 int peer, int lane, uint64_t s)
{
    const char *credit = comm.staging[comm.rank] + sol_gpu_credit_offset(peer, lane);
    struct sol_watch watch = {0, 0};
    /* acquire: the pushes to come must not meet the resets that the credit speaks of */
    while ((int64_t)(sol_poll_word_acquire(credit) + SOL_GPU_LANE_DEPTH - s) <= 0)
        if (sol_watch_expired(comm, story, watch, peer))
            return false;
    return true;
}

/* Tell `peer`, from one thread, that the chunks before `s` of what it sent on `lane` are consumed.
 * The caller has had a barrier after the CTA's last reset, and a system fence after that. */
SOL_GPU_FN void sol_push_credit(const struct sol_link &comm, int peer, int lane, uint64_t s)
{
    sol_push_word(comm.staging[peer] + sol_gpu_credit_offset(comm.rank, lane), s);
}

/* Where chunk `s` for `peer` goes, and where the one from `peer` comes: data and escapes. */
struct sol_lane_slot {
    char *data, *escape;
};

SOL_GPU_FN struct sol_lane_slot sol_outgoing_slot(const struct sol_link &comm, int peer, int lane,
                                                  uint64_t s)
{
    uint32_t at = sol_gpu_lane_slot(lane, s);
    char *area = comm.staging[peer] + comm.p2p + (uint64_t)comm.rank * comm.p2p_source_bytes;
    struct sol_lane_slot slot = {area + at, area + comm.p2p_escape + at / 2};
    return slot;
}

SOL_GPU_FN struct sol_lane_slot sol_incoming_slot(const struct sol_link &comm, int peer, int lane,
                                                  uint64_t s)
{
    uint32_t at = sol_gpu_lane_slot(lane, s);
    char *area = comm.staging[comm.rank] + comm.p2p + (uint64_t)peer * comm.p2p_source_bytes;
    struct sol_lane_slot slot = {area + at, area + comm.p2p_escape + at / 2};
    return slot;
}

/* Poll V vectors of a slot, `step` bytes apart from `at`, below `bytes`; resolve escapes; reset. */
template <int V>
SOL_GPU_FN bool sol_take_from_lane(const struct sol_link &comm, const struct sol_story &story,
                                   const struct sol_lane_slot &slot, int peer, uint64_t s,
                                   uint32_t at, uint32_t step, uint32_t bytes,
                                   struct sol_vector (&in)[V])
{
    struct sol_watch watch = {0, 0};
    bool suspect, missing;
    do {
        suspect = missing = false;
#pragma unroll
        for (int v = 0; v < V; v++) {
            in[v].a = in[v].b = 0;
            if (at + v * step < bytes)
                in[v] = sol_poll_vector(slot.data + at + v * step);
        }
#pragma unroll
        for (int v = 0; v < V; v++) {
            suspect |= sol_vector_suspect(in[v]);
            missing |= sol_vector_missing(in[v]);
        }
        if (missing && sol_watch_expired(comm, story, watch, peer))
            return false;
    } while (missing);
#pragma unroll
    for (int v = 0; v < V; v++)
        if (at + v * step < bytes)
            sol_reset_vector(slot.data + at + v * step);
    if (!suspect)
        return true;
#pragma unroll
    for (int v = 0; v < V; v++)
        if (!sol_unescape(comm.bound, story, in[v], slot.escape + (at + v * step) / 2, s + 1, peer))
            return false;
    return true;
}

/* Push V vectors likewise. */
template <int V>
SOL_GPU_FN void sol_put_into_lane(const struct sol_lane_slot &slot, uint64_t s, uint32_t at,
                                  uint32_t step, uint32_t bytes, const struct sol_vector (&out)[V])
{
#pragma unroll
    for (int v = 0; v < V; v++) {
        if (at + v * step >= bytes)
            continue;
        struct sol_parcel parcel = sol_wrap_vector(out[v], s + 1);
        if (parcel.escape != 0)
            sol_push_word(slot.escape + (at + v * step) / 2, parcel.escape);
        sol_push_vector(slot.data + at + v * step, parcel.v);
    }
}

#endif
