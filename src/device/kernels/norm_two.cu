/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_two.cu: from a call of sol_all_reduce_norm in two hops to a kernel of
 * norm_two_rows.cuh, or of norm_two.cuh, its arguments and its grid.
 */
#include "device/kernels/enqueue.cuh"
#include "device/kernels/norm_args.cuh"
#include "device/kernels/norm_two_rows.cuh"

typedef void (*norm_two_kernel)(struct sol_norm_two_args, struct sol_link, struct sol_tail);

/* What becomes of y where rows fit in registers: an enum sol_norm_out; or PIECES of any form. */
enum { PIECES = -1, OUTS = 4 };

template <int D, int N> static norm_two_kernel rows_form(int out)
{
    if constexpr (D != SOL_FLOAT32) {
        if (out == SOL_NORM_STATIC)
            return sol_norm_two_rows_kernel<D, N, SOL_NORM_STATIC>;
        if (out == SOL_NORM_TOKEN)
            return sol_norm_two_rows_kernel<D, N, SOL_NORM_TOKEN>;
        if (out == SOL_NORM_GROUP)
            return sol_norm_two_rows_kernel<D, N, SOL_NORM_GROUP>;
    }
    return sol_norm_two_rows_kernel<D, N, SOL_NORM_AS_IS>;
}

template <int D> static norm_two_kernel of_type(int nranks, int out)
{
    if (out == PIECES)
        return sol_norm_two_kernel<D>;
    return nranks == 2 ? rows_form<D, 2>(out) : rows_form<D, SOL_GPU_MAX_RANKS>(out);
}

static norm_two_kernel kernel_for(sol_dtype_t dtype, int nranks, int out)
{
#ifdef SOL_NORM_ONE_TYPE /* (mutants) */
    (void)dtype;
    return of_type<SOL_BFLOAT16>(nranks, out);
#else
    return dtype == SOL_BFLOAT16  ? of_type<SOL_BFLOAT16>(nranks, out)
           : dtype == SOL_FLOAT16 ? of_type<SOL_FLOAT16>(nranks, out)
                                  : of_type<SOL_FLOAT32>(nranks, out);
#endif
}

/* ---------------------------------------------------------------------------------- the plan */

/* Which form of sol_norm_two_rows_kernel gives these outputs, if there are rows for it. */
static int rows_output(const sol_norm_args_t *args)
{
    const bool usual = args->norm == SOL_NORM_RMS && args->weight != NULL && args->bias == NULL &&
                       sol_norm_row_bytes(args) % SOL_NORM_BLOCK == 0 &&
                       sol_norm_aligned(args->input) && sol_norm_aligned(args->residual) &&
                       sol_norm_aligned(args->residual_out) && sol_norm_aligned(args->weight) &&
                       sol_norm_aligned(args->output);
    if (!usual)
        return PIECES;
    if (args->quant == SOL_QUANT_NONE)
        return args->output_dtype == args->dtype ? (int)SOL_NORM_AS_IS : PIECES;
    if (args->dtype == SOL_FLOAT32)
        return PIECES;
    return args->quant == SOL_QUANT_STATIC  ? SOL_NORM_STATIC
           : args->quant == SOL_QUANT_TOKEN ? SOL_NORM_TOKEN
                                            : SOL_NORM_GROUP;
}

/* May a row be divided among `spread` CTAs? Warps have equal work then, and four groups, whose
 * scales are a vector, one CTA. */
static bool divides(const struct sol_gpu_comm *comm, const sol_norm_args_t *args, int out,
                    int spread)
{
    const uint64_t blocks = sol_norm_row_bytes(args) / SOL_NORM_BLOCK, part = blocks / spread;
    return blocks % spread == 0 && part <= (comm->nranks == 2 ? 32 : 16) &&
           (out != SOL_NORM_GROUP || spread == 1 || part % 2 == 0);
}

/* CTAs that share a row, of which a rank has `rows` at most: as many as there are for all, and at
 * least as many as it takes. 0: none will do. */
