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

/* At the end of the team's scratch. */
typedef struct common {
    sol_unique_id_t id;
    _Atomic int bad;
    _Atomic int flags[8];
    double begun[TEAM_MAX_RANKS];
} common_t;

static common_t *common_of(const team_t *team)
{
    const size_t at = (TEAM_SCRATCH - sizeof(common_t)) / 64 * 64;
    return (common_t *)(uintptr_t)(team->scratch + at);
}

/* One try. */
static sol_status_t make_and_use(team_t *team, int rank, int timeout_ms, sol_comm_t *comm)
{
    int32_t mine = rank + 1, sum = 0;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    config.backend = SOL_BACKEND_CPU;
    config.timeout_ms = timeout_ms;
    config.name = "faults";
    team_doing(team, rank, "creating a communicator with a timeout of %d ms", timeout_ms);
    sol_status_t status = sol_comm_create(comm, &common_of(team)->id, team->nranks, rank, &config);
    if (status == SOL_OK)
        status = sol_all_reduce(&mine, &sum, 1, SOL_INT32, SOL_SUM, *comm, NULL);
    TEAM_CHECK(team, rank, status != SOL_OK || sum == team->nranks * (team->nranks + 1) / 2);
    return status;
}

bool fault_comm_short(team_t *team, int rank, int *timeout_ms, sol_comm_t *comm)
{
    common_t *common = common_of(team);
    for (; *timeout_ms <= FAULT_LONG_MS; *timeout_ms *= 2) {
        common->begun[rank] = 0;
        *comm = NULL;
        team_barrier(team);
        if (rank == 0) {
            sol_get_unique_id(&common->id);
            atomic_store(&common->bad, 0);
        }
        team_barrier(team);
        sol_status_t status = make_and_use(team, rank, *timeout_ms, comm);
        if (status != SOL_OK)
            atomic_store(&common->bad, 1);
        if (status != SOL_OK && status != SOL_ERR_TIMEOUT && status != SOL_ERR_PEER)
            team_fail(team, rank, "set-up: status %d: %s", (int)status, sol_last_error(NULL));
        team_barrier(team);
        if (!atomic_load(&common->bad))
            return true;
        sol_comm_destroy(*comm);
    }
    team_fail(team, rank, "it could not be set up within %d ms", FAULT_LONG_MS);
    return false;
}

void fault_raise(team_t *team, int flag)
{
    atomic_store(&common_of(team)->flags[flag], 1);
}

void fault_lower(team_t *team, int flag)
{
    atomic_store(&common_of(team)->flags[flag], 0);
}

bool fault_raised(team_t *team, int flag)
{
    return atomic_load(&common_of(team)->flags[flag]) != 0;
}

void fault_await(team_t *team, int flag)
{
    while (!fault_raised(team, flag))
        team_sleep_us(500);
}

void fault_begin(team_t *team, int rank)
{
    common_of(team)->begun[rank] = team_now();
}

double fault_since_first(const team_t *team)
{
    double now = team_now(), first = now;
    for (int r = 0; r < team->nranks; r++) {
        double begun = common_of(team)->begun[r];
        first = begun > 0 && begun < first ? begun : first;
    }
    return now - first;
}

uint64_t fault_sequence(sol_comm_t comm)
{
    sol_comm_info_t info = {.size = sizeof(info)};
    return sol_comm_query(comm, &info) == SOL_OK ? info.sequence : 0;
}

void fault_await_call(sol_comm_t comm, uint64_t sequence)
{
    while (fault_sequence(comm) == sequence)
        team_sleep_us(500);
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
        fault_bad_input, fault_bad_environment, fault_absent,  fault_mismatch,  fault_refused,
        fault_recorder,  fault_misuse,          fault_regroup, fault_strangers, fault_places,
        fault_cause,     fault_halves,          fault_woken,   fault_counts,    fault_steps,
        fault_races,     fault_chaos,           fault_aborted};
    tally_t tally = {0};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--quick") != 0)
            tally.only = argv[i];
    for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
        for (const fault_case_t *c = tables[t]; c->name; c++)
            run_case(&tally, c);
    return tally_finish(&tally);
}
