/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api.c: the collectives as the user calls them: check, then hand on.
 *
 * Every call of the library comes through here, so what a good call pays is a
 * few predictable branches, a call record on the stack and one indirect jump.
 * A bad call goes to refuse(), which finds out again, slowly, what was wrong,
 * and says it. The two must agree: a call that refuse() finds nothing wrong
 * with is a fault of this file.
 */
#include "core/fused_call.h"
#include "core/setup.h"
#include "core/use.h"

#include <stdio.h>

#if defined(__GNUC__)
#define HOT static inline __attribute__((always_inline))
#define COLD static __attribute__((noinline, cold))
#else
#define HOT static inline
#define COLD static
#endif

/* ------------------------------------------------------------------- refusing, slowly */

static bool has_root(sol_func_t func)
{
    return func == SOL_FUNC_BROADCAST || func == SOL_FUNC_REDUCE || func == SOL_FUNC_GATHER ||
           func == SOL_FUNC_SCATTER;
}

static bool is_point_to_point(sol_func_t func)
{
    return func == SOL_FUNC_SEND || func == SOL_FUNC_RECV;
}

static bool reduces(sol_func_t func)
{
    return func == SOL_FUNC_ALL_REDUCE || func == SOL_FUNC_REDUCE_SCATTER ||
           func == SOL_FUNC_REDUCE;
}

/* The name that the header gives a function's count. */
static const char *count_word(sol_func_t func)
{
    switch (func) {
    case SOL_FUNC_ALL_GATHER:
    case SOL_FUNC_GATHER:
        return "sendcount";
    case SOL_FUNC_REDUCE_SCATTER:
    case SOL_FUNC_SCATTER:
        return "recvcount";
    default:
        return "count";
    }
}

static sol_status_t refuse_redop(sol_comm_t comm, const sol_call_t *call, sol_redop_t op)
{
    sol_reduction_t reduction;
    const char *name = sol_func_name(call->func);
    if (!reduces(call->func) || sol_redop_resolve(comm, op, call->dtype, &reduction)) {
        return SOL_OK;
    }
    for (int dtype = 0; dtype < SOL_DTYPE_COUNT; dtype++) {
        if (sol_redop_resolve(comm, op, (sol_dtype_t)dtype, &reduction)) {
            return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                                  "sol_%s: op was made for %s but dtype is %s", name,
                                  sol_dtype_name((sol_dtype_t)dtype), sol_dtype_name(call->dtype));
        }
    }
    return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                          "sol_%s: op is %d: expected SOL_SUM (0) to SOL_AVG (%d), or a value that "
                          "sol_redop_create_premul_sum gave on this communicator",
                          name, (int)op, SOL_REDOP_COUNT - 1);
}

static sol_status_t refuse_root(sol_comm_t comm, const sol_call_t *call)
{
    const char *name = sol_func_name(call->func);
    bool two = is_point_to_point(call->func);
    if ((two || has_root(call->func)) && (unsigned)call->root >= (unsigned)comm->nranks) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_%s: %s is %d: expected 0 to %d", name,
                              two ? "peer" : "root", call->root, comm->nranks - 1);
    }
    if (two && call->root == comm->rank && sol_group_depth == 0) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "sol_%s: peer is %d, this rank itself: legal only between "
                              "sol_group_start and sol_group_end",
                              name, call->root);
    }
    return SOL_OK;
}

static sol_status_t refuse_arrays(sol_comm_t comm, const sol_call_t *call)
{
    static const char *const words[] = {"sendcounts", "senddispls", "recvcounts", "recvdispls"};
    const size_t *const arrays[] = {call->sendcounts, call->senddispls, call->recvcounts,
                                    call->recvdispls};
    for (int i = 0; i < 4; i++) {
        if (arrays[i] == NULL) {
            return sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_all_to_all_v: %s is NULL", words[i]);
        }
        for (int p = 0; p < comm->nranks; p++) {
            if (arrays[i][p] > comm->max_count) {
                return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                                      "sol_all_to_all_v: size overflow: %s[%d] is %zu: expected at "
                                      "most %zu",
                                      words[i], p, arrays[i][p], comm->max_count);
            }
        }
    }
    return SOL_OK;
}

