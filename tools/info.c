/* SPDX-License-Identifier: Apache-2.0 */
/*
 * info.c: `solccl info`: what this machine has, which backend can be used, and
 * which protocol the plan would take for which size, and why. Moves no data.
 */
#include "perf_ops.h"
#include "tool.h"

#include "solccl/solccl.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES 16384

static const char help[] =
    "Usage: solccl info [options]\n"
    "\n"
    "Print what this machine offers, one fact a line, and what the plan takes for each\n"
    "of the main operations.\n"
    "\n"
    "  -x, --explain OP     only this operation (all_reduce, broadcast, ...; may be repeated)\n"
    "  -g, --ranks N        for N ranks (default: one a core, 2 to 8)\n"
    "  -d, --datatype T     float32\n"
    "  -o, --op R           sum\n"
    "  -b, --minbytes SIZE  8, and -e, --maxbytes SIZE: 16M\n"
    "  -h, --help\n";

struct options {
    bool ops[PERF_OP_COUNT];
    bool chosen;
    long ranks;
    sol_dtype_t dtype;
    sol_redop_t redop;
    size_t begin, end;
};

static int take(struct options *o, int c, const char *value)
{
    perf_op_t op;

    switch (c) {
    case 'x':
        if (!perf_op_parse(value, &op))
            return tool_usage("info", "--explain %s: it is not an operation", value);
        o->ops[op] = o->chosen = true;
        return -1;
    case 'g':
        if (!tool_parse_int(value, 1, SOL_MAX_RANKS, &o->ranks))
            return tool_usage("info", "-g %s: a number from 1 to %d was expected", value,
                              SOL_MAX_RANKS);
        return -1;
    case 'd':
        if (!perf_dtype_parse(value, &o->dtype))
            return tool_usage("info", "-d %s: this data type is not known", value);
        return -1;
    case 'o':
        if (!perf_redop_parse(value, &o->redop))
            return tool_usage("info", "-o %s: this operation is not known", value);
        return -1;
    case 'b':
    case 'e':
        if (!tool_parse_size(value, c == 'b' ? &o->begin : &o->end))
            return tool_usage("info", "-%c %s: a size was expected", c, value);
        return -1;
    default:
        return tool_usage("info", "not an option, or its value is missing");
    }
}

static int parse(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {
        {"explain", required_argument, NULL, 'x'},  {"ranks", required_argument, NULL, 'g'},
        {"datatype", required_argument, NULL, 'd'}, {"op", required_argument, NULL, 'o'},
        {"minbytes", required_argument, NULL, 'b'}, {"maxbytes", required_argument, NULL, 'e'},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0}};
    int c, status, cores, cpus[TOOL_MAX_CPUS], i;

    memset(o, 0, sizeof(*o));
    o->dtype = SOL_FLOAT32;
    o->redop = SOL_SUM;
    o->begin = 8;
    o->end = 16u << 20;
    optind = 1;
    opterr = 0;
    while ((c = getopt_long(argc, argv, "x:g:d:o:b:e:h", longs, NULL)) != -1) {
        if (c == 'h') {
            fputs(help, stdout);
            return 0;
        }
        status = take(o, c, optarg);
        if (status >= 0)
            return status;
    }
    if (optind < argc)
        return tool_usage("info", "'%s' was not expected", argv[optind]);
    if (!o->ranks) {
        tool_cpus(cpus, TOOL_MAX_CPUS, &cores);
        o->ranks = cores < 2 ? 2 : cores > 8 ? 8 : cores;
    }
    for (i = 0; i < PERF_MAIN_OPS && !o->chosen; i++)
        o->ops[i] = true;
    return -1;
}

/* All ranks of a communicator in this thread: enough to ask its plan. */
static sol_status_t make_ranks(int nranks, sol_comm_t *comms)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    sol_unique_id_t id;
    sol_status_t status = sol_get_unique_id(&id), ended;
    int rank;

    config.backend = SOL_BACKEND_CPU;
    config.name = "info";
    if (status == SOL_OK)
        status = sol_group_start();
    if (status != SOL_OK)
        return status;
    for (rank = 0; rank < nranks && status == SOL_OK; rank++)
        status = sol_comm_create(&comms[rank], &id, nranks, rank, &config);
    ended = sol_group_end();
    return status != SOL_OK ? status : ended;
}

/* One line for each run of sizes that the plan treats alike. */
static void explain_op(sol_comm_t comm, const struct options *o, perf_op_t op)
{
    char text[1024], before[1024] = "", from[32], to[32];
    size_t bytes, first = 0, last = 0, count;

    printf("%s, %ld ranks, %s%s%s:\n", perf_op_name(op), o->ranks, perf_dtype_name(o->dtype),
           perf_op_reduces(op) ? ", " : "", perf_op_reduces(op) ? perf_redop_name(o->redop) : "");
    for (bytes = o->begin ? o->begin : 1; bytes <= o->end && bytes; bytes *= 2) {
        count = perf_count_for(op, o->dtype, bytes, (int)o->ranks);
        if (!count && op != PERF_BARRIER)
            continue;
        text[0] = '\0';
        if (sol_explain(comm, perf_op_func(op), count, o->dtype, o->redop, text, sizeof(text)) !=
            SOL_OK)
            snprintf(text, sizeof(text), "%s", sol_last_error(comm));
        text[strcspn(text, "\n")] = '\0';
        if (before[0] && strcmp(before, text)) {
            printf("  %6s to %6s  %s\n", tool_format_size(first, from), tool_format_size(last, to),
                   before);
            before[0] = '\0';
        }
        if (!before[0])
            first = bytes;
        memcpy(before, text, sizeof(before));
        last = bytes;
        if (op == PERF_BARRIER)
            break;
    }
    if (before[0])
        printf("  %6s to %6s  %s\n", tool_format_size(first, from), tool_format_size(last, to),
               before);
}

int tool_info(int argc, char **argv)
{
    sol_comm_t comms[SOL_MAX_RANKS] = {NULL};
    struct options options;
    int status = parse(argc, argv, &options), i;
    sol_status_t made;
    char *text;

    if (status >= 0)
        return status;
    text = tool_calloc(1, TEXT_BYTES);
    if (!text)
        return 1;
    if (!options.chosen) {
        if (sol_machine_info(text, TEXT_BYTES) == SOL_OK)
            printf("%s%s\n", text, *text && text[strlen(text) - 1] == '\n' ? "" : "\n");
        else
            tool_error("info", "%s", sol_last_error(NULL));
    }
    tool_free(text);
    made = make_ranks((int)options.ranks, comms);
    if (made != SOL_OK)
        tool_error("info", "the ranks cannot be made: %s", sol_last_error(NULL));
    for (i = 0; i < PERF_OP_COUNT && made == SOL_OK; i++)
        if (options.ops[i])
            explain_op(comms[0], &options, (perf_op_t)i);
    for (i = 0; i < options.ranks; i++)
        sol_comm_destroy(comms[i]);
    return made == SOL_OK ? 0 : 1;
}
