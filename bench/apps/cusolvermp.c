/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cusolvermp.c: somebody else's library, unmodified: NVIDIA's cuSOLVERMp factors a matrix
 * (Cholesky) over all GPUs and calls NCCL as it pleases. Once over NCCL, once with
 * libsolccl-nccl.so preloaded, in turns; nothing here or there knows of solccl. Answers are checked
 * by solving with the factor.
 *
 *   app-cusolvermp --dropin LIBSOLCCL-NCCL.SO [--ranks N] [--rounds N]
 *
 * The program starts its ranks itself, as new processes, since a preload counts from a process's
 * beginning. Each rank has TIME_LIMIT seconds. A row's figures are of one factorisation on the
 * slowest rank, with the host's clock: cuSOLVERMp synchronises inside, so there is no graph.
 */
#include "perf_stats.h"
#include "solccl_commit.h"

#include <cuda_runtime_api.h>
#include <cusolverMp.h>
#include <errno.h>
#include <limits.h>
#include <nccl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 128, REPETITIONS = 7, RANKS = 8, ROUNDS = 20, TIME_LIMIT = 90 };

static const int orders[] = {512, 1024, 2048, 4096, 8192};
enum { ORDERS = sizeof(orders) / sizeof(orders[0]), WAYS = 2 };

/* What a rank tells the program that started it; less than PIPE_BUF, so it arrives whole. */
struct sample {
    int order, repetition; /* indices */
    double us, residual;
};

/* ----------------------------------------------------------------- a rank */

static struct {
    int rank, nranks, id_in, id_out, out;
    cudaStream_t stream;
    ncclComm_t comm;
    cusolverMpHandle_t solver;
    cusolverMpGrid_t grid;
    float *meeting;
} r;

static struct {
    int64_t n, columns; /* order; this rank's columns */
    double *original, *a, *b;
    cusolverMpMatrixDescriptor_t of_a, of_b;
    void *device_work, *host_work;
    size_t device_bytes, host_bytes;
    int *info;
} p;

static bool said(bool good, const char *what, int code)
{
    if (!good)
        fprintf(stderr, "rank %d: %s: error %d\n", r.rank, what, code);
    return good;
}

static bool cuda(cudaError_t error, const char *what)
{
    return said(error == cudaSuccess, what, (int)error);
}

static bool nccl(ncclResult_t result, const char *what)
{
    return said(result == ncclSuccess, what, (int)result);
}

static bool solver(cusolverStatus_t status, const char *what)
{
    return said(status == CUSOLVER_STATUS_SUCCESS, what, (int)status);
}

/* All ranks have come, and this one's GPU is idle. */
static bool meet(void)
{
    return nccl(ncclAllReduce(r.meeting, r.meeting, 1, ncclFloat, ncclSum, r.comm, r.stream),
                "ncclAllReduce") &&
           cuda(cudaStreamSynchronize(r.stream), "synchronize");
}

/* Rank 0 writes the id once for each of the others, who read one each. */
static bool share_id(ncclUniqueId *id)
{
    if (r.rank == 0 && !nccl(ncclGetUniqueId(id), "ncclGetUniqueId"))
        return false;
    for (int i = 1; r.rank == 0 && i < r.nranks; i++)
        if (write(r.id_out, id, sizeof(*id)) != (ssize_t)sizeof(*id))
            return said(false, "the id's pipe", errno);
    close(r.id_out);
    return r.rank == 0 ||
           said(read(r.id_in, id, sizeof(*id)) == (ssize_t)sizeof(*id), "the id", errno);
}

static bool open_rank(void)
{
    ncclUniqueId id;
    int devices = 0;

    return cuda(cudaGetDeviceCount(&devices), "devices") &&
           cuda(cudaSetDevice(r.rank % (devices > 0 ? devices : 1)), "cudaSetDevice") &&
           cuda(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking), "a stream") &&
           cuda(cudaMalloc((void **)&r.meeting, sizeof(float)), "memory") &&
           cuda(cudaMemset(r.meeting, 0, sizeof(float)), "memory") && share_id(&id) &&
           nccl(ncclCommInitRank(&r.comm, r.nranks, id, r.rank), "ncclCommInitRank") && meet() &&
           solver(cusolverMpCreate(&r.solver, r.rank % devices, r.stream), "cusolverMpCreate") &&
           solver(cusolverMpCreateDeviceGrid(r.solver, &r.grid, r.comm, 1, r.nranks,
                                             CUSOLVERMP_GRID_MAPPING_COL_MAJOR),
                  "cusolverMpCreateDeviceGrid");
}

