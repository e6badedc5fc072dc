/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cg_persistent.cu: all iterations of a solve in one kernel, on solccl's device API. No launch, no
 * copy and no library call lies between the halo exchange, the products and the two all_reduces:
 *
 *   halo        who computes a point of an outermost plane stores it into the neighbour's memory;
 *               a counter there says that all CTAs of this rank have
 *   all_reduce  every CTA exchanges the 8 bytes for itself, in a session of its own, so that the
 *               result need not be handed round the GPU
 *
 * Within a rank CTAs meet at a barrier of their own, bounded like every other wait. All CTAs must
 * be resident; the host launches no more than that.
 */
#include "cg_persistent.h"

#include "cg_device.cuh"

enum { HALO = 0 }; /* the counter */

struct step {
    struct sol_session session; /* of thread 0 */
    unsigned *meeting;
    uint64_t arrivals; /* of the halo counter, when this iteration's planes are there */
};

/* All CTAs of the grid meet; what each did before is seen by all. The counter's top bit turns over
 * when the last has come, so that it need not be reset. False, to all threads: gave up. */
static __device__ bool meet(const sol_dev_comm_t &dev, struct step &step)
{
    bool good = true;

    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned add = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1, before;
        struct sol_story story = {step.session.epoch, 0, SOL_GPU_WHO_BARRIER};
        struct sol_watch watch = {0, 0};

        __threadfence(); /* release: partner of the fence below, in every other CTA */
        before = atomicAdd(step.meeting, add);
        while (good && ((before ^ *(volatile unsigned *)step.meeting) & 0x80000000u) == 0)
            good = !sol_watch_expired(dev.bound, story, watch, dev.rank);
        __threadfence(); /* acquire */
    }
    return __syncthreads_and(good);
}

/* The sum over all ranks of `partial`, block after block and rank after rank. */
static __device__ bool sum(const sol_dev_comm_t &dev, const cg_slab_t &slab, struct step &step,
                           const double *partial, double *result)
{
    __shared__ double total;
    __shared__ bool good;
    double value = 0;

    if (!meet(dev, step)) /* all blocks' partial sums are there */
        return false;
    for (int i = threadIdx.x; i < cg_blocks(slab); i += CG_THREADS)
        value += partial[i];
    value = cg_block_sum(value);
    if (threadIdx.x == 0) {
        struct sol_vector v = {(uint64_t)__double_as_longlong(value), 0};

        sol_session_push(dev.channel[0], step.session, 0, v);
        good = sol_session_reduce<SOL_FLOAT64>(dev.channel[0], step.session, SOL_SUM, 0, v);
        sol_session_next(dev.channel[0], step.session);
        total = __longlong_as_double((long long)v.a);
    }
    __syncthreads();
    *result = total;
    return good;
}

#define EACH_BLOCK(b, slab) for (int b = (int)blockIdx.x; b < cg_blocks(slab); b += (int)gridDim.x)
#define EACH_POINT(i, b, slab)                                                                     \
    for (long i = (long)(b)*CG_THREADS + threadIdx.x; i < cg_points(slab);                         \
         i += (long)cg_blocks(slab) * CG_THREADS)

/* Point i of the slab: where it lies in `rank`'s p, if that rank has it in one of its two halo
 * planes, as `plane_there`. */
static __device__ void to_neighbour(const sol_dev_comm_t &dev, const cg_slab_t &slab, long i,
                                    double value)
{
    long plane = (long)slab.n * slab.n, last = cg_points(slab) - plane;

    if (i < plane && dev.rank > 0) /* the plane behind the neighbour's last */
        ((double *)dev.memory.base[dev.rank - 1])[cg_points(slab) + plane + i] = value;
    if (i >= last && dev.rank + 1 < dev.nranks) /* the plane before the neighbour's first */
        ((double *)dev.memory.base[dev.rank + 1])[i - last] = value;
}

/* What this CTA stored for the neighbours comes before its arrival there; then wait until all CTAs
 * of this rank and of the neighbours have arrived. */
