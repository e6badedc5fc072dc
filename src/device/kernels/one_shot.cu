/* SPDX-License-Identifier: Apache-2.0 */
/*
 * one_shot.cu: the instances of one_shot.cuh that exist for common types.
 */
#include "device/kernels/kernels.cuh"
#include "device/kernels/one_shot.cuh"

struct sol_kernel sol_one_shot_general_for(const struct sol_kernel_key *key);

template <int D, int N, int V> static struct sol_kernel hot_shape(const struct sol_kernel_key *key)
{
    struct sol_kernel k;
    k.function = key->spread ? (const void *)sol_one_shot_kernel<D, SOL_SUM, N, V, true, true>
                             : (const void *)sol_one_shot_kernel<D, SOL_SUM, N, V, false, true>;
    k.threads = V == 4 || N == 8 ? 256 : 512;
    k.vectors = V;
    return k;
}

template <int D> static struct sol_kernel hot_type(const struct sol_kernel_key *key)
{
    if (key->nranks == 2)
        return key->vectors >= 4   ? hot_shape<D, 2, 4>(key)
               : key->vectors == 2 ? hot_shape<D, 2, 2>(key)
                                   : hot_shape<D, 2, 1>(key);
    return key->nranks <= 4 ? hot_shape<D, 4, 1>(key) : hot_shape<D, 8, 1>(key);
}

struct sol_kernel sol_one_shot_for(const struct sol_kernel_key *key)
{
    if (!sol_kernel_hot(key))
        return sol_one_shot_general_for(key);
    switch (key->dtype) {
    case SOL_BFLOAT16:
        return hot_type<SOL_BFLOAT16>(key);
    case SOL_FLOAT16:
        return hot_type<SOL_FLOAT16>(key);
    default:
        return hot_type<SOL_FLOAT32>(key);
    }
}
