/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf_call.c: one call, performed and verified to the last byte.
 *
 * Layout of a buffer (one, if in place; two otherwise), all of it compared after the call:
 *
 *     | guard 64 | offset | data ........ | guard 64 |
 *
 * The send buffer has no guard behind it where the device allows exact allocations, so that the
 * address sanitizer sees a read beyond its end. A bare device has neither guards nor offsets: what
 * lies before or behind its memory is not there. After the call the send buffer must be as before,
 * and the receive buffer must be as before but for the bytes that the call defines.
 */
#include "conformance/conf.h"

#include <stdlib.h>
#include <string.h>

#define GUARD 64u
#define GUARD_BYTE 0xa5
#define EXACT_LIMIT ((size_t)64 << 10) /* own allocations up to here */
#define SHARE_LIMIT ((size_t)1 << 20)  /* larger results are verified by ranks in turn */
#define CHUNK ((size_t)512)            /* elements that the reference works on at a time */

enum { HOST_SEND, HOST_RECV, HOST_BACK, HOST_CHUNK };

const sol_func_t conf_funcs[] = {
    SOL_FUNC_ALL_REDUCE, SOL_FUNC_ALL_GATHER, SOL_FUNC_REDUCE_SCATTER, SOL_FUNC_BROADCAST,
    SOL_FUNC_REDUCE,     SOL_FUNC_ALL_TO_ALL, SOL_FUNC_ALL_TO_ALL_V,   SOL_FUNC_GATHER,
    SOL_FUNC_SCATTER,    SOL_FUNC_SEND,       SOL_FUNC_COUNT};

/* What one call looks like on one rank. */
typedef struct {
    const conf_call_t *call;
    sol_comm_t comm;
    int rank, nranks;
    size_t size;                   /* of an element */
    size_t send_count, recv_count; /* elements; 0 where ignored */
    bool one_buffer;
    size_t send_at, recv_at;       /* offsets of the data in their buffers */
    size_t send_bytes, recv_bytes; /* of whole buffers */
    unsigned char *send_buffer, *recv_buffer;
    size_t counts[4][TEAM_MAX_RANKS]; /* all_to_all_v: sendcounts, senddispls, recv... */
} shape_t;

bool conf_func_reduces(sol_func_t func)
{
    return func == SOL_FUNC_ALL_REDUCE || func == SOL_FUNC_REDUCE_SCATTER ||
           func == SOL_FUNC_REDUCE;
}

bool conf_func_rooted(sol_func_t func)
{
    return func == SOL_FUNC_BROADCAST || func == SOL_FUNC_REDUCE || func == SOL_FUNC_GATHER ||
           func == SOL_FUNC_SCATTER;
}

void conf_describe(const conf_call_t *call, char *text, size_t bytes)
{
    snprintf(text, bytes,
             "%s of %zu x %s, %s%s, root %d, send +%u, recv +%u%s%s%s, data %s, seed %llu",
             call->func == SOL_FUNC_SEND ? "ring" : sol_func_name(call->func), call->count,
             sol_dtype_name(call->dtype), call->premul ? "premul " : "", sol_redop_name(call->op),
             call->root, call->send_offset, call->recv_offset, call->in_place ? ", in place" : "",
             call->symmetric_send ? ", symmetric send" : "",
             call->symmetric_recv ? ", symmetric recv" : "", ref_kind_name(call->kind),
             (unsigned long long)call->seed);
}

size_t conf_pair_count(const conf_call_t *call, int from, int to)
{
    uint64_t h = team_mix(call->seed + (uint64_t)from * 64 + (uint64_t)to);
    if (h % 5 == 0)
        return 0;
    return call->count == 0 ? 0 : (h >> 8) % (call->count + 1);
}

/* ------------------------------------------------------------------------ the shape */

