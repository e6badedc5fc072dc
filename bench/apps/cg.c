/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cg.c: conjugate gradients on a 3-D Poisson problem, one slab a GPU, host-launched: an iteration
 * is a halo exchange, three kernels and two all_reduces of 8 bytes, and a solve is one CUDA graph.
 * The same kernels run over NCCL and over solccl, in turns, and a third form is one kernel for the
 * whole solve, on solccl's device API. The solutions are compared bit by bit (two contributions
 * have one sum, whoever adds them), and the residual is computed afresh.
 *
 *   solccl run -n 2 app-cg [rounds]
 *
 * A row's figures are of one iteration. local_us is the iteration with no communication at all:
 * what is left if the exchange and the all_reduces took no time.
 */
#include "app.h"
#include "cg_persistent.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ITERATIONS = 4000 };

static const int grids[] = {16, 32, 48, 64, 96, 128, 192, 256};

static cg_slab_t slab;
static const app_library_t *library; /* NULL: no communication */
static int iterations;

/* The form that is one kernel: what it has beside the slab, which it shares but for p. */
static struct {
    app_library_t library; /* solccl's calls, under another name, for what is not timed */
    sol_dev_comm_t dev;
    cg_persistent_t state;
    double *p, *others_p;
    int ctas;
} one;

static size_t plane_points(void)
{
    return (size_t)slab.n * (size_t)slab.n;
}

static bool sum(double *scalar)
{
    return !library || library->all_reduce(scalar, 1);
}

static bool exchange(void)
{
    size_t plane = plane_points();
    double *own = slab.p + plane, *last = slab.p + plane * (size_t)slab.planes;

    if (!library)
        return true;
    return library->exchange(own, slab.p, app.rank - 1, last, last + plane,
                             app.rank + 1 < app.nranks ? app.rank + 1 : -1, plane);
}

static bool start(void *unused)
{
    (void)unused;
    return app_cuda(cg_start(&slab, app.stream), "start") && sum(&slab.scalars->rr[0]);
}

static bool iterate(int i)
{
    return exchange() && app_cuda(cg_multiply(&slab, app.stream), "multiply") &&
           sum(&slab.scalars->pq) && app_cuda(cg_update(&slab, i, app.stream), "update") &&
           sum(&slab.scalars->rr[(i + 1) % 2]) &&
           app_cuda(cg_direction(&slab, i, app.stream), "direction");
}

static bool solve(void *unused)
{
    bool ok = start(unused);
    int i;

    if (ok && library == &one.library)
        return app_cuda(
            cg_persistent(&one.dev, &slab, &one.state, one.ctas, iterations, app.stream), "solve");
    for (i = 0; i < iterations && ok; i++)
        ok = iterate(i);
    return ok;
}

static bool fetch(double *to, const double *from)
{
    return app_cuda(cudaStreamSynchronize(app.stream), "the solver") &&
           app_cuda(cudaMemcpy(to, from, sizeof(double), cudaMemcpyDeviceToHost), "a scalar");
}

/* How many iterations until the recursive residual has fallen to 1e-8, launched one by one. */
static bool count_iterations(void)
{
    double rr0, rr;

    if (!start(NULL) || !fetch(&rr0, &slab.scalars->rr[0]))
        return false;
    for (iterations = 0; iterations < MAX_ITERATIONS;) {
        if (!iterate(iterations) || !iterate(iterations + 1))
            return false;
        iterations += 2;
        if (!fetch(&rr, &slab.scalars->rr[0]))
            return false;
        if (!(rr > 1e-16 * rr0))
            return true;
    }
    fprintf(stderr, "rank %d: no convergence in %d iterations\n", app.rank, MAX_ITERATIONS);
    return false;
}

/* |b - A x| / |b|, from x alone. */
static bool residual(double *relative)
{
    double rr, bb;

    if (!start(NULL) || !fetch(&bb, &slab.scalars->rr[0]))
        return false;
    /* start has overwritten x: solve again, then check */
    if (!solve(NULL) || !app_cuda(cg_check_begin(&slab, app.stream), "check") || !exchange() ||
        !app_cuda(cg_check_end(&slab, app.stream), "check") || !sum(&slab.scalars->rr[0]) ||
        !fetch(&rr, &slab.scalars->rr[0]))
        return false;
    *relative = sqrt(rr / bb);
    return true;
}

static bool zeroed(void **memory, size_t bytes)
{
    return app_cuda(cudaMalloc(memory, bytes), "memory") &&
           app_cuda(cudaMemset(*memory, 0, bytes), "memory");
}

static bool make_one(size_t p_bytes)
{
    sol_dev_config_t config = SOL_DEV_CONFIG_INIT;
    int multiprocessors = 0;

    if (!app_cuda(
            cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, app.rank),
            "multiprocessors"))
        return false;
    one.ctas = cg_persistent_ctas(&slab, multiprocessors);
    config.channel[0].kind = SOL_CHANNEL_TAG;
    config.channel[0].sessions = one.ctas;
    config.channel[0].slot_bytes = 16;
    config.counters = 1;
    config.memory_bytes = p_bytes;
    if (sol_dev_comm_create(app.gpu, &config, &one.dev) != SOL_OK) {
        fprintf(stderr, "rank %d: %s\n", app.rank, sol_last_error(app.gpu));
        return false;
    }
    one.p = (double *)one.dev.memory.base[app.rank];
    one.others_p = slab.p;
    return zeroed((void **)&one.state.meeting, sizeof(unsigned)) &&
           zeroed((void **)&one.state.arrivals, sizeof(uint64_t)) &&
           zeroed((void **)&one.state.partial_pq, CG_BLOCKS * sizeof(double)) &&
           zeroed((void **)&one.state.partial_rr, CG_BLOCKS * sizeof(double));
}

