/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases_comm.c: communicators: making, dividing, overlapping, leaving, fork; groups; barriers.
 */
#include "conformance/conf.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define N(n) CONF_N(n)

/* A few verified calls on any communicator. The seed makes them the same on its ranks. */
static bool exercise(conf_t *conf, sol_comm_t comm, int rank, int nranks, uint64_t seed)
{
    static const size_t counts[] = {1, 50, 3001, 70001};
    for (unsigned i = 0; i < 8; i++) {
        uint64_t h = team_mix(seed + i);
        conf_call_t call = {.func = conf_funcs[h % 10],
                            .dtype = (sol_dtype_t)((h >> 8) % SOL_DTYPE_COUNT),
                            .count = counts[i % 4] / (i % 4 == 3 ? (unsigned)nranks : 1),
                            .root = (int)((h >> 16) % (unsigned)nranks),
                            .seed = h};
        if (!conf_perform_on(conf, comm, rank, nranks, &call))
            return false;
    }
    return true;
}

static bool check_identity(conf_t *conf, sol_comm_t comm, int rank, int nranks)
{
    sol_comm_info_t info = {.size = sizeof(info)};
    int r = -1, n = -1;
    TEAM_OK(conf->team, conf->rank, sol_comm_rank(comm, &r), comm);
    TEAM_OK(conf->team, conf->rank, sol_comm_size(comm, &n), comm);
    TEAM_OK(conf->team, conf->rank, sol_comm_query(comm, &info), comm);
    sol_status_t error = SOL_ERR_INTERNAL;
    TEAM_OK(conf->team, conf->rank, sol_comm_async_error(comm, &error), comm);
    return TEAM_CHECK(conf->team, conf->rank, r == rank && n == nranks) &&
           TEAM_CHECK(conf->team, conf->rank, info.rank == rank && info.nranks == nranks) &&
           TEAM_CHECK(conf->team, conf->rank, info.backend == conf->device->backend) &&
           TEAM_CHECK(conf->team, conf->rank, error == SOL_OK);
}

static void case_identity(conf_t *conf)
{
    sol_comm_info_t before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
    check_identity(conf, conf->comm, conf->rank, conf->nranks);
    sol_comm_query(conf->comm, &before);
    conf_barrier(conf);
    sol_comm_query(conf->comm, &after);
    TEAM_CHECK(conf->team, conf->rank, after.sequence == before.sequence + 1);
    TEAM_CHECK(conf->team, conf->rank, sol_last_error(conf->comm)[0] == '\0');
}

/* Nobody leaves a barrier before everybody has come. */
static void case_barrier(conf_t *conf)
{
    _Atomic uint64_t *arrived = (_Atomic uint64_t *)(void *)conf->team->scratch;
    unsigned rounds = conf->options->level == CONF_QUICK ? 50 : 300;
    for (unsigned i = 1; i <= rounds; i++) {
        if (team_random(&conf->own_random) % 16 == 0)
            team_sleep_us((unsigned)(team_random(&conf->own_random) % 1000));
        atomic_store(&arrived[conf->rank], i);
        if (!conf_barrier(conf))
            return;
        for (int r = 0; r < conf->nranks; r++)
            if (atomic_load(&arrived[r]) < i) {
                team_fail(conf->team, conf->rank, "left barrier %u before rank %d came", i, r);
                return;
            }
    }
}

static void case_explain(conf_t *conf)
{
    char text[2048], shorter[8];
    for (int func = 0; func < SOL_FUNC_COUNT; func++)
        for (size_t count = 0; count < (size_t)1 << 40; count = count * 8 + 1) {
            memset(text, 'x', sizeof(text));
            TEAM_OK(conf->team, conf->rank,
                    sol_explain(conf->comm, (sol_func_t)func, count, SOL_FLOAT32, SOL_SUM, text,
                                sizeof(text)),
                    conf->comm);
            TEAM_CHECK(conf->team, conf->rank, memchr(text, 0, sizeof(text)) && text[0]);
            TEAM_OK(conf->team, conf->rank,
                    sol_explain(conf->comm, (sol_func_t)func, count, SOL_FLOAT32, SOL_SUM, shorter,
                                sizeof(shorter)),
                    conf->comm);
            TEAM_CHECK(conf->team, conf->rank, memchr(shorter, 0, sizeof(shorter)));
        }
}

