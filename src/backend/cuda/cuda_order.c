/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_order.c: see the header. In a capture, edges are added to the graph
 * directly: the runtime allows everything there but the removal of nodes, so
 * the record node is made once and its one incoming edge moved along.
 */
#include "backend/cuda/cuda_order.h"

#include <string.h>

/* The runtime's capture functions changed their shape in 13.0; these are the new ones. */
static cudaError_t capture_info(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                unsigned long long *id, cudaGraph_t *graph,
                                const cudaGraphNode_t **nodes, size_t *count)
{
#if CUDART_VERSION >= 13000
    return cudaStreamGetCaptureInfo(stream, status, id, graph, nodes, NULL, count);
#else
    return cudaStreamGetCaptureInfo_v2(stream, status, id, graph, nodes, count);
#endif
}

static cudaError_t capture_depend(cudaStream_t stream, cudaGraphNode_t *node)
{
#if CUDART_VERSION >= 13000
    return cudaStreamUpdateCaptureDependencies(stream, node, NULL, 1,
                                               cudaStreamAddCaptureDependencies);
#else
    return cudaStreamUpdateCaptureDependencies(stream, node, 1, cudaStreamAddCaptureDependencies);
#endif
}

static cudaError_t move_edge(cudaGraph_t graph, cudaGraphNode_t old, cudaGraphNode_t now,
                             cudaGraphNode_t record)
{
#if CUDART_VERSION >= 13000
    cudaError_t error = cudaGraphRemoveDependencies(graph, &old, &record, NULL, 1);
    return error != cudaSuccess ? error : cudaGraphAddDependencies(graph, &now, &record, NULL, 1);
#else
    cudaError_t error = cudaGraphRemoveDependencies(graph, &old, &record, 1);
    return error != cudaSuccess ? error : cudaGraphAddDependencies(graph, &now, &record, 1);
#endif
}

cudaError_t sol_cuda_order_open(struct sol_cuda_order *order, bool mixing)
{
    memset(order, 0, sizeof *order);
    order->mixing = mixing;
    cudaError_t error = cudaEventCreateWithFlags(&order->last, cudaEventDisableTiming);
    if (error == cudaSuccess) {
        error = cudaEventCreateWithFlags(&order->join, cudaEventDisableTiming);
    }
    return error;
}

void sol_cuda_order_close(struct sol_cuda_order *order)
{
    if (order->last != NULL) {
        cudaEventDestroy(order->last);
    }
    if (order->join != NULL) {
        cudaEventDestroy(order->join);
    }
    memset(order, 0, sizeof *order);
}

static struct sol_cuda_capture *find_capture(struct sol_cuda_order *order, unsigned long long id)
{
    for (int i = 0; i < SOL_CUDA_CAPTURES; i++) {
        if (order->captures[i].id == id) {
            return &order->captures[i];
        }
    }
    return NULL;
}

static cudaError_t begin_captured(struct sol_cuda_order *order, cudaStream_t stream,
                                  unsigned long long id, cudaGraph_t graph,
                                  struct sol_cuda_turn *turn)
{
    struct sol_cuda_capture *capture = find_capture(order, id);
    turn->capture = capture;
    order->captured = true;
    if (capture != NULL) {
        return capture->stream == turn->stream ? cudaSuccess
                                               : capture_depend(stream, &capture->tail);
    }
    if (order->mixing) {
        cudaError_t error = cudaStreamWaitEvent(stream, order->last, cudaEventWaitExternal);
        if (error != cudaSuccess) {
            return error;
        }
    }
    capture = &order->captures[order->next_capture++ % SOL_CUDA_CAPTURES];
    memset(capture, 0, sizeof *capture);
    capture->id = id;
    capture->graph = graph;
    turn->capture = capture;
    return cudaSuccess;
}

cudaError_t sol_cuda_order_begin(struct sol_cuda_order *order, cudaStream_t stream,
                                 struct sol_cuda_turn *turn)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    cudaGraph_t graph = NULL;
    turn->capture = NULL;
    cudaError_t error = capture_info(stream, &status, &id, &graph, NULL, NULL);
    if (error != cudaSuccess) {
        return error;
    }
    if (status == cudaStreamCaptureStatusActive) {
        /* the id may not be asked for now; but a stream that captures cannot be destroyed */
        turn->stream = (unsigned long long)(uintptr_t)stream;
        return begin_captured(order, stream, id, graph, turn);
    }
    if (status == cudaStreamCaptureStatusInvalidated) {
        return cudaErrorStreamCaptureInvalidated;
    }
    error = cudaStreamGetId(stream, &turn->stream);
    if (error != cudaSuccess) {
        return error;
    }
    bool elsewhere = order->called && order->stream != turn->stream;
    if (elsewhere || (order->captured && order->mixing)) {
        return cudaStreamWaitEvent(stream, order->last, 0);
    }
    return cudaSuccess;
}

static cudaError_t end_captured(struct sol_cuda_order *order, cudaStream_t stream,
                                const struct sol_cuda_turn *turn)
{
    struct sol_cuda_capture *capture = turn->capture;
    enum cudaStreamCaptureStatus status;
    const cudaGraphNode_t *nodes = NULL;
    size_t count = 0;
    cudaError_t error = capture_info(stream, &status, NULL, NULL, &nodes, &count);
    if (error != cudaSuccess) {
        return error;
    }
    if (status != cudaStreamCaptureStatusActive) {
        return cudaErrorStreamCaptureInvalidated;
    }
    if (count != 1) { /* behind a launch there is its node alone: nothing was launched */
        capture->id = capture->tail != NULL ? capture->id : 0;
        return cudaSuccess;
    }
    cudaGraphNode_t now = nodes[0];
    if (order->mixing && capture->record == NULL) {
        error = cudaGraphAddEventRecordNode(&capture->record, capture->graph, &now, 1, order->last);
    } else if (order->mixing && capture->tail != now) {
        error = move_edge(capture->graph, capture->tail, now, capture->record);
    }
    capture->tail = now;
    capture->stream = turn->stream;
    return error;
}

cudaError_t sol_cuda_order_end(struct sol_cuda_order *order, cudaStream_t stream,
                               const struct sol_cuda_turn *turn)
{
    if (turn->capture != NULL) {
        return end_captured(order, stream, turn);
    }
    order->called = true;
    order->stream = turn->stream;
    return cudaEventRecord(order->last, stream);
}

cudaError_t sol_cuda_order_after(struct sol_cuda_order *order, cudaStream_t to, cudaStream_t from)
{
    cudaError_t error = cudaEventRecord(order->join, from);
    return error != cudaSuccess ? error : cudaStreamWaitEvent(to, order->join, 0);
}
