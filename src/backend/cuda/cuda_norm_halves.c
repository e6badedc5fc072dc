/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_norm_halves.c: sol_norm_start and sol_norm_wait on GPU ranks: a handle's lanes are
 * symmetric memory of their own, and each half is one kernel in the order of the communicator's
 * operations. Nothing here is ever left to NCCL.
 *
 * Must never: allocate, wait or look at a lane in a half: which lane it is, core says, and how far
 * that lane has come, the device knows. So a graph holds what was called while it was captured.
 */
#include "backend/cuda/cuda_state.h"
#include "core/norm_halves.h"
#include "core/setup.h"
#include "device/kernels/norm_halves_launch.h"

#include <string.h>

#define CREATE "sol_norm_create"

/* All lanes empty, complete on return. */
static sol_status_t fill(sol_comm_t comm, const struct sol_cuda *state,
                         const struct sol_gpu_norm_halves *gpu)
{
    struct sol_cuda_device_scope scope;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaStream_t stream = NULL;
    sol_status_t status = SOL_OK;
    cudaThreadExchangeStreamCaptureMode(&mode);
    sol_cuda_enter(state->device, &scope);
    cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error == cudaSuccess) {
        error = sol_gpu_norm_halves_init(gpu, comm->debug_epoch, stream);
        status = sol_cuda_wait_stream(stream, comm->timeout_ns, "initialising a handle's lanes");
        cudaStreamDestroy(stream);
    }
    sol_cuda_leave(&scope);
    cudaThreadExchangeStreamCaptureMode(&mode);
    if (error != cudaSuccess) {
        status = sol_thread_error(SOL_ERR_DEVICE, "%s", cudaGetErrorString(error));
    }
    return status == SOL_OK ? SOL_OK
                            : sol_comm_error(comm, status, CREATE ": %s", sol_thread_error_text());
}

/* Memory for the lanes, mapped everywhere, and this rank's part of it filled. */
static sol_status_t open_lanes(sol_comm_t comm, const sol_norm_config_t *config, uint64_t bytes,
                               struct sol_gpu_norm_halves *gpu, char **memory)
{
    const struct sol_cuda *state = sol_cuda_of(comm);
    sol_window_t window;
    struct sol_bound bound;
    void *own = NULL;
    sol_status_t status = sol_mem_alloc(comm, bytes, &own);
    if (status != SOL_OK) { /* on all ranks */
        return sol_comm_error(comm, status, CREATE ": %s", sol_thread_error_text());
    }
    sol_status_t mine = sol_cuda_dev_window(comm, own, &window, &bound);
    if (mine == SOL_OK) {
        sol_gpu_norm_halves_describe(gpu, &state->gpu, config, window.base);
        mine = fill(comm, state, gpu);
    }
    /* no rank's start may push before every rank's lanes are filled: this is the meeting, too */
    status = sol_agree_outcome(comm, mine);
    if (status != SOL_OK) {
        (void)sol_mem_free(comm, own);
        return status;
    }
    *memory = own;
    return SOL_OK;
}

sol_status_t sol_cuda_norm_open(sol_comm_t comm, struct sol_norm_halves *halves)
{
    const struct sol_cuda *state = sol_cuda_of(comm);
    if (!state->p2p) {
        return sol_comm_error(comm, SOL_ERR_UNSUPPORTED,
                              CREATE ": needs GPUs that reach each other: %s", state->fallback);
    }
    const uint64_t bytes = sol_gpu_norm_halves_bytes(&halves->config, comm->nranks);
    if (bytes == 0) {
        return sol_comm_error(comm, SOL_ERR_UNSUPPORTED,
                              CREATE ": max_tokens rows of this size need more than 2 GiB a start: "
                                     "make max_tokens smaller");
    }
    struct sol_gpu_norm_halves *gpu = sol_calloc(1, sizeof *gpu);
    sol_status_t status = sol_agree_outcome(
        comm, gpu != NULL ? SOL_OK : sol_comm_error(comm, SOL_ERR_MEMORY, CREATE ": no memory"));
    if (status == SOL_OK) {
        status = open_lanes(comm, &halves->config, bytes, gpu, &halves->memory);
    }
    if (status != SOL_OK) {
        sol_free(gpu);
        return status;
    }
    halves->device = gpu;
    return SOL_OK;
}

sol_status_t sol_cuda_norm_close(sol_comm_t comm, struct sol_norm_halves *halves)
{
    sol_free(halves->device);
    halves->device = NULL;
    return sol_mem_free(comm, halves->memory);
}

struct half_work {
    const struct sol_gpu_norm_halves *gpu;
    const sol_norm_args_t *args;
    int lane;
    bool start;
};

static cudaError_t launch_half(struct sol_cuda *state, const sol_call_t *call, const void *work)
{
    const struct half_work *w = work;
    struct sol_gpu_norm_shape shape = {0, 0, 0, 0, 0};
    cudaStream_t stream = (cudaStream_t)call->stream;
    if (w->start) {
        return sol_gpu_norm_start(w->gpu, w->lane, w->args, state->flags, call->sequence, stream);
    }
    sol_cuda_norm_shape(state, &shape);
    return sol_gpu_norm_wait(w->gpu, w->lane, w->args, &shape, state->flags, call->sequence,
                             stream);
}

sol_status_t sol_cuda_norm_half(sol_comm_t comm, const sol_call_t *call,
                                struct sol_norm_halves *halves, const sol_norm_args_t *args,
                                int lane, bool start)
{
    const struct half_work work = {halves->device, args, lane, start};
    /* a start looks at its input alone: the rest need not be there yet */
    const void *memory[] = {args->residual, args->residual_out, args->weight,
                            args->bias,     args->scales,       args->static_scale};
    return sol_cuda_run_with(comm, call, memory, start ? 0 : sizeof memory / sizeof memory[0],
                             launch_half, &work);
}
