/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chaos.c: features against each other. All ranks make the same deeds in the same random order on
 * one communicator: collectives, handles of norms, experts and transfers in every state, sleep and
 * wake, split, shrink, groups with errors in the middle; what is not legal then must be refused, on
 * all ranks alike, and what is legal must be right. In the end everything is destroyed, in one
 * order or the other.
 *
 * The same seed makes the same life. Nothing here waits but in the library.
 */
#include "faults/faults.h"

#include "solccl/fused.h"
#include "solccl/moe.h"
#include "solccl/transfer.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEPS 300
#define KINDS 3 /* of each handle, at once */
#define REGION 65536u
#define BUFFER ((size_t)1 << 20)
#define DEPTH 2 /* starts at once */
#define NORM_TOKENS 5
#define NORM_HIDDEN 96 /* at most */
#define TOKENS 8
#define EXPERTS 8
#define TOP_K 2

typedef struct player {
    team_t *team;
    int rank, n;
    uint64_t random;          /* the same on all ranks */
    _Atomic(sol_comm_t) comm; /* (both atomic for look_on) */
    sol_comm_t part;
    int part_ranks;
    _Atomic int stop;
    bool asleep;
    sol_norm_halves_t halves[KINDS];
    int started[KINDS], waited[KINDS];
    float rows[KINDS][DEPTH][NORM_TOKENS * NORM_HIDDEN]; /* of the starts under way */
    sol_moe_t experts[KINDS];
    _Atomic(sol_transfer_t) transfers[KINDS];
    void *windows[KINDS];
    uint64_t written[KINDS];
    char *in, *out, *more, *own;
} player_t;

/* Of one deed: what it draws, before anything that ranks may see differently. */
typedef struct draw {
    int kind;
    uint64_t bits;
} draw_t;

static bool expect(player_t *p, const char *what, sol_status_t got, sol_status_t wanted)
{
    return team_expect(p->team, p->rank, what, got, wanted, p->comm);
}

static sol_status_t awake(const player_t *p)
{
    return p->asleep ? SOL_ERR_STATE : SOL_OK;
}

static bool any_handle(const player_t *p)
{
    bool any = false;
    for (int i = 0; i < KINDS; i++)
        any = any || p->halves[i] || p->experts[i] || p->transfers[i];
    return any;
}

/* ------------------------------------------------------------------ collectives */

static void sum(player_t *p, sol_comm_t comm, int n, size_t count, sol_status_t wanted)
{
    int32_t *x = (int32_t *)(void *)p->in, *y = (int32_t *)(void *)p->out;
    for (size_t i = 0; i < count; i++)
        x[i] = (int32_t)i + 1, y[i] = -1;
    if (!expect(p, "all_reduce", sol_all_reduce(x, y, count, SOL_INT32, SOL_SUM, comm, NULL),
                wanted) ||
        wanted != SOL_OK)
        return;
    for (size_t i = 0; i < count; i++) {
        if (y[i] != (int32_t)(i + 1) * n) {
            team_fail(p->team, p->rank, "sum %zu is %d", i, y[i]);
            return;
        }
    }
}

static void reduce(player_t *p, draw_t d)
{
    sum(p, p->comm, p->n, d.bits % 100000, awake(p));
}

/* A message with errors in the middle of a group: nothing of the group is done. */
static void bad_group(player_t *p, draw_t d)
{
    int32_t x = 1, y = 0, z = 0;
    sol_comm_t part = NULL;
    (void)d;
    sol_group_start();
    (void)sol_all_reduce(&x, &y, 1, SOL_INT32, SOL_SUM, p->comm, NULL);
    (void)sol_send(&x, 1, SOL_INT32, 99, p->comm, NULL);
    (void)sol_comm_split(p->comm, 0, 0, &part, NULL);
    (void)sol_all_reduce(&x, &z, 1, SOL_INT32, SOL_SUM, p->comm, NULL);
    expect(p, "a bad group", sol_group_end(), p->asleep ? SOL_ERR_STATE : SOL_ERR_ARGUMENT);
    TEAM_CHECK(p->team, p->rank, y == 0 && z == 0 && part == NULL);
}

