/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_transfer.c: one-sided writes of CPU ranks. What lies in a window, and what a
 * thread of this process has, is written through a pointer; the rest by
 * process_vm_writev. Then the count, with release.
 *
 * Memory that is not a window's is its owner's to free once it has given up its
 * transfer. Behind the counters of each rank is a gate for that:
 *
 *     writer: writing[me] <- 1 (exchange)   closed?   writes a piece   writing[me] <- 0
 *     owner:  closed <- 1 (exchange)   waits until every writing is 0 (bounded)   goes
 *
 * Both have one order: either the writer finds the gate closed, or the owner finds
 * the writer. Must never: write a byte into such memory outside that.
 */
#include "backend/shm/shm.h"
#include "core/transfer.h"

#include <errno.h>
#include <sys/uio.h>

#define LEAVE_NS 2000000000u            /* longest that destroy waits for writers */
#define COUNT_BYTES ((size_t)256 << 10) /* written before the counts so far are told */

/* What a process reaches by its own pointers stays mapped until the communicator is closed. */
typedef struct shm_transfer {
    bool gated[SOL_MAX_RANKS]; /* rank has memory that is not a window's */
} shm_transfer_t;

static _Atomic uint32_t *gate_word(const struct sol_transfer *t, int owner, int which)
{
    char *gate = t->controls[owner] + sol_transfer_counter_bytes(t);
    return (_Atomic uint32_t *)(void *)(gate + (size_t)which * SOL_CACHE_LINE);
}

sol_status_t sol_shm_transfer_offer(sol_comm_t comm, void *memory, size_t bytes, sol_place_t *place)
{
    const sol_shm_t *s = comm->state;
    sol_shm_place_t here;
    if (!sol_shm_in_window(s, memory, bytes, &here)) {
        here = (sol_shm_place_t){.mode = SOL_SHM_ADDRESS, .where = (uint64_t)(uintptr_t)memory};
        if (!s->all_threads && !s->vm_readable && s->nranks > 1) {
            return sol_thread_error(SOL_ERR_UNSUPPORTED,
                                    "other processes cannot write to this memory here "
                                    "(process_vm_writev is not allowed): take it from "
                                    "sol_mem_alloc");
        }
    }
    *place =
        (sol_place_t){.bytes = bytes, .where = here.where, .mode = here.mode, .id = here.window};
    return SOL_OK;
}

/* Where `place` of `rank` is in this address space; NULL: it is not. */
static char *resolve(const sol_shm_t *s, int rank, const sol_place_t *place)
{
    const sol_shm_place_t there = {place->mode, (uint32_t)place->id, place->where};
    if (rank == s->rank && place->mode == SOL_SHM_ADDRESS) {
        return (char *)(uintptr_t)place->where;
    }
    return (char *)(uintptr_t)sol_shm_pointer(s, rank, &there);
}

sol_status_t sol_shm_transfer_open(sol_comm_t comm, struct sol_transfer *t,
                                   const sol_place_t *places)
{
    const sol_shm_t *s = comm->state;
    shm_transfer_t *own = sol_calloc(1, sizeof(*own));
    if (own == NULL) {
        return sol_comm_error(comm, SOL_ERR_MEMORY, "sol_transfer_create: no memory");
    }
    for (int r = 0; r < s->nranks; r++) {
        const sol_place_t *of = &places[(size_t)r * (1 + (size_t)t->nregions)];
        t->controls[r] = resolve(s, r, &of[0]);
        if (t->controls[r] == NULL) {
            sol_free(own);
            return sol_comm_error(comm, SOL_ERR_INTERNAL,
                                  "sol_transfer_create: the counters of rank %d are not mapped", r);
        }
        for (int i = 0; i < t->nregions; i++) {
            sol_far_t *far = &t->far[(size_t)r * (size_t)t->nregions + (size_t)i];
            *far = (sol_far_t){.bytes = of[1 + i].bytes, .where = of[1 + i].where};
            if (far->bytes > 0) {
                far->base = resolve(s, r, &of[1 + i]);
                own->gated[r] |= of[1 + i].mode == SOL_SHM_ADDRESS && r != s->rank;
            }
        }
    }
    t->state = own;
    return SOL_OK;
}

/* The counters stay until the communicator goes: who writes too late finds the gate closed. */
void sol_shm_transfer_close(sol_comm_t comm, struct sol_transfer *t)
{
    const sol_shm_t *s = comm->state;
    const uint64_t until = sol_now_ns() + LEAVE_NS;
    /* pairs with the exchange in enter() */
    atomic_exchange_explicit(gate_word(t, s->rank, 0), 1, memory_order_seq_cst);
    for (int r = 0; r < s->nranks; r++) {
        _Atomic uint32_t *writing = gate_word(t, s->rank, 1 + r);
        while (atomic_fetch_or_explicit(writing, 0, memory_order_seq_cst) != 0 &&
               sol_now_ns() < until && !sol_shm_gone(comm, r)) {
            sol_cpu_relax();
        }
    }
    sol_free(t->state);
}

