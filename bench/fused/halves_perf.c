/* SPDX-License-Identifier: Apache-2.0 */
/*
 * halves_perf.c: what sol_norm_start and sol_norm_wait hide: layers of two batches of tokens, each
 * computed for a while and then reduced and normalised, in turns of these ways:
 *
 *   compute   both batches' computation alone
 *   call      both are computed, then one sol_all_reduce_norm of all tokens: nothing overlaps
 *   in-turn   a batch is computed, started and waited for, then the other: the same calls as
 *   halves    b is computed while a's contributions travel, a's next layer while b's do
 *
 *   solccl run -n 2 halves-perf [--tokens T,T...] [--hidden H] [--compute C] [--skew S]
 *                               [--ctas N] [--backend cuda]
 *
 * us is a layer's, of the slower rank, the median of the samples. A batch is computed for as long
 * as C times what sol_all_reduce_norm of it takes alone (1 unless said); with a skew of S a batch
 * takes even ranks 1 + S and odd ones 1 - S of that, the other batch the other way round, so that
 * ranks have equal work and wait for each other all the same. `hidden_part` is how much is gone of
 * what the same calls take in turn beyond the computation. `wrong` counts elements of the output
 * that differ from the call's.
 *
 * CPU ranks: a layer after the other, the computation a loop of multiply-adds. GPU ranks: graphs of
 * LAYERS layers, starts on a second stream, the computation a kernel on all SMs but those of
 * --ctas.
 */
#include <solccl/fused.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef HALVES_PERF_CUDA
#include "halves_kernels.h"
#endif

#define LAYERS 8
#define SAMPLES 15
#define LIST 16

enum way { COMPUTE, CALL, IN_TURN, HALVES, WAYS };
static const char *const names[WAYS] = {"compute", "call", "in-turn", "halves"};

static struct {
    int rank, nranks, ctas;
    bool cuda;
    sol_comm_t host, comm;
    sol_norm_halves_t halves;
    void *main, *side, *event;
    size_t hidden;
    double factor, skew;
    double batch_us;   /* what a batch is computed for, without skew */
    double turns_each; /* of the computation, a us */
    char *input, *residual, *weight, *output;
    unsigned char *got, *wanted;
    unsigned sms;
} b = {.hidden = 4096, .factor = 1, .ctas = 16};

static volatile float sink;

static void check(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "rank %d: %s: %s\n", b.rank, what, sol_last_error(b.comm));
        exit(1);
    }
}
#define SOL(call) check((call) == SOL_OK, #call)
#ifdef HALVES_PERF_CUDA
#define CUDA(call) check((call) == cudaSuccess, #call)
#endif

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static float largest(double us)
{
    float most = (float)us;
    SOL(sol_all_reduce(&most, &most, 1, SOL_FLOAT32, SOL_MAX, b.host, NULL));
    return most;
}

static int ascending(const void *x, const void *y)
{
    float p = *(const float *)x, q = *(const float *)y;
    return (p > q) - (p < q);
}

/* -------------------------------------------------------------------------------- ranks */

static void open_gpu(void)
{
#ifdef HALVES_PERF_CUDA
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    struct cudaDeviceProp properties;
    cudaStream_t streams[2];
    cudaEvent_t event;
    CUDA(cudaSetDevice(b.rank));
    CUDA(cudaGetDeviceProperties(&properties, b.rank));
    b.sms = (unsigned)properties.multiProcessorCount;
    for (int i = 0; i < 2; i++)
        CUDA(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    b.main = streams[0], b.side = streams[1], b.event = event;
    config.backend = SOL_BACKEND_CUDA;
    SOL(sol_comm_create_from_env(&b.comm, &config));
#else
    check(false, "built without CUDA");
#endif
}

static void open_ranks(void)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    config.backend = SOL_BACKEND_CPU;
    SOL(sol_comm_create_from_env(&b.host, &config));
    SOL(sol_comm_rank(b.host, &b.rank));
    SOL(sol_comm_size(b.host, &b.nranks));
    b.comm = b.host;
    if (b.cuda)
        open_gpu();
}

