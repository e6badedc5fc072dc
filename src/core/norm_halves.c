/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_halves.c: sol_all_reduce_norm in halves: handles and checks, and, where the
 * backend has no kernels for it (CPU ranks), the halves themselves, put together from
 * one-sided transfers and coll/norm.c.
 *
 *   start   contribution -> this rank's slot at every peer (two shots: each row to its owner)
 *   wait    counters say that all have come: sums in rank order, residual, norm, output
 *           two shots: finished rows -> slot at every peer; theirs, once counted, to the output
 *
 * A lane is used by one start at a time, and its slots are of two parities. Two are enough:
 * a rank's start of use u + 2 comes after its wait of u + 1, which has seen every peer's start
 * of u + 1, which came after that peer's wait of u, which read the slots of u. So a start never
 * waits.
 *
 * Must never: allocate after create; let a bit differ from the one call's; write where a peer may
 * still read.
 */
#include "core/norm_halves.h"

#include "coll/fpmode.h"
#include "coll/norm.h"
#include "core/fused_call.h"
#include "core/setup.h"
#include "core/transfer.h"
#include "core/use.h"

#include <string.h>

#define CREATE "sol_norm_create"
#define START "sol_norm_start"
#define WAIT "sol_norm_wait"
#define DEFAULT_DEPTH 2
#define DEFAULT_START_CTAS 16 /* of GPU ranks: the others are for what is computed meanwhile */
#define START_WRITES 2        /* to each peer: head, contribution */
#define PARTS 3               /* of a finished row: output, scales, residual_out */
#define FINISH_WRITES 4       /* head, parts */

/* What precedes a contribution, and finished rows: ranks that started other things, or want other
 * outputs, notice it. */
typedef struct head {
    uint64_t tokens, number;
    uint32_t output_dtype, parts; /* of finished rows; bit i: part i travels */
    uint64_t row_bytes;           /* of all parts */
    char pad[SOL_CACHE_LINE - 4 * sizeof(uint64_t)];
} head_t;

/* ---------------------------------------------------------------------- creation */

static sol_status_t check_config(sol_comm_t comm, const sol_norm_config_t *c)
{
    const size_t most = (size_t)1 << 31;
    if (!sol_fused_float(c->dtype)) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              CREATE ": dtype is %s: expected float32, float16 or bfloat16",
                              sol_dtype_name(c->dtype));
    }
    if (c->max_tokens == 0 || c->max_tokens > most || c->hidden == 0 || c->hidden > most ||
        c->max_tokens > ((size_t)1 << 40) / c->hidden) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              CREATE ": max_tokens is %zu, hidden is %zu: expected 1 to 2^31 each, "
                                     "and a product of at most 2^40",
                              c->max_tokens, c->hidden);
    }
    if ((unsigned)c->form > SOL_NORM_ANY || c->shards > 3u ||
        (c->shards != 0 && c->form == SOL_NORM_ONE_SHOT)) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              CREATE ": form is %d, shards are %u: expected 0 to 2, 0 to 3, and 0 "
                                     "with SOL_NORM_ONE_SHOT",
                              (int)c->form, c->shards);
    }
    if (c->depth < 0 || c->depth > SOL_NORM_MAX_DEPTH || c->start_ctas < 0) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              CREATE ": depth is %d, start_ctas is %d: expected 0 to %d, 0 or more",
                              c->depth, c->start_ctas, SOL_NORM_MAX_DEPTH);
    }
    return SOL_OK;
}

static void complete(sol_norm_config_t *c)
{
    if (c->form == SOL_NORM_ANY) {
        c->form = c->shards != 0 ? SOL_NORM_TWO_SHOT : SOL_NORM_ONE_SHOT;
    }
    c->depth = c->depth > 0 ? c->depth : DEFAULT_DEPTH;
    c->start_ctas = c->start_ctas > 0 ? c->start_ctas : DEFAULT_START_CTAS;
}

