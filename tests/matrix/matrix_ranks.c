/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matrix_ranks.c: the ranks of a cell of the fault matrix. The last one is the victim: it fails in
 * one way in one phase. Each survivor must get the right error, whose text names the victim, in
 * time; must find its device idle, be able to destroy its communicator, and go on with the other
 * survivors: on a new communicator, or on what shrink made of the old one.
 *
 * No wait here is without an end: the team's deadline ends them all.
 */
#include "matrix/matrix.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define BATCH 4 /* small operations enqueued at once, where a call only enqueues */

/* In the team's shared scratch. */
typedef struct outcome {
    _Atomic int survivors_done;
    _Atomic int faulted;
    double fault_at;
    int status[TEAM_MAX_RANKS];
    double took[TEAM_MAX_RANKS], shrink_took[TEAM_MAX_RANKS];
} outcome_t;

/* One rank in its cell. */
typedef struct member {
    team_t *team;
    const cell_t *cell;
    int rank;
    sol_comm_t comm;
    side_t side;
} member_t;

static outcome_t *outcome_of(team_t *team)
{
    return (outcome_t *)(void *)team->scratch;
}

static int victim_of(const cell_t *cell)
{
    return cell->nranks - 1;
}

/* ---------------------------------------------------------------------- the phases */

static sol_status_t settle(member_t *m, sol_status_t status)
{
    return status != SOL_OK ? status : m->cell->device->settle(&m->side, m->comm);
}

static sol_status_t all_reduce(member_t *m, size_t count)
{
    float *x = m->side.data;
    int batch = m->cell->device->blocking || count > 8 ? 1 : BATCH;
    sol_status_t status = SOL_OK;
    for (int i = 0; i < batch && status == SOL_OK; i++)
        status = sol_all_reduce(x, x + m->cell->device->large, count, SOL_FLOAT32, SOL_SUM, m->comm,
                                m->side.stream);
    return settle(m, status);
}

/* A ring of messages and a sum of `count` elements, in one group. */
static sol_status_t group(member_t *m, size_t count)
{
    int n = m->cell->nranks;
    float *x = m->side.data;
    sol_group_start();
    sol_send(x, 64, SOL_FLOAT32, (m->rank + 1) % n, m->comm, m->side.stream);
    sol_recv(x + 64, 64, SOL_FLOAT32, (m->rank + n - 1) % n, m->comm, m->side.stream);
    sol_all_reduce(x + 128, x + 192, count, SOL_FLOAT32, SOL_SUM, m->comm, m->side.stream);
    return settle(m, sol_group_end());
}

static sol_status_t split(member_t *m)
{
    sol_comm_t part = NULL;
    sol_status_t status = sol_comm_split(m->comm, 0, m->rank, &part, NULL);
    sol_comm_destroy(part);
    return status;
}

static sol_status_t step(member_t *m)
{
    const device_t *device = m->cell->device;
    switch (m->cell->phase) {
    case LARGE_OP:
        return all_reduce(m, device->large);
    case GRAPH:
        return settle(m, device->replay(&m->side) ? SOL_OK : SOL_ERR_DEVICE);
    case GROUP:
        return group(m, 8);
    case SPLIT:
        return split(m);
    default:
        return all_reduce(m, 8);
    }
}

/* Something else than the others' step. */
static sol_status_t another_step(member_t *m)
{
    const device_t *device = m->cell->device;
    float *x = m->side.data;
    switch (m->cell->phase) {
    case LARGE_OP:
        return all_reduce(m, device->large - 1);
    case GROUP:
        return group(m, 9);
    case SPLIT:
        return all_reduce(m, 8);
    default:
        return settle(
            m, sol_all_gather(x, x + device->large, 8, SOL_FLOAT32, m->comm, m->side.stream));
    }
}

static sol_status_t create(member_t *m, int id, int nranks, int timeout_ms, sol_comm_t *comm)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    config.backend = m->cell->device->backend;
    config.timeout_ms = timeout_ms;
    config.staging_bytes = m->cell->device->staging_bytes;
    config.check = m->cell->fault == DIFFERS;
    return sol_comm_create(comm, &m->team->ids[id], nranks, m->rank, &config);
}

/* The communicator in which the fault is met, and a few calls on it. */
static bool begin(member_t *m)
{
    const cell_t *cell = m->cell;
    team_doing(m->team, m->rank, "beginning");
    if (!TEAM_OK(m->team, m->rank, create(m, 0, cell->nranks, cell->device->timeout_ms, &m->comm),
                 NULL))
        return false;
    for (int i = 0; i < 3; i++)
        TEAM_OK(m->team, m->rank, all_reduce(m, 8), m->comm);
    return cell->phase != GRAPH ||
           TEAM_CHECK(m->team, m->rank, cell->device->capture(&m->side, m->comm));
}

