/* SPDX-License-Identifier: Apache-2.0 */
/*
 * misuse.c: what a program must not do, done. It ends in an error or in the right result, never in
 * a hang, a crash or wrong data: two threads at once on one communicator, handles that are no more,
 * groups left open, a forked child.
 */
#include "faults/faults.h"

#include "solccl/fused.h"
#include "solccl/moe.h"
#include "solccl/transfer.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ------------------------------------------------------------- two threads at once */

struct caller {
    team_t *team;
    sol_comm_t comm;
    int rank, wrong, refused, calls;
    size_t count;
};

/* Makes `calls` calls that succeed; refused ones are tried again. */
static void *call_often(void *opaque)
{
    struct caller *c = opaque;
    int32_t *x = calloc(c->count, 4), *y = calloc(c->count, 4), n = c->team->nranks;
    for (size_t i = 0; x && i < c->count; i++)
        x[i] = c->rank + 1 + (int32_t)i;
    for (int done = 0; x && y && done < c->calls && c->wrong == 0;) {
        sol_status_t status = sol_all_reduce(x, y, c->count, SOL_INT32, SOL_SUM, c->comm, NULL);
        if (status == SOL_ERR_STATE) {
            c->refused++;
            team_sleep_us(1);
            continue;
        }
        int32_t last = (int32_t)c->count - 1;
        c->wrong +=
            status != SOL_OK || y[0] != n * (n + 1) / 2 || y[last] != n * (n + 1) / 2 + n * last;
        done++;
    }
    free(x);
    free(y);
    return NULL;
}

