/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_options.h: the command line of `solccl perf`.
 */
#ifndef SOL_TOOLS_PERF_OPTIONS_H
#define SOL_TOOLS_PERF_OPTIONS_H

#include "perf_driver.h"

typedef struct perf_options {
    bool ops[PERF_OP_COUNT];
    bool dtypes[SOL_DTYPE_COUNT];
    bool redops[SOL_REDOP_COUNT];
    bool in_place[2]; /* out of place, in place */
    bool place_given; /* by the user; else broadcast is measured as its peers have it */
    size_t begin, end, step_bytes;
    double factor;
    long ranks;      /**< 0: not given */
    long iterations; /**< operations a round; 0: as many as fill round_ms */
    long warm, checks, rounds;
    double round_ms, timeout_s;
    bool alone;
    long root; /**< -1: rotates */
    perf_memory_kind_t memory;
    bool bind, sol, worker;
    bool gpu; /**< --device cuda */
    bool modes[PERF_MODE_COUNT];
    char library[32]; /**< of a worker; "": solccl */
    char peers[PERF_MAX_SIDES - 1][32];
    int npeers;
    const char *json, *csv, *report, *from;
    bool append;
} perf_options_t;

/** -1: go on; else the status to end with (0 after --help). */
int perf_options_parse(int argc, char **argv, perf_options_t *options);

/** The size after `bytes`, as nccl-tests steps: + step or * factor; 0 when past the end. */
size_t perf_next_size(const perf_options_t *options, size_t bytes);

#endif
