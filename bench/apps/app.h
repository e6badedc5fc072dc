/* SPDX-License-Identifier: Apache-2.0 */
/*
 * app.h: what the programs of bench/apps share: ranks that have a communicator of solccl and one of
 * NCCL on the same GPUs, one table of calls for both, samples in turns, and rows in the format of
 * the other results. The programs decide nothing by library: each calls the table.
 *
 * Every function that can fail prints why, with the rank, and returns false; main then returns 1.
 */
#ifndef SOL_APPS_APP_H
#define SOL_APPS_APP_H

#include <cuda_runtime_api.h>
#include <solccl/solccl.h>
#include <stdbool.h>
#include <stddef.h>

#include "perf_stats.h"

/** One library's calls: float64, enqueued on app.stream, which may be capturing. */
typedef struct app_library {
    const char *name; /**< as in results: nccl, solccl */
    bool (*all_reduce)(double *inout, size_t count);
    bool (*broadcast)(double *inout, size_t count, int root);
    /** With both neighbours at once; an absent neighbour (-1) is left out. */
    bool (*exchange)(const double *to_below, double *from_below, int below, const double *to_above,
                     double *from_above, int above, size_t count);
} app_library_t;

typedef struct app {
    int rank, nranks;
    cudaStream_t stream;
    sol_comm_t host; /**< CPU ranks: agreement between the processes, outside of what is timed */
    sol_comm_t gpu;  /**< solccl's communicator of the GPU ranks */
    const app_library_t *libraries[3];
    int library_count; /**< NCCL where the program was built with it, solccl, what a program adds */
} app_t;

extern app_t app;

/** Join as a rank of the launcher (`solccl run`), one GPU a rank; make both communicators. */
bool app_open(void);
void app_close(void);

bool app_cuda(cudaError_t error, const char *what);
/** A graph of what `body` enqueues on app.stream. */
bool app_capture(cudaGraphExec_t *graph, bool (*body)(void *), void *context);
/** Launch `graph` `times` times and wait: the slowest rank's microseconds for all of it. Every
 * rank starts behind a barrier of the processes. */
bool app_time(cudaGraphExec_t graph, int times, double *us);
/**
 * One way to run the program's graph: over a library, or (library NULL, always the last of a
 * program's contenders) with no communication.
 */
typedef struct app_contender {
    const app_library_t *library;
    cudaGraphExec_t graph;
    perf_samples_t samples;
    double residual; /**< of this library's answer, as the program defines it */
    size_t wrong;    /**< elements of the answer that are not the first library's, or not right */
} app_contender_t;

enum { APP_CONTENDERS = 4 };

/** What a program does for each contender, in turn. */
typedef struct app_contest {
    void (*choose)(const app_library_t *library);          /**< whom `body` calls from now on */
    bool (*check)(app_contender_t *contender, bool first); /**< run once; not for the last */
    bool (*body)(void *);                                  /**< enqueue one run */
    double per_run;      /**< figures are a run's time over this */
    int rounds, samples; /**< rounds of so many samples each */
} app_contest_t;

/** Check, capture and measure all contenders, their order rotating from round to round; how many
 * there are, or 0 when something failed. Free them with app_contest_end in either case. */
int app_contest(const app_contest_t *contest, app_contender_t *all);
void app_contest_end(app_contender_t *all);
/** How many of `mine` are not bitwise `first`, of `count`; the largest of any rank. With `first`
 * still unset (`is_first`) it is written. `right` false makes all of them wrong. */
bool app_compare(const double *mine, double *first, size_t count, bool is_first, bool right,
                 size_t *wrong);

/** The largest of the ranks' values, on every rank. */
bool app_largest(double *value);

/** One row of results on rank 0's stdout. `extra` is JSON members with a leading comma, or "". */
void app_row(const char *program, const char *library, const char *mode, size_t bytes,
             perf_samples_t *samples, size_t wrong, const char *extra);

#endif
