/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_bench.cu: kernels on the device API beside the same written on NCCL's own
 * (nccl_device.h, 2.28 and later), in one run on the same GPUs: graphs in turns,
 * every result checked.
 *
 *   solccl run -n 2 bench/nccl_bench            one JSON row a kernel and size
 *
 *   all_reduce      examples/device/all_reduce.cu; NCCL: its LL all-to-all session (what its own
 *                   kernels for small messages are made of), and LSA windows between two barriers
 *   persistent sum  many all_reduces of 16 bytes a thread in one kernel
 *   the examples    each of examples/device beside its twin in nccl_examples.cuh
 *
 * "lines" counts the device code, from the first line of its first function to the last brace; "us"
 * is the median of the slower rank's rounds: of one operation, of one iteration (cg_step), of one
 * panel. NVLink multicast is off on both sides. Each step says its name (stderr) and ends after 40
 * s. Built only where NCCL's headers are; no row yet (its one run printed into a pipe that it was
 * killed behind).
 */
#define DEVICE_BENCH_PARTS 1 /* without its main() */
#include "device_bench.cu"
#include "nccl_examples.cuh"

#include <signal.h>
#include <unistd.h>

#define GROUPS 256
#define EPOCHS 100

/* Four bf16 in a word. */
static __device__ uint64_t add_bf16(uint64_t a, uint64_t b)
{
    return (uint64_t)sol_sum_u32<SOL_BFLOAT16>((uint32_t)(a >> 32), (uint32_t)(b >> 32)) << 32 |
           sol_sum_u32<SOL_BFLOAT16>((uint32_t)a, (uint32_t)b);
}

/* ---- all_reduce by NCCL's LL all-to-all */
enum { ll_first = __LINE__ };
__global__ void nccl_ll(const __grid_constant__ ncclDevComm comm, ncclLLA2AHandle handle,
                        const uint64_t *x, uint64_t *y, unsigned words)
{
    const unsigned i = blockIdx.x * blockDim.x * 2 + threadIdx.x;
    ncclCoopCta cta;
    ncclLLA2ASession<ncclCoopCta> s(cta, comm, ncclTeamLsa(comm), handle, blockIdx.x,
                                    comm.lsaSize * 512);
    uint64_t own[2];
    for (int k = 0; k < 2; k++) {
        const unsigned at = i + k * blockDim.x;
        own[k] = at < words ? x[at] : 0;
        s.bcast((int)(comm.lsaRank * 512 + k * blockDim.x + threadIdx.x), own[k]);
    }
    for (int k = 0; k < 2; k++) {
        const int slot = k * blockDim.x + threadIdx.x;
        uint64_t sum = s.recv<uint64_t>(slot);
        for (int r = 1; r < comm.lsaSize; r++)
            sum = add_bf16(sum, s.recv<uint64_t>(r * 512 + slot));
        if (i + k * blockDim.x < words)
            y[i + k * blockDim.x] = sum;
    }
    s.endEpoch(cta);
}
enum { ll_lines = __LINE__ - ll_first - 1 };

/* ---- all_reduce by LSA windows */
enum { lsa_first = __LINE__ };
__global__ void nccl_lsa(const __grid_constant__ ncclDevComm comm, ncclWindow_t in, uint64_t *y,
                         unsigned words)
{
    ncclCoopCta cta;
    ncclLsaBarrierSession<ncclCoopCta> barrier(cta, comm, ncclTeamTagLsa(), blockIdx.x);
    barrier.sync(cta, cuda::memory_order_relaxed); /* (the input is of an earlier kernel) */
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < words;
         i += gridDim.x * blockDim.x) {
        uint64_t sum = ((const uint64_t *)ncclGetLsaPointer(in, 0, 0))[i];
        for (int r = 1; r < comm.lsaSize; r++)
            sum = add_bf16(sum, ((const uint64_t *)ncclGetLsaPointer(in, 0, r))[i]);
        y[i] = sum;
    }
    barrier.sync(cta, cuda::memory_order_release); /* before anybody writes the input again */
}
enum { lsa_lines = __LINE__ - lsa_first - 1 };

