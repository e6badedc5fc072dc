/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_sleep.c: the GPU memory of an idle communicator given back, and taken
 * again at the same addresses, so that kernels recorded in graphs find what they
 * were recorded with: staging, protocol state, multicast address, the regions of
 * sol_mem_alloc. The board stays: it is host memory, and errors and aborts go on
 * being heard.
 *
 * After restore everything is as sol_cuda_open left it: staging full of marks,
 * counters at their first value, on every rank, before core lets any rank go on.
 * No rank may free a peer's memory under a running kernel: core's meeting behind
 * prepare comes after every rank's own work.
 *
 * Must never: call cudaMalloc, cudaFree or cudaDeviceSynchronize (cuda_open.c says
 * why).
 */
#include "backend/cuda/cuda_state.h"

#include <string.h>

/* On the rank's device, in a thread that may be capturing elsewhere. */
struct visit {
    struct sol_cuda_device_scope scope;
    enum cudaStreamCaptureMode mode;
};

static void enter(const struct sol_cuda *state, struct visit *visit)
{
    visit->mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&visit->mode);
    sol_cuda_enter(state->device, &visit->scope);
}

static void leave(struct visit *visit)
{
    sol_cuda_leave(&visit->scope);
    cudaThreadExchangeStreamCaptureMode(&visit->mode);
    cudaGetLastError();
}

static struct sol_cuda_symmetric_config config_of(sol_comm_t comm, const struct sol_cuda *state)
{
    return (struct sol_cuda_symmetric_config){.cu = state->cu,
                                              .boot = comm->boot,
                                              .device = state->cu_device,
                                              .handle = state->handle,
                                              .rank = comm->rank,
                                              .nranks = comm->nranks};
}

/* ------------------------------------------------------------------------- contents */

/* Own part of a region to the host (`save`) or back, complete on return. */
static sol_status_t copy(sol_comm_t comm, struct sol_cuda_region *region, bool save)
{
    const char *what = save ? "saving symmetric memory" : "bringing symmetric memory back";
    char *own = region->memory.base[comm->rank];
    cudaStream_t stream = NULL;
    cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error == cudaSuccess) {
        error = save ? cudaMemcpyAsync(region->saved, own, region->memory.bytes,
                                       cudaMemcpyDeviceToHost, stream)
                     : cudaMemcpyAsync(own, region->saved, region->memory.bytes,
                                       cudaMemcpyHostToDevice, stream);
    }
    sol_status_t status =
        error != cudaSuccess
            ? sol_thread_error(SOL_ERR_DEVICE, "%s: %s", what, cudaGetErrorString(error))
            : sol_cuda_wait_stream(stream, comm->timeout_ns, what);
    if (stream != NULL) {
        cudaStreamDestroy(stream);
    }
    return status;
}

static sol_status_t save_regions(sol_comm_t comm, struct sol_cuda *state)
{
    sol_status_t status = SOL_OK;
    for (struct sol_cuda_region *at = state->regions; at != NULL && status == SOL_OK;
         at = at->next) {
        at->saved = sol_calloc(1, at->memory.bytes);
        status = at->saved != NULL
                     ? copy(comm, at, true)
                     : sol_thread_error(SOL_ERR_MEMORY,
                                        "no host memory for %zu bytes of symmetric memory",
                                        at->memory.bytes);
    }
    return status;
}

void sol_cuda_sleep_forget(sol_comm_t comm)
{
    for (struct sol_cuda_region *at = sol_cuda_of(comm)->regions; at != NULL; at = at->next) {
        sol_free(at->saved);
        at->saved = NULL;
    }
}

/* --------------------------------------------------------------------------- asleep */

sol_status_t sol_cuda_sleep_prepare(sol_comm_t comm, bool keep)
{
    struct sol_cuda *state = sol_cuda_of(comm);
    struct visit visit;
    if (state->p2p && state->handle == SOL_CUDA_HANDLE_IPC) {
        return sol_comm_error(comm, SOL_ERR_UNSUPPORTED,
                              "sol_comm_sleep: memory shared by legacy IPC handles cannot come "
                              "back at its addresses (SOLCCL_CUDA_HANDLE)");
    }
    for (const struct sol_cuda_region *at = state->regions; at != NULL; at = at->next) {
        if (at->multicast.base != NULL) {
            return sol_comm_error(comm, SOL_ERR_UNSUPPORTED,
                                  "sol_comm_sleep: symmetric memory with a multicast address "
                                  "cannot come back at it (SOLCCL_CUDA_MULTICAST)");
        }
    }
    enter(state, &visit);
    sol_status_t status = SOL_OK;
    if (!sol_cuda_device_is_done(comm, state)) {
        status = sol_thread_error(SOL_ERR_TIMEOUT, "this rank's GPU is still busy");
    } else if (keep) {
        status = save_regions(comm, state);
    }
    leave(&visit);
    if (status != SOL_OK) {
        return sol_comm_error(comm, status, "sol_comm_sleep: %s", sol_thread_error_text());
    }
    sol_cuda_poll_error(comm); /* what the last kernels had to say */
    int failed = atomic_load(&comm->failed);
    return failed == 0 ? SOL_OK
                       : sol_thread_error((sol_status_t)failed, "sol_comm_sleep: %s", comm->fatal);
}

