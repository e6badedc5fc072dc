/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flight.h: the flight recorder: the last SOL_FLIGHT_OPS operations of a
 * communicator, always on. It must cost nothing that a latency of 200 ns would
 * show: a small operation on CPU ranks pays three stores to a line that nobody
 * else reads, and no clock. What it meant is worked out when it is written down.
 *
 * Clocks. A reading costs as much as all the rest of a call, so on CPU ranks
 * only those operations are clocked of which somebody will ask: one in 16, each
 * that moves SOL_FLIGHT_LARGE elements or more, each that had to wait longer
 * than a spin (the backend says so: sol_flight_waited), and each that fails. On
 * GPU ranks all are; there the times are those of the enqueueing call.
 *
 * One thread writes (the one that uses the communicator), any thread or signal
 * handler may read: an entry is written before comm->sequence says so, and a
 * reader that finds the sequence grown by a ring's length leaves it out. A
 * record is never freed, only handed on to the next communicator, so a late
 * reader finds old news at worst.
 *
 * The same place counts how long this rank waited for each other one. What
 * kernels waited for they count themselves (the backend's `waited`).
 */
#ifndef SOL_CORE_FLIGHT_H
#define SOL_CORE_FLIGHT_H

#include "core/backend.h"

#include <stdalign.h>
#include <stdatomic.h>

#define SOL_FLIGHT_OPS 1024u

/* `status` of an operation that has not ended; none of sol_status_t. */
#define SOL_FLIGHT_RUNNING 1

#define SOL_FLIGHT_LARGE 4096u /* elements */
#define SOL_FLIGHT_EACH 16u    /* one in so many is clocked */

/* What every call writes. */
typedef struct sol_flight_op {
    _Atomic uint64_t what; /* sol_call_pack */
    _Atomic uint64_t count;
    _Atomic uint64_t begun; /* sol_ticks, or 0: not clocked */
    _Atomic uint64_t ended; /* the same, if that is; 0: it has not */
} sol_flight_op_t;

/* What some add; cleared with `begun` 0 where they do not. */
typedef struct sol_flight_more {
    _Atomic uint64_t sequence; /* of the operation that the rest is about */
    _Atomic uint64_t stream, waited_ns;
    _Atomic int32_t status;   /* SOL_FLIGHT_RUNNING, or what the call returned */
    _Atomic int32_t captured; /* recorded into a graph, not run */
} sol_flight_more_t;

typedef struct sol_flight {
    alignas(SOL_CACHE_LINE) sol_flight_op_t ops[SOL_FLIGHT_OPS]; /* operation s at s % _OPS */
    _Atomic uint64_t pairs;           /* sends and receives called so far */
    uint64_t ticks, now_ns, epoch_ns; /* the three clocks when the communicator was made */
    /* The wait that is going on: for which ranks, since when (sol_now_ns). */
    _Atomic uint64_t waiting_for, waiting_since_ns;
    /* By rank: slow waits for it that have ended, and their time. */
    _Atomic uint64_t waits[SOL_MAX_RANKS], waited_ns[SOL_MAX_RANKS];
    struct sol_flight *next; /* in the list of records that no communicator has */
    sol_flight_more_t more[SOL_FLIGHT_OPS];
} sol_flight_t;

/* func, dtype, op, premul and root in one word, and back (into a call of zeroes). */
static inline uint64_t sol_call_pack(const sol_call_t *call)
{
    return (uint64_t)call->func | (uint64_t)call->dtype << 8 | (uint64_t)call->reduction.op << 16 |
           (uint64_t)call->reduction.premul << 24 | (uint64_t)(uint32_t)call->root << 32;
}
void sol_call_unpack(uint64_t what, sol_call_t *call);

/* A fresh record, or NULL where memory is refused; and back. Any thread. */
sol_flight_t *sol_flight_get(void);
void sol_flight_put(sol_flight_t *flight);

#define SOL_FLIGHT_SET(field, value) atomic_store_explicit(&(field), value, memory_order_relaxed)
#define SOL_FLIGHT_GET(field) atomic_load_explicit(&(field), memory_order_relaxed)

/* The entry of `sequence` for the rarer facts. */
static inline sol_flight_more_t *sol_flight_more(sol_flight_t *flight, uint64_t sequence)
{
    sol_flight_more_t *more = &flight->more[sequence % SOL_FLIGHT_OPS];
    if (SOL_FLIGHT_GET(more->sequence) != sequence) {
        SOL_FLIGHT_SET(more->stream, 0);
        SOL_FLIGHT_SET(more->waited_ns, 0);
        SOL_FLIGHT_SET(more->status, SOL_FLIGHT_RUNNING);
        SOL_FLIGHT_SET(more->captured, 0);
        /* release: who sees the number sees no older facts */
        atomic_store_explicit(&more->sequence, sequence, memory_order_release);
    }
    return more;
}

/* Before comm->sequence becomes call->sequence. */
static inline void sol_flight_begin(sol_flight_t *flight, sol_call_t *call, bool blocking)
{
    sol_flight_op_t *op = &flight->ops[call->sequence % SOL_FLIGHT_OPS];
    uint64_t begun = 0;
    call->what = sol_call_pack(call);
    if (SOL_UNLIKELY(call->func == SOL_FUNC_SEND || call->func == SOL_FUNC_RECV)) {
        SOL_FLIGHT_SET(flight->pairs, SOL_FLIGHT_GET(flight->pairs) + 1);
    }
    if (SOL_UNLIKELY(!blocking || call->count >= SOL_FLIGHT_LARGE ||
                     call->sequence % SOL_FLIGHT_EACH == 0)) {
        begun = sol_ticks();
        SOL_FLIGHT_SET(op->ended, 0);
        if (!blocking) {
            SOL_FLIGHT_SET(sol_flight_more(flight, call->sequence)->stream,
                           (uint64_t)(uintptr_t)call->stream);
        }
    }
    SOL_FLIGHT_SET(op->what, call->what);
    SOL_FLIGHT_SET(op->count, call->count);
    SOL_FLIGHT_SET(op->begun, begun);
}

static inline void sol_flight_end(sol_flight_t *flight, uint64_t sequence, sol_status_t status)
{
    sol_flight_op_t *op = &flight->ops[sequence % SOL_FLIGHT_OPS];
    if (SOL_UNLIKELY(SOL_FLIGHT_GET(op->begun) != 0 || status != SOL_OK)) {
        SOL_FLIGHT_SET(op->ended, sol_ticks());
        if (status != SOL_OK) {
            SOL_FLIGHT_SET(sol_flight_more(flight, sequence)->status, (int32_t)status);
        }
    }
}

/* For backends. The call went into a graph: */
static inline void sol_flight_captured(sol_flight_t *flight, uint64_t sequence)
{
    SOL_FLIGHT_SET(sol_flight_more(flight, sequence)->captured, 1);
}

/* a wait in operation `sequence` has become slow, is for other ranks than before, or has ended
 * (ranks 0): */
static inline void sol_flight_waiting(sol_flight_t *flight, uint64_t sequence, uint64_t ranks,
                                      uint64_t since_ns)
{
    sol_flight_op_t *op = &flight->ops[sequence % SOL_FLIGHT_OPS];
    if (ranks != 0 && SOL_FLIGHT_GET(op->begun) == 0) { /* late by a spin */
        SOL_FLIGHT_SET(op->ended, 0);
        SOL_FLIGHT_SET(op->begun, sol_ticks());
    }
    SOL_FLIGHT_SET(flight->waiting_since_ns, since_ns);
    SOL_FLIGHT_SET(flight->waiting_for, ranks);
}

/* and this is what it came to, in operation `sequence`, for `ranks`. One writer. */
static inline void sol_flight_waited(sol_flight_t *flight, uint64_t sequence, uint64_t ranks,
                                     uint64_t ns)
{
    sol_flight_more_t *more = sol_flight_more(flight, sequence);
    SOL_FLIGHT_SET(more->waited_ns, SOL_FLIGHT_GET(more->waited_ns) + ns);
    for (; ranks != 0; ranks &= ranks - 1) {
        int rank = __builtin_ctzll(ranks);
        SOL_FLIGHT_SET(flight->waits[rank], SOL_FLIGHT_GET(flight->waits[rank]) + 1);
        SOL_FLIGHT_SET(flight->waited_ns[rank], SOL_FLIGHT_GET(flight->waited_ns[rank]) + ns);
    }
}

#endif
