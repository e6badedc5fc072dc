/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_open.c: how GPU ranks come together and part.
 *
 *   facts       everybody tells its GPU's UUID, what it can export, its plan
 *   board       shared host memory (cuda_board.h)
 *   staging     symmetric memory (cuda_symmetric.h)
 *   probe       does every write arrive (cuda_probe.h)
 *   start       kernels loaded, protocol state and staging initialised
 *   fallback    where staging or probe says that there is no path: NCCL, if
 *               every rank has it; otherwise an error with both reasons
 *
 * Every decision is a function of what all ranks have told each other, so all
 * take the same. Nothing is allocated after this: the first operation can be
 * inside a capture. Nothing here calls cudaMalloc or cudaFree, which wait for
 * all kernels of the device: another rank's, on the same GPU, may be waiting
 * for this very thread.
 */
#include "backend/cuda/cuda_state.h"
#include "device/kernels/linear_launch.h"
#include "device/kernels/moe_launch.h"
#include "device/kernels/norm_halves_launch.h"
#include "device/kernels/quantized_launch.h"
#include "device/kernels/transfer_launch.h"
#include "device/kernels/vocab_launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATE_BYTES 65536 /* of the protocol state, behind the staging in the same allocation */
#define AREA_BYTES (16u << 20) /* behind that, with multicast only: what the switch reduces */
_Static_assert(sizeof(struct sol_gpu_state) <= STATE_BYTES, "the state fits its place");

/* What a rank tells the others first. */
struct facts {
    unsigned char uuid[16];
    uint64_t plan;
    uint64_t staging_bytes;
    uint64_t nonce;
    uint64_t handover;
    int32_t handle; /* enum sol_cuda_handle; NONE: no symmetric memory */
    int32_t want_p2p;
    int32_t want_multicast;
    int32_t alone; /* ranks that share a GPU: as if each had one of its own */
    int32_t sms;
    uint32_t untrue; /* cuda_litmus.h */
    char why[96];    /* handle NONE: why */
};

sol_status_t sol_cuda_wait_stream(cudaStream_t stream, uint64_t timeout_ns, const char *what)
{
    uint64_t end = sol_now_ns() + timeout_ns;
    for (unsigned round = 0;; round++) {
        cudaError_t error = cudaStreamQuery(stream);
        if (error == cudaSuccess) {
            return SOL_OK;
        }
        if (error != cudaErrorNotReady) {
            return sol_thread_error(SOL_ERR_DEVICE, "%s: %s", what, cudaGetErrorString(error));
        }
        if (sol_now_ns() > end) {
            return sol_thread_error(SOL_ERR_TIMEOUT, "%s: the GPU was not done after %.1f s", what,
                                    (double)timeout_ns * 1e-9);
        }
        if (round > 1000) {
            struct timespec pause = {0, 50000};
            nanosleep(&pause, NULL);
        }
    }
}

static int algorithm_named(const char *name)
{
    for (int i = 0; i < sol_gpu_algorithm_count; i++) {
        if (strcmp(name, sol_gpu_algorithms[i].name) == 0) {
            return sol_gpu_algorithms[i].id;
        }
    }
    return 0;
}

static sol_status_t cuda_failed(const char *what, cudaError_t error)
{
    return sol_thread_error(SOL_ERR_DEVICE, "%s: %s", what, cudaGetErrorString(error));
}

/* ---------------------------------------------------------------------------- facts */

