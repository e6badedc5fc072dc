/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_board.c: what is written on the board. No CUDA here:
 * the unit tests play devices with plain stores.
 */
#include "backend/cuda/cuda_board.h"

#include "core/comm.h"
#include "proto/gpu_moe.h"

#include <stdio.h>
#include <string.h>

_Static_assert(offsetof(struct sol_cuda_board, ranks) == 4096, "the head is one page");

size_t sol_cuda_board_bytes(int nranks)
{
    size_t ranks = (size_t)nranks * sizeof(struct sol_cuda_board_rank);
    return sizeof(struct sol_cuda_board) + ranks;
}

static void write_called(struct sol_cuda_called *entry, const sol_call_t *call, uint64_t number,
                         uint64_t collective)
{
    atomic_store_explicit(&entry->stamp, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* pairs with the fence in read_called */
    entry->sequence = call->sequence;
    entry->collective = collective;
    entry->count = call->count;
    entry->root = call->root;
    entry->func = (uint8_t)call->func;
    entry->dtype = (uint8_t)call->dtype;
    entry->op = (uint8_t)call->reduction.op;
    entry->premul = call->reduction.premul;
    atomic_store_explicit(&entry->stamp, number + 1, memory_order_release);
}

/* The call with this number into *call; false if it is not there (any more, or yet). */
static bool read_called(const struct sol_cuda_called *entry, uint64_t number, sol_call_t *call)
{
    if (atomic_load_explicit(&entry->stamp, memory_order_acquire) != number + 1) {
        return false;
    }
    memset(call, 0, sizeof *call);
    call->sequence = entry->sequence;
    call->count = entry->count;
    call->root = entry->root;
    call->func = (sol_func_t)entry->func;
    call->dtype = (sol_dtype_t)entry->dtype;
    call->reduction.op = (sol_redop_t)entry->op;
    call->reduction.premul = entry->premul;
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&entry->stamp, memory_order_relaxed) == number + 1;
}

void sol_cuda_board_note(struct sol_cuda_board *board, int rank, const sol_call_t *call,
                         uint64_t number, bool compare)
{
    struct sol_cuda_board_rank *mine = &board->ranks[rank];
    write_called(&mine->calls[call->sequence % SOL_CUDA_RECENT], call, call->sequence, number);
    if (number != 0 && compare) {
        write_called(&mine->collectives[number % SOL_CUDA_RECENT], call, number, number);
    }
}

bool sol_cuda_board_last(const struct sol_cuda_board *board, int rank, sol_call_t *call,
                         uint64_t *collective)
{
    const struct sol_cuda_called *calls = board->ranks[rank].calls;
    for (int attempt = 0; attempt < 4; attempt++) { /* it may be overwritten while we look */
        const struct sol_cuda_called *latest = &calls[0];
        uint64_t stamp = 0;
        for (int i = 0; i < SOL_CUDA_RECENT; i++) {
            uint64_t here = atomic_load_explicit(&calls[i].stamp, memory_order_relaxed);
            latest = here > stamp ? &calls[i] : latest;
            stamp = here > stamp ? here : stamp;
        }
        *collective = latest->collective;
        if (stamp != 0 && read_called(latest, stamp - 1, call)) {
            return true;
        }
    }
    return false;
}

static bool has_root(sol_func_t func)
{
    return func == SOL_FUNC_BROADCAST || func == SOL_FUNC_REDUCE || func == SOL_FUNC_GATHER ||
           func == SOL_FUNC_SCATTER;
}

static bool reduces(sol_func_t func)
{
    return func == SOL_FUNC_ALL_REDUCE || func == SOL_FUNC_REDUCE_SCATTER ||
           func == SOL_FUNC_REDUCE;
}

