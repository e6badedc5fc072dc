/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear_launch.h: the host's door to the kernel of sol_linear_all_reduce. As launch.h,
 * whose guarantees the caller gives here too: a launch takes its place in the
 * sequence of collectives of the communicator.
 */
#ifndef SOL_DEVICE_KERNELS_LINEAR_LAUNCH_H
#define SOL_DEVICE_KERNELS_LINEAR_LAUNCH_H

#include "device/kernels/launch.h"
#include "solccl/fused.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueue; several kernels in a row where the outputs do not fit a slot. At most `ctas` CTAs, 0: as
 * many as fit; ranks may differ. tokens and outputs are at least 1; `flags`: SOL_GPU_PDL. */
cudaError_t sol_gpu_linear_launch(const struct sol_gpu_comm *comm, const sol_linear_args_t *args,
                                  int ctas, unsigned flags, uint64_t sequence, cudaStream_t stream);

/* As sol_gpu_preload, of these kernels. */
cudaError_t sol_gpu_linear_preload(void);

#ifdef __cplusplus
}
#endif
#endif
