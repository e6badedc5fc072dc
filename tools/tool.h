/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool.h: what the parts of the `solccl` command share: its subcommands,
 * its only door to memory, strict parsers, and the list of CPUs.
 *
 * The command is a user of the library like any other: it includes
 * solccl/solccl.h and nothing from src/.
 */
#ifndef SOL_TOOLS_TOOL_H
#define SOL_TOOLS_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TOOL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define TOOL_PRINTF(fmt, args)
#endif

#define TOOL_MAX_CPUS 1024
/** Exit status for a wrong command line, as everywhere. */
#define TOOL_USAGE 2

/* The subcommands; argv[0] is the subcommand's name. They return the exit status. */
int tool_run(int argc, char **argv);
int tool_perf(int argc, char **argv);
int tool_info(int argc, char **argv);
int tool_tune(int argc, char **argv);
int tool_emu(int argc, char **argv);
/* `solccl info --litmus`, in builds with CUDA. */
int tool_litmus(void);
int tool_doctor(int argc, char **argv);

/** Zeroed memory or NULL, with a message on stderr when refused. Freed with tool_free. */
void *tool_calloc(size_t count, size_t bytes);
/** Zeroed, page-aligned memory whose pages this thread has touched. Freed with tool_free. */
void *tool_pages(size_t bytes);
void tool_free(void *memory);

/** Print "solccl NAME: text" on stderr and return 1, the status of a failed command. */
int tool_error(const char *name, const char *format, ...) TOOL_PRINTF(2, 3);
/** The same for a wrong command line: adds a hint at --help and returns TOOL_USAGE. */
int tool_usage(const char *name, const char *format, ...) TOOL_PRINTF(2, 3);

/** "4096", "4K", "16M", "1G" (powers of 1024; a trailing B is allowed). False if it is not one. */
bool tool_parse_size(const char *text, size_t *value);
/** A decimal integer within limits and nothing else. */
bool tool_parse_int(const char *text, long minimum, long maximum, long *value);
/** A finite decimal number within limits and nothing else. */
bool tool_parse_real(const char *text, double minimum, double maximum, double *value);
/** "8", "4K", "16M": as short as it can be said exactly. Returns `text`. */
char *tool_format_size(size_t bytes, char text[32]);

/** Append to a bounded text; always terminated; returns false when it did not fit. */
bool tool_append(char *text, size_t bytes, const char *format, ...) TOOL_PRINTF(3, 4);

/** Monotonic nanoseconds. */
uint64_t tool_now_ns(void);
/** 2 * `words` hexadecimal digits per byte from the system's random source; false if refused. */
bool tool_random_hex(char *text, size_t random_bytes);

/**
 * The CPUs that this process may use, the first hardware thread of each core
 * before the second ones, so that the first N of the list are the best N.
 * Returns how many were written; *cores (may be NULL) gets the number of cores.
 */
int tool_cpus(int *cpus, int maximum, int *cores);
/** The lowest hardware thread of the core that `cpu` belongs to; `cpu` itself if unknown. */
int tool_core(int cpu);
/** Bind the calling thread. False if the system refuses. */
bool tool_bind(int cpu);
/** The CPU's name, as the system gives it, and the kernel's version. */
void tool_machine_name(char *text, size_t bytes);
void tool_kernel_name(char *text, size_t bytes);
/** The path of this executable; false if it cannot be found. */
bool tool_self_path(char *text, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
