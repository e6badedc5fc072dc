/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_nccl.c: NCCL for perf's worker, as it is found at run time (SOLCCL_NCCL_LIB
 * or libnccl.so.2): with plain buffers (nccl), and with buffers in symmetric
 * windows (nccl-sym). Declared by NCCL's ABI, so that its header is not needed.
 * Its id travels over a communicator of CPU ranks of ours.
 */
#ifdef SOL_WITH_CUDA

#include "perf_nccl.h"

#include "tool.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_SYMMETRIC 1
#define MAX_WINDOWS 8

typedef struct {
    char bytes[128];
} nccl_id;

static struct {
    int (*version)(int *);
    const char *(*text)(int);
    int (*id)(nccl_id *);
    int (*init)(void **, int, nccl_id, int);
    int (*destroy)(void *);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*all_reduce)(const void *, void *, size_t, int, int, void *, cudaStream_t);
    int (*all_gather)(const void *, void *, size_t, int, void *, cudaStream_t);
    int (*reduce_scatter)(const void *, void *, size_t, int, int, void *, cudaStream_t);
    int (*broadcast)(const void *, void *, size_t, int, int, void *, cudaStream_t);
    int (*reduce)(const void *, void *, size_t, int, int, int, void *, cudaStream_t);
    int (*send)(const void *, size_t, int, int, void *, cudaStream_t);
    int (*recv)(void *, size_t, int, int, void *, cudaStream_t);
    int (*all_to_all)(const void *, void *, size_t, int, void *, cudaStream_t); /* may be NULL */
    int (*mem_alloc)(void **, size_t);
    int (*mem_free)(void *);
    int (*window_register)(void *, void *, size_t, void **, int);
    int (*window_deregister)(void *, void *);
} api;

static struct {
    void *comm;
    sol_comm_t ours;
    int rank, nranks;
    struct {
        void *memory, *window;
    } windows[MAX_WINDOWS];
} self;

static bool failed(perf_error_t *error, const char *what, int result)
{
    snprintf(error->text, sizeof(error->text), "%s: %s", what, api.text(result));
    return false;
}

static bool load(perf_error_t *error)
{
    static const struct {
        const char *name;
        void *slot;
        bool needed;
    } entries[] = {{"ncclGetVersion", &api.version, true},
                   {"ncclGetErrorString", &api.text, true},
                   {"ncclGetUniqueId", &api.id, true},
                   {"ncclCommInitRank", &api.init, true},
                   {"ncclCommDestroy", &api.destroy, true},
                   {"ncclGroupStart", &api.group_start, true},
                   {"ncclGroupEnd", &api.group_end, true},
                   {"ncclAllReduce", &api.all_reduce, true},
                   {"ncclAllGather", &api.all_gather, true},
                   {"ncclReduceScatter", &api.reduce_scatter, true},
                   {"ncclBroadcast", &api.broadcast, true},
                   {"ncclReduce", &api.reduce, true},
                   {"ncclSend", &api.send, true},
                   {"ncclRecv", &api.recv, true},
                   {"ncclAlltoAll", &api.all_to_all, false},
                   {"ncclMemAlloc", &api.mem_alloc, false},
                   {"ncclMemFree", &api.mem_free, false},
                   {"ncclCommWindowRegister", &api.window_register, false},
                   {"ncclCommWindowDeregister", &api.window_deregister, false}};
    const char *path = getenv("SOLCCL_NCCL_LIB");
    void *library = dlopen(path && *path ? path : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    size_t i;

    if (!library) {
        snprintf(error->text, sizeof(error->text), "%s", dlerror());
        return false;
    }
    for (i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        void *symbol = dlsym(library, entries[i].name);

        if (!symbol && entries[i].needed) {
            snprintf(error->text, sizeof(error->text), "this NCCL has no %s", entries[i].name);
            return false;
        }
        memcpy(entries[i].slot, &symbol, sizeof(symbol));
    }
    return true;
}

static bool open_comm(perf_place_t *place, perf_error_t *error)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    nccl_id id;
    int version = 0, result;

    if (!load(error))
        return false;
    config.backend = SOL_BACKEND_CPU;
    memset(&id, 0, sizeof(id));
    if (sol_comm_create_from_env(&self.ours, &config) != SOL_OK ||
        sol_comm_rank(self.ours, &self.rank) != SOL_OK ||
        sol_comm_size(self.ours, &self.nranks) != SOL_OK) {
        snprintf(error->text, sizeof(error->text), "%s", sol_last_error(NULL));
        return false;
    }
    if (self.rank == 0)
        api.id(&id);
    if (sol_broadcast(&id, &id, sizeof(id), SOL_UINT8, 0, self.ours, NULL) != SOL_OK) {
        snprintf(error->text, sizeof(error->text), "%s", sol_last_error(self.ours));
        return false;
    }
    result = api.init(&self.comm, self.nranks, id, self.rank);
    if (result)
        return failed(error, "ncclCommInitRank", result);
    api.version(&version);
    place->rank = self.rank;
    place->nranks = self.nranks;
    snprintf(place->version, sizeof(place->version), "NCCL %d.%d.%d", version / 10000,
             version / 100 % 100, version % 100);
    return true;
}

static void close_comm(void)
{
    api.destroy(self.comm);
    sol_comm_destroy(self.ours);
}

static const char *refuses(const perf_case_t *c)
{
    if (c->mode == PERF_MODE_GRAPH_PDL)
        return "NCCL has no dependent launch: see mode graph";
    if (c->op == PERF_GATHER || c->op == PERF_SCATTER)
        return "not measured";
    return NULL;
}

