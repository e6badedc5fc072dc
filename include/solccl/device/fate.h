/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fate.h: what a rank's kernels write down of waits that were in vain, or long.
 * C and CUDA.
 */
#ifndef SOL_DEVICE_FATE_H
#define SOL_DEVICE_FATE_H

#include "solccl/device/channel.h"

#include <stdint.h>

/* In this rank's device memory. */
struct sol_gpu_fate {
    uint64_t dead; /* not 0: a wait expired or was aborted; kernels give up in their first wait */
    uint32_t claimed; /* the one thread that writes the error record */
    uint32_t reserved;
};

/* Why a kernel gave up. */
enum sol_gpu_fault {
    SOL_GPU_FAULT_NONE = 0,
    SOL_GPU_FAULT_TIMEOUT = 1,
    SOL_GPU_FAULT_ABORT = 2,
    SOL_GPU_FAULT_MISMATCH = 3 /* a peer sent another number of bytes, or another operation */
};

/* Host memory that the device can write (pinned, mapped); zeroed by the host. Written once: all
 * fields, then `fault`. */
struct sol_gpu_error {
    volatile uint32_t fault; /* enum sol_gpu_fault; 0 until the rest is there */
    uint32_t func;           /* sol_func_t, or enum sol_gpu_who */
    int32_t rank;            /* who waited */
    int32_t awaited;         /* for whom; -1: for no one in particular */
    uint64_t sequence;       /* of the operation at its launch (a replayed graph: of its capture) */
    uint64_t bytes;          /* of the operation, in this rank's view */
    uint64_t epoch;          /* the device's own count */
    uint64_t detail;         /* MISMATCH: what the peer said; otherwise 0 */
    uint64_t time_ns;        /* the device's clock when it gave up */
};

/* How long all of a rank's kernels together have waited for a peer: time in which at least one
 * thread did, in waits of SOL_WATCH_POLLS polls and more (watch.cuh). In host memory, as the error
 * record is; only grows; each word is written by itself. */
struct sol_gpu_waited {
    volatile uint64_t ns, waits;
    volatile uint64_t since, until; /* the last wait, on the device's clock */
};

/* The same in this rank's device memory, where threads add to it: one for all kernels of a
 * communicator, those of its device communicators and handles too. */
struct sol_gpu_wait {
    uint64_t until; /* on the device's clock: what was waited up to here has been counted */
    uint64_t ns, waits;
    struct sol_gpu_waited *told; /* where a thread that has counted tells it */
    uint32_t taken;              /* by the one thread that counts */
    uint32_t reserved[7];
};
struct sol_gpu_waits {
    struct sol_gpu_wait peer[SOL_DEV_MAX_RANKS];
};

#endif