static void shape_all_to_all_v(shape_t *s)
{
    size_t sends = 0, recvs = 0;
    for (int p = 0; p < s->nranks; p++) {
        s->counts[0][p] = conf_pair_count(s->call, s->rank, p);
        s->counts[2][p] = conf_pair_count(s->call, p, s->rank);
        sends += s->counts[0][p];
        recvs += s->counts[2][p];
    }
    /* Receive blocks lie in the opposite order and with gaps of one element: displacements are
     * the caller's, not a running sum. */
    size_t at = 0;
    for (int p = 0; p < s->nranks; p++) {
        s->counts[1][p] = at;
        at += s->counts[0][p];
    }
    at = 0;
    for (int p = s->nranks - 1; p >= 0; p--) {
        s->counts[3][p] = at;
        at += s->counts[2][p] + 1;
    }
    s->send_count = sends;
    s->recv_count = recvs + (size_t)s->nranks;
}

static void shape_counts(shape_t *s)
{
    const conf_call_t *call = s->call;
    size_t all = call->count * (size_t)s->nranks;
    bool root = s->rank == call->root;
    s->send_count = s->recv_count = call->count;
    switch (call->func) {
    case SOL_FUNC_ALL_GATHER:
        s->recv_count = all;
        break;
    case SOL_FUNC_REDUCE_SCATTER:
        s->send_count = all;
        break;
    case SOL_FUNC_BROADCAST:
        s->send_count = root ? call->count : 0;
        break;
    case SOL_FUNC_REDUCE:
        s->recv_count = root ? call->count : 0;
        break;
    case SOL_FUNC_ALL_TO_ALL:
        s->send_count = s->recv_count = all;
        break;
    case SOL_FUNC_ALL_TO_ALL_V:
        shape_all_to_all_v(s);
        break;
    case SOL_FUNC_GATHER:
        s->recv_count = root ? all : 0;
        break;
    case SOL_FUNC_SCATTER:
        s->send_count = root ? all : 0;
        break;
    default:
        break;
    }
}

static bool can_be_in_place(const shape_t *s)
{
    switch (s->call->func) {
    case SOL_FUNC_ALL_TO_ALL_V:
    case SOL_FUNC_SEND:
        return false;
    case SOL_FUNC_BROADCAST:
    case SOL_FUNC_REDUCE:
    case SOL_FUNC_GATHER:
    case SOL_FUNC_SCATTER:
        return s->rank == s->call->root;
    default:
        return true;
    }
}

static void shape_place(shape_t *s, bool bare)
{
    const conf_call_t *call = s->call;
    const size_t guard = bare ? 0 : GUARD;
    size_t block = call->count * s->size * (size_t)s->rank;
    s->one_buffer = call->in_place && can_be_in_place(s);
    s->send_at = bare ? 0 : GUARD + call->send_offset;
    s->recv_at = bare ? 0 : GUARD + call->recv_offset;
    s->send_bytes = s->send_at + s->send_count * s->size;
    s->recv_bytes = s->recv_at + s->recv_count * s->size + guard;
    if (!s->one_buffer)
        return;
    size_t larger = s->send_count > s->recv_count ? s->send_count : s->recv_count;
    s->recv_bytes = s->recv_at + larger * s->size + guard;
    s->send_bytes = 0;
    s->send_at = s->recv_at;
    if (call->func == SOL_FUNC_ALL_GATHER || call->func == SOL_FUNC_GATHER)
        s->send_at += block;
    if (call->func == SOL_FUNC_REDUCE_SCATTER || call->func == SOL_FUNC_SCATTER)
        s->recv_at += block;
}

/* ------------------------------------------------------------------------ buffers */

static unsigned char *host_image(conf_t *conf, int which, size_t bytes)
{
    if (conf->host[which] == NULL || conf->host_bytes[which] < bytes) {
        free(conf->host[which]);
        conf->host_bytes[which] = bytes + bytes / 4 + 1;
        conf->host[which] = malloc(conf->host_bytes[which]);
    }
    return conf->host[which];
}

