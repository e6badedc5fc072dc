/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_symmetric.c: see the header. Every step that can fail on one rank alone
 * is followed by an exchange that carries its outcome, so that all ranks leave
 * with the same verdict and none waits for another that has given up.
 */
#include "backend/cuda/cuda_symmetric.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a rank tells of a step. */
struct outcome {
    int32_t status;   /* sol_status_t */
    int32_t error;    /* CUresult */
    int32_t peer;     /* whose memory it could not map; -1: its own allocation */
    int32_t absent;   /* has no memory to share: closed before it was resumed */
    uint64_t address; /* in its own process */
    union {
        CUmemFabricHandle fabric;
        unsigned char ipc[SOL_CUDA_IPC_HANDLE];
    } handle;
};

static bool device_has(const struct sol_cuda_driver *cu, CUdevice device, CUdevice_attribute what)
{
    int value = 0;
    return cu->device_attribute(&value, what, device) == CUDA_SUCCESS && value != 0;
}

const char *sol_cuda_handle_name(enum sol_cuda_handle handle)
{
    static const char *const names[] = {"none", "file descriptors", "fabric handles",
                                        "legacy IPC handles"};
    return names[handle];
}

enum sol_cuda_handle sol_cuda_handle_of(const struct sol_cuda_driver *cu, CUdevice device,
                                        char *why, size_t why_bytes)
{
    static const char *const choices[] = {"auto", "fd", "fabric", "ipc", NULL};
    int wanted = 0;
    if (sol_env_choice("SOLCCL_CUDA_HANDLE", choices, &wanted, why, why_bytes) != SOL_OK) {
        return SOL_CUDA_HANDLE_NONE;
    }
    bool virtual_memory =
        device_has(cu, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    if (virtual_memory && (wanted == 0 || wanted == 1) &&
        device_has(cu, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
        return SOL_CUDA_HANDLE_FD;
    }
    if (virtual_memory && (wanted == 0 || wanted == 2) &&
        device_has(cu, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)) {
        return SOL_CUDA_HANDLE_FABRIC;
    }
    if ((wanted == 0 || wanted == 3) &&
        device_has(cu, device, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)) {
        return SOL_CUDA_HANDLE_IPC;
    }
    snprintf(why, why_bytes, "the device cannot export memory (SOLCCL_CUDA_HANDLE=%s)",
             choices[wanted]);
    return SOL_CUDA_HANDLE_NONE;
}

static CUmemAllocationProp properties(const struct sol_cuda_symmetric_config *config)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = config->device;
    prop.requestedHandleTypes = config->handle == SOL_CUDA_HANDLE_FABRIC
                                    ? CU_MEM_HANDLE_TYPE_FABRIC
                                    : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    int rdma = 0; /* lets a network card reach it too, where there is one: costs nothing */
    if (config->cu->device_attribute(&rdma,
                                     CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                                     config->device) == CUDA_SUCCESS) {
        prop.allocFlags.gpuDirectRDMACapable = (unsigned char)(rdma != 0);
    }
    return prop;
}

/* Map memory->handle[rank] for our device: at the address it had, or at a new one. */
static CUresult map_here(struct sol_cuda_symmetric *memory,
                         const struct sol_cuda_symmetric_config *config, int rank)
{
    const struct sol_cuda_driver *cu = config->cu;
    size_t bytes = memory->bytes;
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)memory->base[rank];
    CUresult error = address != 0 ? CUDA_SUCCESS : cu->mem_reserve(&address, bytes, 0, 0, 0);
    if (error != CUDA_SUCCESS) {
        return error;
    }
    memory->base[rank] = (char *)(uintptr_t)address; /* from here on close() frees it */
    error = cu->mem_map(address, bytes, 0, memory->handle[rank], 0);
    if (error == CUDA_SUCCESS) {
        CUmemAccessDesc access;
        memset(&access, 0, sizeof access);
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.location.id = config->device;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        error = cu->mem_set_access(address, bytes, &access, 1);
        memory->mapped[rank] = error == CUDA_SUCCESS;
        if (error != CUDA_SUCCESS) {
            cu->mem_unmap(address, bytes);
        }
    }
    return error;
}

/* Legacy IPC: memory and handle; rank 0's descriptor is that of the page they share. The runtime's
 * errors have the driver's numbers. */
