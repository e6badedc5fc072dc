/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_moe.c: the calls of solccl/moe.h on GPU ranks: a device communicator for each
 * handle, and launches in the order of the communicator's operations. Nothing here is
 * ever left to NCCL.
 */
#include "backend/cuda/cuda_state.h"
#include "core/experts.h"
#include "core/setup.h"
#include "device/kernels/moe_launch.h"

struct moe_work {
    const struct sol_gpu_moe *moe;
    const sol_moe_dispatch_args_t *dispatch; /* or NULL, and */
    const sol_moe_combine_args_t *combine;
    unsigned halves;
};

sol_status_t sol_cuda_moe_open(sol_comm_t comm, struct sol_moe *moe)
{
    const struct sol_cuda *state = sol_cuda_of(comm);
    sol_dev_config_t config;
    if (!state->p2p) {
        return sol_comm_error(comm, SOL_ERR_UNSUPPORTED,
                              "sol_moe_create: needs GPUs that reach each other: %s",
                              state->fallback);
    }
    struct sol_gpu_moe *gpu = sol_calloc(1, sizeof *gpu);
    sol_status_t status = sol_agree_outcome(
        comm,
        gpu != NULL ? SOL_OK : sol_comm_error(comm, SOL_ERR_MEMORY, "sol_moe_create: no memory"));
    if (status != SOL_OK) {
        sol_free(gpu);
        return status;
    }
    gpu->shape = moe->shape;
    gpu->max_ctas = state->gpu.max_ctas;
    gpu->first_epoch = comm->debug_epoch;
    sol_gpu_moe_config(&moe->shape, &config);
    config.first_epoch = comm->debug_epoch;
    status = sol_dev_comm_create(comm, &config, &gpu->dev);
    if (status != SOL_OK) { /* on all ranks */
        sol_free(gpu);
        return status != SOL_ERR_ARGUMENT
                   ? status
                   : sol_comm_error(comm, SOL_ERR_UNSUPPORTED,
                                    "sol_moe_create: max_tokens rows of this size need more than 2 "
                                    "GiB: make max_tokens smaller");
    }
    moe->device = gpu;
    moe->memory_bytes = sol_gpu_moe_bytes(&moe->shape);
    return SOL_OK;
}

sol_status_t sol_cuda_moe_close(sol_comm_t comm, struct sol_moe *moe)
{
    struct sol_gpu_moe *gpu = moe->device;
    sol_status_t status = sol_dev_comm_destroy(comm, &gpu->dev);
    sol_free(gpu);
    moe->device = NULL;
    return status;
}

static cudaError_t launch_moe(struct sol_cuda *state, const sol_call_t *call, const void *work)
{
    const struct moe_work *w = work;
    cudaStream_t stream = (cudaStream_t)call->stream;
    return w->dispatch != NULL ? sol_gpu_moe_dispatch(w->moe, w->dispatch, w->halves, state->flags,
                                                      call->sequence, stream)
                               : sol_gpu_moe_combine(w->moe, w->combine, w->halves, state->flags,
                                                     call->sequence, stream);
}

sol_status_t sol_cuda_moe_dispatch(sol_comm_t comm, const sol_call_t *call, struct sol_moe *moe,
                                   const sol_moe_dispatch_args_t *args, unsigned halves)
{
    const struct moe_work work = {moe->device, args, NULL, halves};
    const void *sent[] = {args->topk_idx, args->topk_weights};
    const void *received[] = {args->recv_scales, args->recv_weights, args->recv_counts,
                              args->recv_offsets};
    const void *both[] = {sent[0], sent[1], received[0], received[1], received[2], received[3]};
    const bool send = halves & SOL_MOE_SEND, recv = halves & SOL_MOE_RECV;
    return sol_cuda_run_with(comm, call,
                             send && recv ? both
                             : send       ? sent
                                          : received,
                             send && recv ? 6
                             : send       ? 2
                                          : 4,
                             launch_moe, &work);
}

sol_status_t sol_cuda_moe_combine(sol_comm_t comm, const sol_call_t *call, struct sol_moe *moe,
                                  const sol_moe_combine_args_t *args, unsigned halves)
{
    const struct moe_work work = {moe->device, NULL, args, halves};
    const void *memory[] = {halves & SOL_MOE_SEND ? args->weights : NULL};
    return sol_cuda_run_with(comm, call, memory, 1, launch_moe, &work);
}
