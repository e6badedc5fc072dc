/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize.c: see quantize.h.
 */
#include "coll/quantize.h"

#include "coll/convert.h"
#include "coll/norm.h"

#define GROUP SOL_QUANTIZED_GROUP
#define AMAX_FLOOR 0x1p-100f

/* The scale, from the largest magnitude as a bit pattern: NaN if that is no finite number. */
static float scale_of(uint32_t largest, sol_dtype_t wire)
{
    const float amax = sol_float_from_bits(largest);
    if (largest >= 0x7f800000u) {
        return sol_float_from_bits(0x7fc00000u);
    }
    return (amax < AMAX_FLOOR ? AMAX_FLOOR : amax) / (wire == SOL_INT8 ? 127.0f : 448.0f);
}

/* To an integer, ties to even; |value| <= 127 (norm.c). */
static unsigned char to_int8(float value)
{
    const float shift = 0x1.8p23f;
    value = value > 127.0f ? 127.0f : value < -127.0f ? -127.0f : value;
    return (unsigned char)(signed char)((value + shift) - shift);
}

static void quantise_group(unsigned char *to, const float *x, sol_dtype_t wire)
{
    uint32_t largest = 0;
    for (int i = 0; i < GROUP; i++) {
        uint32_t magnitude = sol_float_bits(x[i]) & 0x7fffffffu;
        largest = magnitude > largest ? magnitude : largest;
    }
    const float scale = scale_of(largest, wire), inverse = 1.0f / scale;
    memcpy(to + GROUP, &scale, sizeof(scale));
    if (scale != scale) {
        memset(to, 0, GROUP);
        return;
    }
    for (int i = 0; i < GROUP; i++) {
        float value = x[i] * inverse;
        to[i] = wire == SOL_INT8 ? to_int8(value) : sol_float_to_e4m3(value);
    }
}

void sol_quantise(unsigned char *to, const void *from, sol_dtype_t dtype, size_t count,
                  size_t groups, sol_dtype_t wire)
{
    const size_t size = sol_dtype_size(dtype);
    for (size_t g = 0; g < groups; g++) {
        float x[GROUP] = {0};
        size_t at = g * GROUP, left = at < count ? count - at : 0;
        left = left < GROUP ? left : GROUP;
        if (left > 0) {
            sol_norm_widen(x, (const char *)from + at * size, dtype, left);
        }
        quantise_group(to + g * SOL_PACKED_GROUP, x, wire);
    }
}

void sol_dequantise(float *sums, const unsigned char *from, size_t groups, sol_dtype_t wire,
                    bool add)
{
    float values[256]; /* what each byte stands for, unscaled */
    for (int b = 0; b < 256; b++) {
        values[b] = wire == SOL_INT8 ? (float)(signed char)b : sol_e4m3_to_float((uint8_t)b);
    }
    for (size_t g = 0; g < groups; g++, from += SOL_PACKED_GROUP, sums += GROUP) {
        float scale;
        memcpy(&scale, from + GROUP, sizeof(scale));
        for (int i = 0; i < GROUP; i++) {
            float value = values[from[i]] * scale;
            sums[i] = add ? sums[i] + value : value;
        }
    }
}

void sol_round_floats(void *to, const float *from, sol_dtype_t dtype, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (dtype == SOL_FLOAT32) {
            uint32_t bits = from[i] != from[i] ? 0x7fc00000u : sol_float_bits(from[i]);
            memcpy((char *)to + 4 * i, &bits, 4);
        } else {
            uint16_t half =
                dtype == SOL_FLOAT16 ? sol_float_to_fp16(from[i]) : sol_float_to_bf16(from[i]);
            memcpy((char *)to + 2 * i, &half, 2);
        }
    }
}