static sol_status_t refuse_buffers(sol_comm_t comm, const sol_call_t *call)
{
    const char *name = sol_func_name(call->func);
    if (call->func == SOL_FUNC_ALL_TO_ALL_V) {
        sol_status_t status = refuse_arrays(comm, call);
        if (status != SOL_OK) {
            return status;
        }
    } else if (call->count > comm->max_count) {
        return sol_comm_error(
            comm, SOL_ERR_ARGUMENT,
            "sol_%s: size overflow: %s is %zu: expected at most %zu with %d ranks", name,
            count_word(call->func), call->count, comm->max_count, comm->nranks);
    }
    if (call->send == NULL && sol_call_send_elements(call, comm->rank, comm->nranks) > 0) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "sol_%s: sendbuf is NULL: expected a buffer, since there is "
                              "something to send",
                              name);
    }
    if (call->recv == NULL && sol_call_recv_elements(call, comm->rank, comm->nranks) > 0) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "sol_%s: recvbuf is NULL: expected a buffer, since there is "
                              "something to receive",
                              name);
    }
    if (call->func == SOL_FUNC_ALL_TO_ALL_V && call->send == call->recv && call->send != NULL) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "sol_all_to_all_v: sendbuf equals recvbuf: it cannot work in place");
    }
    return SOL_OK;
}

/* Says what is wrong with a call; it has done nothing. */
COLD sol_status_t refuse(sol_comm_t comm, const sol_call_t *call, sol_redop_t op)
{
    const char *name = sol_func_name(call->func);
    char who[32];
    snprintf(who, sizeof(who), "sol_%s", name);
    sol_status_t status = sol_comm_usable(comm, who);
    if (status != SOL_OK) {
        return sol_group_note(status);
    }
    if ((unsigned)call->dtype >= SOL_DTYPE_COUNT) {
        status = sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_%s: dtype is %d: expected 0 to %d",
                                name, (int)call->dtype, SOL_DTYPE_COUNT - 1);
    }
    status = status == SOL_OK ? refuse_redop(comm, call, op) : status;
    status = status == SOL_OK ? refuse_root(comm, call) : status;
    status = status == SOL_OK ? refuse_buffers(comm, call) : status;
    if (status == SOL_OK && call->stream != NULL && comm->blocking) {
        status =
            sol_comm_error(comm, SOL_ERR_ARGUMENT,
                           "sol_%s: stream is %p: expected NULL on CPU ranks", name, call->stream);
    }
    if (status == SOL_OK) {
        status = sol_comm_error(comm, SOL_ERR_INTERNAL, "sol_%s: refused without a reason", name);
    }
    return sol_group_note(status);
}

/* Another thread is inside. */
COLD sol_status_t refuse_entry(sol_comm_t comm, sol_func_t func)
{
    char who[32];
    snprintf(who, sizeof(who), "sol_%s", sol_func_name(func));
    return sol_use_refused(comm, who);
}

/* --------------------------------------------------------------------- the fast path */

/* Field by field: an initialiser that leaves fields out makes gcc clear the record with a string
 * instruction, which costs more than all the checks together. */
HOT void blank(sol_call_t *call, sol_func_t func, sol_dtype_t dtype, size_t count)
{
    call->func = func;
    call->dtype = dtype;
    call->count = count;
    call->send = NULL;
    call->recv = NULL;
    call->root = 0;
    call->reduction.op = SOL_SUM;
    call->reduction.premul = false;
    call->reduction.scalar_on_device = false;
    call->reduction.scalar.device = NULL;
    call->sendcounts = NULL;
    call->senddispls = NULL;
    call->recvcounts = NULL;
    call->recvdispls = NULL;
    call->stream = NULL;
    call->sequence = 0;
}

