/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_moe: the kernels of solccl/moe.h on the emulated machine, for 1 to 8 ranks,
 * against the reference of the conformance suite: handles that are used again and again, in one
 * kernel and in halves, with and without a combine; and with a rank that does not come.
 *
 *   emu_moe [--quick] [--seeds N] [--seed S] [--ranks A[-B]] [--few] [-v]
 *           (--few: bf16 only, stop at the first failure: mutants)
 *
 * Exit status: 0 all passed; 1 failures; 2 nothing ran.
 */
#include "common/team.h"
#include "conformance/moe_reference.h"
#include "device/kernels/moe_launch.h"
#include "emu/emu.h"
#include "emu/emu_args.h"
#include "proto/dev_layout.h"
#include "proto/gpu_moe.h"
#include "solccl/device/fate.h"

#include <stdlib.h>
#include <string.h>

#define STEPS 4

enum way { WHOLE, HALVES, NO_COMBINE, WAYS };

struct step {
    moe_case_t c;
    enum way way;
    char text[240];
    moe_image_t image[MOE_MAX_RANKS];
    char *memory[MOE_MAX_RANKS];
};

/* Ranks of an emulated machine, and a handle. */
struct machine {
    int n, devices;
    cudaStream_t stream[MOE_MAX_RANKS];
    struct sol_gpu_error *error[MOE_MAX_RANKS];
    struct sol_gpu_moe moe[MOE_MAX_RANKS];
};

static struct emu_args args = {.seeds = 24};

static size_t below(uint64_t *random, size_t n)
{
    return (size_t)(team_random(random) % n);
}

static void use(const struct machine *p, int rank)
{
    cudaSetDevice(rank % p->devices);
}

/* ------------------------------------------------------------------------- the machine */

/* As core/devcomm.c makes it. */
static bool open_memory(struct machine *p, const sol_dev_config_t *dev, uint32_t *abort_word,
                        uint64_t timeout_ns)
{
    const struct sol_dev_layout layout = sol_dev_layout_of(dev, p->n);
    unsigned char *image = calloc(1, layout.memory);
    char *base[MOE_MAX_RANKS] = {NULL};
    for (int r = 0; r < p->n && image != NULL; r++) {
        use(p, r);
        if (cudaMalloc((void **)&base[r], layout.total) != cudaSuccess) {
            free(image);
            return false;
        }
        emu_name(base[r], "handle of rank %d", r);
        cudaMemset(base[r], 0, layout.total);
        sol_dev_fill(&layout, dev, p->n, image);
        cudaMemcpy(base[r], image, layout.memory, cudaMemcpyHostToDevice);
        cudaHostAlloc((void **)&p->error[r], sizeof(*p->error[r]), cudaHostAllocMapped);
        cudaMemset(p->error[r], 0, sizeof(*p->error[r]));
        cudaStreamCreate(&p->stream[r]);
    }
    for (int r = 0; r < p->n && image != NULL; r++) {
        struct sol_bound bound = {
            .error = p->error[r], .abort_word = abort_word, .timeout_ns = timeout_ns, .rank = r};
        sol_dev_describe(&layout, dev, base, r, p->n, &bound, &p->moe[r].dev);
    }
    free(image);
    return image != NULL && !emu_failed();
}

static bool open_machine(struct machine *p, int n, int devices, const sol_moe_config_t *config,
                         uint64_t seed, uint64_t epoch, int ctas, bool time_passes)
{
    struct emu_options options = {.seed = seed,
                                  .devices = devices,
                                  .sms = 8 * ((n + devices - 1) / devices),
                                  .time_passes = time_passes};
    uint32_t *abort_word;
    sol_dev_config_t dev;
    memset(p, 0, sizeof(*p));
    p->n = n;
    p->devices = devices;
    if (!emu_open(&options))
        return false;
    cudaHostAlloc((void **)&abort_word, 8, cudaHostAllocMapped);
    cudaMemset(abort_word, 0, 8);
    for (int r = 0; r < n; r++) {
        sol_moe_shape_of(&p->moe[r].shape, config, r, n);
        p->moe[r].first_epoch = epoch;
        p->moe[r].max_ctas = ctas;
    }
    sol_gpu_moe_config(&p->moe[0].shape, &dev);
    dev.first_epoch = epoch;
    /* (the machine's clock moves on a millisecond whenever all wait for stores that are late) */
    return open_memory(p, &dev, abort_word, time_passes ? 100000000u : 100000000000u);
}

