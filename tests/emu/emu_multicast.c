/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_multicast: the kernels that go through the switch's multicast, which no
 * GPU of ours may run, on the emulated machine: between other collectives on the
 * same slots and epochs, with ranks as far apart as the protocols let them, and
 * with a rank that never comes.
 *
 *   emu_multicast [--seeds N] [--seed S] [--ranks A[-B]] [--few]
 *                 (--few: stop at the first failure: mutants)
 */
#include "common/team.h"
#include "emu/emu_args.h"
#include "emu_ranks.h"
#include "solccl/device/gpu_word.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPS 8
#define MOST 3072 /* elements of a block */

static struct emu_args args = {.seeds = 6};
static char title[120];

struct scene {
    struct emu_ranks ranks;
    struct sol_gpu_op op[OPS];
    uint32_t *send[SOL_GPU_MAX_RANKS][OPS], *recv[SOL_GPU_MAX_RANKS][OPS];
};

static void say(bool good, const char *why)
{
    if (!good)
        printf("FAILED %s: %s\n%s", title, why, emu_report());
    args.passed += good;
    args.failed += !good;
}

/* Small integers as floats: sums are exact whatever their order. Now and then a word that is the
 * mark of an empty slot (in what is only moved). */
static uint32_t value(uint64_t seed, int op, int rank, size_t i, bool moved)
{
    uint64_t h = team_mix(seed * 64 + (uint64_t)op * 8 + (uint64_t)rank + (i << 20));
    if (moved && h % 13 == 0)
        return i % 2 ? SOL_WORD_HIGH : (uint32_t)SOL_WORD_MARK + (uint32_t)(h >> 60 & 1);
    float x = (float)(h % 1000);
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static uint32_t expected(uint64_t seed, const struct scene *s, int k, size_t i)
{
    const struct sol_gpu_op *op = &s->op[k];
    if (op->func == SOL_FUNC_ALL_GATHER)
        return value(seed, k, (int)(i / op->count), i % op->count, true);
    if (op->func == SOL_FUNC_BROADCAST)
        return value(seed, k, op->root, i, true);
    float sum = 0, x;
    for (int r = 0; r < s->ranks.n; r++) {
        uint32_t bits = value(seed, k, r, i, false);
        memcpy(&x, &bits, 4);
        sum += x;
    }
    uint32_t bits;
    memcpy(&bits, &sum, 4);
    return bits;
}

static bool draw(struct scene *s, uint64_t seed)
{
    static const sol_func_t funcs[] = {SOL_FUNC_ALL_REDUCE, SOL_FUNC_ALL_GATHER,
                                       SOL_FUNC_BROADCAST};
    uint64_t random = seed;
    for (int k = 0; k < OPS; k++) {
        struct sol_gpu_op *op = &s->op[k];
        memset(op, 0, sizeof(*op));
        op->func = funcs[team_random(&random) % 3];
        op->dtype = SOL_FLOAT32;
        op->redop = SOL_SUM;
        op->root = (int)(team_random(&random) % (unsigned)s->ranks.n);
        op->sequence = (uint64_t)k;
        /* most through the switch; others between them share the slots */
        op->algorithm = team_random(&random) % 4 ? SOL_GPU_MULTICAST : SOL_GPU_AUTO;
        size_t most = op->func == SOL_FUNC_ALL_REDUCE ? MOST : 1024; /* what a slot holds */
        op->count = 4 * (1 + (size_t)(team_random(&random) % (most / 4)));
        if (op->func == SOL_FUNC_ALL_REDUCE) /* any number, at any address: see launch() */
            op->count -= (size_t)(team_random(&random) % 4);
        struct sol_gpu_op planned = *op;
        sol_gpu_plan(&s->ranks.comm[0], &planned);
        if (op->algorithm == SOL_GPU_MULTICAST && planned.algorithm != SOL_GPU_MULTICAST)
            return false;
    }
    return true;
}

/* Elements by which a rank's input is beside a multiple of 16 bytes: not the same on all. */
static int misfit(const struct scene *s, int r, int k)
{
    return s->op[k].func == SOL_FUNC_ALL_REDUCE ? (r + k) % 4 : 0;
}

static void fill(struct scene *s, uint64_t seed, int r)
{
    uint32_t *host = malloc(MOST * 4);
    emu_ranks_use(&s->ranks, r);
    for (int k = 0; k < OPS; k++) {
        bool moved = s->op[k].func != SOL_FUNC_ALL_REDUCE;
        for (size_t i = 0; i < s->op[k].count; i++)
            host[i] = value(seed, k, r, i, moved);
        cudaMalloc((void **)&s->send[r][k], MOST * 4 + 16);
        cudaMalloc((void **)&s->recv[r][k], MOST * 4 * SOL_GPU_MAX_RANKS);
        cudaMemcpy(s->send[r][k] + misfit(s, r, k), host, s->op[k].count * 4,
                   cudaMemcpyHostToDevice);
    }
    free(host);
}

static void launch(struct scene *s, int r, int k)
{
    struct sol_gpu_op op = s->op[k];
    op.send = s->send[r][k] + misfit(s, r, k);
    op.recv = s->recv[r][k];
    emu_ranks_use(&s->ranks, r);
    sol_gpu_launch(&s->ranks.comm[r], &op, s->ranks.stream[r]);
}

static bool right(struct scene *s, uint64_t seed, int r, int k)
{
    const struct sol_gpu_op *op = &s->op[k];
    size_t count = op->count * (op->func == SOL_FUNC_ALL_GATHER ? (size_t)s->ranks.n : 1);
    uint32_t *host = malloc(count * 4);
    cudaMemcpy(host, s->recv[r][k], count * 4, cudaMemcpyDeviceToHost);
    bool good = true;
    for (size_t i = 0; i < count && good; i++)
        good = host[i] == expected(seed, s, k, i);
    free(host);
    return good;
}

static void test_results(const void *of, uint64_t seed, int n)
{
    static struct scene s;
    const char *why = NULL;
    (void)of;
    if (n == 5 || n == 7) /* (time) */
        return;
    memset(&s, 0, sizeof(s));
    snprintf(title, sizeof(title), "seed %llu, %d ranks", (unsigned long long)seed, n);
    if (!emu_ranks_open(&s.ranks, n, n, seed, 1, false))
        return say(false, "no machine");
    emu_ranks_multicast(&s.ranks);
    if (!draw(&s, seed))
        return say(false, "the plan does not take the switch");
    for (int r = 0; r < n; r++)
        fill(&s, seed, r);
    for (int r = 0; r < n; r++)
        for (int k = 0; k < OPS; k++)
            launch(&s, r, k);
    for (int r = 0; r < n; r++)
        cudaStreamSynchronize(s.ranks.stream[r]);
    for (int r = 0; r < n && !emu_failed(); r++)
        for (int k = 0; k < OPS && !why; k++)
            if (!right(&s, seed, r, k))
                why = "an element is wrong";
    say(!why && !emu_failed(), why ? why : "the machine stopped");
}

/* Everybody's waits end, with a record. */
static void test_absent(uint64_t seed, int n, sol_func_t func)
{
    static struct scene s;
    memset(&s, 0, sizeof(s));
    snprintf(title, sizeof(title), "seed %llu, %d ranks, %s: one is absent",
             (unsigned long long)seed, n, func == SOL_FUNC_ALL_REDUCE ? "all_reduce" : "a move");
    if (!emu_ranks_open(&s.ranks, n, n, seed, 1, true))
        return say(false, "no machine");
    emu_ranks_multicast(&s.ranks);
    draw(&s, seed);
    s.op[0].func = func;
    s.op[0].algorithm = SOL_GPU_MULTICAST;
    s.op[0].count = 64;
    s.op[0].root = n - 1;
    int told = 0;
    for (int r = 0; r < n; r++)
        fill(&s, seed, r);
    for (int r = 0; r < n - 1; r++)
        launch(&s, r, 0);
    for (int r = 0; r < n - 1; r++)
        cudaStreamSynchronize(s.ranks.stream[r]);
    for (int r = 0; r < n - 1; r++)
        told += s.ranks.comm[r].error->fault != 0;
    say(told == n - 1 && !emu_failed(), "a rank did not give up");
}

int main(int argc, char **argv)
{
    emu_args_read(&args, argc, argv, 6);
    args.low = args.low < 2 ? 2 : args.low;
    emu_args_run(&args, test_results, NULL);
    if (!args.few && !args.seed) {
        test_absent(1, 3, SOL_FUNC_ALL_REDUCE);
        test_absent(2, 4, SOL_FUNC_ALL_GATHER);
        test_absent(3, 3, SOL_FUNC_BROADCAST);
    }
    emu_close();
    return emu_args_end(&args);
}
