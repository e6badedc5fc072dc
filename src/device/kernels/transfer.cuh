/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.cuh: one-sided writes, their counts, and the wait for them.
 *
 * A batch is a list of sets of pages. A CTA takes a unit (a page, or a part of one
 * that is shared), the next one grid's width further, and so on; at its end, after
 * one barrier and one fence, it adds what it has completed to the peers' counters:
 *
 *     stores of all threads   barrier   fence.acq_rel.sys   red.relaxed.sys (a thread a peer)
 *
 * which is a release pattern, cumulative over the barrier. Whoever acquires the
 * counter sees the stores. A page that several CTAs share is not complete at the end
 * of any one: such batches count nothing; a kernel of its own does, behind them on
 * the stream.
 *
 * Must never: wait for another rank in a kernel that writes; count what is not written.
 */
#ifndef SOL_DEVICE_KERNELS_TRANSFER_CUH
#define SOL_DEVICE_KERNELS_TRANSFER_CUH

#include "device/kernels/transfer_launch.h"

#include <solccl/device.h>

#define SOL_TRANSFER_VECTORS 4 /* of a thread in flight */

/* As it lies in the parameters: 4 words. */
struct sol_transfer_entry {
    const char *from;
    char *to;
    uint64_t bytes;
    uint32_t first; /* number of its first unit */
    uint16_t pair;  /* where its page numbers begin in `words`; 0: none, pages 0, 1, 2, ... */
    uint16_t peer;
};

struct sol_transfer_args {
    const uint64_t *dead; /* fate.h */
    uint64_t from_stride, to_stride;
    uint32_t nsets, units;
    uint32_t part_shift; /* pages in parts of that size; 63: whole */
    uint32_t bytes_counted;
    uint64_t *counters[SOL_GPU_MAX_RANKS]; /* NULL: not counted here */
    uint64_t words[SOL_GPU_TRANSFER_WORDS];
};

/* --------------------------------------------------------------------------- one page */

/* `bytes` by all threads of the CTA, where both ends are aligned alike. */
SOL_GPU_FN void sol_copy_vectors(char *to, const char *from, uint64_t vectors)
{
    const uint64_t step = blockDim.x;
    uint64_t i = threadIdx.x;
#pragma unroll 1
    for (; i + (SOL_TRANSFER_VECTORS - 1) * step < vectors; i += SOL_TRANSFER_VECTORS * step) {
        struct sol_vector v[SOL_TRANSFER_VECTORS];
#pragma unroll
        for (int k = 0; k < SOL_TRANSFER_VECTORS; k++)
            v[k] = sol_load_16(from + (i + k * step) * 16);
#pragma unroll
        for (int k = 0; k < SOL_TRANSFER_VECTORS; k++)
            sol_store_16(to + (i + k * step) * 16, v[k]);
    }
#pragma unroll 1
    for (; i < vectors; i += step)
        sol_store_16(to + i * 16, sol_load_16(from + i * 16));
}

/* The same from any address to an aligned one. */
SOL_GPU_FN void sol_copy_shifted(char *to, const char *from, uint64_t vectors)
{
#pragma unroll 1
    for (uint64_t i = threadIdx.x; i < vectors; i += blockDim.x)
        sol_store_16(to + i * 16, sol_load_vector<false>(from + i * 16, 16));
}

SOL_GPU_FN void sol_copy_page(char *to, const char *from, uint64_t bytes)
{
    uint64_t head = -(uintptr_t)to & 15;
    head = head < bytes ? head : bytes;
    const uint64_t vectors = (bytes - head) / 16, done = head + vectors * 16;
    if (threadIdx.x < head)
        sol_store_unit((uint8_t *)to + threadIdx.x,
                       (uint8_t)sol_load_unit((const uint8_t *)from + threadIdx.x));
    if (((uintptr_t)(from + head) & 15) == 0)
        sol_copy_vectors(to + head, from + head, vectors);
    else
        sol_copy_shifted(to + head, from + head, vectors);
    if (threadIdx.x < bytes - done)
        sol_store_unit((uint8_t *)to + done + threadIdx.x,
                       (uint8_t)sol_load_unit((const uint8_t *)from + done + threadIdx.x));
}

/* --------------------------------------------------------------------------- a batch */

SOL_GPU_FN const struct sol_transfer_entry *sol_entry_of(const struct sol_transfer_args &args,
                                                         uint32_t i)
{
    return (const struct sol_transfer_entry *)&args.words[4 * i];
}

/* The set that unit `unit` is in: the last one that does not begin behind it. */
SOL_GPU_FN const struct sol_transfer_entry *sol_find_entry(const struct sol_transfer_args &args,
                                                           uint32_t unit)
{
    uint32_t low = 0, high = args.nsets;
#pragma unroll 1
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (sol_entry_of(args, middle)->first <= unit)
            low = middle;
        else
            high = middle;
    }
    return sol_entry_of(args, low);
}

/* Parts of a page: at least one, for an empty one too. */
SOL_GPU_BOTH uint32_t sol_transfer_parts(uint64_t bytes, uint32_t part_shift)
{
    return bytes <= (1ull << part_shift) ? 1 : (uint32_t)((bytes - 1) >> part_shift) + 1;
}