static sol_status_t read_switches(struct sol_cuda *state, struct facts *facts, long *pdl)
{
    char why[256];
    long mixing = 1, p2p = 1, alone = 0, spread = 0, vectors = 0;
    sol_status_t status = sol_env_int("SOLCCL_CUDA_P2P", 0, 1, &p2p, why, sizeof why);
    if (status == SOL_OK) {
        status = sol_env_int("SOLCCL_CUDA_PDL", 0, 1, pdl, why, sizeof why);
    }
    if (status == SOL_OK) {
        status = sol_env_int("SOLCCL_CUDA_ALONE", 0, 1, &alone, why, sizeof why);
    }
    if (status == SOL_OK) {
        status = sol_env_int("SOLCCL_GRAPH_MIXING", 0, 1, &mixing, why, sizeof why);
    }
    if (status == SOL_OK) {
        status = sol_cuda_handover_open(&state->handover, state->gpu_name, state->nranks, why,
                                        sizeof why);
    }
    if (status == SOL_OK) {
        status = sol_cuda_multicast_wanted(&facts->want_multicast, why, sizeof why);
    }
    if (status == SOL_OK) {
        status = sol_env_int("SOLCCL_CUDA_NORM_SPREAD", 0, 8, &spread, why, sizeof why);
    }
    if (status == SOL_OK) {
        status = sol_env_int("SOLCCL_CUDA_NORM_VECTORS", 0, 2, &vectors, why, sizeof why);
    }
    if (status == SOL_OK) {
        status = sol_env_size("SOLCCL_CUDA_NORM_TWO_SHOT", 0, SIZE_MAX, &state->norm_two_shot, why,
                              sizeof why);
    }
    /* powers of two */
    state->norm_spread = (spread & (spread - 1)) == 0 ? (int)spread : 0;
    state->norm_vectors = (vectors & (vectors - 1)) == 0 ? (int)vectors : 0;
    facts->want_p2p = (int32_t)p2p;
    facts->alone = (int32_t)alone;
    state->order.mixing = mixing != 0;
    return status == SOL_OK ? SOL_OK : sol_thread_error(status, "%s", why);
}

/* This rank's device: what it is and what it can. */
static sol_status_t read_device(sol_comm_t comm, struct sol_cuda *state, struct facts *facts)
{
    struct cudaDeviceProp properties;
    cudaError_t error = cudaGetDevice(&state->device);
    error = error != cudaSuccess ? error : cudaGetDeviceProperties(&properties, state->device);
    /* makes the primary context current, which the driver calls below need */
    error = error != cudaSuccess ? error : cudaSetDevice(state->device);
    if (error != cudaSuccess) {
        return cuda_failed("finding the current device", error);
    }
    CUuuid uuid;
    if (state->cu->device_get(&state->cu_device, state->device) != CUDA_SUCCESS ||
        state->cu->device_uuid(&uuid, state->cu_device) != CUDA_SUCCESS) {
        return sol_thread_error(SOL_ERR_DEVICE, "device %d has no UUID", state->device);
    }
    memcpy(facts->uuid, &uuid, sizeof facts->uuid);
    snprintf(state->gpu_name, sizeof state->gpu_name, "%.63s", properties.name);
    facts->sms = properties.multiProcessorCount;
    long pdl = properties.major >= 9;
    sol_status_t status = read_switches(state, facts, &pdl);
    if (status != SOL_OK) {
        return status;
    }
    state->flags = pdl && properties.major >= 9 ? SOL_GPU_PDL : 0;
    state->clusters = properties.major >= 9;
    status = sol_cuda_plan_open(&state->plan, state->gpu_name, comm->nranks, algorithm_named);
    if (status != SOL_OK) {
        return status;
    }
    facts->plan = sol_cuda_plan_digest(&state->plan);
    facts->staging_bytes = comm->staging_bytes;
    facts->nonce = sol_now_ns() ^ (uint64_t)getpid() << 32;
    facts->handover = sol_cuda_handover_digest(&state->handover);
    facts->untrue = sol_cuda_litmus_read(facts->uuid);
    facts->handle =
        (int32_t)sol_cuda_handle_of(state->cu, state->cu_device, facts->why, sizeof facts->why);
    return SOL_OK;
}

static int ranks_beside(const struct facts *all, int nranks, int rank)
{
    int count = 0;
    for (int r = 0; r < nranks; r++) {
        count += memcmp(all[r].uuid, all[rank].uuid, sizeof all[r].uuid) == 0;
    }
    return count;
}

