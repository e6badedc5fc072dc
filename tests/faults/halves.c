/* SPDX-License-Identifier: Apache-2.0 */
/*
 * halves.c: what goes wrong between sol_norm_start and sol_norm_wait: a rank does not come to one
 * of them, dies, aborts, gives up its handle, or has started something else. The others' waits end,
 * in bounded time, and say whose fault it is.
 */
#include "faults/faults.h"

#include <signal.h>
#include <solccl/fused.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_MS 600
#define SLACK_S 4.0
#define TOKENS 6
#define HIDDEN 64

enum { NO_START, NO_WAIT, ABORTS, DIES, DESTROYS, DIFFERS, OTHER_TYPE, OTHER_RESIDUAL };

struct setting {
    sol_comm_t comm;
    sol_norm_halves_t halves;
    sol_norm_args_t args;
    float x[TOKENS * HIDDEN], y[TOKENS * HIDDEN], residual[TOKENS * HIDDEN];
};

static bool open_setting(team_t *team, int rank, int what, struct setting *s)
{
    static const sol_norm_args_t blank = SOL_NORM_ARGS_INIT;
    sol_norm_config_t config = SOL_NORM_CONFIG_INIT;
    config.max_tokens = TOKENS, config.hidden = HIDDEN, config.dtype = SOL_FLOAT32;
    /* in one hop a rank that has started is not needed any more */
    config.form = what == DESTROYS ? SOL_NORM_ONE_SHOT : SOL_NORM_TWO_SHOT;
    memset(s, 0, sizeof(*s));
    s->args = blank;
    s->args.tokens = TOKENS, s->args.hidden = HIDDEN, s->args.dtype = SOL_FLOAT32;
    s->args.input = s->x, s->args.output = s->y, s->args.output_dtype = SOL_FLOAT32;
    s->args.epsilon = 1;
    return fault_comm(team, rank, what == NO_START || what == NO_WAIT ? TIMEOUT_MS : 20000,
                      &s->comm) &&
           TEAM_OK(team, rank, sol_norm_create(&s->halves, &config, s->comm), s->comm);
}

/* The last rank, which is at fault. */
static void misbehave(team_t *team, int rank, int what, struct setting *s)
{
    if (what == DIFFERS)
        s->args.tokens--;
    if (what != NO_START && what != DIES)
        TEAM_OK(team, rank, sol_norm_start(s->halves, &s->args, NULL), s->comm);
    if (what == DIES)
        kill(getpid(), SIGKILL);
    if (what == ABORTS || what == DESTROYS)
        team_barrier(team); /* all have started */
    if (what == ABORTS)
        TEAM_OK(team, rank, sol_comm_abort(s->comm), s->comm);
    if (what == DESTROYS) {
        TEAM_OK(team, rank, sol_norm_destroy(s->halves), s->comm);
        s->halves = NULL;
        team_barrier(team);
        team_barrier(team);
    }
    if (what == OTHER_TYPE)
        s->args.output_dtype = SOL_BFLOAT16;
    if (what == OTHER_RESIDUAL)
        s->args.residual_out = s->residual;
    if (what == NO_START || what == NO_WAIT)
        team_sleep_us(1500 * TIMEOUT_MS);
    if (what >= DIFFERS)
        team_expect(team, rank, "the wait of a rank that differs",
                    sol_norm_wait(s->halves, &s->args, NULL), SOL_ERR_MISMATCH, s->comm);
}

static void between(team_t *team, int rank, void *arg)
{
    static const sol_status_t wanted[] = {SOL_ERR_TIMEOUT,  SOL_ERR_TIMEOUT, SOL_ERR_ABORTED,
                                          SOL_ERR_PEER,     SOL_OK,          SOL_ERR_MISMATCH,
                                          SOL_ERR_MISMATCH, SOL_ERR_MISMATCH};
    const int what = *(int *)arg, last = team->nranks - 1;
    struct setting s;
    char words[64] = "";
    if (!open_setting(team, rank, what, &s))
        return;
    if (rank == last) {
        misbehave(team, rank, what, &s);
    } else {
        TEAM_OK(team, rank, sol_norm_start(s.halves, &s.args, NULL), s.comm);
        if (what == ABORTS || what == DESTROYS)
            team_barrier(team);
        if (what == DESTROYS)
            team_barrier(team);
        const double begin = team_now();
        sol_status_t status = sol_norm_wait(s.halves, &s.args, NULL);
        const double took = team_now() - begin;
        if (rank == 0 && what != DESTROYS)
            snprintf(words, sizeof(words), "sol_norm_wait|rank %d", last);
        if (what == ABORTS) /* (the text is of what they did when they saw it) */
            snprintf(words, sizeof(words), "rank %d", last);
        fault_expect(team, rank, "the wait", status, wanted[what], s.comm, words);
        TEAM_CHECK(team, rank, took < 2 * TIMEOUT_MS * 1e-3 + SLACK_S);
    }
    if (what == DESTROYS && rank != last) {
        fault_expect(team, rank, "a start after that", sol_norm_start(s.halves, &s.args, NULL),
                     SOL_ERR_STATE, s.comm, "sol_norm_start|destroyed");
        team_barrier(team);
    }
    if (what == DESTROYS)
        fault_still_works(team, rank, s.comm);
    TEAM_OK(team, rank, sol_norm_destroy(s.halves), NULL);
    TEAM_OK(team, rank, sol_comm_destroy(s.comm), NULL);
}

const fault_case_t fault_halves[] = {
    {.name = "halves, no start", .run = between, .nranks = 3, .argument = NO_START},
    {.name = "halves, no wait", .run = between, .nranks = 3, .argument = NO_WAIT},
    {.name = "halves, abort between", .run = between, .nranks = 3, .argument = ABORTS},
    {.name = "halves, abort between, threads",
     .run = between,
     .nranks = 3,
     .threads = true,
     .argument = ABORTS},
    {.name = "halves, killed before the start",
     .run = between,
     .nranks = 3,
     .killed = 1u << 2,
     .argument = DIES},
    {.name = "halves, destroyed between", .run = between, .nranks = 3, .argument = DESTROYS},
    {.name = "halves, other tokens", .run = between, .nranks = 3, .argument = DIFFERS},
    {.name = "halves, another output", .run = between, .nranks = 3, .argument = OTHER_TYPE},
    {.name = "halves, another residual", .run = between, .nranks = 3, .argument = OTHER_RESIDUAL},
    {.name = NULL},
};
