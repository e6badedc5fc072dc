/* SPDX-License-Identifier: Apache-2.0 */
/*
 * setup.h: core's own interfaces that backends need not see: making
 * communicators, checking handles, groups and the work they put off.
 */
#ifndef SOL_CORE_SETUP_H
#define SOL_CORE_SETUP_H

#include "base/near.h"
#include "core/comm.h"

/* ---- handles */

/*
 * May `comm` be used by the public function `who`? Finds NULL, destroyed and inherited handles.
 * sol_comm_healthy also refuses a communicator that has failed, with the first story;
 * sol_comm_usable also one that is asleep.
 */
sol_status_t sol_comm_valid(sol_comm_t comm, const char *who);
sol_status_t sol_comm_healthy(sol_comm_t comm, const char *who);
sol_status_t sol_comm_usable(sol_comm_t comm, const char *who);

/* For what any thread may do at any time, beside the one that uses `comm`, with the backend's state
 * and the boot: sol_comm_destroy waits for it. False: it is no communicator any more, or another
 * process's. Async-signal-safe. */
bool sol_comm_hold(sol_comm_t comm);
void sol_comm_let_go(sol_comm_t comm);

/* ---- making communicators */

/* Has `rank` left or died, for certain? Its process is asked where the backend does not know. */
bool sol_comm_gone(sol_comm_t comm, int rank);

/* Everything that decides a communicator, read from arguments, config and environment. */
typedef struct sol_comm_setup {
    sol_unique_id_t id;
    int nranks, rank;
    const sol_backend_t *backend;
    int timeout_ms;
    int join_timeout_ms; /* for joining, where it should not take as long; 0: timeout_ms */
    bool alone;          /* no other library may help out: what solccl cannot do itself fails */
    bool check;
    size_t staging_bytes;
    uint64_t debug_epoch;
    char name[SOL_COMM_NAME];
    sol_comm_t parent; /* not NULL: of which ranks are expected, and whose it knows to be gone */
    bool with_parent;  /* and which has to stay good, and not be aborted, meanwhile */
    signed char
        parent_ranks[SOL_MAX_RANKS]; /* 1 + the rank there of each rank here; 0: a new one */
    sol_comm_t reserved;             /* sol_comm_reserve's; taken by sol_comm_make */
    void *foreign; /* not NULL: a communicator of another library; the backend's adopt() gives id,
                      nranks and rank */
} sol_comm_setup_t;

/* Fills all but id, nranks and rank. `config` may be NULL. Sets the thread error. */
sol_status_t sol_comm_setup_read(sol_comm_setup_t *setup, const sol_comm_config_t *config,
                                 const char *who);
/* The same from a communicator, for those made of its ranks. */
void sol_comm_inherit(sol_comm_t comm, sol_comm_setup_t *setup);
/* All memory that joining needs, so that a refusal is known before others wait for this rank;
 * false: it was refused. And back, where it was not used. */
bool sol_comm_reserve(sol_comm_setup_t *setup);
void sol_comm_unreserve(sol_comm_setup_t *setup);
/* Joins; blocks. Sets the thread error. */
sol_status_t sol_comm_make(const sol_comm_setup_t *setup, sol_comm_t *comm);
/* sol_comm_make now, or at the end of the open group. */
sol_status_t sol_comm_make_or_defer(const sol_comm_setup_t *setup, sol_comm_t *comm);
/* Every handle there ever was, linked by next_ever: safe to walk in a signal handler. Those whose
 * magic is gone are no communicators. */
sol_comm_t sol_comm_ever(void);
/* Was it ever one? Finds pointers that nothing may be read from. */
bool sol_comm_known(const struct sol_comm *comm);
/* What sol_comm_destroy does after its checks. */
void sol_comm_free(sol_comm_t comm);

/* symmem.c: deregister what the caller left registered. */
void sol_registrations_free(sol_comm_t comm);

/* devcomm.c: all device communicators as they were made, after sleep; forget them all. */
sol_status_t sol_dev_records_refill(sol_comm_t comm);
void sol_dev_records_free(sol_comm_t comm);

/* The backends of this build, in the order in which SOL_BACKEND_AUTO asks them; ends with NULL. */
extern const sol_backend_t *const sol_backends[];

