/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vec.h: the vectors that reductions are written in, of the width of the
 * instruction set that the including file is compiled for (64 bytes with
 * AVX-512, 32 with AVX2, else 16: SSE2, NEON or whatever the compiler makes of
 * it). Included by reduce_<isa>.c only, through reduce_impl.h.
 *
 * Arithmetic is the compilers' vector extension, the same text for every
 * width, so all instruction sets share one logic. Intrinsics appear only where
 * they say something that operators cannot: masked access, packing, half
 * conversion, minimum. Loads and stores assume no alignment, and never touch a
 * byte outside the range they are given.
 */
#ifndef SOL_COLL_VEC_H
#define SOL_COLL_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "partial loads build words from bytes");

/* VEC(f) is the intrinsic f of our width; VEC_BYTES the width. */
#if defined(__AVX512BW__) && defined(__AVX512DQ__)
#define VEC_AVX512 1
#define VEC_BYTES 64
#define VEC(name) _mm512_##name
#elif defined(__AVX2__)
#define VEC_AVX2 1
#define VEC_BYTES 32
#define VEC(name) _mm256_##name
#else
#define VEC_BYTES 16
#define VEC(name) _mm_##name
#endif
#define VEC_LANES (VEC_BYTES / 4) /* 32-bit lanes */

#define VEC_INLINE static inline __attribute__((always_inline))
#define VEC_NOINLINE __attribute__((noinline))
#define VEC_TYPE(type, bytes) type __attribute__((vector_size(bytes)))

typedef VEC_TYPE(int8_t, VEC_BYTES) vec_i8;
typedef VEC_TYPE(uint8_t, VEC_BYTES) vec_u8;
typedef VEC_TYPE(int32_t, VEC_BYTES) vec_i32;
typedef VEC_TYPE(uint32_t, VEC_BYTES) vec_u32;
typedef VEC_TYPE(int64_t, VEC_BYTES) vec_i64;
typedef VEC_TYPE(uint64_t, VEC_BYTES) vec_u64;
typedef VEC_TYPE(float, VEC_BYTES) vec_f32;
typedef VEC_TYPE(double, VEC_BYTES) vec_f64;
typedef VEC_TYPE(int16_t, VEC_BYTES) vec_i16;
typedef VEC_TYPE(uint16_t, VEC_BYTES) vec_u16;
typedef VEC_TYPE(uint8_t, VEC_BYTES / 2) vec_half;  /* half as wide: a byte for each 16-bit lane */
typedef VEC_TYPE(uint16_t, VEC_BYTES / 2) half_u16; /* or a word for each 32-bit one */

/* ------------------------------------------------------------ whole loads and stores */

VEC_INLINE vec_u32 vec_load(const unsigned char *from)
{
    vec_u32 v;
    memcpy(&v, from, sizeof v);
    return v;
}

VEC_INLINE void vec_store(unsigned char *to, vec_u32 v)
{
    memcpy(to, &v, sizeof v);
}

VEC_INLINE vec_half half_load(const unsigned char *from)
{
    vec_half v;
    memcpy(&v, from, sizeof v);
    return v;
}

VEC_INLINE void half_store(unsigned char *to, vec_half v)
{
    memcpy(to, &v, sizeof v);
}

/* ---------------------------------------- partial ones: `bytes` less than the vector; 0 elsewhere
 */

#if VEC_AVX512

VEC_INLINE vec_u32 vec_load_part(const unsigned char *from, size_t bytes)
{
    return (vec_u32)_mm512_maskz_loadu_epi8(((__mmask64)1 << bytes) - 1, from);
}

VEC_INLINE void vec_store_part(unsigned char *to, vec_u32 v, size_t bytes)
{
    _mm512_mask_storeu_epi8(to, ((__mmask64)1 << bytes) - 1, (__m512i)v);
}

VEC_INLINE vec_half half_load_part(const unsigned char *from, size_t bytes)
{
    return (vec_half)_mm256_maskz_loadu_epi8(((__mmask32)1 << bytes) - 1, from);
}

VEC_INLINE void half_store_part(unsigned char *to, vec_half v, size_t bytes)
{
    _mm256_mask_storeu_epi8(to, ((__mmask32)1 << bytes) - 1, (__m256i)v);
}

#else

typedef VEC_TYPE(uint64_t, 16) vec_16bytes;

/* Words of falling size, put together in registers: a copy through the stack would wait for its own
 * stores, and costs more than the rest of a small reduction. */
VEC_INLINE uint64_t load_below_8(const unsigned char *from, size_t bytes)
{
    uint64_t word = 0;
    uint32_t four;
    uint16_t two;
    if (bytes & 1)
        word = from[bytes - 1];
    if (bytes & 2) {
        memcpy(&two, from + (bytes & 4), sizeof two);
        word = word << 16 | two;
    }
    if (bytes & 4) {
        memcpy(&four, from, sizeof four);
        word = word << 32 | four;
    }
    return word;
}

