/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_quantized: the kernels of solccl/quantized.h on the emulated machine, for 1 to
 * 8 ranks, in one hop and in two, in batches between other collectives: the same
 * bits as coll/quantize.c gives (which the conformance suite holds to fp64); and
 * with a rank that does not come.
 *
 *   emu_quantized [--quick] [--seeds N] [--seed S] [--ranks A[-B]] [--few] [-v]
 *                 (--few: bf16 only, stop at the first failure: mutants)
 *
 * Exit status: 0 all passed; 1 failures; 2 nothing ran.
 */
#include "coll/quantize.h"
#include "common/team.h"
#include "device/kernels/quantized_launch.h"
#include "emu/emu_args.h"
#include "emu_ranks.h"

#include <stdlib.h>
#include <string.h>

#define BATCH 4
#define MOST 9000 /* elements */
#define INTS 64   /* of the all_reduce between */

struct task {
    struct sol_gpu_quantized op;
    size_t size, offset;
    unsigned char *sent[SOL_GPU_MAX_RANKS], *want; /* host */
    unsigned char *memory[SOL_GPU_MAX_RANKS];      /* contribution, then result */
    int32_t *ints[SOL_GPU_MAX_RANKS];
};

static struct emu_args args = {.seeds = 30};

static size_t below(uint64_t *random, size_t n)
{
    return (size_t)(team_random(random) % n);
}

/* Any bit pattern; in most groups of middling size, that sums are not all NaN. */
static void draw_data(unsigned char *to, size_t count, size_t size, uint64_t *random)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t h = team_random(random);
        if (i / SOL_QUANTIZED_GROUP % 7 != 3) {
            float value = (float)((int64_t)(h >> 40) - (1 << 23)) * 0x1p-20f;
            uint32_t bits;
            memcpy(&bits, &value, 4);
            h = size == 4 ? bits : (bits >> 16 & 0x8000) | (h & 0x7ff) | 0x3800;
        } else if (i % 5) {
            h = i % 3 == 0 ? h & 0x80ff : 0;
        }
        memcpy(to + i * size, &h, size);
    }
}

/* As all ranks must find it. */
static bool reference(struct task *t, int n)
{
    const size_t groups = (t->op.count + SOL_QUANTIZED_GROUP - 1) / SOL_QUANTIZED_GROUP;
    unsigned char *packed = malloc(groups * SOL_PACKED_GROUP);
    float *sums = malloc(groups * SOL_QUANTIZED_GROUP * sizeof(float));
    for (int r = 0; packed && sums && r < n; r++) {
        sol_quantise(packed, t->sent[r], t->op.dtype, t->op.count, groups, t->op.wire);
        sol_dequantise(sums, packed, groups, t->op.wire, r > 0);
    }
    if (packed && sums && t->op.steps == 2) {
        sol_quantise(packed, sums, SOL_FLOAT32, groups * SOL_QUANTIZED_GROUP, groups, t->op.wire);
        sol_dequantise(sums, packed, groups, t->op.wire, false);
    }
    bool good = packed && sums;
    if (good)
        sol_round_floats(t->want, sums, t->op.dtype, t->op.count);
    free(packed);
    free(sums);
    return good;
}

static bool make(struct emu_ranks *p, struct task *t, uint64_t *random)
{
    static const sol_dtype_t dtypes[] = {SOL_BFLOAT16, SOL_FLOAT16, SOL_FLOAT32};
    memset(t, 0, sizeof(*t));
    t->op.dtype = dtypes[args.few ? 0 : below(random, 3)];
    t->op.wire = below(random, 2) ? SOL_INT8 : SOL_FLOAT8_E4M3;
    t->op.steps = 1 + (int)below(random, 2);
    t->op.count = 1 + (below(random, 2) ? below(random, MOST) : below(random, 700));
    t->size = t->op.dtype == SOL_FLOAT32 ? 4 : 2;
    t->offset = below(random, 3) ? 0 : below(random, 16);
    const size_t bytes = t->op.count * t->size;
    t->want = malloc(bytes);
    for (int r = 0; r < p->n; r++) {
        t->sent[r] = malloc(bytes);
        if (!t->sent[r] || !t->want)
            return false;
        draw_data(t->sent[r], t->op.count, t->size, random);
        emu_ranks_use(p, r);
        cudaMalloc((void **)&t->memory[r], 2 * bytes + 64);
        cudaMalloc((void **)&t->ints[r], 2 * INTS * sizeof(int32_t));
        emu_name(t->memory[r], "arrays of rank %d", r);
        cudaMemcpyAsync(t->memory[r] + t->offset, t->sent[r], bytes, cudaMemcpyDefault,
                        p->stream[r]);
        cudaMemsetAsync(t->ints[r], r + 1, INTS * sizeof(int32_t), p->stream[r]);
    }
    return reference(t, p->n);
}

