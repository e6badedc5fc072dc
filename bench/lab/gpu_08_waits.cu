/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_08_waits.cu: what counting waits costs (solccl/device/watch.cuh), and how
 * true it is. Two ranks, threads of this process on one GPU, whole library: so
 * the times are of kernels, not of a link. Run it over two builds in turns:
 *
 *   for lib in before after before after; do LD_LIBRARY_PATH=$lib gpu_08_waits; done
 *
 *   cost   all_reduce in a graph, without and with dependent launch, by size
 *   truth  rank 1 comes late: what rank 0's kernel took by events, beside what
 *          its dump says that it has waited for rank 1
 */
#include <solccl/solccl.h>

#include <algorithm>
#include <cuda_runtime.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RANKS 2
#define LEAD 4
#define SAMPLES 61
#define LATE 40
#define TIMEOUT_MS 5000

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t e_ = (call);                                                                   \
        if (e_ != cudaSuccess) {                                                                   \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e_));                            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static pthread_barrier_t meeting;
static sol_unique_id_t ids[2];
static const size_t sizes[] = {256, 4096, 65536, 1 << 20, 16 << 20};
static double samples[RANKS][SAMPLES];

struct rank {
    int number;
    sol_comm_t comm;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    char *send, *recv;
};

static void good(struct rank *r, sol_status_t status)
{
    if (status != SOL_OK) {
        fprintf(stderr, "rank %d: %s\n", r->number, sol_last_error(r->comm));
        exit(1);
    }
}

/* One thread that is busy for so long. */
static __global__ void spin(uint64_t ns)
{
    uint64_t begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < ns);
}

static void calls(struct rank *r, size_t bytes, int count)
{
    for (int i = 0; i < count; i++)
        good(r, sol_all_reduce(r->send, r->recv, bytes / 2, SOL_BFLOAT16, SOL_SUM, r->comm,
                               r->stream));
}

