/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_backend.c: the table of the GPU backend (core/backend.h), and the few
 * answers that need no communicator.
 */
#include "backend/cuda/cuda_state.h"

#include <stdio.h>

static sol_status_t probe(char *why, size_t why_bytes)
{
    int count = 0;
    if (sol_cuda_driver(why, why_bytes) == NULL) {
        return SOL_ERR_UNSUPPORTED;
    }
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
        cudaGetLastError();
        snprintf(why, why_bytes, "no GPU: %s",
                 error != cudaSuccess ? cudaGetErrorString(error) : "CUDA finds none");
        return SOL_ERR_UNSUPPORTED;
    }
    return SOL_OK;
}

/* A context, or the ordinal of the runtime's current device plus one: below any address. */
static uintptr_t context_save(void)
{
    const struct sol_cuda_driver *cu = sol_cuda_driver(NULL, 0);
    CUcontext context = NULL;
    int device = 0;
    if (cu == NULL) {
        return 0;
    }
    if (cu->context_get(&context) == CUDA_SUCCESS && context != NULL) {
        return (uintptr_t)context;
    }
    return cudaGetDevice(&device) == cudaSuccess ? (uintptr_t)device + 1 : 0;
}

static void context_set(uintptr_t context)
{
    const struct sol_cuda_driver *cu = sol_cuda_driver(NULL, 0);
    if (cu == NULL || context == 0) {
        return;
    }
    if (context < 4096) {
        cudaSetDevice((int)(context - 1));
    } else {
        cu->context_set((CUcontext)context);
    }
}

/* core looks at its process besides */
static bool gone(sol_comm_t comm, int rank)
{
    return sol_cuda_board_left(sol_cuda_of(comm)->board, rank);
}

static void note_shrunk(sol_comm_t comm, uint64_t ranks)
{
    /* relaxed: who sees that this rank has left (a release) sees this */
    atomic_store_explicit(&sol_cuda_of(comm)->board->ranks[comm->rank].shrunk, ranks,
                          memory_order_relaxed);
}

static uint64_t shrunk(sol_comm_t comm, int rank)
{
    return atomic_load_explicit(&sol_cuda_of(comm)->board->ranks[rank].shrunk,
                                memory_order_relaxed);
}

const sol_backend_t sol_backend_cuda = {
    .size = sizeof(sol_backend_t),
    .name = "cuda",
    .kind = SOL_BACKEND_CUDA,
    .blocking = false,
    .wanted = sol_cuda_thread_has_context,
    .context_save = context_save,
    .context_set = context_set,
    .adopt = sol_cuda_nccl_adopt,
    .probe = probe,
    .open = sol_cuda_open,
    .close = sol_cuda_close,
    .run = sol_cuda_run,
    .run_group = sol_cuda_run_group,
    .all_reduce_norm = sol_cuda_all_reduce_norm,
    .linear_all_reduce = sol_cuda_linear_all_reduce,
    .vocab_topk = sol_cuda_vocab_topk,
    .norm_open = sol_cuda_norm_open,
    .norm_close = sol_cuda_norm_close,
    .norm_half = sol_cuda_norm_half,
    .moe_open = sol_cuda_moe_open,
    .moe_close = sol_cuda_moe_close,
    .moe_dispatch = sol_cuda_moe_dispatch,
    .moe_combine = sol_cuda_moe_combine,
    .mem_alloc = sol_cuda_mem_alloc,
    .mem_free = sol_cuda_mem_free,
    .mem_register = sol_cuda_mem_register,
    .mem_deregister = sol_cuda_mem_deregister,
    .sleep_prepare = sol_cuda_sleep_prepare,
    .sleep_release = sol_cuda_sleep_release,
    .sleep_restore = sol_cuda_sleep_restore,
    .sleep_forget = sol_cuda_sleep_forget,
    .dev_window = sol_cuda_dev_window,
    .dev_check = sol_cuda_dev_check,
    .dev_write = sol_cuda_dev_write,
    .all_reduce_quantized = sol_cuda_all_reduce_quantized,
    .transfer_offer = sol_cuda_transfer_offer,
    .transfer_open = sol_cuda_transfer_open,
    .transfer_close = sol_cuda_transfer_close,
    .transfer_write = sol_cuda_transfer_write,
    .transfer_await = sol_cuda_transfer_await,
    .transfer_read = sol_cuda_transfer_read,
    .abort = sol_cuda_abort,
    .poll_error = sol_cuda_poll_error,
    .explain = sol_cuda_explain,
    .info = sol_cuda_info,
    .query = sol_cuda_query,
    .runs_on = sol_cuda_runs_on,
    .gone = gone,
    .note_shrunk = note_shrunk,
    .shrunk = shrunk,
    .whereabouts = sol_cuda_whereabouts,
    .waited = sol_cuda_waited,
    .waiting = sol_cuda_waiting,
};
