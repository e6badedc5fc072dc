/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fused.c: the calls of solccl/fused.h: checked here, then handed to a backend
 * that has a kernel of its own for them, or put together from its all_reduce and
 * a norm in plain C (CPU ranks).
 *
 * Must never let the two ways differ in a bit.
 */
#include "coll/fpmode.h"
#include "coll/norm.h"
#include "core/fused_call.h"
#include "core/norm_halves.h"
#include "core/norm_two_shot.h"
#include "core/setup.h"

#include <stddef.h>
#include <string.h>

#define WHO "sol_all_reduce_norm"
#define SCRATCH_BYTES ((size_t)256 << 10) /* of sums in fp32, or one row */

static sol_status_t refuse_types(sol_comm_t comm, const sol_norm_args_t *args, const char *who)
{
    const bool small = sol_norm_quantised(args->output_dtype);
    if (!sol_fused_float(args->dtype)) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "%s: dtype is %s: expected float32, float16 or bfloat16", who,
                              sol_dtype_name(args->dtype));
    }
    if ((unsigned)args->norm > SOL_NORM_LAYER) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "%s: norm is %d: expected 0 or 1", who,
                              (int)args->norm);
    }
    if ((unsigned)args->quant > SOL_QUANT_GROUP_POW2) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "%s: quant is %d: expected 0 to 4", who,
                              (int)args->quant);
    }
    if (args->quant == SOL_QUANT_NONE ? !sol_fused_float(args->output_dtype) : !small) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "%s: output_dtype is %s: expected %s with quant %d", who,
                              sol_dtype_name(args->output_dtype),
                              args->quant == SOL_QUANT_NONE ? "float32, float16 or bfloat16"
                                                            : "float8_e4m3, float8_e5m2 or int8",
                              (int)args->quant);
    }
    if ((unsigned)args->form > SOL_NORM_ANY || args->shards > 3u) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "%s: form is %d, shards are %u: expected 0 to 2, 0 to 3", who,
                              (int)args->form, args->shards);
    }
    if (args->shards != 0 && args->form == SOL_NORM_ONE_SHOT) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "%s: shards are %u: expected 0 with SOL_NORM_ONE_SHOT", who,
                              args->shards);
    }
    if (!(args->epsilon >= 0.0f)) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "%s: epsilon is %g: expected 0 or more", who,
                              (double)args->epsilon);
    }
    return SOL_OK;
}

static sol_status_t refuse_buffers(sol_comm_t comm, const sol_norm_args_t *args, const char *who)
{
    const char *missing = NULL;
    if (args->tokens == 0 || args->hidden == 0) {
        return SOL_OK;
    }
    if (args->tokens > comm->max_count / args->hidden ||
        args->tokens > SIZE_MAX / 16 / args->hidden) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "%s: size overflow: %zu tokens of %zu elements", who, args->tokens,
                              args->hidden);
    }
    const size_t first = sol_norm_first_token(args->tokens, comm->nranks, comm->rank);
    const bool nothing = (args->shards & SOL_NORM_SHARD_OUTPUT) &&
                         first == sol_norm_first_token(args->tokens, comm->nranks, comm->rank + 1);
    missing = args->input == NULL                                             ? "input"
              : args->output == NULL && !nothing                              ? "output"
              : args->quant == SOL_QUANT_STATIC && args->static_scale == NULL ? "static_scale"
                                                                              : NULL;
    if (args->quant >= SOL_QUANT_TOKEN && args->scales == NULL && !nothing) {
        missing = "scales";
    }
    return missing == NULL ? SOL_OK
                           : sol_comm_error(comm, SOL_ERR_ARGUMENT, "%s: %s is NULL", who, missing);
}

sol_status_t sol_norm_refuse(sol_comm_t comm, const sol_norm_args_t *args, const char *who,
                             const void *stream)
{
    sol_status_t status = sol_fused_usable(comm, who, stream);
    if (status != SOL_OK) {
        return status;
    }
    if (args == NULL || args->size < offsetof(sol_norm_args_t, form)) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "%s: args %s: initialise it with SOL_NORM_ARGS_INIT", who,
                              args == NULL ? "is NULL" : "has a size that is too small");
    }
    return SOL_OK;
}

