/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_runtime.c: the CUDA runtime's functions, on the emulated machine. What is
 * asynchronous in CUDA happens when somebody waits: the waiting thread of the
 * host turns the machine.
 *
 * Each thread of the host has its current device. Calls from several threads
 * take turns.
 */
#include "cuda_runtime_api.h"
#include "emu/emu_stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct emu_stream *null_streams[EMU_MAX_DEVICES];
static __thread int current_device;
static __thread cudaError_t last_error;

static cudaError_t result(cudaError_t e)
{
    if (e != cudaSuccess && e != cudaErrorNotReady)
        last_error = e;
    return e;
}

/* ----------------------------------------------------------------------- machine */

void emu_enter(void)
{
    emu_turn_lock();
}

void emu_leave(void)
{
    if (emu.open && !emu.failed)
        emu_host_looks();
    pthread_mutex_unlock(&emu.lock);
}

bool emu_open(const struct emu_options *options)
{
    emu_close();
    memset(&emu, 0, sizeof(emu));
    pthread_mutex_init(&emu.lock, NULL);
    emu.options = *options;
    if (emu.options.devices <= 0)
        emu.options.devices = 2;
    if (emu.options.devices > EMU_MAX_DEVICES)
        emu.options.devices = EMU_MAX_DEVICES;
    if (emu.options.sms <= 0)
        emu.options.sms = 16;
    if (emu.options.ctas_per_sm <= 0)
        emu.options.ctas_per_sm = 2;
    emu.random = options->seed;
    emu.now_ns = 1000000000;
    emu.open = true;
    emu_report_open();
    current_device = 0;
    last_error = cudaSuccess;
    emu_sched_open();
    if (!emu_memory_open()) {
        emu_close();
        return false;
    }
    for (int i = 0; i < emu.options.devices; i++)
        null_streams[i] = emu_stream_new(&emu.devices[i]);
    return true;
}

void emu_close(void)
{
    if (!emu.open)
        return;
    emu_sched_close();
    emu_streams_close();
    emu_memory_close();
    emu_stacks_close();
    emu_multicast_close();
    emu_clock_drop(emu.host_known);
    emu.host_known = NULL;
    emu.open = false;
}

struct emu_counts emu_counts(void)
{
    return emu.counts;
}

static cudaError_t state(void)
{
    if (!emu.open)
        return cudaErrorInitializationError;
    return emu.failed ? cudaErrorLaunchFailure : cudaSuccess;
}

static struct emu_stream *stream_of(cudaStream_t stream)
{
    if (stream == NULL || stream == cudaStreamLegacy || stream == cudaStreamPerThread)
        return null_streams[current_device];
    return stream;
}

/* Where ranks of one program take turns (emu_host.c), the others go on first. */
static bool (*host_wait)(bool (*done)(const void *), const void *arg);

void emu_host_waits(bool (*wait)(bool (*done)(const void *), const void *arg))
{
    host_wait = wait;
}

static cudaError_t wait_some(bool (*done)(const void *), const void *arg, bool patient)
{
    if (emu.options.threads)
        return emu_wait_in_turns(done, arg, patient) ? cudaSuccess : cudaErrorLaunchFailure;
    if (host_wait) {
        pthread_mutex_unlock(&emu.lock);
        bool good = host_wait(done, arg);
        pthread_mutex_lock(&emu.lock);
        return good ? cudaSuccess : cudaErrorLaunchFailure;
    }
    return emu_run(done, arg) ? cudaSuccess : cudaErrorLaunchFailure;
}

static cudaError_t wait_for(bool (*done)(const void *), const void *arg)
{
    return wait_some(done, arg, true);
}

/* In a stream, or in the graph that it captures. */
static cudaError_t enqueue(cudaStream_t stream, const struct emu_op *op)
{
    cudaError_t e = state();
    if (e != cudaSuccess)
        return e;
    struct emu_stream *s = stream_of(stream);
    bool ok = s->capture ? emu_graph_add(s->capture, op) : emu_stream_add(s, op);
    return ok ? cudaSuccess : cudaErrorMemoryAllocation;
}

