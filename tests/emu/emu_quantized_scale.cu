/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_quantized_scale: the scale of a group as quantized.cuh works it out, by a product that
 * is corrected, against a division: every mantissa, at the least and the greatest exponents
 * that a group's largest magnitude can have, and some between.
 *
 * Exit status: 0 equal everywhere; 1 not.
 */
#include "device/kernels/quantized.cuh"

#include <stdio.h>

template <int W> static long differing(uint32_t exponent, uint32_t step, float most)
{
    long wrong = 0;
    for (uint32_t mantissa = 0; mantissa < 1u << 23; mantissa += step) {
        const float a = sol_f32_bits(exponent << 23 | mantissa);
        wrong += sol_bits_f32(sol_quantized_divide<W>(a)) != sol_bits_f32(a / most);
    }
    return wrong;
}

int main(void)
{
    static const uint32_t exponents[] = {127 - 100, 127, 254, 127 - 99, 253, 100, 140, 200};
    long wrong = 0;
    for (int i = 0; i < 8; i++) /* all mantissas of the first three */
        wrong += differing<SOL_INT8>(exponents[i], i < 3 ? 1 : 61, 127.0f) +
                 differing<SOL_FLOAT8_E4M3>(exponents[i], i < 3 ? 1 : 61, 448.0f);
    printf("%ld scales differ\n", wrong);
    return wrong != 0;
}
