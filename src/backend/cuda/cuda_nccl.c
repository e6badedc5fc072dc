/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_nccl.c: NCCL's stable C interface, as far as it is used here, declared
 * by its ABI (enums are ints, handles pointers, ids 128 bytes by value), so
 * that no header of NCCL is needed to build.
 */
#include "backend/cuda/cuda_nccl.h"

#include "backend/cuda/cuda_state.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPREAD_TIMEOUT_NS 30000000000u

typedef struct {
    char bytes[128];
} nccl_id;

enum { NCCL_OK = 0, NCCL_IN_PROGRESS = 7, NCCL_SCALAR_DEVICE = 0, NCCL_SCALAR_HOST = 1 };

static struct {
    int (*get_version)(int *version);
    const char *(*error_string)(int result);
    int (*get_id)(nccl_id *id);
    int (*init_rank)(void **comm, int nranks, nccl_id id, int rank);
    int (*destroy)(void *comm);
    int (*abort)(void *comm);
    int (*async_error)(void *comm, int *result);
    int (*count)(void *comm, int *count);
    int (*user_rank)(void *comm, int *rank);
    int (*premul_create)(int *op, void *scalar, int dtype, int residence, void *comm);
    int (*redop_destroy)(int op, void *comm);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*all_reduce)(const void *, void *, size_t, int, int, void *, cudaStream_t);
    int (*reduce_scatter)(const void *, void *, size_t, int, int, void *, cudaStream_t);
    int (*all_gather)(const void *, void *, size_t, int, void *, cudaStream_t);
    int (*broadcast)(const void *, void *, size_t, int, int, void *, cudaStream_t);
    int (*reduce)(const void *, void *, size_t, int, int, int, void *, cudaStream_t);
    int (*send)(const void *, size_t, int, int, void *, cudaStream_t);
    int (*recv)(void *, size_t, int, int, void *, cudaStream_t);
} api;

static bool found;
static char reason[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

struct sol_cuda_nccl {
    void *comm;
    int rank, nranks;
    void *scratch; /* 4 device bytes for barriers */
    _Atomic int aborted;
};

static const struct {
    const char *name;
    void *slot;
} entries[] = {
    {"ncclGetVersion", &api.get_version},
    {"ncclGetErrorString", &api.error_string},
    {"ncclGetUniqueId", &api.get_id},
    {"ncclCommInitRank", &api.init_rank},
    {"ncclCommDestroy", &api.destroy},
    {"ncclCommAbort", &api.abort},
    {"ncclCommGetAsyncError", &api.async_error},
    {"ncclCommCount", &api.count},
    {"ncclCommUserRank", &api.user_rank},
    {"ncclRedOpCreatePreMulSum", &api.premul_create},
    {"ncclRedOpDestroy", &api.redop_destroy},
    {"ncclGroupStart", &api.group_start},
    {"ncclGroupEnd", &api.group_end},
    {"ncclAllReduce", &api.all_reduce},
    {"ncclReduceScatter", &api.reduce_scatter},
    {"ncclAllGather", &api.all_gather},
    {"ncclBroadcast", &api.broadcast},
    {"ncclReduce", &api.reduce},
    {"ncclSend", &api.send},
    {"ncclRecv", &api.recv},
};

static void load(void)
{
    char resolved[SOL_PATH_BYTES];
    const char *path = sol_env_path("SOLCCL_NCCL_LIB");
    bool named = path != NULL;
    if (named && !sol_path_trusted(path, resolved, reason, sizeof reason)) {
        return;
    }
    /* the one that the process uses already is the one whose communicators we may be given */
    void *library = named ? dlopen(resolved, RTLD_NOW | RTLD_LOCAL)
                          : dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == NULL && !named) {
        library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL) {
        snprintf(reason, sizeof reason, "no NCCL: %.200s", dlerror());
        return;
    }
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        void *symbol = dlsym(library, entries[i].name);
        if (symbol == NULL) {
            snprintf(reason, sizeof reason, "NCCL is too old: it has no %s", entries[i].name);
            return;
        }
        memcpy(entries[i].slot, &symbol, sizeof symbol);
    }
    found = true;
}

