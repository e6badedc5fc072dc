/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce.cuh: the arithmetic of reductions on a vector of 16 bytes, as solccl.h
 * defines it at sol_redop_t. The twin of coll/reduce.h: the same bits.
 *
 *   struct sol_lanes<D>   accumulators of one vector of type D
 *   sol_unpack<D>(v)      exact
 *   sol_combine<D>(op, acc, x)   acc = acc op x, one rank after the other
 *   sol_pack<D>(acc)      rounds once; every NaN becomes the canonical one
 *   sol_finish<D>(op, acc, n)    AVG's division, then pack
 *   sol_scale<D>(v, s)    the premultiplied sum's first half
 *
 * `op` is a constant after inlining in the kernels for common types, and a
 * value that is uniform over the grid in the others.
 *
 * Sums and products go through the wrappers of ptx.cuh, which are never
 * contracted into a fused multiply-add; nothing is compiled with fast math.
 */
#ifndef SOL_DEVICE_REDUCE_CUH
#define SOL_DEVICE_REDUCE_CUH

#include "solccl/device/ptx.cuh"
#include "solccl/solccl.h"

/* A C type for each group of element types; lanes and accumulators follow from it. */
template <int D> struct sol_element;
template <> struct sol_element<SOL_INT8> {
    typedef int32_t acc; /* kept sign-extended: see sol_wrap */
    enum { count = 16 };
};
template <> struct sol_element<SOL_UINT8> {
    typedef uint32_t acc;
    enum { count = 16 };
};
template <> struct sol_element<SOL_INT32> {
    typedef int32_t acc;
    enum { count = 4 };
};
template <> struct sol_element<SOL_UINT32> {
    typedef uint32_t acc;
    enum { count = 4 };
};
template <> struct sol_element<SOL_INT64> {
    typedef int64_t acc;
    enum { count = 2 };
};
template <> struct sol_element<SOL_UINT64> {
    typedef uint64_t acc;
    enum { count = 2 };
};
template <> struct sol_element<SOL_FLOAT16> {
    typedef float acc;
    enum { count = 8 };
};
template <> struct sol_element<SOL_BFLOAT16> {
    typedef float acc;
    enum { count = 8 };
};
template <> struct sol_element<SOL_FLOAT32> {
    typedef float acc;
    enum { count = 4 };
};
template <> struct sol_element<SOL_FLOAT64> {
    typedef double acc;
    enum { count = 2 };
};
template <> struct sol_element<SOL_FLOAT8_E4M3> {
    typedef float acc;
    enum { count = 16 };
};
template <> struct sol_element<SOL_FLOAT8_E5M2> {
    typedef float acc;
    enum { count = 16 };
};

template <int D> struct sol_lanes {
    typename sol_element<D>::acc x[sol_element<D>::count];
};

/* --- one pair of accumulators ---------------------------------------------------------------- */

SOL_GPU_FN float sol_apply(int op, float a, float b)
{
    switch (op) {
    case SOL_PROD:
        return sol_mul_f32(a, b);
    case SOL_MIN:
        return sol_min_f32(a, b);
    case SOL_MAX:
        return sol_max_f32(a, b);
    default:
        return sol_add_f32(a, b);
    }
}

/* PTX has no min.NaN for fp64. Order by value, and equal values (so zeros) by the sign bit. */
SOL_GPU_FN double sol_least_f64(double a, double b)
{
    if (a != a || b != b)
        return sol_f64_bits(0x7ff8000000000000ull);
    if (a == b)
        return sol_f64_bits(sol_bits_f64(a) | sol_bits_f64(b));
    return a < b ? a : b;
}
SOL_GPU_FN double sol_greatest_f64(double a, double b)
{
    if (a != a || b != b)
        return sol_f64_bits(0x7ff8000000000000ull);
    if (a == b)
        return sol_f64_bits(sol_bits_f64(a) & sol_bits_f64(b));
    return a > b ? a : b;
}
SOL_GPU_FN double sol_apply(int op, double a, double b)
{
    switch (op) {
    case SOL_PROD:
        return sol_mul_f64(a, b);
    case SOL_MIN:
        return sol_least_f64(a, b);
    case SOL_MAX:
        return sol_greatest_f64(a, b);
    default:
        return sol_add_f64(a, b);
    }
}

