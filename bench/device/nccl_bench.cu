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
 *   persistent sum  many all_reduces of 16 bytes a thread in one kernel, as cg_step.cu has them
 *
 * "lines" counts the kernel's lines from its first to its last brace. NVLink multicast is off on
 * both sides. Built only where NCCL's headers are; not yet run on a GPU.
 */
#define DEVICE_BENCH_PARTS 1 /* without its main() */
#include "device_bench.cu"

#include <nccl.h>
#include <nccl_device.h>

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

struct peer {
    ncclComm_t comm;
    ncclDevComm dev;
    ncclLLA2AHandle ll;
    ncclWindow_t window;
    char *input; /* registered */
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
    if (rig->rank == 0 && !good(ncclGetUniqueId(&id), "an id"))
        return false;
    cudaMemcpy(scratch, &id, sizeof id, cudaMemcpyHostToDevice);
    sol_broadcast(scratch, scratch, sizeof id, SOL_UINT8, 0, rig->comm, rig->stream);
    cudaStreamSynchronize(rig->stream);
    cudaMemcpy(&id, scratch, sizeof id, cudaMemcpyDeviceToHost);
    if (!good(ncclCommInitRank(&p->comm, rig->n, id, rig->rank), "a communicator") ||
        !good(ncclMemAlloc((void **)&p->input, MOST), "memory") ||
        !good(ncclCommWindowRegister(p->comm, p->input, MOST, &p->window, NCCL_WIN_COLL_SYMMETRIC),
              "a window"))
        return false;
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

/* Checks each graph's result, then times them in turns; lines 0: the library's. */
static void rows(struct rig *rig, const char *what, unsigned bytes, cudaGraphExec_t *exec,
                 const char *const *names, const int *lines, int graphs, int operations, char *y,
                 char *scratch)
{
    static float samples[4][ROUNDS];
    for (int g = 0; g < graphs; g++) {
        cudaGraphLaunch(exec[g], rig->stream);
        cudaStreamSynchronize(rig->stream);
        check(rig, names[g], y, bytes);
    }
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
    const int lines[] = {0, 20, ll_lines, lsa_lines};
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
        rows(rig, "all_reduce", bytes, exec, names, lines, 4, GRAPH, y, scratch);
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
        rows(rig, "sums in one kernel", bytes, exec, names, lines, 2, EPOCHS, y, scratch);
    }
}

int main(void)
{
    struct rig rig;
    struct peer peer = {};
    sol_dev_config_t config = SOL_DEV_CONFIG_INIT;
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    config.channel[0] = {SOL_CHANNEL_WORD, GROUPS, 4096};
    config.channel[1] = {SOL_CHANNEL_TAG, 1, 4096};
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
    ncclDevCommDestroy(peer.comm, &peer.dev);
    ncclCommWindowDeregister(peer.comm, peer.window);
    ncclMemFree(peer.input);
    ncclCommDestroy(peer.comm);
    rig_download(&rig, host, y, MOST);
    return rig_close(&rig);
}