/* --------------------------------------------------------------------- the victim */

static void mark_fault(team_t *team)
{
    outcome_of(team)->fault_at = team_now();
    atomic_store(&outcome_of(team)->faulted, 1);
}

static unsigned delay_us(const cell_t *cell)
{
    return cell->phase == INIT ? cell->device->init_us : cell->device->blocking ? 5000 : 20000;
}

/* A process of its own delivers the signal, at whatever moment that is for the victim. */
static void signal_soon(member_t *m)
{
    static const int numbers[FAULTS] = {
        [KILLED] = SIGKILL, [STOPPED] = SIGSTOP, [RAISES] = SIGABRT};
    const struct rlimit none = {0, 0};
    pid_t victim = getpid();
    setrlimit(RLIMIT_CORE, &none);
    if (fork() != 0)
        return;
    team_sleep_us(delay_us(m->cell));
    mark_fault(m->team);
    kill(victim, numbers[m->cell->fault]);
    _exit(0);
}

static void wait_for_survivors(team_t *team)
{
    while (atomic_load(&outcome_of(team)->survivors_done) < team->nranks - 1)
        team_sleep_us(2000);
}

static _Noreturn void be_hit(member_t *m)
{
    const cell_t *cell = m->cell;
    signal_soon(m);
    if (cell->phase == INIT)
        create(m, 0, cell->nranks, cell->device->init_ms, &m->comm);
    while (cell->phase != INIT && cell->phase != DESTROY && step(m) == SOL_OK)
        continue;
    wait_for_survivors(m->team); /* (one that is stopped is killed by the last survivor) */
    for (;;)
        pause();
}

static void *abort_soon(void *opaque)
{
    member_t *m = opaque;
    team_sleep_us(delay_us(m->cell));
    mark_fault(m->team);
    sol_comm_abort_reason(m->comm, "the victim of the matrix");
    return NULL;
}

/* The thread that is in the call hears of it too. */
static void abort_in_a_call(member_t *m)
{
    pthread_t thread;
    sol_status_t status = SOL_OK;
    if (!TEAM_CHECK(m->team, m->rank, pthread_create(&thread, NULL, abort_soon, m) == 0))
        return;
    while (m->cell->phase != DESTROY && status == SOL_OK)
        status = step(m);
    double late = team_now() - outcome_of(m->team)->fault_at;
    pthread_join(thread, NULL);
    if (m->cell->phase != DESTROY) {
        TEAM_CHECK(m->team, m->rank, status == SOL_ERR_ABORTED);
        TEAM_CHECK(m->team, m->rank, late < m->cell->allowed);
    }
}

/* It gets the error that the others had, and does not wait; and if it shrinks as they did, it does
 * not become a part of its own that goes on. */
static void come_late(member_t *m)
{
    sol_status_t status;
    wait_for_survivors(m->team);
    double began = team_now();
    if (m->cell->phase == INIT)
        status = create(m, 0, m->cell->nranks, m->cell->device->init_ms, &m->comm);
    else
        status = step(m);
    if (!m->cell->device->untimed)
        TEAM_CHECK(m->team, m->rank, team_now() - began < m->cell->allowed);
    if (status != SOL_ERR_TIMEOUT && status != SOL_ERR_PEER)
        team_fail(m->team, m->rank, "the late one's status is %d: %s", (int)status,
                  sol_last_error(m->comm));
    sol_comm_t rest = NULL;
    if (m->cell->phase == SHRINK)
        TEAM_STATUS(m->team, m->rank, sol_comm_shrink(m->comm, 0, &rest, NULL), SOL_ERR_PEER, NULL);
}

static void call_another(member_t *m)
{
    sol_status_t status;
    if (m->cell->phase == INIT)
        status = create(m, 0, m->cell->nranks + 1, m->cell->device->init_ms, &m->comm);
    else
        status = another_step(m);
    TEAM_CHECK(m->team, m->rank, status != SOL_OK);
}

static void be_victim(member_t *m)
{
    const cell_t *cell = m->cell;
    team_doing(m->team, m->rank, "being the victim");
    if (matrix_is_signal(cell->fault))
        be_hit(m);
    if (cell->fault != ABORTS_IN)
        mark_fault(m->team);
    switch (cell->fault) {
    case ABORTS:
        sol_comm_abort_reason(m->comm, "the victim of the matrix");
        break;
    case ABORTS_IN:
        abort_in_a_call(m);
        break;
    case LATE:
        come_late(m);
        break;
    case DIFFERS:
        call_another(m);
        break;
    case EXITS:
        if (!cell->threads)
            exit(0);
        return; /* a thread: nobody destroys its communicator */
    default:
        wait_for_survivors(m->team);
    }
    if (cell->device->untimed) /* (graphs carry nothing there for which destroy could wait) */
        cell->device->idle(&m->side);
    sol_comm_destroy(m->comm);
    cell->device->close(&m->side);
}

