/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_fused_linear.c: sol_linear_all_reduce for emu_fused.c: against the reference of the
 * conformance suite, bit for bit.
 */
#include "conformance/linear_reference.h"
#include "device/kernels/linear_launch.h"
#include "emu_fused.h"

struct linear_task {
    linear_case_t c;
    linear_image_t image[SOL_GPU_MAX_RANKS];
    char *memory[SOL_GPU_MAX_RANKS];
};

static bool make(struct emu_ranks *p, void *task, uint64_t *random, bool few)
{
    struct linear_task *t = task;
    linear_case_draw(&t->c, random, p->n, 700, emu_below(random, 3) ? 20 : 200);
    if (few)
        t->c.weights = SOL_BFLOAT16;
    while (t->c.tokens * (t->c.outputs + 8) > 800) /* (time) */
        t->c.tokens = t->c.tokens / 2;
    for (int r = 0; r < p->n; r++) {
        emu_ranks_use(p, r);
        if (!linear_image_make(&t->image[r], &t->c, p->n, r))
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
    const struct linear_task *t = task;
    linear_case_describe(&t->c, p->n, text, bytes);
}

static cudaError_t launch(struct emu_ranks *p, void *task, int r, uint64_t *random, unsigned flags,
                          uint64_t sequence)
{
    struct linear_task *t = task;
    sol_linear_args_t args;
    const int ctas = emu_below(random, 2) ? 1 + (int)emu_below(random, 8) : 0;
    linear_image_args(&t->image[r], &t->c, r, t->memory[r], &args);
    return sol_gpu_linear_launch(&p->comm[r], &args, ctas, flags, sequence, p->stream[r]);
}

static bool check(struct emu_ranks *p, void *task, char *why, size_t bytes)
{
    const struct linear_task *t = task;
    for (int r = 0; r < p->n; r++)
        if (!linear_image_check(&t->image[r], (unsigned char *)t->memory[r], why, bytes))
            return false;
    return true;
}

static void drop(struct emu_ranks *p, void *task)
{
    struct linear_task *t = task;
    for (int r = 0; r < p->n; r++) {
        emu_ranks_use(p, r);
        cudaFree(t->memory[r]);
        linear_image_free(&t->image[r]);
    }
}

const struct emu_fused_op emu_fused_linear = {
    .name = "linear",
    .task_bytes = sizeof(struct linear_task),
    .make = make,
    .describe = describe,
    .launch = launch,
    .check = check,
    .drop = drop,
};
