/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear.cu: from a call of sol_linear_all_reduce to the kernel of linear.cuh, its
 * arguments and its grid.
 */
#include "device/kernels/enqueue.cuh"
#include "device/kernels/linear.cuh"
#include "device/kernels/linear_launch.h"

#include <string.h>

#define TOKENS 4 /* of a warp, where there is more than one */

typedef void (*linear_kernel)(struct sol_linear_kernel_args, struct sol_link, struct sol_tail);

template <int W> static linear_kernel linear_of_type(bool one)
{
    return one ? sol_linear_kernel<W, 1> : sol_linear_kernel<W, TOKENS>;
}

static linear_kernel linear_for(sol_dtype_t weights, bool one)
{
#ifdef SOL_LINEAR_ONE_TYPE /* (mutants) */
    (void)weights;
    return linear_of_type<SOL_BFLOAT16>(one);
#else
    return weights == SOL_BFLOAT16      ? linear_of_type<SOL_BFLOAT16>(one)
           : weights == SOL_FLOAT8_E4M3 ? linear_of_type<SOL_FLOAT8_E4M3>(one)
                                        : linear_of_type<SOL_FLOAT8_E5M2>(one);
#endif
}

/* Of `count` outputs from `first` on. */
static struct sol_linear_kernel_args linear_args_of(const sol_linear_args_t *args, uint64_t first,
                                                    uint64_t count)
{
    struct sol_linear_kernel_args a;
    const uint32_t group = args->tokens == 1 ? 1 : TOKENS;
    memset(&a, 0, sizeof a);
    a.input = (const char *)args->input;
    a.weight = (const char *)args->weight;
    if (a.weight != NULL)
        a.weight += first * args->inputs * sol_dtype_size(args->weight_dtype);
    if (args->scales != NULL)
        a.scales = (const char *)args->scales + first * sizeof(float);
    a.output = (char *)args->output + first * 2;
    a.inputs = (uint32_t)args->inputs;
    a.outputs = (uint32_t)count;
    a.all_outputs = (uint32_t)args->outputs;
    a.tokens = (uint32_t)args->tokens;
    a.groups = (a.tokens + group - 1) / group;
    a.tiles = (a.outputs + SOL_LINEAR_ROWS - 1) / SOL_LINEAR_ROWS * a.groups;
    return a;
}

static cudaError_t linear_enqueue(const struct sol_gpu_comm *comm, linear_kernel kernel,
                                  const struct sol_linear_kernel_args *args, int ctas,
                                  unsigned flags, uint64_t sequence, cudaStream_t stream)
{
    const uint32_t warps = SOL_LINEAR_THREADS / 32, wanted = (args->tiles + warps - 1) / warps;
    const int most = sol_most_ctas(comm);
    const unsigned wished = (unsigned)(ctas > 0 && ctas < most ? ctas : most);
    const uint64_t bytes = (uint64_t)args->tokens * args->outputs * 2;
    const struct sol_grid grid = {wished < wanted ? wished : wanted, SOL_LINEAR_THREADS, 1, flags,
                                  stream};
    return sol_enqueue(kernel, grid, *args, sol_link_of(comm),
                       sol_tail_for(sequence, bytes, SOL_FUNC_ALL_REDUCE));
}

cudaError_t sol_gpu_linear_launch(const struct sol_gpu_comm *comm, const sol_linear_args_t *args,
                                  int ctas, unsigned flags, uint64_t sequence, cudaStream_t stream)
{
    const uint64_t fit =
        comm->layout.slot_bytes / (args->tokens * 16) * SOL_LINEAR_ROWS; /* outputs of a slot */
    if (fit == 0)
        return cudaErrorInvalidValue;
    for (uint64_t first = 0; first < args->outputs; first += fit) {
        const uint64_t left = args->outputs - first;
        const struct sol_linear_kernel_args a =
            linear_args_of(args, first, left < fit ? left : fit);
        cudaError_t error = linear_enqueue(comm, linear_for(args->weight_dtype, args->tokens == 1),
                                           &a, ctas, flags, sequence, stream);
        if (error != cudaSuccess)
            return error;
    }
    return cudaSuccess;
}

cudaError_t sol_gpu_linear_preload(void)
{
    static const sol_dtype_t dtypes[] = {SOL_BFLOAT16, SOL_FLOAT8_E4M3, SOL_FLOAT8_E5M2};
    for (int i = 0; i < 6; i++) {
        cudaError_t e = sol_load((const void *)linear_for(dtypes[i / 2], i % 2));
        if (e != cudaSuccess)
            return e;
    }
    return cudaSuccess;
}