/* Rows of fp32 are the longest outputs. */
static sol_norm_room_t room_for(const sol_norm_config_t *c, int nranks)
{
    const size_t n = (size_t)nranks, row = c->hidden * sol_dtype_size(c->dtype);
    const size_t groups = (c->hidden + SOL_QUANT_GROUP_COLUMNS - 1) / SOL_QUANT_GROUP_COLUMNS;
    const bool two = c->form == SOL_NORM_TWO_SHOT;
    const size_t rows = two ? (c->max_tokens + n - 1) / n : c->max_tokens;
    const size_t output =
        c->shards & SOL_NORM_SHARD_OUTPUT ? 0 : (c->hidden + groups) * sizeof(float);
    const size_t residual = c->shards & SOL_NORM_SHARD_RESIDUAL ? 0 : row;
    sol_norm_room_t room = {.finished = sol_round_up(sizeof(head_t) + rows * row, SOL_CACHE_LINE)};
    room.slot =
        room.finished +
        (two ? sizeof(head_t) + sol_round_up(rows * (output + residual), SOL_CACHE_LINE) : 0);
    return room;
}

/* Succeeds on all ranks or on none. */
static sol_status_t open_plain(struct sol_norm_halves *h)
{
    h->room = room_for(&h->config, h->comm->nranks);
    const size_t n = (size_t)h->comm->nranks, depth = (size_t)h->config.depth;
    const size_t bytes = depth * 2 * n * h->room.slot;
    const sol_region_t *region;
    void *memory = NULL;
    sol_transfer_config_t config = SOL_TRANSFER_CONFIG_INIT;
    sol_status_t status = sol_mem_alloc(h->comm, bytes, &memory);
    if (status != SOL_OK) {
        return status;
    }
    h->memory = memory;
    region = &(sol_region_t){memory, bytes};
    config.regions = region;
    config.nregions = 1;
    config.counters = 2 * h->config.depth;
    status = sol_transfer_create(h->comm, &config, &h->transfer);
    if (status != SOL_OK) {
        (void)sol_mem_free(h->comm, memory);
    }
    return status;
}

static sol_status_t close_plain(struct sol_norm_halves *h)
{
    sol_status_t status = sol_transfer_destroy(h->transfer);
    sol_status_t freed = sol_mem_free(h->comm, h->memory);
    return status == SOL_OK ? freed : status;
}

static void drop(struct sol_norm_halves *h)
{
    if (h != NULL) {
        h->magic = 0;
        sol_free(h->device);
        sol_free(h->sums);
        sol_free_late(h);
    }
}

static sol_status_t make(sol_comm_t comm, const sol_norm_config_t *config,
                         struct sol_norm_halves **result)
{
    const bool plain = comm->backend->norm_open == NULL;
    struct sol_norm_halves *h = sol_calloc(1, sizeof *h);
    bool good = h != NULL;
    if (good) {
        h->comm = comm;
        h->config = *config;
        h->sums = plain ? sol_calloc(2 * config->hidden, sizeof(float)) : NULL;
        good = h->sums != NULL || !plain;
    }
    sol_status_t status = sol_agree_outcome(
        comm, good ? SOL_OK : sol_comm_error(comm, SOL_ERR_MEMORY, CREATE ": no memory"));
    if (status == SOL_OK) {
        status = plain ? open_plain(h) : comm->backend->norm_open(comm, h);
    }
    if (status != SOL_OK) {
        drop(h);
        return status;
    }
    h->magic = SOL_NORM_MAGIC;
    h->next = comm->norms;
    comm->norms = h;
    *result = h;
    return SOL_OK;
}

