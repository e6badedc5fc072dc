/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_04_anatomy.cu: what a small all_reduce of two ranks pays for. The pair
 * kernel, stripped, with one thing changed at a time (no escapes: not for use).
 * Idea: in graphs without dependent launch 512 B and more take 0.2 us longer than
 * 256 B; find the access that does it.
 */
#include "device/kernels/init.cuh"
#include "device/kernels/pair.cuh"
#include "gpu_rig.cuh"
#include "solccl/device/gpu_word.h"

enum {
    NO_RED = 1,     /* parity from the arguments, nobody counts */
    WEAK_RESET = 2, /* ordinary stores for the reset */
    WEAK_PUSH = 4,  /* and for the push */
    RESET_FIRST = 8,
    TAGS = 16,   /* 4 bytes of data and 4 of epoch a word: no reset, twice the bytes */
    NO_OUT = 32, /* the result is not stored */
    NO_BARRIER = 64,
    DUMMY_LOAD = 128,   /* parity from the arguments, but wait for a load of the ticks */
    RED_ONLY = 256,     /* parity from the arguments, but count */
    STORE_TICKS = 512,  /* one CTA: count with a store */
    WEAK_TICKS = 1024,  /* load the ticks with an ordinary load */
    TICKS_FIRST = 2048, /* before the input */
    RED_LAST = 4096,    /* count when all is done */
    USE_PUSH = 8192,    /* the library's push, with its escape */
    USE_RECV = 16384,   /* the library's wait, with its watch and escape */
    USE_SUM = 32768,    /* the library's sum, with its NaNs */
    USE_TICKET = 65536  /* the library's count */
};

struct lab_args {
    const char *own;
    char *recv;
    uint32_t bytes, parity, state_offset;
};

template <int W> struct unit {
    uint64_t w[W];
};
template <int W> static __device__ __forceinline__ unit<W> get(const char *p, bool strong)
{
    unit<W> u;
    if (W == 2) {
        sol_vector v = strong ? sol_poll_vector(p) : sol_load_16(p);
        u.w[0] = v.a, u.w[W - 1] = v.b;
    } else if (strong) {
        u.w[0] = sol_poll_word(p);
    } else {
        asm volatile("ld.global.u64 %0, [%1];" : "=l"(u.w[0]) : "l"(p) : "memory");
    }
    return u;
}
template <int W> static __device__ __forceinline__ void put(char *p, unit<W> u, bool strong)
{
    if (W == 2) {
        sol_vector v = {u.w[0], u.w[W - 1]};
        if (strong)
            sol_push_vector(p, v);
        else
            sol_store_16(p, v);
    } else if (strong) {
        sol_push_word(p, u.w[0]);
    } else {
        asm volatile("st.global.u64 [%0], %1;" ::"l"(p), "l"(u.w[0]) : "memory");
    }
}

