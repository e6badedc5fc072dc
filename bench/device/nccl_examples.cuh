/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_examples.cuh: the examples of examples/device, each beside a kernel that does the same on
 * NCCL's device API: how a program that has NCCL alone would do it, with LL sessions for what is
 * small, windows and barriers for what is not. A part of nccl_bench.cu.
 *
 *   all_reduce_bias_gelu   LL session: sum, bias and activation in registers
 *   all_gather_matvec      LL session: own piece while the others' come
 *   cg_step                LL session: halo and two sums an iteration, one kernel
 *   shuffle                puts into windows, counts, a barrier
 *   panel_broadcast        stores into windows, a barrier a panel
 *
 * Must never: take NVLink multicast; wait in a loop of its own (NCCL's sessions wait for ever).
 */
#ifndef BENCH_DEVICE_NCCL_EXAMPLES_CUH
#define BENCH_DEVICE_NCCL_EXAMPLES_CUH

#define main example_main
namespace gelu_example
{
#include "../../examples/device/all_reduce_bias_gelu.cu"
}
namespace matvec_example
{
#include "../../examples/device/all_gather_matvec.cu"
}
namespace cg_example
{
#include "../../examples/device/cg_step.cu"
}
namespace shuffle_example
{
#include "../../examples/device/shuffle.cu"
}
namespace panel_example
{
#include "../../examples/device/panel_broadcast.cu"
}
#undef main

#include <nccl.h>
#include <nccl_device.h>

/* Of every LL session here: elements of 16 bytes that one rank sends in an epoch. */
#define LL_ELEMENTS 256

#define NCCL_LL_SESSION(s, comm, handle)                                                           \
    ncclLLA2ASession<ncclCoopCta> s(ncclCoopCta(), comm, ncclTeamLsa(comm), handle, blockIdx.x,    \
                                    comm.lsaSize *LL_ELEMENTS)

/* ---- all_reduce, bias, activation */
enum { gelu_first = __LINE__ };
__global__ void nccl_gelu(const __grid_constant__ ncclDevComm comm, ncclLLA2AHandle handle,
                          const char *x, const char *bias, char *y, unsigned bytes, unsigned row)
{
    const unsigned t = threadIdx.x, at = (blockIdx.x * blockDim.x + t) * 16;
    struct sol_vector v = {0, 0}, b = {0, 0};
    NCCL_LL_SESSION(s, comm, handle);
    if (at < bytes) {
        v = sol_load_16(x + at);
        b = sol_load_16(bias + at % row);
    }
    s.bcast((int)(comm.lsaRank * LL_ELEMENTS + t), v);
    struct sol_lanes<SOL_FLOAT16> sum = sol_unpack<SOL_FLOAT16>(b);
    for (int r = 0; r < comm.lsaSize; r++) {
        struct sol_lanes<SOL_FLOAT16> in =
            sol_unpack<SOL_FLOAT16>(s.recv<struct sol_vector>((int)(r * LL_ELEMENTS + t)));
        for (int i = 0; i < 8; i++)
            sum.x[i] += in.x[i];
    }
    s.endEpoch(ncclCoopCta());
    for (int i = 0; i < 8; i++) {
        float z = sum.x[i];
        sum.x[i] = 0.5f * z * (1.0f + tanhf(0.7978845608f * (z + 0.044715f * z * z * z)));
    }
    if (at < bytes)
        sol_store_16(y + at, sol_pack<SOL_FLOAT16>(sum));
}
enum { gelu_lines = __LINE__ - gelu_first - 1 };

/* ---- all_gather, matrix-vector product */
enum { matvec_first = __LINE__ };
static __device__ float nccl_dot(const float *row, const struct sol_vector *x, unsigned lane)
{
    float sum = 0;
    for (unsigned i = lane; i < PIECE / 4; i += 32) {
        struct sol_lanes<SOL_FLOAT32> v = sol_unpack<SOL_FLOAT32>(x[i]);
        for (int j = 0; j < 4; j++)
            sum += row[i * 4 + j] * v.x[j];
    }
    return sum;
}

__global__ void nccl_matvec(const __grid_constant__ ncclDevComm comm, ncclLLA2AHandle handle,
                            const float *a, const char *x, float *y)
{
    SOL_SHARED_ARRAY(struct sol_vector, whole, SOL_DEV_MAX_RANKS * PIECE / 4);
    const unsigned vectors = PIECE / 4, lane = threadIdx.x % 32;
    const unsigned row = blockIdx.x * ROWS + threadIdx.x / 32;
    const float *mine = a + (uint64_t)row * comm.lsaSize * PIECE;
    const int rank = comm.lsaRank, n = comm.lsaSize;
    NCCL_LL_SESSION(s, comm, handle);
    for (unsigned i = threadIdx.x; i < vectors; i += blockDim.x) {
        whole[rank * vectors + i] = sol_load_16(x + i * 16);
        s.bcast((int)(rank * vectors + i), whole[rank * vectors + i]);
    }
    __syncthreads();
    float sum = nccl_dot(mine + rank * PIECE, whole + rank * vectors, lane);
    for (unsigned i = threadIdx.x; i < n * vectors; i += blockDim.x)
        if (i / vectors != (unsigned)rank)
            whole[i] = s.recv<struct sol_vector>((int)i);
    s.endEpoch(ncclCoopCta()); /* (a barrier of the CTA) */
    for (int r = 0; r < n; r++)
        if (r != rank)
            sum += nccl_dot(mine + r * PIECE, whole + r * vectors, lane);
    for (int by = 16; by > 0; by /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, by);
    if (lane == 0)
        y[row] = sum;
}
enum { matvec_lines = __LINE__ - matvec_first - 1 };

/* ---- conjugate gradients */
enum { cg_first = __LINE__ };
static __device__ double nccl_total(ncclLLA2ASession<ncclCoopCta> &s, const ncclDevComm &comm,
                                    double *shared, double mine)
{
    shared[threadIdx.x] = mine;
    __syncthreads();
    for (int by = CELLS / 2; by > 0; by /= 2) {
        if ((int)threadIdx.x < by)
            shared[threadIdx.x] += shared[threadIdx.x + by];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        s.bcast(comm.lsaRank, shared[0]);
    double sum = 0;
    for (int r = 0; r < comm.lsaSize; r++)
        sum += s.recv<double>(r);
    s.endEpoch(ncclCoopCta());
    return sum;
}

__global__ void nccl_solve(const __grid_constant__ ncclDevComm comm, ncclLLA2AHandle handle,
                           const double *b, double *x, int iterations)
{
    SOL_SHARED_ARRAY(double, shared, CELLS);
    SOL_SHARED_ARRAY(double, p, CELLS + 2);
    SOL_SHARED_ARRAY(double, edge, 2 * SOL_DEV_MAX_RANKS);
    const int i = (int)threadIdx.x, rank = comm.lsaRank, n = comm.lsaSize;
    NCCL_LL_SESSION(s, comm, handle);
    double xi = 0, r = b[i], rr = nccl_total(s, comm, shared, r * r);
    p[i + 1] = r;
    for (int k = 0; k < iterations; k++) {
        if (i == 0 || i == CELLS - 1) /* to all: each must hear from each in every epoch */
            s.bcast(2 * rank + (i != 0), p[i + 1]);
        if (i < 2 * n)
            edge[i] = s.recv<double>(i);
        s.endEpoch(ncclCoopCta());
        if (i == 0)
            p[0] = rank > 0 ? edge[2 * rank - 1] : 0;
        if (i == CELLS - 1)
            p[CELLS + 1] = rank < n - 1 ? edge[2 * rank + 2] : 0;
        __syncthreads();
        const double ap = 2 * p[i + 1] - p[i] - p[i + 2];
        const double pap = nccl_total(s, comm, shared, p[i + 1] * ap);
        xi += rr / pap * p[i + 1];
        r -= rr / pap * ap;
        const double rr_next = nccl_total(s, comm, shared, r * r);
        p[i + 1] = r + rr_next / rr * p[i + 1];
        rr = rr_next;
        __syncthreads();
    }
    x[i] = xi;
}
enum { cg_lines = __LINE__ - cg_first - 1 };

/* ---- tokens to experts. The window: rows by source, then how many of each. */
enum { shuffle_first = __LINE__ };
__global__ void nccl_send_tokens(const __grid_constant__ ncclDevComm comm, ncclWindow_t window,
                                 const int *expert, const char *token, uint64_t *next_row)
{
    const unsigned warps = gridDim.x * blockDim.x / 32, lane = threadIdx.x % 32;
    for (unsigned t = (blockIdx.x * blockDim.x + threadIdx.x) / 32; t < TOKENS; t += warps) {
        uint64_t row = 0;
        if (lane == 0)
            row = atomicAdd((unsigned long long *)&next_row[expert[t]], 1ull);
        row = __shfl_sync(0xffffffffu, row, 0) + (uint64_t)comm.lsaRank * TOKENS;
        uint32_t *to = (uint32_t *)ncclGetLsaPointer(window, row * WIDTH * 4, expert[t]);
        for (unsigned i = lane; i < WIDTH; i += 32)
            to[i] = ((const uint32_t *)token)[t * WIDTH + i];
    }
}

__global__ void nccl_run_expert(const __grid_constant__ ncclDevComm comm, ncclWindow_t window,
                                uint64_t *next_row, uint64_t *out)
{
    SOL_SHARED_ARRAY(uint64_t, sum, 128);
    const unsigned t = threadIdx.x, n = (unsigned)comm.lsaSize;
    const size_t counts = (size_t)SOL_DEV_MAX_RANKS * TOKENS * WIDTH * 4;
    ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamTagLsa(), 0);
    if (t < n)
        ((uint64_t *)ncclGetLsaPointer(window, counts, (int)t))[comm.lsaRank] = next_row[t];
    barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel); /* all tokens and counts are there */
    sum[t] = 0;
    for (unsigned from = 0; from < n; from++) {
        const uint64_t rows = ((uint64_t *)ncclGetLocalPointer(window, counts))[from];
        const uint32_t *words =
            (const uint32_t *)ncclGetLocalPointer(window, (size_t)from * TOKENS * WIDTH * 4);
        for (uint64_t i = t; i < rows * WIDTH; i += blockDim.x)
            sum[t] += words[i];
    }
    __syncthreads();
    for (unsigned i = 0; i < blockDim.x && t == 0; i++)
        out[0] = i ? out[0] + sum[i] : sum[i];
    if (t < n)
        next_row[t] = 0;
    barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel); /* and may be written over */
}
enum { shuffle_lines = __LINE__ - shuffle_first - 1 };