/* ------------------------------------------------------------- several communicators */

/* Two disjoint halves, the second made while the first is long at work. */
static void case_disjoint(conf_t *conf)
{
    int half = conf->nranks / 2, upper = conf->rank >= half;
    int rank = upper ? conf->rank - half : conf->rank, n = upper ? conf->nranks - half : half;
    sol_comm_t comm;
    if (upper)
        team_sleep_us(150000);
    if (!conf_comm(conf, &comm, &conf->team->ids[upper], rank, n))
        return;
    check_identity(conf, comm, rank, n);
    exercise(conf, comm, rank, n, (uint64_t)upper);
    TEAM_OK(conf->team, conf->rank, sol_comm_destroy(comm), NULL);
}

/* The same ranks twice, and a part of them, used in turns; destroyed in different orders. */
static void case_overlap(conf_t *conf)
{
    int n = conf->nranks, members = n - 1;
    sol_comm_t twin = NULL, part = NULL;
    if (!conf_comm(conf, &twin, &conf->team->ids[1], n - 1 - conf->rank, n))
        return;
    if (conf->rank < members && !conf_comm(conf, &part, &conf->team->ids[2], conf->rank, members))
        return;
    for (unsigned i = 0; i < 5; i++) {
        if (!exercise(conf, conf->comm, conf->rank, n, i) ||
            !exercise(conf, twin, n - 1 - conf->rank, n, 100 + i) ||
            (part && !exercise(conf, part, conf->rank, members, 200 + i)))
            break;
    }
    TEAM_OK(conf->team, conf->rank, sol_comm_destroy(conf->rank % 2 ? twin : part), NULL);
    TEAM_OK(conf->team, conf->rank, sol_comm_destroy(conf->rank % 2 ? part : twin), NULL);
    exercise(conf, conf->comm, conf->rank, n, 300);
}

/* By parity in reversed order, then all together under new numbers, then one that joins none. */
static void case_split(conf_t *conf)
{
    int n = conf->nranks, color = conf->rank % 2;
    sol_comm_t comm = NULL;
    int members = color ? n / 2 : (n + 1) / 2, rank = members - 1 - conf->rank / 2;
    if (!TEAM_OK(conf->team, conf->rank,
                 sol_comm_split(conf->comm, color, -conf->rank, &comm, NULL), conf->comm))
        return;
    check_identity(conf, comm, rank, members);
    exercise(conf, comm, rank, members, (uint64_t)color);
    exercise(conf, conf->comm, conf->rank, n, 7); /* the old one lives */

    sol_comm_t second = NULL; /* a split of a split, equal keys: by rank */
    if (TEAM_OK(conf->team, conf->rank, sol_comm_split(comm, 5, 3, &second, NULL), comm))
        check_identity(conf, second, rank, members);
    TEAM_OK(conf->team, conf->rank, sol_comm_destroy(comm), NULL);
    exercise(conf, second, rank, members, 11 + (uint64_t)color);
    TEAM_OK(conf->team, conf->rank, sol_comm_destroy(second), NULL);

    color = conf->rank == n - 1 ? SOL_SPLIT_NONE : 0;
    comm = (sol_comm_t)(void *)conf; /* must be set to NULL for who joins none */
    if (!TEAM_OK(conf->team, conf->rank, sol_comm_split(conf->comm, color, 0, &comm, NULL),
                 conf->comm))
        return;
    if (color == SOL_SPLIT_NONE)
        TEAM_CHECK(conf->team, conf->rank, comm == NULL);
    else
        exercise(conf, comm, conf->rank, n - 1, 13);
    if (color != SOL_SPLIT_NONE)
        TEAM_OK(conf->team, conf->rank, sol_comm_destroy(comm), NULL);
}

struct other_thread {
    conf_t conf;
    sol_comm_t comm;
    uint64_t seed;
    char doing[CONF_DOING];
};

