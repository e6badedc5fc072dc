/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ptx.cuh: every PTX instruction and intrinsic that the kernels use, under a
 * name that says what it is for. Nothing else in the project contains inline
 * assembly, so this is the one file that another compiler or an emulator has to
 * replace.
 */
#ifndef SOL_DEVICE_PTX_CUH
#define SOL_DEVICE_PTX_CUH

#include <stdint.h>

#define SOL_GPU_FN static __device__ __forceinline__
#define SOL_GPU_RARE                                                                               \
    static __device__ __noinline__ /* a call, out of the way of what is executed                   \
                                    */

/* One variable a CTA. */
#define SOL_SHARED(type, name) __shared__ type name
#define SOL_SHARED_ARRAY(type, name, count) __shared__ type name[count]

/* Sixteen bytes: two words that are each read and written whole. */
struct sol_vector {
    uint64_t a, b;
};

/* --- the link: strong accesses of system scope, never cached in L1 ------------------------- */

SOL_GPU_FN struct sol_vector sol_poll_vector(const void *p)
{
    struct sol_vector v;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(v.a), "=l"(v.b)
                 : "l"(p)
                 : "memory");
    return v;
}

SOL_GPU_FN void sol_push_vector(void *p, struct sol_vector v)
{
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(v.a), "l"(v.b)
                 : "memory");
}

SOL_GPU_FN uint64_t sol_poll_word(const void *p)
{
    uint64_t w;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(w) : "l"(p) : "memory");
    return w;
}

/* And what its writer did before a release of it comes before what this thread does next, and after
 * a barrier before what its CTA does. */
SOL_GPU_FN uint64_t sol_poll_word_acquire(const void *p)
{
    uint64_t w;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(w) : "l"(p) : "memory");
    return w;
}

SOL_GPU_FN void sol_push_word(void *p, uint64_t w)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(w) : "memory");
}

SOL_GPU_FN uint32_t sol_poll_u32(const volatile uint32_t *p)
{
    uint32_t w;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(w) : "l"(p) : "memory");
    return w;
}

SOL_GPU_FN void sol_push_u32(volatile uint32_t *p, uint32_t w)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(w) : "memory");
}

/* Add without an answer, so that nobody waits for it. */
SOL_GPU_FN void sol_add_word(uint64_t *p, uint64_t w)
{
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(p), "l"(w) : "memory");
}

/* Everything this thread did or saw before comes before everything it does after, everywhere. */
SOL_GPU_FN void sol_fence_system(void)
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

/*
 * Lines of 128 bytes: eight neighbouring threads of a warp, the first a multiple of eight, with 16
 * bytes each; the last word is `flag`. Rests on what PTX does not promise and the hardware does:
 * a warp's store of an aligned line is seen whole or not at all (`solccl info --litmus`).
 */
SOL_GPU_FN unsigned sol_line_mask(void)
{
    return 0xffu << (threadIdx.x & 24);
}
SOL_GPU_FN void sol_push_line(void *p, struct sol_vector v, uint64_t flag)
{
    v.b = (threadIdx.x & 7) == 7 ? flag : v.b;
    __syncwarp(sol_line_mask()); /* one instruction for all eight */
    sol_push_vector(p, v);
}
/* True to all eight: the line with that flag has come. */
SOL_GPU_FN bool sol_poll_line(const void *p, uint64_t flag, struct sol_vector &v)
{
    __syncwarp(sol_line_mask());
    v = sol_poll_vector(p);
    return __all_sync(sol_line_mask(), (threadIdx.x & 7) != 7 || v.b == flag);
}
SOL_GPU_FN bool sol_line_any(bool x)
{
    return __any_sync(sol_line_mask(), x);
}

/* Whether a lane of the whole warp is still waiting: for the condition of a loop that looks, so
 * that lanes leave it together. (Lanes that do not stay parted after it, and then execute one after
 * the other what follows. The emulator's lanes go on alone.) All lanes take part. */
SOL_GPU_FN bool sol_warp_any(bool x)
{
    return __any_sync(0xffffffffu, x);
}

/* Remote addition, without an answer. */
SOL_GPU_FN void sol_push_add(uint64_t *p, uint64_t w)
{
    asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(p), "l"(w) : "memory");
}

/* A word of this rank's own memory that only its own kernels use: 0 becomes 1. False: it was not 0.
 * Acquires. */
SOL_GPU_FN bool sol_take_u32(uint32_t *p)
{
    uint32_t was;
    asm volatile("atom.acquire.gpu.global.cas.b32 %0, [%1], 0, 1;" : "=r"(was) : "l"(p) : "memory");
    return was == 0;
}

/* Is this the first of those lanes of its warp that came here together with this `value`? */
SOL_GPU_FN bool sol_warp_first(int value)
{
    const unsigned same = __match_any_sync(__activemask(), value);
    return (threadIdx.x & 31) == __ffs((int)same) - 1;
}

/* --- clusters: CTAs that reach each other's shared memory. Without them (below sm_90) a launch has
 * clusters of one, which call none of these but sync. ----------------------------------------- */

