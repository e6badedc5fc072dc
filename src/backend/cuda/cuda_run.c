/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_run.c: from a checked call to a kernel on the caller's stream. This is
 * the path of every operation: no lock, no allocation, no wait, a handful of
 * cheap runtime calls beside the launch itself.
 *
 * A group's sends and receives become batches ("rounds") of at most one message
 * per peer and direction, one kernel each: the k-th message of a pair is in the
 * k-th round on both sides, so round k waits for rounds k alone. They go before
 * the group's collectives, on every rank, so that the two cannot wait for each
 * other.
 */
#include "backend/cuda/cuda_state.h"

#include <stdio.h>
#include <string.h>

static bool moves_nothing(const sol_call_t *call)
{
    return call->count == 0 && call->func != SOL_FUNC_BARRIER &&
           call->func != SOL_FUNC_ALL_TO_ALL_V;
}

static bool point_to_point(sol_func_t func)
{
    return func == SOL_FUNC_SEND || func == SOL_FUNC_RECV;
}

/* --------------------------------------------------------------------------- errors */

void sol_cuda_poll_error(sol_comm_t comm)
{
    struct sol_cuda *state = sol_cuda_of(comm);
    char text[SOL_CUDA_STORY];
    if (atomic_load_explicit(&comm->failed, memory_order_acquire) != 0) {
        return;
    }
    sol_status_t status =
        sol_cuda_board_status(state->board, comm->nranks, comm->timeout_ns, text, sizeof text);
    if (status == SOL_OK && state->nccl != NULL &&
        !sol_cuda_nccl_healthy(state->nccl, text, sizeof text)) {
        status = SOL_ERR_PEER;
        sol_cuda_board_publish(state->board, status, text);
    }
    if (status != SOL_OK) {
        sol_comm_fail(comm, status, "%s", text);
    }
}

void sol_cuda_abort(sol_comm_t comm)
{
    struct sol_cuda *state = sol_cuda_of(comm);
    sol_cuda_board_abort(state->board, comm->rank);
    sol_cuda_board_publish(state->board, SOL_ERR_ABORTED, comm->abort_text);
    if (state->nccl != NULL) {
        sol_cuda_nccl_abort(state->nccl);
    }
}

sol_status_t sol_cuda_still_healthy(sol_comm_t comm, const struct sol_cuda *state)
{
    const struct sol_cuda_board *board = state->board;
    if (SOL_LIKELY(atomic_load_explicit(&board->abort_word, memory_order_relaxed) == 0 &&
                   board->ranks[comm->rank].error.fault == SOL_GPU_FAULT_NONE)) {
        return SOL_OK;
    }
    sol_cuda_poll_error(comm);
    sol_status_t status = (sol_status_t)atomic_load(&comm->failed);
    return status != SOL_OK ? sol_thread_error(status, "%s", comm->fatal) : SOL_OK;
}

/* A call of CUDA's failed: on the host's side it leaves the communicator out of step. */
static sol_status_t cuda_failed(sol_comm_t comm, const sol_call_t *call, cudaError_t error)
{
    char what[160];
    sol_call_describe(call, what, sizeof what);
    cudaGetLastError();
    return sol_comm_fail(comm, SOL_ERR_DEVICE, "%s: %s (%s)", what, cudaGetErrorString(error),
                         cudaGetErrorName(error));
}

static sol_status_t check_buffers(sol_comm_t comm, struct sol_cuda *state, const sol_call_t *call)
{
    char why[256];
    const void *scalar = call->reduction.premul && call->reduction.scalar_on_device
                             ? call->reduction.scalar.device
                             : NULL;
    if (SOL_LIKELY(sol_cuda_buffer_reachable(&state->buffers, call->send, why, sizeof why) &&
                   sol_cuda_buffer_reachable(&state->buffers, call->recv, why, sizeof why) &&
                   sol_cuda_buffer_reachable(&state->buffers, scalar, why, sizeof why))) {
        return SOL_OK;
    }
    char what[160];
    sol_call_describe(call, what, sizeof what);
    return sol_comm_error(comm, SOL_ERR_ARGUMENT, "%s: %s", what, why);
}

