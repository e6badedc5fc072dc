/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elements.h: the twelve element types as reductions see them. For each type
 * NAME there are
 *
 *   NAME_acc                    what one step accumulates: one or two vectors
 *   NAME_unpack(raw)            memory image of a step -> acc (exact)
 *   NAME_combine(op, a, b)      one fold step; op is a constant where it is inlined
 *   NAME_divide(a, n)           for SOL_AVG
 *   NAME_pack(acc)              round and canonicalise -> memory image
 *
 * Small floats are taken apart as even and odd elements, not as low and high
 * halves: shifts and masks in place of lane-crossing shuffles. Where an
 * element lies in the acc matters to nobody, for pack undoes unpack.
 * Included through reduce_impl.h only.
 */
#ifndef SOL_COLL_ELEMENTS_H
#define SOL_COLL_ELEMENTS_H

#include "coll/vec.h"
#include "solccl/solccl.h"

#define SPLAT_U32(x) ((vec_u32){0} + (uint32_t)(x))
#define SPLAT_F32(x) ((vec_f32){0} + (float)(x))
#define SPLAT_F64(x) ((vec_f64){0} + (double)(x))

/* --------------------------------------------------------------------- integers */

/* Unsigned arithmetic wraps; `ordered` is the type whose order and division count. */
#define INTEGER(name, unsigned_vec, ordered_vec, type)                                             \
    typedef unsigned_vec name##_acc;                                                               \
    VEC_INLINE name##_acc name##_unpack(vec_u32 raw)                                               \
    {                                                                                              \
        return (name##_acc)raw;                                                                    \
    }                                                                                              \
    VEC_INLINE vec_u32 name##_pack(name##_acc a)                                                   \
    {                                                                                              \
        return (vec_u32)a;                                                                         \
    }                                                                                              \
    VEC_INLINE name##_acc name##_combine(sol_redop_t op, name##_acc a, name##_acc b)               \
    {                                                                                              \
        if (op == SOL_PROD)                                                                        \
            return a * b;                                                                          \
        if (op != SOL_MIN && op != SOL_MAX)                                                        \
            return a + b;                                                                          \
        name##_acc a_less = (name##_acc)((ordered_vec)a < (ordered_vec)b);                         \
        name##_acc take_a = op == SOL_MIN ? a_less : ~a_less;                                      \
        return (take_a & a) | (~take_a & b);                                                       \
    }                                                                                              \
    VEC_INLINE name##_acc name##_divide(name##_acc a, int n)                                       \
    {                                                                                              \
        return n == 1 ? a : (name##_acc)((ordered_vec)a / ((ordered_vec){0} + (type)n));           \
    }

INTEGER(i8, vec_u8, vec_i8, int8_t)
INTEGER(u8, vec_u8, vec_u8, uint8_t)
INTEGER(i32, vec_u32, vec_i32, int32_t)
INTEGER(u32, vec_u32, vec_u32, uint32_t)
INTEGER(i64, vec_u64, vec_i64, int64_t)
INTEGER(u64, vec_u64, vec_u64, uint64_t)
#undef INTEGER

/* ---------------------------------------------------------------- fp32 and fp64 */

/* A power of two has an exact reciprocal: the product is then the same real number as the quotient,
 * rounded once too, and several times faster. */
#define FLOATING(name, type, splat)                                                                \
    typedef vec_##name name##_acc;                                                                 \
    VEC_INLINE name##_acc name##_unpack(vec_u32 raw)                                               \
    {                                                                                              \
        return (name##_acc)raw;                                                                    \
    }                                                                                              \
    VEC_INLINE vec_u32 name##_pack(name##_acc a)                                                   \
    {                                                                                              \
        return (vec_u32)vec_canonical_##name(a);                                                   \
    }                                                                                              \
    VEC_INLINE name##_acc name##_combine(sol_redop_t op, name##_acc a, name##_acc b)               \
    {                                                                                              \
        switch (op) {                                                                              \
        case SOL_PROD:                                                                             \
            return a * b;                                                                          \
        case SOL_MIN:                                                                              \
            return vec_min_##name(a, b);                                                           \
        case SOL_MAX:                                                                              \
            return vec_max_##name(a, b);                                                           \
        default:                                                                                   \
            return a + b;                                                                          \
        }                                                                                          \
    }                                                                                              \
    VEC_INLINE name##_acc name##_divide(name##_acc a, int n)                                       \
    {                                                                                              \
        return (n & (n - 1)) == 0 ? a * splat((type)1 / (type)n) : a / splat(n);                   \
    }

FLOATING(f32, float, SPLAT_F32)
FLOATING(f64, double, SPLAT_F64)
#undef FLOATING

/* ------------------------------------------------- small floats: two vectors of fp32 */

typedef struct vec_pair {
    vec_f32 even, odd;
} vec_pair;

#define PAIR_ELEMENT(name)                                                                         \
    typedef vec_pair name##_acc;                                                                   \
    VEC_INLINE vec_pair name##_combine(sol_redop_t op, vec_pair a, vec_pair b)                     \
    {                                                                                              \
        return (vec_pair){f32_combine(op, a.even, b.even), f32_combine(op, a.odd, b.odd)};         \
    }                                                                                              \
    VEC_INLINE vec_pair name##_divide(vec_pair a, int n)                                           \
    {                                                                                              \
        return (vec_pair){f32_divide(a.even, n), f32_divide(a.odd, n)};                            \
    }

PAIR_ELEMENT(f16)
PAIR_ELEMENT(bf16)
PAIR_ELEMENT(e4m3)
PAIR_ELEMENT(e5m2)
#undef PAIR_ELEMENT

/* bf16 is the high half of an fp32. */
VEC_INLINE vec_pair bf16_unpack(vec_u32 raw)
{
    return (vec_pair){(vec_f32)(raw << 16), (vec_f32)(raw & SPLAT_U32(0xffff0000u))};
}

/* Nearest even by adding just under half, or half if the kept part is odd; a carry may move the
 * exponent up, to infinity at the end. NaN is canonical by then and stays so. */
VEC_INLINE vec_u32 bf16_round(vec_f32 v)
{
    vec_u32 bits = (vec_u32)vec_canonical_f32(v);
    return bits + SPLAT_U32(0x7fff) + (bits >> 16 & 1);
}

VEC_INLINE vec_u32 bf16_pack(vec_pair a)
{
    return bf16_round(a.even) >> 16 | (bf16_round(a.odd) & SPLAT_U32(0xffff0000u));
}

/* The general small float: `bits` wide, a mantissa of `mantissa` bits, exponent bias `bias`.
 * Magnitudes from `special` up are infinity (if there is one) and NaN. */
VEC_INLINE vec_f32 small_widen(vec_u32 small, int bits, int mantissa, int bias, uint32_t special)
{
    const uint32_t rebase = (uint32_t)(127 - bias) << 23, smallest = (uint32_t)(128 - bias) << 23;
    vec_u32 sign = small >> (bits - 1) << 31;
    vec_u32 field = small & ((1u << (bits - 1)) - 1);
    vec_u32 placed = field << (23 - mantissa);
    /* A subnormal is placed as the fraction of the smallest normal number, whose one is taken off.
     */
    vec_f32 subnormal = (vec_f32)(placed + smallest) - (vec_f32)SPLAT_U32(smallest);
    vec_u32 wide = vec_select((vec_i32)placed < (1 << 23), (vec_u32)subnormal, placed + rebase);
    wide = vec_select((vec_i32)field >= (int32_t)special, placed | 0x7f800000u, wide);
    return (vec_f32)(wide | sign);
}

/* To nearest even: `max` is the fp32 magnitude of the largest result, where it saturates (fp16: of
 * 2^16, whose encoding is infinity). */
VEC_INLINE vec_u32 small_narrow(vec_f32 v, int bits, int mantissa, int bias, uint32_t max,
                                uint32_t nan)
{
    const int shift = 23 - mantissa;
    const uint32_t rebase = (uint32_t)(127 - bias) << 23, smallest = (uint32_t)(128 - bias) << 23;
    /* Added to a subnormal, this power of two leaves its last place where the result's is: the
     * processor's own addition rounds. */
    const vec_u32 anchor = SPLAT_U32((uint32_t)(128 - bias + shift) << 23);
    vec_u32 sign = (vec_u32)v >> 31 << (bits - 1);
    vec_i32 magnitude = (vec_i32)v & 0x7fffffff;
    vec_i32 is_nan = magnitude > 0x7f800000;
    vec_u32 m = vec_select(magnitude > (int32_t)max, SPLAT_U32(max), (vec_u32)magnitude);
    vec_u32 subnormal = (vec_u32)((vec_f32)m + (vec_f32)anchor) - anchor;
    vec_u32 normal = (m - rebase + ((1u << (shift - 1)) - 1) + (m >> shift & 1)) >> shift;
    vec_u32 small = vec_select((vec_i32)m < (int32_t)smallest, subnormal, normal) | sign;
    return vec_select(is_nan, SPLAT_U32(nan), small);
}

#if VEC_AVX512

VEC_INLINE vec_pair f16_unpack(vec_u32 raw)
{
    return (vec_pair){_mm512_cvtph_ps(_mm512_castsi512_si256((__m512i)raw)),
                      _mm512_cvtph_ps(_mm512_extracti64x4_epi64((__m512i)raw, 1))};
}

VEC_INLINE vec_u32 f16_pack(vec_pair a)
{
    __m256i low = _mm512_cvtps_ph(vec_canonical_f32(a.even), _MM_FROUND_TO_NEAREST_INT);
    __m256i high = _mm512_cvtps_ph(vec_canonical_f32(a.odd), _MM_FROUND_TO_NEAREST_INT);
    return (vec_u32)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

#elif VEC_AVX2

VEC_INLINE vec_pair f16_unpack(vec_u32 raw)
{
    return (vec_pair){_mm256_cvtph_ps(_mm256_castsi256_si128((__m256i)raw)),
                      _mm256_cvtph_ps(_mm256_extracti128_si256((__m256i)raw, 1))};
}

VEC_INLINE vec_u32 f16_pack(vec_pair a)
{
    __m128i low = _mm256_cvtps_ph(vec_canonical_f32(a.even), _MM_FROUND_TO_NEAREST_INT);
    __m128i high = _mm256_cvtps_ph(vec_canonical_f32(a.odd), _MM_FROUND_TO_NEAREST_INT);
    return (vec_u32)_mm256_set_m128i(high, low);
}

#else

VEC_INLINE vec_pair f16_unpack(vec_u32 raw)
{
    return (vec_pair){small_widen(raw & 0xffff, 16, 10, 15, 0x7c00),
                      small_widen(raw >> 16, 16, 10, 15, 0x7c00)};
}

VEC_INLINE vec_u32 f16_pack(vec_pair a)
{
    const uint32_t two_to_16 = (127u + 16) << 23;
    return small_narrow(a.even, 16, 10, 15, two_to_16, 0x7e00) |
           small_narrow(a.odd, 16, 10, 15, two_to_16, 0x7e00) << 16;
}

#endif

/* 8-bit floats: a step is half a vector of bytes, two in each 32-bit lane once widened. */
#define SMALL_ELEMENT(name, mantissa, bias, special, max, nan)                                     \
    VEC_INLINE vec_pair name##_unpack(vec_half raw)                                                \
    {                                                                                              \
        vec_u32 two = half_widen(raw);                                                             \
        return (vec_pair){small_widen(two & 0xff, 8, mantissa, bias, special),                     \
                          small_widen(two >> 8, 8, mantissa, bias, special)};                      \
    }                                                                                              \
    VEC_INLINE vec_half name##_pack(vec_pair a)                                                    \
    {                                                                                              \
        return half_narrow(small_narrow(a.even, 8, mantissa, bias, max, nan) |                     \
                           small_narrow(a.odd, 8, mantissa, bias, max, nan) << 8);                 \
    }

SMALL_ELEMENT(e4m3, 3, 7, 0x7f, 0x43e00000u, 0x7f)  /* 448 */
SMALL_ELEMENT(e5m2, 2, 15, 0x7c, 0x47600000u, 0x7e) /* 57344 */
#undef SMALL_ELEMENT

#endif