/* bf16 numbers from 0.125 to 0.5 of both signs; `host` as large. */
static char *matrix(size_t bytes, uint16_t seed)
{
    uint16_t *host = malloc(bytes);
    check(host != NULL, "memory");
    for (size_t i = 0; i < bytes / 2; i++)
        host[i] = (uint16_t)(0x3e00 | (((i * 40503u + seed) >> 3) & 0x81ff));
    if (!b.cuda)
        return (char *)host;
    char *device = NULL;
#ifdef HALVES_PERF_CUDA
    CUDA(cudaMalloc((void **)&device, bytes));
    CUDA(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
#endif
    free(host);
    return device;
}

static void download(void *to, const void *from, size_t bytes)
{
#ifdef HALVES_PERF_CUDA
    if (b.cuda) {
        CUDA(cudaStreamSynchronize((cudaStream_t)b.main));
        CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
        return;
    }
#endif
    memcpy(to, from, bytes);
}

static void make(size_t tokens)
{
    const size_t bytes = tokens * b.hidden * 2;
    b.input = matrix(bytes, (uint16_t)(b.rank * 7919));
    b.residual = matrix(bytes, 1);
    b.output = matrix(bytes, 4);
    b.weight = matrix(b.hidden * 2, 2);
    b.got = malloc(bytes);
    b.wanted = malloc(bytes);
    check(b.got && b.wanted, "memory");
}

/* -------------------------------------------------------------------------------- layers */

static void spend(double us)
{
#ifdef HALVES_PERF_CUDA
    if (b.cuda) {
        const unsigned free_sms = (unsigned)b.ctas < b.sms ? b.sms - (unsigned)b.ctas : 1;
        CUDA(bench_busy((float *)(void *)b.weight, free_sms, (unsigned)(us * b.turns_each),
                        (cudaStream_t)b.main));
        return;
    }
#endif
    float x = 1;
    for (double turn = 0, turns = us * b.turns_each; turn < turns; turn++)
        for (int k = 0; k < 64; k++)
            x = x * 0.999f + 1.0f;
    sink = x;
}

static void compute(int batch)
{
    spend(b.batch_us * (1 + ((batch + b.rank) % 2 ? -b.skew : b.skew)));
}

/* The residual is not written, so that every layer's output is the same. */
static sol_norm_args_t args_of(size_t first, size_t tokens)
{
    sol_norm_args_t args = SOL_NORM_ARGS_INIT;
    const size_t at = first * b.hidden * 2;
    args.tokens = tokens;
    args.hidden = b.hidden;
    args.input = b.input + at;
    args.residual = b.residual + at;
    args.weight = b.weight;
    args.epsilon = 1e-6f;
    args.output = b.output + at;
    return args;
}

/* On the second stream, behind what is on the first. */
static void start(int batch, size_t half)
{
    const sol_norm_args_t args = args_of((size_t)batch * half, half);
#ifdef HALVES_PERF_CUDA
    if (b.cuda) {
        CUDA(cudaEventRecord((cudaEvent_t)b.event, (cudaStream_t)b.main));
        CUDA(cudaStreamWaitEvent((cudaStream_t)b.side, (cudaEvent_t)b.event, 0));
    }
#endif
    SOL(sol_norm_start(b.halves, &args, b.side));
}

static void finish(int batch, size_t half)
{
    const sol_norm_args_t args = args_of((size_t)batch * half, half);
    SOL(sol_norm_wait(b.halves, &args, b.main));
}

static void layer(enum way way, size_t half, bool first, bool last)
{
    const sol_norm_args_t all = args_of(0, 2 * half);
    if (way == COMPUTE || way == CALL) {
        compute(0);
        compute(1);
        if (way == CALL)
            SOL(sol_all_reduce_norm(&all, b.comm, b.main));
        return;
    }
    if (way == IN_TURN) {
        for (int batch = 0; batch < 2; batch++) {
            compute(batch);
            start(batch, half);
            finish(batch, half);
        }
        return;
    }
    if (first) {
        compute(0);
        start(0, half);
    }
    compute(1);
    start(1, half);
    finish(0, half);
    if (!last) {
        compute(0);
        start(0, half);
    }
    finish(1, half);
}

static void layers(enum way way, size_t half)
{
    for (int i = 0; i < LAYERS; i++)
        layer(way, half, i == 0, i + 1 == LAYERS);
}

/* -------------------------------------------------------------------------------- timing */

#ifdef HALVES_PERF_CUDA
static cudaGraphExec_t graphs[WAYS];

static void capture(enum way way, size_t half)
{
    cudaGraph_t graph;
    cudaStream_t main = (cudaStream_t)b.main, side = (cudaStream_t)b.side;
    cudaEvent_t event = (cudaEvent_t)b.event;
    CUDA(cudaStreamBeginCapture(main, cudaStreamCaptureModeThreadLocal));
    CUDA(cudaEventRecord(event, main));
    CUDA(cudaStreamWaitEvent(side, event, 0));
    layers(way, half);
    CUDA(cudaEventRecord(event, side));
    CUDA(cudaStreamWaitEvent(main, event, 0));
    CUDA(cudaStreamEndCapture(main, &graph));
    CUDA(cudaGraphInstantiate(&graphs[way], graph, 0));
    CUDA(cudaGraphDestroy(graph));
}

static double graph_us(enum way way)
{
    cudaEvent_t begin, end;
    cudaStream_t stream = (cudaStream_t)b.main;
    float ms = 0;
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    CUDA(cudaGraphLaunch(graphs[way], stream));
    CUDA(cudaEventRecord(begin, stream));
    CUDA(cudaGraphLaunch(graphs[way], stream));
    CUDA(cudaGraphLaunch(graphs[way], stream));
    CUDA(cudaEventRecord(end, stream));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaEventElapsedTime(&ms, begin, end));
    CUDA(cudaEventDestroy(begin));
    CUDA(cudaEventDestroy(end));
    return ms * 1e3 / 2;
}
#endif

