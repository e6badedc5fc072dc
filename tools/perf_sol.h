/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_sol.h: the speed-of-light bound of CPU ranks: measured terms, and the
 * bound for each operation and size (docs/speed-of-light.md derives it).
 *
 *     sol = hops * L + moved / B_move + reduced / B_reduce + local / B_local
 *
 * L is the one-way time of a cache line between two cores, the worst pair of
 * those that run ranks; the bandwidths are per rank with all ranks at work, the
 * best way found, for as many bytes as the operation moves. The bytes are those
 * that the rank with the most to do must handle whatever the algorithm; where
 * algorithms differ the least bound counts.
 *
 * The machine changes under a long run (a virtual CPU moves, a neighbour comes),
 * so the terms of a point are measured in its rounds, in turns with the libraries.
 */
#ifndef SOL_TOOLS_PERF_SOL_H
#define SOL_TOOLS_PERF_SOL_H

#include "perf_driver.h"

#define PERF_SOL_SIZES 8

typedef struct perf_terms {
    double line_us; /**< one way, worst pair */
    int sizes;      /**< how many of the next are filled, ascending */
    size_t bytes[PERF_SOL_SIZES];
    double move_gbs[PERF_SOL_SIZES];   /**< from another core's writes to own memory */
    double reduce_gbs[PERF_SOL_SIZES]; /**< the same, added to own data on the way */
    double local_gbs[PERF_SOL_SIZES];  /**< from own to own memory */
    double ranks_per_cpu;              /**< 1 or more: ranks that share a CPU share its bandwidth */
} perf_terms_t;

typedef struct perf_bound {
    double us;
    int hops;
    double moved, reduced, local;           /**< bytes */
    double move_gbs, reduce_gbs, local_gbs; /**< bandwidths that were used */
} perf_bound_t;

/** What measuring needs to know of the ranks; perf_sol_open fills it. */
typedef struct perf_sol {
    perf_driver_t *driver;
    perf_side_t *side;
    const int *cpus; /**< distinct; rank r's while there are enough */
    int slots;       /**< ranks that measure: one for each CPU in use */
    size_t largest;  /**< bytes that a slot's memory holds */
    int worst[2];    /**< the pair of ranks with the longest way */
    double ranks_per_cpu;
} perf_sol_t;

/** Give the ranks of `side` memory to measure with, and find the worst pair. */
bool perf_sol_open(perf_sol_t *sol, perf_driver_t *driver, perf_side_t *side, const int *cpus,
                   int ncpus, size_t largest);
/** Terms for all sizes, thoroughly: to be shown once. */
bool perf_sol_survey(const perf_sol_t *sol, perf_terms_t *terms);
/** Terms for one case, quickly (some ms): for each of its rounds. */
bool perf_sol_measure(const perf_sol_t *sol, const perf_case_t *c, perf_terms_t *terms);

/** The highest bandwidth measured at `bytes` or more (the largest size's beyond). */
double perf_sol_bandwidth(const perf_terms_t *terms, const double *gbs, double bytes);

perf_bound_t perf_sol_bound(const perf_terms_t *terms, const perf_case_t *c, int nranks);

#endif
