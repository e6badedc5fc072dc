/* SPDX-License-Identifier: Apache-2.0 */
/*
 * app.c: see app.h. NCCL is linked where its header was found; without it the programs measure
 * solccl alone, and say so.
 */
#include "app.h"

#include "solccl_commit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef SOL_APPS_NCCL
#include <nccl.h>
#endif

app_t app;

/* ---------------------------------------------------------------- solccl */

static bool sol_ok(sol_status_t status, const char *what)
{
    if (status == SOL_OK)
        return true;
    fprintf(stderr, "rank %d: %s: %s\n", app.rank, what, sol_last_error(app.gpu));
    return false;
}

static bool sol_app_all_reduce(double *inout, size_t count)
{
    return sol_ok(sol_all_reduce(inout, inout, count, SOL_FLOAT64, SOL_SUM, app.gpu, app.stream),
                  "all_reduce");
}

static bool sol_app_broadcast(double *inout, size_t count, int root)
{
    return sol_ok(sol_broadcast(inout, inout, count, SOL_FLOAT64, root, app.gpu, app.stream),
                  "broadcast");
}

static bool sol_app_exchange(const double *to_below, double *from_below, int below,
                             const double *to_above, double *from_above, int above, size_t count)
{
    sol_group_start();
    if (below >= 0) {
        sol_send(to_below, count, SOL_FLOAT64, below, app.gpu, app.stream);
        sol_recv(from_below, count, SOL_FLOAT64, below, app.gpu, app.stream);
    }
    if (above >= 0) {
        sol_send(to_above, count, SOL_FLOAT64, above, app.gpu, app.stream);
        sol_recv(from_above, count, SOL_FLOAT64, above, app.gpu, app.stream);
    }
    return sol_ok(sol_group_end(), "exchange");
}

static const app_library_t library_solccl = {"solccl", sol_app_all_reduce, sol_app_broadcast,
                                             sol_app_exchange};

static bool open_solccl(void)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;

    config.backend = SOL_BACKEND_CUDA;
    if (sol_comm_create_from_env(&app.gpu, &config) != SOL_OK) {
        fprintf(stderr, "rank %d: %s\n", app.rank, sol_last_error(NULL));
        return false;
    }
    app.libraries[app.library_count++] = &library_solccl;
    return true;
}

/* ------------------------------------------------------------------ NCCL */

#ifdef SOL_APPS_NCCL
static ncclComm_t nccl;

static bool nccl_ok(ncclResult_t result, const char *what)
{
    if (result == ncclSuccess)
        return true;
    fprintf(stderr, "rank %d: %s: %s\n", app.rank, what, ncclGetErrorString(result));
    return false;
}

static bool nccl_app_all_reduce(double *inout, size_t count)
{
    return nccl_ok(ncclAllReduce(inout, inout, count, ncclFloat64, ncclSum, nccl, app.stream),
                   "ncclAllReduce");
}

static bool nccl_app_broadcast(double *inout, size_t count, int root)
{
    return nccl_ok(ncclBroadcast(inout, inout, count, ncclFloat64, root, nccl, app.stream),
                   "ncclBroadcast");
}

static bool nccl_app_exchange(const double *to_below, double *from_below, int below,
                              const double *to_above, double *from_above, int above, size_t count)
{
    ncclGroupStart();
    if (below >= 0) {
        ncclSend(to_below, count, ncclFloat64, below, nccl, app.stream);
        ncclRecv(from_below, count, ncclFloat64, below, nccl, app.stream);
    }
    if (above >= 0) {
        ncclSend(to_above, count, ncclFloat64, above, nccl, app.stream);
        ncclRecv(from_above, count, ncclFloat64, above, nccl, app.stream);
    }
    return nccl_ok(ncclGroupEnd(), "ncclGroupEnd");
}

static const app_library_t library_nccl = {"nccl", nccl_app_all_reduce, nccl_app_broadcast,
                                           nccl_app_exchange};

