/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base.h: the few things every layer stands on: clock, log, environment,
 * memory, fork detection. Depends on nothing else of solccl. Nothing here
 * exits, aborts or blocks.
 */
#ifndef SOL_BASE_BASE_H
#define SOL_BASE_BASE_H

#include "solccl/solccl.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#if defined(__GNUC__)
#define SOL_LIKELY(x) __builtin_expect(!!(x), 1)
#define SOL_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define SOL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
/* For data: lets a shared library reach it without a detour through its offset table. */
#define SOL_HIDDEN __attribute__((visibility("hidden")))
#else
#define SOL_LIKELY(x) (x)
#define SOL_UNLIKELY(x) (x)
#define SOL_PRINTF(fmt, args)
#define SOL_HIDDEN
#endif

#define SOL_CACHE_LINE 64u

#ifdef __cplusplus
extern "C" {
#endif

/* Monotonic time in nanoseconds. */
static inline uint64_t sol_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* A clock that costs a few cycles: counts at a constant rate, in an unknown unit, alike on all
 * CPUs. Two readings of it and of sol_now_ns give the unit. */
static inline uint64_t sol_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return sol_now_ns();
#endif
}

/* The same, after all loads before it and before all that follow. */
static inline uint64_t sol_ticks_between(void)
{
#if defined(__x86_64__)
    __builtin_ia32_lfence();
    uint64_t ticks = __builtin_ia32_rdtsc();
    __builtin_ia32_lfence();
    return ticks;
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ __volatile__("dsb ld\n\tisb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks) : : "memory");
    return ticks;
#else
    return sol_now_ns();
#endif
}

/* Begin to bring a line here as its only holder, so that a store to it need not wait. By hand on
 * x86: compilers for the baseline make a prefetch for reading of __builtin_prefetch(p, 1), which
 * leaves the store all its waiting. A CPU of 64 bits that does not know the instruction skips it.
 */
static inline void sol_prefetch_write(const void *line)
{
#if defined(__x86_64__)
    __asm__ __volatile__("prefetchw %0" : : "m"(*(const char *)line));
#else
    __builtin_prefetch(line, 1, 3);
#endif
}

/* Begin to send a line that was written here on to the cache that all cores share, where another
 * core finds it sooner. A CPU that does not know the instruction skips it; sol_cpu_demotes. */
static inline void sol_demote(const void *line)
{
#if defined(__x86_64__)
    __asm__ __volatile__("cldemote %0" : : "m"(*(const char *)line) : "memory");
#else
    (void)line;
#endif
}

/* Does this CPU know how to? */
bool sol_cpu_demotes(void);

/* One polite step of a spin loop. */
static inline void sol_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static inline size_t sol_round_up(size_t value, size_t step)
{
    return (value + step - 1) / step * step;
}

/* ---- log: one line to stderr, "solccl[pid] level: text". SOLCCL_LOG=off|error|warn|info|debug,
 * "warn" by default. Thread-safe; never fails. */
typedef enum {
    SOL_LOG_OFF,
    SOL_LOG_ERROR,
    SOL_LOG_WARN,
    SOL_LOG_INFO,
    SOL_LOG_DEBUG
} sol_log_level;
bool sol_log_enabled(sol_log_level level);
void sol_log(sol_log_level level, const char *format, ...) SOL_PRINTF(2, 3);

/* ---- memory: the only door to malloc. SOLCCL_DEBUG_FAIL_ALLOC=k makes the k-th and all later
 * allocations fail, -k the k-th alone (fault tests); sol_alloc_count() says how many were made. */
void *sol_calloc(size_t count, size_t bytes);
void *sol_aligned_calloc(size_t alignment, size_t bytes); /* freed with sol_free too */
char *sol_strdup(const char *text);
void sol_free(void *memory);
/* Of a handle whose magic is gone: freed when as many others as that have come here, so that who
 * uses it once more finds it gone, and not another's memory. Any thread. */
#define SOL_FREE_LATE 64u
void sol_free_late(void *memory);
uint64_t sol_alloc_count(void);
/* For tests in one process: from now on fail the k-th and all later allocations; 0: none. */
void sol_alloc_fail_from(uint64_t k);

/* ---- environment: strict parsers. Unset or empty leaves *value alone and returns SOL_OK; what
 * cannot be read returns SOL_ERR_ARGUMENT with a text naming variable, content and what was
 * expected, in `why`. Sizes take K, M, G (powers of 1024). */
sol_status_t sol_env_int(const char *name, long minimum, long maximum, long *value, char *why,
                         size_t why_bytes);
sol_status_t sol_env_size(const char *name, size_t minimum, size_t maximum, size_t *value,
                          char *why, size_t why_bytes);
/* One such size ("64K") of a text that holds several; false: it is none. */
bool sol_read_size(const char *text, size_t *bytes);
/* `choices` ends with NULL; *value becomes the index of the one that matches. */
sol_status_t sol_env_choice(const char *name, const char *const *choices, int *value, char *why,
                            size_t why_bytes);

/* The content of a variable that names a file or a directory; NULL where it is unset or empty, and
 * in a program that runs with more rights than its caller (set-user-id): that one may not choose
 * what such a program reads, writes or loads. */
const char *sol_env_path(const char *name);

/* May code be loaded from `path`? Follows links; a name without a / is left to the loader. False
 * and `why` where it, or a directory on the way, can be written by every user. */
#define SOL_PATH_BYTES 4096 /* PATH_MAX: what realpath may write */
bool sol_path_trusted(const char *path, char resolved[SOL_PATH_BYTES], char *why, size_t why_bytes);

/* ftruncate: 0 or errno. Past the limit of file sizes (ulimit -f), which the kernel applies to
 * memory files too, and enforces by a signal that ends the program, it is EFBIG. */
int sol_file_resize(int fd, size_t bytes);
/* write, without SIGPIPE where nobody reads: that is EPIPE alone. In signal handlers too. */
ssize_t sol_file_write(int fd, const void *bytes, size_t count);
/* May `bytes` be written to fd, where it stands, as far as that limit goes? In signal handlers too.
 */
bool sol_file_room(int fd, size_t bytes);

/* ---- the last error of this thread (what sol_last_error(NULL) returns). Returns `status`. */
sol_status_t sol_thread_error(sol_status_t status, const char *format, ...) SOL_PRINTF(2, 3);
sol_status_t sol_thread_error_v(sol_status_t status, const char *format, va_list args);
const char *sol_thread_error_text(void);

/* ---- fork: grows by one in every forked child. A communicator remembers the value it was made
 * under; a different one means "this is a child". Costs one load. */
extern SOL_HIDDEN unsigned sol_fork_generation;
void sol_fork_watch(void); /* installs the handler once; any thread */

#ifdef __cplusplus
}
#endif
#endif
