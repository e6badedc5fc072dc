/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_worker.c: a rank that is measured. It sleeps until the driver gives a
 * command (perf_wire.h), does it, answers, and sleeps again. The same code
 * measures solccl and each peer; only perf_library differs.
 */
#include "perf_library.h"
#include "perf_probe.h"
#include "perf_wire.h"
#include "tool.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILL_ELEMENTS 4096

void *perf_stream;

struct worker {
    const perf_library_t *library;
    const perf_device_t *device;
    perf_place_t place;
    int fd;
    perf_probe_t *probe;

    bool ready; /* the fields below are those of a case that was set up */
    perf_case_t c;
    unsigned char *buffers[2]; /* send and receive; in place: [0] is both */
    unsigned char *send, *recv;
};

static void answer(struct worker *worker, const char *format, ...) TOOL_PRINTF(2, 3);

static void answer(struct worker *worker, const char *format, ...)
{
    char line[PERF_LINE];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    perf_wire_send(worker->fd, line, NULL, 0, -1); /* a driver that has gone is seen in receive */
}

/* ---- buffers */

static bool of_library(const struct worker *worker)
{
    return worker->library->own_memory || worker->c.memory != PERF_MEMORY_PLAIN;
}

static void *get_buffer(struct worker *worker, size_t bytes, perf_error_t *error)
{
    void *memory;

    if (of_library(worker))
        return worker->library->memory_alloc(worker->c.memory, bytes ? bytes : 1, error);
    memory = worker->device->alloc(bytes);
    if (!memory)
        snprintf(error->text, sizeof(error->text), "no memory for a buffer of %zu bytes", bytes);
    return memory;
}

static void drop_buffers(struct worker *worker)
{
    int i;

    for (i = 0; i < 2; i++) {
        if (!worker->buffers[i])
            continue;
        if (of_library(worker))
            worker->library->memory_free(worker->c.memory, worker->buffers[i]);
        else
            worker->device->release(worker->buffers[i]);
        worker->buffers[i] = NULL;
    }
    worker->ready = false;
}

/* gather and scatter are in place on the root only: the other ranks' buffers are apart. */
static bool one_buffer(const perf_case_t *c)
{
    return c->in_place && c->op != PERF_GATHER && c->op != PERF_SCATTER;
}

static bool make_buffers(struct worker *worker, perf_error_t *error)
{
    const perf_case_t *c = &worker->c;
    perf_shape_t shape = perf_shape(c, worker->place.nranks);
    size_t size = perf_dtype_size(c->dtype);
    size_t block = c->count * size * (size_t)worker->place.rank;
    size_t send = shape.send * size, recv = shape.recv * size;

    if (one_buffer(c)) {
        worker->buffers[0] = get_buffer(worker, send > recv ? send : recv, error);
        worker->send = worker->recv = worker->buffers[0];
        if (worker->send && c->op == PERF_ALL_GATHER)
            worker->send += block;
        if (worker->recv && c->op == PERF_REDUCE_SCATTER)
            worker->recv += block;
        return worker->buffers[0] != NULL;
    }
    worker->buffers[0] = get_buffer(worker, send, error);
    worker->buffers[1] = worker->buffers[0] ? get_buffer(worker, recv, error) : NULL;
    worker->send = worker->buffers[0];
    worker->recv = worker->buffers[1];
    return worker->buffers[0] && worker->buffers[1];
}

/* ---- verification */

static bool fill(struct worker *worker, unsigned char *to, perf_data_t kind, uint64_t seed)
{
    unsigned char host[FILL_ELEMENTS * 8];
    size_t count = perf_shape(&worker->c, worker->place.nranks).send;
    size_t size = perf_dtype_size(worker->c.dtype), done, n;

    for (done = 0; done < count; done += n) {
        n = count - done < FILL_ELEMENTS ? count - done : FILL_ELEMENTS;
        perf_fill(&worker->c, worker->place.nranks, worker->place.rank, kind, seed, done, n, host);
        if (!worker->device->write(to + done * size, host, n * size))
            return false;
    }
    return true;
}

