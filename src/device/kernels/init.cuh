/* SPDX-License-Identifier: Apache-2.0 */
/*
 * init.cuh: the first state of a rank: every slot empty, every counter at its
 * start. Runs once, before any peer may push.
 */
#ifndef SOL_DEVICE_KERNELS_INIT_CUH
#define SOL_DEVICE_KERNELS_INIT_CUH

#include "device/kernels/launch.h"
#include "solccl/device/gpu_word.h"
#include <solccl/device.h>

/* Data areas hold marks, all else zeros. (What was waited is counted on from what has been told: a
 * communicator that wakes is initialised again.) */
static __global__ void __launch_bounds__(512)
    sol_init_kernel(const __grid_constant__ struct sol_gpu_comm comm)
{
    const struct sol_gpu_layout &l = comm.layout;
    struct sol_vector *vectors = (struct sol_vector *)comm.staging[comm.rank];
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    uint64_t first = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
    for (uint64_t i = first; i < l.total / 16; i += step) {
        uint64_t at = i * 16, in;
        bool data = false;
        if (at >= l.p2p) {
            in = (at - l.p2p) % l.p2p_source_bytes;
            data = in < l.p2p_escape;
        } else if (at >= l.coll) {
            in = (at - l.coll) % l.parity_bytes;
            data = in < l.escape;
        }
        struct sol_vector v = {data ? SOL_WORD_MARK : 0, data ? SOL_WORD_MARK : 0};
        sol_push_vector(&vectors[i], v);
    }
    uint64_t *state = (uint64_t *)comm.state;
    for (uint64_t i = first; i < sizeof(struct sol_gpu_state) / 8; i += step)
        state[i] = 0;
}

static __global__ void sol_init_counters_kernel(const __grid_constant__ struct sol_gpu_comm comm,
                                                uint64_t epoch)
{
    for (unsigned j = threadIdx.x; j < SOL_GPU_EPOCHS; j += blockDim.x)
        comm.state->epochs[j].epoch = epoch ? epoch : 1;
    for (int r = 0; r < SOL_GPU_MAX_RANKS && comm.told != NULL; r++) {
        struct sol_gpu_wait *w = &comm.state->waits.peer[r];
        w->told = &comm.told[r];
        w->ns = comm.told[r].ns;
        w->waits = comm.told[r].waits;
    }
}

#endif
