/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h: communication from inside your own kernels. Every collective of
 * solccl is written on what is here; yours can be as fast.
 *
 *     // host, each rank
 *     sol_dev_config_t config = SOL_DEV_CONFIG_INIT;
 *     config.channel[0].sessions = 16;                    // one for each CTA
 *     config.channel[0].slot_bytes = 4096;                // what one rank sends in one
 *     sol_dev_comm_t dev;
 *     sol_dev_comm_create(comm, &config, &dev);
 *     sol_dev_launch(kernel, 16, 256, stream, dev.channel[0], x, y);
 *
 *     // device: an all_reduce of 16 bytes a thread
 *     struct sol_session s = sol_session_open(ch, SOL_CHANNEL_WORD, blockIdx.x, SOL_CTA);
 *     struct sol_vector v = sol_load_16(x + at);
 *     sol_session_push(ch, s, in_slot, v);                // to every peer
 *     sol_session_close(ch, s);                           // nothing more will be sent
 *     if (sol_session_reduce<SOL_FLOAT32>(ch, s, SOL_SUM, in_slot, v))
 *         sol_store_16(y + at, v);
 *
 * Contents: this file is the host's part, in C, and includes the device's part
 * under nvcc and in the emulator (docs/emulator.md):
 *
 *     device/session.cuh    channels and sessions: send, push, receive, reduce
 *     device/tile.cuh       start and wait halves of collectives, by tile
 *     device/barrier.cuh    barriers: arrive, wait, sync
 *     device/onesided.cuh   put, put with signal, counters
 *     device/team.cuh       teams and cooperation levels
 *     device/reduce.cuh     reduce, cast and pack
 *     device/launch.cuh     launching; kernels in a row
 *     device/ptx.cuh, memory.cuh, units.cuh, word.cuh, watch.cuh
 *                           what these and the built-in kernels are made of
 *
 * docs/write-your-own.md leads from an empty file to a measured kernel;
 * docs/memory-model.md says on which rules of PTX each part rests.
 *
 * Rules that hold everywhere
 *  - Every rank asks for the same resources, and every CTA that waits for
 *    another rank must be able to run: launch no more than fit on the GPU.
 *  - Every wait is bounded by the communicator's timeout. A function that waits
 *    returns false when it gave up; the kernel then returns, and every rank
 *    finds the story in sol_last_error, as from a collective. Nothing that was
 *    received is valid then, and the communicator can only be destroyed.
 *  - Offsets and sizes are bytes; vectors are 16 bytes at multiples of 16.
 *  - A session, a barrier or a counter is used by one kernel at a time. Kernels on
 *    one stream are in order; on several streams, order them by events.
 */
#ifndef SOLCCL_DEVICE_H
#define SOLCCL_DEVICE_H

#include "solccl/device/channel.h"
#include "solccl/solccl.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SOL_DEV_MAX_CHANNELS 8

/**
 * How a channel's words say that they have come. Data of any bit pattern is legal in all.
 *
 *   kind   bytes on the link   a second epoch in one kernel costs   rests on
 *   WORD   1 x                 two fences, about 1 us               8-byte atomicity (PTX)
 *   TAG    2 x                 a barrier of the group               8-byte atomicity (PTX)
 *   LINE   16/15 x             a barrier of the group               128-byte atomicity (hardware)
 *   BULK   1 x, and a flag     the flag's fence                     fences (PTX)
 */
typedef enum sol_channel_kind {
    SOL_CHANNEL_WORD = 0, /**< an empty slot is full of marks; the receiver resets what it took */
    SOL_CHANNEL_TAG = 1,  /**< each 8 bytes: 4 of data, 4 of epoch. Small messages, many epochs */
    SOL_CHANNEL_LINE = 2, /**< eight neighbouring threads send 120 bytes and a flag */
    SOL_CHANNEL_BULK = 3, /**< plain stores, then one flag: for whole buffers */
    SOL_CHANNEL_KINDS = 4
} sol_channel_kind_t;

/** A channel, as asked for. All ranks ask for the same. */
typedef struct sol_channel_config {
    sol_channel_kind_t kind;
    int sessions;      /**< independent sessions: groups (CTAs, warps, threads) that use it at once;
                            0: there is no such channel */
    size_t slot_bytes; /**< the most that one rank sends another in one epoch of one session;
                            rounded up to 16 (LINE: to 120) */
} sol_channel_config_t;

