/* SPDX-License-Identifier: Apache-2.0 */
/* halves_kernels.h: what halves_perf.c computes between its collectives on GPU ranks. */
#ifndef BENCH_FUSED_HALVES_KERNELS_H
#define BENCH_FUSED_HALVES_KERNELS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Arithmetic on `ctas` CTAs of 256 threads, `turns` of 64 dependent multiply-adds each; ends by
 * itself. */
cudaError_t bench_busy(float *out, unsigned ctas, unsigned turns, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
