/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dropin.c: the drop-in in front of a fake NCCL (fake_nccl.c), on CPU ranks. Who
 * ran a call is told by the receive buffer: solccl computes, the fake leaves its
 * mark.
 *
 *   dropin --path LIBRARY [CASE]    opens LIBRARY and looks functions up, as engines do
 *   dropin --preloaded [CASE]       takes NCCL's functions as the dynamic linker gives them
 *
 * SOLCCL_DEBUG_NCCL_RANKS=cpu and, with --path, SOLCCL_NCCL_LIB are set by the caller (run.sh).
 */
#include "common/team.h"
#include "dropin/fake_nccl.h"

#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct fake_comm *comm_t;

enum { INT32 = 2, FLOAT32 = 7, SUM = 0, PROD = 1, MAX = 2, MIN = 3, AVG = 4 };

/* Functions as a program gets them, and the fake's own, for ranks without the drop-in. */
static struct nccl {
    int (*version)(int *);
    int (*id)(fake_id *);
    int (*init)(comm_t *, int, fake_id, int);
    int (*init_config)(comm_t *, int, fake_id, int, int *);
    int (*init_scalable)(comm_t *, int, int, int, fake_id *, int *);
    int (*init_all)(comm_t *, int, const int *);
    int (*split)(comm_t, int, int, comm_t *, int *);
    int (*shrink)(comm_t, int *, int, comm_t *, int *, int);
    int (*destroy)(comm_t);
    int (*abort)(comm_t);
    int (*async_error)(comm_t, int *);
    const char *(*last_error)(comm_t);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*simulate)(void *);
    int (*premul)(int *, void *, int, int, comm_t);
    int (*redop_destroy)(int, comm_t);
    int (*all_reduce)(const void *, void *, size_t, int, int, comm_t, void *);
    int (*reduce_scatter)(const void *, void *, size_t, int, int, comm_t, void *);
    int (*reduce)(const void *, void *, size_t, int, int, int, comm_t, void *);
    int (*all_gather)(const void *, void *, size_t, int, comm_t, void *);
    int (*broadcast)(const void *, void *, size_t, int, int, comm_t, void *);
    int (*bcast)(void *, size_t, int, int, comm_t, void *);
    int (*all_to_all)(const void *, void *, size_t, int, comm_t, void *);
    int (*gather)(const void *, void *, size_t, int, int, comm_t, void *);
    int (*scatter)(const void *, void *, size_t, int, int, comm_t, void *);
    int (*send)(const void *, size_t, int, int, comm_t, void *);
    int (*recv)(void *, size_t, int, int, comm_t, void *);
    int (*calls)(comm_t, int);
    fake_large (*many)(long, long, long, long, long, long, double, double, fake_id, long);
} nccl, bare;

static void look_up(void *library, struct nccl *table)
{
    static const char *const names[] = {"ncclGetVersion",
                                        "ncclGetUniqueId",
                                        "ncclCommInitRank",
                                        "ncclCommInitRankConfig",
                                        "ncclCommInitRankScalable",
                                        "ncclCommInitAll",
                                        "ncclCommSplit",
                                        "ncclCommShrink",
                                        "ncclCommDestroy",
                                        "ncclCommAbort",
                                        "ncclCommGetAsyncError",
                                        "ncclGetLastError",
                                        "ncclGroupStart",
                                        "ncclGroupEnd",
                                        "ncclGroupSimulateEnd",
                                        "ncclRedOpCreatePreMulSum",
                                        "ncclRedOpDestroy",
                                        "ncclAllReduce",
                                        "ncclReduceScatter",
                                        "ncclReduce",
                                        "ncclAllGather",
                                        "ncclBroadcast",
                                        "ncclBcast",
                                        "ncclAlltoAll",
                                        "ncclGather",
                                        "ncclScatter",
                                        "ncclSend",
                                        "ncclRecv",
                                        "fake_nccl_calls",
                                        "ncclCommQueryProperties"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *symbol = dlsym(library, names[i]);
        memcpy((char *)table + i * sizeof symbol, &symbol, sizeof symbol);
    }
}

