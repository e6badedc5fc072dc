/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_ipc.c: see the header. */
#include "backend/cuda/cuda_ipc.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096

_Static_assert(sizeof(cudaIpcMemHandle_t) == SOL_CUDA_IPC_HANDLE, "the handle fits its place");

struct sol_cuda_ipc_page {
    _Atomic int gone;
};

/* Memory that some other rank may still have open. */
struct aside {
    struct sol_cuda_ipc_page *page;
    char *own;
    int nranks;
    struct aside *next;
};
static struct aside *put_aside;
static pthread_mutex_t put_aside_lock = PTHREAD_MUTEX_INITIALIZER;

cudaError_t sol_cuda_ipc_make(size_t bytes, char **base, unsigned char *handle)
{
    cudaIpcMemHandle_t made;
    void *memory = NULL;
    cudaError_t error = cudaMalloc(&memory, bytes);
    if (error != cudaSuccess) {
        return error;
    }
    *base = memory;
    error = cudaIpcGetMemHandle(&made, memory);
    if (error == cudaSuccess) {
        memcpy(handle, &made, sizeof made);
    }
    return error;
}

/* The current device may use memory of `owner`; asked for once a pair and process. */
static cudaError_t reach(const void *address)
{
    struct cudaPointerAttributes attributes;
    int device = 0;
    cudaError_t error = cudaPointerGetAttributes(&attributes, address);
    error = error != cudaSuccess ? error : cudaGetDevice(&device);
    if (error != cudaSuccess || attributes.device == device) {
        return error;
    }
    error = cudaDeviceEnablePeerAccess(attributes.device, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError();
        error = cudaSuccess;
    }
    return error;
}

cudaError_t sol_cuda_ipc_map(const unsigned char *handle, uint64_t address, bool same_process,
                             char **base)
{
    cudaIpcMemHandle_t peer;
    void *memory = NULL;
    if (same_process) {
        memory = (void *)(uintptr_t)address;
        cudaError_t error = reach(memory);
        *base = error == cudaSuccess ? memory : NULL;
        return error;
    }
    memcpy(&peer, handle, sizeof peer);
    cudaError_t error = cudaIpcOpenMemHandle(&memory, peer, cudaIpcMemLazyEnablePeerAccess);
    *base = error == cudaSuccess ? memory : NULL;
    return error;
}

void sol_cuda_ipc_unmap(char *base)
{
    if (cudaIpcCloseMemHandle(base) != cudaSuccess) {
        cudaGetLastError();
    }
}

int sol_cuda_ipc_page_make(void)
{
    int fd = memfd_create("solccl-gpu-memory", MFD_CLOEXEC);
    if (fd >= 0 && sol_file_resize(fd, PAGE_BYTES) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

struct sol_cuda_ipc_page *sol_cuda_ipc_page_map(int fd)
{
    void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return page == MAP_FAILED ? NULL : page;
}

/* True: it was free to be freed, and is. */
static bool bury(struct sol_cuda_ipc_page *page, char *own, int nranks)
{
    if (page != NULL && atomic_load(&page->gone) < nranks) {
        return false;
    }
    cudaFree(own);
    if (page != NULL) {
        munmap(page, PAGE_BYTES);
    }
    return true;
}

static void bury_what_can_be(void)
{
    struct aside **link = &put_aside;
    while (*link != NULL) {
        struct aside *one = *link;
        if (bury(one->page, one->own, one->nranks)) {
            *link = one->next;
            sol_free(one);
        } else {
            link = &one->next;
        }
    }
}

void sol_cuda_ipc_let_go(struct sol_cuda_ipc_page *page, char *own, int nranks)
{
    if (page != NULL) {
        atomic_fetch_add(&page->gone, 1);
    }
    pthread_mutex_lock(&put_aside_lock);
    if (!bury(page, own, nranks)) {
        struct aside *one = sol_calloc(1, sizeof *one);
        if (one != NULL) { /* no memory for a note: the device memory is lost, not misused */
            *one = (struct aside){page, own, nranks, put_aside};
            put_aside = one;
        }
    }
    bury_what_can_be();
    pthread_mutex_unlock(&put_aside_lock);
}
