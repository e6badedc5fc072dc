/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conformance.c: what a backend must do, whatever it is. See --help.
 *
 * Every case runs in fresh child processes under a deadline, at several rank counts, as processes
 * and as threads; its name in the output says which ("matrix/n3", "matrix/n3t" with threads).
 */
#include "conformance/conf.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char usage[] =
    "conformance [--backend cpu|cpu-after|cpu-before] [--quick | --full] [--ranks N]\n"
    "            [--threads | --processes | --one-process]\n"
    "            [--case TEXT] [--but NAME,...] [--seed N] [--calls N] [--list]\n"
    "  --backend cpu-after, cpu-before  behind, before each buffer a page that is not there\n"
    "  --quick      a selection for sanitizers;  --full  hours of it, by hand\n"
    "  --ranks N    only with N ranks;  --threads, --processes  only in this way\n"
    "  --one-process  all cases as threads of this process: GPUs are started once\n"
    "  --case TEXT  only cases whose name contains TEXT, such as matrix/n3\n"
    "  --but NAMES  not the cases of these names\n"
    "  --seed N     of all random choices (printed; the same seed makes the same calls)\n"
    "  --calls N    of the randomised cases\n";

typedef struct {
    conf_options_t options;
    tally_t tally;
    const char *but; /* names, between commas; NULL: none */
    int ranks;       /* 0: as each case says */
    bool threads, processes, here, list;
} program_t;

typedef struct {
    const conf_options_t *options;
    const conf_case_t *what;
} job_t;

bool conf_comm(conf_t *conf, sol_comm_t *comm, const sol_unique_id_t *id, int rank, int nranks)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    config.backend = conf->device->backend;
    config.staging_bytes = conf->staging_bytes;
    config.timeout_ms = 40000; /* before the case's deadline, so that the library can say why */
    *comm = NULL;
    if (!team_expect(conf->team, conf->rank, "sol_comm_create",
                     sol_comm_create(comm, id, nranks, rank, &config), SOL_OK, NULL)) {
        conf->stopped = true;
        atomic_store(&conf->team->stop, 1);
        return false;
    }
    return true;
}

static size_t staging_of(const conf_device_t *device, const conf_case_t *what)
{
    return what->staging_bytes == 0   ? device->staging_bytes
           : device->little_bytes > 0 ? device->little_bytes
                                      : what->staging_bytes;
}

static void rank_main(team_t *team, int rank, void *arg)
{
    const job_t *job = arg;
    conf_t conf = {.options = job->options,
                   .device = job->options->device,
                   .team = team,
                   .rank = rank,
                   .nranks = team->nranks,
                   .staging_bytes = staging_of(job->options->device, job->what),
                   .doing = team->rank[rank].doing,
                   .random = team->seed,
                   .own_random = team->seed + 1000003u * (unsigned)(rank + 1)};
    team_doing(team, rank, "opening the device");
    if (!conf.device->open(rank, &conf.stream)) {
        team_fail(team, rank, "the device could not be opened");
        return;
    }
    team_doing(team, rank, "creating the communicator");
    if (job->what->alone || conf_comm(&conf, &conf.comm, &team->ids[0], rank, team->nranks)) {
        job->what->run(&conf);
        if (conf.comm) {
            conf_compare_hashes(&conf);
            team_doing(team, rank, "destroying the communicator");
            TEAM_OK(team, rank, sol_comm_destroy(conf.comm), NULL);
        }
    }
    conf.device->free(conf.send.memory);
    conf.device->free(conf.recv.memory);
    for (int i = 0; i < 4; i++)
        free(conf.host[i]);
    conf.device->close(conf.stream);
}

