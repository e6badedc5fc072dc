/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_rig.cuh: what the GPU experiments share. One process, two GPUs with peer
 * access, one rank each (or several, for more ranks), staging made here.
 * Times chains of kernels inside CUDA graphs, all ranks starting together, and
 * reports the median over repetitions of the slowest rank.
 *
 * A laboratory: it prints and exits on errors, which library code must not.
 */
#ifndef SOL_BENCH_LAB_GPU_RIG_CUH
#define SOL_BENCH_LAB_GPU_RIG_CUH

#include "device/kernels/launch.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t e_ = (call);                                                                   \
        if (e_ != cudaSuccess) {                                                                   \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_));          \
            fflush(stdout);                                                                        \
            _Exit(1);                                                                              \
        }                                                                                          \
    } while (0)

struct rig_rank {
    int device;
    cudaStream_t stream;
    cudaEvent_t start, stop;
    struct sol_gpu_comm comm;
    struct sol_gpu_error *error;
};

struct rig {
    int nranks, ndevices;
    std::vector<rig_rank> ranks;
    volatile uint32_t *gate; /* host; kernels wait until it is not 0 */
    uint32_t *gate_device, *abort_device;
    volatile uint32_t *abort_host;
};

/* Hold a stream until the host opens the gate, 2 s at most. */
static __global__ void rig_gate(const volatile uint32_t *gate)
{
    uint64_t t0, t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t0));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    } while (*gate == 0 && t - t0 < 2000000000ull);
}

static __global__ void rig_fill(uint64_t *p, size_t n, uint64_t seed, int bf16)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull + seed * 0xbf58476d1ce4e5b9ull;
        x ^= x >> 29;
        x *= 0x94d049bb133111ebull;
        x ^= x >> 32;
        if (bf16) /* magnitudes around 1: no NaN, so sums compare with a plain addition */
            x = (x & 0x83ff83ff83ff83ffull) | 0x3c003c003c003c00ull;
        p[i] = x;
    }
}

static void rig_open(rig &r, int nranks, int ndevices, uint64_t staging, uint64_t timeout_ns)
{
    r.nranks = nranks;
    r.ndevices = ndevices;
    r.ranks.resize(nranks);
    uint32_t *words;
    CHECK(cudaHostAlloc((void **)&words, 8192, cudaHostAllocMapped | cudaHostAllocPortable));
    memset(words, 0, 8192);
    r.gate = words;
    r.abort_host = words + 64;
    CHECK(cudaHostGetDevicePointer((void **)&r.gate_device, words, 0));
    r.abort_device = r.gate_device + 64;
    for (int d = 0; d < ndevices; d++) {
        CHECK(cudaSetDevice(d));
        for (int e = 0; e < ndevices; e++)
            if (e != d) {
                cudaError_t err = cudaDeviceEnablePeerAccess(e, 0);
                if (err != cudaSuccess && err != cudaErrorPeerAccessAlreadyEnabled)
                    CHECK(err);
                cudaGetLastError();
            }
    }
    struct sol_gpu_layout layout = sol_gpu_layout_of(nranks, staging);
    for (int i = 0; i < nranks; i++) {
        rig_rank &k = r.ranks[i];
        k.device = i % ndevices;
        CHECK(cudaSetDevice(k.device));
        CHECK(cudaStreamCreateWithFlags(&k.stream, cudaStreamNonBlocking));
        CHECK(cudaEventCreate(&k.start));
        CHECK(cudaEventCreate(&k.stop));
        memset(&k.comm, 0, sizeof k.comm);
        k.comm.rank = i;
        k.comm.nranks = nranks;
        k.comm.layout = layout;
        k.comm.timeout_ns = timeout_ns;
        k.comm.abort_word = r.abort_device;
        k.error = (struct sol_gpu_error *)(words + 256 + 32 * i);
        k.comm.error = (struct sol_gpu_error *)(r.gate_device + 256 + 32 * i);
        int sms;
        CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, k.device));
        int share = (nranks + ndevices - 1) / ndevices;
        k.comm.max_ctas = sms / share;
        k.comm.ranks_here = share;
        CHECK(cudaMalloc((void **)&k.comm.state, sizeof(struct sol_gpu_state)));
        CHECK(cudaMalloc((void **)&k.comm.staging[i], layout.total));
    }
    for (int i = 0; i < nranks; i++)
        for (int j = 0; j < nranks; j++)
            r.ranks[i].comm.staging[j] = r.ranks[j].comm.staging[j];
}

