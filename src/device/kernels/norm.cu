/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm.cu: from a call of solccl/fused.h to a kernel of norm.cuh, its arguments
 * and its grid.
 */
#include "device/kernels/enqueue.cuh"
#include "device/kernels/norm_args.cuh"
#include "device/kernels/norm_pair.cuh"

typedef void (*norm_kernel)(struct sol_norm_kernel_args, struct sol_link, struct sol_tail);

/* ------------------------------------------------------------------------------- the kernels */

template <int D, int N, int V> static norm_kernel form(bool plain)
{
    if constexpr (N == 2)
        if (plain)
            return sol_norm_kernel<D, N, V, true>;
    return sol_norm_kernel<D, N, V, false>;
}

/* What a kernel is chosen by. */
struct choice {
    int nranks, vectors; /* vectors 0: rows of any length */
    bool plain;
    int pair; /* an enum sol_norm_out: sol_norm_pair_kernel; or NO_PAIR */
    bool cluster;
};
enum { NO_PAIR = -1, PAIRS = 4 };

template <int D, bool CLUSTER> static norm_kernel pair_form(int out)
{
    if constexpr (D != SOL_FLOAT32) {
        if (out == SOL_NORM_STATIC)
            return sol_norm_pair_kernel<D, SOL_NORM_STATIC, CLUSTER>;
        if (out == SOL_NORM_TOKEN)
            return sol_norm_pair_kernel<D, SOL_NORM_TOKEN, CLUSTER>;
        if (out == SOL_NORM_GROUP)
            return sol_norm_pair_kernel<D, SOL_NORM_GROUP, CLUSTER>;
    }
    return sol_norm_pair_kernel<D, SOL_NORM_AS_IS, CLUSTER>;
}

template <int D> static norm_kernel of_type(const struct choice *c)
{
    if (c->vectors == 0)
        return sol_norm_long_kernel<D>;
#ifndef SOL_NORM_MANY_RANKS /* (mutants, with more than two) */
    if (c->pair != NO_PAIR)
        return c->cluster ? pair_form<D, true>(c->pair) : pair_form<D, false>(c->pair);
    if (c->nranks == 2)
        return c->vectors == 1 ? form<D, 2, 1>(c->plain) : form<D, 2, 2>(c->plain);
#endif
    return form<D, SOL_GPU_MAX_RANKS, 1>(false);
}

static norm_kernel kernel_for(sol_dtype_t dtype, const struct choice *c)
{
#ifdef SOL_NORM_ONE_TYPE /* (mutants) */
    (void)dtype;
    return of_type<SOL_BFLOAT16>(c);
#else
    return dtype == SOL_BFLOAT16  ? of_type<SOL_BFLOAT16>(c)
           : dtype == SOL_FLOAT16 ? of_type<SOL_FLOAT16>(c)
                                  : of_type<SOL_FLOAT32>(c);
#endif
}

/* ---------------------------------------------------------------------------------- the plan */

