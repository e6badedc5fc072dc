/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_norm_halves.c: sol_norm_start and _wait on the emulated machine: some starts under way on
 * the lanes of one handle, collectives of the communicator between, every row against the
 * reference of the one call; and a rank that does not start.
 */
#include "emu_norm_halves.h"

#include "conformance/norm_reference.h"
#include "device/kernels/norm_halves_launch.h"

#include <stdio.h>
#include <string.h>

#define STARTS 5
#define INTS 40 /* of the all_reduce between */

struct half {
    norm_case_t c;
    char text[200];
    norm_image_t image[SOL_GPU_MAX_RANKS];
    char *memory[SOL_GPU_MAX_RANKS];
};

/* What all ranks launch: step i is a start, a wait or a collective. */
enum step { START, WAIT, BETWEEN };

struct program {
    struct emu_ranks *ranks;
    struct sol_gpu_norm_halves halves[SOL_GPU_MAX_RANKS];
    sol_norm_config_t config;
    struct half half[STARTS];
    enum step steps[4 * STARTS];
    int nsteps;
    int32_t *ints[SOL_GPU_MAX_RANKS];
};

static size_t below(uint64_t *random, size_t n)
{
    return (size_t)(team_random(random) % n);
}

static void draw_config(struct program *p, uint64_t *random, bool few)
{
    static const sol_norm_config_t blank = SOL_NORM_CONFIG_INIT;
    norm_case_t c;
    norm_case_draw(&c, random, 800);
    p->config = blank;
    p->config.max_tokens = 1 + below(random, 7);
    p->config.hidden = c.hidden;
    p->config.dtype = few ? SOL_BFLOAT16 : c.dtype;
    p->config.form = c.form;
    p->config.shards = c.shards;
    p->config.depth = 1 + (int)below(random, 3);
    p->config.start_ctas = 1 + (int)below(random, 4);
}

/* A legal order of starts and waits, collectives between. */
static void draw_steps(struct program *p, uint64_t *random)
{
    int started = 0, waited = 0;
    while (waited < STARTS) {
        const bool room = started < STARTS && started - waited < p->config.depth;
        const size_t h = below(random, 6);
        if (h == 0 && p->nsteps < 4 * STARTS - 2 * STARTS)
            p->steps[p->nsteps++] = BETWEEN;
        else if (room && (h < 4 || started == waited))
            p->steps[p->nsteps++] = START, started++;
        else if (started > waited)
            p->steps[p->nsteps++] = WAIT, waited++;
    }
}

static void draw_case(const sol_norm_config_t *config, norm_case_t *c, uint64_t *random)
{
    norm_case_draw(c, random, 800);
    c->tokens = 1 + below(random, config->max_tokens);
    c->hidden = config->hidden;
    c->dtype = config->dtype;
    c->form = config->form;
    c->shards = config->shards;
    if (c->quant == SOL_QUANT_NONE && below(random, 3))
        c->output_dtype = c->dtype;
    if (ref_size(c->output_dtype) != ref_size(c->dtype) || (c->shards & SOL_NORM_SHARD_OUTPUT))
        c->output_in_place = false;
    if (c->shards & SOL_NORM_SHARD_RESIDUAL)
        c->residual_over_input = false;
}

static bool make(struct program *p, struct half *half, uint64_t *random)
{
    draw_case(&p->config, &half->c, random);
    norm_case_describe(&half->c, half->text, sizeof(half->text));
    for (int r = 0; r < p->ranks->n; r++) {
        emu_ranks_use(p->ranks, r);
        if (!norm_image_make(&half->image[r], &half->c, p->ranks->n, r))
            return false;
        cudaMalloc((void **)&half->memory[r], half->image[r].bytes);
        emu_name(half->memory[r], "arrays of rank %d", r);
        cudaMemcpyAsync(half->memory[r], half->image[r].before, half->image[r].bytes,
                        cudaMemcpyDefault, p->ranks->stream[r]);
    }
    return true;
}

static bool open_handle(struct program *p, uint64_t epoch)
{
    char *base[SOL_GPU_MAX_RANKS];
    const int n = p->ranks->n;
    const uint64_t bytes = sol_gpu_norm_halves_bytes(&p->config, n);
    for (int r = 0; r < n; r++) {
        emu_ranks_use(p->ranks, r);
        cudaMalloc((void **)&base[r], bytes);
        cudaMalloc((void **)&p->ints[r], INTS * sizeof(int32_t));
        cudaMemset(p->ints[r], 0, INTS * sizeof(int32_t));
        emu_name(base[r], "lanes of rank %d", r);
    }
    for (int r = 0; r < n; r++) {
        emu_ranks_use(p->ranks, r);
        sol_gpu_norm_halves_describe(&p->halves[r], &p->ranks->comm[r], &p->config, base);
        if (sol_gpu_norm_halves_init(&p->halves[r], epoch, p->ranks->stream[r]) != cudaSuccess)
            return false;
    }
    for (int r = 0; r < n; r++)
        cudaStreamSynchronize(p->ranks->stream[r]);
    return true;
}