/* ---- many small sums in one kernel */
enum { many_first = __LINE__ };
__global__ void nccl_many(const __grid_constant__ ncclDevComm comm, ncclLLA2AHandle handle,
                          const uint64_t *x, uint64_t *y, int epochs)
{
    ncclCoopCta cta;
    ncclLLA2ASession<ncclCoopCta> s(cta, comm, ncclTeamLsa(comm), handle, blockIdx.x,
                                    comm.lsaSize * 512);
    for (int e = 0; e < epochs; e++) {
        for (int k = 0; k < 2; k++)
            s.bcast((int)(comm.lsaRank * 512 + 2 * threadIdx.x + k), x[2 * threadIdx.x + k]);
        for (int k = 0; k < 2; k++) {
            uint64_t sum = s.recv<uint64_t>(2 * threadIdx.x + k);
            for (int r = 1; r < comm.lsaSize; r++)
                sum = add_bf16(sum, s.recv<uint64_t>(r * 512 + 2 * threadIdx.x + k));
            y[2 * threadIdx.x + k] = sum;
        }
        s.endEpoch(cta);
    }
}
enum { many_lines = __LINE__ - many_first - 1 };

/* NCCL's waits have no end: a step that takes longer than this ends the program, by its name. */
#define STEP_SECONDS 40
static const char *volatile step_name;

static void step_expired(int)
{
    static const char says[] = "nccl_bench: no end within 40 s: ";
    (void)!write(2, says, sizeof says - 1);
    (void)!write(2, step_name, strlen(step_name));
    (void)!write(2, "\n", 1);
    _exit(3);
}

static void step(const char *name)
{
    step_name = name;
    signal(SIGALRM, step_expired);
    alarm(STEP_SECONDS);
    fprintf(stderr, "nccl_bench: %s\n", name);
}

struct peer {
    ncclComm_t comm;
    ncclDevComm dev;
    ncclLLA2AHandle ll;
    ncclWindow_t window;
    char *input; /* of MOST bytes, registered as `window` */
};

static bool good(ncclResult_t result, const char *what)
{
    if (result != ncclSuccess)
        printf("NCCL: %s: %s\n", what, ncclGetErrorString(result));
    return result == ncclSuccess;
}

static bool open_peer(struct peer *p, struct rig *rig, char *scratch, const char *x)
{
    ncclUniqueId id;
    ncclDevCommRequirements need = {};
    ncclDevResourceRequirements slots = {};
    step("NCCL: id");
    if (rig->rank == 0 && !good(ncclGetUniqueId(&id), "an id"))
        return false;
    cudaMemcpy(scratch, &id, sizeof id, cudaMemcpyHostToDevice);
    sol_broadcast(scratch, scratch, sizeof id, SOL_UINT8, 0, rig->comm, rig->stream);
    cudaStreamSynchronize(rig->stream);
    cudaMemcpy(&id, scratch, sizeof id, cudaMemcpyDeviceToHost);
    step("NCCL: communicator");
    if (!good(ncclCommInitRank(&p->comm, rig->n, id, rig->rank), "a communicator") ||
        !good(ncclMemAlloc((void **)&p->input, MOST), "memory"))
        return false;
    step("NCCL: window");
    if (!good(ncclCommWindowRegister(p->comm, p->input, MOST, &p->window, NCCL_WIN_COLL_SYMMETRIC),
              "a window"))
        return false;
    step("NCCL: device communicator");
    cudaMemcpy(p->input, x, MOST, cudaMemcpyDeviceToDevice);
    need.lsaBarrierCount = GROUPS;
    need.resourceRequirementsList = &slots;
    return good(ncclLLA2ACreateRequirement(GROUPS, ncclLLA2ACalcSlots(rig->n * 512, 8), &p->ll,
                                           &slots),
                "slots") &&
           good(ncclDevCommCreate(p->comm, &need, &p->dev), "a device communicator");
}

