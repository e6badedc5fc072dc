/* SPDX-License-Identifier: Apache-2.0 */
/* multicast.cu: instances of the kernels through the switch's multicast. */
#include "device/kernels/multicast.cuh"

#include "device/kernels/kernels.cuh"

struct sol_kernel sol_multicast_push_for(const struct sol_kernel_key *key)
{
    struct sol_kernel k = {(const void *)sol_multicast_push_kernel<8>, 256, 1};
    if (key->nranks <= 4)
        k.function = (const void *)sol_multicast_push_kernel<4>;
    return k;
}

struct sol_kernel sol_multicast_reduce_for(const struct sol_kernel_key *key)
{
    struct sol_kernel k = {(const void *)sol_multicast_reduce_kernel<SOL_FLOAT32>, 512, 1};
    if (key->dtype == SOL_BFLOAT16)
        k.function = (const void *)sol_multicast_reduce_kernel<SOL_BFLOAT16>;
    else if (key->dtype == SOL_FLOAT16)
        k.function = (const void *)sol_multicast_reduce_kernel<SOL_FLOAT16>;
    return k;
}
