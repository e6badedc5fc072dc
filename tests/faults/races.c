/* SPDX-License-Identifier: Apache-2.0 */
/*
 * races.c: threads of one rank against each other, with no other rank that would order them: all
 * that is local, at once, on one communicator; and everything that any thread may call, beside
 * sol_comm_destroy. A call is refused and has done nothing, or it is right; nothing is used after
 * it was freed (the sanitizers see that best).
 */
#include "faults/faults.h"

#include "solccl/fused.h"
#include "solccl/moe.h"
#include "solccl/transfer.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 40    /* of a communicator's life */
#define THREADS 3    /* beside each other */
#define DEEDS 400    /* of each */
#define BYTES 65536u /* of a buffer */

static bool refused(sol_status_t status)
{
    return status == SOL_ERR_STATE && strstr(sol_last_error(NULL), "at a time") != NULL;
}

/* Until no other thread is inside. */
#define UNTIL_LET_IN(status, call)                                                                 \
    do {                                                                                           \
        while (refused((status) = (call)))                                                         \
            team_sleep_us(1);                                                                      \
    } while (0)

/* ------------------------------------------------------------- everything at once */

typedef struct doer {
    team_t *team;
    sol_comm_t comm;
    uint64_t seed;
    char *in, *out;
} doer_t;

static sol_status_t allocate(doer_t *d)
{
    void *memory = NULL;
    sol_status_t status, end;
    UNTIL_LET_IN(status, sol_mem_alloc(d->comm, BYTES, &memory));
    if (status != SOL_OK)
        return status;
    memset(memory, 1, BYTES);
    UNTIL_LET_IN(end, sol_mem_free(d->comm, memory));
    return end;
}

static sol_status_t tell_of_memory(doer_t *d)
{
    sol_registration_t registration = NULL;
    sol_status_t status, end;
    UNTIL_LET_IN(status, sol_mem_register(d->comm, d->in, BYTES, &registration));
    if (status != SOL_OK)
        return status;
    UNTIL_LET_IN(end, sol_mem_deregister(d->comm, registration));
    return end;
}

static sol_status_t scale(doer_t *d)
{
    const float two = 2, x = (float)(d->seed % 1000);
    float y = -1;
    sol_redop_t op;
    sol_status_t status, end;
    UNTIL_LET_IN(status,
                 sol_redop_create_premul_sum(&op, &two, SOL_FLOAT32, SOL_HOST_IMMEDIATE, d->comm));
    if (status != SOL_OK)
        return status;
    UNTIL_LET_IN(status, sol_all_reduce(&x, &y, 1, SOL_FLOAT32, op, d->comm, NULL));
    TEAM_CHECK(d->team, 0, status != SOL_OK || y == 2 * x);
    UNTIL_LET_IN(end, sol_redop_destroy(op, d->comm));
    return status == SOL_OK ? end : status;
}

static sol_status_t write_to_self(doer_t *d)
{
    const sol_region_t region = {d->out, BYTES};
    const sol_write_t write = {.from = d->in, .bytes = BYTES};
    sol_transfer_config_t config = SOL_TRANSFER_CONFIG_INIT;
    sol_transfer_t t = NULL;
    sol_status_t status, end;
    config.regions = &region, config.nregions = 1, config.counters = 1;
    UNTIL_LET_IN(status, sol_transfer_create(d->comm, &config, &t));
    if (status != SOL_OK)
        return status;
    UNTIL_LET_IN(status, sol_transfer_write(&write, 1, 0, SOL_COUNT_WRITES, t, NULL));
    status = status == SOL_OK ? sol_transfer_wait(t, 0, 0, 1, -1) : status;
    TEAM_CHECK(d->team, 0, status != SOL_OK || memcmp(d->in, d->out, BYTES) == 0);
    UNTIL_LET_IN(end, sol_transfer_destroy(t));
    return status == SOL_OK ? end : status;
}

static sol_status_t norm(doer_t *d)
{
    sol_norm_config_t config = SOL_NORM_CONFIG_INIT;
    sol_norm_args_t args = SOL_NORM_ARGS_INIT;
    sol_norm_halves_t h = NULL;
    sol_status_t status, end;
    config.max_tokens = args.tokens = 4, config.hidden = args.hidden = 64;
    config.dtype = args.dtype = args.output_dtype = SOL_FLOAT32;
    args.input = d->in, args.output = d->out, args.epsilon = 1e-5f;
    UNTIL_LET_IN(status, sol_norm_create(&h, &config, d->comm));
    if (status != SOL_OK)
        return status;
    UNTIL_LET_IN(status, sol_norm_start(h, &args, NULL));
    if (status == SOL_OK)
        UNTIL_LET_IN(status, sol_norm_wait(h, &args, NULL));
    UNTIL_LET_IN(end, sol_norm_destroy(h));
    return status == SOL_OK ? end : status;
}

