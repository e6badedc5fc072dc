/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steps.c: a call that is several steps inside (set-up that meets more than once, operations that
 * CPU ranks put together) is one call: no other thread's call comes between its steps, so it is
 * never refused half-way, when other ranks have gone on.
 *
 * A second thread of rank 0 knocks all the time. It may be let in before the call and after it. Let
 * in and refused again means that it was in between.
 */
#include "faults/faults.h"

#include "solccl/fused.h"
#include "solccl/moe.h"
#include "solccl/quantized.h"
#include "solccl/transfer.h"

#include <stdlib.h>
#include <string.h>

#define TOKENS 256
#define HIDDEN 1024
#define EXPERTS 4
#define TOP_K 2
#define CALLS 8 /* at most; where there is a way in, most of them show it */

enum { NORM_CREATE, MOE_CREATE, NORM, TWO_SHOT, VOCAB, QUANTIZED, DISPATCH, GROUP };
static const char *const names[] = {"sol_norm_create",     "sol_moe_create",
                                    "sol_all_reduce_norm", "sol_all_reduce_norm in two shots",
                                    "sol_vocab_topk",      "sol_all_reduce_quantized",
                                    "sol_moe_dispatch",    "a group of set-up and a call"};

typedef struct steps {
    team_t *team;
    sol_comm_t comm, part;
    int rank;
    sol_transfer_t transfer; /* for the knocker: a write to its own rank, of nothing */
    sol_norm_halves_t halves;
    sol_moe_t experts, fresh;
    float *in, *out;
    int64_t *indices;
    int32_t counts[EXPERTS];
    _Atomic int stop, refused;
    int between; /* let in, and refused again later */
} steps_t;

static void *knock(void *arg)
{
    steps_t *s = arg;
    const sol_write_t nothing = {.peer = s->rank};
    int let_in = 0;
    while (atomic_load(&s->stop) == 0) {
        if (sol_transfer_write(&nothing, 1, SOL_NO_COUNTER, SOL_COUNT_WRITES, s->transfer, NULL) ==
            SOL_OK) {
            let_in += s->refused > 0;
        } else {
            s->between += let_in;
            let_in = 0;
            if (s->refused++ == 0)
                fault_raise(s->team, 0);
        }
    }
    return NULL;
}

static sol_moe_config_t moe_config(void)
{
    sol_moe_config_t config = SOL_MOE_CONFIG_INIT;
    config.max_tokens = TOKENS, config.hidden = HIDDEN, config.dtype = SOL_FLOAT32;
    config.experts = EXPERTS, config.top_k = TOP_K;
    return config;
}

static sol_status_t create(steps_t *s, int what)
{
    sol_norm_config_t norm = SOL_NORM_CONFIG_INIT;
    const sol_moe_config_t moe = moe_config();
    norm.max_tokens = 4, norm.hidden = 64, norm.dtype = SOL_FLOAT32;
    return what == NORM_CREATE ? sol_norm_create(&s->halves, &norm, s->comm)
                               : sol_moe_create(&s->fresh, &moe, s->comm);
}

static sol_status_t norm(steps_t *s, bool two_shot)
{
    sol_norm_args_t args = SOL_NORM_ARGS_INIT;
    args.tokens = TOKENS, args.hidden = HIDDEN, args.epsilon = 1e-5f;
    args.dtype = args.output_dtype = SOL_FLOAT32;
    args.input = s->in, args.output = s->out;
    args.form = two_shot ? SOL_NORM_TWO_SHOT : SOL_NORM_ONE_SHOT;
    return sol_all_reduce_norm(&args, s->comm, NULL);
}

static sol_status_t vocab(steps_t *s)
{
    sol_vocab_args_t args = SOL_VOCAB_ARGS_INIT;
    args.tokens = 4096, args.columns = 64, args.k = 8;
    args.first = (size_t)s->rank * args.columns;
    args.logits = s->in, args.dtype = SOL_FLOAT32;
    args.values = s->out, args.indices = s->indices;
    return sol_vocab_topk(&args, s->comm, NULL);
}

