/* SPDX-License-Identifier: Apache-2.0 */
/* halves_kernels.cu: see halves_kernels.h. */
#include "halves_kernels.h"

static __global__ void __launch_bounds__(256) busy(float *out, unsigned turns)
{
    float x = (float)threadIdx.x;
    for (unsigned i = 0; i < turns; i++)
#pragma unroll
        for (int k = 0; k < 64; k++)
            x = x * 0.999f + 1.0f;
    if (x < 0)
        out[threadIdx.x] = x; /* (never: so that it is computed) */
}

cudaError_t bench_busy(float *out, unsigned ctas, unsigned turns, cudaStream_t stream)
{
    busy<<<ctas, 256, 0, stream>>>(out, turns);
    return cudaGetLastError();
}
