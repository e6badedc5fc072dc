/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_library.h: the seam between perf's worker and what it measures: a library
 * (solccl, an MPI) and a kind of memory and clock (CPU; a GPU's comes here as one
 * more table, with device buffers, graphs and events behind the same functions).
 *
 * The worker does everything that decides a figure (data, checks, warm-up,
 * batches, clock) once, for all libraries alike. A library only makes calls.
 */
#ifndef SOL_TOOLS_PERF_LIBRARY_H
#define SOL_TOOLS_PERF_LIBRARY_H

#include "perf_check.h"
#include "perf_ops.h"

#define PERF_ERROR 512

/** Why something failed, for people. */
typedef struct perf_error {
    char text[PERF_ERROR];
} perf_error_t;

typedef struct perf_library perf_library_t;

/** Who this rank is, filled by perf_library.open. */
typedef struct perf_place {
    int rank, nranks;
    char version[128]; /**< of the library; one line */
    char socket[128];  /**< the driver's socket, when the library knows it; else "" */
} perf_place_t;

struct perf_library {
    const char *name;
    perf_rounding_t rounding;      /**< how sums of small types are accumulated */
    bool own_memory;               /**< memory_alloc also gives its plain buffers */
    bool broadcast_copies_at_root; /**< the root's recvbuf is written too (NCCL's definition) */

    /** Join the job; false with `error` filled. */
    bool (*open)(perf_place_t *place, perf_error_t *error);
    void (*close)(void);
    /** NULL, or why this case cannot be run. The same on all ranks. */
    const char *(*refuses)(const perf_case_t *c);
    /** `calls` operations, the first being number `first` (the root may rotate). False with
     * `error` filled when one failed. */
    bool (*batch)(const perf_case_t *c, const void *send, void *recv, size_t first, size_t calls,
                  perf_error_t *error);
    bool (*barrier)(perf_error_t *error);
    /** Memory of the library's own kinds; NULL: it has none. Collective. */
    void *(*memory_alloc)(perf_memory_kind_t kind, size_t bytes, perf_error_t *error);
    void (*memory_free)(perf_memory_kind_t kind, void *memory);
    /** Which protocol the case takes; NULL: it cannot say. */
    void (*explain)(const perf_case_t *c, char *text, size_t bytes);
};

/** Where buffers are and how their time is taken. */
typedef struct perf_device {
    const char *name;
    /** Before the library's open, in a rank that knows its number; NULL: nothing to do. Says what
     * is wrong on stderr. */
    bool (*open)(int rank);
    void *(*alloc)(size_t bytes);
    void (*release)(void *memory);
    bool (*write)(void *to, const void *from_host, size_t bytes);
    bool (*read)(void *to_host, const void *from, size_t bytes);
    /** The memory itself if the host can read it, so that no copy is needed; else NULL. */
    const void *(*host_view)(const void *memory);
    /**
     * Run warm + samples batches of `batch` calls and write each sample's nanoseconds. With
     * `alone`, every sample starts behind a barrier that is not in it.
     */
    bool (*time)(const perf_library_t *library, const perf_case_t *c, const void *send, void *recv,
                 size_t warm, size_t samples, size_t batch, bool alone, double *ns,
                 perf_error_t *error);
} perf_device_t;

extern const perf_device_t perf_device_cpu;
#ifdef SOL_WITH_CUDA
extern const perf_device_t perf_device_cuda;
#endif

/** Where calls go: a cudaStream_t, made by the device's open; NULL on CPU ranks. */
extern void *perf_stream;

/** The whole life of a worker: open, hello, commands, close. Returns the exit status. */
int perf_worker(const perf_library_t *library, const perf_device_t *device);

#endif
