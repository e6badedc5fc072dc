/* SPDX-License-Identifier: Apache-2.0 */
/*
 * absent.c: ranks that do not come, come late, die, leave or abort. Whoever is left gets an error
 * that names the operation and the rank, in bounded time, and can destroy its communicator.
 */
#include "faults/faults.h"

#include <signal.h>
#include <solccl/moe.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_MS 600

/* ------------------------------------------------------------- while being made */

/* The last rank never comes: the others name it. */
static void never_arrives(team_t *team, int rank, void *arg)
{
    char words[64];
    sol_comm_t comm = NULL;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    (void)arg;
    config.backend = SOL_BACKEND_CPU;
    config.timeout_ms = 2 * TIMEOUT_MS;
    team_barrier(team);
    if (rank == team->nranks - 1)
        return;
    fault_begin(team, rank);
    snprintf(words, sizeof(words), "%d", team->nranks - 1);
    fault_expect(team, rank, "sol_comm_create",
                 sol_comm_create(&comm, &team->ids[0], team->nranks, rank, &config),
                 SOL_ERR_TIMEOUT, NULL, words);
    double took = fault_since_first(team);
    TEAM_CHECK(team, rank, took > 1.8e-3 * TIMEOUT_MS && took < FAULT_SOON);
}

/* Ranks with another id wait for each other in vain, and nobody joins a stranger. */
static void other_id(team_t *team, int rank, void *arg)
{
    sol_comm_t comm = NULL;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    (void)arg;
    config.backend = SOL_BACKEND_CPU;
    config.timeout_ms = TIMEOUT_MS;
    team_expect(team, rank, "sol_comm_create with another id",
                sol_comm_create(&comm, &team->ids[rank], team->nranks, rank, &config),
                SOL_ERR_TIMEOUT, NULL);
}

/* What one rank says of itself differs: *arg chooses what. Everybody gets an error soon. */
static void mismatched_join(team_t *team, int rank, void *arg)
{
    sol_comm_t comm = NULL;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    _Atomic int *named = (_Atomic int *)(void *)team->scratch;
    int nranks = team->nranks, as = rank, what = *(int *)arg;
    bool odd = rank == nranks - 1;
    config.backend = SOL_BACKEND_CPU;
    config.timeout_ms = 3 * TIMEOUT_MS;
    if (odd && what == 0)
        as = nranks - 2; /* the same rank twice */
    if (odd && what == 1)
        nranks += 1;
    double begin = team_now();
    sol_status_t status = sol_comm_create(&comm, &team->ids[0], nranks, as, &config);
    if (!TEAM_CHECK(team, rank, status < 0 && comm == NULL))
        return;
    if (status == SOL_ERR_MISMATCH && fault_text_has(sol_last_error(NULL), "rank"))
        atomic_store(named, 1);
    TEAM_CHECK(team, rank, team_now() - begin < FAULT_SOON);
    team_barrier(team);
    TEAM_CHECK(team, rank, atomic_load(named) == 1); /* somebody was told the reason */
}

/* A rank is killed somewhere while the communicator is made; which moment varies with the seed. */
static void killed_while_joining(team_t *team, int rank, void *arg)
{
    sol_comm_t comm = NULL;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    (void)arg;
    config.backend = SOL_BACKEND_CPU;
    config.timeout_ms = 2 * TIMEOUT_MS;
    team_doing(team, rank, "joining");
    if (rank == (int)(team->seed % (unsigned)team->nranks) && team->seed % 2 == 0)
        team_sleep_us(2000);
    if (team->expect_killed >> rank & 1) {
        pid_t self = getpid(), killer = fork();
        if (killer == 0) {
            team_sleep_us((unsigned)(team->seed * 350));
            kill(self, SIGKILL);
            _exit(0);
        }
    }
    double begin = team_now();
    sol_status_t status = sol_comm_create(&comm, &team->ids[0], team->nranks, rank, &config);
    TEAM_CHECK(team, rank, team_now() - begin < FAULT_SOON);
    if (team->expect_killed >> rank & 1)
        pause();
    if (status == SOL_OK) { /* the kill came too late for this */
        float x = 1;
        while ((status = sol_all_reduce(&x, &x, 1, SOL_FLOAT32, SOL_SUM, comm, NULL)) == SOL_OK &&
               team_now() - begin < 10)
            x = 1;
        TEAM_CHECK(team, rank, status != SOL_OK);
        TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
    }
}

