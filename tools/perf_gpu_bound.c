/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_gpu_bound.c: the GPU bound, added up; and, in a build without CUDA, the
 * answers that there are no GPUs.
 */
#include "perf_gpu.h"
#include "tool.h"

#include <stdio.h>
#include <string.h>

struct way {
    int hops;
    double sent;
};

static double time_of(const perf_gpu_terms_t *terms, const struct way *way)
{
    double us = terms->local_us + way->hops * terms->line_us;

    return terms->link_gbs > 0 ? us + way->sent / terms->link_gbs * 1e-3 : us;
}

/* The least that the busiest rank has to send. */
static struct way way_of(const perf_gpu_terms_t *terms, const perf_case_t *c, double n)
{
    double block = (double)(c->count * perf_dtype_size(c->dtype));
    struct way way = {n > 1, 0}, other = {2, 2 * (n - 1) * block / n};

    switch (c->op) {
    case PERF_ALL_REDUCE:
        way.sent = (n - 1) * block;
        return time_of(terms, &other) < time_of(terms, &way) ? other : way;
    case PERF_ALL_GATHER:
    case PERF_REDUCE_SCATTER:
    case PERF_ALL_TO_ALL:
    case PERF_SCATTER:
        way.sent = (n - 1) * block;
        return way;
    case PERF_BROADCAST: /* in one hop the root sends n - 1 times, in two everybody helps */
        way.sent = (n - 1) * block;
        other.sent = 2 * (n - 1) * block / n;
        return n > 2 && time_of(terms, &other) < time_of(terms, &way) ? other : way;
    case PERF_BARRIER:
        return way;
    default: /* reduce, gather, sendrecv: every sender sends its block once */
        way.sent = n > 1 ? block : 0;
        return way;
    }
}

double perf_gpu_bound(const perf_gpu_terms_t *terms, const perf_case_t *c, int nranks, char *text,
                      size_t bytes)
{
    struct way way = way_of(terms, c, nranks);

    snprintf(text, bytes,
             "{\"local_us\": %.4f, \"hops\": %d, \"line_us\": %.4f, \"sent_bytes\": %.0f, "
             "\"link_gbs\": %.2f, \"floor_us\": %.4f, \"floor_pdl_us\": %.4f}",
             terms->local_us, way.hops, terms->line_us, way.sent, terms->link_gbs, terms->floor_us,
             terms->floor_pdl_us);
    return time_of(terms, &way);
}

#ifndef SOL_WITH_CUDA

bool perf_gpu_measure(int nranks, perf_gpu_terms_t *terms)
{
    (void)nranks;
    memset(terms, 0, sizeof(*terms));
    tool_error("perf", "this solccl was built without CUDA");
    return false;
}

int perf_gpu_count(char *name, size_t name_bytes, char *driver, size_t driver_bytes)
{
    snprintf(name, name_bytes, "none");
    snprintf(driver, driver_bytes, "none");
    return 0;
}

#endif