/* Note the call on the board; with `check`, compare it with what the others have noted. */
static sol_status_t note(sol_comm_t comm, struct sol_cuda *state, const sol_call_t *call)
{
    uint64_t number = 0;
    char text[SOL_CUDA_STORY];
    if (!point_to_point(call->func)) {
        number = ++state->collectives;
    }
    sol_cuda_board_note(state->board, comm->rank, call, number, state->check);
    if (SOL_LIKELY(!state->check || number == 0) ||
        sol_cuda_board_agrees(state->board, comm->rank, comm->nranks, number, text, sizeof text)) {
        return SOL_OK;
    }
    sol_cuda_board_publish(state->board, SOL_ERR_MISMATCH, text);
    return sol_comm_fail(comm, SOL_ERR_MISMATCH, "%s", text);
}

/* ------------------------------------------------------------------------------ ops */

/* Can a protocol that somebody asks for carry this operation here? Beyond a slot only the lanes
 * can, whatever a file or the environment say. */
static bool can_carry(const struct sol_gpu_comm *gpu, const struct sol_gpu_op *op, int algorithm)
{
    struct sol_gpu_op asked = *op;
    asked.algorithm = algorithm;
    for (int i = 0; i < sol_gpu_algorithm_count; i++) {
        const struct sol_gpu_algorithm_info *info = &sol_gpu_algorithms[i];
        if (info->id == algorithm) {
            return (info->funcs >> op->func & 1) && (info->dtypes >> op->dtype & 1) &&
                   gpu->nranks >= info->min_ranks &&
                   (algorithm == SOL_GPU_LANES_ALGO ||
                    op->count * sol_dtype_size(op->dtype) <= sol_gpu_segment_bytes(gpu, &asked));
        }
    }
    return false;
}

/* What a protocol rests on beyond PTX; none of them has such a need at present. */
static unsigned needs_of(int algorithm)
{
    for (int i = 0; i < sol_gpu_algorithm_count; i++) {
        if (sol_gpu_algorithms[i].id == algorithm) {
            return sol_gpu_algorithms[i].rests_on;
        }
    }
    return 0;
}

static void take(const struct sol_gpu_comm *gpu, struct sol_gpu_op *op,
                 const struct sol_cuda_choice *choice)
{
    if (choice->algorithm != 0 && can_carry(gpu, op, choice->algorithm)) {
        op->algorithm = choice->algorithm;
    }
    op->ctas = choice->ctas != 0 ? choice->ctas : op->ctas;
    op->threads = choice->threads != 0 ? choice->threads : op->threads;
    op->vectors = choice->vectors != 0 ? choice->vectors : op->vectors;
}

void sol_cuda_make_op(const struct sol_cuda *state, const sol_call_t *call, struct sol_gpu_op *op,
                      const char **why)
{
    const struct sol_cuda_plan *plan = &state->plan;
    memset(op, 0, sizeof *op);
    op->func = call->func;
    op->dtype = call->dtype;
    op->redop = call->reduction.op;
    op->premul = call->reduction.premul;
    op->scalar_on_device = call->reduction.scalar_on_device;
    if (op->scalar_on_device) {
        op->scalar_pointer = call->reduction.scalar.device;
    } else {
        memcpy(op->scalar, call->reduction.scalar.immediate, sizeof op->scalar);
    }
    op->send = call->send;
    op->recv = call->recv;
    op->count = call->count;
    op->root = call->root;
    op->flags = state->flags;
    op->sequence = call->sequence;
    *why = "the built-in plan";
    if (plan->count != 0) {
        size_t bytes = call->count * sol_dtype_size(call->dtype);
        const struct sol_cuda_rule *rule = sol_cuda_plan_find(plan, call->func, call->dtype, bytes);
        if (rule != NULL) {
            take(&state->gpu, op, &rule->choice);
            *why = plan->file;
        }
    }
    const struct sol_cuda_choice *forced = &plan->forced;
    if (SOL_UNLIKELY(forced->algorithm | forced->ctas | forced->threads | forced->vectors)) {
        take(&state->gpu, op, forced);
        *why = "SOLCCL_CUDA_PROTOCOL, _CTAS, _THREADS or _VECTORS";
    }
    if (SOL_UNLIKELY(state->untrue != 0) && (needs_of(op->algorithm) & state->untrue)) {
        op->algorithm = SOL_GPU_AUTO; /* which takes none that has needs */
        *why = "the built-in plan, since what that protocol rests on has failed here";
    }
}

/* All_to_all_v: one message each way with every peer, empty ones too: those carry the token that
 * keeps the pair in step, and their lengths are compared. */