/* ------------------------------------------------------------------- the survivors */

static sol_status_t meet_fault(member_t *m, double *began)
{
    const cell_t *cell = m->cell;
    sol_status_t status = SOL_OK;
    if (cell->phase == INIT) {
        *began = team_now();
        status = create(m, 0, cell->nranks, cell->device->init_ms, &m->comm);
    }
    if (cell->phase == DESTROY) {
        while (!atomic_load(&outcome_of(m->team)->faulted))
            team_sleep_us(500);
        *began = team_now();
        status = sol_comm_destroy(m->comm);
        m->comm = NULL;
        return status;
    }
    while (status == SOL_OK) {
        *began = team_now();
        status = step(m);
    }
    return status;
}

/* The survivors among themselves: rank r holds r + 1. */
static void sum_on(member_t *m, sol_comm_t comm)
{
    const device_t *device = m->cell->device;
    int32_t sum = 0, n = m->team->nranks - 1;
    sol_comm_t failed = m->comm;
    bool ok = TEAM_CHECK(m->team, m->rank, device->write(&m->side, m->rank + 1)) &&
              TEAM_OK(m->team, m->rank,
                      sol_all_reduce(m->side.data, m->side.data + 1, 1, SOL_INT32, SOL_SUM, comm,
                                     m->side.stream),
                      comm);
    m->comm = comm;
    ok = ok && TEAM_OK(m->team, m->rank, settle(m, SOL_OK), comm) &&
         TEAM_CHECK(m->team, m->rank, device->read(&m->side, &sum));
    m->comm = failed;
    if (ok)
        TEAM_CHECK(m->team, m->rank, sum == n * (n + 1) / 2);
    TEAM_OK(m->team, m->rank, sol_comm_destroy(comm), NULL);
}

static void go_on_anew(member_t *m)
{
    sol_comm_t comm = NULL;
    team_doing(m->team, m->rank, "making a new communicator of the survivors");
    if (TEAM_OK(m->team, m->rank, create(m, 1, m->team->nranks - 1, 20000, &comm), NULL))
        sum_on(m, comm);
}

/* Who cannot be seen to be gone is named. */
static void go_on_shrunk(member_t *m)
{
    const cell_t *cell = m->cell;
    sol_comm_t rest = NULL;
    bool seen = matrix_ends(cell) || cell->fault == ABORTS || cell->fault == ABORTS_IN;
    double begin = team_now();
    team_doing(m->team, m->rank, "shrinking");
    if (TEAM_OK(m->team, m->rank,
                sol_comm_shrink(m->comm, seen ? 0 : (uint64_t)1 << victim_of(cell), &rest, NULL),
                m->comm))
        sum_on(m, rest);
    double took = team_now() - begin;
    outcome_of(m->team)->shrink_took[m->rank] = took;
    TEAM_CHECK(m->team, m->rank, !seen || took < cell->device->timeout_ms * 1e-3); /* not awaited */
}

static bool right_status(const cell_t *cell, sol_status_t status)
{
    bool timeout = status == SOL_ERR_TIMEOUT, peer = status == SOL_ERR_PEER;
    if (cell->phase == DESTROY)
        return status == SOL_OK;
    switch (cell->fault) {
    case KILLED: /* before it has joined it is one that does not come */
    case RAISES:
        return peer || ((cell->phase == INIT || !cell->device->notices_death) && timeout);
    case EXITS: /* a thread that ends without a word cannot be told from one that is late */
        if (cell->threads || cell->phase == INIT)
            return timeout;
        return peer || (!cell->device->notices_death && timeout);
    case ABORTS:
    case ABORTS_IN:
        return status == SOL_ERR_ABORTED;
    case DIFFERS: /* who splits waits at another place than who calls an operation */
        return status == SOL_ERR_MISMATCH || (cell->phase == SPLIT && (timeout || peer));
    default:
        return timeout;
    }
}

/* Does the text blame `rank`? Its own place, "rank 2 of 3", is not meant. */
static bool names(const char *text, int rank)
{
    char word[32];
    size_t length = (size_t)snprintf(word, sizeof(word), "rank %d", rank);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += length)
        if (strncmp(at + length, " of ", 4) != 0 && (at[length] < '0' || at[length] > '9'))
            return true;
    return false;
}

