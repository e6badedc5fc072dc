/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_driver.c: looks up libcuda.so.1 once per process. The library stays
 * loaded: unloading a driver that has threads is asking for trouble.
 */
#include "backend/cuda/cuda_driver.h"

#include "backend/cuda/cuda_multicast.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct sol_cuda_driver driver;
static bool usable;
static char reason[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

struct entry {
    const char *name;
    void *slot;
};

/* False: `library` lacks one of them, which `why` names. */
static bool look_up_all(void *library, const struct entry *entries, size_t count, char *why,
                        size_t why_bytes)
{
    for (size_t i = 0; i < count; i++) {
        void *symbol = dlsym(library, entries[i].name);
        if (symbol == NULL) {
            snprintf(why, why_bytes, "the CUDA driver is too old: it has no %s", entries[i].name);
            return false;
        }
        /* POSIX lets a function's address travel in a void *; ISO C needs the bytes copied */
        memcpy(entries[i].slot, &symbol, sizeof symbol);
    }
    return true;
}

static bool look_up(void *library)
{
    const struct entry entries[] = {
        {"cuInit", &driver.init},
        {"cuGetErrorName", &driver.error_name},
        {"cuCtxGetCurrent", &driver.context_get},
        {"cuCtxSetCurrent", &driver.context_set},
        {"cuDeviceGet", &driver.device_get},
        {"cuDeviceGetAttribute", &driver.device_attribute},
        {"cuDeviceGetUuid_v2", &driver.device_uuid},
        {"cuDeviceCanAccessPeer", &driver.device_can_access},
        {"cuMemGetAllocationGranularity", &driver.mem_granularity},
        {"cuMemCreate", &driver.mem_create},
        {"cuMemRelease", &driver.mem_release},
        {"cuMemExportToShareableHandle", &driver.mem_export},
        {"cuMemImportFromShareableHandle", &driver.mem_import},
        {"cuMemAddressReserve", &driver.mem_reserve},
        {"cuMemAddressFree", &driver.mem_address_free},
        {"cuMemMap", &driver.mem_map},
        {"cuMemUnmap", &driver.mem_unmap},
        {"cuMemSetAccess", &driver.mem_set_access},
        {"cuMemGetAccess", &driver.mem_get_access},
    };
    return look_up_all(library, entries, sizeof entries / sizeof entries[0], reason, sizeof reason);
}

bool sol_cuda_multicast_calls(struct sol_cuda_multicast_calls *calls, char *why, size_t why_bytes)
{
    const struct entry entries[] = {
        {"cuMulticastGetGranularity", &calls->granularity},
        {"cuMulticastCreate", &calls->create},
        {"cuMulticastAddDevice", &calls->add_device},
        {"cuMulticastBindMem", &calls->bind},
        {"cuMulticastUnbind", &calls->unbind},
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == NULL) {
        snprintf(why, why_bytes, "no CUDA driver");
        return false;
    }
    bool found = look_up_all(library, entries, sizeof entries / sizeof entries[0], why, why_bytes);
    dlclose(library); /* it stays: load() holds it */
    return found;
}

static void load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(reason, sizeof reason, "no CUDA driver: %.200s", dlerror());
        return;
    }
    if (!look_up(library)) {
        return;
    }
    CUresult error = driver.init(0);
    if (error != CUDA_SUCCESS) {
        snprintf(reason, sizeof reason, "the CUDA driver cannot start: %s",
                 sol_cuda_driver_error(error));
        return;
    }
    usable = true;
}

const struct sol_cuda_driver *sol_cuda_driver(char *why, size_t why_bytes)
{
    pthread_once(&once, load);
    if (usable) {
        return &driver;
    }
    if (why != NULL) {
        snprintf(why, why_bytes, "%s", reason);
    }
    return NULL;
}

bool sol_cuda_thread_has_context(void)
{
    /* Whoever has a context has loaded the driver: RTLD_NOLOAD finds it and loads nothing. */
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == NULL) {
        return false;
    }
    CUresult (*get)(CUcontext *) = NULL;
    void *symbol = dlsym(library, "cuCtxGetCurrent");
    memcpy(&get, &symbol, sizeof symbol);
    CUcontext context = NULL;
    bool has = get != NULL && get(&context) == CUDA_SUCCESS && context != NULL;
    dlclose(library);
    return has;
}

const char *sol_cuda_driver_error(CUresult error)
{
    const char *name = NULL;
    if (driver.error_name == NULL || driver.error_name(error, &name) != CUDA_SUCCESS ||
        name == NULL) {
        return "an unknown CUDA error";
    }
    return name;
}