static unsigned char *take_buffer(conf_t *conf, conf_buffer_t *buffer, size_t bytes, int symmetric)
{
    buffer->own = false;
    if (symmetric >= 0 && conf->symmetric[symmetric] && bytes <= conf->symmetric_bytes)
        return conf->symmetric[symmetric];
    if (conf->device->bare || (conf->device->cheap_alloc && bytes <= EXACT_LIMIT)) {
        unsigned char *memory = conf->device->alloc(bytes);
        buffer->own = memory != NULL;
        return memory;
    }
    if (buffer->capacity < bytes) {
        conf->device->free(buffer->memory);
        buffer->capacity = bytes + bytes / 8;
        buffer->memory = conf->device->alloc(buffer->capacity);
        if (!buffer->memory)
            buffer->capacity = 0;
    }
    return buffer->memory;
}

static void give_buffer(conf_t *conf, const conf_buffer_t *buffer, unsigned char *memory)
{
    if (buffer->own)
        conf->device->free(memory);
}

static bool take_buffers(conf_t *conf, shape_t *s)
{
    s->recv_buffer =
        take_buffer(conf, &conf->recv, s->recv_bytes, s->call->symmetric_recv ? 1 : -1);
    s->send_buffer = s->one_buffer ? s->recv_buffer
                                   : take_buffer(conf, &conf->send, s->send_bytes,
                                                 s->call->symmetric_send ? 0 : -1);
    host_image(conf, HOST_SEND, s->send_bytes);
    host_image(conf, HOST_RECV, s->recv_bytes);
    host_image(conf, HOST_BACK, s->recv_bytes > s->send_bytes ? s->recv_bytes : s->send_bytes);
    if (s->recv_buffer && s->send_buffer && conf->host[HOST_RECV] && conf->host[HOST_BACK])
        return true;
    team_fail(conf->team, conf->rank, "no memory for %zu bytes", s->send_bytes + s->recv_bytes);
    return false;
}

static void give_buffers(conf_t *conf, const shape_t *s)
{
    give_buffer(conf, &conf->recv, s->recv_buffer);
    if (!s->one_buffer)
        give_buffer(conf, &conf->send, s->send_buffer);
}

/* This rank's contribution, before the call. */
static void write_contribution(conf_t *conf, const shape_t *s)
{
    const conf_call_t *call = s->call;
    unsigned char *image = conf->host[s->one_buffer ? HOST_RECV : HOST_SEND];
    memset(conf->host[HOST_RECV], GUARD_BYTE, s->recv_bytes);
    if (!s->one_buffer)
        memset(conf->host[HOST_SEND], GUARD_BYTE, s->send_bytes);
    ref_fill(image + s->send_at, call->dtype, call->kind, call->seed, s->rank, 0, s->send_count);
    conf->device->upload(s->recv_buffer, conf->host[HOST_RECV], s->recv_bytes);
    if (!s->one_buffer)
        conf->device->upload(s->send_buffer, conf->host[HOST_SEND], s->send_bytes);
}

/* ------------------------------------------------------------------------ the result */

/* Elements [first, first + count) of the reduction into `to`. */
static void expect_reduction(conf_t *conf, const shape_t *s, size_t first, size_t count,
                             unsigned char *to)
{
    const conf_call_t *call = s->call;
    unsigned char *chunk = host_image(conf, HOST_CHUNK, CHUNK * s->size * (size_t)s->nranks);
    const void *srcs[TEAM_MAX_RANKS];
    unsigned char scalar[8];
    for (size_t done = 0; done < count; done += CHUNK) {
        size_t step = count - done < CHUNK ? count - done : CHUNK;
        for (int r = 0; r < s->nranks; r++) {
            unsigned char *from = chunk + (size_t)r * CHUNK * s->size;
            ref_fill(from, call->dtype, call->kind, call->seed, r, first + done, step);
            if (call->premul) {
                ref_scalar(scalar, call->dtype, call->seed, r);
                ref_scale(from, scalar, step, call->dtype);
            }
            srcs[r] = from;
        }
        ref_reduce(to + done * s->size, srcs, s->nranks, step, call->dtype, call->op);
    }
}

