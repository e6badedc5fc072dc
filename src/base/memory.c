/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c: the only door to malloc, so that fault tests can refuse any single
 * allocation of the library and see a clean error. Never on an operation's path.
 */
#include "base/base.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define FAIL_UNREAD UINT64_MAX

static _Atomic uint64_t allocations;
static _Atomic uint64_t fail_from = FAIL_UNREAD; /* 0: never */
static _Atomic int fail_once;                    /* that one alone */

static uint64_t fail_limit(void)
{
    uint64_t limit = atomic_load_explicit(&fail_from, memory_order_relaxed);
    if (limit != FAIL_UNREAD) {
        return limit;
    }
    char why[256];
    long from = 0;
    sol_status_t status =
        sol_env_int("SOLCCL_DEBUG_FAIL_ALLOC", -INT32_MAX, INT32_MAX, &from, why, sizeof(why));
    atomic_store_explicit(&fail_once, from < 0, memory_order_relaxed);
    from = from < 0 ? -from : from;
    atomic_store_explicit(&fail_from, (uint64_t)from, memory_order_relaxed);
    if (status != SOL_OK) {
        sol_log(SOL_LOG_WARN, "%s; ignored", why);
    }
    return (uint64_t)from;
}

/* Counts one allocation; true if it has to fail. */
static bool refused(void)
{
    uint64_t number = atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed) + 1;
    uint64_t limit = fail_limit();
    if (SOL_UNLIKELY(atomic_load_explicit(&fail_once, memory_order_relaxed) != 0)) {
        return number == limit;
    }
    return limit != 0 && number >= limit;
}

void sol_alloc_fail_from(uint64_t k)
{
    uint64_t made = atomic_load_explicit(&allocations, memory_order_relaxed);
    atomic_store_explicit(&fail_from, k == 0 ? 0 : made + k, memory_order_relaxed);
}

uint64_t sol_alloc_count(void)
{
    return atomic_load_explicit(&allocations, memory_order_relaxed);
}

void *sol_calloc(size_t count, size_t bytes)
{
    if (refused()) {
        errno = ENOMEM;
        return NULL;
    }
    return calloc(count, bytes);
}

void *sol_aligned_calloc(size_t alignment, size_t bytes)
{
    void *memory = NULL;
    if (refused() || posix_memalign(&memory, alignment, bytes) != 0) {
        errno = ENOMEM; /* (posix_memalign leaves it alone) */
        return NULL;
    }
    return memset(memory, 0, bytes);
}

char *sol_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = sol_calloc(1, bytes);
    return copy == NULL ? NULL : memcpy(copy, text, bytes);
}

void sol_free(void *memory)
{
    free(memory);
}

void sol_free_late(void *memory)
{
    static _Atomic(void *) waiting[SOL_FREE_LATE];
    static _Atomic unsigned next;
    unsigned at = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % SOL_FREE_LATE;
    sol_free(atomic_exchange_explicit(&waiting[at], memory, memory_order_acq_rel));
}
