/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_quantized.c: solccl/quantized.h on GPU ranks: like a collective, with a
 * launcher of its own. Nothing here is ever left to NCCL.
 */
#include "backend/cuda/cuda_state.h"
#include "device/kernels/quantized_launch.h"

struct quantized_work {
    sol_dtype_t wire;
    int steps;
};

static cudaError_t launch_quantized(struct sol_cuda *state, const sol_call_t *call,
                                    const void *work)
{
    const struct quantized_work *w = work;
    const struct sol_gpu_quantized op = {.send = call->send,
                                         .recv = call->recv,
                                         .count = call->count,
                                         .dtype = call->dtype,
                                         .wire = w->wire,
                                         .steps = w->steps};
    return sol_gpu_quantized_launch(&state->gpu, &op, state->flags, call->sequence,
                                    (cudaStream_t)call->stream);
}

sol_status_t sol_cuda_all_reduce_quantized(sol_comm_t comm, const sol_call_t *call,
                                           sol_dtype_t wire, int steps)
{
    const struct quantized_work work = {wire, steps};
    const struct sol_cuda *state = sol_cuda_of(comm);
    if (!state->p2p) {
        return sol_comm_error(comm, SOL_ERR_UNSUPPORTED,
                              "sol_all_reduce_quantized: needs GPUs that reach each other: %s",
                              state->fallback);
    }
    return sol_cuda_run_with(comm, call, NULL, 0, launch_quantized, &work);
}
