/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_late.h: the kernels of gpu_late.c, which run in the emulator too. */
#ifndef TESTS_GPU_LATE_H
#define TESTS_GPU_LATE_H

#include <cuda_runtime_api.h>
#include <solccl/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One thread that looks at a word until so long has passed by the device's clock. */
cudaError_t gpu_delay(cudaStream_t stream, uint64_t nanoseconds, const void *word);
/* A kernel of the user's own: barrier 0 of all ranks. */
cudaError_t gpu_meet(cudaStream_t stream, const sol_dev_comm_t *dev);

#ifdef __cplusplus
}
#endif
#endif