static void row(struct rig *rig, const char *what, const char *how, unsigned bytes, int lines,
                float us)
{
    if (rig->rank == 0)
        printf("{\"bench\": \"device-nccl\", \"what\": \"%s\", \"how\": \"%s\", \"bytes\": %u, "
               "\"lines\": %d, \"us\": %.3f}\n",
               what, how, bytes, lines, us);
}

/* Each graph once, its result looked at by `look`; then all timed in turns. Lines 0: the library's.
 */
template <class Look>
static void rows(struct rig *rig, const char *what, unsigned bytes, cudaGraphExec_t *exec,
                 const char *const *names, const int *lines, int graphs, int operations,
                 char *scratch, Look look)
{
    static float samples[4][ROUNDS];
    for (int g = 0; g < graphs; g++) {
        step(names[g]);
        cudaGraphLaunch(exec[g], rig->stream);
        cudaStreamSynchronize(rig->stream);
        look(names[g]);
    }
    step(what);
    for (int round = -5; round < ROUNDS; round++)
        for (int g = 0; g < graphs; g++) {
            float us = time_graph(rig, exec[g], operations);
            samples[g][round < 0 ? 0 : round] = us;
        }
    for (int g = 0; g < graphs; g++) {
        std::sort(samples[g], samples[g] + ROUNDS);
        row(rig, what, names[g], bytes, lines[g],
            reduce_over_ranks(rig, samples[g][ROUNDS / 2], scratch));
        cudaGraphExecDestroy(exec[g]);
    }
}

static void bench_sizes(struct rig *rig, struct peer *p, char *x, char *y, char *scratch)
{
    static const char *const names[] = {"library", "solccl device API", "NCCL LL", "NCCL LSA"};
    const int lines[] = {0, 19, ll_lines, lsa_lines};
    for (unsigned bytes = 256; bytes <= MOST; bytes *= 4) {
        const unsigned threads = threads_for(bytes),
                       ctas = (bytes + threads * 16 - 1) / threads / 16;
        cudaGraphExec_t exec[4];
        exec[0] = capture(rig, GRAPH, [&] {
            sol_all_reduce(x, y, bytes / 2, SOL_BFLOAT16, SOL_SUM, rig->comm, rig->stream);
        });
        exec[1] = capture(rig, GRAPH, [&] {
            sol_dev_launch_early(all_reduce<SOL_BFLOAT16, 2>, ctas, threads, rig->stream,
                                 rig->dev.channel[0], x, y, bytes);
        });
        exec[2] = capture(rig, GRAPH, [&] {
            nccl_ll<<<ctas, threads, 0, rig->stream>>>(p->dev, p->ll, (const uint64_t *)x,
                                                       (uint64_t *)y, bytes / 8);
        });
        exec[3] = capture(rig, GRAPH, [&] {
            nccl_lsa<<<ctas, threads, 0, rig->stream>>>(p->dev, p->window, (uint64_t *)y,
                                                        bytes / 8);
        });
        rows(rig, "all_reduce", bytes, exec, names, lines, 4, GRAPH, scratch,
             [&](const char *name) { check(rig, name, y, bytes); });
    }
}

static void bench_many(struct rig *rig, struct peer *p, char *x, char *y, char *scratch)
{
    static const char *const names[] = {"solccl device API, TAG", "NCCL LL"};
    const int lines[] = {18, many_lines};
    for (unsigned bytes = 512; bytes <= 4096; bytes *= 2) {
        cudaGraphExec_t exec[2];
        exec[0] = capture(rig, 1, [&] {
            sol_dev_launch(persistent<SOL_CHANNEL_TAG>, 1, bytes / 16, rig->stream,
                           rig->dev.channel[1], x, y, EPOCHS);
        });
        exec[1] = capture(rig, 1, [&] {
            nccl_many<<<1, bytes / 16, 0, rig->stream>>>(p->dev, p->ll, (const uint64_t *)x,
                                                         (uint64_t *)y, EPOCHS);
        });
        rows(rig, "sums in one kernel", bytes, exec, names, lines, 2, EPOCHS, scratch,
             [&](const char *name) { check(rig, name, y, bytes); });
    }
}

/* ---- the examples */

static const char *const both[] = {"solccl device API", "NCCL device API"};

