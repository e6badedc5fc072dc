/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_ops.c: names, shapes and nccl-tests' formulas (see perf_ops.h).
 */
#include "perf_ops.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *alias;
    sol_func_t func;
    bool reduces, rooted;
    bool shared_out; /* a nominal size is divided by the number of ranks */
} ops[PERF_OP_COUNT] = {
    [PERF_ALL_REDUCE] = {"all_reduce", "allreduce", SOL_FUNC_ALL_REDUCE, true, false, false},
    [PERF_ALL_GATHER] = {"all_gather", "allgather", SOL_FUNC_ALL_GATHER, false, false, true},
    [PERF_REDUCE_SCATTER] = {"reduce_scatter", "reducescatter", SOL_FUNC_REDUCE_SCATTER, true,
                             false, true},
    [PERF_ALL_TO_ALL] = {"all_to_all", "alltoall", SOL_FUNC_ALL_TO_ALL, false, false, true},
    [PERF_BROADCAST] = {"broadcast", "bcast", SOL_FUNC_BROADCAST, false, true, false},
    [PERF_REDUCE] = {"reduce", "reduce", SOL_FUNC_REDUCE, true, true, false},
    [PERF_GATHER] = {"gather", "gather", SOL_FUNC_GATHER, false, true, true},
    [PERF_SCATTER] = {"scatter", "scatter", SOL_FUNC_SCATTER, false, true, true},
    [PERF_SENDRECV] = {"sendrecv", "send_recv", SOL_FUNC_SEND, false, false, false},
    [PERF_BARRIER] = {"barrier", "barrier", SOL_FUNC_BARRIER, false, false, false},
};

static const struct {
    const char *name, *alias;
    size_t bytes;
} dtypes[SOL_DTYPE_COUNT] = {
    [SOL_INT8] = {"int8", "char", 1},
    [SOL_UINT8] = {"uint8", "u8", 1},
    [SOL_INT32] = {"int32", "int", 4},
    [SOL_UINT32] = {"uint32", "u32", 4},
    [SOL_INT64] = {"int64", "i64", 8},
    [SOL_UINT64] = {"uint64", "u64", 8},
    [SOL_FLOAT16] = {"float16", "half", 2},
    [SOL_BFLOAT16] = {"bfloat16", "bf16", 2},
    [SOL_FLOAT32] = {"float32", "float", 4},
    [SOL_FLOAT64] = {"float64", "double", 8},
    [SOL_FLOAT8_E4M3] = {"float8_e4m3", "f8e4m3", 1},
    [SOL_FLOAT8_E5M2] = {"float8_e5m2", "f8e5m2", 1},
};

static const char *const redops[SOL_REDOP_COUNT] = {"sum", "prod", "min", "max", "avg"};

const char *perf_op_name(perf_op_t op)
{
    return op >= 0 && op < PERF_OP_COUNT ? ops[op].name : "invalid";
}

bool perf_op_parse(const char *text, perf_op_t *op)
{
    size_t length = strlen(text);
    int i;

    if (length > 5 && !strcmp(text + length - 5, "_perf"))
        length -= 5;
    for (i = 0; i < PERF_OP_COUNT; i++) {
        if ((strlen(ops[i].name) == length && !strncmp(ops[i].name, text, length)) ||
            (strlen(ops[i].alias) == length && !strncmp(ops[i].alias, text, length))) {
            *op = (perf_op_t)i;
            return true;
        }
    }
    return false;
}

bool perf_op_reduces(perf_op_t op)
{
    return ops[op].reduces;
}

bool perf_op_rooted(perf_op_t op)
{
    return ops[op].rooted;
}

sol_func_t perf_op_func(perf_op_t op)
{
    return ops[op].func;
}

const char *perf_dtype_name(sol_dtype_t dtype)
{
    return (int)dtype >= 0 && dtype < SOL_DTYPE_COUNT ? dtypes[dtype].name : "invalid";
}

