/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe_perf.c: dispatch and combine of solccl/moe.h against their bound.
 *
 *   solccl run -n 2 moe-perf [--tokens T,T...] [--hidden H] [--top-k K] [--experts E]
 *                            [--backend cuda] [--kernel-us U] [--hop-us U] [--link-gbs B]
 *   moe-perf --threads 2 ...   ranks are threads, which share GPUs where there are fewer: what
 *                              kernels cost, not what a link does
 *
 * Rows for each number of tokens a rank and each form: bf16, and fp8 on the way there. Routes are
 * drawn at random: every expert is as likely as another, none twice for a token. us_p50 is the
 * slower rank's median. Experts give back their tokens, with weights that are 1 together: `wrong`
 * counts elements that come back as others, beyond the rounding of bf16.
 *
 * CPU ranks: calls one by one, behind a barrier; the bound is a copy of every row that an expert
 * gets (dispatch) or gives (combine), at the rate of memcpy on all ranks at once, measured in
 * turns with the calls. GPU ranks: graphs of OPS pairs, and of OPS dispatches, of which a combine
 * is the difference; the bound is that of docs/moe.md.
 */
#include <pthread.h>
#include <solccl/moe.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef MOE_PERF_CUDA
#include <cuda_runtime_api.h>
#endif

#define OPS 20
#define SAMPLES 21
#define LIST 16

enum what { DISPATCH, COMBINE, COPY, WHATS };
static const char *const names[] = {"moe_dispatch", "moe_combine"};

static struct {
    size_t tokens[LIST], hidden;
    int ntokens, top_k, experts, threads;
    bool cuda;
} wanted = {.hidden = 7168, .top_k = 8, .experts = 256};

static _Thread_local struct {
    int rank, nranks;
    bool cuda;
    sol_comm_t host, comm;
    void *stream;
    sol_moe_t moe;
    sol_moe_info_t info;
    size_t max_tokens, hidden;
    int top_k, experts;
    /* the ranks' own memory; `_host`: where the host sees it */
    uint16_t *x, *y, *out, *x_host, *y_host;
    unsigned char *recv_x;
    float *scales, *weights;
    int64_t *idx, *idx_host;
    int32_t *counts;
    size_t sent_rows, here_rows; /* to other ranks; of this rank's experts: the largest of all */
} b;

static double kernel_us = 0.79, hop_us = 0.66, link_gbs = 388;

static void check(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "rank %d: %s: %s\n", b.rank, what, sol_last_error(b.comm));
        exit(1);
    }
}
#define SOL(call) check((call) == SOL_OK, #call)

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* ------------------------------------------------------------------------------- memory */

static void *take(size_t bytes)
{
    void *memory = NULL;
#ifdef MOE_PERF_CUDA
    if (b.cuda)
        check(cudaMalloc(&memory, bytes) == cudaSuccess, "cudaMalloc");
#endif
    if (!b.cuda)
        memory = calloc(1, bytes);
    check(memory != NULL, "memory");
    return memory;
}

static void copy(void *to, const void *from, size_t bytes)
{
#ifdef MOE_PERF_CUDA
    if (b.cuda) {
        check(cudaStreamSynchronize((cudaStream_t)b.stream) == cudaSuccess &&
                  cudaMemcpy(to, from, bytes, cudaMemcpyDefault) == cudaSuccess,
              "cudaMemcpy");
        return;
    }
#endif
    memcpy(to, from, bytes);
}

static sol_unique_id_t host_id, gpu_id; /* of ranks that are threads */

static void open_rank(sol_comm_t *comm, sol_backend_kind_t backend, const sol_unique_id_t *id)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    config.backend = backend;
    if (wanted.threads > 0)
        SOL(sol_comm_create(comm, id, wanted.threads, b.rank, &config));
    else
        SOL(sol_comm_create_from_env(comm, &config));
}

static void open_ranks(void)
{
    open_rank(&b.host, SOL_BACKEND_CPU, &host_id);
    SOL(sol_comm_rank(b.host, &b.rank));
    SOL(sol_comm_size(b.host, &b.nranks));
    b.comm = b.host;
    if (!b.cuda)
        return;
#ifdef MOE_PERF_CUDA
    cudaStream_t stream = NULL;
    int gpus = 1;
    check(cudaGetDeviceCount(&gpus) == cudaSuccess &&
              cudaSetDevice(wanted.threads > 0 ? b.rank % gpus : b.rank) == cudaSuccess &&
              cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess,
          "a GPU for each rank");
    b.stream = stream;
    open_rank(&b.comm, SOL_BACKEND_CUDA, &gpu_id);
#else
    check(false, "built without CUDA");
#endif
}

