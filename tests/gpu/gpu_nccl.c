/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_nccl.c: what goes to NCCL: everything where there is no path between the
 * GPUs, large sizes if asked for; and communicators made from NCCL's own.
 * Skipped where there is no NCCL.
 */
#include "gpu/gpu_rank.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 70001
#define SMALL 1024

#define CALL(g, call) TEAM_OK((g)->team, (g)->rank, call, (g)->comm)

static bool reduce_through(gpu_rank_t *g, int32_t *x, int32_t *y, size_t count, uint64_t seed)
{
    return gpu_fill(g, x, count, seed) &&
           GPU_OK(g, cudaMemsetAsync(y, 0xff, count * 4, g->stream)) &&
           CALL(g, sol_all_reduce(x, y, count, SOL_INT32, SOL_SUM, g->comm, g->stream)) &&
           gpu_expect_sum(g, y, count, seed);
}

static bool goes_to_nccl(gpu_rank_t *g, sol_func_t func, size_t count)
{
    char text[512] = "";
    CALL(g, sol_explain(g->comm, func, count, SOL_INT32, SOL_SUM, text, sizeof(text)));
    return strncmp(text, "nccl: ", 6) == 0;
}

typedef struct {
    char bytes[128];
} nccl_id_t;

/* NCCL's communicator gives us ours. */
static void from_nccl(gpu_rank_t *g)
{
    if (g->nranks > g->devices) {
        team_skip(g->team, g->rank, "NCCL wants a GPU for every rank");
        return;
    }
    const char *named = getenv("SOLCCL_NCCL_LIB"); /* solccl must find the same one */
    void *library = dlopen(named ? named : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL), *nccl = NULL;
    if (!library) {
        team_skip(g->team, g->rank, "no NCCL here");
        return;
    }
    int (*get_id)(nccl_id_t *) = (int (*)(nccl_id_t *))dlsym(library, "ncclGetUniqueId");
    int (*init)(void **, int, nccl_id_t, int) =
        (int (*)(void **, int, nccl_id_t, int))dlsym(library, "ncclCommInitRank");
    int (*destroy)(void *) = (int (*)(void *))dlsym(library, "ncclCommDestroy");
    nccl_id_t *id = (nccl_id_t *)(void *)g->team->scratch;
    sol_comm_t made = NULL;
    if (g->rank == 0)
        TEAM_CHECK(g->team, g->rank, get_id(id) == 0);
    team_barrier(g->team);
    if (!TEAM_CHECK(g->team, g->rank, init(&nccl, g->nranks, *id, g->rank) == 0) ||
        !TEAM_OK(g->team, g->rank, sol_comm_create_from_nccl(&made, nccl, NULL), NULL))
        return;
    sol_comm_t before = g->comm;
    int32_t *x = gpu_alloc(g, COUNT * 4), *y = gpu_alloc(g, COUNT * 4);
    g->comm = made;
    reduce_through(g, x, y, COUNT, 8);
    g->comm = before;
    TEAM_OK(g->team, g->rank, sol_comm_destroy(made), NULL);
    destroy(nccl);
}

/* No path, but NCCL: everything works, through it. */
static void everything(gpu_rank_t *g)
{
    size_t c = SMALL, n = (size_t)g->nranks;
    int next = (g->rank + 1) % g->nranks, previous = (g->rank + g->nranks - 1) % g->nranks;
    TEAM_CHECK(g->team, g->rank, goes_to_nccl(g, SOL_FUNC_ALL_REDUCE, 10));
    int32_t *x = gpu_alloc(g, n * c * 4), *y = gpu_alloc(g, n * c * 4);
    reduce_through(g, x, y, c, 2);
    CALL(g, sol_all_gather(x, y, c, SOL_INT32, g->comm, g->stream));
    gpu_expect_gather(g, y, c, 2);
    CALL(g, sol_all_to_all(y, x, c, SOL_INT32, g->comm, g->stream));
    for (int r = 0; r < g->nranks; r++) /* from each its block for us: what we filled in */
        gpu_expect_of(g, x + (size_t)r * c, c, 2, g->rank);
    gpu_fill(g, x, c, 3);
    CALL(g, sol_broadcast(x, y, c, SOL_INT32, 1, g->comm, g->stream));
    gpu_expect_of(g, y, c, 3, 1);
    CALL(g, sol_gather(x, y, c, SOL_INT32, 0, g->comm, g->stream));
    if (g->rank == 0)
        gpu_expect_gather(g, y, c, 3);
    CALL(g, sol_group_start());
    CALL(g, sol_send(x, c, SOL_INT32, next, g->comm, g->stream));
    CALL(g, sol_recv(y, c, SOL_INT32, previous, g->comm, g->stream));
    CALL(g, sol_group_end());
    gpu_expect_of(g, y, c, 3, previous);
    CALL(g, sol_barrier(g->comm, g->stream));
    gpu_wait(g, 5);
}

