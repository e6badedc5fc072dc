/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce_impl.h: all reductions for the instruction set that the including file
 * is compiled for, and the table of them. reduce_plain.c, reduce_avx2.c and
 * reduce_avx512.c are this file compiled three times; they differ in the width
 * of vec.h's vectors alone.
 */
#ifndef SOL_COLL_REDUCE_IMPL_H
#define SOL_COLL_REDUCE_IMPL_H

#include "coll/elements.h"
#include "coll/fpmode.h"
#include "coll/reduce_table.h"

typedef vec_u32 vec_of_vec; /* what reduce_type.h calls a step's memory image: vec or half */
typedef vec_half vec_of_half;

#define ELEMENT i8
#define ELEMENT_BYTES 1
#define RAW vec
#define UNROLL 4
#define GUARDED 0
#include "coll/reduce_type.h"

#define ELEMENT u8
#define ELEMENT_BYTES 1
#define RAW vec
#define UNROLL 4
#define GUARDED 0
#include "coll/reduce_type.h"

#define ELEMENT i32
#define ELEMENT_BYTES 4
#define RAW vec
#define UNROLL 4
#define GUARDED 0
#include "coll/reduce_type.h"

#define ELEMENT u32
#define ELEMENT_BYTES 4
#define RAW vec
#define UNROLL 4
#define GUARDED 0
#include "coll/reduce_type.h"

#define ELEMENT i64
#define ELEMENT_BYTES 8
#define RAW vec
#define UNROLL 4
#define GUARDED 0
#include "coll/reduce_type.h"

#define ELEMENT u64
#define ELEMENT_BYTES 8
#define RAW vec
#define UNROLL 4
#define GUARDED 0
#include "coll/reduce_type.h"

#define ELEMENT f16
#define ELEMENT_BYTES 2
#define RAW half
#define UNROLL 4
#define GUARDED 1
#include "coll/reduce_type.h"

#define ELEMENT bf16
#define ELEMENT_BYTES 2
#define RAW vec
#define UNROLL 2
#define GUARDED 1
#include "coll/reduce_type.h"

#define ELEMENT f32
#define ELEMENT_BYTES 4
#define RAW vec
#define UNROLL 4
#define GUARDED 1
#include "coll/reduce_type.h"

#define ELEMENT f64
#define ELEMENT_BYTES 8
#define RAW vec
#define UNROLL 4
#define GUARDED 1
#include "coll/reduce_type.h"

#define ELEMENT e4m3
#define ELEMENT_BYTES 1
#define RAW half
#define UNROLL 1
#define GUARDED 1
#include "coll/reduce_type.h"

#define ELEMENT e5m2
#define ELEMENT_BYTES 1
#define RAW half
#define UNROLL 1
#define GUARDED 1
#include "coll/reduce_type.h"

/* Row by dtype, column by op, in the order of solccl.h's enums. */
#define GUARDED_ROW(name)                                                                          \
    {                                                                                              \
        name##_sum, name##_prod, name##_min, name##_max, name##_avg                                \
    }
#define BARE_ROW(name)                                                                             \
    {                                                                                              \
        name##_sum_bare, name##_prod_bare, name##_min_bare, name##_max_bare, name##_avg_bare       \
    }
#define SCALE(name) name##_scale
#define BY_DTYPE(entry)                                                                            \
    {                                                                                              \
        [SOL_INT8] = entry(i8), [SOL_UINT8] = entry(u8), [SOL_INT32] = entry(i32),                 \
        [SOL_UINT32] = entry(u32), [SOL_INT64] = entry(i64), [SOL_UINT64] = entry(u64),            \
        [SOL_FLOAT16] = entry(f16), [SOL_BFLOAT16] = entry(bf16), [SOL_FLOAT32] = entry(f32),      \
        [SOL_FLOAT64] = entry(f64), [SOL_FLOAT8_E4M3] = entry(e4m3),                               \
        [SOL_FLOAT8_E5M2] = entry(e5m2)                                                            \
    }
#define REDUCE_TABLE                                                                               \
    {                                                                                              \
        BY_DTYPE(GUARDED_ROW), BY_DTYPE(BARE_ROW), BY_DTYPE(SCALE)                                 \
    }

#endif
