/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf.c: `solccl perf`: the driver. It starts ranks of solccl and of each peer,
 * measures the machine's bound with solccl's ranks, then one point after the
 * other, and writes what it found as table, JSON, CSV and report.
 *
 * It is a process of its own that sleeps while ranks are timed. Started by a
 * launcher, each rank is a worker and rank 0's process is the driver of a child.
 */
#include "perf_driver.h"
#include "perf_gpu.h"
#include "perf_measure.h"
#include "perf_nccl.h"
#include "perf_options.h"
#include "perf_report.h"
#include "perf_rows.h"
#include "perf_sol.h"
#include "perf_solccl.h"
#include "perf_table.h"
#include "solccl_commit.h"
#include "tool.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct session {
    const perf_options_t *options;
    perf_driver_t driver;
    perf_sol_t sol;
    perf_terms_t terms; /* surveyed at the start; sizes 0: no bound is wanted */
    perf_gpu_terms_t gpu_terms;
    bool gpu_bound; /* they are measured */
    char gpu_name[96], gpu_driver[32];
    int cpus[TOOL_MAX_CPUS], ncpus, cores;
    bool bound;        /* ranks have a CPU each */
    perf_row_t common; /* what all rows share */
    perf_rows_t rows;
    char peers[PERF_MAX_SIDES][32];
    int npeers;
    FILE *json;
    size_t wrong; /* elements, of all sides */
};

/* ---- the head */

static void join_command(int argc, char **argv, char *text, size_t bytes)
{
    int i;

    text[0] = '\0';
    tool_append(text, bytes, "solccl");
    for (i = 0; i < argc; i++)
        tool_append(text, bytes, " %s", argv[i]);
}

static void describe_ranks(struct session *session, char *text, size_t bytes)
{
    perf_side_t *side = &session->driver.sides[0];
    int rank;

    text[0] = '\0';
    if (session->options->gpu) {
        snprintf(text, bytes, "%s", session->gpu_name);
        return;
    }
    if (!session->bound) {
        tool_append(text, bytes, "%d CPUs on %d cores, ranks not bound%s", session->ncpus,
                    session->cores,
                    side->nranks > session->ncpus ? " (oversubscribed: more ranks than CPUs)" : "");
        return;
    }
    tool_append(text, bytes, "bound to CPUs ");
    for (rank = 0; rank < side->nranks; rank++)
        tool_append(text, bytes, "%s%d", rank ? "," : "", side->cpus[rank]);
    tool_append(text, bytes, " of %d on %d cores", session->ncpus, session->cores);
}

static void describe_run(struct session *session, int argc, char **argv)
{
    perf_row_t *row = &session->common;
    time_t now = time(NULL);
    char id[9] = "";
    struct tm utc;
    int i;

    gmtime_r(&now, &utc);
    strftime(row->date, sizeof(row->date), "%Y-%m-%dT%H:%M:%SZ", &utc);
    tool_random_hex(id, 4);
    strftime(row->run, sizeof(row->run), "%Y%m%dT%H%M%S-", &utc);
    tool_append(row->run, sizeof(row->run), "%s", id);
    tool_machine_name(row->machine, sizeof(row->machine));
    tool_kernel_name(row->driver, sizeof(row->driver));
    if (session->options->gpu)
        snprintf(row->driver, sizeof(row->driver), "%s", session->gpu_driver);
    describe_ranks(session, row->device, sizeof(row->device));
    tool_append(row->versions, sizeof(row->versions), "{\"commit\": \"%s\"", SOLCCL_COMMIT);
    for (i = 0; i < session->driver.nsides; i++) {
        tool_append(row->versions, sizeof(row->versions),
                    ", \"%s\": ", session->driver.sides[i].name);
        perf_json_string(row->versions, sizeof(row->versions), session->driver.sides[i].version);
    }
    tool_append(row->versions, sizeof(row->versions), "}");
    join_command(argc, argv, row->command, sizeof(row->command));
    row->ranks = row->processes = session->driver.sides[0].nranks;
}

static void print_terms(const perf_terms_t *terms)
{
    char size[32];
    int i;

    printf("# bound    at the start (each row has its own): cache line, one way %.1f ns (worst "
           "pair)\n",
           terms->line_us * 1e3);
    printf("#          GB/s per rank, all at work:");
    for (i = 0; i < terms->sizes; i++)
        printf(" %9s", tool_format_size(terms->bytes[i], size));
    printf("\n#          move between cores         ");
    for (i = 0; i < terms->sizes; i++)
        printf(" %9.1f", terms->move_gbs[i]);
    printf("\n#          move and reduce (fp32)     ");
    for (i = 0; i < terms->sizes; i++)
        printf(" %9.1f", terms->reduce_gbs[i]);
    printf("\n#          copy within a core         ");
    for (i = 0; i < terms->sizes; i++)
        printf(" %9.1f", terms->local_gbs[i]);
    printf("\n");
}