static void make(sol_quant_t quant)
{
    sol_moe_config_t config = SOL_MOE_CONFIG_INIT;
    config.max_tokens = b.max_tokens, config.hidden = b.hidden;
    config.top_k = b.top_k, config.experts = b.experts;
    config.quant = quant;
    config.layout = SOL_MOE_PACKED;
    SOL(sol_moe_create(&b.moe, &config, b.comm));
    b.info.size = sizeof b.info;
    SOL(sol_moe_query(b.moe, &b.info));
    if (b.x != NULL)
        return;
    const size_t row = b.hidden * 2, entries = b.max_tokens * (size_t)b.top_k;
    b.x = take(b.max_tokens * row);
    b.out = take(b.max_tokens * row);
    b.y = take(b.info.rows * row);
    b.recv_x = take(b.info.rows * row);
    b.scales = take(b.info.rows * (b.hidden / 128 + 1) * sizeof(float));
    b.idx = take(entries * sizeof(int64_t));
    b.weights = take(entries * sizeof(float));
    b.counts = take((size_t)b.experts * sizeof(int32_t));
    b.x_host = malloc(b.max_tokens * row);
    b.y_host = malloc(b.info.rows * row);
    b.idx_host = malloc(entries * sizeof(int64_t));
    check(b.x_host && b.y_host && b.idx_host, "memory");
}

/* ------------------------------------------------------------------------------- routes */

static int64_t expert_of(int rank, size_t token, int j)
{
    const uint64_t h = mix((uint64_t)rank << 32 ^ token), n = (uint64_t)b.experts;
    uint64_t step = 2 * (h >> 40) + 1; /* odd: coprime with a power of two */
    return (int64_t)((h + (uint64_t)j * step) % n);
}

static int owner_of(int64_t expert)
{
    const int less = b.experts / b.nranks, more = b.experts % b.nranks;
    int r = 0;
    for (int64_t end = less + (more > 0); expert >= end; end += less + (r < more))
        r++;
    return r;
}

static uint16_t element(int rank, size_t i)
{
    return (uint16_t)(0x3e00 | ((i * 40503u + (unsigned)rank * 7919u) >> 3 & 0x81ff));
}

/* Tokens and routes; and y, as experts make it that give back their tokens: rows of an expert are
 * in the order of (source, token). */
static void fill(size_t tokens)
{
    size_t *next = calloc((size_t)b.experts + 1, sizeof *next), row = 0, sent = 0;
    float *weights = malloc(tokens * (size_t)b.top_k * sizeof *weights);
    check(next && weights, "memory");
    for (int s = 0; s < b.nranks; s++)
        for (size_t t = 0; t < tokens; t++)
            for (int j = 0; j < b.top_k; j++)
                next[expert_of(s, t, j)]++;
    for (int64_t e = 0; e < b.experts; e++) {
        size_t count = owner_of(e) == b.rank ? next[e] : 0;
        next[e] = row;
        row += count;
    }
    for (int s = 0; s < b.nranks; s++)
        for (size_t t = 0; t < tokens; t++)
            for (int j = 0; j < b.top_k; j++) {
                const int64_t e = expert_of(s, t, j);
                if (owner_of(e) != b.rank)
                    continue;
                uint16_t *y = b.y_host + next[e]++ * b.hidden;
                for (size_t i = 0; i < b.hidden; i++)
                    y[i] = element(s, t * b.hidden + i);
            }
    for (size_t t = 0; t < tokens; t++) {
        unsigned mask = 0;
        for (int j = 0; j < b.top_k; j++) {
            b.idx_host[t * (size_t)b.top_k + (size_t)j] = expert_of(b.rank, t, j);
            weights[t * (size_t)b.top_k + (size_t)j] = 1.0f / (float)b.top_k;
            mask |= 1u << owner_of(expert_of(b.rank, t, j));
        }
        sent += (size_t)__builtin_popcount(mask & ~(1u << b.rank));
        for (size_t i = 0; i < b.hidden; i++)
            b.x_host[t * b.hidden + i] = element(b.rank, t * b.hidden + i);
    }
    uint64_t most[] = {sent, row};
    SOL(sol_all_reduce(most, most, 2, SOL_UINT64, SOL_MAX, b.host, NULL));
    b.sent_rows = most[0], b.here_rows = most[1];
    copy(b.x, b.x_host, tokens * b.hidden * 2);
    copy(b.y, b.y_host, row * b.hidden * 2);
    copy(b.idx, b.idx_host, tokens * (size_t)b.top_k * sizeof(int64_t));
    copy(b.weights, weights, tokens * (size_t)b.top_k * sizeof(float));
    free(next);
    free(weights);
}