VEC_INLINE void store_below_8(unsigned char *to, uint64_t word, size_t bytes)
{
    if (bytes & 4) {
        memcpy(to, &word, 4);
        word >>= 32;
        to += 4;
    }
    if (bytes & 2) {
        memcpy(to, &word, 2);
        word >>= 16;
        to += 2;
    }
    if (bytes & 1)
        *to = (unsigned char)word;
}

VEC_INLINE vec_16bytes load_below_16(const unsigned char *from, size_t bytes)
{
    uint64_t low;
    if (bytes < 8)
        return (vec_16bytes){load_below_8(from, bytes), 0};
    memcpy(&low, from, sizeof low);
    return (vec_16bytes){low, load_below_8(from + 8, bytes - 8)};
}

VEC_INLINE void store_below_16(unsigned char *to, vec_16bytes v, size_t bytes)
{
    uint64_t word = v[0];
    if (bytes & 8) {
        memcpy(to, &word, sizeof word);
        word = v[1];
        to += 8;
    }
    store_below_8(to, word, bytes & 7);
}

#if VEC_AVX2

VEC_INLINE vec_u32 vec_load_part(const unsigned char *from, size_t bytes)
{
    if (bytes < 16)
        return (vec_u32)_mm256_zextsi128_si256((__m128i)load_below_16(from, bytes));
    return (vec_u32)_mm256_set_m128i((__m128i)load_below_16(from + 16, bytes - 16),
                                     _mm_loadu_si128((const __m128i *)from));
}

VEC_INLINE void vec_store_part(unsigned char *to, vec_u32 v, size_t bytes)
{
    vec_16bytes part = (vec_16bytes)_mm256_castsi256_si128((__m256i)v);
    if (bytes & 16) {
        memcpy(to, &part, sizeof part);
        part = (vec_16bytes)_mm256_extracti128_si256((__m256i)v, 1);
        to += 16;
    }
    store_below_16(to, part, bytes & 15);
}

VEC_INLINE vec_half half_load_part(const unsigned char *from, size_t bytes)
{
    return (vec_half)load_below_16(from, bytes);
}

VEC_INLINE void half_store_part(unsigned char *to, vec_half v, size_t bytes)
{
    store_below_16(to, (vec_16bytes)v, bytes);
}

#else

VEC_INLINE vec_u32 vec_load_part(const unsigned char *from, size_t bytes)
{
    return (vec_u32)load_below_16(from, bytes);
}

VEC_INLINE void vec_store_part(unsigned char *to, vec_u32 v, size_t bytes)
{
    store_below_16(to, (vec_16bytes)v, bytes);
}

VEC_INLINE vec_half half_load_part(const unsigned char *from, size_t bytes)
{
    return (vec_half)load_below_8(from, bytes);
}

VEC_INLINE void half_store_part(unsigned char *to, vec_half v, size_t bytes)
{
    store_below_8(to, (uint64_t)v, bytes);
}

#endif
#endif

/* ------------------------------------------------------------------ lanes and halves */

/* if_set where the mask's lanes (of any width) are all ones, otherwise where they are 0. */
VEC_INLINE vec_u32 vec_select(vec_i32 mask, vec_u32 if_set, vec_u32 otherwise)
{
#if VEC_AVX2
    return (vec_u32)_mm256_blendv_epi8((__m256i)otherwise, (__m256i)if_set, (__m256i)mask);
#else
    return ((vec_u32)mask & if_set) | (~(vec_u32)mask & otherwise);
#endif
}

VEC_INLINE vec_u16 words_select(vec_i16 mask, vec_u16 if_set, vec_u16 otherwise)
{
    return (vec_u16)vec_select((vec_i32)mask, (vec_u32)if_set, (vec_u32)otherwise);
}

/* Bytes to 16-bit lanes. */
VEC_INLINE vec_u16 words_from_bytes(vec_half v)
{
#if VEC_AVX512
    return (vec_u16)_mm512_cvtepu8_epi16((__m256i)v);
#elif VEC_AVX2
    return (vec_u16)_mm256_cvtepu8_epi16((__m128i)v);
#elif defined(__x86_64__)
    return (vec_u16)_mm_unpacklo_epi8(_mm_cvtsi64_si128((int64_t)v), _mm_setzero_si128());
#else
    return __builtin_convertvector(v, vec_u16);
#endif
}

/*
 * 32-bit lanes below 2^16 to 16-bit lanes, and those to bytes, with the vectors in the order in
 * which elements.h takes 16-bit lanes apart: low and high halves, or even and odd lanes. AVX2 packs
 * within 128-bit lanes, which leaves 64-bit groups out of order (low 0-3, high 0-3, low 4-7, high
 * 4-7); the narrower step puts them right, so only the two together are an order.
 */
VEC_INLINE vec_u16 words_pack(vec_u32 first, vec_u32 second)
{
#if VEC_AVX512
    return (vec_u16)_mm512_inserti64x4(
        _mm512_castsi256_si512(_mm512_cvtepi32_epi16((__m512i)first)),
        _mm512_cvtepi32_epi16((__m512i)second), 1);
#elif VEC_AVX2
    return (vec_u16)_mm256_packus_epi32((__m256i)first, (__m256i)second);
#else
    return (vec_u16)(first | second << 16);
#endif
}

