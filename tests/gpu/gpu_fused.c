/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_fused.c: the calls of solccl/fused.h, but for the norm (gpu_norm.c), where only
 * GPUs show it: in graphs that are replayed, in every batch, on every rank. What the
 * results must be is conformance's matter.
 */
#include "gpu/gpu_rank.h"

#include <solccl/fused.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS 16032 /* of a shard; another for rank 0 */
#define TOKENS 70
#define K 64

typedef struct vocab_memory {
    char *logits, *results;
    unsigned char *whole, *part; /* host */
    size_t columns, row;         /* row: bytes of a token's results */
} vocab_memory_t;

static bool make(gpu_rank_t *g, vocab_memory_t *m)
{
    memset(m, 0, sizeof(*m));
    m->columns = g->rank == 0 ? COLUMNS - 37 : COLUMNS;
    m->row = K * 12 + 4;
    const size_t count = m->columns * TOKENS;
    uint16_t *host = malloc(2 * count);
    m->logits = gpu_alloc(g, 2 * count);
    m->results = gpu_alloc(g, m->row * TOKENS);
    m->whole = malloc(m->row * TOKENS);
    m->part = malloc(m->row * TOKENS);
    for (size_t i = 0; host && i < count; i++) {
        uint64_t h = team_mix(11 + (uint64_t)g->rank * count + i);
        host[i] = (uint16_t)((h & 0x80ff) | (0x3e + (h >> 20) % 3) << 8);
    }
    const bool good = host && m->logits && m->results && m->whole && m->part &&
                      gpu_copy(g, m->logits, host, 2 * count);
    free(host);
    return good;
}

static void drop(gpu_rank_t *g, vocab_memory_t *m)
{
    gpu_free(g, m->logits);
    gpu_free(g, m->results);
    free(m->whole);
    free(m->part);
}

/* Results: all indices, all values, all sums. */
static bool call(gpu_rank_t *g, const vocab_memory_t *m, size_t first, size_t tokens, unsigned k,
                 bool sum)
{
    sol_vocab_args_t args = SOL_VOCAB_ARGS_INIT;
    char *values = m->results + (size_t)TOKENS * K * 8, *sums = values + (size_t)TOKENS * K * 4;
    args.tokens = tokens;
    args.columns = m->columns;
    args.first = (uint64_t)g->rank * COLUMNS;
    args.k = k;
    args.logits = m->logits + first * m->columns * 2;
    args.indices = (int64_t *)(void *)(m->results + first * k * 8);
    args.values = (float *)(void *)(values + first * k * 4);
    args.log_sum_exp = sum ? (float *)(void *)(sums + first * 4) : NULL;
    return TEAM_OK(g->team, g->rank, sol_vocab_topk(&args, g->comm, g->stream), g->comm);
}

/* All tokens in one call, then in pieces, which are spread over other numbers of CTAs: the same
 * bits, here and on rank 0. */
static void batches(gpu_rank_t *g)
{
    static const size_t pieces[] = {1, 3, 17, 70};
    static const unsigned ks[] = {1, 0, 8, K};
    vocab_memory_t m;
    bool good = make(g, &m);
    for (int c = 0; c < 4 && good; c++) {
        const size_t bytes = m.row * TOKENS;
        team_doing(g->team, g->rank, "vocab_topk %u", ks[c]);
        GPU_OK(g, cudaMemsetAsync(m.results, 0xff, bytes, g->stream));
        good = call(g, &m, 0, TOKENS, ks[c], true) && gpu_copy(g, m.whole, m.results, bytes);
        g->team->rank[g->rank].hash[0] = team_hash(m.whole, bytes);
        for (int p = 0; p < 4 && good; p++) {
            GPU_OK(g, cudaMemsetAsync(m.results, 0xff, bytes, g->stream));
            for (size_t t = 0; t < TOKENS && good; t += pieces[p])
                good = call(g, &m, t, TOKENS - t < pieces[p] ? TOKENS - t : pieces[p], ks[c], true);
            good = good && gpu_copy(g, m.part, m.results, bytes);
            if (good && memcmp(m.whole, m.part, bytes) != 0)
                team_fail(g->team, g->rank, "k %u: in pieces of %zu tokens other bits", ks[c],
                          pieces[p]);
        }
        team_barrier(g->team);
        if (good && g->team->rank[g->rank].hash[0] != g->team->rank[0].hash[0])
            team_fail(g->team, g->rank, "k %u: other bits than rank 0's", ks[c]);
        team_barrier(g->team);
    }
    drop(g, &m);
}

