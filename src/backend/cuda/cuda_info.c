/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_info.c: what the GPU backend says of itself, of a call, and of the machine. */
#include "backend/cuda/cuda_state.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const struct sol_gpu_algorithm_info *algorithm_info(int id)
{
    for (int i = 0; i < sol_gpu_algorithm_count; i++) {
        if (sol_gpu_algorithms[i].id == id) {
            return &sol_gpu_algorithms[i];
        }
    }
    return NULL;
}

static bool exchanged(sol_func_t func)
{
    return func == SOL_FUNC_SEND || func == SOL_FUNC_RECV || func == SOL_FUNC_ALL_TO_ALL_V;
}

sol_status_t sol_cuda_explain(sol_comm_t comm, const sol_call_t *call, char *text, size_t bytes)
{
    struct sol_cuda *state = sol_cuda_of(comm);
    if (!state->p2p) {
        snprintf(text, bytes, "nccl: handed to NCCL, because %s", state->fallback);
        return SOL_OK;
    }
    if (sol_cuda_for_nccl(state, call)) {
        snprintf(text, bytes, "nccl: handed to NCCL, by SOLCCL_NCCL_ABOVE from %zu bytes on",
                 state->handover.above[call->func]);
        return SOL_OK;
    }
    struct sol_gpu_op op;
    const char *why;
    sol_cuda_make_op(state, call, &op, &why);
    sol_gpu_plan(&state->gpu, &op);
    if (exchanged(call->func)) {
        op.algorithm = SOL_GPU_LANES_ALGO;
    }
    const struct sol_gpu_algorithm_info *info = algorithm_info(op.algorithm);
    if (info == NULL) {
        return sol_comm_error(comm, SOL_ERR_INTERNAL, "%s: the plan chose protocol %d",
                              sol_func_name(call->func), op.algorithm);
    }
    if (exchanged(call->func)) {
        snprintf(text, bytes, "%s: %s", info->name, info->what);
    } else {
        snprintf(text, bytes, "%s: %d CTAs x %d threads x %d vectors%s, by %s (%s; best: %s)",
                 info->name, op.ctas, op.threads, op.vectors,
                 op.flags & SOL_GPU_PDL ? ", dependent launch" : "", why, info->what, info->best);
    }
    return SOL_OK;
}

void sol_cuda_query(sol_comm_t comm, sol_comm_info_t *info)
{
    const struct sol_cuda *state = sol_cuda_of(comm);
    info->device = state->device;
    info->shared_bytes = state->asleep ? 0 : state->staging.bytes + state->region_bytes;
    info->oversubscribed = 0;
}

void sol_cuda_runs_on(sol_comm_t comm, char *text, size_t bytes)
{
    const struct sol_cuda *state = sol_cuda_of(comm);
    snprintf(text, bytes, "GPU %d (%s)%s", state->device, state->gpu_name,
             state->p2p ? "" : ", handed to NCCL");
}

/* As its host has enqueued it: whether its kernel has run cannot be seen from here. */
bool sol_cuda_whereabouts(sol_comm_t comm, int rank, sol_whereabouts_t *at)
{
    const struct sol_cuda *state = sol_cuda_of(comm);
    memset(at, 0, sizeof *at);
    return sol_cuda_board_last(state->board, rank, &at->call, &at->collective);
}

void sol_cuda_waited(sol_comm_t comm, int rank, uint64_t *waits, uint64_t *ns)
{
    const struct sol_cuda *state = sol_cuda_of(comm);
    *waits = *ns = 0;
    if (state->p2p) { /* or NCCL's kernels wait, which say nothing */
        *waits = state->board->ranks[comm->rank].waited[rank].waits;
        *ns = state->board->ranks[comm->rank].waited[rank].ns;
    }
}

/* A kernel that waits tells so every SOL_WATCH_POLLS polls: who has been waited for a millisecond
 * later still is waited for. */
