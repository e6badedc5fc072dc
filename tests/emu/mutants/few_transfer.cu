/* SPDX-License-Identifier: Apache-2.0 */
/*
 * few_transfer.cu: the kernels of solccl/transfer.h and their launcher, with what
 * else their test launches: what a mutant of them is compiled from.
 */
#include "few_kernels.cu"

#include "device/kernels/transfer.cu"