/* Symmetric, of noise from the place alone, and so heavy on its diagonal that it is definite. */
static double element(int64_t i, int64_t j, int64_t n)
{
    uint64_t low = (uint64_t)(i < j ? i : j), high = (uint64_t)(i < j ? j : i);
    uint64_t x = (high << 32 | low) * 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return (double)(x >> 11) * 0x1p-53 - 0.5 + (i == j ? (double)n : 0);
}

static double solution(int64_t i)
{
    return 1 + (double)(i % 7) / 8;
}

/* This rank's block columns, from the first row to the last, one behind the other. */
static bool fill_matrix(void)
{
    size_t bytes = (size_t)p.n * (size_t)p.columns * sizeof(double);
    double *host = malloc(bytes);

    if (!said(host != NULL, "memory for the matrix", ENOMEM))
        return false;
    for (int64_t c = 0; c < p.columns; c++) {
        int64_t j = (c / BLOCK * r.nranks + r.rank) * BLOCK + c % BLOCK;
        for (int64_t i = 0; i < p.n; i++)
            host[c * p.n + i] = element(i, j, p.n);
    }
    bool good = cuda(cudaMemcpy(p.original, host, bytes, cudaMemcpyHostToDevice), "the matrix");
    free(host);
    return good;
}

/* Row i of the matrix times `x`. */
static double row_times(int64_t i, const double *x)
{
    double sum = 0;
    for (int64_t j = 0; j < p.n; j++)
        sum += element(i, j, p.n) * x[j];
    return sum;
}

static bool workspace(void)
{
    size_t factor_device = 0, factor_host = 0, solve_device = 0, solve_host = 0;

    if (!solver(cusolverMpPotrf_bufferSize(r.solver, CUBLAS_FILL_MODE_LOWER, p.n, p.a, 1, 1, p.of_a,
                                           CUDA_R_64F, &factor_device, &factor_host),
                "cusolverMpPotrf_bufferSize") ||
        !solver(cusolverMpPotrs_bufferSize(r.solver, CUBLAS_FILL_MODE_LOWER, p.n, 1, p.a, 1, 1,
                                           p.of_a, p.b, 1, 1, p.of_b, CUDA_R_64F, &solve_device,
                                           &solve_host),
                "cusolverMpPotrs_bufferSize"))
        return false;
    p.device_bytes = factor_device > solve_device ? factor_device : solve_device;
    p.host_bytes = factor_host > solve_host ? factor_host : solve_host;
    p.host_work = malloc(p.host_bytes + 1);
    return said(p.host_work != NULL, "memory", ENOMEM) &&
           cuda(cudaMalloc(&p.device_work, p.device_bytes + 1), "work space");
}

static bool open_problem(int64_t n)
{
    int64_t columns = cusolverMpNUMROC(n, BLOCK, (uint32_t)r.rank, 0, (uint32_t)r.nranks);
    size_t bytes = (size_t)n * (size_t)columns * sizeof(double);

    memset(&p, 0, sizeof(p));
    p.n = n;
    p.columns = columns;
    return cuda(cudaMalloc((void **)&p.original, bytes + 1), "the matrix") &&
           cuda(cudaMalloc((void **)&p.a, bytes + 1), "the work matrix") &&
           cuda(cudaMalloc((void **)&p.b, (size_t)n * sizeof(double)), "the right side") &&
           cuda(cudaMalloc((void **)&p.info, sizeof(int)), "memory") && fill_matrix() &&
           solver(
               cusolverMpCreateMatrixDesc(&p.of_a, r.grid, CUDA_R_64F, n, n, BLOCK, BLOCK, 0, 0, n),
               "cusolverMpCreateMatrixDesc") &&
           solver(
               cusolverMpCreateMatrixDesc(&p.of_b, r.grid, CUDA_R_64F, n, 1, BLOCK, BLOCK, 0, 0, n),
               "cusolverMpCreateMatrixDesc") &&
           workspace();
}

static void close_problem(void)
{
    if (p.of_a)
        cusolverMpDestroyMatrixDesc(p.of_a);
    if (p.of_b)
        cusolverMpDestroyMatrixDesc(p.of_b);
    cudaFree(p.original);
    cudaFree(p.a);
    cudaFree(p.b);
    cudaFree(p.info);
    cudaFree(p.device_work);
    free(p.host_work);
}

static bool factorise(double *us)
{
    struct timespec begin, end;

    if (!cuda(cudaMemcpyAsync(p.a, p.original, (size_t)p.n * (size_t)p.columns * sizeof(double),
                              cudaMemcpyDeviceToDevice, r.stream),
              "the matrix") ||
        !meet())
        return false;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    bool good =
        solver(cusolverMpPotrf(r.solver, CUBLAS_FILL_MODE_LOWER, p.n, p.a, 1, 1, p.of_a, CUDA_R_64F,
                               p.device_work, p.device_bytes, p.host_work, p.host_bytes, p.info),
               "cusolverMpPotrf") &&
        cuda(cudaStreamSynchronize(r.stream), "the factorisation");
    clock_gettime(CLOCK_MONOTONIC, &end);
    *us = (double)(end.tv_sec - begin.tv_sec) * 1e6 + (double)(end.tv_nsec - begin.tv_nsec) * 1e-3;
    return good;
}

