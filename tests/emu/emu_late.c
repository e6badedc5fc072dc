/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_late: tests/gpu/gpu_late.c on emulated GPUs: the whole library, host side
 * and kernels, its clock the machine's.
 *
 *   emu_late [--seed S] [--ranks N]    2 and 3 ranks, seed 1
 */
#include "emu/emu.h"
#include "gpu/gpu_rank.h"

#include <stdlib.h>
#include <string.h>

/* What gpu_open_device loads, which nobody calls here (gpu_kernels.cu is for nvcc alone). */
cudaError_t gpu_spin(cudaStream_t stream, uint64_t nanoseconds)
{
    return (void)stream, (void)nanoseconds, cudaSuccess;
}
cudaError_t gpu_empty(cudaStream_t stream)
{
    return (void)stream, cudaSuccess;
}
cudaError_t gpu_scale(cudaStream_t stream, float *out, const float *in, size_t count, float factor)
{
    return (void)stream, (void)out, (void)in, (void)count, (void)factor, cudaSuccess;
}
cudaError_t gpu_turn(cudaStream_t stream, float *out, const float *in, size_t count, float add,
                     bool early)
{
    return (void)stream, (void)out, (void)in, (void)count, (void)add, (void)early, cudaSuccess;
}

static void rank_main(team_t *team, int rank, void *arg)
{
    const gpu_case_t *what = arg;
    gpu_rank_t g = {.team = team,
                    .rank = rank,
                    .nranks = team->nranks,
                    .staging_bytes = 65536,
                    .timeout_ms = 60000};
    cudaSetDevice(rank);
    GPU_OK(&g, cudaStreamCreateWithFlags(&g.stream, cudaStreamNonBlocking));
    if (gpu_comm(&g, 0, &g.comm))
        what->run(&g);
    TEAM_OK(team, rank, sol_comm_destroy(g.comm), NULL);
    gpu_close_device(&g);
}

static int run_one(const gpu_case_t *what, int nranks, uint64_t seed)
{
    struct emu_options options = {
        .seed = seed, .devices = nranks, .sms = 16, .threads = true, .time_passes = true};
    team_options_t team = {
        .name = what->name, .nranks = nranks, .threads = true, .here = true, .deadline_s = 100};
    if (!emu_open(&options)) {
        fputs("emu_late: the system refused memory\n", stderr);
        return 1;
    }
    double begin = team_now();
    int failures = team_run(&team, rank_main, (void *)(uintptr_t)what, NULL);
    if (emu_failed()) {
        fputs(emu_report(), stdout);
        failures++;
    }
    emu_close();
    printf("%s %s, %d ranks (%.1f s)\n", failures ? "FAILED" : "ok", what->name, nranks,
           team_now() - begin);
    return failures;
}

int main(int argc, char **argv)
{
    uint64_t seed = 1;
    int only = 0, passed = 0, failed = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        seed = strcmp(argv[i], "--seed") == 0 ? strtoull(argv[i + 1], NULL, 0) : seed;
        only = strcmp(argv[i], "--ranks") == 0 ? atoi(argv[i + 1]) : only;
    }
    for (const gpu_case_t *c = gpu_cases_late; c->name; c++)
        for (int n = c->least; n <= c->most; n++)
            if (only == 0 || n == only) {
                int failures = run_one(c, n, seed);
                passed += failures == 0;
                failed += failures != 0;
            }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
