/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vocab_row.h: a token of sol_vocab_topk on a CPU: its message, and the result
 * from all ranks' messages. Pure; the caller is in IEEE's default floating-point
 * mode (fpmode.h). The twin of device/kernels/vocab.cuh.
 */
#ifndef SOL_COLL_VOCAB_ROW_H
#define SOL_COLL_VOCAB_ROW_H

#include "solccl/fused.h"

/* Fills sol_vocab_words(k, sum) words. */
void sol_vocab_local(const sol_vocab_args_t *args, size_t token, uint64_t *message);
/* Writes the outputs of `token`. `messages`: rank by rank, `stride` words apart. */
void sol_vocab_merge(const sol_vocab_args_t *args, size_t token, const uint64_t *messages,
                     size_t stride, int nranks);

#endif