int emu_enqueue(const void *kernel, void (*invoke)(const void *), void *arguments,
                void (*release)(void *), struct emu_dim grid, struct emu_dim block,
                unsigned cluster, size_t shared_bytes, bool early, void *stream)
{
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    struct emu_launch *l = calloc(1, sizeof(*l));
    if (!l || threads == 0 || threads > EMU_THREADS_MAX || blocks == 0 || blocks > 1u << 20 ||
        cluster == 0 || cluster > EMU_CLUSTER_MAX || blocks % cluster != 0) {
        free(l);
        release(arguments);
        return result(l ? cudaErrorInvalidValue : cudaErrorMemoryAllocation);
    }
    *l = (struct emu_launch){kernel, invoke,  arguments,    release, grid,
                             block,  cluster, shared_bytes, early,   1};
    struct emu_op op = {.kind = EMU_OP_KERNEL, .launch = l};
    emu_enter();
    cudaError_t e = enqueue(stream, &op);
    emu_launch_drop(l);
    emu_leave();
    return result(e);
}

/* ------------------------------------------------------------------------ errors */

static const struct {
    cudaError_t error;
    const char *name, *text;
} error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no device"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "not ready"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "enabled already"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure",
     "a kernel failed: see the emulator's report"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "not supported by the emulator"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "not permitted in a capture"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated", "capture invalidated"},
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof(error_texts) / sizeof(*error_texts); i++)
        if (error_texts[i].error == error)
            return error_texts[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof(error_texts) / sizeof(*error_texts); i++)
        if (error_texts[i].error == error)
            return error_texts[i].text;
    return "unrecognized error code";
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

/* ----------------------------------------------------------------------- devices */

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = emu.open ? emu.options.devices : 0;
    return result(emu.open ? cudaSuccess : cudaErrorNoDevice);
}

static bool valid_device(int device)
{
    return emu.open && device >= 0 && device < emu.options.devices;
}

