/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_faults.c: ranks that are late, silent, dead, or of another opinion.
 * Every wait ends, the text says who waited for whom, the GPU can still be
 * used, and so can new communicators.
 */
#include "gpu/gpu_rank.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT 1024

static bool says(gpu_rank_t *g, sol_comm_t comm, const char *what)
{
    const char *text = sol_last_error(comm);
    if (strstr(text, what))
        return true;
    team_fail(g->team, g->rank, "the error does not say \"%s\": %s", what, text);
    return false;
}

/* Does the communicator fail with `wanted` within `seconds`? */
static bool fails(gpu_rank_t *g, sol_comm_t comm, sol_status_t wanted, double seconds)
{
    sol_status_t status = SOL_OK;
    double end = team_now() + seconds;
    while (status == SOL_OK && team_now() < end) {
        TEAM_OK(g->team, g->rank, sol_comm_async_error(comm, &status), NULL);
        team_sleep_us(1000);
    }
    if (status != wanted)
        team_fail(g->team, g->rank, "the communicator's error is %d (%s), not %d: %s", (int)status,
                  sol_status_string(status), (int)wanted, sol_last_error(comm));
    return status == wanted;
}

/* A fresh communicator on the same GPU works. */
static void works_again(gpu_rank_t *g, int id)
{
    sol_comm_t fresh;
    int32_t *x = gpu_alloc(g, COUNT * 4), *y = gpu_alloc(g, COUNT * 4);
    g->timeout_ms = 0; /* ranks come here seconds apart */
    if (!x || !y || !gpu_comm(g, id, &fresh) || !gpu_fill(g, x, COUNT, 5))
        return;
    TEAM_OK(g->team, g->rank, sol_all_reduce(x, y, COUNT, SOL_INT32, SOL_SUM, fresh, g->stream),
            fresh);
    gpu_expect_sum(g, y, COUNT, 5);
    TEAM_OK(g->team, g->rank, sol_comm_destroy(fresh), NULL);
}

static bool open_with(gpu_rank_t *g, int timeout_ms, int check)
{
    g->timeout_ms = timeout_ms;
    g->check = check;
    return gpu_open_device(g) && gpu_comm(g, 0, &g->comm);
}

static void a_silent_rank(gpu_rank_t *g)
{
    if (!open_with(g, 2000, 0))
        return;
    int32_t *x = gpu_alloc(g, COUNT * 4);
    double begin = team_now();
    if (g->rank != 1) {
        TEAM_OK(g->team, g->rank,
                sol_all_reduce(x, x, COUNT, SOL_INT32, SOL_SUM, g->comm, g->stream), g->comm);
        gpu_wait(g, 5);
    }
    if (fails(g, g->comm, SOL_ERR_TIMEOUT, 6)) {
        says(g, g->comm, "all_reduce #1 (1024 x int32 = 4096 bytes, sum)");
        says(g, g->comm, "waited 2.0 s for rank 1");
    }
    double took = team_now() - begin;
    TEAM_CHECK(g->team, g->rank, took > 1.5 && took < 4);
    /* further calls fail at once, and so does destroy not hang */
    TEAM_STATUS(g->team, g->rank,
                sol_all_reduce(x, x, COUNT, SOL_INT32, SOL_SUM, g->comm, g->stream),
                SOL_ERR_TIMEOUT, g->comm);
    begin = team_now();
    TEAM_OK(g->team, g->rank, sol_comm_destroy(g->comm), NULL);
    TEAM_CHECK(g->team, g->rank, team_now() - begin < 1);
    works_again(g, 1);
    gpu_close_device(g);
}