/* Something no right result looks like, so that what was not written is noticed. */
static bool poison(struct worker *worker, unsigned char *to, size_t bytes)
{
    unsigned char host[FILL_ELEMENTS];
    size_t done, n;

    memset(host, 0xa5, sizeof(host));
    for (done = 0; done < bytes; done += n) {
        n = bytes - done < sizeof(host) ? bytes - done : sizeof(host);
        if (!worker->device->write(to + done, host, n))
            return false;
    }
    return true;
}

/* A view of `bytes` of device memory for the host; *copy is to be freed when it is not NULL. */
static const void *view(struct worker *worker, const void *memory, size_t bytes, void **copy)
{
    const void *direct = worker->device->host_view(memory);

    *copy = NULL;
    if (direct)
        return direct;
    *copy = tool_pages(bytes);
    if (!*copy || !worker->device->read(*copy, memory, bytes))
        return NULL;
    return *copy;
}

static size_t count_wrong(struct worker *worker, int root, perf_data_t kind, uint64_t seed)
{
    const perf_case_t *c = &worker->c;
    perf_shape_t shape = perf_shape(c, worker->place.nranks);
    size_t size = perf_dtype_size(c->dtype), wrong = 0;
    const unsigned char *recv = worker->recv;
    bool at_root = worker->place.rank == root;
    const void *seen;
    void *copy;

    if (c->in_place && c->op == PERF_SCATTER && at_root)
        recv = worker->send + c->count * size * (size_t)root;
    if (c->op == PERF_BROADCAST && at_root && !worker->library->broadcast_copies_at_root)
        recv = NULL;
    if (recv) {
        seen = view(worker, recv, shape.recv * size, &copy);
        wrong += seen ? perf_wrong(c, worker->place.nranks, worker->place.rank, root, kind, seed,
                                   worker->library->rounding, seen)
                      : shape.recv;
        tool_free(copy);
    }
    if (!c->in_place && (!perf_op_rooted(c->op) || c->op == PERF_REDUCE || at_root)) {
        seen = view(worker, worker->send, shape.send * size, &copy);
        wrong += seen ? perf_changed(c, worker->place.nranks, worker->place.rank, kind, seed, seen)
                      : shape.send;
        tool_free(copy);
    }
    return wrong;
}

/* One checked call with root `root`. */
static bool check_once(struct worker *worker, int root, perf_data_t kind, uint64_t seed,
                       size_t *wrong, perf_error_t *error)
{
    const perf_case_t *c = &worker->c;
    size_t size = perf_dtype_size(c->dtype);
    bool filled = true;

    if (!one_buffer(c))
        filled = poison(worker, worker->recv, perf_shape(c, worker->place.nranks).recv * size);
    else if (c->op == PERF_ALL_GATHER || (c->op == PERF_BROADCAST && worker->place.rank != root))
        filled =
            poison(worker, worker->buffers[0], perf_shape(c, worker->place.nranks).recv * size);
    if (!one_buffer(c) || c->op != PERF_BROADCAST || worker->place.rank == root)
        filled = filled && fill(worker, worker->send, kind, seed);
    if (c->in_place && c->op == PERF_GATHER && worker->place.rank == root)
        filled = filled && fill(worker, worker->recv + c->count * size * (size_t)root, kind, seed);
    if (!filled) {
        snprintf(error->text, sizeof(error->text), "the data could not be written to the buffers");
        return false;
    }
    if (!worker->library->batch(c, worker->send, worker->recv, (size_t)root, 1, error))
        return false;
    *wrong += count_wrong(worker, root, kind, seed);
    return true;
}