static int choose_spread(const struct sol_gpu_comm *comm, const sol_norm_args_t *args, int out,
                         uint32_t rows, const struct sol_gpu_norm_shape *wished)
{
    const int most = wished->most_spread > 1 ? wished->most_spread : 1;
    int spread = 0;
    for (int s = 1; s <= most && s <= 8; s *= 2)
        if (divides(comm, args, out, s) &&
            (spread == 0 || (uint64_t)s * rows <= (uint64_t)sol_most_ctas(comm) ||
             s == wished->spread) &&
            (wished->spread == 0 || spread == 0 || s <= wished->spread))
            spread = s;
    return spread;
}

static cudaError_t enqueue(const struct sol_gpu_comm *comm, const sol_norm_args_t *args,
                           struct sol_norm_two_args *a, const struct sol_gpu_norm_shape *wished,
                           unsigned flags, uint64_t sequence, cudaStream_t stream)
{
    const bool pieces = wished->threads != 0 && wished->vectors == 0; /* asked for */
    const int out = pieces ? (int)PIECES : rows_output(args), most = sol_most_ctas(comm);
    const int spread = out == PIECES ? 0 : choose_spread(comm, args, out, a->most, wished);
    const int ctas = wished->ctas > 0 && wished->ctas < most ? wished->ctas : most;
    const uint64_t bytes = (uint64_t)a->most * (uint64_t)comm->nranks * a->own.row;
    const struct sol_tail tail = sol_tail_for(sequence, bytes, SOL_FUNC_ALL_REDUCE);
    struct sol_grid grid = {a->most, SOL_NORM_LONG_THREADS, 1, flags, stream};
    if (spread != 0) {
        a->own.spread = (uint16_t)spread;
        a->own.cta_blocks = (uint16_t)(a->own.row / SOL_NORM_BLOCK / (uint32_t)spread);
        grid.threads = a->own.cta_blocks * 32u;
        grid.cluster = (unsigned)spread;
    }
    const unsigned clusters = ctas > (int)grid.cluster ? (unsigned)ctas / grid.cluster : 1;
    grid.ctas = (a->most < clusters ? a->most : clusters) * grid.cluster;
    return sol_enqueue(kernel_for(args->dtype, comm->nranks, spread != 0 ? out : (int)PIECES), grid,
                       *a, sol_link_of(comm), tail);
}

/* -------------------------------------------------------------------------------- launches */

uint64_t sol_gpu_norm_two_rows(const struct sol_gpu_comm *comm, const sol_norm_args_t *args)
{
    struct sol_norm_two_args a;
    const uint64_t half = comm->layout.slot_bytes / 2;
    sol_norm_two_sizes(&a, args);
    const uint64_t row = a.own.pitch > a.finished ? a.own.pitch : a.finished;
    return half / row;
}

cudaError_t sol_gpu_norm_two_launch(const struct sol_gpu_comm *comm, const sol_norm_args_t *args,
                                    const struct sol_gpu_norm_shape *wished, unsigned flags,
                                    uint64_t sequence, cudaStream_t stream)
{
    const struct sol_gpu_norm_shape any = {0, 0, 0, 0, 0};
    struct sol_norm_two_args a;
    const uint64_t n = (uint64_t)comm->nranks, most = (args->tokens + n - 1) / n;
    const uint64_t step = sol_gpu_norm_two_rows(comm, args);
    if (step == 0)
        return cudaErrorInvalidValue;
    sol_norm_two_sizes(&a, args);
    for (uint64_t from = 0; from < most; from += step) {
        sol_norm_two_fill(&a, comm, args, from, step);
        cudaError_t error =
            enqueue(comm, args, &a, wished != NULL ? wished : &any, flags, sequence, stream);
        if (error != cudaSuccess)
            return error;
    }
    return cudaSuccess;
}

cudaError_t sol_gpu_norm_two_preload(void)
{
    static const sol_dtype_t dtypes[] = {SOL_BFLOAT16, SOL_FLOAT16, SOL_FLOAT32};
    for (int i = 0; i < 3 * 2 * (OUTS + 1); i++) {
        const int out = i % (OUTS + 1) - 1, nranks = i / (OUTS + 1) % 2 ? SOL_GPU_MAX_RANKS : 2;
        cudaError_t e = sol_load((const void *)kernel_for(dtypes[i / (OUTS + 1) / 2], nranks, out));
        if (e != cudaSuccess)
            return e;
    }
    return cudaSuccess;
}
