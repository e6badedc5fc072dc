/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_ptx.h: takes the place of solccl/device/ptx.cuh, whose include guard it
 * owns: the same wrappers, on the emulated machine. Included before everything
 * else (-include). Say there what an instruction is for; here only what it does.
 *
 * The arithmetic is the instructions', bit for bit where solccl.h promises it:
 * the compiler must not contract (-ffp-contract=off) nor assume (no fast math).
 */
#ifndef SOL_DEVICE_PTX_CUH
#define SOL_DEVICE_PTX_CUH

#include "cuda_runtime.h"

#include <stdint.h>

/* Inlined, as on the GPU: a barrier is known by the calls that lead to it. */
#define SOL_GPU_FN static inline __attribute__((unused, always_inline))
#define SOL_GPU_RARE static __attribute__((unused))

/* One variable a CTA. */
#define SOL_SHARED(type, name)                                                                     \
    static const char name##_key = 0;                                                              \
    type &name = *(type *)emu_shared(&name##_key, sizeof(type))
#define SOL_SHARED_ARRAY(type, name, count)                                                        \
    static const char name##_key = 0;                                                              \
    type *const name = (type *)emu_shared(&name##_key, sizeof(type) * (count))

struct sol_vector {
    uint64_t a, b;
};

/* --- the link ----------------------------------------------------------------------------------
 */

SOL_GPU_FN struct sol_vector sol_poll_vector(const void *p)
{
    uint64_t pair[2];
    emu_poll_pair(p, pair);
    struct sol_vector v = {pair[0], pair[1]};
    return v;
}
SOL_GPU_FN void sol_push_vector(void *p, struct sol_vector v)
{
    emu_push_pair(p, v.a, v.b);
}
SOL_GPU_FN uint64_t sol_poll_word(const void *p)
{
    return emu_load(p, 8, EMU_RELAXED, EMU_SYS);
}
SOL_GPU_FN uint64_t sol_poll_word_acquire(const void *p)
{
    return emu_load(p, 8, EMU_ACQUIRE, EMU_SYS);
}
SOL_GPU_FN void sol_push_word(void *p, uint64_t w)
{
    emu_store(p, w, 8, EMU_RELAXED, EMU_SYS);
}
SOL_GPU_FN uint32_t sol_poll_u32(const volatile uint32_t *p)
{
    return (uint32_t)emu_load(p, 4, EMU_RELAXED, EMU_SYS);
}
SOL_GPU_FN void sol_push_u32(volatile uint32_t *p, uint32_t w)
{
    emu_store(p, w, 4, EMU_RELAXED, EMU_SYS);
}
SOL_GPU_FN void sol_add_word(uint64_t *p, uint64_t w)
{
    emu_rmw(p, 8, EMU_ADD, w, 0, EMU_RELAXED, EMU_GPU);
}
SOL_GPU_FN void sol_fence_system(void)
{
    emu_fence(EMU_SYS);
}

/* Lines: the flag comes after what it speaks of, since the hardware's 128-byte stores are whole. */
SOL_GPU_FN unsigned sol_line_mask(void)
{
    return 0xffu << (threadIdx.x & 24);
}
SOL_GPU_FN void sol_push_line(void *p, struct sol_vector v, uint64_t flag)
{
    char *at = (char *)p;
    if ((threadIdx.x & 7) != 7)
        emu_push_pair(p, v.a, v.b);
    else
        emu_store(p, v.a, 8, EMU_RELAXED, EMU_SYS);
    emu_syncwarp(sol_line_mask());
    if ((threadIdx.x & 7) == 7)
        emu_store(at + 8, flag, 8, EMU_RELEASE, EMU_SYS);
}
SOL_GPU_FN bool sol_poll_line(const void *p, uint64_t flag, struct sol_vector &v)
{
    const char *line = (const char *)((uintptr_t)p & ~(uintptr_t)127);
    if (emu_load(line + 120, 8, EMU_ACQUIRE, EMU_SYS) != flag)
        return false;
    v = sol_poll_vector(p);
    return true;
}
SOL_GPU_FN bool sol_line_any(bool x)
{
    return x;
}
SOL_GPU_FN bool sol_warp_any(bool x)
{
    return x;
}
SOL_GPU_FN void sol_push_add(uint64_t *p, uint64_t w)
{
    emu_rmw(p, 8, EMU_ADD, w, 0, EMU_RELAXED, EMU_SYS);
}

SOL_GPU_FN bool sol_take_u32(uint32_t *p)
{
    return emu_rmw(p, 4, EMU_CAS, 1, 0, EMU_ACQUIRE, EMU_GPU) == 0;
}
/* Lanes that wait do not come to one place together here: each is the first. */
SOL_GPU_FN bool sol_warp_first(int)
{
    return true;
}

SOL_GPU_FN unsigned sol_cluster_ctas(void)
{
    return emu_cluster_ctas();
}
SOL_GPU_FN unsigned sol_cluster_cta(void)
{
    return blockIdx.x % emu_cluster_ctas();
}

#define SOL_CHECK(condition, why)                                                                  \
    do {                                                                                           \
        if (!(condition))                                                                          \
            emu_trap(why);                                                                         \
    } while (0)

/* --- plain accesses ------------------------------------------------------------------------------
 */

SOL_GPU_FN struct sol_vector sol_load_16(const void *p)
{
    uint64_t pair[2];
    emu_load_pair(p, pair);
    struct sol_vector v = {pair[0], pair[1]};
    return v;
}
SOL_GPU_FN void sol_store_16(void *p, struct sol_vector v)
{
    emu_store_pair(p, v.a, v.b);
}
SOL_GPU_FN uint64_t sol_load_unit(const uint64_t *p)
{
    return emu_load_plain(p, 8);
}
SOL_GPU_FN uint32_t sol_load_unit(const uint32_t *p)
{
    return (uint32_t)emu_load_plain(p, 4);
}
SOL_GPU_FN uint32_t sol_load_unit(const uint16_t *p)
{
    return (uint32_t)emu_load_plain(p, 2);
}
SOL_GPU_FN uint32_t sol_load_unit(const uint8_t *p)
{
    return (uint32_t)emu_load_plain(p, 1);
}
SOL_GPU_FN void sol_store_unit(uint64_t *p, uint64_t u)
{
    emu_store_plain(p, u, 8);
}
SOL_GPU_FN void sol_store_unit(uint32_t *p, uint32_t u)
{
    emu_store_plain(p, u, 4);
}
SOL_GPU_FN void sol_store_unit(uint16_t *p, uint16_t u)
{
    emu_store_plain(p, u, 2);
}
SOL_GPU_FN void sol_store_unit(uint8_t *p, uint8_t u)
{
    emu_store_plain(p, u, 1);
}

/* --- kernels in a row, time
 * ------------------------------------------------------------------------ */

SOL_GPU_FN void sol_await_predecessors(void)
{
    emu_await_predecessors();
}
SOL_GPU_FN void sol_admit_successor(void)
{
    emu_admit_successor();
}
SOL_GPU_FN void sol_cluster_arrive(void)
{
    emu_cluster_arrive();
}
SOL_GPU_FN void sol_cluster_wait(void)
{
    emu_cluster_wait();
}
SOL_GPU_FN void sol_cluster_sync(void)
{
    if (emu_cluster_ctas() == 1)
        emu_syncthreads();
    else
        emu_cluster_arrive(), emu_cluster_wait();
}
SOL_GPU_FN void sol_cluster_store(float *mine, uint32_t cta, float x)
{
    emu_store_plain(emu_cluster_map(mine, cta), emu_detail::bits(x), 4);
}
SOL_GPU_FN void sol_cluster_push_word(uint64_t *mine, uint32_t cta, uint64_t w)
{
    emu_store(emu_cluster_map(mine, cta), w, 8, EMU_RELAXED, EMU_GPU);
}
SOL_GPU_FN uint64_t sol_cluster_poll_word(const uint64_t *mine)
{
    return emu_load(mine, 8, EMU_RELAXED, EMU_GPU);
}
SOL_GPU_FN int sol_opaque(int x)
{
    return x;
}
SOL_GPU_FN const char *sol_opaque(const char *x)
{
    return x;
}
SOL_GPU_FN char *sol_opaque(char *x)
{
    return x;
}
SOL_GPU_FN uint32_t sol_opaque(uint32_t x)
{
    return x;
}
SOL_GPU_FN uint32_t sol_count_bits(uint32_t x)
{
    return (uint32_t)__builtin_popcount(x);
}
SOL_GPU_FN uint64_t sol_clock_ns(void)
{
    return emu_clock_ns();
}

/* --- arithmetic
 * ------------------------------------------------------------------------------------- */

SOL_GPU_FN float sol_add_f32(float a, float b)
{
    return a + b;
}
SOL_GPU_FN float sol_mul_f32(float a, float b)
{
    return a * b;
}
SOL_GPU_FN float sol_div_f32(float a, float b)
{
    return a / b;
}
SOL_GPU_FN float sol_reciprocal_f32(float a)
{
    return 1.0f / a;
}
SOL_GPU_FN float sol_fma_f32(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
SOL_GPU_FN float sol_sqrt_f32(float a)
{
    return __builtin_sqrtf(a);
}
SOL_GPU_FN float sol_rint_f32(float a)
{
    return __builtin_rintf(a);
}
SOL_GPU_FN double sol_add_f64(double a, double b)
{
    return a + b;
}
SOL_GPU_FN double sol_mul_f64(double a, double b)
{
    return a * b;
}
SOL_GPU_FN double sol_div_f64(double a, double b)
{
    return a / b;
}
SOL_GPU_FN uint32_t sol_bits_f32(float x)
{
    return (uint32_t)emu_detail::bits(x);
}
SOL_GPU_FN float sol_f32_bits(uint32_t x)
{
    return emu_detail::value<float>(x);
}
SOL_GPU_FN uint64_t sol_bits_f64(double x)
{
    return emu_detail::bits(x);
}
SOL_GPU_FN double sol_f64_bits(uint64_t x)
{
    return emu_detail::value<double>(x);
}
SOL_GPU_FN float sol_min_f32(float a, float b)
{
    if (a != a || b != b)
        return sol_f32_bits(0x7fffffffu);
    if (a == b)
        return sol_f32_bits(sol_bits_f32(a) | sol_bits_f32(b));
    return a < b ? a : b;
}
SOL_GPU_FN float sol_max_f32(float a, float b)
{
    if (a != a || b != b)
        return sol_f32_bits(0x7fffffffu);
    if (a == b)
        return sol_f32_bits(sol_bits_f32(a) & sol_bits_f32(b));
    return a > b ? a : b;
}

SOL_GPU_FN uint32_t sol_permute(uint32_t low, uint32_t high, uint32_t which)
{
    const uint64_t bytes = low | (uint64_t)high << 32;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++)
        r |= (uint32_t)(bytes >> 8 * (which >> 4 * i & 7) & 0xff) << 8 * i;
    return r;
}

/* --- conversions
 * --------------------------------------------------------------------------------------- */

/* A small float of `m` mantissa bits; a NaN is 0x7fffffff, as the instructions give it. */
static inline float emu_widen(uint32_t bits, int exponent_bits, int m, bool infinity)
{
    uint32_t all = (1u << (exponent_bits + m)) - 1, magnitude = bits & all;
    uint32_t sign = (bits >> (exponent_bits + m) & 1) << 31, top = (1u << exponent_bits) - 1;
    int bias = (1 << (exponent_bits - 1)) - 1, exponent = (int)(magnitude >> m);
    uint32_t fraction = magnitude & ((1u << m) - 1);
    if (infinity ? (uint32_t)exponent == top && fraction : magnitude == all)
        return sol_f32_bits(0x7fffffffu);
    if (infinity && (uint32_t)exponent == top)
        return sol_f32_bits(sign | 0x7f800000u);
    float value = exponent ? (float)(fraction | 1u << m) : (float)fraction;
    value = __builtin_ldexpf(value, (exponent ? exponent : 1) - bias - m);
    return sol_f32_bits(sol_bits_f32(value) | sign);
}

/* To nearest even. Beyond `largest`: saturates, or infinity. */
static inline uint32_t emu_narrow(float x, int exponent_bits, int m, float largest, bool saturate,
                                  uint32_t nan)
{
    uint32_t sign = sol_bits_f32(x) >> 31 << (exponent_bits + m);
    int bias = (1 << (exponent_bits - 1)) - 1, exponent = 1 - bias;
    double magnitude = __builtin_fabs((double)x);
    if (x != x)
        return nan;
    if (saturate && magnitude > (double)largest)
        magnitude = (double)largest;
    if (__builtin_isinf(magnitude))
        return sign | ((1u << exponent_bits) - 1) << m;
    if (magnitude > 0 && __builtin_ilogb(magnitude) > exponent)
        exponent = __builtin_ilogb(magnitude);
    double units = __builtin_rint(__builtin_ldexp(magnitude, m - exponent));
    uint32_t result = (uint32_t)units + ((uint32_t)(exponent - (1 - bias)) << m);
    uint32_t infinity = ((1u << exponent_bits) - 1) << m;
    if (!saturate && result > infinity)
        result = infinity;
    return sign | result;
}

SOL_GPU_FN float sol_f32_from_f16(uint32_t h)
{
    return emu_widen(h & 0xffff, 5, 10, true);
}
static inline uint32_t emu_f16(float x)
{
    return emu_narrow(x, 5, 10, 65504.0f, false, 0x7fff);
}
static inline uint32_t emu_bf16(float x)
{
    return emu_narrow(x, 8, 7, 0, false, 0x7fff);
}
SOL_GPU_FN uint32_t sol_f16x2_from_f32(float low, float high)
{
    return emu_f16(low) | emu_f16(high) << 16;
}
SOL_GPU_FN uint32_t sol_bf16x2_from_f32(float low, float high)
{
    return emu_bf16(low) | emu_bf16(high) << 16;
}
SOL_GPU_FN uint32_t sol_max_bf16x2(uint32_t a, uint32_t b)
{
    return sol_bf16x2_from_f32(
        sol_max_f32(sol_f32_bits(a << 16), sol_f32_bits(b << 16)),
        sol_max_f32(sol_f32_bits(a & 0xffff0000u), sol_f32_bits(b & 0xffff0000u)));
}
SOL_GPU_FN uint32_t sol_max_f16x2(uint32_t a, uint32_t b)
{
    return sol_f16x2_from_f32(
        sol_max_f32(sol_f32_from_f16(a & 0xffff), sol_f32_from_f16(b & 0xffff)),
        sol_max_f32(sol_f32_from_f16(a >> 16), sol_f32_from_f16(b >> 16)));
}
SOL_GPU_FN uint32_t sol_add_bf16x2(uint32_t a, uint32_t b)
{
    return sol_bf16x2_from_f32(
        sol_add_f32(sol_f32_bits(a << 16), sol_f32_bits(b << 16)),
        sol_add_f32(sol_f32_bits(a & 0xffff0000u), sol_f32_bits(b & 0xffff0000u)));
}
SOL_GPU_FN uint32_t sol_add_f16x2(uint32_t a, uint32_t b)
{
    return sol_f16x2_from_f32(
        sol_add_f32(sol_f32_from_f16(a & 0xffff), sol_f32_from_f16(b & 0xffff)),
        sol_add_f32(sol_f32_from_f16(a >> 16), sol_f32_from_f16(b >> 16)));
}

#define SOL_HAS_FP8 1
SOL_GPU_FN uint32_t sol_f16x2_from_e4m3x2(uint32_t two)
{
    return emu_f16(emu_widen(two & 0xff, 4, 3, false)) |
           emu_f16(emu_widen(two >> 8 & 0xff, 4, 3, false)) << 16;
}
SOL_GPU_FN uint32_t sol_f16x2_from_e5m2x2(uint32_t two)
{
    return emu_f16(emu_widen(two & 0xff, 5, 2, true)) |
           emu_f16(emu_widen(two >> 8 & 0xff, 5, 2, true)) << 16;
}
SOL_GPU_FN uint32_t sol_e4m3x2_from_f32(float low, float high)
{
    return emu_narrow(low, 4, 3, 448.0f, true, 0x7f) | emu_narrow(high, 4, 3, 448.0f, true, 0x7f)
                                                           << 8;
}
SOL_GPU_FN uint32_t sol_e5m2x2_from_f32(float low, float high)
{
    return emu_narrow(low, 5, 2, 57344.0f, true, 0x7f) |
           emu_narrow(high, 5, 2, 57344.0f, true, 0x7f) << 8;
}

#include "emu_multimem.h"

#endif
