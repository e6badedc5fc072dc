// SPDX-License-Identifier: Apache-2.0
// A kernel for aligned buffers that moves them in words of 8 bytes.
// expect: does not load 16 bytes at once
// expect: does not store 16 bytes at once
// expect: has a narrow access
#include <stdint.h>

template <bool EXACT> __global__ void sol_exchange_kernel(uint64_t *out, const uint64_t *in)
{
    out[threadIdx.x] = in[threadIdx.x];
}
template __global__ void sol_exchange_kernel<true>(uint64_t *, const uint64_t *);
