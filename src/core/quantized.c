/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantized.c: sol_all_reduce_quantized: checked here, then handed to a backend
 * with a kernel of its own for it, or put together from all_gather, all_to_all
 * and plain C (CPU ranks).
 *
 * Must never let the two ways differ in a bit.
 */
#include "coll/fpmode.h"
#include "coll/quantize.h"
#include "core/fused_call.h"

#include <string.h>

#define WHO "sol_all_reduce_quantized"
#define PIECE ((size_t)1024) /* groups at a time */

static sol_status_t refuse(sol_comm_t comm, const sol_call_t *call, sol_dtype_t wire, int steps)
{
    sol_status_t status = sol_fused_usable(comm, WHO, call->stream);
    if (status != SOL_OK) {
        return status;
    }
    if (!sol_fused_float(call->dtype)) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              WHO ": dtype is %s: expected float32, float16 or bfloat16",
                              sol_dtype_name(call->dtype));
    }
    if (wire != SOL_INT8 && wire != SOL_FLOAT8_E4M3) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              WHO ": wire is %s: expected int8 or float8_e4m3",
                              sol_dtype_name(wire));
    }
    if (steps < 0 || steps > 2) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, WHO ": steps is %d: expected 0, 1 or 2",
                              steps);
    }
    if (call->count > comm->max_count) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              WHO ": size overflow: count is %zu: expected at most %zu",
                              call->count, comm->max_count);
    }
    if (call->count > 0 && (call->send == NULL || call->recv == NULL)) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, WHO ": %s is NULL",
                              call->send == NULL ? "sendbuf" : "recvbuf");
    }
    return SOL_OK;
}

/* ------------------------------------------------------------------- put together */

/* Scratch of one call. */
typedef struct work {
    unsigned char *own, *all; /* groups: PIECE (padded to shares), and what comes of all ranks */
    float *sums;
} work_t;

static void sum_ranks(const work_t *w, size_t groups, int nranks, sol_dtype_t wire)
{
    for (int r = 0; r < nranks; r++) {
        sol_dequantise(w->sums, w->all + (size_t)r * groups * SOL_PACKED_GROUP, groups, wire,
                       r > 0);
    }
}

/* `wire`: the wire's type, so that ranks that pass another are told. */
static sol_status_t gather(sol_comm_t comm, const work_t *w, size_t bytes, sol_dtype_t wire)
{
    return sol_step(comm, &(sol_call_t){.func = SOL_FUNC_ALL_GATHER,
                                        .send = w->own,
                                        .recv = w->all,
                                        .count = bytes,
                                        .dtype = wire});
}

/* Every rank sums up everything. */
static sol_status_t one_step(sol_comm_t comm, const work_t *w, size_t groups, sol_dtype_t wire)
{
    sol_status_t status = gather(comm, w, groups * SOL_PACKED_GROUP, wire);
    if (status == SOL_OK) {
        const unsigned mode = sol_fp_enter();
        sum_ranks(w, groups, comm->nranks, wire);
        sol_fp_leave(mode);
    }
    return status;
}

/* Each rank sums up a share of `share` groups, rounds it again, and sends that. */
static sol_status_t two_steps(sol_comm_t comm, const work_t *w, size_t share, sol_dtype_t wire)
{
    const size_t bytes = share * SOL_PACKED_GROUP;
    sol_status_t status = sol_step(comm, &(sol_call_t){.func = SOL_FUNC_ALL_TO_ALL,
                                                       .send = w->own,
                                                       .recv = w->all,
                                                       .count = bytes,
                                                       .dtype = wire});
    if (status != SOL_OK) {
        return status;
    }
    unsigned mode = sol_fp_enter();
    sum_ranks(w, share, comm->nranks, wire);
    sol_quantise(w->own, w->sums, SOL_FLOAT32, share * SOL_QUANTIZED_GROUP, share, wire);
    sol_fp_leave(mode);
    status = gather(comm, w, bytes, wire);
    if (status == SOL_OK) {
        mode = sol_fp_enter();
        sol_dequantise(w->sums, w->all, share * (size_t)comm->nranks, wire, false);
        sol_fp_leave(mode);
    }
    return status;
}

