/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_probe_kernels.cu: write a pattern to every peer; look for theirs. No
 * kernel here waits for anything.
 */
#include "backend/cuda/cuda_probe.h"

#define THREADS 256
#define WORDS (SOL_CUDA_PROBE_BYTES / 8)

static __device__ uint64_t pattern(uint64_t nonce, int from, int to, int word)
{
    uint64_t x = nonce ^ ((uint64_t)from << 40 | (uint64_t)to << 32 | (uint64_t)word);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull; /* a mix in which every bit matters */
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* One CTA a destination. */
static __global__ void __launch_bounds__(THREADS)
    probe_write(const __grid_constant__ struct sol_cuda_probe probe)
{
    int to = (int)blockIdx.x;
    if (probe.skip >> to & 1)
        return;
    volatile uint64_t *there =
        (volatile uint64_t *)(probe.staging[to] + (size_t)probe.rank * SOL_CUDA_PROBE_BYTES);
    for (int word = (int)threadIdx.x; word < WORDS; word += THREADS)
        there[word] = pattern(probe.nonce, probe.rank, to, word);
}

/* One CTA a source. */
static __global__ void __launch_bounds__(THREADS)
    probe_check(const __grid_constant__ struct sol_cuda_probe probe)
{
    int from = (int)blockIdx.x;
    const volatile uint64_t *here =
        (const volatile uint64_t *)(probe.staging[probe.rank] +
                                    (size_t)from * SOL_CUDA_PROBE_BYTES);
    int good = 1;
    for (int word = (int)threadIdx.x; word < WORDS; word += THREADS)
        good &= here[word] == pattern(probe.nonce, from, probe.rank, word);
    if (__syncthreads_and(good) && threadIdx.x == 0)
        probe.arrived[from] = 1;
}

/* By name and not with <<<>>>, which the emulator's compilers do not have. */
static cudaError_t launch(void (*kernel)(const struct sol_cuda_probe),
                          const struct sol_cuda_probe *probe, cudaStream_t stream)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)probe->nranks);
    config.blockDim = dim3(THREADS);
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, *probe);
}

cudaError_t sol_cuda_probe_write(const struct sol_cuda_probe *probe, cudaStream_t stream)
{
    return launch(probe_write, probe, stream);
}

cudaError_t sol_cuda_probe_check(const struct sol_cuda_probe *probe, cudaStream_t stream)
{
    return launch(probe_check, probe, stream);
}