static void pair_messages(const struct sol_cuda *state, const sol_call_t *call,
                          struct sol_gpu_messages *messages)
{
    size_t element = sol_dtype_size(call->dtype);
    memset(messages, 0, sizeof *messages);
    for (int p = 0; p < state->nranks; p++) {
        messages->send[p] = (const char *)call->send + call->senddispls[p] * element;
        messages->recv[p] = (char *)call->recv + call->recvdispls[p] * element;
        messages->send_bytes[p] = call->sendcounts[p] * element;
        messages->recv_bytes[p] = call->recvcounts[p] * element;
        messages->send_mask |= 1u << p;
        messages->recv_mask |= 1u << p;
    }
}

/* Launch without ordering: the caller has begun a turn. */
static cudaError_t launch(struct sol_cuda *state, const sol_call_t *call)
{
    struct sol_gpu_op op;
    const char *why;
    sol_cuda_make_op(state, call, &op, &why);
    cudaStream_t stream = (cudaStream_t)call->stream;
    if (call->func != SOL_FUNC_ALL_TO_ALL_V) {
        return sol_gpu_launch(&state->gpu, &op, stream);
    }
    struct sol_gpu_messages messages;
    pair_messages(state, call, &messages);
    return sol_gpu_exchange(&state->gpu, &op, &messages, stream);
}

/* The operation's turn on its stream; the flight recorder hears of a capture. */
static cudaError_t begin_turn(sol_comm_t comm, struct sol_cuda *state, const sol_call_t *call,
                              cudaStream_t stream, struct sol_cuda_turn *turn)
{
    cudaError_t error = sol_cuda_order_begin(&state->order, stream, turn);
    if (error == cudaSuccess && turn->capture != NULL) {
        sol_flight_captured(comm->flight, call->sequence);
    }
    return error;
}

bool sol_cuda_for_nccl(const struct sol_cuda *state, const sol_call_t *call)
{
    if (!state->p2p) {
        return true;
    }
    return sol_cuda_handover_wants(&state->handover, call->func,
                                   call->count * sol_dtype_size(call->dtype));
}

/* In turn with our own kernels, even on another stream: each side's may fill the device and wait
 * for a peer that has begun with the other's. */
static sol_status_t run_through_nccl(sol_comm_t comm, struct sol_cuda *state,
                                     const sol_call_t *call)
{
    struct sol_cuda_turn turn;
    cudaStream_t stream = (cudaStream_t)call->stream;
    cudaError_t error = state->p2p ? begin_turn(comm, state, call, stream, &turn) : cudaSuccess;
    if (error != cudaSuccess) {
        return cuda_failed(comm, call, error);
    }
    sol_status_t status = sol_cuda_nccl_run(state->nccl, call, 1);
    if (status != SOL_OK) {
        return sol_comm_fail(comm, status, "%s", sol_thread_error_text());
    }
    error = state->p2p ? sol_cuda_order_end(&state->order, stream, &turn) : cudaSuccess;
    return error == cudaSuccess ? SOL_OK : cuda_failed(comm, call, error);
}

static sol_status_t run_collective(sol_comm_t comm, struct sol_cuda *state, const sol_call_t *call)
{
    struct sol_cuda_turn turn;
    cudaStream_t stream = (cudaStream_t)call->stream;
    if (SOL_UNLIKELY(sol_cuda_for_nccl(state, call))) {
        return run_through_nccl(comm, state, call);
    }
    cudaError_t error = begin_turn(comm, state, call, stream, &turn);
    error = error != cudaSuccess ? error : launch(state, call);
    error = error != cudaSuccess ? error : sol_cuda_order_end(&state->order, stream, &turn);
    return SOL_LIKELY(error == cudaSuccess) ? SOL_OK : cuda_failed(comm, call, error);
}

/* --------------------------------------------------------------- sends and receives */

struct round {
    struct sol_gpu_messages messages;
    const sol_call_t *first; /* gives stream, sequence, and the name in texts */
};

static unsigned *mask_of(struct round *round, sol_func_t func)
{
    return func == SOL_FUNC_SEND ? &round->messages.send_mask : &round->messages.recv_mask;
}

