/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_gpu.h: what perf needs to know of GPUs: the terms of their bound, and
 * whether this build can measure them. The tool without CUDA has the same
 * functions, which say that it was built without.
 *
 * The bound is the strict one:
 *
 *     sol = local + hops * line + sent / link
 *
 * local: a kernel that loads and stores 256 B, in a graph, without dependent
 * launch; line: one way from a store in one GPU to the poll that sees it in
 * another, the worst pair; sent: the bytes that the busiest GPU must send; link:
 * a copy's bandwidth in one direction, the worst pair. Where algorithms differ
 * (all_reduce in one hop or two) the least counts.
 */
#ifndef SOL_TOOLS_PERF_GPU_H
#define SOL_TOOLS_PERF_GPU_H

#include "perf_library.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct perf_gpu_terms {
    double floor_us;     /* an empty kernel after another, in a graph */
    double floor_pdl_us; /* the same with dependent launch */
    double local_us;
    double line_us;
    double link_gbs;
} perf_gpu_terms_t;

/** Measure with this process's GPUs 0 to n - 1 (the ranks'; fewer GPUs than ranks: all of them).
 * Says on stderr what is wrong. Uses CUDA: call it in a child. */
bool perf_gpu_measure(int nranks, perf_gpu_terms_t *terms);
/** The bound of a case in us; how it was added up into `text`, as a JSON object. */
double perf_gpu_bound(const perf_gpu_terms_t *terms, const perf_case_t *c, int nranks, char *text,
                      size_t bytes);
/** GPUs here, 0 if there are none or the tool was built without CUDA; the first one's name and
 * the driver's version. Uses CUDA: call it in a child. */
int perf_gpu_count(char *name, size_t name_bytes, char *driver, size_t driver_bytes);

#ifdef __cplusplus
}
#endif
#endif
