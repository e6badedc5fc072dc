/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_perf.c: sol_all_reduce_norm against sol_all_reduce and a norm kernel, bf16,
 * in CUDA graphs, in turns.
 *
 *   solccl run -n 2 norm-perf [--hidden H,H...] [--tokens T,T...]
 *   norm-perf --threads 2 ...     ranks are threads, which share GPUs where there are fewer
 *
 * A row a way:  fused; fused with each quantisation; in two hops; unfused; and local, the norm
 * kernel of the unfused way alone. us is the slower rank's median; the bound is
 * that of docs/fused.md: a kernel that only loads and stores, one hop, and the bytes
 * at the link's rate, as bench/NOTES.md has them for this kind of machine or as
 * --kernel-us, --hop-us and --link-gbs say.
 *
 * A sample: the graph of OPS calls three times in a row, of which the last two are
 * timed, so that ranks that begin at different times do not count.
 */
#include "norm_kernels.h"

#include <pthread.h>
#include <solccl/fused.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPS 50
#define SAMPLES 15
#define LIST 16

enum way { FUSED, UNFUSED, LOCAL, STATIC8, TOKEN8, GROUP8, TWO, TWO8, WAYS };
static const char *const names[WAYS] = {
    "fused",           "unfused",         "local",    "fused-fp8-static",
    "fused-fp8-token", "fused-fp8-group", "two-shot", "two-shot-fp8-token-shards"};

static _Thread_local struct {
    int rank, nranks;
    sol_comm_t host, gpu;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    char *input, *residual, *residual_out, *weight, *output, *sum;
    float *scales;
    bool early;
} b;

static double kernel_us = 0.79, hop_us = 0.66, link_gbs = 388;

static void check(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "rank %d: %s: %s; %s\n", b.rank, what,
                cudaGetErrorString(cudaGetLastError()), sol_last_error(b.gpu));
        exit(1);
    }
}
#define CUDA(call) check((call) == cudaSuccess, #call)
#define SOL(call) check((call) == SOL_OK, #call)

static sol_unique_id_t host_id, gpu_id; /* of ranks that are threads */

static void open_rank(sol_comm_t *comm, sol_backend_kind_t backend, const sol_unique_id_t *id)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    config.backend = backend;
    if (id != NULL)
        SOL(sol_comm_create(comm, id, b.nranks, b.rank, &config));
    else
        SOL(sol_comm_create_from_env(comm, &config));
}

static void open_ranks(bool threads)
{
    int gpus;
    open_rank(&b.host, SOL_BACKEND_CPU, threads ? &host_id : NULL);
    SOL(sol_comm_rank(b.host, &b.rank));
    SOL(sol_comm_size(b.host, &b.nranks));
    CUDA(cudaGetDeviceCount(&gpus));
    CUDA(cudaSetDevice(b.rank % gpus));
    CUDA(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreate(&b.begin));
    CUDA(cudaEventCreate(&b.end));
    open_rank(&b.gpu, SOL_BACKEND_CUDA, threads ? &gpu_id : NULL);
    const char *pdl = getenv("SOLCCL_CUDA_PDL");
    b.early = !pdl || strcmp(pdl, "0") != 0;
}