sol_status_t sol_cuda_sleep_release(sol_comm_t comm)
{
    struct sol_cuda *state = sol_cuda_of(comm);
    struct visit visit;
    enter(state, &visit);
    sol_cuda_multicast_suspend(state->cu, &state->multicast);
    CUresult error = sol_cuda_symmetric_suspend(state->cu, &state->staging);
    for (struct sol_cuda_region *at = state->regions; at != NULL; at = at->next) {
        CUresult this = sol_cuda_symmetric_suspend(state->cu, &at->memory);
        error = error != CUDA_SUCCESS ? error : this;
    }
    state->asleep = true;
    leave(&visit);
    return error == CUDA_SUCCESS
               ? SOL_OK
               : sol_comm_fail(comm, SOL_ERR_DEVICE, "sol_comm_sleep: releasing memory: %s",
                               sol_cuda_driver_error(error));
}

/* ---------------------------------------------------------------------------- awake */

static struct sol_cuda_region *region_of(const struct sol_cuda *state, uint64_t id)
{
    struct sol_cuda_region *at = state->regions;
    while (at != NULL && at->id != id) {
        at = at->next;
    }
    return at;
}

/* The smallest id above `before` that any rank still has; 0: none. Collective. */
static sol_status_t next_region(sol_comm_t comm, const struct sol_cuda *state, uint64_t before,
                                uint64_t *id)
{
    uint64_t mine = 0, all[SOL_GPU_MAX_RANKS];
    for (const struct sol_cuda_region *at = state->regions; at != NULL && at->id > before;
         at = at->next) {
        mine = at->id; /* (newest first) */
    }
    sol_status_t status = sol_boot_all_gather(comm->boot, &mine, sizeof mine, all);
    *id = 0;
    for (int r = 0; r < comm->nranks && status == SOL_OK; r++) {
        *id = all[r] != 0 && (*id == 0 || all[r] < *id) ? all[r] : *id;
    }
    return status;
}

/* All regions at their addresses, without their contents. A verdict of all ranks. */
static sol_status_t resume_regions(sol_comm_t comm, struct sol_cuda *state)
{
    struct sol_cuda_symmetric_config config = config_of(comm, state);
    uint64_t id = 0;
    sol_status_t status = next_region(comm, state, 0, &id);
    while (status == SOL_OK && id != 0) {
        struct sol_cuda_region *region = region_of(state, id);
        config.bytes = region != NULL ? region->memory.bytes : 0;
        status = sol_cuda_symmetric_resume(region != NULL ? &region->memory : NULL, &config);
        if (status == SOL_OK) {
            status = next_region(comm, state, id, &id);
        }
    }
    return status;
}

static sol_status_t resume_all(sol_comm_t comm, struct sol_cuda *state)
{
    struct sol_cuda_symmetric_config config = config_of(comm, state);
    const char *before = state->gpu.multicast;
    config.bytes = state->staging.bytes;
    sol_status_t status = sol_cuda_symmetric_resume(&state->staging, &config);
    if (status == SOL_OK && before != NULL) {
        status = sol_cuda_open_multicast(comm, state);
    }
    if (status == SOL_OK && state->gpu.multicast != before) {
        state->gpu.multicast = (char *)(uintptr_t)before; /* for the next try */
        status = sol_thread_error(SOL_ERR_DEVICE, "multicast could not be had again");
    }
    return status == SOL_OK ? resume_regions(comm, state) : status;
}

/* What of it is this rank's own affair. */
static sol_status_t fill(sol_comm_t comm, struct sol_cuda *state)
{
    cudaStream_t stream = NULL;
    cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) {
        return sol_thread_error(SOL_ERR_DEVICE, "making a stream: %s", cudaGetErrorString(error));
    }
    sol_status_t status = sol_cuda_start(comm, state, stream);
    cudaStreamDestroy(stream);
    for (struct sol_cuda_region *at = state->regions; at != NULL && status == SOL_OK;
         at = at->next) {
        status = at->saved != NULL ? copy(comm, at, false) : sol_cuda_mem_zero(comm, &at->memory);
    }
    return status;
}

sol_status_t sol_cuda_sleep_restore(sol_comm_t comm)
{
    struct sol_cuda *state = sol_cuda_of(comm);
    struct visit visit;
    if (!state->p2p) { /* NCCL keeps what it has */
        state->asleep = false;
        return SOL_OK;
    }
    enter(state, &visit);
    sol_status_t status = resume_all(comm, state);
    if (status == SOL_OK) {
        status = fill(comm, state);
    }
    leave(&visit);
    if (status != SOL_OK) {
        return sol_comm_error(comm, status, "sol_comm_wake: %s", sol_thread_error_text());
    }
    state->asleep = false;
    return SOL_OK;
}