static void *use_other_comm(void *opaque)
{
    struct other_thread *other = opaque;
    conf_t *conf = &other->conf;
    if (!TEAM_CHECK(conf->team, conf->rank, conf->device->enter(conf->stream, &conf->stream)))
        return NULL;
    for (unsigned i = 0; i < 20; i++)
        if (!exercise(&other->conf, other->comm, other->conf.rank, other->conf.nranks,
                      other->seed + i))
            break;
    conf->device->close(conf->stream);
    return NULL;
}

/* Different communicators of one process from different threads at once. */
static void case_two_threads(conf_t *conf)
{
    struct other_thread other = {.conf = *conf, .seed = 5000};
    pthread_t thread;
    if (!conf_comm(conf, &other.comm, &conf->team->ids[1], conf->rank, conf->nranks))
        return;
    other.conf.doing = other.doing;
    memset(&other.conf.send, 0, sizeof(other.conf.send));
    memset(&other.conf.recv, 0, sizeof(other.conf.recv));
    memset(other.conf.host, 0, sizeof(other.conf.host));
    memset(other.conf.host_bytes, 0, sizeof(other.conf.host_bytes));
    if (TEAM_CHECK(conf->team, conf->rank,
                   pthread_create(&thread, NULL, use_other_comm, &other) == 0)) {
        for (unsigned i = 0; i < 20; i++)
            if (!exercise(conf, conf->comm, conf->rank, conf->nranks, i))
                break;
        pthread_join(thread, NULL);
    }
    conf->device->free(other.conf.send.memory);
    conf->device->free(other.conf.recv.memory);
    for (int i = 0; i < 4; i++)
        free(other.conf.host[i]);
    TEAM_OK(conf->team, conf->rank, sol_comm_destroy(other.comm), NULL);
}

/* ------------------------------------------------------------- groups */

#define MESSAGES 3

/* Everybody to everybody, itself too, several messages a pair, in one group, in an order that
 * would deadlock without one. */
static void case_exchange(conf_t *conf)
{
    static const size_t sizes[] = {1, 100, 4096, 70000, 300001, 0, 65, 8191};
    int n = conf->nranks;
    if (!conf->device->cheap_alloc) {
        team_skip(conf->team, conf->rank, "needs buffers that the host can read");
        return;
    }
    for (unsigned round = 0; round < 8; round++) {
        size_t most = 300001;
        unsigned char *send = malloc((size_t)n * MESSAGES * most),
                      *recv = malloc((size_t)n * MESSAGES * most);
        if (!TEAM_CHECK(conf->team, conf->rank, send && recv))
            exit(1);
        team_doing(conf->team, conf->rank, "exchange round %u", round);
        TEAM_OK(conf->team, conf->rank, sol_group_start(), NULL);
        for (int m = 0; m < MESSAGES; m++)
            for (int p = 0; p < n; p++) {
                size_t slot = (size_t)(m * n + p) * most,
                       out = sizes[(round + (unsigned)(m + conf->rank + p)) % 8];
                memset(send + slot, (int)(conf->rank * 16 + p + m + (int)round), out);
                TEAM_OK(conf->team, conf->rank,
                        sol_send(send + slot, out, SOL_UINT8, p, conf->comm, conf->stream),
                        conf->comm);
                TEAM_OK(conf->team, conf->rank,
                        sol_recv(recv + slot, out, SOL_UINT8, p, conf->comm, conf->stream),
                        conf->comm);
            }
        bool ok = TEAM_OK(conf->team, conf->rank, sol_group_end(), conf->comm);
        for (int m = 0; ok && m < MESSAGES; m++)
            for (int p = 0; p < n; p++) {
                const unsigned char *got = recv + (size_t)(m * n + p) * most;
                size_t in = sizes[(round + (unsigned)(m + conf->rank + p)) % 8];
                unsigned char want = (unsigned char)(p * 16 + conf->rank + m + (int)round);
                if (in > 0 && (got[0] != want || memcmp(got, got + 1, in - 1) != 0))
                    team_fail(conf->team, conf->rank, "round %u: message %d from rank %d is wrong",
                              round, m, p);
            }
        free(send);
        free(recv);
        if (!ok)
            return;
    }
}

