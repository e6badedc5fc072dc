/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_ops.h: what `solccl perf` can measure: operations, types and reductions
 * by name, the shape of each operation's buffers for a size, and nccl-tests'
 * formulas for algbw and busbw. Pure; needs no library to be linked, so that the
 * peers' programs use the very same definitions.
 */
#ifndef SOL_TOOLS_PERF_OPS_H
#define SOL_TOOLS_PERF_OPS_H

#include "solccl/solccl.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum perf_op {
    PERF_ALL_REDUCE,
    PERF_ALL_GATHER,
    PERF_REDUCE_SCATTER,
    PERF_ALL_TO_ALL,
    PERF_BROADCAST,
    PERF_REDUCE,
    PERF_GATHER,
    PERF_SCATTER,
    PERF_SENDRECV, /**< to the next rank, from the one before, as nccl-tests' sendrecv */
    PERF_BARRIER,
    PERF_OP_COUNT
} perf_op_t;

/** The first five: what `solccl perf all` measures. */
#define PERF_MAIN_OPS 5

/** The root of a rooted operation that is rank (i mod n) in the i-th call. */
#define PERF_ROOT_ROTATES (-1)

/** How buffers are made: as nccl-tests' -R. */
typedef enum perf_memory_kind {
    PERF_MEMORY_PLAIN = 0,
    PERF_MEMORY_REGISTERED = 1,
    PERF_MEMORY_SYMMETRIC = 2
} perf_memory_kind_t;

/** How calls are issued and timed: CPU ranks have one way, GPU ranks three. */
typedef enum perf_mode {
    PERF_MODE_CPU,
    PERF_MODE_GRAPH,     /**< calls in a CUDA graph */
    PERF_MODE_GRAPH_PDL, /**< the same, each set up while the one before runs */
    PERF_MODE_EAGER,     /**< calls launched one by one */
    PERF_MODE_COUNT
} perf_mode_t;

/** One thing to measure. `count` is the count argument of the call. */
typedef struct perf_case {
    perf_op_t op;
    sol_dtype_t dtype;
    sol_redop_t redop;
    bool in_place;
    int root; /**< or PERF_ROOT_ROTATES */
    perf_memory_kind_t memory;
    size_t count;
    perf_mode_t mode;
} perf_case_t;

/** Elements in the buffers of one rank (of the root, where only it has them). */
typedef struct perf_shape {
    size_t send, recv;
} perf_shape_t;

const char *perf_op_name(perf_op_t op);
/** Accepts solccl's names and nccl-tests' (alltoall, all_reduce_perf ...). */
bool perf_op_parse(const char *text, perf_op_t *op);
bool perf_op_reduces(perf_op_t op);
bool perf_op_rooted(perf_op_t op);
sol_func_t perf_op_func(perf_op_t op);

const char *perf_dtype_name(sol_dtype_t dtype);
size_t perf_dtype_size(sol_dtype_t dtype);
/** Accepts "float32" and nccl-tests' "float", "half", "double", "bf16", "fp8_e4m3", ... */
bool perf_dtype_parse(const char *text, sol_dtype_t *dtype);
const char *perf_redop_name(sol_redop_t redop);
bool perf_redop_parse(const char *text, sol_redop_t *redop);

/** The count argument for a nominal size in bytes, as nccl-tests: all_gather, reduce_scatter,
 * all_to_all, gather and scatter share the size out over the ranks. */
size_t perf_count_for(perf_op_t op, sol_dtype_t dtype, size_t bytes, int nranks);
perf_shape_t perf_shape(const perf_case_t *c, int nranks);
/** nccl-tests' `size` column: the larger of the two buffers, in bytes. */
size_t perf_bytes(const perf_case_t *c, int nranks);
/** Which rank is the root in call number `i`. */
int perf_root(const perf_case_t *c, size_t i, int nranks);

/** nccl-tests' formulas, in GB/s (10^9) for a time in microseconds; 0 for a barrier. */
double perf_algbw(const perf_case_t *c, int nranks, double us);
double perf_busbw(const perf_case_t *c, int nranks, double us);

/** "cpu", "graph", "graph-pdl", "eager": results' key. */
const char *perf_mode_name(perf_mode_t mode);
bool perf_mode_parse(const char *text, perf_mode_t *mode);

/** "all_reduce float32 sum 0 -1 0 1024 cpu": a case on the wire, and back. */
void perf_case_write(const perf_case_t *c, char *text, size_t bytes);
bool perf_case_read(const char *text, perf_case_t *c);

#endif
