/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_driver.h: the CUDA driver, found at run time. libsolccl loads and works
 * on machines without a driver, so nothing here or elsewhere links libcuda: the
 * functions needed are looked up once and called through this table.
 */
#ifndef SOL_CUDA_DRIVER_H
#define SOL_CUDA_DRIVER_H

#include "base/base.h"

#include <cuda.h>

struct sol_cuda_driver {
    CUresult (*init)(unsigned flags);
    CUresult (*error_name)(CUresult error, const char **name);
    CUresult (*context_get)(CUcontext *context);
    CUresult (*context_set)(CUcontext context);
    CUresult (*device_get)(CUdevice *device, int ordinal);
    CUresult (*device_attribute)(int *value, CUdevice_attribute attribute, CUdevice device);
    CUresult (*device_uuid)(CUuuid *uuid, CUdevice device);
    CUresult (*device_can_access)(int *can, CUdevice device, CUdevice peer);
    CUresult (*mem_granularity)(size_t *bytes, const CUmemAllocationProp *prop,
                                CUmemAllocationGranularity_flags flags);
    CUresult (*mem_create)(CUmemGenericAllocationHandle *handle, size_t bytes,
                           const CUmemAllocationProp *prop, unsigned long long flags);
    CUresult (*mem_release)(CUmemGenericAllocationHandle handle);
    CUresult (*mem_export)(void *shareable, CUmemGenericAllocationHandle handle,
                           CUmemAllocationHandleType type, unsigned long long flags);
    CUresult (*mem_import)(CUmemGenericAllocationHandle *handle, void *shareable,
                           CUmemAllocationHandleType type);
    CUresult (*mem_reserve)(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint,
                            unsigned long long flags);
    CUresult (*mem_address_free)(CUdeviceptr address, size_t bytes);
    CUresult (*mem_map)(CUdeviceptr address, size_t bytes, size_t offset,
                        CUmemGenericAllocationHandle handle, unsigned long long flags);
    CUresult (*mem_unmap)(CUdeviceptr address, size_t bytes);
    CUresult (*mem_set_access)(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                               size_t count);
    CUresult (*mem_get_access)(unsigned long long *flags, const CUmemLocation *location,
                               CUdeviceptr address);
};

/* The table, or NULL and a reason in `why` (may be NULL): no driver, no device, or one too old.
 * Looked up at the first call; thread-safe; never a failure that a later call would not repeat. */
const struct sol_cuda_driver *sol_cuda_driver(char *why, size_t why_bytes);

/* Has this thread a CUDA context? Answers without loading or initialising CUDA. */
bool sol_cuda_thread_has_context(void);

/* "CUDA_ERROR_OUT_OF_MEMORY"; never NULL. Only after sol_cuda_driver() gave a table. */
const char *sol_cuda_driver_error(CUresult error);

#endif
