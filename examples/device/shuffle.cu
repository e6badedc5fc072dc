/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shuffle.cu: tokens to experts. Each rank has tokens, each of which names an expert, one a rank;
 * a token is put into a free row of that rank's memory, as fast as the link takes it, in any order.
 * A counter there counts rows: who waits for all of them needs to know nothing of their order.
 */
#include "rig.h"

#define WIDTH 64 /* 4-byte words of a token: 256 bytes */
#define TOKENS 96

/* Counter 0: rows reserved for me. 1: rows that have come. 2, 3: how many will, and from how many.
 */
__global__ void send_tokens(const __grid_constant__ sol_dev_comm_t dev, const int *expert,
                            const char *token, uint64_t *next_row)
{
    const unsigned warps = gridDim.x * blockDim.x / 32, lane = threadIdx.x % 32;
    for (unsigned t = (blockIdx.x * blockDim.x + threadIdx.x) / 32; t < TOKENS; t += warps) {
        const int to = expert[t];
        uint64_t row =
            0; /* rows that this rank fills in expert `to`'s memory: its own part of it */
        if (lane == 0)
            row = atomicAdd((unsigned long long *)&next_row[to], 1ull);
        row = __shfl_sync(0xffffffffu, row, 0) + (uint64_t)dev.rank * TOKENS;
        char *there = sol_window_at(dev.memory, to, row * WIDTH * 4);
        sol_put_signal(dev, SOL_WARP, to, there, token + t * WIDTH * 4, WIDTH * 4, 1, 1);
    }
}

/* How many tokens come from each rank, after all that has been put by the kernel before. */
__global__ void tell_counts(const __grid_constant__ sol_dev_comm_t dev, const uint64_t *next_row)
{
    const int to = (int)threadIdx.x;
    if (to >= dev.nranks)
        return;
    sol_counter_add(dev, to, 4 + dev.rank, next_row[to], SOL_RELAXED);
    sol_counter_add(dev, to, 2, next_row[to], SOL_RELAXED);
    sol_counter_add(dev, to, 3, 1, SOL_RELEASE);
}

/* The expert's work: here the sum of all words of all its tokens. */
__global__ void run_expert(const __grid_constant__ sol_dev_comm_t dev, uint64_t *out)
{
    SOL_SHARED_ARRAY(uint64_t, sum, 128);
    if (!sol_counter_wait(dev, SOL_CTA, 3, (uint64_t)dev.nranks) ||
        !sol_counter_wait(dev, SOL_CTA, 1, sol_counter_read(dev, 2)))
        return;
    sum[threadIdx.x] = 0;
    for (int from = 0; from < dev.nranks; from++) {
        const uint64_t rows = sol_counter_read(dev, 4 + from);
        const uint32_t *words = (const uint32_t *)sol_window_at(
            dev.memory, dev.rank, (uint64_t)from * TOKENS * WIDTH * 4);
        for (uint64_t i = threadIdx.x; i < rows * WIDTH; i += blockDim.x)
            sum[threadIdx.x] += words[i];
    }
    __syncthreads();
    for (unsigned i = 0; i < blockDim.x && threadIdx.x == 0; i++)
        out[0] = i ? out[0] + sum[i] : sum[i];
}

static int expert_of(int rank, int t, int n)
{
    return (t * 7 + rank * 3 + t / 5) % n;
}

int main(void)
{
    struct rig rig;
    sol_dev_config_t config = SOL_DEV_CONFIG_INIT;
    config.counters = 4 + SOL_DEV_MAX_RANKS;
    config.memory_bytes = SOL_DEV_MAX_RANKS * TOKENS * WIDTH * 4;
    if (!rig_open(&rig, &config))
        return 1;
    int expert[TOKENS];
    uint32_t *token = (uint32_t *)malloc(TOKENS * WIDTH * 4);
    uint64_t zero[SOL_DEV_MAX_RANKS] = {0}, sum = 0, wanted = 0;
    for (int t = 0; t < TOKENS; t++)
        expert[t] = expert_of(rig.rank, t, rig.n);
    for (int i = 0; i < TOKENS * WIDTH; i++)
        token[i] = (uint32_t)(rig.rank * 1000003 + i * 17);
    for (int r = 0; r < rig.n; r++)
        for (int i = 0; i < TOKENS * WIDTH; i++)
            wanted +=
                expert_of(r, i / WIDTH, rig.n) == rig.rank ? (uint32_t)(r * 1000003 + i * 17) : 0;
    char *de = rig_upload(&rig, expert, sizeof expert),
         *dt = rig_upload(&rig, token, TOKENS * WIDTH * 4);
    char *dn = rig_upload(&rig, zero, sizeof zero), *ds = rig_upload(&rig, zero, 8);
    sol_dev_launch(send_tokens, 2, 128, rig.stream, rig.dev, (const int *)de, dt, (uint64_t *)dn);
    sol_dev_launch(tell_counts, 1, 32, rig.stream, rig.dev, (const uint64_t *)dn);
    sol_dev_launch(run_expert, 1, 128, rig.stream, rig.dev, (uint64_t *)ds);
    rig_download(&rig, &sum, ds, 8);
    rig.wrong += sum != wanted;
    return rig_close(&rig);
}
