/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_share.c: large reductions, shared out: each rank reduces one share of
 * the data from all contributions, in rounds.
 *
 *     round       0              1              2
 *     stage       A0 A1          A2             -          copy in what others will read
 *     reduce      from A0        from A1        from A2    own share -> result (B0, B1, B2)
 *     copy out    -              B0             B1   B2    the others' shares
 *
 * all_reduce does all three; reduce copies out on the root only;
 * reduce_scatter has no results to copy.
 *
 * Contributions that peers can read where they lie (shm_window.c) are not
 * staged, results neither; then a result's line says only that it is there.
 *
 * Order. Every rank does the steps in the order of the figure, left to right
 * and top to bottom, and a pipe carries header, A0, A1, B0, A2, B1, ... in just
 * the order in which the reader consumes them. Each step waits only for steps
 * of peers that come earlier in that order (reduce t for stage t; copy out t
 * for reduce t; a slot for the reading of a chunk two rounds back), so the
 * earliest unfinished step can always be done: no deadlock.
 *
 * In place. Element i of share p is staged before copy-out t overwrites it, or,
 * read where it lies, is read by rank p only, whose result line comes after.
 */
#include "backend/shm/shm.h"
#include "coll/fpmode.h"
#include "coll/shares.h"

#define BLOCK_BYTES 8192u /* with as much of two sources, most of a first-level cache */

typedef struct sharing {
    sol_shm_t *s;
    const sol_call_t *call;
    size_t size;  /* bytes of an element */
    size_t chunk; /* elements of a share in one round */
    size_t rounds;
    bool blocks;       /* share r is block r of the send buffer, recv holds one block */
    bool stage;        /* my contribution is staged */
    bool stage_result; /* and so is my result */
    uint64_t takers;   /* ranks that copy results out */
    sol_shm_way way;   /* how this rank's data is made readable */
    bool past;         /* results pass by the cache */
    sol_shm_header_t headers[SOL_MAX_RANKS]; /* of the peers */
} sharing_t;

/* ---------------------------------------------------------------------------- geometry */

static sol_range_t share_of(const sharing_t *h, int rank)
{
    if (h->blocks) {
        size_t begin = h->call->count * (size_t)rank;
        return (sol_range_t){begin, begin + h->call->count};
    }
    return sol_share(h->call->count, SOL_CACHE_LINE / h->size, h->s->nranks, rank);
}

static sol_range_t part_of(const sharing_t *h, int rank, size_t round)
{
    return sol_chunk(share_of(h, rank), h->chunk, round);
}

/* Where reader's part lies in a slot of `owner`: the owner's own part is not there. */
static size_t slot_offset(const sharing_t *h, int owner, int reader)
{
    return (size_t)(reader < owner ? reader : reader - 1) * h->chunk * h->size;
}

/* Where the element that begins a part of this rank's own share has its result. */
static unsigned char *result_at(const sharing_t *h, sol_range_t part)
{
    size_t first = h->blocks ? part.begin - share_of(h, h->s->rank).begin : part.begin;
    return sol_shm_at(h->call->recv, first * h->size);
}

static uint64_t others(const sol_shm_t *s)
{
    uint64_t all = s->nranks == 64 ? ~0ull : (1ull << s->nranks) - 1;
    return all & ~(1ull << s->rank);
}

static void set_up(sharing_t *h, sol_shm_t *s, const sol_call_t *call)
{
    sol_func_t func = call->func;
    h->s = s;
    h->call = call;
    h->size = sol_dtype_size(call->dtype);
    h->blocks = func == SOL_FUNC_REDUCE_SCATTER;
    size_t share = sol_range_count(share_of(h, 0));
    bool wide = share * h->size >= 2 * s->limits.wide; /* alike on all ranks, not a matter of way */
    h->chunk = (wide ? s->limits.wide : s->limits.round) / h->size;
    h->rounds = sol_chunk_count(share_of(h, 0), h->chunk);
    h->takers = 0;
    if (func == SOL_FUNC_ALL_REDUCE) {
        h->takers = others(s) | 1ull << s->rank;
    } else if (func == SOL_FUNC_REDUCE) {
        h->takers = 1ull << call->root;
    }
}

/* ------------------------------------------------------------------------------- lines */