HOT bool ready(sol_comm_t comm)
{
    return comm != NULL &&
           atomic_load_explicit(&comm->magic, memory_order_relaxed) == SOL_COMM_MAGIC &&
           comm->fork_generation == sol_fork_generation &&
           atomic_load_explicit(&comm->failed, memory_order_relaxed) == 0;
}

/* What every call with a type has to pass, of a communicator that is ready. */
HOT bool plain(sol_comm_t comm, const sol_call_t *call)
{
    return (unsigned)call->dtype < SOL_DTYPE_COUNT && call->count <= comm->max_count &&
           (call->stream == NULL || !comm->blocking);
}

HOT bool buffers(const sol_call_t *call)
{
    return (call->send != NULL && call->recv != NULL) || call->count == 0;
}

HOT bool root_fits(sol_comm_t comm, const sol_call_t *call)
{
    return (unsigned)call->root < (unsigned)comm->nranks;
}

HOT bool resolve(sol_comm_t comm, sol_call_t *call, sol_redop_t op)
{
    if (SOL_LIKELY((unsigned)op < SOL_REDOP_COUNT)) {
        call->reduction.op = op;
        return true;
    }
    return sol_redop_resolve(comm, op, call->dtype, &call->reduction);
}

/* By the thread that is inside. */
HOT sol_status_t perform(sol_comm_t comm, sol_call_t *call)
{
    call->sequence = atomic_load_explicit(&comm->sequence, memory_order_relaxed) + 1;
    sol_flight_begin(comm->flight, call, comm->blocking);
    /* release: the record is there before the number; pairs with the acquire in dump.c */
    atomic_store_explicit(&comm->sequence, call->sequence, memory_order_release);
    sol_status_t status = comm->backend->run(comm, call);
    sol_flight_end(comm->flight, call->sequence, status);
    return status;
}

HOT sol_status_t submit(sol_comm_t comm, sol_call_t *call)
{
    if (SOL_UNLIKELY(sol_group_depth > 0)) {
        return sol_group_append(comm, call);
    }
    if (SOL_UNLIKELY(!sol_use_begin(comm))) {
        return refuse_entry(comm, call->func);
    }
    sol_status_t status = perform(comm, call);
    sol_use_end();
    if (SOL_UNLIKELY(status != SOL_OK)) {
        sol_dump_failed(comm);
    }
    return status;
}

sol_status_t sol_all_reduce(const void *sendbuf, void *recvbuf, size_t count, sol_dtype_t dtype,
                            sol_redop_t op, sol_comm_t comm, void *stream)
{
    sol_call_t call;
    blank(&call, SOL_FUNC_ALL_REDUCE, dtype, count);
    call.send = sendbuf;
    call.recv = recvbuf;
    call.stream = stream;
    bool good = ready(comm) && plain(comm, &call) && buffers(&call) && resolve(comm, &call, op);
    return SOL_LIKELY(good) ? submit(comm, &call) : refuse(comm, &call, op);
}

sol_status_t sol_all_gather(const void *sendbuf, void *recvbuf, size_t sendcount, sol_dtype_t dtype,
                            sol_comm_t comm, void *stream)
{
    sol_call_t call;
    blank(&call, SOL_FUNC_ALL_GATHER, dtype, sendcount);
    call.send = sendbuf;
    call.recv = recvbuf;
    call.stream = stream;
    bool good = ready(comm) && plain(comm, &call) && buffers(&call);
    return SOL_LIKELY(good) ? submit(comm, &call) : refuse(comm, &call, SOL_SUM);
}

