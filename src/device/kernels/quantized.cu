/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantized.cu: from a call of solccl/quantized.h to kernels of quantized.cuh, their
 * arguments and their grid.
 */
#include "device/kernels/enqueue.cuh"
#include "device/kernels/quantized.cuh"

#include <string.h>

typedef void (*quantized_kernel)(struct sol_quantized_args, struct sol_link, struct sol_tail);

/* One hop of two ranks, with a block a warp at most, or several; of any number; two hops. */
enum form { PAIR, PAIR_LOOP, ONE, TWO, FORMS };

template <int D, int W> static quantized_kernel of_types(enum form form)
{
    switch (form) {
    case PAIR:
        return sol_quantized_pair_kernel<D, W, false>;
    case PAIR_LOOP:
        return sol_quantized_pair_kernel<D, W, true>;
    case ONE:
        return sol_quantized_kernel<D, W>;
    default:
        return sol_quantized_two_kernel<D, W>;
    }
}

template <int D> static quantized_kernel of_type(sol_dtype_t wire, enum form form)
{
    return wire == SOL_INT8 ? of_types<D, SOL_INT8>(form) : of_types<D, SOL_FLOAT8_E4M3>(form);
}

static quantized_kernel kernel_for(sol_dtype_t dtype, sol_dtype_t wire, enum form form)
{
#ifdef SOL_QUANTIZED_ONE_TYPE /* (mutants) */
    (void)dtype;
    return of_type<SOL_BFLOAT16>(wire, form);
#else
    return dtype == SOL_BFLOAT16  ? of_type<SOL_BFLOAT16>(wire, form)
           : dtype == SOL_FLOAT16 ? of_type<SOL_FLOAT16>(wire, form)
                                  : of_type<SOL_FLOAT32>(wire, form);
#endif
}

/* Warps of a CTA: few, on many SMs, while there are SMs; then as many as run at once. */
#define SOL_QUANTIZED_WARPS 4
#ifndef SOL_QUANTIZED_MOST_WARPS /* (fewer in the emulator) */
#define SOL_QUANTIZED_MOST_WARPS                                                                   \
    16 /* of 128 registers a thread; half of it of the general kernels */
#endif

static cudaError_t enqueue(const struct sol_gpu_comm *comm, const struct sol_gpu_quantized *op,
                           const struct sol_quantized_args *args, unsigned flags, uint64_t sequence,
                           cudaStream_t stream)
{
    const unsigned most = (unsigned)sol_most_ctas(comm);
    const unsigned ctas = op->ctas > 0 && (unsigned)op->ctas < most ? (unsigned)op->ctas : most;
    const bool pair = comm->nranks == 2 && op->steps == 1;
    const unsigned least_warps =
        SOL_QUANTIZED_WARPS < SOL_QUANTIZED_MOST_WARPS ? SOL_QUANTIZED_WARPS : 1;
    const unsigned most_warps = pair ? SOL_QUANTIZED_MOST_WARPS : SOL_QUANTIZED_MOST_WARPS / 2;
    unsigned warps = (args->blocks + ctas - 1) / ctas;
    const bool loop = warps > most_warps;
    warps = loop ? most_warps : warps > least_warps ? warps : least_warps;
    const unsigned wanted = (args->blocks + warps - 1) / warps;
    const enum form form = op->steps == 2 ? TWO : !pair ? ONE : loop ? PAIR_LOOP : PAIR;
    const uint64_t bytes = args->count * sol_dtype_size(op->dtype);
    const struct sol_grid grid = {wanted < ctas ? wanted : ctas, warps * 32, 1, flags, stream};
    return sol_enqueue(kernel_for(op->dtype, op->wire, form), grid, *args, sol_link_of(comm),
                       sol_tail_for(sequence, bytes, SOL_FUNC_ALL_REDUCE));
}

cudaError_t sol_gpu_quantized_launch(const struct sol_gpu_comm *comm,
                                     const struct sol_gpu_quantized *op, unsigned flags,
                                     uint64_t sequence, cudaStream_t stream)
{
    const uint64_t size = sol_dtype_size(op->dtype), n = (uint64_t)comm->nranks;
    const uint64_t slot = comm->layout.slot_bytes / (op->steps == 2 ? 2 : 1);
    const uint64_t shares = op->steps == 2 ? n : 1; /* of a launch */
    const uint64_t most = slot / SOL_QUANTIZED_WIRE * shares * SOL_QUANTIZED_BLOCK;
    if (most == 0)
        return cudaErrorInvalidValue;
    for (uint64_t first = 0; first < op->count; first += most) {
        struct sol_quantized_args args;
        args.send = (const char *)op->send + first * size;
        args.recv = (char *)op->recv + first * size;
        args.count = op->count - first < most ? op->count - first : most;
        args.blocks = (uint32_t)((args.count + shares * SOL_QUANTIZED_BLOCK - 1) /
                                 (shares * SOL_QUANTIZED_BLOCK));
        args.whole = (((uintptr_t)args.send | (uintptr_t)args.recv) & 15) == 0;
        cudaError_t error = enqueue(comm, op, &args, flags, sequence, stream);
        if (error != cudaSuccess)
            return error;
    }
    return cudaSuccess;
}

cudaError_t sol_gpu_quantized_preload(void)
{
    static const sol_dtype_t dtypes[] = {SOL_BFLOAT16, SOL_FLOAT16, SOL_FLOAT32};
    for (int i = 0; i < 3 * 2 * FORMS; i++) {
        const sol_dtype_t wire = i / FORMS % 2 ? SOL_INT8 : SOL_FLOAT8_E4M3;
        cudaError_t e =
            sol_load((const void *)kernel_for(dtypes[i / FORMS / 2], wire, (enum form)(i % FORMS)));
        if (e != cudaSuccess)
            return e;
    }
    return cudaSuccess;
}
