/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_kernels.h: the kernels that play a user's work in the GPU tests.
 */
#ifndef TESTS_GPU_KERNELS_H
#define TESTS_GPU_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One thread that is busy for so long. */
cudaError_t gpu_spin(cudaStream_t stream, uint64_t nanoseconds);
cudaError_t gpu_empty(cudaStream_t stream);
/* out[i] = in[i] * factor, set up early (dependent launch) as a user's kernel might be. */
cudaError_t gpu_scale(cudaStream_t stream, float *out, const float *in, size_t count, float factor);
/* out[i] = (in[i] * 5 + add) mod 251. `early`: as gpu_scale; else a kernel that knows nothing of
 * it. */
cudaError_t gpu_turn(cudaStream_t stream, float *out, const float *in, size_t count, float add,
                     bool early);

#ifdef __cplusplus
}
#endif
#endif
