/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dropin_calls.c: the collectives and premultiplied sums. Each decides, takes or
 * passes, and nothing else: this is the path of every operation.
 *
 * The decision uses only what all ranks call alike (dropin.h). An error of a call
 * that was taken is the call's result; it is not tried again with NCCL, since
 * the other ranks would not.
 */
#include "dropin/nccl/dropin.h"

#include <string.h>

int ncclAllReduce(const void *send, void *recv, size_t count, int dtype, int op, nccl_comm comm,
                  nccl_stream stream);
int ncclReduceScatter(const void *send, void *recv, size_t count, int dtype, int op, nccl_comm comm,
                      nccl_stream stream);
int ncclReduce(const void *send, void *recv, size_t count, int dtype, int op, int root,
               nccl_comm comm, nccl_stream stream);
int ncclAllGather(const void *send, void *recv, size_t count, int dtype, nccl_comm comm,
                  nccl_stream stream);
int ncclBroadcast(const void *send, void *recv, size_t count, int dtype, int root, nccl_comm comm,
                  nccl_stream stream);
int ncclBcast(void *buffer, size_t count, int dtype, int root, nccl_comm comm, nccl_stream stream);
int ncclAlltoAll(const void *send, void *recv, size_t count, int dtype, nccl_comm comm,
                 nccl_stream stream);
int ncclGather(const void *send, void *recv, size_t count, int dtype, int root, nccl_comm comm,
               nccl_stream stream);
int ncclScatter(const void *send, void *recv, size_t count, int dtype, int root, nccl_comm comm,
                nccl_stream stream);
int ncclSend(const void *send, size_t count, int dtype, int peer, nccl_comm comm,
             nccl_stream stream);
int ncclRecv(void *recv, size_t count, int dtype, int peer, nccl_comm comm, nccl_stream stream);
int ncclRedOpCreatePreMulSum(int *op, void *scalar, int dtype, int residence, nccl_comm comm);
int ncclRedOpDestroy(int op, nccl_comm comm);

/* ---------------------------------------------------------------------- types and ops */

/* NCCL's element types, in its order, and log2 of their bytes. */
static const struct {
    unsigned char dtype, shift;
} types[] = {
    {SOL_INT8, 0},    {SOL_UINT8, 0},    {SOL_INT32, 2},       {SOL_UINT32, 2},
    {SOL_INT64, 3},   {SOL_UINT64, 3},   {SOL_FLOAT16, 1},     {SOL_FLOAT32, 2},
    {SOL_FLOAT64, 3}, {SOL_BFLOAT16, 1}, {SOL_FLOAT8_E4M3, 0}, {SOL_FLOAT8_E5M2, 0},
};
#define TYPES (sizeof types / sizeof types[0])

/* NCCL's built-in operations, in its order. */
static const sol_redop_t ops[NCCL_BUILT_IN_OPS] = {SOL_SUM, SOL_PROD, SOL_MAX, SOL_MIN, SOL_AVG};

static sol_dropin_premul *premul_find(sol_dropin_comm *comm, int op)
{
    sol_dropin_premul *premul = comm->premuls;
    while (premul != NULL && premul->op != op) {
        premul = premul->next;
    }
    return premul;
}

/* ----------------------------------------------------------------------------- deciding */

/* The call as solccl makes it: filled by decide(). */
typedef struct decision {
    sol_dropin_comm *comm; /* NULL: nothing to do with solccl */
    bool take;
    sol_dtype_t dtype;
} decision;

static inline decision decide(sol_func_t func, size_t count, int dtype, nccl_comm handle,
                              nccl_stream stream)
{
    decision d = {.comm = sol_dropin_find(handle)};
    if (d.comm == NULL || d.comm->sol == NULL) {
        d.comm = NULL;
        return d;
    }
    if (SOL_LIKELY((unsigned)dtype < TYPES)) {
        d.dtype = (sol_dtype_t)types[dtype].dtype;
        d.take = d.comm->limit[func] > 0 && count <= d.comm->limit[func] >> types[dtype].shift;
    }
    d.comm->taken += d.take;
    d.comm->passed += !d.take;
    sol_dropin_order_before(d.comm, d.take, stream);
    return d;
}

/* After a call: returns its result. */
static inline int done(const decision *d, int result, nccl_stream stream)
{
    if (d->comm != NULL) {
        sol_dropin_order_after(d->comm, d->take, stream);
    }
    return result;
}