static sol_status_t experts(doer_t *d)
{
    sol_moe_config_t config = SOL_MOE_CONFIG_INIT;
    sol_moe_dispatch_args_t args = SOL_MOE_DISPATCH_ARGS_INIT;
    const int64_t first[4] = {0, 1, 0, 1};
    int32_t counts[2] = {0, 0};
    sol_moe_t moe = NULL;
    sol_status_t status, end;
    config.max_tokens = args.tokens = 4, config.hidden = 64, config.dtype = SOL_FLOAT32;
    config.experts = 2, config.top_k = 1;
    args.x = d->in, args.topk_idx = first, args.recv_x = d->out, args.recv_counts = counts;
    UNTIL_LET_IN(status, sol_moe_create(&moe, &config, d->comm));
    if (status != SOL_OK)
        return status;
    UNTIL_LET_IN(status, sol_moe_dispatch(moe, &args, NULL));
    TEAM_CHECK(d->team, 0, status != SOL_OK || (counts[0] == 2 && counts[1] == 2));
    UNTIL_LET_IN(end, sol_moe_destroy(moe));
    return status == SOL_OK ? end : status;
}

static sol_status_t reduce(doer_t *d)
{
    sol_status_t status;
    memset(d->out, 0, BYTES);
    UNTIL_LET_IN(status, sol_all_reduce(d->in, d->out, BYTES, SOL_UINT8, SOL_SUM, d->comm, NULL));
    TEAM_CHECK(d->team, 0, status != SOL_OK || memcmp(d->in, d->out, BYTES) == 0);
    return status;
}

static void *do_things(void *arg)
{
    static sol_status_t (*const deeds[])(doer_t * d) = {
        allocate, tell_of_memory, scale, write_to_self, norm, experts, reduce};
    doer_t *d = arg;
    for (int i = 0; i < DEEDS && atomic_load(&d->team->failures) == 0; i++) {
        const size_t which = team_random(&d->seed) % (sizeof(deeds) / sizeof(deeds[0]));
        memset(d->in, (int)(d->seed >> 8), BYTES);
        sol_status_t status = deeds[which](d);
        if (status != SOL_OK)
            team_fail(d->team, 0, "deed %zu: %d: %s", which, (int)status, sol_last_error(NULL));
    }
    return NULL;
}