/* The largest |A x - b| over |A| |x| (largest sums of a row), with x from the factor; on rank 0,
 * which has the only column of the right side. */
static bool solve(double *residual)
{
    double *b = calloc((size_t)p.n, sizeof(double)), *x = calloc((size_t)p.n, sizeof(double));
    size_t bytes = (size_t)p.n * sizeof(double);
    bool good = said(b != NULL && x != NULL, "memory", ENOMEM);

    *residual = 0;
    for (int64_t i = 0; good && i < p.n; i++)
        x[i] = solution(i);
    for (int64_t i = 0; good && r.rank == 0 && i < p.n; i++)
        b[i] = row_times(i, x);
    good = good && cuda(cudaMemcpy(p.b, b, bytes, cudaMemcpyHostToDevice), "the right side") &&
           meet() &&
           solver(cusolverMpPotrs(r.solver, CUBLAS_FILL_MODE_LOWER, p.n, 1, p.a, 1, 1, p.of_a, p.b,
                                  1, 1, p.of_b, CUDA_R_64F, p.device_work, p.device_bytes,
                                  p.host_work, p.host_bytes, p.info),
                  "cusolverMpPotrs") &&
           cuda(cudaStreamSynchronize(r.stream), "the solution") &&
           cuda(cudaMemcpy(x, p.b, bytes, cudaMemcpyDeviceToHost), "the solution");
    for (int64_t i = 0; good && r.rank == 0 && i < p.n; i++) {
        double off = row_times(i, x) - b[i], size = 1.5 * (double)p.n * 2;
        off = off < 0 ? -off : off;
        /* (a NaN is no larger than anything: it has to be asked for) */
        *residual = off != off ? 1 : off / size > *residual ? off / size : *residual;
    }
    free(b);
    free(x);
    return good;
}

static bool run_order(int which)
{
    struct sample sample = {.order = which};
    bool good = open_problem(orders[which]);

    for (int i = -2; good && i < REPETITIONS; i++) { /* two that are not counted */
        good = factorise(&sample.us);
        sample.repetition = i;
        if (good && i == REPETITIONS - 1)
            good = solve(&sample.residual);
        if (good && i >= 0)
            good = said(write(r.out, &sample, sizeof(sample)) == (ssize_t)sizeof(sample),
                        "a sample", errno);
    }
    close_problem();
    return good;
}

static int rank_main(char **words) /* rank, nranks, id_in, id_out, out */
{
    int *fields[] = {&r.rank, &r.nranks, &r.id_in, &r.id_out, &r.out};
    bool good;

    for (int i = 0; i < 5; i++)
        *fields[i] = (int)strtol(words[i], NULL, 10);
    alarm(TIME_LIMIT);
    good = open_rank();
    for (int i = 0; good && i < ORDERS; i++)
        good = run_order(i);
    if (r.grid)
        cusolverMpDestroyGrid(r.grid);
    if (r.solver)
        cusolverMpDestroy(r.solver);
    if (good)
        ncclCommDestroy(r.comm);
    return good ? 0 : 1;
}

/* ----------------------------------------------------------------- who starts them */

static struct {
    int nranks, rounds;
    const char *dropin;
    perf_samples_t samples[WAYS][ORDERS];
    double residual[WAYS][ORDERS];
} run;

static void become_rank(int rank, int way, const int ids[2], int out)
{
    char words[5][16], self[] = "/proc/self/exe";
    int values[] = {rank, run.nranks, ids[0], ids[1], out};
    char *argv[] = {(char[]){"app-cusolvermp"},
                    (char[]){"--rank"},
                    words[0],
                    words[1],
                    words[2],
                    words[3],
                    words[4],
                    NULL};

    for (int i = 0; i < 5; i++)
        snprintf(words[i], sizeof(words[i]), "%d", values[i]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("NCCL_NVLS_ENABLE", "0", 1); /* multicast may be shared with others */
    if (way == 1)
        setenv("LD_PRELOAD", run.dropin, 1);
    execv(self, argv);
    _exit(127);
}

/* The slowest rank's time of each repetition. */
static bool collect(int in, int way)
{
    double slowest[ORDERS][REPETITIONS] = {{0}};
    size_t got = 0;
    struct sample s;

    while (read(in, &s, sizeof(s)) == (ssize_t)sizeof(s)) {
        double *at = &slowest[s.order][s.repetition], *worst = &run.residual[way][s.order];
        *at = s.us > *at ? s.us : *at;
        *worst = s.residual > *worst ? s.residual : *worst;
        got++;
    }
    if (got != (size_t)run.nranks * ORDERS * REPETITIONS)
        return false;
    for (int o = 0; o < ORDERS; o++)
        for (int i = 0; i < REPETITIONS; i++)
            if (!perf_samples_add(&run.samples[way][o], slowest[o][i]))
                return false;
    return true;
}

static bool play(int way)
{
    int ids[2], out[2], status, started = 0;
    bool good;

    if (pipe(ids) != 0 || pipe(out) != 0) {
        perror("app-cusolvermp: pipe");
        return false;
    }
    for (; started < run.nranks; started++) {
        pid_t child = fork();
        if (child == 0)
            become_rank(started, way, ids, out[1]);
        if (child < 0)
            break;
    }
    close(ids[0]);
    close(ids[1]);
    close(out[1]);
    good = started == run.nranks && collect(out[0], way);
    close(out[0]);
    while (started-- > 0)
        good &= wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!good)
        fprintf(stderr, "app-cusolvermp: %s: a rank failed\n",
                way ? "over the drop-in" : "over NCCL");
    return good;
}

