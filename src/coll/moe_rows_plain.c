/* SPDX-License-Identifier: Apache-2.0 */
/* moe_rows_plain.c: the loops of moe_rows.h on any machine. */
#include "coll/moe_rows_impl.h"

const sol_moe_rows_t sol_moe_rows_plain = MOE_ROWS;
