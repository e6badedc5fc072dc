/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_stream.c: transfers between pairs of ranks, any number at once, each
 * moved on whenever it can be and none waited for alone. Large copying
 * collectives, all_to_all_v and all sends and receives are sets of transfers.
 *
 * A transfer, sender's view: by size, which both sides know, it goes
 *   lines    payload lines in the pipe                        <= limits.line
 *   bulk     a header line, then what the header's place says:
 *     direct   nothing more: the reader copies from the place, then counts up
 *              `directs`, for which the sender waits
 *     staged   chunk lines, each with a staging slot to copy from
 *
 *     sender   header  chunk 0  chunk 1  ...            header  ........ wait
 *     reader           copy 0   copy 1   ... done = c+1         copy     directs++
 *
 * Order. Transfers of one pair and direction use the pipe one after another,
 * in the order of the calls, on both sides; a direct one lets the next begin
 * as soon as its header is out. Progress: a transfer can be stopped only by
 * its own pair's pipe or slots (a reader may hold only its part of the slots),
 * so a set completes if the peers make the matching calls in any order.
 *
 * In place (all_to_all): what arrives from a rank overwrites what goes to it,
 * so a receive stays behind its send, which is copied, not shown. Both sides of
 * a pair send chunk k before they need chunk k of the other, and each pair has
 * slots of its own, so they never wait for each other at once.
 *
 * One source may go to many ranks (all_gather, broadcast): it is staged once.
 *
 * Staged data goes in chunks well below a slot's size: the reader of the first
 * copies while the sender fills the next, and the few slots that a stream then
 * needs stay in the second-level cache. A rank's own block is copied along
 * with its chunks where both have one source (it is in the first-level cache
 * then), otherwise in the pauses.
 */
#include "backend/shm/shm.h"
#include "coll/shares.h"

/* A direct read moves at most this before others get a turn. */
#define STEP_BYTES ((size_t)4 << 20)
#define FEW 128 /* transfers that fit the stack */
/* Chunks where one side only sends and the other only receives: the first one's time is lost. */
#define ONE_WAY_CHUNK 16384u
#define ONE_WAY_SHORT 65536u /* below, half of that */
#define OWN_PIECE 262144u    /* of the own block, in a pause */

typedef enum { OPENING, MOVING, CLOSING, DONE } phase_t;

/* The copy of a rank's own block to its result. */
typedef struct own {
    unsigned char *to;
    const unsigned char *from;
    size_t bytes, done;
    bool past; /* the cache */
} own_t;

typedef struct transfer {
    const sol_call_t *call; /* for texts */
    unsigned char *data;
    size_t bytes, done;
    uint64_t ranks;   /* to whom, or from whom (one) */
    uint64_t missing; /* of those, who keeps it from moving on; set when a step did not */
    uint64_t ticket;  /* direct, one rank: value of its `directs` that completes it */
    uint32_t sig;
    sol_shm_way way; /* sending: how the data is made readable ... */
    size_t chunk;    /* ... and how much at a time where it is staged */
    phase_t phase;
    bool sending;
    bool past;                     /* receiving: what was staged is written past the cache */
    bool copied_only;              /* sending: never show the memory itself */
    own_t *own;                    /* sending: the own block has the same source */
    const struct transfer *behind; /* receiving in place: write only what this one has sent */
    uint32_t plan;                 /* of a send that is timed: 1 + its plan; else 0 */
    uint64_t begun_ns;             /* receiving such a one: since when */
    sol_shm_place_t place;
} transfer_t;

static int rank_of(const transfer_t *t)
{
    return __builtin_ctzll(t->ranks);
}

static bool by_lines(const sol_shm_t *s, const transfer_t *t)
{
    return t->bytes <= s->limits.line;
}

/* Copy up to `most` bytes more of the own block; is there anything left to do? */
static bool copy_own(own_t *own, size_t most)
{
    size_t bytes = own->bytes - own->done;
    bytes = bytes < most ? bytes : most;
    if (bytes == 0) {
        return false;
    }
    if (own->past) {
        sol_copy_stream(own->to + own->done, own->from + own->done, bytes);
    } else {
        memcpy(own->to + own->done, own->from + own->done, bytes);
    }
    own->done += bytes;
    return true;
}