/* Part of a contribution as it was sent. */
static void expect_part(const shape_t *s, int from, size_t first, size_t count, unsigned char *to)
{
    ref_fill(to, s->call->dtype, s->call->kind, s->call->seed, from, first, count);
}

static void expect_all_to_all_v(const shape_t *s, unsigned char *to)
{
    for (int p = 0; p < s->nranks; p++) {
        size_t first = 0; /* where our block begins in p's send buffer */
        for (int q = 0; q < s->rank; q++)
            first += conf_pair_count(s->call, p, q);
        expect_part(s, p, first, s->counts[2][p], to + s->counts[3][p] * s->size);
    }
}

/* Writes what the call defines over the image of the receive buffer. */
static void write_expectation(conf_t *conf, const shape_t *s)
{
    const conf_call_t *call = s->call;
    unsigned char *to = conf->host[HOST_RECV] + s->recv_at;
    size_t block = call->count * s->size, before = call->count * (size_t)s->rank;
    bool root = s->rank == call->root;
    switch (call->func) {
    case SOL_FUNC_ALL_REDUCE:
        expect_reduction(conf, s, 0, call->count, to);
        break;
    case SOL_FUNC_REDUCE:
        if (root)
            expect_reduction(conf, s, 0, call->count, to);
        break;
    case SOL_FUNC_REDUCE_SCATTER:
        expect_reduction(conf, s, before, call->count, to);
        break;
    case SOL_FUNC_BROADCAST:
        expect_part(s, call->root, 0, call->count, to);
        break;
    case SOL_FUNC_SCATTER:
        expect_part(s, call->root, before, call->count, to);
        break;
    case SOL_FUNC_ALL_GATHER:
    case SOL_FUNC_GATHER:
        for (int r = 0; r < s->nranks && (root || call->func == SOL_FUNC_ALL_GATHER); r++)
            expect_part(s, r, 0, call->count, to + (size_t)r * block);
        break;
    case SOL_FUNC_ALL_TO_ALL:
        for (int r = 0; r < s->nranks; r++)
            expect_part(s, r, before, call->count, to + (size_t)r * block);
        break;
    case SOL_FUNC_ALL_TO_ALL_V:
        expect_all_to_all_v(s, to);
        break;
    case SOL_FUNC_SEND:
        expect_part(s, (s->rank + s->nranks - call->root % s->nranks) % s->nranks, 0, call->count,
                    to);
        break;
    default:
        break;
    }
}

static bool same_bytes(conf_t *conf, const shape_t *s, const char *what, const unsigned char *got,
                       const unsigned char *wanted, size_t bytes, size_t data_at)
{
    char text[512];
    size_t i = 0;
    if (memcmp(got, wanted, bytes) == 0)
        return true;
    while (got[i] == wanted[i])
        i++;
    conf_describe(s->call, text, sizeof(text));
    long long at = (long long)i - (long long)data_at;
    uint64_t g = 0, w = 0;
    size_t start = at >= 0 ? data_at + (size_t)at / s->size * s->size : i;
    size_t width = start + s->size <= bytes ? s->size : 1;
    memcpy(&g, got + start, width);
    memcpy(&w, wanted + start, width);
    team_fail(conf->team, conf->rank,
              "call %u: %s: %s differs first at byte %lld of the data (element %lld): got 0x%llx, "
              "expected 0x%llx",
              conf->calls, text, what, at, at / (long long)s->size, (unsigned long long)g,
              (unsigned long long)w);
    return false;
}