/* Sends and receives outside a group: an ordered ping-pong, of all sizes. */
static void case_ping_pong(conf_t *conf)
{
    int peer = conf->rank ^ 1;
    if (peer >= conf->nranks || !conf->device->cheap_alloc)
        return;
    for (size_t count = 0; count < 400000; count = count * 2 + 1) {
        int32_t *data = calloc(count + 1, sizeof(*data)); /* one more: a guard */
        team_doing(conf->team, conf->rank, "ping-pong of %zu int32", count);
        for (size_t i = 0; i < count && conf->rank < peer; i++)
            data[i] = (int32_t)(i * 7 + (unsigned)conf->rank);
        bool ok;
        if (conf->rank < peer)
            ok = TEAM_OK(conf->team, conf->rank,
                         sol_send(data, count, SOL_INT32, peer, conf->comm, NULL), conf->comm) &&
                 TEAM_OK(conf->team, conf->rank,
                         sol_recv(data, count, SOL_INT32, peer, conf->comm, NULL), conf->comm);
        else
            ok = TEAM_OK(conf->team, conf->rank,
                         sol_recv(data, count, SOL_INT32, peer, conf->comm, NULL), conf->comm) &&
                 TEAM_OK(conf->team, conf->rank,
                         sol_send(data, count, SOL_INT32, peer, conf->comm, NULL), conf->comm);
        int32_t from = conf->rank < peer ? conf->rank : peer;
        for (size_t i = 0; i < count && ok; i++)
            ok = TEAM_CHECK(conf->team, conf->rank, data[i] == (int32_t)(i * 7 + (unsigned)from));
        ok = ok && TEAM_CHECK(conf->team, conf->rank, data[count] == 0);
        free(data);
        if (!ok) {
            sol_comm_abort(conf->comm);
            conf->stopped = true;
            return;
        }
    }
}

/* Collectives and messages on two communicators in one nested group. */
static void case_group_mixed(conf_t *conf)
{
    sol_comm_t twin;
    int n = conf->nranks, next = (conf->rank + 1) % n, previous = (conf->rank + n - 1) % n;
    if (!conf->device->cheap_alloc || !conf_comm(conf, &twin, &conf->team->ids[1], conf->rank, n))
        return;
    for (int64_t i = 0; i < 50; i++) {
        int64_t mine = i * 100 + conf->rank, sum = -1, most = -1, got = -1, second = -1;
        team_doing(conf->team, conf->rank, "mixed group %d", (int)i);
        sol_group_start();
        sol_all_reduce(&mine, &sum, 1, SOL_INT64, SOL_SUM, conf->comm, NULL);
        sol_send(&mine, 1, SOL_INT64, next, twin, NULL);
        sol_group_start();
        sol_recv(&got, 1, SOL_INT64, previous, twin, NULL);
        sol_all_reduce(&mine, &most, 1, SOL_INT64, SOL_MAX, twin, NULL);
        TEAM_CHECK(conf->team, conf->rank, sol_group_end() == SOL_OK && got == -1);
        sol_broadcast(&mine, &second, 1, SOL_INT64, n - 1, conf->comm, NULL);
        if (!TEAM_OK(conf->team, conf->rank, sol_group_end(), conf->comm))
            break;
        TEAM_CHECK(conf->team, conf->rank, sum == n * i * 100 + n * (n - 1) / 2);
        TEAM_CHECK(conf->team, conf->rank, most == i * 100 + n - 1);
        TEAM_CHECK(conf->team, conf->rank, got == i * 100 + previous);
        TEAM_CHECK(conf->team, conf->rank, second == i * 100 + n - 1);
    }
    TEAM_OK(conf->team, conf->rank, sol_comm_destroy(twin), NULL);
}

#define MANY 4

