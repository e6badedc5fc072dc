/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matrix.c: what goes wrong x where x how many ranks of which kind. In each cell one rank fails in
 * one way in one phase; each of the others must get the right error, which names that rank, within
 * the timeout and a second (at once, where the fault can be seen at once), must be able to destroy
 * its communicator, and to go on with the other survivors at once.
 *
 *     matrix                  all cells
 *     matrix --backend cuda   of GPU ranks: processes on GPUs of their own, threads that share them
 *     matrix --quick          those of 3 ranks that end soon: for CI, with more slack
 *     matrix --write FILE     all cells; the table of outcomes and times as Markdown
 *     matrix --jobs N         N cells at a time (1)
 *     matrix --limit SECONDS  for all of them; cells that have not begun then have failed
 *     matrix TEXT             cells whose name contains TEXT
 *
 * Each cell is a process with its ranks as children or threads: this one touches no communicator
 * and no device. All end with it.
 */
#include "matrix/matrix.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_COLUMNS 6
#define MAX_JOBS 32

const char *(*matrix_verdict)(void);

static const char *const fault_names[FAULTS] = {
    "SIGKILL",     "SIGSTOP",    "exception",   "early exit", "abort", "abort by another thread",
    "never comes", "comes late", "another call"};
static const char *const phase_names[PHASES] = {"init",  "small", "large",   "graph",
                                                "group", "split", "destroy", "shrink"};

typedef struct column {
    int nranks;
    bool threads;
} column_t;

typedef struct job {
    pid_t pid; /* 0: none */
    result_t *result;
    char name[64];
} job_t;

static struct program {
    const device_t *device;
    tally_t tally;
    const char *path;
    bool quick;
    int jobs, ncolumns;
    double begin, limit;
    column_t columns[MAX_COLUMNS];
    job_t running[MAX_JOBS];
    result_t (*results)[PHASES][MAX_COLUMNS]; /* [FAULTS]; shared with the cells */
} program;

/* ----------------------------------------------------------------------- the cells */

static bool exists(const cell_t *cell)
{
    if (cell->threads && (matrix_is_signal(cell->fault)))
        return false; /* it would be all ranks' */
    if (cell->phase == GRAPH && (cell->device->blocking || cell->fault == DIFFERS))
        return false; /* (a graph's calls are compared while it is recorded) */
    if (cell->phase == INIT && (cell->fault == ABORTS || cell->fault == ABORTS_IN))
        return false; /* nothing to abort yet */
    return !(cell->phase == DESTROY && (cell->fault == LATE || cell->fault == DIFFERS));
}

/* At once, or by the timeout. A dead process is noticed within a second. */
static double allowed(const cell_t *cell)
{
    double slack = program.quick ? 4 : 1;
    bool aborts = cell->fault == ABORTS || cell->fault == ABORTS_IN;
    bool differs = cell->fault == DIFFERS && cell->phase != SPLIT;
    bool dies = matrix_ends(cell) && cell->phase != INIT && cell->device->notices_death;
    bool seen = aborts || differs || dies || cell->phase == DESTROY;
    int timeout = cell->phase == INIT ? cell->device->init_ms : cell->device->timeout_ms;
    return (seen ? 0 : timeout * 1e-3) + slack;
}

/* In CI: 3 ranks; of the faults that only the timeout finds, one phase or two. Of emulated GPU
 * ranks what is not CPU ranks' way too. */
static bool in_quick(const cell_t *cell)
{
    bool slow = cell->allowed > 4.5;
    if (cell->device->untimed)
        return cell->nranks == 3 && cell->phase != LARGE_OP && cell->phase != SPLIT &&
               cell->phase != INIT &&
               (cell->fault == ABORTS_IN || cell->fault == LATE || cell->fault == DIFFERS);
    if (cell->nranks != 3 || cell->fault == LATE || cell->fault == RAISES)
        return false;
    if (cell->phase == SHRINK)
        return cell->fault == ABORTS_IN && !cell->threads;
    return !slow || cell->phase == SMALL || (cell->phase == SPLIT && cell->fault != DIFFERS);
}

