/* SPDX-License-Identifier: Apache-2.0 */
/*
 * soak.c: CPU ranks for a long time. Lives of communicators, one after another: each makes some
 * hundred random operations of random sizes, alone and in groups, with random delays of single
 * ranks, on itself, on a split of it and in symmetric memory; every element of every result is a
 * function of the seed and is checked. A life ends by destroy, by an abort or by a rank that
 * leaves; some sleep and wake. Memory and descriptors must be as they were after the first lives.
 *
 *     soak --minutes M [--ranks N] [--threads] [--seed S]
 *     soak --kills K      K times: one of two ranks is killed at a random moment; nothing is left
 */
#include "common/team.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST ((size_t)60000) /* elements of a rank's block */
#define WARM_LIVES 10
#define SLACK_KB 4096

typedef struct shared {
    sol_unique_id_t id;
    _Atomic uint64_t lives, operations, aborts;
    _Atomic int end;
} shared_t;

typedef struct soak {
    double minutes;
} soak_t;

typedef struct player {
    team_t *team;
    sol_comm_t comm;
    int rank, n;
    uint64_t shared;  /* the same stream of choices on all ranks */
    uint64_t private; /* for delays */
    uint64_t number;  /* of the operation */
    int32_t *send, *recv;
} player_t;

static int32_t value(uint64_t number, int rank, size_t i)
{
    return (int32_t)(team_mix(number * 64 + (uint64_t)rank) + i * 2654435761u);
}

static int32_t sum(uint64_t number, int n, size_t i)
{
    uint32_t total = 0;
    for (int r = 0; r < n; r++)
        total += (uint32_t)value(number, r, i);
    return (int32_t)total;
}

static size_t pick_count(player_t *p)
{
    uint64_t kind = team_random(&p->shared) % 8, x = team_random(&p->shared);
    return kind < 4 ? x % 64 : kind < 7 ? x % 4000 : x % MOST;
}

static void fill(player_t *p, size_t count)
{
    for (size_t i = 0; i < count; i++)
        p->send[i] = value(p->number, p->rank, i);
}

/* Where result i came from, by operation; false where nothing is expected. */
static bool right(const player_t *p, int kind, size_t count, int root, size_t i)
{
    switch (kind) {
    case 0:
        return p->recv[i] == sum(p->number, p->n, i);
    case 1:
        return p->recv[i] == value(p->number, (int)(i / count), i % count);
    case 2:
        return p->recv[i] == sum(p->number, p->n, (size_t)p->rank * count + i);
    case 3:
        return p->recv[i] == value(p->number, root, i);
    case 4:
        return p->recv[i] ==
               value(p->number, (int)(i / count), (size_t)p->rank * count + i % count);
    default: /* from the left neighbour, then the sum of ones */
        return p->recv[i] == value(p->number, (p->rank + p->n - 1) % p->n, i);
    }
}

static sol_status_t ring(player_t *p, size_t count)
{
    int32_t one = 1, all = 0;
    sol_group_start();
    sol_send(p->send, count, SOL_INT32, (p->rank + 1) % p->n, p->comm, NULL);
    sol_recv(p->recv, count, SOL_INT32, (p->rank + p->n - 1) % p->n, p->comm, NULL);
    sol_all_reduce(&one, &all, 1, SOL_INT32, SOL_SUM, p->comm, NULL);
    sol_status_t status = sol_group_end();
    if (status == SOL_OK && all != p->n)
        team_fail(p->team, p->rank, "a sum of ones is %d of %d", all, p->n);
    return status;
}

static sol_status_t one_operation(player_t *p)
{
    int kind = (int)(team_random(&p->shared) % 6),
        root = (int)(team_random(&p->shared) % 64) % p->n;
    size_t count = pick_count(p), n = (size_t)p->n, results = count;
    sol_status_t status;
    p->number = team_random(&p->shared);
    if (team_random(&p->private) % 50 == 0)
        team_sleep_us((unsigned)(team_random(&p->private) % 3000));
    fill(p, count * n);
    memset(p->recv, 0xa5, count * n * sizeof(int32_t));
    switch (kind) {
    case 0:
        status = sol_all_reduce(p->send, p->recv, count, SOL_INT32, SOL_SUM, p->comm, NULL);
        break;
    case 1:
        results = count * n;
        status = sol_all_gather(p->send, p->recv, count, SOL_INT32, p->comm, NULL);
        break;
    case 2:
        status = sol_reduce_scatter(p->send, p->recv, count, SOL_INT32, SOL_SUM, p->comm, NULL);
        break;
    case 3:
        status = sol_broadcast(p->send, p->recv, count, SOL_INT32, root, p->comm, NULL);
        break;
    case 4:
        results = count * n;
        status = sol_all_to_all(p->send, p->recv, count, SOL_INT32, p->comm, NULL);
        break;
    default:
        status = ring(p, count);
        break;
    }
    for (size_t i = 0; i < results && status == SOL_OK; i++)
        if (!right(p, kind, count, root, i)) {
            team_fail(p->team, p->rank, "kind %d, count %zu: element %zu is wrong", kind, count, i);
            return SOL_ERR_INTERNAL;
        }
    return status;
}