/* In a graph that is replayed. */
static void replays(gpu_rank_t *g)
{
    vocab_memory_t m;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    if (make(g, &m)) {
        const size_t bytes = m.row * TOKENS;
        GPU_OK(g, cudaMemsetAsync(m.results, 0xff, bytes, g->stream));
        call(g, &m, 0, 2, K, true);
        gpu_copy(g, m.whole, m.results, bytes);
        GPU_OK(g, cudaMemsetAsync(m.results, 0xff, bytes, g->stream));
        GPU_OK(g, cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < 10; i++) {
            call(g, &m, 0, 1, 1, false);
            call(g, &m, 0, 2, K, true);
        }
        GPU_OK(g, cudaStreamEndCapture(g->stream, &graph));
        GPU_OK(g, cudaGraphInstantiate(&exec, graph, 0));
        for (int i = 0; i < 3; i++)
            GPU_OK(g, cudaGraphLaunch(exec, g->stream));
        if (gpu_copy(g, m.part, m.results, bytes))
            TEAM_CHECK(g->team, g->rank, memcmp(m.whole, m.part, bytes) == 0);
        GPU_OK(g, cudaGraphExecDestroy(exec));
        GPU_OK(g, cudaGraphDestroy(graph));
    }
    drop(g, &m);
}

#define INPUTS 4096
#define OUTPUTS 8200

/* 16 tokens in one call, then in pieces, whose warps take other groups: the same bits, here and on
 * rank 0. */
static void linear(gpu_rank_t *g)
{
    static const size_t pieces[] = {16, 1, 3, 4, 7};
    const size_t bytes = (size_t)SOL_LINEAR_MAX_TOKENS * OUTPUTS * 2,
                 count = (size_t)OUTPUTS * INPUTS;
    uint16_t *host = malloc(2 * count);
    unsigned char *first = malloc(bytes), *got = malloc(bytes);
    char *weight = gpu_alloc(g, 2 * count), *output = gpu_alloc(g, bytes);
    char *input = gpu_alloc(g, (size_t)SOL_LINEAR_MAX_TOKENS * INPUTS * 2);
    for (size_t i = 0; host && i < count; i++) {
        uint64_t h = team_mix(5 + (uint64_t)g->rank * count + i);
        host[i] = (uint16_t)((h & 0x80ff) | (0x3c + (h >> 20) % 3) << 8);
    }
    bool good = host && first && got && weight && output && input &&
                gpu_copy(g, weight, host, 2 * count) &&
                gpu_copy(g, input, host + 77, (size_t)SOL_LINEAR_MAX_TOKENS * INPUTS * 2);
    for (int p = 0; p < 5 && good; p++) {
        team_doing(g->team, g->rank, "linear_all_reduce in pieces of %zu", pieces[p]);
        GPU_OK(g, cudaMemsetAsync(output, 0xff, bytes, g->stream));
        for (size_t t = 0; t < SOL_LINEAR_MAX_TOKENS && good; t += pieces[p]) {
            sol_linear_args_t args = SOL_LINEAR_ARGS_INIT;
            const size_t left = SOL_LINEAR_MAX_TOKENS - t;
            args.tokens = left < pieces[p] ? left : pieces[p];
            args.inputs = INPUTS;
            args.outputs = OUTPUTS;
            args.input = input + t * INPUTS * 2;
            args.weight = weight;
            args.output = output + t * OUTPUTS * 2;
            good = TEAM_OK(g->team, g->rank, sol_linear_all_reduce(&args, g->comm, g->stream),
                           g->comm);
        }
        good = good && gpu_copy(g, p == 0 ? first : got, output, bytes);
        if (good && p > 0 && memcmp(first, got, bytes) != 0)
            team_fail(g->team, g->rank, "in pieces of %zu tokens other bits", pieces[p]);
    }
    if (good)
        g->team->rank[g->rank].hash[0] = team_hash(first, bytes);
    team_barrier(g->team);
    if (good && g->team->rank[g->rank].hash[0] != g->team->rank[0].hash[0])
        team_fail(g->team, g->rank, "other bits than rank 0's");
    team_barrier(g->team);
    gpu_free(g, weight);
    gpu_free(g, output);
    gpu_free(g, input);
    free(host);
    free(first);
    free(got);
}

const gpu_case_t gpu_cases_fused[] = {
    {.name = "vocab-batches",
     .run = batches,
     .least = 2,
     .most = 3,
     .threads = true,
     .processes = true},
    {.name = "vocab-replays", .run = replays, .least = 2, .most = 2, .processes = true},
    {.name = "linear-batches",
     .run = linear,
     .least = 2,
     .most = 3,
     .threads = true,
     .processes = true},
    {.name = NULL},
};
