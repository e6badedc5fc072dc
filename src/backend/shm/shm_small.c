/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_small.c: collectives whose data travels in cells, or in lines where no
 * cell is known to be free (proto/cell.h: ranks that do not answer each other).
 * Everybody pushes what others need, then polls for what it needs: one one-way
 * latency, no barrier.
 *
 *     rank 0:  push x0 -> 1, 2      poll x1, x2     result
 *     rank 1:  push x1 -> 2, 0      poll x2, x0     result      (start at rank + 1)
 *
 * Pushing before polling cannot deadlock. Take the rank that is furthest
 * behind, in call k: all others have completed every call before k, so they
 * have read all that this rank sent before k, and its pipes have at least 7/8
 * of a ring of room (the quota of line.h): more than the 3/4 that a message
 * may take (shm_open.c). So it can always push, and complete.
 *
 * In place: all that is read from a buffer is pushed before it is written.
 */
#include "backend/shm/shm.h"
#include "coll/fpmode.h"
#include "coll/shares.h"

/* ------------------------------------------------------------------------------- lines */

#define BATCH 24u /* fetched together: about what a core can have under way */
#define PART 8u   /* waited for together */
/* Lines of the next message fetched for writing while this one travels. */
#define WARM 8u

/* The lines of a message; the caller has made sure of room. */
static inline void push_message(sol_line_out_t *out, uint32_t sig, const unsigned char *src,
                                size_t bytes)
{
    while (bytes > SOL_LINE_PAYLOAD) {
        sol_line_warm(out, WARM);
        sol_line_push(out, sig, src, SOL_LINE_PAYLOAD);
        src += SOL_LINE_PAYLOAD;
        bytes -= SOL_LINE_PAYLOAD;
    }
    sol_line_push(out, sig, src, bytes);
}

sol_status_t sol_shm_send_lines(sol_shm_t *s, int rank, uint32_t sig, const void *src, size_t bytes)
{
    sol_shm_peer_t *peer = &s->peers[rank];
    sol_status_t status = sol_shm_await_room(s, rank, (uint32_t)sol_line_count(bytes));
    if (SOL_UNLIKELY(status != SOL_OK)) {
        return status;
    }
    push_message(&peer->out, sig, src, bytes);
    sol_shm_ring(s, peer);
    return SOL_OK;
}

static inline void give_back(sol_shm_t *s, sol_shm_peer_t *peer)
{
    if (sol_line_tell_some(&peer->in)) {
        sol_shm_ring(s, peer);
    }
}

/* Wait for `count` lines and unpack them; `bytes` are left of the whole message. */
static inline sol_status_t recv_part(sol_shm_t *s, int rank, uint32_t sig, unsigned char *to,
                                     uint32_t count, size_t bytes)
{
    sol_status_t status = sol_shm_await_line(s, rank, count - 1, sig);
    if (SOL_UNLIKELY(status != SOL_OK)) {
        return status;
    }
    size_t left = bytes - (size_t)(count - 1) * SOL_LINE_PAYLOAD;
    size_t last = left < SOL_LINE_PAYLOAD ? left : SOL_LINE_PAYLOAD;
    sol_line_unpack(&s->peers[rank].in, to, count - 1, last);
    return SOL_OK;
}

/* The first line tells that the rest is on its way: only then are these fetched, all at once. Lines
 * fetched before they are written would have to be taken away from this core again. */
