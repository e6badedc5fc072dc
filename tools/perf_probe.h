/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_probe.h: the worker's side of measuring the machine: what a cache line
 * and a stream of bytes cost between the very cores that run the ranks. Uses
 * nothing but loads and stores on memory that the workers share, so that no
 * library's protocol is in the figures. Every wait is bounded.
 */
#ifndef SOL_TOOLS_PERF_PROBE_H
#define SOL_TOOLS_PERF_PROBE_H

#include <stdbool.h>
#include <stddef.h>

/** What is moved. */
typedef enum perf_move {
    PERF_MOVE_COPY,   /**< from what another core has just written to own memory */
    PERF_MOVE_REDUCE, /**< own + what another core has just written, to own memory (fp32) */
    PERF_MOVE_LOCAL   /**< from own to own memory */
} perf_move_t;

/** Bytes that the shared descriptor must hold for so many slots of `bytes` data each. */
size_t perf_probe_bytes(int slots, size_t bytes);

typedef struct perf_probe perf_probe_t;

/** Map the shared descriptor. NULL if refused. */
perf_probe_t *perf_probe_open(int fd, int slots, size_t bytes);
void perf_probe_close(perf_probe_t *probe);

/**
 * Ping-pong of `rounds` round trips with one other worker on line `slot`; role 0 starts. Returns
 * the best one-way time in ns over several repetitions, on one line and on two; negative when the
 * other did not answer.
 */
double perf_probe_latency(perf_probe_t *probe, int role, int slot, int rounds);

/**
 * All `slots` workers at once, this one in `slot`: move `bytes` from `source`'s data. Returns the
 * best time in ns of `repetitions`, over the ways to do it that the CPU has; negative on failure.
 */
double perf_probe_move(perf_probe_t *probe, perf_move_t kind, size_t bytes, int slot, int source,
                       int slots, int repetitions);

#endif
