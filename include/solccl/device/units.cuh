/* SPDX-License-Identifier: Apache-2.0 */
/*
 * units.cuh: the user's buffers as vectors of 16 bytes that are loaded and stored
 * in units of a size that is known when the kernel is compiled, and divides all
 * addresses and sizes. (memory.cuh finds it out as it goes, which takes longer.)
 * Reads and writes exactly the bytes of the buffer.
 */
#ifndef SOL_DEVICE_UNITS_CUH
#define SOL_DEVICE_UNITS_CUH

#include "solccl/device/ptx.cuh"

/*
 * The vector at p, of a buffer of which `left` bytes, one unit at least, remain from there on;
 * bytes beyond are 0. Loads first, and only then what needs them: they do not wait for each other.
 */
template <class U> SOL_GPU_FN struct sol_vector sol_load_units(const char *p, uint32_t left)
{
    if constexpr (sizeof(U) == 16) {
        return sol_load_16(p);
    } else if constexpr (sizeof(U) == 8) {
        struct sol_vector v = {sol_load_unit((const U *)p), 0};
        if (left >= 16)
            v.b = sol_load_unit((const U *)p + 1);
        return v;
    } else {
        enum { count = 16 / sizeof(U), in_word = 4 / sizeof(U) };
        uint32_t unit[count], word[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < count; i++) {
            unit[i] = 0;
            if (i == 0 || (i + 1) * sizeof(U) <= left)
                unit[i] = sol_load_unit((const U *)p + i);
        }
#pragma unroll
        for (int i = 0; i < count; i++)
            word[i / in_word] |= unit[i] << i % in_word * 8 * sizeof(U);
        struct sol_vector v = {word[0] | (uint64_t)word[1] << 32,
                               word[2] | (uint64_t)word[3] << 32};
        return v;
    }
}

template <class U> SOL_GPU_FN void sol_store_units(char *p, uint32_t left, struct sol_vector v)
{
    if constexpr (sizeof(U) == 16) {
        sol_store_16(p, v);
    } else {
        enum { count = 16 / sizeof(U), half = count / 2 };
#pragma unroll
        for (int i = 0; i < count; i++)
            if (i == 0 || (i + 1) * sizeof(U) <= left)
                sol_store_unit((U *)p + i, (U)((i < half ? v.a : v.b) >> i % half * 8 * sizeof(U)));
    }
}

#endif