sol_status_t sol_shm_recv_lines(sol_shm_t *s, int rank, uint32_t sig, void *dst, size_t bytes)
{
    sol_shm_peer_t *peer = &s->peers[rank];
    const size_t lines = sol_line_count(bytes);
    for (size_t done = 0; done < lines;) {
        size_t offset = done * SOL_LINE_PAYLOAD;
        uint32_t fetched = (uint32_t)(done % BATCH), count = 1;
        if (fetched == 0 && lines - done > 1) {
            sol_status_t status = sol_shm_await_line(s, rank, 0, sig);
            if (SOL_UNLIKELY(status != SOL_OK)) {
                return status;
            }
            sol_line_fetch(&peer->in, lines - done < BATCH ? (uint32_t)(lines - done) : BATCH);
        }
        if (lines - done > 1) {
            count = lines - done < PART ? (uint32_t)(lines - done) : PART;
        }
        sol_status_t status =
            recv_part(s, rank, sig, sol_shm_at(dst, offset), count, bytes - offset);
        if (SOL_UNLIKELY(status != SOL_OK)) {
            return status;
        }
        done += count;
    }
    give_back(s, peer);
    return SOL_OK;
}

/* ------------------------------------------------------------------------- cell or lines */

static inline void copy_small(unsigned char *dst, const void *src, size_t bytes)
{
    if (bytes <= SOL_LINE_PAYLOAD) {
        sol_line_copy(dst, src, bytes);
    } else {
        memcpy(dst, src, bytes);
    }
}

static inline sol_status_t send_message(sol_shm_t *s, int rank, const void *src, size_t bytes)
{
    unsigned char *to = sol_shm_cell_open(s, rank, bytes);
    if (SOL_UNLIKELY(to == NULL)) {
        return sol_shm_send_lines(s, rank, s->sig, src, bytes);
    }
    copy_small(to, src, bytes);
    sol_shm_cell_push(s, rank, bytes);
    return SOL_OK;
}

/* A message that has come, and where to read it until `release`. */
typedef struct message {
    const unsigned char *at;
    bool in_cell, in_line; /* neither: it was unpacked */
} message_t;

/* Wait for the message of `rank`; several lines are unpacked to `area`. */
static inline sol_status_t await_message(sol_shm_t *s, int rank, size_t bytes, void *area,
                                         message_t *message)
{
    sol_shm_peer_t *peer = &s->peers[rank];
    sol_status_t status = sol_shm_await_message(s, rank, s->sig, bytes, &message->in_cell);
    message->in_line = false;
    if (SOL_UNLIKELY(status != SOL_OK)) {
        return status;
    }
    if (SOL_LIKELY(message->in_cell)) {
        sol_cell_hear(&peer->cells_in, &peer->cells_out);
        message->at = sol_cell_read(&peer->cells_in, bytes);
        return SOL_OK;
    }
    message->in_line = bytes <= SOL_LINE_PAYLOAD;
    message->at = message->in_line ? sol_line_payload(&peer->in) : area;
    return message->in_line ? SOL_OK : sol_shm_recv_lines(s, rank, s->sig, area, bytes);
}

static inline void release(sol_shm_t *s, int rank, const message_t *message)
{
    if (SOL_LIKELY(message->in_cell)) {
        sol_cell_pop(&s->peers[rank].cells_in);
    } else if (message->in_line) {
        sol_line_pop(&s->peers[rank].in);
        give_back(s, &s->peers[rank]);
    }
}

static sol_status_t recv_message(sol_shm_t *s, int rank, void *dst, size_t bytes)
{
    message_t message;
    sol_status_t status = await_message(s, rank, bytes, dst, &message);
    if (SOL_LIKELY(status == SOL_OK)) {
        if (message.in_cell || message.in_line) {
            copy_small(dst, message.at, bytes);
        }
        release(s, rank, &message);
    }
    return status;
}

static inline void copy_bytes(void *dst, const void *src, size_t bytes)
{
    if (bytes > 0 && dst != src) {
        memcpy(dst, src, bytes);
    }
}

/* -------------------------------------------------------------------------- reductions */

/* This rank's contribution: the buffer, or its scaled copy in this rank's scratch. */
static const void *contribution(sol_shm_t *s, const sol_call_t *call, const void *send,
                                size_t count)
{
    if (SOL_LIKELY(!call->reduction.premul)) {
        return send;
    }
    unsigned char *scaled = s->scratch + s->scratch_bytes * (size_t)s->rank;
    s->scale[call->dtype](scaled, send, call->reduction.scalar.immediate, count);
    return scaled;
}

