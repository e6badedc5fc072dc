/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cause.c: who is blamed. A rank that gives up because of another one leaves, and is then gone too;
 * whoever comes after must hear of the first cause, not of the one that left because of it. What is
 * awaited here is an event on another rank, never a time: `connect`, with which a rank joins a new
 * group, is this file's, and holds a rank there.
 */
#include "faults/faults.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef enum { FREE, DIE, WAIT } hold_t;
typedef enum { LEAVE, EXIT, STAY } manner_t;

static _Atomic int held; /* hold_t: of this process's next connect */

/* In the team's shared scratch. */
typedef struct scene {
    _Atomic int gave_up; /* the first one to notice has done all that it wants to */
    _Atomic int heard;   /* and the last one has its error */
} scene_t;

static scene_t *scene;

/* The library's too: this definition comes before the C library's. */
__attribute__((visibility("default"))) int connect(int fd, const struct sockaddr *address,
                                                   socklen_t bytes)
{
    hold_t hold = (hold_t)atomic_exchange(&held, FREE);
    if (hold == DIE)
        kill(getpid(), SIGKILL);
    while (hold == WAIT && !atomic_load(&scene->gave_up))
        team_sleep_us(500);
    return (int)syscall(SYS_connect, fd, address, bytes);
}

static void hear_of_rank_2(team_t *team, int rank, const char *what, sol_status_t status)
{
    const char *text = sol_last_error(NULL);
    if (status != SOL_ERR_PEER || !strstr(text, "rank 2 is gone"))
        team_fail(team, rank, "%s: status %d, expected that rank 2 is gone: %s", what, (int)status,
                  text);
}

/* What rank 0 does when it has noticed, before rank 1 comes. */
static void go(team_t *team, int rank, sol_comm_t comm, manner_t manner)
{
    if (manner == LEAVE)
        TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
    atomic_store(&scene->gave_up, 1);
    if (manner == EXIT)
        _exit(0);
    if (manner == STAY) {
        while (!atomic_load(&scene->heard))
            team_sleep_us(500);
        TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
    }
}

/* Rank 2 dies where it joins the new group, rank 0 notices and goes, and only then rank 1 joins. */
static void late(team_t *team, int rank, void *arg)
{
    sol_comm_t comm, part = NULL;
    scene = (scene_t *)(void *)team->scratch;
    if (!fault_comm(team, rank, FAULT_LONG_MS, &comm))
        return;
    fault_still_works(team, rank, comm);
    atomic_store(&held, rank == 2 ? DIE : rank == 1 ? WAIT : FREE);
    team_doing(team, rank, "splitting, with rank 2 dying and rank 1 late");
    sol_status_t status = sol_comm_split(comm, 0, rank, &part, NULL);
    hear_of_rank_2(team, rank, "split", status);
    if (rank == 0) {
        go(team, rank, comm, (manner_t) * (int *)arg);
        return;
    }
    atomic_store(&scene->heard, 1);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

/* Rank 0 leaves after a split that failed; rank 1, in the next call, hears why it left. */
static void left_after(team_t *team, int rank, void *arg)
{
    sol_comm_t comm, part = NULL;
    float x = 1, y = 0;
    (void)arg;
    scene = (scene_t *)(void *)team->scratch;
    if (!fault_comm(team, rank, FAULT_LONG_MS, &comm))
        return;
    fault_still_works(team, rank, comm);
    atomic_store(&held, rank == 2 ? DIE : FREE);
    sol_status_t status = sol_comm_split(comm, 0, rank, &part, NULL);
    TEAM_CHECK(team, rank, status == SOL_ERR_PEER);
    if (rank == 0) {
        TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
        atomic_store(&scene->gave_up, 1);
        return;
    }
    while (!atomic_load(&scene->gave_up))
        team_sleep_us(500);
    team_doing(team, rank, "calling without rank 0");
    status = sol_broadcast(&x, &y, 1, SOL_FLOAT32, 0, comm, NULL);
    fault_expect(team, rank, "broadcast", status, SOL_ERR_PEER, comm, "rank 0|rank 2");
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

/* One of three never comes to a split. Rank 1's time is up well before rank 0's, which alone knows
 * who is missing: it is asked. */
static void who_is_missing(team_t *team, int rank, void *arg)
{
    int timeout_ms = 1500;
    sol_comm_t comm, part = NULL;
    (void)arg;
    if (!fault_comm_short(team, rank, &timeout_ms, &comm))
        return;
    team_barrier(team);
    if (rank == 0) /* later than rank 1 by more than that one waits for its verdict unasked */
        team_sleep_us(800000);
    if (rank != 2) {
        sol_status_t status = sol_comm_split(comm, 0, rank, &part, NULL);
        fault_expect(team, rank, "split", status, SOL_ERR_TIMEOUT, comm, "from rank 2");
    }
    team_barrier(team);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

static void *abort_soon(void *comm)
{
    team_sleep_us(100000); /* wherever rank 1 is then: before its split, or in it */
    sol_comm_abort_reason(comm, "enough of this split");
    return NULL;
}

/* Rank 2 stands still where it joins the new group; rank 1 aborts the old one: all are free. */
static void aborted(team_t *team, int rank, void *arg)
{
    sol_comm_t comm, part = NULL;
    pthread_t thread;
    (void)arg;
    scene = (scene_t *)(void *)team->scratch;
    if (!fault_comm(team, rank, FAULT_LONG_MS, &comm))
        return;
    fault_still_works(team, rank, comm);
    team_barrier(team);
    atomic_store(&held, rank == 2 ? WAIT : FREE);
    if (rank == 1)
        pthread_create(&thread, NULL, abort_soon, comm);
    double begin = team_now();
    team_doing(team, rank, "splitting, while rank 1 aborts");
    sol_status_t status = sol_comm_split(comm, 0, rank, &part, NULL);
    double took = team_now() - begin;
    if (rank == 0) { /* (whichever of the two comes later, both are free before rank 2 moves) */
        team_sleep_us(1000);
        atomic_store(&scene->gave_up, 1);
    }
    fault_expect(team, rank, "split", status, SOL_ERR_ABORTED, comm, "enough of this split");
    if (took > FAULT_SOON)
        team_fail(team, rank, "the split ended after %.1f s", took);
    if (rank == 1)
        pthread_join(thread, NULL);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

const fault_case_t fault_cause[] = {
    {"first cause: rank 0 has left", late, 3, false, 4, LEAVE, 0, 0},
    {"first cause: rank 0 has ended", late, 3, false, 4, EXIT, 0, 0},
    {"first cause: rank 0 lives", late, 3, false, 4, STAY, 0, 0},
    {"first cause: why a rank left", left_after, 3, false, 4, 0, 0, 0},
    {"first cause: rank 0 is asked who is missing", who_is_missing, 3, false, 0, 0, 0, 0},
    {"first cause: a split ends by an abort of its parent", aborted, 3, false, 0, 0, 0, 0},
    {NULL, NULL, 0, false, 0, 0, 0, 0}};