static sol_status_t one_piece(sol_comm_t comm, const sol_call_t *call, sol_dtype_t wire, int steps,
                              const work_t *w, size_t first)
{
    const size_t size = sol_dtype_size(call->dtype), left = call->count - first;
    const size_t count = left < PIECE * SOL_QUANTIZED_GROUP ? left : PIECE * SOL_QUANTIZED_GROUP;
    const size_t groups = (count + SOL_QUANTIZED_GROUP - 1) / SOL_QUANTIZED_GROUP;
    const size_t n = (size_t)comm->nranks, share = (groups + n - 1) / n;
    unsigned mode = sol_fp_enter();
    sol_quantise(w->own, (const char *)call->send + first * size, call->dtype, count,
                 steps == 1 ? groups : share * n, wire);
    sol_fp_leave(mode);
    sol_status_t status =
        steps == 1 ? one_step(comm, w, groups, wire) : two_steps(comm, w, share, wire);
    if (status == SOL_OK) {
        mode = sol_fp_enter();
        sol_round_floats((char *)call->recv + first * size, w->sums, call->dtype, count);
        sol_fp_leave(mode);
    }
    return status;
}

static sol_status_t run_plain(sol_comm_t comm, const sol_call_t *call, sol_dtype_t wire, int steps)
{
    const size_t n = (size_t)comm->nranks, padded = PIECE + n;
    work_t w;
    if (call->count == 0) {
        return sol_step(comm, &(sol_call_t){.func = SOL_FUNC_ALL_REDUCE, .dtype = call->dtype});
    }
    w.own = sol_calloc(padded, SOL_PACKED_GROUP);
    w.all = sol_calloc(padded * n, SOL_PACKED_GROUP);
    w.sums = sol_calloc(padded * SOL_QUANTIZED_GROUP, sizeof(float));
    sol_status_t status = SOL_OK;
    if (w.own == NULL || w.all == NULL || w.sums == NULL) { /* the others are not to wait for it */
        status = sol_comm_fail_all(comm, SOL_ERR_MEMORY, WHO ": no memory for scratch");
        comm->backend->abort(comm);
    }
    for (size_t i = 0; i < call->count && status == SOL_OK; i += PIECE * SOL_QUANTIZED_GROUP) {
        status = one_piece(comm, call, wire, steps, &w, i);
    }
    sol_free(w.own);
    sol_free(w.all);
    sol_free(w.sums);
    return status;
}

struct how {
    sol_dtype_t wire;
    int steps;
};

static sol_status_t run_own(sol_comm_t comm, const sol_call_t *call, const void *args)
{
    const struct how *how = args;
    return comm->backend->all_reduce_quantized(comm, call, how->wire, how->steps);
}

sol_status_t sol_all_reduce_quantized(const void *sendbuf, void *recvbuf, size_t count,
                                      sol_dtype_t dtype, sol_dtype_t wire, int steps,
                                      sol_comm_t comm, void *stream)
{
    sol_call_t call;
    memset(&call, 0, sizeof(call));
    call.func = SOL_FUNC_ALL_REDUCE;
    call.dtype = dtype;
    call.count = count;
    call.send = sendbuf;
    call.recv = recvbuf;
    call.reduction.op = SOL_SUM;
    call.stream = stream;
    sol_status_t status = refuse(comm, &call, wire, steps);
    if (status != SOL_OK) {
        return status;
    }
    const struct how how = {wire, sol_quantized_steps(count, comm->nranks, steps)};
    if (comm->backend->all_reduce_quantized != NULL) {
        return sol_fused_submit(comm, WHO, &call, run_own, &how);
    }
    status = sol_fused_begin(comm, WHO);
    return status != SOL_OK ? status : sol_fused_end(comm, run_plain(comm, &call, wire, how.steps));
}