sol_status_t sol_norm_create(sol_norm_halves_t *halves, const sol_norm_config_t *config,
                             sol_comm_t comm)
{
    struct sol_norm_halves *made = NULL;
    sol_norm_config_t mine;
    sol_status_t status = sol_fused_usable(comm, CREATE, NULL);
    if (status != SOL_OK) {
        return status;
    }
    if (halves == NULL || config == NULL ||
        config->size < offsetof(sol_norm_config_t, start_ctas)) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              CREATE ": %s: start from SOL_NORM_CONFIG_INIT",
                              halves == NULL   ? "halves is NULL"
                              : config == NULL ? "config is NULL"
                                               : "config has a size that is too small");
    }
    if (comm->backend->norm_open == NULL && !comm->blocking) {
        return sol_comm_error(comm, SOL_ERR_UNSUPPORTED, CREATE ": not for %s ranks",
                              comm->backend->name);
    }
    memset(&mine, 0, sizeof mine);
    memcpy(&mine, config, config->size < sizeof mine ? config->size : sizeof mine);
    status = check_config(comm, &mine);
    if (status != SOL_OK) {
        return status;
    }
    complete(&mine);
    const uint64_t fields[] = {mine.max_tokens,     mine.hidden, (uint64_t)mine.dtype,
                               (uint64_t)mine.form, mine.shards, (uint64_t)mine.depth};
    status = sol_fused_begin(comm, CREATE);
    if (status != SOL_OK) {
        return status;
    }
    status = sol_agree_on_config(comm, SOL_AGREE_NORM, fields, sizeof fields / sizeof fields[0]);
    if (status == SOL_OK) {
        status = make(comm, &mine, &made);
    }
    if (sol_fused_end(comm, status) == SOL_OK) {
        *halves = made;
    }
    return status;
}

static sol_status_t refuse_handle(const char *who, const struct sol_norm_halves *h)
{
    return h != NULL && h->magic == SOL_NORM_MAGIC
               ? SOL_OK
               : sol_thread_error(SOL_ERR_ARGUMENT, "%s: halves is %s", who,
                                  h == NULL ? "NULL" : "no handle, or was destroyed");
}

static sol_status_t let_go(struct sol_norm_halves *h)
{
    sol_comm_t comm = h->comm;
    struct sol_norm_halves **link = &comm->norms;
    while (*link != h) {
        link = &(*link)->next;
    }
    *link = h->next;
    sol_status_t status =
        comm->backend->norm_close != NULL ? comm->backend->norm_close(comm, h) : close_plain(h);
    drop(h);
    return status;
}

sol_status_t sol_norm_destroy(sol_norm_halves_t halves)
{
    if (halves == NULL) {
        return SOL_OK;
    }
    static const char who[] = "sol_norm_destroy";
    sol_status_t status = refuse_handle(who, halves);
    if (status != SOL_OK) {
        return status;
    }
    sol_comm_t comm = halves->comm;
    bool step;
    status = sol_comm_valid(comm, who);
    status = status == SOL_OK ? sol_use_enter(comm, who, &step) : status;
    if (status != SOL_OK) {
        return status;
    }
    status = refuse_handle(who, halves); /* another thread may have, since */
    status = status == SOL_OK ? let_go(halves) : status;
    sol_use_exit(step);
    return status;
}

void sol_norms_free(sol_comm_t comm)
{
    while (comm->norms != NULL) {
        struct sol_norm_halves *h = comm->norms;
        comm->norms = h->next;
        drop(h);
    }
}

/* ------------------------------------------------------------------ put together: where */

/* In every rank's memory. */
static size_t slot_at(const struct sol_norm_halves *h, int lane, int source)
{
    const size_t parity = (size_t)(h->uses[lane] & 1);
    const size_t n = (size_t)h->comm->nranks;
    return (((size_t)lane * 2 + parity) * n + (size_t)source) * h->room.slot;
}

static const char *came_from(const struct sol_norm_halves *h, int lane, int source)
{
    return h->memory + slot_at(h, lane, source);
}

/* The tokens of a start that `owner` finishes. */
typedef struct rows {
    size_t first, count;
} rows_t;

