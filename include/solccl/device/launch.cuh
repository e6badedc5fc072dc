/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.cuh: launching a kernel, the same way under nvcc and in the emulator
 * (which has no <<<>>>). For shared memory of a CTA that both understand, write
 * SOL_SHARED(type, name) or SOL_SHARED_ARRAY(type, name, count).
 */
#ifndef SOL_DEVICE_LAUNCH_CUH
#define SOL_DEVICE_LAUNCH_CUH

#include "solccl/device/ptx.cuh"

#include <cuda_runtime.h>

/* Enqueue `kernel` on `stream`, after all before it. Arguments are converted to the kernel's. */
template <class... P, class... A>
static inline cudaError_t sol_dev_launch(void (*kernel)(P...), unsigned ctas, unsigned threads,
                                         cudaStream_t stream, const A &...arguments)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(ctas);
    config.blockDim = dim3(threads);
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

/* The same, set up while the kernel before it still runs (programmatic dependent launch). The
 * kernel must call sol_await_predecessors() before it touches memory that others write, a session
 * included, and may call sol_admit_successor() at any time. */
template <class... P, class... A>
static inline cudaError_t sol_dev_launch_early(void (*kernel)(P...), unsigned ctas,
                                               unsigned threads, cudaStream_t stream,
                                               const A &...arguments)
{
    cudaLaunchAttribute attribute;
    cudaLaunchConfig_t config = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(ctas);
    config.blockDim = dim3(threads);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

#endif