static sol_status_t play(player_t *p, shared_t *shared, unsigned operations)
{
    sol_status_t status = SOL_OK;
    for (unsigned i = 0; i < operations && status == SOL_OK; i++) {
        status = one_operation(p);
        if (p->rank == 0)
            atomic_fetch_add(&shared->operations, 1);
    }
    return status;
}

/* A part of the communicator and memory of it, used for a while. */
static sol_status_t side_show(player_t *p, shared_t *shared)
{
    player_t part = *p;
    void *memory = NULL;
    sol_status_t status = sol_comm_split(p->comm, p->rank % 2, -p->rank, &part.comm, NULL);
    if (status != SOL_OK)
        return status;
    sol_comm_rank(part.comm, &part.rank);
    sol_comm_size(part.comm, &part.n);
    part.shared ^= (uint64_t)(p->rank % 2);
    size_t bytes = MOST * (size_t)part.n * sizeof(int32_t);
    if ((status = sol_mem_alloc(part.comm, bytes, &memory)) == SOL_OK) {
        part.send = memory;
        status = play(&part, shared, 20);
    }
    for (int i = 0; i < 2 && status == SOL_OK; i++) {
        status = sol_comm_sleep(part.comm, i == 0 ? SOL_SLEEP_DISCARD : SOL_SLEEP_KEEP);
        if (status == SOL_OK && (status = sol_comm_wake(part.comm)) == SOL_OK)
            status = play(&part, shared, 20);
    }
    if (status == SOL_OK)
        status = sol_mem_free(part.comm, memory);
    sol_status_t left = sol_comm_destroy(part.comm);
    return status == SOL_OK ? left : status;
}

enum { BY_DESTROY, BY_ABORT, BY_LEAVING };

static void one_life(team_t *team, int rank, player_t *p, shared_t *shared, uint64_t life)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    uint64_t choices = team_mix(team->seed + life);
    unsigned operations = 50 + (unsigned)(choices % 200);
    int end = choices / 256 % 6 == 0 ? BY_ABORT : choices / 256 % 6 == 1 ? BY_LEAVING : BY_DESTROY;
    int culprit = (int)((choices >> 32) % (uint64_t)team->nranks);
    config.backend = SOL_BACKEND_CPU;
    config.timeout_ms = 60000;
    p->shared = choices;
    team_doing(team, rank, "life %llu", (unsigned long long)life);
    if (!TEAM_OK(team, rank, sol_comm_create(&p->comm, &shared->id, team->nranks, rank, &config),
                 NULL))
        return;
    sol_status_t status = play(p, shared, operations);
    if (status == SOL_OK && choices % 3 == 0)
        status = side_show(p, shared);
    if (!TEAM_CHECK(team, rank, status == SOL_OK))
        team_fail(team, rank, "life %llu: %s", (unsigned long long)life, sol_last_error(p->comm));
    if (end == BY_ABORT)
        team_barrier(team); /* what has not returned when somebody aborts may fail */
    if (end == BY_ABORT && rank == culprit) {
        TEAM_OK(team, rank, sol_comm_abort_reason(p->comm, "the end of a life"), p->comm);
        atomic_fetch_add(&shared->aborts, 1);
    } else if (end != BY_DESTROY && rank != culprit && team->nranks > 1) {
        double begin = team_now();
        while (sol_barrier(p->comm, NULL) == SOL_OK && team_now() - begin < 60)
            continue;
        TEAM_CHECK(team, rank, team_now() - begin < 55); /* less than the timeout */
    }
    TEAM_OK(team, rank, sol_comm_destroy(p->comm), NULL);
}

/* ------------------------------------------------------------------ what is left over */

static long resident_kb(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld %ld", &pages, &resident) != 2)
        resident = 0;
    if (file)
        fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static int descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int n = 0;
    while (directory && readdir(directory))
        n++;
    if (directory)
        closedir(directory);
    return n;
}

