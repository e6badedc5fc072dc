/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_rank.c: what all GPU cases use. */
#include "gpu/gpu_rank.h"

#include <stdlib.h>

bool gpu_good(gpu_rank_t *g, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return true;
    team_fail(g->team, g->rank, "%s: %s", what, cudaGetErrorString(error));
    return false;
}

/* CUDA loads a kernel when it is first launched, and may wait for the device to do so: for a
 * collective of another rank on the same device, say, which waits for us. */
static bool load_kernels(gpu_rank_t *g)
{
    return GPU_OK(g, gpu_empty(g->stream)) && GPU_OK(g, gpu_spin(g->stream, 1)) &&
           GPU_OK(g, gpu_scale(g->stream, NULL, NULL, 0, 1)) &&
           GPU_OK(g, gpu_turn(g->stream, NULL, NULL, 0, 1, false)) &&
           GPU_OK(g, gpu_turn(g->stream, NULL, NULL, 0, 1, true)) &&
           GPU_OK(g, cudaStreamSynchronize(g->stream));
}

bool gpu_open_device(gpu_rank_t *g)
{
    cudaMemPool_t pool;
    uint64_t all = UINT64_MAX;
    if (!GPU_OK(g, cudaGetDeviceCount(&g->devices)))
        return false;
    g->device = g->rank % g->devices;
    return GPU_OK(g, cudaSetDevice(g->device)) &&
           GPU_OK(g, cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking)) &&
           GPU_OK(g, cudaDeviceGetDefaultMemPool(&pool, g->device)) &&
           GPU_OK(g, cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all)) &&
           load_kernels(g);
}

void gpu_close_device(gpu_rank_t *g)
{
    free(g->host);
    cudaStreamDestroy(g->stream);
}

bool gpu_comm(gpu_rank_t *g, int id, sol_comm_t *comm)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    config.backend = SOL_BACKEND_CUDA;
    config.timeout_ms = g->timeout_ms ? g->timeout_ms : 6000;
    config.check = g->check;
    config.staging_bytes = g->staging_bytes;
    *comm = NULL;
    team_doing(g->team, g->rank, "creating communicator %d", id);
    return TEAM_OK(g->team, g->rank,
                   sol_comm_create(comm, &g->team->ids[id], g->nranks, g->rank, &config), NULL);
}

void *gpu_alloc(gpu_rank_t *g, size_t bytes)
{
    void *memory = NULL;
    GPU_OK(g, cudaMallocAsync(&memory, bytes > 0 ? bytes : 1, g->stream));
    GPU_OK(g, cudaStreamSynchronize(g->stream));
    return memory;
}

void gpu_free(gpu_rank_t *g, void *memory)
{
    if (memory)
        GPU_OK(g, cudaFreeAsync(memory, g->stream));
}

int32_t gpu_value(uint64_t seed, int rank, size_t i)
{
    return (int32_t)(team_mix(seed * 1000003u + (uint64_t)rank * 8191u + i) >> 33);
}

int32_t gpu_sum(uint64_t seed, int nranks, size_t i)
{
    uint32_t sum = 0; /* wraps, as the library's does */
    for (int r = 0; r < nranks; r++)
        sum += (uint32_t)gpu_value(seed, r, i);
    return (int32_t)sum;
}

bool gpu_copy(gpu_rank_t *g, void *to, const void *from, size_t bytes)
{
    return GPU_OK(g, cudaStreamSynchronize(g->stream)) &&
           GPU_OK(g, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, g->stream)) &&
           GPU_OK(g, cudaStreamSynchronize(g->stream));
}

static int32_t *host(gpu_rank_t *g, size_t count)
{
    if (g->host_count < count) {
        free(g->host);
        g->host_count = count * 2;
        g->host = malloc(g->host_count * sizeof(*g->host));
    }
    return g->host;
}

bool gpu_fill(gpu_rank_t *g, int32_t *device, size_t count, uint64_t seed)
{
    int32_t *data = host(g, count);
    for (size_t i = 0; i < count; i++)
        data[i] = gpu_value(seed, g->rank, i);
    return gpu_copy(g, device, data, count * 4);
}

const int32_t *gpu_download(gpu_rank_t *g, const int32_t *device, size_t count)
{
    int32_t *data = host(g, count);
    return gpu_copy(g, data, device, count * 4) ? data : NULL;
}

/* A wrong element is often only what a wait that expired has left behind. */
static const char *story(gpu_rank_t *g)
{
    sol_status_t status = SOL_OK;
    if (g->comm && sol_comm_async_error(g->comm, &status) == SOL_OK && status != SOL_OK)
        return sol_last_error(g->comm);
    return "the communicator has no error";
}

static bool same(gpu_rank_t *g, size_t i, int32_t got, int32_t wanted)
{
    if (got != wanted)
        team_fail(g->team, g->rank, "element %zu is %d, not %d (%s); %s", i, got, wanted,
                  g->team->rank[g->rank].doing, story(g));
    return got == wanted;
}

bool gpu_expect_sum(gpu_rank_t *g, const int32_t *device, size_t count, uint64_t seed)
{
    const int32_t *got = gpu_download(g, device, count);
    bool ok = got != NULL;
    for (size_t i = 0; i < count && ok; i++)
        ok = same(g, i, got[i], gpu_sum(seed, g->nranks, i));
    return ok;
}

bool gpu_expect_gather(gpu_rank_t *g, const int32_t *device, size_t count, uint64_t seed)
{
    size_t all = count * (size_t)g->nranks;
    const int32_t *got = gpu_download(g, device, all);
    bool ok = got != NULL;
    for (size_t i = 0; i < all && ok; i++)
        ok = same(g, i, got[i], gpu_value(seed, (int)(i / count), i % count));
    return ok;
}

bool gpu_expect_of(gpu_rank_t *g, const int32_t *device, size_t count, uint64_t seed, int rank)
{
    const int32_t *got = gpu_download(g, device, count);
    bool ok = got != NULL;
    for (size_t i = 0; i < count && ok; i++)
        ok = same(g, i, got[i], gpu_value(seed, rank, i));
    return ok;
}

bool gpu_wait(gpu_rank_t *g, double seconds)
{
    double end = team_now() + seconds;
    cudaError_t error = cudaStreamQuery(g->stream);
    while (error == cudaErrorNotReady && team_now() < end) {
        team_sleep_us(200);
        error = cudaStreamQuery(g->stream);
    }
    return gpu_good(g, error, "waiting for the stream");
}
