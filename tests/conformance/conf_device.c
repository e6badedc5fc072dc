/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf_device.c: the memory of each backend, as the suite sees it. CPU ranks: the heap.
 */
#include "conformance/conf.h"

#include <stdlib.h>
#include <string.h>

static bool cpu_open(int rank, void **stream)
{
    (void)rank;
    *stream = NULL; /* the only stream that CPU ranks have */
    return true;
}

static bool cpu_enter(void *of, void **stream)
{
    *stream = of;
    return true;
}

static void cpu_close(void *stream)
{
    (void)stream;
}

static void *cpu_alloc(size_t bytes)
{
    return malloc(bytes > 0 ? bytes : 1);
}

static void cpu_copy(void *to, const void *from, size_t bytes)
{
    if (bytes > 0)
        memcpy(to, from, bytes);
}

static bool cpu_sync(void *stream)
{
    (void)stream;
    return true;
}

static const conf_device_t cpu = {.name = "cpu",
                                  .backend = SOL_BACKEND_CPU,
                                  .cheap_alloc = true,
                                  .open = cpu_open,
                                  .enter = cpu_enter,
                                  .close = cpu_close,
                                  .alloc = cpu_alloc,
                                  .free = free,
                                  .upload = cpu_copy,
                                  .download = cpu_copy,
                                  .sync = cpu_sync};

#ifdef CONF_WITH_CUDA
extern const conf_device_t conf_device_cuda;
#endif

const conf_device_t *conf_device_named(const char *name)
{
    if (strcmp(name, "cpu") == 0)
        return &cpu;
#ifdef CONF_WITH_CUDA
    if (strcmp(name, "cuda") == 0)
        return &conf_device_cuda;
#endif
    return NULL;
}