/* A few calls that bring the ranks together, and `batch` between two events. */
static cudaGraphExec_t capture(struct rank *r, size_t bytes, int lead, int batch)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
    calls(r, bytes, lead);
    CHECK(cudaEventRecordWithFlags(r->begin, r->stream, cudaEventRecordExternal));
    calls(r, bytes, batch);
    CHECK(cudaEventRecordWithFlags(r->end, r->stream, cudaEventRecordExternal));
    CHECK(cudaStreamEndCapture(r->stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return exec;
}

static double elapsed_us(struct rank *r)
{
    float ms;
    CHECK(cudaStreamSynchronize(r->stream));
    CHECK(cudaEventElapsedTime(&ms, r->begin, r->end));
    return ms * 1e3;
}

static void cost(struct rank *r, bool early)
{
    for (size_t bytes : sizes) {
        const int batch = bytes < 1 << 20 ? 200 : 20;
        cudaGraphExec_t exec = capture(r, bytes, LEAD, batch);
        for (int i = -3; i < SAMPLES; i++) {
            pthread_barrier_wait(&meeting);
            CHECK(cudaGraphLaunch(exec, r->stream));
            const double us = elapsed_us(r) / batch;
            if (i >= 0)
                samples[r->number][i] = us;
        }
        pthread_barrier_wait(&meeting);
        if (r->number == 0) {
            double slow[SAMPLES];
            for (int i = 0; i < SAMPLES; i++)
                slow[i] = std::max(samples[0][i], samples[1][i]);
            std::sort(slow, slow + SAMPLES);
            printf("%-9s %8zu bytes: %8.3f us at the median, %8.3f at best, %8.3f at 90%%\n",
                   early ? "graph-pdl" : "graph", bytes, slow[SAMPLES / 2], slow[0],
                   slow[SAMPLES * 9 / 10]);
        }
        CHECK(cudaGraphExecDestroy(exec));
        pthread_barrier_wait(&meeting);
    }
}

/* What this rank's dump says of its waits for `peer`. */
static void waited(struct rank *r, int peer, double *us, long *waits)
{
    static char text[RANKS][1 << 20];
    char *own = text[r->number], word[32];
    FILE *file = tmpfile();
    good(r, sol_comm_dump(r->comm, fileno(file)));
    rewind(file);
    own[fread(own, 1, sizeof text[0] - 1, file)] = '\0';
    fclose(file);
    snprintf(word, sizeof word, "{\"rank\": %d, \"waits\": ", peer);
    const char *at = strstr(own, "\"waited\": ["), *end = at ? strchr(at, ']') : NULL;
    const char *one = at ? strstr(at, word) : NULL;
    *waits = one && one < end ? atol(one + strlen(word)) : 0;
    *us = *waits ? (double)atol(strstr(one, "\"ns\": ") + 6) * 1e-3 : 0;
}

static void truth(struct rank *r, size_t bytes, bool graph)
{
    cudaGraphExec_t exec = graph ? capture(r, bytes, 0, 1) : NULL;
    for (uint64_t ns : {0ull, 10000ull, 30000ull, 100000ull, 300000ull, 1000000ull, 5000000ull}) {
        double before, after, back, took = 0;
        long waits, more, none;
        waited(r, 1 - r->number, &before, &waits);
        for (int i = 0; i < LATE; i++) {
            pthread_barrier_wait(&meeting);
            if (r->number == 1) {
                usleep(200); /* rank 0 is there */
                spin<<<1, 1, 0, r->stream>>>(ns);
            }
            if (graph) {
                CHECK(cudaGraphLaunch(exec, r->stream));
            } else {
                CHECK(cudaEventRecord(r->begin, r->stream));
                calls(r, bytes, 1);
                CHECK(cudaEventRecord(r->end, r->stream));
            }
            took += elapsed_us(r);
        }
        waited(r, 1 - r->number, r->number == 0 ? &after : &back, r->number == 0 ? &more : &none);
        if (r->number == 0)
            printf("%-5s %7zu bytes, rank 1 late by %5.0f us and more: rank 0's kernel took %8.1f "
                   "us, counted "
                   "%8.1f in %ld of %d waits\n",
                   graph ? "graph" : "eager", bytes, (double)ns * 1e-3, took / LATE,
                   (after - before) / LATE, more - waits, LATE);
        else if (back - before > took * 0.1)
            printf("rank 1 is said to have waited for rank 0: %.1f us\n", back - before);
    }
    if (exec)
        CHECK(cudaGraphExecDestroy(exec));
}

static void *run(void *arg)
{
    struct rank *r = (struct rank *)arg;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    config.backend = SOL_BACKEND_CUDA;
    config.timeout_ms = TIMEOUT_MS;
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&r->begin));
    CHECK(cudaEventCreate(&r->end));
    CHECK(cudaMallocAsync((void **)&r->send, sizes[4], r->stream));
    CHECK(cudaMallocAsync((void **)&r->recv, sizes[4], r->stream));
    CHECK(cudaMemsetAsync(r->send, 0, sizes[4], r->stream));
    spin<<<1, 1, 0, r->stream>>>(1); /* loaded now: later that would wait for the other rank */
    CHECK(cudaStreamSynchronize(r->stream));
    for (int early = 0; early < 2; early++) {
        pthread_barrier_wait(&meeting);
        if (r->number == 0)
            setenv("SOLCCL_CUDA_PDL", early ? "1" : "0", 1);
        pthread_barrier_wait(&meeting);
        good(r, sol_comm_create(&r->comm, &ids[early], RANKS, r->number, &config));
        cost(r, early);
        if (!early) {
            truth(r, 256, false);
            truth(r, 256, true);
            truth(r, 16 << 20, false);
        }
        pthread_barrier_wait(&meeting);
        good(r, sol_comm_destroy(r->comm));
    }
    return NULL;
}

int main(void)
{
    static struct rank ranks[RANKS];
    pthread_t threads[RANKS];
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    pthread_barrier_init(&meeting, NULL, RANKS);
    for (int i = 0; i < 2; i++)
        if (sol_get_unique_id(&ids[i]) != SOL_OK)
            return 1;
    for (int r = 0; r < RANKS; r++) {
        ranks[r].number = r;
        pthread_create(&threads[r], NULL, run, &ranks[r]);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
    return 0;
}
