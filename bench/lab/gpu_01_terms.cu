/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_01_terms.cu: the terms of the bound, and two litmus tests.
 * Idea: before any protocol, know what a kernel that does nothing costs, what
 * loading and storing adds at the very grids that the collectives use, what a
 * hop costs, what the link carries, and whether 16- and 128-byte stores tear.
 */
#include "solccl/device/ptx.cuh"
#define SOL_WIDE 90
#include "gpu_rig.cuh"

static __global__ void empty_kernel(void)
{
    sol_await_predecessors();
    sol_admit_successor();
}

/* Load a vector, store it: what every collective must do besides communicating. */
template <int V> static __global__ void local_kernel(const char *in, char *out, uint32_t bytes)
{
    sol_await_predecessors();
    sol_admit_successor();
    struct sol_vector x[V];
    uint32_t at = (blockIdx.x * V * blockDim.x + threadIdx.x) * 16, step = blockDim.x * 16;
#pragma unroll
    for (int v = 0; v < V; v++)
        if (at + v * step < bytes)
            x[v] = sol_load_16(in + at + v * step);
#pragma unroll
    for (int v = 0; v < V; v++)
        if (at + v * step < bytes)
            sol_store_16(out + at + v * step, x[v]);
}

/* The same with its arguments at the two ends of a large parameter block. */
static __global__ void far_kernel(const __grid_constant__ struct sol_gpu_comm comm, const char *in,
                                  char *out, uint32_t bytes)
{
    sol_await_predecessors();
    sol_admit_successor();
    uint32_t at = (blockIdx.x * blockDim.x + threadIdx.x) * 16;
    if (at < bytes && comm.nranks + comm.layout.parity_bytes + comm.timeout_ns > 0) {
        struct sol_vector x = sol_load_16(in + at);
        sol_store_16(out + at, x);
    }
}

/* A large parameter block of which only the first line is read. */
struct wide_args {
    const char *in;
    char *out;
    uint32_t bytes;
    uint32_t rest[SOL_WIDE];
};
static __global__ void wide_kernel(const __grid_constant__ struct wide_args a)
{
    sol_await_predecessors();
    sol_admit_successor();
    uint32_t at = (blockIdx.x * blockDim.x + threadIdx.x) * 16;
    if (at < a.bytes) {
        struct sol_vector x = sol_load_16(a.in + at);
        sol_store_16(a.out + at, x);
    }
}

/* Store a word to the peer, wait for its answer. Bounded by the clock. */
static __global__ void ping_kernel(uint64_t *mine, uint64_t *peers, int first, int rounds,
                                   uint64_t *ns)
{
    uint64_t t0 = sol_clock_ns();
    for (int i = 1; i <= rounds; i++) {
        if (first)
            sol_push_word(peers, i);
        while (sol_poll_word(mine) < (uint64_t)i)
            if (sol_clock_ns() - t0 > 1000000000ull)
                return;
        if (!first)
            sol_push_word(peers, i);
    }
    *ns = sol_clock_ns() - t0;
}

static __global__ void __launch_bounds__(512) push_kernel(const char *in, char *peer, size_t bytes)
{
    size_t step = (size_t)gridDim.x * blockDim.x * 16;
    for (size_t at = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) * 16; at < bytes;
         at += 4 * step) {
        struct sol_vector x[4];
#pragma unroll
        for (int v = 0; v < 4; v++)
            if (at + v * step < bytes)
                x[v] = sol_load_16(in + at + v * step);
#pragma unroll
        for (int v = 0; v < 4; v++)
            if (at + v * step < bytes)
                sol_push_vector(peer + at + v * step, x[v]);
    }
}