static void row(int way, int which)
{
    perf_figures_t figures = perf_figures(&run.samples[way][which]);
    double n = orders[which];
    struct cudaDeviceProp properties = {.name = "unknown"};
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    int version = 0;

    gmtime_r(&now, &utc);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &utc);
    ncclGetVersion(&version);
    (void)cudaGetDeviceProperties(&properties, 0);
    printf("{\"run\": \"app-cusolvermp-%.10s\", \"date\": \"%s\", \"device\": \"%d x %s\", "
           "\"versions\": "
           "{\"commit\": \"%s\", \"nccl\": \"NCCL %d.%d.%d\", \"cusolvermp\": \"%d.%d.%d\"}, "
           "\"command\": "
           "\"app-cusolvermp --dropin libsolccl-nccl.so --ranks %d --rounds %d\", \"library\": "
           "\"%s\", "
           "\"ranks\": %d, \"processes\": %d, \"op\": \"app-cusolvermp\", \"dtype\": \"float64\", "
           "\"bytes\": %.0f, \"mode\": \"eager\", \"us_min\": %.3f, \"us_p50\": %.3f, \"us_p99\": "
           "%.3f, "
           "\"samples\": %zu, \"wrong\": %d, \"order\": %d, \"block\": %d, \"residual\": %.2e, "
           "\"gflops\": %.0f}\n",
           date, date, run.nranks, properties.name, SOLCCL_COMMIT, version / 10000,
           version / 100 % 100, version % 100, CUSOLVERMP_VER_MAJOR, CUSOLVERMP_VER_MINOR,
           CUSOLVERMP_VER_PATCH, run.nranks, run.rounds, way ? "solccl-dropin" : "nccl", run.nranks,
           run.nranks, n * n * 8, figures.min, figures.p50, figures.p99, figures.samples,
           run.residual[way][which] < 1e-14 ? 0 : 1, orders[which], (int)BLOCK,
           run.residual[way][which], n * n * n / 3 / figures.p50 / 1e3);
}

static bool read_words(int argc, char **argv)
{
    run.nranks = 2;
    run.rounds = 3;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--dropin") == 0)
            run.dropin = argv[i + 1];
        else if (strcmp(argv[i], "--ranks") == 0)
            run.nranks = (int)strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--rounds") == 0)
            run.rounds = (int)strtol(argv[i + 1], NULL, 10);
        else
            return false;
    }
    return argc % 2 == 1 && run.dropin && run.nranks >= 1 && run.nranks <= RANKS &&
           run.rounds >= 1 && run.rounds <= ROUNDS;
}

int main(int argc, char **argv)
{
    bool good = true;

    if (argc == 7 && strcmp(argv[1], "--rank") == 0)
        return rank_main(argv + 2);
    if (!read_words(argc, argv)) {
        fprintf(stderr,
                "usage: app-cusolvermp --dropin LIBSOLCCL-NCCL.SO [--ranks 1 to %d] "
                "[--rounds 1 to %d]\n",
                RANKS, ROUNDS);
        return 2;
    }
    if (access(run.dropin, R_OK) != 0) {
        perror(run.dropin); /* a preload that is not there would be left out in silence */
        return 2;
    }
    for (int i = 0; good && i < run.rounds; i++)
        good = play(i % 2) && play(1 - i % 2);
    for (int which = 0; good && which < ORDERS; which++)
        for (int way = 0; way < WAYS; way++) {
            row(way, which);
            good &= run.residual[way][which] < 1e-14;
        }
    for (int i = 0; i < WAYS * ORDERS; i++)
        perf_samples_clear(&run.samples[i / ORDERS][i % ORDERS]);
    return good ? 0 : 1;
}