static cudaError_t launch(struct emu_ranks *p, struct task *t, int r, bool between,
                          uint64_t *random)
{
    struct sol_gpu_quantized op = t->op;
    const unsigned flags = below(random, 2) ? SOL_GPU_PDL : 0;
    op.send = t->memory[r] + t->offset;
    op.recv = t->memory[r] + t->op.count * t->size + 32 + t->offset;
    op.ctas = (int)below(random, 4);
    emu_ranks_use(p, r);
    cudaError_t e = sol_gpu_quantized_launch(&p->comm[r], &op, flags, 1, p->stream[r]);
    if (e != cudaSuccess || !between)
        return e;
    struct sol_gpu_op sum;
    memset(&sum, 0, sizeof(sum));
    sum.func = SOL_FUNC_ALL_REDUCE;
    sum.dtype = SOL_INT32;
    sum.redop = SOL_SUM;
    sum.count = INTS;
    sum.send = t->ints[r];
    sum.recv = t->ints[r] + INTS;
    sum.flags = flags;
    return sol_gpu_launch(&p->comm[r], &sum, p->stream[r]);
}

static bool check(const struct emu_ranks *p, const struct task *t, bool between)
{
    const size_t bytes = t->op.count * t->size;
    const int32_t one = 0x01010101;
    for (int r = 0; r < p->n; r++) {
        const unsigned char *got = t->memory[r] + bytes + 32 + t->offset;
        for (size_t i = 0; i < bytes; i++)
            if (got[i] != t->want[i]) {
                printf("FAILED %d ranks, rank %d, %zu of dtype %d, wire %d, %d hops: byte %zu is "
                       "%#x, expected %#x\n",
                       p->n, r, (size_t)t->op.count, (int)t->op.dtype, (int)t->op.wire, t->op.steps,
                       i, got[i], t->want[i]);
                return false;
            }
        for (int i = 0; between && i < INTS; i++)
            if (t->ints[r][INTS + i] != one * p->n * (p->n + 1) / 2) {
                printf("FAILED %d ranks, rank %d: the all_reduce between is wrong\n", p->n, r);
                return false;
            }
    }
    return true;
}

static void drop(struct emu_ranks *p, struct task *t)
{
    for (int r = 0; r < p->n; r++) {
        emu_ranks_use(p, r);
        cudaFree(t->memory[r]);
        cudaFree(t->ints[r]);
        free(t->sent[r]);
    }
    free(t->want);
}

/* All on all ranks before any of it runs. */
static bool run_batch(struct emu_ranks *p, uint64_t *random)
{
    static struct task tasks[BATCH];
    const unsigned between = (unsigned)below(random, 1u << BATCH);
    bool good = true;
    memset(tasks, 0, sizeof(tasks));
    for (int i = 0; i < BATCH && good; i++)
        good = make(p, &tasks[i], random);
    for (int i = 0; i < BATCH && args.verbose; i++)
        printf("%d ranks: %zu of dtype %d, wire %d, %d hops\n", p->n, (size_t)tasks[i].op.count,
               (int)tasks[i].op.dtype, (int)tasks[i].op.wire, tasks[i].op.steps);
    for (int r = 0; r < p->n && good; r++)
        for (int i = 0; i < BATCH && good; i++)
            good = launch(p, &tasks[i], r, between >> i & 1, random) == cudaSuccess;
    for (int r = 0; r < p->n && good; r++)
        good = cudaStreamSynchronize(p->stream[r]) == cudaSuccess;
    for (int i = 0; i < BATCH; i++) {
        good = good && check(p, &tasks[i], between >> i & 1);
        drop(p, &tasks[i]);
    }
    return good && !emu_failed();
}

static void run_program(const void *of, uint64_t seed, int n)
{
    (void)of;
    static const uint64_t epochs[] = {1, 0x7ffffffeu, 0xfffffffeu};
    struct emu_ranks ranks;
    uint64_t random = seed;
    const int devices = below(&random, 4) ? n : 1 + (int)below(&random, (size_t)n);
    bool good = emu_ranks_open(&ranks, n, devices, seed, epochs[below(&random, 3)], false) &&
                run_batch(&ranks, &random);
    if (!good)
        printf("FAILED seed %#llx\n%s", (unsigned long long)seed, emu_report());
    emu_close();
    args.passed += good;
    args.failed += !good;
}

/* Rank 1 does not come: the others end, and one of them says for whom it waited. */
static void run_absent(uint64_t seed, int n, int steps)
{
    struct emu_ranks ranks;
    struct task t;
    uint64_t random = seed;
    int late = 0;
    bool good = emu_ranks_open(&ranks, n, n, seed, 1, true) && make(&ranks, &t, &random);
    t.op.steps = steps;
    for (int r = 0; r < n && good; r++)
        good = r == 1 || launch(&ranks, &t, r, false, &random) == cudaSuccess;
    for (int r = 0; r < n && good; r++)
        good = cudaStreamSynchronize(ranks.stream[r]) == cudaSuccess;
    for (int r = 0; r < n && good; r++) {
        const struct sol_gpu_error *error = ranks.comm[r].error;
        bool first = error->fault == SOL_GPU_FAULT_TIMEOUT && error->awaited == 1;
        late += first;
        good = r == 1 || first || error->fault == SOL_GPU_FAULT_ABORT;
    }
    good = good && late > 0;
    if (!good)
        printf("FAILED absent rank, %d ranks, %d hops\n%s", n, steps, emu_report());
    drop(&ranks, &t);
    emu_close();
    args.passed += good;
    args.failed += !good;
}

int main(int argc, char **argv)
{
    emu_args_read(&args, argc, argv, 2);
    emu_args_run(&args, run_program, NULL);
    for (int n = 2; n <= 3 && !args.few && !args.seed; n++)
        run_absent(100 + (uint64_t)n, n, n - 1);
    return emu_args_end(&args);
}
