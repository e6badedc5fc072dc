/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune.c: `solccl tune`: measures, for each operation and size, which grid of
 * which protocol is fastest on this machine's GPUs, and writes what it found as
 * a tuning file (SOLCCL_TUNING_FILE reads it).
 *
 * It starts one process a GPU. All of them walk the same candidates in the same
 * order; a candidate is a communicator made under SOLCCL_CUDA_* (some
 * milliseconds), its figure the slowest rank's. A candidate is taken only if it
 * beats the built-in plan by more than the noise.
 */
#include "perf_library.h"
#include "tool.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: solccl tune -o FILE [-g N] [-b SIZE] [-e SIZE]\n"
    "\n"
    "Measure on this machine's GPUs and write a tuning file.\n"
    "\n"
    "  -o, --output FILE    the file; use it with SOLCCL_TUNING_FILE=FILE\n"
    "  -g, --ranks N        one rank a GPU, N of them (default: 2)\n"
    "  -b, --minbytes SIZE  first size (256), and -e, --maxbytes SIZE: the last (16M)\n"
    "  -h, --help\n"
    "\n"
    "Sizes are of the count argument, in steps of 2. Nothing else should run on the GPUs.\n";

struct options {
    const char *output;
    long ranks;
    size_t begin, end;
    bool worker;
};

