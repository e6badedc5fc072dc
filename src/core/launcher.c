/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launcher.c: who started this process, as which rank of how many, in which
 * job. A job's identity is a hash of whatever its launcher gives all ranks
 * alike and no other job on this machine: with it ranks meet, and only those
 * of the same job. It need not be secret (only the same user can join) but it
 * has to be unique.
 *
 * Launchers are told apart by variables that only they set; a variable that is
 * there but cannot be read is an error, never a reason to guess.
 */
#include "core/setup.h"

#include "base/sha256.h"
#include "core/unique_id.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct identity {
    sol_sha256_t hash;
    size_t parts;
} identity_t;

static void identity_start(identity_t *identity, const char *launcher)
{
    identity->parts = 0;
    sol_sha256_start(&identity->hash);
    sol_sha256_add(&identity->hash, launcher, strlen(launcher) + 1);
}

/* A variable's name and content; nothing if it is not set. */
static void identity_add(identity_t *identity, const char *name)
{
    const char *content = getenv(name);
    if (content != NULL && content[0] != '\0') {
        sol_sha256_add(&identity->hash, name, strlen(name) + 1);
        sol_sha256_add(&identity->hash, content, strlen(content) + 1);
        identity->parts++;
    }
}

static bool is_set(const char *name)
{
    const char *content = getenv(name);
    return content != NULL && content[0] != '\0';
}

static sol_status_t missing(const char *launcher, const char *name, const char *expected)
{
    return sol_thread_error(
        SOL_ERR_ARGUMENT,
        "environment variable %s is not set, or empty: expected %s, since %s seems to "
        "have started this process",
        name, expected, launcher);
}

/* Rank and size, both required, both strict. */
static sol_status_t read_place(sol_launch_t *launch, const char *rank_name, const char *size_name)
{
    char why[256];
    long rank = 0, nranks = 0;
    if (!is_set(rank_name)) {
        return missing(launch->launcher, rank_name, "this process's rank");
    }
    if (!is_set(size_name)) {
        return missing(launch->launcher, size_name, "the number of ranks");
    }
    sol_status_t status = sol_env_int(size_name, 1, SOL_MAX_RANKS, &nranks, why, sizeof(why));
    if (status == SOL_OK) {
        status = sol_env_int(rank_name, 0, nranks - 1, &rank, why, sizeof(why));
    }
    if (status != SOL_OK) {
        return sol_thread_error(status, "%s", why);
    }
    launch->rank = (int)rank;
    launch->nranks = (int)nranks;
    return SOL_OK;
}

/* Ranks meet on one host: a job that spans several is told so instead of waiting in vain. */
static sol_status_t check_one_host(const sol_launch_t *launch, const char *local_size_name)
{
    char why[256];
    long here = launch->nranks;
    sol_status_t status = sol_env_int(local_size_name, 1, INT32_MAX, &here, why, sizeof(why));
    if (status != SOL_OK) {
        return sol_thread_error(status, "%s", why);
    }
    if (here < launch->nranks) {
        return sol_thread_error(SOL_ERR_UNSUPPORTED,
                                "%s started %d ranks, of which %s says %ld are on this host: "
                                "solccl joins ranks of one host",
                                launch->launcher, launch->nranks, local_size_name, here);
    }
    return SOL_OK;
}

/* ------------------------------------------------------------------------ launchers */

static sol_status_t read_solccl(sol_launch_t *launch, identity_t *identity)
{
    sol_status_t status = read_place(launch, "SOLCCL_RANK", "SOLCCL_SIZE");
    if (status != SOL_OK) {
        return status;
    }
    const char *job = getenv("SOLCCL_JOB");
    if (job == NULL || job[0] == '\0') {
        return missing(launch->launcher, "SOLCCL_JOB", "the job's secret");
    }
    if (strlen(job) < 16) {
        return sol_thread_error(SOL_ERR_ARGUMENT,
                                "environment variable SOLCCL_JOB is \"%s\": expected at least 16 "
                                "characters that no other job has",
                                job);
    }
    identity_add(identity, "SOLCCL_JOB");
    return SOL_OK;
}

