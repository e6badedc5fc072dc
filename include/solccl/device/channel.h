/* SPDX-License-Identifier: Apache-2.0 */
/*
 * channel.h: a channel as a kernel sees it: where its slots are, here and at
 * the peers. C and CUDA; filled by the host, passed to kernels by value.
 *
 * What a small message needs comes first and close together: the number of
 * parameters costs nothing, but every 64-byte line of them that a kernel touches
 * costs some 30 ns before its first load (bench/NOTES.md); with two ranks it is
 * two lines. And addresses are worked out by the host as far as they can be: each
 * dozen instructions between a load and the push that depends on it is 30 ns too.
 *
 * Peers are numbered twice. k-th to push to: the neighbour rank + 1 first, so
 * that the ranks do not all begin with the same one. q-th to read: ascending,
 * without this rank, which is the order of sums.
 */
#ifndef SOL_DEVICE_CHANNEL_H
#define SOL_DEVICE_CHANNEL_H

#include <stdint.h>

#define SOL_DEV_MAX_RANKS 8

/* Functions that the device uses too. */
#if defined(__CUDACC__)
#define SOL_GPU_BOTH static inline __host__ __device__
#else
#define SOL_GPU_BOTH static inline
#endif

struct sol_gpu_fate; /* device/fate.h */
struct sol_gpu_error;
struct sol_gpu_waits;

/* What ends a wait that is in vain, and where that is written down. */
struct sol_bound {
    struct sol_gpu_fate *fate; /* this rank's */
    struct sol_gpu_error *error;
    volatile uint32_t *abort_word;
    uint64_t timeout_ns;
    uint64_t *tickets;           /* pairs of words of which the second becomes the fault, too */
    struct sol_gpu_waits *waits; /* where long waits are counted; NULL: nowhere */
    int rank, ntickets;
};

struct sol_channel {
    /* wanted at once */
    uint64_t *epochs;     /* of this rank's sessions, in its own memory */
    char *in;             /* own slot of the 0-th source, session 0, parity 0 */
    uint32_t parity_step; /* bytes from parity 0 to parity 1 */
    uint32_t source_step; /* from one source's slots to the next one's: all sessions' */
    int rank, nranks;
    char *out[SOL_DEV_MAX_RANKS - 1]; /* own slot at the k-th peer, session 0, parity 0 */
    /* sessions (session.cuh) */
    uint32_t slot_bytes; /* of one session, as it lies in memory: tags, flags and all */
    uint32_t token_step; /* from the first token to the first slot */
    uint32_t sessions, kind;
    struct sol_bound bound;
};

/* Who waited, in place of a sol_func_t, where it was a kernel of the caller's. */
enum sol_gpu_who {
    SOL_GPU_WHO_SESSION = 64, /* `bytes`: its number; `sequence`: its epoch */
    SOL_GPU_WHO_BARRIER = 65, /* likewise */
    SOL_GPU_WHO_COUNTER = 66, /* `bytes`: its number; `sequence`: the value awaited */
    SOL_GPU_WHO_TRANSFER = 67 /* a counter of transfer.h: above bit 16 of `bytes`, where it stood */
};

/* What a wait would say of itself. */
struct sol_story {
    uint64_t sequence, bytes;
    uint32_t func; /* sol_func_t, or enum sol_gpu_who */
};

/* The rank that is the k-th to push to, and the q-th to read. */
SOL_GPU_BOTH int sol_push_peer(int rank, int n, int k)
{
    int peer = rank + 1 + k;
    return peer < n ? peer : peer - n;
}
SOL_GPU_BOTH int sol_poll_peer(int rank, int q)
{
    return q + (q >= rank);
}

#endif
