// SPDX-License-Identifier: Apache-2.0
// A hundred values that live at once.
// expect: takes \d+ registers, more than 64
#include <stdint.h>

__global__ void __launch_bounds__(256) probe_planted(uint32_t *out, const volatile uint32_t *in)
{
    uint32_t kept[100], sum = 0;
#pragma unroll
    for (int i = 0; i < 100; i++)
        kept[i] = in[i * 256 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 100; i++)
        sum = sum * kept[i] + kept[99 - i];
    out[threadIdx.x] = sum;
}