static char *matrix(size_t bytes, uint16_t seed)
{
    char *device;
    uint16_t *host = malloc(bytes);
    CUDA(cudaMalloc((void **)&device, bytes));
    for (size_t i = 0; i < bytes / 2; i++)
        host[i] = (uint16_t)(0x3e00 | (((i * 40503u + seed) >> 3) & 0x81ff)); /* +-0.125 ... 0.5 */
    CUDA(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
    free(host);
    return device;
}

static void make_buffers(size_t bytes)
{
    b.input = matrix(bytes, (uint16_t)(b.rank * 7919));
    b.residual = matrix(bytes, 1);
    b.weight = matrix(65536, 2);
    b.residual_out = matrix(bytes, 3);
    b.output = matrix(bytes, 4);
    b.sum = matrix(bytes, 5);
    CUDA(cudaMalloc((void **)&b.scales, bytes / 16 + 64));
    float one = 0.05f;
    CUDA(cudaMemcpy(b.scales, &one, sizeof one, cudaMemcpyHostToDevice));
}

static void call(enum way way, size_t tokens, size_t hidden)
{
    sol_norm_args_t args = SOL_NORM_ARGS_INIT;
    if (way == UNFUSED || way == LOCAL) {
        if (way == UNFUSED)
            SOL(sol_all_reduce(b.input, b.sum, tokens * hidden, SOL_BFLOAT16, SOL_SUM, b.gpu,
                               b.stream));
        CUDA(bench_norm(b.sum, b.residual, b.weight, b.residual_out, b.output, tokens, hidden,
                        1e-6f, b.early, b.stream));
        return;
    }
    args.tokens = tokens;
    args.hidden = hidden;
    args.input = b.input;
    args.residual = b.residual;
    args.residual_out = b.residual_out;
    args.weight = b.weight;
    args.epsilon = 1e-6f;
    args.output = b.output;
    args.quant = way == STATIC8                 ? SOL_QUANT_STATIC
                 : way == TOKEN8 || way == TWO8 ? SOL_QUANT_TOKEN
                 : way == GROUP8                ? SOL_QUANT_GROUP
                                                : SOL_QUANT_NONE;
    args.output_dtype = args.quant ? SOL_FLOAT8_E4M3 : SOL_BFLOAT16;
    if (way == TWO || way == TWO8)
        args.form = SOL_NORM_TWO_SHOT;
    if (way == TWO8) /* the residual stays where its token is normalised */
        args.shards = SOL_NORM_SHARD_RESIDUAL;
    args.static_scale = b.scales;
    args.scales = b.scales + 16;
    SOL(sol_all_reduce_norm(&args, b.gpu, b.stream));
}

static cudaGraphExec_t capture(enum way way, size_t tokens, size_t hidden)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamBeginCapture(b.stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < OPS; i++)
        call(way, tokens, hidden);
    CUDA(cudaStreamEndCapture(b.stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

static float sample(cudaGraphExec_t graph)
{
    float ms, us;
    SOL(sol_barrier(b.host, NULL));
    CUDA(cudaGraphLaunch(graph, b.stream));
    CUDA(cudaEventRecord(b.begin, b.stream));
    CUDA(cudaGraphLaunch(graph, b.stream));
    CUDA(cudaGraphLaunch(graph, b.stream));
    CUDA(cudaEventRecord(b.end, b.stream));
    CUDA(cudaStreamSynchronize(b.stream));
    CUDA(cudaEventElapsedTime(&ms, b.begin, b.end));
    us = ms * 1e3f / (2 * OPS);
    SOL(sol_all_reduce(&us, &us, 1, SOL_FLOAT32, SOL_MAX, b.host, NULL));
    return us;
}

static int ascending(const void *x, const void *y)
{
    float a = *(const float *)x, c = *(const float *)y;
    return (a > c) - (a < c);
}

/* Elements of the fused and the unfused result that differ by more than the rounding of the sum
 * that only the second makes (bf16: 2^-8, twice). */
static size_t differing(size_t tokens, size_t hidden)
{
    size_t count = tokens * hidden, wrong = 0;
    uint16_t *mine = malloc(2 * count), *other = malloc(2 * count);
    call(FUSED, tokens, hidden);
    CUDA(cudaStreamSynchronize(b.stream));
    CUDA(cudaMemcpy(mine, b.output, 2 * count, cudaMemcpyDeviceToHost));
    call(UNFUSED, tokens, hidden);
    CUDA(cudaStreamSynchronize(b.stream));
    CUDA(cudaMemcpy(other, b.output, 2 * count, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++) {
        uint32_t p = (uint32_t)mine[i] << 16, q = (uint32_t)other[i] << 16;
        float x, y;
        memcpy(&x, &p, 4);
        memcpy(&y, &q, 4);
        float far = x > y ? x - y : y - x;
        wrong += !(far <= 0.02f + 0.02f * (x > 0 ? x : -x));
    }
    free(mine);
    free(other);
    return wrong;
}

static void measure(size_t tokens, size_t hidden)
{
    cudaGraphExec_t graphs[WAYS];
    float us[WAYS][SAMPLES];
    size_t wrong = differing(tokens, hidden), bytes = tokens * hidden * 2;
    for (int w = 0; w < WAYS; w++)
        graphs[w] = capture((enum way)w, tokens, hidden);
    for (int s = 0; s < SAMPLES; s++)
        for (int w = 0; w < WAYS; w++)
            us[(w + s) % WAYS][s] = sample(graphs[(w + s) % WAYS]);
    for (int w = 0; w < WAYS; w++) {
        CUDA(cudaGraphExecDestroy(graphs[w]));
        qsort(us[w], SAMPLES, sizeof(float), ascending);
    }
    double bound = kernel_us + hop_us + (double)bytes / (link_gbs * 1e3);
    for (int w = 0; w < WAYS && b.rank == 0; w++)
        printf("{\"op\": \"all_reduce_norm\", \"way\": \"%s\", \"mode\": \"%s\", \"ranks\": %d, "
               "\"tokens\": %zu, \"hidden\": %zu, \"bytes\": %zu, \"us_p50\": %.3f, "
               "\"us_min\": %.3f, \"bound\": %.3f, \"wrong\": %zu}\n",
               names[w], b.early ? "graph-pdl" : "graph", b.nranks, tokens, hidden, bytes,
               us[w][SAMPLES / 2], us[w][0], bound, wrong);
    fflush(stdout);
}

static int numbers(size_t *list, const char *text)
{
    int n = 0;
    for (char *end; n < LIST && *text; text = *end ? end + 1 : end)
        list[n++] = strtoul(text, &end, 10);
    return n;
}

static struct {
    size_t hidden[LIST], tokens[LIST];
    int nhidden, ntokens, threads;
} wanted;

static void run_rank(void)
{
    size_t most = 0;
    for (int h = 0; h < wanted.nhidden; h++)
        for (int t = 0; t < wanted.ntokens; t++)
            most = wanted.hidden[h] * wanted.tokens[t] > most ? wanted.hidden[h] * wanted.tokens[t]
                                                              : most;
    open_ranks(wanted.threads > 0);
    make_buffers(2 * most);
    for (int h = 0; h < wanted.nhidden; h++)
        for (int t = 0; t < wanted.ntokens; t++)
            measure(wanted.tokens[t], wanted.hidden[h]);
    SOL(sol_barrier(b.host, NULL));
    SOL(sol_comm_destroy(b.gpu));
    SOL(sol_comm_destroy(b.host));
}

static void *run_thread(void *rank)
{
    b.rank = *(int *)rank;
    b.nranks = wanted.threads;
    run_rank();
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[LIST];
    int ranks[LIST];
    SOL(sol_get_unique_id(&host_id));
    SOL(sol_get_unique_id(&gpu_id));
    for (int i = 0; i < wanted.threads; i++) {
        ranks[i] = i;
        check(pthread_create(&threads[i], NULL, run_thread, &ranks[i]) == 0, "pthread_create");
    }
    for (int i = 0; i < wanted.threads; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    wanted.nhidden = numbers(wanted.hidden, "4096,6144,7168,8192");
    wanted.ntokens = numbers(wanted.tokens, "1,2,4,8,16,32,64,128,256,512");
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--hidden") == 0)
            wanted.nhidden = numbers(wanted.hidden, argv[i + 1]);
        else if (strcmp(argv[i], "--tokens") == 0)
            wanted.ntokens = numbers(wanted.tokens, argv[i + 1]);
        else if (strcmp(argv[i], "--threads") == 0)
            wanted.threads = atoi(argv[i + 1]) < LIST ? atoi(argv[i + 1]) : LIST;
        else if (strcmp(argv[i], "--kernel-us") == 0)
            kernel_us = atof(argv[i + 1]);
        else if (strcmp(argv[i], "--hop-us") == 0)
            hop_us = atof(argv[i + 1]);
        else if (strcmp(argv[i], "--link-gbs") == 0)
            link_gbs = atof(argv[i + 1]);
    }
    if (wanted.threads > 0)
        run_threads();
    else
        run_rank();
    return 0;
}