template <int W, int V, int F>
static __global__ void __launch_bounds__(512)
    anatomy(const __grid_constant__ lab_args args, const __grid_constant__ struct sol_link comm,
            const __grid_constant__ struct sol_tail tail)
{
    const uint32_t size = W * 8, step = blockDim.x * size;
    uint32_t at = (blockIdx.x * V * blockDim.x + threadIdx.x) * size;
    sol_await_predecessors();
    sol_admit_successor();
    if (at >= args.bytes)
        return;
    unit<W> own[V], in[V];
    uint64_t *ticks_at = &comm.state->epochs[0].epoch + args.state_offset / 8;
    uint64_t ticks = 0;
    if (F & TICKS_FIRST)
        ticks = sol_poll_word(ticks_at);
#pragma unroll
    for (int v = 0; v < V; v++)
        own[v] = get<W>(args.own + at + v * step, false);
    if (F & WEAK_TICKS)
        asm volatile("ld.global.u64 %0, [%1];" : "=l"(ticks) : "l"(ticks_at) : "memory");
    else if (!(F & (NO_RED | RED_ONLY | TICKS_FIRST | USE_TICKET)))
        ticks = sol_poll_word(ticks_at);
    struct sol_ticket ticket = {ticks, 0};
    uint32_t dummy = 0;
    if (F & DUMMY_LOAD)
        dummy = (uint32_t)(ticks >> 63);
    if (F & (NO_RED | RED_ONLY | DUMMY_LOAD))
        ticks = args.parity * 256ull;
    uint32_t shift = ticks & 256 ? comm.parity_step : 0;
    shift += dummy;
    if (F & USE_TICKET) {
        ticket = sol_take_ticket(comm);
        shift = ticket.shift;
    }
    ticket.shift = shift;
    uint32_t tag = (uint32_t)(ticks / 256) + 1;
    if (F & TAGS) { /* 16 bytes of slot for every 8 of data: W must be 1 */
#pragma unroll
        for (int v = 0; v < V; v++) {
            sol_vector p = {(uint32_t)own[v].w[0] | (uint64_t)tag << 32,
                            own[v].w[0] >> 32 | (uint64_t)tag << 32};
            sol_push_vector(comm.out[0] + shift + 2 * (at + v * step), p);
        }
    } else if (F & USE_PUSH) {
        sol_pair_push(comm, ticket, at, {own[0].w[0], own[0].w[W - 1]});
    } else {
#pragma unroll
        for (int v = 0; v < V; v++)
            put<W>(comm.out[0] + (shift + at) + v * step, own[v], !(F & WEAK_PUSH));
    }
    if (F & USE_TICKET)
        sol_leave_ticket(comm, ticket);
    if (!(F & (NO_RED | DUMMY_LOAD | RED_LAST | USE_TICKET))) {
        if (!(F & NO_BARRIER))
            __syncthreads();
        if (threadIdx.x == 0) {
            if (F & STORE_TICKS)
                sol_push_word(ticks_at, ticks + 256);
            else
                sol_add_word(ticks_at, blockIdx.x == 0 ? 256 - (gridDim.x - 1) : 1);
        }
    }
    char *slot = comm.in + (shift + at);
    if (F & USE_RECV) {
        struct sol_vector got[1];
        if (!sol_pair_receive<1>(comm, tail.story, ticket, at, step, got))
            return;
        in[0].w[0] = got[0].a;
        in[0].w[W - 1] = got[0].b;
    }
    for (uint32_t polls = 0; !(F & USE_RECV) && polls < 2000000; polls++) {
        bool missing = false;
        if (F & TAGS) {
#pragma unroll
            for (int v = 0; v < V; v++) {
                sol_vector p = sol_poll_vector(comm.in + shift + 2 * (at + v * step));
                missing |= (uint32_t)(p.a >> 32) != tag || (uint32_t)(p.b >> 32) != tag;
                in[v].w[0] = (uint32_t)p.a | p.b << 32;
            }
        } else {
#pragma unroll
            for (int v = 0; v < V; v++) {
                in[v] = get<W>(slot + v * step, true);
#pragma unroll
                for (int i = 0; i < W; i++)
                    missing |= (uint32_t)(in[v].w[i] >> 32) == SOL_WORD_HIGH;
            }
        }
        if (!missing)
            break;
    }
    unit<W> mark;
#pragma unroll
    for (int i = 0; i < W; i++)
        mark.w[i] = SOL_WORD_MARK;
    if ((F & RESET_FIRST) && !(F & TAGS))
#pragma unroll
        for (int v = 0; v < V; v++)
            put<W>(slot + v * step, mark, !(F & WEAK_RESET));
#pragma unroll
    for (int v = 0; v < V; v++) {
#pragma unroll
        for (int i = 0; i < W; i++)
            in[v].w[i] = sol_sum_u32<SOL_BFLOAT16>((uint32_t)own[v].w[i], (uint32_t)in[v].w[i]) |
                         (uint64_t)sol_sum_u32<SOL_BFLOAT16>((uint32_t)(own[v].w[i] >> 32),
                                                             (uint32_t)(in[v].w[i] >> 32))
                             << 32;
        if (!(F & NO_OUT) || in[v].w[0] == 12345)
            put<W>(args.recv + at + v * step, in[v], false);
    }
    if (!(F & RESET_FIRST) && !(F & TAGS))
#pragma unroll
        for (int v = 0; v < V; v++)
            put<W>(slot + v * step, mark, !(F & WEAK_RESET));
    if (F & RED_LAST && threadIdx.x == 0)
        sol_add_word(ticks_at, blockIdx.x == 0 ? 256 - (gridDim.x - 1) : 1);
}