/* ---------------------------------------------------------------------------- writing */

static sol_status_t enter(const sol_shm_t *s, const struct sol_transfer *t, int peer)
{
    const shm_transfer_t *own = t->state;
    if (own->gated[peer]) {
        /* pairs with the exchange of `closed` and the look at `writing` in sol_shm_transfer_close
         */
        atomic_exchange_explicit(gate_word(t, peer, 1 + s->rank), 1, memory_order_seq_cst);
    }
    if (atomic_load_explicit(gate_word(t, peer, 0), memory_order_seq_cst) == 0) {
        return SOL_OK;
    }
    return sol_comm_error(s->comm, SOL_ERR_STATE,
                          "sol_transfer_write: rank %d has destroyed its transfer", peer);
}

static void leave(const sol_shm_t *s, const struct sol_transfer *t, int peer)
{
    const shm_transfer_t *own = t->state;
    if (own->gated[peer]) {
        /* release: what was written comes before; the owner may free it then */
        atomic_store_explicit(gate_word(t, peer, 1 + s->rank), 0, memory_order_release);
    }
}

/* One page, in pieces, each under the gate. `past`: not through this core's cache. */
static sol_status_t write_page(sol_shm_t *s, const struct sol_transfer *t,
                               const sol_transfer_set_t *set, size_t page, bool past)
{
    const sol_far_t *far = &t->far[(size_t)set->peer * (size_t)t->nregions + (size_t)set->region];
    const char *from = sol_page_from(set, page);
    const size_t to = sol_page_to(set, page);
    sol_status_t status = SOL_OK;
    for (size_t done = 0; done < set->bytes && status == SOL_OK;) {
        size_t piece = set->bytes - done < s->limits.piece ? set->bytes - done : s->limits.piece;
        status = enter(s, t, set->peer);
        if (status == SOL_OK && far->base == NULL) {
            status = sol_shm_vm_move(s, set->peer, far->where + to + done,
                                     (void *)(uintptr_t)(from + done), piece, true);
        } else if (status == SOL_OK) {
            sol_shm_stage_copy(past ? SOL_SHM_PASS : SOL_SHM_KEEP, far->base + to + done,
                               from + done, piece);
        }
        leave(s, t, set->peer);
        status = status == SOL_OK ? sol_shm_look(s) : status;
        done += piece;
    }
    return status;
}

/* What has come and has not been told yet. */
typedef struct counts {
    const struct sol_transfer *t;
    int counter, rank;
    size_t bytes;
    uint64_t of[SOL_MAX_RANKS];
} counts_t;

static void tell(counts_t *c)
{
    for (int r = 0; r < c->t->comm->nranks && c->counter != SOL_NO_COUNTER; r++) {
        if (c->of[r] != 0) {
            uint64_t *word = sol_transfer_word(c->t, r, c->counter, c->rank);
            /* release: the data comes before; pairs with the acquire in sol_shm_transfer_read */
            atomic_fetch_add_explicit((_Atomic uint64_t *)word, c->of[r], memory_order_release);
            c->of[r] = 0;
        }
    }
    c->bytes = 0;
}

sol_status_t sol_shm_transfer_write(sol_comm_t comm, struct sol_transfer *t,
                                    const sol_transfer_work_t *work)
{
    sol_shm_t *s = comm->state;
    counts_t counts = {.t = t, .counter = work->counter, .rank = s->rank};
    sol_transfer_set_t set;
    size_t total = 0;
    s->call = NULL;
    s->doing = "sol_transfer_write";
    for (size_t i = 0; i < work->n && total < s->limits.stream; i++) {
        sol_transfer_set(work, i, &set);
        total += set.npages * set.bytes;
    }
    sol_status_t status = sol_shm_look(s);
    for (size_t i = 0; i < work->n && status == SOL_OK; i++) {
        sol_transfer_set(work, i, &set);
        for (size_t page = 0; page < set.npages && status == SOL_OK; page++) {
            status = write_page(s, t, &set, page, total >= s->limits.stream);
            counts.of[set.peer] += status != SOL_OK                  ? 0
                                   : work->count == SOL_COUNT_WRITES ? 1
                                                                     : set.bytes;
            counts.bytes += set.bytes;
            if (counts.bytes >= COUNT_BYTES) {
                tell(&counts);
            }
        }
    }
    tell(&counts); /* of a failure too: they have come */
    s->doing = NULL;
    return status;
}

sol_status_t sol_shm_transfer_read(sol_comm_t comm, struct sol_transfer *t, int counter,
                                   uint64_t *values)
{
    for (int r = 0; r < comm->nranks; r++) {
        uint64_t *word = sol_transfer_word(t, comm->rank, counter, r);
        /* acquire: pairs with the release in tell() */
        values[r] = atomic_load_explicit((_Atomic uint64_t *)word, memory_order_acquire);
    }
    return SOL_OK;
}

sol_status_t sol_shm_fail_text(sol_comm_t comm, sol_status_t status, const char *text)
{
    return sol_shm_fail(comm->state, status, "%s", text);
}
