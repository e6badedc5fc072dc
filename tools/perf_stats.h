/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_stats.h: from samples to figures. Pure.
 *
 * A sample is the time of `batch` operations back to back on one rank. The
 * figure of a sample is that of its slowest rank, divided by the batch; p50, p99
 * and min are taken over all samples of all rounds.
 */
#ifndef SOL_TOOLS_PERF_STATS_H
#define SOL_TOOLS_PERF_STATS_H

#include <stdbool.h>
#include <stddef.h>

/** A growing list of figures in microseconds per operation. Start from all zero. */
typedef struct perf_samples {
    double *us;
    size_t count, room;
    bool sorted;
} perf_samples_t;

typedef struct perf_figures {
    double min, p50, p99;
    size_t samples;
} perf_figures_t;

bool perf_samples_add(perf_samples_t *samples, double us);
void perf_samples_clear(perf_samples_t *samples);
/** Nearest rank: the smallest sample that at least `percent` of all do not exceed; 0 if none. */
double perf_percentile(perf_samples_t *samples, double percent);
perf_figures_t perf_figures(perf_samples_t *samples);

/** Keep the larger of each pair: `slowest` and `rank` hold one time per sample index. */
void perf_take_slowest(double *slowest, const double *rank, size_t count);

/** How many operations make one sample of at least `sample_us`, 1 at least. */
size_t perf_batch_for(double op_us, double sample_us, size_t maximum);
/** How many samples fill `round_us`: within 3 and `maximum`. */
size_t perf_sample_count(double op_us, size_t batch, double round_us, size_t maximum);

#endif
