/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_check.h: the data that perf sends and the results it expects, computed
 * without the library: a contribution is a function of (seed, rank, index), so
 * every rank can compute every other rank's, and the reference of any element.
 *
 * Three kinds of data, each the hardest test that is still fair to any library:
 *  - bits: every bit random; for operations that only move data, and for
 *    reductions of integers, whose reference wraps as the types do. Compared
 *    bit for bit.
 *  - exact: floating-point numbers so small and whole that every order of
 *    summation gives the same value. Compared exactly.
 *  - real: floating-point numbers with random mantissas. Compared with a
 *    float64 reference, within the error bound that the accumulation proves:
 *    in fp32 or wider (PERF_ROUND_WIDE, solccl), or rounding to the type at each
 *    step (PERF_ROUND_EACH, MPI).
 *
 * Every comparison that fails counts one element as wrong; NaN never passes.
 */
#ifndef SOL_TOOLS_PERF_CHECK_H
#define SOL_TOOLS_PERF_CHECK_H

#include "perf_ops.h"

#include <stdint.h>

typedef enum perf_data { PERF_DATA_BITS, PERF_DATA_EXACT, PERF_DATA_REAL } perf_data_t;
typedef enum perf_rounding { PERF_ROUND_WIDE, PERF_ROUND_EACH } perf_rounding_t;

/** The kinds of data that a case is checked with: 1 or 2, written to kinds[]. */
int perf_data_kinds(const perf_case_t *c, perf_data_t kinds[2]);

/** Elements [first, first + count) of what `rank` of `nranks` sends. */
void perf_fill(const perf_case_t *c, int nranks, int rank, perf_data_t kind, uint64_t seed,
               size_t first, size_t count, void *out);

/** How many elements of `recv`, all of this rank's receive buffer, are wrong when `root` was the
 * root. Ranks that receive nothing (reduce, gather beside the root) have 0 wrong. */
size_t perf_wrong(const perf_case_t *c, int nranks, int rank, int root, perf_data_t kind,
                  uint64_t seed, perf_rounding_t rounding, const void *recv);

/** How many elements of a send buffer differ from what perf_fill wrote: sending must not write. */
size_t perf_changed(const perf_case_t *c, int nranks, int rank, perf_data_t kind, uint64_t seed,
                    const void *send);

/** The value of element `index`; for floating-point types only. */
double perf_decode(sol_dtype_t dtype, const void *data, size_t index);

#endif
