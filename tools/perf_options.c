/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_options.c: flags named as in nccl-tests where it has them.
 */
#include "perf_options.h"

#include "tool.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "Usage: solccl perf OP...|all [options]\n"
    "\n"
    "Measure collectives: verify, warm up, then time, for each size. OP: all_reduce,\n"
    "all_gather, reduce_scatter, all_to_all, broadcast (these five are 'all'), reduce,\n"
    "gather, scatter, sendrecv, barrier.\n"
    "\n"
    "As in nccl-tests:\n"
    "  -b, --minbytes SIZE     first size (8); K, M, G are powers of 1024\n"
    "  -e, --maxbytes SIZE     last size (16M)\n"
    "  -f, --stepfactor F      size times F each step (2)\n"
    "  -i, --stepbytes SIZE    or plus SIZE each step\n"
    "  -d, --datatype T,...    float32 (float), float64 (double), float16 (half), bfloat16 "
    "(bf16),\n"
    "                          float8_e4m3, float8_e5m2, int8, uint8, int32, uint32, int64,\n"
    "                          uint64, or all (float32)\n"
    "  -o, --op R,...          sum, prod, min, max, avg, or all (sum)\n"
    "  -r, --root RANK         root of rooted operations (default: it rotates, see below)\n"
    "  -n, --iters N           operations timed in a round (default: as many as fill --round-ms)\n"
    "  -w, --warmup_iters N    batches before each timed round (5; fewer beyond 5 ms)\n"
    "  -c, --check N           checked calls before timing, 0: none (1)\n"
    "  -z, --blocking 0|1      1: time each operation alone, behind a barrier (0)\n"
    "  -R, --local_register M  buffers: 0 plain, 1 registered, 2 symmetric (0)\n"
    "  -g, --ngpus N           ranks, each a process (default: one a core, 2 to 8)\n"
    "  -t, --nthreads N        multiplies -g (ranks are processes all the same)\n"
    "\n"
    "More:\n"
    "      --ranks N           the same as -g\n"
    "      --in-place M        0: out of place, 1: in place, both (0; beside an MPI, whose\n"
    "                          broadcast has one buffer, broadcast: 1)\n"
    "      --peer NAME,...     measure openmpi, mpich (CPU ranks), nccl, nccl-sym (symmetric\n"
    "                          windows), torch (GPU ranks) beside solccl, in turns in this run\n"
    "      --device cpu|cuda   what the ranks are (cpu); GPU rank r is on GPU r\n"
    "      --mode M,...        GPU ranks: graph, graph-pdl (dependent launch), eager (graph)\n"
    "      --rounds N          turns that each library gets at each size (5)\n"
    "      --round-ms MS       time of one turn (20)\n"
    "      --bind core|none    one CPU a rank where there are enough (core)\n"
    "      --no-bound          do not measure the machine's bound\n"
    "      --timeout S         give up when a command takes longer (120)\n"
    "      --json FILE         write the rows as JSON lines; --append adds to FILE\n"
    "      --csv FILE          write the rows as CSV\n"
    "      --report FILE.html  write one self-contained page with plots\n"
    "      --from FILE.jsonl   measure nothing: show saved rows, with --csv, --report\n"
    "  -h, --help\n"
    "\n"
    "Also under a launcher (solccl run, mpirun, torchrun, srun), without -g and --peer.\n"
    "\n"
    "How time is taken. Operations follow each other without a pause, in batches long\n"
    "enough (20 us) that reading the clock does not count. A sample is one batch on\n"
    "its slowest rank, divided by the operations in it; p50, p99 and min are over all\n"
    "samples of all rounds, so p99 is of batches, not of single calls; -z 1 times single\n"
    "calls. The root rotates from call to call, so that calls of a rooted operation\n"
    "cannot overlap and their distance is their latency; with -r they can, as in nccl-tests.\n"
    "algbw and busbw are nccl-tests' formulas at the p50. Peers are measured by the same\n"
    "code, buffers and batches, on the same CPUs, while the other side sleeps.\n"
    "\n"
    "Exit status: 0; 1 when an element was wrong or something failed; 2 for a wrong\n"
    "command line.\n";

enum {
    OPT_RANKS = 256,
    OPT_IN_PLACE,
    OPT_PEER,
    OPT_ROUNDS,
    OPT_ROUND_MS,
    OPT_BIND,
    OPT_NO_BOUND,
    OPT_TIMEOUT,
    OPT_JSON,
    OPT_APPEND,
    OPT_CSV,
    OPT_REPORT,
    OPT_FROM,
    OPT_WORKER,
    OPT_DEVICE,
    OPT_MODE,
    OPT_LIBRARY
};