static int dtype_of(sol_dtype_t dtype)
{
    static const int map[SOL_DTYPE_COUNT] = {
        [SOL_INT8] = 0,    [SOL_UINT8] = 1,    [SOL_INT32] = 2,        [SOL_UINT32] = 3,
        [SOL_INT64] = 4,   [SOL_UINT64] = 5,   [SOL_FLOAT16] = 6,      [SOL_FLOAT32] = 7,
        [SOL_FLOAT64] = 8, [SOL_BFLOAT16] = 9, [SOL_FLOAT8_E4M3] = 10, [SOL_FLOAT8_E5M2] = 11};

    return map[dtype];
}

static int redop_of(sol_redop_t redop)
{
    static const int map[SOL_REDOP_COUNT] = {
        [SOL_SUM] = 0, [SOL_PROD] = 1, [SOL_MAX] = 2, [SOL_MIN] = 3, [SOL_AVG] = 4};

    return map[redop];
}

static int all_to_all(const perf_case_t *c, const void *send, void *recv, int type)
{
    size_t block = c->count * perf_dtype_size(c->dtype);
    int p, result;

    if (api.all_to_all)
        return api.all_to_all(send, recv, c->count, type, self.comm, perf_stream);
    result = api.group_start();
    for (p = 0; p < self.nranks && !result; p++) {
        result = api.send((const char *)send + block * (size_t)p, c->count, type, p, self.comm,
                          perf_stream);
        if (!result)
            result = api.recv((char *)recv + block * (size_t)p, c->count, type, p, self.comm,
                              perf_stream);
    }
    return result ? result : api.group_end();
}

static int ring(const perf_case_t *c, const void *send, void *recv, int type)
{
    int result = api.group_start();

    if (!result)
        result =
            api.send(send, c->count, type, (self.rank + 1) % self.nranks, self.comm, perf_stream);
    if (!result)
        result = api.recv(recv, c->count, type, (self.rank + self.nranks - 1) % self.nranks,
                          self.comm, perf_stream);
    return result ? result : api.group_end();
}

static int call(const perf_case_t *c, const void *send, void *recv, int root)
{
    int type = dtype_of(c->dtype), op = redop_of(c->redop);

    switch (c->op) {
    case PERF_ALL_REDUCE:
        return api.all_reduce(send, recv, c->count, type, op, self.comm, perf_stream);
    case PERF_ALL_GATHER:
        return api.all_gather(send, recv, c->count, type, self.comm, perf_stream);
    case PERF_REDUCE_SCATTER:
        return api.reduce_scatter(send, recv, c->count, type, op, self.comm, perf_stream);
    case PERF_ALL_TO_ALL:
        return all_to_all(c, send, recv, type);
    case PERF_BROADCAST:
        return api.broadcast(send, recv, c->count, type, root, self.comm, perf_stream);
    case PERF_REDUCE:
        return api.reduce(send, recv, c->count, type, op, root, self.comm, perf_stream);
    case PERF_SENDRECV:
        return ring(c, send, recv, type);
    default: /* a barrier: NCCL's is an all_reduce of one element */
        return api.all_reduce(recv, recv, 1, 0, 0, self.comm, perf_stream);
    }
}

static bool batch(const perf_case_t *c, const void *send, void *recv, size_t first, size_t calls,
                  perf_error_t *error)
{
    size_t i;

    for (i = 0; i < calls; i++) {
        int result = call(c, send, recv, perf_root(c, first + i, self.nranks));

        if (result)
            return failed(error, "NCCL", result);
    }
    return true;
}

static bool barrier(perf_error_t *error)
{
    if (sol_barrier(self.ours, NULL) == SOL_OK)
        return true;
    snprintf(error->text, sizeof(error->text), "%s", sol_last_error(self.ours));
    return false;
}

/* ---- symmetric windows */

static void *window_alloc(perf_memory_kind_t kind, size_t bytes, perf_error_t *error)
{
    void *memory = NULL;
    int slot = 0, result;

    (void)kind;
    while (slot < MAX_WINDOWS && self.windows[slot].memory)
        slot++;
    if (slot == MAX_WINDOWS || !api.window_register || !api.mem_alloc) {
        snprintf(error->text, sizeof(error->text), "this NCCL has no symmetric windows");
        return NULL;
    }
    bytes = (bytes + (2u << 20) - 1) / (2u << 20) * (2u << 20);
    result = api.mem_alloc(&memory, bytes);
    if (!result)
        result = api.window_register(self.comm, memory, bytes, &self.windows[slot].window,
                                     WINDOW_SYMMETRIC);
    if (result) {
        failed(error, "a window", result);
        return NULL;
    }
    self.windows[slot].memory = memory;
    return memory;
}

static void window_free(perf_memory_kind_t kind, void *memory)
{
    int slot;

    (void)kind;
    for (slot = 0; slot < MAX_WINDOWS; slot++) {
        if (self.windows[slot].memory != memory)
            continue;
        cudaStreamSynchronize(perf_stream);
        api.window_deregister(self.comm, self.windows[slot].window);
        api.mem_free(memory);
        self.windows[slot].memory = NULL;
    }
}

const perf_library_t perf_library_nccl = {
    .name = "nccl",
    .rounding = PERF_ROUND_EACH,
    .broadcast_copies_at_root = true,
    .open = open_comm,
    .close = close_comm,
    .refuses = refuses,
    .batch = batch,
    .barrier = barrier,
};

const perf_library_t perf_library_nccl_sym = {
    .name = "nccl-sym",
    .rounding = PERF_ROUND_EACH,
    .broadcast_copies_at_root = true,
    .own_memory = true,
    .open = open_comm,
    .close = close_comm,
    .refuses = refuses,
    .batch = batch,
    .barrier = barrier,
    .memory_alloc = window_alloc,
    .memory_free = window_free,
};

#endif

/* C wants a translation unit to hold something. */
typedef int perf_nccl_is_optional;
