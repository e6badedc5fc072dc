/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm.cu: from a call of solccl/fused.h to a kernel of norm.cuh, its arguments
 * and its grid.
 */
#include "device/kernels/enqueue.cuh"
#include "device/kernels/norm.cuh"
#include "device/kernels/norm_launch.h"

#include <string.h>

typedef void (*norm_kernel)(struct sol_norm_kernel_args, struct sol_link, struct sol_tail);

/* ------------------------------------------------------------------------------- the kernels */

template <int D, int N, int V> static norm_kernel form(bool plain)
{
    if constexpr (N == 2)
        if (plain)
            return sol_norm_kernel<D, N, V, true>;
    return sol_norm_kernel<D, N, V, false>;
}

/* vectors 0: rows of any length. */
template <int D> static norm_kernel of_type(int nranks, int vectors, bool plain)
{
    if (vectors == 0)
        return sol_norm_long_kernel<D>;
    if (nranks == 2)
        return vectors == 1 ? form<D, 2, 1>(plain) : form<D, 2, 2>(plain);
    return form<D, SOL_GPU_MAX_RANKS, 1>(false);
}

static norm_kernel kernel_for(sol_dtype_t dtype, int nranks, int vectors, bool plain)
{
#ifdef SOL_NORM_ONE_TYPE /* (mutants) */
    (void)dtype;
    return of_type<SOL_BFLOAT16>(nranks, vectors, plain);
#else
    return dtype == SOL_BFLOAT16  ? of_type<SOL_BFLOAT16>(nranks, vectors, plain)
           : dtype == SOL_FLOAT16 ? of_type<SOL_FLOAT16>(nranks, vectors, plain)
                                  : of_type<SOL_FLOAT32>(nranks, vectors, plain);
#endif
}

/* ---------------------------------------------------------------------------------- the plan */

static uint64_t row_bytes(const sol_norm_args_t *args)
{
    return (uint64_t)args->hidden * sol_dtype_size(args->dtype);
}

static int blocks_of(const sol_norm_args_t *args)
{
    uint64_t blocks = (row_bytes(args) + SOL_NORM_BLOCK - 1) / SOL_NORM_BLOCK;
    return blocks > SOL_NORM_BLOCKS ? 0 : (int)blocks; /* 0: not in registers */
}

/* Blocks of a row that a CTA takes: 16 warps with two vectors, or with one of each of 7 peers. */
static int most_blocks(const struct sol_gpu_comm *comm)
{
    return comm->nranks == 2 ? 32 : 16;
}

/* CTAs a token: as many as there are for all, while each has a block of its own, and at least as
 * many as it takes. Where the row can be divided so that all warps have equal work, it is. */
static int choose_spread(const struct sol_gpu_comm *comm, const sol_norm_args_t *args, int most)
{
    const int blocks = blocks_of(args);
    int spread = 1;
    for (int s = 2; s <= most && s <= 8; s *= 2)
        if (s <= blocks && (blocks > spread * most_blocks(comm) ||
                            ((uint64_t)s * args->tokens <= (uint64_t)comm->max_ctas &&
                             (blocks % s == 0 || blocks % spread != 0))))
            spread = s;
    return spread;
}

/* One vector a thread, or two where 16 warps do not reach; as few warps as then do. */
static void choose_threads(const struct sol_gpu_comm *comm, int blocks,
                           struct sol_gpu_norm_shape *shape)
{
    const int part = (blocks + shape->spread - 1) / shape->spread;
    const bool two = comm->nranks == 2 && (part > 16 || shape->vectors > 1);
    const int vectors = two ? 2 : 1;
    shape->vectors = part <= most_blocks(comm) ? vectors : 0;
    shape->threads = shape->vectors ? (part + vectors - 1) / vectors * 32 : SOL_NORM_LONG_THREADS;
}

void sol_gpu_norm_plan(const struct sol_gpu_comm *comm, const sol_norm_args_t *args,
                       struct sol_gpu_norm_shape *shape)
{
    const int blocks = blocks_of(args), most = shape->most_spread > 0 ? shape->most_spread : 1;
    const bool pieces = blocks == 0 || (shape->threads != 0 && shape->vectors == 0);
    if (shape->spread == 0 || shape->spread > most)
        shape->spread = pieces ? 1 : choose_spread(comm, args, most);
    if (pieces) {
        shape->vectors = 0;
        shape->threads = SOL_NORM_LONG_THREADS;
    } else {
        choose_threads(comm, blocks, shape);
    }
    if (shape->vectors == 0)
        shape->spread = 1;
    const int max_ctas = sol_most_ctas(comm);
    const int room = max_ctas > shape->spread ? max_ctas / shape->spread : 1; /* rows at once */
    int rows = (uint64_t)room < args->tokens ? room : (int)args->tokens;
    if (shape->ctas > 0 && shape->ctas / shape->spread < rows)
        rows = shape->ctas / shape->spread > 0 ? shape->ctas / shape->spread : 1;
    shape->ctas = rows * shape->spread;
}