#if __CUDA_ARCH__ >= 900
SOL_GPU_FN unsigned sol_cluster_cta(void)
{
    unsigned r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
SOL_GPU_FN unsigned sol_cluster_ctas(void)
{
    unsigned r;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(r));
    return r;
}
#else
SOL_GPU_FN unsigned sol_cluster_cta(void)
{
    return 0;
}
SOL_GPU_FN unsigned sol_cluster_ctas(void)
{
    return 1;
}
#endif

/* All threads of a cluster arrive, and wait for each other; what each did before it arrived comes
 * before what others do after they have waited. */
SOL_GPU_FN void sol_cluster_arrive(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
SOL_GPU_FN void sol_cluster_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
SOL_GPU_FN void sol_cluster_sync(void)
{
#if __CUDA_ARCH__ >= 900
    sol_cluster_arrive();
    sol_cluster_wait();
#else
    __syncthreads();
#endif
}

/* Store to the variable of CTA `cta` of the cluster that is `mine` here. */
SOL_GPU_FN void sol_cluster_store(float *mine, uint32_t cta, float x)
{
#if __CUDA_ARCH__ >= 900
    uint32_t here = (uint32_t)__cvta_generic_to_shared(mine), there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(cta));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(x) : "memory");
#else
    (void)cta;
    *mine = x;
#endif
}

/* A word that arrives whole, at the variable of CTA `cta` that is `mine` here; and a look at one's
 * own. Relaxed: the word says everything itself (8 bytes are one access to PTX). */
SOL_GPU_FN void sol_cluster_push_word(uint64_t *mine, uint32_t cta, uint64_t w)
{
#if __CUDA_ARCH__ >= 900
    uint32_t here = (uint32_t)__cvta_generic_to_shared(mine), there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(cta));
    asm volatile("st.relaxed.cluster.shared::cluster.u64 [%0], %1;" ::"r"(there), "l"(w)
                 : "memory");
#else
    (void)cta;
    *(volatile uint64_t *)mine = w;
#endif
}
SOL_GPU_FN uint64_t sol_cluster_poll_word(const uint64_t *mine)
{
    uint64_t w;
#if __CUDA_ARCH__ >= 900
    uint32_t here = (uint32_t)__cvta_generic_to_shared(mine);
    asm volatile("ld.relaxed.cluster.shared::cta.u64 %0, [%1];" : "=l"(w) : "r"(here) : "memory");
#else
    w = *(const volatile uint64_t *)mine;
#endif
    return w;
}

/* The emulator says so, with the line of the caller; on a GPU it costs nothing and finds nothing.
 */
#define SOL_CHECK(condition, why)                                                                  \
    do {                                                                                           \
    } while (0)

/* --- the user's buffers and our own state: ordinary accesses ------------------------------- */

/* volatile, so that a load stays before the pushes it is written before: all inputs first. */
SOL_GPU_FN struct sol_vector sol_load_16(const void *p)
{
    struct sol_vector v;
    asm volatile("ld.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.a), "=l"(v.b) : "l"(p) : "memory");
    return v;
}

SOL_GPU_FN void sol_store_16(void *p, struct sol_vector v)
{
    asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(v.a), "l"(v.b) : "memory");
}

SOL_GPU_FN uint64_t sol_load_unit(const uint64_t *p)
{
    uint64_t u;
    asm volatile("ld.global.u64 %0, [%1];" : "=l"(u) : "l"(p) : "memory");
    return u;
}
SOL_GPU_FN uint32_t sol_load_unit(const uint32_t *p)
{
    uint32_t u;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(u) : "l"(p) : "memory");
    return u;
}
SOL_GPU_FN uint32_t sol_load_unit(const uint16_t *p)
{
    uint32_t u;
    asm volatile("ld.global.u16 %0, [%1];" : "=r"(u) : "l"(p) : "memory");
    return u;
}
SOL_GPU_FN uint32_t sol_load_unit(const uint8_t *p)
{
    uint32_t u;
    asm volatile("ld.global.u8 %0, [%1];" : "=r"(u) : "l"(p) : "memory");
    return u;
}
SOL_GPU_FN void sol_store_unit(uint64_t *p, uint64_t u)
{
    asm volatile("st.global.u64 [%0], %1;" ::"l"(p), "l"(u) : "memory");
}
SOL_GPU_FN void sol_store_unit(uint32_t *p, uint32_t u)
{
    asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(u) : "memory");
}
SOL_GPU_FN void sol_store_unit(uint16_t *p, uint16_t u)
{
    asm volatile("st.global.u16 [%0], %1;" ::"l"(p), "r"((uint32_t)u) : "memory");
}
SOL_GPU_FN void sol_store_unit(uint8_t *p, uint8_t u)
{
    asm volatile("st.global.u8 [%0], %1;" ::"l"(p), "r"((uint32_t)u) : "memory");
}

/* --- kernels in a row ------------------------------------------------------------------------ */

/* Wait until the kernels before this one in the stream have ended and their memory is visible.
 * Nothing that another kernel may write is read or written before it. */
