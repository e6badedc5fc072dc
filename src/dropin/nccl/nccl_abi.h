/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_abi.h: NCCL's public interface as its binary interface has it (enums are
 * ints, handles pointers, ids 128 bytes by value), as far as the drop-in reads
 * or answers calls. No header of NCCL is needed to build, and none is included.
 *
 * Everything that the drop-in only hands through is in nccl_names.h, by name.
 */
#ifndef SOL_DROPIN_NCCL_ABI_H
#define SOL_DROPIN_NCCL_ABI_H

#include <stddef.h>

typedef void *nccl_comm;
typedef void *nccl_stream; /* a cudaStream_t */

typedef struct nccl_id {
    char bytes[128];
} nccl_id;

/* The first members of ncclConfig_t, which have been there since it exists. */
typedef struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking; /* 0: calls return before they are done; undefined: the environment's */
} nccl_config;

typedef enum nccl_result {
    NCCL_SUCCESS = 0,
    NCCL_CUDA_ERROR = 1,
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INTERNAL_ERROR = 3,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7
} nccl_result;

enum {
    NCCL_SHRINK_ABORT = 1, /* flag of ncclCommShrink: what the parent is doing ends first */
    NCCL_BUILT_IN_OPS = 5, /* operations below are the same everywhere; others are made */
    NCCL_SCALAR_DEVICE = 0 /* where ncclRedOpCreatePreMulSum's scalar is; else in host memory */
};

#endif
