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
 * Small floats become two vectors of fp32. Where an element lies in them
 * matters to nobody, for pack undoes unpack: bf16 is taken apart as even and
 * odd elements, by shifts and masks in place of lane-crossing shuffles.
 * Included through reduce_impl.h only.
 */
#ifndef SOL_COLL_ELEMENTS_H
#define SOL_COLL_ELEMENTS_H

#include "coll/vec.h"
#include "solccl/solccl.h"

#define SPLAT_U32(x) ((vec_u32){0} + (uint32_t)(x))
#define SPLAT_U16(x) ((vec_u16){0} + (uint16_t)(x))
#define SPLAT_I16(x) ((vec_i16){0} + (int16_t)(x))
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
        vec_i32 a_less = (vec_i32)((ordered_vec)a < (ordered_vec)b);                               \
        vec_i32 take_a = op == SOL_MIN ? a_less : ~a_less;                                         \
        return (name##_acc)vec_select(take_a, (vec_u32)a, (vec_u32)b);                             \
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
    vec_f32 first, second; /* of raw: even and odd lanes, or low and high halves */
} vec_pair;

#define PAIR_ELEMENT(name)                                                                         \
    typedef vec_pair name##_acc;                                                                   \
    VEC_INLINE vec_pair name##_combine(sol_redop_t op, vec_pair a, vec_pair b)                     \
    {                                                                                              \
        return (vec_pair){f32_combine(op, a.first, b.first), f32_combine(op, a.second, b.second)}; \
    }                                                                                              \
    VEC_INLINE vec_pair name##_divide(vec_pair a, int n)                                           \
    {                                                                                              \
        return (vec_pair){f32_divide(a.first, n), f32_divide(a.second, n)};                        \
    }

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
    return bf16_round(a.first) >> 16 | (bf16_round(a.second) & SPLAT_U32(0xffff0000u));
}

/*
 * fp16: half a vector of them makes one of fp32. The processor converts them where it can;
 * elsewhere their fields are moved into place. f16_widen_words does so for a whole vector, in the
 * order of words_pack.
 */
typedef vec_f32 f16_acc;

VEC_INLINE vec_f32 f16_combine(sol_redop_t op, vec_f32 a, vec_f32 b)
{
    return f32_combine(op, a, b);
}

VEC_INLINE vec_f32 f16_divide(vec_f32 a, int n)
{
    return f32_divide(a, n);
}

#if VEC_AVX512

VEC_INLINE vec_f32 f16_unpack(vec_half raw)
{
    return (vec_f32)_mm512_cvtph_ps((__m256i)raw);
}

VEC_INLINE vec_half f16_pack(vec_f32 v)
{
    return (vec_half)_mm512_cvtps_ph(vec_canonical_f32(v), _MM_FROUND_TO_NEAREST_INT);
}

VEC_INLINE vec_pair f16_widen_words(vec_u16 words)
{
    return (vec_pair){_mm512_cvtph_ps(_mm512_castsi512_si256((__m512i)words)),
                      _mm512_cvtph_ps(_mm512_extracti64x4_epi64((__m512i)words, 1))};
}

#elif VEC_AVX2

VEC_INLINE vec_f32 f16_unpack(vec_half raw)
{
    return (vec_f32)_mm256_cvtph_ps((__m128i)raw);
}

VEC_INLINE vec_half f16_pack(vec_f32 v)
{
    return (vec_half)_mm256_cvtps_ph(vec_canonical_f32(v), _MM_FROUND_TO_NEAREST_INT);
}

VEC_INLINE vec_pair f16_widen_words(vec_u16 words)
{
    return (vec_pair){_mm256_cvtph_ps(_mm256_castsi256_si128((__m256i)words)),
                      _mm256_cvtph_ps(_mm256_extracti128_si256((__m256i)words, 1))};
}

#else

/* From the low 16 bits of each lane. */
VEC_INLINE vec_f32 f16_widen(vec_u32 half)
{
    const uint32_t rebase = (127u - 15) << 23, smallest = (127u - 14) << 23;
    vec_u32 sign = half >> 15 << 31, placed = (half & 0x7fff) << 13;
    /* A subnormal is placed as the fraction of the smallest normal number, whose one is taken off.
     */
    vec_f32 subnormal = (vec_f32)(placed + smallest) - (vec_f32)SPLAT_U32(smallest);
    vec_u32 wide = vec_select((vec_i32)placed < (1 << 23), (vec_u32)subnormal, placed + rebase);
    wide = vec_select((vec_i32)placed >= (0x7c00 << 13), placed | 0x7f800000u, wide);
    return (vec_f32)(wide | sign);
}

/* To the low 16 bits of each lane. From 2^16 up all is 2^16, which the arithmetic of normal numbers
 * encodes as infinity. */
