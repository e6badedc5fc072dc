/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear.h: the product of sol_linear_all_reduce on a CPU. The twin of
 * device/kernels/linear.cuh: the same bits. Pure; the caller is in IEEE's default
 * floating-point mode (fpmode.h).
 *
 * The order of a sum: a vector is the weights in 16 bytes; lane l of 32 takes vectors
 * l, l+32 ... of a row, and adds up its products one after the other, each by one
 * fused multiply-add, from +0 on. Then lane l and l+16 are added, then l and l+8, 4,
 * 2, 1. Columns beyond the row's end, up to 32 whole vectors, count as +0 times +0.
 */
#ifndef SOL_COLL_LINEAR_H
#define SOL_COLL_LINEAR_H

#include "solccl/fused.h"

#include <stdbool.h>

/* Floats of scratch that sol_linear_product needs. */
size_t sol_linear_scratch(const sol_linear_args_t *args);
/* This rank's product, tokens rows of `outputs` in bf16. `plain`: without the CPU's fused
 * multiply-add; the same bits. */
void sol_linear_product(const sol_linear_args_t *args, void *product, float *scratch, bool plain);

#endif
