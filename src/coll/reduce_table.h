/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce_table.h: the reductions of one instruction set, as reduce.c chooses
 * among them. Private to src/coll.
 */
#ifndef SOL_COLL_REDUCE_TABLE_H
#define SOL_COLL_REDUCE_TABLE_H

#include "coll/reduce.h"

typedef struct sol_reduce_table {
    sol_reduce_fn reduce[SOL_DTYPE_COUNT][SOL_REDOP_COUNT];
    sol_reduce_fn bare[SOL_DTYPE_COUNT][SOL_REDOP_COUNT];
    sol_scale_fn scale[SOL_DTYPE_COUNT];
} sol_reduce_table_t;

extern const sol_reduce_table_t sol_reduce_plain;
#if defined(__x86_64__)
extern const sol_reduce_table_t sol_reduce_avx2;
extern const sol_reduce_table_t sol_reduce_avx512;
#endif

#endif
