/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_late.c: a rank that comes late is named by the dumps of the others, with
 * how long they waited for it. Rank 1 is held up on the device; how long the
 * others' operations take is told by events, on the clock that the waits are
 * counted by. Runs in the emulator too (tests/emu/emu_late.c).
 */
#include "gpu/gpu_late.h"
#include "gpu/gpu_rank.h"

#include <stdlib.h>
#include <string.h>

#define COUNT 64    /* elements of a small message, */
#define LARGE 12288 /* and of one that more than one CTA waits for */
#define ROUNDS 6
/* How late, and how much less a wait may count than the events say: two rounds of polls
 * (watch.cuh), and what the operation and its launch take by themselves. */
#ifndef LATE_NS /* (in the emulator a poll takes a millisecond) */
#define LATE_NS 3000000u
#define UNSEEN_NS 300000u
#endif

#define CALL(g, call) TEAM_OK((g)->team, (g)->rank, call, (g)->comm)

/* ------------------------------------------------------------------------- what a dump says */

typedef struct {
    long waits;
    double ns;
} waited_t;

/* This rank's dump, to be freed; NULL is a recorded failure. */
static char *dump_of(gpu_rank_t *g)
{
    FILE *file = tmpfile();
    char *text = NULL;
    if (file && CALL(g, sol_comm_dump(g->comm, fileno(file)))) {
        long bytes = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
        text = calloc(1, (size_t)(bytes < 0 ? 0 : bytes) + 1);
        rewind(file);
        if (text && bytes > 0 && fread(text, 1, (size_t)bytes, file) != (size_t)bytes)
            team_fail(g->team, g->rank, "a dump cannot be read back");
    }
    if (file)
        fclose(file);
    TEAM_CHECK(g->team, g->rank, text != NULL);
    return text;
}

/* The member `name`, an array, up to its end; NULL: there is none. */
static char *array_of(char *text, const char *name)
{
    char word[32];
    snprintf(word, sizeof(word), "\"%s\": [", name);
    char *at = text ? strstr(text, word) : NULL, *end = at ? strchr(at, ']') : NULL;
    if (end)
        *end = '\0';
    return end ? at + strlen(word) : NULL;
}

static void read_waits(gpu_rank_t *g, waited_t *of)
{
    char *text = dump_of(g), *list = array_of(text, "waited");
    TEAM_CHECK(g->team, g->rank, list != NULL);
    for (int r = 0; r < g->nranks; r++) {
        char word[32];
        snprintf(word, sizeof(word), "{\"rank\": %d, \"waits\": ", r);
        const char *one = list ? strstr(list, word) : NULL;
        const char *ns = one ? strstr(one, "\"ns\": ") : NULL;
        of[r].waits = one ? atol(one + strlen(word)) : 0;
        of[r].ns = ns ? atof(ns + strlen("\"ns\": ")) : 0;
    }
    free(text);
}

/* ------------------------------------------------------------------- operations with a late rank
 */

struct operation {
    const char *name;
    sol_status_t (*run)(gpu_rank_t *g, int32_t *x, int32_t *y);
};

static sol_status_t small_sum(gpu_rank_t *g, int32_t *x, int32_t *y)
{
    return sol_all_reduce(x, y, COUNT, SOL_INT32, SOL_SUM, g->comm, g->stream);
}
static sol_status_t large_sum(gpu_rank_t *g, int32_t *x, int32_t *y)
{
    return sol_all_reduce(x, y, LARGE, SOL_INT32, SOL_SUM, g->comm, g->stream);
}
static sol_status_t broadcast_of_1(gpu_rank_t *g, int32_t *x, int32_t *y)
{
    return sol_broadcast(x, y, COUNT, SOL_INT32, 1, g->comm, g->stream);
}
static sol_status_t receive_from_1(gpu_rank_t *g, int32_t *x, int32_t *y)
{
    sol_status_t status = sol_group_start();
    for (int r = 0; r < g->nranks && status == SOL_OK; r++) {
        if (r != 1 && g->rank == 1)
            status = sol_send(x, COUNT, SOL_INT32, r, g->comm, g->stream);
        if (r == g->rank && g->rank != 1)
            status = sol_recv(y, COUNT, SOL_INT32, 1, g->comm, g->stream);
    }
    return status == SOL_OK ? sol_group_end() : status;
}

static const struct operation operations[] = {{"small all_reduce", small_sum},
                                              {"large all_reduce", large_sum},
                                              {"broadcast of rank 1", broadcast_of_1},
                                              {"receive from rank 1", receive_from_1}};