static void print_head(const struct session *session)
{
    const perf_options_t *o = session->options;
    const perf_row_t *row = &session->common;
    const perf_side_t *side = &session->driver.sides[0];
    int i;

    printf("# run      %s, %s\n", row->run, row->date);
    printf("# machine  %s, %s\n", row->machine, row->driver);
    printf("# ranks    %d processes, %s\n", row->ranks, row->device);
    if (side->nranks > session->cores)
        printf(
            "# WARNING  %d ranks share %d cores: figures show scheduling as well as the library\n",
            side->nranks, session->cores);
    for (i = 0; i < session->driver.nsides; i++)
        printf("# library  %s: %s\n", session->driver.sides[i].name,
               session->driver.sides[i].version);
    printf("# commit   %s\n", SOLCCL_COMMIT);
    printf("# command  %s\n", row->command);
    printf("# method   %ld rounds in turns, %s; warm-up %ld batches; checks %ld; root %s%s\n",
           o->rounds, o->alone ? "each call alone" : "batches back to back", o->warm, o->checks,
           o->root < 0 ? "rotates" : "fixed",
           o->memory == PERF_MEMORY_SYMMETRIC    ? "; symmetric buffers"
           : o->memory == PERF_MEMORY_REGISTERED ? "; registered buffers"
                                                 : "");
    if (session->terms.sizes)
        print_terms(&session->terms);
    if (session->gpu_bound)
        printf("# bound    local kernel %.3f us + hops x %.3f us + sent / %.1f GB/s; empty kernel "
               "%.3f us, with dependent launch %.3f us\n",
               session->gpu_terms.local_us, session->gpu_terms.line_us, session->gpu_terms.link_gbs,
               session->gpu_terms.floor_us, session->gpu_terms.floor_pdl_us);
    fflush(stdout);
}

/* ---- points */

static void describe_bound(const perf_bound_t *bound, const perf_terms_t *terms, char *text,
                           size_t bytes)
{
    text[0] = '\0';
    tool_append(text, bytes, "{\"hops\": %d, \"line_us\": %.4f", bound->hops, terms->line_us);
    if (bound->moved > 0)
        tool_append(text, bytes, ", \"moved_bytes\": %.0f, \"move_gbs\": %.2f", bound->moved,
                    bound->move_gbs);
    if (bound->reduced > 0)
        tool_append(text, bytes, ", \"reduced_bytes\": %.0f, \"reduce_gbs\": %.2f", bound->reduced,
                    bound->reduce_gbs);
    if (bound->local > 0)
        tool_append(text, bytes, ", \"local_bytes\": %.0f, \"local_gbs\": %.2f", bound->local,
                    bound->local_gbs);
    if (terms->ranks_per_cpu > 1)
        tool_append(text, bytes, ", \"ranks_per_cpu\": %.2f", terms->ranks_per_cpu);
    tool_append(text, bytes, "}");
}

static void make_row(struct session *session, int side, const perf_case_t *c,
                     const perf_result_t *result, const perf_bound_t *bound,
                     const perf_terms_t *terms, perf_row_t *row)
{
    int n = session->driver.sides[0].nranks;

    *row = session->common;
    snprintf(row->mode, sizeof(row->mode), "%s", perf_mode_name(c->mode));
    snprintf(row->library, sizeof(row->library), "%s", session->driver.sides[side].name);
    snprintf(row->op, sizeof(row->op), "%s", perf_op_name(c->op));
    snprintf(row->dtype, sizeof(row->dtype), "%s", perf_dtype_name(c->dtype));
    snprintf(row->redop, sizeof(row->redop), "%s",
             perf_op_reduces(c->op) ? perf_redop_name(c->redop) : "none");
    row->in_place = c->in_place;
    row->bytes = perf_bytes(c, n);
    row->count = c->count;
    row->us_min = result->figures.min;
    row->us_p50 = result->figures.p50;
    row->us_p99 = result->figures.p99;
    row->samples = result->figures.samples;
    row->algbw = perf_algbw(c, n, row->us_p50);
    row->busbw = perf_busbw(c, n, row->us_p50);
    row->wrong = result->setup.wrong;
    if (side == 0) {
        snprintf(row->plan, sizeof(row->plan), "%.255s", result->setup.protocol);
        snprintf(row->protocol, sizeof(row->protocol), "%.*s",
                 (int)strcspn(result->setup.protocol, ":"), result->setup.protocol);
    }
    if (session->gpu_bound)
        row->sol_us =
            perf_gpu_bound(&session->gpu_terms, c, n, row->sol_terms, sizeof(row->sol_terms));
    if (session->terms.sizes) {
        row->sol_us = bound->us;
        describe_bound(bound, terms, row->sol_terms, sizeof(row->sol_terms));
    }
}

