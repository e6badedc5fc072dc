/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_solccl.h: solccl as perf measures it.
 */
#ifndef SOL_TOOLS_PERF_SOLCCL_H
#define SOL_TOOLS_PERF_SOLCCL_H

#include "perf_library.h"

extern const perf_library_t perf_library_solccl;

/** Started by a launcher rather than by perf itself: only rank 0 knows the driver's socket, and
 * tells the others over the communicator. Say so on every rank, before perf_worker. */
void perf_solccl_attached(void);

#endif