/* ------------------------------------------------------------------------------ helpers */

#define N 100 /* elements of a small call */
#define OK(team, rank, call) TEAM_CHECK(team, rank, (call) == 0)

static fake_id id_of(team_t *team, int i)
{
    fake_id id;
    memcpy(&id, &team->ids[i], sizeof id); /* random, and equal on all ranks */
    return id;
}

static comm_t join(team_t *team, int rank)
{
    comm_t comm = NULL;
    OK(team, rank, nccl.init(&comm, team->nranks, id_of(team, 0), rank));
    return comm;
}

static bool marked(const void *buffer, size_t bytes)
{
    const unsigned char *p = buffer;
    for (size_t i = 0; i < bytes; i++) {
        if (p[i] != FAKE_MARK) {
            return false;
        }
    }
    return true;
}

/* Did solccl run an all_reduce of `n` elements on these ranks? Contribution r+1 from rank r. */
static bool summed(comm_t comm, int nranks, int rank, size_t n, int *result)
{
    int *x = calloc(n, sizeof *x);
    for (size_t i = 0; i < n; i++) {
        x[i] = rank + 1;
    }
    *result = nccl.all_reduce(x, x, n, INT32, SUM, comm, NULL);
    bool right = true;
    for (size_t i = 0; i < n && right; i++) {
        right = x[i] == nranks * (nranks + 1) / 2;
    }
    free(x);
    return right;
}

#define TAKEN(team, rank, comm, nranks)                                                            \
    do {                                                                                           \
        int result_;                                                                               \
        TEAM_CHECK(team, rank, summed(comm, nranks, rank, N, &result_) && result_ == 0);           \
    } while (0)
#define PASSED(team, rank, comm, nranks)                                                           \
    do {                                                                                           \
        int result_, before_ = nccl.calls(comm, FAKE_ALL_REDUCE);                                  \
        TEAM_CHECK(team, rank, !summed(comm, nranks, rank, N, &result_) && result_ == 0);          \
        TEAM_CHECK(team, rank, nccl.calls(comm, FAKE_ALL_REDUCE) == before_ + 1);                  \
    } while (0)

/* -------------------------------------------------------------------------------- cases */

static void reductions(team_t *team, int rank, void *arg)
{
    int n = team->nranks;
    float x[N], y[N];
    comm_t comm = join(team, rank);
    (void)arg;
    const float expected[] = {n * (n + 1) / 2.0f, 0, (float)n, 1, (n + 1) / 2.0f};
    float factorial = 1;
    for (int r = 0; r < n; r++) {
        factorial *= (float)(r + 1);
    }
    for (int op = SUM; op <= AVG; op++) {
        for (int i = 0; i < N; i++) {
            x[i] = (float)(rank + 1);
        }
        OK(team, rank, nccl.all_reduce(x, y, N, FLOAT32, op, comm, NULL));
        float want = op == PROD ? factorial : expected[op];
        TEAM_CHECK(team, rank, y[0] == want && y[N - 1] == want);
        memset(y, 0, sizeof y);
        OK(team, rank, nccl.reduce(x, y, N, FLOAT32, op, n - 1, comm, NULL));
        TEAM_CHECK(team, rank, y[3] == (rank == n - 1 ? want : 0));
        OK(team, rank, nccl.reduce_scatter(x, y, (size_t)(N / n), FLOAT32, op, comm, NULL));
        TEAM_CHECK(team, rank, y[0] == want);
    }
    for (int call = 0; call < FAKE_CALLS; call++) {
        TEAM_CHECK(team, rank, nccl.calls(comm, call) == 0);
    }
    OK(team, rank, nccl.destroy(comm));
}