/* What is run and timed: an operation, a graph of it, or a kernel of the user's own. */
struct timed {
    const char *name;
    const struct operation *operation;
    cudaGraphExec_t exec;
    const sol_dev_comm_t *dev;
    int32_t *x, *y;
    cudaEvent_t begin, end;
};

static bool enqueue(gpu_rank_t *g, const struct timed *t)
{
    if (t->exec)
        return GPU_OK(g, cudaGraphLaunch(t->exec, g->stream));
    if (t->dev)
        return GPU_OK(g, gpu_meet(g->stream, t->dev));
    return CALL(g, t->operation->run(g, t->x, t->y));
}

/* Nanoseconds on the device from before the operation to behind it. */
static double one_round(gpu_rank_t *g, const struct timed *t, uint64_t late_ns)
{
    float ms = 0;
    team_barrier(g->team);
    if (g->rank != 1) {
        GPU_OK(g, cudaEventRecord(t->begin, g->stream));
        enqueue(g, t);
        GPU_OK(g, cudaEventRecord(t->end, g->stream));
    }
    team_barrier(g->team);
    if (g->rank == 1) {
        GPU_OK(g, gpu_delay(g->stream, late_ns, t->x));
        enqueue(g, t);
    }
    gpu_wait(g, 20);
    if (g->rank != 1)
        GPU_OK(g, cudaEventElapsedTime(&ms, t->begin, t->end));
    return (double)ms * 1e6;
}

/* Rank 1 comes late, again and again: all others say so, and how long they waited, nobody more
 * than his operations took. */
static void late_in(gpu_rank_t *g, const struct timed *t)
{
    waited_t before[SOL_DEV_MAX_RANKS], after[SOL_DEV_MAX_RANKS];
    double took = 0;
    team_doing(g->team, g->rank, "a late rank in %s", t->name);
    read_waits(g, before);
    for (int i = 0; i < ROUNDS; i++)
        took += one_round(g, t, LATE_NS);
    read_waits(g, after);
    for (int r = 0; r < g->nranks; r++) {
        const double ns = after[r].ns - before[r].ns;
        const long waits = after[r].waits - before[r].waits;
        if (getenv("GPU_LATE_VERBOSE"))
            printf("%s, rank %d for %d: %.0f us in %ld waits, of %.0f us\n", t->name, g->rank, r,
                   ns * 1e-3, waits, took * 1e-3);
        if (g->rank != 1 && r == 1 &&
            (ns > took || ns < took - (double)ROUNDS * UNSEEN_NS || waits < ROUNDS))
            team_fail(g->team, g->rank,
                      "%s: %.0f us in %ld waits for rank 1: its %d operations took %.0f us",
                      t->name, ns * 1e-3, waits, ROUNDS, took * 1e-3);
        if ((g->rank == 1 || r != 1) && ns > (double)ROUNDS * LATE_NS / 2)
            team_fail(g->team, g->rank, "%s: %.0f us are counted for rank %d, which is on time",
                      t->name, ns * 1e-3, r);
    }
}

static void in_a_graph(gpu_rank_t *g, struct timed t)
{
    cudaGraph_t graph = NULL;
    char name[64];
    snprintf(name, sizeof(name), "a graph of %s", t.name);
    t.name = name;
    GPU_OK(g, cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal));
    CALL(g, t.operation->run(g, t.x, t.y));
    GPU_OK(g, cudaStreamEndCapture(g->stream, &graph));
    if (GPU_OK(g, cudaGraphInstantiate(&t.exec, graph, 0))) {
        late_in(g, &t);
        GPU_OK(g, cudaGraphExecDestroy(t.exec));
    }
    cudaGraphDestroy(graph);
}

static void in_a_kernel(gpu_rank_t *g, struct timed t)
{
    sol_dev_config_t config = SOL_DEV_CONFIG_INIT;
    sol_dev_comm_t dev;
    config.barriers = 1;
    t.name = "a kernel of the user's own";
    t.dev = &dev;
    team_doing(g->team, g->rank, "making a device communicator");
    if (CALL(g, sol_dev_comm_create(g->comm, &config, &dev))) {
        late_in(g, &t);
        CALL(g, sol_dev_comm_destroy(g->comm, &dev));
    }
}

