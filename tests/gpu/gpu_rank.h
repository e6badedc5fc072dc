/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_rank.h: the inside of the tests that only GPU ranks can have: one rank
 * of a case, its buffers, and integers whose sums are known.
 */
#ifndef TESTS_GPU_RANK_H
#define TESTS_GPU_RANK_H

#include "common/team.h"
#include "gpu/gpu_kernels.h"

#include <stdint.h>

typedef struct gpu_rank {
    team_t *team;
    int rank, nranks;
    int devices, device;
    sol_comm_t comm;
    cudaStream_t stream;
    int timeout_ms; /* of gpu_comm; 0: 6000 */
    int check;
    size_t staging_bytes; /* of gpu_comm; 0: the default */
    int32_t *host;
    size_t host_count;
} gpu_rank_t;

typedef struct gpu_case {
    const char *name;
    void (*run)(gpu_rank_t *g);
    int least, most;            /* ranks */
    bool threads;               /* as threads too (and only so beyond one rank a GPU) */
    bool processes;             /* as processes, where every rank has a GPU of its own */
    bool turns;                 /* as processes that share one, too */
    bool bare;                  /* no device, no communicator is made for it */
    unsigned expect_killed;     /* see team_t */
    int deadline_s;             /* 0: 60 */
    const char *environment[4]; /* NAME=value, ended by NULL */
} gpu_case_t;

extern const gpu_case_t gpu_cases_graphs[], gpu_cases_faults[], gpu_cases_buffers[],
    gpu_cases_nccl[], gpu_cases_load[], gpu_cases_norm[], gpu_cases_fused[], gpu_cases_transfer[],
    gpu_cases_moe[], gpu_cases_quantized[], gpu_cases_halves[], gpu_cases_late[];

/* A CUDA call that must succeed. */
bool gpu_good(gpu_rank_t *g, cudaError_t error, const char *what);
#define GPU_OK(g, call) gpu_good(g, call, #call)

bool gpu_open_device(gpu_rank_t *g);
void gpu_close_device(gpu_rank_t *g);
bool gpu_comm(gpu_rank_t *g, int id, sol_comm_t *comm);

/* Device memory that never waits for the device; NULL is a recorded failure. */
void *gpu_alloc(gpu_rank_t *g, size_t bytes);
void gpu_free(gpu_rank_t *g, void *memory);

/* Element i of rank r under `seed`, and the sum over ranks. */
int32_t gpu_value(uint64_t seed, int rank, size_t i);
int32_t gpu_sum(uint64_t seed, int nranks, size_t i);

/*
 * Copy behind what is on g->stream, and wait. The stream is waited for before the copy: one to or
 * from pageable memory that CUDA has to keep waiting for a kernel holds up the copies of every
 * other thread on that device, and so may hold up the rank that the kernel waits for.
 */
bool gpu_copy(gpu_rank_t *g, void *to, const void *from, size_t bytes);
/* The elements on the host, until the next call of these; NULL is a recorded failure. */
const int32_t *gpu_download(gpu_rank_t *g, const int32_t *device, size_t count);

/* The same, with g->stream idle afterwards. */
bool gpu_fill(gpu_rank_t *g, int32_t *device, size_t count, uint64_t seed);
bool gpu_expect_sum(gpu_rank_t *g, const int32_t *device, size_t count, uint64_t seed);
/* all_gather's result: rank by rank. */
bool gpu_expect_gather(gpu_rank_t *g, const int32_t *device, size_t count, uint64_t seed);

/* What `rank` filled in. */
bool gpu_expect_of(gpu_rank_t *g, const int32_t *device, size_t count, uint64_t seed, int rank);

/* Waits for g->stream, at most `seconds`; false (recorded) if it is still busy. */
bool gpu_wait(gpu_rank_t *g, double seconds);

#endif
