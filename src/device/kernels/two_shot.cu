/* SPDX-License-Identifier: Apache-2.0 */
/*
 * two_shot.cu: the instances of two_shot.cuh.
 */
#include "device/kernels/kernels.cuh"
#include "device/kernels/two_shot.cuh"

template <int D> static struct sol_kernel hot(const struct sol_kernel_key *key)
{
    struct sol_kernel k = {(const void *)sol_two_shot_kernel<D, SOL_SUM, 8, true>, 256, 1};
    if (key->nranks <= 4)
        k.function = (const void *)sol_two_shot_kernel<D, SOL_SUM, 4, true>;
    return k;
}

template <int D> static struct sol_kernel general(void)
{
    struct sol_kernel k = {(const void *)sol_two_shot_kernel<D, -1, 8, false>, 256, 1};
    return k;
}

struct sol_kernel sol_two_shot_for(const struct sol_kernel_key *key)
{
    if (sol_kernel_hot(key))
        return key->dtype == SOL_BFLOAT16  ? hot<SOL_BFLOAT16>(key)
               : key->dtype == SOL_FLOAT16 ? hot<SOL_FLOAT16>(key)
                                           : hot<SOL_FLOAT32>(key);
    switch (key->dtype) {
#define CASE(D)                                                                                    \
    case D:                                                                                        \
        return general<D>();
        SOL_FOR_EACH_DTYPE(CASE)
#undef CASE
    default:
        break;
    }
    struct sol_kernel none = {NULL, 0, 0};
    return none;
}