static rows_t rows_of(const struct sol_norm_halves *h, size_t tokens, int owner)
{
    rows_t rows = {0, tokens};
    if (h->config.form == SOL_NORM_TWO_SHOT) {
        rows.first = sol_norm_first_token(tokens, h->comm->nranks, owner);
        rows.count = sol_norm_first_token(tokens, h->comm->nranks, owner + 1) - rows.first;
    }
    return rows;
}

static size_t row_bytes(const sol_norm_args_t *args)
{
    return args->hidden * sol_dtype_size(args->dtype);
}

/* A part of a finished row: where it lies in the caller's memory and, behind the parts before it,
 * in a slot. `bytes` 0: it does not travel. */
typedef struct part {
    char *matrix;
    size_t bytes;
} part_t;

static void parts_of(const sol_norm_args_t *args, part_t *parts)
{
    const bool outputs = !(args->shards & SOL_NORM_SHARD_OUTPUT);
    const bool residuals = !(args->shards & SOL_NORM_SHARD_RESIDUAL) && args->residual_out != NULL;
    parts[0] =
        (part_t){args->output, outputs ? args->hidden * sol_dtype_size(args->output_dtype) : 0};
    parts[1] = (part_t){(char *)args->scales, outputs ? sol_norm_scales(args) * sizeof(float) : 0};
    parts[2] = (part_t){args->residual_out, residuals ? row_bytes(args) : 0};
}

static head_t head_of_finished(const struct sol_norm_halves *h, const sol_norm_args_t *args,
                               const part_t *parts)
{
    head_t head = {
        .tokens = args->tokens, .number = h->waited, .output_dtype = (uint32_t)args->output_dtype};
    for (int i = 0; i < PARTS; i++) {
        head.parts |= (uint32_t)(parts[i].bytes > 0) << i;
        head.row_bytes += parts[i].bytes;
    }
    return head;
}

/* ------------------------------------------------------------------- put together: halves */

static sol_status_t write_all(struct sol_norm_halves *h, const char *who, const sol_write_t *writes,
                              size_t n, int counter)
{
    const sol_transfer_work_t work = {writes, NULL, n, counter, SOL_COUNT_WRITES, NULL};
    sol_status_t status = h->comm->backend->transfer_write(h->comm, h->transfer, &work);
    return status != SOL_ERR_STATE
               ? status
               : sol_comm_error(h->comm, status, "%s: another rank has destroyed its handle: %s",
                                who, sol_thread_error_text());
}

static sol_status_t start_plain(struct sol_norm_halves *h, const sol_norm_args_t *args, int lane)
{
    const size_t row = row_bytes(args), at = slot_at(h, lane, h->comm->rank);
    const head_t head = {.tokens = args->tokens, .number = h->started};
    sol_write_t writes[START_WRITES * SOL_MAX_RANKS];
    size_t n = 0;
    for (int k = 1; k < h->comm->nranks; k++) {
        const int peer = (h->comm->rank + k) % h->comm->nranks;
        const rows_t rows = rows_of(h, args->tokens, peer);
        writes[n++] = (sol_write_t){&head, sizeof head, at, peer, 0};
        writes[n++] = (sol_write_t){(const char *)args->input + rows.first * row, rows.count * row,
                                    at + sizeof head, peer, 0};
    }
    return write_all(h, START, writes, n, 2 * lane);
}

/* Until every peer has written `writes` in each use of the lane so far. */
static sol_status_t await_all(struct sol_norm_halves *h, int counter, uint64_t writes)
{
    sol_status_t status = SOL_OK;
    for (int k = 1; k < h->comm->nranks && status == SOL_OK; k++) {
        const int peer = (h->comm->rank + k) % h->comm->nranks;
        status =
            sol_transfer_await_as(h->transfer, WAIT, counter, peer, writes * h->uses[counter / 2]);
    }
    return status;
}

