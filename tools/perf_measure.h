/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_measure.h: one point: verify on every side, then time all sides in turns.
 */
#ifndef SOL_TOOLS_PERF_MEASURE_H
#define SOL_TOOLS_PERF_MEASURE_H

#include "perf_driver.h"
#include "perf_options.h"
#include "perf_sol.h"
#include "perf_stats.h"

/** What one side gave at one point. */
typedef struct perf_result {
    perf_setup_t setup; /* supported or not, wrong elements, protocol */
    perf_figures_t figures;
} perf_result_t;

/**
 * results[i] for driver->sides[i]; *bound and *terms: those of the round whose bound is the median
 * (untouched if `sol` is NULL). False when a side failed (said on stderr).
 */
bool perf_measure(perf_driver_t *driver, const perf_options_t *options, const perf_sol_t *sol,
                  const perf_case_t *c, perf_result_t *results, perf_bound_t *bound,
                  perf_terms_t *terms);

#endif
