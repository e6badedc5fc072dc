/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_multicast.c: see the header. The steps, each followed by an exchange of
 * outcomes, so that no rank goes on alone:
 *
 *   wish      everybody's switch; who wants it: functions, device, memory
 *   create    rank 0 makes the object, descriptors carry it, all import it
 *   join      every rank adds its device (binding needs all of them)
 *   bind      every rank binds its memory and maps the object
 */
#include "backend/cuda/cuda_multicast.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct step {
    int32_t wanted;
    int32_t error; /* CUresult */
    uint64_t granularity;
    char why[112]; /* "": this rank is fine */
};

struct opening {
    struct sol_cuda_multicast *multicast;
    const struct sol_cuda_symmetric_config *config;
    const struct sol_cuda_symmetric *memory;
    struct step mine;
    CUmulticastObjectProp prop;
    char *why;
    size_t why_bytes;
};

sol_status_t sol_cuda_multicast_wanted(int *wanted, char *why, size_t why_bytes)
{
    long value = 0;
    sol_status_t status = sol_env_int("SOLCCL_CUDA_MULTICAST", 0, 1, &value, why, why_bytes);
    *wanted = (int)value;
    return status;
}

/* Does what all have said so far allow to go on? Fills `why` if not. */
static sol_status_t exchange(struct opening *o, bool *go_on, struct step *all)
{
    struct step own[SOL_GPU_MAX_RANKS];
    all = all != NULL ? all : own;
    sol_status_t status = sol_boot_all_gather(o->config->boot, &o->mine, sizeof o->mine, all);
    *go_on = status == SOL_OK;
    for (int r = 0; r < o->config->nranks && *go_on; r++) {
        if (all[r].wanted != all[0].wanted) {
            *go_on = false;
            return sol_thread_error(SOL_ERR_MISMATCH,
                                    "ranks 0 and %d differ in SOLCCL_CUDA_MULTICAST", r);
        }
        if (all[r].why[0] != '\0') {
            snprintf(o->why, o->why_bytes, "rank %d: %.111s", r, all[r].why);
            *go_on = false;
        }
    }
    return status;
}

static void note(struct opening *o, const char *what, CUresult error)
{
    if (error != CUDA_SUCCESS) {
        o->mine.error = (int32_t)error;
        snprintf(o->mine.why, sizeof o->mine.why, "%s: %s", what, sol_cuda_driver_error(error));
    }
}

/* The first step's answer of a rank that wants it. */
static void look(struct opening *o,
                 bool (*look_up)(struct sol_cuda_multicast_calls *, char *, size_t))
{
    const struct sol_cuda_symmetric_config *config = o->config;
    int has = 0;
    size_t granularity = 0;
    if (config->handle != SOL_CUDA_HANDLE_FD) {
        snprintf(o->mine.why, sizeof o->mine.why, "its memory is not shared by descriptors");
        return;
    }
    if (!look_up(&o->multicast->calls, o->mine.why, sizeof o->mine.why)) {
        return;
    }
    if (config->cu->device_attribute(&has, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
                                     config->device) != CUDA_SUCCESS ||
        has == 0) {
        snprintf(o->mine.why, sizeof o->mine.why, "its device has no multicast");
        return;
    }
    note(o, "granularity of a multicast object",
         o->multicast->calls.granularity(&granularity, &o->prop, CU_MULTICAST_GRANULARITY_MINIMUM));
    o->mine.granularity = granularity;
}

/* As much of the memory as whole pieces of every rank's granularity hold. */
static void choose_size(struct opening *o, const struct step *all)
{
    uint64_t coarsest = 1;
    for (int r = 0; r < o->config->nranks; r++) {
        coarsest = all[r].granularity > coarsest ? all[r].granularity : coarsest;
    }
    o->prop.size = o->memory->bytes / coarsest * coarsest;
    o->multicast->bytes = o->prop.size;
    if (o->prop.size == 0) {
        snprintf(o->mine.why, sizeof o->mine.why, "its memory is smaller than an object");
    }
}

