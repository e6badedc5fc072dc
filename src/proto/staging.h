/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging.h: the large slots in a rank's own shared memory, through which it
 * shows data to any set of readers. Bookkeeping only: the data is copied by the
 * caller, chunks are announced by lines (line.h), and nothing here waits.
 *
 * One writer (the owner), up to 64 readers. A chunk is the content of one slot
 * for one time. Chunks are numbered from a seed, 64 bits wide; a line tells the
 * reader (chunk, slot).
 *
 *     owner:   find slot -> copy in -> line (chunk c, slot) to each reader --.      slot free again
 *     reader:                          line(acquire) <-----------------------'           ^
 *                                      read slot ... done[owner](release) = c + 1 -------'
 *
 * Invariants
 *  - done[owner] of a reader says: every chunk below it that was addressed to me, I have read.
 *    A reader takes the chunks of one owner in ascending order.
 *  - The owner remembers the chunk and the set of readers of each slot, and refills it only when
 *    each of them has done > that chunk (acquire). Ranks outside the set are never waited for, so
 *    rooted operations and pairs need no help from others.
 *  - done may also reach the owner inside a line of that reader's (sol_staging_heard): whoever
 *    answers every chunk says so for nothing, where the load of done[] is a cache miss.
 *  - Any free slot may be taken, not the next in a circle: a reader that is slow holds its own
 *    slots and no others. With at least as many slots as readers, and no reader given more than
 *    its part (sol_staging_held), a transfer can always go on.
 *
 * Wrap-around: 64-bit numbers compared by signed difference; at 10^9 chunks a second that is 292
 * years. The tests start the count near 2^32 because the seed is shared with line.h.
 *
 * Abort: nothing to undo; both sides unmap.
 */
#ifndef SOL_PROTO_STAGING_H
#define SOL_PROTO_STAGING_H

#include "base/base.h"

#include <stdatomic.h>

#define SOL_STAGING_MAX_SLOTS 64u
#define SOL_STAGING_DISTANCE ((size_t)512 << 10) /* a common second-level cache */

typedef struct sol_staging {
    unsigned char *base;
    size_t slot_bytes;
    unsigned count;                       /* slots */
    uint64_t next;                        /* number of the next chunk */
    unsigned spread;                      /* slots to take in turn; 0: the first free one */
    int last, before_last;                /* slots taken most recently; -1: none */
    uint64_t seen[SOL_STAGING_MAX_SLOTS]; /* done of each reader, as far as it is known here */
    struct {
        uint64_t chunk;
        uint64_t readers; /* bit r: rank r was told of it and may not have read it yet */
    } slots[SOL_STAGING_MAX_SLOTS];
} sol_staging_t;

/* Has a reader whose done counter is `done` read `chunk`? */
static inline bool sol_staging_is_read(uint64_t done, uint64_t chunk)
{
    return (int64_t)(done - chunk) > 0;
}

/* *staging for an owner that has shown nothing yet; all done counters are `seed`. */
static inline void sol_staging_init(sol_staging_t *staging, unsigned char *base, size_t slot_bytes,
                                    unsigned count, uint64_t seed)
{
    *staging = (sol_staging_t){.base = base,
                               .slot_bytes = slot_bytes,
                               .count = count,
                               .next = seed,
                               .last = -1,
                               .before_last = -1};
    for (unsigned r = 0; r < SOL_STAGING_MAX_SLOTS; r++) {
        staging->seen[r] = seed;
    }
}

/* `rank` says that its done counter is (at least) `done`, in a line that was read with acquire. */
static inline void sol_staging_heard(sol_staging_t *staging, int rank, uint64_t done)
{
    if ((int64_t)(done - staging->seen[rank]) > 0) {
        staging->seen[rank] = done;
    }
}