/* Writer: all words of a line get the same number. Reader: counts lines of unequal words. */
static __global__ void tear_write(char *peer, int lines, int rounds)
{
    for (int i = 1; i <= rounds; i++)
        for (int l = blockIdx.x * blockDim.x + threadIdx.x; l < lines * 8;
             l += gridDim.x * blockDim.x) {
            struct sol_vector v = {(uint64_t)i, (uint64_t)i};
            sol_push_vector(peer + (size_t)l * 16, v);
        }
}
static __global__ void tear_read(const char *mine, int lines, uint64_t until_ns,
                                 unsigned long long *counts)
{
    uint64_t t0 = sol_clock_ns();
    unsigned long long seen = 0, changed = 0, torn16 = 0, torn128 = 0;
    uint64_t last = 0;
    do {
        for (int l = blockIdx.x * blockDim.x + threadIdx.x; l < lines * 8;
             l += gridDim.x * blockDim.x) {
            struct sol_vector v = sol_poll_vector(mine + (size_t)l * 16);
            seen++;
            changed += v.a != last;
            last = v.a;
            torn16 += v.a != v.b;
            uint64_t lead = __shfl_sync(0xffffffffu, v.a, threadIdx.x & 24);
            torn128 += lead != v.a || lead != v.b;
        }
    } while (sol_clock_ns() - t0 < until_ns);
    atomicAdd(&counts[0], seen);
    atomicAdd(&counts[1], changed);
    atomicAdd(&counts[2], torn16);
    atomicAdd(&counts[3], torn128);
}