static bool same_call(const sol_call_t *a, const sol_call_t *b)
{
    if (a->func != b->func) {
        return false;
    }
    if (a->func == SOL_FUNC_BARRIER) {
        return true;
    }
    if (a->dtype != b->dtype) {
        return false;
    }
    if (a->func == SOL_FUNC_ALL_TO_ALL_V) {
        return true; /* the counts of its pairs are compared by the kernels */
    }
    return a->count == b->count && (!has_root(a->func) || a->root == b->root) &&
           (!reduces(a->func) ||
            (a->reduction.op == b->reduction.op && a->reduction.premul == b->reduction.premul));
}

bool sol_cuda_board_agrees(struct sol_cuda_board *board, int rank, int nranks, uint64_t number,
                           char *text, size_t bytes)
{
    size_t place = number % SOL_CUDA_RECENT;
    sol_call_t mine, theirs;
    /* own note first, then the others': with this fence on both sides at least one of two ranks
     * sees the other's */
    atomic_thread_fence(memory_order_seq_cst);
    if (!read_called(&board->ranks[rank].collectives[place], number, &mine)) {
        return true;
    }
    for (int r = 0; r < nranks; r++) {
        if (r == rank || !read_called(&board->ranks[r].collectives[place], number, &theirs) ||
            same_call(&mine, &theirs)) {
            continue;
        }
        char here[160], there[160];
        sol_call_describe(&mine, here, sizeof here);
        sol_call_describe(&theirs, there, sizeof there);
        snprintf(text, bytes, "ranks called different things: rank %d %s, rank %d %s", rank, here,
                 r, there);
        return false;
    }
    return true;
}

void sol_cuda_board_publish(struct sol_cuda_board *board, sol_status_t status, const char *story)
{
    uint32_t none = 0;
    if (atomic_compare_exchange_strong(&board->story_state, &none, 1)) {
        board->story_status = status;
        snprintf(board->story, sizeof board->story, "%s", story);
        atomic_store_explicit(&board->story_state, 2, memory_order_release);
    }
    atomic_store_explicit(&board->abort_word, 1, memory_order_release);
}

void sol_cuda_board_abort(struct sol_cuda_board *board, int rank)
{
    uint32_t none = 0;
    atomic_compare_exchange_strong(&board->aborted_by, &none, (uint32_t)rank + 1);
    atomic_store_explicit(&board->abort_word, 1, memory_order_release);
}

void sol_cuda_board_leave(struct sol_cuda_board *board, int rank)
{
    /* release: what it said before is there; pairs with the acquire below */
    atomic_store_explicit(&board->ranks[rank].left, 1, memory_order_release);
}

bool sol_cuda_board_left(const struct sol_cuda_board *board, int rank)
{
    return atomic_load_explicit(&board->ranks[rank].left, memory_order_acquire) != 0;
}

/* Of a kernel of the caller's (device.h). */
static sol_status_t tell_kernel(const struct sol_gpu_error *error, int rank, uint64_t timeout_ns,
                                char *text, size_t bytes)
{
    char whom[32] = "its peers";
    if (error->awaited >= 0) {
        snprintf(whom, sizeof whom, "rank %d", error->awaited);
    }
    if (error->func == SOL_GPU_WHO_TRANSFER) {
        snprintf(text, bytes,
                 "sol_transfer_await: counter %llu of rank %d stands at %llu, %llu was awaited for "
                 "%.1f s from %s",
                 (unsigned long long)error->bytes & 0xffff, rank,
                 (unsigned long long)error->bytes >> 16, (unsigned long long)error->sequence,
                 (double)timeout_ns * 1e-9, error->awaited >= 0 ? whom : "all ranks");
        return SOL_ERR_TIMEOUT;
    }
    if (error->func >= SOL_GPU_WHO_DISPATCH) {
        snprintf(text, bytes, "moe %s #%llu: rank %d waited %.1f s for %s",
                 error->func == SOL_GPU_WHO_DISPATCH ? "dispatch" : "combine",
                 (unsigned long long)error->sequence, rank, (double)timeout_ns * 1e-9, whom);
        return SOL_ERR_TIMEOUT;
    }
    snprintf(text, bytes, "a kernel: %s %llu, %s %llu: rank %d waited %.1f s for %s",
             error->func == SOL_GPU_WHO_SESSION   ? "session"
             : error->func == SOL_GPU_WHO_BARRIER ? "barrier"
                                                  : "counter",
             (unsigned long long)error->bytes,
             error->func == SOL_GPU_WHO_COUNTER ? "value" : "epoch",
             (unsigned long long)error->sequence, rank, (double)timeout_ns * 1e-9, whom);
    return SOL_ERR_TIMEOUT;
}

