/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce_avx2.c: the reductions with AVX2 and F16C. Compiled with -mavx2 -mf16c:
 * nothing here may run before sol_isa_usable(SOL_ISA_AVX2) has said so.
 */
#if defined(__x86_64__)
#if !defined(__AVX2__) || !defined(__F16C__)
#error "compile this file with -mavx2 -mf16c"
#endif
#include "coll/reduce_impl.h"

const sol_reduce_table_t sol_reduce_avx2 = REDUCE_TABLE;
#endif
