/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_driver.c: the CUDA driver as src/backend/cuda asks for it (cuda_driver.h),
 * on the emulated machine. In place of cuda_driver.c.
 *
 * All ranks are threads of one process and an address has one meaning. So memory
 * lies where it is mapped first, and mapping it once more gives the same address:
 * an address is "reserved" for the memory that this thread made or opened last.
 * A range outlives its memory for as long as it is reserved, and other memory can
 * be mapped there then. Descriptors carry the number of a memory or of a multicast
 * object.
 */
#include "backend/cuda/cuda_driver.h"
#include "backend/cuda/cuda_multicast.h"
#include "emu/emu_machine.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define OBJECTS 4096
#define GRANULARITY 4096
#define NOWHERE ((uintptr_t)0x5000000000000000u)

static struct object {
    int users;  /* who made it, who opened it; 0: free */
    char *base; /* NULL: not mapped yet; of a multicast object: where nothing lies */
    size_t bytes;
    int device; /* -1: the host's */
    bool multicast;
    int bound;
    char *memory[EMU_MULTICAST_MEMORIES];
} objects[OBJECTS]; /* under emu.lock */
static struct place {
    char *base; /* NULL: free */
    size_t bytes;
    int reservations;
    bool backed;   /* by memory; otherwise nothing may be there, and the range waits */
} places[OBJECTS]; /* under emu.lock */
static _Thread_local struct object *latest;

static struct object *object_of(CUmemGenericAllocationHandle handle)
{
    return handle > 0 && handle <= OBJECTS && objects[handle - 1].users ? &objects[handle - 1]
                                                                        : NULL;
}