/* Integers wrap: signed ones are added and multiplied as unsigned. U is the unsigned twin of T. */
template <class T, class U> SOL_GPU_FN T sol_apply_integer(int op, T a, T b)
{
    switch (op) {
    case SOL_PROD:
        return (T)((U)a * (U)b);
    case SOL_MIN:
        return a < b ? a : b;
    case SOL_MAX:
        return a > b ? a : b;
    default:
        return (T)((U)a + (U)b);
    }
}
SOL_GPU_FN int32_t sol_apply(int op, int32_t a, int32_t b)
{
    return sol_apply_integer<int32_t, uint32_t>(op, a, b);
}
SOL_GPU_FN uint32_t sol_apply(int op, uint32_t a, uint32_t b)
{
    return sol_apply_integer<uint32_t, uint32_t>(op, a, b);
}
SOL_GPU_FN int64_t sol_apply(int op, int64_t a, int64_t b)
{
    return sol_apply_integer<int64_t, uint64_t>(op, a, b);
}
SOL_GPU_FN uint64_t sol_apply(int op, uint64_t a, uint64_t b)
{
    return sol_apply_integer<uint64_t, uint64_t>(op, a, b);
}

/* Half, a quarter, an eighth are one multiplication: it rounds the same real number. */
SOL_GPU_FN float sol_over(float a, int n)
{
    return (n & (n - 1)) == 0 ? sol_mul_f32(a, 1.0f / (float)n) : sol_div_f32(a, (float)n);
}
SOL_GPU_FN double sol_over(double a, int n)
{
    return (n & (n - 1)) == 0 ? sol_mul_f64(a, 1.0 / (double)n) : sol_div_f64(a, (double)n);
}
SOL_GPU_FN int32_t sol_over(int32_t a, int n)
{
    return a / n;
}
SOL_GPU_FN uint32_t sol_over(uint32_t a, int n)
{
    return a / (uint32_t)n;
}
SOL_GPU_FN int64_t sol_over(int64_t a, int n)
{
    return a / n;
}
SOL_GPU_FN uint64_t sol_over(uint64_t a, int n)
{
    return a / (uint64_t)n;
}

/* --- rounding to small floats ------------------------------------------------------------------
 */

/* Conversions give some NaN; ours is `nan`. */
SOL_GPU_FN uint32_t sol_canonical_pair(uint32_t pair, float low, float high, uint32_t nan)
{
    pair = low != low ? (pair & 0xffff0000u) | nan : pair;
    return high != high ? (pair & 0xffffu) | nan << 16 : pair;
}

/* Without conversion instructions (below sm_89): a float of `m` mantissa bits to fp32 and back. */
SOL_GPU_FN float sol_widen_small(uint32_t byte, int m, int bias, uint32_t first_special)
{
    uint32_t magnitude = byte & 0x7f;
    float scaled = sol_mul_f32(sol_f32_bits(magnitude << (23 - m)),
                               sol_f32_bits((uint32_t)(254 - bias) << 23));
    uint32_t bits = sol_bits_f32(scaled);
    if (magnitude >= first_special) /* E5M2: infinity, then NaN; E4M3: NaN */
        bits = m == 2 && magnitude == first_special ? 0x7f800000u : 0x7fc00000u;
    return sol_f32_bits(bits | (byte & 0x80) << 24);
}
SOL_GPU_FN uint32_t sol_narrow_small(float x, int m, int bias, uint32_t max, uint32_t nan)
{
    uint32_t bits = sol_bits_f32(x), magnitude = bits & 0x7fffffffu, result;
    if (magnitude > 0x7f800000u)
        return nan;
    if (magnitude > max)
        magnitude = max;
    int drop = 23 - m, exponent = (int)(magnitude >> 23) - 127 + bias;
    if (exponent >= 1) {
        uint32_t odd = magnitude >> drop & 1;
        result =
            ((magnitude + (1u << (drop - 1)) - 1 + odd) >> drop) - ((uint32_t)(127 - bias) << m);
    } else {
        uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u;
        drop += 1 - exponent;
        result =
            drop > 25 ? 0 : (fraction + (1u << (drop - 1)) - 1 + (fraction >> drop & 1)) >> drop;
    }
    return result | (bits >> 24 & 0x80);
}