bool sol_cuda_nccl_found(char *version, size_t bytes)
{
    pthread_once(&once, load);
    int number = 0;
    if (!found || api.get_version(&number) != NCCL_OK) {
        snprintf(version, bytes, "%s", found ? "NCCL does not tell its version" : reason);
        return false;
    }
    snprintf(version, bytes, "%d.%d.%d", number / 10000, number / 100 % 100, number % 100);
    return true;
}

static sol_status_t failed(const char *what, int result)
{
    return sol_thread_error(SOL_ERR_DEVICE, "NCCL: %s: %s", what, api.error_string(result));
}

struct invitation {
    int32_t found;
    int32_t result;
    nccl_id id;
};

sol_status_t sol_cuda_nccl_open(struct sol_cuda_nccl **nccl, sol_boot_t *boot, int rank, int nranks)
{
    char version[160];
    struct invitation mine, all[SOL_MAX_RANKS];
    memset(&mine, 0, sizeof mine);
    mine.found = sol_cuda_nccl_found(version, sizeof version);
    if (mine.found && rank == 0) {
        mine.result = api.get_id(&mine.id);
    }
    sol_status_t status = sol_boot_all_gather(boot, &mine, sizeof mine, all);
    if (status != SOL_OK) {
        return status;
    }
    for (int r = 0; r < nranks; r++) {
        if (!all[r].found) {
            return sol_thread_error(SOL_ERR_UNSUPPORTED, "rank %d has no NCCL to fall back on%s%s",
                                    r, r == rank ? ": " : "", r == rank ? version : "");
        }
    }
    if (all[0].result != NCCL_OK) {
        return failed("ncclGetUniqueId on rank 0", all[0].result);
    }
    struct sol_cuda_nccl *made = sol_calloc(1, sizeof *made);
    if (made == NULL || cudaMalloc(&made->scratch, 256) != cudaSuccess) {
        sol_free(made);
        return sol_boot_break(boot, sol_thread_error(SOL_ERR_MEMORY, "no memory for NCCL"));
    }
    made->rank = rank;
    made->nranks = nranks;
    int result = api.init_rank(&made->comm, nranks, all[0].id, rank);
    if (result != NCCL_OK) {
        cudaFree(made->scratch);
        sol_free(made);
        return failed("ncclCommInitRank", result);
    }
    *nccl = made;
    return SOL_OK;
}

void sol_cuda_nccl_abort(struct sol_cuda_nccl *nccl)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&nccl->aborted, &none, 1)) {
        api.abort(nccl->comm);
    }
}

void sol_cuda_nccl_close(struct sol_cuda_nccl *nccl, bool healthy)
{
    if (nccl == NULL) {
        return;
    }
    if (!healthy) {
        sol_cuda_nccl_abort(nccl);
    } else if (!atomic_load(&nccl->aborted)) {
        api.destroy(nccl->comm);
    }
    cudaFree(nccl->scratch);
    sol_free(nccl);
}

bool sol_cuda_nccl_healthy(struct sol_cuda_nccl *nccl, char *text, size_t bytes)
{
    int state = NCCL_OK;
    if (atomic_load(&nccl->aborted)) {
        snprintf(text, bytes, "NCCL's part was aborted");
        return false;
    }
    int result = api.async_error(nccl->comm, &state);
    int error = result != NCCL_OK ? result : state;
    if (error == NCCL_OK || error == NCCL_IN_PROGRESS) {
        return true;
    }
    snprintf(text, bytes, "NCCL: %s", api.error_string(error));
    return false;
}

static int nccl_dtype(sol_dtype_t dtype)
{
    static const int map[SOL_DTYPE_COUNT] = {
        [SOL_INT8] = 0,    [SOL_UINT8] = 1,    [SOL_INT32] = 2,        [SOL_UINT32] = 3,
        [SOL_INT64] = 4,   [SOL_UINT64] = 5,   [SOL_FLOAT16] = 6,      [SOL_FLOAT32] = 7,
        [SOL_FLOAT64] = 8, [SOL_BFLOAT16] = 9, [SOL_FLOAT8_E4M3] = 10, [SOL_FLOAT8_E5M2] = 11,
    };
    return map[dtype];
}

static int nccl_op(sol_redop_t op)
{
    static const int map[SOL_REDOP_COUNT] = {
        [SOL_SUM] = 0, [SOL_PROD] = 1, [SOL_MAX] = 2, [SOL_MIN] = 3, [SOL_AVG] = 4};
    return map[op];
}

