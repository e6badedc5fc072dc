/* SPDX-License-Identifier: Apache-2.0 */
/*
 * few_halves.cu: as few_norm.cu, for mutants of sol_norm_start's and sol_norm_wait's kernels:
 * one type, and the forms for any number of ranks.
 */
#define SOL_NORM_ONE_TYPE 1
#define SOL_NORM_MANY_RANKS 1 /* no forms for two */
#include "few_kernels.cu"

#include "device/kernels/norm.cu"
#define kernel_for kernel_in_two /* (files of their own otherwise) */
#define row_of row_in_two
#define enqueue enqueue_in_two
#include "device/kernels/norm_two.cu"
#undef kernel_for
#undef row_of
#undef enqueue
#include "device/kernels/norm_halves.cu"
