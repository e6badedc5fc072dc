/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_sol.c: measuring the terms and adding them up (see perf_sol.h).
 */
#include "perf_sol.h"

#include "perf_probe.h"
#include "tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SMALLEST (16u << 10) /* below, the clock's own time would count */
#define LARGEST (16u << 20)  /* above, it is memory's bandwidth all the same */
#define FEW_TRIPS 20         /* round trips that tell whether more can be afforded ... */
#define LINE_US 200e3        /* ... in about this long, a pair of ranks */

/* ---- measuring */

static bool map_all(const perf_sol_t *sol)
{
    size_t bytes = perf_probe_bytes(sol->slots, sol->largest);
    int fd = memfd_create("solccl-perf", MFD_CLOEXEC), rank;
    bool well = fd >= 0 && ftruncate(fd, (off_t)bytes) == 0;
    char line[64];

    if (!well)
        tool_error("perf", "no shared memory for measuring the machine: %s", strerror(errno));
    snprintf(line, sizeof(line), "map %d %zu", sol->slots, sol->largest);
    for (rank = 0; well && rank < sol->slots; rank++)
        well = perf_side_tell(sol->side, rank, line, fd) &&
               perf_side_answer(sol->driver, sol->side, rank);
    if (fd >= 0)
        close(fd);
    return well;
}

/* The answers of `count` ranks: the largest number, negative on failure. */
static double largest_answer(const perf_sol_t *sol, const int *ranks, int count)
{
    double largest = 0;
    bool well = true;
    int i;

    for (i = 0; i < count; i++) {
        const char *text = perf_side_answer(sol->driver, sol->side, ranks[i]);
        double value = text ? strtod(text, NULL) : 0;

        well = well && text;
        largest = value > largest ? value : largest;
    }
    return well ? largest : -1;
}

/* One way between ranks a and b, in us, the least of 12 repetitions; negative on failure. */
static double ask_line(const perf_sol_t *sol, int a, int b, int round_trips)
{
    int pair[2] = {a, b};
    char line[96];

    snprintf(line, sizeof(line), "latency 1 %d %d %d", b, round_trips, sol->cpus[b]);
    if (!perf_side_tell(sol->side, b, line, -1))
        return -1;
    snprintf(line, sizeof(line), "latency 0 %d %d %d", b, round_trips, sol->cpus[a]);
    if (!perf_side_tell(sol->side, a, line, -1))
        return -1;
    return largest_answer(sol, pair, 2) * 1e-3;
}

/* The same, with fewer round trips where other programs have the CPUs and each takes its turn. */
static double measure_line(const perf_sol_t *sol, int a, int b, int round_trips)
{
    double us = ask_line(sol, a, b, FEW_TRIPS), affordable;

    if (us < 0)
        return us;
    affordable = LINE_US / (us * 2 * 12);
    if (affordable <= FEW_TRIPS)
        return us;
    return ask_line(sol, a, b, affordable < round_trips ? (int)affordable : round_trips);
}

static bool measure_move(const perf_sol_t *sol, perf_move_t kind, size_t bytes, size_t repetitions,
                         double *gbs)
{
    int ranks[SOL_MAX_RANKS], slot;
    char line[128];
    double ns;

    for (slot = 0; slot < sol->slots; slot++) {
        ranks[slot] = slot;
        snprintf(line, sizeof(line), "move %d %zu %d %d %d %d %zu", (int)kind, bytes, slot,
                 (slot + 1) % sol->slots, sol->slots, sol->cpus[slot], repetitions);
        if (!perf_side_tell(sol->side, slot, line, -1))
            return false;
    }
    ns = largest_answer(sol, ranks, sol->slots);
    if (ns <= 0)
        return false;
    *gbs = (double)bytes / ns;
    return true;
}

bool perf_sol_open(perf_sol_t *sol, perf_driver_t *driver, perf_side_t *side, const int *cpus,
                   int ncpus, size_t largest)
{
    double worst = 0, us;
    int a, b;

    memset(sol, 0, sizeof(*sol));
    sol->driver = driver;
    sol->side = side;
    sol->cpus = cpus;
    sol->slots = side->nranks < ncpus ? side->nranks : ncpus;
    sol->ranks_per_cpu = side->nranks > ncpus ? (double)side->nranks / ncpus : 1;
    sol->largest = SMALLEST;
    while (sol->largest < largest && sol->largest < LARGEST)
        sol->largest *= 4;
    if (!map_all(sol))
        return false;
    for (a = 0; a < sol->slots; a++)
        for (b = a + 1; b < sol->slots; b++) {
            us = measure_line(sol, a, b, 500);
            if (us < 0)
                return false;
            if (us <= worst)
                continue;
            worst = us;
            sol->worst[0] = a;
            sol->worst[1] = b;
        }
    return true;
}

/* All terms for the sizes that are already in terms->bytes. */
static bool measure_terms(const perf_sol_t *sol, int round_trips, size_t budget,
                          size_t max_repetitions, perf_terms_t *terms)
{
    int i;

    terms->ranks_per_cpu = sol->ranks_per_cpu;
    if (sol->slots > 1) {
        terms->line_us = measure_line(sol, sol->worst[0], sol->worst[1], round_trips);
        if (terms->line_us < 0)
            return false;
    }
    for (i = 0; i < terms->sizes; i++) {
        size_t repetitions = budget / terms->bytes[i];

        repetitions = repetitions > max_repetitions ? max_repetitions : repetitions;
        repetitions = repetitions < 6 ? 6 : repetitions; /* each way of moving twice */
        if (!measure_move(sol, PERF_MOVE_COPY, terms->bytes[i], repetitions, &terms->move_gbs[i]) ||
            !measure_move(sol, PERF_MOVE_REDUCE, terms->bytes[i], repetitions,
                          &terms->reduce_gbs[i]) ||
            !measure_move(sol, PERF_MOVE_LOCAL, terms->bytes[i], repetitions, &terms->local_gbs[i]))
            return false;
    }
    return true;
}