static bool open_nccl(void)
{
    ncclUniqueId id;

    memset(&id, 0, sizeof(id));
    if (app.rank == 0 && !nccl_ok(ncclGetUniqueId(&id), "ncclGetUniqueId"))
        return false;
    if (!sol_ok(sol_broadcast(&id, &id, sizeof(id), SOL_UINT8, 0, app.host, NULL), "the id") ||
        !nccl_ok(ncclCommInitRank(&nccl, app.nranks, id, app.rank), "ncclCommInitRank"))
        return false;
    app.libraries[app.library_count++] = &library_nccl;
    return true;
}
#endif

/* ------------------------------------------------------------------ ranks */

bool app_cuda(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return true;
    fprintf(stderr, "rank %d: %s: %s\n", app.rank, what, cudaGetErrorString(error));
    return false;
}

bool app_open(void)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    int devices = 0;

    config.backend = SOL_BACKEND_CPU;
    if (sol_comm_create_from_env(&app.host, &config) != SOL_OK) {
        fprintf(stderr, "%s\n", sol_last_error(NULL));
        return false;
    }
    sol_comm_rank(app.host, &app.rank);
    sol_comm_size(app.host, &app.nranks);
    if (!app_cuda(cudaGetDeviceCount(&devices), "GPUs"))
        return false;
    if (devices < app.nranks) {
        fprintf(stderr, "rank %d: %d ranks need as many GPUs, there are %d\n", app.rank, app.nranks,
                devices);
        return false;
    }
    if (!app_cuda(cudaSetDevice(app.rank), "cudaSetDevice") ||
        !app_cuda(cudaStreamCreateWithFlags(&app.stream, cudaStreamNonBlocking), "a stream"))
        return false;
#ifdef SOL_APPS_NCCL
    if (!open_nccl())
        return false;
#else
    if (app.rank == 0)
        fprintf(stderr, "built without NCCL: solccl is measured alone\n");
#endif
    return open_solccl();
}

void app_close(void)
{
    sol_comm_destroy(app.gpu);
#ifdef SOL_APPS_NCCL
    if (nccl)
        ncclCommDestroy(nccl);
#endif
    cudaStreamDestroy(app.stream);
    sol_comm_destroy(app.host);
}

/* ---------------------------------------------------------------- figures */

bool app_capture(cudaGraphExec_t *graph, bool (*body)(void *), void *context)
{
    cudaGraph_t captured = NULL;
    bool ok;

    if (!app_cuda(cudaStreamBeginCapture(app.stream, cudaStreamCaptureModeThreadLocal), "capture"))
        return false;
    ok = body(context);
    ok &= app_cuda(cudaStreamEndCapture(app.stream, &captured), "end of capture");
    ok = ok && app_cuda(cudaGraphInstantiate(graph, captured, 0), "cudaGraphInstantiate");
    if (captured)
        cudaGraphDestroy(captured);
    return ok;
}

bool app_largest(double *value)
{
    return sol_ok(sol_all_reduce(value, value, 1, SOL_FLOAT64, SOL_MAX, app.host, NULL), "agree");
}

bool app_time(cudaGraphExec_t graph, int times, double *us)
{
    struct timespec begin, end;
    int i;

    if (!app_cuda(cudaStreamSynchronize(app.stream), "before the time is taken") ||
        !sol_ok(sol_barrier(app.host, NULL), "barrier"))
        return false;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (i = 0; i < times; i++)
        if (!app_cuda(cudaGraphLaunch(graph, app.stream), "cudaGraphLaunch"))
            return false;
    if (!app_cuda(cudaStreamSynchronize(app.stream), "the work"))
        return false;
    clock_gettime(CLOCK_MONOTONIC, &end);
    *us = (double)(end.tv_sec - begin.tv_sec) * 1e6 + (double)(end.tv_nsec - begin.tv_nsec) / 1e3;
    return app_largest(us);
}

/* ------------------------------------------------------------- contenders */