static const struct option longs[] = {{"minbytes", required_argument, NULL, 'b'},
                                      {"maxbytes", required_argument, NULL, 'e'},
                                      {"stepfactor", required_argument, NULL, 'f'},
                                      {"stepbytes", required_argument, NULL, 'i'},
                                      {"datatype", required_argument, NULL, 'd'},
                                      {"op", required_argument, NULL, 'o'},
                                      {"root", required_argument, NULL, 'r'},
                                      {"iters", required_argument, NULL, 'n'},
                                      {"warmup_iters", required_argument, NULL, 'w'},
                                      {"check", required_argument, NULL, 'c'},
                                      {"blocking", required_argument, NULL, 'z'},
                                      {"local_register", required_argument, NULL, 'R'},
                                      {"ngpus", required_argument, NULL, 'g'},
                                      {"nthreads", required_argument, NULL, 't'},
                                      {"ranks", required_argument, NULL, OPT_RANKS},
                                      {"in-place", required_argument, NULL, OPT_IN_PLACE},
                                      {"peer", required_argument, NULL, OPT_PEER},
                                      {"rounds", required_argument, NULL, OPT_ROUNDS},
                                      {"round-ms", required_argument, NULL, OPT_ROUND_MS},
                                      {"bind", required_argument, NULL, OPT_BIND},
                                      {"no-bound", no_argument, NULL, OPT_NO_BOUND},
                                      {"timeout", required_argument, NULL, OPT_TIMEOUT},
                                      {"json", required_argument, NULL, OPT_JSON},
                                      {"append", no_argument, NULL, OPT_APPEND},
                                      {"csv", required_argument, NULL, OPT_CSV},
                                      {"report", required_argument, NULL, OPT_REPORT},
                                      {"from", required_argument, NULL, OPT_FROM},
                                      {"worker", no_argument, NULL, OPT_WORKER},
                                      {"device", required_argument, NULL, OPT_DEVICE},
                                      {"mode", required_argument, NULL, OPT_MODE},
                                      {"library", required_argument, NULL, OPT_LIBRARY},
                                      {"help", no_argument, NULL, 'h'},
                                      {NULL, 0, NULL, 0}};

static void defaults(perf_options_t *o)
{
    memset(o, 0, sizeof(*o));
    o->begin = 8;
    o->end = 16u << 20;
    o->factor = 2;
    o->warm = 5;
    o->checks = 1;
    o->rounds = 5;
    o->round_ms = 20;
    o->timeout_s = 120;
    o->root = PERF_ROOT_ROTATES;
    o->bind = o->sol = true;
}

/* Call `set` for each name of a comma-separated list. Names the one that is refused. */
static bool each_name(const char *list, bool (*set)(perf_options_t *, const char *),
                      perf_options_t *o, char bad[64])
{
    for (; *list; list += *list == ',') {
        size_t length = strcspn(list, ",");

        snprintf(bad, 64, "%.*s", (int)(length < 63 ? length : 63), list);
        if (!set(o, bad))
            return false;
        list += length;
    }
    return true;
}

static bool set_op(perf_options_t *o, const char *name)
{
    perf_op_t op;
    int i;

    if (!strcmp(name, "all")) {
        for (i = 0; i < PERF_MAIN_OPS; i++)
            o->ops[i] = true;
        return true;
    }
    if (!perf_op_parse(name, &op))
        return false;
    return o->ops[op] = true;
}

static bool set_dtype(perf_options_t *o, const char *name)
{
    sol_dtype_t dtype;

    if (!strcmp(name, "all")) {
        memset(o->dtypes, true, sizeof(o->dtypes));
        return true;
    }
    if (!perf_dtype_parse(name, &dtype))
        return false;
    return o->dtypes[dtype] = true;
}

static bool set_redop(perf_options_t *o, const char *name)
{
    sol_redop_t redop;

    if (!strcmp(name, "all")) {
        memset(o->redops, true, sizeof(o->redops));
        return true;
    }
    if (!perf_redop_parse(name, &redop))
        return false;
    return o->redops[redop] = true;
}

static bool set_peer(perf_options_t *o, const char *name)
{
    int i;

    static const char *const names[] = {"openmpi", "mpich", "nccl", "nccl-sym", "torch"};

    for (i = 0; i < 5 && strcmp(name, names[i]); i++)
        continue;
    if (i == 5 || o->npeers == PERF_MAX_SIDES - 1)
        return false;
    for (i = 0; i < o->npeers; i++)
        if (!strcmp(o->peers[i], name))
            return true;
    snprintf(o->peers[o->npeers++], sizeof(o->peers[0]), "%s", name);
    return true;
}