static bool check(struct worker *worker, long checks, size_t *wrong, perf_error_t *error)
{
    const perf_case_t *c = &worker->c;
    perf_data_t kinds[2];
    int nkinds = perf_data_kinds(c, kinds), kind, nranks = worker->place.nranks, root, step;
    long i;

    *wrong = 0;
    /* every root where it rotates, four of them spread out where there are more */
    step = perf_op_rooted(c->op) && c->root == PERF_ROOT_ROTATES ? (nranks + 3) / 4 : nranks;
    for (i = 0; i < checks; i++)
        for (kind = 0; kind < nkinds; kind++)
            for (root = c->root < 0 ? 0 : c->root; root < nranks; root += step)
                if (!check_once(worker, root, kinds[kind], (uint64_t)(i * 2 + kind + 1), wrong,
                                error))
                    return false;
    return true;
}

/* ---- commands */

static void do_setup(struct worker *worker, const char *text)
{
    perf_error_t error = {""};
    const char *refusal;
    char protocol[256] = "";
    size_t wrong = 0;
    long checks;
    char *rest;

    drop_buffers(worker);
    checks = strtol(text, &rest, 10);
    if (!perf_case_read(rest, &worker->c)) {
        answer(worker, "error the case '%s' cannot be read", rest);
        return;
    }
    refusal = worker->c.in_place && worker->c.op == PERF_SENDRECV
                  ? "sendrecv is not in place"
                  : worker->library->refuses(&worker->c);
    if (!refusal && worker->c.memory != PERF_MEMORY_PLAIN && !worker->library->memory_alloc)
        refusal = "it has no memory of its own kinds";
    if (refusal) {
        answer(worker, "unsupported %s", refusal);
        return;
    }
    if (!make_buffers(worker, &error) || !check(worker, checks, &wrong, &error)) {
        answer(worker, "error %s", error.text);
        drop_buffers(worker);
        return;
    }
    if (worker->library->explain)
        worker->library->explain(&worker->c, protocol, sizeof(protocol));
    worker->ready = true;
    answer(worker, "ok %zu %s", wrong, protocol);
}

static void do_time(struct worker *worker, const char *text)
{
    static double ns[PERF_MAX_SAMPLES];
    perf_error_t error = {""};
    size_t samples, warm, batch;
    int alone;

    if (!worker->ready || sscanf(text, "%zu %zu %zu %d", &samples, &warm, &batch, &alone) != 4 ||
        batch == 0 || samples > PERF_MAX_SAMPLES) {
        answer(worker, "error 'time %s' cannot be done now", text);
        return;
    }
    if (!worker->device->time(worker->library, &worker->c, worker->send, worker->recv, warm,
                              samples, batch, alone != 0, ns, &error)) {
        answer(worker, "error %s", error.text);
        return;
    }
    perf_wire_send(worker->fd, "ok", ns, samples, -1);
}

static void do_map(struct worker *worker, const char *text, int fd)
{
    size_t bytes;
    int slots;

    perf_probe_close(worker->probe);
    worker->probe = NULL;
    if (fd >= 0 && sscanf(text, "%d %zu", &slots, &bytes) == 2 && slots > 0)
        worker->probe = perf_probe_open(fd, slots, bytes);
    if (worker->probe)
        answer(worker, "ok");
    else
        answer(worker, "error the memory for measuring the machine cannot be mapped (%s)",
               strerror(errno));
}

/* Latency and bandwidth are measured on a given CPU, whatever the rank is bound to. */
static void do_probe(struct worker *worker, const char *name, const char *text)
{
    int role, slot, rounds, cpu, kind, source, slots;
    double ns = -1;
    size_t bytes;
    cpu_set_t before;

    CPU_ZERO(&before);
    sched_getaffinity(0, sizeof(before), &before);
    if (!worker->probe) {
        answer(worker, "error no memory is mapped");
        return;
    }
    if (!strcmp(name, "latency") && sscanf(text, "%d %d %d %d", &role, &slot, &rounds, &cpu) == 4) {
        tool_bind(cpu);
        ns = perf_probe_latency(worker->probe, role, slot, rounds);
    } else if (!strcmp(name, "move") && sscanf(text, "%d %zu %d %d %d %d %d", &kind, &bytes, &slot,
                                               &source, &slots, &cpu, &rounds) == 7) {
        tool_bind(cpu);
        ns = perf_probe_move(worker->probe, (perf_move_t)kind, bytes, slot, source, slots, rounds);
    }
    sched_setaffinity(0, sizeof(before), &before);
    if (ns < 0)
        answer(worker, "error another rank did not answer while '%s %s' was measured", name, text);
    else
        answer(worker, "ok %.3f", ns);
}