static int read_options(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {{"output", required_argument, NULL, 'o'},
                                          {"ranks", required_argument, NULL, 'g'},
                                          {"minbytes", required_argument, NULL, 'b'},
                                          {"maxbytes", required_argument, NULL, 'e'},
                                          {"worker", no_argument, NULL, 'W'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int c;

    memset(o, 0, sizeof(*o));
    o->ranks = 2;
    o->begin = 256;
    o->end = 16u << 20;
    optind = 1;
    opterr = 0;
    while ((c = getopt_long(argc, argv, "o:g:b:e:h", longs, NULL)) != -1) {
        if (c == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (c == 'o')
            o->output = optarg;
        else if (c == 'W')
            o->worker = true;
        else if ((c != 'g' || !tool_parse_int(optarg, 1, SOL_MAX_RANKS, &o->ranks)) &&
                 (c != 'b' || !tool_parse_size(optarg, &o->begin) || o->begin < 16) &&
                 (c != 'e' || !tool_parse_size(optarg, &o->end)))
            return tool_usage("tune", "%s: not an option, or its value cannot be read",
                              argv[optind - 1]);
    }
    if (!o->output)
        return tool_usage("tune", "-o FILE: where the tuning goes");
    return -1;
}

#ifdef SOL_WITH_CUDA

#define SAMPLES 15
#define MARGIN 0.98 /* a candidate has to be 2 % better than the built-in plan */
#define MAX_SIZES 32

static const perf_op_t ops[] = {PERF_ALL_REDUCE, PERF_ALL_GATHER, PERF_REDUCE_SCATTER,
                                PERF_ALL_TO_ALL, PERF_BROADCAST};
#define OPS (sizeof(ops) / sizeof(ops[0]))

/* Threads and vectors a thread; CTAs follow from the size, up to the limit. */
struct grid {
    int ctas, threads, vectors;
};
static const struct grid grids[] = {
    {0, 0, 0}, /* the built-in plan: first, to be beaten */
    {0, 32, 1},  {0, 64, 1},   {0, 64, 2},   {0, 64, 4},   {0, 128, 1},  {0, 128, 2},
    {0, 128, 4}, {0, 256, 1},  {0, 256, 2},  {0, 256, 4},  {0, 512, 1},  {0, 512, 2},
    {0, 512, 4}, {16, 512, 1}, {16, 512, 4}, {32, 512, 2}, {64, 256, 4},
};
#define GRIDS (sizeof(grids) / sizeof(grids[0]))

struct best {
    double us, plan_us;
    int grid;
    char protocol[32];
};

struct worker {
    const struct options *o;
    sol_comm_t ours; /* of CPU ranks: for what the ranks have to tell each other */
    sol_comm_t comm;
    int rank, nranks;
    void *send, *recv;
    struct best best[OPS][MAX_SIZES];
};

static int complain(const struct worker *w, const char *what)
{
    const char *text = sol_last_error(NULL);

    return tool_error("tune", "rank %d: %s: %s", w->rank, what, text);
}

static void set_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

/* The communicator under a candidate. */
static bool make_comm(struct worker *w, const struct grid *grid)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    sol_unique_id_t id;

    set_number("SOLCCL_CUDA_CTAS", grid->ctas);
    set_number("SOLCCL_CUDA_THREADS", grid->threads);
    set_number("SOLCCL_CUDA_VECTORS", grid->vectors);
    memset(&id, 0, sizeof(id));
    config.backend = SOL_BACKEND_CUDA;
    return (w->rank != 0 || sol_get_unique_id(&id) == SOL_OK) &&
           sol_broadcast(&id, &id, sizeof(id), SOL_UINT8, 0, w->ours, NULL) == SOL_OK &&
           sol_comm_create(&w->comm, &id, w->nranks, w->rank, &config) == SOL_OK;
}

/* One library for perf's clock: calls on w->comm. */
static struct worker *current;

static bool batch(const perf_case_t *c, const void *send, void *recv, size_t first, size_t calls,
                  perf_error_t *error)
{
    sol_status_t status = SOL_OK;
    sol_comm_t comm = current->comm;
    size_t i;

    for (i = 0; i < calls && status == SOL_OK; i++) {
        switch (c->op) {
        case PERF_ALL_REDUCE:
            status = sol_all_reduce(send, recv, c->count, c->dtype, SOL_SUM, comm, perf_stream);
            break;
        case PERF_ALL_GATHER:
            status = sol_all_gather(send, recv, c->count, c->dtype, comm, perf_stream);
            break;
        case PERF_REDUCE_SCATTER:
            status = sol_reduce_scatter(send, recv, c->count, c->dtype, SOL_SUM, comm, perf_stream);
            break;
        case PERF_ALL_TO_ALL:
            status = sol_all_to_all(send, recv, c->count, c->dtype, comm, perf_stream);
            break;
        default:
            status = sol_broadcast(send, recv, c->count, c->dtype,
                                   perf_root(c, first + i, current->nranks), comm, perf_stream);
            break;
        }
    }
    if (status != SOL_OK)
        snprintf(error->text, sizeof(error->text), "%s", sol_last_error(comm));
    return status == SOL_OK;
}

static const perf_library_t library = {.name = "solccl", .batch = batch};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* The median us of the slowest rank; negative: failed. */
static double measure(struct worker *w, const perf_case_t *c)
{
    double ns[SAMPLES], slowest[SAMPLES];
    size_t calls = c->count * perf_dtype_size(c->dtype) < (1u << 20) ? 50 : 8;
    perf_error_t error = {""};

    if (!perf_device_cuda.time(&library, c, w->send, w->recv, 2, SAMPLES, calls, false, ns,
                               &error)) {
        tool_error("tune", "rank %d: %s", w->rank, error.text);
        return -1;
    }
    if (sol_all_reduce(ns, slowest, SAMPLES, SOL_FLOAT64, SOL_MAX, w->ours, NULL) != SOL_OK)
        return -1;
    qsort(slowest, SAMPLES, sizeof(slowest[0]), compare);
    return slowest[SAMPLES / 2] * 1e-3 / (double)calls;
}

/* The protocol's name: what stands before the colon. */
static void protocol_of(struct worker *w, const perf_case_t *c, char *name, size_t bytes)
{
    char text[1024] = "";

    sol_explain(w->comm, perf_op_func(c->op), c->count, c->dtype, SOL_SUM, text, sizeof(text));
    snprintf(name, bytes, "%.*s", (int)strcspn(text, ":"), text);
}

static bool try_grid(struct worker *w, int grid)
{
    size_t op, bytes;
    int size;

    for (op = 0; op < OPS; op++) {
        for (bytes = w->o->begin, size = 0; bytes <= w->o->end && size < MAX_SIZES;
             bytes *= 2, size++) {
            perf_case_t c = {.op = ops[op],
                             .dtype = SOL_BFLOAT16,
                             .root = PERF_ROOT_ROTATES,
                             .count = bytes / 2,
                             .mode = PERF_MODE_GRAPH_PDL};
            struct best *best = &w->best[op][size];
            double us = measure(w, &c);

            if (us < 0)
                return false;
            if (grid == 0)
                best->plan_us = best->us = us;
            if (grid == 0 || (us < best->us && us < best->plan_us * MARGIN)) {
                best->us = us;
                best->grid = grid;
                protocol_of(w, &c, best->protocol, sizeof(best->protocol));
            }
        }
    }
    return true;
}

/* The name that the library compares: of rank 0's GPU, as sol_machine_info gives it. */
static void machine_name(char *name, size_t bytes)
{
    static char text[16384];
    const char *at;

    name[0] = '\0';
    if (sol_machine_info(text, sizeof(text)) == SOL_OK && (at = strstr(text, "\ngpu0: ")) != NULL)
        snprintf(name, bytes, "%.*s", (int)strcspn(at + 7, ",\n"), at + 7);
}

static int write_file(const struct worker *w)
{
    FILE *file = fopen(w->o->output, "we");
    char machine[128];
    size_t op, bytes;
    int size, rules = 0;

    if (!file)
        return tool_error("tune", "%s cannot be written: %s", w->o->output, strerror(errno));
    machine_name(machine, sizeof(machine));
    fprintf(file, "solccl-tuning 1\n# by solccl tune; where no line fits, the built-in plan\n");
    if (machine[0])
        fprintf(file, "machine %s\n", machine);
    for (op = 0; op < OPS; op++) {
        for (bytes = w->o->begin, size = 0; bytes <= w->o->end && size < MAX_SIZES;
             bytes *= 2, size++) {
            const struct best *best = &w->best[op][size];
            const struct grid *grid = &grids[best->grid];

            /* every size has a line, or a larger size's would be taken for it */
            fprintf(file, "%s any %d %zu %s %d %d %d # %.2f us, built-in %.2f\n",
                    sol_func_name(perf_op_func(ops[op])), w->nranks, bytes, best->protocol,
                    grid->ctas, grid->threads, grid->vectors, best->us, best->plan_us);
            rules += best->grid != 0;
        }
    }
    if (fclose(file) != 0)
        return tool_error("tune", "%s could not be written whole: %s", w->o->output,
                          strerror(errno));
    printf("%s: %d sizes better than the built-in plan\n", w->o->output, rules);
    return 0;
}

static int work(struct worker *w)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    int grid, status = 0;

    config.backend = SOL_BACKEND_CPU;
    if (sol_comm_create_from_env(&w->ours, &config) != SOL_OK ||
        sol_comm_rank(w->ours, &w->rank) != SOL_OK || sol_comm_size(w->ours, &w->nranks) != SOL_OK)
        return complain(w, "joining");
    if (!perf_device_cuda.open(w->rank))
        return 1;
    w->send = perf_device_cuda.alloc(w->o->end * (size_t)w->nranks);
    w->recv = perf_device_cuda.alloc(w->o->end * (size_t)w->nranks);
    if (!w->send || !w->recv)
        return tool_error("tune", "rank %d: no device memory", w->rank);
    for (grid = 0; grid < (int)GRIDS && status == 0; grid++) {
        if (w->rank == 0)
            fprintf(stderr, "# %d of %d\n", grid + 1, (int)GRIDS);
        if (!make_comm(w, &grids[grid]))
            return complain(w, "making a communicator");
        status = try_grid(w, grid) ? 0 : 1;
        sol_comm_destroy(w->comm);
    }
    if (status == 0 && w->rank == 0)
        status = write_file(w);
    sol_comm_destroy(w->ours);
    return status;
}

static int be_worker(const struct options *o)
{
    struct worker *w = tool_calloc(1, sizeof(*w));
    int status = 1;

    if (w) {
        w->o = o;
        current = w;
        status = work(w);
        tool_free(w);
    }
    return status;
}

#else

static int be_worker(const struct options *o)
{
    (void)o;
    return tool_error("tune", "this solccl was built without CUDA: there is nothing to tune");
}

#endif

/* Become `solccl run -n N -- solccl tune --worker ...`. */
int tool_tune(int argc, char **argv)
{
    static char self[4096], ranks[16], begin[32], end[32];
    struct options o;
    int status = read_options(argc, argv, &o);

    if (status >= 0)
        return status;
    if (o.worker)
        return be_worker(&o);
    if (!tool_self_path(self, sizeof(self)))
        return tool_error("tune", "this program's own path cannot be found");
    snprintf(ranks, sizeof(ranks), "%ld", o.ranks);
    snprintf(begin, sizeof(begin), "%zu", o.begin);
    snprintf(end, sizeof(end), "%zu", o.end);
    char output[] = "-o", first[] = "-b", last[] = "-e", run[] = "run", n[] = "-n",
         bind[] = "--bind", none[] = "none", dashes[] = "--", tune[] = "tune",
         worker[] = "--worker";
    char *command[] = {self,   run,   n,    ranks,  bind,   none,
                       dashes, self,  tune, worker, output, (char *)(uintptr_t)o.output,
                       first,  begin, last, end,    NULL};
    execv(self, command);
    return tool_error("tune", "cannot run %s: %s", self, strerror(errno));
}
