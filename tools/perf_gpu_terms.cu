/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_gpu_terms.cu: the terms of the GPU bound, measured with kernels that
 * know nothing of any library: one process, peer access between its GPUs.
 * Everything that polls looks at the clock and gives up after a second.
 */
#include "perf_gpu.h"

#include <algorithm>
#include <cstdio>

#define CHAIN 200 /* kernels in a graph */
#define ROUND_TRIPS 1000
#define COPY_BYTES (256u << 20)
/* A line's way depends on the part of the L2 cache that it lies in, by up to a third. A message has
 * lines everywhere, so the terms are means over some of them. */
#define PLACES 8
#define PLACE_BYTES (8192 + 384)

static __global__ void empty_kernel(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* Load 256 B, store 256 B. */
static __global__ void local_kernel(const uint4 *in, uint4 *out)
{
    out[threadIdx.x] = in[threadIdx.x];
}

static __device__ uint64_t clock_ns(void)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

static __device__ void push(uint64_t *to, uint64_t value)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

static __device__ uint64_t poll(const uint64_t *at)
{
    uint64_t value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}

/* Ping-pong of one word; the time of all rounds by the SM's own clock counter is of no use across
 * clocks, so the global timer over many rounds is taken. */
static __global__ void ping_pong(uint64_t *mine, uint64_t *theirs, int first, uint64_t *took)
{
    uint64_t begin = clock_ns(), now = begin;
    for (uint64_t round = 1; round <= ROUND_TRIPS; round++) {
        if (first)
            push(theirs, round);
        for (unsigned polls = 1; poll(mine) < round; polls++)
            if ((polls & 1023) == 0 && clock_ns() - begin > 1000000000u)
                return;
        if (!first)
            push(theirs, round);
        if (round == ROUND_TRIPS / 10) /* the first ones wait for the other kernel to start */
            now = clock_ns();
    }
    *took = clock_ns() - now;
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess) {                                                               \
            fprintf(stderr, "solccl perf: measuring the GPUs: %s: %s\n", #call,                    \
                    cudaGetErrorString(error_));                                                   \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

static cudaError_t launch(cudaStream_t stream, int what, char *memory, int turn)
{
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(32);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = what == 1;
    if (what < 2)
        return cudaLaunchKernelEx(&config, empty_kernel);
    config.blockDim = dim3(16);
    char *place = memory + turn % PLACES * PLACE_BYTES;
    return cudaLaunchKernelEx(&config, local_kernel, (const uint4 *)place, (uint4 *)place + 64);
}

/* Median us per kernel of a chain in a graph, between events inside the graph. */
static bool measure_chain(int what, double *us)
{
    cudaStream_t stream;
    cudaEvent_t begin, end;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    char *memory;
    float ms[41];
    TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    TRY(cudaEventCreate(&begin));
    TRY(cudaEventCreate(&end));
    TRY(cudaMalloc(&memory, PLACES * PLACE_BYTES));
    TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 10; i++)
        TRY(launch(stream, what, memory, i));
    TRY(cudaEventRecordWithFlags(begin, stream, cudaEventRecordExternal));
    for (int i = 0; i < CHAIN; i++)
        TRY(launch(stream, what, memory, i));
    TRY(cudaEventRecordWithFlags(end, stream, cudaEventRecordExternal));
    TRY(cudaStreamEndCapture(stream, &graph));
    TRY(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = -5; i < 41; i++) {
        TRY(cudaGraphLaunch(exec, stream));
        TRY(cudaStreamSynchronize(stream));
        if (i >= 0)
            TRY(cudaEventElapsedTime(&ms[i], begin, end));
    }
    std::sort(ms, ms + 41);
    *us = ms[20] * 1e3 / CHAIN;
    TRY(cudaGraphExecDestroy(exec));
    TRY(cudaGraphDestroy(graph));
    TRY(cudaFree(memory));
    TRY(cudaStreamDestroy(stream));
    return true;
}

/* One way between words in the `place`-th place of both: the best of three. */
static bool measure_place(const int *device, uint64_t *const *memory, uint64_t *const *took,
                          const cudaStream_t *stream, int place, double *us)
{
    uint64_t *word[2], ns;
    *us = 1e9;
    for (int i = 0; i < 2; i++)
        word[i] = (uint64_t *)(void *)((char *)memory[i] + place * PLACE_BYTES);
    for (int repeat = 0; repeat < 3; repeat++) {
        for (int i = 0; i < 2; i++) {
            TRY(cudaSetDevice(device[i]));
            TRY(cudaMemset(word[i], 0, 8));
            TRY(cudaMemset(took[i], 0, 8));
        }
        for (int i = 0; i < 2; i++) {
            TRY(cudaSetDevice(device[i]));
            ping_pong<<<1, 1, 0, stream[i]>>>(word[i], word[1 - i], i == 0, took[i]);
            TRY(cudaGetLastError());
        }
        for (int i = 0; i < 2; i++)
            TRY(cudaStreamSynchronize(stream[i]));
        TRY(cudaMemcpy(&ns, took[0], 8, cudaMemcpyDefault));
        if (ns == 0) {
            fprintf(stderr, "solccl perf: GPU %d does not hear GPU %d\n", device[0], device[1]);
            return false;
        }
        *us = std::min(*us, (double)ns * 1e-3 / (ROUND_TRIPS - ROUND_TRIPS / 10) / 2);
    }
    return true;
}

static bool measure_line(int a, int b, double *us)
{
    uint64_t *memory[2], *took[2];
    cudaStream_t stream[2];
    const int device[2] = {a, b};
    *us = 0;
    for (int i = 0; i < 2; i++) {
        TRY(cudaSetDevice(device[i]));
        TRY(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
        TRY(cudaMalloc(&memory[i], PLACES * PLACE_BYTES));
        TRY(cudaMalloc(&took[i], 256));
    }
    for (int place = 0; place < PLACES; place++) {
        double here = 0;
        if (!measure_place(device, memory, took, stream, place, &here))
            return false;
        *us += here / PLACES;
    }
    for (int i = 0; i < 2; i++) {
        TRY(cudaSetDevice(device[i]));
        TRY(cudaFree(memory[i]));
        TRY(cudaFree(took[i]));
        TRY(cudaStreamDestroy(stream[i]));
    }
    return true;
}

static bool measure_link(int from, int to, double *gbs)
{
    void *source, *target;
    cudaEvent_t begin, end;
    cudaStream_t stream;
    float ms, best = 1e9f;
    TRY(cudaSetDevice(to));
    TRY(cudaMalloc(&target, COPY_BYTES));
    TRY(cudaSetDevice(from));
    TRY(cudaMalloc(&source, COPY_BYTES));
    TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    TRY(cudaEventCreate(&begin));
    TRY(cudaEventCreate(&end));
    for (int i = 0; i < 12; i++) {
        TRY(cudaEventRecord(begin, stream));
        TRY(cudaMemcpyPeerAsync(target, to, source, from, COPY_BYTES, stream));
        TRY(cudaEventRecord(end, stream));
        TRY(cudaStreamSynchronize(stream));
        TRY(cudaEventElapsedTime(&ms, begin, end));
        best = std::min(best, ms);
    }
    *gbs = COPY_BYTES / (best * 1e6);
    TRY(cudaStreamDestroy(stream));
    TRY(cudaFree(source));
    TRY(cudaSetDevice(to));
    TRY(cudaFree(target));
    return true;
}

static bool open_paths(int devices)
{
    for (int a = 0; a < devices; a++)
        for (int b = 0; b < devices; b++) {
            if (a == b)
                continue;
            TRY(cudaSetDevice(a));
            cudaError_t error = cudaDeviceEnablePeerAccess(b, 0);
            if (error != cudaErrorPeerAccessAlreadyEnabled)
                TRY(error);
        }
    return true;
}

bool perf_gpu_measure(int nranks, perf_gpu_terms_t *terms)
{
    int devices = 0;
    *terms = {};
    TRY(cudaGetDeviceCount(&devices));
    devices = std::min(devices, nranks);
    TRY(cudaSetDevice(0));
    if (!measure_chain(0, &terms->floor_us) || !measure_chain(1, &terms->floor_pdl_us) ||
        !measure_chain(2, &terms->local_us) || !open_paths(devices))
        return false;
    terms->link_gbs = devices > 1 ? 1e9 : 0;
    for (int a = 0; a < devices; a++)
        for (int b = 0; b < devices; b++) {
            double line = 0, link = 0;
            if (a == b)
                continue;
            if ((a < b && !measure_line(a, b, &line)) || !measure_link(a, b, &link))
                return false;
            terms->line_us = std::max(terms->line_us, line);
            terms->link_gbs = std::min(terms->link_gbs, link);
        }
    return true;
}

int perf_gpu_count(char *name, size_t name_bytes, char *driver, size_t driver_bytes)
{
    cudaDeviceProp properties;
    int count = 0, version = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0 ||
        cudaGetDeviceProperties(&properties, 0) != cudaSuccess)
        return 0;
    cudaDriverGetVersion(&version);
    snprintf(name, name_bytes, "%s", properties.name);
    snprintf(driver, driver_bytes, "CUDA %d.%d", version / 1000, version % 1000 / 10);
    return count;
}
