/* SPDX-License-Identifier: Apache-2.0 */
/*
 * onesided.cuh: puts into peers' symmetric memory, and counters that say that
 * they have come. No order between puts is assumed anywhere: a counter counts
 * messages or bytes, and whoever waits for a value waits for all of them.
 *
 *     sol_put_signal(dev, SOL_CTA, peer, to, from, bytes, 7, 1);   // counter 7 += 1 there
 *     ...
 *     if (!sol_counter_wait(dev, SOL_CTA, 7, seen + nranks - 1)) return;
 *
 * Counters only grow; a kernel that goes on where the last one stopped keeps the
 * value it has seen (sol_counter_read). What is put may be overwritten by a later
 * put only when the receiver has said, by a counter or a barrier, that it is done.
 */
#ifndef SOL_DEVICE_ONESIDED_CUH
#define SOL_DEVICE_ONESIDED_CUH

#include "solccl/device/barrier.cuh"
#include "solccl/device/memory.cuh"

#define SOL_COUNTER_STEP 32 /* bytes between counters */

/* Byte `offset` of `rank`'s part of symmetric memory: for ordinary loads and stores, and for puts.
 */
SOL_GPU_FN char *sol_window_at(const sol_window_t &window, int rank, uint64_t offset)
{
    SOL_CHECK(offset <= window.bytes, "beyond the symmetric memory");
    return window.base[rank] + offset;
}

SOL_GPU_FN uint64_t *sol_counter_at(const sol_dev_comm_t &dev, int rank, int counter)
{
    SOL_CHECK(counter >= 0 && counter < dev.counters, "there are fewer counters");
    return (uint64_t *)(dev.control[rank] + (uint64_t)counter * SOL_COUNTER_STEP);
}

/* One thread: add to `rank`'s counter. RELEASE: after what this thread did and saw. */
SOL_GPU_FN void sol_counter_add(const sol_dev_comm_t &dev, int rank, int counter, uint64_t n,
                                enum sol_order order)
{
    if (order & SOL_RELEASE)
        sol_fence_system();
    sol_push_add(sol_counter_at(dev, rank, counter), n);
}

/* This rank's own, as far as it has come. */
SOL_GPU_FN uint64_t sol_counter_read(const sol_dev_comm_t &dev, int counter)
{
    return sol_poll_word_acquire(sol_counter_at(dev, dev.rank, counter));
}

/* All threads of the group: wait until this rank's counter has reached `value`; what was put before
 * the additions can be read then. False, to all: gave up. */
SOL_GPU_FN bool sol_counter_wait(const sol_dev_comm_t &dev, enum sol_level level, int counter,
                                 uint64_t value)
{
    bool failed = false;
    if (sol_level_thread(level) == 0) {
        const uint64_t *word = sol_counter_at(dev, dev.rank, counter);
        struct sol_story story = {value, (uint64_t)counter, SOL_GPU_WHO_COUNTER};
        struct sol_watch watch = {0, 0};
        while ((int64_t)(sol_poll_word_acquire(word) - value) < 0 && !failed)
            failed = sol_watch_expired(dev.bound, story, watch, -1);
    }
    return !sol_level_any(level, failed);
}

/* All threads of the group: copy `bytes` from own memory to a peer's. Arrives with a signal, a
 * release of the group, or the end of the kernel. Any alignment; 16 is fastest. */
SOL_GPU_FN void sol_put(enum sol_level level, char *to, const char *from, uint64_t bytes)
{
    const uint64_t step = sol_level_threads(level) * 16;
    if ((((uintptr_t)to | (uintptr_t)from) & 15) == 0) {
        for (uint64_t at = sol_level_thread(level) * 16; at < bytes; at += step) {
            uint32_t left = bytes - at < 16 ? (uint32_t)(bytes - at) : 16;
            sol_store_vector<false>(to + at, left, sol_load_vector<false>(from + at, left));
        }
        return;
    }
    for (uint64_t at = sol_level_thread(level); at < bytes; at += step / 16)
        sol_store_unit((uint8_t *)to + at, (uint8_t)sol_load_unit((const uint8_t *)from + at));
}

/* All threads of the group: what it stored or put for `rank` comes, and then its counter grows. */
SOL_GPU_FN void sol_signal(const sol_dev_comm_t &dev, enum sol_level level, int rank, int counter,
                           uint64_t n)
{
    sol_level_sync(level);
    if (sol_level_thread(level) == 0)
        sol_counter_add(dev, rank, counter, n, SOL_RELEASE);
}

SOL_GPU_FN void sol_put_signal(const sol_dev_comm_t &dev, enum sol_level level, int rank, char *to,
                               const char *from, uint64_t bytes, int counter, uint64_t n)
{
    sol_put(level, to, from, bytes);
    sol_signal(dev, level, rank, counter, n);
}

#endif
