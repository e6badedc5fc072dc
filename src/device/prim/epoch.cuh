/* SPDX-License-Identifier: Apache-2.0 */
/*
 * epoch.cuh: a kernel's place in the sequence of collectives. The protocol,
 * with its argument, is in proto/gpu_epoch.h.
 */
#ifndef SOL_DEVICE_PRIM_EPOCH_CUH
#define SOL_DEVICE_PRIM_EPOCH_CUH

#include "device/prim/link.cuh"
#include "proto/gpu_epoch.h"

struct sol_ticket {
    uint64_t epoch;
    uint32_t shift; /* bytes to this epoch's parity */
    bool dead;      /* the communicator has failed: push nothing, return */
};

/*
 * One load. Write it after those of the input: what is computed from it then waits for no more than
 * they do.
 */
SOL_GPU_FN struct sol_ticket sol_take_ticket_at(const void *epoch, uint32_t parity_step)
{
    struct sol_ticket t;
    struct sol_vector v = sol_poll_vector(epoch);
    t.epoch = v.a;
    t.dead = v.b != 0;
    t.shift = t.epoch & 1 ? parity_step : 0;
    return t;
}

SOL_GPU_FN struct sol_ticket sol_take_ticket(const struct sol_link &comm)
{
    return sol_take_ticket_at(&comm.state->epochs[blockIdx.x], comm.parity_step);
}

/* Every thread calls it once, after it has used its ticket. */
SOL_GPU_FN void sol_leave_ticket(const struct sol_link &comm, const struct sol_ticket &ticket)
{
    __syncthreads(); /* all loads of this CTA have returned: addresses came from them */
    for (unsigned j = threadIdx.x * gridDim.x + blockIdx.x; j < SOL_GPU_EPOCHS;
         j += gridDim.x * blockDim.x)
        sol_push_word(&comm.state->epochs[j].epoch, ticket.epoch + 1);
}

/* Tell the peers in `to` (by k) that this rank has come to this epoch. Block 0 only does something.
 */
SOL_GPU_FN void sol_send_tokens(const struct sol_link &comm, const struct sol_ticket &ticket,
                                unsigned to)
{
    unsigned k = threadIdx.x;
    if (blockIdx.x != 0 || k >= SOL_GPU_MAX_RANKS - 1 || !(to >> k & 1))
        return;
    char *staging = comm.out[k] - (uint64_t)comm.rank * comm.slot_bytes - SOL_GPU_CONTROL_BYTES;
    sol_push_word(staging + sol_gpu_token_offset(comm.rank), ticket.epoch);
}

/* Wait until every peer in `from` (by q) has told so. False: gave up. */
SOL_GPU_FN bool sol_await_tokens(const struct sol_link &comm, const struct sol_ticket &ticket,
                                 unsigned from, const struct sol_story &story)
{
    unsigned q = threadIdx.x;
    if (blockIdx.x != 0 || q >= SOL_GPU_MAX_RANKS - 1 || !(from >> q & 1))
        return true;
    const int peer = sol_poll_peer(comm.rank, (int)q);
    const char *staging =
        comm.in - (uint64_t)sol_poll_peer(comm.rank, 0) * comm.slot_bytes - SOL_GPU_CONTROL_BYTES;
    const char *token = staging + sol_gpu_token_offset(peer);
    struct sol_watch watch = {0, 0};
    while ((int64_t)(sol_poll_word(token) - ticket.epoch) < 0)
        if (sol_watch_expired(comm, story, watch, peer))
            return false;
    return true;
}

#endif
