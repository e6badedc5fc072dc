/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype.c: sizes and names of element types and reduction operations. Constant
 * tables; safe for any value that an int can hold.
 */
#include "solccl/solccl.h"

/* core/comm.h says the same; coll stands below core and cannot include it */
#define SOL_FIRST_PREMUL 16

static const struct {
    const char *name;
    unsigned char bytes;
} dtypes[SOL_DTYPE_COUNT] = {
    [SOL_INT8] = {"int8", 1},
    [SOL_UINT8] = {"uint8", 1},
    [SOL_INT32] = {"int32", 4},
    [SOL_UINT32] = {"uint32", 4},
    [SOL_INT64] = {"int64", 8},
    [SOL_UINT64] = {"uint64", 8},
    [SOL_FLOAT16] = {"float16", 2},
    [SOL_BFLOAT16] = {"bfloat16", 2},
    [SOL_FLOAT32] = {"float32", 4},
    [SOL_FLOAT64] = {"float64", 8},
    [SOL_FLOAT8_E4M3] = {"float8_e4m3", 1},
    [SOL_FLOAT8_E5M2] = {"float8_e5m2", 1},
};

static const char *const redops[SOL_REDOP_COUNT] = {
    [SOL_SUM] = "sum", [SOL_PROD] = "prod", [SOL_MIN] = "min", [SOL_MAX] = "max", [SOL_AVG] = "avg",
};

size_t sol_dtype_size(sol_dtype_t dtype)
{
    return (unsigned)dtype < SOL_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

const char *sol_dtype_name(sol_dtype_t dtype)
{
    return (unsigned)dtype < SOL_DTYPE_COUNT ? dtypes[dtype].name : "invalid";
}

const char *sol_redop_name(sol_redop_t op)
{
    if ((unsigned)op < SOL_REDOP_COUNT) {
        return redops[op];
    }
    return (int)op >= SOL_FIRST_PREMUL && op != SOL_REDOP_MAX ? "premul_sum" : "invalid";
}