static void verify(conf_t *conf, const shape_t *s, bool hash)
{
    const conf_call_t *call = s->call;
    unsigned char *back = conf->host[HOST_BACK];
    conf->device->download(back, s->recv_buffer, s->recv_bytes);
    bool shared = call->func == SOL_FUNC_ALL_REDUCE || call->func == SOL_FUNC_ALL_GATHER ||
                  call->func == SOL_FUNC_BROADCAST;
    if (hash && shared) {
        size_t bytes = s->recv_count * s->size;
        conf->team->rank[conf->rank].hash[conf->hashes++ % TEAM_HASHES] =
            team_hash(back + s->recv_at, bytes);
        /* Equal hashes make one rank's verification of a large result everybody's. */
        if (bytes > SHARE_LIMIT && (int)(conf->calls % (unsigned)s->nranks) != s->rank)
            goto send_side;
    }
    write_expectation(conf, s);
    same_bytes(conf, s, "the receive buffer", back, conf->host[HOST_RECV], s->recv_bytes,
               s->recv_at);
send_side:
    if (!s->one_buffer) {
        conf->device->download(back, s->send_buffer, s->send_bytes);
        same_bytes(conf, s, "the send buffer", back, conf->host[HOST_SEND], s->send_bytes,
                   s->send_at);
    }
}

/* ------------------------------------------------------------------------ the call */

static sol_status_t call_ring(conf_t *conf, const shape_t *s, const void *send, void *recv)
{
    const conf_call_t *call = s->call;
    int distance = call->root % s->nranks;
    int to = (s->rank + distance) % s->nranks, from = (s->rank + s->nranks - distance) % s->nranks;
    sol_status_t status = sol_group_start();
    if (status != SOL_OK)
        return status;
    status = sol_send(send, call->count, call->dtype, to, s->comm, conf->stream);
    sol_status_t other = sol_recv(recv, call->count, call->dtype, from, s->comm, conf->stream);
    sol_status_t end = sol_group_end();
    return status != SOL_OK ? status : other != SOL_OK ? other : end;
}

static sol_status_t call_library(conf_t *conf, const shape_t *s, sol_redop_t op)
{
    const conf_call_t *c = s->call;
    const void *send = s->send_buffer + s->send_at;
    void *recv = s->recv_buffer + s->recv_at;
    void *stream = conf->stream;
    sol_comm_t comm = s->comm;
    if (c->null_if_empty && s->send_count == 0)
        send = NULL;
    if (c->null_if_empty && s->recv_count == 0)
        recv = NULL;
    switch (c->func) {
    case SOL_FUNC_ALL_REDUCE:
        return sol_all_reduce(send, recv, c->count, c->dtype, op, comm, stream);
    case SOL_FUNC_ALL_GATHER:
        return sol_all_gather(send, recv, c->count, c->dtype, comm, stream);
    case SOL_FUNC_REDUCE_SCATTER:
        return sol_reduce_scatter(send, recv, c->count, c->dtype, op, comm, stream);
    case SOL_FUNC_BROADCAST:
        return sol_broadcast(send, recv, c->count, c->dtype, c->root, comm, stream);
    case SOL_FUNC_REDUCE:
        return sol_reduce(send, recv, c->count, c->dtype, op, c->root, comm, stream);
    case SOL_FUNC_ALL_TO_ALL:
        return sol_all_to_all(send, recv, c->count, c->dtype, comm, stream);
    case SOL_FUNC_ALL_TO_ALL_V:
        return sol_all_to_all_v(send, s->counts[0], s->counts[1], recv, s->counts[2], s->counts[3],
                                c->dtype, comm, stream);
    case SOL_FUNC_GATHER:
        return sol_gather(send, recv, c->count, c->dtype, c->root, comm, stream);
    case SOL_FUNC_SCATTER:
        return sol_scatter(send, recv, c->count, c->dtype, c->root, comm, stream);
    case SOL_FUNC_SEND:
        return call_ring(conf, s, send, recv);
    default:
        return SOL_ERR_ARGUMENT;
    }
}

static sol_status_t call_with_operation(conf_t *conf, const shape_t *s)
{
    unsigned char scalar[8];
    sol_redop_t op = s->call->op;
    if (!s->call->premul)
        return call_library(conf, s, op);
    ref_scalar(scalar, s->call->dtype, s->call->seed, s->rank);
    sol_status_t status =
        sol_redop_create_premul_sum(&op, scalar, s->call->dtype, SOL_HOST_IMMEDIATE, s->comm);
    if (status != SOL_OK)
        return status;
    status = call_library(conf, s, op);
    /* "Operations already enqueued are not affected": destroyed before they complete. */
    sol_status_t destroyed = sol_redop_destroy(op, s->comm);
    return status != SOL_OK ? status : destroyed;
}

