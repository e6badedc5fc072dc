/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_mem_cuda.c: buffers and time of GPU ranks: device memory, one stream, and
 * a clock on the device. Ours and every peer's ranks use this same file.
 *
 *   mode graph, graph-pdl   one CUDA graph: a few calls, event, the batch, event
 *   mode eager              the same without a graph
 *
 * The events lie inside the graph, so launching it is not in the figure, and
 * behind a few calls that bring the ranks together, so their skew is not either.
 */
#ifdef SOL_WITH_CUDA

#include "perf_library.h"
#include "tool.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#define LEAD 4 /* calls before the clock starts */

static cudaStream_t stream;

static bool good(cudaError_t error, const char *what, perf_error_t *text)
{
    if (error == cudaSuccess)
        return true;
    if (text)
        snprintf(text->text, sizeof(text->text), "%s: %s", what, cudaGetErrorString(error));
    else
        tool_error("perf", "%s: %s", what, cudaGetErrorString(error));
    return false;
}

static bool open_device(int rank)
{
    int count = 0;

    if (!good(cudaGetDeviceCount(&count), "counting GPUs", NULL) ||
        !good(cudaSetDevice(rank % (count > 0 ? count : 1)), "choosing a GPU", NULL) ||
        !good(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream", NULL))
        return false;
    perf_stream = stream;
    return true;
}

static void *alloc(size_t bytes)
{
    void *memory = NULL;

    return cudaMalloc(&memory, bytes ? bytes : 1) == cudaSuccess ? memory : NULL;
}

static void release(void *memory)
{
    cudaFree(memory);
}

static bool copy(void *to, const void *from, size_t bytes)
{
    return bytes == 0 ||
           (good(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "copying", NULL) &&
            good(cudaStreamSynchronize(stream), "copying", NULL));
}

static const void *host_view(const void *memory)
{
    (void)memory;
    return NULL;
}

/* What is timed: calls on the stream, between two events. */
struct timing {
    const perf_library_t *library;
    const perf_case_t *c;
    const void *send;
    void *recv;
    size_t batch;
    cudaEvent_t begin, end;
    cudaGraphExec_t exec; /* NULL: eager */
};

static bool enqueue(const struct timing *t, unsigned flags, perf_error_t *error)
{
    return t->library->batch(t->c, t->send, t->recv, 0, LEAD, error) &&
           good(cudaEventRecordWithFlags(t->begin, stream, flags), "an event", error) &&
           t->library->batch(t->c, t->send, t->recv, LEAD, t->batch, error) &&
           good(cudaEventRecordWithFlags(t->end, stream, flags), "an event", error);
}

static bool capture(struct timing *t, perf_error_t *error)
{
    cudaGraph_t graph = NULL;
    bool well = good(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                     "beginning a capture", error);

    if (!well)
        return false;
    well = enqueue(t, cudaEventRecordExternal, error);
    well =
        good(cudaStreamEndCapture(stream, &graph), "ending a capture", well ? error : NULL) && well;
    well = well && good(cudaGraphInstantiate(&t->exec, graph, 0), "making a graph", error);
    if (graph)
        cudaGraphDestroy(graph);
    return well;
}

/* One sample; *ns may be NULL. */
static bool run_once(const struct timing *t, double *ns, perf_error_t *error)
{
    float ms = 0;
    bool well = t->exec ? good(cudaGraphLaunch(t->exec, stream), "launching a graph", error)
                        : enqueue(t, cudaEventRecordDefault, error);

    if (!well || !good(cudaStreamSynchronize(stream), "waiting for the GPU", error) ||
        !good(cudaEventElapsedTime(&ms, t->begin, t->end), "reading events", error))
        return false;
    if (ns)
        *ns = (double)ms * 1e6;
    return true;
}

static bool time_calls(const perf_library_t *library, const perf_case_t *c, const void *send,
                       void *recv, size_t warm, size_t samples, size_t batch, bool alone,
                       double *ns, perf_error_t *error)
{
    struct timing t = {library, c, send, recv, alone ? 1 : batch, NULL, NULL, NULL};
    size_t i;
    bool well = good(cudaEventCreate(&t.begin), "an event", error) &&
                good(cudaEventCreate(&t.end), "an event", error) &&
                (c->mode == PERF_MODE_EAGER || capture(&t, error));

    for (i = 0; well && i < warm; i++)
        well = run_once(&t, NULL, error);
    for (i = 0; well && i < samples; i++)
        well = run_once(&t, &ns[i], error);
    if (t.exec)
        cudaGraphExecDestroy(t.exec);
    if (t.begin)
        cudaEventDestroy(t.begin);
    if (t.end)
        cudaEventDestroy(t.end);
    return well;
}

const perf_device_t perf_device_cuda = {
    .name = "cuda",
    .open = open_device,
    .alloc = alloc,
    .release = release,
    .write = copy,
    .read = copy,
    .host_view = host_view,
    .time = time_calls,
};

#endif

/* C wants a translation unit to hold something. */
typedef int perf_mem_cuda_is_optional;
