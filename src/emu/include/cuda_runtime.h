/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_runtime.h of the emulator: what CUDA C++ adds for kernels. A kernel is
 * an ordinary function here; a launch packs its arguments and leaves the rest to
 * the machine.
 *
 * Not there: <<<>>>, and __shared__ variables (SOL_SHARED of ptx.cuh instead).
 */
#ifndef SOL_EMU_CUDA_RUNTIME_H
#define SOL_EMU_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"
#include "emu/emu_device.h"

#ifdef __cplusplus
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__

#define __constant__ static const

#define warpSize 32

template <class T> static inline T max(T a, T b)
{
    return a > b ? a : b;
}
template <class T> static inline T min(T a, T b)
{
    return a < b ? a : b;
}

static inline void __syncthreads(void)
{
    emu_syncthreads();
}
static inline int __syncthreads_count(int predicate)
{
    return (int)emu_syncthreads_count(predicate != 0);
}
static inline int __syncthreads_or(int predicate)
{
    return emu_syncthreads_count(predicate != 0) != 0;
}
static inline int __syncthreads_and(int predicate)
{
    return emu_syncthreads_count(predicate == 0) == 0;
}
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emu_syncwarp(mask);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    return emu_ballot(mask, predicate != 0);
}
static inline int __any_sync(unsigned mask, int predicate)
{
    return emu_ballot(mask, predicate != 0) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
    return emu_ballot(mask, predicate != 0) == mask;
}
static inline void __threadfence(void)
{
    emu_fence(EMU_GPU);
}
static inline void __threadfence_system(void)
{
    emu_fence(EMU_SYS);
}
static inline void __trap(void)
{
    emu_trap("__trap");
}

namespace emu_detail
{
template <class T> uint64_t bits(T value)
{
    static_assert(sizeof(T) <= 8, "at most 8 bytes");
    uint64_t word = 0;
    __builtin_memcpy(&word, &value, sizeof(T));
    return word;
}
template <class T> T value(uint64_t word)
{
    T v;
    __builtin_memcpy(&v, &word, sizeof(T));
    return v;
}
template <class T> T shuffle(unsigned mask, T x, int source)
{
    return value<T>(emu_shuffle(mask, bits(x), source));
}
static inline int lane()
{
    unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    return (int)(t & 31);
}
/* The lane `to`, if it is in this lane's part of the warp; otherwise this one. */
static inline int within(int to, int width)
{
    return (to & ~(width - 1)) == (lane() & ~(width - 1)) ? to : lane();
}
template <class T> T rmw(T *p, enum emu_rmw_op op, T operand, T expected = T())
{
    return value<T>(emu_rmw(p, sizeof(T), op, bits(operand), bits(expected), EMU_RELAXED, EMU_GPU));
}

template <class... P> struct call {
    void (*kernel)(P...);
    std::tuple<std::remove_cv_t<P>...> arguments;
    static void invoke(const void *self)
    {
        const call *c = static_cast<const call *>(self);
        std::apply(c->kernel, c->arguments);
    }
    static void release(void *self)
    {
        delete static_cast<call *>(self);
    }
};
} // namespace emu_detail

template <class T> T __shfl_sync(unsigned mask, T x, int source, int width = 32)
{
    int first = emu_detail::lane() & ~(width - 1);
    return emu_detail::shuffle(mask, x, first + (source & (width - 1)));
}
template <class T> T __shfl_xor_sync(unsigned mask, T x, int lanes, int width = 32)
{
    return emu_detail::shuffle(mask, x, emu_detail::within(emu_detail::lane() ^ lanes, width));
}
template <class T> T __shfl_down_sync(unsigned mask, T x, unsigned by, int width = 32)
{
    return emu_detail::shuffle(mask, x, emu_detail::within(emu_detail::lane() + (int)by, width));
}
template <class T> T __shfl_up_sync(unsigned mask, T x, unsigned by, int width = 32)
{
    return emu_detail::shuffle(mask, x, emu_detail::within(emu_detail::lane() - (int)by, width));
}
template <class T> T atomicAdd(T *p, T x)
{
    static_assert(std::is_integral<T>::value, "integers only");
    return emu_detail::rmw(p, EMU_ADD, x);
}
template <class T> T atomicExch(T *p, T x)
{
    return emu_detail::rmw(p, EMU_EXCHANGE, x);
}
template <class T> T atomicCAS(T *p, T expected, T x)
{
    return emu_detail::rmw(p, EMU_CAS, x, expected);
}
template <class T> T atomicMax(T *p, T x)
{
    static_assert(std::is_unsigned<T>::value, "unsigned only");
    return emu_detail::rmw(p, EMU_MAX, x);
}
template <class T> T atomicMin(T *p, T x)
{
    static_assert(std::is_unsigned<T>::value, "unsigned only");
    return emu_detail::rmw(p, EMU_MIN, x);
}
template <class T> T atomicOr(T *p, T x)
{
    return emu_detail::rmw(p, EMU_OR, x);
}
template <class T> T atomicAnd(T *p, T x)
{
    return emu_detail::rmw(p, EMU_AND, x);
}

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), A &&...args)
{
    typedef emu_detail::call<P...> call;
    call *c = new call{kernel, std::tuple<std::remove_cv_t<P>...>(std::forward<A>(args)...)};
    struct emu_dim grid = {config->gridDim.x, config->gridDim.y, config->gridDim.z};
    struct emu_dim block = {config->blockDim.x, config->blockDim.y, config->blockDim.z};
    bool early = false;
    unsigned cluster = 1;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        if (config->attrs[i].id == cudaLaunchAttributeClusterDimension)
            cluster = config->attrs[i].val.clusterDim.x;
        if (config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization)
            early = config->attrs[i].val.programmaticStreamSerializationAllowed != 0;
    }
    return (cudaError_t)emu_enqueue(reinterpret_cast<const void *>(kernel), call::invoke, c,
                                    call::release, grid, block, cluster, config->dynamicSmemBytes,
                                    early, config->stream);
}

template <class T> cudaError_t cudaMalloc(T **memory, size_t bytes)
{
    return cudaMalloc(reinterpret_cast<void **>(memory), bytes);
}
template <class F> cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, F *function)
{
    return cudaFuncGetAttributes(a, reinterpret_cast<const void *>(function));
}

#endif
#endif
