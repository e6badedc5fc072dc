/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matrix.c: what goes wrong x where x how many ranks of which kind. In each cell one rank fails in
 * one way in one phase; each of the others must get the right error, which names that rank, within
 * the timeout and a second (at once, where the fault can be seen at once), must be able to destroy
 * its communicator, and to make a new one with the other survivors at once.
 *
 *     matrix                  all cells
 *     matrix --quick          those of 3 ranks that end soon: for CI, with more slack
 *     matrix --write FILE     all cells; the table of outcomes and times as Markdown
 *     matrix TEXT             cells whose name contains TEXT
 */
#include "common/team.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_MS 2000
#define LARGE ((size_t)200000)

typedef enum { KILLED, STOPPED, EXITS, ABORTS, ABSENT, FAULTS } fault_t;
typedef enum { INIT, SMALL, LARGE_OP, GROUP, SPLIT, DESTROY, PHASES } phase_t;

static const char *const fault_names[FAULTS] = {"SIGKILL", "SIGSTOP", "early exit", "abort",
                                                "never comes"};
static const char *const phase_names[PHASES] = {"init",  "small", "large",
                                                "group", "split", "destroy"};

typedef struct cell {
    fault_t fault;
    phase_t phase;
    bool threads;
    int nranks;
    double allowed; /* seconds from the fault to the last survivor's return */
} cell_t;

/* In the team's shared scratch. */
typedef struct outcome {
    _Atomic int survivors_done;
    _Atomic int faulted;
    double fault_at;
    int status[TEAM_MAX_RANKS];
    double took[TEAM_MAX_RANKS];
} outcome_t;

static outcome_t *outcome_of(team_t *team)
{
    return (outcome_t *)(void *)team->scratch;
}

static int victim_of(const cell_t *cell)
{
    return cell->nranks - 1;
}

static bool is_signal(fault_t fault)
{
    return fault == KILLED || fault == STOPPED;
}

/* ----------------------------------------------------------------------- the fault */

static void mark_fault(team_t *team)
{
    outcome_of(team)->fault_at = team_now();
    atomic_store(&outcome_of(team)->faulted, 1);
}

/* A process of its own delivers the signal, at whatever moment that is for the victim. */
static void signal_soon(team_t *team, const cell_t *cell)
{
    pid_t victim = getpid();
    if (fork() != 0)
        return;
    team_sleep_us(cell->phase == INIT ? 700 : 5000);
    mark_fault(team);
    kill(victim, cell->fault == KILLED ? SIGKILL : SIGSTOP);
    _exit(0);
}

static void wait_for_survivors(team_t *team)
{
    while (atomic_load(&outcome_of(team)->survivors_done) < team->nranks - 1)
        team_sleep_us(2000);
}

/* ---------------------------------------------------------------------- the phases */

static float *buffers(size_t count)
{
    return calloc(count, sizeof(float));
}

static sol_status_t all_reduce(sol_comm_t comm, size_t count)
{
    float *x = buffers(2 * count);
    sol_status_t status =
        x ? sol_all_reduce(x, x + count, count, SOL_FLOAT32, SOL_SUM, comm, NULL) : SOL_ERR_MEMORY;
    free(x);
    return status;
}

/* A ring of messages and a sum, in one group. */
static sol_status_t group(sol_comm_t comm, int rank, int n)
{
    float out[64] = {0}, in[64], x = 1, y = 0;
    sol_group_start();
    sol_send(out, 64, SOL_FLOAT32, (rank + 1) % n, comm, NULL);
    sol_recv(in, 64, SOL_FLOAT32, (rank + n - 1) % n, comm, NULL);
    sol_all_reduce(&x, &y, 1, SOL_FLOAT32, SOL_SUM, comm, NULL);
    return sol_group_end();
}

static sol_status_t split(sol_comm_t comm, int rank)
{
    sol_comm_t part = NULL;
    sol_status_t status = sol_comm_split(comm, 0, rank, &part, NULL);
    sol_comm_destroy(part);
    return status;
}