/** What a device communicator is to have. Start from SOL_DEV_CONFIG_INIT. */
typedef struct sol_dev_config {
    size_t size; /**< sizeof(sol_dev_config_t) of the caller */
    sol_channel_config_t channel[SOL_DEV_MAX_CHANNELS];
    int counters;         /**< 64-bit counters that peers add to; they begin at 0 */
    int barriers;         /**< barriers, each for one group (CTA, warp, thread) at a time */
    size_t memory_bytes;  /**< symmetric memory for put: dev.memory */
    int multicast;        /**< 1: ask for a multicast address of dev.memory; see sol_window_t */
    int ranks_per_host;   /**< for teams; 0: all of them */
    uint64_t first_epoch; /**< 0: 1. For tests of the counters' wrap-around */
} sol_dev_config_t;

#define SOL_DEV_CONFIG_INIT                                                                        \
    {                                                                                              \
        sizeof(sol_dev_config_t), {{SOL_CHANNEL_WORD, 0, 0}}, 0, 0, 0, 0, 0, 0                     \
    }

/**
 * Symmetric memory as kernels see it: byte b of rank r's is at base[r] + b, for loads and stores.
 */
typedef struct sol_window {
    char *base[SOL_DEV_MAX_RANKS];
    char *multicast; /**< stands for all ranks' memory at once, for the functions of
                          device/multimem.cuh alone; NULL where SOLCCL_CUDA_MULTICAST is not 1, or
                          the GPUs have none, or it was not asked for. Not yet run on a GPU */
    size_t bytes;
} sol_window_t;

/** A device communicator: pass it, or one of its channels, to kernels by value. Read-only. */
typedef struct sol_dev_comm {
    int rank, nranks;
    int counters, barriers;
    int ranks_per_host, channels;
    char *control[SOL_DEV_MAX_RANKS]; /**< of each rank: counters, barriers */
    uint64_t *barrier_epochs;         /**< this rank's own */
    uint32_t barrier_at, control_bytes;
    sol_window_t memory;
    struct sol_bound bound;
    void *allocation; /**< for sol_dev_comm_destroy */
    struct sol_channel channel[SOL_DEV_MAX_CHANNELS];
} sol_dev_comm_t;

/**
 * Make a device communicator on `comm`, with memory of its own: it shares nothing with the
 * collectives, which can be used beside it. Collective over `comm`; blocks; not legal in a capture.
 * Any number per communicator; one for each library or layer keeps them apart.
 * Errors: ARGUMENT (a size or number is negative or beyond its limit: the text says which),
 * UNSUPPORTED (CPU ranks; more than 8 ranks; GPUs that cannot reach each other), MISMATCH (ranks
 * ask for different things; the communicator stays usable), MEMORY, TIMEOUT.
 */
SOL_API sol_status_t sol_dev_comm_create(sol_comm_t comm, const sol_dev_config_t *config,
                                         sol_dev_comm_t *dev);

/**
 * Free it. Local: waits for no other rank. Kernels of this rank that use it must have completed.
 * sol_comm_destroy frees what is left. Errors: ARGUMENT.
 */
SOL_API sol_status_t sol_dev_comm_destroy(sol_comm_t comm, sol_dev_comm_t *dev);

/**
 * Memory of sol_mem_alloc as kernels see it, for loads from, stores to and puts into every rank's.
 * Local. Errors: ARGUMENT (not from sol_mem_alloc on `comm`), UNSUPPORTED (CPU ranks).
 */
SOL_API sol_status_t sol_mem_window(sol_comm_t comm, void *memory, sol_window_t *window);

#ifdef __cplusplus
}
#endif

#if defined(__CUDACC__) || (defined(SOL_EMU) && defined(__cplusplus))
#include "solccl/device/barrier.cuh"
#include "solccl/device/launch.cuh"
#include "solccl/device/onesided.cuh"
#include "solccl/device/reduce.cuh"
#include "solccl/device/session.cuh"
#include "solccl/device/team.cuh"
#include "solccl/device/tile.cuh"
#endif
#endif
