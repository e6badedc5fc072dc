/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_moe.c: solccl/moe.h where only GPUs show it, at the sizes of a large model: with experts that
 * give back what they get, and weights of which one is 1 and the others 0, every token must come
 * back as it was, in every batch, in one call and in halves, and in a graph that is captured once
 * and replayed with other routes.
 */
#include "gpu/gpu_rank.h"

#include <solccl/moe.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS 128
#define HIDDEN 7168
#define TOP_K 8
#define EXPERTS 256

typedef struct moe_memory {
    sol_moe_t moe;
    char *x, *rows, *out, *idx, *weights, *counts;
    unsigned char *sent, *got; /* host */
} moe_memory_t;

/* bf16 numbers of middling size, from hashes. */
static bool upload_tokens(gpu_rank_t *g, moe_memory_t *m, uint64_t seed)
{
    for (size_t i = 0; i < (size_t)TOKENS * HIDDEN; i++) {
        uint64_t h = team_mix(seed + i);
        uint16_t value = (uint16_t)((h & 0x80ff) | (0x3e + (h >> 20) % 3) << 8);
        memcpy(m->sent + 2 * i, &value, 2);
    }
    return gpu_copy(g, m->x, m->sent, (size_t)TOKENS * HIDDEN * 2);
}

/* Eight different experts of each token, and weights. */
static bool upload_routes(gpu_rank_t *g, moe_memory_t *m, uint64_t seed)
{
    static _Thread_local int64_t idx[TOKENS][TOP_K];
    static _Thread_local float weights[TOKENS][TOP_K];
    for (int t = 0; t < TOKENS; t++) {
        uint64_t h = team_mix(seed * 1000 + (uint64_t)t);
        for (int j = 0; j < TOP_K; j++) {
            idx[t][j] = (int64_t)((h + (uint64_t)j * (2 * (h >> 40) + 1)) % EXPERTS);
            weights[t][j] = (uint64_t)j == (h >> 32) % TOP_K ? 1.0f : 0.0f;
        }
    }
    return gpu_copy(g, m->idx, idx, sizeof(idx)) &&
           gpu_copy(g, m->weights, weights, sizeof(weights));
}

static bool make(gpu_rank_t *g, moe_memory_t *m)
{
    const size_t bytes = (size_t)TOKENS * HIDDEN * 2;
    sol_moe_config_t config = SOL_MOE_CONFIG_INIT;
    sol_moe_info_t info = {.size = sizeof(info)};
    memset(m, 0, sizeof(*m));
    config.max_tokens = TOKENS, config.hidden = HIDDEN;
    config.top_k = TOP_K, config.experts = EXPERTS;
    config.layout = SOL_MOE_PACKED;
    if (!TEAM_OK(g->team, g->rank, sol_moe_create(&m->moe, &config, g->comm), g->comm) ||
        !TEAM_OK(g->team, g->rank, sol_moe_query(m->moe, &info), g->comm))
        return false;
    m->x = gpu_alloc(g, bytes);
    m->out = gpu_alloc(g, bytes);
    m->rows = gpu_alloc(g, info.rows * HIDDEN * 2);
    m->idx = gpu_alloc(g, TOKENS * TOP_K * 8);
    m->weights = gpu_alloc(g, TOKENS * TOP_K * 4);
    m->counts = gpu_alloc(g, EXPERTS * 4);
    m->sent = malloc(bytes);
    m->got = malloc(bytes);
    return m->x && m->out && m->rows && m->idx && m->weights && m->counts && m->sent && m->got &&
           upload_tokens(g, m, 77 + (uint64_t)g->rank) && upload_routes(g, m, 5);
}

static void drop(gpu_rank_t *g, moe_memory_t *m)
{
    char *const all[] = {m->x, m->out, m->rows, m->idx, m->weights, m->counts};
    for (int i = 0; i < 6; i++)
        gpu_free(g, all[i]);
    free(m->sent);
    free(m->got);
    TEAM_OK(g->team, g->rank, sol_moe_destroy(m->moe), g->comm);
}

