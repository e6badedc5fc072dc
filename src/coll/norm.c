/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm.c: see norm.h.
 */
#include "coll/norm.h"

#include "coll/convert.h"

#define LANES 32
#define AMAX_FLOOR 0x1p-100f

bool sol_norm_quantised(sol_dtype_t dtype)
{
    return dtype == SOL_INT8 || dtype == SOL_FLOAT8_E4M3 || dtype == SOL_FLOAT8_E5M2;
}

size_t sol_norm_scales(const sol_norm_args_t *args)
{
    switch (args->quant) {
    case SOL_QUANT_TOKEN:
        return 1;
    case SOL_QUANT_GROUP:
    case SOL_QUANT_GROUP_POW2:
        return (args->hidden + SOL_QUANT_GROUP_COLUMNS - 1) / SOL_QUANT_GROUP_COLUMNS;
    default:
        return 0;
    }
}

/* ------------------------------------------------------------- elements, unaligned */

static float element(const void *from, sol_dtype_t dtype, size_t i)
{
    uint16_t half;
    float value;
    if (dtype == SOL_FLOAT32) {
        memcpy(&value, (const char *)from + 4 * i, 4);
        return value;
    }
    memcpy(&half, (const char *)from + 2 * i, 2);
    return dtype == SOL_FLOAT16 ? sol_fp16_to_float(half) : sol_bf16_to_float(half);
}

/* To an integer, ties to even; |value| <= 127. (Where the sum's last bit is worth 1, the addition
 * has rounded it. rintf would need libm with compilers that have no instruction for it.) */
static float nearest_even(float value)
{
    const float shift = 0x1.8p23f;
    return (value + shift) - shift;
}

/* Rounds once; a NaN becomes the canonical one. */
static void put(void *to, sol_dtype_t dtype, size_t i, float value)
{
    if (dtype == SOL_FLOAT32) {
        uint32_t bits = value != value ? 0x7fc00000u : sol_float_bits(value);
        memcpy((char *)to + 4 * i, &bits, 4);
    } else if (dtype == SOL_FLOAT16 || dtype == SOL_BFLOAT16) {
        uint16_t half = dtype == SOL_FLOAT16 ? sol_float_to_fp16(value) : sol_float_to_bf16(value);
        memcpy((char *)to + 2 * i, &half, 2);
    } else if (dtype == SOL_INT8) {
        float nearest = value != value    ? 0.0f
                        : value > 127.0f  ? 127.0f
                        : value < -127.0f ? -127.0f
                                          : nearest_even(value);
        ((signed char *)to)[i] = (signed char)nearest;
    } else {
        ((uint8_t *)to)[i] =
            dtype == SOL_FLOAT8_E4M3 ? sol_float_to_e4m3(value) : sol_float_to_e5m2(value);
    }
}

void sol_norm_widen(float *to, const void *from, sol_dtype_t dtype, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[i] = element(from, dtype, i);
    }
}

/* -------------------------------------------------------------------- ordered sums */

static float fold(float *lanes)
{
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int l = 0; l < half; l++) {
            lanes[l] += lanes[l + half];
        }
    }
    return lanes[0];
}

static float tree(const float *terms, int count)
{
    float low = (terms[0] + terms[1]) + (terms[2] + terms[3]);
    return count == 4 ? low : low + ((terms[4] + terms[5]) + (terms[6] + terms[7]));
}

/* Of h - mean, or of their squares; see norm.h for the order. */
static float row_sum(const float *h, size_t hidden, int per_vector, float mean, bool squares)
{
    float row[LANES] = {0};
    const size_t block = (size_t)(LANES * per_vector);
    for (size_t first = 0; first < hidden; first += block) {
        float lanes[LANES];
        for (int l = 0; l < LANES; l++) {
            float terms[8] = {0};
            for (int e = 0; e < per_vector; e++) {
                size_t i = first + (size_t)(l * per_vector + e);
                float x = i < hidden ? h[i] - mean : 0.0f;
                terms[e] = squares ? x * x : x;
            }
            lanes[l] = tree(terms, per_vector);
        }
        row[first / block % LANES] += fold(lanes);
    }
    return fold(row);
}

/* ------------------------------------------------------------------------- scales */

static float largest_of(sol_dtype_t dtype)
{
    return dtype == SOL_INT8 ? 127.0f : dtype == SOL_FLOAT8_E4M3 ? 448.0f : 57344.0f;
}

/* The largest |y|; NaN if any is. */
static float amax_of(const float *y, size_t count)
{
    float amax = 0.0f;
    for (size_t i = 0; i < count; i++) {
        float x = __builtin_fabsf(y[i]);
        amax = x != x || x > amax ? x : amax;
        if (x != x) {
            break;
        }
    }
    return amax;
}

