/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce_avx512.c: the reductions with AVX-512 F, BW, VL and DQ. Compiled with
 * those flags: nothing here may run before sol_isa_usable(SOL_ISA_AVX512) has
 * said so. bf16 is rounded by hand: the vcvtneps2bf16 of AVX512_BF16 takes
 * subnormals for zeros.
 */
#if defined(__x86_64__)
#if !defined(__AVX512BW__) || !defined(__AVX512VL__) || !defined(__AVX512DQ__)
#error "compile this file with -mavx512f -mavx512bw -mavx512vl -mavx512dq"
#endif
#include "coll/reduce_impl.h"

const sol_reduce_table_t sol_reduce_avx512 = REDUCE_TABLE;
#endif