static void name_cell(const cell_t *cell, char name[64])
{
    snprintf(name, 64, "%s x %s, %d %s", fault_names[cell->fault], phase_names[cell->phase],
             cell->nranks, cell->threads ? "threads" : "processes");
}

/* ------------------------------------------------------------------------ the jobs */

static void reap(bool block)
{
    int status;
    pid_t pid = waitpid(-1, &status, block ? 0 : WNOHANG);
    for (int i = 0; i < program.jobs && pid > 0; i++) {
        job_t *job = &program.running[i];
        if (job->pid != pid)
            continue;
        int failures = job->result->run && status == 0 ? job->result->failures : 1;
        job->result->failures = failures;
        tally_case(&program.tally, job->name, failures, false, job->result->seconds);
        job->pid = 0;
        return;
    }
}

static job_t *free_job(void)
{
    for (;;) {
        for (int i = 0; i < program.jobs; i++)
            if (program.running[i].pid == 0)
                return &program.running[i];
        reap(true);
    }
}

static void start_cell(const cell_t *cell, const char *name, result_t *result)
{
    job_t *job = free_job();
    pid_t parent = getpid();
    if (program.limit > 0 && team_now() - program.begin > program.limit) {
        fprintf(stderr, "  %s: not run: the time is over\n", name);
        tally_case(&program.tally, name, 1, false, 0);
        return;
    }
    snprintf(job->name, sizeof(job->name), "%s", name);
    job->result = result;
    fflush(stdout);
    fflush(stderr);
    job->pid = fork();
    if (job->pid != 0) {
        if (job->pid < 0)
            tally_case(&program.tally, name, 1, false, 0);
        job->pid = job->pid < 0 ? 0 : job->pid;
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent)
        matrix_run_cell(cell, name, result);
    _exit(0);
}

static void run_all(void)
{
    char name[64];
    for (int f = 0; f < FAULTS; f++)
        for (int p = 0; p < PHASES; p++)
            for (int k = 0; k < program.ncolumns; k++) {
                cell_t cell = {.fault = (fault_t)f,
                               .phase = (phase_t)p,
                               .threads = program.columns[k].threads,
                               .nranks = program.columns[k].nranks,
                               .device = program.device};
                cell.allowed = allowed(&cell);
                name_cell(&cell, name);
                if (exists(&cell) && (!program.quick || in_quick(&cell)) &&
                    tally_wants(&program.tally, name))
                    start_cell(&cell, name, &program.results[f][p][k]);
            }
    for (int i = 0; i < program.jobs; i++)
        while (program.running[i].pid != 0)
            reap(true);
}

/* ----------------------------------------------------------------------- the table */

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
    case SOL_ERR_MISMATCH:
        return "mismatch";
    default:
        return "other";
    }
}

static void write_cell(FILE *file, const result_t *r)
{
    if (!r->run) {
        fprintf(file, " – |");
        return;
    }
    fprintf(file, " %s", word_of(r->status));
    if (!program.device->untimed) {
        fprintf(file, " %.2f", r->worst);
        if (r->worst_shrink > 0)
            fprintf(file, " + %.2f", r->worst_shrink);
    }
    fprintf(file, "%s |", r->failures ? " **failed**" : "");
}

static void write_row(FILE *file, int fault, int phase)
{
    bool any = false;
    for (int k = 0; k < program.ncolumns; k++)
        any = any || program.results[fault][phase][k].run;
    if (!any)
        return;
    fprintf(file, "| %s | %s |", fault_names[fault], phase_names[phase]);
    for (int k = 0; k < program.ncolumns; k++)
        write_cell(file, &program.results[fault][phase][k]);
    fprintf(file, "\n");
}

static void write_head(FILE *file)
{
    fprintf(file, "| fault | phase |");
    for (int k = 0; k < program.ncolumns; k++) {
        bool first = k == 0 || program.columns[k].threads != program.columns[k - 1].threads;
        fprintf(file, " %d%s |", program.columns[k].nranks,
                !first                       ? ""
                : program.columns[k].threads ? " threads"
                                             : " processes");
    }
    fprintf(file, "\n|---|---|");
    for (int k = 0; k < program.ncolumns; k++)
        fprintf(file, "---|");
    fprintf(file, "\n");
}

