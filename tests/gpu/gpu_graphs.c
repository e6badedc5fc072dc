/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_graphs.c: streams and graphs. The library orders the operations of a
 * communicator by itself, so these cases use no event that the case's own data
 * does not need.
 */
#include "gpu/gpu_rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 5003

typedef struct {
    cudaGraphExec_t exec;
} graph_t;

/* Global is the strictest mode; between threads it would forbid the others' ordinary calls. */
static bool begin(gpu_rank_t *g, cudaStream_t stream)
{
    enum cudaStreamCaptureMode mode =
        g->team->threads ? cudaStreamCaptureModeThreadLocal : cudaStreamCaptureModeGlobal;
    return GPU_OK(g, cudaStreamBeginCapture(stream, mode));
}

static bool end(gpu_rank_t *g, cudaStream_t stream, graph_t *graph)
{
    cudaGraph_t made = NULL;
    bool ok = GPU_OK(g, cudaStreamEndCapture(stream, &made)) &&
              GPU_OK(g, cudaGraphInstantiate(&graph->exec, made, 0));
    if (made)
        cudaGraphDestroy(made);
    return ok;
}

#define CALL(g, call) TEAM_OK((g)->team, (g)->rank, call, (g)->comm)

/* A captured call is not an executed one: the very first call of a communicator, then everything
 * else, in one graph. */
static void first_call_in_a_capture(gpu_rank_t *g)
{
    size_t n = (size_t)g->nranks, c = COUNT;
    int next = (g->rank + 1) % g->nranks, previous = (g->rank + g->nranks - 1) % g->nranks;
    int32_t *x = gpu_alloc(g, c * 4), *y = gpu_alloc(g, c * 4), *gathered = gpu_alloc(g, n * c * 4),
            *part = gpu_alloc(g, c * 4), *got = gpu_alloc(g, c * 4);
    graph_t graph;
    if (!begin(g, g->stream))
        return;
    CALL(g, sol_all_reduce(x, y, c, SOL_INT32, SOL_SUM, g->comm, g->stream));
    CALL(g, sol_all_gather(x, gathered, c, SOL_INT32, g->comm, g->stream));
    CALL(g, sol_reduce_scatter(gathered, part, c, SOL_INT32, SOL_MAX, g->comm, g->stream));
    CALL(g, sol_barrier(g->comm, g->stream));
    CALL(g, sol_group_start());
    CALL(g, sol_send(x, c, SOL_INT32, next, g->comm, g->stream));
    CALL(g, sol_recv(got, c, SOL_INT32, previous, g->comm, g->stream));
    CALL(g, sol_group_end());
    if (!end(g, g->stream, &graph))
        return;
    for (unsigned i = 0; i < 30; i++) {
        team_doing(g->team, g->rank, "replay %u", i);
        if (!gpu_fill(g, x, c, i) || !GPU_OK(g, cudaGraphLaunch(graph.exec, g->stream)) ||
            !gpu_expect_sum(g, y, c, i) || !gpu_expect_gather(g, gathered, c, i) ||
            !gpu_expect_of(g, part, c, i, g->rank) || !gpu_expect_of(g, got, c, i, previous))
            return;
    }
    GPU_OK(g, cudaGraphExecDestroy(graph.exec));
}

/* Eager calls and replays of three graphs, in an order that differs from round to round, on one
 * stream: nothing is waited for in between. */
