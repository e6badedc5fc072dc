/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_chart.h: one plot of the report: latency against size, both logarithmic,
 * as inline SVG. Colours come from the page's style sheet (classes s0 ... s4 for
 * series, sb for the bound), so that the same drawing serves light and dark.
 */
#ifndef SOL_TOOLS_PERF_CHART_H
#define SOL_TOOLS_PERF_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define PERF_CHART_POINTS 128
#define PERF_CHART_SERIES 6

typedef struct perf_series {
    const char *name;
    bool bound; /**< dashed, without marks */
    int count;
    double bytes[PERF_CHART_POINTS], us[PERF_CHART_POINTS];
} perf_series_t;

/** Draw `count` series; the title is for those who cannot see the plot. */
void perf_chart_draw(FILE *file, const char *title, const perf_series_t *series, int count);
/** The mark of a series as a little picture, for the legend. */
void perf_chart_key(FILE *file, int index, bool bound);
/** Text with &, <, > and quotes made harmless. */
void perf_html_text(FILE *file, const char *text);

#endif
