/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorder.c: the flight recorder's dumps: on demand, when a communicator fails, on a signal. What
 * must be in them follows from the calls that the test made.
 */
#include "faults/faults.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define RING 1024
#define TEXT_BYTES ((size_t)1 << 20)

static int occurrences(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += strlen(word))
        n++;
    return n;
}

static char *read_all(int fd)
{
    char *text = calloc(1, TEXT_BYTES);
    size_t used = 0;
    ssize_t got;
    lseek(fd, 0, SEEK_SET);
    while (text && (got = read(fd, text + used, TEXT_BYTES - 1 - used)) > 0)
        used += (size_t)got;
    return text;
}

/* The dump of `comm` as text; the caller frees it. */
static char *dump_of(team_t *team, int rank, sol_comm_t comm)
{
    int fd = memfd_create("dump", MFD_CLOEXEC);
    char *text = NULL;
    if (TEAM_OK(team, rank, sol_comm_dump(comm, fd), comm))
        text = read_all(fd);
    close(fd);
    return text;
}

static bool has(team_t *team, int rank, const char *text, const char *word)
{
    if (text && strstr(text, word))
        return true;
    team_fail(team, rank, "the dump has no '%s'", word);
    return false;
}

/* 1500 operations: the last ones are there, in order, with what was called. */
static void on_demand(team_t *team, int rank, void *arg)
{
    enum { CALLS = 1500 };
    sol_comm_t comm;
    char word[128];
    int32_t x[16] = {0}, y[16];
    (void)arg;
    if (!fault_comm(team, rank, FAULT_LONG_MS, &comm))
        return;
    char *empty = dump_of(team, rank, comm);
    has(team, rank, empty, "\"operations\": []");
    free(empty);
    for (int i = 1; i <= CALLS; i++)
        if (i % 100 == 50)
            sol_broadcast(x, y, (size_t)(i % 10), SOL_INT32, i % team->nranks, comm, NULL);
        else
            sol_all_reduce(x, y, (size_t)(i % 16), SOL_INT32, SOL_MAX, comm, NULL);
    char *text = dump_of(team, rank, comm);
    snprintf(word, sizeof(word), "\"rank\": %d, \"nranks\": %d", rank, team->nranks);
    has(team, rank, text, word);
    has(team, rank, text, "\"sequence\": 1500, \"collectives\": 1500");
    has(team, rank, text,
        "{\"sequence\": 1500, \"collective\": 1500, \"func\": \"all_reduce\", \"count\": 12, "
        "\"dtype\": \"int32\", \"op\": \"max\"");
    snprintf(word, sizeof(word),
             "{\"sequence\": 1450, \"collective\": 1450, \"func\": \"broadcast\", \"count\": 0, "
             "\"dtype\": \"int32\", \"root\": %d",
             1450 % team->nranks);
    has(team, rank, text, word);
    if (text) {
        int kept = occurrences(strstr(text, "\"operations\""), "\"state\": \"done\"");
        TEAM_CHECK(team, rank, kept == RING);
        TEAM_CHECK(team, rank, !strstr(text, "\"state\": \"failed\""));
    }
    free(text);
    fault_expect(team, rank, "sol_comm_dump to nowhere", sol_comm_dump(comm, -1), SOL_ERR_ARGUMENT,
                 comm, "fd|-1");
    fault_expect(team, rank, "sol_comm_dump to what cannot be written",
                 sol_comm_dump(comm, rank + 1000), SOL_ERR_SYSTEM, comm, "write");
    fault_still_works(team, rank, comm);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
    fault_expect(team, rank, "sol_comm_dump after destroy", sol_comm_dump(comm, 1),
                 SOL_ERR_ARGUMENT, NULL, "comm");
}

static long late_ns(team_t *team, int rank, const char *text, int of)
{
    char word[64];
    snprintf(word, sizeof(word), "{\"rank\": %d, \"samples\": ", of);
    const char *skew = text ? strstr(text, "\"skew\": [") : NULL;
    const char *at = skew ? strstr(skew, word) : NULL;
    const char *late = at ? strstr(at, "\"late_ns\": ") : NULL;
    if (!late) {
        team_fail(team, rank, "the dump does not tell how late rank %d came", of);
        return 0;
    }
    TEAM_CHECK(team, rank, atol(at + strlen(word)) == 10);
    return atol(late + strlen("\"late_ns\": "));
}

