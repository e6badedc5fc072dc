/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vocab.cu: from a call of sol_vocab_topk to the kernel of vocab.cuh, its arguments
 * and its grid.
 */
#include "device/kernels/enqueue.cuh"
#include "device/kernels/vocab.cuh"
#include "device/kernels/vocab_launch.h"

#include <string.h>

typedef void (*vocab_kernel)(struct sol_vocab_kernel_args, struct sol_link, struct sol_tail);

static vocab_kernel kernel_for(sol_dtype_t dtype)
{
#ifdef SOL_VOCAB_ONE_TYPE /* (mutants) */
    (void)dtype;
    return sol_vocab_kernel<SOL_BFLOAT16>;
#else
    return dtype == SOL_BFLOAT16  ? sol_vocab_kernel<SOL_BFLOAT16>
           : dtype == SOL_FLOAT16 ? sol_vocab_kernel<SOL_FLOAT16>
                                  : sol_vocab_kernel<SOL_FLOAT32>;
#endif
}

/* Columns of a vector: the unit in which a row is divided. */
static uint32_t unit_of(const sol_vocab_args_t *args)
{
    return (uint32_t)(SOL_GPU_VECTOR / sol_dtype_size(args->dtype));
}

void sol_gpu_vocab_plan(const struct sol_gpu_comm *comm, const sol_vocab_args_t *args,
                        struct sol_gpu_vocab_shape *shape)
{
    const int most = shape->most_spread > 0 ? shape->most_spread : 1;
    const uint64_t enough = (uint64_t)SOL_VOCAB_THREADS * unit_of(args); /* for a CTA: one each */
    if (shape->spread == 0 || shape->spread > most) {
        shape->spread = 1;
        while (shape->spread < most && shape->spread < SOL_VOCAB_SPREAD &&
               args->columns > enough * (uint64_t)shape->spread &&
               args->tokens * 2 * (uint64_t)shape->spread <= (uint64_t)comm->max_ctas)
            shape->spread *= 2;
    }
    const int max_ctas = sol_most_ctas(comm);
    if (shape->spread > max_ctas)
        shape->spread = 1;
    int rows = max_ctas / shape->spread;
    if ((uint64_t)rows > args->tokens)
        rows = (int)args->tokens;
    if (shape->ctas > 0 && shape->ctas / shape->spread < rows)
        rows = shape->ctas / shape->spread > 0 ? shape->ctas / shape->spread : 1;
    shape->ctas = rows * shape->spread;
}

static char *moved(const void *pointer, uint64_t bytes)
{
    return pointer != NULL ? (char *)pointer + bytes : NULL;
}

/* Of `tokens` rows from `first` on. */
static struct sol_vocab_kernel_args args_of(const sol_vocab_args_t *args,
                                            const struct sol_gpu_vocab_shape *shape, uint64_t first,
                                            uint32_t tokens)
{
    struct sol_vocab_kernel_args a;
    const uint64_t pitch = args->pitch != 0 ? args->pitch : args->columns;
    const uint32_t unit = unit_of(args), spread = (uint32_t)shape->spread;
    const uint32_t vectors = (uint32_t)((args->columns + unit - 1) / unit);
    memset(&a, 0, sizeof a);
    a.sum = args->log_sum_exp != NULL;
    a.pitch = pitch * sol_dtype_size(args->dtype);
    a.logits = moved(args->logits, first * a.pitch);
    a.columns = (uint32_t)args->columns;
    a.part = (uint32_t)(((uint64_t)vectors + spread - 1) / spread) * unit;
    a.tokens = tokens;
    a.first = (uint32_t)args->first;
    a.spread = (uint16_t)spread;
    a.k = (uint16_t)args->k;
    a.words = (uint16_t)sol_vocab_words(args->k, a.sum);
    a.slot_words = (uint16_t)((a.words + 1) / 2 * 2);
    a.fraction = sol_vocab_fraction(args->columns);
    a.values = moved(args->values, first * args->k * sizeof(float));
    a.indices = moved(args->indices, first * args->k * sizeof(int64_t));
    a.log_sum_exp = moved(args->log_sum_exp, first * sizeof(float));
    return a;
}

static cudaError_t enqueue(const struct sol_gpu_comm *comm, vocab_kernel kernel,
                           const struct sol_vocab_kernel_args *args,
                           const struct sol_gpu_vocab_shape *shape, unsigned flags,
                           uint64_t sequence, cudaStream_t stream)
{
    const uint64_t bytes = (uint64_t)args->tokens * args->slot_words * 8;
    const struct sol_grid grid = {(unsigned)shape->ctas, SOL_VOCAB_THREADS, (unsigned)shape->spread,
                                  flags, stream};
    return sol_enqueue(kernel, grid, *args, sol_link_of(comm),
                       sol_tail_for(sequence, bytes, SOL_FUNC_ALL_GATHER));
}

cudaError_t sol_gpu_vocab_launch(const struct sol_gpu_comm *comm, const sol_vocab_args_t *args,
                                 const struct sol_gpu_vocab_shape *wished, unsigned flags,
                                 uint64_t sequence, cudaStream_t stream)
{
    const uint64_t message = (sol_vocab_words(args->k, args->log_sum_exp != NULL) + 1) / 2 * 16;
    const uint64_t fit = comm->layout.slot_bytes / message; /* tokens of a slot */
    if (fit == 0)
        return cudaErrorInvalidValue;
    for (uint64_t first = 0; first < args->tokens; first += fit) {
        sol_vocab_args_t some = *args;
        struct sol_gpu_vocab_shape shape = {0, 0, 0};
        if (wished != NULL)
            shape = *wished;
        some.tokens = args->tokens - first < fit ? args->tokens - first : fit;
        sol_gpu_vocab_plan(comm, &some, &shape);
        struct sol_vocab_kernel_args a = args_of(args, &shape, first, (uint32_t)some.tokens);
        cudaError_t error =
            enqueue(comm, kernel_for(args->dtype), &a, &shape, flags, sequence, stream);
        if (error != cudaSuccess)
            return error;
    }
    return cudaSuccess;
}

cudaError_t sol_gpu_vocab_preload(void)
{
    static const sol_dtype_t dtypes[] = {SOL_BFLOAT16, SOL_FLOAT16, SOL_FLOAT32};
    for (int i = 0; i < 3; i++) {
        cudaError_t e = sol_load((const void *)kernel_for(dtypes[i]));
        if (e != cudaSuccess)
            return e;
    }
    return cudaSuccess;
}
