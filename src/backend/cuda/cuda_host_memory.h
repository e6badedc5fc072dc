/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_host_memory.h: zeroed host memory that the hosts and the GPUs of all
 * ranks see, for the notice board.
 *
 * By the driver's virtual memory if it can: host memory that is mapped for the
 * CPU and for a GPU and unmapped again without waiting for the GPU to be idle.
 * Otherwise a memfd that every rank registers; un-registering waits for all
 * kernels on the device, which matters only where several ranks share a GPU.
 */
#ifndef SOL_CUDA_HOST_MEMORY_H
#define SOL_CUDA_HOST_MEMORY_H

#include "backend/cuda/cuda_driver.h"
#include "core/boot.h"

struct sol_cuda_host_memory {
    void *host;   /* as the CPU sees it; NULL: not open */
    void *device; /* as this rank's GPU sees it */
    size_t bytes;
    CUmemGenericAllocationHandle handle; /* 0: a registered memfd */
};

/* Collective over the boot; all ranks succeed or all fail. `device` is the current one. Sets the
 * thread error. */
sol_status_t sol_cuda_host_memory_open(struct sol_cuda_host_memory *memory,
                                       const struct sol_cuda_driver *cu, sol_boot_t *boot,
                                       CUdevice device, int rank, int nranks, size_t bytes);
void sol_cuda_host_memory_close(const struct sol_cuda_driver *cu,
                                struct sol_cuda_host_memory *memory);

#endif
