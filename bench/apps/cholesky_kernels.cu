/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cholesky_kernels.cu: see cholesky_kernels.h. Each CTA factors the diagonal block for itself,
 * which costs less than handing it on, and then solves its own rows.
 */
#include "cholesky_kernels.h"

enum { NB = CHOLESKY_NB, THREADS = 128 };

static __global__ void matrix_kernel(double *a, int n, int first_block, int block_stride,
                                     long elements)
{
    for (long e = (long)blockIdx.x * blockDim.x + threadIdx.x; e < elements;
         e += (long)gridDim.x * blockDim.x) {
        int row = (int)(e % n), local = (int)(e / n);
        int column = (first_block + local / NB * block_stride) * NB + local % NB;
        unsigned long long low = row < column ? row : column, high = row < column ? column : row;
        unsigned long long bits = (low * 0x1000003ull + high) * 0x9e3779b97f4a7c15ull;

        bits ^= bits >> 29;
        bits *= 0xbf58476d1ce4e5b9ull;
        /* off the diagonal within (-1, 1); dominated by the diagonal, so positive definite */
        a[e] = row == column ? n + 1.0 : (double)(bits >> 11) * 0x1p-52 - 1;
    }
}

/* The lower factor of the diagonal block, by one warp, a row a lane; to l, with the reciprocals of
 * its diagonal in place of the diagonal. */
static __device__ void factor(const double *a, int lda, double (*l)[NB + 1])
{
    int lane = threadIdx.x;
    double row[NB];

#pragma unroll
    for (int j = 0; j < NB; j++)
        row[j] = a[lane + (long)j * lda];
#pragma unroll
    for (int j = 0; j < NB; j++) {
        double scale = rsqrt(__shfl_sync(0xffffffffu, row[j], j));

        row[j] *= scale;
#pragma unroll
        for (int k = j + 1; k < NB; k++)
            row[k] -= row[j] * __shfl_sync(0xffffffffu, row[j], k);
        l[lane][j] = lane == j ? scale : row[j];
    }
}

static __global__ void __launch_bounds__(THREADS)
    panel_kernel(const double *a, int lda, int rows, double *panel)
{
    __shared__ double l[NB][NB + 1];
    int r = blockIdx.x * THREADS + threadIdx.x;
    double x[NB];

    if (threadIdx.x < 32)
        factor(a, lda, l);
    if (r < rows)
        for (int j = 0; j < NB; j++)
            x[j] = a[r + (long)j * lda];
    __syncthreads();
    if (r >= rows)
        return;
    if (r < NB) {
        for (int j = 0; j < NB; j++)
            panel[r + (long)j * rows] = j < r ? l[r][j] : j == r ? 1 / l[r][r] : 0;
        return;
    }
#pragma unroll
    for (int j = 0; j < NB; j++) {
        x[j] *= l[j][j];
#pragma unroll
        for (int k = j + 1; k < NB; k++)
            x[k] -= x[j] * l[k][j];
        panel[r + (long)j * rows] = x[j];
    }
}

extern "C" cudaError_t cholesky_matrix(double *a, int n, int first_block, int block_stride,
                                       int blocks, cudaStream_t stream)
{
    if (blocks > 0)
        matrix_kernel<<<1024, 256, 0, stream>>>(a, n, first_block, block_stride,
                                                (long)n * blocks * NB);
    return cudaGetLastError();
}

extern "C" cudaError_t cholesky_panel(const double *a, int lda, int rows, double *panel,
                                      cudaStream_t stream)
{
    panel_kernel<<<(rows + THREADS - 1) / THREADS, THREADS, 0, stream>>>(a, lda, rows, panel);
    return cudaGetLastError();
}