sol_status_t sol_reduce_scatter(const void *sendbuf, void *recvbuf, size_t recvcount,
                                sol_dtype_t dtype, sol_redop_t op, sol_comm_t comm, void *stream)
{
    sol_call_t call;
    blank(&call, SOL_FUNC_REDUCE_SCATTER, dtype, recvcount);
    call.send = sendbuf;
    call.recv = recvbuf;
    call.stream = stream;
    bool good = ready(comm) && plain(comm, &call) && buffers(&call) && resolve(comm, &call, op);
    return SOL_LIKELY(good) ? submit(comm, &call) : refuse(comm, &call, op);
}

sol_status_t sol_broadcast(const void *sendbuf, void *recvbuf, size_t count, sol_dtype_t dtype,
                           int root, sol_comm_t comm, void *stream)
{
    sol_call_t call;
    blank(&call, SOL_FUNC_BROADCAST, dtype, count);
    call.send = sendbuf;
    call.recv = recvbuf;
    call.root = root;
    call.stream = stream;
    bool good = ready(comm) && plain(comm, &call) && root_fits(comm, &call) &&
                (count == 0 || (recvbuf != NULL && (sendbuf != NULL || root != comm->rank)));
    return SOL_LIKELY(good) ? submit(comm, &call) : refuse(comm, &call, SOL_SUM);
}

sol_status_t sol_reduce(const void *sendbuf, void *recvbuf, size_t count, sol_dtype_t dtype,
                        sol_redop_t op, int root, sol_comm_t comm, void *stream)
{
    sol_call_t call;
    blank(&call, SOL_FUNC_REDUCE, dtype, count);
    call.send = sendbuf;
    call.recv = recvbuf;
    call.root = root;
    call.stream = stream;
    bool good = ready(comm) && plain(comm, &call) && root_fits(comm, &call) &&
                (count == 0 || (sendbuf != NULL && (recvbuf != NULL || root != comm->rank))) &&
                resolve(comm, &call, op);
    return SOL_LIKELY(good) ? submit(comm, &call) : refuse(comm, &call, op);
}

sol_status_t sol_all_to_all(const void *sendbuf, void *recvbuf, size_t count, sol_dtype_t dtype,
                            sol_comm_t comm, void *stream)
{
    sol_call_t call;
    blank(&call, SOL_FUNC_ALL_TO_ALL, dtype, count);
    call.send = sendbuf;
    call.recv = recvbuf;
    call.stream = stream;
    bool good = ready(comm) && plain(comm, &call) && buffers(&call);
    return SOL_LIKELY(good) ? submit(comm, &call) : refuse(comm, &call, SOL_SUM);
}

/* Every entry in range, and a buffer wherever something is sent or received. */
static bool arrays_fit(sol_comm_t comm, const sol_call_t *call)
{
    if (call->sendcounts == NULL || call->senddispls == NULL || call->recvcounts == NULL ||
        call->recvdispls == NULL || (call->send == call->recv && call->send != NULL)) {
        return false;
    }
    size_t sent = 0, received = 0;
    for (int p = 0; p < comm->nranks; p++) {
        if (call->sendcounts[p] > comm->max_count || call->senddispls[p] > comm->max_count ||
            call->recvcounts[p] > comm->max_count || call->recvdispls[p] > comm->max_count) {
            return false;
        }
        sent |= call->sendcounts[p];
        received |= call->recvcounts[p];
    }
    return (sent == 0 || call->send != NULL) && (received == 0 || call->recv != NULL);
}

sol_status_t sol_all_to_all_v(const void *sendbuf, const size_t *sendcounts,
                              const size_t *senddispls, void *recvbuf, const size_t *recvcounts,
                              const size_t *recvdispls, sol_dtype_t dtype, sol_comm_t comm,
                              void *stream)
{
    sol_call_t call;
    blank(&call, SOL_FUNC_ALL_TO_ALL_V, dtype, 0);
    call.send = sendbuf;
    call.recv = recvbuf;
    call.sendcounts = sendcounts;
    call.senddispls = senddispls;
    call.recvcounts = recvcounts;
    call.recvdispls = recvdispls;
    call.stream = stream;
    bool good = ready(comm) && plain(comm, &call) && arrays_fit(comm, &call);
    return SOL_LIKELY(good) ? submit(comm, &call) : refuse(comm, &call, SOL_SUM);
}

