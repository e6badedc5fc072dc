/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cholesky_kernels.h: the panel of a Cholesky factorisation whose panels are CHOLESKY_NB columns
 * wide, and the matrix that is factored. Column-major, float64.
 */
#ifndef SOL_APPS_CHOLESKY_KERNELS_H
#define SOL_APPS_CHOLESKY_KERNELS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CHOLESKY_NB = 32 };

/**
 * Columns first, first + stride, ... (`columns` of them, in blocks of CHOLESKY_NB) of a symmetric
 * positive definite matrix of order n, one beside the other in `a`. Element (i, j) depends only on
 * i, j and n.
 */
cudaError_t cholesky_matrix(double *a, int n, int first_block, int block_stride, int blocks,
                            cudaStream_t stream);
/**
 * Factor the panel at `a` (leading dimension lda): its upper CHOLESKY_NB rows are the diagonal
 * block, `rows` in all. The result goes to `panel`, leading dimension `rows`, zero above the
 * diagonal; `a` is only read.
 */
cudaError_t cholesky_panel(const double *a, int lda, int rows, double *panel, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