/* Receive every peer's `bytes` and reduce with `own`, where they lie if they came whole. */
static sol_status_t gather_and_reduce(sol_shm_t *s, const sol_call_t *call, const void *own,
                                      void *dst, size_t count, size_t bytes)
{
    const void *srcs[SOL_MAX_RANKS];
    message_t messages[SOL_MAX_RANKS];
    const unsigned mode = sol_fp_enter();
    srcs[s->rank] = own;
    for (int step = 1; step < s->nranks; step++) {
        int rank = sol_ring_next(s->rank, step, s->nranks);
        unsigned char *area = s->scratch + s->scratch_bytes * (size_t)rank;
        sol_status_t status = await_message(s, rank, bytes, area, &messages[rank]);
        if (SOL_UNLIKELY(status != SOL_OK)) {
            sol_fp_leave(mode);
            return status;
        }
        srcs[rank] = messages[rank].at;
    }
    if (count > 0) {
        s->reduce[call->dtype][call->reduction.op](dst, srcs, s->nranks, count);
    }
    sol_fp_leave(mode);
    for (int rank = 0; rank < s->nranks; rank++) {
        if (rank != s->rank) {
            release(s, rank, &messages[rank]);
        }
    }
    return SOL_OK;
}

static sol_status_t push_all(sol_shm_t *s, const void *src, size_t bytes)
{
    for (int step = 1; step < s->nranks; step++) {
        int rank = sol_ring_next(s->rank, step, s->nranks);
        sol_status_t status = send_message(s, rank, src, bytes);
        if (SOL_UNLIKELY(status != SOL_OK)) {
            return status;
        }
    }
    return SOL_OK;
}

static sol_status_t all_reduce(sol_shm_t *s, const sol_call_t *call, size_t size)
{
    const void *own = contribution(s, call, call->send, call->count);
    sol_status_t status = push_all(s, own, call->count * size);
    if (SOL_UNLIKELY(status != SOL_OK)) {
        return status;
    }
    return gather_and_reduce(s, call, own, call->recv, call->count, call->count * size);
}

static sol_status_t reduce(sol_shm_t *s, const sol_call_t *call, size_t size)
{
    const void *own = contribution(s, call, call->send, call->count);
    if (s->rank != call->root) {
        return send_message(s, call->root, own, call->count * size);
    }
    return gather_and_reduce(s, call, own, call->recv, call->count, call->count * size);
}

/* Each block is scaled just before it is pushed: one area of scratch is enough. */
static sol_status_t reduce_scatter(sol_shm_t *s, const sol_call_t *call, size_t size)
{
    size_t bytes = call->count * size;
    for (int step = 1; step < s->nranks; step++) {
        int rank = sol_ring_next(s->rank, step, s->nranks);
        const void *block =
            contribution(s, call, sol_shm_at(call->send, bytes * (size_t)rank), call->count);
        sol_status_t status = send_message(s, rank, block, bytes);
        if (SOL_UNLIKELY(status != SOL_OK)) {
            return status;
        }
    }
    const void *own =
        contribution(s, call, sol_shm_at(call->send, bytes * (size_t)s->rank), call->count);
    return gather_and_reduce(s, call, own, call->recv, call->count, bytes);
}

/* ------------------------------------------------------------------------------ copies */

/* Receive a block from every peer to recv + rank * bytes. */
static sol_status_t recv_blocks(sol_shm_t *s, void *recv, size_t bytes)
{
    for (int step = 1; step < s->nranks; step++) {
        int rank = sol_ring_next(s->rank, step, s->nranks);
        void *to = sol_shm_at(recv, bytes * (size_t)rank);
        sol_status_t status = recv_message(s, rank, to, bytes);
        if (SOL_UNLIKELY(status != SOL_OK)) {
            return status;
        }
    }
    return SOL_OK;
}