static bool keep_row(struct session *session, const perf_row_t *row)
{
    if (session->json && (!perf_row_write_json(session->json, row) || fflush(session->json))) {
        tool_error("perf", "%s cannot be written: %s", session->options->json, strerror(errno));
        return false;
    }
    session->wrong += row->wrong;
    if (row->wrong)
        tool_error("perf", "%s: %zu wrong elements in %s %s, %zu bytes", row->library, row->wrong,
                   row->op, row->dtype, row->bytes);
    return perf_rows_add(&session->rows, row);
}

static bool measure_point(struct session *session, const perf_case_t *c)
{
    perf_result_t results[PERF_MAX_SIDES];
    size_t first = session->rows.count;
    perf_bound_t bound;
    perf_terms_t terms;
    perf_row_t row;
    int i;

    memset(&bound, 0, sizeof(bound));
    if (!perf_measure(&session->driver, session->options,
                      session->terms.sizes ? &session->sol : NULL, c, results, &bound, &terms))
        return false;
    if (!results[0].setup.supported) {
        printf("# %s %s: not supported: %s\n", perf_op_name(c->op), perf_dtype_name(c->dtype),
               results[0].setup.protocol);
        return true;
    }
    for (i = 0; i < session->driver.nsides; i++) {
        if (!results[i].setup.supported)
            continue;
        make_row(session, i, c, &results[i], &bound, &terms, &row);
        if (!keep_row(session, &row))
            return false;
    }
    perf_table_row(stdout, &session->rows, &session->rows.rows[first], session->peers,
                   session->npeers);
    return true;
}

/* All sizes of one operation, type, reduction and place. */
static bool measure_sizes(struct session *session, perf_case_t c)
{
    const perf_options_t *o = session->options;
    int nranks = session->driver.sides[0].nranks;
    size_t bytes, last = SIZE_MAX;

    if (!isatty(STDERR_FILENO))
        fprintf(stderr, "# measuring %s %s\n", perf_op_name(c.op), perf_dtype_name(c.dtype));
    if (c.op == PERF_BARRIER) {
        c.count = 0;
        return measure_point(session, &c);
    }
    for (bytes = o->begin;;) {
        c.count = perf_count_for(c.op, c.dtype, bytes, nranks);
        /* a size too small for an element a rank, or that rounds to the one before, is left out */
        if (c.count != last && (c.count || !bytes) && !measure_point(session, &c))
            return false;
        last = c.count;
        bytes = perf_next_size(o, bytes);
        if (!bytes)
            return true;
    }
}

/* MPI_Bcast has one buffer: beside it, unless the user asks for another place, broadcast is
 * measured in place, so that all do the same work on the same buffers. */
static bool place_wanted(const perf_options_t *o, perf_op_t op, int place)
{
    int i;

    for (i = 0; i < o->npeers && op == PERF_BROADCAST && !o->place_given; i++)
        if (!strcmp(o->peers[i], "openmpi") || !strcmp(o->peers[i], "mpich"))
            return place == 1;
    return o->in_place[place];
}

static bool measure_types(struct session *session, perf_op_t op, perf_mode_t mode)
{
    const perf_options_t *o = session->options;
    bool reduces = perf_op_reduces(op);
    perf_case_t c;
    int dtype, redop, place;

    memset(&c, 0, sizeof(c));
    c.op = op;
    c.root = (int)o->root;
    c.memory = o->memory;
    c.mode = mode;
    if (o->gpu)
        printf("# mode     %s\n", perf_mode_name(mode));
    perf_table_head(stdout, perf_op_name(op), session->peers, session->npeers);
    for (dtype = 0; dtype < SOL_DTYPE_COUNT; dtype++) {
        if (!o->dtypes[dtype])
            continue;
        for (redop = 0; redop < (reduces ? SOL_REDOP_COUNT : 1); redop++) {
            if (reduces && !o->redops[redop])
                continue;
            for (place = 0; place < 2; place++) {
                if (!place_wanted(o, op, place))
                    continue;
                c.dtype = (sol_dtype_t)dtype;
                c.redop = (sol_redop_t)redop;
                c.in_place = place != 0;
                if (!measure_sizes(session, c))
                    return false;
            }
        }
        if (op == PERF_BARRIER) /* it has no type */
            break;
    }
    return true;
}

