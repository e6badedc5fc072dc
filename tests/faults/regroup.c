/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regroup.c: going on without ranks that are gone, letting new ones in, and telling the others why
 * one gives up. After each the results are right, and the same bits on all ranks.
 */
#include "faults/faults.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_MS 1500
#define COUNT ((size_t)30000)

/* What `old` rank contributes to element i: sums of these depend on their order. */
static float part_of(int old, size_t i)
{
    return (float)(old + 1) * 0.1f + (float)(i % 97) * 1e-3f;
}

/* A small and a large sum of the old ranks in `members`, on `comm` whose ranks they are in order.
 */
static bool sums_right(team_t *team, int old, unsigned members, sol_comm_t comm)
{
    const size_t counts[] = {1, 7, COUNT};
    float *x = calloc(COUNT, sizeof(*x)), *y = calloc(COUNT, sizeof(*y));
    bool right = x && y;
    int rank = -1, n = -1;
    sol_comm_rank(comm, &rank);
    sol_comm_size(comm, &n);
    right = TEAM_CHECK(team, old, n == __builtin_popcount(members)) &&
            TEAM_CHECK(team, old, rank == __builtin_popcount(members & ((1u << old) - 1))) && right;
    for (size_t k = 0; k < 3 && right; k++) {
        for (size_t i = 0; i < counts[k]; i++)
            x[i] = part_of(old, i);
        right = TEAM_OK(team, old,
                        sol_all_reduce(x, y, counts[k], SOL_FLOAT32, SOL_SUM, comm, NULL), comm);
        for (size_t i = 0; i < counts[k] && right; i++) {
            float sum = 0;
            bool first = true;
            for (int r = 0; r < team->nranks; r++)
                if (members >> r & 1) {
                    sum = first ? part_of(r, i) : sum + part_of(r, i);
                    first = false;
                }
            uint32_t expected, got;
            memcpy(&expected, &sum, sizeof(expected));
            memcpy(&got, &y[i], sizeof(got));
            if (expected != got) {
                team_fail(team, old, "element %zu of %zu is %a, expected %a", i, counts[k],
                          (double)y[i], (double)sum);
                right = false;
            }
        }
    }
    free(x);
    free(y);
    return right;
}

/* Calls until one fails. */
static sol_status_t until_it_fails(team_t *team, int rank, sol_comm_t comm)
{
    float x = 1, y = 0;
    double begin = team_now();
    sol_status_t status = SOL_OK;
    team_doing(team, rank, "calling until it fails");
    while (status == SOL_OK && team_now() - begin < 20)
        status = sol_all_reduce(&x, &y, 1, SOL_FLOAT32, SOL_SUM, comm, NULL);
    TEAM_CHECK(team, rank, status != SOL_OK);
    return status;
}

/* The ranks in *arg are killed while the others call; the others go on. */
static void killed(team_t *team, int rank, void *arg)
{
    unsigned dead = (unsigned)*(int *)arg;
    sol_comm_t comm, rest = NULL, again = NULL;
    if (!fault_comm(team, rank, FAULT_LONG_MS, &comm))
        return;
    fault_still_works(team, rank, comm);
    team_barrier(team);
    if (dead >> rank & 1)
        kill(getpid(), SIGKILL);
    until_it_fails(team, rank, comm);
    double begin = team_now();
    team_doing(team, rank, "shrinking");
    if (!TEAM_OK(team, rank, sol_comm_shrink(comm, 0, &rest, NULL), comm))
        return;
    unsigned members = ((1u << team->nranks) - 1) & ~dead;
    sums_right(team, rank, members, rest);
    if (team_now() - begin > FAULT_SOON)
        team_fail(team, rank, "it took %.2f s", team_now() - begin);
    /* The old one stays as it is, and can be shrunk once more. */
    TEAM_CHECK(team, rank, sol_barrier(comm, NULL) != SOL_OK);
    if (TEAM_OK(team, rank, sol_comm_shrink(comm, 0, &again, NULL), comm)) {
        sums_right(team, rank, members, again);
        TEAM_OK(team, rank, sol_comm_destroy(again), NULL);
    }
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
    sums_right(team, rank, members, rest);
    TEAM_OK(team, rank, sol_comm_destroy(rest), NULL);
}

/* A second one is killed at some moment of the shrinking or after it: the rest end up together,
 * whether by trying again or by shrinking what they got. */
