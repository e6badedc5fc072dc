/* SPDX-License-Identifier: Apache-2.0 */
/*
 * enqueue.cuh: what all launchers of kernels have in common: the attributes of a
 * launch, and loading. Host code only; every kernel that waits for other ranks is
 * loaded by sol_load, never by the first launch alone.
 */
#ifndef SOL_DEVICE_KERNELS_ENQUEUE_CUH
#define SOL_DEVICE_KERNELS_ENQUEUE_CUH

#include "device/kernels/launch.h"
#include "device/prim/link.cuh"

#include <cuda_runtime.h>
#include <string.h>

struct sol_grid {
    unsigned ctas, threads; /* threads of a CTA */
    unsigned cluster;       /* CTAs of a cluster; 0 and 1: none */
    unsigned flags;         /* SOL_GPU_PDL */
    cudaStream_t stream;
};

/* With the kernel's type, not as a pointer to nothing: the emulator needs to know the arguments. */
template <class... P, class... A>
static inline cudaError_t sol_enqueue(void (*kernel)(P...), const struct sol_grid &grid,
                                      const A &...arguments)
{
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(grid.ctas);
    config.blockDim = dim3(grid.threads);
    config.stream = grid.stream;
    config.attrs = attributes;
    if (grid.flags & SOL_GPU_PDL) {
        attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (grid.cluster > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs].val.clusterDim.x = grid.cluster;
        attributes[config.numAttrs].val.clusterDim.y = 1;
        attributes[config.numAttrs++].val.clusterDim.z = 1;
    }
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

/* CTAs that a kernel which waits may have, so that all of them run at once. */
static inline int sol_most_ctas(const struct sol_gpu_comm *comm)
{
    return comm->max_ctas < SOL_GPU_MAX_CTAS ? comm->max_ctas : SOL_GPU_MAX_CTAS;
}

/* For the error text. */
static inline struct sol_tail sol_tail_for(uint64_t sequence, uint64_t bytes, uint32_t func)
{
    struct sol_tail tail;
    memset(&tail, 0, sizeof tail);
    tail.story.sequence = sequence;
    tail.story.bytes = bytes;
    tail.story.func = func;
    return tail;
}

/*
 * The same division of an SM's memory for all kernels: an SM must run empty before it is divided in
 * another way, so kernels of two ranks that share a GPU and wait for each other would otherwise
 * wait for ever where they meet on an SM.
 */
static inline cudaError_t sol_load(const void *kernel)
{
    struct cudaFuncAttributes attributes;
    cudaError_t e = cudaFuncGetAttributes(&attributes, kernel);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 14);
    return e;
}

#endif