/* The same inside a graph. */
static void a_silent_rank_in_a_graph(gpu_rank_t *g)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    if (!open_with(g, 1500, 0))
        return;
    int32_t *x = gpu_alloc(g, COUNT * 4);
    GPU_OK(g, cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 5; i++)
        TEAM_OK(g->team, g->rank,
                sol_all_reduce(x, x, COUNT, SOL_INT32, SOL_MAX, g->comm, g->stream), g->comm);
    GPU_OK(g, cudaStreamEndCapture(g->stream, &graph));
    GPU_OK(g, cudaGraphInstantiate(&exec, graph, 0));
    GPU_OK(g, cudaGraphLaunch(exec, g->stream));
    gpu_wait(g, 5);
    if (g->rank != 1) {
        GPU_OK(g, cudaGraphLaunch(exec, g->stream));
        gpu_wait(g, 5);
    }
    if (fails(g, g->comm, SOL_ERR_TIMEOUT, 6))
        says(g, g->comm, "for rank 1");
    GPU_OK(g, cudaGraphExecDestroy(exec));
    GPU_OK(g, cudaGraphDestroy(graph));
    TEAM_OK(g->team, g->rank, sol_comm_destroy(g->comm), NULL);
    works_again(g, 1);
    gpu_close_device(g);
}

static void an_abort(gpu_rank_t *g)
{
    if (!open_with(g, 30000, 0))
        return;
    int32_t *x = gpu_alloc(g, COUNT * 4);
    double begin = team_now();
    if (g->rank == 1) {
        team_sleep_us(200000);
        TEAM_OK(g->team, g->rank, sol_comm_abort(g->comm), NULL);
    } else {
        TEAM_OK(g->team, g->rank,
                sol_all_reduce(x, x, COUNT, SOL_INT32, SOL_SUM, g->comm, g->stream), g->comm);
        gpu_wait(g, 3);
    }
    fails(g, g->comm, SOL_ERR_ABORTED, 3);
    TEAM_CHECK(g->team, g->rank, team_now() - begin < 2);
    TEAM_OK(g->team, g->rank, sol_comm_destroy(g->comm), NULL);
    works_again(g, 1);
    gpu_close_device(g);
}

/* Rank 1 dies in the middle of everything. */
static void a_killed_rank(gpu_rank_t *g)
{
    if (!open_with(g, 2000, 0))
        return;
    int32_t *x = gpu_alloc(g, COUNT * 4);
    double begin = team_now();
    sol_status_t status = SOL_OK;
    for (int i = 0; status == SOL_OK && team_now() - begin < 10; i++) {
        if (g->rank == 1 && i == 300)
            kill(getpid(), SIGKILL);
        status = sol_all_reduce(x, x, COUNT, SOL_INT32, SOL_SUM, g->comm, g->stream);
        if (i % 64 == 63)
            gpu_wait(g, 8);
    }
    TEAM_CHECK(g->team, g->rank, status == SOL_ERR_TIMEOUT || status == SOL_ERR_PEER);
    TEAM_CHECK(g->team, g->rank, team_now() - begin < 8);
    says(g, g->comm, "for rank 1");
    begin = team_now();
    TEAM_OK(g->team, g->rank, sol_comm_destroy(g->comm), NULL);
    TEAM_CHECK(g->team, g->rank, team_now() - begin < 1);
    GPU_OK(g, cudaMemsetAsync(x, 0, COUNT * 4, g->stream));
    gpu_wait(g, 1);
    gpu_close_device(g);
}

static void a_rank_killed_at_init(gpu_rank_t *g)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    config.backend = SOL_BACKEND_CUDA;
    config.timeout_ms = 3000;
    if (!gpu_open_device(g))
        return;
    if (g->rank == 1) {
        unsigned delay = (unsigned)(g->team->seed % 400);
        if (fork() == 0) { /* somebody else pulls the trigger, wherever we are then */
            team_sleep_us(delay * 1000);
            kill(getppid(), SIGKILL);
            _exit(0);
        }
    }
    double begin = team_now();
    sol_status_t status = SOL_OK;
    for (int i = 0; i < 200 && status == SOL_OK; i++) {
        sol_comm_t comm = NULL;
        status = sol_comm_create(&comm, &g->team->ids[0], g->nranks, g->rank, &config);
        sol_comm_destroy(comm);
    }
    if (g->rank == 1)
        team_sleep_us(3000000); /* killed here at the latest */
    TEAM_CHECK(g->team, g->rank, status != SOL_OK);
    TEAM_CHECK(g->team, g->rank, team_now() - begin < 20);
    gpu_close_device(g);
}

