/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dropin.c: the switches, and which of NCCL's communicators have one of
 * solccl's beside them.
 *
 * The table is an open hash of two words a place. A reader takes no lock: it
 * reads a handle, and if it is the one asked for, the entry beside it, which was
 * written before (release, acquire). A place that was left is marked, so that
 * searches go on behind it.
 */
#include "dropin/nccl/dropin.h"

#include <stdio.h>

#ifdef SOL_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

#define PLACES 4096u /* a power of two */
#define A_DAY_MS 86400000L

static struct {
    _Atomic(void *) handle;
    _Atomic(sol_dropin_comm *) comm;
} table[PLACES];
static char left; /* its address marks a place that was used */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

_Thread_local bool sol_dropin_failed;

/* ---------------------------------------------------------------------------- switches */

static sol_dropin_switches switches;
static pthread_once_t switches_once = PTHREAD_ONCE_INIT;

static void read_switches(void)
{
    static const char *const ranks[] = {"auto", "cpu", "cuda", NULL};
    char why[256];
    long on = 1, timeout_ms = A_DAY_MS;
    int kind = SOL_BACKEND_CUDA;
    size_t unset = SIZE_MAX, bytes = unset;
    sol_status_t status = sol_env_int("SOLCCL_NCCL", 0, 1, &on, why, sizeof why);
    if (status == SOL_OK) {
        status = sol_env_int("SOLCCL_TIMEOUT_MS", 1, A_DAY_MS, &timeout_ms, why, sizeof why);
    }
    if (status == SOL_OK) {
        status = sol_env_size("SOLCCL_NCCL_MAX_BYTES", 0, SIZE_MAX / 2, &bytes, why, sizeof why);
    }
    if (status == SOL_OK) {
        status = sol_env_choice("SOLCCL_DEBUG_NCCL_RANKS", ranks, &kind, why, sizeof why);
    }
    if (status != SOL_OK) { /* there is nobody to return it to; NCCL alone is always right */
        sol_log(SOL_LOG_ERROR, "nccl: everything is passed to NCCL: %s", why);
        return;
    }
    switches.on = on != 0;
    switches.max_bytes_given = bytes != unset;
    switches.max_bytes = bytes;
    switches.timeout_ms = (int)timeout_ms;
    switches.ranks = (sol_backend_kind_t)kind;
    if (!switches.on) {
        sol_log(SOL_LOG_INFO, "nccl: everything is passed to NCCL: SOLCCL_NCCL is 0");
    }
}

const sol_dropin_switches *sol_dropin_switches_get(void)
{
    pthread_once(&switches_once, read_switches);
    return &switches;
}

/* ------------------------------------------------------------------------------- table */