static void free_one(void)
{
    cudaFree(one.state.meeting);
    cudaFree(one.state.arrivals);
    cudaFree(one.state.partial_pq);
    cudaFree(one.state.partial_rr);
    sol_dev_comm_destroy(app.gpu, &one.dev);
}

static bool make_slab(int n)
{
    size_t plane, bytes;
    double **vectors[] = {&slab.x, &slab.r, &slab.q, &slab.b};
    size_t i;

    memset(&slab, 0, sizeof(slab));
    slab.n = n;
    slab.planes = n / app.nranks;
    slab.first = app.rank * slab.planes;
    plane = plane_points();
    bytes = plane * (size_t)slab.planes * sizeof(double);
    for (i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        if (!app_cuda(cudaMalloc((void **)vectors[i], bytes), "a vector"))
            return false;
    return app_cuda(cudaMalloc((void **)&slab.p, bytes + 2 * plane * sizeof(double)), "p") &&
           app_cuda(cudaMalloc((void **)&slab.scalars, sizeof(cg_scalars_t)), "scalars") &&
           app_cuda(cudaMemset(slab.scalars, 0, sizeof(cg_scalars_t)), "scalars") &&
           app_cuda(cg_known(&slab, app.stream), "the known solution") &&
           app_cuda(cg_right_side(&slab, app.stream), "the right side") &&
           /* the outermost planes stay zero from here on */
           app_cuda(cudaMemsetAsync(slab.p, 0, bytes + 2 * plane * sizeof(double), app.stream),
                    "p") &&
           app_cuda(cudaStreamSynchronize(app.stream), "the problem") &&
           make_one(bytes + 2 * plane * sizeof(double));
}

static void free_slab(void)
{
    if (one.others_p)
        slab.p = one.others_p; /* not the device communicator's */
    free_one();
    one.others_p = NULL;
    cudaFree(slab.x);
    cudaFree(slab.r);
    cudaFree(slab.q);
    cudaFree(slab.b);
    cudaFree(slab.p);
    cudaFree(slab.scalars);
}

static double *first_solution;

/* The residual of this library's solution, and what differs from the first library's. */
static bool check(app_contender_t *contender, bool is_first)
{
    size_t count = plane_points() * (size_t)slab.planes;
    double *x = malloc(count * sizeof(double));
    bool ok =
        x && residual(&contender->residual) &&
        app_cuda(cudaMemcpy(x, slab.x, count * sizeof(double), cudaMemcpyDeviceToHost), "x") &&
        app_compare(x, first_solution, count, is_first, contender->residual < 1e-7,
                    &contender->wrong);

    free(x);
    return ok;
}

static void choose(const app_library_t *chosen)
{
    library = chosen;
    slab.p = chosen == &one.library ? one.p : one.others_p;
}

static void report(app_contender_t *all, int count)
{
    double local = count > 0 ? perf_figures(&all[count - 1].samples).p50 : 0;
    int i;

    for (i = 0; i < count - 1; i++) {
        char extra[256];

        snprintf(extra, sizeof(extra),
                 ", \"grid\": %d, \"iterations\": %d, \"relative_residual\": %.2e, "
                 "\"local_us\": %.3f, \"iterations_per_s\": %.0f",
                 slab.n, iterations, all[i].residual, local,
                 1e6 / perf_figures(&all[i].samples).p50);
        app_row("app-cg", all[i].library->name, "graph",
                plane_points() * (size_t)slab.n * sizeof(double), &all[i].samples, all[i].wrong,
                extra);
    }
}

static bool run_grid(int n, int rounds)
{
    app_contest_t contest = {choose, check, solve, 1, rounds, 4};
    app_contender_t all[APP_CONTENDERS];
    int count = 0;

    if (n % app.nranks != 0) {
        fprintf(stderr, "rank %d: %d planes cannot be split\n", app.rank, n);
        return false;
    }
    memset(all, 0, sizeof(all));
    library = app.libraries[0];
    if (make_slab(n) && count_iterations()) {
        first_solution = malloc(plane_points() * (size_t)slab.planes * sizeof(double));
        contest.per_run = iterations;
        count = first_solution ? app_contest(&contest, all) : 0;
    }
    report(all, count);
    app_contest_end(all);
    free(first_solution);
    first_solution = NULL;
    free_slab();
    return count > 0;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 3;
    size_t i;
    bool ok;

    if (rounds < 1 || rounds > 100) {
        fprintf(stderr, "usage: solccl run -n 2 app-cg [rounds, 1 to 100]\n");
        return 2;
    }
    ok = app_open();
    if (ok) {
        one.library = *app.libraries[app.library_count - 1];
        one.library.name = "solccl-persistent";
        app.libraries[app.library_count++] = &one.library;
    }
    for (i = 0; ok && i < sizeof(grids) / sizeof(grids[0]); i++)
        ok = run_grid(grids[i], rounds);
    app_close();
    return ok ? 0 : 1;
}