/* ----------------------------------------------------------------------------- sending */

/* Room for one line to each receiver? */
static bool room_for_all(sol_shm_t *s, transfer_t *t)
{
    t->missing = 0;
    for (uint64_t ranks = t->ranks; ranks != 0; ranks &= ranks - 1) {
        int rank = __builtin_ctzll(ranks);
        if (sol_line_room(&s->peers[rank].out, 1) == 0) {
            t->missing |= 1ull << rank;
        }
    }
    return t->missing == 0;
}

static void push_header(sol_shm_t *s, const transfer_t *t, const sol_shm_header_t *header)
{
    for (int step = 1; step < s->nranks; step++) {
        int rank = sol_ring_next(s->rank, step, s->nranks);
        if ((t->ranks >> rank & 1) != 0) {
            sol_line_push(&s->peers[rank].out, t->sig, header, sizeof(*header));
            sol_shm_ring(s, &s->peers[rank]);
        }
    }
}

static void push_chunk(sol_shm_t *s, const transfer_t *t, sol_shm_chunk_t *line)
{
    for (int step = 1; step < s->nranks; step++) {
        int rank = sol_ring_next(s->rank, step, s->nranks);
        if ((t->ranks >> rank & 1) != 0) {
            line->heard = sol_shm_chunks_read(s, rank);
            sol_line_push(&s->peers[rank].out, t->sig, line, sizeof(*line));
            sol_shm_ring(s, &s->peers[rank]);
        }
    }
}

/* As many payload lines as there is room for. One receiver. */
static bool send_payload(sol_shm_t *s, transfer_t *t)
{
    sol_shm_peer_t *peer = &s->peers[rank_of(t)];
    size_t lines = sol_line_count(t->bytes - t->done);
    uint32_t room = sol_line_room(&peer->out, 1);
    size_t count = lines < room ? lines : room;
    for (size_t i = 0; i < count; i++) {
        size_t left = t->bytes - t->done;
        size_t part = left < SOL_LINE_PAYLOAD ? left : SOL_LINE_PAYLOAD;
        sol_line_push(&peer->out, t->sig, sol_shm_at(t->data, t->done), part);
        t->done += part;
    }
    if (count == lines) {
        t->phase = DONE;
    }
    if (count > 0) {
        sol_shm_ring(s, peer);
    }
    return count > 0;
}

static bool send_header(sol_shm_t *s, transfer_t *t)
{
    if (!room_for_all(s, t)) {
        return false;
    }
    sol_shm_header_t header = {.plan = t->plan};
    if (!t->copied_only) {
        header.send = sol_shm_place(s, t->data, t->bytes, t->way == SOL_SHM_SHOW);
    }
    t->place = header.send;
    t->phase = MOVING;
    if (t->place.mode != SOL_SHM_STAGED) {
        for (uint64_t left = t->ranks; left != 0; left &= left - 1) {
            t->ticket = ++s->peers[__builtin_ctzll(left)].directs_shown;
        }
        t->phase = CLOSING;
    }
    push_header(s, t, &header);
    return true;
}

static bool send_chunk(sol_shm_t *s, transfer_t *t)
{
    uint64_t pending;
    unsigned part = s->staging.count / (unsigned)(s->nranks > 2 ? s->nranks - 1 : 1);
    int slot = sol_staging_find(&s->staging, s->chunk_done, &pending);
    bool one = (t->ranks & (t->ranks - 1)) == 0;
    if (slot < 0) {
        t->missing = pending; /* perhaps readers of an earlier operation's chunks */
        return false;
    }
    if (!room_for_all(s, t)) {
        return false;
    }
    if (one && sol_staging_held(&s->staging, s->chunk_done, t->ranks) >= (part > 1 ? part : 1)) {
        t->missing = t->ranks;
        return false;
    }
    size_t bytes = t->bytes - t->done;
    bytes = bytes < t->chunk ? bytes : t->chunk;
    sol_shm_stage_copy(t->way, sol_staging_slot(&s->staging, slot), t->data + t->done, bytes);
    sol_shm_chunk_t line = {.bytes = bytes, .slot = (uint32_t)slot, .staged = 1};
    line.chunk = sol_staging_take(&s->staging, slot, t->ranks);
    push_chunk(s, t, &line);
    t->done += bytes;
    if (t->own != NULL) {
        copy_own(t->own, bytes);
    }
    if (t->done == t->bytes) {
        t->phase = DONE; /* the slots are waited for by who wants them next */
    }
    return true;
}

