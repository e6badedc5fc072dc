/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vocab_call.c: sol_vocab_topk of solccl/fused.h: checked here, then handed to a
 * backend that has a kernel for it, or put together from plain C and one all_gather
 * (CPU ranks).
 *
 * Must never let the two ways differ in a bit.
 */
#include "coll/fpmode.h"
#include "coll/vocab.h"
#include "coll/vocab_row.h"
#include "core/fused_call.h"
#include "core/setup.h"

#define WHO "sol_vocab_topk"
#define SCRATCH_BYTES ((size_t)256 << 10) /* of messages; at least a token's */

static sol_status_t refuse_sizes(sol_comm_t comm, const sol_vocab_args_t *args)
{
    const size_t pitch = args->pitch != 0 ? args->pitch : args->columns;
    if (args->k > SOL_VOCAB_MAX_K) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, WHO ": k is %u: expected 0 to %d", args->k,
                              SOL_VOCAB_MAX_K);
    }
    if (args->first > UINT32_MAX || args->columns > UINT32_MAX - args->first) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              WHO ": columns %zu from %llu on: expected at most 4294967295 in all",
                              args->columns, (unsigned long long)args->first);
    }
    if (pitch < args->columns) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              WHO ": pitch is %zu: expected at least the columns, %zu", args->pitch,
                              args->columns);
    }
    if (args->tokens > comm->max_count / (SOL_VOCAB_MAX_K + 1) ||
        (pitch != 0 && args->tokens > SIZE_MAX / 16 / pitch)) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              WHO ": size overflow: %zu tokens of %zu columns", args->tokens,
                              pitch);
    }
    return SOL_OK;
}

static sol_status_t refuse(sol_comm_t comm, const sol_vocab_args_t *args, const void *stream)
{
    sol_status_t status = sol_fused_usable(comm, WHO, stream);
    if (status != SOL_OK) {
        return status;
    }
    if (args == NULL || args->size < sizeof(*args)) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              WHO ": args %s: initialise it with SOL_VOCAB_ARGS_INIT",
                              args == NULL ? "is NULL" : "has a size that is too small");
    }
    if (!sol_fused_float(args->dtype)) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              WHO ": dtype is %s: expected float32, float16 or bfloat16",
                              sol_dtype_name(args->dtype));
    }
    status = refuse_sizes(comm, args);
    if (status != SOL_OK || args->tokens == 0) {
        return status;
    }
    if (args->logits == NULL && args->columns != 0) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, WHO ": logits is NULL");
    }
    if (args->k == 0 && args->log_sum_exp == NULL) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, WHO ": k is 0 and log_sum_exp is NULL");
    }
    return SOL_OK;
}

static uint32_t words_of(const sol_vocab_args_t *args)
{
    return sol_vocab_words(args->k, args->log_sum_exp != NULL);
}

/* ------------------------------------------------------------------- put together */

/* `tokens` of them from `first` on. scratch: one rank's messages, then all ranks'. */
static sol_status_t some_tokens(sol_comm_t comm, const sol_vocab_args_t *args, size_t first,
                                size_t tokens, uint64_t *scratch)
{
    const size_t words = words_of(args), count = tokens * words;
    uint64_t *all = scratch + count;
    unsigned mode = sol_fp_enter();
    for (size_t t = 0; t < tokens; t++) {
        sol_vocab_local(args, first + t, scratch + t * words);
    }
    sol_fp_leave(mode);
    sol_status_t status = sol_step(comm, &(sol_call_t){.func = SOL_FUNC_ALL_GATHER,
                                                       .send = scratch,
                                                       .recv = all,
                                                       .count = count,
                                                       .dtype = SOL_UINT64});
    if (status != SOL_OK) {
        return status;
    }
    mode = sol_fp_enter();
    for (size_t t = 0; t < tokens; t++) {
        sol_vocab_merge(args, first + t, all + t * words, count, comm->nranks);
    }
    sol_fp_leave(mode);
    return SOL_OK;
}

static sol_status_t run_plain(sol_comm_t comm, const sol_vocab_args_t *args)
{
    if (args->tokens == 0) {
        return sol_step(comm, &(sol_call_t){.func = SOL_FUNC_ALL_GATHER, .dtype = SOL_UINT64});
    }
    const size_t one = words_of(args) * sizeof(uint64_t) * (size_t)(comm->nranks + 1);
    size_t tokens = one < SCRATCH_BYTES ? SCRATCH_BYTES / one : 1;
    tokens = tokens < args->tokens ? tokens : args->tokens;
    uint64_t *scratch = sol_fused_scratch(comm, WHO, tokens * one);
    if (scratch == NULL) {
        return SOL_ERR_MEMORY;
    }
    sol_status_t status = SOL_OK;
    for (size_t t = 0; t < args->tokens && status == SOL_OK; t += tokens) {
        size_t left = args->tokens - t;
        status = some_tokens(comm, args, t, left < tokens ? left : tokens, scratch);
    }
    sol_free(scratch);
    return status;
}

static sol_status_t run_own(sol_comm_t comm, const sol_call_t *call, const void *args)
{
    return comm->backend->vocab_topk(comm, call, args);
}

sol_status_t sol_vocab_topk(const sol_vocab_args_t *args, sol_comm_t comm, void *stream)
{
    sol_status_t status = refuse(comm, args, stream);
    if (status != SOL_OK) {
        return status;
    }
    if (comm->backend->vocab_topk == NULL) {
        status = sol_fused_begin(comm, WHO);
        return status != SOL_OK ? status : sol_fused_end(comm, run_plain(comm, args));
    }
    sol_call_t call;
    memset(&call, 0, sizeof call);
    call.func = SOL_FUNC_ALL_GATHER;
    call.dtype = SOL_UINT64;
    call.count = args->tokens * words_of(args);
    call.send = args->logits;
    call.stream = stream;
    return sol_fused_submit(comm, WHO, &call, run_own, args);
}