/* The example's counters only grow: what a program does that shuffles again and again. */
__global__ void shuffle_again(const __grid_constant__ sol_dev_comm_t dev, uint64_t *next_row)
{
    struct sol_rank_barrier barrier = sol_barrier_open(dev, 0, SOL_CTA, sol_team_all(dev));
    if (threadIdx.x < 4 + SOL_DEV_MAX_RANKS)
        sol_push_word(sol_counter_at(dev, dev.rank, (int)threadIdx.x), 0);
    if ((int)threadIdx.x < dev.nranks)
        next_row[threadIdx.x] = 0;
    if (sol_barrier_sync(dev, barrier, SOL_ACQ_REL))
        sol_barrier_close(dev, barrier);
}

/* ---- panels from changing roots */
enum { panel_first = __LINE__ };
__global__ void nccl_factor(const __grid_constant__ ncclDevComm comm, ncclWindow_t window,
                            const char *panels, char *trailing)
{
    ncclLsaBarrierSession<ncclCoopCta> barrier(ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x);
    for (int k = 0; k < PANELS; k++) {
        const uint64_t tile = ((uint64_t)k * gridDim.x + blockIdx.x) * TILE;
        const size_t slot = ((size_t)(k & 1) * gridDim.x + blockIdx.x) * TILE;
        if (comm.lsaRank == k % comm.lsaSize)
            for (unsigned at = threadIdx.x * 16; at < TILE; at += blockDim.x * 16)
                for (int r = 0; r < comm.lsaSize; r++)
                    sol_store_16((char *)ncclGetLsaPointer(window, slot + at, r),
                                 sol_load_16(panels + tile + at));
        barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
        for (unsigned at = threadIdx.x * 16; at < TILE; at += blockDim.x * 16) {
            struct sol_vector v = sol_load_16((char *)ncclGetLocalPointer(window, slot + at));
            struct sol_vector sum = sol_load_16(trailing + blockIdx.x * TILE + at);
            sum.a += v.a;
            sum.b += v.b;
            sol_store_16(trailing + blockIdx.x * TILE + at, sum);
        }
    }
}
enum { panel_lines = __LINE__ - panel_first - 1 };

#endif
