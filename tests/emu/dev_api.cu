/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dev_api.cu: the device API on the emulated machine, as a program of a user's:
 * every kind of channel at every level, many epochs in a kernel and several
 * kernels in a row, teams, tokens, barriers, puts and counters. What must come
 * out is worked out on the host.
 *
 *   solccl emu -n 3 --seeds 20 tests/emu/dev_api.cu
 *   ... -- TEST   one of: word tag line bulk team tokens barrier put teams multicast
 *                 wrap
 */
#include <solccl/device.h>
#include <solccl/device/multimem.cuh>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EPOCHS 5
#define TURNS 2 /* kernels */
#define GROUPS 3
#define VECTORS 2 /* a thread */
#define WORDS 2   /* a vector */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

/* What rank r has as word w of an epoch: now and then the words that need an escape. */
static uint64_t value(int rank, int epoch, uint64_t w)
{
    uint64_t x = mix((uint64_t)rank << 48 ^ (uint64_t)epoch << 32 ^ w);
    return x % 7 == 0 ? SOL_WORD_MARK + (x >> 20 & 1) : x;
}

struct test {
    sol_comm_t comm;
    cudaStream_t stream;
    int rank, n;
    int epochs; /* of a kernel */
    int wrong;
};

/* ------------------------------------------------------------------- sums by sessions */

/* A group adds up, epoch after epoch. x, y: [epoch][group][vector][thread]. */
template <int KIND>
__global__ void sums(const __grid_constant__ struct sol_channel ch, enum sol_level level,
                     const char *x, char *y, int epochs, const __grid_constant__ struct sol_team t)
{
    const unsigned threads = sol_level_threads(level), me = sol_level_thread(level);
    const unsigned group = (blockIdx.x * blockDim.x + threadIdx.x) / threads;
    const unsigned groups = gridDim.x * blockDim.x / threads;
    struct sol_session s = sol_session_open_team(ch, KIND, group, level, t);
    for (int e = 0; e < epochs; e++) {
        struct sol_vector v[VECTORS];
        const uint64_t at = ((uint64_t)e * groups + group) * VECTORS * threads;
        for (unsigned i = 0; i < VECTORS; i++) {
            v[i] = sol_load_16(x + (at + i * threads + me) * 16);
            sol_session_push(ch, s, (i * threads + me) * 16, v[i]);
        }
        sol_session_flush(ch, s);
        if (e == epochs - 1)
            sol_session_close(ch, s);
        if (!sol_session_await(ch, s))
            return;
        for (unsigned i = 0; i < VECTORS; i++) {
            if (!sol_session_reduce<SOL_UINT64>(ch, s, SOL_SUM, (i * threads + me) * 16, v[i]))
                return;
            sol_store_16(y + (at + i * threads + me) * 16, v[i]);
        }
        if (e < epochs - 1)
            sol_session_next(ch, s);
    }
}

/* The first half of a CTA sends, the second receives: nobody knows of an epoch's end by himself. */
template <int KIND>
__global__ void halves(const __grid_constant__ struct sol_channel ch, enum sol_level level,
                       const char *x, char *y, int epochs,
                       const __grid_constant__ struct sol_team t)
{
    const unsigned half = blockDim.x / 2, me = threadIdx.x % half;
    struct sol_session s = sol_session_open_team(ch, KIND, blockIdx.x, level, t);
    for (int e = 0; e < epochs * 2; e++) {
        const uint64_t at =
            (((uint64_t)e / 2 * gridDim.x + blockIdx.x) * VECTORS + e % 2) * blockDim.x + me;
        struct sol_vector v[2] = {sol_load_16(x + at * 16), sol_load_16(x + (at + half) * 16)};
        if (threadIdx.x < half)
            sol_session_push(ch, s, me * 16, v[0]), sol_session_push(ch, s, (me + half) * 16, v[1]);
        for (int i = 0; i < 2 && threadIdx.x >= half; i++) {
            if (!sol_session_reduce<SOL_UINT64>(ch, s, SOL_SUM, (me + i * half) * 16, v[i]))
                return;
            sol_store_16(y + (at + i * half) * 16, v[i]);
        }
        if (e < epochs * 2 - 1)
            sol_session_next(ch, s);
    }
    sol_session_close(ch, s);
}

