/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_reduce.cu: the instances of lane_reduce.cuh.
 */
#include "device/kernels/kernels.cuh"
#include "device/kernels/lane_reduce.cuh"

template <int D> static struct sol_kernel hot(const struct sol_kernel_key *key)
{
    struct sol_kernel two = {(const void *)sol_lane_reduce_kernel<D, SOL_SUM, 2, 4, true>, 512, 4};
    struct sol_kernel more = {(const void *)sol_lane_reduce_kernel<D, SOL_SUM, 8, 1, true>, 256, 1};
    return key->nranks == 2 ? two : more;
}

template <int D> static struct sol_kernel general(const struct sol_kernel_key *key)
{
    struct sol_kernel two = {(const void *)sol_lane_reduce_kernel<D, -1, 2, 1, false>, 256, 1};
    struct sol_kernel more = {(const void *)sol_lane_reduce_kernel<D, -1, 8, 1, false>, 256, 1};
    return key->nranks == 2 ? two : more;
}

struct sol_kernel sol_lane_reduce_for(const struct sol_kernel_key *key)
{
    if (sol_kernel_hot(key))
        return key->dtype == SOL_BFLOAT16  ? hot<SOL_BFLOAT16>(key)
               : key->dtype == SOL_FLOAT16 ? hot<SOL_FLOAT16>(key)
                                           : hot<SOL_FLOAT32>(key);
    switch (key->dtype) {
#define CASE(D)                                                                                    \
    case D:                                                                                        \
        return general<D>(key);
        SOL_FOR_EACH_DTYPE(CASE)
#undef CASE
    default:
        break;
    }
    struct sol_kernel none = {NULL, 0, 0};
    return none;
}