/* Lanes must be below 2^8. */
VEC_INLINE vec_half bytes_from_packed(vec_u16 v)
{
#if VEC_AVX512
    return (vec_half)_mm512_cvtepi16_epi8((__m512i)v);
#elif VEC_AVX2
    __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128((__m256i)v),
                                     _mm256_extracti128_si256((__m256i)v, 1));
    return (vec_half)_mm_shuffle_epi32(bytes, _MM_SHUFFLE(3, 1, 2, 0));
#elif defined(__x86_64__)
    return (vec_half)_mm_cvtsi128_si64(_mm_packus_epi16((__m128i)v, (__m128i)v));
#else
    return __builtin_convertvector(v, vec_half);
#endif
}

/* ----------------------------------------------------------------- floating point */

/*
 * Every NaN to the canonical one; anything else stays. The processor's own NaNs differ between
 * makers (x86 makes negative ones) and keep one operand's payload, which depends on their order.
 */
VEC_INLINE vec_f32 vec_canonical_f32(vec_f32 v)
{
#if VEC_AVX512
    const __m512 nan = (__m512)((vec_u32){0} + 0x7fc00000u);
    return (vec_f32)_mm512_mask_mov_ps((__m512)v, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), nan);
#elif VEC_AVX2
    const __m256 nan = (__m256)((vec_u32){0} + 0x7fc00000u);
    return (vec_f32)_mm256_blendv_ps(v, nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
#else
    return (vec_f32)vec_select(v != v, (vec_u32){0} + 0x7fc00000u, (vec_u32)v);
#endif
}

VEC_INLINE vec_f64 vec_canonical_f64(vec_f64 v)
{
    const vec_u64 nan = (vec_u64){0} + 0x7ff8000000000000u;
#if VEC_AVX512
    return (vec_f64)_mm512_mask_mov_pd(v, _mm512_cmp_pd_mask(v, v, _CMP_UNORD_Q), (__m512d)nan);
#elif VEC_AVX2
    return (vec_f64)_mm256_blendv_pd(v, (__m256d)nan, _mm256_cmp_pd(v, v, _CMP_UNORD_Q));
#else
    vec_u64 is_nan = (vec_u64)(v != v);
    return (vec_f64)((is_nan & nan) | (~is_nan & (vec_u64)v));
#endif
}

/*
 * Minimum and maximum with -0 < +0, and some NaN if either is one. x86's give the second operand
 * when the two are equal or one is NaN; so both orders together hold both operands, and differ in
 * no other case. Or-ing them keeps -0 of two zeros and, exponents being all ones, NaN; and-ing
 * keeps +0, but not NaN, which the comparison adds as a lane of ones.
 */
#if defined(__x86_64__)

VEC_INLINE vec_f32 vec_min_f32(vec_f32 a, vec_f32 b)
{
    return (vec_f32)((vec_u32)VEC(min_ps)(a, b) | (vec_u32)VEC(min_ps)(b, a));
}

VEC_INLINE vec_f32 vec_max_f32(vec_f32 a, vec_f32 b)
{
    vec_i32 unordered = (a != a) | (b != b);
    return (vec_f32)(((vec_u32)VEC(max_ps)(a, b) & (vec_u32)VEC(max_ps)(b, a)) |
                     (vec_u32)unordered);
}

VEC_INLINE vec_f64 vec_min_f64(vec_f64 a, vec_f64 b)
{
    return (vec_f64)((vec_u64)VEC(min_pd)(a, b) | (vec_u64)VEC(min_pd)(b, a));
}

VEC_INLINE vec_f64 vec_max_f64(vec_f64 a, vec_f64 b)
{
    vec_i64 unordered = (a != a) | (b != b);
    return (vec_f64)(((vec_u64)VEC(max_pd)(a, b) & (vec_u64)VEC(max_pd)(b, a)) |
                     (vec_u64)unordered);
}

#else /* the same by comparison: where neither is less they are equal, or one is NaN */

#define VEC_FLOAT_MIN_MAX(name, vec, mask, word)                                                   \
    VEC_INLINE vec vec_min_##name(vec a, vec b)                                                    \
    {                                                                                              \
        word a_less = (word)(a < b), b_less = (word)(b < a);                                       \
        return (vec)((~b_less & (word)a) | (~a_less & (word)b));                                   \
    }                                                                                              \
    VEC_INLINE vec vec_max_##name(vec a, vec b)                                                    \
    {                                                                                              \
        word a_less = (word)(a < b), b_less = (word)(b < a);                                       \
        word both = (word)a & (word)b, unordered = (word)((a != a) | (b != b));                    \
        return (vec)((a_less & (word)b) | (b_less & (word)a) | (~(a_less | b_less) & both) |       \
                     unordered);                                                                   \
    }
VEC_FLOAT_MIN_MAX(f32, vec_f32, vec_i32, vec_u32)
VEC_FLOAT_MIN_MAX(f64, vec_f64, vec_i64, vec_u64)
#undef VEC_FLOAT_MIN_MAX

#endif
#endif