static sol_status_t dispatch(steps_t *s)
{
    sol_moe_dispatch_args_t args = SOL_MOE_DISPATCH_ARGS_INIT;
    args.tokens = TOKENS, args.x = s->in, args.topk_idx = s->indices;
    args.recv_x = s->out, args.recv_counts = s->counts;
    return sol_moe_dispatch(s->experts, &args, NULL);
}

static sol_status_t combine(steps_t *s)
{
    sol_moe_combine_args_t args = SOL_MOE_COMBINE_ARGS_INIT;
    args.tokens = TOKENS, args.y = s->out, args.out = s->in;
    return sol_moe_combine(s->experts, &args, NULL);
}

static sol_status_t group(steps_t *s)
{
    sol_group_start();
    (void)sol_comm_split(s->comm, 0, 0, &s->part, NULL);
    (void)sol_all_reduce(s->in, s->out, TOKENS * HIDDEN, SOL_FLOAT32, SOL_SUM, s->comm, NULL);
    return sol_group_end();
}

static sol_status_t call(steps_t *s, int what)
{
    switch (what) {
    case NORM_CREATE:
    case MOE_CREATE:
        return create(s, what);
    case NORM:
    case TWO_SHOT:
        return norm(s, what == TWO_SHOT);
    case VOCAB:
        return vocab(s);
    case QUANTIZED:
        return sol_all_reduce_quantized(s->in, s->out, TOKENS * HIDDEN, SOL_FLOAT32, SOL_INT8, 2,
                                        s->comm, NULL);
    case DISPATCH:
        return dispatch(s);
    default:
        return group(s);
    }
}

static bool prepare(steps_t *s)
{
    const size_t most = (size_t)2 * TOKENS * EXPERTS * HIDDEN;
    const sol_moe_config_t config = moe_config();
    const sol_region_t region = {NULL, 0};
    sol_transfer_config_t transfer = SOL_TRANSFER_CONFIG_INIT;
    transfer.regions = &region, transfer.nregions = 1;
    s->in = calloc(most, sizeof(float));
    s->out = calloc(most, sizeof(float));
    s->indices = calloc((size_t)4096 * 8, sizeof(int64_t));
    for (size_t i = 0; s->indices && i < (size_t)TOKENS * TOP_K; i++)
        s->indices[i] = (int64_t)(i % EXPERTS);
    return TEAM_CHECK(s->team, s->rank, s->in && s->out && s->indices) &&
           TEAM_OK(s->team, s->rank, sol_moe_create(&s->experts, &config, s->comm), s->comm) &&
           TEAM_OK(s->team, s->rank, sol_transfer_create(s->comm, &transfer, &s->transfer),
                   s->comm);
}

static void finish(steps_t *s)
{
    TEAM_OK(s->team, s->rank, sol_transfer_destroy(s->transfer), s->comm);
    TEAM_OK(s->team, s->rank, sol_moe_destroy(s->experts), s->comm);
    TEAM_OK(s->team, s->rank, sol_moe_destroy(s->fresh), s->comm);
    TEAM_OK(s->team, s->rank, sol_norm_destroy(s->halves), s->comm);
    fault_still_works(s->team, s->rank, s->comm);
    TEAM_OK(s->team, s->rank, sol_comm_destroy(s->comm), NULL);
    free(s->in);
    free(s->out);
    free(s->indices);
}

