/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair_ragged.h: the lookup of pair_ragged.cuh's kernels, for launch.cu.
 */
#ifndef SOL_DEVICE_KERNELS_PAIR_RAGGED_H
#define SOL_DEVICE_KERNELS_PAIR_RAGGED_H

#include "device/kernels/kernels.cuh"

/* Bytes of a block up to which units of less than 16 bytes are worth it. */
#define SOL_PAIR_RAGGED_MOST 65536

/* `unit`: the largest power of two, at most 16, that divides all addresses and sizes. Of the key
 * it goes by dtype, redop, spread and reduces; what the kernels leave out besides (another number
 * of ranks, roots, scalars, a second turn) is the caller's to know. Function NULL: there is none.
 */
struct sol_kernel sol_pair_ragged_for(const struct sol_kernel_key *key, unsigned unit);

#endif