sol_status_t sol_gather(const void *sendbuf, void *recvbuf, size_t sendcount, sol_dtype_t dtype,
                        int root, sol_comm_t comm, void *stream)
{
    sol_call_t call;
    blank(&call, SOL_FUNC_GATHER, dtype, sendcount);
    call.send = sendbuf;
    call.recv = recvbuf;
    call.root = root;
    call.stream = stream;
    bool good = ready(comm) && plain(comm, &call) && root_fits(comm, &call) &&
                (sendcount == 0 || (sendbuf != NULL && (recvbuf != NULL || root != comm->rank)));
    return SOL_LIKELY(good) ? submit(comm, &call) : refuse(comm, &call, SOL_SUM);
}

sol_status_t sol_scatter(const void *sendbuf, void *recvbuf, size_t recvcount, sol_dtype_t dtype,
                         int root, sol_comm_t comm, void *stream)
{
    sol_call_t call;
    blank(&call, SOL_FUNC_SCATTER, dtype, recvcount);
    call.send = sendbuf;
    call.recv = recvbuf;
    call.root = root;
    call.stream = stream;
    bool good = ready(comm) && plain(comm, &call) && root_fits(comm, &call) &&
                (recvcount == 0 || (recvbuf != NULL && (sendbuf != NULL || root != comm->rank)));
    return SOL_LIKELY(good) ? submit(comm, &call) : refuse(comm, &call, SOL_SUM);
}

sol_status_t sol_barrier(sol_comm_t comm, void *stream)
{
    sol_call_t call;
    blank(&call, SOL_FUNC_BARRIER, SOL_INT8, 0);
    call.stream = stream;
    bool good = ready(comm) && plain(comm, &call);
    return SOL_LIKELY(good) ? submit(comm, &call) : refuse(comm, &call, SOL_SUM);
}

/* A message to oneself can only end in a group, where the other half is collected too. */
HOT bool peer_fits(sol_comm_t comm, const sol_call_t *call)
{
    return root_fits(comm, call) && (call->root != comm->rank || sol_group_depth > 0);
}

sol_status_t sol_send(const void *sendbuf, size_t count, sol_dtype_t dtype, int peer,
                      sol_comm_t comm, void *stream)
{
    sol_call_t call;
    blank(&call, SOL_FUNC_SEND, dtype, count);
    call.send = sendbuf;
    call.root = peer;
    call.stream = stream;
    bool good = ready(comm) && plain(comm, &call) && peer_fits(comm, &call) &&
                (sendbuf != NULL || count == 0);
    return SOL_LIKELY(good) ? submit(comm, &call) : refuse(comm, &call, SOL_SUM);
}

sol_status_t sol_recv(void *recvbuf, size_t count, sol_dtype_t dtype, int peer, sol_comm_t comm,
                      void *stream)
{
    sol_call_t call;
    blank(&call, SOL_FUNC_RECV, dtype, count);
    call.recv = recvbuf;
    call.root = peer;
    call.stream = stream;
    bool good = ready(comm) && plain(comm, &call) && peer_fits(comm, &call) &&
                (recvbuf != NULL || count == 0);
    return SOL_LIKELY(good) ? submit(comm, &call) : refuse(comm, &call, SOL_SUM);
}

sol_status_t sol_step(sol_comm_t comm, sol_call_t *call)
{
    bool good = ready(comm) && plain(comm, call) &&
                (call->func == SOL_FUNC_ALL_TO_ALL_V ? arrays_fit(comm, call) : buffers(call));
    return good ? perform(comm, call) : refuse(comm, call, SOL_SUM);
}