/* One call, with the knocker at the door. */
static void call_once(steps_t *s, int what)
{
    pthread_t thread;
    sol_status_t status;
    s->stop = s->refused = 0;
    if (s->rank == 0)
        TEAM_CHECK(s->team, 0, pthread_create(&thread, NULL, knock, s) == 0);
    else /* rank 0 is in the first step, which waits for this rank */
        fault_await(s->team, 0);
    do { /* the knocker may be in at the first try */
        status = call(s, what);
    } while (status == SOL_ERR_STATE && s->rank == 0 && s->refused == 0);
    if (s->rank == 0) {
        s->stop = 1;
        pthread_join(thread, NULL);
    }
    team_expect(s->team, s->rank, names[what], status, SOL_OK, s->comm);
    if (what == DISPATCH && status == SOL_OK)
        TEAM_OK(s->team, s->rank, combine(s), s->comm);
    if (what == GROUP && status == SOL_OK)
        TEAM_OK(s->team, s->rank, sol_comm_destroy(s->part), NULL);
}

static void nobody_between(team_t *team, int rank, void *arg)
{
    const int what = *(int *)arg;
    steps_t s = {.team = team, .rank = rank};
    if (!fault_comm(team, rank, FAULT_LONG_MS, &s.comm))
        return;
    const int calls = !prepare(&s) ? 0 : what <= MOE_CREATE ? 1 : CALLS;
    for (int i = 0; i < calls && atomic_load(&team->failures) == 0; i++) {
        call_once(&s, what);
        team_barrier(team);
        TEAM_CHECK(team, rank, s.between == 0);
        fault_lower(team, 0);
        team_barrier(team);
    }
    finish(&s);
}

/* ------------------------------------------------------- a group of two communicators */

static void *one_barrier(void *comm)
{
    return sol_barrier(comm, NULL) == SOL_OK ? comm : NULL;
}