bool perf_sol_survey(const perf_sol_t *sol, perf_terms_t *terms)
{
    size_t bytes;

    memset(terms, 0, sizeof(*terms));
    for (bytes = SMALLEST; bytes <= sol->largest && terms->sizes < PERF_SOL_SIZES; bytes *= 4)
        terms->bytes[terms->sizes++] = bytes;
    return measure_terms(sol, 2000, 128u << 20, 300, terms);
}

static void want_size(const perf_sol_t *sol, perf_terms_t *terms, double bytes)
{
    size_t size = SMALLEST;

    if (bytes <= 0)
        return;
    while ((double)size < bytes && size < sol->largest)
        size *= 2;
    if (size > sol->largest)
        size = sol->largest;
    if (terms->sizes == 0 || terms->bytes[terms->sizes - 1] < size)
        terms->bytes[terms->sizes++] = size;
}

bool perf_sol_measure(const perf_sol_t *sol, const perf_case_t *c, perf_terms_t *terms)
{
    double block = (double)(c->count * perf_dtype_size(c->dtype));
    int n = sol->side->nranks;

    memset(terms, 0, sizeof(*terms));
    if (c->op == PERF_ALL_REDUCE || c->op == PERF_REDUCE) /* a share, for the two-shot way */
        want_size(sol, terms, block / n);
    want_size(sol, terms, block);
    if (c->op != PERF_BROADCAST && c->op != PERF_SCATTER && c->op != PERF_SENDRECV)
        want_size(sol, terms, block * (n - 1));
    return measure_terms(sol, 500, 4u << 20, 60, terms);
}

/* ---- adding up */

double perf_sol_bandwidth(const perf_terms_t *terms, const double *gbs, double bytes)
{
    double best = 0;
    int i;

    for (i = 0; i < terms->sizes; i++)
        if (((double)terms->bytes[i] >= bytes || i == terms->sizes - 1) && gbs[i] > best)
            best = gbs[i];
    return best;
}

static void add_up(const perf_terms_t *terms, perf_bound_t *bound)
{
    bound->move_gbs = perf_sol_bandwidth(terms, terms->move_gbs, bound->moved);
    bound->reduce_gbs = perf_sol_bandwidth(terms, terms->reduce_gbs, bound->reduced);
    bound->local_gbs = perf_sol_bandwidth(terms, terms->local_gbs, bound->local);
    bound->us = 0;
    if (bound->move_gbs > 0)
        bound->us += bound->moved / bound->move_gbs;
    if (bound->reduce_gbs > 0)
        bound->us += bound->reduced / bound->reduce_gbs;
    if (bound->local_gbs > 0)
        bound->us += bound->local / bound->local_gbs;
    bound->us = bound->us * 1e-3 * terms->ranks_per_cpu + bound->hops * terms->line_us;
}

/* All ranks pull everything and reduce it: one hop. */
static void one_shot(perf_bound_t *bound, double vector, int n)
{
    bound->hops = 1;
    bound->reduced = (n - 1) * vector;
}

/* Each rank reduces its share, then the shares are pulled: two hops. */
static void two_shot(perf_bound_t *bound, double vector, int n)
{
    bound->hops = 2;
    bound->reduced = (n - 1) * vector / n;
    bound->moved = (n - 1) * vector / n;
}

perf_bound_t perf_sol_bound(const perf_terms_t *terms, const perf_case_t *c, int nranks)
{
    double block = (double)(c->count * perf_dtype_size(c->dtype));
    perf_bound_t bound, other;
    double n = nranks;

    memset(&bound, 0, sizeof(bound));
    memset(&other, 0, sizeof(other));
    bound.hops = 1;
    switch (c->op) {
    case PERF_ALL_REDUCE:
    case PERF_REDUCE:
        one_shot(&bound, block, nranks);
        two_shot(&other, block, nranks);
        break;
    case PERF_REDUCE_SCATTER:
        bound.reduced = (n - 1) * block;
        break;
    case PERF_ALL_GATHER:
    case PERF_ALL_TO_ALL:
    case PERF_GATHER:
        bound.moved = (n - 1) * block;
        bound.local = c->in_place ? 0 : block;
        break;
    case PERF_BROADCAST:
    case PERF_SCATTER:
    case PERF_SENDRECV:
        bound.moved = block;
        break;
    default:
        break;
    }
    if (nranks == 1) { /* nobody to hear from: what is left is the copy to recvbuf */
        memset(&bound, 0, sizeof(bound));
        other.hops = 0;
        bound.local = c->in_place || c->op == PERF_BARRIER ? 0 : block;
    } else if (c->root >= 0 && perf_op_rooted(c->op)) {
        bound.hops = 0; /* with a fixed root calls overlap: their distance is not their latency */
        other.hops = other.hops ? 1 : 0;
    }
    add_up(terms, &bound);
    if (other.hops && nranks > 1) {
        add_up(terms, &other);
        if (other.us < bound.us)
            return other;
    }
    return bound;
}
