/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.h: a transfer (solccl/transfer.h), as core and backends see it.
 *
 * Its counters are in memory of the backend's mem_alloc, a row of 64-bit words for
 * each counter, a word for each source: so nobody's count waits for another's, and
 * whoever waits can tell whose is missing. Behind them the words by which a rank
 * that leaves and a rank that writes to it find each other (shm_transfer.c).
 */
#ifndef SOL_CORE_TRANSFER_H
#define SOL_CORE_TRANSFER_H

#include "core/comm.h"
#include "solccl/transfer.h"

/* Where a region is, as its rank tells it; what mode, id and where mean is the backend's. */
typedef struct sol_place {
    uint64_t bytes, where, id;
    uint32_t mode, reserved;
} sol_place_t;

/* A region of some rank, from here. */
typedef struct sol_far {
    size_t bytes;
    char *base;     /* NULL: not mapped here; then the backend knows what to do with `where` */
    uint64_t where; /* an address of the other process's */
} sol_far_t;

#define SOL_TRANSFER_MAGIC 0x5472616e73666572ull

struct sol_transfer {
    _Atomic uint64_t magic; /* cleared by destroy; the handle itself lives as long as comm */
    _Atomic int waiters;    /* threads in sol_transfer_wait and _count: destroy sees them off */
    sol_comm_t comm;
    int nregions, counters;
    size_t row;      /* bytes of a counter's row */
    char *control;   /* own counters, of mem_alloc */
    char **controls; /* every rank's, as mapped here; of `far`'s allocation */
    sol_far_t *far;  /* of region i of rank r at [r * nregions + i] */
    void *state;     /* the backend's */
    struct sol_transfer *next;
};

/* What a call wants written: `writes` or `pages`, the other is NULL. Checked. */
typedef struct sol_transfer_work {
    const sol_write_t *writes;
    const sol_pages_t *pages;
    size_t n;
    int counter;
    sol_count_t count;
    void *stream;
} sol_transfer_work_t;

/* The i-th entry in one form: a write is a page. Strides are 0 only with no bytes. */
typedef struct sol_transfer_set {
    const char *from;
    size_t offset, bytes, npages, from_stride, to_stride;
    const uint32_t *from_pages, *to_pages;
    int peer, region;
} sol_transfer_set_t;

void sol_transfer_set(const sol_transfer_work_t *work, size_t i, sol_transfer_set_t *set);

/* Where page `i` of a set comes from, and goes to (in the region). */
static inline const char *sol_page_from(const sol_transfer_set_t *set, size_t i)
{
    size_t page = set->from_pages != NULL ? set->from_pages[i] : i;
    return set->from != NULL ? set->from + page * set->from_stride : NULL; /* pages of 0 bytes */
}
static inline size_t sol_page_to(const sol_transfer_set_t *set, size_t i)
{
    size_t page = set->to_pages != NULL ? set->to_pages[i] : i;
    return set->offset + page * set->to_stride;
}

/* The word in which `source` counts on `rank`. */
static inline uint64_t *sol_transfer_word(const struct sol_transfer *t, int rank, int counter,
                                          int source)
{
    return (uint64_t *)(void *)(t->controls[rank] + (size_t)counter * t->row) + source;
}

/* Bytes of the counters: what follows them is the backend's. */
static inline size_t sol_transfer_counter_bytes(const struct sol_transfer *t)
{
    return (size_t)t->counters * t->row;
}
#define SOL_TRANSFER_GATE_BYTES ((size_t)(SOL_MAX_RANKS + 1) * 64)

/* sol_transfer_await of CPU ranks for the public function `who`, which texts name. The
 * caller is inside (use.h). */
sol_status_t sol_transfer_await_as(sol_transfer_t transfer, const char *who, int counter, int from,
                                   uint64_t value);

/* For sol_comm_destroy: what is left. */
void sol_transfers_free(sol_comm_t comm);

#endif