int main(void)
{
    rig r;
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    devices = std::min(devices, 2);
    printf("%d devices\n", devices);
    rig_open(r, 2, devices, 0, 2000000000ull);
    char *in[2], *out[2];
    uint64_t *ns[2];
    const size_t big = 256u << 20;
    for (int i = 0; i < 2; i++) {
        CHECK(cudaSetDevice(r.ranks[i].device));
        CHECK(cudaMalloc((void **)&in[i], big));
        CHECK(cudaMalloc((void **)&out[i], big));
        CHECK(cudaMalloc((void **)&ns[i], 4096));
        CHECK(cudaMemset(in[i], 1, big));
        CHECK(cudaMemset(out[i], 0, big));
        CHECK(cudaMemset(ns[i], 0, 4096));
        CHECK(cudaDeviceSynchronize());
    }
    const int grids[][2] = {{1, 32},   {1, 64},   {1, 128},  {1, 256}, {1, 512},  {2, 128},
                            {4, 64},   {4, 128},  {4, 256},  {8, 128}, {16, 64},  {16, 128},
                            {16, 256}, {32, 128}, {32, 512}, {64, 64}, {132, 512}};
    printf(
        "== kernels alone: ctas threads | empty plain, pdl | local 1 vector plain, pdl | 2 | 4\n");
    for (auto &g : grids) {
        printf("%4d x %4d |", g[0], g[1]);
        for (int p = 0; p < 2; p++)
            printf(" %.3f", rig_time(r, 200, 7, [&](int i, int) {
                       rig_launch(empty_kernel, g[0], g[1], r.ranks[i].stream, p);
                   }));
        for (int v = 1; v <= 4; v *= 2) {
            printf(" |");
            for (int p = 0; p < 2; p++)
                printf(" %.3f", rig_time(r, 200, 7, [&](int i, int) {
                           auto k = v == 1   ? local_kernel<1>
                                    : v == 2 ? local_kernel<2>
                                             : local_kernel<4>;
                           rig_launch(k, g[0], g[1], r.ranks[i].stream, p, in[i], out[i],
                                      (uint32_t)(g[0] * g[1] * v * 16));
                       }));
        }
        printf("\n");
    }
    printf("== local 256 B, 1 x 32, half the threads idle: plain %.3f pdl %.3f\n",
           rig_time(r, 200, 9,
                    [&](int i, int) {
                        rig_launch(local_kernel<1>, 1, 32, r.ranks[i].stream, false, in[i], out[i],
                                   256u);
                    }),
           rig_time(r, 200, 9, [&](int i, int) {
               rig_launch(local_kernel<1>, 1, 32, r.ranks[i].stream, true, in[i], out[i], 256u);
           }));

    printf("== the same with 300 bytes of parameters: plain %.3f pdl %.3f\n",
           rig_time(r, 200, 9,
                    [&](int i, int) {
                        rig_launch(far_kernel, 1, 32, r.ranks[i].stream, false, r.ranks[i].comm,
                                   in[i], out[i], 256u);
                    }),
           rig_time(r, 200, 9, [&](int i, int) {
               rig_launch(far_kernel, 1, 32, r.ranks[i].stream, true, r.ranks[i].comm, in[i],
                          out[i], 256u);
           }));

    for (int p = 0; p < 2; p++)
        printf("== 384 bytes of parameters, one line of them read: %s %.3f\n", p ? "pdl" : "plain",
               rig_time(r, 200, 9, [&](int i, int) {
                   struct wide_args a = {in[i], out[i], 256u, {0}};
                   rig_launch(wide_kernel, 1, 32, r.ranks[i].stream, p, a);
               }));
    const int rounds = 1000;
    for (int rep = 0; rep < 3; rep++) {
        uint64_t t[2];
        for (int i = 0; i < 2; i++)
            CHECK(cudaMemset(out[i], 0, 64));
        for (int i = 0; i < 2; i++) {
            CHECK(cudaSetDevice(r.ranks[i].device));
            CHECK(cudaDeviceSynchronize());
        }
        for (int i = 0; i < 2; i++) {
            CHECK(cudaSetDevice(r.ranks[i].device));
            ping_kernel<<<1, 1, 0, r.ranks[i].stream>>>((uint64_t *)out[i], (uint64_t *)out[1 - i],
                                                        i == 0, rounds, ns[i]);
        }
        rig_sync(r);
        for (int i = 0; i < 2; i++)
            CHECK(cudaMemcpy(&t[i], ns[i], 8, cudaMemcpyDefault));
        printf("== one way %.4f us (from rank 0's clock)\n", t[0] / 1000.0 / rounds / 2);
    }

    printf("== peer stores, both directions at once, GB/s a direction\n");
    for (int c : {4, 8, 16, 32, 64, 132, 264})
        for (int t : {128, 512}) {
            double us = rig_time(r, 4, 3, [&](int i, int) {
                rig_launch(push_kernel, c, t, r.ranks[i].stream, false, in[i], out[1 - i], big);
            });
            printf("  %3d x %3d: %.1f\n", c, t, big / us / 1000);
        }
    {
        double us = rig_time(r, 2, 3, [&](int i, int) {
            CHECK(cudaMemcpyAsync(out[1 - i], in[i], big, cudaMemcpyDefault, r.ranks[i].stream));
        });
        printf("  copy engine: %.1f\n", big / us / 1000);
    }

    printf("== litmus: lines of 128 B, 8 lanes x 16 B\n");
    for (int lines : {16, 512, 65536}) {
        unsigned long long *counts, c[4];
        CHECK(cudaSetDevice(r.ranks[1].device));
        CHECK(cudaMalloc((void **)&counts, 64));
        CHECK(cudaMemset(counts, 0, 64));
        CHECK(cudaMemset(out[1], 0, (size_t)lines * 128));
        CHECK(cudaDeviceSynchronize());
        int grid = std::min(64, (lines * 8 + 127) / 128);
        tear_read<<<grid, 128, 0, r.ranks[1].stream>>>(out[1], lines, 300000000ull, counts);
        CHECK(cudaSetDevice(r.ranks[0].device));
        tear_write<<<grid, 128, 0, r.ranks[0].stream>>>(out[1], lines,
                                                        lines == 65536 ? 10000 : 200000);
        rig_sync(r);
        CHECK(cudaMemcpy(c, counts, 32, cudaMemcpyDefault));
        printf("  %6d lines: %llu vectors read, %llu changed, torn within 16 B %llu, within 128 B "
               "%llu\n",
               lines, c[0], c[1], c[2], c[3]);
    }
    return 0;
}
