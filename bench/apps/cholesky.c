/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cholesky.c: Cholesky factorisation, block-column cyclic over the GPUs, with look-ahead: while the
 * trailing matrix is updated on one stream, the next panel is brought up to date, factored and
 * broadcast on another. At these sizes the panels are the critical path, and the broadcast a good
 * part of it. One factorisation is one CUDA graph; the products are cuBLAS's. The same program runs
 * over NCCL and over solccl, in turns; factors are compared bit by bit and against the matrix.
 *
 *   solccl run -n 2 app-cholesky [rounds]
 *
 * A row's figures are of one factorisation. local_us is without any broadcast: what is left if it
 * took no time (its result is not a factor).
 */
#include "app.h"
#include "cholesky_kernels.h"

#include <cublas_v2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NB = CHOLESKY_NB, WORKSPACE = 32 << 20 };

static const int orders[] = {512, 1024, 2048, 4096, 8192};

static struct {
    int n, blocks, own;      /* order, block columns in all, block columns of this rank */
    double *original, *a;    /* this rank's block columns: as made, and as they are worked on */
    double *factor;          /* all panels, one behind the other, each with its own rows only */
    cudaStream_t update;     /* the trailing matrix; panels are on app.stream */
    cudaEvent_t panel, done; /* of the last broadcast; of the last trailing update */
    cublasHandle_t on_panel, on_update;
    void *workspaces[2];
} w;

static const app_library_t *library; /* NULL: no broadcast */

static bool blas(cublasStatus_t status, const char *what)
{
    if (status != CUBLAS_STATUS_SUCCESS)
        fprintf(stderr, "rank %d: %s: %s\n", app.rank, what, cublasGetStatusString(status));
    return status == CUBLAS_STATUS_SUCCESS;
}

static int owner(int block)
{
    return block % app.nranks;
}

static int rows_from(int block)
{
    return w.n - block * NB;
}

static double *panel_at(int block)
{
    size_t k = (size_t)block;

    return w.factor + NB * (k * (size_t)w.n - NB * (k * (k > 0 ? k - 1 : 0) / 2));
}

/* The rows from block row `row` on of this rank's block column `block`. */
static double *column_at(int row, int block)
{
    return w.a + (size_t)(block / app.nranks) * NB * (size_t)w.n + (size_t)row * NB;
}

/* Subtract panel k's part from `count` block columns of this rank, `block` and every nranks-th
 * after it, rows from block row `block` on. */
static bool subtract(cublasHandle_t handle, int k, int block, int count)
{
    const double minus = -1, one = 1;
    int rows = rows_from(block), ld = rows_from(k);
    const double *left = panel_at(k) + (size_t)(block - k) * NB;

    if (count < 1)
        return true;
    return blas(cublasDgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_T, rows, NB, NB, &minus,
                                          left, ld, 0, left, ld, (long long)app.nranks * NB, &one,
                                          column_at(block, block), w.n, (long long)NB * w.n, count),
                "cublasDgemmStridedBatched");
}

/* The first block column of this rank from `block` on, and how many there are. */
static int first_own(int block, int *count)
{
    int first = block + (app.rank - block % app.nranks + app.nranks) % app.nranks;

    *count = first < w.blocks ? (w.blocks - first + app.nranks - 1) / app.nranks : 0;
    return first;
}

static bool step(int k)
{
    size_t count = (size_t)rows_from(k) * NB;
    int first, columns;

    if (owner(k) == app.rank &&
        !app_cuda(cholesky_panel(column_at(k, k), w.n, rows_from(k), panel_at(k), app.stream),
                  "a panel"))
        return false;
    if (library && !library->broadcast(panel_at(k), count, owner(k)))
        return false;
    if (!app_cuda(cudaEventRecord(w.panel, app.stream), "event"))
        return false;
    if (k + 1 < w.blocks && owner(k + 1) == app.rank) { /* look ahead */
        if ((k > 0 && !app_cuda(cudaStreamWaitEvent(app.stream, w.done, 0), "wait")) ||
            !subtract(w.on_panel, k, k + 1, 1))
            return false;
    }
    first = first_own(k + 2, &columns);
    return app_cuda(cudaStreamWaitEvent(w.update, w.panel, 0), "wait") &&
           subtract(w.on_update, k, first, columns) &&
           app_cuda(cudaEventRecord(w.done, w.update), "event");
}

