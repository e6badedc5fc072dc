/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce_reference.h: what solccl.h promises at sol_redop_t, one element at a
 * time, on bit patterns: integers modulo 2^bits in uint64_t, small floats and
 * fp32 in double (rounding its results to fp32 once more gives what one fp32
 * operation gives, for + - * /), fp64 in a type of 113 bits (by the same rule).
 */
#ifndef SOL_TEST_REDUCE_REFERENCE_H
#define SOL_TEST_REDUCE_REFERENCE_H

#include "float_reference.h"
#include "solccl/solccl.h"

typedef struct ref_type {
    sol_dtype_t dtype;
    const char *name;
    int bytes;
    bool is_signed;           /* of integers */
    const ref_format *format; /* NULL: an integer, or fp64 */
} ref_type;

static const ref_type ref_types[SOL_DTYPE_COUNT] = {
    {SOL_INT8, "int8", 1, true, NULL},
    {SOL_UINT8, "uint8", 1, false, NULL},
    {SOL_INT32, "int32", 4, true, NULL},
    {SOL_UINT32, "uint32", 4, false, NULL},
    {SOL_INT64, "int64", 8, true, NULL},
    {SOL_UINT64, "uint64", 8, false, NULL},
    {SOL_FLOAT16, "float16", 2, false, &ref_fp16},
    {SOL_BFLOAT16, "bfloat16", 2, false, &ref_bf16},
    {SOL_FLOAT32, "float32", 4, false, &ref_fp32},
    {SOL_FLOAT64, "float64", 8, false, NULL},
    {SOL_FLOAT8_E4M3, "float8_e4m3", 1, false, &ref_e4m3},
    {SOL_FLOAT8_E5M2, "float8_e5m2", 1, false, &ref_e5m2},
};

/* ---- elements of an array as patterns */

static inline uint64_t ref_get(const ref_type *type, const void *array, size_t index)
{
    uint64_t pattern = 0;
    memcpy(&pattern, (const unsigned char *)array + index * (size_t)type->bytes,
           (size_t)type->bytes);
    return pattern;
}

static inline void ref_set(const ref_type *type, void *array, size_t index, uint64_t pattern)
{
    memcpy((unsigned char *)array + index * (size_t)type->bytes, &pattern, (size_t)type->bytes);
}

/* ---- integers */

static inline uint64_t ref_mask(const ref_type *type)
{
    return type->bytes == 8 ? UINT64_MAX : ((uint64_t)1 << 8 * type->bytes) - 1;
}

static inline int64_t ref_sign_extend(const ref_type *type, uint64_t pattern)
{
    uint64_t top = (uint64_t)1 << (8 * type->bytes - 1);
    return (int64_t)(((pattern & ref_mask(type)) ^ top) - top);
}

static inline bool ref_integer_less(const ref_type *type, uint64_t a, uint64_t b)
{
    return type->is_signed ? ref_sign_extend(type, a) < ref_sign_extend(type, b) : a < b;
}

static inline uint64_t ref_integer(const ref_type *type, sol_redop_t op, const uint64_t *x, int n)
{
    uint64_t sum = x[0], product = x[0], least = x[0], greatest = x[0];
    for (int r = 1; r < n; r++) {
        sum = (sum + x[r]) & ref_mask(type);
        product = (product * x[r]) & ref_mask(type);
        least = ref_integer_less(type, x[r], least) ? x[r] : least;
        greatest = ref_integer_less(type, greatest, x[r]) ? x[r] : greatest;
    }
    switch (op) {
    case SOL_SUM:
        return sum;
    case SOL_PROD:
        return product;
    case SOL_MIN:
        return least;
    case SOL_MAX:
        return greatest;
    default:
        return type->is_signed ? (uint64_t)(ref_sign_extend(type, sum) / n) & ref_mask(type)
                               : sum / (uint64_t)n;
    }
}

/* ---- floats of at most 32 bits */

/* The least, or the greatest: -0 below +0; NaN if either is. */
static inline double ref_extreme(double a, double b, bool least)
{
    if (isnan(a) || isnan(b))
        return (double)NAN;
    bool a_below = a < b || (a == b && signbit(a) && !signbit(b));
    return a_below == least ? a : b;
}

static inline uint64_t ref_float(const ref_type *type, sol_redop_t op, const uint64_t *x, int n)
{
    double result = ref_decode(type->format, x[0]);
    for (int r = 1; r < n; r++) {
        double value = ref_decode(type->format, x[r]);
        if (op == SOL_MIN || op == SOL_MAX)
            result = ref_extreme(result, value, op == SOL_MIN);
        else
            result = (double)(float)(op == SOL_PROD ? result * value : result + value);
    }
    if (op == SOL_AVG)
        result = (double)(float)(result / n);
    return ref_encode(type->format, result);
}

/* ---- fp64 */

#if defined(__x86_64__)
typedef __float128 ref_wide;
#else
typedef long double ref_wide; /* 113 bits on aarch64 */
#endif

static inline uint64_t ref_double(sol_redop_t op, const uint64_t *x, int n)
{
    double result, value;
    memcpy(&result, x, sizeof result);
    for (int r = 1; r < n; r++) {
        memcpy(&value, x + r, sizeof value);
        if (op == SOL_MIN || op == SOL_MAX)
            result = ref_extreme(result, value, op == SOL_MIN);
        else
            result = (double)(op == SOL_PROD ? (ref_wide)result * (ref_wide)value
                                             : (ref_wide)result + (ref_wide)value);
    }
    if (op == SOL_AVG)
        result = (double)((ref_wide)result / (ref_wide)n);
    uint64_t pattern;
    memcpy(&pattern, &result, sizeof pattern);
    return isnan(result) ? 0x7ff8000000000000u : pattern;
}

/* ---- any type */

/* The reduction of n patterns, in order. */
static inline uint64_t ref_reduce(const ref_type *type, sol_redop_t op, const uint64_t *x, int n)
{
    if (type->format)
        return ref_float(type, op, x, n);
    return type->dtype == SOL_FLOAT64 ? ref_double(op, x, n) : ref_integer(type, op, x, n);
}

/* A premultiplied contribution: the product, rounded to the type. */
static inline uint64_t ref_scale(const ref_type *type, uint64_t x, uint64_t scalar)
{
    const uint64_t both[2] = {x, scalar};
    return ref_reduce(type, SOL_PROD, both, 2);
}

#endif