static int write_table(void)
{
    const device_t *device = program.device;
    FILE *file = fopen(program.path, "w");
    if (!file) {
        perror(program.path);
        return 1;
    }
    fprintf(
        file,
        "# The fault matrix%s\n\n"
        "Written by `matrix --backend %s --write FILE`; do not edit.\n\n"
        "One rank fails; each cell says which error the others got, and after how many seconds "
        "the last of\nthem had it, from the fault (or from its own call, if that was later). "
        "The timeout is %.0f s. Allowed:\n1 s where the fault can be seen (%san abort, another "
        "call), else the timeout and 1 s. In each cell\nevery survivor's text names the rank; it "
        "destroys its communicator, makes a new one with the others at once,\nand gets a right "
        "result from it; in the phase shrink it gets that from what `sol_comm_shrink` made of "
        "the old\none, after the seconds behind the +. A signal arrives at any moment while the "
        "ranks are in the phase. A\nthread that ends without a word cannot be told from one "
        "that is late.\n\n",
        device->blocking ? "" : ": GPU ranks", device->name, device->timeout_ms * 1e-3,
        device->notices_death ? "a process ended, " : "");
    write_head(file);
    for (int f = 0; f < FAULTS; f++)
        for (int p = 0; p < PHASES; p++)
            write_row(file, f, p);
    fprintf(file, "\n%ld CPUs, %d cells at a time; %.0f s in all.\n", sysconf(_SC_NPROCESSORS_ONLN),
            program.jobs, team_now() - program.begin);
    return fclose(file) == 0 ? 0 : 1;
}

/* ------------------------------------------------------------------------- the start */

static void read_columns(const char *text)
{
    char kind;
    int nranks, used;
    while (program.ncolumns < MAX_COLUMNS && sscanf(text, "%d%c%n", &nranks, &kind, &used) == 2) {
        program.columns[program.ncolumns++] = (column_t){nranks, kind == 't'};
        text += used;
    }
}

static bool read_words(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(argv[i], "--quick")) {
            program.quick = true;
        } else if (argv[i][0] != '-') {
            program.tally.only = argv[i];
        } else if (!next) {
            return false;
        } else if (!strcmp(argv[i], "--write")) {
            program.path = argv[++i];
        } else if (!strcmp(argv[i], "--jobs")) {
            program.jobs = atoi(argv[++i]);
        } else if (!strcmp(argv[i], "--limit")) {
            program.limit = atof(argv[++i]);
        } else if (!strcmp(argv[i], "--backend")) {
            i++;
#ifdef MATRIX_WITH_CUDA
            if (!strcmp(next, "cuda"))
                program.device = &matrix_cuda;
            else
#endif
                if (strcmp(next, "cpu") != 0)
                return false;
        } else {
            return false;
        }
    }
    return program.jobs >= 1 && program.jobs <= MAX_JOBS;
}

int matrix_main(int argc, char **argv)
{
    program.device = &matrix_cpu;
    program.jobs = 1;
    program.begin = team_now();
    setenv("SOLCCL_LOG", "error", 0);
    /* ranks that share a GPU must not share its hardware queues: 8 by default */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (!read_words(argc, argv)) {
        fputs("matrix [--backend cpu|cuda] [--quick] [--jobs N] [--limit SECONDS] [--write FILE] "
              "[TEXT]\n",
              stderr);
        return 2;
    }
    read_columns(program.device->ranks);
    size_t bytes = FAULTS * sizeof(*program.results);
    void *results = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (results == MAP_FAILED)
        return 2;
    program.results = results;
    run_all();
    int status = program.path ? write_table() : 0;
    return tally_finish(&program.tally) | status;
}

#ifndef MATRIX_NO_MAIN
int main(int argc, char **argv)
{
    return matrix_main(argc, argv);
}
#endif