static cudaError_t launch_half(struct program *p, int r, int number, bool start, uint64_t *random)
{
    struct sol_gpu_norm_shape shape = {1 << below(random, 4), 0, 0, 0, (int)below(random, 6)};
    const unsigned flags = below(random, 2) ? SOL_GPU_PDL : 0;
    const int lane = number % p->config.depth;
    sol_norm_args_t args;
    norm_image_args(&p->half[number].image[r], &p->half[number].c, p->half[number].memory[r],
                    &args);
    if (start)
        return sol_gpu_norm_start(&p->halves[r], lane, &args, flags, 7, p->ranks->stream[r]);
    if (below(random, 5) == 0) { /* piece by piece */
        shape.threads = 64;
        shape.vectors = 0;
    }
    return sol_gpu_norm_wait(&p->halves[r], lane, &args, &shape, flags, 7, p->ranks->stream[r]);
}

static cudaError_t launch_between(struct program *p, int r)
{
    struct sol_gpu_op op;
    memset(&op, 0, sizeof(op));
    op.func = SOL_FUNC_ALL_REDUCE;
    op.dtype = SOL_INT32;
    op.redop = SOL_SUM;
    op.count = INTS;
    op.send = op.recv = p->ints[r];
    return sol_gpu_launch(&p->ranks->comm[r], &op, p->ranks->stream[r]);
}

/* All on all ranks before any of it runs. */
static bool launch_all(struct program *p, uint64_t *random)
{
    bool good = true;
    for (int r = 0; r < p->ranks->n; r++) {
        int started = 0, waited = 0;
        emu_ranks_use(p->ranks, r);
        for (int i = 0; i < p->nsteps && good; i++)
            good = (p->steps[i] == BETWEEN ? launch_between(p, r)
                    : p->steps[i] == START
                        ? launch_half(p, r, started++, true, random)
                        : launch_half(p, r, waited++, false, random)) == cudaSuccess;
    }
    for (int r = 0; r < p->ranks->n && good; r++)
        good = cudaStreamSynchronize(p->ranks->stream[r]) == cudaSuccess;
    return good;
}

static bool check(const struct program *p, const struct half *half)
{
    char why[200];
    for (int r = 0; r < p->ranks->n; r++)
        if (!norm_image_check(&half->image[r], (unsigned char *)half->memory[r], why,
                              sizeof(why))) {
            printf("FAILED %d ranks, rank %d, in halves: %s: %s\n", p->ranks->n, r, half->text,
                   why);
            return false;
        }
    return true;
}

bool emu_norm_halves(struct emu_ranks *ranks, uint64_t epoch, uint64_t *random, bool few)
{
    static struct program p;
    memset(&p, 0, sizeof(p));
    p.ranks = ranks;
    draw_config(&p, random, few);
    draw_steps(&p, random);
    bool good = open_handle(&p, epoch);
    for (int i = 0; i < STARTS && good; i++)
        good = make(&p, &p.half[i], random);
    good = good && launch_all(&p, random);
    if (!good)
        printf("FAILED %d ranks, halves, with %s\n%s", ranks->n, p.half[0].text, emu_report());
    for (int i = 0; i < STARTS; i++) {
        good = good && check(&p, &p.half[i]);
        for (int r = 0; r < ranks->n; r++)
            norm_image_free(&p.half[i].image[r]);
    }
    return good;
}

bool emu_norm_halves_absent(struct emu_ranks *ranks, uint64_t *random)
{
    static struct program p;
    int late = 0;
    memset(&p, 0, sizeof(p));
    p.ranks = ranks;
    draw_config(&p, random, false);
    p.config.form = SOL_NORM_ONE_SHOT;
    p.config.shards = 0;
    bool good = open_handle(&p, 1) && make(&p, &p.half[0], random);
    for (int r = 0; r < ranks->n && good; r++) {
        emu_ranks_use(ranks, r);
        if (r != 1)
            good = launch_half(&p, r, 0, true, random) == cudaSuccess &&
                   launch_half(&p, r, 0, false, random) == cudaSuccess;
    }
    for (int r = 0; r < ranks->n && good; r++)
        good = cudaStreamSynchronize(ranks->stream[r]) == cudaSuccess;
    for (int r = 0; r < ranks->n && good; r++) {
        const struct sol_gpu_error *error = ranks->comm[r].error;
        const bool first = error->fault == SOL_GPU_FAULT_TIMEOUT && error->awaited == 1;
        late += first;
        if (r != 1)
            good = (first || error->fault == SOL_GPU_FAULT_ABORT) && error->sequence == 7;
        norm_image_free(&p.half[0].image[r]);
    }
    if (!good || late == 0)
        printf("FAILED no start of rank 1, %d ranks: %s\n%s", ranks->n, p.half[0].text,
               emu_report());
    return good && late > 0;
}
