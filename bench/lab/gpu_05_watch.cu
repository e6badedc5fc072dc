/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_05_watch.cu: what a wait's look around costs (solccl/device/watch.cuh), by
 * how many warps look at once: the clock, a word of device memory, a word of
 * host memory (the abort word).
 */
#include "gpu_rig.cuh"
#include "solccl/device/ptx.cuh"

enum { CLOCK, DEVICE_WORD, HOST_WORD, WHATS };

static __global__ void look(int what, const uint32_t *device, const volatile uint32_t *host,
                            uint64_t *sink)
{
    uint64_t seen = 0;
    if (what == CLOCK)
        seen = sol_clock_ns();
    else
        seen = sol_poll_u32(what == DEVICE_WORD ? device : host);
    if (seen == 1)
        *sink = seen;
}

int main(void)
{
    static const char *const names[] = {"clock", "device word", "host word"};
    struct rig r;
    rig_open(r, 1, 1, 1u << 22, 1000000000ull);
    CHECK(cudaSetDevice(0));
    rig_rank &k = r.ranks[0];
    uint32_t *word;
    uint64_t *sink;
    CHECK(cudaMalloc((void **)&word, 256));
    CHECK(cudaMalloc((void **)&sink, 8));
    CHECK(cudaMemset(word, 0, 256));
    for (int what = 0; what < WHATS; what++)
        for (int ctas : {1, 16, 64, 128, 256})
            for (int threads : {32, 512}) {
                double us = rig_time(r, 20, 5, [&](int, int) {
                    look<<<ctas, threads, 0, k.stream>>>(what, word, r.abort_device, sink);
                });
                printf("%-12s %3d x %3d (%4d warps): %9.2f us\n", names[what], ctas, threads,
                       ctas * threads / 32, us);
            }
    CHECK(cudaDeviceSynchronize());
    return 0;
}
