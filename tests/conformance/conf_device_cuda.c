/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf_device_cuda.c: GPU memory for the suite. Rank r uses GPU r modulo their
 * number, with a stream of its own.
 *
 * Ranks may share a GPU and wait for each other in kernels, so nothing here may
 * wait for a whole device: memory comes from the stream-ordered allocator
 * (cudaMalloc and cudaFree would), and copies are waited for on this thread's
 * own stream.
 */
#ifdef CONF_WITH_CUDA

#include "conformance/conf.h"

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdlib.h>

static _Thread_local cudaStream_t copies;

static bool good(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return true;
    fprintf(stderr, "cuda: %s: %s\n", what, cudaGetErrorString(error));
    return false;
}

/* Memory given back stays with the pool: no trips to the driver in the middle of a case. */
static bool keep_pool(int device)
{
    cudaMemPool_t pool;
    uint64_t threshold = UINT64_MAX;
    return good(cudaDeviceGetDefaultMemPool(&pool, device), "pool") &&
           good(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold),
                "pool threshold");
}

static bool make_streams(void **stream)
{
    cudaStream_t made;
    if (!good(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking), "stream") ||
        !good(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "stream"))
        return false;
    *stream = made;
    return true;
}

static bool cuda_open(int rank, void **stream)
{
    int count = 0;
    /* ranks that share a GPU must not share its hardware queues: 8 by default */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (!good(cudaGetDeviceCount(&count), "counting devices") || count == 0)
        return false;
    int device = rank % count;
    return good(cudaSetDevice(device), "choosing a device") && keep_pool(device) &&
           make_streams(stream);
}

static bool cuda_enter(void *of, void **stream)
{
    int device = 0;
    return good(cudaStreamGetDevice((cudaStream_t)of, &device), "a stream's device") &&
           good(cudaSetDevice(device), "choosing a device") && make_streams(stream);
}

static void cuda_close(void *stream)
{
    cudaStreamDestroy((cudaStream_t)stream);
    cudaStreamDestroy(copies);
}

static void *cuda_alloc(size_t bytes)
{
    void *memory = NULL;
    bool ok = good(cudaMallocAsync(&memory, bytes > 0 ? bytes : 1, copies), "memory") &&
              good(cudaStreamSynchronize(copies), "memory");
    return ok ? memory : NULL;
}

static void cuda_free(void *memory)
{
    if (memory)
        good(cudaFreeAsync(memory, copies), "free");
}

static void copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    if (bytes > 0 && good(cudaMemcpyAsync(to, from, bytes, kind, copies), "copy"))
        good(cudaStreamSynchronize(copies), "copy");
}

static void cuda_upload(void *device, const void *host, size_t bytes)
{
    copy(device, host, bytes, cudaMemcpyHostToDevice);
}

static void cuda_download(void *host, const void *device, size_t bytes)
{
    copy(host, device, bytes, cudaMemcpyDeviceToHost);
}

static bool cuda_sync(void *stream)
{
    return good(cudaStreamSynchronize((cudaStream_t)stream), "sync");
}

extern const conf_device_t conf_device_cuda;
const conf_device_t conf_device_cuda = {.name = "cuda",
                                        .backend = SOL_BACKEND_CUDA,
                                        .cheap_alloc = false,
#ifdef SOL_EMU
                                        .staging_bytes = 256 << 10,
                                        .little_bytes = 190 << 10,
                                        .most_bytes = 32 << 10,
                                        .patience = 20,
#endif
                                        .open = cuda_open,
                                        .enter = cuda_enter,
                                        .close = cuda_close,
                                        .alloc = cuda_alloc,
                                        .free = cuda_free,
                                        .upload = cuda_upload,
                                        .download = cuda_download,
                                        .sync = cuda_sync};

#endif

/* C wants a translation unit to hold something. */
typedef int conf_device_cuda_is_optional;