/* Have all receivers read it? With many receivers it is their only transfer: the last shown. */
static bool send_close(sol_shm_t *s, transfer_t *t)
{
    bool one = (t->ranks & (t->ranks - 1)) == 0;
    t->missing = 0;
    for (uint64_t left = t->ranks; left != 0; left &= left - 1) {
        int rank = __builtin_ctzll(left);
        sol_shm_peer_t *peer = &s->peers[rank];
        uint64_t ticket = one ? t->ticket : peer->directs_shown;
        /* acquire: pairs with the release in sol_shm_directs_done */
        uint64_t directs = atomic_load_explicit(&peer->its_ack->directs, memory_order_acquire);
        if ((int64_t)(directs - ticket) < 0) {
            t->missing |= 1ull << rank;
        }
    }
    if (t->missing != 0) {
        return false;
    }
    t->phase = DONE;
    return true;
}

static bool step_send(sol_shm_t *s, transfer_t *t)
{
    if (t->phase == CLOSING) {
        return send_close(s, t);
    }
    if (by_lines(s, t)) {
        return send_payload(s, t);
    }
    return t->phase == OPENING ? send_header(s, t) : send_chunk(s, t);
}

/* --------------------------------------------------------------------------- receiving */

/* How many bytes from the start may be written already? */
static size_t writable(const transfer_t *t)
{
    return t->behind == NULL ? t->bytes : t->behind->done;
}

/* The next line of this transfer, if it is there. */
static sol_status_t poll_line(sol_shm_t *s, const transfer_t *t, const unsigned char **payload)
{
    uint64_t tag;
    int rank = rank_of(t);
    sol_line_state state = sol_line_peek(&s->peers[rank].in, 0, t->sig, &tag);
    *payload = NULL;
    if (state == SOL_LINE_OTHER) {
        s->call = t->call;
        return sol_shm_fail_line(s, rank, t->sig, tag);
    }
    if (state == SOL_LINE_VALID) {
        *payload = sol_line_payload(&s->peers[rank].in);
    }
    return SOL_OK;
}

static void pop_line(sol_shm_t *s, int rank)
{
    sol_line_pop(&s->peers[rank].in);
    if (sol_line_tell_some(&s->peers[rank].in)) {
        sol_shm_ring(s, &s->peers[rank]);
    }
}

static sol_status_t recv_payload(sol_shm_t *s, transfer_t *t, bool *moved)
{
    const unsigned char *payload;
    sol_status_t status;
    while ((status = poll_line(s, t, &payload)) == SOL_OK && payload != NULL) {
        size_t left = t->bytes - t->done;
        size_t part = left < SOL_LINE_PAYLOAD ? left : SOL_LINE_PAYLOAD;
        if (t->done + part > writable(t)) {
            break;
        }
        sol_line_copy(sol_shm_at(t->data, t->done), payload, part);
        pop_line(s, rank_of(t));
        t->done += part;
        *moved = true;
        if (t->done == t->bytes) {
            t->phase = DONE;
            break;
        }
    }
    return status;
}

static sol_status_t recv_direct(sol_shm_t *s, transfer_t *t, bool *moved)
{
    int rank = rank_of(t);
    size_t left = writable(t) - t->done;
    size_t part = left < STEP_BYTES ? left : STEP_BYTES;
    if (part == 0) {
        return SOL_OK;
    }
    *moved = true;
    sol_status_t status = sol_shm_read_place(s, rank, &t->place, t->done, t->data + t->done, part);
    t->done += part;
    if (status == SOL_OK && t->done == t->bytes) {
        sol_shm_directs_done(s, rank);
        t->phase = DONE;
    }
    return status;
}