/* One thread that is four ranks: created, split, used and destroyed through groups. */
static void case_many_in_one(conf_t *conf)
{
    sol_comm_t comms[MANY], halves[MANY];
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    config.backend = conf->device->backend;
    config.timeout_ms = 20000;
    TEAM_OK(conf->team, conf->rank, sol_group_start(), NULL);
    for (int r = 0; r < MANY; r++)
        TEAM_OK(conf->team, conf->rank,
                sol_comm_create(&comms[r], &conf->team->ids[0], MANY, r, &config), NULL);
    if (!TEAM_OK(conf->team, conf->rank, sol_group_end(), NULL))
        return;
    TEAM_OK(conf->team, conf->rank, sol_group_start(), NULL);
    for (int r = 0; r < MANY; r++)
        TEAM_OK(conf->team, conf->rank, sol_comm_split(comms[r], r % 2, r, &halves[r], NULL),
                comms[r]);
    bool split = TEAM_OK(conf->team, conf->rank, sol_group_end(), NULL);
    float values[MANY], results[MANY];
    for (int round = 0; round < 20 && conf->device->cheap_alloc; round++) {
        sol_comm_t *use = round % 2 && split ? halves : comms;
        sol_group_start();
        for (int r = 0; r < MANY; r++) {
            values[r] = (float)(r + round);
            TEAM_OK(conf->team, conf->rank,
                    sol_all_reduce(&values[r], &results[r], 1, SOL_FLOAT32, SOL_SUM, use[r], NULL),
                    use[r]);
        }
        if (!TEAM_OK(conf->team, conf->rank, sol_group_end(), NULL))
            break;
        for (int r = 0; r < MANY; r++) {
            float all = (float)(6 + 4 * round), half = (float)((r % 2 ? 4 : 2) + 2 * round);
            TEAM_CHECK(conf->team, conf->rank, results[r] == (use == halves ? half : all));
        }
    }
    for (int r = 0; r < MANY; r++) {
        if (split)
            TEAM_OK(conf->team, conf->rank, sol_comm_destroy(halves[r]), NULL);
        TEAM_OK(conf->team, conf->rank, sol_comm_destroy(comms[r]), NULL);
    }
}

/* ------------------------------------------------------------- the whole life */

static int count_entries(const char *path)
{
    int n = 0;
    DIR *dir = opendir(path);
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

static long resident_pages(void)
{
    long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f) {
        if (fscanf(f, "%ld %ld", &size, &resident) != 2)
            resident = 0;
        fclose(f);
    }
    return resident;
}

static int count_mappings(void)
{
    int n = 0, c;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && (c = fgetc(f)) != EOF)
        n += c == '\n';
    if (f)
        fclose(f);
    return n;
}

/* 200 communicators one after the other, each used: nothing grows. */
static void case_lifecycle(conf_t *conf)
{
    team_t *team = conf->team;
    sol_unique_id_t *id = (sol_unique_id_t *)(void *)team->scratch;
    int cycles = conf->options->level == CONF_QUICK ? 40 : 200;
    int fds = 0, shm = 0, mappings = 0;
    long pages = 0;
    for (int i = 0; i < cycles + 20; i++) {
        if (i == 20) { /* what is made once is there by now */
            fds = count_entries("/proc/self/fd");
            shm = count_entries("/dev/shm");
            mappings = count_mappings();
            pages = resident_pages();
        }
        team_doing(team, conf->rank, "cycle %d", i);
        if (conf->rank == 0)
            TEAM_OK(team, conf->rank, sol_get_unique_id(id), NULL);
        team_barrier(team);
        void *memory = NULL;
        if (!conf_comm(conf, &conf->comm, id, conf->rank, conf->nranks))
            return;
        conf_barrier(conf);
        TEAM_OK(team, conf->rank, sol_mem_alloc(conf->comm, 100000, &memory), conf->comm);
        conf_call_t call = {.count = 1000, .dtype = SOL_FLOAT32, .seed = (uint64_t)i};
        conf_perform(conf, &call);
        conf->hashes = 0;
        if (i % 2) /* the other half is freed by destroy */
            TEAM_OK(team, conf->rank, sol_mem_free(conf->comm, memory), conf->comm);
        TEAM_OK(team, conf->rank, sol_comm_destroy(conf->comm), NULL);
        conf->comm = NULL;
        team_barrier(team);
    }
    TEAM_CHECK(team, conf->rank, count_entries("/proc/self/fd") == fds);
    TEAM_CHECK(team, conf->rank, count_entries("/dev/shm") == shm);
    /* Sanitizers, which run the quick suite, keep freed memory for a while and map more. */
    if (conf->options->level == CONF_QUICK)
        return;
    if (count_mappings() > mappings + 4)
        team_fail(team, conf->rank, "mappings grew from %d to %d", mappings, count_mappings());
    if (resident_pages() > pages + 256)
        team_fail(team, conf->rank, "resident memory grew from %ld to %ld pages", pages,
                  resident_pages());
}