static void run_sums(struct test *t, int kind, enum sol_level level, int first, int stride,
                     int size, uint64_t first_epoch, const char *name, bool by_halves = false)
{
    const unsigned threads = level == SOL_THREAD ? 1 : level == SOL_WARP ? 32 : 64;
    const unsigned ctas = level == SOL_CTA ? GROUPS : 1;
    const unsigned block = level == SOL_CTA ? threads : threads * GROUPS;
    const size_t words = (size_t)t->epochs * GROUPS * VECTORS * threads * WORDS, bytes = words * 8;
    const struct sol_team team = {(t->rank - first) / stride, size, first, stride, size == t->n};
    const bool member =
        t->rank >= first && (t->rank - first) % stride == 0 && (t->rank - first) / stride < size;
    sol_dev_config_t config = SOL_DEV_CONFIG_INIT;
    sol_dev_comm_t dev;
    uint64_t *host = (uint64_t *)malloc(bytes);
    char *x, *y;
    int wrong = 0;
    config.channel[1].kind = (sol_channel_kind_t)kind;
    config.channel[1].sessions = GROUPS;
    config.channel[1].slot_bytes =
        kind == SOL_CHANNEL_LINE ? VECTORS * threads * 15 : VECTORS * threads * 16;
    config.first_epoch = first_epoch;
    if (sol_dev_comm_create(t->comm, &config, &dev) != SOL_OK) {
        printf("%s: %s\n", name, sol_last_error(t->comm));
        t->wrong++;
        return;
    }
    cudaMalloc((void **)&x, bytes);
    cudaMalloc((void **)&y, bytes);
    for (int turn = 0; turn < TURNS && member; turn++) {
        for (size_t w = 0; w < words; w++)
            host[w] = value(t->rank, turn, w);
        cudaMemcpyAsync(x, host, bytes, cudaMemcpyHostToDevice, t->stream);
        void (*kernel)(struct sol_channel, enum sol_level, const char *, char *, int,
                       struct sol_team) = kind == SOL_CHANNEL_WORD   ? sums<SOL_CHANNEL_WORD>
                                          : kind == SOL_CHANNEL_TAG  ? sums<SOL_CHANNEL_TAG>
                                          : kind == SOL_CHANNEL_LINE ? sums<SOL_CHANNEL_LINE>
                                                                     : sums<SOL_CHANNEL_BULK>;
        if (by_halves)
            kernel = kind == SOL_CHANNEL_WORD ? halves<SOL_CHANNEL_WORD> : halves<SOL_CHANNEL_TAG>;
        sol_dev_launch(kernel, ctas, block, t->stream, dev.channel[1], level, x, y, t->epochs,
                       team);
        cudaMemcpyAsync(host, y, bytes, cudaMemcpyDeviceToHost, t->stream);
        cudaStreamSynchronize(t->stream);
        for (size_t w = 0; w < words; w++) {
            uint64_t sum = 0;
            for (int i = 0; i < size; i++)
                sum += value(first + i * stride, turn, w);
            const bool flag = kind == SOL_CHANNEL_LINE && (w & 15) == 15; /* not carried */
            wrong += host[w] != sum && !flag;
        }
    }
    if (wrong)
        printf("rank %d: %s: %d wrong\n", t->rank, name, wrong);
    t->wrong += wrong;
    cudaFree(x);
    cudaFree(y);
    free(host);
    sol_dev_comm_destroy(t->comm, &dev);
}

static void all_levels(struct test *t, int kind, const char *name)
{
    if (kind != SOL_CHANNEL_LINE)
        run_sums(t, kind, SOL_THREAD, 0, 1, t->n, 0, name);
    run_sums(t, kind, SOL_WARP, 0, 1, t->n, 0, name);
    run_sums(t, kind, SOL_CTA, 0, 1, t->n, 0, name);
    t->epochs = 1;
    run_sums(t, kind, SOL_CTA, 0, 1, t->n, 0, name);
    t->epochs = EPOCHS;
    if (kind == SOL_CHANNEL_WORD || kind == SOL_CHANNEL_TAG)
        run_sums(t, kind, SOL_CTA, 0, 1, t->n, 0, name, true);
}

