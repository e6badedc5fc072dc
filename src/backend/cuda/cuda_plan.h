/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_plan.h: which protocol, how many CTAs, threads and vectors a thread a
 * GPU operation gets, where somebody has a better idea than the built-in plan
 * of the kernels (sol_gpu_plan, which fills whatever is left at 0). In order:
 *
 *   1. the environment: SOLCCL_CUDA_PROTOCOL, _CTAS, _THREADS, _VECTORS;
 *   2. the tuning file SOLCCL_TUNING_FILE, as `solccl tune` writes it;
 *   3. the built-in plan.
 *
 * The file, read strictly (a line that cannot be read is an error that names
 * it; nothing is guessed):
 *
 *   solccl-tuning 1
 *   # comment
 *   machine NVIDIA H200
 *   all_reduce bfloat16 2 4096 one_shot 1 256 2
 *   |          |        | |    |        | |   vectors of 16 bytes a thread: 1, 2, 4
 *   |          |        | |    |        | threads
 *   |          |        | |    |        CTAs
 *   |          |        | |    protocol
 *   |          |        | up to this many bytes (count argument times element size)
 *   |          |        ranks
 *   |          type, or "any"
 *   function
 *
 * With `machine`, the lines after it hold for GPUs of that name only (up to the
 * next `machine`). Of several lines that fit, one for the exact type comes
 * before "any", then the smallest size.
 *
 * All ranks must have the same plan (for large messages the choice decides who
 * sends what when); sol_cuda_plan_digest lets them compare. Pure host logic: no
 * CUDA here.
 */
#ifndef SOL_CUDA_PLAN_H
#define SOL_CUDA_PLAN_H

#include "base/base.h"

struct sol_cuda_choice {
    int algorithm, ctas, threads, vectors; /* 0: not chosen here */
};

struct sol_cuda_rule {
    sol_func_t func;
    int dtype; /* sol_dtype_t, or -1 for any */
    int nranks;
    size_t bytes; /* up to */
    int line;
    struct sol_cuda_choice choice;
};

struct sol_cuda_plan {
    struct sol_cuda_choice forced; /* by the environment */
    struct sol_cuda_rule *rules;   /* sorted: function, ranks, any last, bytes */
    size_t count;
    size_t first[SOL_FUNC_COUNT + 1]; /* rules of function f: first[f] .. first[f + 1] */
    char file[256];
};

/* "one_shot" -> its number, or 0 for a name that is none (sol_gpu_algorithms by default). */
typedef int (*sol_cuda_algorithm_fn)(const char *name);

/* Read environment and file. Errors: ARGUMENT (thread error says which variable or line). */
sol_status_t sol_cuda_plan_open(struct sol_cuda_plan *plan, const char *machine, int nranks,
                                sol_cuda_algorithm_fn algorithm);
/* The file's part of it, from text: for open and the tests. */
sol_status_t sol_cuda_plan_parse(struct sol_cuda_plan *plan, const char *text, const char *machine,
                                 int nranks, sol_cuda_algorithm_fn algorithm);
void sol_cuda_plan_close(struct sol_cuda_plan *plan);

/* The rule for a call, or NULL. `bytes`: count argument times element size. */
const struct sol_cuda_rule *sol_cuda_plan_find(const struct sol_cuda_plan *plan, sol_func_t func,
                                               sol_dtype_t dtype, size_t bytes);

/* Equal for equal plans. */
uint64_t sol_cuda_plan_digest(const struct sol_cuda_plan *plan);

#endif
