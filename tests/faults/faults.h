/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults.h: the fault suite's inside. What must happen when something is wrong: a clear text that
 * names it, in bounded time, on every surviving rank, with nothing leaked and nothing left behind.
 */
#ifndef TESTS_FAULTS_H
#define TESTS_FAULTS_H

#include "common/team.h"

typedef struct fault_case {
    const char *name;
    team_fn run;
    int nranks;
    bool threads;
    unsigned killed; /* ranks that die on purpose */
    int argument;    /* passed to run as (int *) */
    int repeat;      /* 0: once; for a race with a killed rank, often */
    int deadline_s;  /* 0: 30 */
} fault_case_t;

extern const fault_case_t fault_bad_input[], fault_bad_environment[], fault_absent[],
    fault_mismatch[], fault_refused[], fault_recorder[], fault_misuse[], fault_regroup[],
    fault_strangers[], fault_places[], fault_cause[], fault_halves[], fault_woken[], fault_counts[],
    fault_steps[], fault_races[], fault_chaos[], fault_aborted[]; /* end: name NULL */

/* A CPU communicator of the whole team. False (and a failure) if it cannot be made. */
bool fault_comm(team_t *team, int rank, int timeout_ms, sol_comm_t *comm);

/*
 * A machine may be several times slower than this one, and stand still for a second. So: what has
 * to work gets a long timeout; what has to time out gets a short one, and only after it was set up;
 * who has to come later than something waits for that to happen (a flag), not for a while; and a
 * time that must not be exceeded is FAULT_SOON, far below the long timeout, which it shows was not
 * waited for. How fast things are is measured elsewhere (matrix --write, bench/).
 */
#define FAULT_LONG_MS 20000
#define FAULT_SOON 10 /* seconds */

/* A communicator with a short timeout, made and used once. Where the machine is too slow for that,
 * all try again with twice the time: *timeout_ms is what it has in the end. */
bool fault_comm_short(team_t *team, int rank, int *timeout_ms, sol_comm_t *comm);

/* Flags 0 to 7 of the team. */
void fault_raise(team_t *team, int flag);
void fault_lower(team_t *team, int flag);
bool fault_raised(team_t *team, int flag);
void fault_await(team_t *team, int flag);

/* This rank begins to wait; and the seconds since the first rank did, which may tell the others
 * that the time is up. */
void fault_begin(team_t *team, int rank);
double fault_since_first(const team_t *team);

/* Until another thread of this process is in a call on `comm`, which was at `sequence`. */
void fault_await_call(sol_comm_t comm, uint64_t sequence);
uint64_t fault_sequence(sol_comm_t comm);

/* The status is as wanted and the last error's text has every one of `words` (separated by '|'). */
bool fault_expect(team_t *team, int rank, const char *what, sol_status_t got, sol_status_t wanted,
                  sol_comm_t comm, const char *words);
bool fault_text_has(const char *text, const char *words);

/* The communicator still works: an all_reduce with the right result on all ranks. Others may still
 * be in it: who makes the communicator fail next waits for them (team_barrier) first. */
bool fault_still_works(team_t *team, int rank, sol_comm_t comm);

/* Built with a sanitizer: its memory needs are not the library's. */
bool fault_sanitized(void);

#endif