/* ------------------------------------------------------ tags that come again */

__global__ void set_epoch(const __grid_constant__ struct sol_channel ch, uint64_t epoch)
{
    sol_push_word(&ch.epochs[0], epoch);
}

/* `vectors` of the slot in every epoch; y: of the last one. */
__global__ void part(const __grid_constant__ struct sol_channel ch, char *y, int epochs,
                     int vectors, uint64_t salt)
{
    struct sol_session s = sol_session_open(ch, SOL_CHANNEL_TAG, 0, SOL_WARP);
    for (int e = 0; e < epochs; e++) {
        struct sol_vector v = {salt + s.epoch + threadIdx.x, salt};
        for (int i = 0; i < vectors; i++) {
            const uint32_t at = (i * 32 + threadIdx.x) * 16;
            struct sol_vector w = v;
            sol_session_push(ch, s, at, v);
            if (!sol_session_reduce<SOL_UINT64>(ch, s, SOL_SUM, at, w))
                return;
            sol_store_16(y + at, w);
        }
        sol_session_next(ch, s);
    }
    sol_session_close(ch, s);
}

/* Fill the slots early, use half of them at the turns of four periods, and the whole when the tags
 * of the beginning come again. */
static void run_period(struct test *t)
{
    sol_dev_config_t config = SOL_DEV_CONFIG_INIT;
    sol_dev_comm_t dev;
    uint64_t host[128], last = 0;
    char *y;
    int wrong = 0;
    config.channel[0].kind = SOL_CHANNEL_TAG;
    config.channel[0].sessions = 1;
    config.channel[0].slot_bytes = 64 * 16;
    sol_dev_comm_create(t->comm, &config, &dev);
    cudaMalloc((void **)&y, sizeof host);
    for (int turn = 0; turn < 6; turn++) {
        const uint64_t first = turn == 0   ? 10
                               : turn == 5 ? (1ull << 32) + 10
                                           : ((uint64_t)turn << 30) - 2;
        const int epochs = turn == 0 || turn == 5 ? 2 : 4;
        void *meeting = NULL; /* nobody goes on while another is still in the kernel before */
        sol_mem_alloc(t->comm, 64, &meeting);
        sol_dev_launch(set_epoch, 1, 1, t->stream, dev.channel[0], first);
        sol_dev_launch(part, 1, 32, t->stream, dev.channel[0], y, epochs,
                       turn == 0 || turn == 5 ? 2 : 1, (uint64_t)turn << 40);
        cudaMemcpyAsync(host, y, sizeof host, cudaMemcpyDeviceToHost, t->stream);
        cudaStreamSynchronize(t->stream);
        last = first + (uint64_t)epochs - 1;
    }
    for (uint64_t i = 0; i < 64; i++)
        wrong += host[2 * i] != (uint64_t)t->n * ((5ull << 40) + last + i % 32);
    if (wrong)
        printf("rank %d: wrap: %d wrong\n", t->rank, wrong);
    t->wrong += wrong;
    cudaFree(y);
    sol_dev_comm_destroy(t->comm, &dev);
}

/* ------------------------------------------------------ tokens: broadcast, tile by tile */

