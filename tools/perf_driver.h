/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_driver.h: the driver's view of what it measures: a side is one library
 * with all its ranks, started by its own launcher and spoken to over
 * perf_wire.h. Only one side at a time does anything; the others sleep.
 */
#ifndef SOL_TOOLS_PERF_DRIVER_H
#define SOL_TOOLS_PERF_DRIVER_H

#include "perf_library.h"
#include "perf_wire.h"

#include <sys/types.h>

#define PERF_MAX_SIDES 4

typedef struct perf_side {
    char name[32];     /**< "solccl", "openmpi", "mpich", "nccl", "nccl-sym", "torch" */
    char version[128]; /**< as the library says */
    int nranks;
    pid_t launcher; /**< 0: none of ours (perf was started by a launcher itself) */
    int fds[SOL_MAX_RANKS];
    int pids[SOL_MAX_RANKS];
    int cpus[SOL_MAX_RANKS]; /**< where each rank was when it said hello, or was bound to since */
} perf_side_t;

typedef struct perf_driver {
    int listener;
    char socket[64];
    double timeout_s; /**< of one command */
    bool gpu;         /**< the ranks are GPUs */
    perf_message_t *message;
    perf_side_t sides[PERF_MAX_SIDES]; /**< [0] is solccl */
    int nsides;
} perf_driver_t;

/** What a setup gave. */
typedef struct perf_setup {
    bool supported;
    size_t wrong;       /**< elements, over all ranks */
    char protocol[256]; /**< of rank 0, or why it is not supported */
} perf_setup_t;

bool perf_driver_open(perf_driver_t *driver, bool gpu, double timeout_s);
/** Ends every side (asked, then forced) and frees all. Bounded. */
void perf_driver_close(perf_driver_t *driver);

/** Start `nranks` of ours (peer NULL) or of the peer's program, bound to cores if `bind`, and wait
 * until all have said hello. With `launch` false the ranks come by themselves. Says what is wrong
 * on stderr. */
bool perf_driver_add(perf_driver_t *driver, const char *peer, int nranks, bool bind, bool launch);
/** Whether a peer can be had here; else why not, in `why`. */
bool perf_peer_present(const char *peer, char *why, size_t bytes);

/** Bind rank r of a side to cpus[r]. */
bool perf_side_bind(perf_driver_t *driver, perf_side_t *side, const int *cpus);
bool perf_side_setup(perf_driver_t *driver, perf_side_t *side, const perf_case_t *c, long checks,
                     perf_setup_t *setup);
/** Times of the slowest rank: samples[i] = ns of batch i. */
bool perf_side_time(perf_driver_t *driver, perf_side_t *side, size_t samples, size_t warm,
                    size_t batch, bool alone, double *slowest);
bool perf_side_clear(perf_driver_t *driver, perf_side_t *side);

/** Send a command to one rank, with a descriptor or -1. */
bool perf_side_tell(perf_side_t *side, int rank, const char *line, int pass);
/** Its answer, without "ok "; NULL, and the error on stderr, when it is not ok. */
const char *perf_side_answer(perf_driver_t *driver, perf_side_t *side, int rank);

#endif