static void recv_chunk(sol_shm_t *s, transfer_t *t, const unsigned char *payload, bool *moved)
{
    int rank = rank_of(t);
    sol_shm_chunk_t line;
    memcpy(&line, payload, sizeof(line));
    size_t left = t->bytes - t->done;
    size_t bytes = line.bytes < left ? line.bytes : left;
    if (t->done + bytes > writable(t)) {
        return;
    }
    *moved = true;
    sol_shm_stage_copy(t->past ? SOL_SHM_PASS : SOL_SHM_KEEP, t->data + t->done,
                       sol_shm_staged_at(s, rank, &line), bytes);
    sol_shm_chunk_read(s, rank, line.chunk);
    sol_staging_heard(&s->staging, rank, line.heard);
    pop_line(s, rank);
    t->done += bytes;
    if (t->done == t->bytes) {
        t->phase = DONE;
    }
}

static sol_status_t step_recv(sol_shm_t *s, transfer_t *t, bool *moved)
{
    const unsigned char *payload;
    if (by_lines(s, t)) {
        return recv_payload(s, t, moved);
    }
    if (t->phase == MOVING && t->place.mode != SOL_SHM_STAGED) {
        return recv_direct(s, t, moved);
    }
    sol_status_t status = poll_line(s, t, &payload);
    if (status != SOL_OK || payload == NULL) {
        return status;
    }
    if (t->phase == MOVING) {
        recv_chunk(s, t, payload, moved);
        return SOL_OK;
    }
    *moved = true;
    sol_shm_header_t header;
    memcpy(&header, payload, sizeof(header));
    pop_line(s, rank_of(t));
    t->place = header.send;
    t->plan = header.plan;
    t->begun_ns = header.plan != 0 ? sol_now_ns() : 0;
    t->phase = MOVING;
    return SOL_OK;
}

/* ------------------------------------------------------------------------- a whole set */

typedef struct round_result {
    bool moved;
    uint64_t awaited; /* ranks of unfinished transfers */
    const sol_call_t *call;
} round_result_t;

/* Move every transfer on that is first in its pair's order. */
static sol_status_t step_all(sol_shm_t *s, transfer_t *all, size_t first, size_t count,
                             round_result_t *result)
{
    uint64_t busy[2] = {0, 0}; /* pairs whose pipe an earlier transfer still uses, by direction */
    for (size_t i = first; i < count; i++) {
        transfer_t *t = &all[i];
        uint64_t *pipes = &busy[t->sending];
        if (t->phase == DONE) {
            continue;
        }
        if (t->phase == CLOSING || (*pipes & t->ranks) == 0) {
            sol_status_t status = SOL_OK;
            if (t->sending) {
                result->moved |= step_send(s, t);
            } else {
                status = step_recv(s, t, &result->moved);
                if (t->phase == DONE && t->plan != 0) {
                    sol_shm_tune_received(s, t->bytes, t->plan - 1, t->begun_ns);
                }
            }
            if (status != SOL_OK) {
                return status;
            }
        }
        if (t->phase != DONE) {
            /* not all of its ranks: one that has done its part may leave */
            result->awaited |= t->sending && t->missing != 0 ? t->missing : t->ranks;
            result->call = result->call == NULL ? t->call : result->call;
        }
        if (t->phase == OPENING || t->phase == MOVING) {
            *pipes |= t->ranks;
        }
    }
    return SOL_OK;
}

/* `own` may be NULL. */
static sol_status_t run_all(sol_shm_t *s, transfer_t *all, size_t count, own_t *own)
{
    sol_shm_wait_t w = {0};
    size_t first = 0;
    sol_status_t status = SOL_OK;
    while (status == SOL_OK) {
        round_result_t result = {false, 0, NULL};
        status = step_all(s, all, first, count, &result);
        while (first < count && all[first].phase == DONE) {
            first++;
        }
        if (status != SOL_OK || first == count) {
            break;
        }
        if (result.moved || (own != NULL && copy_own(own, OWN_PIECE))) {
            sol_shm_wait_end(s, &w);
            w = (sol_shm_wait_t){0};
            continue;
        }
        w.ranks = result.awaited;
        s->call = result.call;
        status = sol_shm_idle(s, &w);
    }
    sol_shm_wait_end(s, &w);
    if (status == SOL_OK && own != NULL) {
        copy_own(own, own->bytes);
    }
    return status;
}

