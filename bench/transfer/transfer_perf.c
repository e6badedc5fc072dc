/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer_perf.c: sol_transfer_write_pages from rank 0 to rank 1 (or --both ways at
 * once) against the bound: memcpy of the same pages on CPU ranks, the link on GPU
 * ranks.
 *
 *   solccl run -n 2 transfer-perf [--total BYTES] [--both] [--link-gbs X]
 *
 * A row a way and page size: pages, scattered on both sides; heap, the same into
 * memory that is not symmetric (CPU); list, the same as single writes; whole, one
 * write; memcpy (CPU). us is the median of the slower sender, for all pages, until
 * the receiver has seen the counter (CPU) or the sender's stream has passed (GPU).
 */
#include <solccl/transfer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef BENCH_CUDA
#include <cuda_runtime_api.h>
#endif

#define SAMPLES 15
#define REPEATS 8 /* GPU: calls of a sample */

enum way { PAGES, HEAP, LIST, WHOLE, MEMCPY, WAYS };
static const char *const names[WAYS] = {"pages", "heap", "list", "whole", "memcpy"};

static struct {
    int rank, nranks, both, gpu;
    sol_comm_t comm, host;
    sol_transfer_t transfer;
    char *source, *symmetric, *heap;
    size_t total;
    uint32_t *from, *to;
    sol_write_t *writes;
    uint64_t awaited; /* bytes that have been counted from the peer */
    double link_gbs;
#ifdef BENCH_CUDA
    cudaStream_t stream;
    cudaEvent_t begin, end;
#else
    void *stream;
#endif
} b = {.total = (size_t)64 << 20, .link_gbs = 388};

static void check(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "rank %d: %s: %s\n", b.rank, what, sol_last_error(b.comm));
        exit(1);
    }
}
#define SOL(call) check((call) == SOL_OK, #call)
#ifdef BENCH_CUDA
#define CUDA(call) check((call) == cudaSuccess, #call)
#endif

#ifndef BENCH_CUDA
static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}
#endif

static void open_ranks(void)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    config.backend = SOL_BACKEND_CPU;
    SOL(sol_comm_create_from_env(&b.host, &config));
    b.comm = b.host;
    SOL(sol_comm_rank(b.host, &b.rank));
    SOL(sol_comm_size(b.host, &b.nranks));
    check(b.nranks == 2, "two ranks are needed");
#ifdef BENCH_CUDA
    b.gpu = 1;
    CUDA(cudaSetDevice(b.rank));
    CUDA(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreate(&b.begin));
    CUDA(cudaEventCreate(&b.end));
    config.backend = SOL_BACKEND_CUDA;
    SOL(sol_comm_create_from_env(&b.comm, &config));
    CUDA(cudaMalloc((void **)&b.source, b.total));
#else
    check(posix_memalign((void **)&b.source, 4096, b.total) == 0 &&
              posix_memalign((void **)&b.heap, 4096, b.total) == 0,
          "memory");
    memset(b.source, b.rank + 1, b.total);
    memset(b.heap, 0, b.total);
#endif
    SOL(sol_mem_alloc(b.comm, b.total, (void **)&b.symmetric));
    sol_region_t regions[2] = {{b.symmetric, b.total}, {b.heap, b.gpu ? 0 : b.total}};
    sol_transfer_config_t transfer = SOL_TRANSFER_CONFIG_INIT;
    transfer.regions = regions, transfer.nregions = b.gpu ? 1 : 2, transfer.counters = 1;
    SOL(sol_transfer_create(b.comm, &transfer, &b.transfer));
}

/* Page tables: every page once, in an order that no prefetcher knows. */
static void scatter(uint32_t *pages, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        pages[i] = (uint32_t)i;
    for (size_t i = n - 1; i > 0; i--) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t k = (size_t)(seed >> 33) % (i + 1);
        uint32_t x = pages[i];
        pages[i] = pages[k];
        pages[k] = x;
    }
}

static void send(enum way way, size_t page, size_t n)
{
    const int peer = 1 - b.rank;
    if (way == MEMCPY) {
        for (size_t i = 0; i < n; i++)
            memcpy(b.symmetric + b.to[i] * page, b.source + b.from[i] * page, page);
    } else if (way == LIST) {
        for (size_t i = 0; i < n; i++)
            b.writes[i] = (sol_write_t){b.source + b.from[i] * page, page, b.to[i] * page, peer, 0};
        SOL(sol_transfer_write(b.writes, n, 0, SOL_COUNT_BYTES, b.transfer, b.stream));
    } else if (way == WHOLE) {
        sol_write_t all = {b.source, n * page, 0, peer, 0};
        SOL(sol_transfer_write(&all, 1, 0, SOL_COUNT_BYTES, b.transfer, b.stream));
    } else {
        sol_pages_t pages = SOL_PAGES_INIT;
        pages.from = b.source, pages.from_pages = b.from, pages.to_pages = b.to;
        pages.npages = n, pages.page_bytes = page, pages.peer = peer, pages.region = way == HEAP;
        SOL(sol_transfer_write_pages(&pages, 1, 0, SOL_COUNT_BYTES, b.transfer, b.stream));
    }
}