/* With emu.lock. */
static struct object *new_object(CUmemGenericAllocationHandle *handle)
{
    for (int i = 0; i < OBJECTS; i++) {
        if (objects[i].users == 0) {
            memset(&objects[i], 0, sizeof objects[i]);
            objects[i].users = 1;
            *handle = (CUmemGenericAllocationHandle)i + 1;
            return &objects[i];
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------------ devices */

static CUresult init(unsigned flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

static CUresult error_name(CUresult error, const char **name)
{
    *name = error == CUDA_SUCCESS               ? "CUDA_SUCCESS"
            : error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                                : "an error of the emulated driver";
    return CUDA_SUCCESS;
}

static CUresult context_get(CUcontext *context)
{
    *context = NULL;
    return CUDA_SUCCESS;
}

static CUresult context_set(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static CUresult device_get(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return CUDA_SUCCESS;
}

static CUresult device_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    *value = attribute == CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING ||
             attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
             attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED ||
             attribute == CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED;
    return CUDA_SUCCESS;
}

static CUresult device_uuid(CUuuid *uuid, CUdevice device)
{
    memset(uuid, 0, sizeof *uuid);
    uuid->bytes[0] = (char)(device + 1);
    return CUDA_SUCCESS;
}

static CUresult device_can_access(int *can, CUdevice device, CUdevice peer)
{
    *can = device != peer;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------------- memory */

static CUresult mem_granularity(size_t *bytes, const CUmemAllocationProp *prop,
                                CUmemAllocationGranularity_flags flags)
{
    (void)prop;
    (void)flags;
    *bytes = GRANULARITY;
    return CUDA_SUCCESS;
}

/* The host's part of the code clears host memory by itself, which no shadow sees. */
static void clear(void *memory, size_t bytes)
{
    cudaStream_t stream;
    if (cudaStreamCreate(&stream) == cudaSuccess) {
        cudaMemsetAsync(memory, 0, bytes, stream);
        cudaStreamDestroy(stream);
    }
}

static CUresult mem_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                           const CUmemAllocationProp *prop, unsigned long long flags)
{
    const bool host = prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    (void)flags;
    emu_enter();
    struct object *object = new_object(handle);
    if (object) {
        object->bytes = bytes;
        object->device = host ? -1 : prop->location.id;
    }
    emu_leave();
    latest = object;
    return object ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* With emu.lock. `base` NULL: a free one. */
static struct place *place_of(const char *base)
{
    for (int i = 0; i < OBJECTS; i++) {
        if (places[i].base == base) {
            return &places[i];
        }
    }
    return NULL;
}

/* With emu.lock: what of a place is still needed. */
static void settle(struct place *place)
{
    if (!place || place->backed || !emu.open) {
        return;
    }
    emu_deallocate(place->base);
    if (place->reservations) {
        emu_allocate_at(place->base, place->bytes, -1, "address without memory");
    } else {
        place->base = NULL;
    }
}

static CUresult mem_release(CUmemGenericAllocationHandle handle)
{
    emu_enter();
    struct object *object = object_of(handle);
    if (object && --object->users == 0) {
        if (object->multicast) {
            emu_multicast(object->base, 0, NULL, 0);
        } else if (object->base) {
            struct place *place = place_of(object->base);
            place->backed = false;
            settle(place);
        }
    }
    emu_leave();
    return object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult mem_export(void *shareable, CUmemGenericAllocationHandle handle,
                           CUmemAllocationHandleType type, unsigned long long flags)
{
    int fd =
        type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? memfd_create("emu", MFD_CLOEXEC) : -1;
    (void)flags;
    if (fd >= 0 && write(fd, &handle, sizeof handle) != (ssize_t)sizeof handle) {
        close(fd);
        fd = -1;
    }
    memcpy(shareable, &fd, sizeof fd);
    return fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

static CUresult mem_import(CUmemGenericAllocationHandle *handle, void *shareable,
                           CUmemAllocationHandleType type)
{
    const int fd = (int)(uintptr_t)shareable;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        pread(fd, handle, sizeof *handle, 0) != (ssize_t)sizeof *handle) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    emu_enter();
    struct object *object = object_of(*handle);
    if (object) {
        object->users++;
    }
    emu_leave();
    latest = object;
    return object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* With emu.lock: the first time that an object is mapped anywhere. */
static void find_place(struct object *object)
{
    struct place *place = place_of(NULL);
    const char *kind = object->device < 0 ? "shared host memory" : "symmetric memory";
    char *base = place ? emu_allocate(object->bytes, object->device, kind) : NULL;
    if (base) {
        *place = (struct place){base, object->bytes, 0, true};
        object->base = base;
    }
}

static CUresult mem_reserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint,
                            unsigned long long flags)
{
    struct object *object = latest;
    (void)alignment;
    (void)hint;
    (void)flags;
    *address = 0;
    if (!object || bytes > object->bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    emu_enter();
    const bool fresh = !object->base;
    if (fresh) {
        find_place(object);
    }
    struct place *place = object->base ? place_of(object->base) : NULL;
    if (place) {
        place->reservations++;
    }
    *address = (CUdeviceptr)(uintptr_t)object->base;
    emu_leave();
    if (fresh && *address && object->device < 0) {
        clear(object->base, object->bytes);
    }
    return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult mem_address_free(CUdeviceptr address, size_t bytes)
{
    (void)bytes;
    emu_enter();
    struct place *place = place_of((const char *)(uintptr_t)address);
    if (place && --place->reservations == 0) {
        settle(place);
    }
    emu_leave();
    return CUDA_SUCCESS;
}

static CUresult mem_map(CUdeviceptr address, size_t bytes, size_t offset,
                        CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    (void)flags;
    emu_enter();
    char *base = (char *)(uintptr_t)address;
    struct object *object = object_of(handle);
    struct place *place = place_of(base);
    if (object && !object->base && place && !place->backed && bytes <= place->bytes) {
        emu_deallocate(base); /* other memory at an old address */
        object->base = emu_allocate_at(base, place->bytes, object->device, "symmetric memory");
        place->backed = object->base != NULL;
    }
    bool good = object && offset == 0 && bytes <= object->bytes && object->base == base;
    emu_leave();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult mem_unmap(CUdeviceptr address, size_t bytes)
{
    (void)address;
    (void)bytes;
    return CUDA_SUCCESS;
}

static CUresult mem_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                               size_t count)
{
    (void)address;
    (void)bytes;
    (void)access;
    (void)count;
    return CUDA_SUCCESS;
}

static CUresult mem_get_access(unsigned long long *flags, const CUmemLocation *location,
                               CUdeviceptr address)
{
    (void)location;
    (void)address;
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------------- multicast */

static CUresult multicast_granularity(size_t *bytes, const CUmulticastObjectProp *prop,
                                      CUmulticastGranularity_flags flags)
{
    (void)prop;
    (void)flags;
    *bytes = GRANULARITY;
    return CUDA_SUCCESS;
}

static CUresult multicast_create(CUmemGenericAllocationHandle *handle,
                                 const CUmulticastObjectProp *prop)
{
    emu_enter();
    struct object *object = new_object(handle);
    if (object) {
        object->multicast = true;
        object->bytes = prop->size;
        object->base = (char *)(NOWHERE + ((uintptr_t)*handle << 36));
    }
    emu_leave();
    latest = object;
    return object ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult multicast_add_device(CUmemGenericAllocationHandle handle, CUdevice device)
{
    (void)device;
    return object_of(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult multicast_bind(CUmemGenericAllocationHandle handle, size_t at,
                               CUmemGenericAllocationHandle memory, size_t memory_at, size_t bytes,
                               unsigned long long flags)
{
    (void)flags;
    emu_enter();
    struct object *object = object_of(handle), *bound = object_of(memory);
    bool good = object && bound && at == 0 && memory_at == 0 && bytes <= bound->bytes &&
                object->bound < EMU_MULTICAST_MEMORIES;
    if (good) {
        object->memory[object->bound++] = bound->base;
        good = emu_multicast(object->base, object->bytes, object->memory, object->bound);
        latest = object;
    }
    emu_leave();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult multicast_unbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t at,
                                 size_t bytes)
{
    (void)handle;
    (void)device;
    (void)at;
    (void)bytes;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------------- tables */

static const struct sol_cuda_driver driver = {
    .init = init,
    .error_name = error_name,
    .context_get = context_get,
    .context_set = context_set,
    .device_get = device_get,
    .device_attribute = device_attribute,
    .device_uuid = device_uuid,
    .device_can_access = device_can_access,
    .mem_granularity = mem_granularity,
    .mem_create = mem_create,
    .mem_release = mem_release,
    .mem_export = mem_export,
    .mem_import = mem_import,
    .mem_reserve = mem_reserve,
    .mem_address_free = mem_address_free,
    .mem_map = mem_map,
    .mem_unmap = mem_unmap,
    .mem_set_access = mem_set_access,
    .mem_get_access = mem_get_access,
};

const struct sol_cuda_driver *sol_cuda_driver(char *why, size_t why_bytes)
{
    (void)why;
    (void)why_bytes;
    return &driver;
}

bool sol_cuda_multicast_calls(struct sol_cuda_multicast_calls *calls, char *why, size_t why_bytes)
{
    (void)why;
    (void)why_bytes;
    *calls =
        (struct sol_cuda_multicast_calls){multicast_granularity, multicast_create,
                                          multicast_add_device, multicast_bind, multicast_unbind};
    return true;
}

bool sol_cuda_thread_has_context(void)
{
    return true;
}

const char *sol_cuda_driver_error(CUresult error)
{
    const char *name = NULL;
    error_name(error, &name);
    return name;
}
