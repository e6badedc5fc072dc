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
    const app_library_t *libraries[2];
    int library_count; /**< 1 where the program was built without NCCL */
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
/** The largest of the ranks' values, on every rank. */
bool app_largest(double *value);

/** One row of results on rank 0's stdout. `extra` is JSON members with a leading comma, or "". */
void app_row(const char *program, const char *library, const char *mode, size_t bytes,
             perf_samples_t *samples, size_t wrong, const char *extra);

#endif