/* Rank 1 comes 20 ms after all others to each collective that is clocked: every rank's dump says so
 * of it. */
static void who_is_late(team_t *team, int rank, void *arg)
{
    sol_comm_t comm;
    int32_t x = 1, y;
    _Atomic int *coming = (_Atomic int *)(void *)team->scratch;
    (void)arg;
    if (!fault_comm(team, rank, FAULT_LONG_MS, &comm))
        return;
    for (int i = 0; i < 160; i++) { /* one in 16 is clocked */
        if (i % 16 == 15 && rank != 1)
            atomic_fetch_add(coming, 1);
        if (i % 16 == 15 && rank == 1) {
            while (atomic_load(coming) < (i / 16 + 1) * (team->nranks - 1))
                team_sleep_us(200);
            team_sleep_us(20000);
        }
        TEAM_OK(team, rank, sol_all_reduce(&x, &y, 1, SOL_INT32, SOL_SUM, comm, NULL), comm);
    }
    char *text = dump_of(team, rank, comm);
    long late = late_ns(team, rank, text, 1);
    TEAM_CHECK(team, rank, late > 10000000);
    for (int r = 0; r < team->nranks; r++)
        if (r != 1 && late_ns(team, rank, text, r) >= late)
            team_fail(team, rank, "rank %d is said to be later than rank 1", r);
    free(text);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

/* The only file in `directory`, as text; it has to be its owner's alone. */
static char *only_file(team_t *team, int rank, const char *directory)
{
    DIR *listing = opendir(directory);
    struct dirent *entry;
    struct stat st;
    char *text = NULL;
    while (listing && (entry = readdir(listing)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        int fd = openat(dirfd(listing), entry->d_name, O_RDONLY | O_NOFOLLOW);
        TEAM_CHECK(team, rank, !text && fd >= 0 && fstat(fd, &st) == 0);
        TEAM_CHECK(team, rank, S_ISREG(st.st_mode) && (st.st_mode & 07777) == 0600);
        TEAM_CHECK(team, rank, strstr(entry->d_name, ".json") != NULL);
        text = read_all(fd);
        close(fd);
        unlinkat(dirfd(listing), entry->d_name, 0);
    }
    if (listing)
        closedir(listing);
    TEAM_CHECK(team, rank, text != NULL);
    return text;
}

/* The last rank calls something else: every rank leaves a file that tells. */
static void on_error(team_t *team, int rank, void *arg)
{
    char directory[] = "/tmp/solccl-test-XXXXXX";
    sol_comm_t comm;
    float x[4] = {0}, y[4];
    bool odd = rank == team->nranks - 1;
    (void)arg;
    if (!TEAM_CHECK(team, rank, mkdtemp(directory) != NULL))
        return;
    setenv("SOLCCL_DUMP_DIR", directory, 1);
    if (!fault_comm(team, rank, FAULT_LONG_MS, &comm))
        return;
    fault_still_works(team, rank, comm);
    team_barrier(team);
    sol_status_t status = odd ? sol_all_reduce(x, y, 3, SOL_FLOAT32, SOL_MIN, comm, NULL)
                              : sol_all_reduce(x, y, 4, SOL_FLOAT32, SOL_SUM, comm, NULL);
    status = status == SOL_OK ? sol_barrier(comm, NULL) : status;
    TEAM_CHECK(team, rank, status == SOL_ERR_MISMATCH || status == SOL_ERR_PEER);
    char *text = only_file(team, rank, directory);
    has(team, rank, text, "\"reason\": \"error\"");
    has(team, rank, text, "\"error\": {\"status\": -8");
    has(team, rank, text,
        odd ? "\"count\": 3, \"dtype\": \"float32\", \"op\": \"min\""
            : "\"count\": 4, \"dtype\": \"float32\", \"op\": \"sum\"");
    free(text);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
    TEAM_CHECK(team, rank, rmdir(directory) == 0); /* one file a failure, and no more */
}

static _Atomic int own_handler_ran;

static void own_handler(int number)
{
    (void)number;
    atomic_fetch_add(&own_handler_ran, 1);
}

static void *wait_in_barrier(void *comm)
{
    return (void *)(intptr_t)sol_barrier(comm, NULL);
}

/* Until a thread of this process waits for rank 1 and has put that down. */
static void await_wait(team_t *team, int rank, sol_comm_t comm)
{
    for (bool waits = false; !waits; team_sleep_us(1000)) {
        char *text = dump_of(team, rank, comm);
        waits = !text || strstr(text, "\"waiting_for\": [1]");
        free(text);
    }
}

/* Until the dump has been written: then the program's own handler runs. */
static void await_handler(void)
{
    while (!atomic_load(&own_handler_ran))
        team_sleep_us(1000);
}

/* While the rank waits in a barrier a signal arrives: the dump says so, the wait goes on, and the
 * program's own handler runs too. */
static void on_signal(team_t *team, int rank, void *arg)
{
    char directory[] = "/tmp/solccl-test-XXXXXX";
    sol_comm_t comm, gone;
    pthread_t thread;
    void *result = NULL;
    (void)arg;
    if (!TEAM_CHECK(team, rank, mkdtemp(directory) != NULL))
        return;
    signal(SIGUSR2, own_handler);
    setenv("SOLCCL_DUMP_DIR", directory, 1);
    setenv("SOLCCL_DUMP_SIGNAL", "USR2", 1);
    if (!fault_comm(team, rank, FAULT_LONG_MS, &gone) ||
        !TEAM_OK(team, rank, sol_comm_split(gone, 0, rank, &comm, NULL), gone))
        return;
    fault_still_works(team, rank, comm);
    TEAM_OK(team, rank, sol_comm_destroy(gone), NULL); /* not in the dump: one file */
    if (rank == 0) {
        TEAM_CHECK(team, rank, pthread_create(&thread, NULL, wait_in_barrier, comm) == 0);
        await_wait(team, rank, comm);
        TEAM_CHECK(team, rank, pthread_kill(thread, SIGUSR2) == 0);
        await_handler();
        char *text = only_file(team, rank, directory);
        has(team, rank, text, "\"reason\": \"signal\"");
        has(team, rank, text, "\"func\": \"barrier\"");
        has(team, rank, text, "\"state\": \"running\"");
        has(team, rank, text, "\"waiting_for\": [1]");
        TEAM_CHECK(team, rank, text && !strstr(text, "\"error\""));
        TEAM_CHECK(team, rank, atomic_load(&own_handler_ran) == 1);
        free(text);
    }
    team_barrier(team);
    if (rank == 0)
        pthread_join(thread, &result);
    else
        result = wait_in_barrier(comm);
    TEAM_CHECK(team, rank, (intptr_t)result == SOL_OK);
    fault_still_works(team, rank, comm);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
    rmdir(directory);
}

static void bad_settings(team_t *team, int rank, void *arg)
{
    sol_comm_t comm = NULL;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    (void)arg;
    config.backend = SOL_BACKEND_CPU;
    setenv("SOLCCL_DUMP_SIGNAL", "USR1", 1);
    fault_expect(team, rank, "a signal without a directory",
                 sol_comm_create(&comm, &team->ids[0], 1, 0, &config), SOL_ERR_ARGUMENT, NULL,
                 "SOLCCL_DUMP_SIGNAL|SOLCCL_DUMP_DIR");
    setenv("SOLCCL_DUMP_DIR", "/nonexistent/here", 1);
    fault_expect(team, rank, "a directory that is not there",
                 sol_comm_create(&comm, &team->ids[0], 1, 0, &config), SOL_ERR_ARGUMENT, NULL,
                 "SOLCCL_DUMP_DIR|/nonexistent/here");
    setenv("SOLCCL_DUMP_DIR", "/tmp", 1);
    setenv("SOLCCL_DUMP_SIGNAL", "KILL", 1);
    fault_expect(team, rank, "a signal that is none",
                 sol_comm_create(&comm, &team->ids[0], 1, 0, &config), SOL_ERR_ARGUMENT, NULL,
                 "SOLCCL_DUMP_SIGNAL|KILL|USR1");
    TEAM_CHECK(team, rank, comm == NULL);
}

const fault_case_t fault_recorder[] = {
    {.name = "recorder, on demand", .run = on_demand, .nranks = 3},
    {.name = "recorder, on demand, threads", .run = on_demand, .nranks = 2, .threads = true},
    {.name = "recorder, who is late", .run = who_is_late, .nranks = 3},
    {.name = "recorder, who is late, threads", .run = who_is_late, .nranks = 2, .threads = true},
    {.name = "recorder, on error", .run = on_error, .nranks = 3},
    {.name = "recorder, on a signal", .run = on_signal, .nranks = 2},
    {.name = "recorder, bad settings", .run = bad_settings, .nranks = 1},
    {.name = NULL},
};