/* What was counted stays, and is counted on. */
static void after_a_sleep(gpu_rank_t *g, const struct timed *t)
{
    waited_t before[SOL_DEV_MAX_RANKS], after[SOL_DEV_MAX_RANKS];
    read_waits(g, before);
    team_doing(g->team, g->rank, "sleeping");
    if (!CALL(g, sol_comm_sleep(g->comm, SOL_SLEEP_KEEP)) || !CALL(g, sol_comm_wake(g->comm)))
        return;
    read_waits(g, after);
    TEAM_CHECK(g->team, g->rank, memcmp(before, after, sizeof(*after) * (size_t)g->nranks) == 0);
    late_in(g, t);
}

/* Kernels are loaded on all ranks (gpu_rank.c), and `x` is filled. */
static bool ready(gpu_rank_t *g, int32_t *x, size_t count)
{
    bool good = x && GPU_OK(g, gpu_delay(g->stream, 1, x)) && gpu_fill(g, x, count, 1);
    team_barrier(g->team);
    return good;
}

static void a_late_rank(gpu_rank_t *g)
{
    struct timed t = {.x = gpu_alloc(g, LARGE * 4), .y = gpu_alloc(g, LARGE * 4)};
    if (!ready(g, t.x, LARGE) || !t.y || !GPU_OK(g, cudaEventCreate(&t.begin)) ||
        !GPU_OK(g, cudaEventCreate(&t.end)))
        return;
    for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++) {
        t.operation = &operations[i];
        t.name = operations[i].name;
        late_in(g, &t);
        in_a_graph(g, t);
    }
    in_a_kernel(g, t);
    t.operation = &operations[0];
    t.name = "small all_reduce after a sleep";
    after_a_sleep(g, &t);
    TEAM_CHECK(g->team, g->rank, sol_comm_async_error(g->comm, &(sol_status_t){0}) == SOL_OK);
    cudaEventDestroy(t.begin);
    cudaEventDestroy(t.end);
}

/* -------------------------------------------------------------------- a rank that does not come */

/* A dump made meanwhile says who is waited for, and for how long; one made after the end, too. */
static void waiting_for_it(gpu_rank_t *g)
{
    char *text = NULL, *list = NULL;
    int32_t *x = gpu_alloc(g, COUNT * 4);
    double begin = team_now();
    const double timeout_ns = (g->timeout_ms ? g->timeout_ms : 6000) * 1e6; /* as gpu_comm has it */
    _Atomic int *told = (_Atomic int *)(void *)g->team->scratch;
    bool seen = false;
    team_doing(g->team, g->rank, "waiting for a rank that does not come");
    if (!ready(g, x, COUNT))
        return;
    while (g->rank == 1 && !atomic_load(told) && team_now() - begin < 4) {
        GPU_OK(g, gpu_delay(g->stream, 20000000, x)); /* it is busy with something else */
        gpu_wait(g, 4);
    }
    if (g->rank != 1)
        CALL(g, sol_all_reduce(x, x, COUNT, SOL_INT32, SOL_SUM, g->comm, g->stream));
    while (g->rank == 0 && !seen && team_now() - begin < 4) {
        static const char words[] = "\"waiting_for\": [1], \"waiting_ns\": ";
        text = dump_of(g);
        const char *at = text ? strstr(text, words) : NULL;
        const double ns = at ? atof(at + sizeof(words) - 1) : 0;
        seen = ns > 0 && ns < timeout_ns; /* while it waits, not when it has given up */
        free(text);
    }
    TEAM_CHECK(g->team, g->rank, seen || g->rank != 0);
    atomic_store(told, 1);
    if (g->rank == 1)
        return; /* after the others' timeout it hears of it in its next call */
    gpu_wait(g, 12);
    sol_status_t status = SOL_OK;
    while (status == SOL_OK && team_now() - begin < 14)
        CALL(g, sol_comm_async_error(g->comm, &status));
    TEAM_CHECK(g->team, g->rank, status == SOL_ERR_TIMEOUT);
    text = dump_of(g);
    list = array_of(text, "waiting_for");
    /* of several that wait, the first to give up ends it for all */
    TEAM_CHECK(g->team, g->rank, list && (strcmp(list, "1") == 0 || g->nranks > 2));
    free(text);
}

const gpu_case_t gpu_cases_late[] = {
    {.name = "late-rank",
     .run = a_late_rank,
     .least = 2,
     .most = 3,
     .threads = true,
     .processes = true},
    {.name = "dump-of-a-wait",
     .run = waiting_for_it,
     .least = 2,
     .most = 2,
     .threads = true,
     .processes = true},
    {.name = NULL},
};
