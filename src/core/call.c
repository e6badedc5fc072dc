/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call.c: a call in words and in elements. Pure.
 */
#include "core/comm.h"

#include <stdio.h>

static const char *const func_names[SOL_FUNC_COUNT] = {
    [SOL_FUNC_ALL_REDUCE] = "all_reduce",
    [SOL_FUNC_ALL_GATHER] = "all_gather",
    [SOL_FUNC_REDUCE_SCATTER] = "reduce_scatter",
    [SOL_FUNC_BROADCAST] = "broadcast",
    [SOL_FUNC_REDUCE] = "reduce",
    [SOL_FUNC_ALL_TO_ALL] = "all_to_all",
    [SOL_FUNC_ALL_TO_ALL_V] = "all_to_all_v",
    [SOL_FUNC_GATHER] = "gather",
    [SOL_FUNC_SCATTER] = "scatter",
    [SOL_FUNC_SEND] = "send",
    [SOL_FUNC_RECV] = "recv",
    [SOL_FUNC_BARRIER] = "barrier",
};

const char *sol_func_name(sol_func_t func)
{
    return (unsigned)func < SOL_FUNC_COUNT ? func_names[func] : "invalid";
}

/* ", sum, root 3" as far as it applies. */
static void describe_details(const sol_call_t *call, char *text, size_t bytes)
{
    const char *op = call->reduction.premul ? "premul_sum" : sol_redop_name(call->reduction.op);
    switch (call->func) {
    case SOL_FUNC_ALL_REDUCE:
    case SOL_FUNC_REDUCE_SCATTER:
        snprintf(text, bytes, ", %s", op);
        break;
    case SOL_FUNC_REDUCE:
        snprintf(text, bytes, ", %s, root %d", op, call->root);
        break;
    case SOL_FUNC_BROADCAST:
    case SOL_FUNC_GATHER:
    case SOL_FUNC_SCATTER:
        snprintf(text, bytes, ", root %d", call->root);
        break;
    case SOL_FUNC_SEND:
        snprintf(text, bytes, ", to rank %d", call->root);
        break;
    case SOL_FUNC_RECV:
        snprintf(text, bytes, ", from rank %d", call->root);
        break;
    default:
        text[0] = '\0';
        break;
    }
}

void sol_call_describe(const sol_call_t *call, char *text, size_t bytes)
{
    const char *name = sol_func_name(call->func);
    unsigned long long number = call->sequence;
    char details[64];
    describe_details(call, details, sizeof(details));
    if (call->func == SOL_FUNC_BARRIER) {
        snprintf(text, bytes, "%s #%llu", name, number);
    } else if (call->func == SOL_FUNC_ALL_TO_ALL_V) {
        snprintf(text, bytes, "%s #%llu (%s, a count for each pair)", name, number,
                 sol_dtype_name(call->dtype));
    } else {
        snprintf(text, bytes, "%s #%llu (%zu x %s = %zu bytes%s)", name, number, call->count,
                 sol_dtype_name(call->dtype), call->count * sol_dtype_size(call->dtype), details);
    }
}

static size_t sum(const size_t *counts, int n)
{
    size_t total = 0;
    for (int i = 0; i < n; i++) {
        total += counts[i];
    }
    return total;
}

size_t sol_call_send_elements(const sol_call_t *call, int rank, int nranks)
{
    switch (call->func) {
    case SOL_FUNC_ALL_REDUCE:
    case SOL_FUNC_ALL_GATHER:
    case SOL_FUNC_REDUCE:
    case SOL_FUNC_GATHER:
    case SOL_FUNC_SEND:
        return call->count;
    case SOL_FUNC_REDUCE_SCATTER:
    case SOL_FUNC_ALL_TO_ALL:
        return call->count * (size_t)nranks;
    case SOL_FUNC_BROADCAST:
        return rank == call->root ? call->count : 0;
    case SOL_FUNC_SCATTER:
        return rank == call->root ? call->count * (size_t)nranks : 0;
    case SOL_FUNC_ALL_TO_ALL_V:
        return sum(call->sendcounts, nranks);
    default:
        return 0;
    }
}

size_t sol_call_recv_elements(const sol_call_t *call, int rank, int nranks)
{
    switch (call->func) {
    case SOL_FUNC_ALL_REDUCE:
    case SOL_FUNC_REDUCE_SCATTER:
    case SOL_FUNC_BROADCAST:
    case SOL_FUNC_SCATTER:
    case SOL_FUNC_RECV:
        return call->count;
    case SOL_FUNC_ALL_GATHER:
    case SOL_FUNC_ALL_TO_ALL:
        return call->count * (size_t)nranks;
    case SOL_FUNC_REDUCE:
        return rank == call->root ? call->count : 0;
    case SOL_FUNC_GATHER:
        return rank == call->root ? call->count * (size_t)nranks : 0;
    case SOL_FUNC_ALL_TO_ALL_V:
        return sum(call->recvcounts, nranks);
    default:
        return 0;
    }
}