static sol_status_t check_heads(struct sol_norm_halves *h, const sol_norm_args_t *args, int lane)
{
    for (int r = 0; r < h->comm->nranks; r++) {
        head_t head;
        memcpy(&head, came_from(h, lane, r), sizeof head);
        if (r != h->comm->rank && (head.tokens != args->tokens || head.number != h->waited)) {
            return sol_comm_fail_all(h->comm, SOL_ERR_MISMATCH,
                                     WAIT ": rank %d's start #%llu was of %llu tokens, rank %d's "
                                          "#%u of %zu",
                                     r, (unsigned long long)head.number,
                                     (unsigned long long)head.tokens, h->comm->rank, h->waited,
                                     args->tokens);
        }
    }
    return SOL_OK;
}

static void finish_own(struct sol_norm_halves *h, const sol_norm_args_t *args, int lane)
{
    const size_t row = row_bytes(args);
    const rows_t own = rows_of(h, args->tokens, h->comm->rank);
    const unsigned mode = sol_fp_enter();
    for (size_t i = 0; i < own.count; i++) {
        const size_t token = own.first + i;
        const char *contributions[SOL_MAX_RANKS];
        for (int r = 0; r < h->comm->nranks; r++) {
            contributions[r] = r == h->comm->rank
                                   ? (const char *)args->input + token * row
                                   : came_from(h, lane, r) + sizeof(head_t) + i * row;
        }
        sol_norm_finish_row(args, contributions, h->comm->nranks,
                            args->shards & SOL_NORM_SHARD_RESIDUAL ? i : token,
                            args->shards & SOL_NORM_SHARD_OUTPUT ? i : token, h->sums);
    }
    sol_fp_leave(mode);
}

/* Two shots: own rows, finished, to all. */
static sol_status_t share(struct sol_norm_halves *h, const sol_norm_args_t *args, int lane)
{
    const rows_t own = rows_of(h, args->tokens, h->comm->rank);
    part_t parts[PARTS];
    sol_write_t writes[FINISH_WRITES * SOL_MAX_RANKS];
    size_t n = 0;
    parts_of(args, parts);
    const head_t head = head_of_finished(h, args, parts);
    for (int k = 1; k < h->comm->nranks; k++) {
        const int peer = (h->comm->rank + k) % h->comm->nranks;
        size_t at = slot_at(h, lane, h->comm->rank) + h->room.finished;
        writes[n++] = (sol_write_t){&head, sizeof head, at, peer, 0};
        at += sizeof head;
        for (int i = 0; i < PARTS; i++) {
            const size_t bytes = own.count * parts[i].bytes;
            const char *from = bytes > 0 ? parts[i].matrix + own.first * parts[i].bytes : NULL;
            writes[n++] = (sol_write_t){from, bytes, at, peer, 0};
            at += bytes;
        }
    }
    return write_all(h, WAIT, writes, n, 2 * lane + 1);
}

/* Rows of other parts than this rank's would be read as what they are not. */
static sol_status_t check_finished(struct sol_norm_halves *h, const sol_norm_args_t *args, int lane)
{
    part_t parts[PARTS];
    parts_of(args, parts);
    const head_t own = head_of_finished(h, args, parts);
    for (int r = 0; r < h->comm->nranks; r++) {
        head_t head;
        memcpy(&head, came_from(h, lane, r) + h->room.finished, sizeof head);
        if (r != h->comm->rank && (head.output_dtype != own.output_dtype ||
                                   head.parts != own.parts || head.row_bytes != own.row_bytes)) {
            return sol_comm_fail_all(
                h->comm, SOL_ERR_MISMATCH,
                WAIT ": rank %d finished rows of %llu bytes (output %s%s%s), rank %d of %llu "
                     "(output %s%s%s)",
                r, (unsigned long long)head.row_bytes,
                sol_dtype_name((sol_dtype_t)head.output_dtype), head.parts & 2u ? ", scales" : "",
                head.parts & 4u ? ", residual_out" : "", h->comm->rank,
                (unsigned long long)own.row_bytes, sol_dtype_name(args->output_dtype),
                own.parts & 2u ? ", scales" : "", own.parts & 4u ? ", residual_out" : "");
        }
    }
    return SOL_OK;
}