static sol_status_t push_blocks(sol_shm_t *s, const void *send, size_t bytes)
{
    for (int step = 1; step < s->nranks; step++) {
        int rank = sol_ring_next(s->rank, step, s->nranks);
        sol_status_t status = send_message(s, rank, sol_shm_at(send, bytes * (size_t)rank), bytes);
        if (SOL_UNLIKELY(status != SOL_OK)) {
            return status;
        }
    }
    return SOL_OK;
}

static sol_status_t all_gather(sol_shm_t *s, const sol_call_t *call, size_t bytes)
{
    sol_status_t status = push_all(s, call->send, bytes);
    if (SOL_UNLIKELY(status != SOL_OK)) {
        return status;
    }
    copy_bytes(sol_shm_at(call->recv, bytes * (size_t)s->rank), call->send, bytes);
    return recv_blocks(s, call->recv, bytes);
}

static sol_status_t all_to_all(sol_shm_t *s, const sol_call_t *call, size_t bytes)
{
    sol_status_t status = push_blocks(s, call->send, bytes);
    if (SOL_UNLIKELY(status != SOL_OK)) {
        return status;
    }
    size_t own = bytes * (size_t)s->rank;
    copy_bytes(sol_shm_at(call->recv, own), sol_shm_at(call->send, own), bytes);
    return recv_blocks(s, call->recv, bytes);
}

static sol_status_t broadcast(sol_shm_t *s, const sol_call_t *call, size_t bytes)
{
    if (s->rank != call->root) {
        return recv_message(s, call->root, call->recv, bytes);
    }
    sol_status_t status = push_all(s, call->send, bytes);
    copy_bytes(call->recv, call->send, bytes);
    return status;
}

static sol_status_t gather(sol_shm_t *s, const sol_call_t *call, size_t bytes)
{
    if (s->rank != call->root) {
        return send_message(s, call->root, call->send, bytes);
    }
    copy_bytes(sol_shm_at(call->recv, bytes * (size_t)s->rank), call->send, bytes);
    return recv_blocks(s, call->recv, bytes);
}

static sol_status_t scatter(sol_shm_t *s, const sol_call_t *call, size_t bytes)
{
    if (s->rank != call->root) {
        return recv_message(s, call->root, call->recv, bytes);
    }
    sol_status_t status = push_blocks(s, call->send, bytes);
    copy_bytes(call->recv, sol_shm_at(call->send, bytes * (size_t)s->rank), bytes);
    return status;
}

static sol_status_t barrier(sol_shm_t *s)
{
    sol_status_t status = push_all(s, NULL, 0);
    for (int step = 1; step < s->nranks && status == SOL_OK; step++) {
        status = recv_message(s, sol_ring_next(s->rank, step, s->nranks), NULL, 0);
    }
    return status;
}

sol_status_t sol_shm_run_small(sol_shm_t *s, const sol_call_t *call)
{
    size_t size = sol_dtype_size(call->dtype);
    switch (call->func) {
    case SOL_FUNC_ALL_REDUCE:
        return all_reduce(s, call, size);
    case SOL_FUNC_REDUCE:
        return reduce(s, call, size);
    case SOL_FUNC_REDUCE_SCATTER:
        return reduce_scatter(s, call, size);
    case SOL_FUNC_ALL_GATHER:
        return all_gather(s, call, call->count * size);
    case SOL_FUNC_ALL_TO_ALL:
        return all_to_all(s, call, call->count * size);
    case SOL_FUNC_BROADCAST:
        return broadcast(s, call, call->count * size);
    case SOL_FUNC_GATHER:
        return gather(s, call, call->count * size);
    case SOL_FUNC_SCATTER:
        return scatter(s, call, call->count * size);
    case SOL_FUNC_SEND:
        return sol_shm_send_lines(s, call->root, s->sig, call->send, call->count * size);
    case SOL_FUNC_RECV:
        return sol_shm_recv_lines(s, call->root, s->sig, call->recv, call->count * size);
    case SOL_FUNC_BARRIER:
        return barrier(s);
    default:
        return sol_shm_fail(s, SOL_ERR_INTERNAL, "%s has no protocol over lines",
                            sol_func_name(call->func));
    }
}

