/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_buffers.h: can this rank's GPU reach the buffers of a call? Memory of
 * any allocator will do (cudaMalloc, sub-allocations, virtual memory, async
 * pools, managed, pinned host): kernels read and write it where it is and no
 * handle of it is kept. What the GPU cannot reach is found here, before a
 * kernel faults on it and takes the whole context along.
 *
 * Asking the driver costs about 0.2 us, so pieces of 2 MB of address space that
 * held device memory are remembered. A stale entry can only make us skip the
 * question, never change where a kernel reads or writes.
 */
#ifndef SOL_CUDA_BUFFERS_H
#define SOL_CUDA_BUFFERS_H

#include "backend/cuda/cuda_driver.h"

#include <cuda_runtime_api.h>

#define SOL_CUDA_BUFFER_SHIFT 21
#define SOL_CUDA_BUFFER_SLOTS 64

struct sol_cuda_buffers {
    uintptr_t known[SOL_CUDA_BUFFER_SLOTS]; /* piece number plus one */
    int device;
    bool pageable; /* this GPU reads any host memory (HMM, ATS) */
    const struct sol_cuda_driver *cu;
};

void sol_cuda_buffers_open(struct sol_cuda_buffers *buffers, const struct sol_cuda_driver *cu,
                           int device);

/* Slow path of the next: asks the driver. */
bool sol_cuda_buffer_ask(struct sol_cuda_buffers *buffers, const void *pointer, char *why,
                         size_t why_bytes);

/* NULL is fine. False: no, and why. */
static inline bool sol_cuda_buffer_reachable(struct sol_cuda_buffers *buffers, const void *pointer,
                                             char *why, size_t why_bytes)
{
    uintptr_t piece = (uintptr_t)pointer >> SOL_CUDA_BUFFER_SHIFT;
    if (pointer == NULL || buffers->known[piece % SOL_CUDA_BUFFER_SLOTS] == piece + 1) {
        return true;
    }
    return sol_cuda_buffer_ask(buffers, pointer, why, why_bytes);
}

#endif