/* Download `count` results, compare each, and clear them for the next kernel. */
template <class T, class Good>
static void look_at(struct rig *rig, const char *name, char *from, size_t count, Good good)
{
    T *host = (T *)malloc(count * sizeof(T));
    long wrong = 0;
    cudaMemcpy(host, from, count * sizeof(T), cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < count; i++)
        wrong += !good(i, host[i]);
    if (wrong)
        printf("rank %d: %s: %ld of %zu wrong\n", rig->rank, name, wrong, count);
    rig->wrong += wrong;
    cudaMemset(from, 0, count * sizeof(T));
    free(host);
}

static void bench_gelu(struct rig *rig, struct peer *p, char *scratch)
{
    enum { columns = 4096, most = 64 };
    const int lines[] = {24, gelu_lines};
    uint16_t *host = (uint16_t *)malloc(most * columns * 2);
    for (int i = 0; i < columns; i++)
        host[i] = rig_half((float)(i % 5) / 4);
    char *bias = rig_upload(rig, host, columns * 2);
    for (int i = 0; i < most * columns; i++)
        host[i] = rig_half((float)(i % 7 - 3 + rig->rank) / 8);
    char *x = rig_upload(rig, host, most * columns * 2),
         *y = rig_upload(rig, host, most * columns * 2);
    for (unsigned rows_of = 1; rows_of <= most; rows_of *= 8) {
        const unsigned bytes = rows_of * columns * 2, threads = threads_for(bytes),
                       ctas = bytes / (threads * 16), row = columns * 2;
        cudaGraphExec_t exec[2];
        exec[0] = capture(rig, GRAPH, [&] {
            sol_dev_launch_early(gelu_example::fused<2>, ctas, threads, rig->stream,
                                 rig->dev.channel[0], x, bias, y, bytes, row);
        });
        exec[1] = capture(rig, GRAPH, [&] {
            nccl_gelu<<<ctas, threads, 0, rig->stream>>>(p->dev, p->ll, x, bias, y, bytes, row);
        });
        rows(rig, "all_reduce_bias_gelu", bytes, exec, both, lines, 2, GRAPH, scratch,
             [&](const char *name) {
                 look_at<uint16_t>(rig, name, y, bytes / 2, [&](size_t i, uint16_t got) {
                     float z = (float)(rig->n * ((int)(i % 7) - 3) + rig->n * (rig->n - 1) / 2) / 8;
                     float wanted = gelu_example::gelu(z + (float)(i % columns % 5) / 4);
                     return fabsf(rig_float(got) - wanted) <= 0.004f * (1 + fabsf(wanted));
                 });
             });
    }
    free(host);
}

static void bench_matvec(struct rig *rig, struct peer *p, char *scratch)
{
    enum { ctas = 64, count = ctas * ROWS };
    const int lines[] = {42, matvec_lines}, columns = PIECE * rig->n;
    const size_t elements = (size_t)count * (size_t)columns;
    float *host = (float *)malloc(elements * 4), piece[PIECE];
    for (int i = 0; i < PIECE; i++)
        piece[i] = (float)((i + rig->rank * PIECE) % 9 - 4);
    for (size_t i = 0; i < elements; i++)
        host[i] = (float)((int)(i + (size_t)rig->rank) % 5 - 2);
    char *a = rig_upload(rig, host, elements * 4), *x = rig_upload(rig, piece, sizeof piece);
    char *y = rig_upload(rig, host, count * 4);
    cudaGraphExec_t exec[2];
    exec[0] = capture(rig, GRAPH, [&] {
        sol_dev_launch(matvec_example::matvec, ctas, ROWS * 32, rig->stream, rig->dev.channel[2],
                       (const float *)a, x, (float *)y);
    });
    exec[1] = capture(rig, GRAPH, [&] {
        nccl_matvec<<<ctas, ROWS * 32, 0, rig->stream>>>(p->dev, p->ll, (const float *)a, x,
                                                         (float *)y);
    });
    rows(rig, "all_gather_matvec", PIECE * 4, exec, both, lines, 2, GRAPH, scratch,
         [&](const char *name) {
             look_at<float>(rig, name, y, count, [&](size_t r, float got) {
                 float sum = 0; /* small integers: exact in any order */
                 for (int c = 0; c < columns; c++)
                     sum += host[r * (size_t)columns + (size_t)c] * (float)(c % 9 - 4);
                 return got == sum;
             });
         });
    free(host);
}