static sol_status_t read_torchrun(sol_launch_t *launch, identity_t *identity)
{
    sol_status_t status = read_place(launch, "RANK", "WORLD_SIZE");
    if (status != SOL_OK) {
        return status;
    }
    if (!is_set("MASTER_ADDR") || !is_set("MASTER_PORT")) {
        return missing(launch->launcher, is_set("MASTER_ADDR") ? "MASTER_PORT" : "MASTER_ADDR",
                       "the address of the job's store");
    }
    char why[256];
    long port;
    status = sol_env_int("MASTER_PORT", 0, 65535, &port, why, sizeof(why));
    if (status != SOL_OK) {
        return sol_thread_error(status, "%s", why);
    }
    identity_add(identity, "MASTER_ADDR");
    identity_add(identity, "MASTER_PORT");
    identity_add(identity, "TORCHELASTIC_RUN_ID");
    identity_add(identity, "TORCHELASTIC_RESTART_COUNT"); /* a restarted group is a new job */
    return check_one_host(launch, "LOCAL_WORLD_SIZE");
}

static sol_status_t read_openmpi(sol_launch_t *launch, identity_t *identity)
{
    sol_status_t status = read_place(launch, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
    if (status != SOL_OK) {
        return status;
    }
    identity_add(identity, "PMIX_NAMESPACE");
    identity_add(identity, "PMIX_SERVER_URI2"); /* with the port of this job's server */
    identity_add(identity, "OMPI_MCA_ess_base_jobid");
    identity_add(identity, "OMPI_MCA_orte_hnp_uri");
    if (identity->parts == 0) {
        return missing(launch->launcher, "PMIX_NAMESPACE", "the job's name");
    }
    return check_one_host(launch, "OMPI_COMM_WORLD_LOCAL_SIZE");
}

/* A process as /proc tells it: name, parent, start time. False if it is gone. */
static bool read_process(long pid, char name[32], long *parent, unsigned long long *started)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    size_t got = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[got] = '\0';
    char *open = strchr(text, '('), *close = strrchr(text, ')'); /* a name may hold both */
    if (open == NULL || close == NULL) {
        return false;
    }
    snprintf(name, 32, "%.*s", (int)(close - open - 1), open + 1);
    return sscanf(close + 1,
                  " %*c %ld %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
                  "%llu",
                  parent, started) == 2;
}

/* Hydra gives its ranks nothing that names the job, but it has one proxy for all ranks of a host,
 * and the proxy is an ancestor of each. */
static bool add_hydra_proxy(identity_t *identity)
{
    long pid = (long)getppid(), parent = 0;
    unsigned long long started = 0;
    char name[32];
    for (int depth = 0; depth < 64 && pid > 1; depth++) {
        if (!read_process(pid, name, &parent, &started)) {
            return false;
        }
        if (strstr(name, "pmi_proxy") != NULL) {
            char text[64];
            int length = snprintf(text, sizeof(text), "%ld@%llu", pid, started);
            sol_sha256_add(&identity->hash, text, (size_t)length + 1);
            identity->parts++;
            return true;
        }
        pid = parent;
    }
    return false;
}

static sol_status_t read_mpich(sol_launch_t *launch, identity_t *identity)
{
    sol_status_t status = read_place(launch, "PMI_RANK", "PMI_SIZE");
    if (status != SOL_OK) {
        return status;
    }
    identity_add(identity, "PMI_JOBID");
    identity_add(identity, "SLURM_JOB_ID");
    identity_add(identity, "SLURM_STEP_ID");
    if (!add_hydra_proxy(identity) && identity->parts == 0) {
        return missing(launch->launcher, "PMI_JOBID",
                       "the job's name, or hydra_pmi_proxy among this process's ancestors");
    }
    return check_one_host(launch, "MPI_LOCALNRANKS");
}

