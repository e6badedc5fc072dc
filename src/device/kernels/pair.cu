/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair.cu: the instances of pair.cuh.
 */
#include "device/kernels/kernels.cuh"
#include "device/kernels/pair.cuh"

/* One vector a thread and turn: two gain nothing at 16 MB, and cost 0.3 us where they take the
 * place of threads (bench/NOTES.md). */
template <int D> static struct sol_kernel reducer(bool spread, bool loop)
{
    struct sol_kernel k = {(const void *)sol_pair_reduce_kernel<D, 1, false, false>, 512, 1};
    if (loop)
        k.function = spread ? (const void *)sol_pair_reduce_kernel<D, 1, true, true>
                            : (const void *)sol_pair_reduce_kernel<D, 1, false, true>;
    else if (spread)
        k.function = (const void *)sol_pair_reduce_kernel<D, 1, true, false>;
    return k;
}

static struct sol_kernel mover(bool spread, bool loop)
{
    struct sol_kernel k = {(const void *)sol_pair_push_kernel<1, false, false>, 512, 1};
    if (loop)
        k.function = spread ? (const void *)sol_pair_push_kernel<1, true, true>
                            : (const void *)sol_pair_push_kernel<1, false, true>;
    else if (spread)
        k.function = (const void *)sol_pair_push_kernel<1, true, false>;
    return k;
}

struct sol_kernel sol_pair_for(const struct sol_kernel_key *key)
{
    if (!key->reduces)
        return mover(key->spread, key->loop);
    return key->dtype == SOL_BFLOAT16  ? reducer<SOL_BFLOAT16>(key->spread, key->loop)
           : key->dtype == SOL_FLOAT16 ? reducer<SOL_FLOAT16>(key->spread, key->loop)
                                       : reducer<SOL_FLOAT32>(key->spread, key->loop);
}