/* `tokens` from `first` on, there and back. */
static bool call(gpu_rank_t *g, const moe_memory_t *m, size_t first, size_t tokens, bool halves)
{
    sol_moe_dispatch_args_t d = SOL_MOE_DISPATCH_ARGS_INIT;
    sol_moe_combine_args_t c = SOL_MOE_COMBINE_ARGS_INIT;
    d.tokens = c.tokens = tokens;
    d.x = m->x + first * HIDDEN * 2;
    d.topk_idx = m->idx + first * TOP_K * 8;
    d.topk_weights = (const float *)(const void *)(m->weights + first * TOP_K * 4);
    d.recv_x = m->rows;
    d.recv_counts = (int32_t *)(void *)m->counts;
    c.y = m->rows;
    c.out = m->out + first * HIDDEN * 2;
    if (!halves)
        return TEAM_OK(g->team, g->rank, sol_moe_dispatch(m->moe, &d, g->stream), g->comm) &&
               TEAM_OK(g->team, g->rank, sol_moe_combine(m->moe, &c, g->stream), g->comm);
    return TEAM_OK(g->team, g->rank, sol_moe_dispatch_send(m->moe, &d, g->stream), g->comm) &&
           TEAM_OK(g->team, g->rank, sol_moe_dispatch_recv(m->moe, &d, g->stream), g->comm) &&
           TEAM_OK(g->team, g->rank, sol_moe_combine_send(m->moe, &c, g->stream), g->comm) &&
           TEAM_OK(g->team, g->rank, sol_moe_combine_recv(m->moe, &c, g->stream), g->comm);
}

static bool as_sent(gpu_rank_t *g, moe_memory_t *m, const char *what)
{
    const size_t bytes = (size_t)TOKENS * HIDDEN * 2;
    if (!gpu_copy(g, m->got, m->out, bytes))
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (m->got[i] != m->sent[i]) {
            team_fail(g->team, g->rank, "%s: byte %zu of token %zu is another", what,
                      i % (HIDDEN * 2), i / (HIDDEN * 2));
            return false;
        }
    GPU_OK(g, cudaMemsetAsync(m->out, 0xff, bytes, g->stream));
    return true;
}

/* All tokens in calls of each size; ranks may have other sizes at the same time. */
static void batches(gpu_rank_t *g)
{
    static const size_t sizes[] = {TOKENS, 1, 3, 16, 50, 64};
    moe_memory_t m;
    bool good = make(g, &m);
    for (int i = 0; i < 6 && good; i++) {
        const size_t calls = (TOKENS + sizes[i] - 1) / sizes[i];
        team_doing(g->team, g->rank, "moe in batches of %zu", sizes[i]);
        for (size_t k = 0; k < calls && good; k++) { /* this rank's batches in another order */
            size_t first = (k + (size_t)g->rank) % calls * sizes[i], left = TOKENS - first;
            good = call(g, &m, first, left < sizes[i] ? left : sizes[i], i % 2);
        }
        good = good && as_sent(g, &m, "moe in batches");
    }
    drop(g, &m);
}

static void replays(gpu_rank_t *g)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    moe_memory_t m;
    bool good = make(g, &m);
    GPU_OK(g, cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 4 && good; i++)
        good = call(g, &m, 0, TOKENS, i % 2);
    GPU_OK(g, cudaStreamEndCapture(g->stream, &graph));
    GPU_OK(g, cudaGraphInstantiate(&exec, graph, 0));
    for (uint64_t routes = 0; routes < 20 && good; routes++) {
        team_doing(g->team, g->rank, "moe replayed, routes %d", (int)routes);
        good = upload_routes(g, &m, routes) && GPU_OK(g, cudaGraphLaunch(exec, g->stream)) &&
               as_sent(g, &m, "moe in a graph with other routes");
    }
    GPU_OK(g, cudaGraphExecDestroy(exec));
    GPU_OK(g, cudaGraphDestroy(graph));
    drop(g, &m);
}

const gpu_case_t gpu_cases_moe[] = {
    {.name = "moe-batches",
     .run = batches,
     .least = 1,
     .most = 3,
     .threads = true,
     .processes = true},
    {.name = "moe-replays", .run = replays, .least = 2, .most = 2, .processes = true},
    {.name = NULL},
};
