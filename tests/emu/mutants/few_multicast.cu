/* SPDX-License-Identifier: Apache-2.0 */
/*
 * few_multicast.cu: the kernels through the switch's multicast, with what else their test
 * launches, for floats and three ranks or more: what a mutant of them is compiled from.
 */
#define SOL_FEW_MULTICAST 1
#define SOL_FEW_TYPE SOL_FLOAT32
#include "few_kernels.cu"

#include "device/kernels/multicast.cu"