static sol_status_t step(phase_t phase, sol_comm_t comm, int rank, int n)
{
    switch (phase) {
    case LARGE_OP:
        return all_reduce(comm, LARGE);
    case GROUP:
        return group(comm, rank, n);
    case SPLIT:
        return split(comm, rank);
    default:
        return all_reduce(comm, 8);
    }
}

static sol_status_t create(team_t *team, int rank, int id, int nranks, int timeout_ms,
                           sol_comm_t *comm)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    config.backend = SOL_BACKEND_CPU;
    config.timeout_ms = timeout_ms;
    return sol_comm_create(comm, &team->ids[id], nranks, rank, &config);
}

/* --------------------------------------------------------------------- the victim */

static void be_victim(team_t *team, int rank, const cell_t *cell)
{
    sol_comm_t comm = NULL;
    team_doing(team, rank, "being the victim");
    if (cell->phase != INIT && create(team, rank, 0, team->nranks, TIMEOUT_MS, &comm) != SOL_OK)
        return;
    if (cell->phase != INIT)
        for (int i = 0; i < 3; i++)
            all_reduce(comm, 8);
    if (is_signal(cell->fault)) {
        signal_soon(team, cell);
        if (cell->phase == INIT)
            create(team, rank, 0, team->nranks, TIMEOUT_MS, &comm);
        while (cell->phase != DESTROY && step(cell->phase, comm, rank, team->nranks) == SOL_OK)
            continue;
        wait_for_survivors(team); /* (one that is stopped is killed by the last survivor) */
        for (;;)
            pause();
    }
    mark_fault(team);
    if (cell->fault == ABORTS) {
        sol_comm_abort_reason(comm, "the victim of the matrix");
        sol_comm_destroy(comm);
    } else if (cell->fault == ABSENT) {
        wait_for_survivors(team);
        sol_comm_destroy(comm);
    } else if (!cell->threads) {
        _exit(0);
    }
}

/* ------------------------------------------------------------------- the survivors */

static sol_status_t meet_fault(team_t *team, int rank, const cell_t *cell, sol_comm_t *comm,
                               double *began)
{
    sol_status_t status = SOL_OK;
    if (cell->phase == INIT) {
        *began = team_now();
        status = create(team, rank, 0, team->nranks, TIMEOUT_MS, comm);
    }
    if (cell->phase == DESTROY) {
        while (!atomic_load(&outcome_of(team)->faulted))
            team_sleep_us(500);
        *began = team_now();
        status = sol_comm_destroy(*comm);
        *comm = NULL;
        return status;
    }
    while (status == SOL_OK) {
        *began = team_now();
        status = step(cell->phase, *comm, rank, team->nranks);
    }
    return status;
}