static void dispatch(size_t tokens)
{
    sol_moe_dispatch_args_t args = SOL_MOE_DISPATCH_ARGS_INIT;
    args.tokens = tokens, args.x = b.x, args.topk_idx = b.idx, args.topk_weights = b.weights;
    args.recv_x = b.recv_x, args.recv_scales = b.scales, args.recv_counts = b.counts;
    SOL(sol_moe_dispatch(b.moe, &args, b.stream));
}

static void combine(size_t tokens)
{
    sol_moe_combine_args_t args = SOL_MOE_COMBINE_ARGS_INIT;
    args.tokens = tokens, args.y = b.y, args.out = b.out;
    SOL(sol_moe_combine(b.moe, &args, b.stream));
}

static size_t wrong(size_t tokens)
{
    const size_t count = tokens * b.hidden;
    uint16_t *got = malloc(2 * count);
    size_t bad = 0;
    check(got != NULL, "memory");
    copy(got, b.out, 2 * count);
    for (size_t i = 0; i < count; i++) {
        uint32_t p = (uint32_t)got[i] << 16, q = (uint32_t)b.x_host[i] << 16;
        float x, y;
        memcpy(&x, &p, 4);
        memcpy(&y, &q, 4);
        float far = x > y ? x - y : y - x;
        bad += !(far <= 0.02f * (y > 0 ? y : -y));
    }
    free(got);
    return bad;
}

/* -------------------------------------------------------------------------------- timing */

static int ascending(const void *x, const void *y)
{
    float p = *(const float *)x, q = *(const float *)y;
    return (p > q) - (p < q);
}

static float slowest(double us)
{
    float most = (float)us;
    SOL(sol_all_reduce(&most, &most, 1, SOL_FLOAT32, SOL_MAX, b.host, NULL));
    return most;
}

/* One call after the other, and a copy of as many bytes as the experts' rows have. */
static void sample_cpu(size_t tokens, size_t row, float *us)
{
    double at[4];
    SOL(sol_barrier(b.host, NULL));
    at[0] = now_us();
    dispatch(tokens);
    at[1] = now_us();
    us[DISPATCH] = slowest(at[1] - at[0]);
    SOL(sol_barrier(b.host, NULL));
    at[1] = now_us();
    combine(tokens);
    at[2] = now_us();
    us[COMBINE] = slowest(at[2] - at[1]);
    SOL(sol_barrier(b.host, NULL));
    at[2] = now_us();
    memcpy(b.recv_x, b.y, b.here_rows * row);
    at[3] = now_us();
    us[COPY] = slowest(at[3] - at[2]);
}

#ifdef MOE_PERF_CUDA
static double graph_us(cudaGraphExec_t graph)
{
    cudaEvent_t begin = NULL, end = NULL;
    cudaStream_t stream = (cudaStream_t)b.stream;
    float ms = 0;
    SOL(sol_barrier(b.host, NULL));
    check(cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess &&
              cudaGraphLaunch(graph, stream) == cudaSuccess &&
              cudaEventRecord(begin, stream) == cudaSuccess &&
              cudaGraphLaunch(graph, stream) == cudaSuccess &&
              cudaGraphLaunch(graph, stream) == cudaSuccess &&
              cudaEventRecord(end, stream) == cudaSuccess &&
              cudaStreamSynchronize(stream) == cudaSuccess &&
              cudaEventElapsedTime(&ms, begin, end) == cudaSuccess,
          "a graph");
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return ms * 1e3 / (2 * OPS);
}

static cudaGraphExec_t capture(size_t tokens, bool both)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec = NULL;
    cudaStream_t stream = (cudaStream_t)b.stream;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess,
          "a capture");
    for (int i = 0; i < OPS; i++) {
        dispatch(tokens);
        if (both)
            combine(tokens);
    }
    check(cudaStreamEndCapture(stream, &graph) == cudaSuccess &&
              cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess,
          "a capture");
    cudaGraphDestroy(graph);
    return exec;
}
#endif

