/* SPDX-License-Identifier: Apache-2.0 */
/*
 * few_norm.cu: the kernels of solccl/fused.h and their launcher for one type, with
 * what else their test launches: what a mutant of them is compiled from.
 */
#define SOL_NORM_ONE_TYPE 1 /* norm.cu: bf16 stands for all */
#include "few_kernels.cu"

#include "device/kernels/norm.cu"
#define kernel_for kernel_in_two /* (files of their own otherwise) */
#define row_of row_in_two
#define enqueue enqueue_in_two
#include "device/kernels/norm_two.cu"