/* --- 32 bits of a vector to and from accumulators ------------------------------------------------
 */

template <int D> SOL_GPU_FN void sol_unpack_u32(typename sol_element<D>::acc *x, uint32_t w)
{
    switch (D) {
    case SOL_FLOAT32:
        x[0] = sol_f32_bits(w);
        break;
    case SOL_BFLOAT16:
        x[0] = sol_f32_bits(w << 16);
        x[1] = sol_f32_bits(w & 0xffff0000u);
        break;
    case SOL_FLOAT16:
        x[0] = sol_f32_from_f16(w & 0xffff);
        x[1] = sol_f32_from_f16(w >> 16);
        break;
    case SOL_INT8:
        for (int i = 0; i < 4; i++)
            x[i] = (int8_t)(w >> 8 * i);
        break;
    case SOL_UINT8:
        for (int i = 0; i < 4; i++)
            x[i] = (uint8_t)(w >> 8 * i);
        break;
    case SOL_FLOAT8_E4M3:
    case SOL_FLOAT8_E5M2:
#if SOL_HAS_FP8
        for (int i = 0; i < 2; i++) {
            uint32_t two = w >> 16 * i & 0xffff;
            uint32_t h =
                D == SOL_FLOAT8_E4M3 ? sol_f16x2_from_e4m3x2(two) : sol_f16x2_from_e5m2x2(two);
            x[2 * i] = sol_f32_from_f16(h & 0xffff);
            x[2 * i + 1] = sol_f32_from_f16(h >> 16);
        }
#else
        for (int i = 0; i < 4; i++)
            x[i] = D == SOL_FLOAT8_E4M3 ? sol_widen_small(w >> 8 * i & 0xff, 3, 7, 0x7f)
                                        : sol_widen_small(w >> 8 * i & 0xff, 2, 15, 0x7c);
#endif
        break;
    default: /* 32-bit integers */
        x[0] = (typename sol_element<D>::acc)w;
    }
}

template <int D> SOL_GPU_FN uint32_t sol_pack_u32(const typename sol_element<D>::acc *x)
{
    switch (D) {
    case SOL_FLOAT32:
        return x[0] != x[0] ? 0x7fc00000u : sol_bits_f32(x[0]);
    case SOL_BFLOAT16:
        return sol_canonical_pair(sol_bf16x2_from_f32(x[0], x[1]), x[0], x[1], 0x7fc0);
    case SOL_FLOAT16:
        return sol_canonical_pair(sol_f16x2_from_f32(x[0], x[1]), x[0], x[1], 0x7e00);
    case SOL_INT8:
    case SOL_UINT8:
        return ((uint32_t)x[0] & 0xff) | ((uint32_t)x[1] & 0xff) << 8 |
               ((uint32_t)x[2] & 0xff) << 16 | (uint32_t)x[3] << 24;
    case SOL_FLOAT8_E4M3: {
#if SOL_HAS_FP8
        return sol_e4m3x2_from_f32(x[0], x[1]) | sol_e4m3x2_from_f32(x[2], x[3]) << 16;
#else
        uint32_t w = 0;
        for (int i = 0; i < 4; i++)
            w |= sol_narrow_small(x[i], 3, 7, 0x43e00000u, 0x7f) << 8 * i;
        return w;
#endif
    }
    case SOL_FLOAT8_E5M2: {
        uint32_t w = 0;
#if SOL_HAS_FP8
        w = sol_e5m2x2_from_f32(x[0], x[1]) | sol_e5m2x2_from_f32(x[2], x[3]) << 16;
        for (int i = 0; i < 4; i++)
            w = x[i] != x[i] ? (w & ~(0xffu << 8 * i)) | 0x7eu << 8 * i : w;
#else
        for (int i = 0; i < 4; i++)
            w |= sol_narrow_small(x[i], 2, 15, 0x47600000u, 0x7e) << 8 * i;
#endif
        return w;
    }
    default:
        return (uint32_t)x[0];
    }
}

