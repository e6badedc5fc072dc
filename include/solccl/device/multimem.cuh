/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multimem.cuh: the multimem instructions, under names that say what they are
 * for: stores and sums through the switch, at addresses that stand for the same
 * place in all ranks' memory (sol_window_t.multicast). No part of device.h:
 * include it where you mean it, and only reach it where the address is not NULL,
 * which it is without SOLCCL_CUDA_MULTICAST=1. Compiled for sm_90 and later;
 * never executed by the authors: runs in the emulator, not yet run on a GPU.
 *
 * Never an ordinary load or store at such an address. Between these accesses and
 * ordinary ones to the same memory: sol_fence_alias.
 */
#ifndef SOL_DEVICE_MULTIMEM_CUH
#define SOL_DEVICE_MULTIMEM_CUH

#include "solccl/device.h"

/* Lands in all of them, each word whole. */
SOL_GPU_FN void sol_multicast_word(void *all, uint64_t w)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("multimem.st.relaxed.sys.global.b64 [%0], %1;" ::"l"(all), "l"(w) : "memory");
#endif
}

SOL_GPU_FN void sol_multicast_vector(void *all, struct sol_vector v)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(all),
                 "f"(__uint_as_float((uint32_t)v.a)), "f"(__uint_as_float((uint32_t)(v.a >> 32))),
                 "f"(__uint_as_float((uint32_t)v.b)), "f"(__uint_as_float((uint32_t)(v.b >> 32)))
                 : "memory");
#endif
}

/* The sum, in fp32, of what lies there in all of them. D: SOL_FLOAT32, SOL_BFLOAT16 or SOL_FLOAT16;
 * the order of the terms is the switch's. */
template <int D> SOL_GPU_FN struct sol_vector sol_multicast_sum(const void *all)
{
    uint32_t w[4] = {0, 0, 0, 0};
#if __CUDA_ARCH__ >= 900
    if (D == SOL_BFLOAT16) {
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 "
                     "{%0, %1, %2, %3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "l"(all)
                     : "memory");
    } else if (D == SOL_FLOAT16) {
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 "
                     "{%0, %1, %2, %3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "l"(all)
                     : "memory");
    } else {
        float f[4];
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(f[0]), "=f"(f[1]), "=f"(f[2]), "=f"(f[3])
                     : "l"(all)
                     : "memory");
#pragma unroll
        for (int i = 0; i < 4; i++)
            w[i] = __float_as_uint(f[i]);
    }
#endif
    struct sol_vector v = {(uint64_t)w[1] << 32 | w[0], (uint64_t)w[3] << 32 | w[2]};
    return v;
}

/* Between accesses by a rank's own address and by the one that stands for all. */
SOL_GPU_FN void sol_fence_alias(void)
{
    asm volatile("fence.proxy.alias;" ::: "memory");
}

#endif
