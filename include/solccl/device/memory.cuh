/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.cuh: the user's buffers as vectors of 16 bytes. Kernels exist in two
 * forms: EXACT, where every address and size is a multiple of 16 (a fact that
 * the host has checked), and the other, which takes any alignment and a ragged
 * end. Both read and write exactly the bytes of the buffer.
 */
#ifndef SOL_DEVICE_MEMORY_CUH
#define SOL_DEVICE_MEMORY_CUH

#include "solccl/device/ptx.cuh"

#include <stddef.h>

/* The first `left` (at most 16) bytes at p in units of U. Unrolled, so that all loads are in flight
 * at once and everything stays in registers. */
template <class U> SOL_GPU_FN struct sol_vector sol_gather_units(const char *p, uint32_t left)
{
    struct sol_vector v = {0, 0};
    enum { half = 8 / sizeof(U) };
#pragma unroll
    for (int i = 0; i < 2 * half; i++) {
        if ((i + 1) * sizeof(U) > left)
            continue;
        uint64_t unit = (uint64_t)sol_load_unit((const U *)p + i);
        if (i < half)
            v.a |= unit << i * 8 * sizeof(U);
        else
            v.b |= unit << (i - half) * 8 * sizeof(U);
    }
    return v;
}

template <class U> SOL_GPU_FN void sol_scatter_units(char *p, uint32_t left, struct sol_vector v)
{
    enum { half = 8 / sizeof(U) };
#pragma unroll
    for (int i = 0; i < 2 * half; i++) {
        if ((i + 1) * sizeof(U) > left)
            continue;
        U unit = (U)(i < half ? v.a >> i * 8 * sizeof(U) : v.b >> (i - half) * 8 * sizeof(U));
        sol_store_unit((U *)p + i, unit);
    }
}

/* The vector at p, of a buffer of which `left` bytes (at least 1) remain from there on; bytes
 * beyond are 0. */
template <bool EXACT> SOL_GPU_FN struct sol_vector sol_load_vector(const char *p, uint32_t left)
{
    if (EXACT)
        return sol_load_16(p);
    left = left < 16 ? left : 16;
    uint32_t misfit = (uint32_t)(uintptr_t)p | left;
    if ((misfit & 15) == 0)
        return sol_load_16(p);
    if ((misfit & 3) == 0)
        return sol_gather_units<uint32_t>(p, left);
    return sol_gather_units<uint8_t>(p, left);
}

template <bool EXACT> SOL_GPU_FN void sol_store_vector(char *p, uint32_t left, struct sol_vector v)
{
    if (EXACT) {
        sol_store_16(p, v);
        return;
    }
    left = left < 16 ? left : 16;
    uint32_t misfit = (uint32_t)(uintptr_t)p | left;
    if ((misfit & 15) == 0)
        sol_store_16(p, v);
    else if ((misfit & 3) == 0)
        sol_scatter_units<uint32_t>(p, left, v);
    else
        sol_scatter_units<uint8_t>(p, left, v);
}

#endif
