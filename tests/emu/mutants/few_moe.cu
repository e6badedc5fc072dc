/* SPDX-License-Identifier: Apache-2.0 */
/*
 * few_moe.cu: the kernels of solccl/moe.h and their launcher for one type: what a
 * mutant of them is compiled from.
 */
#define SOL_MOE_ONE_TYPE 1 /* moe.cu: bf16 stands for all */
#include "device/kernels/moe.cu"
