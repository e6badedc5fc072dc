/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantized.cu: from a call of solccl/quantized.h to kernels of quantized.cuh, their
 * arguments and their grid.
 */
#include "device/kernels/enqueue.cuh"
#include "device/kernels/quantized.cuh"

#include <string.h>

typedef void (*quantized_kernel)(struct sol_quantized_args, struct sol_link, struct sol_tail);

template <int D> static quantized_kernel of_type(int nranks, int steps)
{
    if (steps == 2)
        return sol_quantized_two_kernel<D, SOL_GPU_MAX_RANKS>;
    return nranks == 2 ? sol_quantized_kernel<D, 2> : sol_quantized_kernel<D, SOL_GPU_MAX_RANKS>;
}

static quantized_kernel kernel_for(sol_dtype_t dtype, int nranks, int steps)
{
#ifdef SOL_QUANTIZED_ONE_TYPE /* (mutants) */
    (void)dtype;
    return of_type<SOL_BFLOAT16>(nranks, steps);
#else
    return dtype == SOL_BFLOAT16  ? of_type<SOL_BFLOAT16>(nranks, steps)
           : dtype == SOL_FLOAT16 ? of_type<SOL_FLOAT16>(nranks, steps)
                                  : of_type<SOL_FLOAT32>(nranks, steps);
#endif
}

static cudaError_t enqueue(const struct sol_gpu_comm *comm, const struct sol_gpu_quantized *op,
                           const struct sol_quantized_args *args, unsigned flags, uint64_t sequence,
                           cudaStream_t stream)
{
    const unsigned warps = SOL_QUANTIZED_THREADS / 32, wanted = (args->blocks + warps - 1) / warps;
    const int most = sol_most_ctas(comm);
    const unsigned wished = (unsigned)(op->ctas > 0 && op->ctas < most ? op->ctas : most);
    const uint64_t bytes = args->count * sol_dtype_size(op->dtype);
    const struct sol_grid grid = {wished < wanted ? wished : wanted, SOL_QUANTIZED_THREADS, 1,
                                  flags, stream};
    return sol_enqueue(kernel_for(op->dtype, comm->nranks, op->steps), grid, *args,
                       sol_link_of(comm), sol_tail_for(sequence, bytes, SOL_FUNC_ALL_REDUCE));
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
        args.int8 = op->wire == SOL_INT8;
        cudaError_t error = enqueue(comm, op, &args, flags, sequence, stream);
        if (error != cudaSuccess)
            return error;
    }
    return cudaSuccess;
}

cudaError_t sol_gpu_quantized_preload(void)
{
    static const sol_dtype_t dtypes[] = {SOL_BFLOAT16, SOL_FLOAT16, SOL_FLOAT32};
    for (int d = 0; d < 3; d++)
        for (int form = 0; form < 3; form++) {
            cudaError_t e = sol_load((const void *)kernel_for(
                dtypes[d], form == 0 ? 2 : SOL_GPU_MAX_RANKS, 1 + form / 2));
            if (e != cudaSuccess)
                return e;
        }
    return cudaSuccess;
}
