/* SPDX-License-Identifier: Apache-2.0 */
/*
 * use.h: one thread at a time inside a communicator. Two threads that call on
 * one communicator at once have no order that other ranks could know; the
 * second one gets SOL_ERR_STATE and has changed nothing.
 *
 * A lock that is biased to the thread that used the communicator last, because
 * that is nearly always the same one. It costs that thread two loads and two
 * stores to a line it owns, and no atomic instruction. Each thread has a seat,
 * which says in which communicator it is; a communicator knows the seat of its
 * owner, and only the owner may be inside.
 *
 *     owner    A:  A.inside = comm    comm->owner == A?   ... work ...   A.inside = NULL
 *     newcomer B:  (lock)  comm->owner = B   barrier on all CPUs (membarrier)   A.inside?
 *                          not comm: B is in       comm: owner = A again, B is refused
 *
 * A's store and its load may be done in the other order by its CPU; the barrier that B causes there
 * makes one of the two see the other: A finds that it is no longer the owner and takes the way of
 * a newcomer, or B finds A inside. Where the kernel refuses membarrier, overlaps of some 10 ns can
 * go unnoticed. Seats are never freed, so the owner's can be read when its thread is gone.
 */
#ifndef SOL_CORE_USE_H
#define SOL_CORE_USE_H

#include "core/setup.h"

struct sol_seat {
    alignas(SOL_CACHE_LINE) _Atomic(sol_comm_t) inside;
    struct sol_seat *next; /* in the list of those without a thread */
};

/* Of this thread; NULL until it needs one. */
extern SOL_HIDDEN _Thread_local struct sol_seat *sol_seat SOL_NEAR;

bool sol_use_begin_slow(sol_comm_t comm);
/* Has this thread a seat now? False where memory is refused: better known before others wait. */
bool sol_use_prepare(void);

/* May this thread go on? Otherwise another one is inside. */
static inline bool sol_use_begin(sol_comm_t comm)
{
    struct sol_seat *seat = sol_seat;
    if (SOL_LIKELY(seat != NULL)) {
        /* release: what this thread did elsewhere before; pairs with the acquire in use.c */
        atomic_store_explicit(&seat->inside, comm, memory_order_release);
        atomic_signal_fence(memory_order_seq_cst); /* the newcomer's membarrier does the rest */
        /* acquire: pairs with the newcomer that was refused and gave the ownership back */
        if (SOL_LIKELY(atomic_load_explicit(&comm->owner, memory_order_acquire) == seat)) {
            return true;
        }
    }
    return sol_use_begin_slow(comm);
}

static inline void sol_use_end(void)
{
    /* release: what this thread did comes before what the next one does; pairs with the acquire in
     * use.c */
    atomic_store_explicit(&sol_seat->inside, NULL, memory_order_release);
}

/* Is this thread inside already? A call of several steps stays in: a step neither begins nor ends.
 */
static inline bool sol_use_held(sol_comm_t comm)
{
    return sol_seat != NULL &&
           atomic_load_explicit(&sol_seat->inside, memory_order_relaxed) == comm;
}

/* Is a thread inside? Any thread, signal handlers too; it may be otherwise a moment later. */
static inline bool sol_use_inside(sol_comm_t comm)
{
    struct sol_seat *owner = atomic_load_explicit(&comm->owner, memory_order_acquire);
    return owner != NULL && atomic_load_explicit(&owner->inside, memory_order_acquire) == comm;
}

/* The error of the public function `who` that was not let in. */
sol_status_t sol_use_refused(sol_comm_t comm, const char *who);

/* For destroy: be let in, if need be after ending the waits of the thread that is inside. False: it
 * did not leave in time. Needs no memory. */
bool sol_use_take_over(sol_comm_t comm);
/* And out again, for good: nobody gets in any more. */
void sol_use_close(sol_comm_t comm);

/* The thread that is inside leaves, and keeps all others out, until a thread of its group (any that
 * it tells) goes in again. False: no memory for that thread's seat. */
void sol_use_park(sol_comm_t comm);
bool sol_use_unpark(sol_comm_t comm);

/* In for the public function `who`, which may be a step of a call that is inside already (*step):
 * that one stays in. STATE where another thread is inside. */
sol_status_t sol_use_enter(sol_comm_t comm, const char *who, bool *step);
static inline void sol_use_exit(bool step)
{
    if (!step) {
        sol_use_end();
    }
}

#endif