/* ------------------------------------------------------------------ norms */

/* Contributions of start number `number` are zeros but for two columns, so that neither another
 * start's nor another rank's can be taken for it: 1 + rank, and, elsewhere for each rank, 1. */
static float contribution(int column, int number, int rank, int hidden)
{
    return column == number % hidden                ? (float)(1 + rank)
           : column == (number + 1 + rank) % hidden ? 1
                                                    : 0;
}

static sol_norm_args_t norm_args(player_t *p, int kind, int number)
{
    sol_norm_args_t args = SOL_NORM_ARGS_INIT;
    float *rows = p->rows[kind][number % DEPTH];
    args.tokens = NORM_TOKENS, args.hidden = 64 + 13 * (size_t)kind, args.epsilon = 1e-5f;
    args.dtype = args.output_dtype = SOL_FLOAT32;
    args.input = rows, args.output = p->out;
    for (size_t i = 0; i < args.tokens * args.hidden; i++)
        rows[i] = contribution((int)(i % args.hidden), number, p->rank, (int)args.hidden);
    args.form = kind > 0 ? SOL_NORM_TWO_SHOT : SOL_NORM_ONE_SHOT;
    if (kind == 2) {
        args.shards = SOL_NORM_SHARD_RESIDUAL | SOL_NORM_SHARD_OUTPUT;
        args.residual = args.residual_out = p->more;
    }
    return args;
}

static void check_norm(player_t *p, const sol_norm_args_t *args, int number)
{
    const float *y = (const float *)(const void *)p->out;
    const float all = (float)(p->n * (p->n + 1)) / 2, squares = all * all + (float)p->n;
    for (size_t i = 0; i < args->tokens * args->hidden; i++) {
        float sum = 0, square;
        for (int r = 0; r < p->n; r++)
            sum += contribution((int)(i % args->hidden), number, r, (int)args->hidden);
        square = sum * sum / squares * (float)args->hidden;
        if (y[i] < 0 || y[i] * y[i] < 0.99f * square || y[i] * y[i] > 1.01f * square) {
            team_fail(p->team, p->rank, "norm of start %d: element %zu is %g", number, i,
                      (double)y[i]);
            return;
        }
    }
}

static void norm_create(player_t *p, draw_t d)
{
    const sol_norm_args_t args = norm_args(p, d.kind, 0);
    sol_norm_config_t config = SOL_NORM_CONFIG_INIT;
    sol_norm_halves_t made = NULL;
    config.max_tokens = 7, config.hidden = args.hidden, config.dtype = args.dtype;
    config.form = args.form, config.shards = args.shards, config.depth = DEPTH;
    if (p->halves[d.kind])
        return;
    expect(p, "norm_create", sol_norm_create(&made, &config, p->comm), awake(p));
    p->halves[d.kind] = made, p->started[d.kind] = p->waited[d.kind] = 0;
}

static void norm_start(player_t *p, draw_t d)
{
    const int number = p->started[d.kind];
    if (!p->halves[d.kind])
        return;
    const sol_norm_args_t args = norm_args(p, d.kind, number);
    bool room = number < p->waited[d.kind] + DEPTH;
    expect(p, "norm_start", sol_norm_start(p->halves[d.kind], &args, NULL),
           room ? SOL_OK : SOL_ERR_STATE);
    if (room)
        p->started[d.kind]++;
    else /* (the rows are those of the oldest under way) */
        (void)norm_args(p, d.kind, p->waited[d.kind]);
}

static void norm_wait(player_t *p, draw_t d)
{
    const int number = p->waited[d.kind];
    if (!p->halves[d.kind])
        return;
    const sol_norm_args_t args = norm_args(p, d.kind, number);
    bool any = number < p->started[d.kind];
    expect(p, "norm_wait", sol_norm_wait(p->halves[d.kind], &args, NULL),
           any ? SOL_OK : SOL_ERR_STATE);
    if (any && d.kind < 2) /* (the other one adds a residual) */
        check_norm(p, &args, number);
    p->waited[d.kind] += any;
}

