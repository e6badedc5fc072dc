/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_two.cu: from a call of sol_all_reduce_norm in two hops to the kernel of
 * norm_two.cuh, its arguments and its grid.
 */
#include "device/kernels/enqueue.cuh"
#include "device/kernels/norm_launch.h"
#include "device/kernels/norm_two.cuh"

#include <string.h>

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

static uint32_t whole(uint64_t bytes)
{
    return (uint32_t)((bytes + 15) / 16 * 16);
}

/* Sizes of rows: of what is constant over the launches of a call. */
static void fill_sizes(struct sol_norm_two_args *a, const sol_norm_args_t *args)
{
    const bool groups = args->quant >= SOL_QUANT_GROUP;
    const bool scales = args->quant == SOL_QUANT_TOKEN || groups;
    const bool outputs = !(args->shards & SOL_NORM_SHARD_OUTPUT);
    const bool residuals = args->residual_out != NULL && !(args->shards & SOL_NORM_SHARD_RESIDUAL);
    memset(a, 0, sizeof *a);
    a->own.scales_row =
        groups ? (uint32_t)((args->hidden + SOL_QUANT_GROUP_COLUMNS - 1) / SOL_QUANT_GROUP_COLUMNS)
               : 1;
    a->own.row = (uint32_t)(args->hidden * sol_dtype_size(args->dtype));
    a->own.pitch = whole(a->own.row);
    a->own.inverse = 1.0f / (float)args->hidden;
    a->own.epsilon = args->epsilon;
    a->own.weight_bias = args->weight_bias;
    a->own.hidden = (uint32_t)args->hidden;
    a->own.norm = (uint8_t)args->norm;
    a->own.quant = (uint8_t)args->quant;
    a->own.output_dtype = (uint8_t)args->output_dtype;
    a->own.spread = 1;
    a->own.weight = (const char *)args->weight;
    a->own.bias = (const char *)args->bias;
    a->own.static_scale = (const char *)args->static_scale;
    a->input = (const char *)args->input;
    a->output = outputs ? (char *)args->output : NULL;
    a->scales = outputs && scales ? (char *)args->scales : NULL;
    a->residual_out = residuals ? (char *)args->residual_out : NULL;
    a->output_row = (uint32_t)(args->hidden * sol_dtype_size(args->output_dtype));
    a->scales_row = a->own.scales_row * (uint32_t)sizeof(float);
    a->scales_at = outputs ? whole(a->output_row) : 0;
    a->residual_at = a->scales_at + (a->scales != NULL ? whole(a->scales_row) : 0);
    a->finished = a->residual_at + (residuals ? a->own.pitch : 0);
}

static char *row_of(const void *matrix, uint64_t row, uint64_t bytes)
{
    return matrix != NULL ? (char *)(uintptr_t)matrix + row * bytes : NULL;
}

/* At most `step` rows of each owner, from its row `from` on. */
static void fill_rows(struct sol_norm_two_args *a, const struct sol_gpu_comm *comm,
                      const sol_norm_args_t *args, uint64_t from, uint64_t step)
{
    a->most = 0;
    for (int p = 0; p < comm->nranks; p++) {
        const uint64_t first = sol_norm_first_token(args->tokens, comm->nranks, p);
        const uint64_t all = sol_norm_first_token(args->tokens, comm->nranks, p + 1) - first;
        const uint64_t left = all > from ? all - from : 0;
        a->first[p] = (uint32_t)(first + from);
        a->rows[p] = (uint32_t)(left < step ? left : step);
        a->most = a->rows[p] > a->most ? a->rows[p] : a->most;
    }
    const uint64_t token = a->first[comm->rank];
    const uint64_t residual = args->shards & SOL_NORM_SHARD_RESIDUAL ? from : token;
    const uint64_t output = args->shards & SOL_NORM_SHARD_OUTPUT ? from : token;
    a->own.tokens = a->rows[comm->rank];
    a->own.input = row_of(args->input, token, a->own.row);
    a->own.residual = row_of(args->residual, residual, a->own.row);
    a->own.residual_out = row_of(args->residual_out, residual, a->own.row);
    a->own.output = row_of(args->output, output, a->output_row);
    a->own.scales = row_of(args->scales, output, a->scales_row);
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
    fill_sizes(&a, args);
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
    fill_sizes(&a, args);
    for (uint64_t from = 0; from < most; from += step) {
        fill_rows(&a, comm, args, from, step);
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
