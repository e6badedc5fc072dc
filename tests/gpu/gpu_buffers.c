/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_buffers.c: memory of every allocator works where it is, or is refused
 * with a text before anything runs; nothing remembers a pointer that is gone;
 * devices are told apart by what they are, not by their numbers.
 */
#include "gpu/gpu_rank.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 70001

#define CALL(g, call) TEAM_OK((g)->team, (g)->rank, call, (g)->comm)

static bool reduce_through(gpu_rank_t *g, int32_t *x, int32_t *y, uint64_t seed)
{
    return gpu_fill(g, x, COUNT, seed) &&
           (x == y || GPU_OK(g, cudaMemsetAsync(y, 0xff, COUNT * 4, g->stream))) &&
           CALL(g, sol_all_reduce(x, y, COUNT, SOL_INT32, SOL_SUM, g->comm, g->stream)) &&
           gpu_expect_sum(g, y, COUNT, seed);
}

/* Every kind of memory as source and as destination; each rank takes another pair. */
static void allocators(gpu_rank_t *g)
{
    enum { KINDS = 6 };
    const size_t bytes = COUNT * 4 + 64;
    sol_comm_t other;
    void *kinds[KINDS], *pinned = NULL, *plain = NULL, *symmetric = NULL, *foreign = NULL;
    void *managed = NULL;
    if (!gpu_comm(g, 1, &other))
        return;
    GPU_OK(g, cudaMalloc(&plain, 3 * bytes));
    GPU_OK(g, cudaHostAlloc(&pinned, bytes, cudaHostAllocMapped));
    GPU_OK(g, cudaMallocManaged(&managed, bytes, cudaMemAttachGlobal)); /* under 1 MB */
    CALL(g, sol_mem_alloc(g->comm, bytes, &symmetric));
    TEAM_OK(g->team, g->rank, sol_mem_alloc(other, bytes, &foreign), other);
    kinds[0] = plain;
    kinds[1] = gpu_alloc(g, bytes);
    kinds[2] = pinned;
    kinds[3] = symmetric;
    kinds[4] = foreign; /* virtual memory that this communicator does not know */
    kinds[5] = managed;
    for (int from = 0; from < KINDS; from++)
        for (int to = 0; to < KINDS; to++)
            for (int at = 0; at < 12; at += 4) {
                char *x = kinds[(from + g->rank) % KINDS], *y = kinds[(to + g->rank) % KINDS];
                /* a piece in the middle of an allocation */
                x = x == plain ? (char *)plain + bytes + 64 : x;
                team_doing(g->team, g->rank, "from kind %d to kind %d at %d", from, to, at);
                if (!reduce_through(g, (int32_t *)(void *)(x + at), (int32_t *)(void *)(y + at),
                                    (uint64_t)(from * KINDS + to)))
                    goto out;
            }
out:
    TEAM_OK(g->team, g->rank, sol_comm_destroy(other), NULL);
    team_barrier(g->team); /* no rank waits in a kernel for another one's cudaFree */
    cudaFree(plain);
    cudaFree(managed);
    cudaFreeHost(pinned);
}

/* What the GPU cannot reach is an error of arguments: nothing ran, all goes on. */
static void unreachable_memory(gpu_rank_t *g)
{
    int32_t *x = gpu_alloc(g, COUNT * 4), *y = gpu_alloc(g, COUNT * 4), *host = malloc(COUNT * 4);
    int pageable = 0;
    GPU_OK(g, cudaDeviceGetAttribute(&pageable, cudaDevAttrPageableMemoryAccess, g->device));
    if (pageable) {
        team_skip(g->team, g->rank, "this GPU reads any host memory");
    } else {
        TEAM_STATUS(g->team, g->rank,
                    sol_all_reduce(host, y, COUNT, SOL_INT32, SOL_SUM, g->comm, g->stream),
                    SOL_ERR_ARGUMENT, g->comm);
        TEAM_CHECK(g->team, g->rank, strstr(sol_last_error(g->comm), "host memory") != NULL);
        TEAM_STATUS(g->team, g->rank,
                    sol_all_reduce(x, host, COUNT, SOL_INT32, SOL_SUM, g->comm, g->stream),
                    SOL_ERR_ARGUMENT, g->comm);
    }
    reduce_through(g, x, y, 3);
    free(host);
}

