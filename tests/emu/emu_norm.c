/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_norm: the kernels of solccl/fused.h on the emulated machine, for 1 to 8
 * ranks, against the reference of the conformance suite; in batches between other
 * collectives, with shapes that differ between ranks; and with a rank that does
 * not come.
 *
 *   emu_norm [--quick] [--seeds N] [--seed S] [--ranks A[-B]] [--few] [--halves] [-v]
 *            (--few: bf16 only, not in halves, stop at the first failure: mutants; --halves: only
 *            sol_norm_start and _wait, which every second seed has besides otherwise)
 *
 * Exit status: 0 all passed; 1 failures.
 */
#include "common/team.h"
#include "conformance/norm_reference.h"
#include "device/kernels/norm_launch.h"
#include "emu_jobs.h"
#include "emu_norm_halves.h"
#include "emu_ranks.h"

#include <stdlib.h>
#include <string.h>

#define BATCH 5
#define INTS 96 /* of the all_reduce between */

struct task {
    norm_case_t c;
    char text[200];
    norm_image_t image[SOL_GPU_MAX_RANKS];
    char *memory[SOL_GPU_MAX_RANKS];
    int32_t *ints[SOL_GPU_MAX_RANKS]; /* contribution, then result */
    int32_t sent[SOL_GPU_MAX_RANKS][INTS];
};

static bool few, halves_only, verbose;
static int passed, failed;

static size_t below(uint64_t *random, size_t n)
{
    return (size_t)(team_random(random) % n);
}

static void draw_shape(uint64_t *random, struct sol_gpu_norm_shape *shape)
{
    memset(shape, 0, sizeof(*shape));
    shape->most_spread = 1 << below(random, 4);
    if (below(random, 2))
        shape->spread = 1 << below(random, 4);
    if (below(random, 3) == 0)
        shape->vectors = 1 << below(random, 3);
    if (below(random, 5) == 0) { /* piece by piece */
        shape->threads = 64;
        shape->vectors = 0;
    }
    if (below(random, 2))
        shape->ctas = 1 + (int)below(random, 8);
}

/* In two hops half a slot must hold a row, and a finished one with all that belongs to it. */
static bool fits_in_two(const struct emu_ranks *p, const norm_case_t *c)
{
    const size_t row = (c->hidden * ref_size(c->dtype) + 15) / 16 * 16;
    const size_t finished = (c->hidden * ref_size(c->output_dtype) + 15) / 16 * 16 + row +
                            (c->hidden / 32 + 31) / 16 * 16;
    return finished <= p->comm[0].layout.slot_bytes / 2;
}

static bool make(struct emu_ranks *p, struct task *t, uint64_t *random)
{
    do {
        norm_case_draw(&t->c, random, 2000);
    } while (t->c.hidden * ref_size(t->c.dtype) > p->comm[0].layout.slot_bytes ||
             (t->c.form == SOL_NORM_TWO_SHOT && !fits_in_two(p, &t->c)));
    if (few) {
        t->c.output_dtype = t->c.output_dtype == t->c.dtype ? SOL_BFLOAT16 : t->c.output_dtype;
        t->c.dtype = SOL_BFLOAT16;
        t->c.output_in_place &= ref_size(t->c.output_dtype) == 2;
    }
    norm_case_describe(&t->c, t->text, sizeof(t->text));
    for (int r = 0; r < p->n; r++) {
        emu_ranks_use(p, r);
        if (!norm_image_make(&t->image[r], &t->c, p->n, r))
            return false;
        cudaMalloc((void **)&t->memory[r], t->image[r].bytes);
        cudaMalloc((void **)&t->ints[r], 2 * INTS * sizeof(int32_t));
        emu_name(t->memory[r], "arrays of rank %d", r);
        cudaMemcpyAsync(t->memory[r], t->image[r].before, t->image[r].bytes, cudaMemcpyDefault,
                        p->stream[r]);
        for (int i = 0; i < INTS; i++)
            t->sent[r][i] = i * (r + 1);
        cudaMemcpyAsync(t->ints[r], t->sent[r], sizeof(t->sent[r]), cudaMemcpyDefault,
                        p->stream[r]);
    }
    return true;
}