static bool measure_all(struct session *session)
{
    const perf_options_t *o = session->options;
    int op, mode;

    for (op = 0; op < PERF_OP_COUNT; op++)
        for (mode = 0; mode < PERF_MODE_COUNT; mode++)
            if (o->ops[op] && o->modes[mode] &&
                !measure_types(session, (perf_op_t)op, (perf_mode_t)mode))
                return false;
    return true;
}

/* ---- start and end */

static bool open_json(struct session *session)
{
    const perf_options_t *o = session->options;

    if (!o->json)
        return true;
    session->json = fopen(o->json, o->append ? "ae" : "we");
    if (!session->json)
        tool_error("perf", "%s cannot be written: %s", o->json, strerror(errno));
    return session->json != NULL;
}

/* A launcher may have bound each rank to CPUs of its own: this process's are then not all. */
static void add_cpus_of_ranks(struct session *session)
{
    const perf_side_t *side = &session->driver.sides[0];
    int rank, i;

    for (rank = 0; rank < side->nranks && session->ncpus < TOOL_MAX_CPUS; rank++) {
        bool listed = false, core_listed = false;

        for (i = 0; i < session->ncpus; i++) {
            listed |= session->cpus[i] == side->cpus[rank];
            core_listed |= tool_core(session->cpus[i]) == tool_core(side->cpus[rank]);
        }
        if (listed)
            continue;
        session->cpus[session->ncpus++] = side->cpus[rank];
        session->cores += !core_listed;
    }
}

static bool start_sides(struct session *session, bool launch)
{
    const perf_options_t *o = session->options;
    int nranks = launch ? (int)o->ranks : 0, i;

    if (!perf_driver_add(&session->driver, NULL, nranks, o->bind, launch))
        return false;
    nranks = session->driver.sides[0].nranks;
    if (!launch)
        add_cpus_of_ranks(session);
    if (o->root >= nranks) {
        tool_error("perf", "-r %ld: there are only %d ranks", o->root, nranks);
        return false;
    }
    session->bound = o->bind && nranks <= session->ncpus;
    for (i = 0; i < o->npeers; i++) {
        if (!perf_driver_add(&session->driver, o->peers[i], nranks, session->bound, true))
            return false;
        snprintf(session->peers[session->npeers++], 32, "%s", o->peers[i]);
    }
    for (i = 0; session->bound && i < session->driver.nsides; i++)
        if (!perf_side_bind(&session->driver, &session->driver.sides[i], session->cpus))
            return false;
    return true;
}

static bool write_results(const perf_options_t *o, const perf_rows_t *rows)
{
    if (o->csv && !perf_rows_write_csv(o->csv, rows))
        return false;
    return !o->report || perf_report_write(o->report, rows);
}

/* CUDA in a child: its context is gone before any rank is measured. What it finds comes back in
 * memory that both see. */
struct gpu_facts {
    bool well;
    int count;
    char name[64], driver[32];
    perf_gpu_terms_t terms;
};

static bool ask_gpus(int nranks, struct gpu_facts *facts)
{
    struct gpu_facts *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child;

    if (shared == MAP_FAILED)
        return false;
    fflush(NULL);
    child = fork();
    if (child == 0) {
        shared->count = perf_gpu_count(shared->name, sizeof(shared->name), shared->driver,
                                       sizeof(shared->driver));
        shared->well = nranks == 0 || perf_gpu_measure(nranks, &shared->terms);
        _exit(0);
    }
    if (child > 0)
        waitpid(child, NULL, 0);
    *facts = *shared;
    munmap(shared, sizeof(*shared));
    return child > 0;
}

static bool measure_gpus(struct session *session)
{
    struct gpu_facts facts;

    fprintf(stderr, "# measuring the GPUs\n");
    if (!ask_gpus((int)session->options->ranks, &facts) || !facts.well)
        return false;
    session->gpu_terms = facts.terms;
    snprintf(session->gpu_name, sizeof(session->gpu_name), "%d x %s", facts.count, facts.name);
    snprintf(session->gpu_driver, sizeof(session->gpu_driver), "%s", facts.driver);
    session->gpu_bound = true;
    return true;
}