/* CTAs that every rank can have resident while those it shares its GPU with have as many. */
static int common_ctas(const struct facts *all, int nranks)
{
    int least = SOL_GPU_MAX_CTAS;
    for (int r = 0; r < nranks; r++) {
        int here = all[r].sms * SOL_GPU_CTAS_PER_SM / ranks_beside(all, nranks, r);
        least = here < least ? here : least;
    }
    return least;
}

/* What follows from everybody's facts. state->fallback[0] is set where p2p is out already. */
static sol_status_t weigh(sol_comm_t comm, struct sol_cuda *state, const struct facts *all)
{
    const struct facts *mine = &all[comm->rank];
    state->nonce = all[0].nonce;
    state->handle = (enum sol_cuda_handle)mine->handle;
    state->ranks_here = ranks_beside(all, comm->nranks, comm->rank);
    state->gpu.max_ctas = common_ctas(all, comm->nranks);
    state->gpu.ranks_here = 1;
    for (int r = 0; r < comm->nranks; r++) {
        int beside = ranks_beside(all, comm->nranks, r);
        state->gpu.ranks_here = beside > state->gpu.ranks_here ? beside : state->gpu.ranks_here;
    }
    if (all[0].alone) { /* for measurements: what its kernels would do on a GPU of their own */
        state->ranks_here = state->gpu.ranks_here = 1;
    }
    char *why = state->fallback;
    size_t bytes = sizeof state->fallback;
    if (comm->nranks > SOL_GPU_MAX_RANKS) {
        snprintf(why, bytes, "%d ranks are more than the kernels' %d", comm->nranks,
                 SOL_GPU_MAX_RANKS);
    }
    for (int r = 0; r < comm->nranks; r++) {
        if (all[r].plan != all[0].plan || all[r].handover != all[0].handover ||
            all[r].want_multicast != all[0].want_multicast || all[r].alone != all[0].alone) {
            return sol_thread_error(SOL_ERR_MISMATCH,
                                    "ranks 0 and %d differ in SOLCCL_TUNING_FILE, SOLCCL_CUDA_* "
                                    "or SOLCCL_NCCL_ABOVE, which must be equal everywhere",
                                    r);
        }
        if (why[0] != '\0') {
            continue;
        }
        if (all[r].handle == SOL_CUDA_HANDLE_NONE) {
            snprintf(why, bytes, "rank %d: %.95s", r, all[r].why);
        } else if (all[r].handle != all[0].handle) {
            snprintf(why, bytes, "ranks 0 and %d export memory in different ways", r);
        } else if (!all[r].want_p2p) {
            snprintf(why, bytes, "SOLCCL_CUDA_P2P=0 on rank %d", r);
        }
    }
    state->want_multicast = mine->want_multicast;
    for (int r = 0; r < comm->nranks; r++) {
        state->untrue |= all[r].untrue;
    }
    if (state->ranks_here > 1) {
        /* a kernel set up early holds multiprocessors that another rank's may be waiting for */
        state->flags = 0;
    }
    return SOL_OK;
}

static sol_status_t gather_facts(sol_comm_t comm, struct sol_cuda *state, uint64_t *staging_bytes)
{
    struct facts mine;
    memset(&mine, 0, sizeof mine);
    sol_status_t status = read_device(comm, state, &mine);
    if (status != SOL_OK) {
        return status;
    }
    struct facts *all = sol_calloc((size_t)comm->nranks, sizeof *all);
    if (all == NULL) {
        return sol_thread_error(SOL_ERR_MEMORY, "no memory for the ranks' facts");
    }
    status = sol_boot_all_gather(comm->boot, &mine, sizeof mine, all);
    if (status == SOL_OK) {
        status = weigh(comm, state, all);
        for (int r = 0; r < comm->nranks; r++) { /* the largest wish: a layout must be equal */
            *staging_bytes =
                all[r].staging_bytes > *staging_bytes ? all[r].staging_bytes : *staging_bytes;
        }
    }
    sol_free(all);
    return status;
}