static void add(const sol_shm_t *s, transfer_t *all, size_t *count, const transfer_t *t)
{
    transfer_t *added = &all[(*count)++];
    size_t chunk = t->bytes <= ONE_WAY_SHORT ? ONE_WAY_CHUNK / 2 : ONE_WAY_CHUNK;
    *added = *t;
    added->way = sol_shm_tune_known(s, t->bytes);
    added->past = !t->sending && t->bytes >= s->limits.stream;
    added->chunk = chunk < s->staging.slot_bytes ? chunk : s->staging.slot_bytes;
}

/* ------------------------------------------------------------------------- collectives */

static uint64_t others(const sol_shm_t *s)
{
    uint64_t all = s->nranks == 64 ? ~0ull : (1ull << s->nranks) - 1;
    return all & ~(1ull << s->rank);
}

/* One block to (send) or from (receive) every other rank, at base + rank * stride; a stride of 0
 * sends the same bytes to all, as one transfer. */
static void add_blocks(sol_shm_t *s, const sol_call_t *call, bool sending, const void *base,
                       size_t stride, size_t bytes, transfer_t *all, size_t *count)
{
    transfer_t t = {.call = call, .sig = s->sig, .bytes = bytes, .sending = sending};
    if (stride == 0 && bytes > s->limits.line) {
        t.ranks = others(s);
        t.data = sol_shm_at(base, 0);
        add(s, all, count, &t);
        return;
    }
    for (int step = 1; step < s->nranks; step++) {
        int rank = sol_ring_next(s->rank, step, s->nranks);
        t.ranks = 1ull << rank;
        t.data = sol_shm_at(base, stride * (size_t)rank);
        add(s, all, count, &t);
    }
}

static void add_pair(sol_shm_t *s, const sol_call_t *call, bool sending, int rank, const void *base,
                     size_t bytes, transfer_t *all, size_t *count)
{
    transfer_t t = {.call = call,
                    .sig = s->sig,
                    .bytes = bytes,
                    .sending = sending,
                    .ranks = 1ull << rank,
                    .data = sol_shm_at(base, 0)};
    add(s, all, count, &t);
}

/* This rank's transfers of a collective, and the copy of its own block. */
static void plan_collective(sol_shm_t *s, const sol_call_t *call, size_t bytes, transfer_t *all,
                            size_t *count, own_t *own)
{
    bool root = s->rank == call->root;
    size_t mine = bytes * (size_t)s->rank;
    own->from = sol_shm_at(call->send, 0);
    own->to = sol_shm_at(call->recv, 0);
    own->bytes = bytes;
    switch (call->func) {
    case SOL_FUNC_ALL_GATHER:
        add_blocks(s, call, true, call->send, 0, bytes, all, count);
        add_blocks(s, call, false, call->recv, bytes, bytes, all, count);
        own->to = sol_shm_at(call->recv, mine);
        break;
    case SOL_FUNC_ALL_TO_ALL:
        add_blocks(s, call, true, call->send, bytes, bytes, all, count);
        add_blocks(s, call, false, call->recv, bytes, bytes, all, count);
        own->from = sol_shm_at(call->send, mine);
        own->to = sol_shm_at(call->recv, mine);
        break;
    case SOL_FUNC_GATHER:
        if (root) {
            add_blocks(s, call, false, call->recv, bytes, bytes, all, count);
            own->to = sol_shm_at(call->recv, mine);
            return;
        }
        break;
    case SOL_FUNC_SCATTER:
        if (root) {
            add_blocks(s, call, true, call->send, bytes, bytes, all, count);
            own->from = sol_shm_at(call->send, mine);
        }
        break;
    default: /* broadcast */
        if (root) {
            add_blocks(s, call, true, call->send, 0, bytes, all, count);
        }
        break;
    }
    bool rooted = call->func == SOL_FUNC_GATHER || call->func == SOL_FUNC_SCATTER ||
                  call->func == SOL_FUNC_BROADCAST;
    if (rooted && !root) {
        bool sending = call->func == SOL_FUNC_GATHER;
        add_pair(s, call, sending, call->root, sending ? call->send : call->recv, bytes, all,
                 count);
        own->bytes = 0;
    }
}