static bool factorise(void *unused)
{
    size_t bytes = (size_t)w.own * NB * (size_t)w.n * sizeof(double);
    int k;

    (void)unused;
    if (bytes > 0 &&
        !app_cuda(cudaMemcpyAsync(w.a, w.original, bytes, cudaMemcpyDeviceToDevice, app.stream),
                  "the matrix"))
        return false;
    for (k = 0; k < w.blocks; k++)
        if (!step(k))
            return false;
    return app_cuda(cudaStreamWaitEvent(app.stream, w.done, 0), "join");
}

/* ----------------------------------------------------------------- the problem */

static bool handle(cublasHandle_t *made, cudaStream_t stream, void **workspace)
{
    /* a workspace of its own: nothing is allocated in a capture */
    return blas(cublasCreate(made), "cublasCreate") &&
           app_cuda(cudaMalloc(workspace, WORKSPACE), "a workspace") &&
           blas(cublasSetStream(*made, stream), "cublasSetStream") &&
           blas(cublasSetWorkspace(*made, *workspace, WORKSPACE), "cublasSetWorkspace");
}

static bool open_problem(void)
{
    return app_cuda(cudaStreamCreateWithFlags(&w.update, cudaStreamNonBlocking), "a stream") &&
           app_cuda(cudaEventCreateWithFlags(&w.panel, cudaEventDisableTiming), "an event") &&
           app_cuda(cudaEventCreateWithFlags(&w.done, cudaEventDisableTiming), "an event") &&
           handle(&w.on_panel, app.stream, &w.workspaces[0]) &&
           handle(&w.on_update, w.update, &w.workspaces[1]);
}

static bool make_matrix(int n)
{
    size_t column = (size_t)n * NB * sizeof(double);
    int columns;

    w.n = n;
    w.blocks = n / NB;
    first_own(0, &columns);
    w.own = columns;
    return app_cuda(cudaMalloc((void **)&w.original, column * (size_t)w.own), "the matrix") &&
           app_cuda(cudaMalloc((void **)&w.a, column * (size_t)w.own), "the work matrix") &&
           app_cuda(cudaMalloc((void **)&w.factor, (size_t)n * (size_t)(n + NB) / 2 * 8), "L") &&
           app_cuda(cholesky_matrix(w.original, n, app.rank, app.nranks, w.own, app.stream), "A") &&
           app_cuda(cudaStreamSynchronize(app.stream), "the matrix");
}

static void free_matrix(void)
{
    cudaFree(w.original);
    cudaFree(w.a);
    cudaFree(w.factor);
    w.original = w.a = w.factor = NULL;
}

