/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_kernels.cu: the user's kernels of the tests. The one that spins is
 * bounded by its own clock.
 */
#include "gpu/gpu_kernels.h"

static __global__ void spin(uint64_t nanoseconds)
{
    uint64_t begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        __nanosleep(1000);
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < nanoseconds);
}

static __global__ void empty(void)
{
}

static __global__ void scale(float *out, const float *in, size_t count, float factor)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;");
#endif
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        out[i] = in[i] * factor;
}

template <bool EARLY>
static __global__ void turn(float *out, const float *in, size_t count, float add)
{
#if __CUDA_ARCH__ >= 900
    if (EARLY) {
        asm volatile("griddepcontrol.wait;" ::: "memory");
        asm volatile("griddepcontrol.launch_dependents;");
    }
#endif
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        out[i] = fmodf(in[i] * 5 + add, 251);
}

cudaError_t gpu_spin(cudaStream_t stream, uint64_t nanoseconds)
{
    spin<<<1, 1, 0, stream>>>(nanoseconds);
    return cudaGetLastError();
}

cudaError_t gpu_empty(cudaStream_t stream)
{
    empty<<<1, 32, 0, stream>>>();
    return cudaGetLastError();
}

cudaError_t gpu_scale(cudaStream_t stream, float *out, const float *in, size_t count, float factor)
{
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(4);
    config.blockDim = dim3(256);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, scale, out, in, count, factor);
}

cudaError_t gpu_turn(cudaStream_t stream, float *out, const float *in, size_t count, float add,
                     bool early)
{
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(16);
    config.blockDim = dim3(256);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = early ? 1 : 0;
    return early ? cudaLaunchKernelEx(&config, turn<true>, out, in, count, add)
                 : cudaLaunchKernelEx(&config, turn<false>, out, in, count, add);
}
