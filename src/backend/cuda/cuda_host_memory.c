/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_host_memory.c: rank 0 makes it, descriptors carry it, everybody maps it. */
#include "backend/cuda/cuda_host_memory.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct place {
    const struct sol_cuda_driver *cu;
    sol_boot_t *boot;
    CUdevice device;
    int rank, nranks;
};

/* ---- by the driver */

static CUmemLocation near_device(const struct place *place)
{
    CUmemLocation location;
    int node = -1;
    memset(&location, 0, sizeof location);
    location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    if (place->cu->device_attribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, place->device) !=
            CUDA_SUCCESS ||
        node < 0) {
        node = 0; /* a machine of one node */
    }
    location.id = node;
    return location;
}

static CUmemAllocationProp properties(const struct place *place)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = near_device(place);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return prop;
}

static CUresult map(struct sol_cuda_host_memory *memory, const struct place *place)
{
    const struct sol_cuda_driver *cu = place->cu;
    CUdeviceptr address = 0;
    CUmemAccessDesc access[2];
    memset(access, 0, sizeof access);
    access[0].location = near_device(place);
    access[1].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access[1].location.id = place->device;
    access[0].flags = access[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUresult error = cu->mem_reserve(&address, memory->bytes, 0, 0, 0);
    if (error != CUDA_SUCCESS) {
        return error;
    }
    error = cu->mem_map(address, memory->bytes, 0, memory->handle, 0);
    if (error == CUDA_SUCCESS) {
        error = cu->mem_set_access(address, memory->bytes, access, 2);
        if (error == CUDA_SUCCESS) {
            memory->host = memory->device = (void *)(uintptr_t)address;
            return CUDA_SUCCESS;
        }
        cu->mem_unmap(address, memory->bytes);
    }
    cu->mem_address_free(address, memory->bytes);
    return error;
}

static CUresult make(struct sol_cuda_host_memory *memory, const struct place *place, int *fd)
{
    CUmemAllocationProp prop = properties(place);
    CUresult error = place->cu->mem_create(&memory->handle, memory->bytes, &prop, 0);
    if (error != CUDA_SUCCESS) {
        memory->handle = 0;
        return error;
    }
    return place->cu->mem_export(fd, memory->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

/* Every rank goes through every exchange; *good says whether all have it in the end. */
static sol_status_t open_by_driver(struct sol_cuda_host_memory *memory, const struct place *place,
                                   size_t bytes, bool *good)
{
    CUmemAllocationProp prop = properties(place);
    size_t granularity = 0;
    int fd = -1, fds[SOL_MAX_RANKS];
    int32_t mine, all[SOL_MAX_RANKS];
    CUresult error =
        place->cu->mem_granularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    memory->bytes = sol_round_up(bytes, granularity != 0 ? granularity : 2u << 20);
    if (place->rank == 0 && error == CUDA_SUCCESS) {
        error = make(memory, place, &fd);
    }
    sol_status_t status = sol_boot_share_fds(place->boot, &fd, 1, fds);
    if (fd >= 0) {
        close(fd);
    }
    if (status != SOL_OK) {
        return status;
    }
    if (place->rank != 0 && fds[0] >= 0) {
        error = place->cu->mem_import(&memory->handle, (void *)(uintptr_t)fds[0],
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        memory->handle = error == CUDA_SUCCESS ? memory->handle : 0;
    }
    for (int r = 0; r < place->nranks; r++) {
        if (fds[r] >= 0) {
            close(fds[r]);
        }
    }
    if (memory->handle != 0 && error == CUDA_SUCCESS) {
        (void)map(memory, place); /* host stays NULL where it fails: the ranks hear of it below */
    }
    if (memory->host != NULL && place->rank == 0) {
        memset(memory->host, 0, memory->bytes);
    }
    mine = memory->host != NULL;
    status = sol_boot_all_gather(place->boot, &mine, sizeof mine, all);
    *good = status == SOL_OK;
    for (int r = 0; r < place->nranks && *good; r++) {
        *good = all[r] != 0;
    }
    return status;
}

/* ---- by a memfd */

static sol_status_t make_file(int *fd, size_t bytes)
{
    *fd = memfd_create("solccl-gpu-board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0) {
        return sol_thread_error(SOL_ERR_SYSTEM, "memfd_create: %m");
    }
    errno = sol_file_resize(*fd, bytes);
    if (errno != 0 || fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        sol_status_t status = sol_thread_error(SOL_ERR_SYSTEM, "sizing the board: %m");
        close(*fd);
        *fd = -1;
        return status;
    }
    return SOL_OK;
}

static sol_status_t register_file(struct sol_cuda_host_memory *memory, int fd)
{
    void *host = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (host == MAP_FAILED) {
        return sol_thread_error(SOL_ERR_MEMORY, "mapping the board: %m");
    }
    cudaError_t error =
        cudaHostRegister(host, memory->bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
    if (error == cudaSuccess) {
        error = cudaHostGetDevicePointer(&memory->device, host, 0);
        if (error == cudaSuccess) {
            memory->host = host;
            return SOL_OK;
        }
        cudaHostUnregister(host);
    }
    munmap(host, memory->bytes);
    return sol_thread_error(SOL_ERR_DEVICE, "pinning the board: %s", cudaGetErrorString(error));
}

static sol_status_t open_by_file(struct sol_cuda_host_memory *memory, const struct place *place,
                                 size_t bytes)
{
    int mine = -1, all[SOL_MAX_RANKS];
    memory->bytes = sol_round_up(bytes, 4096);
    sol_status_t status = place->rank == 0 ? make_file(&mine, memory->bytes) : SOL_OK;
    if (status != SOL_OK) {
        return sol_boot_break(place->boot, status);
    }
    status = sol_boot_share_fds(place->boot, &mine, 1, all);
    if (mine >= 0) {
        close(mine);
    }
    if (status != SOL_OK) {
        return status;
    }
    status = register_file(memory, all[0]);
    for (int r = 0; r < place->nranks; r++) {
        if (all[r] >= 0) {
            close(all[r]);
        }
    }
    return status == SOL_OK ? SOL_OK : sol_boot_break(place->boot, status);
}

/* ---- both */

sol_status_t sol_cuda_host_memory_open(struct sol_cuda_host_memory *memory,
                                       const struct sol_cuda_driver *cu, sol_boot_t *boot,
                                       CUdevice device, int rank, int nranks, size_t bytes)
{
    const struct place place = {cu, boot, device, rank, nranks};
    bool good = false;
    memset(memory, 0, sizeof *memory);
    sol_status_t status = open_by_driver(memory, &place, bytes, &good);
    if (status == SOL_OK && good) {
        return SOL_OK;
    }
    sol_cuda_host_memory_close(cu, memory);
    return status != SOL_OK ? status : open_by_file(memory, &place, bytes);
}

void sol_cuda_host_memory_close(const struct sol_cuda_driver *cu,
                                struct sol_cuda_host_memory *memory)
{
    if (memory->handle != 0) {
        if (memory->host != NULL) {
            CUdeviceptr address = (CUdeviceptr)(uintptr_t)memory->host;
            cu->mem_unmap(address, memory->bytes);
            cu->mem_address_free(address, memory->bytes);
        }
        cu->mem_release(memory->handle);
    } else if (memory->host != NULL) {
        cudaHostUnregister(memory->host);
        munmap(memory->host, memory->bytes);
    }
    memset(memory, 0, sizeof *memory);
}
