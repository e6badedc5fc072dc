/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_launch.h: the host's door to the kernels of solccl/fused.h. As launch.h, whose
 * guarantees the caller gives here too: a launch takes its place in the sequence
 * of collectives of the communicator.
 */
#ifndef SOL_DEVICE_KERNELS_NORM_LAUNCH_H
#define SOL_DEVICE_KERNELS_NORM_LAUNCH_H

#include "device/kernels/launch.h"
#include "solccl/fused.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a launch is shaped. 0 in a field: chosen by sol_gpu_norm_plan. Ranks may differ. */
struct sol_gpu_norm_shape {
    int most_spread; /* CTAs of a cluster, at most: 1 where the GPU has none; 0: 1 */
    int spread;      /* CTAs that share a row: 1, 2, 4 or 8 */
    int threads; /* of a CTA: a multiple of 32, at most 512 (what sol_gpu_norm_launch chooses: 1024)
                  */
    int vectors; /* of 16 bytes, per thread and row: 1 or 2; 0 with threads given: piece by
                    piece, for rows of any length */
    int ctas;    /* a multiple of spread */
};

/* Fill in what is 0. Pure. */
void sol_gpu_norm_plan(const struct sol_gpu_comm *comm, const sol_norm_args_t *args,
                       struct sol_gpu_norm_shape *shape);

/* Enqueue; several kernels in a row where the tokens do not fit a slot. `shape` is as wished and
 * may be NULL. tokens and hidden are at least 1, pointers as fused.h says; `flags`: SOL_GPU_PDL.
 * cudaErrorInvalidValue: a row is longer than a slot. */
cudaError_t sol_gpu_norm_launch(const struct sol_gpu_comm *comm, const sol_norm_args_t *args,
                                const struct sol_gpu_norm_shape *shape, unsigned flags,
                                uint64_t sequence, cudaStream_t stream);

/* In two hops (SOL_NORM_TWO_SHOT, and shards). Of `wished`: most_spread, spread, ctas; threads with
 * no vectors: piece by piece. All ranks launch with equal arguments. cudaErrorInvalidValue: a row
 * is longer than half a slot. */
cudaError_t sol_gpu_norm_two_launch(const struct sol_gpu_comm *comm, const sol_norm_args_t *args,
                                    const struct sol_gpu_norm_shape *wished, unsigned flags,
                                    uint64_t sequence, cudaStream_t stream);
/* Rows of each owner that one kernel takes; 0: they are too long. */
uint64_t sol_gpu_norm_two_rows(const struct sol_gpu_comm *comm, const sol_norm_args_t *args);

cudaError_t sol_gpu_norm_two_preload(void);

/* As sol_gpu_preload, of these kernels. */
cudaError_t sol_gpu_norm_preload(void);

#ifdef __cplusplus
}
#endif
#endif