static double sample(enum way way, size_t page, size_t n)
{
    const int sends = b.both || b.rank == 0, receives = (b.both || b.rank == 1) && way != MEMCPY;
    double us = 0;
    SOL(sol_barrier(b.host, NULL));
#ifdef BENCH_CUDA
    float ms = 0;
    CUDA(cudaEventRecord(b.begin, b.stream));
    for (int i = 0; i < REPEATS && sends; i++)
        send(way, page, n);
    CUDA(cudaEventRecord(b.end, b.stream));
    CUDA(cudaStreamSynchronize(b.stream));
    CUDA(cudaEventElapsedTime(&ms, b.begin, b.end));
    us = (double)ms * 1e3 / REPEATS;
    b.awaited += receives ? (uint64_t)n * page * REPEATS : 0;
#else
    double begin = now_us();
    if (sends)
        send(way, page, n);
    us = now_us() - begin;
    b.awaited += receives ? (uint64_t)n * page : 0;
#endif
    if (receives)
        SOL(sol_transfer_wait(b.transfer, 0, 1 - b.rank, b.awaited, -1));
#ifndef BENCH_CUDA
    us = way == MEMCPY ? us : now_us() - begin;
#endif
    us = sends ? us : 0;
    SOL(sol_all_reduce(&us, &us, 1, SOL_FLOAT64, SOL_MAX, b.host, NULL));
    return us;
}

static int ascending(const void *x, const void *y)
{
    double p = *(const double *)x, q = *(const double *)y;
    return (p > q) - (p < q);
}

static void measure(size_t page)
{
    const size_t n = b.total / page;
    double us[WAYS][SAMPLES] = {{0}};
    scatter(b.from, n, 1);
    scatter(b.to, n, 2);
    for (int s = 0; s < SAMPLES; s++)
        for (int w = 0; w < WAYS; w++)
            if (!b.gpu || (w != HEAP && w != MEMCPY))
                us[w][s] = sample((enum way)w, page, n);
    for (int w = 0; w < WAYS; w++)
        qsort(us[w], SAMPLES, sizeof(double), ascending);
    double bytes = (double)n * (double)page, copy = us[MEMCPY][SAMPLES / 2];
    double bound = b.gpu ? bytes / (b.link_gbs * 1e3) : copy;
    for (int w = 0; w < WAYS && b.rank == 0; w++)
        if (us[w][0] > 0)
            printf("{\"op\": \"transfer\", \"way\": \"%s\", \"device\": \"%s\", \"both\": %d, "
                   "\"page\": %zu, \"pages\": %zu, \"us_p50\": %.1f, \"us_min\": %.1f, "
                   "\"gbs\": %.2f, \"of_bound\": %.3f}\n",
                   names[w], b.gpu ? "cuda" : "cpu", b.both, page, n, us[w][SAMPLES / 2], us[w][0],
                   bytes / us[w][SAMPLES / 2] * 1e-3, bound / us[w][SAMPLES / 2]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {16384, 65536, 262144};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--both") == 0)
            b.both = 1;
        else if (strcmp(argv[i], "--total") == 0)
            b.total = strtoull(value, NULL, 0) & ~(size_t)0xfffff, i++;
        else if (strcmp(argv[i], "--link-gbs") == 0)
            b.link_gbs = atof(value), i++;
    }
    b.total = b.total > 0 ? b.total : (size_t)1 << 20;
    b.from = malloc(b.total / sizes[0] * sizeof(uint32_t));
    b.to = malloc(b.total / sizes[0] * sizeof(uint32_t));
    b.writes = malloc(b.total / sizes[0] * sizeof(sol_write_t));
    check(b.from && b.to && b.writes, "memory");
    open_ranks();
    for (int i = 0; i < 3; i++)
        measure(sizes[i]);
    SOL(sol_barrier(b.host, NULL));
    SOL(sol_transfer_destroy(b.transfer));
    if (b.gpu)
        SOL(sol_comm_destroy(b.comm));
    return sol_comm_destroy(b.host) != SOL_OK;
}
