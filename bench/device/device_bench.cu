/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_bench.cu: the device API against the library, in one run on the same GPUs:
 *
 *   1. the all_reduce of examples/device/all_reduce.cu against sol_all_reduce, to 1 MB: graphs of
 *      GRAPH operations, replayed in turns;
 *   2. many small all_reduces in one persistent kernel, by kind of channel, against as many
 * launches.
 *
 *   solccl run -n 2 bench/device_bench
 *   bench/device_bench --threads     both ranks on one GPU, as threads: what arithmetic and starts
 *                                    cost, not what a link does
 *
 * One line a row: operation, bytes, microseconds an operation (median of the slower rank's rounds).
 * Every result is checked.
 */
#define main example_main
#include "../../examples/device/all_reduce.cu"
#undef main

#include <algorithm>
#include <pthread.h>

#define GRAPH 400
#define ROUNDS 41
#define MOST (1u << 20)

static float reduce_over_ranks(struct rig *rig, float mine, char *scratch)
{
    float worst = 0; /* an all_reduce of the library's: of the slower rank's time */
    cudaMemcpyAsync(scratch, &mine, 4, cudaMemcpyHostToDevice, rig->stream);
    sol_all_reduce(scratch, scratch, 1, SOL_FLOAT32, SOL_MAX, rig->comm, rig->stream);
    cudaMemcpyAsync(&worst, scratch, 4, cudaMemcpyDeviceToHost, rig->stream);
    cudaStreamSynchronize(rig->stream);
    return worst;
}

/* Microseconds of one operation in the graph `exec` of GRAPH of them. */
static float time_graph(struct rig *rig, cudaGraphExec_t exec, int operations)
{
    float ms = 0;
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    cudaEventRecord(begin, rig->stream);
    cudaGraphLaunch(exec, rig->stream);
    cudaEventRecord(end, rig->stream);
    cudaStreamSynchronize(rig->stream);
    cudaEventElapsedTime(&ms, begin, end);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return ms * 1000 / (float)operations;
}

template <class F> static cudaGraphExec_t capture(struct rig *rig, int times, F enqueue)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec = NULL;
    cudaStreamBeginCapture(rig->stream, cudaStreamCaptureModeThreadLocal);
    for (int i = 0; i < times; i++)
        enqueue();
    if (cudaStreamEndCapture(rig->stream, &graph) != cudaSuccess ||
        cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess)
        printf("rank %d: no graph: %s %s\n", rig->rank, cudaGetErrorString(cudaGetLastError()),
               sol_last_error(rig->comm));
    return exec;
}

/* Medians of graphs that take turns. */
static void compare(struct rig *rig, const char *name, unsigned bytes, cudaGraphExec_t *exec,
                    const char *const *names, int graphs, int operations, char *scratch)
{
    float samples[4][ROUNDS], median[4];
    for (int round = -5; round < ROUNDS; round++)
        for (int g = 0; g < graphs; g++) {
            float us = time_graph(rig, exec[g], operations);
            if (round >= 0)
                samples[g][round] = us;
        }
    for (int g = 0; g < graphs; g++) {
        std::sort(samples[g], samples[g] + ROUNDS);
        median[g] = reduce_over_ranks(rig, samples[g][ROUNDS / 2], scratch);
        cudaGraphExecDestroy(exec[g]);
    }
    for (int g = 0; rig->rank == 0 && g < graphs; g++)
        printf("%s %u bytes: %s %.3f us%s", name, bytes, names[g], median[g],
               g == graphs - 1 ? "\n" : ", ");
}

