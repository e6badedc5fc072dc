/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mismatch.c: ranks that call different things. Somebody is told which rank called what else, and
 * nobody waits past the timeout.
 */
#include "faults/faults.h"

#include <stdlib.h>
#include <string.h>

#define COUNT ((size_t)50000)

typedef struct {
    sol_func_t func;
    size_t count;
    sol_dtype_t dtype;
    sol_redop_t op;
    int root;
} one_call_t;

typedef struct {
    one_call_t ours, odd; /* the last rank makes the odd one */
    const char *words;    /* in the text of who is told */
} difference_t;

#define AR SOL_FUNC_ALL_REDUCE
#define F32 SOL_FLOAT32

static const difference_t differences[] = {
    {{AR, 10, F32, SOL_SUM, 0}, {AR, 11, F32, SOL_SUM, 0}, "10|11"},
    {{AR, COUNT, F32, SOL_SUM, 0}, {AR, COUNT - 1, F32, SOL_SUM, 0}, "50000|49999"},
    {{AR, 1, F32, SOL_SUM, 0}, {AR, COUNT, F32, SOL_SUM, 0}, "1 |50000"},
    {{AR, 10, F32, SOL_SUM, 0}, {AR, 10, SOL_INT32, SOL_SUM, 0}, "float32|int32"},
    {{AR, 10, F32, SOL_SUM, 0}, {AR, 10, F32, SOL_MAX, 0}, "sum|max"},
    {{AR, 10, F32, SOL_SUM, 0}, {SOL_FUNC_BARRIER, 0, F32, SOL_SUM, 0}, "all_reduce|barrier"},
    {{AR, 10, F32, SOL_SUM, 0},
     {SOL_FUNC_ALL_GATHER, 10, F32, SOL_SUM, 0},
     "all_reduce|all_gather"},
    {{SOL_FUNC_ALL_TO_ALL, 100, F32, SOL_SUM, 0},
     {SOL_FUNC_ALL_GATHER, 100, F32, SOL_SUM, 0},
     "all_to_all|all_gather"},
    {{SOL_FUNC_REDUCE_SCATTER, 100, F32, SOL_SUM, 0},
     {SOL_FUNC_REDUCE_SCATTER, 100, F32, SOL_AVG, 0},
     "sum|avg"},
    {{SOL_FUNC_BROADCAST, 10, F32, SOL_SUM, 0},
     {SOL_FUNC_BROADCAST, 10, F32, SOL_SUM, 1},
     "broadcast|root"},
    {{SOL_FUNC_BROADCAST, 10, F32, SOL_SUM, 0}, {SOL_FUNC_BROADCAST, 9, F32, SOL_SUM, 0}, "10|9"},
    {{SOL_FUNC_GATHER, 10, F32, SOL_SUM, 0},
     {SOL_FUNC_SCATTER, 10, F32, SOL_SUM, 0},
     "gather|scatter"},
    {{SOL_FUNC_REDUCE, 10, F32, SOL_SUM, 0},
     {SOL_FUNC_REDUCE, 10, SOL_BFLOAT16, SOL_SUM, 0},
     "float32|bfloat16"},
    {{AR, 0, F32, SOL_SUM, 0}, {AR, 10, F32, SOL_SUM, 0}, "0|10"},
};
#define DIFFERENCES (sizeof(differences) / sizeof(differences[0]))

static sol_status_t make_call(const one_call_t *c, sol_comm_t comm, void *x, void *y)
{
    switch (c->func) {
    case SOL_FUNC_ALL_REDUCE:
        return sol_all_reduce(x, y, c->count, c->dtype, c->op, comm, NULL);
    case SOL_FUNC_ALL_GATHER:
        return sol_all_gather(x, y, c->count, c->dtype, comm, NULL);
    case SOL_FUNC_REDUCE_SCATTER:
        return sol_reduce_scatter(x, y, c->count, c->dtype, c->op, comm, NULL);
    case SOL_FUNC_BROADCAST:
        return sol_broadcast(x, y, c->count, c->dtype, c->root, comm, NULL);
    case SOL_FUNC_REDUCE:
        return sol_reduce(x, y, c->count, c->dtype, c->op, c->root, comm, NULL);
    case SOL_FUNC_ALL_TO_ALL:
        return sol_all_to_all(x, y, c->count, c->dtype, comm, NULL);
    case SOL_FUNC_GATHER:
        return sol_gather(x, y, c->count, c->dtype, c->root, comm, NULL);
    case SOL_FUNC_SCATTER:
        return sol_scatter(x, y, c->count, c->dtype, c->root, comm, NULL);
    default:
        return sol_barrier(comm, NULL);
    }
}

