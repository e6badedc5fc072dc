/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_transfer.c: solccl/transfer.h where only GPUs show it: pages that a kernel
 * has just written are sent, and read by a kernel behind the wait, over and over,
 * beside collectives on another stream; in a graph that is replayed; by the copy
 * engine; and a wait in vain.
 */
#include "gpu/gpu_rank.h"

#include <solccl/transfer.h>
#include <stdlib.h>
#include <string.h>

#define PAGE ((size_t)65536)
#define FLOATS (PAGE / sizeof(float))
#define PAGES 48

typedef struct arena {
    char *cache; /* symmetric: PAGES pages to be written to, then a page for answers */
    float *source, *sum;
    sol_transfer_t transfer;
    cudaStream_t side;
    float *host;
    int to, from;
} arena_t;

static bool make(gpu_rank_t *g, arena_t *a)
{
    sol_transfer_config_t config = SOL_TRANSFER_CONFIG_INIT;
    sol_region_t region;
    void *memory = NULL;
    memset(a, 0, sizeof(*a));
    a->to = (g->rank + 1) % g->nranks;
    a->from = (g->rank + g->nranks - 1) % g->nranks;
    a->source = gpu_alloc(g, PAGES * PAGE);
    a->sum = gpu_alloc(g, 4096);
    a->host = malloc(PAGES * PAGE);
    if (!a->source || !a->sum || !a->host ||
        !TEAM_OK(g->team, g->rank, sol_mem_alloc(g->comm, (PAGES + 1) * PAGE, &memory), g->comm))
        return false;
    a->cache = memory;
    region.memory = memory;
    region.bytes = (PAGES + 1) * PAGE;
    config.regions = &region, config.nregions = 1, config.counters = 4;
    GPU_OK(g, cudaMemsetAsync(a->source, 0, PAGES * PAGE, g->stream));
    GPU_OK(g, cudaMemsetAsync(a->sum, 0, 4096, g->stream));
    return GPU_OK(g, cudaStreamCreateWithFlags(&a->side, cudaStreamNonBlocking)) &&
           TEAM_OK(g->team, g->rank, sol_transfer_create(g->comm, &config, &a->transfer), g->comm);
}

static void drop(gpu_rank_t *g, arena_t *a)
{
    TEAM_OK(g->team, g->rank, sol_transfer_destroy(a->transfer), g->comm);
    TEAM_OK(g->team, g->rank, sol_mem_free(g->comm, a->cache), g->comm);
    gpu_free(g, a->source);
    gpu_free(g, a->sum);
    cudaStreamDestroy(a->side);
    free(a->host);
}

/* Every page to another place there; `turn` chooses which, and the first page's alignment. */
static bool send_pages(gpu_rank_t *g, arena_t *a, unsigned turn, sol_count_t count)
{
    uint32_t to[PAGES];
    sol_pages_t pages = SOL_PAGES_INIT;
    for (uint32_t i = 0; i < PAGES; i++)
        to[i] = (i * 11 + turn) % PAGES;
    pages.from = a->source, pages.to_pages = to, pages.npages = PAGES, pages.page_bytes = PAGE;
    pages.peer = a->to;
    return TEAM_OK(g->team, g->rank,
                   sol_transfer_write_pages(&pages, 1, 0, count, a->transfer, g->stream), g->comm);
}

/* The receiver tells the sender that its pages have been read: counter 1 there. */
static bool acknowledge(gpu_rank_t *g, arena_t *a)
{
    sol_write_t nothing = {NULL, 0, 0, a->from, 0};
    return TEAM_OK(g->team, g->rank,
                   sol_transfer_write(&nothing, 1, 1, SOL_COUNT_WRITES, a->transfer, g->stream),
                   g->comm);
}

/* A turn, all on the stream: the source changes, goes, comes, is checked against what it should be
 * by the arithmetic of gpu_turn on what arrived. */
static bool one_turn(gpu_rank_t *g, arena_t *a, unsigned turn)
{
    const uint64_t before = (uint64_t)turn * PAGES;
    GPU_OK(g, gpu_turn(g->stream, a->source, a->source, PAGES * FLOATS, (float)(turn % 7 + 1),
                       turn % 2));
    if (!TEAM_OK(g->team, g->rank, sol_transfer_await(a->transfer, 1, a->to, turn, g->stream),
                 g->comm) ||
        !send_pages(g, a, 0, SOL_COUNT_WRITES) ||
        !TEAM_OK(g->team, g->rank,
                 sol_transfer_await(a->transfer, 0, a->from, before + PAGES, g->stream), g->comm))
        return false;
    /* page i has come to i * 11 % PAGES: page 0 to 0. Checked: its first floats, added up */
    GPU_OK(g, gpu_turn(g->stream, a->sum, (const float *)(const void *)a->cache, 1000, 0, false));
    return acknowledge(g, a);
}

/* gpu_turn on the host. */
static float turned(float x, float add)
{
    float y = x * 5 + add;
    return y - 251 * (float)(int)(y / 251);
}