static void copies(team_t *team, int rank, void *arg)
{
    int n = team->nranks, x[N], y[N * TEAM_MAX_RANKS];
    comm_t comm = join(team, rank);
    (void)arg;
    for (int i = 0; i < N; i++) {
        x[i] = rank * 1000 + i;
    }
    OK(team, rank, nccl.all_gather(x, y, N, INT32, comm, NULL));
    TEAM_CHECK(team, rank, y[0] == 0 && y[N * (n - 1) + 5] == (n - 1) * 1000 + 5);
    OK(team, rank, nccl.broadcast(x, y, N, INT32, 1, comm, NULL));
    TEAM_CHECK(team, rank, y[7] == 1007);
    OK(team, rank, nccl.all_to_all(x, y, 2, INT32, comm, NULL));
    TEAM_CHECK(team, rank, y[2 * (n - 1) + 1] == (n - 1) * 1000 + 2 * rank + 1);
    OK(team, rank, nccl.gather(x, y, N, INT32, 0, comm, NULL));
    TEAM_CHECK(team, rank, rank != 0 || y[N * (n - 1)] == (n - 1) * 1000);
    OK(team, rank, nccl.scatter(x, y, 3, INT32, 1, comm, NULL));
    TEAM_CHECK(team, rank, y[2] == 1000 + 3 * rank + 2);
    OK(team, rank, nccl.bcast(x, N, INT32, 1, comm, NULL));
    TEAM_CHECK(team, rank, x[9] == 1009);
    for (int call = 0; call < FAKE_CALLS; call++) {
        TEAM_CHECK(team, rank, nccl.calls(comm, call) == 0);
    }
    OK(team, rank, nccl.destroy(comm));
}

/* What is too large, point to point, or of an operation that nobody made. */
static void passes(team_t *team, int rank, void *arg)
{
    static int x[1 << 16];
    comm_t comm = join(team, rank);
    (void)arg;
    OK(team, rank, nccl.all_reduce(x, x, 1 << 16, INT32, SUM, comm, NULL)); /* 256 KB: see main */
    TEAM_CHECK(team, rank, marked(x, sizeof x));
    TEAM_CHECK(team, rank, nccl.calls(comm, FAKE_ALL_REDUCE) == 1);
    /* the limit is of all ranks' blocks together */
    size_t half = (1 << 15) / (size_t)team->nranks;
    OK(team, rank, nccl.all_gather(x, x + (size_t)rank * half, 0, INT32, comm, NULL));
    OK(team, rank, nccl.reduce_scatter(x, x, half, INT32, SUM, comm, NULL));
    TEAM_CHECK(team, rank, nccl.calls(comm, FAKE_REDUCE_SCATTER) == 0);
    OK(team, rank, nccl.reduce_scatter(x, x, half + 1, INT32, SUM, comm, NULL));
    TEAM_CHECK(team, rank, nccl.calls(comm, FAKE_REDUCE_SCATTER) == 1);
    OK(team, rank, nccl.send(x, 1, INT32, 1 - rank % 2, comm, NULL));
    OK(team, rank, nccl.recv(x, 1, INT32, 1 - rank % 2, comm, NULL));
    TEAM_CHECK(team, rank, nccl.calls(comm, FAKE_SEND) == 1 && nccl.calls(comm, FAKE_RECV) == 1);
    OK(team, rank, nccl.all_reduce(x, x, 1, INT32, 4711, comm, NULL));
    OK(team, rank, nccl.all_reduce(x, x, 1, 11, SUM, comm, NULL)); /* a type of solccl's too */
    TEAM_CHECK(team, rank, nccl.calls(comm, FAKE_ALL_REDUCE) == 2);
    OK(team, rank, nccl.destroy(comm));
}

