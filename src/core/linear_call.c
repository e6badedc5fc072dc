/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear_call.c: sol_linear_all_reduce of solccl/fused.h: checked here, then handed to a
 * backend that has a kernel for it, or put together from plain C and an all_reduce (CPU
 * ranks).
 *
 * Must never let the two ways differ in a bit.
 */
#include "coll/fpmode.h"
#include "coll/linear.h"
#include "core/fused_call.h"
#include "core/setup.h"

#include <string.h>

#define WHO "sol_linear_all_reduce"

static sol_status_t refuse_sizes(sol_comm_t comm, const sol_linear_args_t *args)
{
    const size_t most = SIZE_MAX / 64;
    if (args->tokens > SOL_LINEAR_MAX_TOKENS) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, WHO ": tokens is %zu: expected 0 to %d",
                              args->tokens, SOL_LINEAR_MAX_TOKENS);
    }
    if (args->weight_dtype != SOL_BFLOAT16 && args->weight_dtype != SOL_FLOAT8_E4M3 &&
        args->weight_dtype != SOL_FLOAT8_E5M2) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              WHO ": weight_dtype is %s: expected bfloat16, float8_e4m3 or "
                                  "float8_e5m2",
                              sol_dtype_name(args->weight_dtype));
    }
    if (args->inputs > UINT32_MAX / 4 || args->outputs > UINT32_MAX / 4 ||
        args->outputs > comm->max_count / (SOL_LINEAR_MAX_TOKENS + 1) ||
        (args->inputs != 0 && args->outputs > most / args->inputs)) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, WHO ": size overflow: %zu x %zu weights",
                              args->outputs, args->inputs);
    }
    return SOL_OK;
}

static sol_status_t refuse(sol_comm_t comm, const sol_linear_args_t *args, const void *stream)
{
    sol_status_t status = sol_fused_usable(comm, WHO, stream);
    if (status != SOL_OK) {
        return status;
    }
    if (args == NULL || args->size < sizeof(*args)) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              WHO ": args %s: initialise it with SOL_LINEAR_ARGS_INIT",
                              args == NULL ? "is NULL" : "has a size that is too small");
    }
    status = refuse_sizes(comm, args);
    if (status != SOL_OK || args->tokens == 0 || args->outputs == 0) {
        return status;
    }
    const char *missing = args->output == NULL                        ? "output"
                          : args->inputs != 0 && args->input == NULL  ? "input"
                          : args->inputs != 0 && args->weight == NULL ? "weight"
                                                                      : NULL;
    return missing == NULL ? SOL_OK
                           : sol_comm_error(comm, SOL_ERR_ARGUMENT, WHO ": %s is NULL", missing);
}

static sol_status_t run_plain(sol_comm_t comm, const sol_linear_args_t *args)
{
    const size_t count = args->tokens * args->outputs;
    if (count == 0) {
        return sol_step(comm, &(sol_call_t){.func = SOL_FUNC_ALL_REDUCE, .dtype = SOL_BFLOAT16});
    }
    const size_t scratch = sol_linear_scratch(args) * sizeof(float);
    char *memory = sol_fused_scratch(comm, WHO, scratch + count * 2);
    if (memory == NULL) {
        return SOL_ERR_MEMORY;
    }
    const unsigned mode = sol_fp_enter();
    sol_linear_product(args, memory + scratch, (float *)(void *)memory, false);
    sol_fp_leave(mode);
    sol_status_t status = sol_step(comm, &(sol_call_t){.func = SOL_FUNC_ALL_REDUCE,
                                                       .send = memory + scratch,
                                                       .recv = args->output,
                                                       .count = count,
                                                       .dtype = SOL_BFLOAT16});
    sol_free(memory);
    return status;
}

static sol_status_t run_own(sol_comm_t comm, const sol_call_t *call, const void *args)
{
    return comm->backend->linear_all_reduce(comm, call, args);
}

sol_status_t sol_linear_all_reduce(const sol_linear_args_t *args, sol_comm_t comm, void *stream)
{
    sol_status_t status = refuse(comm, args, stream);
    if (status != SOL_OK) {
        return status;
    }
    if (comm->backend->linear_all_reduce == NULL) {
        status = sol_fused_begin(comm, WHO);
        return status != SOL_OK ? status : sol_fused_end(comm, run_plain(comm, args));
    }
    sol_call_t call;
    memset(&call, 0, sizeof call);
    call.func = SOL_FUNC_ALL_REDUCE;
    call.dtype = SOL_BFLOAT16;
    call.count = args->tokens * args->outputs;
    call.send = args->input;
    call.recv = args->output;
    call.reduction.op = SOL_SUM;
    call.stream = stream;
    return sol_fused_submit(comm, WHO, &call, run_own, args);
}