/* Returns false for quit. */
static bool obey(struct worker *worker, const perf_message_t *message)
{
    char name[16] = "";
    int length = 0;
    const char *rest;
    long cpu;

    sscanf(message->line, "%15s%n", name, &length);
    rest = message->line + length;
    rest += *rest == ' ';
    if (!strcmp(name, "quit"))
        return false;
    if (!strcmp(name, "setup")) {
        do_setup(worker, rest);
    } else if (!strcmp(name, "time")) {
        do_time(worker, rest);
    } else if (!strcmp(name, "clear")) {
        drop_buffers(worker);
        answer(worker, "ok");
    } else if (!strcmp(name, "map")) {
        do_map(worker, rest, message->pass);
    } else if (!strcmp(name, "latency") || !strcmp(name, "move")) {
        do_probe(worker, name, rest);
    } else if (!strcmp(name, "bind") && tool_parse_int(rest, 0, TOOL_MAX_CPUS, &cpu)) {
        if (tool_bind((int)cpu))
            answer(worker, "ok");
        else
            answer(worker, "error it cannot be bound to CPU %ld: %s", cpu, strerror(errno));
    } else {
        answer(worker, "error '%s' is not a command", message->line);
    }
    if (message->pass >= 0)
        close(message->pass);
    return true;
}

static int connect_to_driver(struct worker *worker)
{
    const char *name =
        worker->place.socket[0] ? worker->place.socket : getenv(PERF_SOCKET_VARIABLE);

    if (!name || !*name)
        return tool_error("perf", "%s is not set: this program is started by `solccl perf`",
                          PERF_SOCKET_VARIABLE);
    worker->fd = perf_wire_connect(name);
    if (worker->fd < 0)
        return tool_error("perf", "rank %d of %s cannot reach the driver: %s", worker->place.rank,
                          worker->library->name, strerror(errno));
    answer(worker, "hello %s %d %d %d %d %s", worker->library->name, worker->place.rank,
           worker->place.nranks, (int)getpid(), sched_getcpu(), worker->place.version);
    return 0;
}

/* The rank that our launcher gave this process. */
static int launched_rank(void)
{
    const char *text = getenv("SOLCCL_RANK");
    long rank = 0;

    if (text)
        tool_parse_int(text, 0, SOL_MAX_RANKS - 1, &rank);
    return (int)rank;
}

int perf_worker(const perf_library_t *library, const perf_device_t *device)
{
    struct worker worker;
    perf_message_t *message = tool_calloc(1, sizeof(*message));
    perf_error_t error = {""};
    int status;

    memset(&worker, 0, sizeof(worker));
    worker.library = library;
    worker.device = device;
    worker.fd = -1;
    if (!message)
        return 1;
    if (device->open && !device->open(launched_rank())) {
        tool_free(message);
        return 1;
    }
    if (!library->open(&worker.place, &error)) {
        tool_free(message);
        return tool_error("perf", "%s: %s", library->name, error.text);
    }
    status = connect_to_driver(&worker);
    while (status == 0 && perf_wire_receive(worker.fd, message, 0))
        if (!obey(&worker, message))
            break;
    drop_buffers(&worker);
    perf_probe_close(worker.probe);
    library->close();
    if (worker.fd >= 0)
        close(worker.fd);
    tool_free(message);
    return status;
}
