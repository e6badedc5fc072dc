/* SPDX-License-Identifier: Apache-2.0 */
/*
 * woken.c: ranks that come back after the others have given them up: a process that was stopped for
 * longer than the timeout, one that comes to a shrink that is over, one that became another
 * program. No two parts of a job may go on, and nobody may wait for what is over.
 */
#include "faults/faults.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GIVEN_UP, LEFT, OVER, AWAKE };

/* This rank stops itself, and goes on some time after `flag` was raised. */
static void stop_until(team_t *team, int flag)
{
    pid_t me = getpid();
    if (fork() == 0) {
        fault_await(team, flag);
        while (getppid() == me && !fault_raised(team, AWAKE)) { /* (it may not have stopped yet) */
            kill(me, SIGCONT);
            team_sleep_us(5000);
        }
        _exit(0);
    }
    raise(SIGSTOP);
    fault_raise(team, AWAKE);
}

static void meet_again(team_t *team, int rank)
{
    sol_comm_t comm;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    config.backend = SOL_BACKEND_CPU;
    team_doing(team, rank, "meeting again");
    if (TEAM_OK(team, rank, sol_comm_create(&comm, &team->ids[3], team->nranks, rank, &config),
                NULL)) {
        fault_still_works(team, rank, comm);
        TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
    }
}

/* The woken rank gets the error that the others had, at once; then all can begin anew. argument 1:
 * and it shrinks when the others have, who do not know it any more. */
static void woken(team_t *team, int rank, void *arg)
{
    const bool shrinks = *(int *)arg == 1;
    int timeout_ms = 600, sum = 0, one = 1;
    sol_comm_t comm, rest = NULL;
    if (!fault_comm_short(team, rank, &timeout_ms, &comm))
        return;
    team_barrier(team);
    if (rank == 2)
        stop_until(team, shrinks ? OVER : GIVEN_UP);
    double begin = team_now();
    sol_status_t status = sol_all_reduce(&one, &sum, 1, SOL_INT32, SOL_SUM, comm, NULL);
    TEAM_CHECK(team, rank, rank != 2 || team_now() - begin < FAULT_SOON);
    fault_expect(team, rank, "the call that was given up", status, SOL_ERR_TIMEOUT, comm, "rank 2");
    if (shrinks) {
        if (rank != 2) {
            TEAM_OK(team, rank, sol_comm_shrink(comm, 1u << 2, &rest, NULL), comm);
        } else {
            status = sol_comm_shrink(comm, 0, &rest, NULL);
            fault_expect(team, rank, "a shrink that is over", status, SOL_ERR_PEER, NULL,
                         "without");
        }
        TEAM_OK(team, rank, sol_comm_destroy(rest), NULL);
    }
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
    if (rank == 1)
        fault_raise(team, LEFT);
    if (rank == 0) {
        fault_await(team, LEFT);
        fault_raise(team, shrinks ? OVER : GIVEN_UP);
    }
    meet_again(team, rank);
}

/* One rank shrinks a communicator on which the others go on: it is told, and nothing is broken. */
static void shrinks_alone(team_t *team, int rank, void *arg)
{
    int timeout_ms = 600;
    sol_comm_t comm, rest = NULL;
    (void)arg;
    if (!fault_comm_short(team, rank, &timeout_ms, &comm))
        return;
    team_barrier(team);
    if (rank == 1)
        fault_expect(team, rank, "shrinking alone", sol_comm_shrink(comm, 0, &rest, NULL),
                     SOL_ERR_TIMEOUT, NULL, "0|2|did not come");
    team_barrier(team);
    fault_still_works(team, rank, comm);
    team_barrier(team);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

struct aborter {
    sol_comm_t comm;
    team_t *team;
};

static void *abort_it(void *opaque)
{
    struct aborter *a = opaque;
    team_barrier(a->team);
    sol_comm_abort(a->comm);
    return NULL;
}

/* Two communicators are aborted at once, each by all ranks, while calls on both are under way. */
static void two_aborts(team_t *team, int rank, void *arg)
{
    sol_comm_t comm[2];
    pthread_t threads[2];
    struct aborter aborters[2];
    sol_status_t status = SOL_OK;
    int x = 1, y = 0;
    (void)arg;
    for (int i = 0; i < 2; i++) {
        sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
        config.backend = SOL_BACKEND_CPU;
        config.timeout_ms = FAULT_LONG_MS;
        if (!TEAM_OK(team, rank,
                     sol_comm_create(&comm[i], &team->ids[i], team->nranks, rank, &config), NULL))
            return;
    }
    aborters[0] = (struct aborter){comm[0], team};
    pthread_create(&threads[0], NULL, abort_it, &aborters[0]);
    while (status == SOL_OK) {
        sol_group_start();
        sol_all_reduce(&x, &y, 1, SOL_INT32, SOL_SUM, comm[(rank + 1) % 2], NULL);
        sol_all_reduce(&x, &y, 1, SOL_INT32, SOL_SUM, comm[rank % 2], NULL);
        status = sol_group_end();
    }
    sol_comm_abort(comm[1]);
    pthread_join(threads[0], NULL);
    TEAM_CHECK(team, rank, status == SOL_ERR_ABORTED);
    for (int i = 0; i < 2; i++)
        TEAM_OK(team, rank, sol_comm_destroy(comm[i]), NULL);
    meet_again(team, rank);
}

/* A rank becomes another program, which lives on. */
static void becomes_another(team_t *team, int rank, void *arg)
{
    int timeout_ms = 600, one = 1, sum = 0;
    sol_comm_t comm;
    (void)arg;
    if (!fault_comm_short(team, rank, &timeout_ms, &comm))
        return;
    team_barrier(team);
    if (rank == 1) {
        execl("/bin/sleep", "sleep", "1", (char *)NULL);
        team_fail(team, rank, "no sleep here");
    }
    sol_status_t status = SOL_OK;
    while (status == SOL_OK)
        status = sol_all_reduce(&one, &sum, 1, SOL_INT32, SOL_SUM, comm, NULL);
    TEAM_CHECK(team, rank, status == SOL_ERR_TIMEOUT || status == SOL_ERR_PEER);
    TEAM_CHECK(team, rank, fault_text_has(sol_last_error(comm), "rank 1"));
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

const fault_case_t fault_woken[] = {
    {.name = "stopped past the timeout, and woken", .run = woken, .nranks = 3},
    {.name = "woken, to a shrink that is over", .run = woken, .nranks = 3, .argument = 1},
    {.name = "a shrink of one", .run = shrinks_alone, .nranks = 3},
    {.name = "two aborts at once", .run = two_aborts, .nranks = 2},
    {.name = "a rank becomes another program", .run = becomes_another, .nranks = 3},
    {.name = NULL},
};
