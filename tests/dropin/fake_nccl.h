/* SPDX-License-Identifier: Apache-2.0 */
/* fake_nccl.h: what tests know of fake_nccl.c beyond NCCL's interface. */
#ifndef TESTS_FAKE_NCCL_H
#define TESTS_FAKE_NCCL_H

#include <stddef.h>

#define FAKE_VERSION 22809
#define FAKE_MARK 0xEE /* what its collectives leave in receive buffers */
#define FAKE_RANKS 16

typedef struct fake_id {
    char bytes[128];
} fake_id;

typedef struct fake_large {
    long word[4];
} fake_large;

/* fake_nccl_calls(comm, which) says how often this rank called it. */
enum {
    FAKE_ALL_REDUCE,
    FAKE_ALL_GATHER,
    FAKE_REDUCE_SCATTER,
    FAKE_BROADCAST,
    FAKE_REDUCE,
    FAKE_ALL_TO_ALL,
    FAKE_GATHER,
    FAKE_SCATTER,
    FAKE_SEND,
    FAKE_RECV,
    FAKE_CALLS
};

#endif
