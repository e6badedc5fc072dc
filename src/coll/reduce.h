/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce.h: the arithmetic of reductions on a CPU, as solccl.h defines it at
 * sol_redop_t. Pure: no communication, no state but the instruction set chosen
 * once. Every instruction set gives the same bits, and so does every split of
 * the range, whatever the caller's MXCSR (flush-to-zero, rounding) is.
 */
#ifndef SOL_COLL_REDUCE_H
#define SOL_COLL_REDUCE_H

#include "solccl/solccl.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * dst[i] = finish(srcs[0][i] op srcs[1][i] op ... srcs[nsrcs-1][i]), i < count, the sources taken
 * in the order given, for SOL_AVG divided by `nsrcs`. dst may equal one or more of the sources
 * exactly; other overlap is not allowed. No alignment is assumed. nsrcs >= 1.
 */
typedef void (*sol_reduce_fn)(void *dst, const void *const *srcs, int nsrcs, size_t count);

/* dst[i] = round(src[i] * *scalar): the premultiplied sum's first half. dst may equal src. */
typedef void (*sol_scale_fn)(void *dst, const void *src, const void *scalar, size_t count);

typedef enum { SOL_ISA_PLAIN, SOL_ISA_AVX2, SOL_ISA_AVX512, SOL_ISA_COUNT } sol_isa;

/* The best this CPU has, unless SOLCCL_ISA=plain|avx2|avx512 asks for less. */
sol_isa sol_isa_best(void);
bool sol_isa_usable(sol_isa isa);
const char *sol_isa_name(sol_isa isa);

/* Never NULL for valid dtype and op (op < SOL_REDOP_COUNT) and a usable isa. Look up once, keep. */
sol_reduce_fn sol_reduce_for(sol_isa isa, sol_dtype_t dtype, sol_redop_t op);
/* The same function without its look at the floating-point mode, which costs some 5 ns: for a
 * caller that called sol_fp_enter (coll/fpmode.h) before, best while it waited anyway, and calls
 * sol_fp_leave when it has done with all its reductions. */
sol_reduce_fn sol_reduce_bare_for(sol_isa isa, sol_dtype_t dtype, sol_redop_t op);
sol_scale_fn sol_scale_for(sol_isa isa, sol_dtype_t dtype);

/* memcpy for ranges beyond the cache: stores that do not read the destination first where that
 * pays; ends with the fence such stores need (sfence), so that a later release store publishes. */
void sol_copy_stream(void *dst, const void *src, size_t bytes);

/* reduce(dst, srcs, nsrcs, count) by stores of that kind, fence included, for results beyond the
 * cache that nobody on this CPU reads soon. nsrcs at most SOL_MAX_RANKS; element_bytes is the size
 * of the type that `reduce` is for. */
void sol_reduce_stream(sol_reduce_fn reduce, void *dst, const void *const *srcs, int nsrcs,
                       size_t count, size_t element_bytes);

#ifdef __cplusplus
}
#endif
#endif