/* |A - L L'| / |A| over the blocks from the diagonal down, from the matrix made afresh. */
static bool residual(double *relative)
{
    size_t square = (size_t)w.n * (size_t)w.n * sizeof(double);
    const double minus = -1, one = 1;
    double *a = NULL, above = 0, below = 0, part;
    bool ok = app_cuda(cudaMalloc((void **)&a, square), "the check's matrix") &&
              app_cuda(cholesky_matrix(a, w.n, 0, 1, w.blocks, app.stream), "A");
    int k, j;

    for (k = 0; ok && k < w.blocks; k++) { /* norms first: A is overwritten next */
        for (j = 0; ok && j < NB; j++) {
            size_t at = (size_t)(k * NB + j) * (size_t)w.n + (size_t)k * NB;

            ok = blas(cublasDnrm2(w.on_panel, rows_from(k), a + at, 1, &part), "cublasDnrm2");
            below += part * part;
        }
    }
    for (k = 0; ok && k < w.blocks; k++)
        for (j = k; ok && j < w.blocks; j++)
            ok = blas(cublasDgemm(w.on_panel, CUBLAS_OP_N, CUBLAS_OP_T, rows_from(j), NB, NB,
                                  &minus, panel_at(k) + (size_t)(j - k) * NB, rows_from(k),
                                  panel_at(k) + (size_t)(j - k) * NB, rows_from(k), &one,
                                  a + (size_t)j * NB * (size_t)w.n + (size_t)j * NB, w.n),
                      "cublasDgemm");
    for (k = 0; ok && k < w.n; k++) {
        size_t first = (size_t)(k / NB) * NB;

        ok = blas(cublasDnrm2(w.on_panel, w.n - (int)first, a + (size_t)k * (size_t)w.n + first, 1,
                              &part),
                  "cublasDnrm2");
        above += part * part;
    }
    cudaFree(a);
    *relative = above / below; /* of the squares */
    return ok;
}

static double *first_factor;

/* Factor once, without a graph: the residual, and what differs from the first library's factor. */
static bool check(app_contender_t *contender, bool is_first)
{
    size_t count = (size_t)w.n * (size_t)(w.n + NB) / 2;
    double *l = malloc(count * sizeof(double));
    bool ok = l && app_cuda(cudaMemset(w.factor, 0xff, count * 8), "a NaN in every element") &&
              factorise(NULL) && app_cuda(cudaStreamSynchronize(app.stream), "factorise") &&
              app_cuda(cudaMemcpy(l, w.factor, count * 8, cudaMemcpyDeviceToHost), "L") &&
              residual(&contender->residual) &&
              app_compare(l, first_factor, count, is_first,
                          contender->residual < 1e-24 /* 1e-12, squared */, &contender->wrong);

    free(l);
    return ok;
}

static void choose(const app_library_t *chosen)
{
    library = chosen;
}

static void report(app_contender_t *all, int count)
{
    double local = count > 0 ? perf_figures(&all[count - 1].samples).p50 : 0;
    int i;

    for (i = 0; i < count - 1; i++) {
        double us = perf_figures(&all[i].samples).p50, n = w.n;
        char extra[256];

        snprintf(extra, sizeof(extra),
                 ", \"order\": %d, \"block\": %d, \"residual_squared\": %.2e, \"local_us\": %.3f, "
                 "\"gflops\": %.0f",
                 w.n, (int)NB, all[i].residual, local, n * n * n / 3 / us / 1e3);
        app_row("app-cholesky", all[i].library->name, "graph",
                (size_t)w.n * (size_t)w.n * sizeof(double), &all[i].samples, all[i].wrong, extra);
    }
}

static bool run_order(int n, int rounds)
{
    const app_contest_t contest = {choose, check, factorise, 1, rounds, 5};
    app_contender_t all[APP_CONTENDERS];
    int count = 0;

    memset(all, 0, sizeof(all));
    first_factor = malloc((size_t)n * (size_t)(n + NB) / 2 * sizeof(double));
    if (first_factor && make_matrix(n))
        count = app_contest(&contest, all);
    report(all, count);
    app_contest_end(all);
    free(first_factor);
    free_matrix();
    return count > 0;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 3;
    size_t i;
    bool ok;

    if (rounds < 1 || rounds > 100) {
        fprintf(stderr, "usage: solccl run -n 2 app-cholesky [rounds, 1 to 100]\n");
        return 2;
    }
    ok = app_open() && open_problem();
    for (i = 0; ok && i < sizeof(orders) / sizeof(orders[0]); i++)
        ok = run_order(orders[i], rounds);
    app_close();
    return ok ? 0 : 1;
}
