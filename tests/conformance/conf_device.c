/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf_device.c: the memory of each backend, as the suite sees it. CPU ranks: the heap.
 */
#include "conformance/conf.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

/* ------------------------------------------------------------------------ at the edge
 *
 * Memory that ends (cpu-after) or begins (cpu-before) where a page is that nobody may touch: who
 * reads or writes one byte too many ends by a signal, or, where it is another rank's kernel call
 * that does, gets an error.
 */
typedef struct edge {
    void *memory;
    unsigned char *place; /* of the mapping: no access, the pages, no access */
    size_t bytes;
    struct edge *next;
} edge_t;

static pthread_mutex_t edges_lock = PTHREAD_MUTEX_INITIALIZER;
static edge_t *edges;

static void *edge_alloc(size_t bytes, bool after)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (bytes + page - 1) / page * page;
    edge_t *edge = malloc(sizeof(*edge));
    if (!edge)
        return NULL;
    edge->bytes = inner + 2 * page;
    edge->place = mmap(NULL, edge->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (edge->place == MAP_FAILED ||
        (inner > 0 && mprotect(edge->place + page, inner, PROT_READ | PROT_WRITE) != 0)) {
        free(edge);
        return NULL;
    }
    edge->memory = edge->place + page + (after ? inner - bytes : 0);
    pthread_mutex_lock(&edges_lock);
    edge->next = edges;
    edges = edge;
    pthread_mutex_unlock(&edges_lock);
    return edge->memory;
}

static void *alloc_after(size_t bytes)
{
    return edge_alloc(bytes, true);
}

static void *alloc_before(size_t bytes)
{
    return edge_alloc(bytes, false);
}

static void edge_free(void *memory)
{
    edge_t **at = &edges, *edge;
    pthread_mutex_lock(&edges_lock);
    while (*at && (*at)->memory != memory)
        at = &(*at)->next;
    edge = *at;
    if (edge)
        *at = edge->next;
    pthread_mutex_unlock(&edges_lock);
    if (edge)
        munmap(edge->place, edge->bytes);
    free(edge);
}

#define EDGE_DEVICE(its_name, its_alloc)                                                           \
    {                                                                                              \
        .name = its_name, .backend = SOL_BACKEND_CPU, .bare = true, .open = cpu_open,              \
        .enter = cpu_enter, .close = cpu_close, .alloc = its_alloc, .free = edge_free,             \
        .upload = cpu_copy, .download = cpu_copy, .sync = cpu_sync                                 \
    }
static const conf_device_t cpu_after = EDGE_DEVICE("cpu-after", alloc_after);
static const conf_device_t cpu_before = EDGE_DEVICE("cpu-before", alloc_before);

#ifdef CONF_WITH_CUDA
extern const conf_device_t conf_device_cuda;
#endif

const conf_device_t *conf_device_named(const char *name)
{
    if (strcmp(name, "cpu") == 0)
        return &cpu;
    if (strcmp(name, cpu_after.name) == 0)
        return &cpu_after;
    if (strcmp(name, cpu_before.name) == 0)
        return &cpu_before;
#ifdef CONF_WITH_CUDA
    if (strcmp(name, "cuda") == 0)
        return &conf_device_cuda;
#endif
    return NULL;
}
