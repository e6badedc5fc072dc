/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_fused_vocab.c: sol_vocab_topk for emu_fused.c: against the reference of the
 * conformance suite, and its sums bit for bit against the code of CPU ranks.
 */
#include "coll/vocab.h"
#include "coll/vocab_row.h"
#include "conformance/vocab_reference.h"
#include "device/kernels/vocab_launch.h"
#include "emu_fused.h"

#include <stdlib.h>

struct vocab_task {
    vocab_case_t c;
    vocab_image_t image[SOL_GPU_MAX_RANKS];
    char *memory[SOL_GPU_MAX_RANKS];
};

static bool make(struct emu_ranks *p, void *task, uint64_t *random, bool few)
{
    struct vocab_task *t = task;
    vocab_case_draw(&t->c, random, p->n, 4000);
    if (few)
        t->c.dtype = SOL_BFLOAT16;
    for (int r = 0; r < p->n; r++) {
        emu_ranks_use(p, r);
        if (!vocab_image_make(&t->image[r], &t->c, p->n, r))
            return false;
        cudaMalloc((void **)&t->memory[r], t->image[r].bytes);
        emu_name(t->memory[r], "arrays of rank %d", r);
        cudaMemcpyAsync(t->memory[r], t->image[r].before, t->image[r].bytes, cudaMemcpyDefault,
                        p->stream[r]);
    }
    return true;
}

static void describe(const struct emu_ranks *p, const void *task, char *text, size_t bytes)
{
    const struct vocab_task *t = task;
    vocab_case_describe(&t->c, p->n, text, bytes);
}

static cudaError_t launch(struct emu_ranks *p, void *task, int r, uint64_t *random, unsigned flags,
                          uint64_t sequence)
{
    struct vocab_task *t = task;
    struct sol_gpu_vocab_shape shape = {1 << emu_below(random, 4), 0, 0};
    sol_vocab_args_t args;
    if (emu_below(random, 2))
        shape.spread = 1 << emu_below(random, 4);
    if (emu_below(random, 2))
        shape.ctas = 1 + (int)emu_below(random, 8);
    vocab_image_args(&t->image[r], &t->c, r, t->memory[r], &args);
    return sol_gpu_vocab_launch(&p->comm[r], &args, &shape, flags, sequence, p->stream[r]);
}

/* What CPU ranks would make of token `token`'s sum. */
static bool same_sum(const struct emu_ranks *p, const struct vocab_task *t, size_t token)
{
    uint64_t messages[SOL_GPU_MAX_RANKS][SOL_VOCAB_MAX_K + 1];
    sol_vocab_args_t args;
    for (int r = 0; r < p->n; r++) {
        vocab_image_args(&t->image[r], &t->c, r, t->image[r].before, &args);
        sol_vocab_local(&args, token, messages[r]);
    }
    const uint32_t bits =
        sol_vocab_total(messages[0], SOL_VOCAB_MAX_K + 1, sol_vocab_words(t->c.k, true), p->n);
    for (int r = 0; r < p->n; r++)
        if (memcmp(&bits, t->memory[r] + t->image[r].at[VOCAB_SUM] + token * 4, 4) != 0)
            return false;
    return true;
}

static bool check(struct emu_ranks *p, void *task, char *why, size_t bytes)
{
    const struct vocab_task *t = task;
    double worst = 0;
    for (int r = 0; r < p->n; r++)
        if (!vocab_image_check(&t->image[r], &t->c, (unsigned char *)t->memory[r], &worst, why,
                               bytes))
            return false;
    for (size_t token = 0; token < t->c.tokens && t->c.sum; token++)
        if (!same_sum(p, t, token)) {
            snprintf(why, bytes, "log_sum_exp of token %zu is wrong: not that of CPU ranks", token);
            return false;
        }
    return true;
}

static void drop(struct emu_ranks *p, void *task)
{
    struct vocab_task *t = task;
    for (int r = 0; r < p->n; r++) {
        emu_ranks_use(p, r);
        cudaFree(t->memory[r]);
        vocab_image_free(&t->image[r]);
    }
}

const struct emu_fused_op emu_fused_vocab = {
    .name = "vocab",
    .task_bytes = sizeof(struct vocab_task),
    .make = make,
    .describe = describe,
    .launch = launch,
    .check = check,
    .drop = drop,
};