/* (What is under way is dropped: who has not got so far would find a rank that left.) */
static void norm_destroy(player_t *p, draw_t d)
{
    if (!p->halves[d.kind])
        return;
    expect(p, "barrier", sol_barrier(p->comm, NULL), SOL_OK);
    expect(p, "norm_destroy", sol_norm_destroy(p->halves[d.kind]), SOL_OK);
    p->halves[d.kind] = NULL;
}

/* ------------------------------------------------------------------ experts */

static void moe_create(player_t *p, draw_t d)
{
    sol_moe_config_t config = SOL_MOE_CONFIG_INIT;
    sol_moe_t made = NULL;
    config.max_tokens = TOKENS, config.hidden = 128, config.dtype = SOL_FLOAT32;
    config.experts = EXPERTS, config.top_k = TOP_K;
    config.quant = d.kind == 1 ? SOL_QUANT_GROUP : SOL_QUANT_NONE;
    if (p->experts[d.kind])
        return;
    expect(p, "moe_create", sol_moe_create(&made, &config, p->comm), awake(p));
    p->experts[d.kind] = made;
}

static void moe_round(player_t *p, draw_t d)
{
    sol_moe_dispatch_args_t there = SOL_MOE_DISPATCH_ARGS_INIT;
    sol_moe_combine_args_t back = SOL_MOE_COMBINE_ARGS_INIT;
    int64_t first[TOKENS * TOP_K];
    int32_t counts[EXPERTS];
    if (!p->experts[d.kind])
        return;
    for (int i = 0; i < TOKENS * TOP_K; i++)
        first[i] = (3 * i + p->rank + i / TOP_K) % EXPERTS;
    there.tokens = back.tokens = TOKENS;
    there.x = p->in, there.topk_idx = first, there.recv_x = p->out, there.recv_counts = counts;
    there.recv_scales = (float *)(void *)p->more;
    back.y = p->out, back.out = p->more;
    expect(p, "moe_dispatch", sol_moe_dispatch(p->experts[d.kind], &there, NULL), SOL_OK);
    if (d.bits & 1)
        expect(p, "moe_combine", sol_moe_combine(p->experts[d.kind], &back, NULL), SOL_OK);
}

static void moe_destroy(player_t *p, draw_t d)
{
    expect(p, "moe_destroy", sol_moe_destroy(p->experts[d.kind]), SOL_OK);
    p->experts[d.kind] = NULL;
}

/* ------------------------------------------------------------------ transfers */

/* Kind 0: to memory of its own; the others: of sol_mem_alloc. */
static void transfer_create(player_t *p, draw_t d)
{
    sol_region_t region = {p->own, REGION};
    sol_transfer_config_t config = SOL_TRANSFER_CONFIG_INIT;
    sol_transfer_t made = NULL;
    config.regions = &region, config.nregions = 1, config.counters = 3;
    if (p->transfers[d.kind])
        return;
    if (d.kind > 0 && !p->windows[d.kind])
        expect(p, "mem_alloc", sol_mem_alloc(p->comm, REGION, &p->windows[d.kind]), awake(p));
    if (d.kind > 0)
        region.memory = p->windows[d.kind];
    if (!region.memory)
        return;
    expect(p, "transfer_create", sol_transfer_create(p->comm, &config, &made), awake(p));
    p->transfers[d.kind] = made;
    p->written[d.kind] = 0;
}

static void transfer_round(player_t *p, draw_t d)
{
    const int next = (p->rank + 1) % p->n, before = (p->rank + p->n - 1) % p->n;
    const sol_write_t write = {p->in, d.bits % 60000, (d.bits >> 20) % 5000, next, 0};
    sol_transfer_t t = p->transfers[d.kind];
    if (!t)
        return;
    expect(p, "transfer_write", sol_transfer_write(&write, 1, 1, SOL_COUNT_WRITES, t, NULL),
           SOL_OK);
    p->written[d.kind]++;
    expect(p, "transfer_await", sol_transfer_await(t, 1, before, p->written[d.kind], NULL), SOL_OK);
}