static sol_status_t read_slurm(sol_launch_t *launch, identity_t *identity)
{
    sol_status_t status =
        read_place(launch, "SLURM_PROCID",
                   is_set("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS");
    if (status != SOL_OK) {
        return status;
    }
    if (!is_set("SLURM_JOB_ID")) {
        return missing(launch->launcher, "SLURM_JOB_ID", "the job's number");
    }
    identity_add(identity, "SLURM_JOB_ID");
    identity_add(identity, "SLURM_STEP_ID");
    char why[256];
    long nodes = 1;
    status = sol_env_int(is_set("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES",
                         1, INT32_MAX, &nodes, why, sizeof(why));
    if (status != SOL_OK) {
        return sol_thread_error(status, "%s", why);
    }
    if (nodes > 1 && launch->nranks > 1) {
        return sol_thread_error(SOL_ERR_UNSUPPORTED,
                                "Slurm runs this step on %ld nodes: solccl joins ranks of one host",
                                nodes);
    }
    return SOL_OK;
}

/* In the order of solccl.h. One is taken if every variable of its `signs` is set. */
static const struct {
    const char *name;
    const char *signs[3];
    sol_status_t (*read)(sol_launch_t *launch, identity_t *identity);
} launchers[] = {
    {"solccl run", {"SOLCCL_RANK"}, read_solccl},
    {"torchrun", {"RANK", "WORLD_SIZE"}, read_torchrun},
    {"Open MPI", {"OMPI_COMM_WORLD_RANK"}, read_openmpi},
    {"MPICH (Hydra)", {"PMI_RANK"}, read_mpich},
    /* in a batch script, outside srun, there is a PROCID but no step */
    {"Slurm", {"SLURM_PROCID", "SLURM_STEP_ID"}, read_slurm},
};

/* RANK or WORLD_SIZE alone is somebody else's variable. Beside MASTER_ADDR and MASTER_PORT it is
 * half of what torchrun sets: to go on as one rank would give results that are wrong, and no error.
 */
static sol_status_t check_half_torchrun(void)
{
    if (is_set("MASTER_ADDR") && is_set("MASTER_PORT") && is_set("RANK") != is_set("WORLD_SIZE")) {
        return is_set("RANK") ? missing("torchrun", "WORLD_SIZE", "the number of ranks")
                              : missing("torchrun", "RANK", "this process's rank");
    }
    return SOL_OK;
}

sol_status_t sol_launch_read(sol_launch_t *launch, bool *found)
{
    *found = false;
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        bool matches = true;
        for (int k = 0; k < 3 && launchers[i].signs[k] != NULL; k++) {
            /* one that is there but empty is a sign too: of a launcher gone wrong */
            matches = matches && getenv(launchers[i].signs[k]) != NULL;
        }
        if (!matches) {
            continue;
        }
        identity_t identity;
        launch->launcher = launchers[i].name;
        identity_start(&identity, launchers[i].name);
        sol_status_t status = launchers[i].read(launch, &identity);
        if (status != SOL_OK) {
            return status;
        }
        unsigned long uid = (unsigned long)geteuid();
        sol_sha256_add(&identity.hash, &uid, sizeof(uid));
        sol_sha256_end(&identity.hash, launch->identity);
        *found = true;
        return SOL_OK;
    }
    return check_half_torchrun();
}

/* ------------------------------------------------------------- sol_comm_create_from_env */

/* The id of this process's next communicator of the job. */
static void next_id(const sol_launch_t *launch, sol_unique_id_t *id)
{
    static _Atomic uint64_t made;
    static const char purpose[] = "solccl communicator of a job";
    uint64_t number = atomic_fetch_add(&made, 1);
    unsigned char secret[SOL_SHA256_BYTES];
    sol_sha256_t hash;
    sol_sha256_start(&hash);
    sol_sha256_add(&hash, purpose, sizeof(purpose));
    sol_sha256_add(&hash, launch->identity, sizeof(launch->identity));
    sol_sha256_add(&hash, &number, sizeof(number));
    sol_sha256_end(&hash, secret);
    sol_id_make(id, secret);
}

sol_status_t sol_comm_create_from_env(sol_comm_t *comm, const sol_comm_config_t *config)
{
    static const char who[] = "sol_comm_create_from_env";
    sol_launch_t launch = {.launcher = "none", .nranks = 1, .rank = 0};
    sol_comm_setup_t setup;
    bool found;
    if (comm == NULL) {
        return sol_group_note(sol_thread_error(SOL_ERR_ARGUMENT, "%s: comm is NULL", who));
    }
    sol_status_t status = sol_launch_read(&launch, &found);
    if (status != SOL_OK) {
        sol_thread_error(status, "%s: %s", who, sol_thread_error_text());
    } else {
        status = sol_comm_setup_read(&setup, config, who);
    }
    if (status == SOL_OK && !found) {
        status = sol_get_unique_id(&setup.id);
    }
    if (status != SOL_OK) {
        return sol_group_note(status);
    }
    if (found) {
        next_id(&launch, &setup.id);
    }
    setup.nranks = launch.nranks;
    setup.rank = launch.rank;
    sol_log(SOL_LOG_DEBUG, "%s: launcher %s, rank %d of %d", who, launch.launcher, launch.rank,
            launch.nranks);
    return sol_comm_make_or_defer(&setup, comm);
}
