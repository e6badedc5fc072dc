/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe_rows.h: the loops over a row of moe.c that take its time, for bf16 and FP8, once
 * for each instruction set: moe_rows_plain.c, moe_rows_avx2.c. Branch-free, so that compilers
 * make vectors of them; the same bits in all.
 */
#ifndef SOL_COLL_MOE_ROWS_H
#define SOL_COLL_MOE_ROWS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct sol_moe_rows {
    /* sums = or += row (bf16) * weight, or row alone. */
    void (*add)(float *sums, const void *row, float weight, size_t count, bool first,
                bool weighted);
    /* to (bf16) = sums, rounded; NaNs canonical. */
    void (*narrow)(void *to, const float *sums, size_t count);
    void (*widen)(float *to, const void *row, size_t count);
    /* The largest |y|; NaN if any is. */
    float (*amax)(const float *y, size_t count);
    /* to (E4M3) = y * inverse, as sol_float_to_e4m3. */
    void (*quantise)(unsigned char *to, const float *y, float inverse, size_t count);
} sol_moe_rows_t;

extern const sol_moe_rows_t sol_moe_rows_plain, sol_moe_rows_avx2;

#endif