static int reduce_call(struct sol_cuda_nccl *nccl, const sol_call_t *call, int op)
{
    int type = nccl_dtype(call->dtype);
    cudaStream_t stream = (cudaStream_t)call->stream;
    switch (call->func) {
    case SOL_FUNC_ALL_REDUCE:
        return api.all_reduce(call->send, call->recv, call->count, type, op, nccl->comm, stream);
    case SOL_FUNC_REDUCE_SCATTER:
        return api.reduce_scatter(call->send, call->recv, call->count, type, op, nccl->comm,
                                  stream);
    default:
        return api.reduce(call->send, call->recv, call->count, type, op, call->root, nccl->comm,
                          stream);
    }
}

static int reduction(struct sol_cuda_nccl *nccl, const sol_call_t *call)
{
    const sol_reduction_t *with = &call->reduction;
    if (!with->premul) {
        return reduce_call(nccl, call, nccl_op(with->op));
    }
    int op = 0;
    unsigned char immediate[8];
    memcpy(immediate, with->scalar.immediate, sizeof immediate);
    void *scalar = with->scalar_on_device ? (void *)(uintptr_t)with->scalar.device : immediate;
    int result = api.premul_create(&op, scalar, nccl_dtype(call->dtype),
                                   with->scalar_on_device ? NCCL_SCALAR_DEVICE : NCCL_SCALAR_HOST,
                                   nccl->comm);
    if (result == NCCL_OK) {
        result = reduce_call(nccl, call, op);
        api.redop_destroy(op, nccl->comm); /* NCCL keeps what is enqueued */
    }
    return result;
}

/* A piece of `count` elements at element `at` to and from `peer`; 0 elements move nothing. */
static int send_piece(struct sol_cuda_nccl *nccl, const sol_call_t *call, size_t at, size_t count,
                      int peer)
{
    const char *from = (const char *)call->send + at * sol_dtype_size(call->dtype);
    return count == 0 ? NCCL_OK
                      : api.send(from, count, nccl_dtype(call->dtype), peer, nccl->comm,
                                 (cudaStream_t)call->stream);
}

static int recv_piece(struct sol_cuda_nccl *nccl, const sol_call_t *call, size_t at, size_t count,
                      int peer)
{
    char *to = (char *)call->recv + at * sol_dtype_size(call->dtype);
    return count == 0 ? NCCL_OK
                      : api.recv(to, count, nccl_dtype(call->dtype), peer, nccl->comm,
                                 (cudaStream_t)call->stream);
}

/* gather, scatter, all_to_all(_v) as one group of sends and receives. */
static int pieces(struct sol_cuda_nccl *nccl, const sol_call_t *call)
{
    bool root = call->root == nccl->rank;
    size_t n = call->count;
    int result = api.group_start();
    for (int p = 0; p < nccl->nranks && result == NCCL_OK; p++) {
        size_t block = (size_t)p * n;
        switch (call->func) {
        case SOL_FUNC_GATHER:
            result = root ? recv_piece(nccl, call, block, n, p) : NCCL_OK;
            break;
        case SOL_FUNC_SCATTER:
            result = root ? send_piece(nccl, call, block, n, p) : NCCL_OK;
            break;
        case SOL_FUNC_ALL_TO_ALL_V:
            result = send_piece(nccl, call, call->senddispls[p], call->sendcounts[p], p);
            result = result != NCCL_OK
                         ? result
                         : recv_piece(nccl, call, call->recvdispls[p], call->recvcounts[p], p);
            break;
        default:
            result = send_piece(nccl, call, block, n, p);
            result = result != NCCL_OK ? result : recv_piece(nccl, call, block, n, p);
            break;
        }
    }
    if (result == NCCL_OK && call->func == SOL_FUNC_GATHER) {
        result = send_piece(nccl, call, 0, n, call->root);
    } else if (result == NCCL_OK && call->func == SOL_FUNC_SCATTER) {
        result = recv_piece(nccl, call, 0, n, call->root);
    }
    int ended = api.group_end();
    return result != NCCL_OK ? result : ended;
}