/* Sizes on both sides of the limit in turns, on two streams and in a graph, with no event of the
 * case's: who carries an operation changes nothing about its order. */
static void large_sizes(gpu_rank_t *g)
{
    cudaStream_t side;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    int32_t *x = gpu_alloc(g, COUNT * 4), *y = gpu_alloc(g, COUNT * 4),
            *z = gpu_alloc(g, COUNT * 4);
    if (!goes_to_nccl(g, SOL_FUNC_ALL_REDUCE, COUNT)) {
        team_skip(g->team, g->rank, "no NCCL here");
        return;
    }
    TEAM_CHECK(g->team, g->rank, !goes_to_nccl(g, SOL_FUNC_ALL_REDUCE, SMALL));
    TEAM_CHECK(g->team, g->rank, !goes_to_nccl(g, SOL_FUNC_ALL_TO_ALL, COUNT));
    GPU_OK(g, cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    for (unsigned round = 0; round < 20; round++) {
        team_doing(g->team, g->rank, "round %u", round);
        if (!reduce_through(g, x, y, COUNT, round) || !reduce_through(g, x, y, SMALL, round + 100))
            return;
        gpu_fill(g, x, COUNT, round);
        CALL(g, sol_all_reduce(x, y, COUNT, SOL_INT32, SOL_SUM, g->comm, g->stream));
        CALL(g, sol_all_reduce(y, z, SMALL, SOL_INT32, SOL_MAX, g->comm, side));
        GPU_OK(g, cudaStreamSynchronize(side));
        gpu_expect_sum(g, z, SMALL, round); /* the largest of equal values */
    }
    GPU_OK(g, cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal));
    CALL(g, sol_all_reduce(x, y, COUNT, SOL_INT32, SOL_SUM, g->comm, g->stream));
    CALL(g, sol_all_reduce(y, z, SMALL, SOL_INT32, SOL_MAX, g->comm, g->stream));
    if (!GPU_OK(g, cudaStreamEndCapture(g->stream, &graph)) ||
        !GPU_OK(g, cudaGraphInstantiate(&exec, graph, 0)))
        return;
    for (unsigned round = 0; round < 10; round++) {
        team_doing(g->team, g->rank, "replay %u", round);
        if (!gpu_fill(g, x, COUNT, round) || !GPU_OK(g, cudaGraphLaunch(exec, g->stream)) ||
            !gpu_expect_sum(g, y, COUNT, round) || !gpu_expect_sum(g, z, SMALL, round) ||
            !reduce_through(g, x, y, SMALL, round))
            return;
    }
    GPU_OK(g, cudaGraphExecDestroy(exec));
    GPU_OK(g, cudaGraphDestroy(graph));
    GPU_OK(g, cudaStreamDestroy(side));
}

const gpu_case_t gpu_cases_nccl[] = {
    {.name = "from-nccl",
     .run = from_nccl,
     .least = 1, /* NCCL wants a GPU for every rank */
     .most = 2,
     .processes = true,
     .environment = {"NCCL_NVLS_ENABLE=0"}},
    {.name = "lost-path-with-nccl",
     .run = everything,
     .least = 2,
     .most = 2,
     .processes = true,
     .environment = {"SOLCCL_DEBUG_DROP_PAIR=0,1", "NCCL_NVLS_ENABLE=0"}},
    {.name = "no-p2p-with-nccl",
     .run = everything,
     .least = 2,
     .most = 2,
     .processes = true,
     .environment = {"SOLCCL_CUDA_P2P=0", "NCCL_NVLS_ENABLE=0"}},
    {.name = "nccl-above",
     .run = large_sizes,
     .least = 2,
     .most = 2,
     .processes = true,
     .environment = {"SOLCCL_NCCL_ABOVE=100000", "NCCL_NVLS_ENABLE=0"}},
    {.name = NULL},
};