/* ------------------------------------------------------------- while at work */

/* One blocking call of function `func`. Buffers are large enough for 8 ranks. */
static sol_status_t call(sol_func_t func, sol_comm_t comm, int rank, int nranks, size_t count,
                         float *x, float *y)
{
    const sol_dtype_t f32 = SOL_FLOAT32;
    switch (func) {
    case SOL_FUNC_ALL_REDUCE:
        return sol_all_reduce(x, y, count, f32, SOL_SUM, comm, NULL);
    case SOL_FUNC_ALL_GATHER:
        return sol_all_gather(x, y, count, f32, comm, NULL);
    case SOL_FUNC_REDUCE_SCATTER:
        return sol_reduce_scatter(x, y, count, f32, SOL_SUM, comm, NULL);
    case SOL_FUNC_BROADCAST: /* from the one who will be missing */
        return sol_broadcast(x, y, count, f32, nranks - 1, comm, NULL);
    case SOL_FUNC_REDUCE:
        return sol_reduce(x, y, count, f32, SOL_SUM, 0, comm, NULL);
    case SOL_FUNC_ALL_TO_ALL:
        return sol_all_to_all(x, y, count, f32, comm, NULL);
    case SOL_FUNC_GATHER:
        return sol_gather(x, y, count, f32, 0, comm, NULL);
    case SOL_FUNC_SCATTER:
        return sol_scatter(x, y, count, f32, nranks - 1, comm, NULL);
    case SOL_FUNC_RECV:
        if (rank == nranks - 1)
            return sol_send(x, count, f32, 0, comm, NULL);
        return rank == 0 ? sol_recv(y, count, f32, nranks - 1, comm, NULL) : SOL_OK;
    case SOL_FUNC_BARRIER:
        return sol_barrier(comm, NULL);
    default:
        return SOL_ERR_UNSUPPORTED;
    }
}

/* A communicator that has failed refuses calls, at once and with the story. */
static bool refuses(sol_comm_t comm)
{
    sol_status_t first = SOL_OK, status = sol_barrier(comm, NULL);
    sol_comm_async_error(comm, &first);
    return first != SOL_OK && status == first && sol_last_error(comm)[0] != '\0';
}

static const sol_func_t waiting_funcs[] = {
    SOL_FUNC_ALL_REDUCE, SOL_FUNC_ALL_GATHER, SOL_FUNC_REDUCE_SCATTER, SOL_FUNC_BROADCAST,
    SOL_FUNC_REDUCE,     SOL_FUNC_ALL_TO_ALL, SOL_FUNC_GATHER,         SOL_FUNC_SCATTER,
    SOL_FUNC_RECV,       SOL_FUNC_BARRIER};

#define COUNT ((size_t)40000)

/* The last rank comes when rank 0 has given it up: rank 0's text names operation, number and rank;
 * the late one hears of it at once; nothing but destroy is left. */
