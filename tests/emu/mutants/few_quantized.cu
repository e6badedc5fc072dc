/* SPDX-License-Identifier: Apache-2.0 */
/*
 * few_quantized.cu: the kernels of solccl/quantized.h and their launcher for one
 * type, with what else their test launches: what a mutant of them is compiled from.
 */
#define SOL_QUANTIZED_ONE_TYPE 1 /* quantized.cu: bf16 stands for all */
#include "few_kernels.cu"

#include "device/kernels/quantized.cu"
