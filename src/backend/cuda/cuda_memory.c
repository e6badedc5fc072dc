/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_memory.c: sol_mem_alloc and its like on GPU ranks. */
#include "backend/cuda/cuda_state.h"

#include <string.h>

/* Zero own part. A failure here is this rank's alone; core collects the outcomes. */
sol_status_t sol_cuda_mem_zero(sol_comm_t comm, const struct sol_cuda_symmetric *memory)
{
    cudaStream_t stream = NULL;
    cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error == cudaSuccess) {
        error = cudaMemsetAsync(memory->base[comm->rank], 0, memory->bytes, stream);
    }
    sol_status_t status =
        error != cudaSuccess
            ? sol_thread_error(SOL_ERR_DEVICE, "zeroing memory: %s", cudaGetErrorString(error))
            : sol_cuda_wait_stream(stream, comm->timeout_ns, "zeroing memory");
    if (stream != NULL) {
        cudaStreamDestroy(stream);
    }
    return status;
}

/* An address for all ranks' memory, where the staging has one: the same on all ranks. It stands for
 * all of what was asked for, or there is none. */
static sol_status_t open_multicast(struct sol_cuda *state, struct sol_cuda_region *region,
                                   const struct sol_cuda_symmetric_config *config)
{
    char why[160];
    if (state->gpu.multicast == NULL) {
        return SOL_OK;
    }
    sol_status_t status = sol_cuda_multicast_open(&region->multicast, config, &region->memory, 1,
                                                  sol_cuda_multicast_calls, why, sizeof why);
    if (status == SOL_OK && region->multicast.bytes < config->bytes) {
        sol_cuda_multicast_close(state->cu, &region->multicast);
    }
    return status;
}

static sol_status_t allocate(sol_comm_t comm, struct sol_cuda *state,
                             struct sol_cuda_region *region, size_t bytes)
{
    struct sol_cuda_symmetric_config config = {.cu = state->cu,
                                               .boot = comm->boot,
                                               .device = state->cu_device,
                                               .handle = state->handle,
                                               .rank = comm->rank,
                                               .nranks = comm->nranks,
                                               .bytes = bytes};
    sol_status_t status = sol_cuda_symmetric_open(&region->memory, &config);
    if (status != SOL_OK) {
        return status;
    }
    status = open_multicast(state, region, &config);
    status = status == SOL_OK ? sol_cuda_mem_zero(comm, &region->memory) : status;
    if (status != SOL_OK) {
        sol_cuda_multicast_close(state->cu, &region->multicast);
        sol_cuda_symmetric_close(state->cu, &region->memory);
    }
    return status;
}

sol_status_t sol_cuda_mem_alloc(sol_comm_t comm, size_t bytes, void **memory)
{
    struct sol_cuda *state = sol_cuda_of(comm);
    struct sol_cuda_device_scope scope;
    if (!state->p2p) {
        return sol_comm_error(comm, SOL_ERR_UNSUPPORTED,
                              "sol_mem_alloc: the GPUs cannot reach each other's memory: %s",
                              state->fallback);
    }
    uint64_t id = ++state->region_ids; /* on every rank, whatever the outcome */
    struct sol_cuda_region *region = sol_calloc(1, sizeof *region);
    if (region == NULL) {
        sol_comm_error(comm, SOL_ERR_MEMORY, "sol_mem_alloc: no memory");
        return sol_boot_break(comm->boot, SOL_ERR_MEMORY);
    }
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    sol_cuda_enter(state->device, &scope);
    sol_status_t status = allocate(comm, state, region, bytes);
    sol_cuda_leave(&scope);
    cudaThreadExchangeStreamCaptureMode(&mode);
    if (status != SOL_OK) {
        sol_free(region);
        return sol_comm_error(comm, status, "sol_mem_alloc: %s", sol_thread_error_text());
    }
    region->id = id;
    region->next = state->regions;
    state->regions = region;
    state->region_bytes += region->memory.bytes;
    *memory = region->memory.base[comm->rank];
    return SOL_OK;
}

sol_status_t sol_cuda_mem_free(sol_comm_t comm, void *memory)
{
    struct sol_cuda *state = sol_cuda_of(comm);
    struct sol_cuda_region **link = &state->regions;
    while (*link != NULL && (*link)->memory.base[comm->rank] != memory) {
        link = &(*link)->next;
    }
    struct sol_cuda_region *region = *link;
    if (region == NULL) {
        return sol_comm_error(
            comm, SOL_ERR_ARGUMENT,
            "sol_mem_free: memory (%p) is not from sol_mem_alloc on this communicator, or "
            "was freed already",
            memory);
    }
    *link = region->next;
    state->region_bytes -= region->memory.bytes;
    sol_cuda_symmetric_close(state->cu, &region->memory);
    sol_free(region->saved);
    sol_free(region);
    return SOL_OK;
}

void sol_cuda_mem_free_all(sol_comm_t comm)
{
    struct sol_cuda *state = sol_cuda_of(comm);
    while (state->regions != NULL) {
        sol_cuda_mem_free(comm, state->regions->memory.base[comm->rank]);
    }
}

/* Kernels push from any memory to staging, so that nothing is gained by knowing more of it. */
sol_status_t sol_cuda_mem_register(sol_comm_t comm, void *memory, size_t bytes, void **handle)
{
    struct sol_cuda *state = sol_cuda_of(comm);
    char why[256];
    if (!sol_cuda_buffer_reachable(&state->buffers, memory, why, sizeof why) ||
        !sol_cuda_buffer_reachable(&state->buffers, (char *)memory + bytes - 1, why, sizeof why)) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_mem_register: %s", why);
    }
    *handle = memory;
    return SOL_OK;
}

sol_status_t sol_cuda_mem_deregister(sol_comm_t comm, void *handle)
{
    (void)comm;
    (void)handle;
    return SOL_OK;
}
