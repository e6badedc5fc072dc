/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_stats.c: percentiles of the slowest rank (see perf_stats.h).
 */
#include "perf_stats.h"

#include "tool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool perf_samples_add(perf_samples_t *samples, double us)
{
    if (samples->count == samples->room) {
        size_t room = samples->room ? 2 * samples->room : 1024;
        double *grown = tool_calloc(room, sizeof(*grown));

        if (!grown)
            return false;
        if (samples->count)
            memcpy(grown, samples->us, samples->count * sizeof(*grown));
        tool_free(samples->us);
        samples->us = grown;
        samples->room = room;
    }
    samples->us[samples->count++] = us;
    samples->sorted = false;
    return true;
}

void perf_samples_clear(perf_samples_t *samples)
{
    tool_free(samples->us);
    memset(samples, 0, sizeof(*samples));
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double perf_percentile(perf_samples_t *samples, double percent)
{
    double rank;

    if (!samples->count)
        return 0;
    if (!samples->sorted) {
        qsort(samples->us, samples->count, sizeof(*samples->us), compare);
        samples->sorted = true;
    }
    rank = ceil(percent / 100 * (double)samples->count);
    if (rank < 1)
        rank = 1;
    if (rank > (double)samples->count)
        rank = (double)samples->count;
    return samples->us[(size_t)rank - 1];
}

perf_figures_t perf_figures(perf_samples_t *samples)
{
    perf_figures_t figures;

    figures.min = perf_percentile(samples, 0);
    figures.p50 = perf_percentile(samples, 50);
    figures.p99 = perf_percentile(samples, 99);
    figures.samples = samples->count;
    return figures;
}

void perf_take_slowest(double *slowest, const double *rank, size_t count)
{
    size_t i;

    for (i = 0; i < count; i++)
        if (rank[i] > slowest[i])
            slowest[i] = rank[i];
}

size_t perf_batch_for(double op_us, double sample_us, size_t maximum)
{
    double batch = op_us > 0 ? ceil(sample_us / op_us) : (double)maximum;

    if (batch < 1)
        return 1;
    return batch > (double)maximum ? maximum : (size_t)batch;
}

size_t perf_sample_count(double op_us, size_t batch, double round_us, size_t maximum)
{
    double count = op_us > 0 ? round_us / (op_us * (double)batch) : (double)maximum;

    if (count < 3)
        return 3;
    return count > (double)maximum ? maximum : (size_t)count;
}