static CUresult make_plain(struct sol_cuda_symmetric *memory,
                           const struct sol_cuda_symmetric_config *config, int *fd,
                           struct outcome *mine)
{
    char **base = &memory->base[config->rank];
    CUresult error = (CUresult)sol_cuda_ipc_make(memory->bytes, base, mine->handle.ipc);
    mine->address = (uint64_t)(uintptr_t)*base;
    if (error == CUDA_SUCCESS && config->rank == 0) {
        *fd = sol_cuda_ipc_page_make();
        error = *fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
    }
    return error;
}

/* Allocate own memory, map it, and export its handle: into *fd, or mine->handle. */
static CUresult make_own(struct sol_cuda_symmetric *memory,
                         const struct sol_cuda_symmetric_config *config, int *fd,
                         struct outcome *mine)
{
    if (memory->ipc) {
        return make_plain(memory, config, fd, mine);
    }
    const struct sol_cuda_driver *cu = config->cu;
    CUmemAllocationProp prop = properties(config);
    CUmemGenericAllocationHandle handle = 0;
    CUresult error = cu->mem_create(&handle, memory->bytes, &prop, 0);
    if (error != CUDA_SUCCESS) {
        return error;
    }
    memory->handle[config->rank] = handle; /* from here on close() frees it */
    error = map_here(memory, config, config->rank);
    if (error != CUDA_SUCCESS) {
        return error;
    }
    if (config->handle == SOL_CUDA_HANDLE_FABRIC) {
        return cu->mem_export(&mine->handle.fabric, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0);
    }
    return cu->mem_export(fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static CUresult map_peer(struct sol_cuda_symmetric *memory,
                         const struct sol_cuda_symmetric_config *config, int peer, int fd,
                         struct outcome *theirs)
{
    const struct sol_cuda_driver *cu = config->cu;
    CUmemGenericAllocationHandle handle = 0;
    CUresult error;
    if (memory->ipc) {
        bool ours = sol_boot_pid(config->boot, peer) == sol_boot_pid(config->boot, config->rank);
        error = (CUresult)sol_cuda_ipc_map(theirs->handle.ipc, theirs->address, ours,
                                           &memory->base[peer]);
        memory->opened[peer] = error == CUDA_SUCCESS && !ours;
        return error;
    }
    if (config->handle == SOL_CUDA_HANDLE_FABRIC) {
        error = cu->mem_import(&handle, &theirs->handle.fabric, CU_MEM_HANDLE_TYPE_FABRIC);
    } else { /* the driver takes the descriptor's number as the pointer */
        error = cu->mem_import(&handle, (void *)(uintptr_t)fd,
                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    }
    if (error != CUDA_SUCCESS) {
        return error;
    }
    memory->handle[peer] = handle;
    return map_here(memory, config, peer);
}

static sol_status_t status_of(CUresult error, int peer)
{
    if (error == CUDA_SUCCESS) {
        return SOL_OK;
    }
    if (error == CUDA_ERROR_OUT_OF_MEMORY) {
        return SOL_ERR_MEMORY;
    }
    return peer < 0 ? SOL_ERR_DEVICE : SOL_ERR_UNSUPPORTED;
}

/* Exchange outcomes; the first rank's failure becomes everybody's verdict. */
static sol_status_t agree(const struct sol_cuda_symmetric_config *config, CUresult error, int peer,
                          struct outcome *mine, struct outcome *all)
{
    mine->error = (int32_t)error;
    mine->peer = peer;
    mine->status = status_of(error, peer);
    sol_status_t status = sol_boot_all_gather(config->boot, mine, sizeof *mine, all);
    for (int r = 0; r < config->nranks && status == SOL_OK; r++) {
        const char *name = sol_cuda_driver_error((CUresult)all[r].error);
        if (all[r].status == SOL_OK) {
            continue;
        }
        if (all[r].peer < 0) {
            status = sol_thread_error((sol_status_t)all[r].status,
                                      "rank %d cannot allocate %zu bytes of symmetric memory: %s",
                                      r, config->bytes, name);
        } else {
            status = sol_thread_error((sol_status_t)all[r].status,
                                      "rank %d cannot map the GPU memory of rank %d: %s", r,
                                      all[r].peer, name);
        }
    }
    return status;
}

/* `memory` NULL: this rank has none to share and wants none. */
static sol_status_t share(struct sol_cuda_symmetric *memory,
                          const struct sol_cuda_symmetric_config *config, int *fd,
                          struct outcome *all)
{
    struct outcome mine;
    int fds[SOL_GPU_MAX_RANKS];
    memset(&mine, 0, sizeof mine);
    mine.absent = memory == NULL;
    CUresult error = memory != NULL ? make_own(memory, config, fd, &mine) : CUDA_SUCCESS;
    sol_status_t status = agree(config, error, -1, &mine, all);
    if (status != SOL_OK) {
        return status;
    }
    for (int r = 0; r < config->nranks; r++) {
        fds[r] = -1;
    }
    if (config->handle != SOL_CUDA_HANDLE_FABRIC) {
        status = sol_boot_share_fds(config->boot, fd, 1, fds);
        if (status != SOL_OK) {
            return status;
        }
    }
    int failed = -1;
    if (config->handle == SOL_CUDA_HANDLE_IPC) { /* (never absent) */
        memory->page = sol_cuda_ipc_page_map(fds[0]);
        error = memory->page != NULL ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
        failed = memory->page != NULL ? -1 : config->rank;
    }
    for (int r = 0; r < config->nranks; r++) {
        if (r != config->rank && failed < 0 && memory != NULL && !all[r].absent) {
            error = map_peer(memory, config, r, fds[r], &all[r]);
            failed = error == CUDA_SUCCESS ? -1 : r;
        }
        if (fds[r] >= 0) {
            close(fds[r]);
        }
    }
    return agree(config, error, failed, &mine, all);
}

sol_status_t sol_cuda_symmetric_open(struct sol_cuda_symmetric *memory,
                                     const struct sol_cuda_symmetric_config *config)
{
    struct outcome all[SOL_GPU_MAX_RANKS];
    CUmemAllocationProp prop = properties(config);
    size_t granularity = 0;
    memset(memory, 0, sizeof *memory);
    memory->rank = config->rank;
    memory->nranks = config->nranks;
    memory->ipc = config->handle == SOL_CUDA_HANDLE_IPC;
    CUresult error = memory->ipc ? CUDA_ERROR_NOT_SUPPORTED
                                 : config->cu->mem_granularity(
                                       &granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (error != CUDA_SUCCESS || granularity == 0) {
        granularity = 2u << 20; /* every device's so far; mem_create says if it is wrong */
    }
    memory->bytes = sol_round_up(config->bytes, granularity);
    int fd = -1;
    sol_status_t status = share(memory, config, &fd, all);
    if (fd >= 0) {
        close(fd);
    }
    if (status != SOL_OK) {
        sol_cuda_symmetric_close(config->cu, memory);
    }
    return status;
}

sol_status_t sol_cuda_symmetric_resume(struct sol_cuda_symmetric *memory,
                                       const struct sol_cuda_symmetric_config *config)
{
    struct outcome all[SOL_GPU_MAX_RANKS];
    int fd = -1;
    sol_status_t status = share(memory, config, &fd, all);
    if (fd >= 0) {
        close(fd);
    }
    if (status != SOL_OK && memory != NULL) {
        (void)sol_cuda_symmetric_suspend(config->cu, memory);
    }
    return status;
}

CUresult sol_cuda_symmetric_suspend(const struct sol_cuda_driver *cu,
                                    struct sol_cuda_symmetric *memory)
{
    CUresult first = CUDA_SUCCESS;
    for (int r = 0; r < memory->nranks; r++) {
        CUresult unmapped = CUDA_SUCCESS, released = CUDA_SUCCESS;
        if (memory->mapped[r]) {
            unmapped = cu->mem_unmap((CUdeviceptr)(uintptr_t)memory->base[r], memory->bytes);
            memory->mapped[r] = false;
        }
        if (memory->handle[r] != 0) {
            released = cu->mem_release(memory->handle[r]);
            memory->handle[r] = 0;
        }
        first = first != CUDA_SUCCESS ? first : unmapped != CUDA_SUCCESS ? unmapped : released;
    }
    return first;
}

static void close_plain(struct sol_cuda_symmetric *memory)
{
    for (int r = 0; r < memory->nranks; r++) {
        if (memory->opened[r]) {
            sol_cuda_ipc_unmap(memory->base[r]);
        }
    }
    if (memory->page != NULL || memory->base[memory->rank] != NULL) {
        sol_cuda_ipc_let_go(memory->page, memory->base[memory->rank], memory->nranks);
    }
    memset(memory, 0, sizeof *memory);
}

void sol_cuda_symmetric_close(const struct sol_cuda_driver *cu, struct sol_cuda_symmetric *memory)
{
    if (memory->ipc) {
        close_plain(memory);
        return;
    }
    (void)sol_cuda_symmetric_suspend(cu, memory);
    for (int r = 0; r < memory->nranks; r++) {
        if (memory->base[r] != NULL) {
            cu->mem_address_free((CUdeviceptr)(uintptr_t)memory->base[r], memory->bytes);
            memory->base[r] = NULL;
        }
    }
}
