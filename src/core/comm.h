/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.h: what a communicator is, inside the library; how errors are recorded.
 */
#ifndef SOL_CORE_COMM_H
#define SOL_CORE_COMM_H

#include "core/backend.h"
#include "core/boot.h"
#include "core/flight.h"

#include <pthread.h>
#include <stdatomic.h>

#define SOL_COMM_MAGIC 0x536f4c43434c4331ull  /* "SoLCCLC1"; cleared at destroy */
#define SOL_COMM_ASLEEP 0x536f4c43434c5a7aull /* in its place between sleep and wake */
#define SOL_ERROR_TEXT 1024
#define SOL_ABORT_TEXT 512
#define SOL_ERROR_SLOTS 4
#define SOL_COMM_NAME 40
#define SOL_MAX_PREMUL 64
#define SOL_FIRST_PREMUL 16 /* value of the first handle of sol_redop_create_premul_sum */

struct sol_seat;
struct sol_dev_record;

struct sol_premul {
    _Atomic bool used;   /* any thread may destroy it: a finaliser, beside a call */
    unsigned generation; /* part of the handle: one that was destroyed is not taken for a new one */
    sol_dtype_t dtype;
    sol_reduction_t reduction;
};

struct sol_comm {
    /* the first cache line is all that the fast path of a call reads */
    _Atomic uint64_t magic;
    const sol_backend_t *backend;
    void *state; /* the backend's */
    int rank, nranks;
    unsigned fork_generation;
    _Atomic int failed;        /* 0, or the sol_status_t that made it unusable */
    _Atomic uint64_t sequence; /* operations called; the running one's number */
    size_t max_count;          /* more elements than this could overflow a size */
    _Atomic int abort_flag;    /* sol_comm_abort was called here */
    bool check;
    bool blocking; /* backend->blocking */
    bool alone;    /* no other library may help out */

    /* the second is what a good call writes */
    alignas(SOL_CACHE_LINE) _Atomic(struct sol_seat *) owner; /* use.h: who came last */
    sol_flight_t *flight;

    uint64_t timeout_ns;
    size_t staging_bytes; /* 0: the backend's default */
    uint64_t debug_epoch; /* SOLCCL_DEBUG_EPOCH: first value of every protocol counter; tests start
                             it near 2^31 and 2^32 */
    sol_unique_id_t id;
    sol_boot_t *boot;
    uint64_t tag;                    /* names it in dumps; a hash of the id */
    pthread_mutex_t use_lock;        /* use.h: between threads that want in */
    char abort_text[SOL_ABORT_TEXT]; /* why, for backend->abort; set once before abort_flag */
    _Atomic int dumped;              /* its failure has been written down */
    _Atomic uint32_t readers;        /* sol_comm_hold */
    char name[64];                   /* "comm 5f3a (name)": for texts */
    char user_name[SOL_COMM_NAME];   /* "" or the config's */
    pthread_mutex_t error_lock;      /* writers of the texts below */
    char fatal[SOL_ERROR_TEXT];      /* written once, before `failed` */
    char errors[SOL_ERROR_SLOTS][SOL_ERROR_TEXT]; /* the last ones that left it usable, in turns: a
                                               reader's text stays whole while others fail */
    _Atomic unsigned error_count; /* the latest is errors[(error_count - 1) % SLOTS] */
    struct sol_premul premul[SOL_MAX_PREMUL];
    struct sol_registration *registrations; /* of the one thread that uses the communicator */
    struct sol_dev_record *dev_records;     /* its device communicators; of that thread too */
    struct sol_moe *moes;          /* of that thread too; they cannot come back from sleep */
    struct sol_norm_halves *norms; /* the same */
    _Atomic(struct sol_transfer *) transfers; /* also those that were destroyed */
    /* use.h: the seat of a thread that is refused memory for one of its own, and destroys it */
    alignas(SOL_CACHE_LINE) unsigned char last_seat[SOL_CACHE_LINE];
    struct sol_comm *next_spare, *next_ever; /* comm.c: handles without a communicator; all */
};

/* Is it one: made and not destroyed, awake or asleep? */
static inline bool sol_comm_alive(sol_comm_t comm)
{
    uint64_t magic = atomic_load(&comm->magic);
    return magic == SOL_COMM_MAGIC || magic == SOL_COMM_ASLEEP;
}

/*
 * Record an error of this communicator. sol_comm_fail also makes it unusable (the first one wins;
 * later ones are returned as given but do not replace the text); sol_comm_error leaves it usable.
 * Both log at level warn / info, keep the text for sol_last_error(comm) and for the thread, and
 * return `status`. Any thread.
 */
sol_status_t sol_comm_fail(sol_comm_t comm, sol_status_t status, const char *format, ...)
    SOL_PRINTF(3, 4);
sol_status_t sol_comm_error(sol_comm_t comm, sol_status_t status, const char *format, ...)
    SOL_PRINTF(3, 4);
/* sol_comm_fail here, and, where the backend can tell the others, on all ranks: nobody waits for
 * one that has failed. */
sol_status_t sol_comm_fail_all(sol_comm_t comm, sol_status_t status, const char *format, ...)
    SOL_PRINTF(3, 4);

/* "all_reduce #12 (1024 x float32 = 4096 bytes, sum)" into text: the one way a call is named. */
void sol_call_describe(const sol_call_t *call, char *text, size_t bytes);

/* Elements that the call's send and recv buffers hold on this rank (all_to_all_v: of the sums). */
size_t sol_call_send_elements(const sol_call_t *call, int rank, int nranks);
size_t sol_call_recv_elements(const sol_call_t *call, int rank, int nranks);

#endif