/* ------------------------------------------------------------------- parts, in order */

static sol_status_t open_board(sol_comm_t comm, struct sol_cuda *state)
{
    sol_status_t status =
        sol_cuda_host_memory_open(&state->board_memory, state->cu, comm->boot, state->cu_device,
                                  comm->rank, comm->nranks, sol_cuda_board_bytes(comm->nranks));
    state->board = state->board_memory.host;
    return status;
}

/* Staging and all that the kernels need to know. */
static sol_status_t open_staging(sol_comm_t comm, struct sol_cuda *state, uint64_t staging_bytes)
{
    struct sol_gpu_comm *gpu = &state->gpu;
    gpu->layout = sol_gpu_layout_of(comm->nranks, staging_bytes);
    size_t state_at = sol_round_up(gpu->layout.total, 4096);
    struct sol_cuda_symmetric_config config = {.cu = state->cu,
                                               .boot = comm->boot,
                                               .device = state->cu_device,
                                               .handle = state->handle,
                                               .rank = comm->rank,
                                               .nranks = comm->nranks,
                                               .bytes = state_at + STATE_BYTES +
                                                        (state->want_multicast ? AREA_BYTES : 0)};
    sol_status_t status = sol_cuda_symmetric_open(&state->staging, &config);
    if (status != SOL_OK) {
        return status;
    }
    memcpy(gpu->staging, state->staging.base, sizeof gpu->staging);
    gpu->area = state_at + STATE_BYTES; /* used once there is a multicast address */
    gpu->state = (struct sol_gpu_state *)(void *)(state->staging.base[comm->rank] + state_at);
    char *own = (char *)state->board_memory.device + offsetof(struct sol_cuda_board, ranks) +
                (size_t)comm->rank * sizeof(struct sol_cuda_board_rank);
    gpu->error = (void *)(own + offsetof(struct sol_cuda_board_rank, error));
    gpu->abort_word = (volatile uint32_t *)state->board_memory.device; /* its first member */
    gpu->waits = &gpu->state->waits;
    gpu->told = (void *)(own + offsetof(struct sol_cuda_board_rank, waited));
    gpu->timeout_ns = comm->timeout_ns;
    gpu->rank = comm->rank;
    gpu->nranks = comm->nranks;
    return SOL_OK;
}

/* Only where SOLCCL_CUDA_MULTICAST asks for it, and then on all ranks or on none. */
sol_status_t sol_cuda_open_multicast(sol_comm_t comm, struct sol_cuda *state)
{
    char why[160];
    struct sol_cuda_symmetric_config config = {.cu = state->cu,
                                               .boot = comm->boot,
                                               .device = state->cu_device,
                                               .handle = state->handle,
                                               .rank = comm->rank,
                                               .nranks = comm->nranks};
    if (!state->want_multicast) {
        return SOL_OK;
    }
    if (state->gpu.ranks_here > 1) {
        snprintf(why, sizeof why, "several ranks are on one GPU");
    } else {
        sol_status_t status = sol_cuda_multicast_open(&state->multicast, &config, &state->staging,
                                                      1, sol_cuda_multicast_calls, why, sizeof why);
        if (status != SOL_OK) {
            return status;
        }
    }
    state->gpu.multicast = state->multicast.base;
    state->gpu.area_bytes = state->multicast.bytes >= state->gpu.area + AREA_BYTES ? AREA_BYTES : 0;
    if (state->multicast.base == NULL && comm->rank == 0) {
        sol_log(SOL_LOG_WARN, "%s: SOLCCL_CUDA_MULTICAST is set, but %s", comm->name, why);
    }
    return SOL_OK;
}