static void judge(member_t *m, sol_status_t status, double began)
{
    const cell_t *cell = m->cell;
    outcome_t *out = outcome_of(m->team);
    double now = team_now(), since = out->fault_at > began ? out->fault_at : began;
    const char *text = sol_last_error(m->comm);
    out->status[m->rank] = (int)status;
    out->took[m->rank] = now > since ? now - since : 0;
    if (!right_status(cell, status))
        team_fail(m->team, m->rank, "status %d (%s): %s", (int)status, sol_status_string(status),
                  text);
    else if (status != SOL_OK && !names(text, victim_of(cell)))
        team_fail(m->team, m->rank, "the text does not name rank %d: %s", victim_of(cell), text);
    if (out->took[m->rank] > cell->allowed && !cell->device->untimed)
        team_fail(m->team, m->rank, "it took %.2f s, %.2f s are allowed", out->took[m->rank],
                  cell->allowed);
}

static void be_survivor(member_t *m)
{
    const cell_t *cell = m->cell;
    double began = 0;
    team_doing(m->team, m->rank, "meeting the fault");
    sol_status_t status = meet_fault(m, &began);
    judge(m, status, began);
    TEAM_CHECK(m->team, m->rank, cell->device->idle(&m->side));
    if (cell->phase == SHRINK)
        go_on_shrunk(m);
    double begin = team_now();
    team_doing(m->team, m->rank, "destroying");
    TEAM_OK(m->team, m->rank, sol_comm_destroy(m->comm), NULL);
    TEAM_CHECK(m->team, m->rank, cell->device->untimed || team_now() - begin < cell->allowed);
    m->comm = NULL;
    if (cell->phase != SHRINK)
        go_on_anew(m);
    cell->device->close(&m->side);
    if (atomic_fetch_add(&outcome_of(m->team)->survivors_done, 1) == m->team->nranks - 2 &&
        cell->fault == STOPPED)
        kill(m->team->rank[victim_of(cell)].pid, SIGKILL);
}

/* ------------------------------------------------------------------------ the cell */

static int lines[2];

typedef struct line {
    double took, shrink_took;
    int64_t status;
} line_t;

/* The last thing that each survivor does: its line for the table, through a pipe. */
static void report(member_t *m)
{
    const outcome_t *out = outcome_of(m->team);
    line_t line = {out->took[m->rank], out->shrink_took[m->rank], out->status[m->rank]};
    if (write(lines[1], &line, sizeof(line)) != (ssize_t)sizeof(line))
        team_fail(m->team, m->rank, "no report");
}

static void run_rank(team_t *team, int rank, void *arg)
{
    const cell_t *cell = arg;
    const device_t *device = cell->device;
    member_t m = {.team = team, .cell = cell, .rank = rank};
    team_doing(team, rank, "opening the device");
    bool ok = TEAM_CHECK(team, rank, device->open(&m.side, rank));
    team_barrier(team); /* a rank that starts late is another fault */
    ok = ok && (cell->phase == INIT || begin(&m));
    team_barrier(team); /* and so is one that fails before the others are there */
    if (!ok)
        return;
    if (rank == victim_of(cell)) {
        be_victim(&m);
    } else {
        be_survivor(&m);
        report(&m);
    }
    const char *verdict = matrix_verdict ? matrix_verdict() : NULL;
    if (verdict)
        team_fail(team, rank, "%s", verdict);
}

void matrix_run_cell(const cell_t *cell, const char *name, result_t *result)
{
    line_t line;
    cell_t copy = *cell;
    team_options_t options = {.name = name,
                              .nranks = cell->nranks,
                              .threads = cell->threads,
                              .deadline_s = cell->device->untimed ? 60 : 40,
                              .expect_killed =
                                  matrix_is_signal(cell->fault) ? 1u << victim_of(cell) : 0};
    if (pipe(lines) != 0) {
        result->failures = 1;
        return;
    }
    double begin = team_now();
    int failures = team_run(&options, run_rank, &copy, NULL);
    close(lines[1]);
    while (read(lines[0], &line, sizeof(line)) == (ssize_t)sizeof(line)) {
        result->worst = line.took > result->worst ? line.took : result->worst;
        result->worst_shrink =
            line.shrink_took > result->worst_shrink ? line.shrink_took : result->worst_shrink;
        result->status = result->status == SOL_OK ? (int)line.status : result->status;
    }
    close(lines[0]);
    result->run = true;
    result->failures = failures;
    result->seconds = team_now() - begin;
}
