/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_two.cu: from a call of sol_all_reduce_norm in two hops to the kernel of
 * norm_two.cuh, its arguments and its grid.
 */
#include "device/kernels/enqueue.cuh"
#include "device/kernels/norm_args.cuh"

typedef void (*norm_two_kernel)(struct sol_norm_two_args, struct sol_link, struct sol_tail);

static norm_two_kernel kernel_for(sol_dtype_t dtype)
{
#ifdef SOL_NORM_ONE_TYPE /* (mutants) */
    (void)dtype;
    return sol_norm_two_kernel<SOL_BFLOAT16>;
#else
    return dtype == SOL_BFLOAT16  ? sol_norm_two_kernel<SOL_BFLOAT16>
           : dtype == SOL_FLOAT16 ? sol_norm_two_kernel<SOL_FLOAT16>
                                  : sol_norm_two_kernel<SOL_FLOAT32>;
#endif
}

static cudaError_t enqueue(const struct sol_gpu_comm *comm, norm_two_kernel kernel,
                           const struct sol_norm_two_args *args, int ctas, unsigned flags,
                           uint64_t sequence, cudaStream_t stream)
{
    const int most = sol_most_ctas(comm);
    const unsigned wished = (unsigned)(ctas > 0 && ctas < most ? ctas : most);
    const uint64_t bytes = (uint64_t)args->most * (uint64_t)comm->nranks * args->own.row;
    const struct sol_grid grid = {wished < args->most ? wished : args->most, SOL_NORM_LONG_THREADS,
                                  1, flags, stream};
    return sol_enqueue(kernel, grid, *args, sol_link_of(comm),
                       sol_tail_for(sequence, bytes, SOL_FUNC_ALL_REDUCE));
}

uint64_t sol_gpu_norm_two_rows(const struct sol_gpu_comm *comm, const sol_norm_args_t *args)
{
    struct sol_norm_two_args a;
    const uint64_t half = comm->layout.slot_bytes / 2;
    sol_norm_two_sizes(&a, args);
    const uint64_t row = a.own.pitch > a.finished ? a.own.pitch : a.finished;
    return half / row;
}

cudaError_t sol_gpu_norm_two_launch(const struct sol_gpu_comm *comm, const sol_norm_args_t *args,
                                    int ctas, unsigned flags, uint64_t sequence,
                                    cudaStream_t stream)
{
    struct sol_norm_two_args a;
    const uint64_t n = (uint64_t)comm->nranks, most = (args->tokens + n - 1) / n;
    const uint64_t step = sol_gpu_norm_two_rows(comm, args);
    if (step == 0)
        return cudaErrorInvalidValue;
    sol_norm_two_sizes(&a, args);
    for (uint64_t from = 0; from < most; from += step) {
        sol_norm_two_fill(&a, comm, args, from, step);
        cudaError_t error =
            enqueue(comm, kernel_for(args->dtype), &a, ctas, flags, sequence, stream);
        if (error != cudaSuccess)
            return error;
    }
    return cudaSuccess;
}

cudaError_t sol_gpu_norm_two_preload(void)
{
    static const sol_dtype_t dtypes[] = {SOL_BFLOAT16, SOL_FLOAT16, SOL_FLOAT32};
    for (int i = 0; i < 3; i++) {
        cudaError_t e = sol_load((const void *)kernel_for(dtypes[i]));
        if (e != cudaSuccess)
            return e;
    }
    return cudaSuccess;
}
