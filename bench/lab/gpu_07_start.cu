/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_07_start.cu: what a small collective pays around its hop, on one GPU: a
 * rank that is its own peer pushes into its own slot and waits for that. The hop
 * is shorter than over the link; differences between forms are the same.
 * Forms: the library's; all that a message needs in one line of parameters; the
 * sum inside the poll loop, so that its instructions are there when data comes;
 * both; and neither watch, escapes nor NaNs (what cannot be had).
 */
#include "device/kernels/init.cuh"
#include "device/kernels/pair.cuh"
#include "gpu_rig.cuh"

struct line_args { /* 48 bytes: one line, as parameters begin */
    const char *from;
    char *to, *in, *out;
    struct sol_gpu_epoch *epochs;
    uint32_t bytes, parity_step;
};

enum { LOOP_SUM = 1, BARE = 2, NO_LEAVE = 4 };

static __device__ __forceinline__ void leave(struct sol_gpu_epoch *epochs, uint64_t epoch)
{
    __syncthreads();
    for (unsigned j = threadIdx.x * gridDim.x + blockIdx.x; j < SOL_GPU_EPOCHS;
         j += gridDim.x * blockDim.x)
        sol_push_word(&epochs[j].epoch, epoch + 1);
}

static __device__ __forceinline__ struct sol_vector bare_sum(struct sol_vector x,
                                                             struct sol_vector y, uint32_t *marks)
{
    uint32_t r0 = sol_sum_u32<SOL_BFLOAT16>((uint32_t)x.a, (uint32_t)y.a);
    uint32_t r1 = sol_sum_u32<SOL_BFLOAT16>((uint32_t)(x.a >> 32), (uint32_t)(y.a >> 32));
    uint32_t r2 = sol_sum_u32<SOL_BFLOAT16>((uint32_t)x.b, (uint32_t)y.b);
    uint32_t r3 = sol_sum_u32<SOL_BFLOAT16>((uint32_t)(x.b >> 32), (uint32_t)(y.b >> 32));
    *marks = (sol_nan_marks<SOL_BFLOAT16>(r0) | sol_nan_marks<SOL_BFLOAT16>(r1) |
              sol_nan_marks<SOL_BFLOAT16>(r2) | sol_nan_marks<SOL_BFLOAT16>(r3)) &
             0x80008000u;
    struct sol_vector sum = {r0 | (uint64_t)r1 << 32, r2 | (uint64_t)r3 << 32};
    return sum;
}

template <int F>
__global__ void __launch_bounds__(512, 2) line_kernel(const __grid_constant__ struct line_args args,
                                                      const __grid_constant__ struct sol_link comm,
                                                      const __grid_constant__ struct sol_tail tail)
{
    const uint32_t at = (blockIdx.x * blockDim.x + threadIdx.x) * 16;
    const bool mine = at < args.bytes;
    const char *from = sol_opaque(args.from + at);
    char *to = sol_opaque(args.to + at), *in = sol_opaque(args.in + at),
         *out = sol_opaque(args.out + at);
    struct sol_gpu_epoch *epochs = (struct sol_gpu_epoch *)(void *)sol_opaque((char *)args.epochs);
    const uint32_t parity_step = sol_opaque(args.parity_step);
    struct sol_vector own = {}, got, sum;
    sol_await_predecessors();
    sol_admit_successor();
    if (mine)
        own = sol_load_16(from);
    const struct sol_ticket ticket = sol_take_ticket_at(&epochs[blockIdx.x], parity_step);
    if (SOL_UNLIKELY(ticket.dead))
        return;
    if (mine) {
        if (!(F & BARE) && SOL_UNLIKELY(sol_vector_suspect(own)))
            sol_pair_push_suspect(comm, ticket.epoch, at, own);
        else
            sol_push_vector(out + ticket.shift, own);
    }
    leave(epochs, ticket.epoch);
    if (!mine)
        return;
    in += ticket.shift;
    uint32_t marks;
    if (F & BARE) {
        do
            got = sol_poll_vector(in);
        while (sol_vector_missing(got));
        sum = bare_sum(own, got, &marks);
    } else if (F & LOOP_SUM) {
        struct sol_watch watch = {0, 0};
        for (;;) {
            got = sol_poll_vector(in);
            sum = bare_sum(own, got, &marks);
            if (__builtin_expect(!sol_vector_suspect(got) && marks == 0, 1))
                break;
            if (sol_vector_missing(got)) {
                if (sol_watch_expired(comm, tail.story, watch, 1 - comm.rank))
                    return;
                continue;
            }
            struct sol_pair_vector r = sol_pair_unescape(comm, tail.story, ticket.epoch, at, got);
            if (r.failed)
                return;
            sum = sol_sum_of_two<SOL_BFLOAT16>(own, r.v);
            break;
        }
    } else {
        struct sol_vector one[1];
        if (!sol_pair_receive<1>(comm, tail.story, ticket, in, at, 0, one))
            return;
        sum = sol_sum_of_two<SOL_BFLOAT16>(own, one[0]);
    }
    sol_reset_vector(in);
    sol_store_16(to, sum);
}

int main(void)
{
    struct rig r;
    rig_open(r, 2, 1, 1u << 22, 1000000000ull);
    rig_rank &k = r.ranks[0];
    char *in, *out;
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc((void **)&in, 1 << 20));
    CHECK(cudaMalloc((void **)&out, 1 << 20));
    rig_fill<<<64, 256>>>((uint64_t *)in, (1 << 20) / 8, 17, 1);
    sol_init_kernel<<<128, 512>>>(k.comm);
    sol_init_counters_kernel<<<1, 1>>>(k.comm, 1);
    CHECK(cudaDeviceSynchronize());
    r.nranks = 1; /* the other has nothing to do */
    r.ranks.resize(1);
    struct sol_link link = sol_link_of(&k.comm);
    link.out[0] = link.in;
    static const struct {
        int bytes, ctas, threads;
    } shapes[] = {{256, 1, 32},    {1024, 1, 64},   {4096, 2, 128},  {16384, 16, 64},
                  {16384, 8, 128}, {16384, 4, 256}, {65536, 16, 256}};
    static const char *const names[] = {"library", "line", "line, sum in loop", "line, bare"};
    for (auto &s : shapes)
        for (int f = 0; f < 4; f++)
            for (int again = 0; again < 2; again++) {
                double us[2];
                for (int pdl = 0; pdl < 2; pdl++)
                    us[pdl] = rig_time(r, 200, 15, [&](int, int) {
                        struct sol_tail tail = {};
                        struct line_args a = {in,
                                              out,
                                              link.in,
                                              link.out[0],
                                              &link.state->epochs[0],
                                              (uint32_t)s.bytes,
                                              link.parity_step};
                        if (f == 0) {
                            struct sol_one_shot_args o = {};
                            o.own = o.first = in, o.recv = out, o.bytes = (uint32_t)s.bytes;
                            o.receives = 1;
                            rig_launch(sol_pair_reduce_kernel<SOL_BFLOAT16, 1, false, false>,
                                       s.ctas, s.threads, k.stream, pdl, o, link, tail);
                            return;
                        }
                        rig_launch(f == 1   ? line_kernel<0>
                                   : f == 2 ? line_kernel<LOOP_SUM>
                                            : line_kernel<BARE>,
                                   s.ctas, s.threads, k.stream, pdl, a, link, tail);
                    });
                printf("%6d B %2d x %3d %-20s graph %.3f pdl %.3f us\n", s.bytes, s.ctas, s.threads,
                       names[f], us[0], us[1]);
                if (rig_faults(r, "start"))
                    return 1;
            }
    return 0;
}
