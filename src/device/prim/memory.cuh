/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.cuh: the user's buffers as vectors of 16 bytes, at any alignment and
 * with a ragged end. Reads and writes exactly the bytes of the buffer.
 */
#ifndef SOL_DEVICE_PRIM_MEMORY_CUH
#define SOL_DEVICE_PRIM_MEMORY_CUH

#include "device/prim/ptx.cuh"

#include <stddef.h>

/* The low `left` bytes (fewer than 16, or an unaligned vector) in units of U. No array, so that
 * everything stays in registers. */
template <class U> SOL_GPU_FN struct sol_vector sol_gather_units(const char *p, size_t left)
{
    struct sol_vector v = {0, 0};
    int units = (left < 16 ? (int)left : 16) / (int)sizeof(U);
#pragma unroll 1
    for (int i = 0; i < units; i++) {
        uint64_t unit = (uint64_t) * ((const volatile U *)p + i);
        int bit = i * (int)sizeof(U) * 8;
        if (bit < 64)
            v.a |= unit << bit;
        else
            v.b |= unit << (bit - 64);
    }
    return v;
}

template <class U>
SOL_GPU_FN void sol_scatter_units(char *p, size_t left, struct sol_vector v)
{
    int units = (left < 16 ? (int)left : 16) / (int)sizeof(U);
#pragma unroll 1
    for (int i = 0; i < units; i++) {
        int bit = i * (int)sizeof(U) * 8;
        *((volatile U *)p + i) = (U)(bit < 64 ? v.a >> bit : v.b >> (bit - 64));
    }
}

/* The vector at p of a buffer of which `left` bytes (at least 1) remain from there; bytes beyond are
 * 0. `p` has the buffer's own alignment. */
SOL_GPU_FN struct sol_vector sol_load_vector(const char *p, size_t left)
{
    uintptr_t misfit = (uintptr_t)p | (left < 16 ? left : 0);
    if ((misfit & 15) == 0)
        return sol_load_16(p);
    if ((misfit & 3) == 0)
        return sol_gather_units<uint32_t>(p, left);
    if ((misfit & 1) == 0)
        return sol_gather_units<uint16_t>(p, left);
    return sol_gather_units<uint8_t>(p, left);
}

SOL_GPU_FN void sol_store_vector(char *p, size_t left, struct sol_vector v)
{
    uintptr_t misfit = (uintptr_t)p | (left < 16 ? left : 0);
    if ((misfit & 15) == 0)
        sol_store_16(p, v);
    else if ((misfit & 3) == 0)
        sol_scatter_units<uint32_t>(p, left, v);
    else if ((misfit & 1) == 0)
        sol_scatter_units<uint16_t>(p, left, v);
    else
        sol_scatter_units<uint8_t>(p, left, v);
}

#endif