static int blocks_of(const sol_norm_args_t *args)
{
    uint64_t blocks = (sol_norm_row_bytes(args) + SOL_NORM_BLOCK - 1) / SOL_NORM_BLOCK;
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

static bool aligned(const void *p, unsigned to)
{
    return ((uintptr_t)p & (to - 1)) == 0;
}

/* The usual norm of aligned rows of whole blocks, by two ranks. */
static bool is_usual(const struct sol_gpu_comm *comm, const sol_norm_args_t *args)
{
    return comm->nranks == 2 && args->norm == SOL_NORM_RMS && args->weight != NULL &&
           args->bias == NULL && sol_norm_row_bytes(args) % SOL_NORM_BLOCK == 0 &&
           aligned(args->input, 16) && aligned(args->residual, 16) &&
           aligned(args->residual_out, 16) && aligned(args->weight, 16);
}

static bool is_as_it_is(const sol_norm_args_t *args)
{
    return args->quant == SOL_QUANT_NONE && args->output_dtype == args->dtype &&
           aligned(args->output, 16);
}

/* Which form of sol_norm_pair_kernel gives these outputs: an enum sol_norm_out, or NO_PAIR. */
static int pair_output(const struct sol_gpu_comm *comm, const sol_norm_args_t *args)
{
    if (!is_usual(comm, args))
        return NO_PAIR;
    if (args->quant == SOL_QUANT_NONE)
        return is_as_it_is(args) ? (int)SOL_NORM_AS_IS : NO_PAIR;
    if (args->dtype == SOL_FLOAT32 || !aligned(args->output, 8))
        return NO_PAIR;
    if (args->quant == SOL_QUANT_STATIC)
        return aligned(args->static_scale, 4) ? (int)SOL_NORM_STATIC : NO_PAIR;
    return args->quant == SOL_QUANT_TOKEN ? SOL_NORM_TOKEN : SOL_NORM_GROUP;
}

/* A CTA for each part of each row, of one vector a thread. */
static bool is_single(const sol_norm_args_t *args, const struct sol_gpu_norm_shape *shape)
{
    return shape->vectors == 1 && (uint64_t)shape->ctas == args->tokens * (uint64_t)shape->spread &&
           sol_norm_row_bytes(args) == (uint64_t)shape->spread * shape->threads * SOL_GPU_VECTOR;
}

/* One vector a thread, or two where 16 warps do not reach and none of the kernels that may have 32
 * is for this (`single`: sol_norm_pair_kernel; `rows`: the plain form of sol_norm_kernel, which
 * several rows a CTA go through); as few warps as then do. */
static void choose_threads(const struct sol_gpu_comm *comm, const sol_norm_args_t *args, int blocks,
                           struct sol_gpu_norm_shape *shape, bool may_pair)
{
    const int part = (blocks + shape->spread - 1) / shape->spread;
    const uint64_t ctas = args->tokens * (uint64_t)shape->spread; /* for a row of each at once */
    const bool even = may_pair && part <= 32 && part * shape->spread == blocks;
    const bool single = even && shape->vectors <= 1 && ctas <= (uint64_t)sol_most_ctas(comm) &&
                        (shape->ctas == 0 || ctas <= (uint64_t)shape->ctas) &&
                        pair_output(comm, args) != NO_PAIR;
    const bool rows = even && shape->vectors <= 1 && is_usual(comm, args) && is_as_it_is(args);
    const bool two = comm->nranks == 2 && !single && !rows && (part > 16 || shape->vectors > 1);
    const int vectors = two ? 2 : 1;
    shape->vectors = part <= most_blocks(comm) ? vectors : 0;
    shape->threads = shape->vectors ? (part + vectors - 1) / vectors * 32 : SOL_NORM_LONG_THREADS;
}

/* `may_pair`: for sol_norm_pair_kernel too. */
static void plan_for(const struct sol_gpu_comm *comm, const sol_norm_args_t *args,
                     struct sol_gpu_norm_shape *shape, bool may_pair)
{
    const int blocks = blocks_of(args), most = shape->most_spread > 0 ? shape->most_spread : 1;
    const bool pieces = blocks == 0 || (shape->threads != 0 && shape->vectors == 0);
    if (shape->spread == 0 || shape->spread > most)
        shape->spread = pieces ? 1 : choose_spread(comm, args, most);
    if (pieces) {
        shape->vectors = 0;
        shape->threads = SOL_NORM_LONG_THREADS;
    } else {
        choose_threads(comm, args, blocks, shape, may_pair);
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

void sol_gpu_norm_plan(const struct sol_gpu_comm *comm, const sol_norm_args_t *args,
                       struct sol_gpu_norm_shape *shape)
{
    plan_for(comm, args, shape, false);
}

/* -------------------------------------------------------------------------------- launches */

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
    const uint64_t pitch = (sol_norm_row_bytes(args) + 15) / 16 * 16;
    const uint64_t fit = comm->layout.slot_bytes / pitch; /* rows of a slot */
    if (fit == 0)
        return cudaErrorInvalidValue;
    for (uint64_t first = 0; first < args->tokens; first += fit) {
        sol_norm_args_t some = *args;
        struct sol_gpu_norm_shape shape = {0, 0, 0, 0, 0};
        if (wished != NULL)
            shape = *wished;
        some.tokens = args->tokens - first < fit ? args->tokens - first : fit;
        plan_for(comm, &some, &shape, true);
        struct sol_norm_kernel_args a =
            sol_norm_args_of(args, &shape, first, (uint32_t)some.tokens);
        const struct choice choice = {
            comm->nranks, shape.vectors, sol_norm_is_plain(comm, args, &shape),
            is_single(&some, &shape) ? pair_output(comm, args) : NO_PAIR, shape.spread > 1};
        cudaError_t error =
            enqueue(comm, kernel_for(args->dtype, &choice), &a, &shape, flags, sequence, stream);
        if (error != cudaSuccess)
            return error;
    }
    return cudaSuccess;
}

cudaError_t sol_gpu_norm_preload(void)
{
    static const sol_dtype_t dtypes[] = {SOL_BFLOAT16, SOL_FLOAT16, SOL_FLOAT32};
    for (int i = 0; i < 3 * 3 * 4; i++) { /* type, vectors, ranks, plain */
        const struct choice choice = {i & 1 ? 2 : SOL_GPU_MAX_RANKS, i / 4 % 3, (i & 2) != 0,
                                      NO_PAIR, false};
        cudaError_t e = sol_load((const void *)kernel_for(dtypes[i / 12], &choice));
        if (e != cudaSuccess)
            return e;
    }
    for (int i = 0; i < 3 * PAIRS * 2; i++) { /* type, output, in a cluster */
        const struct choice choice = {2, 1, true, i / 2 % PAIRS, (i & 1) != 0};
        cudaError_t e = sol_load((const void *)kernel_for(dtypes[i / 2 / PAIRS], &choice));
        if (e != cudaSuccess)
            return e;
    }
    return cudaSuccess;
}