uint64_t sol_cuda_waiting(sol_comm_t comm, uint64_t *ns)
{
    const struct sol_cuda *state = sol_cuda_of(comm);
    const struct sol_cuda_board_rank *own = &state->board->ranks[comm->rank];
    const struct timespec pause = {0, 1000000};
    uint64_t before[SOL_GPU_MAX_RANKS], ranks = 0;
    *ns = 0;
    if (!state->p2p) {
        return 0;
    }
    if (own->error.fault == SOL_GPU_FAULT_TIMEOUT) {
        *ns = comm->timeout_ns;
        return own->error.awaited >= 0 ? UINT64_C(1) << own->error.awaited : 0;
    }
    for (int r = 0; r < comm->nranks; r++) {
        before[r] = own->waited[r].until;
    }
    nanosleep(&pause, NULL);
    for (int r = 0; r < comm->nranks; r++) {
        const uint64_t until = own->waited[r].until, since = own->waited[r].since;
        if (until != before[r]) {
            ranks |= UINT64_C(1) << r;
            *ns = until - since > *ns ? until - since : *ns;
        }
    }
    return ranks;
}

/* snprintf at the end of what is there. */
static void add(char *text, size_t bytes, const char *format, ...) SOL_PRINTF(3, 4);
static void add(char *text, size_t bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    if (used + 1 < bytes) {
        vsnprintf(text + used, bytes - used, format, args);
    }
    va_end(args);
}

static void add_device(const struct sol_cuda_driver *cu, int device, int count, char *text,
                       size_t bytes)
{
    struct cudaDeviceProp properties;
    char why[160];
    CUdevice handle;
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess ||
        cu->device_get(&handle, device) != CUDA_SUCCESS) {
        add(text, bytes, "gpu%d: cannot be asked\n", device);
        return;
    }
    add(text, bytes, "gpu%d: %s, sm_%d%d, %d multiprocessors, %zu MiB\n", device, properties.name,
        properties.major, properties.minor, properties.multiProcessorCount,
        properties.totalGlobalMem >> 20);
    enum sol_cuda_handle kind = sol_cuda_handle_of(cu, handle, why, sizeof why);
    add(text, bytes, "gpu%d symmetric memory: %s\n", device,
        kind == SOL_CUDA_HANDLE_NONE ? why : sol_cuda_handle_name(kind));
    for (int peer = 0; peer < count; peer++) {
        int can = 0, rank = 0;
        if (peer != device && cudaDeviceCanAccessPeer(&can, device, peer) == cudaSuccess) {
            cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, device, peer);
            add(text, bytes, "gpu%d to gpu%d: %s (performance rank %d)\n", device, peer,
                can ? "peer access" : "no peer access", rank);
        }
    }
}

/* Of a communicator with a rank on every GPU. */
static void add_handover(int count, char *text, size_t bytes)
{
    struct cudaDeviceProp properties;
    struct sol_cuda_handover handover;
    char what[512];
    if (count == 0 || cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
        return;
    }
    if (sol_cuda_handover_open(&handover, properties.name, count, what, sizeof what) == SOL_OK) {
        sol_cuda_handover_describe(&handover, what, sizeof what);
    }
    add(text, bytes, "nccl takes over, with %d ranks: %s\n", count, what);
}

void sol_cuda_info(char *text, size_t bytes)
{
    char why[256];
    int count = 0, driver = 0, runtime = 0;
    if (bytes == 0) {
        return;
    }
    text[0] = '\0';
    const struct sol_cuda_driver *cu = sol_cuda_driver(why, sizeof why);
    if (cu == NULL || cudaGetDeviceCount(&count) != cudaSuccess) {
        add(text, bytes, "cuda: %s\n", cu == NULL ? why : "no device");
        return;
    }
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    add(text, bytes, "cuda driver: %d.%d\ncuda runtime: %d.%d\n", driver / 1000, driver % 1000 / 10,
        runtime / 1000, runtime % 1000 / 10);
    for (int device = 0; device < count; device++) {
        add_device(cu, device, count, text, bytes);
    }
    for (int i = 0; i < sol_gpu_algorithm_count; i++) {
        add(text, bytes, "cuda protocol %s: %s; best: %s\n", sol_gpu_algorithms[i].name,
            sol_gpu_algorithms[i].what, sol_gpu_algorithms[i].best);
    }
    char version[160];
    bool found = sol_cuda_nccl_found(version, sizeof version);
    add(text, bytes, "nccl: %s%s\n", found ? "" : "not found: ", version);
    add_handover(count, text, bytes);
    cudaGetLastError();
}
