/* SPDX-License-Identifier: Apache-2.0 */
/*
 * few_fused.cu: the kernels of solccl/fused.h, but for the norm (few_norm.cu), and their
 * launchers for one type, with what else their test launches: what a mutant of them is
 * compiled from.
 */
#define SOL_VOCAB_ONE_TYPE 1 /* vocab.cu: bf16 stands for all */
#define SOL_LINEAR_ONE_TYPE 1
#include "few_kernels.cu"

#include "device/kernels/linear.cu"
#define kernel_for vocab_kernel_for /* (files of their own otherwise) */

#include "device/kernels/vocab.cu"
