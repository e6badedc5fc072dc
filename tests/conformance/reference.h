/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference.h: what the results must be, bit for bit, written a second time.
 *
 * Follows solccl.h at sol_redop_t and nothing else: slow, generic, by way of decoded values and
 * exact scaling by powers of two. It must never share code with the library.
 */
#ifndef TESTS_REFERENCE_H
#define TESTS_REFERENCE_H

#include "solccl/solccl.h"

#include <stdbool.h>

/* Kinds of contributions. Every one is a pure function of (seed, rank, index). */
typedef enum {
    REF_BITS,    /* any bit pattern */
    REF_PLAIN,   /* floats of middling size, so that the order of a sum shows in its last bits */
    REF_SPECIAL, /* zeros, infinities, NaNs, subnormals, largest values, often */
    REF_PATTERN, /* rank 0 counts through all patterns, the others through a permutation */
    REF_KIND_COUNT
} ref_kind_t;

const char *ref_kind_name(ref_kind_t kind);
size_t ref_size(sol_dtype_t dtype);
bool ref_is_float(sol_dtype_t dtype);

/* Elements [first, first + count) of rank's contribution. */
void ref_fill(void *out, sol_dtype_t dtype, ref_kind_t kind, uint64_t seed, int rank, size_t first,
              size_t count);

/* out[i] = the reduction of srcs[0][i], srcs[1][i], ...; op is SOL_SUM ... SOL_AVG. */
void ref_reduce(void *out, const void *const *srcs, int nsrcs, size_t count, sol_dtype_t dtype,
                sol_redop_t op);

/* data[i] = round(data[i] * *scalar). */
void ref_scale(void *data, const void *scalar, size_t count, sol_dtype_t dtype);

/* The k-th special value of a type, as its bits; there are REF_SPECIALS of them. */
#define REF_SPECIALS 20
uint64_t ref_special(sol_dtype_t dtype, unsigned k);

/* A scalar for premultiplied sums: a pure function of (seed, rank). Writes ref_size bytes. */
void ref_scalar(void *out, sol_dtype_t dtype, uint64_t seed, int rank);

/* Element i of a float type other than FLOAT64, and back: rounded once, a NaN canonical. */
float ref_get(const void *data, sol_dtype_t dtype, size_t i);
void ref_put(void *data, sol_dtype_t dtype, size_t i, float value);

#endif