/* ------------------------------------------------------------------------------- steps */

static void draw_config(sol_moe_config_t *config, uint64_t *random)
{
    moe_config_draw(config, random, below(random, 3) ? 700 : 2600);
    if (config->max_tokens > 6)
        config->max_tokens = 1 + below(random, below(random, 4) ? 6 : 70);
    if (config->max_tokens > 8)
        config->hidden = 1 + below(random, 64);
    if (below(random, 4) == 0) /* whole vectors everywhere: the kernels for those */
        config->hidden = (config->hidden + 511) / 512 * 512;
    if (args.few)
        config->dtype = SOL_BFLOAT16;
}

/* `all`: every token to every rank. */
static bool make(struct machine *p, struct step *s, const sol_moe_config_t *config,
                 uint64_t *random, bool all)
{
    moe_case_draw(&s->c, config, p->n, random);
    for (int r = 0; r < p->n && all; r++)
        s->c.tokens[r] = config->max_tokens;
    s->c.choice = all ? MOE_ONE : s->c.choice;
    moe_case_describe(&s->c, s->text, sizeof(s->text));
    s->way = (enum way)below(random, WAYS);
    for (int r = 0; r < p->n; r++) {
        use(p, r);
        if (!moe_image_make(&s->image[r], &s->c, r))
            return false;
        cudaMalloc((void **)&s->memory[r], s->image[r].bytes);
        emu_name(s->memory[r], "arrays of rank %d", r);
        cudaMemcpyAsync(s->memory[r], s->image[r].before, s->image[r].bytes, cudaMemcpyDefault,
                        p->stream[r]);
    }
    return true;
}

static cudaError_t launch(struct machine *p, struct step *s, int r, uint64_t *random)
{
    sol_moe_dispatch_args_t d;
    sol_moe_combine_args_t c;
    const unsigned pdl = below(random, 2) ? SOL_GPU_PDL : 0;
    const struct sol_gpu_moe *moe = &p->moe[r];
    moe_image_args(&s->image[r], &s->c, r, s->memory[r], &d, &c);
    use(p, r);
    if (s->way != HALVES) {
        cudaError_t e = sol_gpu_moe_dispatch(moe, &d, 3, pdl, 7, p->stream[r]);
        return e != cudaSuccess || s->way == NO_COMBINE
                   ? e
                   : sol_gpu_moe_combine(moe, &c, 3, pdl, 8, p->stream[r]);
    }
    cudaError_t e = sol_gpu_moe_dispatch(moe, &d, 1, pdl, 7, p->stream[r]);
    e = e != cudaSuccess ? e : sol_gpu_moe_dispatch(moe, &d, 2, pdl, 7, p->stream[r]);
    e = e != cudaSuccess ? e : sol_gpu_moe_combine(moe, &c, 1, pdl, 8, p->stream[r]);
    return e != cudaSuccess ? e : sol_gpu_moe_combine(moe, &c, 2, pdl, 8, p->stream[r]);
}

static bool check(const struct machine *p, const struct step *s)
{
    char why[200];
    for (int r = 0; r < p->n; r++) {
        const moe_image_t *image = &s->image[r];
        if (s->way == NO_COMBINE)
            memcpy(image->after + image->at[MOE_OUT], image->before + image->at[MOE_OUT],
                   image->size[MOE_OUT]);
        if (p->error[r]->fault != SOL_GPU_FAULT_NONE) {
            printf("FAILED %d ranks, rank %d gave up waiting: %s\n", p->n, r, s->text);
            return false;
        }
        if (!moe_image_check(image, (unsigned char *)s->memory[r], why, sizeof(why))) {
            printf("FAILED %d ranks, rank %d: %s: %s\n", p->n, r, s->text, why);
            return false;
        }
    }
    return true;
}