static bool set_mode(perf_options_t *o, const char *name)
{
    perf_mode_t mode;

    if (!perf_mode_parse(name, &mode) || mode == PERF_MODE_CPU)
        return false;
    return o->modes[mode] = true;
}

static bool set_flag(const char *text, bool *value)
{
    long number;

    if (!tool_parse_int(text, 0, 1, &number))
        return false;
    *value = number != 0;
    return true;
}

/* What goes wrong with a value, or NULL. */
static const char *set_lists(perf_options_t *o, int c, const char *value, char bad[64])
{
    switch (c) {
    case 'd':
        return each_name(value, set_dtype, o, bad) ? NULL : "this data type is not known";
    case 'o':
        return each_name(value, set_redop, o, bad) ? NULL : "this operation is not known";
    case OPT_PEER:
        return each_name(value, set_peer, o, bad)
                   ? NULL
                   : "peers are openmpi, mpich, nccl, nccl-sym and torch";
    case OPT_MODE:
        return each_name(value, set_mode, o, bad) ? NULL : "modes are graph, graph-pdl and eager";
    case OPT_DEVICE:
        o->gpu = !strcmp(value, "cuda");
        return o->gpu || !strcmp(value, "cpu") ? NULL : "cpu or cuda was expected";
    case OPT_IN_PLACE:
        o->in_place[0] = !strcmp(value, "0") || !strcmp(value, "both");
        o->in_place[1] = !strcmp(value, "1") || !strcmp(value, "both");
        o->place_given = true;
        return o->in_place[0] || o->in_place[1] ? NULL : "0, 1 or both was expected";
    default:
        o->bind = !strcmp(value, "core");
        return o->bind || !strcmp(value, "none") ? NULL : "core or none was expected";
    }
}

static const char *set_numbers(perf_options_t *o, int c, const char *value)
{
    long number;

    switch (c) {
    case 'b':
        return tool_parse_size(value, &o->begin) ? NULL : "a size was expected (8, 4K, 16M)";
    case 'e':
        return tool_parse_size(value, &o->end) ? NULL : "a size was expected (8, 4K, 16M)";
    case 'i':
        return tool_parse_size(value, &o->step_bytes) && o->step_bytes
                   ? NULL
                   : "a size above 0 was expected";
    case 'f':
        return tool_parse_real(value, 1.01, 1e6, &o->factor) ? NULL
                                                             : "a factor above 1 was expected";
    case 'r':
        return tool_parse_int(value, 0, SOL_MAX_RANKS - 1, &o->root) ? NULL : "a rank was expected";
    case 'n':
        return tool_parse_int(value, 1, 1000000000, &o->iterations)
                   ? NULL
                   : "a number of iterations was expected";
    case 'w':
        return tool_parse_int(value, 0, 100000, &o->warm) ? NULL : "a number was expected";
    case 'c':
        return tool_parse_int(value, 0, 100000, &o->checks) ? NULL : "a number was expected";
    case 'z':
        return set_flag(value, &o->alone) ? NULL : "0 or 1 was expected";
    case 'R':
        if (!tool_parse_int(value, 0, 2, &number))
            return "0, 1 or 2 was expected";
        o->memory = (perf_memory_kind_t)number;
        return NULL;
    case OPT_ROUNDS:
        return tool_parse_int(value, 1, 10000, &o->rounds) ? NULL : "a number was expected";
    case OPT_ROUND_MS:
        return tool_parse_real(value, 0.01, 60000, &o->round_ms) ? NULL
                                                                 : "milliseconds were expected";
    default:
        return tool_parse_real(value, 1, 86400, &o->timeout_s) ? NULL : "seconds were expected";
    }
}

