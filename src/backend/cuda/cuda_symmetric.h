/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_symmetric.h: symmetric memory: every rank allocates as many bytes on its
 * GPU, and maps everybody's.
 *
 * Made with the driver's virtual-memory API: physical memory is created with an
 * exportable handle, the handles travel as file descriptors over the bootstrap
 * (or as fabric handles, see below), and each rank maps all of them for its own
 * GPU. This works alike between processes, threads, and ranks on one GPU, with
 * any CUDA_VISIBLE_DEVICES, and needs no peer access to be enabled. Physical
 * memory lives until the last rank that mapped it lets go: freeing is local.
 *
 * SOLCCL_CUDA_HANDLE=fd|fabric|ipc chooses the handle; by default fd, fabric
 * where a device cannot export descriptors, and legacy IPC (cuda_ipc.h) where it
 * can export neither. All ranks must agree.
 */
#ifndef SOL_CUDA_SYMMETRIC_H
#define SOL_CUDA_SYMMETRIC_H

#include "backend/cuda/cuda_driver.h"
#include "backend/cuda/cuda_ipc.h"
#include "core/boot.h"
#include "proto/gpu_layout.h"

enum sol_cuda_handle {
    SOL_CUDA_HANDLE_NONE,
    SOL_CUDA_HANDLE_FD,
    SOL_CUDA_HANDLE_FABRIC,
    SOL_CUDA_HANDLE_IPC /* plain memory, no virtual memory anywhere */
};

/* "file descriptors", ... */
const char *sol_cuda_handle_name(enum sol_cuda_handle handle);

/* What this device can export, after SOLCCL_CUDA_HANDLE: NONE with a reason in `why`. */
enum sol_cuda_handle sol_cuda_handle_of(const struct sol_cuda_driver *cu, CUdevice device,
                                        char *why, size_t why_bytes);

struct sol_cuda_symmetric {
    size_t bytes; /* as mapped: rounded up to the granularity */
    int nranks, rank;
    char *base[SOL_GPU_MAX_RANKS];  /* where rank r's memory is mapped here; NULL: nowhere */
    bool mapped[SOL_GPU_MAX_RANKS]; /* false with a base: an address without memory, asleep */
    CUmemGenericAllocationHandle handle[SOL_GPU_MAX_RANKS];
    bool ipc;                       /* base[] are of cuda_ipc.h; `handle` is not used */
    bool opened[SOL_GPU_MAX_RANKS]; /* of these, handles of another process */
    struct sol_cuda_ipc_page *page;
};

struct sol_cuda_symmetric_config {
    const struct sol_cuda_driver *cu;
    sol_boot_t *boot;
    CUdevice device;
    enum sol_cuda_handle handle;
    int rank, nranks;
    size_t bytes;
};

/*
 * Collective over the boot. Not zeroed. On failure nothing is left and the thread error is set;
 * all ranks make the same exchanges whatever happens, and all fail if one does:
 * SOL_ERR_MEMORY (no memory somewhere), SOL_ERR_UNSUPPORTED (some rank cannot map some other's
 * memory: there is no path between those GPUs), or what the boot says.
 */
sol_status_t sol_cuda_symmetric_open(struct sol_cuda_symmetric *memory,
                                     const struct sol_cuda_symmetric_config *config);
/*
 * Sleep: physical memory goes, own and others', addresses stay. Local. No kernel may use it until
 * it is resumed on all ranks. Not for IPC. The first error of the driver, all the same all is
 * tried.
 */
CUresult sol_cuda_symmetric_suspend(const struct sol_cuda_driver *cu,
                                    struct sol_cuda_symmetric *memory);
/*
 * New memory at the old addresses. Collective and with errors as sol_cuda_symmetric_open; after a
 * failure it is suspended as before. `memory` NULL: this rank has closed its own meanwhile and only
 * takes part; the others then map nothing of its.
 */
sol_status_t sol_cuda_symmetric_resume(struct sol_cuda_symmetric *memory,
                                       const struct sol_cuda_symmetric_config *config);
/* Unmap and release. Local. Fine on zeroed or half-open memory. No kernel may still use it. */
void sol_cuda_symmetric_close(const struct sol_cuda_driver *cu, struct sol_cuda_symmetric *memory);

#endif