/* After the call that differs, at most one barrier goes by before a rank knows. */
static void different(team_t *team, int rank, const difference_t *d, sol_unique_id_t *id,
                      _Atomic int *told)
{
    sol_comm_t comm = NULL;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    float *x = calloc(COUNT, 4 * sizeof(*x)), *y = calloc(COUNT, 4 * sizeof(*y));
    bool odd = rank == team->nranks - 1;
    config.backend = SOL_BACKEND_CPU;
    config.timeout_ms = FAULT_LONG_MS;
    if (!x || !y ||
        !TEAM_OK(team, rank, sol_comm_create(&comm, id, team->nranks, rank, &config), NULL))
        goto out;
    fault_still_works(team, rank, comm);
    team_barrier(team);
    team_doing(team, rank, "mismatch of %s", d->words);
    double begin = team_now();
    sol_status_t status = make_call(odd ? &d->odd : &d->ours, comm, x, y);
    if (status == SOL_OK)
        status = sol_barrier(comm, NULL);
    if (!TEAM_CHECK(team, rank, status == SOL_ERR_MISMATCH || status == SOL_ERR_PEER))
        team_fail(team, rank, "with \"%s\" it was %d: %s", d->words, (int)status,
                  sol_last_error(comm));
    TEAM_CHECK(team, rank, team_now() - begin < FAULT_SOON);
    if (status == SOL_ERR_MISMATCH && fault_text_has(sol_last_error(comm), d->words) &&
        fault_text_has(sol_last_error(comm), "rank"))
        atomic_store(told, 1);
    team_barrier(team);
    if (rank == 0 && !atomic_load(told))
        team_fail(team, rank, "nobody was told of \"%s\"; rank 0: %s", d->words,
                  sol_last_error(comm));
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
out:
    free(x);
    free(y);
}

static void mismatched_calls(team_t *team, int rank, void *arg)
{
    sol_unique_id_t *ids = (sol_unique_id_t *)(void *)team->scratch;
    _Atomic int *told = (_Atomic int *)(void *)(team->scratch + 4096);
    (void)arg;
    for (size_t i = 0; i < DIFFERENCES; i++) {
        if (rank == 0)
            sol_get_unique_id(&ids[i]);
        team_barrier(team);
        different(team, rank, &differences[i], &ids[i], &told[i]);
        team_barrier(team);
    }
}

/* A pair's counts differ: in all_to_all_v, and between send and recv. */
static void mismatched_pair(team_t *team, int rank, void *arg)
{
    sol_comm_t comm;
    float x[16] = {0}, y[16] = {0};
    size_t sends[2] = {4, 4}, recvs[2] = {4, 4}, displs[2] = {0, 8};
    _Atomic int *told = (_Atomic int *)(void *)team->scratch;
    sol_status_t status;
    if (!fault_comm(team, rank, FAULT_LONG_MS, &comm))
        return;
    fault_still_works(team, rank, comm);
    team_barrier(team);
    double begin = team_now();
    if (*(int *)arg == 0) {
        if (rank == 1)
            sends[0] = 5; /* rank 0 expects 4 */
        status = sol_all_to_all_v(x, sends, displs, y, recvs, displs, SOL_FLOAT32, comm, NULL);
    } else if (rank == 1) {
        status = sol_send(x, 5, SOL_FLOAT32, 0, comm, NULL);
    } else {
        status = sol_recv(y, 4, SOL_FLOAT32, 1, comm, NULL);
    }
    if (status == SOL_OK)
        status = sol_barrier(comm, NULL);
    TEAM_CHECK(team, rank, status == SOL_ERR_MISMATCH || status == SOL_ERR_PEER);
    TEAM_CHECK(team, rank, team_now() - begin < FAULT_SOON);
    if (status == SOL_ERR_MISMATCH && fault_text_has(sol_last_error(comm), "rank|4|5"))
        atomic_store(told, 1);
    team_barrier(team);
    if (rank == 0 && !atomic_load(told))
        team_fail(team, rank, "nobody was told: %s", sol_last_error(comm));
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

/* mem_alloc with sizes that differ: an error that names it, and the communicator lives on. */
static void mismatched_alloc(team_t *team, int rank, void *arg)
{
    sol_comm_t comm;
    void *memory = team;
    (void)arg;
    if (!fault_comm(team, rank, 10000, &comm))
        return;
    for (int i = 0; i < 3; i++) {
        fault_expect(team, rank, "sol_mem_alloc of another size",
                     sol_mem_alloc(comm, rank == 1 ? 5000 : 6000, &memory), SOL_ERR_MISMATCH, comm,
                     "rank|5000|6000");
        TEAM_CHECK(team, rank, memory == team);
        fault_still_works(team, rank, comm);
    }
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

const fault_case_t fault_mismatch[] = {
    {.name = "mismatched calls", .run = mismatched_calls, .nranks = 3, .deadline_s = 120},
    {.name = "mismatched calls, 2 ranks", .run = mismatched_calls, .nranks = 2, .deadline_s = 120},
    {.name = "mismatched all_to_all_v", .run = mismatched_pair, .nranks = 2, .argument = 0},
    {.name = "mismatched send and recv", .run = mismatched_pair, .nranks = 2, .argument = 1},
    {.name = "mismatched mem_alloc", .run = mismatched_alloc, .nranks = 3},
    {.name = NULL},
};
