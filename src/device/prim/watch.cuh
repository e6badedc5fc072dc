/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.cuh: the way out of every wait.
 *
 * A wait polls; every SOL_WATCH_POLLS-th time it did not find what it wanted it
 * looks at the clock, at the host's abort word and at this rank's own `dead`
 * word. A wait that is satisfied sooner executes one addition and one test for
 * it. The first thread to give up writes the error record; the others see
 * `dead` and follow. Kernels launched afterwards see it in their first wait.
 */
#ifndef SOL_DEVICE_PRIM_WATCH_CUH
#define SOL_DEVICE_PRIM_WATCH_CUH

#include "device/prim/link.cuh"

#ifndef SOL_WATCH_POLLS      /* (the emulator polls less) */
#define SOL_WATCH_POLLS 512u /* some 0.3 ms */
#endif

struct sol_watch {
    uint64_t deadline; /* 0: the clock has not been looked at yet */
    uint32_t polls;
};

SOL_GPU_FN void sol_record(const struct sol_link &comm, const struct sol_story &story,
                           uint32_t fault, int awaited, uint64_t detail)
{
    if (atomicCAS(&comm.state->claimed, 0u, 1u) != 0)
        return;
    volatile struct sol_gpu_error *e = comm.error;
    e->func = story.func;
    e->rank = comm.rank;
    e->awaited = awaited;
    e->sequence = story.sequence;
    e->bytes = story.bytes;
    e->epoch = sol_poll_word(&comm.state->ticks) / SOL_GPU_TICKS;
    e->detail = detail;
    e->time_ns = sol_clock_ns();
    sol_fence_system();
    sol_push_u32(&e->fault, fault);
    sol_push_word(&comm.state->dead, fault);
}

/* Called when a poll for `awaited` was in vain. True: give up (and it has been recorded). */
SOL_GPU_FN bool sol_watch_expired(const struct sol_link &comm, const struct sol_story &story,
                                  struct sol_watch &watch, int awaited)
{
    if ((++watch.polls & (SOL_WATCH_POLLS - 1)) != 0)
        return false;
    uint64_t now = sol_clock_ns();
    if (watch.deadline == 0)
        watch.deadline = now + comm.timeout_ns;
    if (sol_poll_word(&comm.state->dead) != 0)
        return true;
    bool late = (int64_t)(now - watch.deadline) > 0;
    if (!late && sol_poll_u32(comm.abort_word) == 0)
        return false;
    sol_record(comm, story, late ? SOL_GPU_FAULT_TIMEOUT : SOL_GPU_FAULT_ABORT, awaited, 0);
    return true;
}

#endif
