/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_buffers.c: the question to the driver. */
#include "backend/cuda/cuda_buffers.h"

#include <stdio.h>
#include <string.h>

void sol_cuda_buffers_open(struct sol_cuda_buffers *buffers, const struct sol_cuda_driver *cu,
                           int device)
{
    int pageable = 0;
    memset(buffers, 0, sizeof *buffers);
    buffers->cu = cu;
    buffers->device = device;
    cudaDeviceGetAttribute(&pageable, cudaDevAttrPageableMemoryAccess, device);
    buffers->pageable = pageable != 0;
}

/* May our device access memory of another one at this address? */
static bool mapped_for_us(const struct sol_cuda_buffers *buffers, const void *pointer, int owner)
{
    CUmemLocation location;
    unsigned long long flags = 0;
    int can = 0;
    memset(&location, 0, sizeof location);
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = buffers->device;
    if (buffers->cu->mem_get_access(&flags, &location, (CUdeviceptr)(uintptr_t)pointer) ==
        CUDA_SUCCESS) {
        return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    /* plain memory: the caller has to have enabled peer access, which cannot be asked for */
    return cudaDeviceCanAccessPeer(&can, buffers->device, owner) == cudaSuccess && can;
}

bool sol_cuda_buffer_ask(struct sol_cuda_buffers *buffers, const void *pointer, char *why,
                         size_t why_bytes)
{
    struct cudaPointerAttributes attributes;
    cudaError_t error = cudaPointerGetAttributes(&attributes, pointer);
    if (error != cudaSuccess) {
        snprintf(why, why_bytes, "%p is not memory that CUDA knows: %s", pointer,
                 cudaGetErrorString(error));
        return false;
    }
    switch (attributes.type) {
    case cudaMemoryTypeUnregistered:
        if (buffers->pageable) {
            return true;
        }
        snprintf(why, why_bytes,
                 "%p is ordinary host memory, which this GPU cannot reach: pin it "
                 "(cudaHostAlloc, cudaHostRegister) or use device memory",
                 pointer);
        return false;
    case cudaMemoryTypeDevice:
        if (attributes.device != buffers->device &&
            !mapped_for_us(buffers, pointer, attributes.device)) {
            snprintf(why, why_bytes, "%p is memory of device %d, this rank is on device %d",
                     pointer, attributes.device, buffers->device);
            return false;
        }
        uintptr_t piece = (uintptr_t)pointer >> SOL_CUDA_BUFFER_SHIFT;
        buffers->known[piece % SOL_CUDA_BUFFER_SLOTS] = piece + 1;
        return true;
    default: /* managed, pinned host */
        return true;
    }
}
