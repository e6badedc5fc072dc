/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team.h: runs the ranks of a test, as processes or as threads, under a deadline.
 *
 * The ranks are always in children: the caller stays single-threaded and without a communicator,
 * supervises, and turns a hang or a crash into a failure that says what each rank was doing. Ranks
 * talk to each other outside the library through team_t, which is shared memory.
 *
 * A test must never wait for another rank except in team_barrier and in the library.
 */
#ifndef TESTS_TEAM_H
#define TESTS_TEAM_H

#include "solccl/solccl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#define TEAM_MAX_RANKS 16
#define TEAM_HASHES 1024
#define TEAM_IDS 8
#define TEAM_SCRATCH 8192

typedef struct team {
    const char *name;
    int nranks;
    bool threads;
    uint64_t seed;
    unsigned
        expect_killed; /* bit r: rank r is meant to die by SIGKILL or SIGABRT (processes only) */
    sol_unique_id_t ids[TEAM_IDS];
    pthread_barrier_t barrier;
    _Atomic int failures;
    _Atomic int skips;
    _Atomic int stop; /* some rank cannot go on: the others should leave early */
    struct {
        pid_t pid;
        char doing[256];
        _Atomic int finished;
        _Atomic int status;
        double seconds;
        uint64_t hash[TEAM_HASHES];
    } rank[TEAM_MAX_RANKS];
    _Alignas(64) unsigned char scratch[TEAM_SCRATCH];
} team_t;

typedef void (*team_fn)(team_t *team, int rank, void *arg);

typedef struct team_options {
    const char *name;
    int nranks;
    bool threads;           /* one child with a thread a rank, else a child a rank */
    bool here;              /* with threads: no child; the deadline ends this whole process */
    int deadline_s;         /* for the whole run; then all are killed and it has failed */
    unsigned expect_killed; /* see team_t */
    uint64_t seed;
} team_options_t;

/* Runs fn on every rank. Returns the number of failures (0: passed); prints them. `*skips` (may be
 * NULL) counts what the ranks skipped. */
int team_run(const team_options_t *options, team_fn fn, void *arg, int *skips);

/* Everybody, outside the library. */
void team_barrier(team_t *team);

/* What this rank does now: shown if it hangs. */
#define team_doing(team, r, ...)                                                                   \
    snprintf((team)->rank[r].doing, sizeof((team)->rank[r].doing), __VA_ARGS__)

/* Record a failure (the first few are printed). */
void team_fail(team_t *team, int rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void team_skip(team_t *team, int rank, const char *why);

#define TEAM_CHECK(team, r, condition)                                                             \
    ((condition)                                                                                   \
         ? true                                                                                    \
         : (team_fail(team, r, "%s:%d: not true: %s", __FILE__, __LINE__, #condition), false))

/* Expect a status; the text of the last error is shown otherwise. `comm` may be NULL. */
bool team_expect(team_t *team, int rank, const char *what, sol_status_t got, sol_status_t wanted,
                 sol_comm_t comm);
#define TEAM_STATUS(team, r, call, wanted, comm) team_expect(team, r, #call, call, wanted, comm)
#define TEAM_OK(team, r, call, comm) team_expect(team, r, #call, call, SOL_OK, comm)

/* Seconds of a monotonic clock; a hash; a random stream (splitmix64). */
double team_now(void);
uint64_t team_hash(const void *data, size_t bytes);
static inline uint64_t team_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
static inline uint64_t team_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    return team_mix(*state);
}
void team_sleep_us(unsigned us);

/* Counting of cases over a program: prints "ok NAME" lines and the sum in the end. */
typedef struct tally {
    int passed, failed, skipped;
    const char *only; /* run only cases whose name contains this; NULL: all */
} tally_t;

bool tally_wants(const tally_t *tally, const char *name);
void tally_case(tally_t *tally, const char *name, int failures, bool skipped, double seconds);
int tally_finish(const tally_t *tally); /* exit status */

#endif