static cudaError_t launch(struct emu_ranks *p, struct task *t, int r, bool between,
                          uint64_t *random)
{
    struct sol_gpu_norm_shape shape;
    sol_norm_args_t args;
    unsigned flags = below(random, 2) ? SOL_GPU_PDL : 0;
    draw_shape(random, &shape);
    norm_image_args(&t->image[r], &t->c, t->memory[r], &args);
    emu_ranks_use(p, r);
    cudaError_t e =
        t->c.form == SOL_NORM_TWO_SHOT
            ? sol_gpu_norm_two_launch(&p->comm[r], &args, &shape, flags, 1, p->stream[r])
            : sol_gpu_norm_launch(&p->comm[r], &args, &shape, flags, 1, p->stream[r]);
    if (e != cudaSuccess || !between)
        return e;
    struct sol_gpu_op op;
    memset(&op, 0, sizeof(op));
    op.func = SOL_FUNC_ALL_REDUCE;
    op.dtype = SOL_INT32;
    op.redop = SOL_SUM;
    op.count = INTS;
    op.send = t->ints[r];
    op.recv = t->ints[r] + INTS;
    op.flags = flags;
    return sol_gpu_launch(&p->comm[r], &op, p->stream[r]);
}

static bool check(const struct emu_ranks *p, const struct task *t, bool between)
{
    char why[200];
    for (int r = 0; r < p->n; r++) {
        if (!norm_image_check(&t->image[r], (unsigned char *)t->memory[r], why, sizeof(why))) {
            printf("FAILED %d ranks, rank %d: %s: %s\n", p->n, r, t->text, why);
            return false;
        }
        for (int i = 0; between && i < INTS; i++)
            if (t->ints[r][INTS + i] != i * p->n * (p->n + 1) / 2) {
                printf("FAILED %d ranks, rank %d: the all_reduce after %s\n", p->n, r, t->text);
                return false;
            }
    }
    return true;
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
    for (int i = 0; i < BATCH && verbose; i++)
        printf("%d ranks: %s\n", p->n, tasks[i].text);
    for (int r = 0; r < p->n && good; r++)
        for (int i = 0; i < BATCH && good; i++)
            good = launch(p, &tasks[i], r, between >> i & 1, random) == cudaSuccess;
    for (int r = 0; r < p->n && good; r++)
        good = cudaStreamSynchronize(p->stream[r]) == cudaSuccess;
    if (!good) {
        for (int i = 0; i < BATCH; i++)
            printf("FAILED %d ranks, in a batch with %s\n", p->n, tasks[i].text);
        fputs(emu_report(), stdout);
    }
    for (int i = 0; i < BATCH; i++) {
        good = good && check(p, &tasks[i], between >> i & 1);
        for (int r = 0; r < p->n; r++) {
            emu_ranks_use(p, r);
            cudaFree(tasks[i].memory[r]);
            cudaFree(tasks[i].ints[r]);
            norm_image_free(&tasks[i].image[r]);
        }
    }
    return good;
}

static bool run_program(uint64_t seed, int n)
{
    static const uint64_t epochs[] = {1, 0x7ffffffeu, 0xfffffffeu};
    struct emu_ranks ranks;
    uint64_t random = seed;
    int devices = below(&random, 4) ? n : 1 + (int)below(&random, (size_t)n);
    const uint64_t epoch = epochs[below(&random, 3)];
    bool good = emu_ranks_open(&ranks, n, devices, seed, epoch, false);
    for (int i = 0; i < 2 && good && !halves_only; i++)
        good = run_batch(&ranks, &random);
    if (good && (halves_only || (!few && (seed >> 8) % 2 == 0)))
        good = emu_norm_halves(&ranks, epoch, &random, few);
    if (!good)
        printf("FAILED seed %#llx\n", (unsigned long long)seed);
    emu_close();
    passed += good;
    failed += !good;
    return good;
}

/* Rank 1 does not come: the others end. The first to give up says for whom it waited, and ends it
 * for all: the rest may find the abort word before their own time is up, and say for whom they
 * waited then. In two hops that may be a row's owner, who waits for rank 1. */