static void premuls(team_t *team, int rank, void *arg)
{
    float x = 1, y = 0, scalar = (float)(rank + 2);
    int op = 0, second = 0, n = team->nranks;
    comm_t comm = join(team, rank);
    (void)arg;
    OK(team, rank, nccl.premul(&op, &scalar, FLOAT32, 1, comm));
    scalar = 100; /* was read in the call */
    OK(team, rank, nccl.premul(&second, &scalar, FLOAT32, 1, comm));
    OK(team, rank, nccl.all_reduce(&x, &y, 1, FLOAT32, op, comm, NULL));
    TEAM_CHECK(team, rank, y == n * (n + 1) / 2.0f + n);
    OK(team, rank, nccl.group_start());
    OK(team, rank, nccl.all_reduce(&x, &y, 1, FLOAT32, second, comm, NULL));
    OK(team, rank, nccl.redop_destroy(second, comm)); /* legal before the group ends */
    OK(team, rank, nccl.group_end());
    TEAM_CHECK(team, rank, y == 100.0f * n);
    OK(team, rank, nccl.redop_destroy(op, comm));
    for (int i = 0; i < 200; i++) { /* more than solccl has room for at once */
        OK(team, rank, nccl.premul(&op, &scalar, FLOAT32, 1, comm));
    }
    OK(team, rank, nccl.all_reduce(&x, &y, 1, FLOAT32, op, comm, NULL));
    TEAM_CHECK(team, rank, y == 100.0f * n);
    TEAM_CHECK(team, rank, nccl.calls(comm, FAKE_ALL_REDUCE) == 0);
    OK(team, rank, nccl.destroy(comm));
}

/* Two communicators, nested groups, calls of both kinds; done when the outermost has ended. */
static void groups(team_t *team, int rank, void *arg)
{
    static int large[1 << 16];
    int n = team->nranks, x = rank + 1, y = rank + 1, z[2] = {0, 0};
    comm_t a = join(team, rank), b = NULL;
    (void)arg;
    OK(team, rank, nccl.init(&b, n, id_of(team, 1), rank));
    OK(team, rank, nccl.group_start());
    OK(team, rank, nccl.all_reduce(&x, &x, 1, INT32, SUM, a, NULL));
    OK(team, rank, nccl.group_start());
    OK(team, rank, nccl.all_reduce(&y, &y, 1, INT32, MAX, b, NULL));
    OK(team, rank, nccl.send(z, 1, INT32, 0, a, NULL));
    OK(team, rank, nccl.group_end());
    OK(team, rank, nccl.all_reduce(large, large, 1 << 16, INT32, SUM, b, NULL));
    TEAM_CHECK(team, rank, x == rank + 1 && y == rank + 1);
    OK(team, rank, nccl.group_end());
    TEAM_CHECK(team, rank, x == n * (n + 1) / 2 && y == n && marked(large, sizeof large));
    TEAM_CHECK(team, rank, nccl.calls(a, FAKE_SEND) == 1);
    TEAM_CHECK(team, rank, nccl.calls(b, FAKE_ALL_REDUCE) == 1);
    /* one rank has its call in a group, the others have not */
    if (rank == 0) {
        OK(team, rank, nccl.group_start());
    }
    y = 1;
    OK(team, rank, nccl.all_reduce(&y, &y, 1, INT32, SUM, a, NULL));
    if (rank == 0) {
        OK(team, rank, nccl.group_end());
    }
    TEAM_CHECK(team, rank, y == n);
    /* a group that is only simulated does nothing, and the next one works */
    OK(team, rank, nccl.group_start());
    OK(team, rank, nccl.all_reduce(&y, &y, 1, INT32, SUM, a, NULL));
    OK(team, rank, nccl.simulate(NULL));
    TEAM_CHECK(team, rank, y == n);
    TAKEN(team, rank, a, n);
    TEAM_CHECK(team, rank, nccl.group_end() != 0); /* none is open */
    OK(team, rank, nccl.destroy(a));
    OK(team, rank, nccl.destroy(b));
}

