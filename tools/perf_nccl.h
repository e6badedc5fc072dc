/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_nccl.h: NCCL as perf measures it (only in a build with CUDA).
 */
#ifndef SOL_TOOLS_PERF_NCCL_H
#define SOL_TOOLS_PERF_NCCL_H

#include "perf_library.h"

extern const perf_library_t perf_library_nccl, perf_library_nccl_sym;

#endif