static sol_status_t push_line(sol_shm_t *s, int rank, const void *content, size_t bytes)
{
    return sol_shm_send_lines(s, rank, s->sig, content, bytes);
}

/* Chunk `line` to every rank of `readers`, in ring order. */
static sol_status_t announce(sol_shm_t *s, uint64_t readers, sol_shm_chunk_t *line)
{
    for (int step = 1; step < s->nranks; step++) {
        int rank = sol_ring_next(s->rank, step, s->nranks);
        if ((readers >> rank & 1) == 0) {
            continue;
        }
        line->heard = sol_shm_chunks_read(s, rank);
        sol_status_t status = push_line(s, rank, line, sizeof(*line));
        if (status != SOL_OK) {
            return status;
        }
    }
    return SOL_OK;
}

static sol_status_t next_chunk(sol_shm_t *s, int rank, sol_shm_chunk_t *line)
{
    sol_status_t status = sol_shm_recv_lines(s, rank, s->sig, line, sizeof(*line));
    if (status == SOL_OK) {
        sol_staging_heard(&s->staging, rank, line->heard);
    }
    return status;
}

/* ------------------------------------------------------------------------------ headers */

static bool shows(const sol_shm_header_t *header)
{
    return header->send.mode != SOL_SHM_STAGED || header->result.mode != SOL_SHM_STAGED;
}

static sol_status_t push_headers(sharing_t *h)
{
    sol_shm_t *s = h->s;
    const sol_call_t *call = h->call;
    size_t share_bytes = sol_range_count(share_of(h, 0)) * h->size;
    size_t whole = share_bytes * (h->blocks ? (size_t)s->nranks : 1);
    sol_shm_header_t header = {0};
    if (!call->reduction.premul) {
        header.send = sol_shm_place(s, call->send, h->blocks ? whole : call->count * h->size,
                                    h->way == SOL_SHM_SHOW);
    }
    if ((h->takers >> s->rank & 1) != 0 && h->takers != 1ull << s->rank) {
        header.result = sol_shm_place(s, call->recv, call->count * h->size, h->way == SOL_SHM_SHOW);
    }
    h->stage = header.send.mode == SOL_SHM_STAGED;
    h->stage_result = header.result.mode == SOL_SHM_STAGED;
    for (int step = 1; step < s->nranks; step++) {
        int rank = sol_ring_next(s->rank, step, s->nranks);
        s->peers[rank].directs_shown += shows(&header);
        sol_status_t status = push_line(s, rank, &header, sizeof(header));
        if (status != SOL_OK) {
            return status;
        }
    }
    return SOL_OK;
}

static sol_status_t take_headers(sharing_t *h)
{
    sol_shm_t *s = h->s;
    for (int step = 1; step < s->nranks; step++) {
        int rank = sol_ring_next(s->rank, step, s->nranks);
        sol_status_t status =
            sol_shm_recv_lines(s, rank, s->sig, &h->headers[rank], sizeof(h->headers[rank]));
        if (status != SOL_OK) {
            return status;
        }
    }
    return SOL_OK;
}

/* -------------------------------------------------------------------------------- steps */

static sol_status_t stage(sharing_t *h, size_t round)
{
    sol_shm_t *s = h->s;
    const sol_call_t *call = h->call;
    int slot;
    if (!h->stage || round >= h->rounds) {
        return SOL_OK;
    }
    sol_status_t status = sol_shm_await_slot(s, &slot);
    if (status != SOL_OK) {
        return status;
    }
    unsigned char *base = sol_staging_slot(&s->staging, slot);
    for (int step = 1; step < s->nranks; step++) {
        int rank = sol_ring_next(s->rank, step, s->nranks);
        sol_range_t part = part_of(h, rank, round);
        size_t count = sol_range_count(part);
        unsigned char *to = base + slot_offset(h, s->rank, rank);
        const unsigned char *from = sol_shm_at(call->send, part.begin * h->size);
        if (count == 0) {
            continue;
        }
        if (call->reduction.premul) {
            s->scale[call->dtype](to, from, call->reduction.scalar.immediate, count);
        } else {
            sol_shm_stage_copy(h->way, to, from, count * h->size);
        }
    }
    sol_shm_chunk_t line = {.slot = (uint32_t)slot, .staged = 1};
    line.chunk = sol_staging_take(&s->staging, slot, others(s));
    return announce(s, others(s), &line);
}