static bool prepare(const app_contest_t *contest, app_contender_t *all, int count)
{
    int i;

    for (i = 0; i < count; i++) {
        contest->choose(all[i].library);
        if (all[i].library && !contest->check(&all[i], i == 0))
            return false;
        if (!app_capture(&all[i].graph, contest->body, NULL))
            return false;
    }
    return true;
}

static bool sample(const app_contest_t *contest, app_contender_t *contender)
{
    enum { RUNS = 3 };
    double us;

    return app_time(contender->graph, RUNS, &us) &&
           perf_samples_add(&contender->samples, us / RUNS / contest->per_run);
}

int app_contest(const app_contest_t *contest, app_contender_t *all)
{
    int count = app.library_count + 1, round, i, k;

    memset(all, 0, APP_CONTENDERS * sizeof(*all));
    for (i = 0; i < app.library_count; i++)
        all[i].library = app.libraries[i];
    if (!prepare(contest, all, count))
        return 0;
    for (round = 0; round < contest->rounds; round++)
        for (i = 0; i < count; i++)
            for (k = 0; k < contest->samples; k++)
                if (!sample(contest, &all[(round + i) % count]))
                    return 0;
    return count;
}

void app_contest_end(app_contender_t *all)
{
    int i;

    for (i = 0; i < APP_CONTENDERS; i++) {
        if (all[i].graph)
            cudaGraphExecDestroy(all[i].graph);
        perf_samples_clear(&all[i].samples);
    }
}

bool app_compare(const double *mine, double *first, size_t count, bool is_first, bool right,
                 size_t *wrong)
{
    double different = right ? 0 : (double)count;
    size_t i;

    if (is_first)
        memcpy(first, mine, count * sizeof(double));
    for (i = 0; right && i < count; i++)
        different += memcmp(&first[i], &mine[i], sizeof(double)) != 0;
    if (!app_largest(&different))
        return false;
    *wrong = (size_t)different;
    return true;
}

/* ------------------------------------------------------------------- rows */

static void versions(char *text, size_t bytes)
{
    int used = snprintf(text, bytes, "{\"commit\": \"%s\"", SOLCCL_COMMIT);
#ifdef SOL_APPS_NCCL
    int version = 0;

    ncclGetVersion(&version);
    used += snprintf(text + used, bytes - (size_t)used, ", \"nccl\": \"NCCL %d.%d.%d\"",
                     version / 10000, version / 100 % 100, version % 100);
#endif
    snprintf(text + used, bytes - (size_t)used, "}");
}

void app_row(const char *program, const char *library, const char *mode, size_t bytes,
             perf_samples_t *samples, size_t wrong, const char *extra)
{
    perf_figures_t figures = perf_figures(samples);
    struct cudaDeviceProp properties;
    char date[32], versions_text[256];
    static char run[32];
    time_t now = time(NULL);
    struct tm utc;

    if (app.rank != 0)
        return;
    gmtime_r(&now, &utc);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &utc);
    if (!run[0])
        strftime(run, sizeof(run), "%Y%m%dT%H%M%S", &utc);
    versions(versions_text, sizeof(versions_text));
    if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess)
        snprintf(properties.name, sizeof(properties.name), "unknown");
    printf("{\"run\": \"%s-%s\", \"date\": \"%s\", \"device\": \"%d x %s\", \"versions\": %s, "
           "\"command\": \"solccl run -n %d %s\", \"library\": \"%s\", \"ranks\": %d, "
           "\"processes\": %d, \"op\": \"%s\", \"dtype\": \"float64\", \"bytes\": %zu, "
           "\"mode\": \"%s\", \"us_min\": %.3f, \"us_p50\": %.3f, \"us_p99\": %.3f, "
           "\"samples\": %zu, \"wrong\": %zu%s}\n",
           program, run, date, app.nranks, properties.name, versions_text, app.nranks, program,
           library, app.nranks, app.nranks, program, bytes, mode, figures.min, figures.p50,
           figures.p99, figures.samples, wrong, extra);
    fflush(stdout);
}