/* All ranks in one thread: made by InitAll, and by InitRank in a group. */
static void one_thread(team_t *team, int rank, void *arg)
{
    comm_t comms[3];
    int x[3];
    (void)arg;
    for (int way = 0; way < 2; way++) {
        if (way == 0) {
            OK(team, rank, nccl.init_all(comms, 3, NULL));
        } else {
            OK(team, rank, nccl.group_start());
            for (int r = 0; r < 3; r++) {
                OK(team, rank, nccl.init(&comms[r], 3, id_of(team, rank), r));
            }
            OK(team, rank, nccl.group_end());
        }
        OK(team, rank, nccl.group_start());
        for (int r = 0; r < 3; r++) {
            x[r] = r + 1;
            OK(team, rank, nccl.all_reduce(&x[r], &x[r], 1, INT32, SUM, comms[r], NULL));
        }
        OK(team, rank, nccl.group_end());
        for (int r = 0; r < 3; r++) {
            TEAM_CHECK(team, rank, x[r] == 6);
            TEAM_CHECK(team, rank, nccl.calls(comms[r], FAKE_ALL_REDUCE) == 0);
            OK(team, rank, nccl.destroy(comms[r]));
        }
    }
}

static void children(team_t *team, int rank, void *arg)
{
    int n = team->nranks, color = rank % 2, excluded[] = {1}, size = (n + 1 - color) / 2;
    comm_t comm = join(team, rank), child = NULL, none = comm, shrunk = NULL, both = NULL;
    (void)arg;
    OK(team, rank, nccl.split(comm, color, n - rank, &child, NULL)); /* order turned round */
    int x = rank, want = color == 0 ? size * (size - 1) : size * size;
    OK(team, rank, nccl.all_reduce(&x, &x, 1, INT32, SUM, child, NULL));
    if (size > 1) {
        TEAM_CHECK(team, rank, x == want && nccl.calls(child, FAKE_ALL_REDUCE) == 0);
    } else {
        TEAM_CHECK(team, rank, nccl.calls(child, FAKE_ALL_REDUCE) == 1); /* alone: NCCL's */
    }
    OK(team, rank, nccl.split(comm, rank == 0 ? -1 : 0, rank, &none, NULL));
    TEAM_CHECK(team, rank, (none == NULL) == (rank == 0));
    if (rank != 1) {
        OK(team, rank, nccl.shrink(comm, excluded, 1, &shrunk, NULL, 0));
        TAKEN(team, rank == 0 ? 0 : rank - 1, shrunk, n - 1);
    }
    team_barrier(team);
    OK(team, rank, nccl.group_start()); /* (numbers still agree: rank 1 did not shrink) */
    OK(team, rank, nccl.split(comm, 0, rank, &both, NULL));
    OK(team, rank, nccl.group_end());
    TAKEN(team, rank, both, n);
    TAKEN(team, rank, comm, n);
    OK(team, rank, nccl.destroy(comm)); /* before its children */
    TAKEN(team, rank, both, n);
    OK(team, rank, nccl.destroy(both));
    OK(team, rank, nccl.destroy(child));
    TEAM_CHECK(team, rank, none == NULL || nccl.destroy(none) == 0);
    TEAM_CHECK(team, rank, shrunk == NULL || nccl.destroy(shrunk) == 0);
}

/* A rank that has no drop-in hangs nobody: all stand back, at once. */
static void without_it(team_t *team, int rank, void *arg)
{
    comm_t comm = NULL;
    double begin = team_now();
    (void)arg;
    if (rank == 1) {
        nccl = bare;
    }
    OK(team, rank, nccl.init(&comm, team->nranks, id_of(team, 0), rank));
    PASSED(team, rank, comm, team->nranks);
    TEAM_CHECK(team, rank, team_now() - begin < 5);
    OK(team, rank, nccl.destroy(comm));
}

static void off_here(team_t *team, int rank, void *arg)
{
    comm_t comm = NULL;
    setenv("SOLCCL_NCCL", rank == 1 ? (const char *)arg : "1", 1);
    OK(team, rank, nccl.init(&comm, team->nranks, id_of(team, 0), rank));
    PASSED(team, rank, comm, team->nranks);
    OK(team, rank, nccl.destroy(comm));
}

/* The least of the ranks' limits holds for all. */
static void limits(team_t *team, int rank, void *arg)
{
    int x[64], result;
    (void)arg;
    setenv("SOLCCL_NCCL_MAX_BYTES", rank == 1 ? "64" : "1M", 1);
    comm_t comm = join(team, rank);
    TEAM_CHECK(team, rank, summed(comm, team->nranks, rank, 16, &result) && result == 0);
    OK(team, rank, nccl.all_reduce(x, x, 17, INT32, SUM, comm, NULL));
    TEAM_CHECK(team, rank, marked(x, 17 * sizeof x[0]));
    OK(team, rank, nccl.destroy(comm));
}