static void everything(team_t *team, int rank, void *arg)
{
    doer_t doers[THREADS];
    pthread_t threads[THREADS];
    sol_comm_t comm;
    (void)arg;
    if (!fault_comm(team, rank, FAULT_LONG_MS, &comm))
        return;
    for (int t = 0; t < THREADS; t++) {
        doers[t] = (doer_t){team, comm, team_mix((uint64_t)t), calloc(1, BYTES), calloc(1, BYTES)};
        TEAM_CHECK(team, rank, pthread_create(&threads[t], NULL, do_things, &doers[t]) == 0);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        free(doers[t].in);
        free(doers[t].out);
    }
    fault_still_works(team, rank, comm);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

/* ------------------------------------------------------------- beside destroy */

enum { DESTROY, ASK, CALL, COMPOSE, FREE };

typedef struct visitor {
    team_t *team;
    sol_comm_t comm;
    int what;
    sol_norm_halves_t halves;
    _Atomic int ready;
    int destroyed;
} visitor_t;

static sol_status_t ask(sol_comm_t comm, int i)
{
    sol_comm_info_t info = {.size = sizeof(info)};
    sol_status_t error;
    switch (i % 4) {
    case 0:
        return sol_comm_query(comm, &info);
    case 1:
        return sol_last_error(comm) != NULL ? sol_comm_query(comm, &info) : SOL_ERR_INTERNAL;
    case 2:
        return i > 40 ? sol_comm_abort_reason(comm, "a visitor") : SOL_OK;
    default:
        return sol_comm_async_error(comm, &error);
    }
}

static sol_status_t compose(sol_comm_t comm)
{
    static const float in[64 * 256] = {1};
    static _Thread_local float out[64 * 256];
    sol_norm_args_t args = SOL_NORM_ARGS_INIT;
    args.tokens = 64, args.hidden = 256, args.form = SOL_NORM_TWO_SHOT;
    args.dtype = args.output_dtype = SOL_FLOAT32;
    args.input = in, args.output = out;
    return sol_all_reduce_norm(&args, comm, NULL);
}

static sol_status_t visit(visitor_t *v, int i)
{
    float x = 1, y = 0;
    switch (v->what) {
    case DESTROY:
        v->destroyed += sol_comm_destroy(v->comm) == SOL_OK;
        return SOL_ERR_ARGUMENT;
    case ASK:
        return ask(v->comm, i);
    case CALL:
        return sol_all_reduce(&x, &y, 1, SOL_FLOAT32, SOL_SUM, v->comm, NULL);
    case COMPOSE:
        return compose(v->comm);
    default:
        return i == 0 ? SOL_OK : sol_norm_destroy(v->halves);
    }
}

/* Until there is no communicator any more. */
static void *visit_often(void *arg)
{
    visitor_t *v = arg;
    sol_status_t status = SOL_OK;
    for (int i = 0; status != SOL_ERR_ARGUMENT && atomic_load(&v->team->failures) == 0; i++) {
        status = visit(v, i);
        v->ready = 1;
        if (status != SOL_OK && status != SOL_ERR_STATE && status != SOL_ERR_ARGUMENT &&
            status != SOL_ERR_ABORTED)
            team_fail(v->team, 0, "a visitor: %d: %s", (int)status, sol_last_error(NULL));
    }
    return NULL;
}

/* One life, which ends while another thread is at `what`. */
static void end_of_one(team_t *team, int round, int what)
{
    visitor_t v = {.team = team, .what = what};
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    sol_norm_config_t norm_config = SOL_NORM_CONFIG_INIT;
    sol_unique_id_t id;
    pthread_t thread;
    config.backend = SOL_BACKEND_CPU, config.timeout_ms = FAULT_LONG_MS;
    norm_config.max_tokens = 4, norm_config.hidden = 64, norm_config.dtype = SOL_FLOAT32;
    if (!TEAM_OK(team, 0, sol_get_unique_id(&id), NULL) ||
        !TEAM_OK(team, 0, sol_comm_create(&v.comm, &id, 1, 0, &config), NULL) ||
        !TEAM_OK(team, 0, sol_norm_create(&v.halves, &norm_config, v.comm), v.comm))
        return;
    if (!TEAM_CHECK(team, 0, pthread_create(&thread, NULL, visit_often, &v) == 0))
        return;
    while (what != DESTROY && v.ready == 0)
        sched_yield();
    for (volatile int i = 0; i < round * 100; i++)
        ;
    sol_status_t status = sol_comm_destroy(v.comm);
    pthread_join(thread, NULL);
    TEAM_CHECK(team, 0, status == SOL_OK || (what == DESTROY && status == SOL_ERR_ARGUMENT));
    TEAM_CHECK(team, 0, v.destroyed + (status == SOL_OK) == 1);
}

static void beside_destroy(team_t *team, int rank, void *arg)
{
    const int what = *(int *)arg;
    (void)rank;
    for (int i = 0; i < ROUNDS && atomic_load(&team->failures) == 0; i++)
        end_of_one(team, i, what);
}

/* ------------------------------------------------------------- waits on the host */

typedef struct waiter {
    sol_transfer_t transfer;
    sol_status_t status;
    _Atomic int ready;
} waiter_t;

static void *wait_long(void *arg)
{
    waiter_t *w = arg;
    w->ready = 1;
    w->status = sol_transfer_wait(w->transfer, 0, 1, 1, -1);
    return NULL;
}

/* Somebody waits for what never comes; the transfer goes, or the communicator. */
static void waited_for(team_t *team, int rank, void *arg)
{
    const bool all = *(int *)arg != 0;
    sol_transfer_config_t config = SOL_TRANSFER_CONFIG_INIT;
    waiter_t w = {0};
    sol_comm_t comm;
    pthread_t thread;
    config.counters = 1;
    if (!fault_comm(team, rank, FAULT_LONG_MS, &comm) ||
        !TEAM_OK(team, rank, sol_transfer_create(comm, &config, &w.transfer), comm))
        return;
    if (rank == 0) {
        TEAM_CHECK(team, rank, pthread_create(&thread, NULL, wait_long, &w) == 0);
        while (w.ready == 0)
            sched_yield();
        team_sleep_us(2000);
        double begin = team_now();
        if (!all)
            TEAM_OK(team, rank, sol_transfer_destroy(w.transfer), comm);
        else
            TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
        TEAM_CHECK(team, rank, team_now() - begin < 1);
        pthread_join(thread, NULL);
        team_expect(team, rank, "the wait", w.status, SOL_ERR_ARGUMENT, NULL);
    }
    team_barrier(team);
    if (rank != 0 || !all)
        TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

#define BESIDE(text, which)                                                                        \
    {                                                                                              \
        .name = "races: threads, destroy beside " text, .run = beside_destroy, .nranks = 1,        \
        .argument = which                                                                          \
    }

const fault_case_t fault_races[] = {
    {.name = "races: threads, all that is local", .run = everything, .nranks = 1},
    BESIDE("destroy", DESTROY),
    BESIDE("questions and an abort", ASK),
    BESIDE("calls", CALL),
    BESIDE("calls of several steps", COMPOSE),
    BESIDE("a handle's", FREE),
    {.name = "races: threads, a wait and its transfer goes", .run = waited_for, .nranks = 2},
    {.name = "races: threads, a wait and its communicator goes",
     .run = waited_for,
     .nranks = 2,
     .argument = 1},
    {.name = NULL}};
