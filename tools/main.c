/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c: the `solccl` command: finds the subcommand and calls it.
 */
#include "tool.h"

#include "solccl/solccl.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "solccl: collectives at the hardware's speed of light\n"
    "\n"
    "  solccl run -n N [options] COMMAND...   start N ranks of a command on this host\n"
    "  solccl perf OP...|all [options]        measure collectives against their bound and peers\n"
    "  solccl info [options]                  what this machine has, and what the plan would take\n"
    "  solccl doctor FILE|DIRECTORY...        which rank is behind: reads the ranks' dumps\n"
    "  solccl tune -o FILE [options]          measure this machine's GPUs, write a tuning file\n"
    "  solccl emu FILE.cu... [options]        run kernels of your own on an emulated machine\n"
    "  solccl --version\n"
    "\n"
    "Each has --help.\n";

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*call)(int argc, char **argv);
    } commands[] = {{"run", tool_run},   {"perf", tool_perf}, {"info", tool_info},
                    {"tune", tool_tune}, {"emu", tool_emu},   {"doctor", tool_doctor}};
    size_t i;

    if (argc < 2) {
        fputs(usage, stderr);
        return TOOL_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        fputs(usage, stdout);
        return 0;
    }
    if (!strcmp(argv[1], "--version")) {
        int version = sol_version();

        printf("solccl %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
        return 0;
    }
    for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (!strcmp(argv[1], commands[i].name))
            return commands[i].call(argc - 1, argv + 1);
    return tool_usage("", "'%s' is not a command (run, perf, info, tune, emu, doctor)", argv[1]);
}
