/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe_launch.h: the host's door to the kernels of solccl/moe.h. C; the CUDA
 * runtime's types only. They stand on a device communicator of their own, so that
 * nothing here knows of the built-in collectives.
 *
 *     sol_gpu_moe_config(&shape, &config);         // what it needs
 *     sol_dev_comm_create(comm, &config, &dev);    // all ranks
 *     moe.shape = shape, moe.dev = dev, moe.max_ctas = ctas;
 *     sol_gpu_moe_dispatch(&moe, &args, halves, flags, sequence, stream); ...
 *
 * What the caller guarantees: all ranks launch the same in the same order, one after
 * the other on each rank; the arguments are those that solccl/moe.h allows; `max_ctas` CTAs
 * of every rank can be resident at once, whatever else waits for peers.
 */
#ifndef SOL_DEVICE_KERNELS_MOE_LAUNCH_H
#define SOL_DEVICE_KERNELS_MOE_LAUNCH_H

#include "coll/moe.h"
#include "device/kernels/launch.h"
#include "solccl/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A handle on this rank. */
struct sol_gpu_moe {
    sol_moe_shape_t shape;
    sol_dev_comm_t dev;
    uint64_t first_epoch; /* 0: 1 */
    int max_ctas;
};

/* The device communicator that a handle of this shape stands on. */
void sol_gpu_moe_config(const sol_moe_shape_t *shape, sol_dev_config_t *config);

/* Bytes of it, on a rank. */
size_t sol_gpu_moe_bytes(const sol_moe_shape_t *shape);

/* `halves`: 1: send, 2: receive; `flags`: SOL_GPU_PDL. Enqueues one kernel. */
cudaError_t sol_gpu_moe_dispatch(const struct sol_gpu_moe *moe, const sol_moe_dispatch_args_t *args,
                                 unsigned halves, unsigned flags, uint64_t sequence,
                                 cudaStream_t stream);
cudaError_t sol_gpu_moe_combine(const struct sol_gpu_moe *moe, const sol_moe_combine_args_t *args,
                                unsigned halves, unsigned flags, uint64_t sequence,
                                cudaStream_t stream);

/* As sol_gpu_preload, of these kernels. */
cudaError_t sol_gpu_moe_preload(void);

#ifdef __cplusplus
}
#endif
#endif