/* One contribution to this rank's part: where it can be read here. */
static sol_status_t source(sharing_t *h, int rank, sol_range_t part, sol_shm_chunk_t *line,
                           const void **at)
{
    sol_shm_t *s = h->s;
    const sol_shm_place_t *place = &h->headers[rank].send;
    size_t offset = part.begin * h->size, bytes = sol_range_count(part) * h->size;
    if (place->mode == SOL_SHM_STAGED) {
        sol_status_t status = next_chunk(s, rank, line);
        *at = sol_shm_staged_at(s, rank, line) + slot_offset(h, rank, s->rank);
        return status;
    }
    const unsigned char *direct = sol_shm_pointer(s, rank, place);
    if (direct != NULL) {
        *at = direct + offset;
        return sol_shm_read_begin(s, rank);
    }
    unsigned char *area = s->scratch + s->scratch_bytes * (size_t)rank;
    *at = area;
    return sol_shm_read_place(s, rank, place, offset, area, bytes);
}

static sol_status_t source_done(sharing_t *h, int rank, const sol_shm_chunk_t *line)
{
    if (h->headers[rank].send.mode == SOL_SHM_STAGED) {
        sol_shm_chunk_read(h->s, rank, line->chunk);
        return SOL_OK;
    }
    return sol_shm_read_end(h->s, rank);
}

static const void *own_source(sharing_t *h, sol_range_t part)
{
    sol_shm_t *s = h->s;
    const unsigned char *own = sol_shm_at(h->call->send, part.begin * h->size);
    if (!h->call->reduction.premul) {
        return own;
    }
    unsigned char *area = s->scratch + s->scratch_bytes * (size_t)s->rank;
    s->scale[h->call->dtype](area, own, h->call->reduction.scalar.immediate, sol_range_count(part));
    return area;
}

/* Where a part's results go; either may be NULL. */
typedef struct outputs {
    unsigned char *result; /* the own receive buffer */
    unsigned char *slot;   /* for those who copy it out */
} outputs_t;

/* Reduce a part in blocks that stay in the first-level cache until they are in both places. */
static void reduce_blocks(const sharing_t *h, const void *const *srcs, size_t count,
                          const outputs_t *out)
{
    alignas(SOL_CACHE_LINE) unsigned char block[BLOCK_BYTES];
    const sol_shm_t *s = h->s;
    sol_reduce_fn reduce = s->reduce[h->call->dtype][h->call->reduction.op];
    const void *at[SOL_MAX_RANKS];
    const unsigned mode = sol_fp_enter();
    for (size_t done = 0; done < count;) {
        size_t some = count - done < BLOCK_BYTES / h->size ? count - done : BLOCK_BYTES / h->size;
        size_t offset = done * h->size, bytes = some * h->size;
        unsigned char *to = h->past || out->result == NULL ? block : out->result + offset;
        for (int rank = 0; rank < s->nranks; rank++) {
            at[rank] = (const unsigned char *)srcs[rank] + offset;
        }
        reduce(to, at, s->nranks, some);
        if (out->slot != NULL) {
            sol_shm_stage_copy(h->way, out->slot + offset, to, bytes);
        }
        if (to == block && out->result != NULL) {
            sol_copy_stream(out->result + offset, block, bytes);
        }
        done += some;
    }
    sol_fp_leave(mode);
}

static sol_status_t reduce_part(sharing_t *h, sol_range_t part, const outputs_t *out)
{
    sol_shm_t *s = h->s;
    const void *srcs[SOL_MAX_RANKS];
    sol_shm_chunk_t lines[SOL_MAX_RANKS];
    sol_status_t status = SOL_OK;
    size_t count = sol_range_count(part);
    for (int step = 1; step < s->nranks && status == SOL_OK; step++) {
        int rank = sol_ring_next(s->rank, step, s->nranks);
        status = source(h, rank, part, &lines[rank], &srcs[rank]);
    }
    if (status != SOL_OK) {
        return status;
    }
    if (count > 0) {
        srcs[s->rank] = own_source(h, part);
        reduce_blocks(h, srcs, count, out);
    }
    for (int rank = 0; rank < s->nranks && status == SOL_OK; rank++) {
        if (rank != s->rank) {
            status = source_done(h, rank, &lines[rank]);
        }
    }
    return status;
}