/* The survivors among themselves, on a new communicator. */
static void go_on(team_t *team, int rank)
{
    sol_comm_t comm = NULL;
    int32_t mine = rank + 1, sum = 0, n = team->nranks - 1;
    team_doing(team, rank, "making a new communicator of the survivors");
    if (!TEAM_OK(team, rank, create(team, rank, 1, n, 20000, &comm), NULL))
        return;
    TEAM_OK(team, rank, sol_all_reduce(&mine, &sum, 1, SOL_INT32, SOL_SUM, comm, NULL), comm);
    TEAM_CHECK(team, rank, sum == n * (n + 1) / 2);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

static bool right_status(const cell_t *cell, sol_status_t status)
{
    if (cell->phase == DESTROY)
        return status == SOL_OK;
    switch (cell->fault) {
    case KILLED: /* before it has joined it is one that does not come */
        return status == SOL_ERR_PEER || (cell->phase == INIT && status == SOL_ERR_TIMEOUT);
    case EXITS: /* a thread that ends without a word cannot be told from one that is late */
        return status == (cell->threads || cell->phase == INIT ? SOL_ERR_TIMEOUT : SOL_ERR_PEER);
    case ABORTS:
        return status == SOL_ERR_ABORTED;
    default:
        return status == SOL_ERR_TIMEOUT;
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

static void be_survivor(team_t *team, int rank, const cell_t *cell)
{
    outcome_t *out = outcome_of(team);
    sol_comm_t comm = NULL;
    double began = 0;
    if (cell->phase != INIT &&
        !TEAM_OK(team, rank, create(team, rank, 0, team->nranks, TIMEOUT_MS, &comm), NULL))
        return;
    if (cell->phase != INIT)
        for (int i = 0; i < 3; i++)
            all_reduce(comm, 8);
    team_doing(team, rank, "meeting the fault");
    sol_status_t status = meet_fault(team, rank, cell, &comm, &began);
    double now = team_now(), since = out->fault_at > began ? out->fault_at : began;
    out->status[rank] = (int)status;
    out->took[rank] = now > since ? now - since : 0;
    const char *text = sol_last_error(comm);
    if (!right_status(cell, status))
        team_fail(team, rank, "status %d (%s): %s", (int)status, sol_status_string(status), text);
    else if (status != SOL_OK && !names(text, victim_of(cell)))
        team_fail(team, rank, "the text does not name rank %d: %s", victim_of(cell), text);
    if (out->took[rank] > cell->allowed)
        team_fail(team, rank, "it took %.2f s, %.2f s are allowed", out->took[rank], cell->allowed);
    double begin = team_now();
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
    TEAM_CHECK(team, rank, team_now() - begin < cell->allowed);
    go_on(team, rank);
    if (atomic_fetch_add(&out->survivors_done, 1) == team->nranks - 2 && cell->fault == STOPPED)
        kill(team->rank[victim_of(cell)].pid, SIGKILL);
}

static void run_rank(team_t *team, int rank, void *arg)
{
    const cell_t *cell = arg;
    if (cell->phase == INIT)
        team_barrier(team); /* a rank that starts late is another fault */
    if (rank == victim_of(cell))
        be_victim(team, rank, cell);
    else
        be_survivor(team, rank, cell);
}

/* --------------------------------------------------------------------- the tables */

/* Written by the ranks into shared memory, read here when the team is gone: through a pipe. */
typedef struct result {
    bool run, failed;
    int status;
    double worst;
} result_t;

static int report_pipe[2];

/* The last thing that each survivor does: its line for the table. */
static void run_and_report(team_t *team, int rank, void *arg)
{
    const cell_t *cell = arg;
    run_rank(team, rank, arg);
    if (rank != victim_of(cell)) {
        struct {
            int status;
            double took;
        } line;
        memset(&line, 0, sizeof(line));
        line.status = outcome_of(team)->status[rank];
        line.took = outcome_of(team)->took[rank];
        if (write(report_pipe[1], &line, sizeof(line)) != (ssize_t)sizeof(line))
            team_fail(team, rank, "no report");
    }
}

static bool exists(fault_t fault, phase_t phase, bool threads)
{
    if (threads && is_signal(fault))
        return false;                           /* it would be all ranks' */
    return !(fault == ABORTS && phase == INIT); /* nothing to abort yet */
}

/* At once, or by the timeout. A dead process is noticed within a second. */
static double allowed(fault_t fault, phase_t phase, bool threads, bool quick)
{
    double slack = quick ? 4 : 1;
    bool seen = fault == ABORTS || phase == DESTROY ||
                (!threads && phase != INIT && (fault == KILLED || fault == EXITS));
    return (seen ? 0 : TIMEOUT_MS * 1e-3) + slack;
}

static void name_cell(const cell_t *cell, char name[64])
{
    snprintf(name, 64, "%s x %s, %d %s", fault_names[cell->fault], phase_names[cell->phase],
             cell->nranks, cell->threads ? "threads" : "processes");
}

static void run_cell(tally_t *tally, const cell_t *cell, result_t *result)
{
    char name[64];
    struct {
        int status;
        double took;
    } line;
    name_cell(cell, name);
    if (!tally_wants(tally, name) || pipe(report_pipe) != 0)
        return;
    team_options_t options = {.name = name,
                              .nranks = cell->nranks,
                              .threads = cell->threads,
                              .deadline_s = 40,
                              .expect_killed = is_signal(cell->fault) ? 1u << victim_of(cell) : 0};
    cell_t copy = *cell;
    double begin = team_now();
    int failures = team_run(&options, run_and_report, &copy, NULL);
    close(report_pipe[1]);
    while (read(report_pipe[0], &line, sizeof(line)) == (ssize_t)sizeof(line)) {
        result->worst = line.took > result->worst ? line.took : result->worst;
        result->status = result->status == SOL_OK ? line.status : result->status;
    }
    close(report_pipe[0]);
    result->run = true;
    result->failed = failures > 0;
    tally_case(tally, name, failures, false, team_now() - begin);
}

static const int sizes[] = {2, 3, 8};
static result_t results[FAULTS][PHASES][2][3];

static const char *word_of(int status)
{
    switch (status) {
    case SOL_OK:
        return "ok";
    case SOL_ERR_TIMEOUT:
        return "timeout";
    case SOL_ERR_PEER:
        return "peer";
    case SOL_ERR_ABORTED:
        return "aborted";
    default:
        return "other";
    }
}

static void write_row(FILE *file, fault_t fault, phase_t phase)
{
    fprintf(file, "| %s | %s |", fault_names[fault], phase_names[phase]);
    for (int threads = 0; threads < 2; threads++)
        for (int k = 0; k < 3; k++) {
            const result_t *r = &results[fault][phase][threads][k];
            if (!r->run)
                fprintf(file, " – |");
            else
                fprintf(file, " %s %.2f%s |", word_of(r->status), r->worst,
                        r->failed ? " **failed**" : "");
        }
    fprintf(file, "\n");
}

static int write_table(const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file) {
        perror(path);
        return 1;
    }
    fprintf(file,
            "# The fault matrix\n\n"
            "Written by `build/gcc/tests/matrix --write docs/fault-matrix.md`; do not edit.\n\n"
            "One rank fails; each cell says which error the others got, and after how many seconds "
            "the last of\nthem had it, from the fault (or from its own call, if that was later). "
            "The timeout is %.0f s. Allowed:\n1 s where the fault can be seen (a process ended, "
            "an abort), else the timeout and 1 s. In each cell every\nsurvivor's text names the "
            "rank; it destroys its communicator, makes a new one with the others at once, and\n"
            "gets a right result from it. A signal arrives at any moment while the ranks are in "
            "the phase. A thread that\nends without a word cannot be told from one that is late.\n"
            "\n| fault | phase | 2 processes | 3 | 8 | 2 threads | 3 | 8 |\n"
            "|---|---|---|---|---|---|---|---|\n",
            TIMEOUT_MS * 1e-3);
    for (int f = 0; f < FAULTS; f++)
        for (int p = 0; p < PHASES; p++)
            write_row(file, (fault_t)f, (phase_t)p);
    fprintf(file,
            "\n%ld CPUs; %d ranks at most. GPU ranks: `make test-gpu` kills, stops and aborts "
            "them (`tests/gpu/gpu_faults.c`).\n",
            sysconf(_SC_NPROCESSORS_ONLN), sizes[2]);
    return fclose(file) == 0 ? 0 : 1;
}

/* In CI: 3 ranks; of the faults that only the timeout finds, one phase. */
static bool in_quick(const cell_t *cell)
{
    bool slow = cell->allowed > 4.5;
    return cell->nranks == 3 && (!slow || cell->phase == SMALL || cell->phase == SPLIT);
}

int main(int argc, char **argv)
{
    tally_t tally = {0};
    const char *path = NULL;
    bool quick = false;
    setenv("SOLCCL_LOG", "error", 0);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick"))
            quick = true;
        else if (!strcmp(argv[i], "--write") && i + 1 < argc)
            path = argv[++i];
        else
            tally.only = argv[i];
    }
    for (int f = 0; f < FAULTS; f++)
        for (int p = 0; p < PHASES; p++)
            for (int threads = 0; threads < 2; threads++)
                for (int k = 0; k < 3; k++) {
                    cell_t cell = {(fault_t)f, (phase_t)p, threads == 1, sizes[k],
                                   allowed((fault_t)f, (phase_t)p, threads == 1, quick)};
                    if (exists(cell.fault, cell.phase, cell.threads) && (!quick || in_quick(&cell)))
                        run_cell(&tally, &cell, &results[f][p][threads][k]);
                }
    int status = path ? write_table(path) : 0;
    return tally_finish(&tally) | status;
}
