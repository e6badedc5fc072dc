/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.c: runs the cases that only GPU ranks have: streams, graphs, dependent
 * kernels, every kind of memory, timeouts and deaths. The counterpart for what
 * all ranks have in common is conformance --backend cuda.
 *
 * The program itself never touches CUDA: a process that has cannot fork ranks.
 */
#include "gpu/gpu_rank.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char usage[] = "gpu [--case TEXT] [--list] [--seed N]\n";

typedef struct {
    tally_t tally;
    bool list;
    uint64_t seed;
    int devices;
} program_t;

static void rank_main(team_t *team, int rank, void *arg)
{
    const gpu_case_t *what = arg;
    gpu_rank_t g = {.team = team, .rank = rank, .nranks = team->nranks};
    team_doing(team, rank, "opening the device");
    if (what->bare) {
        what->run(&g);
        return;
    }
    if (gpu_open_device(&g) && gpu_comm(&g, 0, &g.comm))
        what->run(&g);
    team_doing(team, rank, "destroying the communicator");
    TEAM_OK(team, rank, sol_comm_destroy(g.comm), NULL);
    gpu_close_device(&g);
}

static void set_environment(const gpu_case_t *what, bool set)
{
    for (int i = 0; i < 4 && what->environment[i]; i++) {
        char text[128];
        snprintf(text, sizeof(text), "%s", what->environment[i]);
        char *value = strchr(text, '=');
        *value = '\0';
        if (set)
            setenv(text, value + 1, 1);
        else
            unsetenv(text);
    }
}

static void run_one(program_t *program, const gpu_case_t *what, int nranks, bool threads)
{
    char name[64];
    int skips = 0;
    snprintf(name, sizeof(name), "%s/n%d%s", what->name, nranks, threads ? "t" : "");
    if (!tally_wants(&program->tally, name))
        return;
    if (program->list) {
        printf("%s\n", name);
        return;
    }
    team_options_t team = {.name = name,
                           .nranks = nranks,
                           .threads = threads,
                           .deadline_s = what->deadline_s ? what->deadline_s : 60,
                           .expect_killed = what->expect_killed,
                           .seed = team_mix(program->seed + (uint64_t)nranks)};
    set_environment(what, true);
    double begin = team_now();
    int failures = team_run(&team, rank_main, (void *)(uintptr_t)what, &skips);
    tally_case(&program->tally, name, failures, skips > 0, team_now() - begin);
    set_environment(what, false);
}

static void run_table(program_t *program, const gpu_case_t *table)
{
    for (const gpu_case_t *c = table; c->name; c++)
        for (int n = c->least; n <= c->most; n++) {
            /* processes that share a GPU take turns on it: right, but slow */
            bool apart = n <= program->devices || program->list;
            if (c->processes && (apart || c->turns))
                run_one(program, c, n, false);
            if (c->threads || (!apart && !c->bare))
                run_one(program, c, n, true);
        }
}

/* Counted in a child: see above. */
static int count_devices(void)
{
    int status = 0, count = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

int main(int argc, char **argv)
{
    program_t program = {.seed = 1};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0) {
            program.list = true;
        } else if (strcmp(argv[i], "--case") == 0 && i + 1 < argc) {
            program.tally.only = argv[++i];
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            program.seed = strtoull(argv[++i], NULL, 0);
        } else {
            fputs(usage, stderr);
            return 2;
        }
    }
    /* ranks that share a GPU must not share its hardware queues: 8 by default */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    program.devices = program.list ? 0 : count_devices();
    if (!program.list && program.devices == 0) {
        printf("no GPU here: skipped\n");
        return 77;
    }
    run_table(&program, gpu_cases_graphs);
    run_table(&program, gpu_cases_buffers);
    run_table(&program, gpu_cases_nccl);
    run_table(&program, gpu_cases_load);
    run_table(&program, gpu_cases_norm);
    run_table(&program, gpu_cases_halves);
    run_table(&program, gpu_cases_moe);
    run_table(&program, gpu_cases_fused);
    run_table(&program, gpu_cases_transfer);
    run_table(&program, gpu_cases_quantized);
    run_table(&program, gpu_cases_late);
    run_table(&program, gpu_cases_faults);
    return program.list ? 0 : tally_finish(&program.tally);
}
