/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.h: one-sided transfer: write into other ranks' memory, and count on
 * their side what has come. The other rank calls nothing; no order between
 * writes is assumed anywhere. For caches that move (KV pages between the ranks
 * that fill and those that decode), and for weights that are updated.
 *
 *     // once, all ranks
 *     sol_region_t region = {cache, cache_bytes};       // of mine, for others to write to
 *     sol_transfer_config_t config = SOL_TRANSFER_CONFIG_INIT;
 *     config.regions = &region, config.nregions = 1, config.counters = 16;
 *     sol_transfer_create(comm, &config, &transfer);
 *
 *     // who has the pages: page from_pages[i] here becomes page to_pages[i] there
 *     sol_pages_t pages = SOL_PAGES_INIT;
 *     pages.from = cache, pages.page_bytes = 65536, pages.npages = n;
 *     pages.from_pages = mine, pages.to_pages = theirs, pages.peer = 1;
 *     sol_transfer_write_pages(&pages, 1, 3, SOL_COUNT_WRITES, transfer, stream);
 *
 *     // who waits for them: counter 3 has grown by n
 *     sol_transfer_await(transfer, 3, 0, seen + n, stream);
 *
 * The rules of solccl.h hold here too: return values, pointers without
 * alignment, streams, bounded waits, errors that name the argument, thread-safety
 * (of a transfer: that of its communicator).
 */
#ifndef SOLCCL_TRANSFER_H
#define SOLCCL_TRANSFER_H

#include "solccl/solccl.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Memory of every rank that others may write to, with counters of what has come. */
typedef struct sol_transfer *sol_transfer_t;

/** This rank's memory for others to write to. */
typedef struct sol_region {
    void *memory; /**< may be NULL where bytes is 0 */
    size_t bytes;
} sol_region_t;

#define SOL_TRANSFER_MAX_REGIONS 4096
#define SOL_TRANSFER_MAX_COUNTERS 65536

/** What a transfer is made of. Start from SOL_TRANSFER_CONFIG_INIT; fields are only added. */
typedef struct sol_transfer_config {
    size_t size;                 /**< sizeof(sol_transfer_config_t) of the caller */
    const sol_region_t *regions; /**< `nregions` of them, read during the call */
    int nregions;                /**< equal on all ranks, 0 to 4096; the sizes may differ, 0 too */
    int counters;                /**< equal on all ranks, 0 to 65536; they begin at 0 */
} sol_transfer_config_t;

#define SOL_TRANSFER_CONFIG_INIT                                                                   \
    {                                                                                              \
        sizeof(sol_transfer_config_t), NULL, 0, 0                                                  \
    }

/**
 * Make a transfer: every rank learns where the others' regions are, and gets counters. Collective
 * over `comm`; blocks; legal in a group, not in a capture.
 *
 * CPU ranks: regions may be any memory. What lies in memory of sol_mem_alloc, and what threads of
 * one process have, is written to directly; other memory by the kernel's process_vm_writev, where
 * the system allows it. GPU ranks: regions lie in memory of sol_mem_alloc on `comm` (parts of it,
 * several in one). Make transfers before graphs are captured: beside one the collectives leave a
 * multiprocessor to sol_transfer_await. A region's memory stays valid until sol_transfer_destroy
 * here; while there is one the communicator cannot sleep. Errors: ARGUMENT (the text says which),
 * MISMATCH (other numbers of regions or counters on another rank; `comm` stays usable), UNSUPPORTED
 * (a region that others cannot reach: the text says whose and why), MEMORY, TIMEOUT.
 */
SOL_API sol_status_t sol_transfer_create(sol_comm_t comm, const sol_transfer_config_t *config,
                                         sol_transfer_t *transfer);

/**
 * Give it up. Local: waits for no rank, but for pieces that are being written at this moment (2 s
 * at most). Writes to this rank's regions must have come, and this rank's own writes and waits on
 * streams must have completed; later writes to this rank fail on CPU ranks (STATE). NULL is SOL_OK.
 * sol_comm_destroy does it for all that are left. Errors: ARGUMENT.
 */
SOL_API sol_status_t sol_transfer_destroy(sol_transfer_t transfer);

/* ------------------------------------------------------------------------------ writing */

/** One write. */
typedef struct sol_write {
    const void *from; /**< this rank's memory, any; `bytes` of it */
    size_t bytes;     /**< 0 is legal, moves nothing, and counts as a write */
    size_t offset;    /**< in the peer's region */
    int peer;         /**< may be this rank itself */
    int region;       /**< of the peer: index in what it gave to sol_transfer_create */
} sol_write_t;