/* Destroy with an operation on the device that nobody will complete. */
static void destroyed_while_waiting(gpu_rank_t *g)
{
    if (!open_with(g, 1500, 0))
        return;
    int32_t *x = gpu_alloc(g, COUNT * 4);
    if (g->rank == 0)
        TEAM_OK(g->team, g->rank,
                sol_all_reduce(x, x, COUNT, SOL_INT32, SOL_SUM, g->comm, g->stream), g->comm);
    double begin = team_now();
    TEAM_OK(g->team, g->rank, sol_comm_destroy(g->comm), NULL);
    TEAM_CHECK(g->team, g->rank, team_now() - begin < 4);
    gpu_wait(g, 1);
    works_again(g, 1);
    gpu_close_device(g);
}

/* With check, different calls are found and named. */
static void different_calls(gpu_rank_t *g)
{
    if (!open_with(g, 5000, 1))
        return;
    int32_t *x = gpu_alloc(g, COUNT * 4);
    for (int i = 0; i < 10; i++)
        TEAM_OK(g->team, g->rank, sol_all_reduce(x, x, 16, SOL_INT32, SOL_SUM, g->comm, g->stream),
                g->comm);
    gpu_wait(g, 5);
    sol_all_reduce(x, x, 16 + (size_t)(g->rank == 1), SOL_INT32, SOL_SUM, g->comm, g->stream);
    if (fails(g, g->comm, SOL_ERR_MISMATCH, 3)) {
        says(g, g->comm, "16 x int32");
        says(g, g->comm, "17 x int32");
    }
    gpu_wait(g, 3);
    TEAM_OK(g->team, g->rank, sol_comm_destroy(g->comm), NULL);
    gpu_close_device(g);
}

/* A path that loses writes, and no NCCL: refused, with the pair named. */
static void a_lost_path(gpu_rank_t *g)
{
    sol_comm_t comm = NULL;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    config.backend = SOL_BACKEND_CUDA;
    if (!gpu_open_device(g))
        return;
    TEAM_STATUS(g->team, g->rank,
                sol_comm_create(&comm, &g->team->ids[0], g->nranks, g->rank, &config),
                SOL_ERR_UNSUPPORTED, NULL);
    says(g, NULL, "do not arrive");
    says(g, NULL, "0 to 1");
    gpu_close_device(g);
}

const gpu_case_t gpu_cases_faults[] = {
    {.name = "silent-rank",
     .run = a_silent_rank,
     .least = 2,
     .most = 3,
     .threads = true,
     .processes = true,
     .bare = true,
     .turns = true},
    {.name = "silent-rank-in-a-graph",
     .run = a_silent_rank_in_a_graph,
     .least = 2,
     .most = 2,
     .processes = true,
     .bare = true,
     .turns = true},
    {.name = "abort",
     .run = an_abort,
     .least = 2,
     .most = 2,
     .threads = true,
     .processes = true,
     .bare = true,
     .turns = true},
    {.name = "killed-rank",
     .run = a_killed_rank,
     .least = 2,
     .most = 2,
     .processes = true,
     .bare = true,
     .turns = true,
     .expect_killed = 1u << 1},
    {.name = "killed-at-init",
     .run = a_rank_killed_at_init,
     .least = 2,
     .most = 2,
     .processes = true,
     .bare = true,
     .turns = true,
     .expect_killed = 1u << 1},
    {.name = "destroyed-while-waiting",
     .run = destroyed_while_waiting,
     .least = 2,
     .most = 2,
     .processes = true,
     .bare = true,
     .turns = true},
    {.name = "different-calls",
     .run = different_calls,
     .least = 2,
     .most = 2,
     .processes = true,
     .bare = true,
     .turns = true},
    {.name = "lost-path",
     .run = a_lost_path,
     .least = 2,
     .most = 2,
     .processes = true,
     .bare = true,
     .turns = true,
     .environment = {"SOLCCL_DEBUG_DROP_PAIR=0,1", "SOLCCL_NCCL_LIB=/nonexistent/libnccl.so.2"}},
    {.name = NULL},
};