/* --- a whole vector
 * ------------------------------------------------------------------------------- */

template <int D> SOL_GPU_FN struct sol_lanes<D> sol_unpack(struct sol_vector v) {
    struct sol_lanes<D> acc;
    enum { quarter = sol_element<D>::count / 4 };
    if constexpr (D == SOL_FLOAT64) {
        acc.x[0] = sol_f64_bits(v.a);
        acc.x[1] = sol_f64_bits(v.b);
    } else if constexpr (D == SOL_INT64 || D == SOL_UINT64) {
        acc.x[0] = (typename sol_element<D>::acc)v.a;
        acc.x[1] = (typename sol_element<D>::acc)v.b;
    } else {
        sol_unpack_u32<D>(acc.x, (uint32_t)v.a);
        sol_unpack_u32<D>(acc.x + quarter, (uint32_t)(v.a >> 32));
        sol_unpack_u32<D>(acc.x + 2 * quarter, (uint32_t)v.b);
        sol_unpack_u32<D>(acc.x + 3 * quarter, (uint32_t)(v.b >> 32));
    }
    return acc;
}

template <int D>
SOL_GPU_FN struct sol_vector sol_pack(const struct sol_lanes<D> &acc)
{
    struct sol_vector v;
    enum { quarter = sol_element<D>::count / 4 };
    if constexpr (D == SOL_FLOAT64) {
        v.a = acc.x[0] != acc.x[0] ? 0x7ff8000000000000ull : sol_bits_f64(acc.x[0]);
        v.b = acc.x[1] != acc.x[1] ? 0x7ff8000000000000ull : sol_bits_f64(acc.x[1]);
    } else if constexpr (D == SOL_INT64 || D == SOL_UINT64) {
        v.a = (uint64_t)acc.x[0];
        v.b = (uint64_t)acc.x[1];
    } else {
        v.a = sol_pack_u32<D>(acc.x) | (uint64_t)sol_pack_u32<D>(acc.x + quarter) << 32;
        v.b = sol_pack_u32<D>(acc.x + 2 * quarter) | (uint64_t)sol_pack_u32<D>(acc.x + 3 * quarter)
                                                         << 32;
    }
    return v;
}

/* The same where it is known that no number is NaN. */
template <int D> SOL_GPU_FN struct sol_vector sol_pack_numbers(const struct sol_lanes<D> &acc)
{
    uint32_t w[4];
    static_assert(D == SOL_FLOAT32 || D == SOL_BFLOAT16 || D == SOL_FLOAT16, "types of models");
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if constexpr (D == SOL_FLOAT32)
            w[i] = sol_bits_f32(acc.x[i]);
        else if constexpr (D == SOL_BFLOAT16)
            w[i] = sol_bf16x2_from_f32(acc.x[2 * i], acc.x[2 * i + 1]);
        else
            w[i] = sol_f16x2_from_f32(acc.x[2 * i], acc.x[2 * i + 1]);
    }
    const struct sol_vector v = {w[0] | (uint64_t)w[1] << 32, w[2] | (uint64_t)w[3] << 32};
    return v;
}