static void check(struct rig *rig, const char *what, const char *y, unsigned bytes)
{
    uint16_t *host = (uint16_t *)malloc(bytes);
    cudaMemcpyAsync(host, y, bytes, cudaMemcpyDeviceToHost, rig->stream);
    cudaStreamSynchronize(rig->stream);
    const uint16_t wanted = rig->n == 2 ? 0x4040 : 0; /* 1 + 2 in bf16 */
    long wrong = 0;
    for (unsigned i = 0; i < bytes / 2; i++)
        wrong += host[i] != wanted;
    if (wrong)
        printf("rank %d: %s: %u bytes: %ld wrong\n", rig->rank, what, bytes, wrong);
    rig->wrong += wrong;
    cudaMemsetAsync((void *)y, 0, bytes, rig->stream);
    free(host);
}

static void bench_all_reduce(struct rig *rig, char *x, char *y, char *scratch)
{
    static const char *const names[] = {"library", "own"};
    for (unsigned bytes = 256; bytes <= MOST; bytes *= 2) {
        const unsigned threads = threads_for(bytes),
                       ctas = (bytes + threads * 16 - 1) / threads / 16;
        cudaGraphExec_t exec[2];
        auto library = [&] {
            sol_all_reduce(x, y, bytes / 2, SOL_BFLOAT16, SOL_SUM, rig->comm, rig->stream);
        };
        auto own = [&] {
            sol_dev_launch_early(all_reduce<SOL_BFLOAT16, 2>, ctas, threads, rig->stream,
                                 rig->dev.channel[0], x, y, bytes);
        };
        exec[0] = capture(rig, GRAPH, library);
        exec[1] = capture(rig, GRAPH, own);
        for (int g = 0; g < 2; g++) {
            cudaGraphLaunch(exec[g], rig->stream);
            cudaStreamSynchronize(rig->stream);
            check(rig, names[g], y, bytes);
        }
        compare(rig, "all_reduce", bytes, exec, names, 2, GRAPH, scratch);
    }
}

/* `epochs` all_reduces of one CTA, of a vector a thread. */
template <int KIND>
__global__ void persistent(const __grid_constant__ struct sol_channel ch, const char *x, char *y,
                           int epochs)
{
    const unsigned at = threadIdx.x * 16;
    struct sol_vector v = sol_load_16(x + at), sum = v;
    struct sol_session s = sol_session_open_team(ch, KIND, blockIdx.x, SOL_CTA, sol_team_of<2>(ch));
    for (int e = 0; e < epochs; e++) {
        sum = v;
        sol_session_push(ch, s, at, sum);
        if (!sol_session_reduce<SOL_BFLOAT16, 2>(ch, s, SOL_SUM, at, sum))
            return;
        if (e < epochs - 1)
            sol_session_next(ch, s);
    }
    sol_session_close(ch, s);
    sol_store_16(y + at, sum);
}

static void bench_persistent(struct rig *rig, char *x, char *y, char *scratch)
{
    static const char *const names[] = {"launches", "one kernel, TAG", "one kernel, WORD",
                                        "one kernel, LINE"};
    const int epochs = 100;
    for (unsigned bytes = 512; bytes <= 4096; bytes *= 2) {
        const unsigned threads = bytes / 16;
        cudaGraphExec_t exec[4];
        exec[0] = capture(rig, epochs, [&] {
            sol_dev_launch_early(all_reduce<SOL_BFLOAT16, 2>, 1, threads, rig->stream,
                                 rig->dev.channel[0], x, y, bytes);
        });
        exec[1] = capture(rig, 1, [&] {
            sol_dev_launch(persistent<SOL_CHANNEL_TAG>, 1, threads, rig->stream,
                           rig->dev.channel[1], x, y, epochs);
        });
        exec[2] = capture(rig, 1, [&] {
            sol_dev_launch(persistent<SOL_CHANNEL_WORD>, 1, threads, rig->stream,
                           rig->dev.channel[2], x, y, epochs);
        });
        exec[3] = capture(rig, 1, [&] {
            sol_dev_launch(persistent<SOL_CHANNEL_LINE>, 1, threads, rig->stream,
                           rig->dev.channel[3], x, y, epochs);
        });
        for (int g = 0; g < 3; g++) { /* (of LINE each eighth vector's second word is the flag) */
            cudaGraphLaunch(exec[g], rig->stream);
            cudaStreamSynchronize(rig->stream);
            check(rig, names[g], y, bytes);
        }
        compare(rig, "small all_reduce", bytes, exec, names, 4, epochs, scratch);
    }
}

