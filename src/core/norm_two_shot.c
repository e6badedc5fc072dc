/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_two_shot.c: see norm_two_shot.h.
 *
 *     rows to their owners | add up in rank order, norm | finished rows to all
 *
 * A window at a time: some rows of each owner, so that the memory for them stays
 * small. Input rows of a window are sent before anything of it is written, so outputs
 * may lie where the input does.
 *
 * Must never let the bits differ from those of one hop: the same sums in the same
 * order, the same sol_norm_row.
 */
#include "core/norm_two_shot.h"

#include "coll/fpmode.h"
#include "coll/norm.h"
#include "core/fused_call.h"

#include <string.h>

#define WHO "sol_all_reduce_norm"
#define WINDOW_BYTES ((size_t)256 << 10) /* of each source's rows; at least one row */

struct two_shot {
    sol_comm_t comm;
    const sol_norm_args_t *args;
    size_t first[SOL_MAX_RANKS], rows[SOL_MAX_RANKS]; /* of each owner, in this window */
    size_t local;                                     /* own rows before this window */
    char *received;                                   /* contributions, or rows on their way out */
    float *sums;                                      /* two rows */
};

static void open_window(struct two_shot *w, size_t from, size_t step)
{
    const int n = w->comm->nranks;
    w->local = from;
    for (int p = 0; p < n; p++) {
        const size_t first = sol_norm_first_token(w->args->tokens, n, p);
        const size_t all = sol_norm_first_token(w->args->tokens, n, p + 1) - first;
        const size_t left = all > from ? all - from : 0;
        w->first[p] = first + from;
        w->rows[p] = left < step ? left : step;
    }
}

static size_t own_rows(const struct two_shot *w)
{
    return w->rows[w->comm->rank];
}

/* Every rank's rows of the window to their owners: to `received`, rank by rank. */
static sol_status_t gather_input(struct two_shot *w)
{
    const size_t hidden = w->args->hidden, mine = own_rows(w);
    size_t sendcounts[SOL_MAX_RANKS], senddispls[SOL_MAX_RANKS], recvcounts[SOL_MAX_RANKS],
        recvdispls[SOL_MAX_RANKS];
    for (int p = 0; p < w->comm->nranks; p++) {
        sendcounts[p] = w->rows[p] * hidden;
        senddispls[p] = w->first[p] * hidden;
        recvcounts[p] = mine * hidden;
        recvdispls[p] = (size_t)p * mine * hidden;
    }
    return sol_step(w->comm, &(sol_call_t){.func = SOL_FUNC_ALL_TO_ALL_V,
                                           .send = w->args->input,
                                           .recv = w->received,
                                           .dtype = w->args->dtype,
                                           .sendcounts = sendcounts,
                                           .senddispls = senddispls,
                                           .recvcounts = recvcounts,
                                           .recvdispls = recvdispls});
}

/* One own row, of which all contributions are there. */
static void finish_row(struct two_shot *w, size_t row)
{
    const sol_norm_args_t *args = w->args;
    const size_t bytes = args->hidden * sol_dtype_size(args->dtype);
    const size_t own = w->local + row, all = w->first[w->comm->rank] + row;
    const char *contributions[SOL_MAX_RANKS];
    for (int r = 0; r < w->comm->nranks; r++) {
        contributions[r] = w->received + ((size_t)r * own_rows(w) + row) * bytes;
    }
    sol_norm_finish_row(args, contributions, w->comm->nranks,
                        args->shards & SOL_NORM_SHARD_RESIDUAL ? own : all,
                        args->shards & SOL_NORM_SHARD_OUTPUT ? own : all, w->sums);
}

/* Own rows of `matrix`, with rows of `bytes`, to all, theirs here. */
static sol_status_t share(struct two_shot *w, void *matrix, size_t bytes)
{
    const size_t mine = own_rows(w) * bytes;
    const int rank = w->comm->rank;
    size_t sendcounts[SOL_MAX_RANKS], senddispls[SOL_MAX_RANKS], recvcounts[SOL_MAX_RANKS],
        recvdispls[SOL_MAX_RANKS];
    if (matrix == NULL || bytes == 0) {
        return SOL_OK;
    }
    for (int p = 0; p < w->comm->nranks; p++) {
        sendcounts[p] = p == rank ? 0 : mine;
        senddispls[p] = 0;
        recvcounts[p] = p == rank ? 0 : w->rows[p] * bytes;
        recvdispls[p] = w->first[p] * bytes;
    }
    memcpy(w->received, (char *)matrix + w->first[rank] * bytes, mine);
    return sol_step(w->comm, &(sol_call_t){.func = SOL_FUNC_ALL_TO_ALL_V,
                                           .send = w->received,
                                           .recv = matrix,
                                           .dtype = SOL_UINT8,
                                           .sendcounts = sendcounts,
                                           .senddispls = senddispls,
                                           .recvcounts = recvcounts,
                                           .recvdispls = recvdispls});
}

static sol_status_t run_window(struct two_shot *w)
{
    const sol_norm_args_t *args = w->args;
    sol_status_t status = gather_input(w);
    if (status != SOL_OK) {
        return status;
    }
    const unsigned mode = sol_fp_enter();
    for (size_t row = 0; row < own_rows(w); row++) {
        finish_row(w, row);
    }
    sol_fp_leave(mode);
    if (!(args->shards & SOL_NORM_SHARD_OUTPUT)) {
        status = share(w, args->output, args->hidden * sol_dtype_size(args->output_dtype));
        if (status == SOL_OK) {
            status = share(w, args->scales, sol_norm_scales(args) * sizeof(float));
        }
    }
    if (status == SOL_OK && !(args->shards & SOL_NORM_SHARD_RESIDUAL)) {
        status = share(w, args->residual_out, args->hidden * sol_dtype_size(args->dtype));
    }
    return status;
}

sol_status_t sol_norm_two_shot(sol_comm_t comm, const sol_norm_args_t *args)
{
    const size_t n = (size_t)comm->nranks, row = args->hidden * sizeof(float);
    if (args->tokens == 0 || args->hidden == 0) {
        return sol_step(comm, &(sol_call_t){.func = SOL_FUNC_ALL_REDUCE, .dtype = SOL_FLOAT32});
    }
    const size_t most = (args->tokens + n - 1) / n; /* rows of an owner */
    size_t step = row < WINDOW_BYTES ? WINDOW_BYTES / row : 1;
    step = step < most ? step : most;
    /* a finished row with its scales is never larger than one of fp32 and a scale */
    const size_t room = n * step * (row + sizeof(float));
    char *scratch = sol_fused_scratch(comm, WHO, room + 2 * row);
    if (scratch == NULL) {
        return SOL_ERR_MEMORY;
    }
    struct two_shot w = {.comm = comm, .args = args, .received = scratch + 2 * row};
    w.sums = (float *)(void *)scratch;
    sol_status_t status = SOL_OK;
    for (size_t from = 0; from < most && status == SOL_OK; from += step) {
        open_window(&w, from, step);
        status = run_window(&w);
    }
    sol_free(scratch);
    return status;
}
