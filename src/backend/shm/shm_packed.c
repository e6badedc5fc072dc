/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_packed.c: collectives whose data travels packed: written once to a
 * staging slot of the sender (proto/staging.h), announced by one line to each
 * reader, read where it lies. As over lines, everybody shows what others need,
 * then waits for what it needs: one one-way latency, no barrier.
 *
 *     rank 0:  slot <- x0   line -> 1, 2   await 1, 2   reduce x0 + slot of 1 + slot of 2
 *     rank 1:  slot <- x1   line -> 2, 0   await 2, 0   ...
 *
 * Against lines: a tag for the whole instead of one in each 64 bytes, so the
 * payload moves at the speed of memcpy and the hardware's prefetchers, and one
 * write for all readers. Against shm_share and shm_stream: no header, no
 * second step. A slot holds one block a reader, or one that all readers want.
 *
 * Between two ranks what fits a cell (proto/cell.h) goes there instead: its
 * flag lies beside the data, one miss where line and slot are two after another.
 *
 * Slots come back without a look at the readers' memory where each rank hears
 * from each (a line says how far its sender has read), so two of them alternate
 * and stay in the first-level cache.
 *
 * A slot is waited for as in shm_small.c: the rank furthest behind, in call k,
 * has shown only what the others have read in calls before k, so all its slots
 * are free. It can always go on, and complete.
 *
 * In place: all that is read from a buffer is staged before it is written.
 */
#include "backend/shm/shm.h"
#include "coll/fpmode.h"
#include "coll/shares.h"

/* The next slot is fetched for writing while the message travels: below, one miss more or less
 * does not pay for the instructions; above, it takes the caches from the data under way. */
#define WARM_LEAST 2048u
#define WARM_MOST 8192u

#define PIECE_BYTES 1024u /* reduced while as much is on its way ... */
#define AHEAD_MOST 4096u  /* ... up to here: beyond, the hardware's prefetchers do better; ... */
#define AHEAD_FAR 32768u  /* ... or here, where they do not (CPUs that demote) */

typedef struct packed {
    sol_shm_t *s;
    const sol_call_t *call;
    size_t size, bytes; /* of an element; of a block */
    size_t stride;      /* from one reader's block in a slot to the next's; 0: the same for all */
    sol_shm_way way;
    const unsigned char *slot; /* the own one, once it is filled */
} packed_t;

static uint64_t others(const sol_shm_t *s)
{
    uint64_t all = s->nranks == 64 ? ~0ull : (1ull << s->nranks) - 1;
    return all & ~(1ull << s->rank);
}

/* Where the block for `reader` lies in a slot of `owner`. */
static size_t block_at(const packed_t *p, int owner, int reader)
{
    return (size_t)(reader < owner ? reader : reader - 1) * p->stride;
}

static void put(const packed_t *p, unsigned char *to, const unsigned char *from)
{
    const sol_call_t *call = p->call;
    if (SOL_UNLIKELY(call->reduction.premul)) {
        p->s->scale[call->dtype](to, from, call->reduction.scalar.immediate, call->count);
    } else {
        sol_shm_stage_copy(p->way, to, from, p->bytes);
    }
}

/* -------------------------------------------------------------------------------- sending */

static sol_status_t announce(packed_t *p, uint64_t readers, sol_shm_chunk_t *line)
{
    sol_shm_t *s = p->s;
    for (int step = 1; step < s->nranks; step++) {
        int rank = sol_ring_next(s->rank, step, s->nranks);
        if ((readers >> rank & 1) == 0) {
            continue;
        }
        line->heard = sol_shm_chunks_read(s, rank);
        sol_status_t status = sol_shm_send_lines(s, rank, s->sig, line, sizeof(*line));
        if (SOL_UNLIKELY(status != SOL_OK)) {
            return status;
        }
    }
    return SOL_OK;
}

