/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_nccl.c: a libnccl.so.2 for tests of the drop-in on machines without GPUs.
 * Its communicators come together as NCCL's do (nobody returns before all have
 * called), over memory that is shared with children forked after loading. Its
 * collectives move nothing: they fill the receive buffer with FAKE_MARK and
 * count themselves, so that a test can tell who ran a call.
 *
 * Never used outside tests. Waits are bounded by FAKE_WAIT_S.
 */
#include "dropin/fake_nccl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

#define API __attribute__((visibility("default")))
#define MEETINGS 512
#define FAKE_WAIT_S 20

typedef struct fake_comm {
    uint64_t key;
    int rank, nranks;
    unsigned splits, shrinks;
    int next_op;
    int calls[FAKE_CALLS];
} fake_comm;

/* Ranks that wait for each other, each with a value that all get to know. */
typedef struct meeting {
    uint64_t key; /* 0: free */
    int expected, arrived, gone;
    int64_t value[FAKE_RANKS];
} meeting;

static struct shared {
    pthread_mutex_t lock;
    meeting meetings[MEETINGS];
} * shared;

__attribute__((constructor)) static void open_shared(void)
{
    pthread_mutexattr_t attributes;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->lock, &attributes);
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xbf58476d1ce4e5b9u;
    return (x ^ (x >> 31)) | 1u;
}

static meeting *arrive(uint64_t key, int expected, int rank, int64_t value)
{
    meeting *m = NULL;
    pthread_mutex_lock(&shared->lock);
    for (int i = 0; i < MEETINGS; i++) {
        if (shared->meetings[i].key == key && shared->meetings[i].arrived < expected) {
            m = &shared->meetings[i];
            break;
        }
        if (m == NULL && shared->meetings[i].key == 0) {
            m = &shared->meetings[i];
        }
    }
    if (m != NULL) {
        m->key = key;
        m->expected = expected;
        m->value[rank] = value;
        m->arrived++;
    }
    pthread_mutex_unlock(&shared->lock);
    return m;
}

/* Waits for the others; their values into `all`. */
static int leave(meeting *m, int64_t *all)
{
    for (int turn = 0; turn < FAKE_WAIT_S * 10000; turn++) {
        pthread_mutex_lock(&shared->lock);
        if (m->arrived == m->expected) {
            memcpy(all, m->value, sizeof m->value);
            if (++m->gone == m->expected) {
                memset(m, 0, sizeof *m);
            }
            pthread_mutex_unlock(&shared->lock);
            return 0;
        }
        pthread_mutex_unlock(&shared->lock);
        nanosleep(&(struct timespec){0, 100000}, NULL);
    }
    fprintf(stderr, "fake NCCL: %d of %d ranks came\n", m->arrived, m->expected);
    return 6;
}

/* --------------------------------------------------------------- making, also in a group */

typedef struct making {
    meeting *with;
    fake_comm *comm; /* of which rank and size may follow from the others' values */
    fake_comm **result;
    int color; /* -2: no split */
} making;

static _Thread_local int depth;
static _Thread_local making makings[64];
static _Thread_local int nmakings;

static int finish(making *m)
{
    int64_t all[FAKE_RANKS];
    int result = leave(m->with, all);
    if (result == 0 && m->color != -2) { /* value: color, key, rank in 20 bits each */
        int64_t mine = all[m->comm->rank];
        int nranks = 0, rank = 0;
        for (int r = 0; r < m->comm->nranks; r++) {
            nranks += all[r] >> 40 == mine >> 40;
            rank += all[r] >> 40 == mine >> 40 && all[r] < mine;
        }
        m->comm->nranks = nranks;
        m->comm->rank = rank;
    }
    if (m->color == -1 || result != 0) {
        free(m->comm);
        m->comm = NULL;
    }
    *m->result = m->comm;
    return result;
}

static int make(meeting *with, fake_comm *comm, fake_comm **result, int color)
{
    making m = {with, comm, result, color};
    if (depth > 0 && nmakings < 64) {
        makings[nmakings++] = m;
        return 0;
    }
    return finish(&m);
}

API int ncclGroupStart(void)
{
    depth++;
    return 0;
}