/* One rank frees and allocates again and again, at the same address or not; others never do. */
static void reallocated(gpu_rank_t *g)
{
    void *x = NULL, *y = gpu_alloc(g, COUNT * 4);
    for (unsigned round = 0; round < 40; round++) {
        team_doing(g->team, g->rank, "round %u", round);
        team_barrier(g->team); /* cudaFree waits for kernels, which wait for other ranks */
        if (g->rank == 0 || !x) {
            cudaFree(x);
            GPU_OK(g, cudaMalloc(&x, COUNT * 4));
        }
        team_barrier(g->team);
        if (!x || !reduce_through(g, x, y, round))
            return;
    }
    team_barrier(g->team);
    cudaFree(x);
}

static int open_files(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory && readdir(directory))
        count++;
    if (directory)
        closedir(directory);
    return count;
}

/* Communicators come and go; memory and descriptors stay flat. */
static void come_and_go(gpu_rank_t *g)
{
    size_t before = 0, after = 0, total;
    int files = 0;
    int32_t *x = gpu_alloc(g, COUNT * 4), *y = gpu_alloc(g, COUNT * 4);
    for (int round = 0; round < 40; round++) {
        sol_comm_t made;
        sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
        void *memory = NULL;
        team_doing(g->team, g->rank, "round %d", round);
        config.backend = SOL_BACKEND_CUDA;
        if (!CALL(g, sol_comm_split(g->comm, 0, g->rank, &made, &config)))
            return;
        TEAM_OK(g->team, g->rank, sol_mem_alloc(made, 5 << 20, &memory), made);
        gpu_fill(g, x, COUNT, (uint64_t)round);
        TEAM_OK(g->team, g->rank, sol_all_reduce(x, y, COUNT, SOL_INT32, SOL_SUM, made, g->stream),
                made);
        gpu_expect_sum(g, y, COUNT, (uint64_t)round);
        TEAM_OK(g->team, g->rank, sol_comm_destroy(made), NULL); /* frees `memory` too */
        team_barrier(g->team);
        if (round == 3) {
            GPU_OK(g, cudaMemGetInfo(&before, &total));
            files = open_files();
        }
        team_barrier(g->team);
    }
    GPU_OK(g, cudaMemGetInfo(&after, &total));
    TEAM_CHECK(g->team, g->rank, after + (8u << 20) >= before);
    TEAM_CHECK(g->team, g->rank, open_files() <= files);
}

/* Every process sees its own GPU only, as number 0: the usual way of launchers. */
static void hidden_devices(gpu_rank_t *g)
{
    char number[8];
    int count = 0;
    snprintf(number, sizeof(number), "%d", g->rank);
    setenv("CUDA_VISIBLE_DEVICES", number, 1);
    if (!gpu_open_device(g) || !GPU_OK(g, cudaGetDeviceCount(&count)) ||
        !TEAM_CHECK(g->team, g->rank, count == 1) || !gpu_comm(g, 0, &g->comm))
        return;
    int32_t *x = gpu_alloc(g, COUNT * 4), *y = gpu_alloc(g, COUNT * 4);
    for (unsigned round = 0; round < 5; round++)
        reduce_through(g, x, y, round);
    TEAM_OK(g->team, g->rank, sol_comm_destroy(g->comm), NULL);
    gpu_close_device(g);
}

/* The devices in opposite order in every other process: numbers mean nothing. */
static void renumbered_devices(gpu_rank_t *g)
{
    setenv("CUDA_VISIBLE_DEVICES", g->rank % 2 ? "1,0" : "0,1", 1);
    int rank = g->rank;
    g->rank = 0; /* so that gpu_open_device takes number 0 of this process */
    bool open = gpu_open_device(g);
    g->rank = rank;
    if (!open || !gpu_comm(g, 0, &g->comm))
        return;
    int32_t *x = gpu_alloc(g, COUNT * 4), *y = gpu_alloc(g, COUNT * 4);
    for (unsigned round = 0; round < 5; round++)
        reduce_through(g, x, y, round);
    TEAM_OK(g->team, g->rank, sol_comm_destroy(g->comm), NULL);
    gpu_close_device(g);
}

