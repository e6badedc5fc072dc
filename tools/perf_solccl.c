/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_solccl.c: calls of solccl for perf's worker.
 */
#include "perf_solccl.h"

#include "perf_wire.h"
#include "tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    sol_comm_t comm;
    sol_comm_t plain; /* GPU ranks: without dependent launch */
    sol_comm_t early; /* GPU ranks: with it; NULL on CPU ranks */
    int rank, nranks;
    bool attached;
    sol_registration_t registrations[2];
    void *registered[2];
} self;

void perf_solccl_attached(void)
{
    self.attached = true;
}

static bool failed(perf_error_t *error, sol_status_t status)
{
    const char *text = sol_last_error(self.comm);

    if (!*text)
        text = sol_last_error(NULL);
    snprintf(error->text, sizeof(error->text), "%s", *text ? text : sol_status_string(status));
    return false;
}

static bool open_comm(perf_place_t *place, perf_error_t *error)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    const char *name = getenv(PERF_SOCKET_VARIABLE);
    int version = sol_version();
    sol_status_t status;

    config.backend = perf_stream ? SOL_BACKEND_CUDA : SOL_BACKEND_CPU;
    config.name = "perf";
    if (perf_stream)
        setenv("SOLCCL_CUDA_PDL", "0", 1);
    status = sol_comm_create_from_env(&self.comm, &config);
    self.plain = self.comm;
    if (perf_stream && status == SOL_OK) {
        setenv("SOLCCL_CUDA_PDL", "1", 1);
        status = sol_comm_create_from_env(&self.early, &config);
    }
    if (status == SOL_OK)
        status = sol_comm_rank(self.comm, &self.rank);
    if (status == SOL_OK)
        status = sol_comm_size(self.comm, &self.nranks);
    if (status != SOL_OK)
        return failed(error, status);
    if (self.attached) {
        snprintf(place->socket, sizeof(place->socket), "%s", name ? name : "");
        status = sol_broadcast(place->socket, place->socket, sizeof(place->socket), SOL_UINT8, 0,
                               self.comm, NULL);
        if (status != SOL_OK)
            return failed(error, status);
    }
    place->rank = self.rank;
    place->nranks = self.nranks;
    snprintf(place->version, sizeof(place->version), "solccl %d.%d.%d", version / 10000,
             version / 100 % 100, version % 100);
    return true;
}

static void close_comm(void)
{
    sol_comm_destroy(self.plain);
    sol_comm_destroy(self.early);
    self.comm = NULL;
}

/* Also where a case begins: the mode decides which communicator it uses. */
static const char *refuses(const perf_case_t *c)
{
    self.comm = self.early && c->mode != PERF_MODE_GRAPH ? self.early : self.plain;
    if (perf_stream && c->memory == PERF_MEMORY_REGISTERED)
        return "registering changes nothing for GPU ranks";
    return NULL;
}

/* One call, for groups of two (send and receive), which have no single function. */
static sol_status_t send_and_receive(const perf_case_t *c, const void *send, void *recv)
{
    sol_status_t status = sol_group_start();

    if (status != SOL_OK)
        return status;
    status =
        sol_send(send, c->count, c->dtype, (self.rank + 1) % self.nranks, self.comm, perf_stream);
    if (status == SOL_OK)
        status = sol_recv(recv, c->count, c->dtype, (self.rank + self.nranks - 1) % self.nranks,
                          self.comm, perf_stream);
    if (sol_group_end() != SOL_OK && status == SOL_OK)
        status = SOL_ERR_INTERNAL;
    return status;
}

/* The loop is inside the switch: at 80 ns an operation, a dispatch per call would be seen. */
#define REPEAT(call)                                                                               \
    for (i = 0; i < calls && status == SOL_OK; i++)                                                \
        status = (call);                                                                           \
    break