static sol_status_t create(struct opening *o)
{
    const struct sol_cuda_symmetric_config *config = o->config;
    struct sol_cuda_multicast *m = o->multicast;
    int fd = -1, fds[SOL_GPU_MAX_RANKS];
    if (config->rank == 0 && o->mine.why[0] == '\0') {
        CUresult error = m->calls.create(&m->object, &o->prop);
        m->object = error == CUDA_SUCCESS ? m->object : 0;
        if (error == CUDA_SUCCESS) {
            error =
                config->cu->mem_export(&fd, m->object, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        }
        note(o, "making a multicast object", error);
    }
    sol_status_t status = sol_boot_share_fds(config->boot, &fd, 1, fds);
    if (fd >= 0) {
        close(fd);
    }
    if (status != SOL_OK) {
        return status;
    }
    if (config->rank != 0 && fds[0] >= 0) {
        CUresult error = config->cu->mem_import(&m->object, (void *)(uintptr_t)fds[0],
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        m->object = error == CUDA_SUCCESS ? m->object : 0;
        note(o, "opening the multicast object", error);
    }
    for (int r = 0; r < config->nranks; r++) {
        if (fds[r] >= 0) {
            close(fds[r]);
        }
    }
    return SOL_OK;
}

static void bind(struct opening *o)
{
    const struct sol_cuda_symmetric_config *config = o->config;
    const struct sol_cuda_driver *cu = config->cu;
    struct sol_cuda_multicast *m = o->multicast;
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)m->kept;
    CUmemAccessDesc access;
    if (m->kept != NULL && m->kept_bytes != m->bytes) {
        snprintf(o->mine.why, sizeof o->mine.why, "it has another size than before");
        return;
    }
    CUresult error = m->calls.bind(m->object, 0, o->memory->handle[config->rank], 0, m->bytes, 0);
    m->bound = error == CUDA_SUCCESS;
    if (error == CUDA_SUCCESS && m->kept == NULL) {
        error = cu->mem_reserve(&address, m->bytes, 0, 0, 0);
    }
    if (error != CUDA_SUCCESS) {
        note(o, "binding memory to the multicast object", error);
        return;
    }
    memset(&access, 0, sizeof access);
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = config->device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    error = cu->mem_map(address, m->bytes, 0, m->object, 0);
    if (error == CUDA_SUCCESS) {
        error = cu->mem_set_access(address, m->bytes, &access, 1);
        if (error == CUDA_SUCCESS) {
            m->base = (char *)(uintptr_t)address;
            return;
        }
        cu->mem_unmap(address, m->bytes);
    }
    if (m->kept == NULL) {
        cu->mem_address_free(address, m->bytes);
    }
    note(o, "mapping the multicast object", error);
}

static sol_status_t open_steps(struct opening *o, bool *go_on)
{
    struct step all[SOL_GPU_MAX_RANKS];
    sol_status_t status = exchange(o, go_on, all);
    if (!*go_on || o->mine.wanted == 0) {
        return status;
    }
    choose_size(o, all);
    status = create(o);
    status = status == SOL_OK ? exchange(o, go_on, NULL) : status;
    if (status != SOL_OK || !*go_on) {
        return status;
    }
    note(o, "joining the multicast object",
         o->multicast->calls.add_device(o->multicast->object, o->config->device));
    status = exchange(o, go_on, NULL);
    if (status != SOL_OK || !*go_on) {
        return status;
    }
    bind(o);
    return exchange(o, go_on, NULL);
}

sol_status_t sol_cuda_multicast_open(
    struct sol_cuda_multicast *multicast, const struct sol_cuda_symmetric_config *config,
    const struct sol_cuda_symmetric *memory, int wanted,
    bool (*look_up)(struct sol_cuda_multicast_calls *, char *, size_t), char *why, size_t why_bytes)
{
    struct opening o;
    bool go_on = false;
    char *kept = multicast->kept;
    size_t kept_bytes = multicast->kept_bytes;
    memset(multicast, 0, sizeof *multicast);
    multicast->kept = kept;
    multicast->kept_bytes = kept_bytes;
    memset(&o, 0, sizeof o);
    multicast->device = config->device;
    o.multicast = multicast;
    o.config = config;
    o.memory = memory;
    o.why = why;
    o.why_bytes = why_bytes;
    o.prop.numDevices = (unsigned)config->nranks;
    o.prop.size = memory->bytes;
    o.prop.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    o.mine.wanted = wanted;
    why[0] = '\0';
    if (wanted) {
        look(&o, look_up);
    }
    sol_status_t status = open_steps(&o, &go_on);
    if (status != SOL_OK || !go_on) {
        if (kept != NULL) {
            sol_cuda_multicast_suspend(config->cu, multicast);
        } else {
            sol_cuda_multicast_close(config->cu, multicast);
        }
    }
    return status;
}

void sol_cuda_multicast_suspend(const struct sol_cuda_driver *cu,
                                struct sol_cuda_multicast *multicast)
{
    struct sol_cuda_multicast kept = {.kept = multicast->kept, .kept_bytes = multicast->kept_bytes};
    if (multicast->base != NULL) {
        cu->mem_unmap((CUdeviceptr)(uintptr_t)multicast->base, multicast->bytes);
        kept.kept = multicast->base;
        kept.kept_bytes = multicast->bytes;
    }
    if (multicast->bound) {
        multicast->calls.unbind(multicast->object, multicast->device, 0, multicast->bytes);
    }
    if (multicast->object != 0) {
        cu->mem_release(multicast->object);
    }
    *multicast = kept;
}

void sol_cuda_multicast_close(const struct sol_cuda_driver *cu,
                              struct sol_cuda_multicast *multicast)
{
    sol_cuda_multicast_suspend(cu, multicast);
    if (multicast->kept != NULL) {
        cu->mem_address_free((CUdeviceptr)(uintptr_t)multicast->kept, multicast->kept_bytes);
    }
    memset(multicast, 0, sizeof *multicast);
}