/* Another thread is inside one of them: nothing is done on the other one, either. */
static void half_a_group(team_t *team, int rank, void *arg)
{
    sol_comm_t comm, busy = NULL;
    float x = 1, y = 0, z = 0;
    pthread_t thread;
    void *good = NULL;
    (void)arg;
    if (!fault_comm(team, rank, FAULT_LONG_MS, &comm) ||
        !TEAM_OK(team, rank, sol_comm_split(comm, 0, 0, &busy, NULL), comm))
        return;
    if (rank == 0) {
        const uint64_t before = fault_sequence(comm), sequence = fault_sequence(busy);
        TEAM_CHECK(team, rank, pthread_create(&thread, NULL, one_barrier, busy) == 0);
        fault_await_call(busy, sequence);
        sol_group_start();
        (void)sol_all_reduce(&x, &y, 1, SOL_FLOAT32, SOL_SUM, comm, NULL);
        (void)sol_all_reduce(&x, &z, 1, SOL_FLOAT32, SOL_SUM, busy, NULL);
        fault_expect(team, rank, "the group", sol_group_end(), SOL_ERR_STATE, NULL, "at a time");
        TEAM_CHECK(team, rank, fault_sequence(comm) == before && y == 0 && z == 0);
    }
    team_barrier(team); /* (the other thread waits for rank 1 till here) */
    if (rank == 0) {
        pthread_join(thread, &good);
        TEAM_CHECK(team, rank, good == busy);
    } else {
        TEAM_OK(team, rank, sol_barrier(busy, NULL), busy);
    }
    sol_group_start();
    (void)sol_all_reduce(&x, &y, 1, SOL_FLOAT32, SOL_SUM, comm, NULL);
    (void)sol_all_reduce(&x, &z, 1, SOL_FLOAT32, SOL_SUM, busy, NULL);
    TEAM_OK(team, rank, sol_group_end(), comm);
    TEAM_CHECK(team, rank, y == (float)team->nranks && z == (float)team->nranks);
    TEAM_OK(team, rank, sol_comm_destroy(busy), NULL);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

/* ------------------------------------------------------- two threads, one handle */

typedef struct pair {
    steps_t *steps;
    float *out;
    int32_t counts[EXPERTS];
    bool experts;
    int wrong, calls;
} pair_t;

/* The same call until it is let in; a refusal has done nothing. */
static sol_status_t again(pair_t *p, bool start)
{
    sol_norm_args_t norm = SOL_NORM_ARGS_INIT;
    sol_moe_dispatch_args_t moe = SOL_MOE_DISPATCH_ARGS_INIT;
    sol_status_t status;
    norm.tokens = 4, norm.hidden = 64, norm.epsilon = 1e-5f;
    norm.dtype = norm.output_dtype = SOL_FLOAT32;
    norm.input = p->steps->in, norm.output = p->out;
    moe.tokens = TOKENS, moe.x = p->steps->in, moe.topk_idx = p->steps->indices;
    moe.recv_x = p->out, moe.recv_counts = p->counts;
    for (;;) {
        status = p->experts ? sol_moe_dispatch(p->steps->experts, &moe, NULL)
                 : start    ? sol_norm_start(p->steps->halves, &norm, NULL)
                            : sol_norm_wait(p->steps->halves, &norm, NULL);
        if (status != SOL_ERR_STATE || strstr(sol_last_error(NULL), "at a time") == NULL)
            return status;
        if (p->experts) /* (norms: the way in is as short as this) */
            team_sleep_us(1);
    }
}

/* Rows of 1 and -1 in turns, on every rank: their sums have the mean square nranks^2. */
static void *call_often(void *arg)
{
    pair_t *p = arg;
    for (int i = 0; i < p->calls && p->wrong == 0; i++) {
        p->out[0] = p->out[1] = 0;
        if (!p->experts)
            p->wrong += again(p, true) != SOL_OK;
        p->wrong += again(p, false) != SOL_OK;
        p->wrong += p->experts ? p->counts[0] != 2 * TOKENS * TOP_K / EXPERTS
                               : p->out[0] < 0.99f || p->out[1] > -0.99f;
    }
    if (p->wrong > 0)
        team_fail(p->steps->team, p->steps->rank, "of call: %s", sol_last_error(NULL));
    return NULL;
}

/* The state of a handle is one thread's from the check to the end, as the communicator is. */
static void one_handle(team_t *team, int rank, void *arg)
{
    steps_t s = {.team = team, .rank = rank};
    pthread_t threads[2];
    pair_t pairs[2];
    if (!fault_comm(team, rank, FAULT_LONG_MS, &s.comm))
        return;
    const bool good = prepare(&s) && TEAM_OK(team, rank, create(&s, NORM_CREATE), s.comm);
    for (size_t i = 0; good && i < (size_t)TOKENS * HIDDEN; i++)
        s.in[i] = i % 2 == 0 ? 1 : -1;
    for (int t = 0; good && t < 2; t++) {
        pairs[t] = (pair_t){.steps = &s, .experts = *(int *)arg != 0};
        pairs[t].calls = pairs[t].experts ? 40 : 1000;
        pairs[t].out = calloc((size_t)2 * TOKENS * EXPERTS * HIDDEN, sizeof(float));
        TEAM_CHECK(team, rank, pthread_create(&threads[t], NULL, call_often, &pairs[t]) == 0);
    }
    for (int t = 0; good && t < 2; t++) {
        pthread_join(threads[t], NULL);
        free(pairs[t].out);
    }
    finish(&s);
}

#define CASE(text, which)                                                                          \
    {                                                                                              \
        .name = "steps: nobody comes between, " text, .run = nobody_between, .nranks = 2,          \
        .argument = which                                                                          \
    }

const fault_case_t fault_steps[] = {
    CASE("norm's set-up", NORM_CREATE),
    CASE("experts' set-up", MOE_CREATE),
    CASE("norm", NORM),
    CASE("norm in two shots", TWO_SHOT),
    CASE("vocab", VOCAB),
    CASE("quantized", QUANTIZED),
    CASE("experts", DISPATCH),
    CASE("a group", GROUP),
    {.name = "steps: a group, half refused, threads", .run = half_a_group, .nranks = 2},
    {.name = "steps: two threads, one handle of norms", .run = one_handle, .nranks = 2},
    {.name = "steps: two threads, one handle of experts",
     .run = one_handle,
     .nranks = 2,
     .argument = 1},
    {.name = NULL}};
