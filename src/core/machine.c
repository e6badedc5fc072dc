/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.c: sol_machine_info and sol_explain: what there is and what would be
 * done. Both only look.
 */
#include "core/setup.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Text that grows to the end of a buffer, and then no further. */
typedef struct text {
    char *bytes;
    size_t capacity, used;
} text_t;

static void add(text_t *text, const char *format, ...) SOL_PRINTF(2, 3);

static void add(text_t *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int more = vsnprintf(text->bytes + text->used, text->capacity - text->used, format, args);
    va_end(args);
    text->used += more > 0 ? (size_t)more : 0;
    if (text->used >= text->capacity) {
        text->used = text->capacity - 1;
    }
}

/* The first line of /proc or /sys that starts with `key`, behind its colon; "" if there is none. */
static void read_key(const char *path, const char *key, char *value, size_t bytes)
{
    char line[512];
    value[0] = '\0';
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return;
    }
    while (value[0] == '\0' && fgets(line, sizeof(line), file) != NULL) {
        char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) == 0 && colon != NULL) {
            colon += 1 + strspn(colon + 1, " \t");
            colon[strcspn(colon, "\n")] = '\0';
            snprintf(value, bytes, "%s", colon);
        }
    }
    fclose(file);
}

static void add_cpus(text_t *text)
{
    char model[256];
    cpu_set_t set;
    int usable = -1;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        usable = CPU_COUNT(&set);
    }
    read_key("/proc/cpuinfo", "model name", model, sizeof(model));
    add(text, "cpu: %s\n", model[0] != '\0' ? model : "unknown");
    add(text, "cpus: %d usable of %ld\n", usable, sysconf(_SC_NPROCESSORS_ONLN));
    int nodes = 0;
    char path[64];
    do {
        snprintf(path, sizeof(path), "/sys/devices/system/node/node%d", nodes);
    } while (access(path, F_OK) == 0 && ++nodes < 1024);
    add(text, "numa nodes: %d\n", nodes > 0 ? nodes : 1);
}

static void add_memory(text_t *text)
{
    char total[64];
    struct statvfs shm;
    read_key("/proc/meminfo", "MemTotal", total, sizeof(total));
    add(text, "memory: %s\n", total[0] != '\0' ? total : "unknown");
    if (statvfs("/dev/shm", &shm) == 0) {
        add(text, "/dev/shm: %llu MiB (not needed: shared memory is by memfd)\n",
            (unsigned long long)shm.f_blocks * shm.f_frsize >> 20);
    }
}

static void add_launcher(text_t *text)
{
    sol_launch_t launch = {.launcher = "none"};
    bool found;
    if (sol_launch_read(&launch, &found) != SOL_OK) {
        add(text, "launcher: %s\n", sol_thread_error_text());
    } else if (found) {
        add(text, "launcher: %s (rank %d of %d)\n", launch.launcher, launch.rank, launch.nranks);
    } else {
        add(text, "launcher: none (sol_comm_create_from_env makes one rank)\n");
    }
}

static void add_backends(text_t *text)
{
    bool has_cuda = false;
    for (int i = 0; sol_backends[i] != NULL; i++) {
        const sol_backend_t *backend = sol_backends[i];
        char why[512] = "";
        sol_status_t status = backend->probe != NULL ? backend->probe(why, sizeof(why)) : SOL_OK;
        if (status == SOL_OK) {
            add(text, "backend %s: usable\n", backend->name);
        } else {
            add(text, "backend %s: cannot be used: %s\n", backend->name, why);
        }
        if (backend->info != NULL) {
            char facts[4096] = "";
            backend->info(facts, sizeof(facts));
            add(text, "%s", facts);
        }
        has_cuda = has_cuda || backend->kind == SOL_BACKEND_CUDA;
    }
    if (!has_cuda) {
        add(text, "backend cuda: not in this build\n");
    }
}

sol_status_t sol_machine_info(char *buffer, size_t bytes)
{
    if (buffer == NULL || bytes == 0) {
        return sol_thread_error(SOL_ERR_ARGUMENT, "sol_machine_info: %s",
                                buffer == NULL ? "text is NULL" : "bytes is 0");
    }
    text_t text = {.bytes = buffer, .capacity = bytes};
    struct utsname system;
    add(&text, "solccl: %d.%d.%d\n", SOL_VERSION_MAJOR, SOL_VERSION_MINOR, SOL_VERSION_PATCH);
    if (uname(&system) == 0) {
        add(&text, "system: %s %s %s\n", system.sysname, system.release, system.machine);
    }
    add_cpus(&text);
    add_memory(&text);
    add_launcher(&text);
    add_backends(&text);
    return SOL_OK;
}

sol_status_t sol_explain(sol_comm_t comm, sol_func_t func, size_t count, sol_dtype_t dtype,
                         sol_redop_t op, char *text, size_t bytes)
{
    sol_call_t call = {.func = func, .dtype = dtype, .count = count};
    sol_status_t status = sol_comm_valid(comm, "sol_explain");
    if (status != SOL_OK) {
        return status;
    }
    if ((unsigned)func >= SOL_FUNC_COUNT) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_explain: func is %d: expected 0 to %d",
                              (int)func, SOL_FUNC_COUNT - 1);
    }
    if ((unsigned)dtype >= SOL_DTYPE_COUNT) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_explain: dtype is %d: expected 0 to %d",
                              (int)dtype, SOL_DTYPE_COUNT - 1);
    }
    if (!sol_redop_resolve(comm, op, dtype, &call.reduction)) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "sol_explain: op is %d: expected an operation for %s", (int)op,
                              sol_dtype_name(dtype));
    }
    if (count > comm->max_count) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "sol_explain: size overflow: count is %zu: expected at most %zu",
                              count, comm->max_count);
    }
    if (text == NULL || bytes == 0) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_explain: %s",
                              text == NULL ? "text is NULL" : "bytes is 0");
    }
    return comm->backend->explain(comm, &call, text, bytes);
}