/* ------------------------------------------------------------- all_reduce in two steps
 *
 * Each rank reduces one share and pushes the result: 2 * (n-1)/n of the data a rank instead of
 * n - 1 times it, for one latency more. The shares of n <= 2 gain nothing by it. */

static sol_status_t push_shares(sol_shm_t *s, const sol_call_t *call, size_t size)
{
    for (int step = 1; step < s->nranks; step++) {
        int rank = sol_ring_next(s->rank, step, s->nranks);
        sol_range_t share = sol_share(call->count, 1, s->nranks, rank);
        size_t count = sol_range_count(share);
        const void *part = contribution(s, call, sol_shm_at(call->send, share.begin * size), count);
        sol_status_t status = send_message(s, rank, part, count * size);
        if (SOL_UNLIKELY(status != SOL_OK)) {
            return status;
        }
    }
    return SOL_OK;
}

sol_status_t sol_shm_run_small_two(sol_shm_t *s, const sol_call_t *call)
{
    size_t size = sol_dtype_size(call->dtype);
    sol_status_t status = push_shares(s, call, size);
    if (SOL_UNLIKELY(status != SOL_OK)) {
        return status;
    }
    sol_range_t share = sol_share(call->count, 1, s->nranks, s->rank);
    size_t count = sol_range_count(share);
    unsigned char *result = sol_shm_at(call->recv, share.begin * size);
    const void *own = contribution(s, call, sol_shm_at(call->send, share.begin * size), count);
    status = gather_and_reduce(s, call, own, result, count, count * size);
    if (status == SOL_OK) {
        status = push_all(s, result, count * size);
    }
    for (int step = 1; step < s->nranks && status == SOL_OK; step++) {
        int rank = sol_ring_next(s->rank, step, s->nranks);
        sol_range_t theirs = sol_share(call->count, 1, s->nranks, rank);
        unsigned char *to = sol_shm_at(call->recv, theirs.begin * size);
        status = recv_message(s, rank, to, sol_range_count(theirs) * size);
    }
    return status;
}

/* -------------------------------------------------------------------- one rank, no peer */

static void reduce_alone(const sol_shm_t *s, const sol_call_t *call, const void *src)
{
    const unsigned mode = sol_fp_enter();
    s->reduce[call->dtype][call->reduction.op](call->recv, &src, 1, call->count);
    sol_fp_leave(mode);
}

sol_status_t sol_shm_run_alone(sol_shm_t *s, const sol_call_t *call)
{
    size_t size = sol_dtype_size(call->dtype);
    const void *src = call->send;
    switch (call->func) {
    case SOL_FUNC_ALL_REDUCE:
    case SOL_FUNC_REDUCE:
    case SOL_FUNC_REDUCE_SCATTER:
        if (call->count == 0) {
            return SOL_OK;
        }
        if (call->reduction.premul) {
            s->scale[call->dtype](call->recv, src, call->reduction.scalar.immediate, call->count);
            src = call->recv;
        }
        reduce_alone(s, call, src);
        return SOL_OK;
    case SOL_FUNC_ALL_TO_ALL_V:
        copy_bytes(sol_shm_at(call->recv, call->recvdispls[0] * size),
                   sol_shm_at(call->send, call->senddispls[0] * size), call->sendcounts[0] * size);
        return SOL_OK;
    case SOL_FUNC_BARRIER:
        return SOL_OK;
    default:
        copy_bytes(call->recv, src, call->count * size);
        return SOL_OK;
    }
}
