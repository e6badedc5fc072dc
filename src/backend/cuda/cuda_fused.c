/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_fused.c: the calls of solccl/fused.h on GPU ranks: like a collective, with
 * a launcher of their own. Nothing here is ever left to NCCL.
 */
#include "backend/cuda/cuda_state.h"
#include "device/kernels/linear_launch.h"
#include "device/kernels/norm_launch.h"
#include "device/kernels/vocab_launch.h"

struct norm_work {
    const sol_norm_args_t *args;
    struct sol_gpu_norm_shape shape;
    bool two; /* hops */
};

static cudaError_t launch_norm(struct sol_cuda *state, const sol_call_t *call, const void *work)
{
    const struct norm_work *w = work;
    if (w->two) {
        return sol_gpu_norm_two_launch(&state->gpu, w->args, &w->shape, state->flags,
                                       call->sequence, (cudaStream_t)call->stream);
    }
    return sol_gpu_norm_launch(&state->gpu, w->args, &w->shape, state->flags, call->sequence,
                               (cudaStream_t)call->stream);
}

/* Ranks that share a GPU have SMs of their own, but not side by side: no clusters then. */
static int most_spread(const struct sol_cuda *state)
{
    const int wished = state->norm_spread;
    const int most = state->clusters && state->ranks_here <= 1 ? 8 : 1;
    return wished > 0 && wished < most ? wished : most;
}

void sol_cuda_norm_shape(const struct sol_cuda *state, struct sol_gpu_norm_shape *shape)
{
    shape->most_spread = most_spread(state);
    shape->spread = state->norm_spread;
    shape->vectors = state->norm_vectors;
}

/* Two hops where they are asked for, or where all arguments are alike and SOLCCL_CUDA_NORM_TWO_SHOT
 * says so. The same answer on all ranks. */
static bool in_two_hops(const struct sol_cuda *state, const sol_norm_args_t *args)
{
    const uint64_t bytes =
        (uint64_t)args->tokens * args->hidden * (uint64_t)sol_dtype_size(args->dtype);
    if (args->form == SOL_NORM_ONE_SHOT || args->tokens == 0 || args->hidden == 0) {
        return false;
    }
    if (args->shards != 0) {
        return true;
    }
    return sol_gpu_norm_two_rows(&state->gpu, args) > 0 &&
           (args->form == SOL_NORM_TWO_SHOT ||
            (state->norm_two_shot != 0 && bytes >= state->norm_two_shot));
}

static sol_status_t row_too_long(sol_comm_t comm, const sol_norm_args_t *args, const char *what)
{
    return sol_comm_error(
        comm, SOL_ERR_UNSUPPORTED,
        "sol_all_reduce_norm: a row of %zu %s is longer than %s, %llu bytes: make "
        "staging_bytes larger",
        args->hidden, sol_dtype_name(args->dtype), what,
        (unsigned long long)sol_cuda_of(comm)->gpu.layout.slot_bytes);
}

static sol_status_t needs_peers(sol_comm_t comm, const char *who)
{
    const struct sol_cuda *state = sol_cuda_of(comm);
    return state->p2p
               ? SOL_OK
               : sol_comm_error(comm, SOL_ERR_UNSUPPORTED,
                                "%s: needs GPUs that reach each other: %s", who, state->fallback);
}

sol_status_t sol_cuda_all_reduce_norm(sol_comm_t comm, const sol_call_t *call,
                                      const sol_norm_args_t *args)
{
    struct sol_cuda *state = sol_cuda_of(comm);
    struct norm_work work = {args, {0, 0, 0, 0, 0}, in_two_hops(state, args)};
    const void *memory[] = {args->residual, args->residual_out, args->weight,
                            args->bias,     args->scales,       args->static_scale};
    sol_status_t status = needs_peers(comm, "sol_all_reduce_norm");
    if (status != SOL_OK) {
        return status;
    }
    const uint64_t row = (uint64_t)args->hidden * sol_dtype_size(args->dtype);
    if (work.two ? sol_gpu_norm_two_rows(&state->gpu, args) == 0
                 : (row + 15) / 16 * 16 > state->gpu.layout.slot_bytes) {
        return row_too_long(comm, args, work.two ? "half a slot" : "a slot");
    }
    sol_cuda_norm_shape(state, &work.shape);
    return sol_cuda_run_with(comm, call, memory, sizeof memory / sizeof memory[0], launch_norm,
                             &work);
}

/* ---------------------------------------------------------------------------- vocabulary */

struct vocab_work {
    const sol_vocab_args_t *args;
    struct sol_gpu_vocab_shape shape;
};

static cudaError_t launch_vocab(struct sol_cuda *state, const sol_call_t *call, const void *work)
{
    const struct vocab_work *w = work;
    return sol_gpu_vocab_launch(&state->gpu, w->args, &w->shape, state->flags, call->sequence,
                                (cudaStream_t)call->stream);
}

sol_status_t sol_cuda_vocab_topk(sol_comm_t comm, const sol_call_t *call,
                                 const sol_vocab_args_t *args)
{
    const struct sol_cuda *state = sol_cuda_of(comm);
    const void *memory[] = {args->values, args->indices, args->log_sum_exp};
    struct vocab_work work = {args, {0, 0, 0}};
    sol_status_t status = needs_peers(comm, "sol_vocab_topk");
    if (status != SOL_OK) {
        return status;
    }
    work.shape.most_spread = state->clusters && state->ranks_here <= 1 ? 8 : 1;
    return sol_cuda_run_with(comm, call, memory, sizeof memory / sizeof memory[0], launch_vocab,
                             &work);
}

/* -------------------------------------------------------------------------------- linear */

static cudaError_t launch_linear(struct sol_cuda *state, const sol_call_t *call, const void *work)
{
    return sol_gpu_linear_launch(&state->gpu, work, 0, state->flags, call->sequence,
                                 (cudaStream_t)call->stream);
}

sol_status_t sol_cuda_linear_all_reduce(sol_comm_t comm, const sol_call_t *call,
                                        const sol_linear_args_t *args)
{
    const void *memory[] = {args->weight, args->scales};
    sol_status_t status = needs_peers(comm, "sol_linear_all_reduce");
    return status == SOL_OK
               ? sol_cuda_run_with(comm, call, memory, sizeof memory / sizeof memory[0],
                                   launch_linear, args)
               : status;
}