void sol_norm_take(sol_norm_args_t *mine, const sol_norm_args_t *args)
{
    const size_t known = args->size < sizeof(*mine) ? args->size : sizeof(*mine);
    memset(mine, 0, sizeof(*mine));
    memcpy(mine, args, known);
}

sol_status_t sol_norm_check(sol_comm_t comm, const sol_norm_args_t *args, const char *who)
{
    sol_status_t status = refuse_types(comm, args, who);
    return status == SOL_OK ? refuse_buffers(comm, args, who) : status;
}

/* ------------------------------------------------------------------- put together */

/* `rows` tokens from `first` on. */
static sol_status_t some_rows(sol_comm_t comm, const sol_norm_args_t *args, size_t first,
                              size_t rows, float *scratch)
{
    const size_t count = rows * args->hidden, size = sol_dtype_size(args->dtype);
    sol_norm_widen(scratch, (const char *)args->input + first * args->hidden * size, args->dtype,
                   count);
    sol_status_t status = sol_step(comm, &(sol_call_t){.func = SOL_FUNC_ALL_REDUCE,
                                                       .send = scratch,
                                                       .recv = scratch,
                                                       .count = count,
                                                       .dtype = SOL_FLOAT32});
    if (status != SOL_OK) {
        return status;
    }
    const unsigned mode = sol_fp_enter();
    for (size_t t = 0; t < rows; t++) {
        sol_norm_row(args, first + t, scratch + t * args->hidden);
    }
    sol_fp_leave(mode);
    return SOL_OK;
}

/* The sums travel as fp32: rounded to dtype before the residual is added they would be others. */
static sol_status_t run_plain(sol_comm_t comm, const sol_norm_args_t *args)
{
    const size_t row = args->hidden * sizeof(float);
    if (args->tokens == 0 || args->hidden == 0) {
        return sol_step(comm, &(sol_call_t){.func = SOL_FUNC_ALL_REDUCE, .dtype = SOL_FLOAT32});
    }
    size_t rows = row < SCRATCH_BYTES ? SCRATCH_BYTES / row : 1;
    rows = rows < args->tokens ? rows : args->tokens;
    float *scratch = sol_fused_scratch(comm, WHO, rows * row);
    if (scratch == NULL) {
        return SOL_ERR_MEMORY;
    }
    sol_status_t status = SOL_OK;
    for (size_t t = 0; t < args->tokens && status == SOL_OK; t += rows) {
        size_t left = args->tokens - t;
        status = some_rows(comm, args, t, left < rows ? left : rows, scratch);
    }
    sol_free(scratch);
    return status;
}

static sol_status_t run_own(sol_comm_t comm, const sol_call_t *call, const void *args)
{
    return comm->backend->all_reduce_norm(comm, call, args);
}

sol_status_t sol_all_reduce_norm(const sol_norm_args_t *given, sol_comm_t comm, void *stream)
{
    sol_norm_args_t args;
    sol_status_t status = sol_norm_refuse(comm, given, WHO, stream);
    if (status != SOL_OK) {
        return status;
    }
    sol_norm_take(&args, given);
    status = sol_norm_check(comm, &args, WHO);
    if (status != SOL_OK) {
        return status;
    }
    if (comm->backend->all_reduce_norm == NULL) {
        /* (without shards both forms give the same; one is enough where messages are copies) */
        const bool two = args.form == SOL_NORM_TWO_SHOT || args.shards != 0;
        status = sol_fused_begin(comm, WHO);
        return status != SOL_OK ? status
                                : sol_fused_end(comm, two ? sol_norm_two_shot(comm, &args)
                                                          : run_plain(comm, &args));
    }
    sol_call_t call;
    memset(&call, 0, sizeof call);
    call.func = SOL_FUNC_ALL_REDUCE;
    call.dtype = args.dtype;
    call.count = args.tokens * args.hidden;
    call.send = args.input;
    call.recv = args.output;
    call.reduction.op = SOL_SUM;
    call.stream = stream;
    return sol_fused_submit(comm, WHO, &call, run_own, &args);
}
