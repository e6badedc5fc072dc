/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_fused: the kernels of solccl/fused.h, but for the norm (emu_norm.c), on the
 * emulated machine, for 1 to 8 ranks; in batches between other collectives, with
 * shapes that differ between ranks; and with a rank that does not come.
 *
 *   emu_fused [--op NAME] [--quick] [--seeds N] [--seed S] [--ranks A[-B]] [--few] [-v]
 *             (--few: bf16 only, stop at the first failure: mutants)
 *
 * Exit status: 0 all passed; 1 failures; 2 nothing ran.
 */
#include "emu_fused.h"
#include "emu/emu_args.h"

#include <stdlib.h>
#include <string.h>

#define BATCH 5
#define INTS 96 /* of the all_reduce between */

static const struct emu_fused_op *const ops[] = {&emu_fused_vocab, &emu_fused_linear};
#define OPS (sizeof(ops) / sizeof(*ops))

struct task {
    void *own; /* the operation's */
    char text[200];
    int32_t *ints[SOL_GPU_MAX_RANKS]; /* contribution, then result */
    int32_t sent[SOL_GPU_MAX_RANKS][INTS];
};

static struct emu_args args = {.seeds = 24};

static bool make(struct emu_ranks *p, const struct emu_fused_op *op, struct task *t,
                 uint64_t *random)
{
    memset(t, 0, sizeof(*t));
    t->own = calloc(1, op->task_bytes);
    if (!t->own || !op->make(p, t->own, random, args.few))
        return false;
    op->describe(p, t->own, t->text, sizeof(t->text));
    for (int r = 0; r < p->n; r++) {
        emu_ranks_use(p, r);
        cudaMalloc((void **)&t->ints[r], 2 * INTS * sizeof(int32_t));
        for (int i = 0; i < INTS; i++)
            t->sent[r][i] = i * (r + 1);
        cudaMemcpyAsync(t->ints[r], t->sent[r], sizeof(t->sent[r]), cudaMemcpyDefault,
                        p->stream[r]);
    }
    return true;
}

static void drop(struct emu_ranks *p, const struct emu_fused_op *op, struct task *t)
{
    if (t->own)
        op->drop(p, t->own);
    for (int r = 0; r < p->n; r++) {
        emu_ranks_use(p, r);
        cudaFree(t->ints[r]);
    }
    free(t->own);
}

static cudaError_t launch(struct emu_ranks *p, const struct emu_fused_op *op, struct task *t, int r,
                          bool between, uint64_t *random)
{
    const unsigned flags = emu_below(random, 2) ? SOL_GPU_PDL : 0;
    struct sol_gpu_op add;
    emu_ranks_use(p, r);
    cudaError_t e = op->launch(p, t->own, r, random, flags, 1);
    if (e != cudaSuccess || !between)
        return e;
    memset(&add, 0, sizeof(add));
    add.func = SOL_FUNC_ALL_REDUCE;
    add.dtype = SOL_INT32;
    add.redop = SOL_SUM;
    add.count = INTS;
    add.send = t->ints[r];
    add.recv = t->ints[r] + INTS;
    add.flags = flags;
    return sol_gpu_launch(&p->comm[r], &add, p->stream[r]);
}

static bool check(struct emu_ranks *p, const struct emu_fused_op *op, struct task *t, bool between)
{
    char why[200];
    if (!op->check(p, t->own, why, sizeof(why))) {
        printf("FAILED %d ranks: %s: %s\n", p->n, t->text, why);
        return false;
    }
    for (int r = 0; r < p->n; r++)
        for (int i = 0; between && i < INTS; i++)
            if (t->ints[r][INTS + i] != i * p->n * (p->n + 1) / 2) {
                printf("FAILED %d ranks, rank %d: the all_reduce after %s is wrong\n", p->n, r,
                       t->text);
                return false;
            }
    return true;
}