static void killed_while_shrinking(team_t *team, int rank, void *arg)
{
    sol_comm_t comm, rest = NULL, next = NULL;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    int last = team->nranks - 1, second = (int)(team->expect_killed == 9 ? 0 : 1), n = 0;
    (void)arg;
    config.timeout_ms = FAULT_LONG_MS;
    config.backend = SOL_BACKEND_CPU;
    if (!fault_comm(team, rank, FAULT_LONG_MS, &comm))
        return;
    fault_still_works(team, rank, comm);
    team_barrier(team);
    if (rank == last)
        kill(getpid(), SIGKILL);
    until_it_fails(team, rank, comm);
    if (rank == second) {
        pid_t self = getpid();
        if (fork() == 0) {
            team_sleep_us((unsigned)(team->seed * 400));
            kill(self, SIGKILL);
            _exit(0);
        }
    }
    for (int tries = 0; tries < 5 && n != team->nranks - 2; tries++) {
        team_doing(team, rank, "shrinking, try %d", tries);
        if (sol_comm_shrink(rest ? rest : comm, 0, &next, &config) != SOL_OK)
            continue;
        sol_comm_destroy(rest);
        rest = next;
        sol_comm_size(rest, &n);
        if (n != team->nranks - 2)
            until_it_fails(team, rank, rest);
    }
    if (rank == second)
        pause();
    if (TEAM_CHECK(team, rank, n == team->nranks - 2))
        sums_right(team, rank, ((1u << team->nranks) - 1) & ~(1u << last) & ~(1u << second), rest);
    TEAM_OK(team, rank, sol_comm_destroy(rest), NULL);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

/* The last rank lives but does not come: it is left out when the time is up; then it comes, and
 * hears so at once. */
static void stopped(team_t *team, int rank, void *arg)
{
    sol_comm_t comm, rest = NULL;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    int last = team->nranks - 1;
    (void)arg;
    config.timeout_ms = TIMEOUT_MS;
    config.backend = SOL_BACKEND_CPU;
    if (!fault_comm(team, rank, FAULT_LONG_MS, &comm))
        return;
    fault_still_works(team, rank, comm);
    team_barrier(team);
    if (rank == last) {
        team_barrier(team);
        fault_expect(team, rank, "shrinking alone", sol_comm_shrink(comm, 0, &rest, &config),
                     SOL_ERR_PEER, NULL, "rank|went on without this rank");
        TEAM_CHECK(team, rank, rest == NULL);
    } else {
        fault_begin(team, rank);
        if (TEAM_OK(team, rank, sol_comm_shrink(comm, 0, &rest, &config), comm)) {
            double took = fault_since_first(team);
            TEAM_CHECK(team, rank, took > TIMEOUT_MS * 0.9e-3);
            TEAM_CHECK(team, rank, took < TIMEOUT_MS * 1e-3 + FAULT_SOON);
            sums_right(team, rank, (1u << last) - 1, rest);
        }
        team_barrier(team);
    }
    team_barrier(team);
    TEAM_OK(team, rank, sol_comm_destroy(rest), NULL);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

/* A healthy communicator: all of it, then without rank 1, which comes all the same. */
static void excluded(team_t *team, int rank, void *arg)
{
    sol_comm_t comm, all = NULL, rest = NULL;
    unsigned members = (1u << team->nranks) - 1;
    (void)arg;
    if (!fault_comm(team, rank, FAULT_LONG_MS, &comm))
        return;
    if (TEAM_OK(team, rank, sol_comm_shrink(comm, 0, &all, NULL), comm)) {
        sums_right(team, rank, members, all);
        TEAM_OK(team, rank, sol_comm_destroy(all), NULL);
    }
    fault_expect(team, rank, "excluding itself", sol_comm_shrink(comm, 1ull << rank, &rest, NULL),
                 SOL_ERR_ARGUMENT, comm, "exclude");
    fault_expect(team, rank, "no result", sol_comm_shrink(comm, 0, NULL, NULL), SOL_ERR_ARGUMENT,
                 comm, "result");
    sol_group_start();
    fault_expect(team, rank, "in a group", sol_comm_shrink(comm, 0, &rest, NULL), SOL_ERR_STATE,
                 comm, "group");
    sol_group_end();
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    config.timeout_ms = rank == 1 ? TIMEOUT_MS : FAULT_LONG_MS;
    config.backend = SOL_BACKEND_CPU;
    if (rank == 1) {
        sol_status_t status = sol_comm_shrink(comm, 0, &rest, &config);
        TEAM_CHECK(team, rank, status == SOL_ERR_PEER || status == SOL_ERR_TIMEOUT);
        TEAM_CHECK(team, rank, rest == NULL);
    } else if (TEAM_OK(team, rank, sol_comm_shrink(comm, 2, &rest, &config), comm)) {
        sums_right(team, rank, members & ~2u, rest);
    }
    team_barrier(team);
    TEAM_OK(team, rank, sol_comm_destroy(rest), NULL);
    fault_still_works(team, rank, comm);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

/* A rank that has destroyed the communicator is gone too: nobody waits for it. */
static void left(team_t *team, int rank, void *arg)
{
    sol_comm_t comm, rest = NULL;
    (void)arg;
    if (!fault_comm(team, rank, FAULT_LONG_MS, &comm))
        return;
    fault_still_works(team, rank, comm);
    team_barrier(team);
    if (rank == 0) {
        TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
        return;
    }
    until_it_fails(team, rank, comm);
    double begin = team_now();
    if (TEAM_OK(team, rank, sol_comm_shrink(comm, 0, &rest, NULL), comm)) {
        TEAM_CHECK(team, rank, team_now() - begin < FAULT_SOON);
        sums_right(team, rank, ((1u << team->nranks) - 1) & ~1u, rest);
    }
    TEAM_OK(team, rank, sol_comm_destroy(rest), NULL);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

/* Two ranks become four; and different numbers are told. */
static void grown(team_t *team, int rank, void *arg)
{
    sol_comm_t comm = NULL, more = NULL;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    (void)arg;
    config.backend = SOL_BACKEND_CPU;
    config.timeout_ms = FAULT_LONG_MS;
    if (rank >= 2) {
        if (TEAM_OK(team, rank, sol_comm_create(&more, &team->ids[1], 4, rank, &config), NULL))
            sums_right(team, rank, 15, more);
        TEAM_OK(team, rank, sol_comm_destroy(more), NULL);
        return;
    }
    if (!TEAM_OK(team, rank, sol_comm_create(&comm, &team->ids[0], 2, rank, &config), NULL))
        return;
    fault_expect(team, rank, "growing to fewer", sol_comm_grow(comm, &team->ids[2], 1, &more, NULL),
                 SOL_ERR_ARGUMENT, comm, "nranks|1");
    fault_expect(team, rank, "growing to different numbers",
                 sol_comm_grow(comm, &team->ids[2], 3 + rank, &more, NULL), SOL_ERR_MISMATCH, comm,
                 "sol_comm_grow|3|4");
    TEAM_CHECK(team, rank, more == NULL);
    if (TEAM_OK(team, rank, sol_comm_grow(comm, rank == 0 ? &team->ids[1] : NULL, 4, &more, NULL),
                comm))
        sums_right(team, rank, 15, more);
    int32_t one = 1, two = 0;
    TEAM_OK(team, rank, sol_all_reduce(&one, &two, 1, SOL_INT32, SOL_SUM, comm, NULL), comm);
    TEAM_CHECK(team, rank, two == 2);
    TEAM_OK(team, rank, sol_comm_destroy(more), NULL);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

/* The reason of the one that gives up is in everybody's text: of those that wait in a call, of
 * those that call later, and of those that set something up. */
static void reason(team_t *team, int rank, void *arg)
{
    static const char why[] = "ValueError: \"loss is NaN\" at step 17";
    sol_comm_t comm, part = NULL;
    float x = 1, y = 0;
    int setting_up = *(int *)arg;
    if (!fault_comm(team, rank, FAULT_LONG_MS, &comm))
        return;
    fault_still_works(team, rank, comm);
    team_barrier(team);
    if (rank == 1) {
        team_sleep_us(50000);
        TEAM_OK(team, rank, sol_comm_abort_reason(comm, why), comm);
    }
    if (rank == 2)
        team_sleep_us(150000);
    double begin = team_now();
    sol_status_t status = setting_up ? sol_comm_split(comm, 0, rank, &part, NULL)
                                     : sol_all_reduce(&x, &y, 1, SOL_FLOAT32, SOL_SUM, comm, NULL);
    fault_expect(team, rank, "the aborted call", status, SOL_ERR_ABORTED, comm,
                 "rank 1|loss is NaN|step 17");
    TEAM_CHECK(team, rank, team_now() - begin < FAULT_SOON);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

/* Rank 1 dies asleep: who wakes hears of it, asleep still; the rest goes on awake. A message that
 * was not received, another level, or a rank that does not come: nobody sleeps. */
static void asleep(team_t *team, int rank, void *arg)
{
    sol_comm_t comm, rest;
    sol_comm_info_t info = {.size = sizeof(info)};
    int32_t x = rank;
    unsigned all = (1u << team->nranks) - 1;
    (void)arg;
    if (!fault_comm(team, rank, FAULT_LONG_MS, &comm))
        return;
    if (rank == 0)
        TEAM_OK(team, rank, sol_send(&x, 1, SOL_INT32, 2, comm, NULL), comm);
    fault_expect(team, rank, "sleep with a message under way",
                 sol_comm_sleep(comm, SOL_SLEEP_DISCARD), SOL_ERR_STATE, comm, "rank 0|rank 2");
    if (rank == 2)
        TEAM_OK(team, rank, sol_recv(&x, 1, SOL_INT32, 0, comm, NULL), comm);
    fault_expect(team, rank, "sleep at two levels",
                 sol_comm_sleep(comm, rank == 2 ? SOL_SLEEP_KEEP : SOL_SLEEP_DISCARD),
                 SOL_ERR_MISMATCH, comm, "rank 2|level");
    if (!sums_right(team, rank, all, comm) ||
        !TEAM_OK(team, rank, sol_comm_sleep(comm, SOL_SLEEP_DISCARD), comm))
        return;
    if (rank == 1)
        raise(SIGKILL);
    team_sleep_us(50000);
    double begin = team_now();
    fault_expect(team, rank, "wake without rank 1", sol_comm_wake(comm), SOL_ERR_PEER, comm,
                 "rank 1");
    TEAM_OK(team, rank, sol_comm_query(comm, &info), comm);
    TEAM_CHECK(team, rank, info.asleep == 1);
    if (TEAM_OK(team, rank, sol_comm_shrink(comm, 0, &rest, NULL), comm)) {
        sums_right(team, rank, all & ~2u, rest);
        TEAM_OK(team, rank, sol_comm_destroy(rest), NULL);
    }
    TEAM_CHECK(team, rank, team_now() - begin < FAULT_SOON);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

const fault_case_t fault_regroup[] = {
    {.name = "shrink: one of 8 killed",
     .run = killed,
     .nranks = 8,
     .killed = 1u << 5,
     .argument = 1 << 5},
    {.name = "shrink: rank 0 killed", .run = killed, .nranks = 3, .killed = 1, .argument = 1},
    {.name = "shrink: one is left", .run = killed, .nranks = 2, .killed = 1, .argument = 1},
    {.name = "shrink: two killed", .run = killed, .nranks = 5, .killed = 0x11, .argument = 0x11},
    {.name = "shrink: another dies meanwhile",
     .run = killed_while_shrinking,
     .nranks = 4,
     .killed = 1u << 3 | 1u << 1,
     .repeat = 5},
    {.name = "shrink: rank 0 dies meanwhile",
     .run = killed_while_shrinking,
     .nranks = 4,
     .killed = 1u << 3 | 1u << 0,
     .repeat = 5},
    {.name = "shrink: one stays away", .run = stopped, .nranks = 3},
    {.name = "shrink: one stays away, threads", .run = stopped, .nranks = 3, .threads = true},
    {.name = "shrink: of two, rank 1 stays away", .run = stopped, .nranks = 2},
    {.name = "shrink: excluded", .run = excluded, .nranks = 4},
    {.name = "shrink: one has left", .run = left, .nranks = 3},
    {.name = "shrink: one has left, threads", .run = left, .nranks = 3, .threads = true},
    {.name = "asleep, one is killed", .run = asleep, .nranks = 4, .killed = 2},
    {.name = "grow", .run = grown, .nranks = 4},
    {.name = "grow, threads", .run = grown, .nranks = 4, .threads = true},
    {.name = "abort with a reason, in a call", .run = reason, .nranks = 3, .argument = 0},
    {.name = "abort with a reason, in set-up", .run = reason, .nranks = 3, .argument = 1},
    {.name = NULL},
};