/* all_to_all with one buffer: each receive stays behind the send to the same rank. */
static void stay_behind(transfer_t *all, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        all[i].copied_only = true;
        for (size_t k = 0; k < count && !all[i].sending; k++) {
            if (all[k].sending && all[k].ranks == all[i].ranks) {
                all[i].behind = &all[k];
            }
        }
    }
}

static void plan_all_to_all_v(sol_shm_t *s, const sol_call_t *call, size_t size, transfer_t *all,
                              size_t *count)
{
    for (int step = 1; step < s->nranks; step++) {
        int rank = sol_ring_next(s->rank, step, s->nranks);
        transfer_t t = {.call = call, .ranks = 1ull << rank};
        t.sending = true;
        t.bytes = call->sendcounts[rank] * size;
        t.data = sol_shm_at(call->send, call->senddispls[rank] * size);
        t.sig = sol_shm_pair_signature(call, call->sendcounts[rank]);
        add(s, all, count, &t);
        t.sending = false;
        t.bytes = call->recvcounts[rank] * size;
        t.data = sol_shm_at(call->recv, call->recvdispls[rank] * size);
        t.sig = sol_shm_pair_signature(call, call->recvcounts[rank]);
        add(s, all, count, &t);
    }
}

/* Show what this rank sends to each, for the text of a mismatch. */
static void show_counts(sol_shm_t *s, const sol_call_t *call)
{
    atomic_store_explicit(&s->control->pairs_index, 0, memory_order_relaxed);
    for (int rank = 0; rank < s->nranks; rank++) {
        atomic_store_explicit(&s->control->pair_counts[rank], call->sendcounts[rank],
                              memory_order_release);
    }
    atomic_store_explicit(&s->control->pairs_index, s->calls, memory_order_release);
}

/* How the transfers of a collective and the own copy are made: learned (shm_tune.c). */
static void choose_ways(sol_shm_t *s, const sol_call_t *call, size_t bytes, transfer_t *all,
                        size_t count, own_t *own)
{
    bool both = call->func == SOL_FUNC_ALL_GATHER || call->func == SOL_FUNC_ALL_TO_ALL;
    bool one_source = call->func == SOL_FUNC_ALL_GATHER || call->func == SOL_FUNC_BROADCAST;
    if (own->to == own->from) {
        own->bytes = 0;
    }
    sol_shm_tuned_t tuned = sol_shm_tune_begin(s, call, bytes, SOL_SHM_TUNE_ALL);
    size_t chunk = tuned.way == SOL_SHM_WIDE ? s->limits.wide : s->limits.chunk;
    chunk = chunk < s->staging.slot_bytes ? chunk : s->staging.slot_bytes;
    if (tuned.way == SOL_SHM_WIDE) {
        sol_staging_spread(&s->staging, bytes < chunk ? bytes : chunk);
    }
    own->past = tuned.own_past || (s->all_threads && bytes >= s->limits.stream);
    for (size_t i = 0; i < count; i++) {
        all[i].way = tuned.way;
        all[i].past = tuned.own_past;
        if (all[i].sending && one_source) {
            all[i].own = own;
        }
        if (both) {
            all[i].chunk = chunk;
        }
    }
}

static sol_status_t check_own_counts(sol_shm_t *s, const sol_call_t *call)
{
    size_t sent = call->sendcounts[s->rank], received = call->recvcounts[s->rank];
    if (sent != received) {
        return sol_shm_fail(s, SOL_ERR_MISMATCH,
                            "all_to_all_v #%llu: sendcounts[%d] is %zu and recvcounts[%d] is "
                            "%zu on rank %d itself",
                            (unsigned long long)call->sequence, s->rank, sent, s->rank, received,
                            s->rank);
    }
    return SOL_OK;
}