/* The text of a record that a device wrote. */
static sol_status_t tell(const struct sol_cuda_board *board, int rank, uint64_t timeout_ns,
                         char *text, size_t bytes)
{
    const struct sol_gpu_error *error = &board->ranks[rank].error;
    const struct sol_cuda_called *entry =
        &board->ranks[rank].calls[error->sequence % SOL_CUDA_RECENT];
    char what[200];
    sol_call_t call;
    if (error->func >= SOL_GPU_WHO_SESSION) {
        return tell_kernel(error, rank, timeout_ns, text, bytes);
    }
    if (read_called(entry, error->sequence, &call)) {
        sol_call_describe(&call, what, sizeof what);
    } else { /* captured long ago: the record alone has to do */
        snprintf(what, sizeof what, "%s #%llu (%llu bytes)", sol_func_name((sol_func_t)error->func),
                 (unsigned long long)error->sequence, (unsigned long long)error->bytes);
    }
    if (error->fault == SOL_GPU_FAULT_MISMATCH) {
        snprintf(text, bytes, "%s: rank %d expected %llu bytes, rank %d sent %llu", what, rank,
                 (unsigned long long)error->bytes, error->awaited,
                 (unsigned long long)error->detail);
        return SOL_ERR_MISMATCH;
    }
    snprintf(text, bytes, "%s: rank %d waited %.1f s for rank %d", what, rank,
             (double)timeout_ns * 1e-9, error->awaited);
    return SOL_ERR_TIMEOUT;
}

sol_status_t sol_cuda_board_status(struct sol_cuda_board *board, int nranks, uint64_t timeout_ns,
                                   char *text, size_t bytes)
{
    uint32_t state = atomic_load_explicit(&board->story_state, memory_order_acquire);
    for (int r = 0; r < nranks && state == 0; r++) {
        uint32_t fault = board->ranks[r].error.fault;
        atomic_thread_fence(memory_order_acquire); /* the rest of the record lies behind it */
        if (fault == SOL_GPU_FAULT_TIMEOUT || fault == SOL_GPU_FAULT_MISMATCH) {
            char story[SOL_CUDA_STORY];
            sol_status_t status = tell(board, r, timeout_ns, story, sizeof story);
            sol_cuda_board_publish(board, status, story);
            state = atomic_load_explicit(&board->story_state, memory_order_acquire);
        }
    }
    for (int spin = 0; state == 1 && spin < 4096; spin++) { /* being written: some 100 ns */
        sol_cpu_relax();
        state = atomic_load_explicit(&board->story_state, memory_order_acquire);
    }
    if (state == 2) {
        snprintf(text, bytes, "%.*s", SOL_CUDA_STORY - 1, board->story);
        return (sol_status_t)board->story_status;
    }
    uint32_t aborter = atomic_load_explicit(&board->aborted_by, memory_order_acquire);
    if (aborter != 0) {
        snprintf(text, bytes, "rank %u called sol_comm_abort", aborter - 1);
        return SOL_ERR_ABORTED;
    }
    if (state == 1 || atomic_load_explicit(&board->abort_word, memory_order_acquire) != 0) {
        snprintf(text, bytes, "another rank failed (it died before it could say why)");
        return SOL_ERR_PEER;
    }
    return SOL_OK;
}
