// SPDX-License-Identifier: Apache-2.0
// A multimem instruction where no switch stands before it.
// expect: has a multimem instruction
#include <stdint.h>

__global__ void probe_planted(uint32_t *out)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("multimem.st.relaxed.sys.global.u32 [%0], %1;" ::"l"(out), "r"(1u) : "memory");
#endif
}