static bool left_out(const char *but, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = but; at && (at = strstr(at, name)) != NULL; at++)
        if ((at == but || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

static void run_one(program_t *program, const conf_case_t *what, int nranks, bool threads)
{
    char name[64], epoch[32];
    int skips = 0;
    snprintf(name, sizeof(name), "%s/n%d%s", what->name, nranks, threads ? "t" : "");
    if (!tally_wants(&program->tally, name) || left_out(program->but, what->name))
        return;
    if (program->list) {
        printf("%s\n", name);
        return;
    }
    if (what->epoch) {
        snprintf(epoch, sizeof(epoch), "%llu", (unsigned long long)what->epoch);
        setenv("SOLCCL_DEBUG_EPOCH", epoch, 1);
    }
    job_t job = {&program->options, what};
    team_options_t team = {.name = name,
                           .nranks = nranks,
                           .threads = threads,
                           .here = program->here,
                           .deadline_s = what->deadline_s ? what->deadline_s : 120,
                           .seed = team_mix(program->options.seed + (uint64_t)nranks)};
    if (program->options.level == CONF_FULL)
        team.deadline_s *= 20;
    if (program->options.device->patience)
        team.deadline_s *= program->options.device->patience;
    double begin = team_now();
    int failures = team_run(&team, rank_main, &job, &skips);
    tally_case(&program->tally, name, failures, skips > 0, team_now() - begin);
    unsetenv("SOLCCL_DEBUG_EPOCH");
}

static void run_table(program_t *program, const conf_case_t *table)
{
    for (const conf_case_t *c = table; c->name; c++) {
        for (int n = 1; n <= 8; n++) {
            if (program->ranks && n != program->ranks)
                continue;
            /* An explicit --ranks runs a case at any count that some level of it has. */
            unsigned mask = 1u << n, processes = c->ranks[program->options.level],
                     threads = c->threads[program->options.level];
            bool selected = program->options.level == CONF_NORMAL || (processes | threads) != 0;
            if (program->ranks && program->options.level != CONF_FULL && selected) {
                processes = c->ranks[CONF_FULL];
                threads = c->threads[CONF_FULL];
            }
            if ((processes & mask) && !program->threads)
                run_one(program, c, n, false);
            if ((threads & mask) && !program->processes)
                run_one(program, c, n, true);
        }
    }
}

static bool take_value(int argc, char **argv, int *i, const char *flag, const char **value)
{
    if (strcmp(argv[*i], flag) != 0 || *i + 1 >= argc)
        return false;
    *value = argv[++*i];
    return true;
}

static bool parse(program_t *p, int argc, char **argv)
{
    const char *value;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0)
            p->options.level = CONF_QUICK;
        else if (strcmp(argv[i], "--full") == 0)
            p->options.level = CONF_FULL;
        else if (strcmp(argv[i], "--threads") == 0)
            p->threads = true;
        else if (strcmp(argv[i], "--one-process") == 0)
            p->threads = p->here = true;
        else if (strcmp(argv[i], "--processes") == 0)
            p->processes = true;
        else if (strcmp(argv[i], "--list") == 0)
            p->list = true;
        else if (take_value(argc, argv, &i, "--backend", &value))
            p->options.device = conf_device_named(value);
        else if (take_value(argc, argv, &i, "--ranks", &value))
            p->ranks = atoi(value);
        else if (take_value(argc, argv, &i, "--case", &value))
            p->tally.only = value;
        else if (take_value(argc, argv, &i, "--but", &value))
            p->but = value;
        else if (take_value(argc, argv, &i, "--seed", &value))
            p->options.seed = strtoull(value, NULL, 0);
        else if (take_value(argc, argv, &i, "--calls", &value))
            p->options.calls = (unsigned)strtoul(value, NULL, 0);
        else
            return false;
    }
    return p->options.device != NULL && p->ranks >= 0 && p->ranks <= 8;
}

int conf_main(int argc, char **argv)
{
    program_t program = {.options = {.device = conf_device_named("cpu"),
                                     .level = CONF_NORMAL,
                                     .seed = (uint64_t)time(NULL)}};
    if (!parse(&program, argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    if (!program.list)
        printf("conformance of %s ranks, seed %llu\n", program.options.device->name,
               (unsigned long long)program.options.seed);
    run_table(&program, conf_cases_comm);
    run_table(&program, conf_cases_data);
    run_table(&program, conf_cases_memory);
    run_table(&program, conf_cases_fused);
    run_table(&program, conf_cases_halves);
    run_table(&program, conf_cases_moe);
    run_table(&program, conf_cases_vocab);
    run_table(&program, conf_cases_linear);
    run_table(&program, conf_cases_transfer);
    run_table(&program, conf_cases_quantized);
    return program.list ? 0 : tally_finish(&program.tally);
}

#ifndef CONF_NO_MAIN
int main(int argc, char **argv)
{
    return conf_main(argc, argv);
}
#endif
