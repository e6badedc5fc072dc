/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.cuh: a communicator as a kernel sees it, and the order of kernel
 * parameters.
 *
 * Every kernel has three parameters: its arguments, the link, the tail. What a
 * small message needs comes first and close together, because every 64-byte
 * line of parameters that a kernel touches costs about 30 ns before its first
 * load (bench/NOTES.md): with two ranks it is two lines. Their number does not
 * matter.
 */
#ifndef SOL_DEVICE_PRIM_LINK_CUH
#define SOL_DEVICE_PRIM_LINK_CUH

#include "device/kernels/launch.h"
#include "device/prim/ptx.cuh"

struct sol_link {
    /* wanted at once */
    struct sol_gpu_state *state;
    int rank, nranks;
    uint32_t slot_bytes;
    uint32_t reserved;
    char *staging[SOL_GPU_MAX_RANKS];
    /* large messages */
    uint64_t p2p, p2p_source_bytes, p2p_escape;
    /* when something goes wrong */
    struct sol_gpu_error *error;
    const volatile uint32_t *abort_word;
    uint64_t timeout_ns;
};

/* What a wait would say of itself. */
struct sol_story {
    uint64_t sequence, bytes;
    uint32_t func;
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
    l.state = comm->state;
    l.rank = comm->rank;
    l.nranks = comm->nranks;
    l.slot_bytes = (uint32_t)comm->layout.slot_bytes;
    l.reserved = 0;
    for (int i = 0; i < SOL_GPU_MAX_RANKS; i++)
        l.staging[i] = comm->staging[i];
    l.p2p = comm->layout.p2p;
    l.p2p_source_bytes = comm->layout.p2p_source_bytes;
    l.p2p_escape = comm->layout.p2p_escape;
    l.error = comm->error;
    l.abort_word = comm->abort_word;
    l.timeout_ns = comm->timeout_ns;
    return l;
}

#endif