SOL_GPU_FN void sol_write_unit(const struct sol_transfer_args &args,
                               const struct sol_transfer_entry *entry, uint32_t unit)
{
    const uint32_t parts = sol_transfer_parts(entry->bytes, args.part_shift);
    const uint32_t page = (unit - entry->first) / parts, part = (unit - entry->first) % parts;
    uint64_t from_page = page, to_page = page;
    if (entry->pair != 0) {
        uint64_t pair = args.words[entry->pair + page];
        from_page = (uint32_t)pair;
        to_page = pair >> 32;
    }
    const uint64_t at = parts > 1 ? (uint64_t)part << args.part_shift : 0, left = entry->bytes - at;
    const uint64_t bytes = part + 1 < parts ? 1ull << args.part_shift : left;
    sol_copy_page(entry->to + to_page * args.to_stride + at,
                  entry->from + from_page * args.from_stride + at, bytes);
}

/* This thread's peer: what was done for it comes before its counter grows. */
SOL_GPU_FN void sol_tell_count(uint64_t *counter, uint64_t n)
{
    sol_fence_system(); /* partner: the acquires in sol_transfer_await_kernel and _look_kernel */
    sol_push_add(counter, n);
}

static __global__ void __launch_bounds__(SOL_TRANSFER_THREADS, 2)
    sol_transfer_kernel(const __grid_constant__ struct sol_transfer_args args)
{
    SOL_SHARED_ARRAY(uint64_t, done, SOL_GPU_MAX_RANKS);
    sol_await_predecessors();
    sol_admit_successor();
    if (threadIdx.x < SOL_GPU_MAX_RANKS)
        done[threadIdx.x] = 0;
    if (__syncthreads_or(threadIdx.x == 0 && sol_poll_word(args.dead) != 0))
        return;
#pragma unroll 1
    for (uint32_t unit = blockIdx.x; unit < args.units; unit += gridDim.x) {
        const struct sol_transfer_entry *entry = sol_find_entry(args, unit);
        sol_write_unit(args, entry, unit);
        if (threadIdx.x == 0)
            done[entry->peer] += args.bytes_counted ? entry->bytes : 1;
    }
    __syncthreads(); /* all stores of the CTA, and `done` */
    if (threadIdx.x < SOL_GPU_MAX_RANKS && done[threadIdx.x] != 0 && args.counters[threadIdx.x])
        sol_tell_count(args.counters[threadIdx.x], done[threadIdx.x]);
}

/* Behind the kernels, or copies, that wrote. */
struct sol_transfer_counts {
    const uint64_t *dead;
    uint64_t *counters[SOL_GPU_MAX_RANKS];
    uint64_t n[SOL_GPU_MAX_RANKS];
};

static __global__ void __launch_bounds__(32)
    sol_transfer_count_kernel(const __grid_constant__ struct sol_transfer_counts args)
{
    sol_await_predecessors();
    sol_admit_successor();
    if (threadIdx.x < SOL_GPU_MAX_RANKS && args.n[threadIdx.x] != 0 &&
        sol_poll_word(args.dead) == 0)
        sol_tell_count(args.counters[threadIdx.x], args.n[threadIdx.x]);
}

/* ---------------------------------------------------------------------------- the wait */

struct sol_await_args {
    struct sol_gpu_await await;
    int nranks;
    struct sol_bound bound;
};

/* One warp, a lane a source. What it has seen of the counter is in the record if it gives up. */
static __global__ void __launch_bounds__(32)
    sol_transfer_await_kernel(const __grid_constant__ struct sol_await_args args)
{
    SOL_SHARED(struct sol_story, story);
    const int lane = (int)threadIdx.x;
    const bool mine = lane < args.nranks && (args.await.from < 0 || args.await.from == lane);
    struct sol_watch watch = {0, 0};
    uint64_t told = args.await.value; /* what the story says; this for nothing */
    sol_await_predecessors();
#pragma unroll 1
    for (;;) {
        uint64_t sum = mine ? sol_poll_word_acquire(args.await.words + lane) : 0;
#pragma unroll
        for (int half = SOL_GPU_MAX_RANKS / 2; half > 0; half /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, half);
        sum = __shfl_sync(0xffffffffu, sum, 0);
        if ((int64_t)(sum - args.await.value) >= 0)
            break;
        bool failed = false;
        if (lane == 0 && sum != told) {
            told = sum;
            story.sequence = args.await.value;
            story.bytes = sum << 16 | (uint32_t)args.await.counter;
            story.func = SOL_GPU_WHO_TRANSFER;
        }
        if (lane == 0)
            failed = sol_watch_expired(args.bound, story, watch, args.await.from);
        if (__any_sync(0xffffffffu, failed))
            return;
    }
    /* Only now: a successor let in early would hold SMs that a write on another stream of this GPU
     * may need, which a peer waits for, whose write is waited for here. */
    sol_admit_successor();
    __syncwarp(); /* what each lane acquired comes before the end of the kernel */
}

/* For the host: the words as they are, into memory that nobody else writes to. */
static __global__ void __launch_bounds__(32)
    sol_transfer_look_kernel(const uint64_t *words, uint64_t *out, int nranks)
{
    if ((int)threadIdx.x < nranks)
        out[threadIdx.x] = sol_poll_word_acquire(words + threadIdx.x);
}

#endif
