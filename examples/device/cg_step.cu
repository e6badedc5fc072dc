/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cg_step.cu: conjugate gradients for a 1-D Laplacian in one persistent kernel: an iteration is a
 * halo exchange with two neighbours and two all_reduces of 8 bytes, without a launch between.
 * Each rank has one CTA and CELLS unknowns, one a thread.
 */
#include "rig.h"

#define CELLS 64

/* The sum over all threads of all ranks, the same bits on each: an epoch of its own. */
static __device__ bool total(const struct sol_channel &ch, struct sol_session &s, double *shared,
                             double mine, double *sum)
{
    struct sol_vector v = {0, 0};
    shared[threadIdx.x] = mine;
    __syncthreads();
    for (int by = CELLS / 2; by > 0; by /= 2) {
        if ((int)threadIdx.x < by)
            shared[threadIdx.x] += shared[threadIdx.x + by];
        __syncthreads();
    }
    v.a = sol_bits_f64(shared[0]);
    if (threadIdx.x == 0)
        sol_all_reduce_start(ch, s, 0, v);
    bool good = threadIdx.x != 0 || sol_all_reduce_wait<SOL_FLOAT64>(ch, s, SOL_SUM, 0, v);
    __syncthreads();
    if (threadIdx.x == 0)
        shared[0] = sol_f64_bits(v.a);
    if (__syncthreads_or(!good))
        return false;
    *sum = shared[0];
    sol_session_next(ch, s);
    return true;
}

__global__ void solve(const __grid_constant__ struct sol_channel sums,
                      const __grid_constant__ struct sol_channel halo, const double *b, double *x,
                      int iterations)
{
    SOL_SHARED_ARRAY(double, shared, CELLS);
    SOL_SHARED_ARRAY(double, p, CELLS + 2);
    const int i = (int)threadIdx.x, to = i == 0 ? sums.rank - 1 : sums.rank + 1;
    const bool talks = (i == 0 || i == CELLS - 1) && to >= 0 && to < sums.nranks;
    struct sol_session s = sol_session_open(sums, SOL_CHANNEL_TAG, 0, SOL_CTA);
    struct sol_session h = sol_session_open(halo, SOL_CHANNEL_TAG, 0, SOL_CTA);
    double xi = 0, r = b[i], rr, pap, rr_next;
    p[i + 1] = r;
    if (!total(sums, s, shared, r * r, &rr))
        return;
    for (int k = 0; k < iterations; k++) {
        struct sol_vector edge = {sol_bits_f64(p[i + 1]), 0};
        bool good = true;
        if (talks) { /* neighbours only: each hears from each of its own in every epoch */
            sol_session_send(halo, h, to, 0, edge);
            good = sol_session_receive(halo, h, to, 0, edge);
        }
        if (i == 0 || i == CELLS - 1)
            p[i == 0 ? 0 : CELLS + 1] = talks ? sol_f64_bits(edge.a) : 0;
        if (__syncthreads_or(!good))
            return;
        const double ap = 2 * p[i + 1] - p[i] - p[i + 2];
        if (!total(sums, s, shared, p[i + 1] * ap, &pap))
            return;
        sol_session_next(halo, h);
        xi += rr / pap * p[i + 1];
        r -= rr / pap * ap;
        if (!total(sums, s, shared, r * r, &rr_next))
            return;
        p[i + 1] = r + rr_next / rr * p[i + 1];
        rr = rr_next;
        __syncthreads();
    }
    x[i] = xi;
    sol_session_close(sums, s);
    sol_session_close(halo, h);
}

int main(void)
{
    double b[CELLS], x[CELLS];
    struct rig rig;
    sol_dev_config_t config = SOL_DEV_CONFIG_INIT;
    for (int c = 0; c < 2; c++) {
        config.channel[c].kind = SOL_CHANNEL_TAG;
        config.channel[c].sessions = 1;
        config.channel[c].slot_bytes = 16;
    }
    if (!rig_open(&rig, &config))
        return 1;
    for (int i = 0; i < CELLS; i++) /* of the solution 1 everywhere: 1 at both ends, otherwise 0 */
        b[i] = (rig.rank == 0 && i == 0) || (rig.rank == rig.n - 1 && i == CELLS - 1);
    char *db = rig_upload(&rig, b, sizeof b), *dx = rig_upload(&rig, b, sizeof b);
    sol_dev_launch(solve, 1, CELLS, rig.stream, rig.dev.channel[0], rig.dev.channel[1],
                   (const double *)db, (double *)dx, CELLS / 2 * rig.n);
    rig_download(&rig, x, dx, sizeof x);
    for (int i = 0; i < CELLS; i++)
        rig.wrong += !(fabs(x[i] - 1) < 1e-9);
    return rig_close(&rig);
}
