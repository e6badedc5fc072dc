/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_halves.h: what a handle of sol_norm_start is inside the library, and the checks
 * that it shares with sol_all_reduce_norm (fused.c).
 */
#ifndef SOL_CORE_NORM_HALVES_H
#define SOL_CORE_NORM_HALVES_H

#include "core/comm.h"
#include "solccl/fused.h"
#include "solccl/transfer.h"

#define SOL_NORM_MAGIC 0x536f4c4e726d4831ull /* "SoLNrmH1"; cleared at destroy */

/* A start that has not been waited for, as it has to be. */
typedef struct sol_norm_started {
    size_t tokens;
    const void *input;
} sol_norm_started_t;

/* CPU ranks: where everything lies. The slot of a lane, a parity and a source holds a head, the
 * contribution, and finished rows, which are output, scales, residual_out. */
typedef struct sol_norm_room {
    size_t finished; /* offset of the finished rows */
    size_t slot;     /* bytes of one */
} sol_norm_room_t;

struct sol_norm_halves {
    _Atomic uint64_t magic;
    sol_comm_t comm;
    struct sol_norm_halves *next; /* of its communicator's */
    sol_norm_config_t config; /* form: ONE_SHOT or TWO_SHOT; no other field is 0 for a default */
    unsigned started, waited; /* calls; the i-th start's lane is i % depth */
    sol_norm_started_t under_way[SOL_NORM_MAX_DEPTH]; /* by lane */
    char *memory;                                     /* of sol_mem_alloc: slots */
    void *device; /* the backend's, of sol_calloc, where it has kernels for this; then the rest is
                     not used */

    sol_norm_room_t room;
    sol_transfer_t transfer; /* counters 2 lane: contributions; 2 lane + 1: finished rows */
    uint64_t uses[SOL_NORM_MAX_DEPTH]; /* of a lane, the one under way included */
    float *sums;                       /* two rows */
};

/* Those that are left of a communicator that goes: their host memory; the rest went with it. */
void sol_norms_free(sol_comm_t comm);

/* May the call be made, and are there arguments? */
sol_status_t sol_norm_refuse(sol_comm_t comm, const sol_norm_args_t *args, const char *who,
                             const void *stream);
/* The caller's fields, with zeros for those that it does not know. */
void sol_norm_take(sol_norm_args_t *mine, const sol_norm_args_t *args);
/* Are they such as solccl/fused.h allows? */
sol_status_t sol_norm_check(sol_comm_t comm, const sol_norm_args_t *args, const char *who);

#endif