/* The same to the only other rank by a cell, if one is free. */
static bool show_in_cell(packed_t *p, const void *from)
{
    sol_shm_t *s = p->s;
    int rank = 1 - s->rank;
    unsigned char *to = sol_shm_cell_open(s, rank, p->bytes);
    if (to == NULL) {
        return false;
    }
    put(p, to, sol_shm_at(from, p->stride ? p->bytes * (size_t)rank : 0));
    p->slot = to;
    sol_shm_cell_push(s, rank, p->bytes);
    return true;
}

/* Show to each of `readers` its block of `from` (all of `from` where the stride is 0). */
static sol_status_t show(packed_t *p, uint64_t readers, const void *from)
{
    sol_shm_t *s = p->s;
    int slot;
    if (s->nranks == 2 && show_in_cell(p, from)) {
        return SOL_OK;
    }
    sol_status_t status = sol_shm_await_slot(s, &slot);
    if (SOL_UNLIKELY(status != SOL_OK)) {
        return status;
    }
    unsigned char *to = sol_staging_slot(&s->staging, slot);
    if (p->stride == 0) {
        put(p, to, from);
    } else {
        for (uint64_t left = readers; left != 0; left &= left - 1) {
            int rank = __builtin_ctzll(left);
            put(p, to + block_at(p, s->rank, rank), sol_shm_at(from, p->bytes * (size_t)rank));
        }
    }
    p->slot = to;
    sol_shm_chunk_t line = {.bytes = p->bytes, .slot = (uint32_t)slot, .staged = 1};
    line.chunk = sol_staging_take(&s->staging, slot, readers);
    status = announce(p, readers, &line);
    if (p->way == SOL_SHM_KEEP && p->bytes >= WARM_LEAST && p->bytes <= WARM_MOST) {
        sol_staging_warm(&s->staging,
                         p->stride == 0 ? p->bytes : p->stride * (size_t)(s->nranks - 1));
    }
    return status;
}

/* ------------------------------------------------------------------------------ receiving */

/* A message that has come. */
typedef struct block {
    bool in_cell;
    sol_shm_chunk_t line; /* if not */
} block_t;

/* Wait for the message of `rank`; *at is this rank's block in it, until `release`. */
static sol_status_t await_block(packed_t *p, int rank, block_t *block, const unsigned char **at)
{
    sol_shm_t *s = p->s;
    sol_shm_peer_t *peer = &s->peers[rank];
    sol_shm_chunk_t *line = &block->line;
    /* what will be written past this cache need not be brought here before */
    size_t here = p->way == SOL_SHM_KEEP ? p->bytes : SIZE_MAX;
    sol_status_t status = sol_shm_await_message(s, rank, s->sig, here, &block->in_cell);
    if (SOL_UNLIKELY(status != SOL_OK)) {
        return status;
    }
    if (block->in_cell) {
        sol_cell_hear(&peer->cells_in, &peer->cells_out);
        *at = sol_cell_read(&peer->cells_in, p->bytes);
        return SOL_OK;
    }
    memcpy(line, sol_line_payload(&peer->in), sizeof(*line));
    sol_line_pop(&peer->in);
    if (sol_line_tell_some(&peer->in)) {
        sol_shm_ring(s, peer);
    }
    sol_staging_heard(&s->staging, rank, line->heard);
    *at = sol_shm_staged_at(s, rank, line) + block_at(p, rank, s->rank);
    return SOL_OK;
}

static void release(packed_t *p, int rank, const block_t *block)
{
    if (block->in_cell) {
        sol_cell_pop(&p->s->peers[rank].cells_in);
    } else {
        sol_shm_chunk_read(p->s, rank, block->line.chunk);
    }
}

/* The block of `rank` to `to`. */
static sol_status_t take(packed_t *p, int rank, void *to)
{
    const unsigned char *at;
    block_t block;
    sol_status_t status = await_block(p, rank, &block, &at);
    if (SOL_LIKELY(status == SOL_OK)) {
        memcpy(to, at, p->bytes);
        release(p, rank, &block);
    }
    return status;
}

