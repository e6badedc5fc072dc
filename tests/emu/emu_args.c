/* SPDX-License-Identifier: Apache-2.0 */
/* emu_args.c: see emu_args.h. */
#include "emu/emu_args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_ranks(struct emu_args *args, const char *value)
{
    char *end;
    args->low = args->high = (int)strtol(value, &end, 10);
    if (*end == '-')
        args->high = (int)strtol(end + 1, NULL, 10);
}

/* An option with a value; false: it is none of them. */
static bool read_value(struct emu_args *args, const char *name, const char *value)
{
    if (strcmp(name, "--seeds") == 0)
        args->seeds = (unsigned)strtoul(value, NULL, 0);
    else if (strcmp(name, "--seed") == 0)
        args->seed = strtoull(value, NULL, 0);
    else if (strcmp(name, "--ranks") == 0)
        read_ranks(args, value);
    else if (strcmp(name, "--op") == 0)
        args->op = value;
    else
        return strcmp(name, "--jobs") == 0; /* one process does */
    return true;
}

void emu_args_read(struct emu_args *args, int argc, char **argv, unsigned quick)
{
    args->low = 1, args->high = 8, args->op = "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            args->seeds = quick;
        } else if (strcmp(argv[i], "--few") == 0) {
            args->few = true;
        } else if (strcmp(argv[i], "-v") == 0) {
            args->verbose = true;
        } else if (i + 1 < argc && read_value(args, argv[i], argv[i + 1])) {
            i++;
        } else {
            fprintf(stderr, "%s: %s is not an option, or has no value\n", argv[0], argv[i]);
            exit(2);
        }
    }
}

bool emu_args_goes_on(const struct emu_args *args)
{
    return args->failed < (args->few ? 1 : 3);
}

void emu_args_run(struct emu_args *args, void (*run)(const void *of, uint64_t seed, int nranks),
                  const void *of)
{
    if (args->seed) {
        run(of, args->seed, (int)(args->seed & 255));
        return;
    }
    for (unsigned s = 1; s <= args->seeds; s++)
        for (int n = args->low; n <= args->high && emu_args_goes_on(args); n++)
            run(of, (uint64_t)s << 8 | (uint64_t)n, n);
}

int emu_args_end(const struct emu_args *args)
{
    if (args->passed + args->failed == 0) {
        fprintf(stderr, "nothing ran\n");
        return 2;
    }
    printf("%d passed, %d failed\n", args->passed, args->failed);
    return args->failed ? 1 : 0;
}