/* solccl's group is open if a group of NCCL's is. */
#define TAKE(d, stream, call)                                                                      \
    do {                                                                                           \
        int result_ = sol_dropin_depth > 0 ? sol_dropin_group_joins() : NCCL_SUCCESS;              \
        result_ = result_ != NCCL_SUCCESS ? result_ : sol_dropin_result(call);                     \
        return done(&(d), result_, stream);                                                        \
    } while (0)

/* `real` may lack the function. */
#define PASS(d, stream, function, ...)                                                             \
    do {                                                                                           \
        sol_dropin_failed = false;                                                                 \
        return (function) == NULL ? NCCL_INVALID_USAGE                                             \
                                  : done(&(d), (function)(__VA_ARGS__), stream);                   \
    } while (0)

/* ---------------------------------------------------------------------------- reductions */

/* Everything of a reduction that the three functions differ in. */
typedef struct reduction {
    sol_func_t func;
    const void *send;
    void *recv;
    size_t count;
    int root;
    nccl_stream stream;
} reduction;

static sol_status_t reduce_with(const decision *d, const reduction *r, sol_redop_t op)
{
    sol_comm_t comm = d->comm->sol;
    switch (r->func) {
    case SOL_FUNC_ALL_REDUCE:
        return sol_all_reduce(r->send, r->recv, r->count, d->dtype, op, comm, r->stream);
    case SOL_FUNC_REDUCE_SCATTER:
        return sol_reduce_scatter(r->send, r->recv, r->count, d->dtype, op, comm, r->stream);
    default:
        return sol_reduce(r->send, r->recv, r->count, d->dtype, op, r->root, comm, r->stream);
    }
}

/* The call copies the operation, so it lives no longer: NCCL sets no limit to how many there are.
 */
static sol_status_t reduce_premul(const decision *d, const reduction *r,
                                  const sol_dropin_premul *premul)
{
    sol_redop_t op;
    const void *scalar = premul->on_device ? premul->pointer : (const void *)premul->scalar;
    sol_status_t status = sol_redop_create_premul_sum(
        &op, scalar, d->dtype, premul->on_device ? SOL_DEVICE : SOL_HOST_IMMEDIATE, d->comm->sol);
    if (status == SOL_OK) {
        status = reduce_with(d, r, op);
        sol_redop_destroy(op, d->comm->sol);
    }
    return status;
}

/* Result in *result, if the call is solccl's. An operation that is not known, or that is of another
 * type, is NCCL's to refuse. */
static bool reduce(const reduction *r, int dtype, int op, nccl_comm handle, decision *d,
                   int *result)
{
    const sol_dropin_premul *premul = NULL;
    *d = decide(r->func, r->count, dtype, handle, r->stream);
    if (!d->take) {
        return false;
    }
    if (SOL_UNLIKELY((unsigned)op >= NCCL_BUILT_IN_OPS)) {
        premul = premul_find(d->comm, op);
        if (premul == NULL || premul->dtype != dtype) {
            d->take = false;
            return false;
        }
    }
    *result = sol_dropin_depth > 0 ? sol_dropin_group_joins() : NCCL_SUCCESS;
    if (*result == NCCL_SUCCESS) {
        *result = sol_dropin_result(premul != NULL ? reduce_premul(d, r, premul)
                                                   : reduce_with(d, r, ops[op]));
    }
    return true;
}

SOL_EXPORT int ncclAllReduce(const void *send, void *recv, size_t count, int dtype, int op,
                             nccl_comm comm, nccl_stream stream)
{
    const reduction r = {SOL_FUNC_ALL_REDUCE, send, recv, count, 0, stream};
    decision d;
    int result;
    if (reduce(&r, dtype, op, comm, &d, &result)) {
        return done(&d, result, stream);
    }
    PASS(d, stream, sol_nccl()->all_reduce, send, recv, count, dtype, op, comm, stream);
}
int pncclAllReduce(const void *send, void *recv, size_t count, int dtype, int op, nccl_comm comm,
                   nccl_stream stream) SOL_EXPORT_AS(ncclAllReduce);

SOL_EXPORT int ncclReduceScatter(const void *send, void *recv, size_t count, int dtype, int op,
                                 nccl_comm comm, nccl_stream stream)
{
    const reduction r = {SOL_FUNC_REDUCE_SCATTER, send, recv, count, 0, stream};
    decision d;
    int result;
    if (reduce(&r, dtype, op, comm, &d, &result)) {
        return done(&d, result, stream);
    }
    PASS(d, stream, sol_nccl()->reduce_scatter, send, recv, count, dtype, op, comm, stream);
}
int pncclReduceScatter(const void *send, void *recv, size_t count, int dtype, int op,
                       nccl_comm comm, nccl_stream stream) SOL_EXPORT_AS(ncclReduceScatter);

