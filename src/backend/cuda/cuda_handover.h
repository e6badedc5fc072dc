/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_handover.h: from which size on each operation is NCCL's, on GPUs where
 * our kernels work. SOLCCL_NCCL_ABOVE says it:
 *
 *   unset, 0                       never; NCCL is not opened
 *   64M                            all five operations, from 64 MiB on
 *   broadcast=1G,all_reduce=512M   these two, from these sizes; the others never
 *   auto                           from where NCCL was measured to be faster on
 *                                  this machine (the table in cuda_handover.c)
 *
 * Off unless asked for: NCCL has to be opened with the communicator (its memory
 * and its start are the program's to pay), and the bits of its sums of more than
 * two ranks are its own.
 *
 * Only operations that all ranks judge alike: not all_to_all_v, whose counts
 * differ, nor all_to_all, which NCCL cannot do in place, nor send and recv,
 * which must not overtake each other. All ranks must have the same thresholds;
 * the digest lets them compare. Pure host logic: no CUDA here.
 */
#ifndef SOL_CUDA_HANDOVER_H
#define SOL_CUDA_HANDOVER_H

#include "base/base.h"

#define SOL_CUDA_HANDOVER_FUNCS (SOL_FUNC_REDUCE + 1) /* all_reduce ... reduce */

struct sol_cuda_handover {
    size_t above[SOL_CUDA_HANDOVER_FUNCS]; /* bytes of the count argument; SIZE_MAX: never */
    bool any;                              /* some operation has a size */
};

/* Read the environment. `machine`: the GPU's name, for auto. ARGUMENT: `why` says what was wrong.
 */
sol_status_t sol_cuda_handover_open(struct sol_cuda_handover *handover, const char *machine,
                                    int nranks, char *why, size_t why_bytes);
/* Nothing is handed over. */
void sol_cuda_handover_none(struct sol_cuda_handover *handover);

/* Is a call of `bytes` (count argument times element size) NCCL's? */
static inline bool sol_cuda_handover_wants(const struct sol_cuda_handover *handover,
                                           sol_func_t func, size_t bytes)
{
    return handover->any && (unsigned)func < SOL_CUDA_HANDOVER_FUNCS &&
           bytes >= handover->above[func];
}

/* Equal for equal thresholds. */
uint64_t sol_cuda_handover_digest(const struct sol_cuda_handover *handover);

/* "all_reduce from 1073741824 bytes, broadcast from ..." or "nothing". */
void sol_cuda_handover_describe(const struct sol_cuda_handover *handover, char *text, size_t bytes);

#endif