static void bench_cg(struct rig *rig, struct peer *p, char *scratch)
{
    enum { iterations = 64, solves = 10 }; /* after 64, CELLS / 2 * 2 ranks, it is exact */
    const int lines[] = {65, cg_lines};
    double host[CELLS];
    for (int i = 0; i < CELLS; i++)
        host[i] = (rig->rank == 0 && i == 0) || (rig->rank == rig->n - 1 && i == CELLS - 1);
    char *b = rig_upload(rig, host, sizeof host), *x = rig_upload(rig, host, sizeof host);
    cudaGraphExec_t exec[2];
    exec[0] = capture(rig, solves, [&] {
        sol_dev_launch(cg_example::solve, 1, CELLS, rig->stream, rig->dev.channel[3],
                       rig->dev.channel[4], (const double *)b, (double *)x, iterations);
    });
    exec[1] = capture(rig, solves, [&] {
        nccl_solve<<<1, CELLS, 0, rig->stream>>>(p->dev, p->ll, (const double *)b, (double *)x,
                                                 iterations);
    });
    rows(rig, "cg_step", 8, exec, both, lines, 2, solves * iterations, scratch,
         [&](const char *name) {
             look_at<double>(rig, name, x, CELLS,
                             [&](size_t, double got) { return fabs(got - 1) < 1e-9; });
         });
}

static void bench_shuffle(struct rig *rig, struct peer *p, char *scratch)
{
    enum { ctas = 2, threads = 128, times = 50 };
    const int lines[] = {42, shuffle_lines};
    int expert[TOKENS];
    uint32_t *token = (uint32_t *)malloc(TOKENS * WIDTH * 4);
    uint64_t zero[SOL_DEV_MAX_RANKS] = {0}, wanted = 0;
    for (int t = 0; t < TOKENS; t++)
        expert[t] = shuffle_example::expert_of(rig->rank, t, rig->n);
    for (int i = 0; i < TOKENS * WIDTH; i++)
        token[i] = (uint32_t)(rig->rank * 1000003 + i * 17);
    for (int r = 0; r < rig->n; r++)
        for (int i = 0; i < TOKENS * WIDTH; i++)
            if (shuffle_example::expert_of(r, i / WIDTH, rig->n) == rig->rank)
                wanted += (uint32_t)(r * 1000003 + i * 17);
    const int *e = (const int *)rig_upload(rig, expert, sizeof expert);
    const char *t = rig_upload(rig, token, TOKENS * WIDTH * 4);
    uint64_t *next = (uint64_t *)rig_upload(rig, zero, sizeof zero);
    char *out = rig_upload(rig, zero, 8);
    cudaGraphExec_t exec[2];
    exec[0] = capture(rig, times, [&] {
        sol_dev_launch(shuffle_example::send_tokens, ctas, threads, rig->stream, rig->dev, e, t,
                       next);
        sol_dev_launch(shuffle_example::tell_counts, 1, 32, rig->stream, rig->dev,
                       (const uint64_t *)next);
        sol_dev_launch(shuffle_example::run_expert, 1, threads, rig->stream, rig->dev,
                       (uint64_t *)out);
        sol_dev_launch(shuffle_again, 1, 32, rig->stream, rig->dev, next);
    });
    exec[1] = capture(rig, times, [&] {
        nccl_send_tokens<<<ctas, threads, 0, rig->stream>>>(p->dev, p->window, e, t, next);
        nccl_run_expert<<<1, threads, 0, rig->stream>>>(p->dev, p->window, next, (uint64_t *)out);
    });
    rows(rig, "shuffle", TOKENS * WIDTH * 4, exec, both, lines, 2, times, scratch,
         [&](const char *name) {
             look_at<uint64_t>(rig, name, out, 1,
                               [&](size_t, uint64_t got) { return got == wanted; });
         });
    free(token);
}