/* The blocks of all others to recv + rank * bytes. */
static sol_status_t take_all(packed_t *p, void *recv)
{
    sol_shm_t *s = p->s;
    sol_status_t status = SOL_OK;
    for (int step = 1; step < s->nranks && SOL_LIKELY(status == SOL_OK); step++) {
        int rank = sol_ring_next(s->rank, step, s->nranks);
        status = take(p, rank, sol_shm_at(recv, p->bytes * (size_t)rank));
    }
    return status;
}

/* Begin to bring bytes [at, at + PIECE_BYTES) of the others' blocks here. */
static void fetch(const packed_t *p, const void *const *srcs, size_t at)
{
    size_t end = at + PIECE_BYTES < p->bytes ? at + PIECE_BYTES : p->bytes;
    for (int rank = 0; rank < p->s->nranks; rank++) {
        for (size_t i = at; i < end && rank != p->s->rank; i += SOL_CACHE_LINE) {
            __builtin_prefetch((const unsigned char *)srcs[rank] + i, 0, 3);
        }
    }
}

/* Types that are converted leave a core no room to look far ahead: then the lines of the next piece
 * are asked for while this one is reduced. */
static void reduce_ahead(const packed_t *p, const void *const *srcs, void *dst)
{
    const sol_shm_t *s = p->s;
    const void *at[SOL_MAX_RANKS];
    sol_reduce_fn reduce = s->reduce[p->call->dtype][p->call->reduction.op];
    if (p->size > 2 || p->bytes > (s->demotes ? AHEAD_FAR : AHEAD_MOST)) {
        reduce(dst, srcs, s->nranks, p->call->count);
        return;
    }
    fetch(p, srcs, 0);
    for (size_t done = 0; done < p->bytes; done += PIECE_BYTES) {
        size_t bytes = p->bytes - done < PIECE_BYTES ? p->bytes - done : PIECE_BYTES;
        fetch(p, srcs, done + PIECE_BYTES);
        for (int rank = 0; rank < s->nranks; rank++) {
            at[rank] = (const unsigned char *)srcs[rank] + done;
        }
        reduce((unsigned char *)dst + done, at, s->nranks, bytes / p->size);
    }
}

/* Reduce the blocks of all others with `own` to dst. */
static sol_status_t reduce_messages(packed_t *p, const void *own, void *dst)
{
    sol_shm_t *s = p->s;
    const void *srcs[SOL_MAX_RANKS];
    block_t blocks[SOL_MAX_RANKS];
    srcs[s->rank] = own;
    for (int step = 1; step < s->nranks; step++) {
        int rank = sol_ring_next(s->rank, step, s->nranks);
        const unsigned char *at;
        sol_status_t status = await_block(p, rank, &blocks[rank], &at);
        if (SOL_UNLIKELY(status != SOL_OK)) {
            return status;
        }
        srcs[rank] = at;
    }
    reduce_ahead(p, srcs, dst);
    for (int rank = 0; rank < s->nranks; rank++) {
        if (rank != s->rank) {
            release(p, rank, &blocks[rank]);
        }
    }
    return SOL_OK;
}

/* The floating-point mode is read while the messages are on their way: afterwards it would hold up
 * the first looks at their lines. */
static sol_status_t reduce_all(packed_t *p, const void *own, void *dst)
{
    const unsigned mode = sol_fp_enter();
    sol_status_t status = reduce_messages(p, own, dst);
    sol_fp_leave(mode);
    return status;
}

/* ----------------------------------------------------------------------------- collectives */

static void copy_own(const packed_t *p, void *to, const void *from)
{
    if (to != from) {
        memcpy(to, from, p->bytes);
    }
}

/* This rank's contribution where it may not be in the own slot. */
static const void *contribution(packed_t *p, const void *from)
{
    sol_shm_t *s = p->s;
    if (SOL_LIKELY(!p->call->reduction.premul)) {
        return from;
    }
    unsigned char *scaled = s->scratch + s->scratch_bytes * (size_t)s->rank;
    put(p, scaled, from);
    return scaled;
}