/* A forked child may not use the communicator, and does no harm by existing and ending. */
static void case_fork(conf_t *conf)
{
    team_t *team = conf->team;
    float one = 1, sum = 0;
    if (!exercise(conf, conf->comm, conf->rank, conf->nranks, 1))
        return;
    for (int round = 0; round < 3; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            sol_status_t error;
            void *memory;
            bool ok = sol_all_reduce(&one, &sum, 1, SOL_FLOAT32, SOL_SUM, conf->comm,
                                     conf->stream) == SOL_ERR_STATE &&
                      sol_barrier(conf->comm, conf->stream) == SOL_ERR_STATE &&
                      sol_mem_alloc(conf->comm, 8, &memory) == SOL_ERR_STATE &&
                      sol_comm_async_error(conf->comm, &error) == SOL_ERR_STATE &&
                      sol_comm_abort(conf->comm) == SOL_ERR_STATE &&
                      sol_comm_destroy(conf->comm) == SOL_ERR_STATE;
            _exit(ok ? 0 : 1);
        }
        if (round != 1) { /* once the child ends while the parent works */
            int wstatus = -1;
            waitpid(pid, &wstatus, 0);
            TEAM_CHECK(team, conf->rank, wstatus == 0);
        }
        if (!exercise(conf, conf->comm, conf->rank, conf->nranks, 2 + (uint64_t)round))
            return;
        if (round == 1)
            waitpid(pid, NULL, 0);
    }
}

const conf_case_t conf_cases_comm[] = {
    {.name = "identity",
     .run = case_identity,
     .ranks = {N(2), CONF_ALL, CONF_ALL},
     .threads = {N(2), N(3), CONF_ALL}},
    {.name = "barrier",
     .run = case_barrier,
     .ranks = {N(3), CONF_ALL, CONF_ALL},
     .threads = {N(3), N(2) | N(5), CONF_ALL}},
    {.name = "explain", .run = case_explain, .ranks = {N(2), N(1) | N(2) | N(5), CONF_ALL}},
    {.name = "disjoint",
     .run = case_disjoint,
     .alone = 1,
     .ranks = {N(4), N(2) | N(5) | N(8), CONF_MULTI},
     .threads = {N(4), N(6), CONF_MULTI}},
    {.name = "overlap",
     .run = case_overlap,
     .ranks = {N(3), N(2) | N(3) | N(5) | N(8), CONF_MULTI},
     .threads = {N(3), N(4), CONF_MULTI}},
    {.name = "split",
     .run = case_split,
     .ranks = {N(4), CONF_MULTI, CONF_MULTI},
     .threads = {N(3), N(4), CONF_MULTI}},
    {.name = "two-threads",
     .run = case_two_threads,
     .ranks = {N(2), N(2) | N(3), CONF_ALL},
     .threads = {N(2), N(2), CONF_ALL}},
    {.name = "exchange",
     .run = case_exchange,
     .ranks = {N(3), CONF_ALL, CONF_ALL},
     .threads = {N(3), N(4), CONF_ALL}},
    {.name = "ping-pong",
     .run = case_ping_pong,
     .ranks = {N(2), N(2) | N(4) | N(8), CONF_ALL},
     .threads = {N(2), N(2), CONF_ALL}},
    {.name = "group-mixed",
     .run = case_group_mixed,
     .ranks = {N(3), CONF_ALL, CONF_ALL},
     .threads = {N(3), N(4), CONF_ALL}},
    {.name = "many-in-one",
     .run = case_many_in_one,
     .alone = 1,
     .ranks = {N(1), N(1), N(1)},
     .threads = {N(1), 0, 0}},
    {.name = "lifecycle",
     .run = case_lifecycle,
     .alone = 1,
     .ranks = {N(2), N(1) | N(2) | N(4), CONF_ALL},
     .deadline_s = 200},
    {.name = "fork", .run = case_fork, .ranks = {N(2), N(2) | N(3), CONF_ALL}},
    {.name = NULL},
};