static void transfer_destroy(player_t *p, draw_t d)
{
    if (!p->transfers[d.kind])
        return;
    expect(p, "barrier", sol_barrier(p->comm, NULL), SOL_OK);
    expect(p, "transfer_destroy", sol_transfer_destroy(p->transfers[d.kind]), SOL_OK);
    p->transfers[d.kind] = NULL;
    if (d.bits & 1) {
        expect(p, "mem_free", sol_mem_free(p->comm, p->windows[d.kind]), SOL_OK);
        p->windows[d.kind] = NULL;
    }
}

/* ------------------------------------------------------------------ the communicator */

static void go_to_sleep(player_t *p, draw_t d)
{
    const sol_sleep_level_t level = d.bits & 1 ? SOL_SLEEP_KEEP : SOL_SLEEP_DISCARD;
    bool may = !p->asleep && !any_handle(p);
    expect(p, "sleep", sol_comm_sleep(p->comm, level), may ? SOL_OK : SOL_ERR_STATE);
    p->asleep = p->asleep || may;
}

static void wake(player_t *p, draw_t d)
{
    (void)d;
    expect(p, "wake", sol_comm_wake(p->comm), p->asleep ? SOL_OK : SOL_ERR_STATE);
    p->asleep = false;
}

static void split(player_t *p, draw_t d)
{
    const int color = (int)(d.bits >> p->rank & 1);
    if (p->part) {
        sum(p, p->part, p->part_ranks, 1000, SOL_OK);
        expect(p, "destroy", sol_comm_destroy(p->part), SOL_OK);
        p->part = NULL;
        return;
    }
    p->part_ranks = 0;
    for (int r = 0; r < p->n; r++)
        p->part_ranks += (int)(d.bits >> r & 1) == color;
    expect(p, "split", sol_comm_split(p->comm, color, 0, &p->part, NULL), awake(p));
}

/* Nobody is gone: a twin. The handles go with the old one, if it goes. */
static void shrink(player_t *p, draw_t d)
{
    sol_comm_t twin = NULL;
    if (!expect(p, "shrink", sol_comm_shrink(p->comm, 0, &twin, NULL), SOL_OK))
        return;
    if (d.bits & 1) {
        sum(p, twin, p->n, 777, SOL_OK);
        expect(p, "destroy", sol_comm_destroy(twin), SOL_OK);
        return;
    }
    expect(p, "destroy", sol_comm_destroy(p->comm), SOL_OK);
    p->comm = twin;
    p->asleep = false;
    memset(p->halves, 0, sizeof(p->halves));
    memset(p->experts, 0, sizeof(p->experts));
    for (int i = 0; i < KINDS; i++)
        p->transfers[i] = NULL;
    memset(p->windows, 0, sizeof(p->windows));
}

/* ------------------------------------------------------------------ a life */

static const struct {
    const char *name;
    void (*deed)(player_t *p, draw_t d);
    int weight;
} deeds[] = {{"all_reduce", reduce, 2},
             {"norm_create", norm_create, 3},
             {"norm_start", norm_start, 5},
             {"norm_wait", norm_wait, 4},
             {"norm_destroy", norm_destroy, 1},
             {"sleep", go_to_sleep, 1},
             {"wake", wake, 3},
             {"moe_create", moe_create, 2},
             {"moe", moe_round, 2},
             {"moe_destroy", moe_destroy, 1},
             {"transfer_create", transfer_create, 2},
             {"transfer", transfer_round, 2},
             {"transfer_destroy", transfer_destroy, 1},
             {"split", split, 1},
             {"a bad group", bad_group, 1},
             {"shrink", shrink, 1}};

#define DEEDS (sizeof(deeds) / sizeof(deeds[0]))

static void step(player_t *p, int number)
{
    int weights = 0;
    size_t which = 0;
    for (size_t i = 0; i < DEEDS; i++)
        weights += deeds[i].weight;
    int left = (int)(team_random(&p->random) % (uint64_t)weights);
    while (left >= deeds[which].weight)
        left -= deeds[which++].weight;
    const draw_t d = {(int)(team_random(&p->random) % KINDS), team_random(&p->random)};
    team_doing(p->team, p->rank, "seed %llu, step %d: %s, kind %d, %s",
               (unsigned long long)p->team->seed, number, deeds[which].name, d.kind,
               p->asleep ? "asleep" : "awake");
    deeds[which].deed(p, d);
}