API int ncclGroupEnd(void)
{
    int result = depth > 0 ? 0 : 5;
    depth -= depth > 0;
    for (int i = 0; i < nmakings && depth == 0; i++) {
        int one = finish(&makings[i]);
        result = result != 0 ? result : one;
    }
    nmakings = depth == 0 ? 0 : nmakings;
    return result;
}

API int ncclGroupSimulateEnd(void *info)
{
    (void)info;
    return ncclGroupEnd();
}

static fake_comm *new_comm(uint64_t key, int nranks, int rank)
{
    fake_comm *comm = calloc(1, sizeof *comm);
    *comm = (fake_comm){.key = key, .rank = rank, .nranks = nranks, .next_op = 5};
    return comm;
}

API int ncclGetUniqueId(fake_id *id)
{
    memset(id, 0, sizeof *id);
    return getrandom(id, 24, 0) == 24 ? 0 : 2;
}

API int ncclCommInitRank(fake_comm **comm, int nranks, fake_id id, int rank)
{
    uint64_t words[2];
    memcpy(words, &id, sizeof words);
    uint64_t key = mix(words[0], words[1]);
    if (rank < 0 || rank >= nranks || nranks > FAKE_RANKS) {
        return 4;
    }
    return make(arrive(key, nranks, rank, 0), new_comm(key, nranks, rank), comm, -2);
}

API int ncclCommInitRankConfig(fake_comm **comm, int nranks, fake_id id, int rank, int *config)
{
    int result = ncclCommInitRank(comm, nranks, id, rank);
    return result == 0 && config != NULL && config[4] == 0 ? 7 : result; /* blocking is 0 */
}

API int ncclCommInitRankScalable(fake_comm **comm, int nranks, int rank, int nids, fake_id *ids,
                                 int *config)
{
    return nids < 1 ? 4 : ncclCommInitRankConfig(comm, nranks, ids[0], rank, config);
}

API int ncclCommInitAll(fake_comm **comms, int n, const int *devices)
{
    (void)devices;
    for (int i = 0; i < n; i++) {
        comms[i] = new_comm((uint64_t)(uintptr_t)comms | 1u, n, i);
    }
    return 0;
}

API int ncclCommSplit(fake_comm *comm, int color, int key, fake_comm **result, int *config)
{
    uint64_t meet = mix(comm->key, 2u * comm->splits++);
    int64_t value = (int64_t)(color + 2) << 40 | (int64_t)key << 20 | comm->rank;
    (void)config;
    fake_comm *child = new_comm(mix(meet, (uint64_t)color), comm->nranks, comm->rank);
    return make(arrive(meet, comm->nranks, comm->rank, value), child, result, color);
}

API int ncclCommShrink(fake_comm *comm, int *excluded, int nexcluded, fake_comm **result,
                       int *config, int flags)
{
    uint64_t meet = mix(comm->key, 2u * comm->shrinks++ + 1);
    int rank = comm->rank, nranks = comm->nranks - nexcluded;
    (void)config, (void)flags;
    for (int i = 0; i < nexcluded; i++) {
        rank -= excluded[i] < comm->rank;
    }
    return make(arrive(meet, nranks, rank, 0), new_comm(meet, nranks, rank), result, -2);
}

API int ncclCommDestroy(fake_comm *comm)
{
    free(comm);
    return comm == NULL ? 4 : 0;
}

API int ncclCommAbort(fake_comm *comm)
{
    return ncclCommDestroy(comm);
}

API int ncclCommRevoke(fake_comm *comm, int flags)
{
    (void)comm;
    return flags == 0 ? 0 : 4;
}

/* --------------------------------------------------------------------------- questions */

API int ncclGetVersion(int *version)
{
    *version = FAKE_VERSION;
    return 0;
}
API const char *ncclGetErrorString(int result)
{
    return result == 0 ? "no error" : "an error of the fake";
}
API const char *ncclGetLastError(fake_comm *comm)
{
    (void)comm;
    return "the fake's last error";
}
API int ncclCommGetAsyncError(fake_comm *comm, int *result)
{
    (void)comm;
    *result = 0;
    return 0;
}
API int ncclCommCount(const fake_comm *comm, int *count)
{
    *count = comm->nranks;
    return 0;
}
API int ncclCommUserRank(const fake_comm *comm, int *rank)
{
    *rank = comm->rank;
    return 0;
}
API int ncclCommCuDevice(const fake_comm *comm, int *device)
{
    *device = comm->rank;
    return 0;
}
API int fake_nccl_calls(const fake_comm *comm, int call)
{
    return comm->calls[call];
}