/* One thread drives a rank on every GPU. */
static void one_thread(gpu_rank_t *g)
{
    enum { MOST = 8 };
    sol_comm_t comms[MOST] = {NULL};
    cudaStream_t streams[MOST];
    int32_t *x[MOST], *y[MOST];
    if (!GPU_OK(g, cudaGetDeviceCount(&g->devices)))
        return;
    int n = g->devices > MOST ? MOST : g->devices == 1 ? 2 : g->devices;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    config.backend = SOL_BACKEND_CUDA;
    TEAM_OK(g->team, 0, sol_group_start(), NULL);
    for (int r = 0; r < n; r++) {
        GPU_OK(g, cudaSetDevice(r % g->devices));
        TEAM_OK(g->team, 0, sol_comm_create(&comms[r], &g->team->ids[1], n, r, &config), NULL);
    }
    if (!TEAM_OK(g->team, 0, sol_group_end(), NULL))
        return;
    for (int r = 0; r < n; r++) {
        int32_t host[100];
        for (int i = 0; i < 100; i++)
            host[i] = gpu_value(9, r, (size_t)i);
        GPU_OK(g, cudaSetDevice(r % g->devices));
        GPU_OK(g, cudaStreamCreateWithFlags(&streams[r], cudaStreamNonBlocking));
        GPU_OK(g, cudaMalloc((void **)&x[r], sizeof(host)));
        GPU_OK(g, cudaMalloc((void **)&y[r], sizeof(host)));
        GPU_OK(g, cudaMemcpy(x[r], host, sizeof(host), cudaMemcpyDefault));
    }
    for (int i = 0; i < 20; i++) {
        TEAM_OK(g->team, 0, sol_group_start(), NULL);
        for (int r = 0; r < n; r++) /* with another device current than the communicator's */
            TEAM_OK(g->team, 0,
                    sol_all_reduce(x[r], y[r], 100, SOL_INT32, SOL_SUM, comms[r], streams[r]),
                    comms[r]);
        TEAM_OK(g->team, 0, sol_group_end(), NULL);
    }
    for (int r = 0; r < n; r++) {
        int32_t host[100];
        GPU_OK(g, cudaStreamSynchronize(streams[r]));
        GPU_OK(g, cudaMemcpy(host, y[r], sizeof(host), cudaMemcpyDefault));
        for (size_t i = 0; i < 100; i++)
            TEAM_CHECK(g->team, 0, host[i] == gpu_sum(9, n, i));
    }
    for (int r = 0; r < n; r++)
        TEAM_OK(g->team, 0, sol_comm_destroy(comms[r]), NULL);
}

const gpu_case_t gpu_cases_buffers[] = {
    {.name = "allocators",
     .run = allocators,
     .least = 2,
     .most = 2,
     .threads = true,
     .processes = true},
    {.name = "allocators-ipc",
     .run = allocators,
     .least = 2,
     .most = 2,
     .threads = true,
     .processes = true,
     .environment = {"SOLCCL_CUDA_HANDLE=ipc"}},
    {.name = "unreachable-memory",
     .run = unreachable_memory,
     .least = 2,
     .most = 2,
     .processes = true},
    {.name = "reallocated", .run = reallocated, .least = 2, .most = 2, .processes = true},
    {.name = "come-and-go",
     .run = come_and_go,
     .least = 2,
     .most = 2,
     .threads = true,
     .processes = true,
     .deadline_s = 120},
    {.name = "come-and-go-ipc",
     .run = come_and_go,
     .least = 2,
     .most = 2,
     .threads = true,
     .processes = true,
     .deadline_s = 120,
     .environment = {"SOLCCL_CUDA_HANDLE=ipc"}},
    {.name = "hidden-devices",
     .run = hidden_devices,
     .least = 2,
     .most = 2,
     .processes = true,
     .bare = true},
    {.name = "renumbered-devices",
     .run = renumbered_devices,
     .least = 2,
     .most = 2,
     .processes = true,
     .bare = true},
    {.name = "one-thread",
     .run = one_thread,
     .least = 1,
     .most = 1,
     .processes = true,
     .bare = true},
    {.name = NULL},
};