static bool measure(struct session *session, bool launch, int argc, char **argv)
{
    const perf_options_t *o = session->options;
    perf_driver_t *driver = &session->driver;

    if (o->gpu && o->sol && !measure_gpus(session))
        return false;
    if (!start_sides(session, launch))
        return false;
    describe_run(session, argc, argv);
    if (o->sol && !o->gpu) {
        fprintf(stderr, "# measuring the machine\n");
        if (!perf_sol_open(&session->sol, driver, &driver->sides[0], session->cpus, session->ncpus,
                           o->end) ||
            !perf_sol_survey(&session->sol, &session->terms)) {
            double load = 0;

            if (getloadavg(&load, 1) == 1) /* two ranks that rarely run at once take forever */
                fprintf(stderr,
                        "# the bound could not be measured; %.1f programs want to run on %d CPUs; "
                        "--no-bound does without it\n",
                        load, session->ncpus);
            return false;
        }
    }
    print_head(session);
    if (!measure_all(session))
        return false;
    perf_table_summary(stdout, &session->rows);
    return write_results(o, &session->rows);
}

static int be_worker(const perf_options_t *options)
{
#ifdef SOL_WITH_CUDA
    const perf_library_t *libraries[] = {&perf_library_solccl, &perf_library_nccl,
                                         &perf_library_nccl_sym};
    int i;

    for (i = 0; options->gpu && i < 3; i++)
        if (!options->library[0] || !strcmp(options->library, libraries[i]->name))
            return perf_worker(libraries[i], &perf_device_cuda);
#endif
    if (options->gpu)
        return tool_error("perf", "this solccl was built without CUDA");
    return perf_worker(&perf_library_solccl, &perf_device_cpu);
}

/* The child of rank 0's process that is rank 0's worker. */
static bool fork_worker(struct session *session)
{
    pid_t parent = getpid(), child;

    setenv(PERF_SOCKET_VARIABLE, session->driver.socket, 1);
    fflush(NULL);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        setpgid(0, 0);
        perf_solccl_attached();
        _exit(be_worker(session->options));
    }
    if (child < 0)
        tool_error("perf", "a process was refused: %s", strerror(errno));
    return child > 0;
}

static int drive(const perf_options_t *options, bool launch, int argc, char **argv)
{
    struct session *session = tool_calloc(1, sizeof(*session));
    bool well;

    if (!session)
        return 1;
    session->options = options;
    session->ncpus = tool_cpus(session->cpus, TOOL_MAX_CPUS, &session->cores);
    well = open_json(session) &&
           perf_driver_open(&session->driver, options->gpu, options->timeout_s) &&
           (launch || fork_worker(session)) && measure(session, launch, argc, argv);
    perf_driver_close(&session->driver);
    if (session->json && fclose(session->json) != 0)
        well = false;
    if (well && session->wrong)
        tool_error("perf", "%zu elements were wrong", session->wrong);
    well = well && !session->wrong;
    perf_rows_clear(&session->rows);
    tool_free(session);
    return well ? 0 : 1;
}

/* The rank that a launcher gave this process, or -1. */
static int launched_rank(void)
{
    static const char *const names[] = {"SOLCCL_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
    long rank;
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (getenv(names[i]) && tool_parse_int(getenv(names[i]), 0, SOL_MAX_RANKS - 1, &rank))
            return (int)rank;
    return -1;
}

static int show_saved(const perf_options_t *options)
{
    perf_rows_t rows = {NULL, 0, 0};
    bool well = perf_rows_read(options->from, &rows);

    if (well) {
        perf_table(stdout, &rows);
        well = write_results(options, &rows);
    }
    perf_rows_clear(&rows);
    return well ? 0 : 1;
}

int tool_perf(int argc, char **argv)
{
    perf_options_t options;
    int status = perf_options_parse(argc, argv, &options), rank, cores, cpus[TOOL_MAX_CPUS], i;
    char why[256];

    if (status >= 0)
        return status;
    if (options.worker)
        return be_worker(&options);
    if (options.from)
        return show_saved(&options);
    signal(SIGPIPE, SIG_IGN);
    rank = options.ranks ? -1 : launched_rank();
    if (rank >= 0 && options.npeers)
        return tool_usage("perf",
                          "--peer starts launchers of its own: run it without one, with -g");
    if (rank > 0) {
        perf_solccl_attached();
        return be_worker(&options);
    }
    for (i = 0; i < options.npeers; i++)
        if (!perf_peer_present(options.peers[i], why, sizeof(why)))
            return tool_error("perf", "--peer %s: %s", options.peers[i], why);
    if (options.gpu && !options.ranks) {
        struct gpu_facts facts;

        options.ranks = ask_gpus(0, &facts) && facts.count > 0 ? facts.count : 2;
    }
    if (!options.ranks) {
        tool_cpus(cpus, TOOL_MAX_CPUS, &cores);
        options.ranks = cores < 2 ? 2 : cores > 8 ? 8 : cores;
    }
    return drive(&options, rank < 0, argc, argv);
}
