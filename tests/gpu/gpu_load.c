/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_load.c: many calls of all sizes under skew, results looked at all along;
 * what a call costs the host; and set-up beside a busy GPU.
 */
#include "gpu/gpu_rank.h"

#include <stdlib.h>

#define CALL(g, call) TEAM_OK((g)->team, (g)->rank, call, (g)->comm)

enum { SLOTS = 32, LARGEST = 1 << 17 };

typedef struct {
    size_t count;
    int func;
    uint64_t seed;
} made_t;

/* A size with as many small ones as large ones. */
static size_t any_size(uint64_t *random)
{
    uint64_t h = team_random(random);
    size_t limit = (size_t)1 << (h % 18);
    return 1 + (size_t)(h >> 8) % limit;
}

static bool call_one(gpu_rank_t *g, const int32_t *x, int32_t *out, const made_t *made)
{
    size_t part = made->count / (size_t)g->nranks + 1;
    switch (made->func) {
    case 0:
    case 1:
        return CALL(g, sol_all_reduce(x, out, made->count, SOL_INT32, SOL_SUM, g->comm, g->stream));
    case 2:
        return CALL(g, sol_all_gather(x, out, part, SOL_INT32, g->comm, g->stream));
    default:
        return CALL(g, sol_broadcast(x, out, made->count, SOL_INT32,
                                     (int)(made->seed % (unsigned)g->nranks), g->comm, g->stream));
    }
}

static bool look_at(gpu_rank_t *g, const int32_t *out, const made_t *made, uint64_t seed)
{
    size_t part = made->count / (size_t)g->nranks + 1;
    int root = (int)(made->seed % (unsigned)g->nranks);
    if (made->func < 2)
        return gpu_expect_sum(g, out, made->count, seed);
    if (made->func == 2)
        return gpu_expect_gather(g, out, part, seed);
    return gpu_expect_of(g, out, made->count, seed, root);
}

/* Calls in bursts of SLOTS, then all results of the burst are compared. */
static void soak(gpu_rank_t *g, unsigned calls)
{
    int32_t *x = gpu_alloc(g, (LARGEST + 64) * 4), *out[SLOTS];
    made_t made[SLOTS];
    uint64_t random = g->team->seed, own = g->team->seed + (uint64_t)g->rank + 1;
    for (int i = 0; i < SLOTS; i++)
        out[i] = gpu_alloc(g, (LARGEST + 64) * 4);
    for (unsigned done = 0; done < calls; done += SLOTS) {
        uint64_t seed = done;
        size_t most = 1;
        team_doing(g->team, g->rank, "calls from %u", done);
        for (int i = 0; i < SLOTS; i++) {
            made[i].count = any_size(&random);
            made[i].func = (int)(team_random(&random) % 4);
            made[i].seed = team_random(&random);
            most = made[i].count > most ? made[i].count : most;
        }
        if (!gpu_fill(g, x, most + 16, seed))
            return;
        for (int i = 0; i < SLOTS; i++) {
            uint64_t h = team_random(&own);
            if (h % 16 == 0)
                team_sleep_us((unsigned)(h >> 8) % 200);
            if (h % 64 == 1)
                GPU_OK(g, gpu_spin(g->stream, (h >> 8) % 100000));
            if (!call_one(g, x, out[i], &made[i]))
                return;
        }
        for (int i = 0; i < SLOTS; i++)
            if (!look_at(g, out[i], &made[i], seed))
                return;
    }
}

static void soak_long(gpu_rank_t *g)
{
    soak(g, 100000);
}

static void soak_short(gpu_rank_t *g)
{
    soak(g, 6000);
}

static double cost_of(gpu_rank_t *g, int what, float *x)
{
    enum { CALLS = 500, ROUNDS = 7 };
    double best = 1;
    for (int round = 0; round < ROUNDS; round++) {
        team_barrier(g->team);
        double begin = team_now();
        for (int i = 0; i < CALLS; i++) {
            if (what == 0)
                gpu_empty(g->stream);
            else
                sol_all_reduce(x, x, 64, SOL_FLOAT32, SOL_SUM, g->comm, g->stream);
        }
        double took = (team_now() - begin) / CALLS;
        best = took < best ? took : best;
        GPU_OK(g, cudaStreamSynchronize(g->stream));
    }
    return best * 1e6;
}

/* What the library adds to a kernel launch on the host. A figure to read, with a generous limit:
 * a machine may be busy. */