static void measure(size_t tokens, sol_quant_t quant)
{
    float us[WHATS][SAMPLES], one[WHATS] = {0};
    const size_t row = quant ? b.hidden + (b.hidden + 127) / 128 * 4 : b.hidden * 2;
    fill(tokens);
    dispatch(tokens);
    combine(tokens);
    size_t bad = wrong(tokens);
#ifdef MOE_PERF_CUDA
    cudaGraphExec_t there = b.cuda ? capture(tokens, false) : NULL;
    cudaGraphExec_t both = b.cuda ? capture(tokens, true) : NULL;
#endif
    for (int s = 0; s < SAMPLES; s++) {
        if (!b.cuda)
            sample_cpu(tokens, row, one);
#ifdef MOE_PERF_CUDA
        if (b.cuda) {
            one[DISPATCH] = slowest(graph_us(there));
            one[COMBINE] = slowest(graph_us(both)) - one[DISPATCH];
        }
#endif
        for (int w = 0; w < WHATS; w++)
            us[w][s] = one[w];
    }
    for (int w = 0; w < WHATS; w++)
        qsort(us[w], SAMPLES, sizeof(float), ascending);
    for (int w = DISPATCH; w <= COMBINE && b.rank == 0; w++) {
        const size_t bytes = b.sent_rows * (w == DISPATCH ? row : b.hidden * 2);
        const double full = w == DISPATCH ? 1 : (double)(b.hidden * 2) / (double)row;
        const double bound = b.cuda ? kernel_us + hop_us + (double)bytes / (link_gbs * 1e3)
                                    : us[COPY][SAMPLES / 2] * full;
        printf("{\"op\": \"%s\", \"form\": \"%s\", \"mode\": \"%s\", \"ranks\": %d, "
               "\"tokens\": %zu, \"hidden\": %zu, \"top_k\": %d, \"experts\": %d, "
               "\"bytes\": %zu, \"us_p50\": %.2f, \"us_min\": %.2f, \"bound\": %.2f, "
               "\"wrong\": %zu}\n",
               names[w], quant ? "fp8" : "bf16", b.cuda ? "graph" : "cpu", b.nranks, tokens,
               b.hidden, b.top_k, b.experts, bytes, us[w][SAMPLES / 2], us[w][0], bound, bad);
    }
    fflush(stdout);
}

static int numbers(size_t *list, const char *text)
{
    int n = 0;
    for (char *end; n < LIST && *text; text = *end ? end + 1 : end)
        list[n++] = strtoul(text, &end, 10);
    return n;
}

static void run_rank(void)
{
    b.cuda = wanted.cuda, b.hidden = wanted.hidden;
    b.top_k = wanted.top_k, b.experts = wanted.experts;
    b.max_tokens = 128;
    for (int t = 0; t < wanted.ntokens; t++)
        b.max_tokens = wanted.tokens[t] > b.max_tokens ? wanted.tokens[t] : b.max_tokens;
    open_ranks();
    for (int form = 0; form < 2; form++) {
        make(form ? SOL_QUANT_GROUP : SOL_QUANT_NONE);
        for (int t = 0; t < wanted.ntokens; t++)
            measure(wanted.tokens[t], form ? SOL_QUANT_GROUP : SOL_QUANT_NONE);
        SOL(sol_moe_destroy(b.moe));
    }
    SOL(sol_barrier(b.host, NULL));
    if (b.cuda)
        SOL(sol_comm_destroy(b.comm));
    SOL(sol_comm_destroy(b.host));
}

static void *run_thread(void *rank)
{
    b.rank = *(int *)rank;
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
    wanted.ntokens = numbers(wanted.tokens, "1,16,128");
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--tokens") == 0)
            wanted.ntokens = numbers(wanted.tokens, value);
        else if (strcmp(argv[i], "--hidden") == 0)
            wanted.hidden = strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--top-k") == 0)
            wanted.top_k = atoi(value);
        else if (strcmp(argv[i], "--experts") == 0)
            wanted.experts = atoi(value);
        else if (strcmp(argv[i], "--backend") == 0)
            wanted.cuda = strcmp(value, "cuda") == 0;
        else if (strcmp(argv[i], "--threads") == 0)
            wanted.threads = atoi(value) < LIST ? atoi(value) : LIST;
        else if (strcmp(argv[i], "--kernel-us") == 0)
            kernel_us = atof(value);
        else if (strcmp(argv[i], "--hop-us") == 0)
            hop_us = atof(value);
        else if (strcmp(argv[i], "--link-gbs") == 0)
            link_gbs = atof(value);
    }
    if (wanted.threads > 0)
        run_threads();
    else
        run_rank();
    return 0;
}
