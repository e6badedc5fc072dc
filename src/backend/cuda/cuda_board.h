/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_board.h: the notice board of a communicator of GPU ranks: a piece of
 * host memory that the hosts and the GPUs of all its ranks see.
 *
 *   head       abort word (polled by all waiting kernels), who aborted, the story
 *   rank 0     its kernels' error record | what it called lately
 *   rank 1     ...
 *
 * What it is for: a failure seen anywhere ends the waits everywhere, at once,
 * and every rank can tell the whole story, not only its own part of it.
 *
 * It never blocks: every function here is a few loads and stores. All of it is
 * advisory: no data of an operation depends on it.
 */
#ifndef SOL_CUDA_BOARD_H
#define SOL_CUDA_BOARD_H

#include "core/backend.h"
#include "proto/gpu_layout.h"

#include <stdatomic.h>

#define SOL_CUDA_RECENT 256 /* calls remembered per rank; a power of two */
#define SOL_CUDA_STORY 640

/* A call as one rank made it. Readers of other ranks' entries check `stamp` before and after. */
struct sol_cuda_called {
    _Atomic uint64_t stamp; /* its number plus one, stored last; 0 while being written */
    uint64_t sequence;
    uint64_t collective; /* its number among the collectives; 0: send or recv */
    uint64_t count;
    int32_t root;
    uint8_t func, dtype, op, premul;
};

struct sol_cuda_board_rank {
    struct sol_gpu_error error;                          /* written by the device */
    uint32_t arrived[SOL_GPU_MAX_RANKS];                 /* written by the device: cuda_probe.h */
    struct sol_gpu_waited waited[SOL_GPU_MAX_RANKS];     /* the same, by peer: device/fate.h */
    struct sol_cuda_called calls[SOL_CUDA_RECENT];       /* by sequence: for texts */
    struct sol_cuda_called collectives[SOL_CUDA_RECENT]; /* by number: compared across ranks */
    _Atomic uint32_t left;                               /* it has destroyed the communicator */
    _Atomic uint64_t
        shrunk; /* and before that gone on with the ranks in this mask; 0: it has not */
};

struct sol_cuda_board {
    _Atomic uint32_t abort_word; /* not 0: all waits of all ranks end. Alone on its line */
    char fill0[124];
    _Atomic uint32_t aborted_by;  /* rank + 1 that called sol_comm_abort */
    _Atomic uint32_t story_state; /* 0 none, 1 being written, 2 there */
    int32_t story_status;
    char story[SOL_CUDA_STORY];
    char fill1[4096 - 128 - 12 - SOL_CUDA_STORY];
    struct sol_cuda_board_rank ranks[]; /* one each */
};

/* What to allocate, zeroed, in memory that all hosts and GPUs see (cuda_host_memory.h). */
size_t sol_cuda_board_bytes(int nranks);

/* Note a call of `rank`. `number`: its place among the collectives from 1, or 0 for send/recv.
 * `compare`: for sol_cuda_board_agrees too. */
void sol_cuda_board_note(struct sol_cuda_board *board, int rank, const sol_call_t *call,
                         uint64_t number, bool compare);

/* The last call that `rank` has noted, and its number among the collectives. False: none, or it
 * notes faster than we read. Only reads. */
bool sol_cuda_board_last(const struct sol_cuda_board *board, int rank, sol_call_t *call,
                         uint64_t *collective);

/* Compare collective `number` of `rank` with what the others noted under the same number: true if
 * none differs yet. Otherwise a text that says who called what. Of two ranks that differ the later
 * one finds out, whatever the timing. */
bool sol_cuda_board_agrees(struct sol_cuda_board *board, int rank, int nranks, uint64_t number,
                           char *text, size_t bytes);

/* Publish why the communicator failed; the first one wins. Ends all waits. */
void sol_cuda_board_publish(struct sol_cuda_board *board, sol_status_t status, const char *story);

/* sol_comm_abort of `rank`. */
void sol_cuda_board_abort(struct sol_cuda_board *board, int rank);

/* `rank` destroys the communicator: who shrinks it need not wait for it. And has it? */
void sol_cuda_board_leave(struct sol_cuda_board *board, int rank);
bool sol_cuda_board_left(const struct sol_cuda_board *board, int rank);

/* What has become of the communicator: SOL_OK, or the status and its story in `text`. Turns a
 * device's error record into a story and publishes it. */
sol_status_t sol_cuda_board_status(struct sol_cuda_board *board, int nranks, uint64_t timeout_ns,
                                   char *text, size_t bytes);

#endif