/* -------------------------------------------------------------------------------- launches */

static bool aligned(const void *p)
{
    return ((uintptr_t)p & 15) == 0;
}

/* Every vector of every thread whole, aligned and within the row, and the usual form of norm. */
static bool is_plain(const struct sol_gpu_comm *comm, const sol_norm_args_t *args,
                     const struct sol_gpu_norm_shape *shape)
{
    const uint64_t row = row_bytes(args);
    return comm->nranks == 2 && args->norm == SOL_NORM_RMS && args->quant == SOL_QUANT_NONE &&
           args->output_dtype == args->dtype && args->weight != NULL && args->bias == NULL &&
           row == (uint64_t)shape->spread * shape->threads * shape->vectors * SOL_GPU_VECTOR &&
           aligned(args->input) && aligned(args->residual) && aligned(args->residual_out) &&
           aligned(args->weight) && aligned(args->output);
}

static const char *row_of(const void *matrix, uint64_t bytes)
{
    return matrix != NULL ? (const char *)matrix + bytes : NULL;
}

/* Of `tokens` rows from `first` on. */
static struct sol_norm_kernel_args args_of(const sol_norm_args_t *args,
                                           const struct sol_gpu_norm_shape *shape, uint64_t first,
                                           uint32_t tokens)
{
    struct sol_norm_kernel_args a;
    const uint64_t row = row_bytes(args), blocks = (row + SOL_NORM_BLOCK - 1) / SOL_NORM_BLOCK;
    const bool groups = args->quant >= SOL_QUANT_GROUP;
    memset(&a, 0, sizeof a);
    a.scales_row =
        groups ? (uint32_t)((args->hidden + SOL_QUANT_GROUP_COLUMNS - 1) / SOL_QUANT_GROUP_COLUMNS)
               : 1;
    a.input = row_of(args->input, first * row);
    a.residual = row_of(args->residual, first * row);
    a.residual_out = (char *)row_of(args->residual_out, first * row);
    a.output =
        (char *)row_of(args->output, first * args->hidden * sol_dtype_size(args->output_dtype));
    a.scales = (char *)row_of(args->scales, first * a.scales_row * sizeof(float));
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

static cudaError_t enqueue(const struct sol_gpu_comm *comm, norm_kernel kernel,
                           const struct sol_norm_kernel_args *args,
                           const struct sol_gpu_norm_shape *shape, unsigned flags,
                           uint64_t sequence, cudaStream_t stream)
{
    const uint64_t bytes = (uint64_t)args->tokens * args->row;
    const struct sol_grid grid = {(unsigned)shape->ctas, (unsigned)shape->threads,
                                  (unsigned)shape->spread, flags, stream};
    return sol_enqueue(kernel, grid, *args, sol_link_of(comm),
                       sol_tail_for(sequence, bytes, SOL_FUNC_ALL_REDUCE));
}

cudaError_t sol_gpu_norm_launch(const struct sol_gpu_comm *comm, const sol_norm_args_t *args,
                                const struct sol_gpu_norm_shape *wished, unsigned flags,
                                uint64_t sequence, cudaStream_t stream)
{
    const uint64_t pitch = (row_bytes(args) + 15) / 16 * 16;
    const uint64_t fit = comm->layout.slot_bytes / pitch; /* rows of a slot */
    if (fit == 0)
        return cudaErrorInvalidValue;
    for (uint64_t first = 0; first < args->tokens; first += fit) {
        sol_norm_args_t some = *args;
        struct sol_gpu_norm_shape shape = {0, 0, 0, 0, 0};
        if (wished != NULL)
            shape = *wished;
        some.tokens = args->tokens - first < fit ? args->tokens - first : fit;
        sol_gpu_norm_plan(comm, &some, &shape);
        struct sol_norm_kernel_args a = args_of(args, &shape, first, (uint32_t)some.tokens);
        norm_kernel kernel =
            kernel_for(args->dtype, comm->nranks, shape.vectors, is_plain(comm, args, &shape));
        cudaError_t error = enqueue(comm, kernel, &a, &shape, flags, sequence, stream);
        if (error != cudaSuccess)
            return error;
    }
    return cudaSuccess;
}

cudaError_t sol_gpu_norm_preload(void)
{
    static const sol_dtype_t dtypes[] = {SOL_BFLOAT16, SOL_FLOAT16, SOL_FLOAT32};
    static const int vectors[] = {0, 1, 2};
    for (int d = 0; d < 3; d++)
        for (int v = 0; v < 3; v++)
            for (int bits = 0; bits < 4; bits++) {
                cudaError_t e = sol_load((const void *)kernel_for(
                    dtypes[d], bits & 1 ? 2 : SOL_GPU_MAX_RANKS, vectors[v], bits & 2));
                if (e != cudaSuccess)
                    return e;
            }
    return cudaSuccess;
}