sol_status_t sol_cuda_start(sol_comm_t comm, struct sol_cuda *state, cudaStream_t stream)
{
    cudaError_t error = sol_gpu_preload();
    error = error != cudaSuccess ? error : sol_gpu_norm_preload();
    error = error != cudaSuccess ? error : sol_gpu_linear_preload();
    error = error != cudaSuccess ? error : sol_gpu_norm_two_preload();
    error = error != cudaSuccess ? error : sol_gpu_norm_halves_preload();
    error = error != cudaSuccess ? error : sol_gpu_moe_preload();
    error = error != cudaSuccess ? error : sol_gpu_vocab_preload();
    error = error != cudaSuccess ? error : sol_gpu_transfer_preload();
    error = error != cudaSuccess ? error : sol_gpu_quantized_preload();
    if (error == cudaSuccess && state->gpu.multicast != NULL) {
        error = sol_gpu_preload_multicast();
    }
    if (error != cudaSuccess) {
        return cuda_failed("loading the kernels", error);
    }
    error = sol_gpu_init(&state->gpu, comm->debug_epoch, stream);
    /* the event that every graph waits for has then been recorded at least once */
    error = error != cudaSuccess ? error : cudaEventRecord(state->order.last, stream);
    if (error != cudaSuccess) {
        return cuda_failed("initialising the staging memory", error);
    }
    return sol_cuda_wait_stream(stream, comm->timeout_ns, "initialising the staging memory");
}

/* Symmetric memory, tested paths, kernels ready; UNSUPPORTED (on all ranks) if there is no path. */
static sol_status_t open_p2p(sol_comm_t comm, struct sol_cuda *state, uint64_t staging_bytes)
{
    cudaStream_t stream = NULL;
    sol_status_t status = open_staging(comm, state, staging_bytes);
    if (status != SOL_OK) {
        return status;
    }
    cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) {
        return sol_boot_break(comm->boot, cuda_failed("making a stream", error));
    }
    status = sol_cuda_probe_paths(comm, state, stream);
    status = status == SOL_OK ? sol_cuda_open_multicast(comm, state) : status;
    if (status == SOL_OK) {
        /* a failure from here on is no UNSUPPORTED: core breaks the boot for the others */
        status = sol_cuda_start(comm, state, stream);
        state->p2p = status == SOL_OK;
    }
    cudaStreamDestroy(stream);
    return status;
}

static sol_status_t open_fallback(sol_comm_t comm, struct sol_cuda *state)
{
    char why[SOL_CUDA_STORY];
    if (comm->alone) {
        sol_cuda_handover_none(&state->handover);
        return state->p2p ? SOL_OK
                          : sol_thread_error(SOL_ERR_UNSUPPORTED,
                                             "the GPUs cannot reach each other's memory (%s)",
                                             state->fallback);
    }
    sol_status_t status = sol_cuda_nccl_open(&state->nccl, comm->boot, comm->rank, comm->nranks);
    if (status != SOL_OK && !state->p2p) {
        snprintf(why, sizeof why, "%s", sol_thread_error_text());
        return sol_thread_error(SOL_ERR_UNSUPPORTED,
                                "the GPUs cannot reach each other's memory (%s), and NCCL cannot "
                                "help out (%s)",
                                state->fallback, why);
    }
    if (status == SOL_ERR_UNSUPPORTED) { /* only wanted for large sizes: do without, everywhere */
        sol_log(SOL_LOG_WARN, "SOLCCL_NCCL_ABOVE is set, but %s", sol_thread_error_text());
        sol_cuda_handover_none(&state->handover);
        return SOL_OK;
    }
    if (status == SOL_OK && !state->p2p && comm->rank == 0) {
        sol_log(SOL_LOG_WARN, "%s: all operations go through NCCL: %s", comm->name,
                state->fallback);
    }
    return status;
}