SOL_EXPORT int ncclReduce(const void *send, void *recv, size_t count, int dtype, int op, int root,
                          nccl_comm comm, nccl_stream stream)
{
    const reduction r = {SOL_FUNC_REDUCE, send, recv, count, root, stream};
    decision d;
    int result;
    if (reduce(&r, dtype, op, comm, &d, &result)) {
        return done(&d, result, stream);
    }
    PASS(d, stream, sol_nccl()->reduce, send, recv, count, dtype, op, root, comm, stream);
}
int pncclReduce(const void *send, void *recv, size_t count, int dtype, int op, int root,
                nccl_comm comm, nccl_stream stream) SOL_EXPORT_AS(ncclReduce);

/* -------------------------------------------------------------------------------- copies */

SOL_EXPORT int ncclAllGather(const void *send, void *recv, size_t count, int dtype, nccl_comm comm,
                             nccl_stream stream)
{
    decision d = decide(SOL_FUNC_ALL_GATHER, count, dtype, comm, stream);
    if (d.take) {
        TAKE(d, stream, sol_all_gather(send, recv, count, d.dtype, d.comm->sol, stream));
    }
    PASS(d, stream, sol_nccl()->all_gather, send, recv, count, dtype, comm, stream);
}
int pncclAllGather(const void *send, void *recv, size_t count, int dtype, nccl_comm comm,
                   nccl_stream stream) SOL_EXPORT_AS(ncclAllGather);

SOL_EXPORT int ncclBroadcast(const void *send, void *recv, size_t count, int dtype, int root,
                             nccl_comm comm, nccl_stream stream)
{
    decision d = decide(SOL_FUNC_BROADCAST, count, dtype, comm, stream);
    if (d.take) {
        TAKE(d, stream, sol_broadcast(send, recv, count, d.dtype, root, d.comm->sol, stream));
    }
    PASS(d, stream, sol_nccl()->broadcast, send, recv, count, dtype, root, comm, stream);
}
int pncclBroadcast(const void *send, void *recv, size_t count, int dtype, int root, nccl_comm comm,
                   nccl_stream stream) SOL_EXPORT_AS(ncclBroadcast);

SOL_EXPORT int ncclBcast(void *buffer, size_t count, int dtype, int root, nccl_comm comm,
                         nccl_stream stream)
{
    decision d = decide(SOL_FUNC_BROADCAST, count, dtype, comm, stream);
    if (d.take) {
        TAKE(d, stream, sol_broadcast(buffer, buffer, count, d.dtype, root, d.comm->sol, stream));
    }
    PASS(d, stream, sol_nccl()->bcast, buffer, count, dtype, root, comm, stream);
}
int pncclBcast(void *buffer, size_t count, int dtype, int root, nccl_comm comm, nccl_stream stream)
    SOL_EXPORT_AS(ncclBcast);

SOL_EXPORT int ncclAlltoAll(const void *send, void *recv, size_t count, int dtype, nccl_comm comm,
                            nccl_stream stream)
{
    decision d = decide(SOL_FUNC_ALL_TO_ALL, count, dtype, comm, stream);
    if (d.take) {
        TAKE(d, stream, sol_all_to_all(send, recv, count, d.dtype, d.comm->sol, stream));
    }
    PASS(d, stream, sol_nccl()->all_to_all, send, recv, count, dtype, comm, stream);
}
int pncclAlltoAll(const void *send, void *recv, size_t count, int dtype, nccl_comm comm,
                  nccl_stream stream) SOL_EXPORT_AS(ncclAlltoAll);

SOL_EXPORT int ncclGather(const void *send, void *recv, size_t count, int dtype, int root,
                          nccl_comm comm, nccl_stream stream)
{
    decision d = decide(SOL_FUNC_GATHER, count, dtype, comm, stream);
    if (d.take) {
        TAKE(d, stream, sol_gather(send, recv, count, d.dtype, root, d.comm->sol, stream));
    }
    PASS(d, stream, sol_nccl()->gather, send, recv, count, dtype, root, comm, stream);
}
int pncclGather(const void *send, void *recv, size_t count, int dtype, int root, nccl_comm comm,
                nccl_stream stream) SOL_EXPORT_AS(ncclGather);