/* Calls of this communicator return early: when it is ready cannot be seen. */
static void not_blocking(team_t *team, int rank, void *arg)
{
    int config[] = {32, 0, 0, 0, 0, 0, 0, 0}, undefined[] = {32, 0, 0, 0, -2147483647 - 1, 0, 0, 0};
    comm_t comm = NULL;
    fake_id id = id_of(team, 1);
    (void)arg;
    TEAM_CHECK(team, rank,
               nccl.init_config(&comm, team->nranks, id_of(team, 0), rank, config) == 7);
    PASSED(team, rank, comm, team->nranks);
    OK(team, rank, nccl.destroy(comm));
    OK(team, rank, nccl.init_scalable(&comm, team->nranks, rank, 1, &id, undefined));
    TAKEN(team, rank, comm, team->nranks);
    OK(team, rank, nccl.destroy(comm));
}

/* One rank aborts; the others, in a call or coming to one, get an error with a text. */
static void aborts(team_t *team, int rank, void *arg)
{
    int x = 0, error = 0, result = 0;
    comm_t comm = join(team, rank);
    double begin = team_now();
    (void)arg;
    if (rank == 0) {
        team_sleep_us(200000);
        OK(team, rank, nccl.abort(comm));
        return;
    }
    result = nccl.all_reduce(&x, &x, 1, INT32, SUM, comm, NULL);
    TEAM_CHECK(team, rank, result != 0 && team_now() - begin < 10);
    TEAM_CHECK(team, rank, strlen(nccl.last_error(comm)) > 20);
    OK(team, rank, nccl.async_error(comm, &error));
    TEAM_CHECK(team, rank, error != 0);
    TEAM_CHECK(team, rank, nccl.all_reduce(&x, &x, 1, INT32, SUM, comm, NULL) != 0);
    OK(team, rank, nccl.abort(comm));
}

static void killed(team_t *team, int rank, void *arg)
{
    int x = 0;
    comm_t comm = join(team, rank);
    (void)arg;
    TAKEN(team, rank, comm, team->nranks);
    if (rank == 1) {
        raise(SIGKILL);
    }
    TEAM_CHECK(team, rank, nccl.all_reduce(&x, &x, 1, INT32, SUM, comm, NULL) != 0);
    TEAM_CHECK(team, rank, strstr(nccl.last_error(comm), "rank 1") != NULL);
    OK(team, rank, nccl.destroy(comm));
}

/* Wrong arguments are errors of the call alone. */
static void wrong(team_t *team, int rank, void *arg)
{
    int x = 1;
    comm_t comm = join(team, rank);
    (void)arg;
    TEAM_CHECK(team, rank, nccl.broadcast(&x, &x, 1, INT32, 99, comm, NULL) == 4);
    TEAM_CHECK(team, rank, strstr(nccl.last_error(NULL), "root") != NULL);
    TEAM_CHECK(team, rank, nccl.all_reduce(NULL, &x, 1, INT32, SUM, comm, NULL) == 4);
    TAKEN(team, rank, comm, team->nranks);
    OK(team, rank, nccl.destroy(comm));
}

static int open_files(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder != NULL && readdir(folder) != NULL) {
        count++;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return count;
}

static void many(team_t *team, int rank, void *arg)
{
    int before = 0;
    (void)arg;
    for (int i = 0; i < 60; i++) {
        comm_t comm = NULL;
        fake_id id = id_of(team, 0);
        id.bytes[0] = (char)i;
        OK(team, rank, nccl.init(&comm, team->nranks, id, rank));
        TAKEN(team, rank, comm, team->nranks);
        OK(team, rank, nccl.destroy(comm));
        before = i == 5 ? open_files() : before;
    }
    TEAM_CHECK(team, rank, open_files() <= before);
}