size_t perf_dtype_size(sol_dtype_t dtype)
{
    return (int)dtype >= 0 && dtype < SOL_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

bool perf_dtype_parse(const char *text, sol_dtype_t *dtype)
{
    int i;

    for (i = 0; i < SOL_DTYPE_COUNT; i++) {
        if (!strcmp(text, dtypes[i].name) || !strcmp(text, dtypes[i].alias)) {
            *dtype = (sol_dtype_t)i;
            return true;
        }
    }
    return false;
}

const char *perf_redop_name(sol_redop_t redop)
{
    return (int)redop >= 0 && redop < SOL_REDOP_COUNT ? redops[redop] : "invalid";
}

bool perf_redop_parse(const char *text, sol_redop_t *redop)
{
    int i;

    for (i = 0; i < SOL_REDOP_COUNT; i++) {
        if (!strcmp(text, redops[i])) {
            *redop = (sol_redop_t)i;
            return true;
        }
    }
    return false;
}

size_t perf_count_for(perf_op_t op, sol_dtype_t dtype, size_t bytes, int nranks)
{
    size_t count = bytes / perf_dtype_size(dtype);

    if (op == PERF_BARRIER)
        return 0;
    return ops[op].shared_out ? count / (size_t)nranks : count;
}

perf_shape_t perf_shape(const perf_case_t *c, int nranks)
{
    perf_shape_t shape = {c->count, c->count};
    size_t all = c->count * (size_t)nranks;

    switch (c->op) {
    case PERF_ALL_GATHER:
    case PERF_GATHER:
        shape.recv = all;
        break;
    case PERF_REDUCE_SCATTER:
    case PERF_SCATTER:
        shape.send = all;
        break;
    case PERF_ALL_TO_ALL:
        shape.send = shape.recv = all;
        break;
    case PERF_BARRIER:
        shape.send = shape.recv = 0;
        break;
    default:
        break;
    }
    return shape;
}

size_t perf_bytes(const perf_case_t *c, int nranks)
{
    perf_shape_t shape = perf_shape(c, nranks);

    return (shape.send > shape.recv ? shape.send : shape.recv) * perf_dtype_size(c->dtype);
}

int perf_root(const perf_case_t *c, size_t i, int nranks)
{
    return c->root == PERF_ROOT_ROTATES ? (int)(i % (size_t)nranks) : c->root;
}

/* Every algbw of nccl-tests is the `size` column over the time. */
double perf_algbw(const perf_case_t *c, int nranks, double us)
{
    return us > 0 ? (double)perf_bytes(c, nranks) / us * 1e-3 : 0;
}

double perf_busbw(const perf_case_t *c, int nranks, double us)
{
    double n = nranks, factor = 1;

    switch (c->op) {
    case PERF_ALL_REDUCE:
        factor = 2 * (n - 1) / n;
        break;
    case PERF_ALL_GATHER:
    case PERF_REDUCE_SCATTER:
    case PERF_ALL_TO_ALL:
    case PERF_GATHER:
    case PERF_SCATTER:
        factor = (n - 1) / n;
        break;
    default: /* broadcast, reduce, sendrecv: 1 */
        break;
    }
    return factor * perf_algbw(c, nranks, us);
}

static const char *const modes[PERF_MODE_COUNT] = {"cpu", "graph", "graph-pdl", "eager"};

const char *perf_mode_name(perf_mode_t mode)
{
    return modes[mode];
}

bool perf_mode_parse(const char *text, perf_mode_t *mode)
{
    int i;

    for (i = 0; i < PERF_MODE_COUNT; i++) {
        if (!strcmp(text, modes[i])) {
            *mode = (perf_mode_t)i;
            return true;
        }
    }
    return false;
}

void perf_case_write(const perf_case_t *c, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s %s %s %d %d %d %zu %s", perf_op_name(c->op),
             perf_dtype_name(c->dtype), perf_redop_name(c->redop), c->in_place, c->root,
             (int)c->memory, c->count, perf_mode_name(c->mode));
}

bool perf_case_read(const char *text, perf_case_t *c)
{
    char op[32], dtype[32], redop[32], mode[32];
    int in_place, root, memory;
    size_t count;

    if (sscanf(text, "%31s %31s %31s %d %d %d %zu %31s", op, dtype, redop, &in_place, &root,
               &memory, &count, mode) != 8)
        return false;
    if (!perf_op_parse(op, &c->op) || !perf_dtype_parse(dtype, &c->dtype) ||
        !perf_redop_parse(redop, &c->redop) || !perf_mode_parse(mode, &c->mode) || memory < 0 ||
        memory > PERF_MEMORY_SYMMETRIC)
        return false;
    c->in_place = in_place != 0;
    c->root = root;
    c->memory = (perf_memory_kind_t)memory;
    c->count = count;
    return true;
}
