/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantized_launch.h: the host's door to the kernels of solccl/quantized.h. As
 * launch.h, whose guarantees the caller gives here too: a launch takes its place in
 * the sequence of collectives of the communicator.
 */
#ifndef SOL_DEVICE_KERNELS_QUANTIZED_LAUNCH_H
#define SOL_DEVICE_KERNELS_QUANTIZED_LAUNCH_H

#include "device/kernels/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sol_gpu_quantized {
    const void *send;
    void *recv;
    uint64_t count; /* at least 1 */
    sol_dtype_t dtype, wire;
    int steps; /* 1 or 2 */
    int ctas;  /* 0: chosen; ranks may differ */
};

/* Enqueue; several kernels in a row where the message does not fit a slot. flags: SOL_GPU_PDL. */
cudaError_t sol_gpu_quantized_launch(const struct sol_gpu_comm *comm,
                                     const struct sol_gpu_quantized *op, unsigned flags,
                                     uint64_t sequence, cudaStream_t stream);

/* As sol_gpu_preload, of these kernels. */
cudaError_t sol_gpu_quantized_preload(void);

#ifdef __cplusplus
}
#endif
#endif
