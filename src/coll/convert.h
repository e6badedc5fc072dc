/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.h: one value of a 16- or 8-bit float to fp32 and back. Plain C and
 * integers only, so that neither the instruction set nor the caller's
 * floating-point mode can change a bit. For single values (scalars, checks,
 * printing); reductions convert whole vectors in elements.h, and a test holds
 * the two together.
 *
 * Widening is exact. Narrowing rounds to nearest, ties to even; a NaN becomes
 * the type's canonical one; the 8-bit types saturate to their largest finite
 * value, infinities too.
 */
#ifndef SOL_COLL_CONVERT_H
#define SOL_COLL_CONVERT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A small float: sign, exponent, mantissa from the top of `bits` bits down. */
typedef struct sol_float_format {
    int bits, mantissa, bias;
    uint32_t max;       /* magnitude of the largest result: infinity, or where it saturates */
    uint32_t nan;       /* the canonical NaN */
    uint32_t first_nan; /* magnitudes from here up are NaN */
    uint32_t infinity;  /* its magnitude; UINT32_MAX: there is none */
} sol_float_format_t;

static const sol_float_format_t sol_format_fp16 = {16, 10, 15, 0x7c00, 0x7e00, 0x7c01, 0x7c00};
static const sol_float_format_t sol_format_bf16 = {16, 7, 127, 0x7f80, 0x7fc0, 0x7f81, 0x7f80};
static const sol_float_format_t sol_format_e4m3 = {8, 3, 7, 0x7e, 0x7f, 0x7f, UINT32_MAX};
static const sol_float_format_t sol_format_e5m2 = {8, 2, 15, 0x7b, 0x7e, 0x7d, 0x7c};

static inline uint32_t sol_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float sol_float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The fp32 pattern of a small float's. */
static inline uint32_t sol_widen_bits(uint32_t small, sol_float_format_t f)
{
    uint32_t sign = small >> (f.bits - 1) << 31;
    uint32_t magnitude = small & ((1u << (f.bits - 1)) - 1);
    if (magnitude >= f.first_nan)
        return 0x7fc00000u;
    if (magnitude == f.infinity)
        return sign | 0x7f800000u;
    int exponent = (int)(magnitude >> f.mantissa);
    uint32_t fraction = magnitude << (23 - f.mantissa) & 0x7fffffu;
    if (exponent == 0) {
        if (fraction == 0 || f.bias == 127)
            return sign | fraction; /* zero, or subnormal in both */
        for (exponent = 1; fraction < 0x800000u; exponent--)
            fraction <<= 1;
        fraction &= 0x7fffffu;
    }
    return sign | (uint32_t)(exponent - f.bias + 127) << 23 | fraction;
}

/* value >> shift, to nearest even; a shift past the word gives 0. */
static inline uint32_t sol_shift_round(uint32_t value, int shift)
{
    if (shift > 31)
        return 0; /* value < 2^25 here: less than half */
    uint32_t half = 1u << (shift - 1), kept = value >> shift, rest = value & (2 * half - 1);
    return kept + (rest > half || (rest == half && (kept & 1u)));
}

/* The small float's pattern nearest to an fp32 pattern. */
static inline uint32_t sol_narrow_bits(uint32_t wide, sol_float_format_t f)
{
    uint32_t sign = wide >> 31 << (f.bits - 1);
    uint32_t magnitude = wide & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return f.nan;
    int exponent = (int)(magnitude >> 23) - 127 + f.bias; /* in the small format */
    uint32_t small;
    if (f.bias == 127) {
        small = sol_shift_round(magnitude, 23 - f.mantissa); /* same exponents: subnormals too */
    } else if (exponent > 0) {
        uint32_t rebased = (uint32_t)exponent << 23 | (magnitude & 0x7fffffu);
        small = sol_shift_round(rebased, 23 - f.mantissa); /* a carry moves the exponent up */
    } else if (magnitude >> 23 == 0) {
        small = 0; /* fp32 subnormals are far below half the least small one */
    } else {
        uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u;
        small = sol_shift_round(fraction, 23 - f.mantissa + 1 - exponent);
    }
    return sign | (small > f.max ? f.max : small);
}

static inline float sol_fp16_to_float(uint16_t bits)
{
    return sol_float_from_bits(sol_widen_bits(bits, sol_format_fp16));
}

static inline float sol_bf16_to_float(uint16_t bits)
{
    return sol_float_from_bits(sol_widen_bits(bits, sol_format_bf16));
}

static inline float sol_e4m3_to_float(uint8_t bits)
{
    return sol_float_from_bits(sol_widen_bits(bits, sol_format_e4m3));
}

static inline float sol_e5m2_to_float(uint8_t bits)
{
    return sol_float_from_bits(sol_widen_bits(bits, sol_format_e5m2));
}

static inline uint16_t sol_float_to_fp16(float value)
{
    return (uint16_t)sol_narrow_bits(sol_float_bits(value), sol_format_fp16);
}

static inline uint16_t sol_float_to_bf16(float value)
{
    return (uint16_t)sol_narrow_bits(sol_float_bits(value), sol_format_bf16);
}

static inline uint8_t sol_float_to_e4m3(float value)
{
    return (uint8_t)sol_narrow_bits(sol_float_bits(value), sol_format_e4m3);
}

static inline uint8_t sol_float_to_e5m2(float value)
{
    return (uint8_t)sol_narrow_bits(sol_float_bits(value), sol_format_e5m2);
}

#endif