static void add_message(struct round *round, const sol_call_t *call)
{
    struct sol_gpu_messages *messages = &round->messages;
    size_t bytes = call->count * sol_dtype_size(call->dtype);
    if (call->func == SOL_FUNC_SEND) {
        messages->send[call->root] = call->send;
        messages->send_bytes[call->root] = bytes;
    } else {
        messages->recv[call->root] = call->recv;
        messages->recv_bytes[call->root] = bytes;
    }
    *mask_of(round, call->func) |= 1u << call->root;
    if (round->first == NULL) {
        round->first = call;
    }
}

/* The `wanted`-th message (from 0) of each peer and direction among the calls. False: there is
 * none, and no later one either. */
static bool fill_round(struct round *round, const sol_call_t *calls, size_t ncalls, unsigned wanted)
{
    unsigned seen[2][SOL_GPU_MAX_RANKS];
    memset(seen, 0, sizeof seen);
    memset(round, 0, sizeof *round);
    for (size_t i = 0; i < ncalls; i++) {
        const sol_call_t *call = &calls[i];
        if (point_to_point(call->func) &&
            seen[call->func == SOL_FUNC_RECV][call->root]++ == wanted) {
            add_message(round, call);
        }
    }
    return round->first != NULL;
}

static cudaError_t launch_round(struct sol_cuda *state, const struct round *round,
                                cudaStream_t stream)
{
    struct sol_gpu_op op;
    memset(&op, 0, sizeof op);
    op.func = round->first->func;
    op.dtype = round->first->dtype;
    op.flags = state->flags;
    op.sequence = round->first->sequence;
    return sol_gpu_exchange(&state->gpu, &op, &round->messages, stream);
}

/* Order `stream` behind (`before`) or in front of the other streams that messages are on. */
static cudaError_t join_streams(struct sol_cuda *state, const sol_call_t *calls, size_t ncalls,
                                cudaStream_t stream, bool before)
{
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i < ncalls && error == cudaSuccess; i++) {
        cudaStream_t other = (cudaStream_t)calls[i].stream;
        if (point_to_point(calls[i].func) && other != stream) {
            error = before ? sol_cuda_order_after(&state->order, stream, other)
                           : sol_cuda_order_after(&state->order, other, stream);
        }
    }
    return error;
}

/* All sends and receives among `calls`, on the stream of the first. */
static cudaError_t run_messages(sol_comm_t comm, struct sol_cuda *state, const sol_call_t *calls,
                                size_t ncalls)
{
    struct round round;
    struct sol_cuda_turn turn;
    if (!fill_round(&round, calls, ncalls, 0)) {
        return cudaSuccess;
    }
    cudaStream_t stream = (cudaStream_t)round.first->stream;
    cudaError_t error = join_streams(state, calls, ncalls, stream, true);
    error = error != cudaSuccess ? error : begin_turn(comm, state, round.first, stream, &turn);
    for (unsigned k = 1; error == cudaSuccess; k++) {
        error = launch_round(state, &round, stream);
        if (!fill_round(&round, calls, ncalls, k)) {
            break;
        }
    }
    error = error != cudaSuccess ? error : sol_cuda_order_end(&state->order, stream, &turn);
    return error != cudaSuccess ? error : join_streams(state, calls, ncalls, stream, false);
}

/* A message to oneself needs both ends in the group. */
static sol_status_t check_self(sol_comm_t comm, const sol_call_t *calls, size_t ncalls)
{
    size_t sends = 0, recvs = 0;
    for (size_t i = 0; i < ncalls; i++) {
        if (calls[i].root == comm->rank) {
            sends += calls[i].func == SOL_FUNC_SEND;
            recvs += calls[i].func == SOL_FUNC_RECV;
        }
    }
    return sends == recvs
               ? SOL_OK
               : sol_comm_error(comm, SOL_ERR_ARGUMENT,
                                "rank %d sends itself %zu messages and receives %zu in this group",
                                comm->rank, sends, recvs);
}

/* ----------------------------------------------------------------------- the doors */

/* What is checked before anything is enqueued. */
static sol_status_t prepare(sol_comm_t comm, struct sol_cuda *state, const sol_call_t *call)
{
    sol_status_t status = check_buffers(comm, state, call);
    return status == SOL_OK ? note(comm, state, call) : status;
}

