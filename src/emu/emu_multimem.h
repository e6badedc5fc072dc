/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_multimem.h: takes the place of solccl/device/multimem.cuh, as emu_ptx.h does of
 * ptx.cuh: the switch's multicast on the emulated machine. A store becomes one
 * to each memory, in any order of arrival; a reducing load one from each.
 * emu_multicast (emu.h) says what an address stands for.
 */
#ifndef SOL_DEVICE_MULTIMEM_CUH
#define SOL_DEVICE_MULTIMEM_CUH

#include "solccl/solccl.h"

SOL_GPU_FN void sol_multicast_word(void *all, uint64_t w)
{
    for (int i = 0; i < emu_multicast_count(all); i++)
        sol_push_word(emu_multicast_place(all, i), w);
}

SOL_GPU_FN void sol_multicast_vector(void *all, struct sol_vector v)
{
    for (int i = 0; i < emu_multicast_count(all); i++)
        sol_push_vector(emu_multicast_place(all, i), v);
}

template <int D> static inline uint32_t emu_multimem_add(uint32_t a, uint32_t b)
{
    if (D == SOL_BFLOAT16)
        return sol_add_bf16x2(a, b);
    if (D == SOL_FLOAT16)
        return sol_add_f16x2(a, b);
    return sol_bits_f32(sol_add_f32(sol_f32_bits(a), sol_f32_bits(b)));
}

/* (16-bit types are rounded after each term here; tests use values whose sums are exact.) */
template <int D> SOL_GPU_FN struct sol_vector sol_multicast_sum(const void *all)
{
    struct sol_vector sum = {0, 0};
    for (int i = 0; i < emu_multicast_count(all); i++) {
        struct sol_vector v = sol_poll_vector(emu_multicast_place(all, i));
        uint64_t *s[2] = {&sum.a, &sum.b}, x[2] = {v.a, v.b};
        for (int k = 0; k < 2; k++)
            *s[k] =
                i == 0
                    ? x[k]
                    : (uint64_t)emu_multimem_add<D>((uint32_t)(*s[k] >> 32), (uint32_t)(x[k] >> 32))
                              << 32 |
                          emu_multimem_add<D>((uint32_t)*s[k], (uint32_t)x[k]);
    }
    return sum;
}

SOL_GPU_FN void sol_fence_alias(void)
{
}

#endif