static void turns(gpu_rank_t *g)
{
    enum { TURNS = 300 };
    arena_t a;
    float expected = 0, seen[1024];
    if (!make(g, &a))
        return;
    for (unsigned i = 0; i < TURNS && atomic_load(&g->team->failures) == 0; i++) {
        team_doing(g->team, g->rank, "transfer, turn %u", i);
        if (!one_turn(g, &a, i))
            return;
        int32_t *ints = (int32_t *)(void *)(a.sum + 1020); /* and a collective beside it */
        TEAM_OK(
            g->team, g->rank,
            sol_all_reduce(ints, ints, 1, SOL_INT32, SOL_MAX, g->comm, i % 3 ? a.side : g->stream),
            g->comm);
        expected = turned(expected, (float)(i % 7 + 1));
    }
    if (gpu_copy(g, seen, a.sum, 4000) && gpu_copy(g, a.host, a.cache, PAGES * PAGE)) {
        size_t wrong = 0;
        for (int i = 0; i < 1000; i++)
            wrong += seen[i] != turned(expected, 0);
        for (size_t i = 0; i < PAGES * FLOATS; i++)
            wrong += a.host[i] != expected;
        TEAM_CHECK(g->team, g->rank, wrong == 0);
    }
    drop(g, &a);
}

/* A graph with writes and no waits, replayed; the host waits. */
static void replays(gpu_rank_t *g)
{
    enum { REPLAYS = 50 };
    arena_t a;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    if (!make(g, &a))
        return;
    GPU_OK(g, cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal));
    GPU_OK(g, gpu_turn(g->stream, a.source, a.source, PAGES * FLOATS, 3, true));
    send_pages(g, &a, 5, SOL_COUNT_BYTES);
    GPU_OK(g, cudaStreamEndCapture(g->stream, &graph));
    GPU_OK(g, cudaGraphInstantiate(&exec, graph, 0));
    float expected = 0;
    for (int i = 0; i < REPLAYS; i++) {
        GPU_OK(g, cudaGraphLaunch(exec, g->stream));
        expected = turned(expected, 3);
    }
    TEAM_OK(g->team, g->rank,
            sol_transfer_wait(a.transfer, 0, a.from, (uint64_t)REPLAYS * PAGES * PAGE, -1),
            g->comm);
    if (gpu_copy(g, a.host, a.cache, PAGES * PAGE)) {
        size_t wrong = 0;
        for (size_t i = 0; i < PAGES * FLOATS; i++)
            wrong += a.host[i] != expected;
        TEAM_CHECK(g->team, g->rank, wrong == 0);
    }
    GPU_OK(g, cudaGraphExecDestroy(exec));
    GPU_OK(g, cudaGraphDestroy(graph));
    team_barrier(g->team);
    drop(g, &a);
}

/* Nobody writes: the wait ends, and says which counter, and where it stood. */
static void in_vain(gpu_rank_t *g)
{
    arena_t a;
    if (!make(g, &a))
        return;
    sol_write_t w = {a.source, 100, 0, a.to, 0};
    TEAM_OK(g->team, g->rank, sol_transfer_write(&w, 1, 2, SOL_COUNT_WRITES, a.transfer, g->stream),
            g->comm);
    TEAM_STATUS(g->team, g->rank, sol_transfer_wait(a.transfer, 2, a.from, 2, 300), SOL_ERR_TIMEOUT,
                g->comm);
    team_barrier(g->team);
    if (g->rank == 0)
        TEAM_OK(g->team, 0, sol_transfer_await(a.transfer, 2, a.from, 2, g->stream), g->comm);
    gpu_wait(g, 30);
    team_barrier(g->team);
    sol_status_t error = SOL_OK;
    sol_comm_async_error(g->comm, &error);
    TEAM_CHECK(g->team, g->rank, error == SOL_ERR_TIMEOUT);
    const char *text = sol_last_error(g->comm);
    if (!strstr(text, "counter 2 of rank 0 stands at 1, 2 was awaited"))
        team_fail(g->team, g->rank, "the text is: %s", text);
}

const gpu_case_t gpu_cases_transfer[] = {
    {.name = "transfer", .run = turns, .least = 2, .most = 3, .threads = true, .processes = true},
    {.name = "transfer-copy",
     .run = turns,
     .least = 2,
     .most = 2,
     .processes = true,
     .environment = {"SOLCCL_CUDA_TRANSFER=copy"}},
    {.name = "transfer-narrow",
     .run = turns,
     .least = 2,
     .most = 2,
     .processes = true,
     .environment = {"SOLCCL_CUDA_TRANSFER=kernel", "SOLCCL_CUDA_TRANSFER_CTAS=3"}},
    {.name = "transfer-replays", .run = replays, .least = 2, .most = 2, .processes = true},
    {.name = "transfer-in-vain", .run = in_vain, .least = 2, .most = 2, .processes = true},
    {.name = NULL},
};