static float sample(enum way way, size_t half)
{
    SOL(sol_barrier(b.host, NULL));
#ifdef HALVES_PERF_CUDA
    if (b.cuda)
        return largest(graph_us(way) / LAYERS);
#endif
    const double begin = now_us();
    layers(way, half);
    return largest((now_us() - begin) / LAYERS);
}

static float median_of(enum way way, size_t half, int samples)
{
    float us[SAMPLES] = {0};
    for (int s = 0; s < samples; s++)
        us[s] = sample(way, half);
    qsort(us, (size_t)samples, sizeof(float), ascending);
    return us[samples / 2];
}

/* How many turns are a us, and how long a batch's call takes alone. */
static void calibrate(size_t half)
{
    b.turns_each = 1;
    b.batch_us = 2000;
#ifdef HALVES_PERF_CUDA
    if (b.cuda)
        capture(COMPUTE, half);
#endif
    b.turns_each = 2 * b.batch_us / median_of(COMPUTE, half, 15); /* (of the slower rank: equal) */
    b.batch_us = 0;
#ifdef HALVES_PERF_CUDA
    if (b.cuda) {
        CUDA(cudaGraphExecDestroy(graphs[COMPUTE]));
        capture(CALL, half / 2);
    }
#endif
    b.batch_us = b.factor * median_of(CALL, half / 2, 15);
#ifdef HALVES_PERF_CUDA
    if (b.cuda)
        CUDA(cudaGraphExecDestroy(graphs[CALL]));
#endif
}

