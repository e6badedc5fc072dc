/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe_rows_avx2.c: the loops of moe_rows.h with AVX2. Compiled with -mavx2 -mf16c: nothing
 * here may run before sol_isa_usable(SOL_ISA_AVX2) has said so.
 */
#if defined(__x86_64__)
#if !defined(__AVX2__)
#error "compile this file with -mavx2 -mf16c"
#endif
#include "coll/moe_rows_impl.h"

const sol_moe_rows_t sol_moe_rows_avx2 = MOE_ROWS;
#endif
