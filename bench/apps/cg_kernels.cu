/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cg_kernels.cu: see cg_kernels.h. Plain kernels: what is compared is the communication.
 */
#include "cg_device.cuh"

/* *result = the sum of all threads' values of the grid, blocks added in the order of their number.
 */
static __device__ void grid_sum(double value, cg_scalars_t *s, double *result)
{
    __shared__ bool last;

    value = cg_block_sum(value);
    if (threadIdx.x == 0) {
        s->partial[blockIdx.x] = value;
        __threadfence(); /* the partial before the arrival; read below behind the same counter */
        last = atomicAdd(&s->arrived, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last)
        return;
    __threadfence(); /* partner of the fence before each block's arrival */
    value = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += CG_THREADS)
        value += *(volatile double *)&s->partial[i];
    value = cg_block_sum(value);
    if (threadIdx.x == 0) {
        *result = value;
        s->arrived = 0;
    }
}

#define EACH_POINT(i, slab)                                                                        \
    for (long i = (long)blockIdx.x * CG_THREADS + threadIdx.x, end_ = cg_points(slab); i < end_;   \
         i += (long)gridDim.x * CG_THREADS)

static __global__ void known_kernel(cg_slab_t slab)
{
    long plane = (long)slab.n * slab.n;
    long total = plane * slab.n;

    for (long i = (long)blockIdx.x * CG_THREADS + threadIdx.x; i < cg_points(slab) + 2 * plane;
         i += (long)gridDim.x * CG_THREADS) {
        long global = i + (slab.first - 1) * plane;
        unsigned long long bits = (unsigned long long)global * 0x9e3779b97f4a7c15ull;

        bits ^= bits >> 29;
        bits *= 0xbf58476d1ce4e5b9ull;
        slab.p[i] = global < 0 || global >= total ? 0 : (double)(bits >> 11) * 0x1p-52 - 1;
    }
}

static __global__ void right_side_kernel(cg_slab_t slab)
{
    EACH_POINT(i, slab)
    slab.b[i] = cg_laplace(slab, i);
}

static __global__ void start_kernel(cg_slab_t slab)
{
    double sum = 0;

    EACH_POINT(i, slab)
    {
        double b = slab.b[i];

        slab.x[i] = 0;
        slab.r[i] = b;
        slab.p[(long)slab.n * slab.n + i] = b;
        sum += b * b;
    }
    grid_sum(sum, slab.scalars, &slab.scalars->rr[0]);
}

static __global__ void multiply_kernel(cg_slab_t slab)
{
    double sum = 0;

    EACH_POINT(i, slab)
    {
        double q = cg_laplace(slab, i);

        slab.q[i] = q;
        sum += q * slab.p[(long)slab.n * slab.n + i];
    }
    grid_sum(sum, slab.scalars, &slab.scalars->pq);
}

static __global__ void update_kernel(cg_slab_t slab, int iteration)
{
    double a = slab.scalars->rr[iteration % 2] / slab.scalars->pq, sum = 0;

    EACH_POINT(i, slab)
    {
        double r = cg_new_residual(slab.r[i], a, slab.q[i]);

        slab.x[i] += a * slab.p[(long)slab.n * slab.n + i];
        slab.r[i] = r;
        sum += r * r;
    }
    grid_sum(sum, slab.scalars, &slab.scalars->rr[(iteration + 1) % 2]);
}

static __global__ void direction_kernel(cg_slab_t slab, int iteration)
{
    double b = slab.scalars->rr[(iteration + 1) % 2] / slab.scalars->rr[iteration % 2];

    EACH_POINT(i, slab)
    {
        double *p = &slab.p[(long)slab.n * slab.n + i];

        *p = cg_new_direction(slab.r[i], b, *p);
    }
}

static __global__ void check_begin_kernel(cg_slab_t slab)
{
    EACH_POINT(i, slab)
    slab.p[(long)slab.n * slab.n + i] = slab.x[i];
}

static __global__ void check_end_kernel(cg_slab_t slab)
{
    double sum = 0;

    EACH_POINT(i, slab)
    {
        double r = slab.b[i] - cg_laplace(slab, i);

        slab.r[i] = r;
        sum += r * r;
    }
    grid_sum(sum, slab.scalars, &slab.scalars->rr[0]);
}

extern "C" cudaError_t cg_known(const cg_slab_t *slab, cudaStream_t stream)
{
    known_kernel<<<CG_BLOCKS, CG_THREADS, 0, stream>>>(*slab);
    return cudaGetLastError();
}

extern "C" cudaError_t cg_right_side(const cg_slab_t *slab, cudaStream_t stream)
{
    right_side_kernel<<<cg_blocks(*slab), CG_THREADS, 0, stream>>>(*slab);
    return cudaGetLastError();
}

extern "C" cudaError_t cg_start(const cg_slab_t *slab, cudaStream_t stream)
{
    start_kernel<<<cg_blocks(*slab), CG_THREADS, 0, stream>>>(*slab);
    return cudaGetLastError();
}

extern "C" cudaError_t cg_multiply(const cg_slab_t *slab, cudaStream_t stream)
{
    multiply_kernel<<<cg_blocks(*slab), CG_THREADS, 0, stream>>>(*slab);
    return cudaGetLastError();
}

extern "C" cudaError_t cg_update(const cg_slab_t *slab, int iteration, cudaStream_t stream)
{
    update_kernel<<<cg_blocks(*slab), CG_THREADS, 0, stream>>>(*slab, iteration);
    return cudaGetLastError();
}

extern "C" cudaError_t cg_direction(const cg_slab_t *slab, int iteration, cudaStream_t stream)
{
    direction_kernel<<<cg_blocks(*slab), CG_THREADS, 0, stream>>>(*slab, iteration);
    return cudaGetLastError();
}

extern "C" cudaError_t cg_check_begin(const cg_slab_t *slab, cudaStream_t stream)
{
    check_begin_kernel<<<cg_blocks(*slab), CG_THREADS, 0, stream>>>(*slab);
    return cudaGetLastError();
}

extern "C" cudaError_t cg_check_end(const cg_slab_t *slab, cudaStream_t stream)
{
    check_end_kernel<<<cg_blocks(*slab), CG_THREADS, 0, stream>>>(*slab);
    return cudaGetLastError();
}
