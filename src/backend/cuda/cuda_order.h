/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_order.h: the operations of a communicator run one after the other, in
 * the order in which the host called them, whatever streams and graphs they are
 * on. Kernels share the protocol state of their rank, and all ranks must run
 * them in the same order; the caller should not have to think of either.
 *
 *   eager call    [wait for `last`]  kernel  record `last`
 *   in a capture  external wait on `last` at the head of the graph, once
 *                 kernel (after the capture's previous one, also across streams)
 *                 ...
 *                 external record of `last` behind the last one: one node, moved
 *
 * So a graph waits for what was called before its launch, and what is called
 * after the launch waits for the graph, at the price of two event nodes a graph
 * (not a call). SOLCCL_GRAPH_MIXING=0 leaves them out, for programs that order
 * all launches themselves, and for captures that may hold kernels only (bodies
 * of conditional nodes).
 *
 * Streams are told apart by their ids, which the runtime never uses twice: a
 * handle may dangle or be reused. No stream but the caller's is ever touched.
 */
#ifndef SOL_CUDA_ORDER_H
#define SOL_CUDA_ORDER_H

#include "base/base.h"

#include <cuda_runtime_api.h>

#define SOL_CUDA_CAPTURES                                                                          \
    8 /* captures at once that are kept apart; more still work, with more nodes */

struct sol_cuda_capture {
    unsigned long long id; /* of the capture; 0: free */
    unsigned long long stream;
    cudaGraph_t graph;
    cudaGraphNode_t tail;   /* the last operation's node */
    cudaGraphNode_t record; /* behind it; NULL without mixing */
};

struct sol_cuda_order {
    cudaEvent_t last; /* behind the last operation called */
    cudaEvent_t join; /* scratch: to gather the streams of a group */
    bool mixing;
    bool captured;             /* there may be graphs that we do not see being launched */
    bool called;               /* `stream` holds something */
    unsigned long long stream; /* id of the last eager call's stream */
    struct sol_cuda_capture captures[SOL_CUDA_CAPTURES];
    unsigned next_capture;
};

/* One operation's place: filled by begin, used by end. */
struct sol_cuda_turn {
    unsigned long long stream;
    struct sol_cuda_capture *capture; /* NULL: eager */
};

cudaError_t sol_cuda_order_open(struct sol_cuda_order *order, bool mixing);
void sol_cuda_order_close(struct sol_cuda_order *order);

/* Around exactly one kernel launch (or a series of them) on `stream`. */
cudaError_t sol_cuda_order_begin(struct sol_cuda_order *order, cudaStream_t stream,
                                 struct sol_cuda_turn *turn);
cudaError_t sol_cuda_order_end(struct sol_cuda_order *order, cudaStream_t stream,
                               const struct sol_cuda_turn *turn);

/* What is on `from` so far happens before what comes on `to`. Both eager or both in one capture. */
cudaError_t sol_cuda_order_after(struct sol_cuda_order *order, cudaStream_t to, cudaStream_t from);

#endif
