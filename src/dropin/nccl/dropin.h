/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dropin.h: libsolccl-nccl.so, between an application and NCCL.
 *
 *      application ── ncclX ──> drop-in ──┬──> solccl   small collectives of
 *                                         │             communicators that all
 *                                         │             ranks agreed on
 *                                         └──> libnccl  everything else
 *
 * The application's handles are NCCL's own: every communicator is a real one,
 * made by the real library, and a table here says which of them have a solccl
 * communicator of the same ranks beside them. Whether a call is taken is a
 * function of what NCCL demands to be equal on all ranks (function, count, type,
 * kind of operation) and of limits that the ranks agreed on when the
 * communicator was made. Never of pointers, streams, or groups: ranks may differ
 * in those, and a call taken on one rank and passed on another never ends.
 *
 *   nccl_real.c     the real library, and the jumps into it
 *   dropin.c        switches, and the table of communicators
 *   dropin_join.c   do all ranks have the drop-in, without asking those that do not
 *   dropin_comm.c   making and ending communicators, their errors
 *   dropin_calls.c  collectives and premultiplied sums
 *   dropin_group.c  groups
 *   dropin_order.c  one communicator on several streams
 *
 * Never: print to stdout, end the process, or wait without a bound for a rank
 * that may not be there.
 */
#ifndef SOL_DROPIN_H
#define SOL_DROPIN_H

#include "base/near.h"
#include "base/sha256.h"
#include "core/setup.h"
#include "core/unique_id.h"
#include "dropin/nccl/nccl_abi.h"
#include "dropin/nccl/nccl_real.h"

#define SOL_EXPORT __attribute__((visibility("default")))
/* ncclX and pncclX are one function. */
#define SOL_EXPORT_AS(name) __attribute__((visibility("default"), alias(#name)))

/* What the environment says; read once, when the first communicator is made. */
typedef struct sol_dropin_switches {
    bool on;                  /* SOLCCL_NCCL: 0 hands everything through */
    bool max_bytes_given;     /* SOLCCL_NCCL_MAX_BYTES was set */
    size_t max_bytes;         /* messages above are passed; nccl-tests' "size" */
    int timeout_ms;           /* SOLCCL_TIMEOUT_MS, or a day: NCCL itself waits for ever */
    sol_backend_kind_t ranks; /* CUDA; tests set SOLCCL_DEBUG_NCCL_RANKS=cpu */
} sol_dropin_switches;
const sol_dropin_switches *sol_dropin_switches_get(void);

/* A premultiplied sum of the application's. */
typedef struct sol_dropin_premul {
    struct sol_dropin_premul *next;
    int op; /* NCCL's handle */
    int dtype;
    bool on_device;
    unsigned char scalar[8];
    const void *pointer;
} sol_dropin_premul;

/* What is known of a communicator that was made through the drop-in. */
typedef struct sol_dropin_comm {
    nccl_comm handle;
    sol_comm_t sol; /* NULL: all its calls are passed */
    int rank, nranks;
    /* Largest count << log2(bytes of an element) that is taken, by function: limits are divided
     * by the ranks where a count is one rank's block. */
    size_t limit[SOL_FUNC_COUNT];
    unsigned char key[SOL_SHA256_BYTES]; /* equal on its ranks, and secret; for its children */
    unsigned splits, shrinks;            /* made of it so far */
    sol_dropin_premul *premuls;
    uint64_t taken, passed;
    int device; /* -1: not known */

    /* dropin_order.c: the last call, and, once there have been two streams, an event behind it */
    nccl_stream last_stream;
    bool called, last_taken, many, marked;
    void *mark;
    unsigned long long mark_capture;
} sol_dropin_comm;

/* ---- the table. Looking up takes no lock; making and ending take one. */
sol_dropin_comm *sol_dropin_find(nccl_comm handle); /* NULL: not made through the drop-in */
bool sol_dropin_add(sol_dropin_comm *comm);         /* false: no room */
/* Takes it out, ends its solccl communicator (after an abort: without waiting) and frees it. */
void sol_dropin_remove(nccl_comm handle, bool abort);

/* ---- agreeing, see dropin_join.c */
typedef struct sol_dropin_seat sol_dropin_seat;

/* Show the other ranks of this host that this rank, the `member`-th of `members` that may take
 * part, will be there under `key`. Before the real library makes the communicator. NULL: it
 * could not, and nobody will see it. */
sol_dropin_seat *sol_dropin_sit(const unsigned char key[SOL_SHA256_BYTES], int member, int members);
/* How many sit there. After the real library has made the communicator, which it does on no rank
 * before all ranks have asked for it, and so after all have sat down. */
int sol_dropin_seated(const sol_dropin_seat *seat);
void sol_dropin_rise(sol_dropin_seat *seat); /* NULL is fine */

/* ---- groups, see dropin_group.c */

/* What is to be done when the outermost group has ended: a communicator that the real library has
 * made by then. Owned by the group until it runs. */
typedef struct sol_dropin_birth {
    struct sol_dropin_birth *next;
    nccl_comm *handle;     /* where the real library puts it */
    sol_dropin_seat *seat; /* NULL: this rank does not join, unless local */
    bool local;            /* all ranks are born in this thread, at once */
    unsigned char key[SOL_SHA256_BYTES];
} sol_dropin_birth;

extern SOL_HIDDEN _Thread_local int sol_dropin_depth SOL_NEAR;
/* In an open group: the thread's solccl group is opened too, with the first call that is taken. */
int sol_dropin_group_joins(void);
void sol_dropin_group_later(sol_dropin_birth *birth);
/* dropin_comm.c: gives every communicator of the list its solccl communicator, or not; frees it. */
void sol_dropin_births(sol_dropin_birth *list);

/* ---- order between solccl's and NCCL's work, see dropin_order.c */
void sol_dropin_order_wait(sol_dropin_comm *comm, bool taken, nccl_stream stream);
void sol_dropin_order_mark(sol_dropin_comm *comm, nccl_stream stream);
void sol_dropin_order_group_end(void);
void sol_dropin_order_close(sol_dropin_comm *comm);

/* Around every call of a communicator that has one of solccl's beside it. */
static inline void sol_dropin_order_before(sol_dropin_comm *comm, bool taken, nccl_stream stream)
{
    if (SOL_UNLIKELY(stream != comm->last_stream && comm->called)) {
        sol_dropin_order_wait(comm, taken, stream);
    }
}
static inline void sol_dropin_order_after(sol_dropin_comm *comm, bool taken, nccl_stream stream)
{
    comm->last_stream = stream;
    comm->last_taken = taken;
    comm->called = true;
    if (SOL_UNLIKELY(comm->many)) {
        sol_dropin_order_mark(comm, stream);
    }
}

/* ---- results */
int sol_dropin_result(sol_status_t status); /* and remembers that the last error is solccl's */
/* This thread's last failure came from solccl (true) or from NCCL. */
extern SOL_HIDDEN _Thread_local bool sol_dropin_failed SOL_NEAR;

/* Make `device` current for a while; returns what to give back to _restore, or -1. */
int sol_dropin_device_set(int device);
void sol_dropin_device_restore(int before);

#endif
