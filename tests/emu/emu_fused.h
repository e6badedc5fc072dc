/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_fused.h: an operation of solccl/fused.h as emu_fused.c tests it: a task is one
 * call, on all ranks.
 */
#ifndef TESTS_EMU_FUSED_H
#define TESTS_EMU_FUSED_H

#include "common/team.h"
#include "emu_ranks.h"

struct emu_fused_op {
    const char *name;
    size_t task_bytes;
    /* Draws a call, on zeroed memory, and uploads its arrays. `few`: bf16 alone. */
    bool (*make)(struct emu_ranks *p, void *task, uint64_t *random, bool few);
    void (*describe)(const struct emu_ranks *p, const void *task, char *text, size_t bytes);
    cudaError_t (*launch)(struct emu_ranks *p, void *task, int rank, uint64_t *random,
                          unsigned flags, uint64_t sequence);
    /* Of all ranks; otherwise says what is wrong. */
    bool (*check)(struct emu_ranks *p, void *task, char *why, size_t bytes);
    void (*drop)(struct emu_ranks *p, void *task);
};

extern const struct emu_fused_op emu_fused_vocab, emu_fused_linear;

static inline size_t emu_below(uint64_t *random, size_t n)
{
    return (size_t)(team_random(random) % n);
}

#endif
