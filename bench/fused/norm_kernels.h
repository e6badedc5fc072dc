/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_kernels.h: what fused calls are compared with: a good kernel for residual
 * and RMS norm alone, as follows an all_reduce that is not fused.
 */
#ifndef BENCH_NORM_KERNELS_H
#define BENCH_NORM_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* bf16; hidden is a multiple of 8, at most 16384. `early`: dependent launch. */
cudaError_t bench_norm(const void *sum, const void *residual, const void *weight,
                       void *residual_out, void *output, size_t tokens, size_t hidden,
                       float epsilon, bool early, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