static void destroy_handles(player_t *p, bool good)
{
    for (int i = 0; i < KINDS; i++) {
        const sol_status_t a = sol_norm_destroy(p->halves[i]), b = sol_moe_destroy(p->experts[i]);
        const sol_status_t c = sol_transfer_destroy(p->transfers[i]);
        TEAM_CHECK(p->team, p->rank, !good || (a == SOL_OK && b == SOL_OK && c == SOL_OK));
    }
}

/* All that any thread may do at any time, also beside the end of what it looks at. */
static void *look_on(void *arg)
{
    player_t *p = arg;
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    for (int i = 0; p->stop == 0; i++) {
        sol_comm_info_t info = {.size = sizeof(info)};
        sol_comm_t comm = p->comm;
        sol_transfer_t t = p->transfers[i % KINDS];
        sol_status_t error = SOL_OK, status = sol_comm_query(comm, &info);
        uint64_t count;
        TEAM_CHECK(p->team, p->rank,
                   status == SOL_ERR_ARGUMENT || (status == SOL_OK && info.nranks == p->n));
        status = sol_comm_async_error(comm, &error);
        TEAM_CHECK(p->team, p->rank, status == SOL_ERR_ARGUMENT || error == SOL_OK);
        status = i % 2 == 0 ? sol_transfer_count(t, 1, SOL_ANY_RANK, &count)
                            : sol_transfer_wait(t, 1, SOL_ANY_RANK, UINT32_MAX, i % 3);
        TEAM_CHECK(p->team, p->rank,
                   status == SOL_OK || status == SOL_ERR_ARGUMENT || status == SOL_ERR_TIMEOUT);
        (void)strlen(sol_last_error(comm));
        if (i % 16 == 0)
            (void)sol_comm_dump(comm, nowhere);
        team_sleep_us(20);
    }
    close(nowhere);
    return NULL;
}

static void life(team_t *team, int rank, void *arg)
{
    player_t p = {.team = team, .rank = rank, .n = team->nranks, .random = team_mix(team->seed)};
    const bool looked_at = *(int *)arg != 0;
    pthread_t thread;
    sol_comm_t comm;
    p.in = calloc(1, BUFFER), p.out = calloc(1, BUFFER);
    p.more = calloc(1, BUFFER), p.own = calloc(1, REGION);
    if (p.in && p.out && p.more && p.own && fault_comm(team, rank, FAULT_LONG_MS, &comm)) {
        p.comm = comm;
        if (looked_at)
            TEAM_CHECK(team, rank, pthread_create(&thread, NULL, look_on, &p) == 0);
        for (int i = 0; i < STEPS && atomic_load(&team->failures) == 0; i++)
            step(&p, i);
        team_barrier(team);
        p.stop = 1;
        if (looked_at)
            pthread_join(thread, NULL);
        const bool handles_first = team->seed & 1;
        if (handles_first)
            destroy_handles(&p, true);
        TEAM_OK(team, rank, sol_comm_destroy(p.part), NULL);
        TEAM_OK(team, rank, sol_comm_destroy(p.comm), NULL);
        if (!handles_first) /* they went with it, and are found out */
            destroy_handles(&p, false);
    }
    free(p.in);
    free(p.out);
    free(p.more);
    free(p.own);
}

const fault_case_t fault_chaos[] = {
    {.name = "chaos, 2 ranks", .run = life, .nranks = 2, .repeat = 8},
    {.name = "chaos, 3 ranks", .run = life, .nranks = 3, .repeat = 5},
    {.name = "chaos, looked at by other threads",
     .run = life,
     .nranks = 2,
     .argument = 1,
     .repeat = 4},
    {.name = "chaos, 2 threads", .run = life, .nranks = 2, .threads = true, .repeat = 4},
    {.name = NULL}};
