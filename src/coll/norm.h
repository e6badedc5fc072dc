/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm.h: residual, norm and quantisation of one token's row on a CPU, as
 * solccl/fused.h defines them. The twin of device/kernels/norm.cuh: the same
 * bits. Pure; the caller is in IEEE's default floating-point mode (fpmode.h).
 *
 * The order of a row's sums, on both sides:
 *   vector   the elements in 16 bytes of dtype (4 or 8), as a tree of neighbours
 *   block    32 vectors v: v and v+16, then v and v+8, 4, 2, 1
 *   row      lane l of 32 adds up blocks l, l+32, l+64 ... from +0 on; then as a block
 * Elements beyond the row's end count as +0.
 */
#ifndef SOL_COLL_NORM_H
#define SOL_COLL_NORM_H

#include "solccl/fused.h"

#include <stdbool.h>

/* Floats that a row of scales has. */
size_t sol_norm_scales(const sol_norm_args_t *args);
/* The scale of a group with that largest |y|; `power`: rounded up to a power of two. */
float sol_norm_scale(float amax, sol_dtype_t dtype, bool power);
/* Is it 1 byte an element? */
bool sol_norm_quantised(sol_dtype_t dtype);

/* sums[i] (fp32, `hidden` of them) of token `token` to its outputs; `sums` is used as scratch. */
void sol_norm_row(const sol_norm_args_t *args, size_t token, float *sums);
/* One row from all ranks' contributions, added up in rank order; its residual is row `residual`,
 * and its output row `output`, of the matrices in `args`. `sums`: room for two rows. */
void sol_norm_finish_row(const sol_norm_args_t *args, const char *const *contributions, int nranks,
                         size_t residual, size_t output, float *sums);
/* `count` elements of a float type to fp32. */
void sol_norm_widen(float *to, const void *from, sol_dtype_t dtype, size_t count);

#endif