float sol_norm_scale(float amax, sol_dtype_t dtype, bool power)
{
    float scale = (amax < AMAX_FLOOR ? AMAX_FLOOR : amax) / largest_of(dtype);
    uint32_t bits = sol_float_bits(scale);
    if (scale != scale) {
        return sol_float_from_bits(0x7fc00000u);
    }
    if (power && (bits & 0x7fffffu) != 0 && bits < 0x7f800000u) {
        bits = (bits & 0x7f800000u) + 0x800000u;
    }
    return sol_float_from_bits(bits);
}

static void quantise(const sol_norm_args_t *args, size_t token, const float *y)
{
    const size_t hidden = args->hidden, nscales = sol_norm_scales(args);
    const size_t group = args->quant == SOL_QUANT_GROUP || args->quant == SOL_QUANT_GROUP_POW2
                             ? SOL_QUANT_GROUP_COLUMNS
                             : hidden;
    char *output = (char *)args->output + token * hidden;
    for (size_t first = 0; first < hidden; first += group) {
        size_t count = hidden - first < group ? hidden - first : group;
        float scale;
        if (args->quant == SOL_QUANT_STATIC) {
            memcpy(&scale, args->static_scale, sizeof scale);
        } else {
            scale = sol_norm_scale(amax_of(y + first, count), args->output_dtype,
                                   args->quant == SOL_QUANT_GROUP_POW2);
            memcpy((char *)args->scales + (token * nscales + first / group) * sizeof scale, &scale,
                   sizeof scale);
        }
        const float inverse = 1.0f / scale;
        for (size_t i = 0; i < count; i++) {
            put(output, args->output_dtype, first + i, y[first + i] * inverse);
        }
    }
}

/* ---------------------------------------------------------------------------- rows */

/* h, rounded to dtype, in place of the sums; to residual_out too. */
static void add_residual(const sol_norm_args_t *args, size_t token, float *sums)
{
    const size_t at = token * args->hidden * sol_dtype_size(args->dtype);
    const char *residual = args->residual != NULL ? (const char *)args->residual + at : NULL;
    unsigned char rounded[4];
    for (size_t i = 0; i < args->hidden; i++) {
        float sum = residual != NULL ? sums[i] + element(residual, args->dtype, i) : sums[i];
        put(rounded, args->dtype, 0, sum);
        sums[i] = element(rounded, args->dtype, 0);
        if (args->residual_out != NULL) {
            put((char *)args->residual_out + at, args->dtype, i, sums[i]);
        }
    }
}

void sol_norm_row(const sol_norm_args_t *args, size_t token, float *sums)
{
    const size_t hidden = args->hidden;
    const int per_vector = args->dtype == SOL_FLOAT32 ? 4 : 8;
    const float inverse = 1.0f / (float)hidden;
    float mean = 0.0f;
    add_residual(args, token, sums);
    if (args->norm == SOL_NORM_LAYER) {
        mean = row_sum(sums, hidden, per_vector, 0.0f, false) * inverse;
    }
    float square = row_sum(sums, hidden, per_vector, mean, true) * inverse;
    const float r = 1.0f / __builtin_sqrtf(square + args->epsilon);
    for (size_t i = 0; i < hidden; i++) {
        float y = (args->norm == SOL_NORM_LAYER ? sums[i] - mean : sums[i]) * r;
        if (args->weight != NULL) {
            y *= element(args->weight, args->dtype, i) + args->weight_bias;
        }
        if (args->bias != NULL) {
            y += element(args->bias, args->dtype, i);
        }
        sums[i] = y;
    }
    if (sol_norm_quantised(args->output_dtype)) {
        quantise(args, token, sums);
        return;
    }
    char *output = (char *)args->output + token * hidden * sol_dtype_size(args->output_dtype);
    for (size_t i = 0; i < hidden; i++) {
        put(output, args->output_dtype, i, sums[i]);
    }
}

static char *at_row(const void *matrix, size_t row, size_t row_bytes)
{
    return matrix != NULL ? (char *)(uintptr_t)matrix + row * row_bytes : NULL;
}

void sol_norm_finish_row(const sol_norm_args_t *args, const char *const *contributions, int nranks,
                         size_t residual, size_t output, float *sums)
{
    const size_t hidden = args->hidden, bytes = hidden * sol_dtype_size(args->dtype);
    float *widened = sums + hidden;
    sol_norm_args_t one = *args;
    for (int r = 0; r < nranks; r++) {
        sol_norm_widen(r == 0 ? sums : widened, contributions[r], args->dtype, hidden);
        for (size_t i = 0; i < hidden && r > 0; i++) {
            sums[i] += widened[i];
        }
    }
    one.residual = at_row(args->residual, residual, bytes);
    one.residual_out = at_row(args->residual_out, residual, bytes);
    one.output = at_row(args->output, output, hidden * sol_dtype_size(args->output_dtype));
    one.scales =
        (float *)(void *)at_row(args->scales, output, sol_norm_scales(args) * sizeof(float));
    sol_norm_row(&one, 0, sums);
}