/* The halves' outputs beside the call's. */
static size_t wrong(size_t half)
{
    const size_t bytes = 2 * half * b.hidden * 2;
    size_t bad = 0;
    layer(CALL, half, true, true);
    download(b.wanted, b.output, bytes);
    layer(HALVES, half, true, true);
    download(b.got, b.output, bytes);
    for (size_t i = 0; i < bytes; i += 2)
        bad += memcmp(b.got + i, b.wanted + i, 2) != 0;
    return bad;
}

static void report(size_t half, float (*us)[SAMPLES], size_t bad)
{
    const double alone = us[COMPUTE][SAMPLES / 2], in_turn = us[IN_TURN][SAMPLES / 2];
    for (int w = 0; w < WAYS && b.rank == 0; w++) {
        const double mine = us[w][SAMPLES / 2];
        printf("{\"op\": \"all_reduce_norm\", \"way\": \"%s\", \"mode\": \"%s\", \"ranks\": %d, "
               "\"tokens\": %zu, \"hidden\": %zu, \"bytes\": %zu, \"compute_us\": %.2f, "
               "\"skew\": %.2f, \"us_p50\": %.2f, \"us_min\": %.2f, \"hidden_part\": %.2f, "
               "\"wrong\": %zu}\n",
               names[w], b.cuda ? "graph" : "cpu", b.nranks, 2 * half, b.hidden,
               2 * half * b.hidden * 2, alone, b.skew, mine, us[w][0],
               w == COMPUTE ? 0 : 1 - (mine - alone) / (in_turn - alone), bad);
    }
    fflush(stdout);
}

static void measure(size_t tokens)
{
    const size_t half = tokens / 2;
    float us[WAYS][SAMPLES];
    sol_norm_config_t config = SOL_NORM_CONFIG_INIT;
    config.max_tokens = half;
    config.hidden = b.hidden;
    config.start_ctas = b.ctas;
    SOL(sol_norm_create(&b.halves, &config, b.comm));
    make(tokens);
    calibrate(half);
    const size_t bad = wrong(half);
#ifdef HALVES_PERF_CUDA
    for (int w = 0; w < WAYS && b.cuda; w++)
        capture((enum way)w, half);
#endif
    for (int s = 0; s < SAMPLES; s++)
        for (int w = 0; w < WAYS; w++)
            us[(w + s) % WAYS][s] = sample((enum way)((w + s) % WAYS), half);
    for (int w = 0; w < WAYS; w++)
        qsort(us[w], SAMPLES, sizeof(float), ascending);
    report(half, us, bad);
#ifdef HALVES_PERF_CUDA
    for (int w = 0; w < WAYS && b.cuda; w++)
        CUDA(cudaGraphExecDestroy(graphs[w]));
#endif
    SOL(sol_barrier(b.host, NULL));
    SOL(sol_norm_destroy(b.halves));
}

static int numbers(size_t *list, const char *text)
{
    int n = 0;
    for (char *end; n < LIST && *text; text = *end ? end + 1 : end)
        list[n++] = strtoul(text, &end, 10);
    return n;
}

int main(int argc, char **argv)
{
    size_t tokens[LIST];
    int ntokens = numbers(tokens, "4,16,64");
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--tokens") == 0)
            ntokens = numbers(tokens, value);
        else if (strcmp(argv[i], "--hidden") == 0)
            b.hidden = strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--compute") == 0)
            b.factor = atof(value);
        else if (strcmp(argv[i], "--skew") == 0)
            b.skew = atof(value);
        else if (strcmp(argv[i], "--ctas") == 0)
            b.ctas = atoi(value);
        else if (strcmp(argv[i], "--backend") == 0)
            b.cuda = strcmp(value, "cuda") == 0;
    }
    open_ranks();
    for (int t = 0; t < ntokens; t++)
        measure(tokens[t] < 4 ? 4 : tokens[t]);
    SOL(sol_barrier(b.host, NULL));
    if (b.cuda)
        SOL(sol_comm_destroy(b.comm));
    SOL(sol_comm_destroy(b.host));
    return 0;
}