static void bench_panels(struct rig *rig, struct peer *p, char *scratch)
{
    enum { ctas = 32, words = ctas * TILE / 8, times = 20 };
    const int lines[] = {28, panel_lines};
    uint64_t *host = (uint64_t *)calloc((size_t)PANELS * words, 8);
    char *trailing = rig_upload(rig, host, words * 8);
    for (int k = 0; k < PANELS; k++)
        for (size_t i = 0; i < words; i++)
            host[(size_t)k * words + i] = panel_example::element(rig->rank, k, i);
    char *panels = rig_upload(rig, host, (size_t)PANELS * words * 8);
    cudaGraphExec_t exec[2];
    exec[0] = capture(rig, times, [&] {
        sol_dev_launch(panel_example::factor, ctas, 64, rig->stream, rig->dev.channel[5], panels,
                       trailing);
    });
    exec[1] = capture(rig, times, [&] {
        nccl_factor<<<ctas, 64, 0, rig->stream>>>(p->dev, p->window, panels, trailing);
    });
    rows(rig, "panel_broadcast", ctas * TILE, exec, both, lines, 2, times * PANELS, scratch,
         [&](const char *name) {
             look_at<uint64_t>(rig, name, trailing, words, [&](size_t i, uint64_t got) {
                 uint64_t sum = 0;
                 for (int k = 0; k < PANELS; k++)
                     sum += panel_example::element(k % rig->n, k, i);
                 return got == times * sum; /* it has been added up so often */
             });
         });
    free(host);
}

int main(void)
{
    struct rig rig;
    struct peer peer = {};
    sol_dev_config_t config = SOL_DEV_CONFIG_INIT;
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    setvbuf(stdout, NULL, _IOLBF, 0); /* rows are seen, whatever becomes of the next */
    step("start");
    config.channel[0] = {SOL_CHANNEL_WORD, GROUPS, 4096};
    config.channel[1] = {SOL_CHANNEL_TAG, 1, 4096};
    config.channel[2] = {SOL_CHANNEL_TAG, 64, PIECE * 4}; /* matvec */
    config.channel[3] = {SOL_CHANNEL_TAG, 1, 16};         /* cg_step */
    config.channel[4] = {SOL_CHANNEL_TAG, 1, 16};
    config.channel[5] = {SOL_CHANNEL_BULK, 32, TILE}; /* panels */
    config.counters = 4 + SOL_DEV_MAX_RANKS;          /* shuffle */
    config.barriers = 1;
    config.memory_bytes = SOL_DEV_MAX_RANKS * TOKENS * WIDTH * 4;
    if (!rig_open(&rig, &config))
        return 1;
    if (rig.n != 2)
        return printf("two ranks, please\n"), 1;
    uint16_t *host = (uint16_t *)malloc(MOST);
    for (unsigned i = 0; i < MOST / 2; i++)
        host[i] = rig.rank == 0 ? 0x3f80 : 0x4000; /* 1 and 2 */
    char *x = rig_upload(&rig, host, MOST), *y = rig_upload(&rig, host, MOST);
    char *scratch = rig_upload(&rig, host, 4096);
    if (!open_peer(&peer, &rig, scratch, x))
        return 1;
    bench_sizes(&rig, &peer, x, y, scratch);
    bench_many(&rig, &peer, x, y, scratch);
    bench_gelu(&rig, &peer, scratch);
    bench_matvec(&rig, &peer, scratch);
    bench_cg(&rig, &peer, scratch);
    bench_shuffle(&rig, &peer, scratch);
    bench_panels(&rig, &peer, scratch); /* (writes into the window where inputs were) */
    step("NCCL: end");
    ncclDevCommDestroy(peer.comm, &peer.dev);
    ncclCommWindowDeregister(peer.comm, peer.window);
    ncclMemFree(peer.input);
    ncclCommDestroy(peer.comm);
    rig_download(&rig, host, y, MOST);
    return rig_close(&rig);
}
