/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults.c: runs the tables of faults. "faults [--quick] [TEXT]": only cases whose name contains
 * TEXT.
 */
#include "faults/faults.h"

#include <string.h>

bool fault_comm(team_t *team, int rank, int timeout_ms, sol_comm_t *comm)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    config.backend = SOL_BACKEND_CPU;
    config.timeout_ms = timeout_ms;
    config.name = "faults";
    *comm = NULL;
    team_doing(team, rank, "creating the communicator");
    return TEAM_OK(team, rank, sol_comm_create(comm, &team->ids[0], team->nranks, rank, &config),
                   NULL);
}

bool fault_text_has(const char *text, const char *words)
{
    char copy[256], *rest = copy;
    snprintf(copy, sizeof(copy), "%s", words);
    for (char *word; (word = strsep(&rest, "|")) != NULL;)
        if (!strstr(text, word))
            return false;
    return true;
}

bool fault_expect(team_t *team, int rank, const char *what, sol_status_t got, sol_status_t wanted,
                  sol_comm_t comm, const char *words)
{
    const char *text = sol_last_error(comm);
    if (!team_expect(team, rank, what, got, wanted, comm))
        return false;
    if (fault_text_has(text, words))
        return true;
    team_fail(team, rank, "%s: the text should name \"%s\" but is: %s", what, words, text);
    return false;
}

bool fault_still_works(team_t *team, int rank, sol_comm_t comm)
{
    int32_t mine = rank + 1, sum = 0;
    if (!TEAM_OK(team, rank, sol_all_reduce(&mine, &sum, 1, SOL_INT32, SOL_SUM, comm, NULL), comm))
        return false;
    return TEAM_CHECK(team, rank, sum == team->nranks * (team->nranks + 1) / 2);
}

bool fault_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#else
    return false;
#endif
}

static void run_case(tally_t *tally, const fault_case_t *c)
{
    int failures = 0, skips = 0, argument = c->argument;
    team_options_t options = {.name = c->name,
                              .nranks = c->nranks,
                              .threads = c->threads,
                              .expect_killed = c->killed,
                              .deadline_s = c->deadline_s ? c->deadline_s : 30};
    if (!tally_wants(tally, c->name))
        return;
    double begin = team_now();
    for (int i = 0; i < (c->repeat ? c->repeat : 1) && failures == 0 && skips == 0; i++) {
        options.seed = (uint64_t)i;
        failures = team_run(&options, c->run, &argument, &skips);
    }
    tally_case(tally, c->name, failures, skips > 0, team_now() - begin);
}

int main(int argc, char **argv)
{
    static const fault_case_t *const tables[] = {
        fault_bad_input, fault_bad_environment, fault_absent, fault_mismatch,
        fault_refused,   fault_recorder,        fault_misuse, fault_regroup,
        fault_strangers, fault_places,          fault_cause};
    tally_t tally = {0};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--quick") != 0)
            tally.only = argv[i];
    for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
        for (const fault_case_t *c = tables[t]; c->name; c++)
            run_case(&tally, c);
    return tally_finish(&tally);
}
