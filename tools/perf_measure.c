/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_measure.c: rounds in which every side is timed in turn (see
 * perf_measure.h). The order of the sides rotates from round to round, so that
 * none always comes first.
 */
#include "perf_measure.h"

#include "tool.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SAMPLE_US 20.0      /* long against the reading of a clock, 20 to 40 ns */
#define GPU_SAMPLE_US 400.0 /* long against two events, 1 us */
#define WARM_US 5000.0      /* warming up longer than this brings nothing */
#define MAX_BATCH 4096
#define PILOT_SAMPLES 8
#define MAX_BOUNDS 31

/* How a side is timed at this point. */
struct plan {
    size_t batch, samples, warm;
    perf_samples_t taken;
};

/* What the rounds said about the bound. */
struct bounded {
    perf_bound_t bound;
    perf_terms_t terms;
};

struct bounds {
    struct bounded kept[MAX_BOUNDS];
    int count;
};

static double least(const double *ns, size_t count)
{
    double best = ns[0];
    size_t i;

    for (i = 1; i < count; i++)
        best = ns[i] < best ? ns[i] : best;
    return best;
}

/* Find the batch: twice, as the first estimate contains waking up and reading the clock. */
static bool pilot(perf_driver_t *driver, perf_side_t *side, const perf_options_t *options,
                  struct plan *plan)
{
    double ns[PILOT_SAMPLES], op_us;
    size_t batch = 1, samples = 3;
    int pass;

    plan->warm = (size_t)options->warm;
    if (options->alone) {
        plan->batch = 1;
        samples = options->iterations ? (size_t)options->iterations : PERF_MAX_SAMPLES / 8;
        plan->samples = samples < PERF_MAX_SAMPLES ? samples : PERF_MAX_SAMPLES;
        return true;
    }
    for (pass = 0; pass < 2; pass++) {
        if (!perf_side_time(driver, side, samples, 1, batch, false, ns))
            return false;
        op_us = least(ns, samples) / (double)batch * 1e-3;
        batch = perf_batch_for(op_us, options->gpu ? GPU_SAMPLE_US : SAMPLE_US, MAX_BATCH);
        samples = op_us < 1000 ? PILOT_SAMPLES : 3;
    }
    plan->batch = batch;
    while (plan->warm > 1 && (double)plan->warm * op_us * (double)batch > WARM_US)
        plan->warm--;
    plan->samples = perf_sample_count(op_us, batch, options->round_ms * 1e3, PERF_MAX_SAMPLES / 2);
    if (options->iterations) {
        if (plan->batch > (size_t)options->iterations)
            plan->batch = (size_t)options->iterations;
        samples = ((size_t)options->iterations + plan->batch - 1) / plan->batch;
        plan->samples = samples < PERF_MAX_SAMPLES ? samples : PERF_MAX_SAMPLES;
    }
    return true;
}

static bool one_turn(perf_driver_t *driver, perf_side_t *side, const perf_options_t *options,
                     struct plan *plan)
{
    static double ns[PERF_MAX_SAMPLES];
    size_t i;

    if (!perf_side_time(driver, side, plan->samples, plan->warm, plan->batch, options->alone, ns))
        return false;
    for (i = 0; i < plan->samples; i++)
        if (!perf_samples_add(&plan->taken, ns[i] * 1e-3 / (double)plan->batch))
            return false;
    return true;
}

static void progress(const perf_side_t *side, const perf_case_t *c, long round, long rounds)
{
    char size[32];

    if (!isatty(STDERR_FILENO))
        return;
    fprintf(stderr, "\r\033[K# %s %s %s: %s, round %ld of %ld ", perf_op_name(c->op),
            perf_dtype_name(c->dtype), tool_format_size(perf_bytes(c, side->nranks), size),
            side->name, round + 1, rounds);
    fflush(stderr);
}

/* The bound's turn: the terms of this round, kept in order of their bound. */
static bool bound_turn(const perf_sol_t *sol, const perf_case_t *c, struct bounds *bounds)
{
    struct bounded now;
    int i;

    if (!sol || bounds->count == MAX_BOUNDS)
        return true;
    if (!perf_sol_measure(sol, c, &now.terms))
        return false;
    now.bound = perf_sol_bound(&now.terms, c, sol->side->nranks);
    for (i = bounds->count++; i > 0 && bounds->kept[i - 1].bound.us > now.bound.us; i--)
        bounds->kept[i] = bounds->kept[i - 1];
    bounds->kept[i] = now;
    return true;
}

static bool take_turns(perf_driver_t *driver, const perf_options_t *options, const perf_sol_t *sol,
                       const perf_case_t *c, const perf_result_t *results, struct plan *plans,
                       struct bounds *bounds)
{
    long round;
    int i;

    for (i = 0; i < driver->nsides; i++)
        if (results[i].setup.supported && !pilot(driver, &driver->sides[i], options, &plans[i]))
            return false;
    for (round = 0; round < options->rounds; round++) {
        if (!bound_turn(sol, c, bounds))
            return false;
        for (i = 0; i < driver->nsides; i++) {
            int turn = (i + (int)(round % driver->nsides)) % driver->nsides;

            if (!results[turn].setup.supported)
                continue;
            progress(&driver->sides[turn], c, round, options->rounds);
            if (!one_turn(driver, &driver->sides[turn], options, &plans[turn]))
                return false;
        }
    }
    return true;
}

bool perf_measure(perf_driver_t *driver, const perf_options_t *options, const perf_sol_t *sol,
                  const perf_case_t *c, perf_result_t *results, perf_bound_t *bound,
                  perf_terms_t *terms)
{
    struct plan plans[PERF_MAX_SIDES];
    struct bounds bounds;
    bool well = true;
    int i;

    memset(plans, 0, sizeof(plans));
    memset(results, 0, sizeof(*results) * (size_t)driver->nsides);
    for (i = 0; well && i < driver->nsides; i++) {
        progress(&driver->sides[i], c, -1, options->rounds);
        well = perf_side_setup(driver, &driver->sides[i], c, options->checks, &results[i].setup);
    }
    bounds.count = 0;
    well = well && take_turns(driver, options, sol, c, results, plans, &bounds);
    if (well && bounds.count) {
        *bound = bounds.kept[bounds.count / 2].bound;
        *terms = bounds.kept[bounds.count / 2].terms;
    }
    for (i = 0; i < driver->nsides; i++) {
        results[i].figures = perf_figures(&plans[i].taken);
        perf_samples_clear(&plans[i].taken);
        if (well)
            well = perf_side_clear(driver, &driver->sides[i]);
    }
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    return well;
}