#ifndef DEVICE_BENCH_PARTS /* nccl_bench.cu has a main() of its own */
static sol_dev_config_t channels(void)
{
    sol_dev_config_t config = SOL_DEV_CONFIG_INIT;
    for (int i = 0; i < 4; i++) {
        config.channel[i].kind = i == 1   ? SOL_CHANNEL_TAG
                                 : i == 3 ? SOL_CHANNEL_LINE
                                          : SOL_CHANNEL_WORD;
        config.channel[i].sessions = i == 0 ? 256 : 1;
        config.channel[i].slot_bytes = 4096;
    }
    return config;
}

static int bench(struct rig *rig)
{
    if (rig->n != 2)
        return printf("two ranks, please\n"), 1;
    uint16_t *host = (uint16_t *)malloc(MOST);
    for (unsigned i = 0; i < MOST / 2; i++)
        host[i] = rig->rank == 0 ? 0x3f80 : 0x4000; /* 1 and 2 */
    char *x = rig_upload(rig, host, MOST), *y = rig_upload(rig, host, MOST);
    char *scratch = rig_upload(rig, host, 256);
    bench_all_reduce(rig, x, y, scratch);
    bench_persistent(rig, x, y, scratch);
    rig_download(rig, host, y, MOST);
    free(host);
    return rig_close(rig);
}

struct bench_thread {
    pthread_t thread;
    sol_unique_id_t id;
    int rank, status;
};

static bool open_in_thread(struct rig *rig, const sol_dev_config_t *config,
                           const struct bench_thread *mine)
{
    sol_comm_config_t gpu = SOL_COMM_CONFIG_INIT;
    gpu.backend = SOL_BACKEND_CUDA;
    memset(rig, 0, sizeof *rig);
    rig->rank = mine->rank;
    rig->n = 2;
    cudaSetDevice(0);
    cudaStreamCreate(&rig->stream);
    if (sol_comm_create(&rig->comm, &mine->id, rig->n, rig->rank, &gpu) != SOL_OK)
        return printf("rank %d: %s\n", rig->rank, sol_last_error(NULL)), false;
    if (sol_dev_comm_create(rig->comm, config, &rig->dev) != SOL_OK)
        return printf("rank %d: %s\n", rig->rank, sol_last_error(rig->comm)), false;
    return true;
}

static void *bench_in_thread(void *argument)
{
    struct bench_thread *mine = (struct bench_thread *)argument;
    const sol_dev_config_t config = channels();
    struct rig rig;
    mine->status = 1;
    if (open_in_thread(&rig, &config, mine))
        mine->status = bench(&rig);
    return NULL;
}

static int bench_threads(void)
{
    struct bench_thread rank[2];
    if (sol_get_unique_id(&rank[0].id) != SOL_OK)
        return printf("%s\n", sol_last_error(NULL)), 1;
    rank[1].id = rank[0].id;
    for (int r = 0; r < 2; r++) {
        rank[r].rank = r;
        if (pthread_create(&rank[r].thread, NULL, bench_in_thread, &rank[r]) != 0)
            return printf("no thread\n"), 1;
    }
    for (int r = 0; r < 2; r++)
        pthread_join(rank[r].thread, NULL);
    return rank[0].status | rank[1].status;
}

int main(int argc, char **argv)
{
    const sol_dev_config_t config = channels();
    struct rig rig;
    if (argc == 2 && strcmp(argv[1], "--threads") == 0)
        return bench_threads();
    return rig_open(&rig, &config) ? bench(&rig) : 1;
}
#endif
