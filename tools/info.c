/* SPDX-License-Identifier: Apache-2.0 */
/*
 * info.c: `solccl info`: what this machine has, which backend can be used, and
 * which protocol the plan would take for which size, and why. Moves no data.
 */
#include "perf_ops.h"
#include "tool.h"

#include "solccl/solccl.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_BYTES 16384
#define TEXT_LINE 1024

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
    "      --litmus         try on all pairs of GPUs what PTX does not promise of stores to a\n"
    "                       peer: 16-byte vectors and 128-byte lines are seen whole (1 s a pair)\n"
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
    case 'l':
#ifdef SOL_WITH_CUDA
        return tool_litmus();
#else
        return tool_error("info", "--litmus: this build is without CUDA");
#endif
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
    static const struct option longs[] = {{"explain", required_argument, NULL, 'x'},
                                          {"ranks", required_argument, NULL, 'g'},
                                          {"datatype", required_argument, NULL, 'd'},
                                          {"op", required_argument, NULL, 'o'},
                                          {"minbytes", required_argument, NULL, 'b'},
                                          {"maxbytes", required_argument, NULL, 'e'},
                                          {"litmus", no_argument, NULL, 'l'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
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

/* A rank that only exists: it joins, and leaves when the parent closes the pipe or is gone. */
static void be_a_rank(const sol_unique_id_t *id, int nranks, int rank, const int pipe_ends[2])
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    sol_comm_t comm = NULL;
    char byte;

    close(pipe_ends[1]);
    config.backend = SOL_BACKEND_CPU;
    if (sol_comm_create(&comm, id, nranks, rank, &config) == SOL_OK)
        while (read(pipe_ends[0], &byte, 1) < 0 && errno == EINTR)
            continue;
    sol_comm_destroy(comm);
    _exit(0);
}

/* Rank 0 of a communicator whose other ranks are processes, as in real use. *keep is the pipe
 * whose closing ends them. */
static sol_status_t join_as_first(int nranks, sol_comm_t *comm, int *keep)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    sol_unique_id_t id;
    sol_status_t status = sol_get_unique_id(&id);
    int ends[2], rank;
    pid_t pid = 1;

    if (status != SOL_OK)
        return status;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return SOL_ERR_SYSTEM;
    fflush(NULL);
    for (rank = 1; rank < nranks && pid > 0; rank++) {
        pid = fork();
        if (pid == 0)
            be_a_rank(&id, nranks, rank, ends);
    }
    close(ends[0]);
    *keep = ends[1];
    config.backend = SOL_BACKEND_CPU;
    config.name = "info";
    return pid > 0 ? sol_comm_create(comm, &id, nranks, 0, &config) : SOL_ERR_SYSTEM;
}

static void explain_size(sol_comm_t comm, const struct options *o, perf_op_t op, size_t bytes,
                         char *text, size_t room)
{
    size_t count = perf_count_for(op, o->dtype, bytes, (int)o->ranks);

    text[0] = '\0';
    if (sol_explain(comm, perf_op_func(op), count, o->dtype, o->redop, text, room) != SOL_OK)
        snprintf(text, room, "%s", sol_last_error(comm));
    text[strcspn(text, "\n")] = '\0';
}

static void print_range(size_t first, size_t last, const char *text, const char *last_text)
{
    char from[32], to[32];

    if (first == last)
        printf("  %6s            %s\n", tool_format_size(first, from), text);
    else
        printf("  %6s to %6s  %s\n", tool_format_size(first, from), tool_format_size(last, to),
               text);
    if (strcmp(text, last_text))
        printf("          at %6s  %s\n", tool_format_size(last, to), last_text);
}

/* One entry for each run of sizes that take the same protocol (the text before the colon). */
static void explain_op(sol_comm_t comm, const struct options *o, perf_op_t op)
{
    char text[TEXT_LINE], start[TEXT_LINE] = "", before[TEXT_LINE] = "";
    size_t bytes, first = 0, last = 0, name;

    printf("%s, %ld ranks, %s%s%s:\n", perf_op_name(op), o->ranks, perf_dtype_name(o->dtype),
           perf_op_reduces(op) ? ", " : "", perf_op_reduces(op) ? perf_redop_name(o->redop) : "");
    if (op == PERF_BARRIER) {
        explain_size(comm, o, op, 0, text, sizeof(text));
        printf("  %s\n", text);
        return;
    }
    for (bytes = o->begin ? o->begin : 1; bytes <= o->end && bytes; bytes *= 2) {
        if (!perf_count_for(op, o->dtype, bytes, (int)o->ranks))
            continue;
        explain_size(comm, o, op, bytes, text, sizeof(text));
        name = strcspn(text, ":") + 1;
        if (start[0] && strncmp(start, text, name)) {
            print_range(first, last, start, before);
            start[0] = '\0';
        }
        if (!start[0]) {
            first = bytes;
            memcpy(start, text, sizeof(start));
        }
        memcpy(before, text, sizeof(before));
        last = bytes;
    }
    if (start[0])
        print_range(first, last, start, before);
}

int tool_info(int argc, char **argv)
{
    sol_comm_t comm = NULL;
    struct options options;
    int status = parse(argc, argv, &options), keep = -1, i;
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
    made = join_as_first((int)options.ranks, &comm, &keep);
    if (made != SOL_OK)
        tool_error("info", "the ranks cannot be made: %s", sol_last_error(NULL));
    for (i = 0; i < PERF_OP_COUNT && made == SOL_OK; i++)
        if (options.ops[i])
            explain_op(comm, &options, (perf_op_t)i);
    sol_comm_destroy(comm);
    if (keep >= 0)
        close(keep);
    while (waitpid(-1, NULL, 0) > 0) /* they leave at once, or when their own timeout has passed */
        continue;
    return made == SOL_OK ? 0 : 1;
}