static void interleaved(gpu_rank_t *g)
{
    static const size_t counts[4] = {7, 1024, 40001, 300007};
    int32_t *x[4], *y[4];
    graph_t graphs[3];
    uint64_t random = g->team->seed;
    for (int k = 0; k < 4; k++) {
        x[k] = gpu_alloc(g, counts[k] * 4);
        y[k] = gpu_alloc(g, counts[k] * 4);
        if (!gpu_fill(g, x[k], counts[k], (uint64_t)k))
            return;
    }
    for (int k = 0; k < 3; k++) {
        if (!begin(g, g->stream))
            return;
        for (int i = 0; i <= k; i++)
            CALL(g, sol_all_reduce(x[k], y[k], counts[k], SOL_INT32, SOL_SUM, g->comm, g->stream));
        if (!end(g, g->stream, &graphs[k]))
            return;
    }
    for (unsigned round = 0; round < 40; round++) {
        team_doing(g->team, g->rank, "round %u", round);
        for (int k = 0; k < 4; k++)
            GPU_OK(g, cudaMemsetAsync(y[k], 0xff, counts[k] * 4, g->stream));
        for (unsigned i = 0; i < 12; i++) {
            unsigned pick = (unsigned)(team_random(&random) % 4);
            if (pick == 3)
                CALL(g,
                     sol_all_reduce(x[3], y[3], counts[3], SOL_INT32, SOL_SUM, g->comm, g->stream));
            else
                GPU_OK(g, cudaGraphLaunch(graphs[pick].exec, g->stream));
        }
        for (int k = 0; k < 3; k++) /* so that each has run in this round */
            GPU_OK(g, cudaGraphLaunch(graphs[k].exec, g->stream));
        for (int k = 0; k < 3; k++)
            if (!gpu_expect_sum(g, y[k], counts[k], (uint64_t)k))
                return;
    }
}

/* One communicator on many streams, eager and captured, with no event of the case's. */
static void many_streams(gpu_rank_t *g)
{
    enum { STREAMS = 5, ROUNDS = 30 };
    cudaStream_t streams[STREAMS];
    int32_t *x[STREAMS], *y[STREAMS];
    graph_t graph;
    for (int s = 0; s < STREAMS; s++) {
        GPU_OK(g, cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking));
        x[s] = gpu_alloc(g, COUNT * 4);
        y[s] = gpu_alloc(g, COUNT * 4);
        if (!gpu_fill(g, x[s], COUNT, (uint64_t)s))
            return;
    }
    /* the last stream's call as a graph, replayed on whichever stream */
    if (!begin(g, streams[STREAMS - 1]))
        return;
    CALL(g, sol_all_reduce(x[STREAMS - 1], y[STREAMS - 1], COUNT, SOL_INT32, SOL_SUM, g->comm,
                           streams[STREAMS - 1]));
    if (!end(g, streams[STREAMS - 1], &graph))
        return;
    for (unsigned round = 0; round < ROUNDS; round++) {
        team_doing(g->team, g->rank, "round %u", round);
        for (int s = 0; s < STREAMS; s++)
            GPU_OK(g, cudaMemsetAsync(y[s], 0xff, COUNT * 4, g->stream));
        GPU_OK(g, cudaStreamSynchronize(g->stream));
        for (int s = 0; s < STREAMS - 1; s++) {
            if ((round + (unsigned)g->rank) % 3 == (unsigned)s % 3) /* skew the streams */
                GPU_OK(g, gpu_spin(streams[s], 200000));
            CALL(g, sol_all_reduce(x[s], y[s], COUNT, SOL_INT32, SOL_SUM, g->comm, streams[s]));
            if (s == (int)(round % 4))
                GPU_OK(g, cudaGraphLaunch(graph.exec, streams[(s + 2) % STREAMS]));
        }
        for (int s = 0; s < STREAMS; s++)
            GPU_OK(g, cudaStreamSynchronize(streams[s]));
        for (int s = 0; s < STREAMS; s++)
            if (!gpu_expect_sum(g, y[s], COUNT, (uint64_t)s))
                return;
        /* a stream that is gone, and perhaps a new one at its address */
        int renewed = (int)(round % STREAMS);
        GPU_OK(g, cudaStreamDestroy(streams[renewed]));
        GPU_OK(g, cudaStreamCreateWithFlags(&streams[renewed], cudaStreamNonBlocking));
    }
    for (int s = 0; s < STREAMS; s++)
        GPU_OK(g, cudaStreamDestroy(streams[s]));
}