/* What the launcher says; see launcher.c. *found: there is one. Sets the thread error. */
typedef struct sol_launch {
    const char *launcher; /* for texts */
    int nranks, rank;
    unsigned char identity[32]; /* of the job: equal on all ranks, different between jobs */
} sol_launch_t;
sol_status_t sol_launch_read(sol_launch_t *launch, bool *found);

/* ---- dumps of the flight recorder (dump.c) */

/* Reads SOLCCL_DUMP_DIR and SOLCCL_DUMP_SIGNAL. ARGUMENT and `why` where they cannot be used. */
sol_status_t sol_dump_configure(char *why, size_t why_bytes);
/* Writes the dump of a communicator that has failed, once, if there is a directory for it. */
void sol_dump_failed(sol_comm_t comm);

/* ---- set-up calls agree on what they do before they do it */

typedef enum {
    SOL_AGREE_SPLIT = 1,
    SOL_AGREE_MEM_ALLOC = 2,
    SOL_AGREE_DEV_COMM = 3,
    SOL_AGREE_GROW = 4,
    SOL_AGREE_MOE = 5,
    SOL_AGREE_SLEEP = 6,
    SOL_AGREE_WAKE = 7,
    SOL_AGREE_TRANSFER = 8, /* color: regions; key: counters */
    SOL_AGREE_NORM = 9
} sol_agree_what;

typedef struct sol_agree {
    uint32_t what; /* sol_agree_what */
    int32_t color, key;
    uint32_t refused; /* 1: this rank has no memory for what comes next: it ends here, for all */
    uint64_t bytes;
    sol_unique_id_t id; /* split: the one to take if this rank leads its color */
} sol_agree_t;

/* All ranks' statements, in rank order. MISMATCH, and `comm` stays usable, where they call
 * different functions; MEMORY, and it does too, where one was refused memory; any other failure
 * makes it unusable. */
sol_status_t sol_agree_exchange(sol_comm_t comm, const sol_agree_t *mine, sol_agree_t *all);
/* MISMATCH, and `comm` stays usable, where ranks pass different configs to the function: fields
 * that count, as numbers. */
sol_status_t sol_agree_on_config(sol_comm_t comm, sol_agree_what what, const uint64_t *fields,
                                 size_t nfields);
/* OK if `mine` is OK on all ranks, else the status and story of the lowest rank that failed. */
sol_status_t sol_agree_outcome(sol_comm_t comm, sol_status_t mine);

/* ---- groups */

/* Groups open in this thread. On the path of every operation. */
extern SOL_HIDDEN _Thread_local int sol_group_depth SOL_NEAR;

/* The call has been checked; it is copied, all_to_all_v's arrays too. */
sol_status_t sol_group_append(sol_comm_t comm, const sol_call_t *call);
/* A check failed: if a group is open it will do nothing and fail with this thread's error text.
 * Returns `status`. */
sol_status_t sol_group_note(sol_status_t status);
/* `comm` is about to be destroyed: its calls in an open group are dropped and the group fails. */
void sol_group_forget(sol_comm_t comm);

/*
 * Work that sol_group_end does on temporary threads: set-up that blocks until other ranks, maybe
 * of this very thread, have come. Allocated by sol_calloc; sol_job_submit owns it from then on.
 */
typedef struct sol_job {
    /* On a temporary thread, or in the caller's when no group is open. */
    sol_status_t (*run)(struct sol_job *job);
    /* In the caller's thread. `commit`: hand the result over, else undo a run that succeeded. */
    void (*finish)(struct sol_job *job, bool commit);
    sol_comm_t comm; /* jobs of one communicator run one after another; NULL: on its own */
    const sol_backend_t *backend;
    uintptr_t context;
    sol_status_t status;
    char text[SOL_ERROR_TEXT];
    struct sol_job *next;
} sol_job_t;
sol_status_t sol_job_submit(sol_job_t *job);

/* ---- premultiplied sums */

/* The reduction that `op` stands for on `comm` with `dtype`; false if it stands for none. */
bool sol_redop_resolve(const struct sol_comm *comm, sol_redop_t op, sol_dtype_t dtype,
                       sol_reduction_t *reduction);

#endif
