/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vocab_launch.h: the host's door to the kernel of sol_vocab_topk. As launch.h, whose
 * guarantees the caller gives here too: a launch takes its place in the sequence
 * of collectives of the communicator.
 */
#ifndef SOL_DEVICE_KERNELS_VOCAB_LAUNCH_H
#define SOL_DEVICE_KERNELS_VOCAB_LAUNCH_H

#include "device/kernels/launch.h"
#include "solccl/fused.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a launch is shaped. 0 in a field: chosen. Ranks may differ. */
struct sol_gpu_vocab_shape {
    int most_spread; /* CTAs of a cluster, at most: 1 where the GPU has none; 0: 1 */
    int spread;      /* CTAs that share a row: 1, 2, 4 or 8 */
    int ctas;        /* a multiple of spread */
};

/* Fill in what is 0. Pure. */
void sol_gpu_vocab_plan(const struct sol_gpu_comm *comm, const sol_vocab_args_t *args,
                        struct sol_gpu_vocab_shape *shape);

/* Enqueue; several kernels in a row where the messages do not fit a slot. `shape` is as wished and
 * may be NULL. tokens are at least 1, the rest is as fused.h says; `flags`: SOL_GPU_PDL. */
cudaError_t sol_gpu_vocab_launch(const struct sol_gpu_comm *comm, const sol_vocab_args_t *args,
                                 const struct sol_gpu_vocab_shape *shape, unsigned flags,
                                 uint64_t sequence, cudaStream_t stream);

/* As sol_gpu_preload, of these kernels. */
cudaError_t sol_gpu_vocab_preload(void);

#ifdef __cplusplus
}
#endif
#endif
