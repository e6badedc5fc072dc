/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matrix.h: the parts of the fault matrix. matrix.c makes the cells, runs them and writes the
 * table; matrix_ranks.c is what the ranks of a cell do; matrix_cpu.c and matrix_cuda.c are what
 * they do it with. A cell knows nothing of its device but this table.
 */
#ifndef TESTS_MATRIX_H
#define TESTS_MATRIX_H

#include "common/team.h"

typedef enum {
    KILLED,    /* SIGKILL at any moment */
    STOPPED,   /* SIGSTOP, for good */
    RAISES,    /* SIGABRT: an exception that nobody catches */
    EXITS,     /* a process calls exit, a thread returns, without a word */
    ABORTS,    /* sol_comm_abort_reason instead of the call */
    ABORTS_IN, /* the same of another thread while the rank is in its call */
    ABSENT,    /* alive, and makes no call */
    LATE,      /* makes its call when the others have given up */
    DIFFERS,   /* another call, or another number of ranks */
    FAULTS
} fault_t;

typedef enum {
    INIT,
    SMALL,
    LARGE_OP,
    GRAPH, /* GPU ranks: replays of a graph */
    GROUP,
    SPLIT,
    DESTROY,
    SHRINK, /* as small; then the survivors shrink */
    PHASES
} phase_t;

struct device;

typedef struct cell {
    fault_t fault;
    phase_t phase;
    bool threads;
    int nranks;
    double allowed; /* seconds from the fault to the last survivor's return */
    const struct device *device;
} cell_t;

/* What a rank has on its device. */
typedef struct side {
    void *stream;
    float *data; /* room for (1 + MATRIX_MAX_RANKS) * device->large elements */
    void *graph, *exec;
} side_t;

#define MATRIX_MAX_RANKS 8

typedef struct device {
    const char *name;
    sol_backend_kind_t backend;
    const char *ranks;    /* columns: "2p 3p 2t": processes, threads */
    size_t large;         /* elements of a large operation */
    size_t staging_bytes; /* 0: the library's choice */
    int timeout_ms;       /* of the communicators that meet a fault */
    int init_ms;          /* of those that meet it while they are made */
    unsigned init_us;     /* from the beginning of set-up to a signal */
    bool blocking;        /* what a call returns is how it went; no graphs */
    bool notices_death;   /* at once; else a rank that died is one that is awaited in vain */
    bool untimed;         /* its clock is not ours: times mean nothing */
    bool (*open)(side_t *side, int rank);
    void (*close)(side_t *side);
    /* Until all that has been enqueued is done or the communicator has failed: how it went. */
    sol_status_t (*settle)(side_t *side, sol_comm_t comm);
    /* Is the device free again, within a second? */
    bool (*idle)(side_t *side);
    bool (*write)(side_t *side, int32_t value);
    bool (*read)(side_t *side, int32_t *value); /* of data[1] */
    /* A few small operations recorded, and enqueued once more. */
    bool (*capture)(side_t *side, sol_comm_t comm);
    bool (*replay)(side_t *side);
} device_t;

extern const device_t matrix_cpu;
#ifdef MATRIX_WITH_CUDA
extern const device_t matrix_cuda;
#endif

/* How a cell went; shared between processes. */
typedef struct result {
    bool run;
    int failures;
    int status; /* the survivors' */
    double worst, worst_shrink;
    double seconds; /* the cell's */
} result_t;

static inline bool matrix_is_signal(fault_t fault)
{
    return fault == KILLED || fault == STOPPED || fault == RAISES;
}

/* Does the victim end, so that the others can see it? A thread leaves no trace. */
static inline bool matrix_ends(const cell_t *cell)
{
    return cell->fault == KILLED || cell->fault == RAISES ||
           (cell->fault == EXITS && !cell->threads);
}

/* What went wrong with the machine itself; NULL: nothing. Set by who emulates one, before the
 * start. */
extern const char *(*matrix_verdict)(void);
int matrix_main(int argc, char **argv);

/* Runs the ranks and fills in the result. */
void matrix_run_cell(const cell_t *cell, const char *name, result_t *result);

#endif
