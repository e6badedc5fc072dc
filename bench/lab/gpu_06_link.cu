/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_06_link.cu: two properties of the link that kernels cannot choose.
 * 1. One way between two GPUs, by where the words lie: a message of many lines
 *    has to wait for its slowest.
 * 2. What the link carries, by how it is written: pushes as the kernels do them,
 *    ordinary stores, bulk copies out of shared memory; one direction and both.
 */
#include "gpu_rig.cuh"
#include "solccl/device/ptx.cuh"

enum { ROUNDS = 400, PLACES = 256, PLACE = 4096 + 128 };

static __global__ void ping_pong(char *mine, char *theirs, int first, uint64_t *took)
{
    for (int p = 0; p < PLACES; p++) {
        uint64_t begin = sol_clock_ns(), start = begin;
        for (uint64_t round = 1; round <= ROUNDS; round++) {
            if (first)
                sol_push_word(theirs + (size_t)p * PLACE, round);
            for (unsigned polls = 1; sol_poll_word(mine + (size_t)p * PLACE) < round; polls++)
                if ((polls & 1023) == 0 && sol_clock_ns() - begin > 1000000000u)
                    return;
            if (!first)
                sol_push_word(theirs + (size_t)p * PLACE, round);
            if (round == ROUNDS / 4)
                start = sol_clock_ns();
        }
        took[p] = sol_clock_ns() - start;
    }
}

enum { PUSH, STORE, BULK };

static __global__ void __launch_bounds__(512) write_link(char *to, size_t bytes, int how, int piece)
{
    extern __shared__ __align__(128) char shared[];
    const struct sol_vector v = {blockIdx.x, threadIdx.x};
    if (how != BULK) {
        for (size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 16; at < bytes;
             at += (size_t)gridDim.x * blockDim.x * 16) {
            if (how == PUSH)
                sol_push_vector(to + at, v);
            else
                sol_store_16(to + at, v);
        }
        return;
    }
    if (threadIdx.x != 0)
        return;
    uint32_t from = (uint32_t)__cvta_generic_to_shared(shared);
    for (size_t at = (size_t)blockIdx.x * piece; at < bytes; at += (size_t)gridDim.x * piece) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to + at),
                     "r"(from), "r"(piece)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;");
        asm volatile("cp.async.bulk.wait_group.read 7;");
    }
    asm volatile("cp.async.bulk.wait_group 0;");
}

static void measure_places(rig &r)
{
    char *memory[2];
    uint64_t *took;
    CHECK(cudaHostAlloc((void **)&took, PLACES * 8, cudaHostAllocPortable));
    for (int i = 0; i < 2; i++) {
        CHECK(cudaSetDevice(i));
        CHECK(cudaMalloc((void **)&memory[i], (size_t)PLACES * PLACE));
        CHECK(cudaMemset(memory[i], 0, (size_t)PLACES * PLACE));
        CHECK(cudaDeviceSynchronize());
    }
    for (int i = 0; i < 2; i++) {
        CHECK(cudaSetDevice(i));
        ping_pong<<<1, 1, 0, r.ranks[i].stream>>>(memory[i], memory[1 - i], i == 0,
                                                  i == 0 ? took : (uint64_t *)memory[1] + 8);
    }
    rig_sync(r);
    std::vector<double> us;
    for (int p = 0; p < PLACES; p++)
        us.push_back(took[p] * 1e-3 / (ROUNDS - ROUNDS / 4) / 2);
    std::sort(us.begin(), us.end());
    printf("one way over %d places, us: least %.3f, 10%% %.3f, median %.3f, 90%% %.3f, most %.3f\n",
           PLACES, us[0], us[PLACES / 10], us[PLACES / 2], us[PLACES * 9 / 10], us[PLACES - 1]);
}

int main(void)
{
    struct rig r;
    const size_t bytes = 64u << 20;
    char *memory[2];
    rig_open(r, 2, 2, 1u << 22, 1000000000ull);
    measure_places(r);
    for (int i = 0; i < 2; i++) {
        CHECK(cudaSetDevice(i));
        CHECK(cudaMalloc((void **)&memory[i], bytes));
        CHECK(cudaFuncSetAttribute(write_link, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
    }
    static const struct {
        int how, ctas, threads, piece;
        const char *name;
    } ways[] = {{PUSH, 256, 512, 0, "pushes, 256 x 512"},
                {PUSH, 132, 512, 0, "pushes, 132 x 512"},
                {STORE, 256, 512, 0, "ordinary stores, 256 x 512"},
                {BULK, 132, 32, 512, "bulk, 132 CTAs, 512 B"},
                {BULK, 132, 32, 2048, "bulk, 132 CTAs, 2 KB"},
                {BULK, 132, 32, 8192, "bulk, 132 CTAs, 8 KB"},
                {BULK, 32, 32, 16384, "bulk, 32 CTAs, 16 KB"},
                {BULK, 132, 32, 32768, "bulk, 132 CTAs, 32 KB"}};
    for (auto &w : ways)
        for (int both = 0; both < 2; both++) {
            double us = rig_time(r, 10, 5, [&](int i, int) {
                if (i == 0 || both)
                    write_link<<<w.ctas, w.threads, w.piece, r.ranks[i].stream>>>(
                        memory[1 - i], bytes, w.how, w.piece);
            });
            printf("%-30s %s %7.1f GB/s a direction\n", w.name,
                   both ? "both directions" : "one direction  ", bytes / us * 1e-3);
        }
    return 0;
}
