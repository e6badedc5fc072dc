/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_devcomm.c: symmetric memory as the caller's kernels see it (core/devcomm.c). */
#include "backend/cuda/cuda_state.h"

#include <string.h>

sol_status_t sol_cuda_dev_window(sol_comm_t comm, const void *memory, sol_window_t *window,
                                 struct sol_bound *bound)
{
    const struct sol_cuda *state = sol_cuda_of(comm);
    const struct sol_cuda_region *region = state->regions;
    while (region != NULL && region->memory.base[comm->rank] != memory) {
        region = region->next;
    }
    if (region == NULL) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "sol_mem_window: memory (%p) is not from sol_mem_alloc on this "
                              "communicator, or was freed",
                              memory);
    }
    memset(window, 0, sizeof *window);
    memcpy(window->base, region->memory.base, sizeof window->base);
    window->bytes = region->memory.bytes;
    window->multicast = region->multicast.base;
    memset(bound, 0, sizeof *bound);
    bound->error = state->gpu.error;
    bound->abort_word = (volatile uint32_t *)(uintptr_t)state->gpu.abort_word;
    bound->timeout_ns = state->gpu.timeout_ns;
    bound->waits = state->gpu.waits;
    bound->rank = comm->rank;
    return SOL_OK;
}

sol_status_t sol_cuda_dev_check(sol_comm_t comm, const sol_dev_config_t *config)
{
    const int channel = sol_cuda_litmus_channel(config, sol_cuda_of(comm)->untrue);
    return channel < 0
               ? SOL_OK
               : sol_comm_error(comm, SOL_ERR_UNSUPPORTED,
                                "sol_dev_comm_create: channel %d is of LINE words, and "
                                "solccl info --litmus saw lines torn on these GPUs: use TAG",
                                channel);
}

sol_status_t sol_cuda_dev_write(sol_comm_t comm, void *to, const void *from, size_t bytes)
{
    struct sol_cuda_device_scope scope;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaStream_t stream = NULL;
    cudaThreadExchangeStreamCaptureMode(&mode);
    sol_cuda_enter(sol_cuda_of(comm)->device, &scope);
    cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error == cudaSuccess) {
        error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream);
    }
    sol_status_t status =
        error != cudaSuccess
            ? sol_comm_error(comm, SOL_ERR_DEVICE, "filling memory: %s", cudaGetErrorString(error))
            : sol_cuda_wait_stream(stream, comm->timeout_ns, "filling memory");
    if (stream != NULL) {
        cudaStreamDestroy(stream);
    }
    sol_cuda_leave(&scope);
    cudaThreadExchangeStreamCaptureMode(&mode);
    return status;
}