/** What the far side's counter counts. */
typedef enum sol_count {
    SOL_COUNT_WRITES = 0, /**< 1 for each write that has come (each page) */
    SOL_COUNT_BYTES = 1   /**< the bytes that have come */
} sol_count_t;

/** In place of a counter: nothing is counted. */
#define SOL_NO_COUNTER (-1)

/**
 * Write a list, to any mixture of peers. At each peer its counter number `counter`, in this rank's
 * name, grows by what `count` says, some time after the data has come: who has seen the counter
 * sees all data that it counts. No other order holds: not between writes, not between calls, not
 * between peers. Two writes to one place at a time leave either's bytes, or a mixture.
 *
 * GPU ranks: ordered on `stream`, legal in a capture (the list is read during the call); the
 * sources may be changed by what follows on the stream. Ordered with nothing else: not with
 * collectives of `comm` on other streams. CPU ranks: returns when the data is written; `stream` is
 * NULL. Not legal inside a group. Errors: ARGUMENT (a peer, a region, a counter that there is not;
 * an end beyond the peer's region: the text says which write and by how much; nothing was written),
 * PEER, ABORTED, STATE (the peer has destroyed its transfer), SYSTEM, DEVICE.
 */
SOL_API sol_status_t sol_transfer_write(const sol_write_t *writes, size_t nwrites, int counter,
                                        sol_count_t count, sol_transfer_t transfer, void *stream);

/** Pages of one size: page from_pages[i] of `from` becomes page to_pages[i] of the peer's region.
 */
typedef struct sol_pages {
    size_t size;                /**< sizeof(sol_pages_t) of the caller */
    const void *from;           /**< where page 0 is here */
    size_t from_stride;         /**< bytes from a page to the next; 0: page_bytes */
    const uint32_t *from_pages; /**< `npages` numbers, in host memory; NULL: 0, 1, 2, ... */
    size_t offset;              /**< where page 0 is in the peer's region */
    size_t to_stride;           /**< 0: page_bytes */
    const uint32_t *to_pages;   /**< `npages` numbers, in host memory; NULL: 0, 1, 2, ... */
    size_t npages, page_bytes;
    int peer, region;
} sol_pages_t;

#define SOL_PAGES_INIT                                                                             \
    {                                                                                              \
        sizeof(sol_pages_t), NULL, 0, NULL, 0, 0, NULL, 0, 0, 0, 0                                 \
    }

/**
 * The same for `nsets` sets of pages (the layers of a model, say), without a list of an entry a
 * page. The page numbers are read during the call. Otherwise as sol_transfer_write.
 */
SOL_API sol_status_t sol_transfer_write_pages(const sol_pages_t *pages, size_t nsets, int counter,
                                              sol_count_t count, sol_transfer_t transfer,
                                              void *stream);

/* ------------------------------------------------------------------------------ waiting */

/** In place of a rank: the sum over all. */
#define SOL_ANY_RANK (-1)

/**
 * On the stream: what follows begins when this rank's counter, as far as it was counted by rank
 * `from` (or all together), has reached `value`. Counters only grow, and are never reset: add to
 * the value that was awaited last. Reached means (int64_t)(counter - value) >= 0. Bounded by the
 * communicator's timeout, which makes the communicator fail on all ranks with a text that names
 * counter, value, how far it has come, and `from`. Takes one warp of the GPU; legal in a capture.
 * CPU ranks: blocks. Errors: ARGUMENT, TIMEOUT, PEER (`from` is gone), ABORTED, DEVICE.
 */
SOL_API sol_status_t sol_transfer_await(sol_transfer_t transfer, int counter, int from,
                                        uint64_t value, void *stream);

/**
 * On the host: wait until it has been reached, at most `timeout_ms` (0: only look; below 0: the
 * communicator's timeout). What was counted may then be read by this thread (CPU ranks), and by
 * kernels that are launched afterwards (GPU ranks: a look takes some 10 us). Any thread, beside
 * other calls on the communicator. Errors: ARGUMENT; TIMEOUT, after which everything stays usable;
 * PEER, ABORTED, DEVICE.
 */
SOL_API sol_status_t sol_transfer_wait(sol_transfer_t transfer, int counter, int from,
                                       uint64_t value, int timeout_ms);

/** On the host: how far it has come. As sol_transfer_wait otherwise; never waits for a rank. */
SOL_API sol_status_t sol_transfer_count(sol_transfer_t transfer, int counter, int from,
                                        uint64_t *value);

#ifdef __cplusplus
}
#endif
#endif /* SOLCCL_TRANSFER_H */