static __device__ bool halo(const sol_dev_comm_t &dev, struct step &step)
{
    int neighbours = (dev.rank > 0) + (dev.rank + 1 < dev.nranks);

    step.arrivals += (uint64_t)neighbours * gridDim.x;
    if (dev.rank > 0)
        sol_signal(dev, SOL_CTA, dev.rank - 1, HALO, 1);
    if (dev.rank + 1 < dev.nranks)
        sol_signal(dev, SOL_CTA, dev.rank + 1, HALO, 1);
    return meet(dev, step) && sol_counter_wait(dev, SOL_CTA, HALO, step.arrivals);
}

static __device__ bool multiply(const sol_dev_comm_t &dev, const cg_slab_t &slab, struct step &step,
                                double *partial, double *pq)
{
    EACH_BLOCK(b, slab)
    {
        double part = 0;

        EACH_POINT(i, b, slab)
        {
            double q = cg_laplace(slab, i);

            slab.q[i] = q;
            part += q * slab.p[(long)slab.n * slab.n + i];
        }
        part = cg_block_sum(part);
        if (threadIdx.x == 0)
            partial[b] = part;
    }
    return sum(dev, slab, step, partial, pq);
}

static __device__ bool update(const sol_dev_comm_t &dev, const cg_slab_t &slab, struct step &step,
                              double a, double *partial, double *rr)
{
    EACH_BLOCK(b, slab)
    {
        double part = 0;

        EACH_POINT(i, b, slab)
        {
            double r = cg_new_residual(slab.r[i], a, slab.q[i]);

            slab.x[i] += a * slab.p[(long)slab.n * slab.n + i];
            slab.r[i] = r;
            part += r * r;
        }
        part = cg_block_sum(part);
        if (threadIdx.x == 0)
            partial[b] = part;
    }
    return sum(dev, slab, step, partial, rr);
}

static __device__ bool direction(const sol_dev_comm_t &dev, const cg_slab_t &slab,
                                 struct step &step, double b, bool first)
{
    EACH_BLOCK(block, slab)
    EACH_POINT(i, block, slab)
    {
        double *p = &slab.p[(long)slab.n * slab.n + i];

        if (!first)
            *p = cg_new_direction(slab.r[i], b, *p);
        to_neighbour(dev, slab, i, *p);
    }
    return halo(dev, step);
}

static __global__ void __launch_bounds__(CG_THREADS, 2)
    solve_kernel(const __grid_constant__ sol_dev_comm_t dev, const __grid_constant__ cg_slab_t slab,
                 const __grid_constant__ cg_persistent_t state, int iterations)
{
    struct step step;
    double rr = slab.scalars->rr[0], next, pq;
    bool good;

    if (threadIdx.x == 0)
        step.session = sol_session_open(dev.channel[0], SOL_CHANNEL_TAG, blockIdx.x, SOL_THREAD);
    step.meeting = state.meeting;
    step.arrivals = *state.arrivals;
    good = direction(dev, slab, step, 0, true);
    for (int i = 0; i < iterations && good; i++) {
        good = multiply(dev, slab, step, state.partial_pq, &pq) &&
               update(dev, slab, step, rr / pq, state.partial_rr, &next) &&
               direction(dev, slab, step, next / rr, false);
        rr = next;
    }
    if (threadIdx.x != 0)
        return;
    sol_session_close(dev.channel[0], step.session);
    if (good && blockIdx.x == 0) { /* everybody has read it: they have met since */
        *state.arrivals = step.arrivals;
        slab.scalars->rr[0] = rr;
    }
}

extern "C" int cg_persistent_ctas(const cg_slab_t *slab, int most)
{
    int blocks = cg_blocks(*slab);

    return blocks < most ? blocks : most;
}

extern "C" cudaError_t cg_persistent(const sol_dev_comm_t *dev, const cg_slab_t *slab,
                                     const cg_persistent_t *state, int ctas, int iterations,
                                     cudaStream_t stream)
{
    return sol_dev_launch(solve_kernel, (unsigned)ctas, CG_THREADS, stream, *dev, *slab, *state,
                          iterations);
}