/* All on all ranks before any of it runs. */
static bool run_batch(struct emu_ranks *p, const struct emu_fused_op *op, uint64_t *random)
{
    static struct task tasks[BATCH];
    const unsigned between = (unsigned)emu_below(random, 1u << BATCH);
    bool good = true;
    memset(tasks, 0, sizeof(tasks));
    for (int i = 0; i < BATCH && good; i++)
        good = make(p, op, &tasks[i], random);
    for (int i = 0; i < BATCH && args.verbose; i++)
        printf("%d ranks: %s\n", p->n, tasks[i].text);
    for (int r = 0; r < p->n && good; r++)
        for (int i = 0; i < BATCH && good; i++)
            good = launch(p, op, &tasks[i], r, between >> i & 1, random) == cudaSuccess;
    for (int r = 0; r < p->n && good; r++)
        good = cudaStreamSynchronize(p->stream[r]) == cudaSuccess;
    if (!good) {
        for (int i = 0; i < BATCH; i++)
            printf("FAILED %d ranks, in a batch with %s\n", p->n, tasks[i].text);
        fputs(emu_report(), stdout);
    }
    for (int i = 0; i < BATCH; i++) {
        good = good && check(p, op, &tasks[i], between >> i & 1);
        drop(p, op, &tasks[i]);
    }
    return good;
}

static void run_program(const void *of, uint64_t seed, int n)
{
    const struct emu_fused_op *op = of;
    static const uint64_t epochs[] = {1, 0x7ffffffeu, 0xfffffffeu};
    struct emu_ranks ranks;
    uint64_t random = seed;
    int devices = emu_below(&random, 4) ? n : 1 + (int)emu_below(&random, (size_t)n);
    bool good = emu_ranks_open(&ranks, n, devices, seed, epochs[emu_below(&random, 3)], false);
    for (int i = 0; i < 2 && good; i++)
        good = run_batch(&ranks, op, &random);
    if (!good)
        printf("FAILED %s, seed %#llx\n", op->name, (unsigned long long)seed);
    emu_close();
    args.passed += good;
    args.failed += !good;
}

/* Rank 1 does not come: the others end. The first to give up says for whom it waited, and ends it
 * for all: the rest may find the abort word before their own time is up. */
static void run_absent(const struct emu_fused_op *op, uint64_t seed, int n)
{
    struct emu_ranks ranks;
    struct task t;
    uint64_t random = seed;
    int late = 0;
    bool good = emu_ranks_open(&ranks, n, n, seed, 1, true) && make(&ranks, op, &t, &random);
    for (int r = 0; r < n && good; r++) {
        emu_ranks_use(&ranks, r);
        if (r != 1)
            good = op->launch(&ranks, t.own, r, &random, 0, 7) == cudaSuccess;
    }
    for (int r = 0; r < n && good; r++)
        good = cudaStreamSynchronize(ranks.stream[r]) == cudaSuccess;
    for (int r = 0; r < n && good; r++) {
        const struct sol_gpu_error *error = ranks.comm[r].error;
        bool first = error->fault == SOL_GPU_FAULT_TIMEOUT && error->awaited == 1;
        late += first;
        if (r != 1)
            good = (first || error->fault == SOL_GPU_FAULT_ABORT) && error->sequence == 7;
    }
    good = good && late > 0;
    if (!good)
        printf("FAILED absent rank, %d ranks: %s\n%s", n, t.text, emu_report());
    drop(&ranks, op, &t);
    emu_close();
    args.passed += good;
    args.failed += !good;
}

int main(int argc, char **argv)
{
    emu_args_read(&args, argc, argv, 2);
    for (size_t o = 0; o < OPS; o++) {
        if (*args.op && strcmp(args.op, ops[o]->name) != 0)
            continue;
        emu_args_run(&args, run_program, ops[o]);
        for (int n = 2; n <= 4 && !args.few && !args.seed; n++)
            run_absent(ops[o], 100 + (uint64_t)n, n);
    }
    return emu_args_end(&args);
}