static sol_status_t enqueue(sol_comm_t comm, struct sol_cuda *state, const sol_call_t *calls,
                            size_t ncalls)
{
    if (!state->p2p) {
        sol_status_t status = sol_cuda_nccl_run(state->nccl, calls, ncalls);
        return status == SOL_OK ? SOL_OK
                                : sol_comm_fail(comm, status, "%s", sol_thread_error_text());
    }
    cudaError_t error = run_messages(comm, state, calls, ncalls);
    if (error != cudaSuccess) {
        return cuda_failed(comm, &calls[0], error);
    }
    sol_status_t status = SOL_OK;
    for (size_t i = 0; i < ncalls && status == SOL_OK; i++) {
        if (!point_to_point(calls[i].func) && !moves_nothing(&calls[i])) {
            status = run_collective(comm, state, &calls[i]);
        }
    }
    return status;
}

sol_status_t sol_cuda_run(sol_comm_t comm, const sol_call_t *call)
{
    struct sol_cuda *state = sol_cuda_of(comm);
    struct sol_cuda_device_scope scope;
    sol_status_t status = sol_cuda_still_healthy(comm, state);
    if (status != SOL_OK) {
        return status;
    }
    cudaError_t error = sol_cuda_enter(state->device, &scope);
    if (error != cudaSuccess) {
        return cuda_failed(comm, call, error);
    }
    status = prepare(comm, state, call);
    if (SOL_LIKELY(status == SOL_OK && !point_to_point(call->func))) {
        if (!moves_nothing(call)) {
            status = run_collective(comm, state, call);
        }
    } else if (status == SOL_OK) {
        status = check_self(comm, call, 1);
        status = status == SOL_OK ? enqueue(comm, state, call, 1) : status;
    }
    sol_cuda_leave(&scope);
    return status;
}

static sol_status_t check_memory(sol_comm_t comm, struct sol_cuda *state, const sol_call_t *call,
                                 const void *const *memory, size_t nmemory)
{
    char why[256], what[160];
    for (size_t i = 0; i < nmemory; i++) {
        if (SOL_UNLIKELY(!sol_cuda_buffer_reachable(&state->buffers, memory[i], why, sizeof why))) {
            sol_call_describe(call, what, sizeof what);
            return sol_comm_error(comm, SOL_ERR_ARGUMENT, "%s: %s", what, why);
        }
    }
    return SOL_OK;
}

sol_status_t sol_cuda_run_with(sol_comm_t comm, const sol_call_t *call, const void *const *memory,
                               size_t nmemory, sol_cuda_launch enqueue_own, const void *work)
{
    struct sol_cuda *state = sol_cuda_of(comm);
    struct sol_cuda_device_scope scope;
    struct sol_cuda_turn turn;
    cudaStream_t stream = (cudaStream_t)call->stream;
    sol_status_t status = sol_cuda_still_healthy(comm, state);
    if (status != SOL_OK) {
        return status;
    }
    cudaError_t error = sol_cuda_enter(state->device, &scope);
    if (error != cudaSuccess) {
        return cuda_failed(comm, call, error);
    }
    status = check_memory(comm, state, call, memory, nmemory);
    status = status == SOL_OK ? prepare(comm, state, call) : status;
    if (status == SOL_OK && !moves_nothing(call)) {
        error = sol_cuda_order_begin(&state->order, stream, &turn);
        error = error != cudaSuccess ? error : enqueue_own(state, call, work);
        error = error != cudaSuccess ? error : sol_cuda_order_end(&state->order, stream, &turn);
        status = error == cudaSuccess ? SOL_OK : cuda_failed(comm, call, error);
    }
    sol_cuda_leave(&scope);
    return status;
}

sol_status_t sol_cuda_run_group(sol_comm_t comm, const sol_call_t *calls, size_t ncalls)
{
    struct sol_cuda *state = sol_cuda_of(comm);
    struct sol_cuda_device_scope scope;
    sol_status_t status = sol_cuda_still_healthy(comm, state);
    status = status == SOL_OK ? check_self(comm, calls, ncalls) : status;
    if (status != SOL_OK || ncalls == 0) {
        return status;
    }
    cudaError_t error = sol_cuda_enter(state->device, &scope);
    if (error != cudaSuccess) {
        return cuda_failed(comm, &calls[0], error);
    }
    for (size_t i = 0; i < ncalls && status == SOL_OK; i++) {
        status = check_buffers(comm, state, &calls[i]); /* of all, before anything is done */
    }
    for (size_t i = 0; i < ncalls && status == SOL_OK; i++) {
        status = note(comm, state, &calls[i]);
    }
    status = status == SOL_OK ? enqueue(comm, state, calls, ncalls) : status;
    sol_cuda_leave(&scope);
    return status;
}