/* Arguments in registers, vector registers and on the stack; any function can have any. */
API fake_large ncclCommQueryProperties(long a, long b, long c, long d, long e, long f, double x,
                                       double y, fake_id id, long g)
{
    fake_large sum = {{a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g, (long)(x * 8 + y * 16),
                       id.bytes[0] + id.bytes[127], 77}};
    return sum;
}
API int ncclFutureFunction(void)
{
    return 42;
}

/* -------------------------------------------------------------------------- operations */

static const int type_bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

static int operation(fake_comm *comm, int call, void *recv, size_t count, int dtype)
{
    comm->calls[call]++;
    if (recv != NULL && count > 0) {
        memset(recv, FAKE_MARK, count * (size_t)type_bytes[dtype]);
    }
    return 0;
}

API int ncclRedOpCreatePreMulSum(int *op, void *scalar, int dtype, int residence, fake_comm *comm)
{
    (void)scalar, (void)dtype, (void)residence;
    *op = comm->next_op++ + comm->rank * 1000; /* handles need not be equal on all ranks */
    return 0;
}
API int ncclRedOpDestroy(int op, fake_comm *comm)
{
    (void)comm;
    return op < 5 ? 4 : 0;
}
API int ncclAllReduce(const void *send, void *recv, size_t count, int dtype, int op,
                      fake_comm *comm, void *stream)
{
    (void)send, (void)op, (void)stream;
    return operation(comm, FAKE_ALL_REDUCE, recv, count, dtype);
}
API int ncclReduceScatter(const void *send, void *recv, size_t count, int dtype, int op,
                          fake_comm *comm, void *stream)
{
    (void)send, (void)op, (void)stream;
    return operation(comm, FAKE_REDUCE_SCATTER, recv, count, dtype);
}
API int ncclReduce(const void *send, void *recv, size_t count, int dtype, int op, int root,
                   fake_comm *comm, void *stream)
{
    (void)send, (void)op, (void)stream;
    return operation(comm, FAKE_REDUCE, root == comm->rank ? recv : NULL, count, dtype);
}
API int ncclAllGather(const void *send, void *recv, size_t count, int dtype, fake_comm *comm,
                      void *stream)
{
    (void)send, (void)stream;
    return operation(comm, FAKE_ALL_GATHER, recv, count * (size_t)comm->nranks, dtype);
}
API int ncclBroadcast(const void *send, void *recv, size_t count, int dtype, int root,
                      fake_comm *comm, void *stream)
{
    (void)send, (void)root, (void)stream;
    return operation(comm, FAKE_BROADCAST, recv, count, dtype);
}
API int ncclBcast(void *buffer, size_t count, int dtype, int root, fake_comm *comm, void *stream)
{
    return ncclBroadcast(buffer, buffer, count, dtype, root, comm, stream);
}
API int ncclAlltoAll(const void *send, void *recv, size_t count, int dtype, fake_comm *comm,
                     void *stream)
{
    (void)send, (void)stream;
    return operation(comm, FAKE_ALL_TO_ALL, recv, count * (size_t)comm->nranks, dtype);
}
API int ncclGather(const void *send, void *recv, size_t count, int dtype, int root, fake_comm *comm,
                   void *stream)
{
    (void)send, (void)stream;
    return operation(comm, FAKE_GATHER, root == comm->rank ? recv : NULL, count, dtype);
}
API int ncclScatter(const void *send, void *recv, size_t count, int dtype, int root,
                    fake_comm *comm, void *stream)
{
    (void)send, (void)root, (void)stream;
    return operation(comm, FAKE_SCATTER, recv, count, dtype);
}
API int ncclSend(const void *send, size_t count, int dtype, int peer, fake_comm *comm, void *stream)
{
    (void)send, (void)peer, (void)stream;
    return operation(comm, FAKE_SEND, NULL, count, dtype);
}
API int ncclRecv(void *recv, size_t count, int dtype, int peer, fake_comm *comm, void *stream)
{
    (void)peer, (void)stream;
    return operation(comm, FAKE_RECV, recv, count, dtype);
}
