/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_quantized.c: sol_all_reduce_quantized where only GPUs show it: over and over
 * with data that changes, between other collectives, in a graph that is replayed;
 * the same bits on all ranks, and as the call alone gave.
 */
#include "gpu/gpu_rank.h"

#include <solccl/quantized.h>
#include <stdlib.h>
#include <string.h>

#define COUNT ((size_t)3 << 20) /* elements: several launches with more ranks */

static bool fill(gpu_rank_t *g, float *to)
{
    float *host = malloc(COUNT * sizeof(float));
    for (size_t i = 0; host && i < COUNT; i++)
        host[i] = (float)(team_mix(i * 8 + (uint64_t)g->rank) % 1000) - 500;
    bool good = host && gpu_copy(g, to, host, COUNT * sizeof(float));
    free(host);
    return good;
}

static bool call(gpu_rank_t *g, const float *x, float *y, size_t count, int form)
{
    return TEAM_OK(g->team, g->rank,
                   sol_all_reduce_quantized(x, y, count, SOL_FLOAT32,
                                            form & 1 ? SOL_INT8 : SOL_FLOAT8_E4M3, 1 + form / 2,
                                            g->comm, g->stream),
                   g->comm);
}

/* Equal on all ranks? */
static bool agree(gpu_rank_t *g, const float *y, float *host, size_t count)
{
    if (!gpu_copy(g, host, y, count * sizeof(float)))
        return false;
    g->team->rank[g->rank].hash[0] = team_hash(host, count * sizeof(float));
    team_barrier(g->team);
    bool same =
        TEAM_CHECK(g->team, g->rank, g->team->rank[g->rank].hash[0] == g->team->rank[0].hash[0]);
    team_barrier(g->team);
    return same;
}

static void quantized(gpu_rank_t *g)
{
    static const size_t counts[] = {1, 127, 4096, 100003, 1 << 20, COUNT};
    float *x = gpu_alloc(g, COUNT * sizeof(float)), *y = gpu_alloc(g, COUNT * sizeof(float));
    float *alone = malloc(COUNT * sizeof(float)), *again = malloc(COUNT * sizeof(float));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    if (!x || !y || !alone || !again || !fill(g, x))
        return;
    for (int i = 0; i < 24 && atomic_load(&g->team->failures) == 0; i++) {
        const size_t count = counts[i / 4];
        team_doing(g->team, g->rank, "quantized of %zu, form %d", count, i % 4);
        if (!call(g, x, y, count, i % 4) || !agree(g, y, alone, count))
            break;
        GPU_OK(g, cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal));
        for (int k = 0; k < 5; k++) {
            call(g, x, y, count, i % 4);
            TEAM_OK(g->team, g->rank, sol_barrier(g->comm, g->stream), g->comm);
        }
        GPU_OK(g, cudaStreamEndCapture(g->stream, &graph));
        GPU_OK(g, cudaGraphInstantiate(&exec, graph, 0));
        for (int k = 0; k < 20; k++)
            GPU_OK(g, cudaGraphLaunch(exec, g->stream));
        if (gpu_copy(g, again, y, count * sizeof(float)))
            TEAM_CHECK(g->team, g->rank, memcmp(alone, again, count * sizeof(float)) == 0);
        GPU_OK(g, cudaGraphExecDestroy(exec));
        GPU_OK(g, cudaGraphDestroy(graph));
    }
    gpu_free(g, x);
    gpu_free(g, y);
    free(alone);
    free(again);
}

const gpu_case_t gpu_cases_quantized[] = {
    {.name = "quantized",
     .run = quantized,
     .least = 2,
     .most = 4,
     .threads = true,
     .processes = true},
    {.name = NULL},
};
