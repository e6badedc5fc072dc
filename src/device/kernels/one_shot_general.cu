/* SPDX-License-Identifier: Apache-2.0 */
/*
 * one_shot_general.cu: the instances of one_shot.cuh for every type, with
 * operation, alignment and root found at run time.
 */
#include "device/kernels/kernels.cuh"
#include "device/kernels/one_shot.cuh"

struct sol_kernel sol_one_shot_general_for(const struct sol_kernel_key *key);

template <int D> static struct sol_kernel general(const struct sol_kernel_key *key)
{
    struct sol_kernel k;
    k.function = key->nranks == 2 ? (const void *)sol_one_shot_kernel<D, -1, 2, 1, true, false>
                                  : (const void *)sol_one_shot_kernel<D, -1, 8, 1, true, false>;
    k.threads = 256;
    k.vectors = 1;
    return k;
}

struct sol_kernel sol_one_shot_general_for(const struct sol_kernel_key *key)
{
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
