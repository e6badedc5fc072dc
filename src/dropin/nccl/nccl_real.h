/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_real.h: the NCCL behind the drop-in. It is looked for when the first call
 * comes, because only then can it be known which one the process uses:
 *
 *   1. the file that SOLCCL_NCCL_LIB names
 *   2. what the dynamic linker would have found without us (RTLD_NEXT)
 *   3. a libnccl.so.2 that is loaded already, then the one on the library path
 *
 * If there is none, every call returns ncclSystemError and one line on stderr
 * says what was tried. It is never closed.
 */
#ifndef SOL_DROPIN_NCCL_REAL_H
#define SOL_DROPIN_NCCL_REAL_H

#include "dropin/nccl/nccl_abi.h"

#include <stdbool.h>

/* NULL: the real library has no such function. */
typedef struct sol_nccl_real {
    int (*get_version)(int *version);
    const char *(*error_string)(int result);
    const char *(*last_error)(nccl_comm comm);
    int (*init_rank)(nccl_comm *comm, int nranks, nccl_id id, int rank);
    int (*init_rank_config)(nccl_comm *comm, int nranks, nccl_id id, int rank, nccl_config *config);
    int (*init_rank_scalable)(nccl_comm *comm, int nranks, int rank, int nids, nccl_id *ids,
                              nccl_config *config);
    int (*init_all)(nccl_comm *comms, int ndevices, const int *devices);
    int (*split)(nccl_comm comm, int color, int key, nccl_comm *result, nccl_config *config);
    int (*shrink)(nccl_comm comm, int *excluded, int nexcluded, nccl_comm *result,
                  nccl_config *config, int flags);
    int (*destroy)(nccl_comm comm);
    int (*abort)(nccl_comm comm);
    int (*revoke)(nccl_comm comm, int flags);
    int (*async_error)(nccl_comm comm, int *result);
    int (*count)(nccl_comm comm, int *count);
    int (*device)(nccl_comm comm, int *device);
    int (*user_rank)(nccl_comm comm, int *rank);
    int (*premul_create)(int *op, void *scalar, int dtype, int residence, nccl_comm comm);
    int (*redop_destroy)(int op, nccl_comm comm);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*group_simulate_end)(void *info);
    int (*all_reduce)(const void *, void *, size_t, int, int, nccl_comm, nccl_stream);
    int (*all_gather)(const void *, void *, size_t, int, nccl_comm, nccl_stream);
    int (*reduce_scatter)(const void *, void *, size_t, int, int, nccl_comm, nccl_stream);
    int (*broadcast)(const void *, void *, size_t, int, int, nccl_comm, nccl_stream);
    int (*bcast)(void *, size_t, int, int, nccl_comm, nccl_stream);
    int (*reduce)(const void *, void *, size_t, int, int, int, nccl_comm, nccl_stream);
    int (*all_to_all)(const void *, void *, size_t, int, nccl_comm, nccl_stream);
    int (*gather)(const void *, void *, size_t, int, int, nccl_comm, nccl_stream);
    int (*send)(const void *, size_t, int, int, nccl_comm, nccl_stream);
    int (*recv)(void *, size_t, int, int, nccl_comm, nccl_stream);
    int (*scatter)(const void *, void *, size_t, int, int, nccl_comm, nccl_stream);
} sol_nccl_real;

/* The real library's functions; all NULL where there is none. Any thread. */
const sol_nccl_real *sol_nccl(void);
/* Its version, 22809 for 2.28.9; 0 where there is none. */
int sol_nccl_version(void);
/* Why there is none, or "". */
const char *sol_nccl_missing(void);

#endif