SOL_EXPORT int ncclScatter(const void *send, void *recv, size_t count, int dtype, int root,
                           nccl_comm comm, nccl_stream stream)
{
    decision d = decide(SOL_FUNC_SCATTER, count, dtype, comm, stream);
    if (d.take) {
        TAKE(d, stream, sol_scatter(send, recv, count, d.dtype, root, d.comm->sol, stream));
    }
    PASS(d, stream, sol_nccl()->scatter, send, recv, count, dtype, root, comm, stream);
}
int pncclScatter(const void *send, void *recv, size_t count, int dtype, int root, nccl_comm comm,
                 nccl_stream stream) SOL_EXPORT_AS(ncclScatter);

/* ------------------------------------------------------------------------- point to point */

/* Always NCCL's, which has them beside its own collectives; only their place is kept in mind. */
static decision pass_by(nccl_comm handle, nccl_stream stream)
{
    decision d = {.comm = sol_dropin_find(handle)};
    if (d.comm != NULL && d.comm->sol == NULL) {
        d.comm = NULL;
    }
    if (d.comm != NULL) {
        sol_dropin_order_before(d.comm, false, stream);
    }
    return d;
}

SOL_EXPORT int ncclSend(const void *send, size_t count, int dtype, int peer, nccl_comm comm,
                        nccl_stream stream)
{
    decision d = pass_by(comm, stream);
    PASS(d, stream, sol_nccl()->send, send, count, dtype, peer, comm, stream);
}
int pncclSend(const void *send, size_t count, int dtype, int peer, nccl_comm comm,
              nccl_stream stream) SOL_EXPORT_AS(ncclSend);

SOL_EXPORT int ncclRecv(void *recv, size_t count, int dtype, int peer, nccl_comm comm,
                        nccl_stream stream)
{
    decision d = pass_by(comm, stream);
    PASS(d, stream, sol_nccl()->recv, recv, count, dtype, peer, comm, stream);
}
int pncclRecv(void *recv, size_t count, int dtype, int peer, nccl_comm comm, nccl_stream stream)
    SOL_EXPORT_AS(ncclRecv);

/* ---------------------------------------------------------------------- premultiplied sums */

SOL_EXPORT int ncclRedOpCreatePreMulSum(int *op, void *scalar, int dtype, int residence,
                                        nccl_comm comm)
{
    const sol_nccl_real *real = sol_nccl();
    if (real->premul_create == NULL) {
        return NCCL_SYSTEM_ERROR;
    }
    int result = real->premul_create(op, scalar, dtype, residence, comm);
    sol_dropin_comm *known = sol_dropin_find(comm);
    if (result != NCCL_SUCCESS || known == NULL || known->sol == NULL || (unsigned)dtype >= TYPES) {
        return result;
    }
    sol_dropin_premul *premul = sol_calloc(1, sizeof *premul);
    if (premul == NULL) { /* other ranks will have theirs taken: without it, none can be used */
        (void)real->redop_destroy(*op, comm);
        return NCCL_SYSTEM_ERROR;
    }
    premul->op = *op;
    premul->dtype = dtype;
    premul->on_device = residence == NCCL_SCALAR_DEVICE;
    if (premul->on_device) {
        premul->pointer = scalar;
    } else {
        memcpy(premul->scalar, scalar, (size_t)1 << types[dtype].shift);
    }
    premul->next = known->premuls;
    known->premuls = premul;
    return result;
}
int pncclRedOpCreatePreMulSum(int *op, void *scalar, int dtype, int residence, nccl_comm comm)
    SOL_EXPORT_AS(ncclRedOpCreatePreMulSum);

SOL_EXPORT int ncclRedOpDestroy(int op, nccl_comm comm)
{
    const sol_nccl_real *real = sol_nccl();
    sol_dropin_comm *known = sol_dropin_find(comm);
    sol_dropin_premul *premul = known != NULL ? premul_find(known, op) : NULL;
    if (premul != NULL) {
        sol_dropin_premul **link = &known->premuls;
        while (*link != premul) {
            link = &(*link)->next;
        }
        *link = premul->next;
        sol_free(premul);
    }
    return real->redop_destroy != NULL ? real->redop_destroy(op, comm) : NCCL_SYSTEM_ERROR;
}
int pncclRedOpDestroy(int op, nccl_comm comm) SOL_EXPORT_AS(ncclRedOpDestroy);
