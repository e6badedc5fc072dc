/* SPDX-License-Identifier: Apache-2.0 */
/*
 * few_kernels.cu: the built-in kernels and their launcher as one file that
 * compiles in seconds: one instance of each, for 32-bit integers, two ranks or
 * more. What a mutant is compiled from; without a mutation every test passes.
 */
#ifndef SOL_FEW_TYPE
#define SOL_FEW_TYPE SOL_INT32
#endif
#include "device/kernels/launch.cu"

#include "device/kernels/init.cuh"
#include "device/kernels/pair_ragged.cuh"

/* Of pair.cuh only those that move bytes: 32-bit integers have no others. */
struct sol_kernel sol_pair_for(const struct sol_kernel_key *key)
{
    struct sol_kernel k = {(const void *)sol_pair_push_kernel<1, false, false>, 512, 1};
    if (key->spread)
        k.function = key->loop ? (const void *)sol_pair_push_kernel<1, true, true>
                               : (const void *)sol_pair_push_kernel<1, true, false>;
    else if (key->loop)
        k.function = (const void *)sol_pair_push_kernel<1, false, true>;
    return k;
}

/* Any unit in bytes, sums in elements. */
struct sol_kernel sol_pair_ragged_for(const struct sol_kernel_key *key, unsigned unit)
{
    struct sol_kernel k = {NULL, 512, 1};
    if (!key->reduces)
        k.function = key->spread ? (const void *)sol_pair_ragged_push_kernel<uint8_t, true>
                                 : (const void *)sol_pair_ragged_push_kernel<uint8_t, false>;
    else if (key->redop == SOL_SUM && unit >= 4)
        k.function =
            key->spread
                ? (const void *)sol_pair_ragged_reduce_kernel<SOL_FEW_TYPE, SOL_SUM, uint32_t, true>
                : (const void *)
                      sol_pair_ragged_reduce_kernel<SOL_FEW_TYPE, SOL_SUM, uint32_t, false>;
    return k;
}

struct sol_kernel sol_one_shot_for(const struct sol_kernel_key *key)
{
    struct sol_kernel k = {(const void *)sol_one_shot_kernel<SOL_FEW_TYPE, -1, 8, 1, true, false>,
                           256, 1};
    (void)key;
    return k;
}

struct sol_kernel sol_two_shot_for(const struct sol_kernel_key *key)
{
    struct sol_kernel k = {(const void *)sol_two_shot_kernel<SOL_FEW_TYPE, -1, 8, false>, 256, 1};
    (void)key;
    return k;
}

struct sol_kernel sol_lane_reduce_for(const struct sol_kernel_key *key)
{
    struct sol_kernel k = {(const void *)sol_lane_reduce_kernel<SOL_FEW_TYPE, -1, 8, 1, false>, 64,
                           1};
    (void)key;
    return k;
}

struct sol_kernel sol_push_for(const struct sol_kernel_key *key)
{
    struct sol_kernel k = {(const void *)sol_push_kernel<8, 1, true, false>, 256, 1};
    (void)key;
    return k;
}

struct sol_kernel sol_exchange_for(const struct sol_kernel_key *key)
{
    struct sol_kernel k = {(const void *)sol_exchange_kernel<false>, SOL_EXCHANGE_THREADS, 0};
    (void)key;
    return k;
}

#ifndef SOL_FEW_MULTICAST /* (no other test asks for it) */
struct sol_kernel sol_multicast_push_for(const struct sol_kernel_key *key)
{
    return sol_push_for(key);
}
struct sol_kernel sol_multicast_reduce_for(const struct sol_kernel_key *key)
{
    return sol_push_for(key);
}
#endif

cudaError_t sol_gpu_init(const struct sol_gpu_comm *comm, uint64_t epoch, cudaStream_t stream)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(4);
    config.blockDim = dim3(128);
    config.stream = stream;
    cudaError_t error = cudaLaunchKernelEx(&config, sol_init_kernel, *comm);
    if (error != cudaSuccess)
        return error;
    config.gridDim = config.blockDim = dim3(1);
    return cudaLaunchKernelEx(&config, sol_init_counters_kernel, *comm, epoch);
}
