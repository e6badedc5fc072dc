/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.cuh: the way out of every wait.
 *
 * A wait polls; every SOL_WATCH_POLLS-th time it did not find what it wanted it
 * looks at the clock and at this rank's own `dead` word, and when it is its turn
 * at the host's abort word. A wait that is satisfied sooner executes one addition
 * and one test for it. The first thread to give up writes the error record; the
 * others see `dead` and follow. Kernels launched afterwards do nothing.
 *
 * The same looks count how long was waited for whom (struct sol_gpu_waits): from a
 * wait's first look to its last. So a wait counts for up to two rounds of polls less
 * than it lasted, one at each end, and one that is shorter does not count; a wait
 * for a peer that is on time executes nothing for it.
 *
 * Why in turns: reads of one word of host memory are served one after the other,
 * about a microsecond each. When all 2,000 warps of a large grid looked, they were
 * stuck for 2 ms; the peer then waited long enough for its warps to look, and so
 * the two held each other up in every operation that followed (bench/NOTES.md).
 */
#ifndef SOL_DEVICE_WATCH_CUH
#define SOL_DEVICE_WATCH_CUH

#include "solccl/device/channel.h"
#include "solccl/device/fate.h"
#include "solccl/device/ptx.cuh"

#ifndef SOL_WATCH_POLLS     /* (the emulator polls less) */
#define SOL_WATCH_POLLS 32u /* some 10 us */
#endif
#ifndef SOL_WATCH_TURNS
#define SOL_WATCH_TURNS 1024u /* looks of a warp to one of them at the abort word: some 10 ms */
#endif
#define SOL_WATCH_GRAIN_NS 1000 /* what is less is left to the thread that counts next */

struct sol_watch {
    uint64_t deadline; /* 0: the clock has not been looked at yet */
    uint32_t polls;
};

/* Out of line: what a kernel does not execute must not lie in the way of what it does. A line of
 * instructions that is fetched in vain costs as much as one that is used. */

SOL_GPU_RARE void sol_record(const struct sol_bound &bound, const struct sol_story &story,
                             uint32_t fault, int awaited, uint64_t detail, uint64_t epoch)
{
    if (atomicCAS(&bound.fate->claimed, 0u, 1u) != 0)
        return;
    volatile struct sol_gpu_error *e = bound.error;
    e->func = story.func;
    e->rank = bound.rank;
    e->awaited = awaited;
    e->sequence = story.sequence;
    e->bytes = story.bytes;
    e->epoch = epoch;
    e->detail = detail;
    e->time_ns = sol_clock_ns();
    sol_fence_system();
    sol_push_u32(&e->fault, fault);
    sol_push_word(&bound.fate->dead, fault);
#pragma unroll 1
    for (int i = 0; i < bound.ntickets; i++)
        sol_push_word(&bound.tickets[2 * i + 1], fault);
    sol_fence_system();                /* who is woken by the abort word finds the record */
    sol_push_u32(bound.abort_word, 1); /* the peers need not wait for their own timeouts */
}

/* A thread waits for `awaited` since timeout_ns before its deadline: count what of that no other
 * thread has counted yet. All that wait for one peer try it, one at a time does. (What stands where
 * is also for the registers of kernels that have none left: tests/kernels/gate.py.) */
SOL_GPU_FN void sol_watch_count(const struct sol_bound &bound, uint64_t deadline, int awaited)
{
    if (bound.waits == nullptr || (unsigned)awaited >= SOL_DEV_MAX_RANKS || awaited == bound.rank)
        return;
    struct sol_gpu_wait *w = (struct sol_gpu_wait *)sol_opaque((char *)&bound.waits->peer[awaited]);
    if ((int64_t)(sol_clock_ns() - sol_poll_word(&w->until)) < SOL_WATCH_GRAIN_NS ||
        !sol_warp_first(awaited) || !sol_take_u32(&w->taken))
        return;
    volatile struct sol_gpu_waited *told = w->told;
    uint64_t from = sol_poll_word(&w->until);
    if ((int64_t)(from - deadline + bound.timeout_ns) < 0) { /* nobody else waited when it began */
        from = deadline - bound.timeout_ns;
        sol_push_word((void *)&told->since, from);
        sol_add_word(&w->waits, 1);
    }
    const uint64_t now = sol_clock_ns();
    sol_push_word(&w->until, now);
    sol_push_word((void *)&told->until, now);
    from = sol_poll_word(&w->ns) + (now - from);
    sol_push_word(&w->ns, from);
    sol_push_word((void *)&told->ns, from);
    sol_push_word((void *)&told->waits, sol_poll_word(&w->waits));
    sol_fence_system(); /* who counts next finds it, and tells after it */
    sol_push_u32(&w->taken, 0);
}

/* The number of the warp in its grid: whose turn it is. */
SOL_GPU_FN uint32_t sol_watch_warp(void)
{
    return (blockIdx.x * blockDim.x + threadIdx.x) / 32;
}

/* The `look`-th look of a wait, at clock, `dead` and, in turns, at the abort word. The deadline,
 * set if it was not; 0: give up (and it has been recorded). */
SOL_GPU_RARE uint64_t sol_watch_look(const struct sol_bound &bound, const struct sol_story &story,
                                     uint64_t deadline, uint32_t look, int awaited)
{
    uint64_t now = sol_clock_ns();
    if (deadline == 0)
        deadline = now + bound.timeout_ns;
    if (sol_poll_word(&bound.fate->dead) != 0)
        return 0;
    bool late = (int64_t)(now - deadline) > 0,
         turn = (look + sol_watch_warp()) % SOL_WATCH_TURNS == 0;
    if (late || (turn && sol_poll_u32(bound.abort_word) != 0)) {
        sol_record(bound, story, late ? SOL_GPU_FAULT_TIMEOUT : SOL_GPU_FAULT_ABORT, awaited, 0, 0);
        return 0;
    }
    if (look > 1)
        sol_watch_count(bound, deadline, awaited);
    return deadline;
}

/* Called when a poll for `awaited` was in vain. True: give up. */
SOL_GPU_FN bool sol_watch_expired(const struct sol_bound &bound, const struct sol_story &story,
                                  struct sol_watch &watch, int awaited)
{
    if ((++watch.polls & (SOL_WATCH_POLLS - 1)) != 0)
        return false;
    watch.deadline =
        sol_watch_look(bound, story, watch.deadline, watch.polls / SOL_WATCH_POLLS, awaited);
    return watch.deadline == 0;
}

#endif