static void take_finished(struct sol_norm_halves *h, const sol_norm_args_t *args, int lane)
{
    part_t parts[PARTS];
    parts_of(args, parts);
    for (int r = 0; r < h->comm->nranks; r++) {
        const rows_t theirs = rows_of(h, args->tokens, r);
        const char *from = came_from(h, lane, r) + h->room.finished + sizeof(head_t);
        for (int i = 0; i < PARTS && r != h->comm->rank; i++) {
            const size_t bytes = theirs.count * parts[i].bytes;
            if (bytes > 0) {
                memcpy(parts[i].matrix + theirs.first * parts[i].bytes, from, bytes);
            }
            from += bytes;
        }
    }
}

static sol_status_t wait_plain(struct sol_norm_halves *h, const sol_norm_args_t *args, int lane)
{
    sol_status_t status = await_all(h, 2 * lane, START_WRITES);
    status = status == SOL_OK ? check_heads(h, args, lane) : status;
    if (status != SOL_OK) {
        return status;
    }
    finish_own(h, args, lane);
    if (h->config.form == SOL_NORM_TWO_SHOT) {
        status = share(h, args, lane);
        status = status == SOL_OK ? await_all(h, 2 * lane + 1, FINISH_WRITES) : status;
        status = status == SOL_OK ? check_finished(h, args, lane) : status;
        if (status == SOL_OK) {
            take_finished(h, args, lane);
        }
    }
    return status;
}

/* ------------------------------------------------------------------------ the calls */

/* What must be as the handle is; `tokens`, in a start only below its limit. */
static sol_status_t refuse_shape(const struct sol_norm_halves *h, const sol_norm_args_t *args,
                                 const char *who)
{
    const sol_norm_config_t *c = &h->config;
    if (args->hidden != c->hidden || args->dtype != c->dtype || args->shards != c->shards ||
        args->tokens > c->max_tokens) {
        return sol_comm_error(h->comm, SOL_ERR_ARGUMENT,
                              "%s: %zu tokens of %zu %s, shards %u: the handle is for at most %zu "
                              "of %zu %s, shards %u",
                              who, args->tokens, args->hidden, sol_dtype_name(args->dtype),
                              args->shards, c->max_tokens, c->hidden, sol_dtype_name(c->dtype),
                              c->shards);
    }
    if (args->tokens > 0 && args->input == NULL) {
        return sol_comm_error(h->comm, SOL_ERR_ARGUMENT, "%s: input is NULL", who);
    }
    return SOL_OK;
}

static sol_status_t refuse_start(const struct sol_norm_halves *h, const sol_norm_args_t *args)
{
    sol_status_t status = refuse_shape(h, args, START);
    return status != SOL_OK || h->started - h->waited < (unsigned)h->config.depth
               ? status
               : sol_comm_error(h->comm, SOL_ERR_STATE,
                                START ": %d starts are under way, the depth of the handle: "
                                      "expected " WAIT " before it",
                                h->config.depth);
}

static sol_status_t refuse_wait(const struct sol_norm_halves *h, const sol_norm_args_t *args,
                                int lane)
{
    const sol_norm_started_t *started = &h->under_way[lane];
    if (h->started == h->waited) {
        return sol_comm_error(h->comm, SOL_ERR_STATE, WAIT ": expected " START " before it");
    }
    sol_status_t status = refuse_shape(h, args, WAIT);
    status = status == SOL_OK ? sol_norm_check(h->comm, args, WAIT) : status;
    if (status == SOL_OK && (args->tokens != started->tokens || args->input != started->input)) {
        status = sol_comm_error(h->comm, SOL_ERR_ARGUMENT,
                                WAIT ": tokens is %zu, input is %p: %zu from %p were started",
                                args->tokens, args->input, started->tokens, started->input);
    }
    return status;
}

