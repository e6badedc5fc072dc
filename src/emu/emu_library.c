/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_library.c: functions of the CUDA runtime that a library's host side asks
 * for and a program hardly: stream-ordered memory, pools, IPC within a process,
 * and what a capture looks like from outside.
 *
 * Captures: a graph here is one line, in the order of the calls (emu_stream.h).
 * There are no nodes to name, so a capture shows none, and edges are refused.
 */
#include "cuda_runtime_api.h"
#include "emu/emu_stream.h"

#include <string.h>

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int device,
                                      int peer)
{
    (void)attribute;
    *value = device != peer;
    return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **memory, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    return cudaMalloc(memory, bytes);
}

/* Waits for the stream, where CUDA frees in its turn. */
cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream)
{
    cudaError_t e = memory ? cudaStreamSynchronize(stream) : cudaSuccess;
    emu_enter();
    if (memory && emu.open && !emu_deallocate(memory))
        e = cudaErrorInvalidValue;
    emu_leave();
    return e;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    (void)device;
    *pool = NULL;
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value)
{
    (void)pool;
    (void)attribute;
    (void)value;
    return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *memory)
{
    memset(handle, 0, sizeof(*handle));
    memcpy(handle->reserved, &memory, sizeof(memory));
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle, unsigned flags)
{
    (void)flags;
    memcpy(memory, handle.reserved, sizeof(*memory));
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *memory)
{
    (void)memory;
    return cudaSuccess;
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device)
{
    *device = stream->device->index;
    return cudaSuccess;
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id)
{
    *id = (unsigned long long)(uintptr_t)stream;
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *count)
{
    cudaError_t e = cudaStreamIsCapturing(stream, status);
    const bool one = e == cudaSuccess && *status == cudaStreamCaptureStatusActive;
    if (id)
        *id = one ? (unsigned long long)(uintptr_t)stream->capture : 0;
    if (graph)
        *graph = one ? stream->capture : NULL;
    if (nodes)
        *nodes = NULL;
    if (edges)
        *edges = NULL;
    if (count)
        *count = 0;
    return e;
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *nodes,
                                                const cudaGraphEdgeData *edges, size_t count,
                                                unsigned flags)
{
    (void)stream;
    (void)nodes;
    (void)edges;
    (void)flags;
    return count ? cudaErrorNotSupported : cudaSuccess;
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                        const cudaGraphNode_t *nodes, size_t count,
                                        cudaEvent_t event)
{
    (void)graph;
    (void)nodes;
    (void)count;
    (void)event;
    *node = NULL;
    return cudaErrorNotSupported;
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                     const cudaGraphNode_t *to, const cudaGraphEdgeData *edges,
                                     size_t count)
{
    (void)graph;
    (void)from;
    (void)to;
    (void)edges;
    return count ? cudaErrorNotSupported : cudaSuccess;
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                        const cudaGraphNode_t *to, const cudaGraphEdgeData *edges,
                                        size_t count)
{
    return cudaGraphAddDependencies(graph, from, to, edges, count);
}