SOL_GPU_FN void sol_await_predecessors(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Let the next kernel of the stream be set up. It promises nothing about this one's memory. */
SOL_GPU_FN void sol_admit_successor(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* The same value, of which the compiler knows nothing: what depends on it is computed where it is
 * used, instead of being kept in registers from before a loop. */
SOL_GPU_FN int sol_opaque(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}

/* And worked out here, not later. */
SOL_GPU_FN const char *sol_opaque(const char *x)
{
    asm volatile("" : "+l"(x));
    return x;
}

SOL_GPU_FN char *sol_opaque(char *x)
{
    asm volatile("" : "+l"(x));
    return x;
}
SOL_GPU_FN uint32_t sol_opaque(uint32_t x)
{
    asm volatile("" : "+r"(x));
    return x;
}

/* How many bits are set. */
SOL_GPU_FN uint32_t sol_count_bits(uint32_t x)
{
    return (uint32_t)__popc(x);
}

/* --- time ---------------------------------------------------------------------------------------
 */

SOL_GPU_FN uint64_t sol_clock_ns(void)
{
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
    return t;
}

/* --- arithmetic that must not be contracted, reordered or flushed --------------------------------
 */

SOL_GPU_FN float sol_add_f32(float a, float b)
{
    return __fadd_rn(a, b);
}
SOL_GPU_FN float sol_mul_f32(float a, float b)
{
    return __fmul_rn(a, b);
}
SOL_GPU_FN float sol_div_f32(float a, float b)
{
    return __fdiv_rn(a, b);
}
/* 1 / a. */
SOL_GPU_FN float sol_reciprocal_f32(float a)
{
    return __frcp_rn(a);
}
/* a * b + c, rounded once. */
SOL_GPU_FN float sol_fma_f32(float a, float b, float c)
{
    return __fmaf_rn(a, b, c);
}
SOL_GPU_FN float sol_sqrt_f32(float a)
{
    return __fsqrt_rn(a);
}
/* To the nearest integer, ties to even. */
SOL_GPU_FN float sol_rint_f32(float a)
{
    return rintf(a);
}
SOL_GPU_FN double sol_add_f64(double a, double b)
{
    return __dadd_rn(a, b);
}
SOL_GPU_FN double sol_mul_f64(double a, double b)
{
    return __dmul_rn(a, b);
}
SOL_GPU_FN double sol_div_f64(double a, double b)
{
    return __ddiv_rn(a, b);
}

/* NaN if either is, -0 < +0: exactly the PTX instruction. */
SOL_GPU_FN float sol_min_f32(float a, float b)
{
    float r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
SOL_GPU_FN float sol_max_f32(float a, float b)
{
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}

SOL_GPU_FN uint32_t sol_bits_f32(float x)
{
    return __float_as_uint(x);
}
SOL_GPU_FN float sol_f32_bits(uint32_t x)
{
    return __uint_as_float(x);
}
SOL_GPU_FN uint64_t sol_bits_f64(double x)
{
    return (uint64_t)__double_as_longlong(x);
}
SOL_GPU_FN double sol_f64_bits(uint64_t x)
{
    return __longlong_as_double((long long)x);
}

/* Four bytes of the eight of `low` and `high`, each as a hexadecimal digit of `which` says. */
SOL_GPU_FN uint32_t sol_permute(uint32_t low, uint32_t high, uint32_t which)
{
    return __byte_perm(low, high, which);
}

/* The greater of two and two 16-bit floats; NaN if either is. */
SOL_GPU_FN uint32_t sol_max_bf16x2(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
SOL_GPU_FN uint32_t sol_max_f16x2(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

/* --- conversions: exact upwards; to nearest even downwards
 * ----------------------------------------- */

SOL_GPU_FN float sol_f32_from_f16(uint32_t h)
{
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"((uint16_t)h));
    return r;
}

/* Two floats to two fp16, `low` in the low half. */
SOL_GPU_FN uint32_t sol_f16x2_from_f32(float low, float high)
{
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

SOL_GPU_FN uint32_t sol_bf16x2_from_f32(float low, float high)
{
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

/* Two sums, each rounded once from the exact value. In bf16 as a + b * 1, which older GPUs have. */
SOL_GPU_FN uint32_t sol_add_bf16x2(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(b), "r"(0x3f803f80u), "r"(a));
    return r;
}
SOL_GPU_FN uint32_t sol_add_f16x2(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

#if __CUDA_ARCH__ >= 890
#define SOL_HAS_FP8 1
/* Two fp8 to two fp16 (exact), and two floats to two fp8, saturating. */
SOL_GPU_FN uint32_t sol_f16x2_from_e4m3x2(uint32_t two)
{
    uint32_t r;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"((uint16_t)two));
    return r;
}
SOL_GPU_FN uint32_t sol_f16x2_from_e5m2x2(uint32_t two)
{
    uint32_t r;
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(r) : "h"((uint16_t)two));
    return r;
}
SOL_GPU_FN uint32_t sol_e4m3x2_from_f32(float low, float high)
{
    uint16_t r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
    return r;
}
SOL_GPU_FN uint32_t sol_e5m2x2_from_f32(float low, float high)
{
    uint16_t r;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
    return r;
}
#else
#define SOL_HAS_FP8 0
#endif

#endif