static sol_status_t all_reduce(packed_t *p)
{
    sol_status_t status = show(p, others(p->s), p->call->send);
    if (SOL_UNLIKELY(status != SOL_OK)) {
        return status;
    }
    return reduce_all(p, p->call->reduction.premul ? p->slot : p->call->send, p->call->recv);
}

static sol_status_t reduce(packed_t *p)
{
    const sol_call_t *call = p->call;
    if (p->s->rank != call->root) {
        return show(p, 1ull << call->root, call->send);
    }
    return reduce_all(p, contribution(p, call->send), call->recv);
}

static sol_status_t reduce_scatter(packed_t *p)
{
    sol_status_t status = show(p, others(p->s), p->call->send);
    if (SOL_UNLIKELY(status != SOL_OK)) {
        return status;
    }
    const void *block = sol_shm_at(p->call->send, p->bytes * (size_t)p->s->rank);
    return reduce_all(p, contribution(p, block), p->call->recv);
}

/* all_gather and all_to_all. */
static sol_status_t exchange(packed_t *p)
{
    const sol_call_t *call = p->call;
    size_t mine = p->bytes * (size_t)p->s->rank;
    sol_status_t status = show(p, others(p->s), call->send);
    if (SOL_UNLIKELY(status != SOL_OK)) {
        return status;
    }
    copy_own(p, sol_shm_at(call->recv, mine), sol_shm_at(call->send, p->stride ? mine : 0));
    return take_all(p, call->recv);
}

/* broadcast and scatter. */
static sol_status_t from_root(packed_t *p)
{
    const sol_call_t *call = p->call;
    if (p->s->rank != call->root) {
        return take(p, call->root, call->recv);
    }
    sol_status_t status = show(p, others(p->s), call->send);
    size_t mine = p->stride ? p->bytes * (size_t)p->s->rank : 0;
    copy_own(p, call->recv, sol_shm_at(call->send, mine));
    return status;
}

static sol_status_t gather(packed_t *p)
{
    const sol_call_t *call = p->call;
    if (p->s->rank != call->root) {
        return show(p, 1ull << call->root, call->send);
    }
    copy_own(p, sol_shm_at(call->recv, p->bytes * (size_t)p->s->rank), call->send);
    return take_all(p, call->recv);
}

static sol_status_t run(packed_t *p)
{
    switch (p->call->func) {
    case SOL_FUNC_ALL_REDUCE:
        return all_reduce(p);
    case SOL_FUNC_REDUCE:
        return reduce(p);
    case SOL_FUNC_REDUCE_SCATTER:
        return reduce_scatter(p);
    case SOL_FUNC_ALL_GATHER:
    case SOL_FUNC_ALL_TO_ALL:
        return exchange(p);
    case SOL_FUNC_BROADCAST:
    case SOL_FUNC_SCATTER:
        return from_root(p);
    case SOL_FUNC_GATHER:
        return gather(p);
    default:
        return sol_shm_fail(p->s, SOL_ERR_INTERNAL, "%s is never packed",
                            sol_func_name(p->call->func));
    }
}

sol_status_t sol_shm_run_packed(sol_shm_t *s, const sol_call_t *call)
{
    packed_t p = {.s = s, .call = call, .size = sol_dtype_size(call->dtype)};
    bool apart = call->func == SOL_FUNC_REDUCE_SCATTER || call->func == SOL_FUNC_ALL_TO_ALL ||
                 call->func == SOL_FUNC_SCATTER;
    p.bytes = call->count * p.size;
    p.stride = apart ? sol_round_up(p.bytes, SOL_CACHE_LINE) : 0;
    p.way = sol_shm_tune_begin(s, call, p.bytes, SOL_SHM_TUNE_COPIES).way;
    sol_status_t status = run(&p);
    sol_shm_tune_end(s);
    return status;
}
