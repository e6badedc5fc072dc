/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantized_perf.c: sol_all_reduce_quantized beside sol_all_reduce, bf16, in CUDA
 * graphs, in turns.
 *
 *   solccl run -n 2 quantized-perf
 *   quantized-perf --threads 2    ranks are threads, which share GPUs where there are fewer
 *
 * us is the slower rank's median; a sample is the graph of OPS calls three times in a
 * row, of which the last two are timed.
 */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <solccl/quantized.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPS 20
#define SAMPLES 15
#define MOST ((size_t)64 << 20)
#define MOST_THREADS 8

enum way { PLAIN, INT8, E4M3, WAYS };
static const char *const names[WAYS] = {"plain", "int8", "float8_e4m3"};

static _Thread_local int rank, nranks;
static _Thread_local sol_comm_t host, gpu;
static _Thread_local cudaStream_t stream;
static _Thread_local cudaEvent_t begin, end;
static _Thread_local char *x, *y;

static void check(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "rank %d: %s: %s; %s\n", rank, what, cudaGetErrorString(cudaGetLastError()),
                sol_last_error(gpu));
        exit(1);
    }
}
#define CUDA(call) check((call) == cudaSuccess, #call)
#define SOL(call) check((call) == SOL_OK, #call)

static cudaGraphExec_t capture(enum way way, size_t count)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < OPS; i++) {
        if (way == PLAIN)
            SOL(sol_all_reduce(x, y, count, SOL_BFLOAT16, SOL_SUM, gpu, stream));
        else
            SOL(sol_all_reduce_quantized(x, y, count, SOL_BFLOAT16,
                                         way == INT8 ? SOL_INT8 : SOL_FLOAT8_E4M3, 0, gpu, stream));
    }
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

static float sample(cudaGraphExec_t graph)
{
    float ms, us;
    SOL(sol_barrier(host, NULL));
    CUDA(cudaGraphLaunch(graph, stream));
    CUDA(cudaEventRecord(begin, stream));
    CUDA(cudaGraphLaunch(graph, stream));
    CUDA(cudaGraphLaunch(graph, stream));
    CUDA(cudaEventRecord(end, stream));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaEventElapsedTime(&ms, begin, end));
    us = ms * 1e3f / (2 * OPS);
    SOL(sol_all_reduce(&us, &us, 1, SOL_FLOAT32, SOL_MAX, host, NULL));
    return us;
}

static int ascending(const void *p, const void *q)
{
    float a = *(const float *)p, b = *(const float *)q;
    return (a > b) - (a < b);
}

static void measure(size_t bytes)
{
    cudaGraphExec_t graphs[WAYS];
    float us[WAYS][SAMPLES];
    for (int w = 0; w < WAYS; w++)
        graphs[w] = capture((enum way)w, bytes / 2);
    for (int s = 0; s < SAMPLES; s++)
        for (int w = 0; w < WAYS; w++)
            us[(w + s) % WAYS][s] = sample(graphs[(w + s) % WAYS]);
    for (int w = 0; w < WAYS; w++) {
        CUDA(cudaGraphExecDestroy(graphs[w]));
        qsort(us[w], SAMPLES, sizeof(float), ascending);
        if (rank == 0)
            printf("{\"op\": \"all_reduce_quantized\", \"way\": \"%s\", \"mode\": \"graph\", "
                   "\"ranks\": %d, \"bytes\": %zu, \"us_p50\": %.3f, \"us_min\": %.3f}\n",
                   names[w], nranks, bytes, us[w][SAMPLES / 2], us[w][0]);
    }
    fflush(stdout);
}

static sol_unique_id_t host_id, gpu_id; /* of ranks that are threads */

static void open_rank(sol_comm_t *comm, sol_backend_kind_t backend, const sol_unique_id_t *id)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    config.backend = backend;
    if (id != NULL)
        SOL(sol_comm_create(comm, id, nranks, rank, &config));
    else
        SOL(sol_comm_create_from_env(comm, &config));
}

static void run_rank(bool thread)
{
    int gpus;
    open_rank(&host, SOL_BACKEND_CPU, thread ? &host_id : NULL);
    SOL(sol_comm_rank(host, &rank));
    SOL(sol_comm_size(host, &nranks));
    CUDA(cudaGetDeviceCount(&gpus));
    CUDA(cudaSetDevice(rank % gpus));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    open_rank(&gpu, SOL_BACKEND_CUDA, thread ? &gpu_id : NULL);
    CUDA(cudaMalloc((void **)&x, MOST));
    CUDA(cudaMalloc((void **)&y, MOST));
    CUDA(cudaMemset(x, 0x3c, MOST)); /* 0.0115 */
    for (size_t bytes = (size_t)64 << 10; bytes <= MOST; bytes *= 4)
        measure(bytes);
    SOL(sol_barrier(host, NULL));
    SOL(sol_comm_destroy(gpu));
    SOL(sol_comm_destroy(host));
}

static int threads_wanted;

static void *run_thread(void *which)
{
    rank = *(const int *)which;
    nranks = threads_wanted;
    run_rank(true);
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[MOST_THREADS];
    int ranks[MOST_THREADS];
    SOL(sol_get_unique_id(&host_id));
    SOL(sol_get_unique_id(&gpu_id));
    for (int i = 0; i < threads_wanted; i++) {
        ranks[i] = i;
        check(pthread_create(&threads[i], NULL, run_thread, &ranks[i]) == 0, "pthread_create");
    }
    for (int i = 0; i < threads_wanted; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--threads") == 0)
        threads_wanted = atoi(argv[2]) < MOST_THREADS ? atoi(argv[2]) : MOST_THREADS;
    if (threads_wanted > 0)
        run_threads();
    else
        run_rank(false);
    return 0;
}