VEC_INLINE vec_u32 f16_narrow(vec_f32 v)
{
    const int32_t ceiling = (127 + 16) << 23, smallest = (127 - 14) << 23;
    const uint32_t rebase = (127u - 15) << 23;
    /* Added to a subnormal, a half leaves its last place where the result's is, at 2^-24: the
     * processor's addition rounds. */
    const vec_u32 half = SPLAT_U32((127u - 1) << 23);
    vec_u32 sign = (vec_u32)v >> 31 << 15;
    vec_i32 magnitude = (vec_i32)v & 0x7fffffff, is_nan = magnitude > 0x7f800000;
    vec_u32 m = vec_select(magnitude > ceiling, SPLAT_U32(ceiling), (vec_u32)magnitude);
    vec_u32 subnormal = (vec_u32)((vec_f32)m + (vec_f32)half) - half;
    vec_u32 normal = (m - rebase + 0xfff + (m >> 13 & 1)) >> 13;
    vec_u32 narrow = vec_select((vec_i32)m < smallest, subnormal, normal) | sign;
    return vec_select(is_nan, SPLAT_U32(0x7e00), narrow);
}

VEC_INLINE vec_f32 f16_unpack(vec_half raw)
{
    return f16_widen(__builtin_convertvector((half_u16)raw, vec_u32));
}

VEC_INLINE vec_half f16_pack(vec_f32 v)
{
    return (vec_half) __builtin_convertvector(f16_narrow(v), half_u16);
}

VEC_INLINE vec_pair f16_widen_words(vec_u16 words)
{
    vec_u32 two = (vec_u32)words;
    return (vec_pair){f16_widen(two & 0xffff), f16_widen(two >> 16)};
}

#endif

/*
 * fp8 is widened by way of fp16: e5m2 is its high byte; e4m3, placed there, is a number 2^8 times
 * too small, subnormals too, and only its NaN needs a look.
 */
VEC_INLINE vec_pair e5m2_unpack(vec_half raw)
{
    return f16_widen_words(words_from_bytes(raw) << 8);
}

VEC_INLINE vec_pair e4m3_unpack(vec_half raw)
{
    vec_u16 words = words_from_bytes(raw), magnitude = words & 0x7f;
    vec_u16 is_nan = (vec_u16)(magnitude == 0x7f);
    vec_u16 half = is_nan | magnitude << 7 | (words & 0x80) << 8;
    vec_pair wide = f16_widen_words(half);
    return (vec_pair){wide.first * SPLAT_F32(256), wide.second * SPLAT_F32(256)};
}

/* fp32 cut to its high half, the last bit of which stands for all that was cut off as well ("round
 * to odd"): rounding that to fewer bits, with two to spare, is rounding the fp32. */
VEC_INLINE vec_u32 small_cut(vec_f32 v)
{
    vec_u32 bits = (vec_u32)v;
    return (bits | ((bits & 0xffff) + 0xffff)) >> 16;
}

/* The result where it is subnormal: this power of two leaves a sum's last place where the result's
 * is, so the processor's addition rounds, into the sum's low bits. */
VEC_INLINE vec_u32 small_subnormal(vec_f32 v, int mantissa, int bias)
{
    const vec_u32 anchor = SPLAT_U32((uint32_t)(127 + 24 - mantissa - bias) << 23);
    vec_f32 magnitude = (vec_f32)((vec_u32)v & 0x7fffffffu);
    return (vec_u32)(magnitude + (vec_f32)anchor) & 0xff;
}

/* fp32 to fp8, to nearest even; magnitudes saturate at `max`, given as a bf16. */
VEC_INLINE vec_half small_pack(vec_pair a, int mantissa, int bias, int16_t max, uint16_t nan)
{
    const int drop = 7 - mantissa; /* bits that a bf16 has more */
    const uint16_t rebase = (uint16_t)((127 - bias) << 7);
    const int16_t smallest = (int16_t)((128 - bias) << 7);
    vec_u16 cut = words_pack(small_cut(a.first), small_cut(a.second));
    vec_u16 subnormal = words_pack(small_subnormal(a.first, mantissa, bias),
                                   small_subnormal(a.second, mantissa, bias));
    vec_u16 sign = cut >> 8 & 0x80;
    vec_i16 magnitude = (vec_i16)(cut & 0x7fff), is_nan = magnitude > SPLAT_I16(0x7f80);
    vec_u16 m = words_select(magnitude > SPLAT_I16(max), SPLAT_U16(max), (vec_u16)magnitude);
    vec_u16 half = SPLAT_U16((1 << (drop - 1)) - 1 - rebase); /* just under half a last place */
    vec_u16 normal = (m + (m >> drop & 1) + half) >> drop;
    vec_i16 is_small = (vec_i16)m < SPLAT_I16(smallest);
    vec_u16 result = words_select(is_small, subnormal, normal) | sign;
    return bytes_from_packed(words_select(is_nan, SPLAT_U16(nan), result));
}

VEC_INLINE vec_half e4m3_pack(vec_pair a)
{
    return small_pack(a, 3, 7, 0x43e0 /* 448 */, 0x7f);
}

VEC_INLINE vec_half e5m2_pack(vec_pair a)
{
    return small_pack(a, 2, 15, 0x4760 /* 57344 */, 0x7e);
}

#endif
