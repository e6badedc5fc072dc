/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_late_kernels.cu: see gpu_late.h. */
#include "gpu/gpu_late.h"
#include <solccl/device/barrier.cuh>

static __global__ void delay(uint64_t nanoseconds, const void *word)
{
    const uint64_t begin = sol_clock_ns();
    while (sol_clock_ns() - begin < nanoseconds)
        sol_poll_word(word); /* in the emulator time passes when all threads poll */
}

static __global__ void meet(const __grid_constant__ sol_dev_comm_t dev)
{
    struct sol_rank_barrier b = sol_barrier_open(dev, 0, SOL_WARP, sol_team_all(dev));
    if (sol_barrier_sync(dev, b, SOL_ACQ_REL))
        sol_barrier_close(dev, b);
}

template <class... P, class... A>
static cudaError_t launch(cudaStream_t stream, unsigned threads, void (*kernel)(P...),
                          const A &...args)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(threads);
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, args...);
}

cudaError_t gpu_delay(cudaStream_t stream, uint64_t nanoseconds, const void *word)
{
    return launch(stream, 1, delay, nanoseconds, word);
}

cudaError_t gpu_meet(cudaStream_t stream, const sol_dev_comm_t *dev)
{
    return launch(stream, 32, meet, *dev);
}
