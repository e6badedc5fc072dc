/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matrix_cuda.c: GPU ranks of the fault matrix, and those of the emulated machine. A call is over
 * when its stream is idle or the communicator has failed; every wait for a stream is bounded here
 * too. Nothing waits for a whole device: other ranks, of this cell and of others, may be on it.
 */
#ifdef MATRIX_WITH_CUDA
#include "matrix/matrix.h"

#include <cuda_runtime_api.h>

#define LARGE ((size_t)200000)
#define RECORDED 8 /* operations of a graph */

#ifdef SOL_EMU /* slots are of 2 to 14 KB there, and a poll of a stream takes 8 ms of its clock */
#define LARGE_HERE ((size_t)3000)
#define RANKS "2t 3t"
#define TIMEOUT_MS 4000
#define POLL_US 4000
#define PATIENCE_S 40
#else
#define LARGE_HERE LARGE
#define RANKS "2p 3t"
#define TIMEOUT_MS 2000
#define POLL_US 100
#define PATIENCE_S (2 * TIMEOUT_MS * 1e-3 + 4)
#endif

static bool good(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return true;
    fprintf(stderr, "cuda: %s: %s\n", what, cudaGetErrorString(error));
    return false;
}

static cudaStream_t stream_of(const side_t *side)
{
    return (cudaStream_t)side->stream;
}

/* Ranks beyond the GPUs share them. */
static bool cuda_open(side_t *side, int rank)
{
    int count = 0;
    cudaStream_t stream = NULL;
    size_t bytes = LARGE_HERE * (1 + MATRIX_MAX_RANKS) * sizeof(float);
    bool ok = good(cudaGetDeviceCount(&count), "counting devices") && count > 0 &&
              good(cudaSetDevice(rank % count), "choosing a device") &&
              good(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream") &&
              good(cudaMallocAsync((void **)&side->data, bytes, stream), "memory") &&
              good(cudaMemsetAsync(side->data, 0, bytes, stream), "memset") &&
              good(cudaStreamSynchronize(stream), "the first wait");
    side->stream = stream;
    return ok;
}

/* Memory stays with the process: to free it might wait for a device that others use. */
static void cuda_close(side_t *side)
{
    if (side->exec)
        cudaGraphExecDestroy((cudaGraphExec_t)side->exec);
    if (side->graph)
        cudaGraphDestroy((cudaGraph_t)side->graph);
    if (side->stream)
        cudaStreamDestroy(stream_of(side));
}

static cudaError_t query_until(side_t *side, double end)
{
    cudaError_t error = cudaStreamQuery(stream_of(side));
    while (error == cudaErrorNotReady && team_now() < end) {
        team_sleep_us(POLL_US);
        error = cudaStreamQuery(stream_of(side));
    }
    return error;
}

static sol_status_t cuda_settle(side_t *side, sol_comm_t comm)
{
    sol_status_t status = SOL_OK;
    cudaError_t error = cudaErrorNotReady;
    double end = team_now() + PATIENCE_S;
    while (status == SOL_OK && error == cudaErrorNotReady && team_now() < end) {
        error = query_until(side, team_now() + 0.001);
        sol_comm_async_error(comm, &status);
    }
    if (status != SOL_OK)
        return status;
    return good(error, "waiting for the stream") ? SOL_OK : SOL_ERR_INTERNAL;
}

static bool cuda_idle(side_t *side)
{
    return good(query_until(side, team_now() + (POLL_US > 100 ? 10 : 1)), "the stream afterwards");
}

/* The stream is idle before a copy from pageable memory: such a one may hold up other threads'. */
static bool copy(side_t *side, void *to, const void *from)
{
    return cuda_idle(side) &&
           good(cudaMemcpyAsync(to, from, 4, cudaMemcpyDefault, stream_of(side)), "a copy") &&
           cuda_idle(side);
}

static bool cuda_write(side_t *side, int32_t value)
{
    return copy(side, side->data, &value);
}

static bool cuda_read(side_t *side, int32_t *value)
{
    return copy(side, value, side->data + 1);
}

static bool cuda_capture(side_t *side, sol_comm_t comm)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    bool ok = good(cudaStreamBeginCapture(stream_of(side), cudaStreamCaptureModeThreadLocal),
                   "beginning a capture");
    for (int i = 0; i < RECORDED && ok; i++)
        ok = sol_all_reduce(side->data, side->data + 8, 8, SOL_FLOAT32, SOL_SUM, comm,
                            side->stream) == SOL_OK;
    ok = good(cudaStreamEndCapture(stream_of(side), &graph), "ending a capture") && ok &&
         good(cudaGraphInstantiate(&exec, graph, 0), "a graph");
    side->graph = graph;
    side->exec = exec;
    return ok;
}

static bool cuda_replay(side_t *side)
{
    return good(cudaGraphLaunch((cudaGraphExec_t)side->exec, stream_of(side)), "a replay");
}

const device_t matrix_cuda = {.name = "cuda",
                              .backend = SOL_BACKEND_CUDA,
                              .ranks = RANKS,
                              .large = LARGE_HERE,
                              .timeout_ms = TIMEOUT_MS,
                              .init_ms = 2000,
                              .init_us = 20000,
#ifdef SOL_EMU
                              .staging_bytes = 256 << 10,
                              .untimed = true,
#endif
                              .open = cuda_open,
                              .close = cuda_close,
                              .settle = cuda_settle,
                              .idle = cuda_idle,
                              .write = cuda_write,
                              .read = cuda_read,
                              .capture = cuda_capture,
                              .replay = cuda_replay};
#endif

/* C wants a translation unit to hold something. */
typedef int matrix_cuda_is_optional;