/* A half of a backend with kernels. */
struct own {
    struct sol_norm_halves *halves;
    const sol_norm_args_t *args;
    int lane;
    bool start;
};

static sol_status_t run_own(sol_comm_t comm, const sol_call_t *call, const void *args)
{
    const struct own *own = args;
    return comm->backend->norm_half(comm, call, own->halves, own->args, own->lane, own->start);
}

static sol_status_t submit(const struct own *own, void *stream)
{
    sol_call_t call;
    memset(&call, 0, sizeof call);
    call.func = SOL_FUNC_ALL_REDUCE;
    call.dtype = own->args->dtype;
    call.count = own->args->tokens * own->args->hidden;
    call.send = own->args->input;
    call.recv = own->start ? NULL : own->args->output;
    call.reduction.op = SOL_SUM;
    call.stream = stream;
    return sol_fused_perform(own->halves->comm, &call, run_own, own);
}

static sol_status_t perform_plain(struct sol_norm_halves *h, const sol_norm_args_t *args, int lane,
                                  bool start)
{
    h->uses[lane] += start;
    sol_status_t status = start ? start_plain(h, args, lane) : wait_plain(h, args, lane);
    h->uses[lane] -= start && status != SOL_OK;
    return status;
}

static sol_status_t perform(struct sol_norm_halves *h, const sol_norm_args_t *args, int lane,
                            bool start, void *stream)
{
    const struct own own = {h, args, lane, start};
    if (h->comm->backend->norm_half != NULL) {
        return submit(&own, stream);
    }
    return args->tokens == 0 ? SOL_OK : perform_plain(h, args, lane, start);
}

/* By the thread that is inside, as the next one: what is read and written of the handle is not
 * another thread's call's. */
static sol_status_t start_inside(struct sol_norm_halves *h, const sol_norm_args_t *args,
                                 void *stream)
{
    const int lane = (int)(h->started % (unsigned)h->config.depth);
    sol_status_t status = refuse_start(h, args);
    status = status == SOL_OK ? perform(h, args, lane, true, stream) : status;
    if (status == SOL_OK) {
        h->under_way[lane] = (sol_norm_started_t){args->tokens, args->input};
        h->started++;
    }
    return status;
}

static sol_status_t wait_inside(struct sol_norm_halves *h, const sol_norm_args_t *args,
                                void *stream)
{
    const int lane = (int)(h->waited % (unsigned)h->config.depth);
    sol_status_t status = refuse_wait(h, args, lane);
    status = status == SOL_OK ? perform(h, args, lane, false, stream) : status;
    h->waited += status == SOL_OK;
    return status;
}

/* One half: checks that need no handle, then the rest inside. */
static sol_status_t half(sol_norm_halves_t halves, const sol_norm_args_t *given, bool start,
                         void *stream)
{
    const char *who = start ? START : WAIT;
    sol_norm_args_t args;
    sol_status_t status = refuse_handle(who, halves);
    status = status == SOL_OK ? sol_norm_refuse(halves->comm, given, who, stream) : status;
    if (status != SOL_OK) {
        return status;
    }
    sol_comm_t comm = halves->comm;
    sol_norm_take(&args, given);
    args.form = halves->config.form;
    status = sol_fused_begin(comm, who);
    if (status != SOL_OK) {
        return status;
    }
    status = refuse_handle(who, halves); /* since the first look */
    if (status == SOL_OK) {
        status = start ? start_inside(halves, &args, stream) : wait_inside(halves, &args, stream);
    }
    return sol_fused_end(comm, status);
}

sol_status_t sol_norm_start(sol_norm_halves_t halves, const sol_norm_args_t *args, void *stream)
{
    return half(halves, args, true, stream);
}

sol_status_t sol_norm_wait(sol_norm_halves_t halves, const sol_norm_args_t *args, void *stream)
{
    return half(halves, args, false, stream);
}
