/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair_ragged.cu: the instances of pair_ragged.cuh. Sums in 16-bit floats and
 * fp32 have pair.cuh where all is aligned, and so has what only moves; integers
 * of one width add up in one kernel.
 */
#include "device/kernels/pair_ragged.cuh"
#include "device/kernels/pair_ragged.h"

template <int D, int OP, class U> static const void *of(bool spread)
{
    return spread ? (const void *)sol_pair_ragged_reduce_kernel<D, OP, U, true>
                  : (const void *)sol_pair_ragged_reduce_kernel<D, OP, U, false>;
}

/* Aligned, or in elements of E. */
template <int D, int OP, class E> static const void *reducer(bool spread, unsigned unit)
{
    return unit == 16          ? of<D, OP, struct sol_vector>(spread)
           : unit >= sizeof(E) ? of<D, OP, E>(spread)
                               : NULL;
}

/* The types of models. */
template <int D> static const void *sum(bool spread, unsigned unit)
{
    if (unit == 8)
        return of<D, SOL_SUM, uint64_t>(spread);
    if (unit == 4)
        return of<D, SOL_SUM, uint32_t>(spread);
    if constexpr (D != SOL_FLOAT32)
        if (unit == 2)
            return of<D, SOL_SUM, uint16_t>(spread);
    return NULL;
}

static const void *sum_for(sol_dtype_t dtype, bool spread, unsigned unit)
{
    switch (dtype) {
    case SOL_BFLOAT16:
        return sum<SOL_BFLOAT16>(spread, unit);
    case SOL_FLOAT16:
        return sum<SOL_FLOAT16>(spread, unit);
    case SOL_FLOAT32:
        return sum<SOL_FLOAT32>(spread, unit);
    case SOL_FLOAT64:
        return reducer<SOL_FLOAT64, SOL_SUM, uint64_t>(spread, unit);
    case SOL_INT32:
    case SOL_UINT32:
        return reducer<SOL_UINT32, SOL_SUM, uint32_t>(spread, unit);
    case SOL_INT64:
    case SOL_UINT64:
        return reducer<SOL_UINT64, SOL_SUM, uint64_t>(spread, unit);
    default:
        return NULL;
    }
}

template <int OP> static const void *extreme_for(sol_dtype_t dtype, bool spread, unsigned unit)
{
    return dtype == SOL_FLOAT32   ? reducer<SOL_FLOAT32, OP, uint32_t>(spread, unit)
           : dtype == SOL_FLOAT64 ? reducer<SOL_FLOAT64, OP, uint64_t>(spread, unit)
           : dtype == SOL_INT32   ? reducer<SOL_INT32, OP, uint32_t>(spread, unit)
                                  : NULL;
}

template <class U> static const void *mover(bool spread)
{
    return spread ? (const void *)sol_pair_ragged_push_kernel<U, true>
                  : (const void *)sol_pair_ragged_push_kernel<U, false>;
}

struct sol_kernel sol_pair_ragged_for(const struct sol_kernel_key *key, unsigned unit)
{
    struct sol_kernel k = {NULL, 512, 1};
    if (key->reduces)
        k.function = key->redop == SOL_SUM   ? sum_for(key->dtype, key->spread, unit)
                     : key->redop == SOL_MAX ? extreme_for<SOL_MAX>(key->dtype, key->spread, unit)
                     : key->redop == SOL_MIN ? extreme_for<SOL_MIN>(key->dtype, key->spread, unit)
                                             : NULL;
    else
        k.function = unit == 8   ? mover<uint64_t>(key->spread)
                     : unit == 4 ? mover<uint32_t>(key->spread)
                     : unit == 2 ? mover<uint16_t>(key->spread)
                     : unit == 1 ? mover<uint8_t>(key->spread)
                                 : NULL;
    return k;
}