static void late_once(team_t *team, int rank, sol_func_t func, size_t count)
{
    char words[128];
    sol_comm_t comm = NULL;
    int timeout_ms = TIMEOUT_MS;
    float *x = calloc(COUNT, 8 * sizeof(*x)), *y = calloc(COUNT, 8 * sizeof(*y));
    int last = team->nranks - 1;
    if (!x || !y || !fault_comm_short(team, rank, &timeout_ms, &comm))
        goto out;
    team_doing(team, rank, "late in %s of %zu", sol_func_name(func), count);
    double begin = team_now();
    if (rank == last) {
        fault_await(team, 0);
        begin = team_now();
    } else {
        fault_begin(team, rank);
    }
    sol_status_t status = call(func, comm, rank, team->nranks, count, x, y);
    double took = rank == 0 ? fault_since_first(team) : team_now() - begin;
    if (rank == 0) {
        fault_raise(team, 0);
        snprintf(words, sizeof(words), "%s|#2|rank %d", sol_func_name(func), last);
        fault_expect(team, rank, "the call that waited", status, SOL_ERR_TIMEOUT, comm, words);
        TEAM_CHECK(team, rank, took > timeout_ms * 0.9e-3);
        TEAM_CHECK(team, rank, took < timeout_ms * 1e-3 + FAULT_SOON);
    } else if (rank == last && status != SOL_OK) {
        TEAM_CHECK(team, rank, status == SOL_ERR_PEER || status == SOL_ERR_TIMEOUT);
        TEAM_CHECK(team, rank, took < FAULT_SOON);
    }
    /* Everybody is out of it by the next call, and stays out. */
    if (status == SOL_OK)
        status = sol_barrier(comm, NULL);
    TEAM_CHECK(team, rank, status != SOL_OK);
    sol_status_t error = SOL_OK;
    TEAM_CHECK(team, rank, sol_comm_async_error(comm, &error) == SOL_OK && error != SOL_OK);
    begin = team_now();
    TEAM_CHECK(team, rank, refuses(comm));
    TEAM_CHECK(team, rank, sol_comm_destroy(comm) == SOL_OK);
    TEAM_CHECK(team, rank, team_now() - begin < FAULT_SOON);
out:
    free(x);
    free(y);
}

static void late(team_t *team, int rank, void *arg)
{
    for (size_t i = 0; i < sizeof(waiting_funcs) / sizeof(waiting_funcs[0]); i++) {
        team_barrier(team);
        if (rank == 0)
            fault_lower(team, 0);
        late_once(team, rank, waiting_funcs[i], *(int *)arg ? COUNT : 3);
        team_barrier(team);
    }
}

/* One rank kills itself between two calls, or is killed within one. The others learn of it long
 * before the timeout of 20 s. */
static void killed_at_work(team_t *team, int rank, void *arg)
{
    sol_comm_t comm;
    float *x = calloc(COUNT, 8 * sizeof(*x)), *y = calloc(COUNT, 8 * sizeof(*y));
    void *symmetric = NULL;
    int victim = team->nranks - 1;
    unsigned steps = 20 + (unsigned)team->seed * 7;
    sol_status_t status = SOL_OK;
    if (!x || !y || !fault_comm(team, rank, 20000, &comm))
        goto out;
    TEAM_OK(team, rank, sol_mem_alloc(comm, 1 << 20, &symmetric), comm);
    if (rank == victim && *(int *)arg == 1) { /* from outside, in the middle of anything */
        pid_t self = getpid();
        if (fork() == 0) {
            team_sleep_us(3000 + (unsigned)team->seed * 1700);
            kill(self, SIGKILL);
            _exit(0);
        }
    }
    double begin = team_now();
    for (unsigned i = 0; status == SOL_OK && team_now() - begin < 15; i++) {
        if (rank == victim && i == steps && *(int *)arg == 0)
            kill(getpid(), SIGKILL);
        size_t count = i % 3 == 0 ? COUNT : 1 + i % 100;
        team_doing(team, rank, "step %u", i);
        status = call(waiting_funcs[(i + team->seed) % 8], comm, rank, team->nranks, count, x, y);
    }
    if (rank == victim)
        pause();
    double took = team_now() - begin;
    if (!fault_text_has(sol_last_error(comm), "rank"))
        team_fail(team, rank, "the text names no rank: %s", sol_last_error(comm));
    TEAM_CHECK(team, rank, status == SOL_ERR_PEER || status == SOL_ERR_TIMEOUT);
    if (took > FAULT_SOON)
        team_fail(team, rank, "a dead rank was noticed after %.1f s only", took);
    begin = team_now();
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
    TEAM_CHECK(team, rank, team_now() - begin < FAULT_SOON);
out:
    free(x);
    free(y);
}

/* Killed before destroy: the others leave as if nothing had happened. */
static void killed_before_destroy(team_t *team, int rank, void *arg)
{
    sol_comm_t comm;
    (void)arg;
    if (!fault_comm(team, rank, 20000, &comm))
        return;
    fault_still_works(team, rank, comm);
    team_barrier(team);
    if (rank == team->nranks - 1)
        kill(getpid(), SIGKILL);
    team_sleep_us(50000);
    double begin = team_now();
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
    TEAM_CHECK(team, rank, team_now() - begin < FAULT_SOON);
}

