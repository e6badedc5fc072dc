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

#define SMALLEST (16u << 10)
#define LARGEST (64u << 20)
#define ROUND_TRIPS 2000

/* ---- measuring */

static bool map_all(perf_driver_t *driver, perf_side_t *side, int slots, size_t bytes)
{
    int fd = memfd_create("solccl-perf", MFD_CLOEXEC), rank;
    bool well = fd >= 0 && ftruncate(fd, (off_t)perf_probe_bytes(slots, bytes)) == 0;
    char line[64];

    if (!well)
        tool_error("perf", "no shared memory for measuring the machine: %s", strerror(errno));
    snprintf(line, sizeof(line), "map %d %zu", slots, bytes);
    for (rank = 0; well && rank < slots; rank++)
        well = perf_side_tell(side, rank, line, fd) && perf_side_answer(driver, side, rank);
    if (fd >= 0)
        close(fd);
    return well;
}

/* The answers of ranks [0, slots) or of two: the largest number, negative on failure. */
static double largest_answer(perf_driver_t *driver, perf_side_t *side, const int *ranks, int count)
{
    double largest = 0;
    bool well = true;
    int i;

    for (i = 0; i < count; i++) {
        const char *text = perf_side_answer(driver, side, ranks[i]);
        double value = text ? strtod(text, NULL) : 0;

        well = well && text;
        largest = value > largest ? value : largest;
    }
    return well ? largest : -1;
}

static bool measure_line(perf_driver_t *driver, perf_side_t *side, const int *cpus, int slots,
                         perf_terms_t *terms)
{
    char line[96];
    double ns;
    int a, b;

    for (a = 0; a < slots; a++) {
        for (b = a + 1; b < slots; b++) {
            int pair[2] = {a, b};

            snprintf(line, sizeof(line), "latency 1 %d %d %d", b, ROUND_TRIPS, cpus[b]);
            if (!perf_side_tell(side, b, line, -1))
                return false;
            snprintf(line, sizeof(line), "latency 0 %d %d %d", b, ROUND_TRIPS, cpus[a]);
            if (!perf_side_tell(side, a, line, -1))
                return false;
            ns = largest_answer(driver, side, pair, 2);
            if (ns < 0)
                return false;
            if (ns * 1e-3 > terms->line_us)
                terms->line_us = ns * 1e-3;
        }
    }
    return true;
}

static bool measure_move(perf_driver_t *driver, perf_side_t *side, const int *cpus, int slots,
                         perf_move_t kind, size_t bytes, double *gbs)
{
    size_t repetitions = (256u << 20) / bytes;
    int ranks[SOL_MAX_RANKS], slot;
    char line[128];
    double ns;

    repetitions = repetitions > 300 ? 300 : repetitions < 12 ? 12 : repetitions;
    for (slot = 0; slot < slots; slot++) {
        ranks[slot] = slot;
        snprintf(line, sizeof(line), "move %d %zu %d %d %d %d %zu", (int)kind, bytes, slot,
                 (slot + 1) % slots, slots, cpus[slot], repetitions);
        if (!perf_side_tell(side, slot, line, -1))
            return false;
    }
    ns = largest_answer(driver, side, ranks, slots);
    if (ns <= 0)
        return false;
    *gbs = (double)bytes / ns;
    return true;
}

bool perf_sol_measure(perf_driver_t *driver, perf_side_t *side, const int *cpus, int ncpus,
                      size_t largest, perf_terms_t *terms)
{
    int slots = side->nranks < ncpus ? side->nranks : ncpus;
    size_t bytes, top = SMALLEST;

    memset(terms, 0, sizeof(*terms));
    terms->ranks_per_cpu = side->nranks > ncpus ? (double)side->nranks / ncpus : 1;
    while (top < largest && top < LARGEST) /* 7 sizes at most */
        top *= 4;
    if (!map_all(driver, side, slots, top) || !measure_line(driver, side, cpus, slots, terms))
        return false;
    for (bytes = SMALLEST; bytes <= top; bytes *= 4) {
        int i = terms->sizes++;

        terms->bytes[i] = bytes;
        if (!measure_move(driver, side, cpus, slots, PERF_MOVE_COPY, bytes, &terms->move_gbs[i]) ||
            !measure_move(driver, side, cpus, slots, PERF_MOVE_REDUCE, bytes,
                          &terms->reduce_gbs[i]) ||
            !measure_move(driver, side, cpus, slots, PERF_MOVE_LOCAL, bytes, &terms->local_gbs[i]))
            return false;
    }
    return true;
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