__global__ void broadcasts(const __grid_constant__ struct sol_channel ch, char *data, int epochs)
{
    struct sol_session s = sol_session_open(ch, SOL_CHANNEL_TAG, blockIdx.x, SOL_CTA);
    const int n = ch.nranks;
    for (int e = 0; e < epochs; e++) {
        const int root = e % n;
        char *mine = data + ((e * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x) * 16;
        struct sol_vector v = sol_load_16(mine);
        sol_broadcast_start(ch, s, root, threadIdx.x * 16, v);
        if (!sol_broadcast_wait(ch, s, root, threadIdx.x * 16, v) ||
            (threadIdx.x == 0 && !sol_broadcast_tokens(ch, s, root)))
            return;
        sol_store_16(mine, v);
        sol_session_next(ch, s);
    }
    sol_session_close(ch, s);
}

static void run_tokens(struct test *t)
{
    enum { epochs = 12, threads = 40, ctas = 2, words = epochs * ctas * threads * 2 };
    sol_dev_config_t config = SOL_DEV_CONFIG_INIT;
    sol_dev_comm_t dev;
    uint64_t *host = (uint64_t *)malloc(words * 8);
    char *data;
    int wrong = 0;
    config.channel[0].kind = SOL_CHANNEL_TAG;
    config.channel[0].sessions = ctas;
    config.channel[0].slot_bytes = threads * 16;
    sol_dev_comm_create(t->comm, &config, &dev);
    cudaMalloc((void **)&data, words * 8);
    for (int w = 0; w < words; w++)
        host[w] = value(t->rank, 0, (uint64_t)w);
    cudaMemcpyAsync(data, host, words * 8, cudaMemcpyHostToDevice, t->stream);
    sol_dev_launch(broadcasts, ctas, threads, t->stream, dev.channel[0], data, (int)epochs);
    cudaMemcpyAsync(host, data, words * 8, cudaMemcpyDeviceToHost, t->stream);
    cudaStreamSynchronize(t->stream);
    for (int w = 0; w < words; w++)
        wrong += host[w] != value(w / (ctas * threads * 2) % t->n, 0, (uint64_t)w);
    if (wrong)
        printf("rank %d: tokens: %d wrong\n", t->rank, wrong);
    t->wrong += wrong;
    cudaFree(data);
    free(host);
    sol_dev_comm_destroy(t->comm, &dev);
}

/* ------------------------------------------------------------------ barriers and stores */

/* Everybody stores into everybody's memory, by ordinary stores, with a barrier before and after. */
__global__ void stores(const __grid_constant__ sol_dev_comm_t dev, uint64_t *out, int rounds)
{
    struct sol_rank_barrier b = sol_barrier_open(dev, 1, SOL_CTA, sol_team_all(dev));
    for (int e = 0; e < rounds; e++) {
        for (int r = 0; r < dev.nranks; r++) {
            uint64_t *there = (uint64_t *)sol_window_at(dev.memory, r, 0);
            there[dev.rank * blockDim.x + threadIdx.x] = 1000u * e + 10u * dev.rank + r;
        }
        if (!sol_barrier_sync(dev, b, SOL_ACQ_REL))
            return;
        uint64_t sum = 0;
        for (int r = 0; r < dev.nranks; r++)
            sum +=
                ((uint64_t *)sol_window_at(dev.memory, dev.rank, 0))[r * blockDim.x + threadIdx.x];
        out[e * blockDim.x + threadIdx.x] = sum;
        if (!sol_barrier_sync(dev, b, SOL_ACQ_REL))
            return;
    }
    sol_barrier_close(dev, b);
}

/* Messages of any length into a peer's memory; it counts bytes, in whatever order they come. */
__global__ void puts(const __grid_constant__ sol_dev_comm_t dev, const char *from, char *to,
                     uint32_t bytes, int rounds, uint64_t seen)
{
    const int n = dev.nranks;
    for (int e = 0; e < rounds; e++) {
        for (int k = 1; k < n; k++) {
            const int peer = (dev.rank + k) % n;
            char *there = sol_window_at(dev.memory, peer, (uint64_t)dev.rank * bytes);
            sol_put_signal(dev, SOL_CTA, peer, there, from + (uint64_t)e * bytes, bytes, 3, bytes);
        }
        if (!sol_counter_wait(dev, SOL_CTA, 3, seen + (uint64_t)(e + 1) * (n - 1) * bytes))
            return;
        for (int k = 1; k < n; k++) {
            const int peer = (dev.rank + k) % n;
            sol_put(SOL_CTA, to + ((uint64_t)e * n + peer) * bytes,
                    sol_window_at(dev.memory, dev.rank, (uint64_t)peer * bytes), bytes);
        }
        for (int k = 1; k < n; k++) /* consumed: the peers may put again */
            sol_signal(dev, SOL_CTA, (dev.rank + k) % n, 4, 1);
        if (!sol_counter_wait(dev, SOL_CTA, 4, seen + (uint64_t)(e + 1) * (n - 1)))
            return;
    }
}

static void run_onesided(struct test *t, bool barrier)
{
    enum { threads = 48, rounds = 3, bytes = 1003 };
    sol_dev_config_t config = SOL_DEV_CONFIG_INIT;
    sol_dev_comm_t dev;
    const size_t size = (size_t)rounds * bytes * (size_t)t->n;
    unsigned char *host = (unsigned char *)malloc(size + 8);
    char *from, *to;
    int wrong = 0;
    config.counters = 5;
    config.barriers = 2;
    config.memory_bytes = (size_t)t->n * 4096;
    sol_dev_comm_create(t->comm, &config, &dev);
    cudaMalloc((void **)&from, size);
    cudaMalloc((void **)&to, size < rounds * threads * 8 ? rounds * threads * 8 : size);
    for (size_t i = 0; i < rounds * bytes; i++)
        host[i] = (unsigned char)value(t->rank, 0, i);
    cudaMemcpyAsync(from, host, rounds * bytes, cudaMemcpyHostToDevice, t->stream);
    cudaMemsetAsync(to, 0, size, t->stream);
    if (barrier) {
        sol_dev_launch(stores, 1, threads, t->stream, dev, (uint64_t *)to, (int)rounds);
        cudaStreamSynchronize(t->stream);
        sol_dev_launch(stores, 1, threads, t->stream, dev, (uint64_t *)to, (int)rounds);
    } else {
        sol_dev_launch(puts, 1, threads, t->stream, dev, from, to, (uint32_t)bytes, (int)rounds,
                       (uint64_t)0);
    }
    cudaMemcpyAsync(host, to, barrier ? rounds * threads * 8 : size, cudaMemcpyDeviceToHost,
                    t->stream);
    cudaStreamSynchronize(t->stream);
    for (int e = 0; e < rounds && barrier; e++)
        for (int i = 0; i < threads; i++) {
            uint64_t sum = 0, is;
            for (int r = 0; r < t->n; r++)
                sum += 1000u * (unsigned)e + 10u * (unsigned)r + (unsigned)t->rank;
            memcpy(&is, host + ((size_t)e * threads + (size_t)i) * 8, 8);
            wrong += is != sum;
        }
    for (size_t i = 0; i < size && !barrier; i++) {
        int peer = (int)(i / bytes) % t->n, e = (int)(i / bytes) / t->n;
        unsigned char is =
            peer == t->rank ? 0 : (unsigned char)value(peer, 0, (size_t)e * bytes + i % bytes);
        wrong += host[i] != is;
    }
    if (wrong)
        printf("rank %d: %s: %d wrong\n", t->rank, barrier ? "barrier" : "put", wrong);
    t->wrong += wrong;
    cudaFree(from);
    cudaFree(to);
    free(host);
    sol_dev_comm_destroy(t->comm, &dev);
}

/* Who is in the host's and in the rail's team, and that barriers of both keep apart. */
__global__ void members(const __grid_constant__ sol_dev_comm_t dev, int *out)
{
    const struct sol_team team[2] = {sol_team_host(dev), sol_team_rail(dev)};
    for (int k = 0; k < 2; k++) {
        struct sol_rank_barrier b = sol_barrier_open(dev, k, SOL_CTA, team[k]);
        if (!sol_barrier_sync(dev, b, SOL_ACQ_REL))
            return;
        sol_barrier_close(dev, b);
        for (int i = (int)threadIdx.x; i < team[k].size; i += (int)blockDim.x)
            out[k * dev.nranks + i] = sol_team_member(team[k], i);
        if (threadIdx.x == 0)
            out[2 * dev.nranks + k] = team[k].size * 100 + team[k].rank;
    }
}

static void run_teams(struct test *t)
{
    const int per_host = t->n % 2 ? 1 : 2, hosts = t->n / per_host;
    sol_dev_config_t config = SOL_DEV_CONFIG_INIT;
    sol_dev_comm_t dev;
    int *out, host[2 * SOL_DEV_MAX_RANKS + 2], wrong = 0;
    const size_t bytes = (size_t)(2 * t->n + 2) * sizeof(int);
    config.barriers = 2;
    config.ranks_per_host = per_host;
    sol_dev_comm_create(t->comm, &config, &dev);
    cudaMalloc((void **)&out, bytes);
    cudaMemsetAsync(out, 0, bytes, t->stream);
    sol_dev_launch(members, 1, 32, t->stream, dev, out);
    cudaMemcpyAsync(host, out, bytes, cudaMemcpyDeviceToHost, t->stream);
    cudaStreamSynchronize(t->stream);
    for (int i = 0; i < per_host; i++)
        wrong += host[i] != t->rank / per_host * per_host + i;
    for (int i = 0; i < hosts; i++)
        wrong += host[t->n + i] != i * per_host + t->rank % per_host;
    wrong += host[2 * t->n] != per_host * 100 + t->rank % per_host;
    wrong += host[2 * t->n + 1] != hosts * 100 + t->rank / per_host;
    if (wrong)
        printf("rank %d: teams: %d wrong\n", t->rank, wrong);
    t->wrong += wrong;
    cudaFree(out);
    sol_dev_comm_destroy(t->comm, &dev);
}

/* Each thread stores once for all ranks, then a barrier, then everybody reads its own. */
__global__ void cast_to_all(const __grid_constant__ sol_dev_comm_t dev, uint64_t *out, int rounds)
{
    const sol_window_t &w = dev.memory;
    const unsigned i = threadIdx.x;
    struct sol_rank_barrier b = sol_barrier_open(dev, 0, SOL_CTA, sol_team_all(dev));
    for (int e = 0; e < rounds; e++) {
        const uint64_t at = ((uint64_t)dev.rank * blockDim.x + i) * 16;
        struct sol_vector v = {1000u * (unsigned)e + 10u * (unsigned)dev.rank, i};
        sol_multicast_vector(w.multicast + at, v);
        sol_fence_alias();
        if (!sol_barrier_sync(dev, b, SOL_ACQ_REL))
            return;
        for (int r = 0; r < dev.nranks; r++) {
            const uint64_t from = ((uint64_t)r * blockDim.x + i) * 16;
            struct sol_vector got = sol_poll_vector(sol_window_at(w, dev.rank, from));
            out[((uint64_t)e * dev.nranks + r) * blockDim.x + i] = got.a + got.b;
        }
        if (!sol_barrier_sync(dev, b, SOL_ACQ_REL))
            return;
    }
    sol_barrier_close(dev, b);
}

/* The address is there where SOLCCL_CUDA_MULTICAST=1 and it was asked for, and nowhere else. */
static void run_multicast(struct test *t)
{
    enum { threads = 40, rounds = 3 };
    const char *switched = getenv("SOLCCL_CUDA_MULTICAST");
    const bool on = switched && strcmp(switched, "1") == 0;
    sol_dev_config_t config = SOL_DEV_CONFIG_INIT;
    sol_dev_comm_t dev, without;
    sol_window_t window;
    void *memory = NULL;
    const size_t words = (size_t)rounds * (size_t)t->n * threads;
    uint64_t *out, *host = (uint64_t *)calloc(words, 8);
    config.barriers = 1;
    config.memory_bytes = (size_t)t->n * threads * 16;
    sol_dev_comm_create(t->comm, &config, &without);
    config.multicast = 1;
    sol_dev_comm_create(t->comm, &config, &dev);
    sol_mem_alloc(t->comm, 4096, &memory);
    sol_mem_window(t->comm, memory, &window);
    int wrong = without.memory.multicast != NULL;
    wrong += (dev.memory.multicast != NULL) != on || (window.multicast != NULL) != on;
    if (on) {
        cudaMalloc((void **)&out, words * 8);
        cudaMemsetAsync(out, 0, words * 8, t->stream);
        sol_dev_launch(cast_to_all, 1, threads, t->stream, dev, out, (int)rounds);
        cudaMemcpyAsync(host, out, words * 8, cudaMemcpyDeviceToHost, t->stream);
        cudaStreamSynchronize(t->stream);
        for (size_t i = 0; i < words; i++) {
            size_t e = i / threads / (size_t)t->n, r = i / threads % (size_t)t->n;
            wrong += host[i] != 1000 * e + 10 * r + i % threads;
        }
        cudaFree(out);
    }
    if (wrong)
        printf("rank %d: multicast: %d wrong\n", t->rank, wrong);
    t->wrong += wrong;
    free(host);
    sol_mem_free(t->comm, memory);
    sol_dev_comm_destroy(t->comm, &dev);
    sol_dev_comm_destroy(t->comm, &without);
}

/* --------------------------------------------------------------------------------- all */

static bool wanted(int argc, char **argv, const char *name)
{
    return argc < 2 || strcmp(argv[1], name) == 0;
}

int main(int argc, char **argv)
{
    struct test t;
    memset(&t, 0, sizeof t);
    if (getenv("SOLCCL_LOCAL_RANK")) /* on GPUs: one a rank */
        cudaSetDevice(atoi(getenv("SOLCCL_LOCAL_RANK")));
    t.epochs = EPOCHS;
    if (sol_comm_create_from_env(&t.comm, NULL) != SOL_OK)
        return printf("%s\n", sol_last_error(NULL)), 1;
    sol_comm_rank(t.comm, &t.rank);
    sol_comm_size(t.comm, &t.n);
    cudaStreamCreate(&t.stream);
    if (wanted(argc, argv, "word"))
        all_levels(&t, SOL_CHANNEL_WORD, "word");
    if (wanted(argc, argv, "tag"))
        all_levels(&t, SOL_CHANNEL_TAG, "tag");
    if (wanted(argc, argv, "line"))
        all_levels(&t, SOL_CHANNEL_LINE, "line");
    if (wanted(argc, argv, "bulk"))
        all_levels(&t, SOL_CHANNEL_BULK, "bulk");
    if (wanted(argc, argv, "team") && t.n >= 4) {
        run_sums(&t, SOL_CHANNEL_WORD, SOL_WARP, t.rank & 1, 2, (t.n + 1 - (t.rank & 1)) / 2, 0,
                 "team");
        run_sums(&t, SOL_CHANNEL_TAG, SOL_CTA, t.rank < 2 ? 0 : 2, 1, t.rank < 2 ? 2 : t.n - 2, 0,
                 "team");
    }
    if (wanted(argc, argv, "wrap")) {
        run_period(&t);
        run_sums(&t, SOL_CHANNEL_TAG, SOL_WARP, 0, 1, t.n, (1ull << 30) - 3, "wrap 2^30");
        run_sums(&t, SOL_CHANNEL_TAG, SOL_CTA, 0, 1, t.n, (1ull << 32) - 3, "wrap 2^32");
        run_sums(&t, SOL_CHANNEL_LINE, SOL_WARP, 0, 1, t.n, (1ull << 32) - 3, "wrap 2^32");
        run_sums(&t, SOL_CHANNEL_WORD, SOL_WARP, 0, 1, t.n, (1ull << 32) - 3, "wrap 2^32");
    }
    if (wanted(argc, argv, "tokens"))
        run_tokens(&t);
    if (wanted(argc, argv, "barrier"))
        run_onesided(&t, true);
    if (wanted(argc, argv, "put"))
        run_onesided(&t, false);
    if (wanted(argc, argv, "teams"))
        run_teams(&t);
    if (wanted(argc, argv, "multicast"))
        run_multicast(&t);
    printf("rank %d of %d: %d wrong\n", t.rank, t.n, t.wrong);
    sol_comm_destroy(t.comm);
    return t.wrong != 0;
}
