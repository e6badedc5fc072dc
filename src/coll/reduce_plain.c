/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce_plain.c: the reductions for every CPU: what the compiler's baseline
 * offers (SSE2 on x86-64, NEON on aarch64) and no more.
 */
#include "coll/reduce_impl.h"

const sol_reduce_table_t sol_reduce_plain = REDUCE_TABLE;
