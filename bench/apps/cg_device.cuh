/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cg_device.cuh: the arithmetic of a step, for the kernels of a step each and for the one that does
 * a whole solve: both give the same bits.
 */
#ifndef SOL_APPS_CG_DEVICE_CUH
#define SOL_APPS_CG_DEVICE_CUH

#include "cg_kernels.h"

enum { CG_THREADS = 256 };

static __host__ __device__ long cg_points(const cg_slab_t &slab)
{
    return (long)slab.n * slab.n * slab.planes;
}

/* How many blocks a sum is made of, whatever the number of CTAs. */
static __host__ __device__ int cg_blocks(const cg_slab_t &slab)
{
    long wanted = (cg_points(slab) + CG_THREADS - 1) / CG_THREADS;

    return wanted > CG_BLOCKS ? CG_BLOCKS : (int)wanted;
}

static __device__ double cg_block_sum(double value)
{
    __shared__ double warps[CG_THREADS / 32];
    int lane = threadIdx.x % 32, i;

    for (i = 16; i > 0; i /= 2)
        value += __shfl_down_sync(0xffffffffu, value, i);
    if (lane == 0)
        warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
    if (threadIdx.x == 0)
        for (i = 0; i < CG_THREADS / 32; i++)
            value += warps[i];
    __syncthreads();
    return value; /* on thread 0 */
}

/* A p at point i of the slab. p points at the slab's own first plane. */
static __device__ double cg_laplace(const cg_slab_t &slab, long i)
{
    int n = slab.n;
    long plane = (long)n * n;
    const double *p = slab.p + plane + i;
    int x = (int)(i % n), y = (int)(i / n % n);

    return 6 * p[0] - (x > 0 ? p[-1] : 0) - (x < n - 1 ? p[1] : 0) - (y > 0 ? p[-n] : 0) -
           (y < n - 1 ? p[n] : 0) - p[-plane] - p[plane];
}

static __device__ double cg_new_residual(double r, double a, double q)
{
    return r - a * q;
}

static __device__ double cg_new_direction(double r, double b, double p)
{
    return r + b * p;
}

#endif
