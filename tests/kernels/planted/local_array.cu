// SPDX-License-Identifier: Apache-2.0
// An array that is indexed by what only the GPU knows leaves the registers.
// expect: has \d+ bytes of local memory
#include <stdint.h>

__global__ void probe_planted(uint32_t *out, const uint32_t *in, int which)
{
    uint32_t kept[16];
#pragma unroll
    for (int i = 0; i < 16; i++)
        kept[i] = in[i * 32 + threadIdx.x];
    for (int i = 0; i < 16; i++)
        kept[(which + i * which) & 15] ^= in[i];
    out[threadIdx.x] = kept[which & 15];
}
