/* SPDX-License-Identifier: Apache-2.0 */
/*
 * info_litmus.cu: `solccl info --litmus`: what PTX does not promise of stores to a
 * peer's memory, tried on the GPUs at hand: that a 16-byte vector, and a 128-byte
 * line of a warp, are seen whole. One GPU stores lines of equal words over and
 * over, the other reads them and looks for a mixture. Each kernel ends by the
 * clock.
 *
 * Channels of kind LINE (solccl/device.h) rest on the second; nothing on the first.
 */
#include "litmus_file.h"
#include "tool.h"

#include <solccl/device.h>
#include <stdio.h>
#include <string.h>

#define MILLISECONDS 300
#define CTAS 64
#define THREADS 128

struct counts {
    unsigned long long read, changed, torn16, torn128;
};

/* The same answer for the eight threads of a line. */
static __device__ bool in_time(uint64_t begin, uint64_t ns)
{
    return __all_sync(sol_line_mask(), sol_clock_ns() - begin < ns);
}

/* Until the clock says so: all words of a line are the number of the turn. */
static __global__ void store_lines(char *peer, unsigned vectors, uint64_t ns)
{
    const uint64_t begin = sol_clock_ns();
    for (uint64_t turn = 1; in_time(begin, ns); turn++)
        for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < vectors;
             i += gridDim.x * blockDim.x) {
            struct sol_vector v = {turn, turn};
            __syncwarp(sol_line_mask());
            sol_push_vector(peer + (uint64_t)i * 16, v);
        }
}

static __global__ void read_lines(const char *own, unsigned vectors, uint64_t ns,
                                  struct counts *counts)
{
    const uint64_t begin = sol_clock_ns();
    struct counts c = {0, 0, 0, 0};
    uint64_t last = 0;
    while (in_time(begin, ns))
        for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < vectors;
             i += gridDim.x * blockDim.x) {
            __syncwarp(sol_line_mask());
            struct sol_vector v = sol_poll_vector(own + (uint64_t)i * 16);
            uint64_t first = __shfl_sync(sol_line_mask(), v.a, threadIdx.x & 24);
            c.read++;
            c.changed += v.a != last;
            c.torn16 += v.a != v.b;
            c.torn128 += v.a != first || v.b != first;
            last = v.a;
        }
    atomicAdd(&counts->read, c.read);
    atomicAdd(&counts->changed, c.changed);
    atomicAdd(&counts->torn16, c.torn16);
    atomicAdd(&counts->torn128, c.torn128);
}

/* `vectors` is a multiple of eight. */
static cudaError_t try_pair(int from, int to, unsigned vectors, struct counts *sum)
{
    const uint64_t ns = MILLISECONDS * 1000000ull;
    const unsigned need = (vectors + THREADS - 1) / THREADS, ctas = need < CTAS ? need : CTAS;
    struct counts *there = NULL, c;
    cudaStream_t writer = NULL, reader = NULL;
    char *lines = NULL;
    memset(&c, 0, sizeof c);
    cudaSetDevice(to);
    cudaStreamCreateWithFlags(&reader, cudaStreamNonBlocking);
    cudaMalloc((void **)&lines, (size_t)vectors * 16);
    cudaMalloc((void **)&there, sizeof *there);
    cudaMemset(lines, 0, (size_t)vectors * 16);
    cudaMemset(there, 0, sizeof *there);
    cudaDeviceSynchronize();
    sol_dev_launch(read_lines, ctas, THREADS, reader, (const char *)lines, vectors, ns, there);
    cudaSetDevice(from);
    cudaStreamCreateWithFlags(&writer, cudaStreamNonBlocking);
    sol_dev_launch(store_lines, ctas, THREADS, writer, lines, vectors, ns);
    cudaStreamSynchronize(writer);
    cudaStreamDestroy(writer);
    cudaSetDevice(to);
    cudaStreamSynchronize(reader);
    cudaMemcpy(&c, there, sizeof c, cudaMemcpyDeviceToHost);
    cudaStreamDestroy(reader);
    cudaFree(lines);
    cudaFree(there);
    sum->read += c.read;
    sum->changed += c.changed;
    sum->torn16 += c.torn16;
    sum->torn128 += c.torn128;
    return cudaGetLastError();
}

/* A pair of GPUs, three sizes: within a cache line or two, within L2, beyond. False: it failed. */
static bool report_pair(int from, int to, struct litmus_result *result)
{
    static const unsigned sizes[] = {128, 4096, 1u << 19};
    struct counts sum;
    int reaches = 0;
    memset(&sum, 0, sizeof sum);
    cudaDeviceCanAccessPeer(&reaches, from, to);
    if (!reaches) {
        printf("litmus %d -> %d: no peer access\n", from, to);
        return true;
    }
    cudaSetDevice(from);
    cudaDeviceEnablePeerAccess(to, 0);
    cudaGetLastError(); /* (it may have been on) */
    for (unsigned vectors : sizes) {
        cudaError_t error = try_pair(from, to, vectors, &sum);
        if (error != cudaSuccess) {
            printf("litmus %d -> %d: %s\n", from, to, cudaGetErrorString(error));
            return false;
        }
    }
    printf(
        "litmus %d -> %d: %llu vectors read, %llu changed: %llu torn within 16 bytes, %llu within "
        "128%s\n",
        from, to, sum.read, sum.changed, sum.torn16, sum.torn128,
        sum.changed == 0 ? ": nothing was seen to change, so nothing is shown"
        : sum.torn128    ? ": do not use SOL_CHANNEL_LINE between them"
                         : "");
    struct cudaDeviceProp properties[2];
    cudaGetDeviceProperties(&properties[0], from);
    cudaGetDeviceProperties(&properties[1], to);
    memcpy(result->from, &properties[0].uuid, sizeof result->from);
    memcpy(result->to, &properties[1].uuid, sizeof result->to);
    result->read = sum.changed ? sum.read : 0; /* 0: nothing is shown */
    result->torn16 = sum.torn16;
    result->torn128 = sum.torn128;
    return sum.changed != 0 && sum.torn16 == 0 && sum.torn128 == 0;
}

/* For the library, which then does without what has failed. */
static int keep(const struct litmus_result *results, int count)
{
    char path[512];
    if (count == 0)
        return 0;
    if (!litmus_file_path(path, sizeof path) || !litmus_file_merge(path, results, (size_t)count))
        return tool_error("info", "--litmus: the results cannot be kept: set SOLCCL_LITMUS_FILE");
    printf("kept in %s\n", path);
    return 0;
}

int tool_litmus(void)
{
    struct litmus_result results[64];
    int count = 0;
    int devices = 0;
    bool good = true;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 2)
        return tool_error("info", "--litmus: two GPUs are needed, %d are here", devices);
    for (int from = 0; from < devices; from++)
        for (int to = 0; to < devices; to++)
            if (from != to && count < 64) {
                memset(&results[count], 0, sizeof results[count]);
                good = report_pair(from, to, &results[count]) && good;
                count += results[count].read != 0;
            }
    return keep(results, count) == 0 && good ? 0 : 1;
}