/* One option with its value; -1: well. */
static int take(perf_options_t *o, int c, const char *value, long *threads, const char *name)
{
    const char *why = NULL;
    char bad[64] = "";

    switch (c) {
    case 'g':
    case OPT_RANKS:
        if (!tool_parse_int(value, 1, SOL_MAX_RANKS, &o->ranks))
            why = "a number from 1 to 64 was expected";
        break;
    case 't':
        if (!tool_parse_int(value, 1, SOL_MAX_RANKS, threads))
            why = "a number from 1 to 64 was expected";
        break;
    case OPT_NO_BOUND:
        o->sol = false;
        break;
    case OPT_JSON:
        o->json = value;
        break;
    case OPT_APPEND:
        o->append = true;
        break;
    case OPT_CSV:
        o->csv = value;
        break;
    case OPT_REPORT:
        o->report = value;
        break;
    case OPT_FROM:
        o->from = value;
        break;
    case OPT_WORKER:
        o->worker = true;
        break;
    case OPT_LIBRARY:
        snprintf(o->library, sizeof(o->library), "%s", value);
        break;
    case 'd':
    case 'o':
    case OPT_PEER:
    case OPT_MODE:
    case OPT_DEVICE:
    case OPT_IN_PLACE:
    case OPT_BIND:
        why = set_lists(o, c, value, bad);
        break;
    default:
        why = set_numbers(o, c, value);
        break;
    }
    return why ? tool_usage("perf", "%s %s: %s", name, *bad ? bad : value, why) : -1;
}

static bool any(const bool *flags, int count)
{
    int i;

    for (i = 0; i < count; i++)
        if (flags[i])
            return true;
    return false;
}

/* What was left out gets its default; what contradicts itself is refused. */
static int complete(perf_options_t *o, long threads)
{
    int i;

    if (o->worker || o->from)
        return -1;
    if (!any(o->ops, PERF_OP_COUNT))
        return tool_usage("perf", "which operation? (all_reduce, all_gather, ..., or all)");
    if (!any(o->dtypes, SOL_DTYPE_COUNT))
        o->dtypes[SOL_FLOAT32] = true;
    if (!any(o->redops, SOL_REDOP_COUNT))
        o->redops[SOL_SUM] = true;
    if (!any(o->in_place, 2))
        o->in_place[0] = true;
    if (o->end < o->begin)
        return tool_usage("perf", "the last size, -e %zu, is below the first, -b %zu", o->end,
                          o->begin);
    if (threads > 1 && !o->ranks)
        o->ranks = 1;
    o->ranks *= threads;
    if (o->ranks > SOL_MAX_RANKS)
        return tool_usage("perf", "%ld ranks are more than %d", o->ranks, SOL_MAX_RANKS);
    if (o->ranks && o->root >= o->ranks)
        return tool_usage("perf", "-r %ld: there are only %ld ranks", o->root, o->ranks);
    if (!o->gpu && any(o->modes, PERF_MODE_COUNT))
        return tool_usage("perf", "--mode is for GPU ranks: add --device cuda");
    if (!any(o->modes, PERF_MODE_COUNT))
        o->modes[o->gpu ? PERF_MODE_GRAPH : PERF_MODE_CPU] = true;
    for (i = 0; i < o->npeers; i++)
        if (o->gpu == (!strcmp(o->peers[i], "openmpi") || !strcmp(o->peers[i], "mpich")))
            return tool_usage("perf", "--peer %s is for %s ranks", o->peers[i],
                              o->gpu ? "CPU" : "GPU");
    if (o->gpu)
        o->bind = false;
    if (o->npeers && o->memory != PERF_MEMORY_PLAIN)
        return tool_usage("perf", "-R %d has no counterpart in the peers", (int)o->memory);
    return -1;
}

int perf_options_parse(int argc, char **argv, perf_options_t *o)
{
    long threads = 1;
    int c, status;

    defaults(o);
    optind = 0; /* glibc: also forget where in a word an earlier parse had stopped */
    opterr = 0;
    while ((c = getopt_long(argc, argv, "b:e:f:i:d:o:r:n:w:c:z:R:g:t:h", longs, NULL)) != -1) {
        const char *name = argv[optind > 1 ? optind - 1 : 1];

        if (c == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (c == '?')
            return tool_usage("perf", "%s: not an option, or its value is missing", name);
        if (optarg && optarg == name) /* "-b 8": the name is one word before */
            name = argv[optind - 2];
        status = take(o, c, optarg, &threads, name);
        if (status >= 0)
            return status;
    }
    for (; optind < argc; optind++) {
        char bad[64];

        if (!each_name(argv[optind], set_op, o, bad))
            return tool_usage("perf", "'%s' is not an operation", bad);
    }
    return complete(o, threads);
}

size_t perf_next_size(const perf_options_t *o, size_t bytes)
{
    double next = o->step_bytes ? (double)bytes + (double)o->step_bytes : (double)bytes * o->factor;

    if (next <
        (double)bytes + 1) /* a small factor of a small size, or of 0: move on all the same */
        next = (double)bytes + 1;
    return next > (double)o->end ? 0 : (size_t)next;
}
