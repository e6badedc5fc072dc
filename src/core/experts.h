/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.h: what a handle of solccl/moe.h is inside the library.
 */
#ifndef SOL_CORE_EXPERTS_H
#define SOL_CORE_EXPERTS_H

#include "coll/moe.h"
#include "core/comm.h"

#define SOL_MOE_MAGIC 0x536f4c4d6f454831ull /* "SoLMoEH1"; cleared at destroy */

/* Halves of an operation. */
enum { SOL_MOE_SEND = 1, SOL_MOE_RECV = 2 };

/* What has been called last; a failed call leaves the communicator unusable. */
typedef enum {
    SOL_MOE_IDLE,        /* nothing, or a combine */
    SOL_MOE_DISPATCHING, /* dispatch_send */
    SOL_MOE_DISPATCHED,  /* dispatch, or its recv half */
    SOL_MOE_COMBINING    /* combine_send */
} sol_moe_phase_t;

struct sol_moe {
    _Atomic uint64_t magic;
    sol_comm_t comm;
    struct sol_moe *next_moe; /* of its communicator's */
    sol_moe_shape_t shape;
    sol_moe_phase_t phase;
    size_t tokens; /* of the last dispatch */
    size_t memory_bytes;
    void *device; /* the backend's, of sol_calloc, where it has kernels for this; then nothing of
                     the rest is used */

    /* symmetric memory: what goes to experts, and comes back from them; what came, and goes back */
    char *out, *in;
    size_t *sent, *sent_displs, *came, *came_displs; /* records, then bytes: nranks each */
    size_t records;                                  /* that came */
    uint64_t *counts;                                /* of the header: sent, came */
    uint64_t *masks;                                 /* of each token */
    sol_moe_entry_t *plan;                           /* of each record that came */
    uint32_t *next;
    float *sums;
};

/* Those that are left of a communicator that goes: their host memory; the rest went with it. */
void sol_moes_free(sol_comm_t comm);

#endif