/* Bring the accumulator of a type narrower than it back into the type's range. */
template <int D> SOL_GPU_FN typename sol_element<D>::acc sol_wrap(typename sol_element<D>::acc x)
{
    if constexpr (D == SOL_INT8)
        return (int8_t)x;
    else if constexpr (D == SOL_UINT8)
        return (uint8_t)x;
    else
        return x;
}

template <int D>
SOL_GPU_FN void sol_combine(int op, struct sol_lanes<D> &acc, const struct sol_lanes<D> &x)
{
#pragma unroll
    for (int i = 0; i < sol_element<D>::count; i++)
        acc.x[i] = sol_wrap<D>(sol_apply(op, acc.x[i], x.x[i]));
}

template <int D>
SOL_GPU_FN struct sol_vector sol_finish(int op, struct sol_lanes<D> &acc, int nranks)
{
    if (op == SOL_AVG) {
#pragma unroll
        for (int i = 0; i < sol_element<D>::count; i++)
            acc.x[i] = sol_over(acc.x[i], nranks);
    }
    return sol_pack<D>(acc);
}

/* --- the sum of two, for the kernels that have no instruction to spare ---------------------------
 */

/*
 * The same bits as unpack, combine, pack. For 16-bit types the sum is rounded to 16 bits at once:
 * rounding it to fp32 first changes nothing, since fp32 has at least twice their digits and two.
 * NaNs are looked for after the fact and mended in a branch that is never taken in practice.
 */
template <int D> SOL_GPU_FN uint32_t sol_sum_u32(uint32_t a, uint32_t b)
{
    if constexpr (D == SOL_BFLOAT16)
        return sol_add_bf16x2(a, b);
    else if constexpr (D == SOL_FLOAT16)
        return sol_add_f16x2(a, b);
    else
        return sol_bits_f32(sol_add_f32(sol_f32_bits(a), sol_f32_bits(b)));
}

/* Has bits at the top of a lane that is NaN; other bits mean nothing. */
template <int D> SOL_GPU_FN uint32_t sol_nan_marks(uint32_t w)
{
    if constexpr (D == SOL_BFLOAT16)
        return (w & 0x7fff7fffu) + 0x007f007fu;
    else if constexpr (D == SOL_FLOAT16)
        return (w & 0x7fff7fffu) + 0x03ff03ffu;
    else
        return (w & 0x7fffffffu) + 0x007fffffu;
}

template <int D> SOL_GPU_FN uint32_t sol_canonical_u32(uint32_t w)
{
    if constexpr (D == SOL_FLOAT32)
        return sol_nan_marks<D>(w) >> 31 ? 0x7fc00000u : w;
    const uint32_t nan = D == SOL_BFLOAT16 ? 0x7fc0 : 0x7e00, marks = sol_nan_marks<D>(w);
    w = marks >> 15 & 1 ? (w & 0xffff0000u) | nan : w;
    return marks >> 31 ? (w & 0xffffu) | nan << 16 : w;
}

/* The same sum with NaNs made the canonical one: rare, and so out of the way (watch.cuh). */
template <int D>
SOL_GPU_RARE struct sol_vector sol_canonical_sum(struct sol_vector x, struct sol_vector y)
{
    uint32_t r0 = sol_canonical_u32<D>(sol_sum_u32<D>((uint32_t)x.a, (uint32_t)y.a));
    uint32_t r1 =
        sol_canonical_u32<D>(sol_sum_u32<D>((uint32_t)(x.a >> 32), (uint32_t)(y.a >> 32)));
    uint32_t r2 = sol_canonical_u32<D>(sol_sum_u32<D>((uint32_t)x.b, (uint32_t)y.b));
    uint32_t r3 =
        sol_canonical_u32<D>(sol_sum_u32<D>((uint32_t)(x.b >> 32), (uint32_t)(y.b >> 32)));
    struct sol_vector sum = {r0 | (uint64_t)r1 << 32, r2 | (uint64_t)r3 << 32};
    return sum;
}
template <int D>
SOL_GPU_FN struct sol_vector sol_sum_of_two(struct sol_vector x, struct sol_vector y)
{
    uint32_t r0 = sol_sum_u32<D>((uint32_t)x.a, (uint32_t)y.a);
    uint32_t r1 = sol_sum_u32<D>((uint32_t)(x.a >> 32), (uint32_t)(y.a >> 32));
    uint32_t r2 = sol_sum_u32<D>((uint32_t)x.b, (uint32_t)y.b);
    uint32_t r3 = sol_sum_u32<D>((uint32_t)(x.b >> 32), (uint32_t)(y.b >> 32));
    uint32_t marks =
        sol_nan_marks<D>(r0) | sol_nan_marks<D>(r1) | sol_nan_marks<D>(r2) | sol_nan_marks<D>(r3);
    struct sol_vector sum = {r0 | (uint64_t)r1 << 32, r2 | (uint64_t)r3 << 32};
    if (__builtin_expect((marks & (D == SOL_FLOAT32 ? 0x80000000u : 0x80008000u)) != 0, 0))
        sum = sol_canonical_sum<D>(x, y);
    return sum;
}