sol_status_t sol_shm_run_streams(sol_shm_t *s, const sol_call_t *call)
{
    transfer_t all[2 * SOL_MAX_RANKS];
    size_t count = 0, size = sol_dtype_size(call->dtype), bytes = call->count * size;
    own_t own = {0};
    if (call->func == SOL_FUNC_ALL_TO_ALL_V) {
        show_counts(s, call);
        sol_status_t status = check_own_counts(s, call);
        if (status != SOL_OK) {
            return status;
        }
        plan_all_to_all_v(s, call, size, all, &count);
        own.from = sol_shm_at(call->send, call->senddispls[s->rank] * size);
        own.to = sol_shm_at(call->recv, call->recvdispls[s->rank] * size);
        own.bytes = own.to == own.from ? 0 : call->sendcounts[s->rank] * size;
        own.past = own.bytes >= s->limits.stream;
    } else {
        plan_collective(s, call, bytes, all, &count, &own);
        choose_ways(s, call, bytes, all, count, &own);
        if (call->func == SOL_FUNC_ALL_TO_ALL && call->send == call->recv) {
            stay_behind(all, count);
        }
    }
    sol_status_t status = run_all(s, all, count, &own);
    sol_staging_spread(&s->staging, 0);
    sol_shm_tune_end(s);
    return status;
}

/* --------------------------------------------------------------------- sends, receives */

/* The k-th send to itself meets the k-th receive from itself. */
static sol_status_t match_self(sol_shm_t *s, const sol_call_t *calls, size_t ncalls)
{
    size_t at = 0;
    for (size_t i = 0; i < ncalls; i++) {
        if (calls[i].root != s->rank || calls[i].func != SOL_FUNC_SEND) {
            continue;
        }
        while (at < ncalls && !(calls[at].root == s->rank && calls[at].func == SOL_FUNC_RECV)) {
            at++;
        }
        s->call = &calls[i];
        if (at == ncalls || calls[at].dtype != calls[i].dtype ||
            calls[at].count != calls[i].count) {
            return sol_shm_fail(s, SOL_ERR_MISMATCH,
                                "send #%llu of rank %d to itself has no receive like it in the "
                                "same group",
                                (unsigned long long)calls[i].sequence, s->rank);
        }
        own_t own = {.from = sol_shm_at(calls[i].send, 0), .to = sol_shm_at(calls[at].recv, 0)};
        own.bytes = own.to == own.from ? 0 : calls[i].count * sol_dtype_size(calls[i].dtype);
        own.past = own.bytes >= s->limits.stream;
        copy_own(&own, own.bytes);
        at++;
    }
    for (; at < ncalls; at++) {
        if (calls[at].root == s->rank && calls[at].func == SOL_FUNC_RECV) {
            return sol_shm_fail(s, SOL_ERR_MISMATCH,
                                "recv #%llu of rank %d from itself has no send in the same group",
                                (unsigned long long)calls[at].sequence, s->rank);
        }
    }
    return SOL_OK;
}

/* The one send of a set: its way is learned. */
static void tune_send(sol_shm_t *s, transfer_t *all, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        transfer_t *t = &all[i];
        if (t->sending && !by_lines(s, t)) {
            t->way = sol_shm_tune_begin(s, t->call, t->bytes, SOL_SHM_TUNE_PAIRS).way;
            t->plan = s->timing != NULL ? 1 + (uint32_t)t->way : 0;
        }
    }
}

sol_status_t sol_shm_run_pairs(sol_shm_t *s, const sol_call_t *calls, size_t ncalls)
{
    transfer_t few[FEW], *all = few;
    size_t count = 0, sends = 0;
    sol_status_t status = match_self(s, calls, ncalls);
    if (status != SOL_OK) {
        return status;
    }
    if (ncalls > FEW && (all = sol_calloc(ncalls, sizeof(*all))) == NULL) {
        return sol_shm_fail(s, SOL_ERR_MEMORY, "no memory for a group of %zu calls", ncalls);
    }
    for (size_t i = 0; i < ncalls; i++) {
        const sol_call_t *call = &calls[i];
        bool sending = call->func == SOL_FUNC_SEND;
        if (call->root == s->rank) {
            continue;
        }
        sol_shm_note_call(s, call, sol_shm_signature(call));
        sol_shm_use_pages(s, call);
        sends += sending;
        add_pair(s, call, sending, call->root, sending ? call->send : call->recv,
                 call->count * sol_dtype_size(call->dtype), all, &count);
    }
    if (sends == 1) {
        tune_send(s, all, count);
    }
    status = run_all(s, all, count, NULL);
    sol_shm_tune_end(s);
    if (all != few) {
        sol_free(all);
    }
    return status;
}