static unsigned place_of(const void *handle)
{
    uint64_t x = (uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15u;
    return (unsigned)(x >> 40) % PLACES;
}

sol_dropin_comm *sol_dropin_find(nccl_comm handle)
{
    unsigned at = place_of(handle);
    for (unsigned i = 0; i < PLACES; i++, at = (at + 1) % PLACES) {
        void *there = atomic_load_explicit(&table[at].handle, memory_order_acquire);
        if (SOL_LIKELY(there == handle) && handle != NULL) {
            /* pairs with the release in sol_dropin_add */
            return atomic_load_explicit(&table[at].comm, memory_order_relaxed);
        }
        if (there == NULL) {
            break;
        }
    }
    return NULL;
}

bool sol_dropin_add(sol_dropin_comm *comm)
{
    bool added = false;
    pthread_mutex_lock(&lock);
    unsigned at = place_of(comm->handle);
    for (unsigned i = 0; i < PLACES / 2 && !added; i++, at = (at + 1) % PLACES) {
        void *there = atomic_load_explicit(&table[at].handle, memory_order_relaxed);
        if (there == NULL || there == &left) {
            atomic_store_explicit(&table[at].comm, comm, memory_order_relaxed);
            /* pairs with the acquire in sol_dropin_find: the entry is there, and filled */
            atomic_store_explicit(&table[at].handle, comm->handle, memory_order_release);
            added = true;
        }
    }
    pthread_mutex_unlock(&lock);
    return added;
}

/* Takes an entry out; a place with nothing behind it becomes free again, and so do marks before. */
static sol_dropin_comm *take_out(nccl_comm handle)
{
    sol_dropin_comm *comm = NULL;
    pthread_mutex_lock(&lock);
    unsigned at = place_of(handle);
    for (unsigned i = 0; i < PLACES && comm == NULL; i++, at = (at + 1) % PLACES) {
        void *there = atomic_load_explicit(&table[at].handle, memory_order_relaxed);
        if (there == NULL) {
            break;
        }
        if (there == handle) {
            comm = atomic_load_explicit(&table[at].comm, memory_order_relaxed);
            atomic_store_explicit(&table[at].handle, &left, memory_order_release);
            break;
        }
    }
    bool last =
        atomic_load_explicit(&table[(at + 1) % PLACES].handle, memory_order_relaxed) == NULL;
    while (comm != NULL && last &&
           atomic_load_explicit(&table[at].handle, memory_order_relaxed) == &left) {
        atomic_store_explicit(&table[at].handle, NULL, memory_order_release);
        at = (at + PLACES - 1) % PLACES;
    }
    pthread_mutex_unlock(&lock);
    return comm;
}

void sol_dropin_remove(nccl_comm handle, bool abort)
{
    sol_dropin_comm *comm = handle != NULL ? take_out(handle) : NULL;
    if (comm == NULL) {
        return;
    }
    if (comm->sol != NULL) {
        sol_log(SOL_LOG_INFO, "nccl: comm %p, rank %d of %d: %llu calls taken, %llu passed", handle,
                comm->rank, comm->nranks, (unsigned long long)comm->taken,
                (unsigned long long)comm->passed);
        if (abort) {
            sol_comm_abort(comm->sol);
        }
        sol_comm_destroy(comm->sol);
        sol_dropin_order_close(comm);
    }
    while (comm->premuls != NULL) {
        sol_dropin_premul *premul = comm->premuls;
        comm->premuls = premul->next;
        sol_free_late(premul);
    }
    sol_free_late(comm); /* a watchdog aborts beside a call, which looks at it once more */
}

/* ----------------------------------------------------------------------------- results */

int sol_dropin_result(sol_status_t status)
{
    sol_dropin_failed = status != SOL_OK;
    switch (status) {
    case SOL_OK:
        return NCCL_SUCCESS;
    case SOL_ERR_ARGUMENT:
        return NCCL_INVALID_ARGUMENT;
    case SOL_ERR_UNSUPPORTED:
    case SOL_ERR_MISMATCH:
    case SOL_ERR_STATE:
        return NCCL_INVALID_USAGE;
    case SOL_ERR_MEMORY:
    case SOL_ERR_SYSTEM:
        return NCCL_SYSTEM_ERROR;
    case SOL_ERR_TIMEOUT:
    case SOL_ERR_PEER:
    case SOL_ERR_ABORTED:
        return NCCL_REMOTE_ERROR;
    case SOL_ERR_DEVICE:
        return NCCL_CUDA_ERROR;
    default:
        return NCCL_INTERNAL_ERROR;
    }
}

/* ------------------------------------------------------------------------------ device */

int sol_dropin_device_set(int device)
{
#ifdef SOL_WITH_CUDA
    int before = -1;
    if (device >= 0 && cudaGetDevice(&before) == cudaSuccess &&
        cudaSetDevice(device) == cudaSuccess) {
        return before;
    }
#endif
    (void)device;
    return -1;
}

void sol_dropin_device_restore(int before)
{
#ifdef SOL_WITH_CUDA
    if (before >= 0) {
        cudaSetDevice(before);
    }
#endif
    (void)before;
}
