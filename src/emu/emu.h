/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu.h: an emulated machine of several GPUs on which the project's kernels run
 * as they are, compiled by gcc or clang, without CUDA.
 *
 * What it is for: to run kernels under schedules and memory behaviour that PTX
 * allows and hardware shows once in a week, and to say at which line they rely
 * on more than that. It is not for speed, and it models no time.
 *
 *     emu_open(&options);              // a machine of options.devices GPUs
 *     ... cudaMalloc, launches, cudaStreamSynchronize: emu's own runtime ...
 *     if (emu_failed()) puts(emu_report());
 *     emu_close();
 *
 * Everything follows from the seed: one seed, one run. See emu_memory.c for
 * what memory may do, emu_sched.c for what the scheduler may do.
 *
 * Must never: be linked into the library; depend on CUDA.
 */
#ifndef SOL_EMU_EMU_H
#define SOL_EMU_EMU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EMU_MAX_DEVICES 8

struct emu_options {
    uint64_t seed;
    int devices;        /* at most EMU_MAX_DEVICES; 0: 2 */
    int sms;            /* of each; 0: 16 */
    int ctas_per_sm;    /* resident at once; 0: 2 */
    size_t arena_bytes; /* all memory of all devices; 0: 2 GiB (reserved, not used) */
    /* A wait that nobody will end is an error (false), or makes the clock go on until the waiting
     * kernel gives up by itself (true: for tests of time-outs). */
    bool time_passes;
    /* Several threads of the host use the machine: nobody's wait is a deadlock while another one
     * may still come and launch what it waits for (see emu_turns.c). Runs do not repeat then. */
    bool threads;
    /* Says in words what lies at an address, for reports. May be NULL. */
    void (*explain)(const void *address, char *text, size_t bytes);
};

/* Make the machine; one at a time; closes an open one. False: the system refused memory. */
bool emu_open(const struct emu_options *options);
void emu_close(void);

/* The first error, as a text of several lines; "" if there was none. After an error nothing runs
 * any more and the runtime's functions return cudaErrorLaunchFailure. */
bool emu_failed(void);
const char *emu_report(void);

/* Name memory from cudaMalloc for reports. The text is copied. */
void emu_name(const void *memory, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Let addresses from `base` on, at which nothing lies, stand for all of these memories at once, as
 * the switch's multicast does; 0 bytes: for none any more. False: there are too many such ranges.
 */
#define EMU_MULTICAST_MEMORIES 8
bool emu_multicast(const void *base, size_t bytes, char *const *memories, int count);
/* Declare bytes unwritten: reading them is an error until they have been written. */
void emu_poison(const void *memory, size_t bytes);
/* Index of the first unwritten byte, or `bytes`. */
size_t emu_first_unwritten(const void *memory, size_t bytes);

struct emu_counts {
    uint64_t steps;     /* strong accesses, fences, barriers, votes */
    uint64_t switches;  /* from one CUDA thread to another */
    uint64_t threads;   /* CUDA threads that ran */
    uint64_t late;      /* loads that were given an old value while a newer one was under way */
    uint64_t overtaken; /* stores that landed before an older one to the same word */
};
struct emu_counts emu_counts(void);

#ifdef __cplusplus
}
#endif
#endif