struct variant {
    const char *name;
    int w, v, flags;
    void (*kernel)(lab_args, struct sol_link, struct sol_tail);
};
#define VARIANT(w, v, f)                                                                           \
    {                                                                                              \
#f, w, v, f, anatomy < w, v, f>                                                            \
    }

int main(int argc, char **argv)
{
    rig r;
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    rig_open(r, 2, std::min(devices, 2), argc > 1 ? strtoul(argv[1], 0, 0) : 0, 1000000000ull);
    char *in[2], *out[2];
    for (int i = 0; i < 2; i++) {
        CHECK(cudaSetDevice(r.ranks[i].device));
        CHECK(cudaMalloc((void **)&in[i], 1 << 20));
        CHECK(cudaMalloc((void **)&out[i], 1 << 20));
        CHECK(cudaMemset(out[i], 0, 1 << 20));
        rig_fill<<<64, 256>>>((uint64_t *)in[i], (1 << 20) / 8, 17 + i, 1);
        CHECK(cudaDeviceSynchronize());
    }
    const variant variants[] = {VARIANT(2, 1, NO_RED),
                                VARIANT(2, 1, 0),
                                VARIANT(2, 1, USE_TICKET),
                                VARIANT(2, 1, NO_RED | USE_PUSH),
                                VARIANT(2, 1, NO_RED | USE_RECV),
                                VARIANT(2, 1, NO_RED | USE_SUM),
                                VARIANT(2, 1, USE_TICKET | USE_PUSH | USE_SUM),
                                VARIANT(2, 1, USE_TICKET | USE_PUSH | USE_RECV | USE_SUM),
                                {"the pair kernel", 2, 1, -1, NULL}};
    for (uint32_t bytes : {512u, 1024u, 4096u, 65536u})
        for (auto &k : variants)
            for (int ctas : {1, 2, 4, 8, 16, 32, 64}) {
                int threads = (int)(bytes / ctas / (8 * k.w * k.v));
                if (k.flags > 0 && k.flags & STORE_TICKS && ctas > 1)
                    continue;
                if (threads < 16 || threads > 512 || (ctas > 2 && threads < 32) ||
                    (bytes >= 16384 && ctas < 8))
                    continue;
                for (int i = 0; i < 2; i++) {
                    CHECK(cudaSetDevice(r.ranks[i].device));
                    sol_init_kernel<<<128, 512>>>(r.ranks[i].comm);
                    sol_init_counters_kernel<<<1, 1>>>(r.ranks[i].comm, 2);
                    CHECK(cudaDeviceSynchronize());
                }
                double us[2];
                for (int pdl = 0; pdl < 2; pdl++)
                    us[pdl] = rig_time(r, 100, 7, [&](int i, int m) {
                        lab_args a = {in[i], out[i], bytes, (uint32_t)m & 1, 0};
                        if (k.flags < 0) {
                            struct sol_one_shot_args p = {};
                            p.own = p.first = in[i], p.recv = out[i], p.bytes = bytes;
                            rig_launch(sol_pair_reduce_kernel<SOL_BFLOAT16, 1, false, false>, ctas,
                                       threads, r.ranks[i].stream, pdl, p,
                                       sol_link_of(&r.ranks[i].comm), sol_tail());
                            return;
                        }
                        rig_launch(k.kernel, ctas, threads, r.ranks[i].stream, pdl, a,
                                   sol_link_of(&r.ranks[i].comm), sol_tail());
                    });
                printf("%6u B  %2d x %3d x %d x %2d B  plain %.3f pdl %.3f  %s\n", bytes, ctas,
                       threads, k.v, k.w * 8, us[0], us[1], k.name);
                fflush(stdout);
            }
    return 0;
}
