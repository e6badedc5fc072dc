/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dropin_order.c: NCCL runs the operations of a communicator in the order in
 * which they were called, on whatever streams they are; so does solccl with its
 * own. Where both have operations of one communicator on different streams, this
 * puts the one behind the other.
 *
 * A communicator that only ever sees one stream pays a comparison a call. From
 * the second stream on, an event marks the last operation, and an operation of
 * the other library on another stream waits for it; inside a capture that is a
 * dependency and no work. An operation in one capture and one outside are left to
 * the two libraries, which order their own replays.
 *
 * Never: touch a stream other than the one of the call that is being made.
 */
#include "dropin/nccl/dropin.h"

#ifdef SOL_WITH_CUDA
#include <cuda_runtime_api.h>

/* Marks put off to the end of a group. One too many is lost: order is then the caller's. */
#define WAITING 64

static _Thread_local struct {
    sol_dropin_comm *comms[WAITING];
    nccl_stream streams[WAITING];
    int count;
} later SOL_NEAR;

/* The capture that a stream is in; 0: none, or none that could be told. */
static unsigned long long capture_of(nccl_stream stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
#if CUDART_VERSION >= 13000
    cudaError_t error =
        cudaStreamGetCaptureInfo((cudaStream_t)stream, &status, &id, NULL, NULL, NULL, NULL);
#else
    cudaError_t error =
        cudaStreamGetCaptureInfo_v2((cudaStream_t)stream, &status, &id, NULL, NULL, NULL);
#endif
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
    }
    return error == cudaSuccess && status == cudaStreamCaptureStatusActive ? id : 0;
}

static void make_event(sol_dropin_comm *comm)
{
    cudaEvent_t event = NULL;
    int before = sol_dropin_device_set(comm->device);
    if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess) {
        (void)cudaGetLastError();
    }
    sol_dropin_device_restore(before);
    comm->mark = event;
}

void sol_dropin_order_wait(sol_dropin_comm *comm, bool taken, nccl_stream stream)
{
    if (!comm->many) {
        comm->many = true;
        make_event(comm);
        return;
    }
    if (taken != comm->last_taken && comm->marked && comm->mark_capture == capture_of(stream) &&
        cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)comm->mark, 0) != cudaSuccess) {
        (void)cudaGetLastError();
    }
}

static void mark(sol_dropin_comm *comm, nccl_stream stream)
{
    comm->mark_capture = capture_of(stream);
    comm->marked = cudaEventRecord((cudaEvent_t)comm->mark, (cudaStream_t)stream) == cudaSuccess;
    if (!comm->marked) {
        (void)cudaGetLastError();
    }
}

void sol_dropin_order_mark(sol_dropin_comm *comm, nccl_stream stream)
{
    if (comm->mark == NULL) {
        return;
    }
    if (sol_dropin_depth == 0) {
        mark(comm, stream);
    } else if (later.count < WAITING) {
        later.comms[later.count] = comm;
        later.streams[later.count] = stream;
        later.count++;
    }
}

void sol_dropin_order_group_end(void)
{
    for (int i = 0; i < later.count; i++) {
        mark(later.comms[i], later.streams[i]);
    }
    later.count = 0;
}

void sol_dropin_order_close(sol_dropin_comm *comm)
{
    int kept = 0;
    for (int i = 0; i < later.count; i++) {
        if (later.comms[i] != comm) {
            later.comms[kept] = later.comms[i];
            later.streams[kept++] = later.streams[i];
        }
    }
    later.count = kept;
    if (comm->mark != NULL) {
        cudaEventDestroy((cudaEvent_t)comm->mark);
    }
}

#else /* CPU ranks have no streams */

void sol_dropin_order_wait(sol_dropin_comm *comm, bool taken, nccl_stream stream)
{
    (void)comm, (void)taken, (void)stream;
}
void sol_dropin_order_mark(sol_dropin_comm *comm, nccl_stream stream)
{
    (void)comm, (void)stream;
}
void sol_dropin_order_group_end(void)
{
}
void sol_dropin_order_close(sol_dropin_comm *comm)
{
    (void)comm;
}

#endif