static sol_status_t reduce_round(sharing_t *h, size_t round)
{
    sol_shm_t *s = h->s;
    sol_range_t part = part_of(h, s->rank, round);
    uint64_t readers = h->takers & others(s);
    sol_shm_chunk_t line = {.bytes = sol_range_count(part) * h->size, .staged = h->stage_result};
    outputs_t out = {NULL, NULL};
    sol_status_t status = SOL_OK;
    if (h->blocks || (h->takers >> s->rank & 1) != 0) {
        out.result = result_at(h, part);
    }
    if (h->stage_result && readers != 0) {
        int slot;
        status = sol_shm_await_slot(s, &slot);
        if (status != SOL_OK) {
            return status;
        }
        line.slot = (uint32_t)slot;
        out.slot = sol_staging_slot(&s->staging, slot);
    }
    status = reduce_part(h, part, &out);
    if (status != SOL_OK || readers == 0) {
        return status;
    }
    if (h->stage_result) {
        line.chunk = sol_staging_take(&s->staging, (int)line.slot, readers);
    }
    return announce(s, readers, &line);
}

static sol_status_t copy_out(sharing_t *h, size_t round)
{
    sol_shm_t *s = h->s;
    if ((h->takers >> s->rank & 1) == 0) {
        return SOL_OK;
    }
    for (int step = 1; step < s->nranks; step++) {
        int rank = sol_ring_next(s->rank, step, s->nranks);
        sol_range_t part = part_of(h, rank, round);
        size_t bytes = sol_range_count(part) * h->size;
        unsigned char *to = sol_shm_at(h->call->recv, part.begin * h->size);
        sol_shm_chunk_t line;
        sol_status_t status = next_chunk(s, rank, &line);
        if (status == SOL_OK && line.staged) {
            sol_shm_stage_copy(h->past ? SOL_SHM_PASS : SOL_SHM_KEEP, to,
                               sol_shm_staged_at(s, rank, &line), bytes);
            sol_shm_chunk_read(s, rank, line.chunk);
        } else if (status == SOL_OK) {
            status = sol_shm_read_place(s, rank, &h->headers[rank].result, part.begin * h->size, to,
                                        bytes);
        }
        if (status != SOL_OK) {
            return status;
        }
    }
    return SOL_OK;
}

/* All that was shown has been read, here and by the others. */
static sol_status_t finish(sharing_t *h)
{
    sol_shm_t *s = h->s;
    for (int rank = 0; rank < s->nranks; rank++) {
        if (rank != s->rank && shows(&h->headers[rank])) {
            sol_shm_directs_done(s, rank);
        }
    }
    for (int rank = 0; rank < s->nranks && !(h->stage && h->stage_result); rank++) {
        sol_status_t status = rank == s->rank ? SOL_OK : sol_shm_await_directs(s, rank);
        if (status != SOL_OK) {
            return status;
        }
    }
    return SOL_OK;
}

sol_status_t sol_shm_run_shared(sol_shm_t *s, const sol_call_t *call)
{
    sharing_t h;
    memset(&h, 0, sizeof(h));
    set_up(&h, s, call);
    sol_shm_tuned_t tuned = sol_shm_tune_begin(s, call, call->count * h.size, SOL_SHM_TUNE_ALL);
    h.way = tuned.way;
    h.past = tuned.own_past;
    if (h.way == SOL_SHM_WIDE) {
        sol_staging_spread(&s->staging, sol_range_count(part_of(&h, 0, 0)) * h.size);
    }
    sol_status_t status = push_headers(&h);
    if (status == SOL_OK) {
        status = stage(&h, 0);
    }
    if (status == SOL_OK) {
        status = take_headers(&h);
    }
    for (size_t t = 0; t < h.rounds && status == SOL_OK; t++) {
        status = stage(&h, t + 1);
        if (status == SOL_OK) {
            status = reduce_round(&h, t);
        }
        if (status == SOL_OK && t > 0) {
            status = copy_out(&h, t - 1);
        }
    }
    if (status == SOL_OK) {
        status = copy_out(&h, h.rounds - 1);
    }
    if (status == SOL_OK) {
        status = finish(&h);
    }
    sol_staging_spread(&s->staging, 0);
    sol_shm_tune_end(s);
    return status;
}
