/* SPDX-License-Identifier: Apache-2.0 */
/*
 * epoch.cuh: a kernel's place in the sequence of collectives. The protocol,
 * with its argument, is in proto/gpu_epoch.h.
 */
#ifndef SOL_DEVICE_PRIM_EPOCH_CUH
#define SOL_DEVICE_PRIM_EPOCH_CUH

#include "device/prim/watch.cuh"
#include "proto/gpu_epoch.h"

struct sol_ticket {
    uint64_t epoch;
    bool dead; /* the communicator has failed: move nothing */
};

/* One load, issued beside those of the input. */
SOL_GPU_FN struct sol_ticket sol_take_ticket(const struct sol_link &comm)
{
    struct sol_vector v = sol_poll_vector(&comm.state->ticks); /* others add to it meanwhile */
    struct sol_ticket t = {v.a / SOL_GPU_TICKS, v.b != 0};
    return t;
}

/* Every thread calls it once, after it has used its ticket. */
SOL_GPU_FN void sol_leave_ticket(const struct sol_link &comm)
{
    __syncthreads(); /* all loads of this CTA have returned: addresses came from them */
    if (threadIdx.x == 0)
        sol_add_word(&comm.state->ticks, blockIdx.x == 0 ? SOL_GPU_TICKS - (gridDim.x - 1) : 1);
}

/* Peers in the order in which this rank pushes to them, k from 0: its neighbour first, so that the
 * ranks do not all begin with the same one. */
SOL_GPU_FN int sol_push_peer(int rank, int n, int k)
{
    int peer = rank + 1 + k;
    return peer < n ? peer : peer - n;
}

/* Peers in the order in which this rank reads them, q from 0: ascending, without itself. */
SOL_GPU_FN int sol_poll_peer(int rank, int q)
{
    return q + (q >= rank);
}

/* Tell the peers in `to` that this rank has come to this epoch. Block 0 only does something. */
SOL_GPU_FN void sol_send_tokens(const struct sol_link &comm, const struct sol_ticket &ticket,
                                unsigned to)
{
    unsigned peer = threadIdx.x;
    if (blockIdx.x == 0 && peer < SOL_GPU_MAX_RANKS && (to >> peer & 1))
        sol_push_word(comm.staging[peer] + sol_gpu_token_offset(comm.rank), ticket.epoch);
}

/* Wait until every peer in `from` has told so. False: gave up. */
SOL_GPU_FN bool sol_await_tokens(const struct sol_link &comm, const struct sol_ticket &ticket,
                                 unsigned from, const struct sol_story &story)
{
    unsigned peer = threadIdx.x;
    struct sol_watch watch = {0, 0};
    if (blockIdx.x != 0 || peer >= SOL_GPU_MAX_RANKS || !(from >> peer & 1))
        return true;
    const char *token = comm.staging[comm.rank] + sol_gpu_token_offset((int)peer);
    while ((int64_t)(sol_poll_word(token) - ticket.epoch) < 0)
        if (sol_watch_expired(comm, story, watch, (int)peer))
            return false;
    return true;
}

#endif
