/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.cuh: a communicator as a kernel sees it, and the order of kernel
 * parameters.
 *
 * Every kernel has three parameters: its arguments, the link, the tail. What a
 * small message needs comes first and close together: the number of parameters
 * costs nothing, but every 64-byte line of them that a kernel touches costs some
 * 30 ns before its first load (bench/NOTES.md); with two ranks it is two lines.
 * And addresses are worked out by the host as far as they can be: each dozen
 * instructions between a load and the push that depends on it is 30 ns too.
 *
 * Peers are numbered twice. k-th to push to: the neighbour rank + 1 first, so
 * that the ranks do not all begin with the same one. q-th to read: ascending,
 * without this rank, which is the order of sums.
 */
#ifndef SOL_DEVICE_PRIM_LINK_CUH
#define SOL_DEVICE_PRIM_LINK_CUH

#include "device/kernels/launch.h"

#include <solccl/device.h>

struct sol_link {
    /* wanted at once */
    struct sol_gpu_state *state;
    char *in;             /* own slot of the 0-th source, parity 0 */
    uint32_t parity_step; /* bytes from parity 0 to parity 1 */
    uint32_t slot_bytes;
    int rank, nranks;
    char *out[SOL_GPU_MAX_RANKS - 1]; /* own slot at the k-th peer, parity 0 */
    /* large messages */
    char *staging[SOL_GPU_MAX_RANKS];
    uint64_t p2p, p2p_source_bytes, p2p_escape;
    /* when something goes wrong */
    struct sol_bound bound;
};

/* What is rarely read. */
struct sol_tail {
    struct sol_story story;
    const void *scalar_pointer; /* of a premultiplied sum; NULL: `scalar` */
    uint64_t scalar;
};

static inline struct sol_link sol_link_of(const struct sol_gpu_comm *comm)
{
    struct sol_link l;
    const int rank = comm->rank, n = comm->nranks;
    const uint64_t slot = comm->layout.slot_bytes;
    l.state = comm->state;
    l.in = comm->staging[rank] + comm->layout.coll + (uint64_t)sol_poll_peer(rank, 0) * slot;
    l.parity_step = (uint32_t)comm->layout.parity_bytes;
    l.slot_bytes = (uint32_t)slot;
    l.rank = rank;
    l.nranks = n;
    for (int k = 0; k < SOL_GPU_MAX_RANKS - 1; k++)
        l.out[k] = NULL;
    for (int k = 0; k < n - 1; k++)
        l.out[k] =
            comm->staging[sol_push_peer(rank, n, k)] + comm->layout.coll + (uint64_t)rank * slot;
    for (int i = 0; i < SOL_GPU_MAX_RANKS; i++)
        l.staging[i] = comm->staging[i];
    l.p2p = comm->layout.p2p;
    l.p2p_source_bytes = comm->layout.p2p_source_bytes;
    l.p2p_escape = comm->layout.p2p_escape;
    l.bound.fate = &comm->state->fate;
    l.bound.error = comm->error;
    l.bound.abort_word = comm->abort_word;
    l.bound.timeout_ns = comm->timeout_ns;
    l.bound.tickets = &comm->state->epochs[0].epoch;
    l.bound.waits = comm->waits;
    l.bound.rank = rank;
    l.bound.ntickets = SOL_GPU_EPOCHS;
    return l;
}

SOL_GPU_FN bool sol_watch_expired(const struct sol_link &comm, const struct sol_story &story,
                                  struct sol_watch &watch, int awaited)
{
    return sol_watch_expired(comm.bound, story, watch, awaited);
}

#endif
