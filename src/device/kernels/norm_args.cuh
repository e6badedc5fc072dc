/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_args.cuh: from the arguments of solccl/fused.h to those of the kernels of norm.cuh and
 * norm_two.cuh. Host code; of all launchers that have such kernels.
 */
#ifndef SOL_DEVICE_KERNELS_NORM_ARGS_CUH
#define SOL_DEVICE_KERNELS_NORM_ARGS_CUH

#include "device/kernels/norm_launch.h"
#include "device/kernels/norm_two.cuh"

#include <string.h>

static inline uint64_t sol_norm_row_bytes(const sol_norm_args_t *args)
{
    return (uint64_t)args->hidden * sol_dtype_size(args->dtype);
}

/* Row `row` of a matrix; NULL stays NULL. */
static inline char *sol_norm_at(const void *matrix, uint64_t row, uint64_t bytes)
{
    return matrix != NULL ? (char *)(uintptr_t)matrix + row * bytes : NULL;
}

static inline bool sol_norm_aligned(const void *p)
{
    return ((uintptr_t)p & 15) == 0;
}

/* Every vector of every thread whole, aligned and within the row, and the usual form of norm. */
static inline bool sol_norm_is_plain(const struct sol_gpu_comm *comm, const sol_norm_args_t *args,
                                     const struct sol_gpu_norm_shape *shape)
{
    const uint64_t row = sol_norm_row_bytes(args);
    return comm->nranks == 2 && args->norm == SOL_NORM_RMS && args->quant == SOL_QUANT_NONE &&
           args->output_dtype == args->dtype && args->weight != NULL && args->bias == NULL &&
           row == (uint64_t)shape->spread * shape->threads * shape->vectors * SOL_GPU_VECTOR &&
           sol_norm_aligned(args->input) && sol_norm_aligned(args->residual) &&
           sol_norm_aligned(args->residual_out) && sol_norm_aligned(args->weight) &&
           sol_norm_aligned(args->output);
}

/* Of `tokens` rows from `first` on. */
static inline struct sol_norm_kernel_args sol_norm_args_of(const sol_norm_args_t *args,
                                                           const struct sol_gpu_norm_shape *shape,
                                                           uint64_t first, uint32_t tokens)
{
    struct sol_norm_kernel_args a;
    const uint64_t row = sol_norm_row_bytes(args),
                   blocks = (row + SOL_NORM_BLOCK - 1) / SOL_NORM_BLOCK;
    const bool groups = args->quant >= SOL_QUANT_GROUP;
    memset(&a, 0, sizeof a);
    a.scales_row =
        groups ? (uint32_t)((args->hidden + SOL_QUANT_GROUP_COLUMNS - 1) / SOL_QUANT_GROUP_COLUMNS)
               : 1;
    a.input = (const char *)sol_norm_at(args->input, first, row);
    a.residual = (const char *)sol_norm_at(args->residual, first, row);
    a.residual_out = sol_norm_at(args->residual_out, first, row);
    a.output = sol_norm_at(args->output, first, args->hidden * sol_dtype_size(args->output_dtype));
    a.scales = sol_norm_at(args->scales, first, a.scales_row * sizeof(float));
    a.weight = (const char *)args->weight;
    a.bias = (const char *)args->bias;
    a.static_scale = (const char *)args->static_scale;
    a.row = (uint32_t)row;
    a.pitch = (uint32_t)((row + 15) / 16 * 16);
    a.tokens = tokens;
    a.spread = (uint16_t)shape->spread;
    a.cta_blocks = (uint16_t)(shape->vectors ? (blocks + shape->spread - 1) / shape->spread : 0);
    a.inverse = 1.0f / (float)args->hidden;
    a.epsilon = args->epsilon;
    a.weight_bias = args->weight_bias;
    a.hidden = (uint32_t)args->hidden;
    a.norm = (uint8_t)args->norm;
    a.quant = (uint8_t)args->quant;
    a.output_dtype = (uint8_t)args->output_dtype;
    return a;
}

static inline uint32_t sol_norm_whole(uint64_t bytes)
{
    return (uint32_t)((bytes + 15) / 16 * 16);
}

/* Sizes of rows: of what is constant over the launches of a call. */
static inline void sol_norm_two_sizes(struct sol_norm_two_args *a, const sol_norm_args_t *args)
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
    a->own.pitch = sol_norm_whole(a->own.row);
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
    a->scales_at = outputs ? sol_norm_whole(a->output_row) : 0;
    a->residual_at = a->scales_at + (a->scales != NULL ? sol_norm_whole(a->scales_row) : 0);
    a->finished = a->residual_at + (residuals ? a->own.pitch : 0);
}

/* At most `step` rows of each owner, from its row `from` on. */
static inline void sol_norm_two_fill(struct sol_norm_two_args *a, const struct sol_gpu_comm *comm,
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
    a->own.input = sol_norm_at(args->input, token, a->own.row);
    a->own.residual = sol_norm_at(args->residual, residual, a->own.row);
    a->own.residual_out = sol_norm_at(args->residual_out, residual, a->own.row);
    a->own.output = sol_norm_at(args->output, output, a->output_row);
    a->own.scales = sol_norm_at(args->scales, output, a->scales_row);
}

#endif