static void host_time(gpu_rank_t *g)
{
    float *x = gpu_alloc(g, 4096);
    GPU_OK(g, cudaMemsetAsync(x, 0, 4096, g->stream));
    double empty = cost_of(g, 0, x), call = cost_of(g, 1, x);
    if (g->rank == 0)
        printf("  host time of an eager all_reduce: %.2f us, of an empty kernel's launch: %.2f us, "
               "difference %.2f us\n",
               call, empty, call - empty);
    TEAM_CHECK(g->team, g->rank, call - empty < 10);
}

/* A burst of all_reduces, rank 1's half a dozen milliseconds after rank 0's: milliseconds until
 * this rank's is done. Late by the host, so that rank 0's kernels are there and poll. */
static double late_burst(gpu_rank_t *g, float *x, size_t count, int calls, bool late)
{
    team_barrier(g->team);
    if (late && g->rank == 1)
        team_sleep_us(6000);
    double begin = team_now();
    for (int i = 0; i < calls; i++)
        if (!CALL(g, sol_all_reduce(x, x, count, SOL_FLOAT32, SOL_MAX, g->comm, g->stream)))
            return 0;
    GPU_OK(g, cudaStreamSynchronize(g->stream));
    return (team_now() - begin) * 1e3;
}

/* One rank's delay costs what it is, once: the others' long wait must not slow what comes after
 * (looking for an abort was so slow for large grids that ranks kept each other waiting, 2 ms a
 * call). */
static void after_a_late_rank(gpu_rank_t *g)
{
    enum { CALLS = 60 };
    for (size_t bytes = 1 << 16; bytes <= 1 << 24; bytes *= 4) {
        float *x = gpu_alloc(g, bytes);
        GPU_OK(g, cudaMemsetAsync(x, 0, bytes, g->stream));
        late_burst(g, x, bytes / 4, CALLS, false);
        double usual = late_burst(g, x, bytes / 4, CALLS, false), slowest = 0;
        for (int i = 0; i < 5; i++) {
            double took = late_burst(g, x, bytes / 4, CALLS, true);
            slowest = took > slowest ? took : slowest;
        }
        if (g->rank == 1)
            printf("  %zu bytes, %d calls: %.2f ms, after a wait of 6 ms %.2f ms\n", bytes, CALLS,
                   usual, slowest);
        TEAM_CHECK(g->team, g->rank, slowest < 6 + 2 * usual + 20);
        gpu_free(g, x);
    }
}

/* While a long kernel runs, communicators are made and destroyed: nothing waits for the device. */
static void beside_a_busy_gpu(gpu_rank_t *g)
{
    cudaStream_t busy;
    sol_comm_t made;
    void *memory = NULL;
    GPU_OK(g, cudaStreamCreateWithFlags(&busy, cudaStreamNonBlocking));
    if (gpu_comm(g, 1, &made)) /* first-time costs are not what is measured */
        TEAM_OK(g->team, g->rank, sol_comm_destroy(made), NULL);
    team_barrier(g->team);
    GPU_OK(g, gpu_spin(busy, 4000000000u));
    double begin = team_now();
    if (!gpu_comm(g, 2, &made))
        return;
    double created = team_now();
    TEAM_OK(g->team, g->rank, sol_mem_alloc(made, 1 << 20, &memory), made);
    TEAM_OK(g->team, g->rank, sol_mem_free(made, memory), made);
    double allocated = team_now();
    TEAM_OK(g->team, g->rank, sol_comm_destroy(made), NULL);
    double destroyed = team_now();
    bool running = cudaStreamQuery(busy) == cudaErrorNotReady;
    if (g->rank == 0)
        printf("  beside a busy GPU: create %.3f s, memory %.3f s, destroy %.3f s\n",
               created - begin, allocated - created, destroyed - allocated);
    TEAM_CHECK(g->team, g->rank, running);
    GPU_OK(g, cudaStreamSynchronize(busy));
}

const gpu_case_t gpu_cases_load[] = {
    {.name = "host-time", .run = host_time, .least = 2, .most = 2, .processes = true},
    {.name = "beside-a-busy-gpu",
     .run = beside_a_busy_gpu,
     .least = 2,
     .most = 2,
     .processes = true},
    {.name = "after-a-late-rank",
     .run = after_a_late_rank,
     .least = 2,
     .most = 2,
     .processes = true},
    {.name = "soak-short", .run = soak_short, .least = 3, .most = 8, .threads = true},
    {.name = "soak-100000",
     .run = soak_long,
     .least = 2,
     .most = 2,
     .processes = true,
     .deadline_s = 200},
    {.name = NULL},
};