static void live(team_t *team, int rank, void *arg)
{
    const soak_t *soak = arg;
    shared_t *shared = (shared_t *)(void *)team->scratch;
    player_t p = {.team = team, .rank = rank, .n = team->nranks, .private = (uint64_t)rank};
    size_t bytes = MOST * (size_t)team->nranks * sizeof(int32_t);
    bool counts = !team->threads || rank == 0; /* one a process, while no other looks */
    double begin = team_now();
    long kb = 0;
    int fds = 0;
    p.send = malloc(bytes);
    p.recv = malloc(bytes);
    for (uint64_t life = 0; p.send && p.recv; life++) {
        if (rank == 0) {
            sol_get_unique_id(&shared->id);
            bool enough = life > WARM_LIVES && team_now() - begin > soak->minutes * 60;
            atomic_store(&shared->end, enough || atomic_load(&team->failures) > 0);
            atomic_store(&shared->lives, life);
        }
        team_barrier(team);
        if (atomic_load(&shared->end))
            break;
        one_life(team, rank, &p, shared, life);
        team_barrier(team);
        if (life == WARM_LIVES && counts) {
            kb = resident_kb();
            fds = descriptors();
        }
        if (rank == 0 && life % 500 == 499)
            fprintf(stderr, "  %.1f min: %llu lives, %ld KB, %d descriptors\n",
                    (team_now() - begin) / 60, (unsigned long long)life + 1, resident_kb(),
                    descriptors());
        team_barrier(team);
    }
    if (counts)
        TEAM_CHECK(team, rank, descriptors() == fds);
    if (counts && resident_kb() > kb + SLACK_KB)
        team_fail(team, rank, "memory grew from %ld to %ld KB", kb, resident_kb());
    if (rank == 0)
        printf("%llu lives, %llu operations on rank 0, %llu aborts; %ld KB after %d lives, %ld KB "
               "at the "
               "end; %d descriptors\n",
               (unsigned long long)atomic_load(&shared->lives),
               (unsigned long long)atomic_load(&shared->operations),
               (unsigned long long)atomic_load(&shared->aborts), kb, WARM_LIVES, resident_kb(),
               descriptors());
    fflush(stdout);
    free(p.send);
    free(p.recv);
}

/* ----------------------------------------------------------------------------- kills */

static void until_error(team_t *team, int rank)
{
    sol_comm_t comm = NULL;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    float x[512] = {0}, y[512];
    config.backend = SOL_BACKEND_CPU;
    config.timeout_ms = 3000;
    if (sol_comm_create(&comm, &team->ids[0], team->nranks, rank, &config) != SOL_OK)
        return;
    while (sol_all_reduce(x, y, 512, SOL_FLOAT32, SOL_SUM, comm, NULL) == SOL_OK)
        continue;
    sol_comm_destroy(comm);
}

static void be_killed(team_t *team, int rank, void *arg)
{
    (void)arg;
    if (rank == 1) {
        pid_t self = getpid();
        if (fork() == 0) {
            team_sleep_us((unsigned)(team_mix(team->seed) % 12000));
            kill(self, SIGKILL);
            _exit(0);
        }
    }
    until_error(team, rank);
    if (rank == 1)
        pause();
}

/* Socket names are counted by network namespace: in one of its own, where the kernel allows that,
 * no other program's are counted. */
static bool own_sockets(void)
{
    return unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
}

/* Entries that name solccl: in /dev/shm and among the sockets. */
static int left_behind(void)
{
    char line[512];
    int n = 0;
    DIR *directory = opendir("/dev/shm");
    struct dirent *entry;
    while (directory && (entry = readdir(directory)) != NULL)
        n += strstr(entry->d_name, "solccl") != NULL;
    if (directory)
        closedir(directory);
    FILE *file = fopen("/proc/net/unix", "r");
    while (file && fgets(line, sizeof(line), file))
        n += strstr(line, "@solccl") != NULL;
    if (file)
        fclose(file);
    return n;
}

static int kill_often(int kills)
{
    bool own = own_sockets();
    int failures = 0, before = left_behind(), fds = descriptors();
    for (int i = 0; i < kills && failures == 0; i++) {
        team_options_t options = {.name = "kills",
                                  .nranks = 2,
                                  .deadline_s = 20,
                                  .expect_killed = 2,
                                  .seed = (uint64_t)i};
        failures += team_run(&options, be_killed, NULL, NULL);
    }
    int after = left_behind();
    for (int tries = 0; tries < 50 && after > before; tries++) { /* (another program's, perhaps) */
        team_sleep_us(100000);
        after = left_behind();
    }
    printf(
        "%d kills: %d failures, %d things left behind (%d before%s), descriptors %d (%d before)\n",
        kills, failures, after, before, own ? "" : ", other programs' sockets among them",
        descriptors(), fds);
    return failures > 0 || after > before || descriptors() != fds;
}

int main(int argc, char **argv)
{
    soak_t soak = {.minutes = 0.1};
    team_options_t options = {.name = "soak", .nranks = 3, .seed = 1};
    int kills = 0;
    setenv("SOLCCL_LOG", "error", 0);
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "0";
        if (!strcmp(argv[i], "--threads")) {
            options.threads = true;
            continue;
        }
        if (!strcmp(argv[i], "--minutes"))
            soak.minutes = atof(next);
        else if (!strcmp(argv[i], "--ranks"))
            options.nranks = atoi(next);
        else if (!strcmp(argv[i], "--seed"))
            options.seed = strtoull(next, NULL, 10);
        else if (!strcmp(argv[i], "--kills"))
            kills = atoi(next);
        else
            return fprintf(stderr, "soak: %s is no option\n", argv[i]), 2;
        i++;
    }
    if (options.nranks < 1 || options.nranks > TEAM_MAX_RANKS)
        return fprintf(stderr, "soak: 1 to %d ranks\n", TEAM_MAX_RANKS), 2;
    if (kills > 0)
        return kill_often(kills);
    options.deadline_s = (int)(soak.minutes * 60) + 120;
    int failures = team_run(&options, live, &soak, NULL);
    printf("%d passed, %d failed\n", failures == 0, failures != 0);
    return failures != 0;
}