/* A rank leaves (destroy, or exit without it) while others wait for it. */
static void leaves(team_t *team, int rank, void *arg)
{
    sol_comm_t comm;
    float x = 1, y = 0;
    if (!fault_comm(team, rank, 20000, &comm))
        return;
    fault_still_works(team, rank, comm);
    team_barrier(team);
    if (rank == team->nranks - 1) {
        if (*(int *)arg == 1)
            exit(0);
        TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
        return;
    }
    double begin = team_now();
    sol_status_t status = sol_all_reduce(&x, &y, 1, SOL_FLOAT32, SOL_SUM, comm, NULL);
    TEAM_CHECK(team, rank, status == SOL_ERR_PEER || status == SOL_ERR_TIMEOUT);
    if (!fault_text_has(sol_last_error(comm), "all_reduce|rank"))
        team_fail(team, rank, "the text names too little: %s", sol_last_error(comm));
    if (team_now() - begin > FAULT_SOON)
        team_fail(team, rank, "noticed after %.1f s only", team_now() - begin);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

/* ------------------------------------------------------------- abort */

struct aborter {
    sol_comm_t comm;
    uint64_t sequence; /* of the calls before the one to abort */
    sol_status_t status;
};

/* A rank that does not come to a dispatch of experts, or to the combine after it (arg 1). */
static void absent_experts(team_t *team, int rank, void *arg)
{
    sol_comm_t comm = NULL;
    sol_moe_t moe = NULL;
    int timeout_ms = TIMEOUT_MS;
    sol_moe_config_t experts = SOL_MOE_CONFIG_INIT;
    sol_moe_dispatch_args_t d = SOL_MOE_DISPATCH_ARGS_INIT;
    sol_moe_combine_args_t c = SOL_MOE_COMBINE_ARGS_INIT;
    static const float x[64];
    int32_t idx[] = {0, 1, 2}, counts[3];
    float rows[9 * 64], out[64];
    const int last = team->nranks - 1;
    char words[64];
    experts.max_tokens = 1, experts.hidden = 64, experts.top_k = 3, experts.experts = 3;
    experts.dtype = SOL_FLOAT32;
    if (!fault_comm_short(team, rank, &timeout_ms, &comm))
        return;
    TEAM_OK(team, rank, sol_moe_create(&moe, &experts, comm), comm);
    d.tokens = c.tokens = 1;
    d.x = x, d.topk_idx = idx, d.idx_dtype = SOL_INT32, d.recv_x = rows, d.recv_counts = counts;
    c.y = rows, c.out = out;
    memset(rows, 0, sizeof(rows));
    sol_status_t status = SOL_OK;
    double begin = team_now();
    if (rank != last || *(int *)arg == 1)
        status = sol_moe_dispatch(moe, &d, NULL);
    if (*(int *)arg == 1) {
        TEAM_OK(team, rank, status, comm);
        status = rank != last ? sol_moe_combine(moe, &c, NULL) : SOL_OK;
    }
    snprintf(words, sizeof(words), "all_to_all|rank %d", last);
    if (rank != last)
        fault_expect(team, rank, "what waits for the absent rank", status, SOL_ERR_TIMEOUT, comm,
                     rank == 0 ? words : "");
    TEAM_CHECK(team, rank, team_now() - begin < timeout_ms * 1e-3 + FAULT_SOON);
    team_barrier(team); /* the others have given the last one up */
    TEAM_CHECK(team, rank, refuses(comm));
    TEAM_OK(team, rank, sol_moe_destroy(moe), NULL);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

static void *abort_soon(void *opaque)
{
    struct aborter *a = opaque;
    fault_await_call(a->comm, a->sequence);
    team_sleep_us(100000); /* somewhere in its wait */
    a->status = sol_comm_abort(a->comm);
    return NULL;
}

/* Rank 0 is aborted by another thread while it and others wait for the last rank: all are out long
 * before the timeout, as is the last one when it comes. */
static void aborted(team_t *team, int rank, void *arg)
{
    sol_comm_t comm;
    pthread_t thread;
    float *x = calloc(COUNT, 8 * sizeof(*x)), *y = calloc(COUNT, 8 * sizeof(*y));
    if (!x || !y || !fault_comm(team, rank, 20000, &comm))
        goto out;
    fault_still_works(team, rank, comm);
    team_barrier(team);
    struct aborter aborter = {comm, fault_sequence(comm), SOL_ERR_INTERNAL};
    if (rank == 0 &&
        !TEAM_CHECK(team, rank, pthread_create(&thread, NULL, abort_soon, &aborter) == 0))
        goto out;
    for (int r = 0; rank == team->nranks - 1 && r < rank; r++)
        fault_await(team, r);
    double begin = team_now();
    sol_status_t status =
        call(SOL_FUNC_ALL_REDUCE, comm, rank, team->nranks, *(int *)arg ? COUNT : 3, x, y);
    double took = team_now() - begin;
    fault_raise(team, rank);
    if (rank == 0) {
        pthread_join(thread, NULL);
        TEAM_CHECK(team, rank, aborter.status == SOL_OK);
    }
    /* (what the last rank needs may be there already: then it waits for nobody) */
    if (rank != team->nranks - 1 || status != SOL_OK)
        fault_expect(team, rank, "the aborted call", status, SOL_ERR_ABORTED, comm, "abort");
    else
        TEAM_CHECK(team, rank, sol_barrier(comm, NULL) == SOL_ERR_ABORTED);
    if (took > FAULT_SOON)
        team_fail(team, rank, "abort took %.2f s", took);
    TEAM_CHECK(team, rank, refuses(comm));
    TEAM_CHECK(team, rank, sol_comm_abort(comm) == SOL_OK); /* again: harmless */
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
out:
    free(x);
    free(y);
}

const fault_case_t fault_absent[] = {
    {.name = "a rank never arrives", .run = never_arrives, .nranks = 3},
    {.name = "rank 0 waits for all others", .run = never_arrives, .nranks = 2},
    {.name = "another id", .run = other_id, .nranks = 2},
    {.name = "the same rank twice", .run = mismatched_join, .nranks = 3, .argument = 0},
    {.name = "the same rank twice, rank 0", .run = mismatched_join, .nranks = 2, .argument = 0},
    {.name = "another number of ranks", .run = mismatched_join, .nranks = 3, .argument = 1},
    {.name = "killed while joining",
     .run = killed_while_joining,
     .nranks = 3,
     .killed = 1u << 2,
     .repeat = 12},
    {.name = "rank 0 killed while joining",
     .run = killed_while_joining,
     .nranks = 3,
     .killed = 1u << 0,
     .repeat = 8},
    {.name = "late, small", .run = late, .nranks = 2, .argument = 0, .deadline_s = 90},
    {.name = "late, large", .run = late, .nranks = 3, .argument = 1, .deadline_s = 90},
    {.name = "late, threads", .run = late, .nranks = 3, .threads = true, .deadline_s = 90},
    {.name = "killed between calls",
     .run = killed_at_work,
     .nranks = 2,
     .killed = 1u << 1,
     .argument = 0,
     .repeat = 6},
    {.name = "killed within a call",
     .run = killed_at_work,
     .nranks = 4,
     .killed = 1u << 3,
     .argument = 1,
     .repeat = 10},
    {.name = "killed before destroy", .run = killed_before_destroy, .nranks = 3, .killed = 1u << 2},
    {.name = "a rank destroys early", .run = leaves, .nranks = 3, .argument = 0},
    {.name = "a rank exits early", .run = leaves, .nranks = 3, .argument = 1},
    {.name = "no dispatch of experts", .run = absent_experts, .nranks = 3, .argument = 0},
    {.name = "no combine of experts", .run = absent_experts, .nranks = 3, .argument = 1},
    {.name = "abort, small", .run = aborted, .nranks = 3, .argument = 0},
    {.name = "abort, large", .run = aborted, .nranks = 3, .argument = 1},
    {.name = "abort, threads", .run = aborted, .nranks = 3, .threads = true},
    {.name = NULL},
};