static sol_status_t repeat(const perf_case_t *c, const void *send, void *recv, size_t calls)
{
    sol_status_t status = SOL_OK;
    size_t i;

    switch (c->op) {
    case PERF_ALL_REDUCE:
        REPEAT(sol_all_reduce(send, recv, c->count, c->dtype, c->redop, self.comm, perf_stream));
    case PERF_ALL_GATHER:
        REPEAT(sol_all_gather(send, recv, c->count, c->dtype, self.comm, perf_stream));
    case PERF_REDUCE_SCATTER:
        REPEAT(
            sol_reduce_scatter(send, recv, c->count, c->dtype, c->redop, self.comm, perf_stream));
    case PERF_ALL_TO_ALL:
        REPEAT(sol_all_to_all(send, recv, c->count, c->dtype, self.comm, perf_stream));
    case PERF_SENDRECV:
        REPEAT(send_and_receive(c, send, recv));
    case PERF_BARRIER:
        REPEAT(sol_barrier(self.comm, perf_stream));
    default:
        status = SOL_ERR_ARGUMENT;
        break;
    }
    return status;
}

static sol_status_t repeat_rooted(const perf_case_t *c, const void *send, void *recv, size_t first,
                                  size_t calls)
{
    size_t block = c->count * perf_dtype_size(c->dtype), i;
    int root = perf_root(c, first, self.nranks);
    int step = c->root == PERF_ROOT_ROTATES;
    sol_status_t status = SOL_OK;

    for (i = 0; i < calls && status == SOL_OK; i++) {
        bool here = c->in_place && root == self.rank;

        switch (c->op) {
        case PERF_BROADCAST:
            status = sol_broadcast(send, recv, c->count, c->dtype, root, self.comm, perf_stream);
            break;
        case PERF_REDUCE:
            status =
                sol_reduce(send, recv, c->count, c->dtype, c->redop, root, self.comm, perf_stream);
            break;
        case PERF_GATHER:
            status = sol_gather(here ? (char *)recv + block * (size_t)root : send, recv, c->count,
                                c->dtype, root, self.comm, perf_stream);
            break;
        default: /* scatter */
            status = sol_scatter(send, here ? (char *)(uintptr_t)send + block * (size_t)root : recv,
                                 c->count, c->dtype, root, self.comm, perf_stream);
            break;
        }
        root += step;
        if (root == self.nranks)
            root = 0;
    }
    return status;
}

static bool batch(const perf_case_t *c, const void *send, void *recv, size_t first, size_t calls,
                  perf_error_t *error)
{
    sol_status_t status = perf_op_rooted(c->op) ? repeat_rooted(c, send, recv, first, calls)
                                                : repeat(c, send, recv, calls);

    return status == SOL_OK ? true : failed(error, status);
}

static bool barrier(perf_error_t *error)
{
    sol_status_t status = sol_barrier(self.comm, perf_stream);

    return status == SOL_OK ? true : failed(error, status);
}

static void *memory_alloc(perf_memory_kind_t kind, size_t bytes, perf_error_t *error)
{
    void *memory = NULL;
    sol_status_t status;
    int i = self.registered[0] != NULL;

    if (kind == PERF_MEMORY_SYMMETRIC) {
        status = sol_mem_alloc(self.comm, bytes, &memory);
    } else {
        memory = tool_pages(bytes);
        if (!memory)
            return failed(error, SOL_ERR_MEMORY), NULL;
        status = sol_mem_register(self.comm, memory, bytes, &self.registrations[i]);
        if (status == SOL_OK)
            self.registered[i] = memory;
        else
            tool_free(memory);
    }
    if (status != SOL_OK)
        return failed(error, status), NULL;
    return memory;
}

static void memory_free(perf_memory_kind_t kind, void *memory)
{
    int i;

    if (kind == PERF_MEMORY_SYMMETRIC) {
        sol_mem_free(self.comm, memory);
        return;
    }
    for (i = 0; i < 2; i++) {
        if (self.registered[i] != memory)
            continue;
        sol_mem_deregister(self.comm, self.registrations[i]);
        self.registered[i] = NULL;
    }
    tool_free(memory);
}

static void explain(const perf_case_t *c, char *text, size_t bytes)
{
    if (sol_explain(self.comm, perf_op_func(c->op), c->count, c->dtype, c->redop, text, bytes) !=
        SOL_OK)
        snprintf(text, bytes, "?");
    text[strcspn(text, "\n")] = '\0';
}

const perf_library_t perf_library_solccl = {
    .name = "solccl",
    .rounding = PERF_ROUND_WIDE,
    .broadcast_copies_at_root = true,
    .open = open_comm,
    .close = close_comm,
    .refuses = refuses,
    .batch = batch,
    .barrier = barrier,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .explain = explain,
};
