/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize.h: groups of 128 numbers as 8-bit values with a scale, as
 * solccl/quantized.h defines them, on a CPU. The twin of
 * device/kernels/quantized.cuh: the same bits. Pure; the caller is in IEEE's
 * default floating-point mode (fpmode.h).
 *
 * A packed group: 128 values, then the scale's 4 bytes.
 */
#ifndef SOL_COLL_QUANTIZE_H
#define SOL_COLL_QUANTIZE_H

#include "solccl/quantized.h"

#include <stdbool.h>

#define SOL_PACKED_GROUP (SOL_QUANTIZED_GROUP + sizeof(float))

/* Steps of a call: `asked`, or the ones that keep the link busy for less time. Two hops send
 * 2 (n-1)/n of the message where one sends n-1 times all of it, and cost some 1 us, or 384 KB,
 * more. */
static inline int sol_quantized_steps(size_t count, int nranks, int asked)
{
    const size_t n = (size_t)nranks;
    if (asked != 0 || nranks <= 2) {
        return asked != 0 ? asked : 1;
    }
    return count / n > ((size_t)384 << 10) / ((n - 1) * (n - 2)) ? 2 : 1;
}

/* `groups` groups of the `count` elements at `from`; zeros beyond the end. */
void sol_quantise(unsigned char *to, const void *from, sol_dtype_t dtype, size_t count,
                  size_t groups, sol_dtype_t wire);
/* sums[i] = or += what the groups stand for; `groups` * 128 floats. */
void sol_dequantise(float *sums, const unsigned char *from, size_t groups, sol_dtype_t wire,
                    bool add);
/* `count` floats to a float type, rounded once; a NaN becomes the canonical one. */
void sol_round_floats(void *to, const float *from, sol_dtype_t dtype, size_t count);

#endif
