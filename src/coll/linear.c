/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear.c: see linear.h. Inputs and a row of weights are laid out lane by lane, so that
 * the compiler can take many lanes in one instruction.
 */
#include "coll/linear.h"

#include "coll/convert.h"

#define LANES 32

/* Elements of a vector. */
static size_t per_vector(sol_dtype_t dtype)
{
    return 16 / sol_dtype_size(dtype);
}

static size_t padded(const sol_linear_args_t *args)
{
    const size_t block = LANES * per_vector(args->weight_dtype);
    return (args->inputs + block - 1) / block * block;
}

size_t sol_linear_scratch(const sol_linear_args_t *args)
{
    return (args->tokens + 1) * padded(args);
}

static float element(const void *from, sol_dtype_t dtype, size_t i)
{
    uint16_t half;
    if (dtype == SOL_BFLOAT16) {
        memcpy(&half, (const char *)from + 2 * i, 2);
        return sol_bf16_to_float(half);
    }
    const uint8_t small = ((const uint8_t *)from)[i];
    return dtype == SOL_FLOAT8_E4M3 ? sol_e4m3_to_float(small) : sol_e5m2_to_float(small);
}

/* A row as fp32: of each block first the lanes' first elements, then their second ones ... */
static void spread(float *to, const void *row, sol_dtype_t dtype, size_t count, size_t e)
{
    const size_t block = LANES * e;
    for (size_t first = 0; first < count; first += block) {
        for (size_t l = 0; l < LANES; l++) {
            for (size_t i = 0; i < e; i++) {
                const size_t at = first + l * e + i;
                to[first + i * LANES + l] = at < count ? element(row, dtype, at) : 0.0f;
            }
        }
    }
}

/* a * b + c, rounded once, without an instruction for it: the product is exact in fp64, and the sum
 * is rounded to odd there, so that rounding it again is right. */
static inline float fused(float a, float b, float c)
{
    const double p = (double)a * b, s = p + c;
    const double back = s - p, error = (p - (s - back)) + (c - back);
    uint64_t bits;
    memcpy(&bits, &s, sizeof bits);
    if (error == error && error != 0 && (bits & 1) == 0)
        bits += (error > 0) == (s > 0) ? (uint64_t)1 : (uint64_t)-1;
    double odd;
    memcpy(&odd, &bits, sizeof odd);
    return (float)odd;
}

static inline float fold(float *lanes)
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lanes[l] += lanes[l + half];
    return lanes[0];
}

static float dot_plain(const float *w, const float *x, size_t count)
{
    float lanes[LANES] = {0};
    for (size_t first = 0; first < count; first += LANES)
        for (int l = 0; l < LANES; l++)
            lanes[l] = fused(w[first + (size_t)l], x[first + (size_t)l], lanes[l]);
    return fold(lanes);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static float dot_fma(const float *w, const float *x,
                                                         size_t count)
{
    float lanes[LANES] = {0};
    for (size_t first = 0; first < count; first += LANES)
        for (int l = 0; l < LANES; l++)
            lanes[l] = __builtin_fmaf(w[first + (size_t)l], x[first + (size_t)l], lanes[l]);
    return fold(lanes);
}
#endif

static float dot(const float *w, const float *x, size_t count, bool plain)
{
#if defined(__x86_64__)
    if (!plain && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return dot_fma(w, x, count);
#endif
    (void)plain;
    return dot_plain(w, x, count);
}

void sol_linear_product(const sol_linear_args_t *args, void *product, float *scratch, bool plain)
{
    const size_t e = per_vector(args->weight_dtype), count = padded(args);
    const size_t row = args->inputs * sol_dtype_size(args->weight_dtype);
    float *x = scratch + count;
    for (size_t t = 0; t < args->tokens; t++)
        spread(x + t * count, (const char *)args->input + t * args->inputs * 2, SOL_BFLOAT16,
               args->inputs, e);
    for (size_t o = 0; o < args->outputs; o++) {
        float scale = 1.0f;
        spread(scratch, (const char *)args->weight + o * row, args->weight_dtype, args->inputs, e);
        if (args->scales != NULL)
            memcpy(&scale, (const char *)args->scales + o * sizeof scale, sizeof scale);
        for (size_t t = 0; t < args->tokens; t++) {
            const float sum = dot(scratch, x + t * count, count, plain);
            const uint16_t rounded = sol_float_to_bf16(args->scales != NULL ? sum * scale : sum);
            memcpy((char *)product + (t * args->outputs + o) * 2, &rounded, 2);
        }
    }
}