cudaError_t cudaSetDevice(int device)
{
    if (!valid_device(device))
        return result(cudaErrorInvalidDevice);
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    if (!valid_device(device))
        return result(cudaErrorInvalidDevice);
    memset(p, 0, sizeof(*p));
    snprintf(p->name, sizeof(p->name), "emulated GPU");
    p->totalGlobalMem = emu.arena_bytes;
    p->major = 9;
    p->multiProcessorCount = emu.options.sms;
    p->maxThreadsPerBlock = EMU_THREADS_MAX;
    p->warpSize = 32;
    p->pciBusID = device + 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    if (!valid_device(device))
        return result(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = EMU_THREADS_MAX;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = emu.options.sms;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        break;
    default:
        *value = 0;
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device)
{
    snprintf(text, (size_t)bytes, "0000:%02x:00.0", device + 1);
    return result(valid_device(device) ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = device != peer;
    return result(valid_device(device) && valid_device(peer) ? cudaSuccess
                                                             : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    (void)flags;
    return result(valid_device(peer) ? cudaSuccess : cudaErrorInvalidDevice);
}

/* Everything of a device, or (NULL) of all. */
static bool device_idle(const void *device)
{
    const struct emu_device *d = device;
    return !d->grids && emu_streams_idle(d);
}

cudaError_t cudaDeviceSynchronize(void)
{
    emu_enter();
    cudaError_t e = state();
    if (e == cudaSuccess)
        e = wait_for(device_idle, &emu.devices[current_device]);
    if (e == cudaSuccess)
        emu_streams_learn(&emu.devices[current_device]);
    emu_leave();
    return result(e);
}

/* ------------------------------------------------------------------------ memory */

static cudaError_t allocate(void **memory, size_t bytes, int device, const char *kind)
{
    *memory = NULL;
    emu_enter();
    cudaError_t e = state();
    if (e == cudaSuccess && bytes) {
        *memory = emu_allocate(bytes, device, kind);
        e = *memory ? cudaSuccess : cudaErrorMemoryAllocation;
    }
    emu_leave();
    return result(e);
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    return allocate(memory, bytes, current_device, "device memory");
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    return allocate(memory, bytes, -1, "pinned host memory");
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    return cudaHostAlloc(memory, bytes, 0);
}

cudaError_t cudaFree(void *memory)
{
    cudaError_t e = cudaSuccess;
    if (!memory)
        return cudaSuccess;
    emu_enter();
    /* It waits for the device, as CUDA's does. */
    if (state() == cudaSuccess)
        e = wait_for(device_idle, &emu.devices[current_device]);
    if (emu.open && !emu_deallocate(memory))
        e = cudaErrorInvalidValue;
    emu_leave();
    return result(e);
}

cudaError_t cudaFreeHost(void *memory)
{
    return cudaFree(memory);
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
    (void)flags;
    *device = host;
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags)
{
    (void)flags;
    return result(memory && bytes ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaHostUnregister(void *memory)
{
    return result(memory ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
    int device = emu.open ? emu_owner(p, NULL, NULL, NULL) : -2;
    memset(a, 0, sizeof(*a));
    a->type = device >= 0    ? cudaMemoryTypeDevice
              : device == -1 ? cudaMemoryTypeHost
                             : cudaMemoryTypeUnregistered;
    a->device = device >= 0 ? device : current_device;
    a->devicePointer = device >= -1 ? (void *)(uintptr_t)p : NULL;
    a->hostPointer = device < 0 ? (void *)(uintptr_t)p : NULL;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *free_bytes = emu.arena_bytes / 2;
    *total = emu.arena_bytes;
    return result(state());
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    struct emu_op op = {.kind = EMU_OP_COPY, .to = to, .from = from, .bytes = bytes};
    (void)kind;
    emu_enter();
    cudaError_t e = enqueue(stream, &op);
    emu_leave();
    return result(e);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    struct emu_op op = {.kind = EMU_OP_FILL, .to = to, .bytes = bytes, .value = value};
    emu_enter();
    cudaError_t e = enqueue(stream, &op);
    emu_leave();
    return result(e);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t e = cudaDeviceSynchronize();
    if (e == cudaSuccess)
        e = cudaMemcpyAsync(to, from, bytes, kind, NULL);
    return e == cudaSuccess ? cudaStreamSynchronize(NULL) : e;
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    cudaError_t e = cudaDeviceSynchronize();
    if (e == cudaSuccess)
        e = cudaMemsetAsync(to, value, bytes, NULL);
    return e == cudaSuccess ? cudaStreamSynchronize(NULL) : e;
}

/* ----------------------------------------------------------------------- streams */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    (void)flags;
    emu_enter();
    cudaError_t e = state();
    *stream = e == cudaSuccess ? emu_stream_new(&emu.devices[current_device]) : NULL;
    if (e == cudaSuccess && !*stream)
        e = cudaErrorMemoryAllocation;
    emu_leave();
    return result(e);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    (void)priority;
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    emu_enter();
    cudaError_t e = state();
    struct emu_stream *s = e == cudaSuccess ? stream_of(stream) : NULL;
    if (s && s->capture)
        e = cudaErrorStreamCaptureUnsupported;
    if (e == cudaSuccess)
        e = wait_for(emu_stream_idle, s);
    if (e == cudaSuccess)
        emu_clock_join(&emu.host_known, s->known);
    emu_leave();
    return result(e);
}

/* Some work is done for the asker, so that a loop of questions ends. */
static bool enough(const void *until)
{
    return emu.counts.steps >= *(const uint64_t *)until || emu_machine_idle();
}

static cudaError_t work_a_little(void)
{
    uint64_t until = emu.counts.steps + 1000;
    return wait_some(enough, &until, false);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    emu_enter();
    cudaError_t e = state();
    struct emu_stream *s = e == cudaSuccess ? stream_of(stream) : NULL;
    if (s && s->capture)
        e = cudaErrorStreamCaptureUnsupported;
    if (e == cudaSuccess && !emu_stream_idle(s))
        e = work_a_little();
    if (e == cudaSuccess && !emu_stream_idle(s))
        e = cudaErrorNotReady;
    if (e == cudaSuccess)
        emu_clock_join(&emu.host_known, s->known);
    emu_leave();
    return result(e);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    cudaError_t e = cudaStreamSynchronize(stream);
    emu_enter();
    if (emu.open)
        emu_stream_free(stream);
    emu_leave();
    return result(e);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    struct emu_op op = {.kind = EMU_OP_CALL, .function = function, .argument = argument};
    emu_enter();
    cudaError_t e = enqueue(stream, &op);
    emu_leave();
    return result(e);
}

/* ------------------------------------------------------------------------ events */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof(**event));
    if (!*event)
        return result(cudaErrorMemoryAllocation);
    (*event)->users = 1;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    emu_enter();
    emu_event_drop(event);
    emu_leave();
    return cudaSuccess;
}

/* In a capture, a record and a wait only say which branch comes after which: the graph here is one
 * line, in the order of the calls, which obeys them all. */
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    emu_enter();
    cudaError_t e = state();
    if (e == cudaSuccess) {
        struct emu_stream *s = stream_of(stream);
        event->capture = s->capture;
        if (!s->capture) {
            struct emu_op op = {.kind = EMU_OP_RECORD, .event = event, .count = ++event->asked};
            e = enqueue(stream, &op);
        }
    }
    emu_leave();
    return result(e);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    emu_enter();
    cudaError_t e = state();
    if (e == cudaSuccess) {
        struct emu_stream *s = stream_of(stream);
        if (event->capture) {
            s->capture = event->capture;
        } else if (event->asked && !s->capture) {
            struct emu_op op = {.kind = EMU_OP_WAIT, .event = event, .count = event->asked};
            e = enqueue(stream, &op);
        }
    }
    emu_leave();
    return result(e);
}

static bool event_done(const void *event)
{
    const struct emu_event_object *e = event;
    return e->done >= e->asked;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    emu_enter();
    cudaError_t e = state();
    if (e == cudaSuccess && !event_done(event))
        e = work_a_little();
    if (e == cudaSuccess && !event_done(event))
        e = cudaErrorNotReady;
    if (e == cudaSuccess)
        emu_clock_join(&emu.host_known, event->known);
    emu_leave();
    return result(e);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    emu_enter();
    cudaError_t e = state();
    if (e == cudaSuccess)
        e = wait_for(event_done, event);
    if (e == cudaSuccess)
        emu_clock_join(&emu.host_known, event->known);
    emu_leave();
    return result(e);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    *ms = (float)((double)(end->time - begin->time) * 1e-6);
    return result(state());
}

/* ------------------------------------------------------------------------ graphs */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)mode;
    struct emu_stream *s = stream_of(stream);
    if (s->capture)
        return result(cudaErrorInvalidValue);
    s->capture = calloc(1, sizeof(*s->capture));
    if (!s->capture)
        return result(cudaErrorMemoryAllocation);
    s->capture->users = 1;
    s->capture->tail = &s->capture->head;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    struct emu_stream *s = stream_of(stream);
    *graph = s->capture;
    emu_enter();
    emu_streams_end_capture(s->capture);
    emu_leave();
    return result(*graph ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    *status =
        stream_of(stream)->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    *mode = cudaStreamCaptureModeGlobal;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    graph->users++;
    *exec = graph;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;
    emu_enter();
    for (struct emu_op *op = exec->head; op && e == cudaSuccess; op = op->next)
        e = enqueue(stream, op);
    emu_leave();
    return result(e);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    emu_enter();
    emu_graph_drop(graph);
    emu_leave();
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    return cudaGraphDestroy(exec);
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    (void)attribute;
    (void)value;
    return function != NULL ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function)
{
    memset(attributes, 0, sizeof(*attributes));
    attributes->maxThreadsPerBlock = EMU_THREADS_MAX;
    attributes->numRegs = 64;
    return result(function ? cudaSuccess : cudaErrorInvalidValue);
}