/* All on all ranks before any of it runs. */
static bool run_steps(struct machine *p, const sol_moe_config_t *config, uint64_t *random)
{
    static struct step steps[STEPS];
    bool good = true;
    memset(steps, 0, sizeof(steps));
    for (int i = 0; i < STEPS && good; i++)
        good = make(p, &steps[i], config, random, false);
    for (int i = 0; i < STEPS && args.verbose; i++)
        printf("%d ranks, way %d: %s\n", p->n, (int)steps[i].way, steps[i].text);
    for (int r = 0; r < p->n && good; r++)
        for (int i = 0; i < STEPS && good; i++)
            good = launch(p, &steps[i], r, random) == cudaSuccess;
    for (int r = 0; r < p->n && good; r++)
        good = cudaStreamSynchronize(p->stream[r]) == cudaSuccess;
    if (!good) {
        for (int i = 0; i < STEPS; i++)
            printf("FAILED %d ranks, in steps with %s\n", p->n, steps[i].text);
        fputs(emu_report(), stdout);
    }
    for (int i = 0; i < STEPS; i++) {
        good = good && check(p, &steps[i]);
        for (int r = 0; r < p->n; r++) {
            use(p, r);
            cudaFree(steps[i].memory[r]);
            moe_image_free(&steps[i].image[r]);
        }
    }
    return good;
}

static void run_program(const void *of, uint64_t seed, int n)
{
    (void)of;
    static const uint64_t epochs[] = {1, 0x7ffffffeu, 0xfffffffeu};
    struct machine machine;
    sol_moe_config_t config;
    uint64_t random = seed;
    draw_config(&config, &random);
    int devices = below(&random, 4) ? n : 1 + (int)below(&random, (size_t)n);
    const uint64_t epoch = epochs[below(&random, 3)];
    bool good =
        open_machine(&machine, n, devices, &config, seed, epoch, 1 + (int)below(&random, 8), false);
    for (int i = 0; i < 2 && good; i++)
        good = run_steps(&machine, &config, &random);
    if (!good)
        printf("FAILED seed %#llx\n", (unsigned long long)seed);
    emu_close();
    args.passed += good;
    args.failed += !good;
}

/* -------------------------------------------------------------------------- an absence */

/* Rank 1 does not come to a dispatch, or to the combine after it: the others end, and the first to
 * give up says for whom it waited. (A combine waits for ranks that have the rank's tokens alone.)
 */
static void run_absent(uint64_t seed, int n, bool combine)
{
    struct machine machine;
    struct step s;
    sol_moe_config_t config = SOL_MOE_CONFIG_INIT;
    uint64_t random = seed;
    config.max_tokens = 3, config.hidden = 96, config.top_k = n, config.experts = n;
    bool good = open_machine(&machine, n, n, &config, seed, 1, 4, true);
    memset(&s, 0, sizeof(s));
    good = good && make(&machine, &s, &config, &random, true);
    for (int r = 0; r < n && good; r++) {
        sol_moe_dispatch_args_t d;
        sol_moe_combine_args_t c;
        moe_image_args(&s.image[r], &s.c, r, s.memory[r], &d, &c);
        use(&machine, r);
        if (combine || r != 1)
            good = sol_gpu_moe_dispatch(&machine.moe[r], &d, 3, 0, 7, machine.stream[r]) ==
                   cudaSuccess;
        if (combine && r != 1)
            good = good && sol_gpu_moe_combine(&machine.moe[r], &c, 3, 0, 8, machine.stream[r]) ==
                               cudaSuccess;
    }
    for (int r = 0; r < n && good; r++)
        good = cudaStreamSynchronize(machine.stream[r]) == cudaSuccess;
    int late = 0;
    for (int r = 0; r < n && good; r++) {
        const struct sol_gpu_error *error = machine.error[r];
        const uint32_t who = combine ? SOL_GPU_WHO_COMBINE : SOL_GPU_WHO_DISPATCH;
        if (r != 1 && error->fault != SOL_GPU_FAULT_NONE) {
            const bool first = error->fault == SOL_GPU_FAULT_TIMEOUT && error->awaited == 1;
            late += first;
            good = (first || error->fault == SOL_GPU_FAULT_ABORT) && error->func == who &&
                   error->sequence == (combine ? 8 : 7);
        }
    }
    good = good && late > 0;
    if (!good)
        printf("FAILED absent rank in a %s, %d ranks: %s\n%s", combine ? "combine" : "dispatch", n,
               s.text, emu_report());
    for (int r = 0; r < n; r++)
        moe_image_free(&s.image[r]);
    emu_close();
    args.passed += good;
    args.failed += !good;
}

int main(int argc, char **argv)
{
    emu_args_read(&args, argc, argv, 1);
    emu_args_run(&args, run_program, NULL);
    for (int n = 2; n <= (args.seeds > 1 ? 4 : 2) && !args.few && !args.seed; n++)
        run_absent(100, n, false), run_absent(101, n, true);
    return emu_args_end(&args);
}