static void delay(conf_t *conf)
{
    uint64_t h = team_random(&conf->own_random);
    if (conf->delay_us > 0 && h % 4 == 0)
        team_sleep_us((unsigned)((h >> 8) % conf->delay_us));
}

static bool too_large(const conf_t *conf, size_t bytes)
{
    return conf->device->most_bytes != 0 && bytes > conf->device->most_bytes;
}

static bool perform(conf_t *conf, sol_comm_t comm, int rank, int nranks, const conf_call_t *call,
                    bool hash)
{
    shape_t s = {.call = call, .comm = comm, .rank = rank, .nranks = nranks};
    if (conf->stopped || atomic_load(&conf->team->stop)) {
        conf->stopped = true;
        return false;
    }
    s.size = ref_size(call->dtype);
    if (too_large(conf, call->count * s.size))
        return true; /* on all ranks alike */
    conf->calls++;
    conf_describe(call, conf->doing, CONF_DOING);
    shape_counts(&s);
    shape_place(&s, conf->device->bare);
    bool ready = take_buffers(conf, &s);
    if (ready) {
        write_contribution(conf, &s);
        delay(conf);
        sol_status_t status = call_with_operation(conf, &s);
        bool synced = conf->device->sync(conf->stream);
        ready = team_expect(conf->team, conf->rank, conf->doing, status, SOL_OK, comm) && synced;
    }
    if (ready) {
        verify(conf, &s, hash);
    } else {
        conf->stopped = true;
        atomic_store(&conf->team->stop, 1);
        sol_comm_abort(comm); /* so that nobody waits for this rank */
    }
    give_buffers(conf, &s);
    return ready;
}

bool conf_perform(conf_t *conf, const conf_call_t *call)
{
    bool done = perform(conf, conf->comm, conf->rank, conf->nranks, call, true);
    if (done && conf->hashes == TEAM_HASHES)
        conf_compare_hashes(conf);
    return done;
}

bool conf_perform_on(conf_t *conf, sol_comm_t comm, int rank, int nranks, const conf_call_t *call)
{
    return perform(conf, comm, rank, nranks, call, false);
}

bool conf_barrier(conf_t *conf)
{
    if (!conf->stopped &&
        TEAM_OK(conf->team, conf->rank, sol_barrier(conf->comm, conf->stream), conf->comm) &&
        conf->device->sync(conf->stream))
        return true;
    conf->stopped = true;
    return false;
}

void conf_compare_hashes(conf_t *conf)
{
    team_t *team = conf->team;
    if (conf->stopped || conf->hashes == 0)
        return;
    team_doing(team, conf->rank, "comparing %u hashes after call %u", conf->hashes, conf->calls);
    if (!conf_barrier(conf))
        return;
    for (unsigned i = 0; i < conf->hashes; i++)
        if (team->rank[conf->rank].hash[i] != team->rank[0].hash[i])
            team_fail(team, conf->rank,
                      "the result of the %u-th shared call before call %u differs from rank 0's",
                      conf->hashes - i, conf->calls);
    conf->hashes = 0;
    conf_barrier(conf);
}

/* ------------------------------------------------------------------------ odds and ends */

bool conf_leaves_out(conf_t *conf, size_t bytes)
{
    if (!too_large(conf, bytes))
        return false;
    team_skip(conf->team, conf->rank, "too much for this device");
    return true;
}

