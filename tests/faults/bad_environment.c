/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bad_environment.c: environment variables that cannot be read are named, never guessed; those of
 * every launcher are understood.
 */
#include "faults/faults.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *set; /* "A=x B=y" */
    const char *named;
} variable_t;

static const variable_t unreadable[] = {
    {"SOLCCL_TIMEOUT_MS=soon", "SOLCCL_TIMEOUT_MS|soon"},
    {"SOLCCL_TIMEOUT_MS=-1", "SOLCCL_TIMEOUT_MS|-1"},
    {"SOLCCL_TIMEOUT_MS=12s", "SOLCCL_TIMEOUT_MS|12s"},
    {"SOLCCL_TIMEOUT_MS=99999999999999999999", "SOLCCL_TIMEOUT_MS"},
    {"SOLCCL_BACKEND=quantum", "SOLCCL_BACKEND|quantum|cpu"},
    {"SOLCCL_CHECK=maybe", "SOLCCL_CHECK|maybe"},
    {"SOLCCL_STAGING_BYTES=12Q", "SOLCCL_STAGING_BYTES|12Q"},
    {"SOLCCL_DEBUG_EPOCH=zz", "SOLCCL_DEBUG_EPOCH|zz"},
    {"RANK=first WORLD_SIZE=2", "RANK|first"},
    {"RANK=0 WORLD_SIZE=", "WORLD_SIZE"},
    {"RANK=0 WORLD_SIZE=-4", "WORLD_SIZE|-4"},
    {"RANK=0 WORLD_SIZE=1000", "WORLD_SIZE|1000"},
    {"RANK=5 WORLD_SIZE=2", "RANK|5"},
    {"OMPI_COMM_WORLD_RANK=x OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK|x"},
    {"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK|2"},
    {"PMI_RANK=0 PMI_SIZE=many", "PMI_SIZE|many"},
    {"SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_NTASKS=0", "SLURM_NTASKS|0"},
};
#define UNREADABLE (sizeof(unreadable) / sizeof(unreadable[0]))

/* Sets, or with `set` false unsets, the variables of "A=x B=y". */
static void environment(const char *text, bool set)
{
    char copy[256], *rest = copy;
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        if (set)
            setenv(word, value, 1);
        else
            unsetenv(word);
    }
}

static void bad_variables(team_t *team, int rank, void *arg)
{
    (void)arg;
    for (size_t i = 0; i < UNREADABLE; i++) {
        sol_comm_t comm = NULL;
        team_doing(team, rank, "%s", unreadable[i].set);
        environment(unreadable[i].set, true);
        sol_status_t status = sol_comm_create_from_env(&comm, NULL);
        fault_expect(team, rank, unreadable[i].set, status, SOL_ERR_ARGUMENT, NULL,
                     unreadable[i].named);
        if (status == SOL_OK)
            sol_comm_destroy(comm);
        environment(unreadable[i].set, false);
    }
}

/* The variables that launchers set; the job's own name is different in every run. */
static const char *const launchers[] = {
    "RANK=%d WORLD_SIZE=%d LOCAL_RANK=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%u "
    "TORCHELASTIC_RUN_ID=faults",
    "OMPI_COMM_WORLD_RANK=%d OMPI_COMM_WORLD_SIZE=%d OMPI_COMM_WORLD_LOCAL_RANK=%d "
    "OMPI_MCA_ess_base_jobid=%u",
    "PMI_RANK=%d PMI_SIZE=%d MPI_LOCALRANKID=%d PMI_JOBID=%u",
    "SLURM_PROCID=%d SLURM_NTASKS=%d SLURM_LOCALID=%d SLURM_JOB_ID=%u SLURM_STEP_ID=0",
};

static void launched(team_t *team, int rank, void *arg)
{
    char text[256];
    sol_comm_t first, second;
    unsigned job = 20000 + (unsigned)getppid() % 20000; /* the same for all ranks of the team */
    /* (ranks are numbered against their order, to see that the variables are what counts) */
    int given = team->nranks - 1 - rank;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof(text), launchers[*(int *)arg], given, team->nranks, given, job);
#pragma GCC diagnostic pop
    team_doing(team, rank, "%s", text);
    environment(text, true);
    setenv("SOLCCL_TIMEOUT_MS", "20000", 1);
    setenv("SOLCCL_BACKEND", "cpu", 1);
    if (!TEAM_OK(team, rank, sol_comm_create_from_env(&first, NULL), NULL))
        return;
    int got = -1, n = -1;
    sol_comm_rank(first, &got);
    sol_comm_size(first, &n);
    TEAM_CHECK(team, rank, got == given && n == team->nranks);
    fault_still_works(team, rank, first);
    /* The second call of each process makes the job's second communicator. */
    if (TEAM_OK(team, rank, sol_comm_create_from_env(&second, NULL), NULL)) {
        fault_still_works(team, rank, second);
        TEAM_OK(team, rank, sol_comm_destroy(second), NULL);
    }
    TEAM_OK(team, rank, sol_comm_destroy(first), NULL);
}

static void no_launcher(team_t *team, int rank, void *arg)
{
    sol_comm_t comm;
    int n = -1;
    (void)arg;
    if (!TEAM_OK(team, rank, sol_comm_create_from_env(&comm, NULL), NULL))
        return;
    TEAM_CHECK(team, rank, sol_comm_size(comm, &n) == SOL_OK && n == 1);
    fault_still_works(team, rank, comm);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

const fault_case_t fault_bad_environment[] = {
    {.name = "bad environment", .run = bad_variables, .nranks = 1},
    {.name = "launched by torchrun", .run = launched, .nranks = 3, .argument = 0},
    {.name = "launched by Open MPI", .run = launched, .nranks = 3, .argument = 1},
    {.name = "launched by MPICH", .run = launched, .nranks = 3, .argument = 2},
    {.name = "launched by Slurm", .run = launched, .nranks = 3, .argument = 3},
    {.name = "launched by nobody", .run = no_launcher, .nranks = 1},
    {.name = NULL},
};
