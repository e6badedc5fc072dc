/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places.c: where programs find themselves: containers, each with PIDs of its own, on one host;
 * limits of what a process may have; interval timers that interrupt every system call.
 */
#include "faults/faults.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* ------------------------------------------------------------- PID namespaces */

enum { BESIDE, BELOW }; /* all ranks in one of their own; or all but rank 0 */

/* Several calls for which rank 1 is late, so that the others look whether it lives; then it ends.
 */
static void among_strangers(team_t *team, int rank)
{
    sol_comm_t comm, rest = NULL;
    int32_t x = 1, y = 0;
    if (!fault_comm(team, rank, FAULT_LONG_MS, &comm))
        return;
    for (int i = 0; i < 3; i++) {
        if (rank == 1)
            team_sleep_us(120000);
        if (!fault_still_works(team, rank, comm))
            return;
    }
    team_barrier(team);
    if (rank == 1)
        return; /* its process ends, and it says nothing */
    double begin = team_now();
    fault_expect(team, rank, "a call without rank 1",
                 sol_all_reduce(&x, &y, 1, SOL_INT32, SOL_SUM, comm, NULL), SOL_ERR_PEER, comm,
                 "rank 1|is gone");
    TEAM_CHECK(team, rank, team_now() - begin < FAULT_SOON);
    if (rank == 0) /* rank 2 keeps the roll, and cannot see rank 1: rank 0 has to tell it */
        team_sleep_us(100000);
    begin = team_now();
    if (TEAM_OK(team, rank, sol_comm_shrink(comm, 0, &rest, NULL), comm) &&
        TEAM_OK(team, rank, sol_all_reduce(&x, &y, 1, SOL_INT32, SOL_SUM, rest, NULL), rest))
        TEAM_CHECK(team, rank, y == team->nranks - 1);
    TEAM_CHECK(team, rank, team_now() - begin < FAULT_SOON);
    sol_comm_destroy(rest);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

/* In a process of its own: one that has left its namespace cannot have threads, as sanitizers do.
 */
static bool enter_new_namespace(void)
{
    return unshare(CLONE_NEWPID) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0;
}

static bool may_enter(void)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(enter_new_namespace() ? 0 : 1);
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static int in_new_namespace(team_t *team, int rank)
{
    int status = -1;
    if (!enter_new_namespace())
        return 1;
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < rank; i++) { /* so that its pids differ */
            pid_t other = fork();
            if (other == 0)
                _exit(0);
            waitpid(other, NULL, 0);
        }
        among_strangers(team, rank);
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}

static void contained(team_t *team, int rank, void *arg)
{
    int status = -1;
    if (!may_enter()) {
        team_skip(team, rank, "no permission for PID namespaces");
        return;
    }
    if (*(int *)arg == BELOW && rank == 0) {
        among_strangers(team, rank);
        return;
    }
    pid_t child = fork();
    if (child == 0)
        _exit(in_new_namespace(team, rank));
    TEAM_CHECK(team, rank, child > 0 && waitpid(child, &status, 0) == child);
    TEAM_CHECK(team, rank, status == 0);
}

/* --------------------------------------------------------------------- limits */

/* Rank 1 may make no file of more than 64 KB: an error, where the kernel would send a signal that
 * ends it; a dump that is larger is an error, too. */
static void small_files(team_t *team, int rank, void *arg)
{
    struct rlimit limit, before;
    sol_comm_t comm = NULL;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    char path[] = "/tmp/solccl-test-XXXXXX";
    int32_t x = 1;
    (void)arg;
    config.backend = SOL_BACKEND_CPU;
    config.timeout_ms = FAULT_LONG_MS;
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 65536;
    if (rank == 1)
        setrlimit(RLIMIT_FSIZE, &limit);
    fault_expect(team, rank, "shared memory beyond the limit of file sizes",
                 sol_comm_create(&comm, &team->ids[0], team->nranks, rank, &config), SOL_ERR_SYSTEM,
                 NULL, "rank 1|ulimit -f");
    setrlimit(RLIMIT_FSIZE, &before);
    if (!TEAM_OK(team, rank, sol_comm_create(&comm, &team->ids[1], team->nranks, rank, &config),
                 NULL))
        return;
    for (int i = 0; i < 600; i++)
        sol_all_reduce(&x, &x, 0, SOL_INT32, SOL_SUM, comm, NULL);
    int fd = mkstemp(path);
    setrlimit(RLIMIT_FSIZE, &limit);
    fault_expect(team, rank, "a dump beyond the limit of file sizes", sol_comm_dump(comm, fd),
                 SOL_ERR_SYSTEM, comm, "write");
    setrlimit(RLIMIT_FSIZE, &before);
    close(fd);
    unlink(path);
    fault_still_works(team, rank, comm);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

/* Nobody reads the pipe that is dumped to, nor what is logged: an error, and no SIGPIPE. */
static void nobody_reads(team_t *team, int rank, void *arg)
{
    int ends[2], kept = dup(STDERR_FILENO);
    sol_comm_t comm;
    (void)arg;
    if (!fault_comm(team, rank, 10000, &comm) || !TEAM_CHECK(team, rank, pipe(ends) == 0))
        return;
    close(ends[0]);
    fault_expect(team, rank, "a dump to a pipe without a reader", sol_comm_dump(comm, ends[1]),
                 SOL_ERR_SYSTEM, comm, "write");
    fault_still_works(team, rank, comm);
    team_barrier(team);
    dup2(ends[1], STDERR_FILENO);
    sol_comm_abort(comm); /* is logged */
    dup2(kept, STDERR_FILENO);
    close(ends[1]);
    close(kept);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

/* ------------------------------------------------------------------- interrupts */

static void ignore(int number)
{
    (void)number;
}

/* A timer of 10 kHz interrupts set-up and waits of all ranks; nothing minds. */
static void interrupted(team_t *team, int rank, void *arg)
{
    struct sigaction action = {.sa_handler = ignore}; /* no SA_RESTART */
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    sol_comm_t comm, part;
    void *memory;
    (void)arg;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    if (fault_comm(team, rank, 20000, &comm)) {
        for (int i = 0; i < 20; i++) {
            if (i % 5 == rank)
                usleep(10000);
            fault_still_works(team, rank, comm);
        }
        if (TEAM_OK(team, rank, sol_comm_split(comm, 0, 0, &part, NULL), comm))
            TEAM_OK(team, rank, sol_comm_destroy(part), NULL);
        if (TEAM_OK(team, rank, sol_mem_alloc(comm, 100000, &memory), comm))
            TEAM_OK(team, rank, sol_mem_free(comm, memory), comm);
        TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
    }
    setitimer(ITIMER_REAL, &never, NULL);
}

const fault_case_t fault_places[] = {
    {.name = "containers with PIDs of their own",
     .run = contained,
     .nranks = 3,
     .argument = BESIDE},
    {.name = "containers beside rank 0's", .run = contained, .nranks = 3, .argument = BELOW},
    {.name = "a limit of file sizes", .run = small_files, .nranks = 2},
    {.name = "pipes without a reader", .run = nobody_reads, .nranks = 2},
    {.name = "interrupted by a timer", .run = interrupted, .nranks = 3},
    {.name = NULL},
};