static void run_absent(uint64_t seed, int n, int spread, bool two)
{
    struct emu_ranks ranks;
    struct task t;
    uint64_t random = seed;
    bool good = emu_ranks_open(&ranks, n, n, seed, 1, true);
    memset(&t, 0, sizeof(t));
    do { /* a rank that owns nothing has nobody to wait for but a token */
        good = good && make(&ranks, &t, &random);
    } while (good && (t.c.form == SOL_NORM_TWO_SHOT) != two);
    for (int r = 0; r < n && good; r++) {
        struct sol_gpu_norm_shape shape = {8, spread, 0, 0, 0};
        sol_norm_args_t args;
        norm_image_args(&t.image[r], &t.c, t.memory[r], &args);
        emu_ranks_use(&ranks, r);
        if (r != 1)
            good =
                (two ? sol_gpu_norm_two_launch(&ranks.comm[r], &args, &shape, 0, 7, ranks.stream[r])
                     : sol_gpu_norm_launch(&ranks.comm[r], &args, &shape, 0, 7, ranks.stream[r])) ==
                cudaSuccess;
    }
    for (int r = 0; r < n && good; r++)
        good = cudaStreamSynchronize(ranks.stream[r]) == cudaSuccess;
    int late = 0;
    for (int r = 0; r < n && good; r++) {
        const struct sol_gpu_error *error = ranks.comm[r].error;
        bool timeout = error->fault == SOL_GPU_FAULT_TIMEOUT,
             abort = error->fault == SOL_GPU_FAULT_ABORT;
        late += (timeout || (two && abort)) && error->awaited == 1;
        if (r != 1)
            good = ((timeout && (two || error->awaited == 1)) || abort) && error->sequence == 7;
    }
    good = good && late > 0;
    if (!good)
        printf("FAILED absent rank, %d ranks, %d CTAs a row: %s\n%s", n, spread, t.text,
               emu_report());
    for (int r = 0; r < n; r++)
        norm_image_free(&t.image[r]);
    emu_close();
    passed += good;
    failed += !good;
}

static void run_no_start(uint64_t seed, int n)
{
    struct emu_ranks ranks;
    uint64_t random = seed;
    const bool good =
        emu_ranks_open(&ranks, n, n, seed, 1, true) && emu_norm_halves_absent(&ranks, &random);
    emu_close();
    passed += good;
    failed += !good;
}

struct plan {
    unsigned seeds;
    int low, high, jobs;
};

static struct emu_tally run_share(const void *arg, int job)
{
    const struct plan *plan = arg;
    const int most = few ? 1 : 3;
    unsigned k = 0;
    for (unsigned s = 1; s <= plan->seeds && failed < most; s++)
        for (int n = plan->low; n <= plan->high && failed < most; n++)
            if ((int)(k++ % (unsigned)plan->jobs) == job)
                run_program((uint64_t)s << 8 | (uint64_t)n, n);
    for (int spread = 1; spread <= 4 && !few; spread *= 2)
        for (int n = 2; n <= 4; n++)
            if ((int)(k++ % (unsigned)plan->jobs) == job)
                run_absent(100 + (uint64_t)n, n, spread, false);
    for (int n = 2; n <= 4 && !few; n++)
        if ((int)(k++ % (unsigned)plan->jobs) == job)
            run_absent(100 + (uint64_t)n, n, 1, true);
    for (int n = 2; n <= 3 && !few; n++)
        if ((int)(k++ % (unsigned)plan->jobs) == job)
            run_no_start(200 + (uint64_t)n, n);
    return (struct emu_tally){(unsigned long long)passed, failed};
}

int main(int argc, char **argv)
{
    struct plan plan = {24, 1, 8, 2};
    uint64_t seed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--quick") == 0)
            plan.seeds = 4;
        else if (strcmp(argv[i], "--few") == 0)
            few = true;
        else if (strcmp(argv[i], "--halves") == 0)
            halves_only = true;
        else if (strcmp(argv[i], "-v") == 0)
            verbose = true;
        else if (strcmp(argv[i], "--seeds") == 0)
            plan.seeds = (unsigned)strtoul(value, NULL, 0), i++;
        else if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(value, NULL, 0), i++;
        else if (strcmp(argv[i], "--jobs") == 0)
            plan.jobs = (int)strtol(value, NULL, 0), i++;
        else if (strcmp(argv[i], "--ranks") == 0) {
            char *end;
            plan.low = plan.high = (int)strtol(value, &end, 10);
            if (*end == '-')
                plan.high = (int)strtol(end + 1, NULL, 10);
            i++;
        }
    }
    if (!seed)
        return emu_jobs(plan.jobs, run_share, &plan);
    run_program(seed, (int)(seed & 255));
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}