static sol_status_t open_parts(sol_comm_t comm, struct sol_cuda *state)
{
    uint64_t staging_bytes = 0;
    sol_status_t status = gather_facts(comm, state, &staging_bytes);
    if (status != SOL_OK) {
        return status;
    }
    cudaError_t error = sol_cuda_order_open(&state->order, state->order.mixing);
    if (error != cudaSuccess) {
        return cuda_failed("making events", error);
    }
    sol_cuda_buffers_open(&state->buffers, state->cu, state->device);
    status = open_board(comm, state);
    if (status == SOL_OK && state->fallback[0] == '\0') {
        status = open_p2p(comm, state, staging_bytes);
        if (status == SOL_ERR_UNSUPPORTED) {
            snprintf(state->fallback, sizeof state->fallback, "%.250s", sol_thread_error_text());
            sol_cuda_multicast_close(state->cu, &state->multicast);
            sol_cuda_symmetric_close(state->cu, &state->staging);
            status = SOL_OK;
        }
    }
    if (status == SOL_OK && (!state->p2p || state->handover.any)) {
        status = open_fallback(comm, state);
    }
    return status;
}

/* --------------------------------------------------------------------- open and close */

/* Wait for this rank's own work, as long as a kernel may take at most. */
bool sol_cuda_device_is_done(sol_comm_t comm, const struct sol_cuda *state)
{
    uint64_t end = sol_now_ns() + comm->timeout_ns + 2000000000u;
    cudaError_t error = cudaEventQuery(state->order.last);
    while (error == cudaErrorNotReady && sol_now_ns() < end) {
        struct timespec pause = {0, 20000};
        nanosleep(&pause, NULL);
        error = cudaEventQuery(state->order.last);
    }
    return error != cudaErrorNotReady;
}

static void free_parts(sol_comm_t comm, struct sol_cuda *state)
{
    sol_cuda_nccl_close(state->nccl, atomic_load(&comm->failed) == 0);
    if (state->order.last != NULL && !sol_cuda_device_is_done(comm, state)) {
        /* a running kernel still uses all of it: losing memory is better than a fault */
        sol_log(SOL_LOG_ERROR, "%s: the GPU is still busy at destroy; its memory is not freed",
                comm->name);
        return;
    }
    sol_cuda_mem_free_all(comm);
    sol_cuda_order_close(&state->order);
    sol_cuda_multicast_close(state->cu, &state->multicast);
    sol_cuda_symmetric_close(state->cu, &state->staging);
    sol_cuda_host_memory_close(state->cu, &state->board_memory);
    sol_cuda_plan_close(&state->plan);
    sol_free(state);
}

sol_status_t sol_cuda_open(sol_comm_t comm)
{
    char why[256];
    const struct sol_cuda_driver *cu = sol_cuda_driver(why, sizeof why);
    if (cu == NULL) {
        return sol_thread_error(SOL_ERR_UNSUPPORTED, "%s", why);
    }
    struct sol_cuda *state = sol_calloc(1, sizeof *state);
    if (state == NULL) {
        return sol_thread_error(SOL_ERR_MEMORY, "no memory for a GPU rank");
    }
    state->cu = cu;
    state->rank = comm->rank;
    state->nranks = comm->nranks;
    state->check = comm->check;
    comm->state = state;
    /* some thread may be capturing in global mode, which forbids others what we do here */
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    sol_status_t status = open_parts(comm, state);
    if (status != SOL_OK) {
        snprintf(why, sizeof why, "%s", sol_thread_error_text());
        free_parts(comm, state);
        comm->state = NULL;
        sol_thread_error(status, "%s", why);
    }
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaGetLastError(); /* a question that was answered with no leaves no error behind */
    return status;
}

void sol_cuda_close(sol_comm_t comm)
{
    struct sol_cuda *state = sol_cuda_of(comm);
    struct sol_cuda_device_scope scope;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    sol_cuda_enter(state->device, &scope);
    sol_cuda_board_leave(state->board, comm->rank);
    free_parts(comm, state);
    comm->state = NULL;
    sol_cuda_leave(&scope);
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaGetLastError();
}