/* One capture that forks to a second stream and joins again: calls on both. */
static void fork_in_a_capture(gpu_rank_t *g)
{
    cudaStream_t side;
    cudaEvent_t fork, join;
    int32_t *x[2], *y[2];
    graph_t graph;
    GPU_OK(g, cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    GPU_OK(g, cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    GPU_OK(g, cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    for (int k = 0; k < 2; k++) {
        x[k] = gpu_alloc(g, COUNT * 4);
        y[k] = gpu_alloc(g, COUNT * 4);
    }
    if (!begin(g, g->stream))
        return;
    GPU_OK(g, cudaEventRecord(fork, g->stream));
    GPU_OK(g, cudaStreamWaitEvent(side, fork, 0));
    for (int i = 0; i < 6; i++)
        CALL(g, sol_all_reduce(x[i % 2], y[i % 2], COUNT, SOL_INT32, SOL_SUM, g->comm,
                               i % 2 ? side : g->stream));
    GPU_OK(g, cudaEventRecord(join, side));
    GPU_OK(g, cudaStreamWaitEvent(g->stream, join, 0));
    if (!end(g, g->stream, &graph))
        return;
    for (unsigned round = 0; round < 50; round++) {
        team_doing(g->team, g->rank, "round %u", round);
        if (!gpu_fill(g, x[0], COUNT, round) || !gpu_fill(g, x[1], COUNT, round + 1000) ||
            !GPU_OK(g, cudaGraphLaunch(graph.exec, g->stream)) ||
            !gpu_expect_sum(g, y[0], COUNT, round) || !gpu_expect_sum(g, y[1], COUNT, round + 1000))
            return;
    }
    GPU_OK(g, cudaStreamDestroy(side));
}

/* kernel -> all_reduce -> kernel -> all_reduce ... with early set-up on both sides, every output
 * full of NaN beforehand: whoever reads too early carries a NaN to the end. */
static bool chain(gpu_rank_t *g, float *const *buffer, int steps, size_t count)
{
    float half = 1.0f / (float)g->nranks;
    for (int k = 1; k < 2 * steps; k++)
        if (!GPU_OK(g, cudaMemsetAsync(buffer[k], 0xff, count * 4, g->stream)))
            return false;
    for (int k = 0; k < steps; k++) {
        if (k > 0 &&
            !GPU_OK(g, gpu_scale(g->stream, buffer[2 * k], buffer[2 * k - 1], count, half)))
            return false;
        if (!CALL(g, sol_all_reduce(buffer[2 * k], buffer[2 * k + 1], count, SOL_FLOAT32, SOL_SUM,
                                    g->comm, g->stream)))
            return false;
    }
    return true;
}

static void dependent_chain(gpu_rank_t *g)
{
    enum { STEPS = 12 };
    static const size_t counts[] = {1, 64, 1024, 16384, 262144};
    float *buffer[2 * STEPS];
    float *result = malloc(262144 * 4);
    for (int k = 0; k < 2 * STEPS; k++)
        buffer[k] = gpu_alloc(g, 262144 * 4);
    for (unsigned c = 0; c < 5; c++) {
        size_t count = counts[c];
        graph_t graph;
        for (size_t i = 0; i < count; i++)
            result[i] = (float)((i + (size_t)g->rank) % 13);
        if (!gpu_copy(g, buffer[0], result, count * 4) || !begin(g, g->stream) ||
            !chain(g, buffer, STEPS, count) || !end(g, g->stream, &graph))
            break;
        for (int round = 0; round < 20; round++) {
            team_doing(g->team, g->rank, "chain of %zu, round %d", count, round);
            if (round % 2)
                GPU_OK(g, cudaGraphLaunch(graph.exec, g->stream));
            else if (!chain(g, buffer, STEPS, count))
                break;
            if (!gpu_copy(g, result, buffer[2 * STEPS - 1], count * 4))
                goto out;
            for (size_t i = 0; i < count; i++) {
                float sum = 0;
                for (int r = 0; r < g->nranks; r++)
                    sum += (float)((i + (size_t)r) % 13);
                if (!TEAM_CHECK(g->team, g->rank, fabsf(result[i] - sum) <= 1e-3f * sum))
                    goto out;
            }
        }
    }
out:
    free(result);
}

/* A model in small: every layer's kernel reads the reduction before it, into the same two buffers
 * all the way, and every run begins with other data. Whoever reads or writes too early changes the
 * numbers to the end; constant data would hide it. */
enum { LAYERS = 60, STARTS = 241 };

static float added(int layer, int rank)
{
    return (float)(layer % 17 + 3 * rank);
}

static bool layers(gpu_rank_t *g, float *x, float *y, size_t count)
{
    for (int k = 0; k < LAYERS; k++)
        if (!GPU_OK(g, gpu_turn(g->stream, x, y, count, added(k, g->rank), k % 3 == 1)) ||
            !CALL(g, sol_all_reduce(x, y, count, SOL_FLOAT32, SOL_SUM, g->comm, g->stream)))
            return false;
    return true;
}

/* Small integers: exact in floats. */
static float after_layers(gpu_rank_t *g, float y)
{
    for (int k = 0; k < LAYERS; k++) {
        float sum = 0;
        for (int r = 0; r < g->nranks; r++)
            sum += fmodf(y * 5 + added(k, r), 251);
        y = sum;
    }
    return y;
}

static bool layers_are_right(gpu_rank_t *g, const float *host, const float *table, size_t count,
                             unsigned run)
{
    for (size_t i = 0; i < count; i++) {
        float wanted = table[(i + run) % STARTS];
        if (host[i] != wanted) {
            team_fail(g->team, g->rank, "element %zu of %zu is %g, not %g (run %u)", i, count,
                      (double)host[i], (double)wanted, run);
            return false;
        }
    }
    return true;
}

static void changing_data(gpu_rank_t *g)
{
    enum { MOST = 65536, RUNS = 40 };
    static const size_t counts[] = {64, 4096, 16384, MOST};
    float *x = gpu_alloc(g, MOST * 4), *y = gpu_alloc(g, MOST * 4), *host = malloc(MOST * 4);
    float table[STARTS];
    bool well = host != NULL;
    for (int i = 0; i < STARTS; i++)
        table[i] = after_layers(g, (float)i);
    for (int c = 0; c < 4 && well; c++) {
        graph_t graph;
        if (!begin(g, g->stream) || !layers(g, x, y, counts[c]) || !end(g, g->stream, &graph))
            break;
        for (unsigned run = 0; run < RUNS && well; run++) {
            team_doing(g->team, g->rank, "%zu elements, run %u", counts[c], run);
            for (size_t i = 0; i < counts[c]; i++)
                host[i] = (float)((i + run) % STARTS);
            well = gpu_copy(g, y, host, counts[c] * 4) &&
                   (run % 4 == 3 ? layers(g, x, y, counts[c])
                                 : GPU_OK(g, cudaGraphLaunch(graph.exec, g->stream))) &&
                   gpu_copy(g, host, y, counts[c] * 4) &&
                   layers_are_right(g, host, table, counts[c], run);
        }
        GPU_OK(g, cudaGraphExecDestroy(graph.exec));
    }
    free(host);
}

/* Two communicators of the same ranks on two streams at once. */
static void two_communicators(gpu_rank_t *g)
{
    sol_comm_t other;
    cudaStream_t stream;
    if (!gpu_comm(g, 1, &other))
        return;
    GPU_OK(g, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    int32_t *x = gpu_alloc(g, COUNT * 4), *y = gpu_alloc(g, COUNT * 4),
            *z = gpu_alloc(g, COUNT * 4);
    for (unsigned round = 0; round < 50; round++) {
        team_doing(g->team, g->rank, "round %u", round);
        if (!gpu_fill(g, x, COUNT, round))
            break;
        for (int i = 0; i < 8; i++) {
            CALL(g, sol_all_reduce(x, y, COUNT, SOL_INT32, SOL_SUM, g->comm, g->stream));
            TEAM_OK(g->team, g->rank,
                    sol_all_reduce(x, z, COUNT, SOL_INT32, SOL_SUM, other, stream), other);
        }
        GPU_OK(g, cudaStreamSynchronize(stream));
        if (!gpu_expect_sum(g, y, COUNT, round) || !gpu_expect_sum(g, z, COUNT, round))
            break;
    }
    TEAM_OK(g->team, g->rank, sol_comm_destroy(other), NULL);
    GPU_OK(g, cudaStreamDestroy(stream));
}

/* Graphs that were captured before a sleep are replayed after it, on symmetric memory too; asleep
 * the GPU has more memory free. */
static void graphs_after_a_sleep(gpu_rank_t *g)
{
    size_t c = 40001, n = (size_t)g->nranks, awake = 0, asleep = 0, total = 0;
    void *memory = NULL;
    int32_t *x = gpu_alloc(g, c * 4), *y = gpu_alloc(g, c * 4), *gathered = gpu_alloc(g, n * c * 4);
    graph_t graph;
    if (!CALL(g, sol_mem_alloc(g->comm, (size_t)64 << 20, &memory)))
        return;
    int32_t *symmetric = memory;
    if (!begin(g, g->stream))
        return;
    CALL(g, sol_all_reduce(x, y, c, SOL_INT32, SOL_SUM, g->comm, g->stream));
    CALL(g, sol_all_reduce(x, symmetric, c, SOL_INT32, SOL_SUM, g->comm, g->stream));
    CALL(g, sol_all_gather(x, gathered, c, SOL_INT32, g->comm, g->stream));
    CALL(g, sol_barrier(g->comm, g->stream));
    if (!end(g, g->stream, &graph))
        return;
    for (unsigned round = 0; round < 6; round++) {
        bool keep = round % 2 == 0;
        team_doing(g->team, g->rank, "round %u", round);
        for (unsigned i = 0; i < 20; i++)
            GPU_OK(g, cudaGraphLaunch(graph.exec, g->stream));
        if (!gpu_fill(g, x, c, round) || !GPU_OK(g, cudaGraphLaunch(graph.exec, g->stream)) ||
            !gpu_expect_sum(g, y, c, round) || !gpu_expect_sum(g, symmetric, c, round) ||
            !gpu_expect_gather(g, gathered, c, round))
            return;
        team_barrier(g->team);
        GPU_OK(g, cudaMemGetInfo(&awake, &total));
        team_barrier(g->team);
        if (!CALL(g, sol_comm_sleep(g->comm, keep ? SOL_SLEEP_KEEP : SOL_SLEEP_DISCARD)))
            return;
        GPU_OK(g, cudaMemGetInfo(&asleep, &total));
        TEAM_CHECK(g->team, g->rank, asleep >= awake + ((size_t)64 << 20));
        team_barrier(g->team);
        if (!CALL(g, sol_comm_wake(g->comm)))
            return;
        if (keep && !gpu_expect_sum(g, symmetric, c, round))
            return;
        CALL(g, sol_all_reduce(x, y, c, SOL_INT32, SOL_SUM, g->comm, g->stream));
        if (!gpu_expect_sum(g, y, c, round))
            return;
    }
    GPU_OK(g, cudaGraphExecDestroy(graph.exec));
    CALL(g, sol_mem_free(g->comm, memory));
}

const gpu_case_t gpu_cases_graphs[] = {
    {.name = "first-call-in-a-capture",
     .run = first_call_in_a_capture,
     .least = 2,
     .most = 4,
     .threads = true,
     .processes = true},
    {.name = "interleaved",
     .run = interleaved,
     .least = 2,
     .most = 3,
     .threads = true,
     .processes = true},
    {.name = "interleaved-near-2^32",
     .run = interleaved,
     .least = 2,
     .most = 2,
     .processes = true,
     .environment = {"SOLCCL_DEBUG_EPOCH=4294967200"}},
    {.name = "interleaved-near-2^31",
     .run = interleaved,
     .least = 2,
     .most = 2,
     .processes = true,
     .environment = {"SOLCCL_DEBUG_EPOCH=2147483600"}},
    {.name = "many-streams",
     .run = many_streams,
     .least = 2,
     .most = 2,
     .threads = true,
     .processes = true},
    {.name = "fork-in-a-capture",
     .run = fork_in_a_capture,
     .least = 2,
     .most = 2,
     .processes = true},
    {.name = "dependent-chain",
     .run = dependent_chain,
     .least = 2,
     .most = 3,
     .threads = true,
     .processes = true},
    {.name = "dependent-chain-no-mixing",
     .run = dependent_chain,
     .least = 2,
     .most = 2,
     .processes = true,
     .environment = {"SOLCCL_GRAPH_MIXING=0"}},
    {.name = "changing-data",
     .run = changing_data,
     .least = 2,
     .most = 3,
     .threads = true,
     .processes = true,
     .deadline_s = 120},
    {.name = "two-communicators",
     .run = two_communicators,
     .least = 2,
     .most = 2,
     .threads = true,
     .processes = true},
    {.name = "sleep",
     .run = graphs_after_a_sleep,
     .least = 1,
     .most = 8,
     .threads = true,
     .processes = true},
    {.name = NULL},
};
