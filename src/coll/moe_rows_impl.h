/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe_rows_impl.h: the loops of moe_rows.h; included once for each instruction set.
 */
#ifndef SOL_COLL_MOE_ROWS_IMPL_H
#define SOL_COLL_MOE_ROWS_IMPL_H

#include "coll/moe_rows.h"

#include <stdint.h>
#include <string.h>

#define SOME 256 /* elements that are worked on while they are in the nearest cache */

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static void widen(float *to, const void *row, size_t count)
{
    const unsigned char *from = row;
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, from + 2 * i, 2);
        to[i] = float_of((uint32_t)half << 16);
    }
}

static void add(float *sums, const void *row, float weight, size_t count, bool first, bool weighted)
{
    float x[SOME];
    for (size_t at = 0; at < count; at += SOME) {
        const size_t n = count - at < SOME ? count - at : SOME;
        widen(x, (const unsigned char *)row + 2 * at, n);
        for (size_t i = 0; i < n && weighted; i++) {
            x[i] = x[i] * weight;
        }
        if (first) {
            memcpy(sums + at, x, n * sizeof *x);
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            sums[at + i] = sums[at + i] + x[i];
        }
    }
}

static void narrow(void *to, const float *sums, size_t count)
{
    unsigned char *out = to;
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = bits_of(sums[i]), even = bits >> 16 & 1;
        const uint32_t rounded = (bits + 0x7fffu + even) >> 16;
        uint16_t half = (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
        memcpy(out + 2 * i, &half, 2);
    }
}

static float amax(const float *y, size_t count)
{
    uint32_t most = 0; /* magnitudes as integers are in the order of magnitudes, then NaNs */
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = bits_of(y[i]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    return float_of(most);
}

/* From 2^-6 up the mantissa is rounded to 3 bits and the exponent moved; below, units of 2^-9 are
 * counted by an addition whose last bit is worth that much. */
static void quantise(unsigned char *to, const float *y, float inverse, size_t count)
{
    const uint32_t largest = 0x43e00000u /* 448 */, normal = 0x3c800000u /* 2^-6 */;
    const float shift = 0x1.8p14f;
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = bits_of(y[i] * inverse), magnitude = bits & 0x7fffffffu;
        const uint32_t m = magnitude < largest ? magnitude : largest;
        const uint32_t up = ((m + 0x7ffffu + (m >> 20 & 1)) >> 20) - (120u << 3);
        const uint32_t low = bits_of(float_of(m < normal ? m : normal) + shift) - bits_of(shift);
        const uint32_t small = (m < normal ? low : up) | (bits >> 24 & 0x80u);
        to[i] = (unsigned char)(magnitude > 0x7f800000u ? 0x7fu : small);
    }
}

#define MOE_ROWS                                                                                   \
    {                                                                                              \
        add, narrow, widen, amax, quantise                                                         \
    }

#endif