bool conf_spread(conf_t *conf, conf_spread_t *spread, unsigned char *base, const size_t *at,
                 const size_t *size, int arrays)
{
    *spread = (conf_spread_t){.arrays = conf->device->bare ? arrays : 0};
    for (int i = 0; i < spread->arrays; i++) {
        size_t bytes = size[i];
        bool shared = bytes == 0;
        for (int j = 0; j < arrays; j++) {
            const bool same = j != i && size[j] > 0 && at[j] == at[i];
            bytes = same && size[j] > bytes ? size[j] : bytes;
            shared = shared || (same && j < i);
        }
        if (shared)
            continue;
        spread->array[i] = conf->device->alloc(bytes);
        if (!TEAM_CHECK(conf->team, conf->rank, spread->array[i] != NULL))
            return false;
        memcpy(spread->array[i], base + at[i], bytes);
    }
    return true;
}

void conf_spread_args(const conf_spread_t *spread, const unsigned char *base, const size_t *at,
                      void *args, size_t bytes)
{
    for (size_t word = 0; word + sizeof(void *) <= bytes; word += sizeof(void *)) {
        const unsigned char *pointer;
        memcpy(&pointer, (char *)args + word, sizeof(pointer));
        for (int i = 0; i < spread->arrays; i++)
            if (spread->array[i] && pointer == base + at[i])
                memcpy((char *)args + word, &spread->array[i], sizeof(pointer));
    }
}

void conf_gather(conf_t *conf, conf_spread_t *spread, unsigned char *base, const size_t *at,
                 const size_t *size)
{
    for (int i = 0; i < spread->arrays; i++) {
        size_t bytes = size[i];
        for (int j = 0; j < spread->arrays; j++)
            bytes = at[j] == at[i] && size[j] > bytes ? size[j] : bytes;
        if (!spread->array[i])
            continue;
        memcpy(base + at[i], spread->array[i], bytes);
        conf->device->free(spread->array[i]);
        spread->array[i] = NULL;
    }
}

bool conf_use_symmetric(conf_t *conf, size_t bytes)
{
    conf->symmetric_bytes = bytes;
    for (int i = 0; i < 2; i++)
        if (!TEAM_OK(conf->team, conf->rank, sol_mem_alloc(conf->comm, bytes, &conf->symmetric[i]),
                     conf->comm)) {
            conf->stopped = true;
            return false;
        }
    return true;
}

void conf_drop_symmetric(conf_t *conf)
{
    for (int i = 0; i < 2; i++) {
        TEAM_OK(conf->team, conf->rank, sol_mem_free(conf->comm, conf->symmetric[i]), conf->comm);
        conf->symmetric[i] = NULL;
    }
}

size_t conf_random_count(uint64_t *random, size_t largest)
{
    int bits = 0;
    uint64_t h = team_random(random);
    while (bits < 40 && (size_t)1 << bits < largest)
        bits++;
    size_t count = (h >> 8) & (((size_t)1 << (h % (unsigned)(bits + 1))) - 1);
    return count > largest ? largest : count;
}

void conf_random_call(conf_t *conf, conf_call_t *call, size_t largest)
{
    uint64_t *random = &conf->random;
    memset(call, 0, sizeof(*call));
    call->func = conf_funcs[team_random(random) % 10];
    call->dtype = (sol_dtype_t)(team_random(random) % SOL_DTYPE_COUNT);
    call->op = (sol_redop_t)(team_random(random) % SOL_REDOP_COUNT);
    call->premul = conf_func_reduces(call->func) && team_random(random) % 8 == 0;
    if (call->premul)
        call->op = SOL_SUM;
    call->root = (int)(team_random(random) % (unsigned)conf->nranks);
    call->count = conf_random_count(random, largest);
    call->send_offset = (unsigned)(team_random(random) % 16);
    call->recv_offset = (unsigned)(team_random(random) % 16);
    call->in_place = team_random(random) % 3 == 0;
    call->null_if_empty = team_random(random) % 2;
    call->kind = (ref_kind_t)(team_random(random) % REF_KIND_COUNT);
    call->seed = team_random(random);
    /* One rank may use symmetric memory where another does not. */
    call->symmetric_send = team_random(&conf->own_random) % 2;
    call->symmetric_recv = team_random(&conf->own_random) % 2;
}