/* Jumps keep every argument, at the first call and at the next. */
static void jumps(team_t *team, int rank, void *arg)
{
    fake_id id = {{0}};
    (void)arg;
    id.bytes[0] = 3;
    id.bytes[127] = 4;
    for (int i = 0; i < 2; i++) {
        fake_large r = nccl.many(1, 2, 3, 4, 5, 6, 0.5, 0.25, id, 7);
        TEAM_CHECK(team, rank, r.word[0] == 1 + 4 + 9 + 16 + 25 + 36 + 49 && r.word[1] == 8);
        TEAM_CHECK(team, rank, r.word[2] == 7 && r.word[3] == 77);
    }
    int version = 0;
    OK(team, rank, nccl.version(&version));
    TEAM_CHECK(team, rank, version == FAKE_VERSION);
}

/* --------------------------------------------------------------------------------- main */

static const struct {
    const char *name;
    team_fn run;
    int nranks;
    bool threads;
    unsigned killed;
    const void *arg;
} cases[] = {
    {"jumps", jumps, 1, false, 0, NULL},
    {"reductions", reductions, 3, false, 0, NULL},
    {"reductions of threads", reductions, 2, true, 0, NULL},
    {"copies", copies, 4, false, 0, NULL},
    {"passes", passes, 2, false, 0, NULL},
    {"premultiplied sums", premuls, 2, false, 0, NULL},
    {"groups", groups, 2, false, 0, NULL},
    {"groups of threads", groups, 3, true, 0, NULL},
    {"all ranks in one thread", one_thread, 1, false, 0, NULL},
    {"children", children, 5, false, 0, NULL},
    {"children of threads", children, 4, true, 0, NULL},
    {"a rank without it", without_it, 3, false, 0, NULL},
    {"switched off on one rank", off_here, 2, false, 0, "0"},
    {"a switch that cannot be read", off_here, 2, false, 0, "maybe"},
    {"limits", limits, 2, false, 0, NULL},
    {"not blocking", not_blocking, 2, false, 0, NULL},
    {"aborts", aborts, 3, false, 0, NULL},
    {"killed", killed, 2, false, 2, NULL},
    {"wrong arguments", wrong, 2, false, 0, NULL},
    {"many", many, 2, false, 0, NULL},
};

int main(int argc, char **argv)
{
    tally_t tally = {0};
    int version = 0;
    bool path = argc > 2 && strcmp(argv[1], "--path") == 0;
    if (!path && (argc < 2 || strcmp(argv[1], "--preloaded") != 0)) {
        fprintf(stderr, "usage: %s --path LIBRARY [CASE] | --preloaded [CASE]\n", argv[0]);
        return 2;
    }
    tally.only = argv[path ? 3 : 2];
    void *library = path ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) : RTLD_DEFAULT;
    /* the fake is linked, or named; either way it is in the process once NCCL has been called */
    look_up(library, &nccl);
    if (nccl.version == NULL || nccl.version(&version) != 0) {
        fprintf(stderr, "no NCCL: %s\n", dlerror());
        return 1;
    }
    void *fake = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    look_up(fake, &bare);
    nccl.calls = bare.calls;
    if (bare.calls == NULL || nccl.init == bare.init) {
        fprintf(stderr, "%s\n", bare.calls == NULL ? "no fake" : "the drop-in is not in front");
        return 1;
    }
    setenv("SOLCCL_NCCL_MAX_BYTES", "128K", 1); /* read when the first communicator is made */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (!tally_wants(&tally, cases[i].name)) {
            continue;
        }
        team_options_t options = {.name = cases[i].name,
                                  .nranks = cases[i].nranks,
                                  .threads = cases[i].threads,
                                  .deadline_s = 60,
                                  .expect_killed = cases[i].killed};
        double begin = team_now();
        int failures = team_run(&options, cases[i].run, (void *)(uintptr_t)cases[i].arg, NULL);
        tally_case(&tally, cases[i].name, failures, false, team_now() - begin);
    }
    return tally_finish(&tally);
}