/* Two threads of each rank call the same thing, as often as they get through. */
static void two_threads(team_t *team, int rank, void *arg)
{
    sol_comm_t comm;
    pthread_t threads[2];
    struct caller callers[2];
    if (!fault_comm(team, rank, 20000, &comm))
        return;
    for (int t = 0; t < 2; t++) {
        callers[t] = (struct caller){team, comm, rank, 0, 0, 300, (size_t) * (int *)arg};
        TEAM_CHECK(team, rank, pthread_create(&threads[t], NULL, call_often, &callers[t]) == 0);
    }
    for (int t = 0; t < 2; t++) {
        pthread_join(threads[t], NULL);
        TEAM_CHECK(team, rank, callers[t].wrong == 0);
    }
    if (callers[0].wrong + callers[1].wrong > 0)
        team_fail(team, rank, "%s", sol_last_error(comm));
    fault_still_works(team, rank, comm); /* from a third thread */
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

static void *one_barrier(void *opaque)
{
    struct caller *c = opaque;
    c->wrong = sol_barrier(c->comm, NULL);
    return NULL;
}

/* While a thread waits inside, every other call is refused at once, and destroy gets it out. */
static void destroyed_while_used(team_t *team, int rank, void *arg)
{
    sol_comm_t comm, part = NULL;
    pthread_t thread;
    float x = 1, y = 0;
    void *memory = NULL;
    struct caller inside = {.team = team, .rank = rank};
    (void)arg;
    if (!fault_comm(team, rank, 20000, &comm))
        return;
    fault_still_works(team, rank, comm);
    team_barrier(team);
    if (rank != 0) {
        team_barrier(team);
        TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
        return;
    }
    inside.comm = comm;
    uint64_t sequence = fault_sequence(comm);
    TEAM_CHECK(team, rank, pthread_create(&thread, NULL, one_barrier, &inside) == 0);
    fault_await_call(comm, sequence);
    double begin = team_now();
    const char *words = "at a time";
    fault_expect(team, rank, "a second call", sol_send(&x, 1, SOL_FLOAT32, 1, comm, NULL),
                 SOL_ERR_STATE, comm, words);
    fault_expect(team, rank, "a second all_reduce",
                 sol_all_reduce(&x, &y, 1, SOL_FLOAT32, SOL_SUM, comm, NULL), SOL_ERR_STATE, comm,
                 words);
    fault_expect(team, rank, "a split meanwhile", sol_comm_split(comm, 0, 0, &part, NULL),
                 SOL_ERR_STATE, comm, words);
    fault_expect(team, rank, "an allocation meanwhile", sol_mem_alloc(comm, 4096, &memory),
                 SOL_ERR_STATE, comm, words);
    TEAM_CHECK(team, rank, part == NULL && memory == NULL);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
    pthread_join(thread, NULL);
    TEAM_CHECK(team, rank, inside.wrong == SOL_ERR_ABORTED);
    TEAM_CHECK(team, rank, team_now() - begin < FAULT_SOON);
    team_barrier(team);
}

/* ------------------------------------------------------------- handles */

/* Used after destroy, although others were made since; and pointers that never were one. */
static void stale_handles(team_t *team, int rank, void *arg)
{
    sol_comm_t old, others[12], none = (sol_comm_t)(void *)(uintptr_t)0x1000;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    sol_unique_id_t id;
    sol_comm_info_t info = {.size = sizeof(info)};
    float x = 1, y = 0;
    (void)arg;
    config.backend = SOL_BACKEND_CPU;
    for (int i = 0; i <= 12; i++) {
        sol_get_unique_id(&id);
        if (!TEAM_OK(team, rank,
                     sol_comm_create(i == 0 ? &old : &others[i - 1], &id, 1, 0, &config), NULL))
            return;
        if (i == 0)
            TEAM_OK(team, rank, sol_comm_destroy(old), NULL);
    }
    fault_expect(team, rank, "a call after destroy",
                 sol_all_reduce(&x, &y, 1, SOL_FLOAT32, SOL_SUM, old, NULL), SOL_ERR_ARGUMENT, NULL,
                 "destroyed");
    fault_expect(team, rank, "destroy twice", sol_comm_destroy(old), SOL_ERR_ARGUMENT, NULL,
                 "destroyed");
    fault_expect(team, rank, "abort after destroy", sol_comm_abort(old), SOL_ERR_ARGUMENT, NULL,
                 "destroyed");
    fault_expect(team, rank, "destroy of a number", sol_comm_destroy(none), SOL_ERR_ARGUMENT, NULL,
                 "never made");
    fault_expect(team, rank, "query of a number", sol_comm_query(none, &info), SOL_ERR_ARGUMENT,
                 NULL, "never made");
    TEAM_CHECK(team, rank, sol_last_error(none)[0] != '\0');
    for (int i = 0; i < 12; i++)
        TEAM_OK(team, rank, sol_comm_destroy(others[i]), NULL);
}

/* ------------------------------------------------------------- groups */

static void *open_and_leave(void *opaque)
{
    struct caller *c = opaque;
    int32_t x = 1, y = 0;
    size_t counts[2] = {1, 1}, displs[2] = {0, 1};
    int32_t v[2] = {0}, w[2];
    sol_comm_t part = NULL;
    c->wrong += sol_group_start() != SOL_OK;
    c->wrong += sol_group_start() != SOL_OK;
    c->wrong += sol_all_reduce(&x, &y, 1, SOL_INT32, SOL_SUM, c->comm, NULL) != SOL_OK;
    c->wrong +=
        sol_all_to_all_v(v, counts, displs, w, counts, displs, SOL_INT32, c->comm, NULL) != SOL_OK;
    c->wrong += sol_comm_split(c->comm, 0, 0, &part, NULL) != SOL_OK;
    c->wrong += sol_group_end() != SOL_OK; /* one of two */
    return NULL;
}

/* A thread ends with a group open: nothing of it is done, nothing leaks, the others go on. */
static void unbalanced_groups(team_t *team, int rank, void *arg)
{
    sol_comm_t comm;
    pthread_t thread;
    struct caller inside = {.team = team, .rank = rank};
    int timeout_ms = 1500;
    (void)arg;
    if (!fault_comm_short(team, rank, &timeout_ms, &comm))
        return;
    inside.comm = comm;
    TEAM_CHECK(team, rank, pthread_create(&thread, NULL, open_and_leave, &inside) == 0);
    pthread_join(thread, NULL);
    TEAM_CHECK(team, rank, inside.wrong == 0);
    fault_still_works(team, rank, comm);
    fault_expect(team, rank, "sol_group_end without a start", sol_group_end(), SOL_ERR_STATE, NULL,
                 "no group");
    fault_still_works(team, rank, comm);
    /* One rank leaves its group open: the others say whom they wait for. */
    int32_t x = 1, y = 0;
    if (rank == 0) {
        sol_group_start();
        TEAM_OK(team, rank, sol_all_reduce(&x, &y, 1, SOL_INT32, SOL_SUM, comm, NULL), comm);
        team_barrier(team);
        TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
        fault_expect(team, rank, "the end of a group that lost its communicator", sol_group_end(),
                     SOL_ERR_STATE, NULL, "destroyed");
        return;
    }
    double begin = team_now();
    fault_expect(team, rank, "an all_reduce that rank 0 holds back",
                 sol_all_reduce(&x, &y, 1, SOL_INT32, SOL_SUM, comm, NULL), SOL_ERR_TIMEOUT, comm,
                 "all_reduce|rank 0");
    TEAM_CHECK(team, rank, team_now() - begin < timeout_ms * 1e-3 + FAULT_SOON);
    team_barrier(team);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

/* ------------------------------------------------------------- fork */

/* In the child every function refuses, at once; the parent does not notice; a child can make a
 * communicator of its own. */
static void forked(team_t *team, int rank, void *arg)
{
    sol_comm_t comm;
    sol_comm_info_t info = {.size = sizeof(info)};
    float x = 1, y = 0;
    void *memory = NULL;
    sol_status_t error;
    (void)arg;
    if (!fault_comm(team, rank, 10000, &comm) ||
        !TEAM_OK(team, rank, sol_mem_alloc(comm, 4096, &memory), comm))
        return;
    fault_still_works(team, rank, comm);
    pid_t child = fork();
    if (child == 0) {
        int wrong = 0;
        sol_comm_t part = NULL, own = NULL;
        sol_unique_id_t id;
        alarm(20);
        wrong += sol_all_reduce(&x, &y, 1, SOL_FLOAT32, SOL_SUM, comm, NULL) != SOL_ERR_STATE;
        wrong += sol_barrier(comm, NULL) != SOL_ERR_STATE;
        wrong += sol_comm_split(comm, 0, 0, &part, NULL) != SOL_ERR_STATE;
        wrong += sol_mem_alloc(comm, 4096, &memory) != SOL_ERR_STATE;
        wrong += sol_mem_free(comm, memory) != SOL_ERR_STATE;
        wrong += sol_comm_query(comm, &info) != SOL_ERR_STATE;
        wrong += sol_comm_abort(comm) != SOL_ERR_STATE;
        wrong += sol_comm_dump(comm, 1) != SOL_ERR_STATE;
        wrong += sol_comm_async_error(comm, &error) != SOL_ERR_STATE;
        wrong += sol_comm_destroy(comm) != SOL_ERR_STATE;
        wrong += sol_get_unique_id(&id) != SOL_OK;
        wrong += sol_comm_create(&own, &id, 1, 0, NULL) != SOL_OK;
        wrong += sol_all_reduce(&x, &y, 1, SOL_FLOAT32, SOL_SUM, own, NULL) != SOL_OK || y != 1;
        wrong += sol_comm_destroy(own) != SOL_OK;
        _exit(wrong);
    }
    int status = -1;
    fault_still_works(team, rank, comm);
    waitpid(child, &status, 0);
    TEAM_CHECK(team, rank, status == 0);
    fault_still_works(team, rank, comm);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

/* --------------------------------------------- handles whose communicator goes first */

struct handles {
    sol_norm_halves_t halves;
    sol_moe_t moe;
    sol_transfer_t transfer;
};

static bool make_handles(team_t *team, int rank, sol_comm_t comm, struct handles *h)
{
    static char memory[4096];
    const sol_region_t region = {memory, sizeof(memory)};
    sol_norm_config_t norm = SOL_NORM_CONFIG_INIT;
    sol_moe_config_t moe = SOL_MOE_CONFIG_INIT;
    sol_transfer_config_t transfer = SOL_TRANSFER_CONFIG_INIT;
    norm.max_tokens = 4, norm.hidden = 64;
    moe.max_tokens = 4, moe.hidden = 64, moe.top_k = 2, moe.experts = 4;
    transfer.regions = &region, transfer.nregions = 1, transfer.counters = 1;
    return TEAM_OK(team, rank, sol_norm_create(&h->halves, &norm, comm), comm) &&
           TEAM_OK(team, rank, sol_moe_create(&h->moe, &moe, comm), comm) &&
           TEAM_OK(team, rank, sol_transfer_create(comm, &transfer, &h->transfer), comm);
}

/* All that is called on them is refused, as often as it is. */
static void refused_handles(team_t *team, int rank, const struct handles *h)
{
    sol_norm_args_t norm = SOL_NORM_ARGS_INIT;
    sol_moe_dispatch_args_t dispatch = SOL_MOE_DISPATCH_ARGS_INIT;
    for (int again = 0; again < 2; again++) {
        TEAM_CHECK(team, rank, sol_norm_start(h->halves, &norm, NULL) == SOL_ERR_ARGUMENT);
        TEAM_CHECK(team, rank, sol_norm_wait(h->halves, &norm, NULL) == SOL_ERR_ARGUMENT);
        TEAM_CHECK(team, rank, sol_norm_destroy(h->halves) == SOL_ERR_ARGUMENT);
        TEAM_CHECK(team, rank, sol_moe_dispatch(h->moe, &dispatch, NULL) == SOL_ERR_ARGUMENT);
        TEAM_CHECK(team, rank, sol_moe_destroy(h->moe) == SOL_ERR_ARGUMENT);
        TEAM_CHECK(team, rank, sol_transfer_wait(h->transfer, 0, 0, 0, 0) == SOL_ERR_ARGUMENT);
        TEAM_CHECK(team, rank, sol_transfer_destroy(h->transfer) == SOL_ERR_ARGUMENT);
    }
}

/* A communicator takes its handles along (the leak check sees what it leaves); handles that have
 * gone, with it or before it, are found, and not taken for those of a later one. */
static void orphans(team_t *team, int rank, void *arg)
{
    struct handles gone[2], h;
    sol_comm_t comm;
    (void)arg;
    for (int first = 0; first < 2; first++) {
        if (!fault_comm(team, rank, FAULT_LONG_MS, &comm) ||
            !make_handles(team, rank, comm, &gone[first]))
            return;
        if (first == 0) {
            TEAM_OK(team, rank, sol_norm_destroy(gone[0].halves), comm);
            TEAM_OK(team, rank, sol_moe_destroy(gone[0].moe), comm);
            TEAM_OK(team, rank, sol_transfer_destroy(gone[0].transfer), comm);
        }
        TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
        team_barrier(team);
        if (rank == 0) /* the next one's */
            TEAM_OK(team, rank, sol_get_unique_id(&team->ids[0]), NULL);
        team_barrier(team);
    }
    if (!fault_comm(team, rank, FAULT_LONG_MS, &comm) || !make_handles(team, rank, comm, &h))
        return;
    refused_handles(team, rank, &gone[0]);
    refused_handles(team, rank, &gone[1]);
    fault_still_works(team, rank, comm);
    TEAM_OK(team, rank, sol_norm_destroy(h.halves), comm);
    TEAM_OK(team, rank, sol_moe_destroy(h.moe), comm);
    TEAM_OK(team, rank, sol_transfer_destroy(h.transfer), comm);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

const fault_case_t fault_misuse[] = {
    {.name = "misuse: two threads, small", .run = two_threads, .nranks = 2, .argument = 1},
    {.name = "misuse: two threads, large", .run = two_threads, .nranks = 3, .argument = 20000},
    {.name = "misuse: two threads, ranks are threads",
     .run = two_threads,
     .nranks = 2,
     .threads = true,
     .argument = 10},
    {.name = "misuse: destroyed while used", .run = destroyed_while_used, .nranks = 2},
    {.name = "misuse: stale handles", .run = stale_handles, .nranks = 1},
    {.name = "misuse: handles whose communicator went", .run = orphans, .nranks = 2},
    {.name = "misuse: unbalanced groups", .run = unbalanced_groups, .nranks = 2},
    {.name = "misuse: unbalanced groups, threads",
     .run = unbalanced_groups,
     .nranks = 2,
     .threads = true},
    {.name = "misuse: forked child", .run = forked, .nranks = 2},
    {.name = NULL},
};