/* Readers that `slot` still waits for, as far as is known without a look at their memory. */
static inline uint64_t sol_staging_known(sol_staging_t *staging, unsigned slot)
{
    uint64_t pending = staging->slots[slot].readers;
    for (uint64_t left = pending; left != 0; left &= left - 1) {
        int rank = __builtin_ctzll(left);
        if (sol_staging_is_read(staging->seen[rank], staging->slots[slot].chunk)) {
            pending &= ~(1ull << rank);
        }
    }
    staging->slots[slot].readers = pending;
    return pending;
}

/* Readers that `slot` still waits for, after looking at `done[r]` of each. */
static inline uint64_t sol_staging_pending(sol_staging_t *staging, unsigned slot,
                                           const _Atomic uint64_t *const *done)
{
    for (uint64_t left = sol_staging_known(staging, slot); left != 0; left &= left - 1) {
        int rank = __builtin_ctzll(left);
        /* acquire: pairs with the reader's release of done. */
        sol_staging_heard(staging, rank, atomic_load_explicit(done[rank], memory_order_acquire));
    }
    return sol_staging_known(staging, slot);
}

/* Take as many slots in turn as `bytes` a chunk come to SOL_STAGING_DISTANCE; 0: the first free one
 * again. Few slots, used again and again, stay in the writer's cache; but then each line that is
 * written must first be taken from the cache of who read it last. When as much has gone by as that
 * cache holds, it has dropped the line. */
static inline void sol_staging_spread(sol_staging_t *staging, size_t bytes)
{
    size_t slots = bytes == 0 ? 0 : SOL_STAGING_DISTANCE / bytes;
    staging->spread = slots < staging->count ? (unsigned)slots : staging->count;
}

/* A free slot: of the `spread` the next one, else the first; or -1, then *pending is the set of
 * readers that hold them. Slots that are known to be free come before those that must be asked
 * about. */
static inline int sol_staging_find(sol_staging_t *staging, const _Atomic uint64_t *const *done,
                                   uint64_t *pending)
{
    *pending = 0;
    for (unsigned i = 1; i <= staging->spread; i++) {
        unsigned next = (unsigned)(staging->last + (int)i) % staging->spread;
        if (sol_staging_known(staging, next) == 0) {
            return (int)next;
        }
    }
    for (unsigned i = 0; i < staging->count; i++) {
        if (sol_staging_known(staging, i) == 0) {
            return (int)i;
        }
    }
    for (unsigned i = 0; i < staging->count; i++) {
        uint64_t readers = sol_staging_pending(staging, i, done);
        if (readers == 0) {
            return (int)i;
        }
        *pending |= readers;
    }
    return -1;
}

/* Slots that a rank of `readers` still holds. */
static inline unsigned sol_staging_held(sol_staging_t *staging, const _Atomic uint64_t *const *done,
                                        uint64_t readers)
{
    unsigned held = 0;
    for (unsigned slot = 0; slot < staging->count; slot++) {
        if ((staging->slots[slot].readers & readers) != 0) {
            held += (sol_staging_pending(staging, slot, done) & readers) != 0;
        }
    }
    return held;
}

/* Take the free `slot` for `readers`; returns the chunk's number. */
static inline uint64_t sol_staging_take(sol_staging_t *staging, int slot, uint64_t readers)
{
    staging->slots[slot].chunk = staging->next;
    staging->slots[slot].readers = readers;
    staging->before_last = staging->last;
    staging->last = slot;
    return staging->next++;
}

static inline unsigned char *sol_staging_slot(const sol_staging_t *staging, int slot)
{
    return staging->base + (size_t)slot * staging->slot_bytes;
}

/* Bring the slot that is likely to be taken next into this core for writing, so that its stores
 * need not wait for the readers' copies to go: the one before the last, which whoever answers the
 * last chunk has read. */
static inline void sol_staging_warm(const sol_staging_t *staging, size_t bytes)
{
    if (staging->before_last >= 0) {
        const unsigned char *slot = sol_staging_slot(staging, staging->before_last);
        for (size_t at = 0; at < bytes; at += SOL_CACHE_LINE) {
            __builtin_prefetch(slot + at, 1, 3);
        }
    }
}

#endif
