/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_norm.c: sol_all_reduce_norm where only GPUs show it: a token's result is the
 * same bits in every batch, on every rank, and from every shape of the kernel; and
 * in graphs that are replayed.
 */
#include "gpu/gpu_rank.h"

#include <solccl/fused.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS 300
#define HIDDEN 16384 /* at most */

typedef struct norm_memory {
    char *input, *residual, *residual_out, *weight, *output;
    unsigned char *whole, *part; /* host */
    size_t row;                  /* bytes */
} norm_memory_t;

/* bf16 numbers of middling size, from hashes. */
static bool upload(gpu_rank_t *g, char *to, size_t count, uint64_t seed)
{
    uint16_t *host = malloc(2 * count);
    for (size_t i = 0; host && i < count; i++) {
        uint64_t h = team_mix(seed + i);
        host[i] = (uint16_t)((h & 0x80ff) | (0x3e + (h >> 20) % 3) << 8);
    }
    bool good = host && gpu_copy(g, to, host, 2 * count);
    free(host);
    return good;
}

static bool make(gpu_rank_t *g, norm_memory_t *m)
{
    const size_t bytes = (size_t)TOKENS * HIDDEN * 2;
    memset(m, 0, sizeof(*m));
    m->input = gpu_alloc(g, bytes);
    m->residual = gpu_alloc(g, bytes);
    m->residual_out = gpu_alloc(g, bytes);
    m->output = gpu_alloc(g, bytes);
    m->weight = gpu_alloc(g, HIDDEN * 2);
    m->whole = malloc(bytes);
    m->part = malloc(bytes);
    return m->input && m->residual && m->residual_out && m->output && m->weight && m->whole &&
           m->part && upload(g, m->input, bytes / 2, 1000 + (uint64_t)g->rank) &&
           upload(g, m->residual, bytes / 2, 7) && upload(g, m->weight, HIDDEN, 8);
}

static void drop(gpu_rank_t *g, norm_memory_t *m)
{
    gpu_free(g, m->input);
    gpu_free(g, m->residual);
    gpu_free(g, m->residual_out);
    gpu_free(g, m->output);
    gpu_free(g, m->weight);
    free(m->whole);
    free(m->part);
}

static bool call(gpu_rank_t *g, const norm_memory_t *m, size_t first, size_t tokens, size_t hidden)
{
    sol_norm_args_t args = SOL_NORM_ARGS_INIT;
    const size_t at = first * hidden * 2;
    args.tokens = tokens;
    args.hidden = hidden;
    args.input = m->input + at;
    args.residual = m->residual + at;
    args.residual_out = m->residual_out + at;
    args.weight = m->weight;
    args.epsilon = 1e-6f;
    args.output = m->output + at;
    return TEAM_OK(g->team, g->rank, sol_all_reduce_norm(&args, g->comm, g->stream), g->comm);
}

/* In one call, then in pieces of each size: the same bits, here and on rank 0. */
static void one_size(gpu_rank_t *g, norm_memory_t *m, size_t hidden)
{
    static const size_t pieces[] = {1, 2, 5, 16, 33, 70, 140};
    const size_t bytes = TOKENS * hidden * 2;
    team_doing(g->team, g->rank, "norm of hidden %zu", hidden);
    if (!call(g, m, 0, TOKENS, hidden) || !gpu_copy(g, m->whole, m->output, bytes))
        return;
    g->team->rank[g->rank].hash[0] = team_hash(m->whole, bytes);
    for (int p = 0; p < 7; p++) {
        GPU_OK(g, cudaMemsetAsync(m->output, 0xff, bytes, g->stream));
        for (size_t t = 0; t < TOKENS; t += pieces[p])
            if (!call(g, m, t, TOKENS - t < pieces[p] ? TOKENS - t : pieces[p], hidden))
                return;
        if (!gpu_copy(g, m->part, m->output, bytes))
            return;
        if (memcmp(m->whole, m->part, bytes) != 0) {
            team_fail(g->team, g->rank, "hidden %zu: in pieces of %zu tokens other bits", hidden,
                      pieces[p]);
            return;
        }
    }
    team_barrier(g->team);
    if (g->team->rank[g->rank].hash[0] != g->team->rank[0].hash[0])
        team_fail(g->team, g->rank, "hidden %zu: other bits than rank 0's", hidden);
    team_barrier(g->team);
}

static void batches(gpu_rank_t *g)
{
    static const size_t sizes[] = {4096, 6144, 7168, 8192, 16384, 5000, 1001, 8};
    norm_memory_t m;
    if (make(g, &m))
        for (int i = 0; i < 8 && atomic_load(&g->team->failures) == 0; i++)
            one_size(g, &m, sizes[i]);
    drop(g, &m);
}

/* A residual that goes from call to call, as in a model, in a graph that is replayed: what the
 * calls one by one give. */
static void replays(gpu_rank_t *g)
{
    const size_t hidden = 4096, tokens = 4, bytes = tokens * hidden * 2;
    norm_memory_t m;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    if (!make(g, &m))
        return;
    char *apart = m.residual_out;
    m.residual_out = m.residual;
    for (int i = 0; i < 30; i++)
        call(g, &m, 0, tokens, hidden);
    gpu_copy(g, m.whole, m.output, bytes);
    upload(g, m.residual, (size_t)TOKENS * HIDDEN, 7);
    GPU_OK(g, cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 10; i++)
        call(g, &m, 0, tokens, hidden);
    GPU_OK(g, cudaStreamEndCapture(g->stream, &graph));
    GPU_OK(g, cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++)
        GPU_OK(g, cudaGraphLaunch(exec, g->stream));
    if (gpu_copy(g, m.part, m.output, bytes))
        TEAM_CHECK(g->team, g->rank, memcmp(m.whole, m.part, bytes) == 0);
    GPU_OK(g, cudaGraphExecDestroy(exec));
    GPU_OK(g, cudaGraphDestroy(graph));
    m.residual_out = apart;
    drop(g, &m);
}

const gpu_case_t gpu_cases_norm[] = {
    {.name = "norm-batches",
     .run = batches,
     .least = 2,
     .most = 3,
     .threads = true,
     .processes = true},
    {.name = "norm-batches-wide",
     .run = batches,
     .least = 2,
     .most = 2,
     .processes = true,
     .environment = {"SOLCCL_CUDA_NORM_SPREAD=1", "SOLCCL_CUDA_NORM_VECTORS=2"}},
    {.name = "norm-replays", .run = replays, .least = 2, .most = 2, .processes = true},
    {.name = NULL},
};