static int one_call(struct sol_cuda_nccl *nccl, const sol_call_t *call)
{
    cudaStream_t stream = (cudaStream_t)call->stream;
    int type = nccl_dtype(call->dtype);
    switch (call->func) {
    case SOL_FUNC_ALL_REDUCE:
    case SOL_FUNC_REDUCE_SCATTER:
    case SOL_FUNC_REDUCE:
        return reduction(nccl, call);
    case SOL_FUNC_ALL_GATHER:
        return api.all_gather(call->send, call->recv, call->count, type, nccl->comm, stream);
    case SOL_FUNC_BROADCAST:
        return api.broadcast(call->send, call->recv, call->count, type, call->root, nccl->comm,
                             stream);
    case SOL_FUNC_SEND:
        return send_piece(nccl, call, 0, call->count, call->root);
    case SOL_FUNC_RECV:
        return recv_piece(nccl, call, 0, call->count, call->root);
    case SOL_FUNC_BARRIER:
        return api.all_reduce(nccl->scratch, nccl->scratch, 1, 0, 0, nccl->comm, stream);
    default:
        return pieces(nccl, call);
    }
}

static bool needs_buffer_of_its_own(const sol_call_t *call)
{
    return call->func == SOL_FUNC_ALL_TO_ALL && call->send == call->recv && call->count != 0;
}

sol_status_t sol_cuda_nccl_run(struct sol_cuda_nccl *nccl, const sol_call_t *calls, size_t ncalls)
{
    for (size_t i = 0; i < ncalls; i++) {
        if (needs_buffer_of_its_own(&calls[i])) {
            return sol_thread_error(SOL_ERR_UNSUPPORTED,
                                    "all_to_all in place cannot be done through NCCL");
        }
    }
    int result = ncalls > 1 ? api.group_start() : NCCL_OK;
    for (size_t i = 0; i < ncalls && result == NCCL_OK; i++) {
        result = one_call(nccl, &calls[i]);
    }
    if (ncalls > 1) {
        int ended = api.group_end();
        result = result != NCCL_OK ? result : ended;
    }
    return result == NCCL_OK ? SOL_OK : failed(sol_func_name(calls[0].func), result);
}

/* Rank 0's id to all over `comm`, through a piece of device memory. */
static sol_status_t spread_id(void *comm, sol_unique_id_t *id)
{
    void *memory = NULL;
    cudaStream_t stream = NULL;
    int result = NCCL_OK;
    sol_status_t status = SOL_OK;
    cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    error = error != cudaSuccess ? error : cudaMalloc(&memory, sizeof *id);
    error = error != cudaSuccess
                ? error
                : cudaMemcpyAsync(memory, id, sizeof *id, cudaMemcpyHostToDevice, stream);
    if (error == cudaSuccess) {
        result = api.broadcast(memory, memory, sizeof *id, 1, 0, comm, stream);
    }
    if (error == cudaSuccess && result == NCCL_OK) {
        error = cudaMemcpyAsync(id, memory, sizeof *id, cudaMemcpyDeviceToHost, stream);
        status = error != cudaSuccess ? SOL_OK
                                      : sol_cuda_wait_stream(stream, SPREAD_TIMEOUT_NS,
                                                             "spreading the id over NCCL");
    }
    if (status == SOL_OK) { /* cudaFree waits for the device: not after a wait that expired */
        cudaFree(memory);
    }
    if (stream != NULL) {
        cudaStreamDestroy(stream);
    }
    if (result != NCCL_OK) {
        return failed("spreading the id", result);
    }
    return error == cudaSuccess ? status
                                : sol_thread_error(SOL_ERR_DEVICE, "spreading the id: %s",
                                                   cudaGetErrorString(error));
}

sol_status_t sol_cuda_nccl_adopt(void *comm, sol_unique_id_t *id, int *nranks, int *rank)
{
    char version[160];
    if (!sol_cuda_nccl_found(version, sizeof version)) {
        return sol_thread_error(SOL_ERR_UNSUPPORTED, "%s", version);
    }
    int result = api.user_rank(comm, rank);
    result = result != NCCL_OK ? result : api.count(comm, nranks);
    if (result != NCCL_OK) {
        return failed("the communicator given", result);
    }
    sol_status_t status = sol_get_unique_id(id);
    return status == SOL_OK ? spread_id(comm, id) : status;
}
