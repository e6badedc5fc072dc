/* SPDX-License-Identifier: Apache-2.0 */
/*
 * movers.cu: the instances of the kernels that move bytes, and the first state.
 */
#include "device/kernels/exchange.cuh"
#include "device/kernels/init.cuh"
#include "device/kernels/kernels.cuh"
#include "device/kernels/push.cuh"

template <int N, int V> static struct sol_kernel exact_push(bool spread)
{
    struct sol_kernel k;
    k.function = spread ? (const void *)sol_push_kernel<N, V, true, true>
                        : (const void *)sol_push_kernel<N, V, false, true>;
    k.threads = V == 4 || N == 8 ? 256 : 512;
    k.vectors = V;
    return k;
}

template <int N> static struct sol_kernel ragged_push(void)
{
    struct sol_kernel k = {(const void *)sol_push_kernel<N, 1, true, false>, 256, 1};
    return k;
}

struct sol_kernel sol_push_for(const struct sol_kernel_key *key)
{
    if (!key->exact)
        return key->nranks == 2 ? ragged_push<2>() : ragged_push<8>();
    if (key->nranks == 2)
        return key->vectors >= 4   ? exact_push<2, 4>(key->spread)
               : key->vectors == 2 ? exact_push<2, 2>(key->spread)
                                   : exact_push<2, 1>(key->spread);
    return key->nranks <= 4 ? exact_push<4, 1>(key->spread) : exact_push<8, 1>(key->spread);
}

struct sol_kernel sol_exchange_for(const struct sol_kernel_key *key)
{
    struct sol_kernel k = {(const void *)sol_exchange_kernel<false>, SOL_EXCHANGE_THREADS, 0};
    if (key->exact)
        k.function = (const void *)sol_exchange_kernel<true>;
    return k;
}

cudaError_t sol_gpu_init(const struct sol_gpu_comm *comm, uint64_t epoch, cudaStream_t stream)
{
    cudaLaunchConfig_t config = {};
    uint64_t ctas = comm->layout.total >> 16; /* at least 8 vectors for each thread */
    config.gridDim = dim3(ctas < 1 ? 1 : ctas > 128 ? 128 : (unsigned)ctas);
    config.blockDim = dim3(512);
    config.stream = stream;
    cudaError_t error = cudaLaunchKernelEx(&config, sol_init_kernel, *comm);
    if (error != cudaSuccess)
        return error;
    config.gridDim = config.blockDim = dim3(1);
    return cudaLaunchKernelEx(&config, sol_init_counters_kernel, *comm, epoch);
}
