/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool.c: the shared small parts of the `solccl` command (see tool.h). Nothing
 * here keeps state, and nothing exits.
 */
#include "tool.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

void *tool_calloc(size_t count, size_t bytes)
{
    void *memory = calloc(count ? count : 1, bytes ? bytes : 1);

    if (!memory)
        fprintf(stderr, "solccl: out of memory (%zu x %zu bytes were refused)\n", count, bytes);
    return memory;
}

void *tool_pages(size_t bytes)
{
    const size_t page = 4096;
    size_t rounded;
    void *memory = NULL;

    if (bytes > SIZE_MAX - page)
        return NULL;
    rounded = bytes ? (bytes + page - 1) / page * page : page;
    if (posix_memalign(&memory, page, rounded) != 0) {
        fprintf(stderr, "solccl: out of memory (%zu bytes were refused)\n", rounded);
        return NULL;
    }
    memset(memory, 0, rounded);
    return memory;
}

void tool_free(void *memory)
{
    free(memory);
}

static void complain(const char *name, const char *format, va_list args)
{
    char text[2048];

    vsnprintf(text, sizeof(text), format, args);
    /* one write, so that lines of several ranks do not mix */
    fprintf(stderr, "solccl%s%s: %s\n", name && *name ? " " : "", name ? name : "", text);
}

int tool_error(const char *name, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    complain(name, format, args);
    va_end(args);
    return 1;
}

int tool_usage(const char *name, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    complain(name, format, args);
    va_end(args);
    fprintf(stderr, "Try 'solccl %s%s--help'.\n", name ? name : "", name && *name ? " " : "");
    return TOOL_USAGE;
}

bool tool_parse_size(const char *text, size_t *value)
{
    const char *units = "kmgt";
    unsigned long long number;
    const char *unit;
    char *end;
    int shift = 0;

    if (!text || text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    number = strtoull(text, &end, 10);
    if (errno)
        return false;
    if (*end) {
        unit = strchr(units, *end | 0x20);
        if (unit) {
            shift = 10 * (int)(unit - units + 1);
            end++;
        }
        if ((*end | 0x20) == 'b')
            end++;
    }
    if (*end || (shift && number > (SIZE_MAX >> shift)))
        return false;
    *value = (size_t)number << shift;
    return true;
}

bool tool_parse_int(const char *text, long minimum, long maximum, long *value)
{
    char *end;
    long number;

    if (!text || !*text || *text == ' ')
        return false;
    errno = 0;
    number = strtol(text, &end, 10);
    if (errno || *end || number < minimum || number > maximum)
        return false;
    *value = number;
    return true;
}

bool tool_parse_real(const char *text, double minimum, double maximum, double *value)
{
    char *end;
    double number;

    if (!text || !*text || *text == ' ')
        return false;
    errno = 0;
    number = strtod(text, &end);
    if (errno || *end || !isfinite(number) || number < minimum || number > maximum)
        return false;
    *value = number;
    return true;
}

char *tool_format_size(size_t bytes, char text[32])
{
    static const char units[] = {'K', 'M', 'G', 'T'};
    int unit = -1;

    while (bytes && bytes % 1024 == 0 && unit + 1 < (int)sizeof(units)) {
        bytes /= 1024;
        unit++;
    }
    if (unit < 0)
        snprintf(text, 32, "%zu", bytes);
    else
        snprintf(text, 32, "%zu%c", bytes, units[unit]);
    return text;
}

bool tool_append(char *text, size_t bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    int wrote;

    if (used >= bytes)
        return false;
    va_start(args, format);
    wrote = vsnprintf(text + used, bytes - used, format, args);
    va_end(args);
    return wrote >= 0 && (size_t)wrote < bytes - used;
}

uint64_t tool_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

bool tool_random_hex(char *text, size_t random_bytes)
{
    unsigned char bytes[64];
    size_t i;

    if (random_bytes > sizeof(bytes) || getrandom(bytes, random_bytes, 0) != (ssize_t)random_bytes)
        return false;
    for (i = 0; i < random_bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

int tool_core(int cpu)
{
    char path[128];
    FILE *file;
    int first = cpu;

    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
             cpu);
    file = fopen(path, "re");
    if (!file)
        return cpu;
    if (fscanf(file, "%d", &first) != 1)
        first = cpu;
    fclose(file);
    return first;
}

int tool_cpus(int *cpus, int maximum, int *cores)
{
    int all[TOOL_MAX_CPUS], core[TOOL_MAX_CPUS];
    bool first_of_core[TOOL_MAX_CPUS];
    int found = 0, written = 0, distinct = 0, i, j;
    cpu_set_t set;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        CPU_SET(0, &set);
    for (i = 0; i < CPU_SETSIZE && found < TOOL_MAX_CPUS; i++) {
        if (!CPU_ISSET(i, &set))
            continue;
        all[found] = i;
        core[found] = tool_core(i);
        first_of_core[found] = true;
        for (j = 0; j < found; j++)
            if (core[j] == core[found])
                first_of_core[found] = false;
        distinct += first_of_core[found];
        found++;
    }
    for (i = 0; i < found && written < maximum; i++)
        if (first_of_core[i])
            cpus[written++] = all[i];
    for (i = 0; i < found && written < maximum; i++)
        if (!first_of_core[i])
            cpus[written++] = all[i];
    if (cores)
        *cores = distinct;
    return written;
}

bool tool_bind(int cpu)
{
    cpu_set_t set;

    if (cpu < 0 || cpu >= CPU_SETSIZE)
        return false;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof(set), &set) == 0;
}

void tool_machine_name(char *text, size_t bytes)
{
    char line[512], name[256] = "";
    FILE *file = fopen("/proc/cpuinfo", "re");
    char *colon;
    struct utsname system;

    while (file && !name[0] && fgets(line, sizeof(line), file)) {
        if (strncmp(line, "model name", 10) && strncmp(line, "Model", 5))
            continue;
        colon = strchr(line, ':');
        if (!colon)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        colon[strcspn(colon, "\n")] = '\0';
        snprintf(name, sizeof(name), "%s", colon);
    }
    if (file)
        fclose(file);
    if (!name[0] && uname(&system) == 0)
        snprintf(name, sizeof(name), "%s", system.machine);
    snprintf(text, bytes, "%s", name);
}

void tool_kernel_name(char *text, size_t bytes)
{
    struct utsname system;

    if (uname(&system) == 0)
        snprintf(text, bytes, "%s %s", system.sysname, system.release);
    else
        snprintf(text, bytes, "unknown");
}

bool tool_self_path(char *text, size_t bytes)
{
    ssize_t length = readlink("/proc/self/exe", text, bytes - 1);

    if (length <= 0 || (size_t)length >= bytes - 1)
        return false;
    text[length] = '\0';
    return true;
}