static void rig_sync(rig &r)
{
    for (auto &k : r.ranks) {
        CHECK(cudaSetDevice(k.device));
        CHECK(cudaStreamSynchronize(k.stream));
    }
}

static bool rig_faults(rig &r, const char *where)
{
    bool any = false;
    for (auto &k : r.ranks)
        if (k.error->fault) {
            printf(
                "FAULT %u in %s: rank %d waited for %d, func %u, sequence %llu, %llu bytes, epoch "
                "%llu, at %.6f s\n",
                k.error->fault, where, k.error->rank, k.error->awaited, k.error->func,
                (unsigned long long)k.error->sequence, (unsigned long long)k.error->bytes,
                (unsigned long long)k.error->epoch, k.error->time_ns * 1e-9);
            any = true;
        }
    return any;
}

/* Microseconds a node of `nodes` launches in a graph: median of `reps`, slowest rank. */
static double rig_time(rig &r, int nodes, int reps, const std::function<void(int, int)> &launch,
                       double *least = nullptr)
{
    std::vector<cudaGraphExec_t> execs(r.nranks);
    for (int i = 0; i < r.nranks; i++) {
        rig_rank &k = r.ranks[i];
        cudaGraph_t graph;
        CHECK(cudaSetDevice(k.device));
        CHECK(cudaStreamBeginCapture(k.stream, cudaStreamCaptureModeThreadLocal));
        for (int m = 0; m < nodes; m++)
            launch(i, m);
        CHECK(cudaStreamEndCapture(k.stream, &graph));
        CHECK(cudaGraphInstantiate(&execs[i], graph, 0));
        CHECK(cudaGraphDestroy(graph));
        CHECK(cudaGraphUpload(execs[i], k.stream));
    }
    std::vector<double> times;
    for (int rep = -1; rep < reps; rep++) {
        *r.gate = 0;
        for (int i = 0; i < r.nranks; i++) {
            rig_rank &k = r.ranks[i];
            CHECK(cudaSetDevice(k.device));
            rig_gate<<<1, 1, 0, k.stream>>>(r.gate_device);
            CHECK(cudaEventRecord(k.start, k.stream));
            CHECK(cudaGraphLaunch(execs[i], k.stream));
            CHECK(cudaEventRecord(k.stop, k.stream));
        }
        *r.gate = 1;
        rig_sync(r);
        double worst = 0;
        for (auto &k : r.ranks) {
            float ms;
            CHECK(cudaEventElapsedTime(&ms, k.start, k.stop));
            worst = std::max(worst, (double)ms * 1000 / nodes);
        }
        if (rep >= 0)
            times.push_back(worst);
    }
    for (auto e : execs)
        CHECK(cudaGraphExecDestroy(e));
    std::sort(times.begin(), times.end());
    if (least)
        *least = times[0];
    return times[times.size() / 2];
}

/* Launch `kernel` with or without programmatic dependent launch. */
template <class... P, class... A>
static void rig_launch(void (*kernel)(P...), int ctas, int threads, cudaStream_t stream, bool pdl,
                       A... args)
{
    cudaLaunchConfig_t config;
    memset(&config, 0, sizeof config);
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(ctas);
    config.blockDim = dim3(threads);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = pdl ? 1 : 0;
    CHECK(cudaLaunchKernelEx(&config, kernel, P(args)...));
}

#endif