/* The reduction of two vectors: every operation commutes, bit for bit. */
template <int D>
SOL_GPU_FN struct sol_vector sol_reduce_pair(int op, struct sol_vector x, struct sol_vector y)
{
    if constexpr (D == SOL_BFLOAT16 || D == SOL_FLOAT16 || D == SOL_FLOAT32)
        if (op == SOL_SUM)
            return sol_sum_of_two<D>(x, y);
    struct sol_lanes<D> acc = sol_unpack<D>(x);
    sol_combine<D>(op, acc, sol_unpack<D>(y));
    return sol_finish<D>(op, acc, 2);
}

/* Two vectors of four floats to one of eight bf16 or fp16, to nearest even, and back. */
template <int D>
SOL_GPU_FN struct sol_vector sol_narrow(struct sol_vector low, struct sol_vector high)
{
    struct sol_lanes<SOL_FLOAT32> a = sol_unpack<SOL_FLOAT32>(low),
                                  b = sol_unpack<SOL_FLOAT32>(high);
    struct sol_lanes<D> x;
    static_assert(sol_element<D>::count == 8, "a 16-bit float");
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x.x[i] = a.x[i];
        x.x[i + 4] = b.x[i];
    }
    return sol_pack<D>(x);
}
template <int D>
SOL_GPU_FN void sol_widen(struct sol_vector v, struct sol_vector &low, struct sol_vector &high)
{
    struct sol_lanes<D> x = sol_unpack<D>(v);
    struct sol_lanes<SOL_FLOAT32> a, b;
    static_assert(sol_element<D>::count == 8, "a 16-bit float");
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a.x[i] = x.x[i];
        b.x[i] = x.x[i + 4];
    }
    low = sol_pack<SOL_FLOAT32>(a);
    high = sol_pack<SOL_FLOAT32>(b);
}

/* A scalar of type D in device memory, as sol_scale takes it. */
template <int D> SOL_GPU_FN uint64_t sol_load_scalar(const void *p)
{
    switch (16 / sol_element<D>::count) {
    case 8:
        return *(const volatile uint64_t *)p;
    case 4:
        return *(const volatile uint32_t *)p;
    case 2:
        return *(const volatile uint16_t *)p;
    default:
        return *(const volatile uint8_t *)p;
    }
}

/* The scalar's bytes, of type D, in the low end of `scalar`. */
template <int D> SOL_GPU_FN struct sol_vector sol_scale(struct sol_vector v, uint64_t scalar)
{
    struct sol_vector s = {scalar, scalar};
    struct sol_lanes<D> factor = sol_unpack<D>(s), acc = sol_unpack<D>(v);
#pragma unroll
    for (int i = 0; i < sol_element<D>::count; i++)
        acc.x[i] = sol_wrap<D>(sol_apply(SOL_PROD, acc.x[i], factor.x[0]));
    return sol_pack<D>(acc);
}

#endif
