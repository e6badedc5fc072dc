/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi_perf.c: an MPI as perf measures it. One source, compiled once with each
 * MPI's own mpicc (Open MPI, MPICH) together with perf's worker, so that data,
 * checks, warm-up, batches and clock are the very same code as for solccl.
 *
 * What is done in the peer's favour, so that the comparison is fair:
 *  - MPI_Bcast has one buffer, so perf compares broadcasts in place. Asked for out of
 *    place, the root here sends from sendbuf and is spared the copy to its own recvbuf
 *    that solccl (like NCCL) makes.
 *  - MPI has no bfloat16. Data are moved as uint16_t; reductions use an operation
 *    of our own (MPI_Op_create, commutative), vectorised and compiled with -O3,
 *    that adds in fp32 and rounds to nearest even.
 *  - fp32, fp64 and the integers use MPI's own types and operations.
 *  - The library's defaults are used; its launcher binds one rank to a core.
 */
#include "perf_library.h"
#include "perf_wire.h"

#include <limits.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifndef MPI_PERF_NAME
#define MPI_PERF_NAME "mpi"
#endif

static struct {
    int rank, nranks;
    MPI_Op brain_sum, brain_min, brain_max, brain_prod;
} self;

/* ---- bfloat16 operations */

static inline float widen(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &word, sizeof(value));
    return value;
}

static inline uint16_t narrow(float value)
{
    uint32_t word;

    memcpy(&word, &value, sizeof(word));
    /* perf's data have no NaN: nearest even without its special case, the fastest there is */
    return (uint16_t)((word + 0x7fffu + (word >> 16 & 1)) >> 16);
}

#define ALWAYS_INLINE inline __attribute__((always_inline))

static ALWAYS_INLINE void sum_body(const uint16_t *in, uint16_t *inout, int count)
{
    int i;

    for (i = 0; i < count; i++)
        inout[i] = narrow(widen(in[i]) + widen(inout[i]));
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void sum_avx2(const uint16_t *in, uint16_t *inout, int count)
{
    sum_body(in, inout, count);
}
#endif

static void brain_sum(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        sum_avx2(in, inout, *count);
        return;
    }
#endif
    sum_body(in, inout, *count);
}

static void brain_prod(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const uint16_t *a = in;
    uint16_t *b = inout;
    int i;

    (void)type;
    for (i = 0; i < *count; i++)
        b[i] = narrow(widen(a[i]) * widen(b[i]));
}

static void brain_min(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const uint16_t *a = in;
    uint16_t *b = inout;
    int i;

    (void)type;
    for (i = 0; i < *count; i++)
        b[i] = widen(a[i]) < widen(b[i]) ? a[i] : b[i];
}

static void brain_max(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const uint16_t *a = in;
    uint16_t *b = inout;
    int i;

    (void)type;
    for (i = 0; i < *count; i++)
        b[i] = widen(a[i]) > widen(b[i]) ? a[i] : b[i];
}

/* ---- the job */

static bool open_mpi(perf_place_t *place, perf_error_t *error)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;

    if (MPI_Init(NULL, NULL) != MPI_SUCCESS) {
        snprintf(error->text, sizeof(error->text), "MPI_Init failed");
        return false;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &self.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &self.nranks);
    MPI_Op_create(brain_sum, 1, &self.brain_sum);
    MPI_Op_create(brain_prod, 1, &self.brain_prod);
    MPI_Op_create(brain_min, 1, &self.brain_min);
    MPI_Op_create(brain_max, 1, &self.brain_max);
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = '\0';
    for (char *c = version; *c; c++)
        if (*c == '\t')
            *c = ' ';
    place->rank = self.rank;
    place->nranks = self.nranks;
    snprintf(place->version, sizeof(place->version), "%.127s", version);
    return true;
}

static void close_mpi(void)
{
    MPI_Op_free(&self.brain_sum);
    MPI_Op_free(&self.brain_prod);
    MPI_Op_free(&self.brain_min);
    MPI_Op_free(&self.brain_max);
    MPI_Finalize();
}

static MPI_Datatype type_of(sol_dtype_t dtype)
{
    switch (dtype) {
    case SOL_INT8:
        return MPI_INT8_T;
    case SOL_UINT8:
    case SOL_FLOAT8_E4M3:
    case SOL_FLOAT8_E5M2:
        return MPI_UINT8_T;
    case SOL_INT32:
        return MPI_INT32_T;
    case SOL_UINT32:
        return MPI_UINT32_T;
    case SOL_INT64:
        return MPI_INT64_T;
    case SOL_UINT64:
        return MPI_UINT64_T;
    case SOL_FLOAT16:
    case SOL_BFLOAT16:
        return MPI_UINT16_T;
    case SOL_FLOAT32:
        return MPI_FLOAT;
    case SOL_FLOAT64:
        return MPI_DOUBLE;
    default:
        return MPI_DATATYPE_NULL;
    }
}

static MPI_Op op_of(const perf_case_t *c)
{
    bool brain = c->dtype == SOL_BFLOAT16;

    switch (c->redop) {
    case SOL_SUM:
        return brain ? self.brain_sum : MPI_SUM;
    case SOL_PROD:
        return brain ? self.brain_prod : MPI_PROD;
    case SOL_MIN:
        return brain ? self.brain_min : MPI_MIN;
    case SOL_MAX:
        return brain ? self.brain_max : MPI_MAX;
    default:
        return MPI_OP_NULL;
    }
}

static const char *refuses(const perf_case_t *c)
{
    if (c->memory != PERF_MEMORY_PLAIN)
        return NULL; /* the worker says that there is no such memory */
    if (c->count > INT_MAX)
        return "MPI's counts are ints";
    if (!perf_op_reduces(c->op))
        return NULL;
    if (c->in_place && c->op == PERF_REDUCE_SCATTER)
        return "MPI puts the result of an in-place reduce_scatter elsewhere";
#if defined(MPICH)
    if (c->in_place && c->op == PERF_REDUCE && c->root != 0)
        return "MPICH 4.0 crashes in MPI_Reduce in place when the root is not rank 0";
#endif
    if (c->redop == SOL_AVG)
        return "MPI has no average";
    if (c->dtype == SOL_FLOAT16 || c->dtype == SOL_FLOAT8_E4M3 || c->dtype == SOL_FLOAT8_E5M2)
        return "MPI has no such type to reduce";
    return NULL;
}

/* ---- calls */

#define REPEAT(call)                                                                               \
    for (i = 0; i < calls && status == MPI_SUCCESS; i++)                                           \
        status = (call);                                                                           \
    break

static int repeat(const perf_case_t *c, const void *send, void *recv, size_t calls)
{
    MPI_Datatype type = type_of(c->dtype);
    MPI_Op op = op_of(c);
    const void *from = c->in_place ? MPI_IN_PLACE : send;
    int count = (int)c->count, status = MPI_SUCCESS;
    size_t i;

    switch (c->op) {
    case PERF_ALL_REDUCE:
        REPEAT(MPI_Allreduce(from, recv, count, type, op, MPI_COMM_WORLD));
    case PERF_ALL_GATHER:
        REPEAT(MPI_Allgather(from, count, type, recv, count, type, MPI_COMM_WORLD));
    case PERF_REDUCE_SCATTER:
        REPEAT(MPI_Reduce_scatter_block(from, recv, count, type, op, MPI_COMM_WORLD));
    case PERF_ALL_TO_ALL:
        REPEAT(MPI_Alltoall(from, count, type, recv, count, type, MPI_COMM_WORLD));
    case PERF_SENDRECV:
        REPEAT(MPI_Sendrecv(send, count, type, (self.rank + 1) % self.nranks, 0, recv, count, type,
                            (self.rank + self.nranks - 1) % self.nranks, 0, MPI_COMM_WORLD,
                            MPI_STATUS_IGNORE));
    case PERF_BARRIER:
        REPEAT(MPI_Barrier(MPI_COMM_WORLD));
    default:
        return MPI_ERR_ARG;
    }
    return status;
}

static int repeat_rooted(const perf_case_t *c, const void *send, void *recv, size_t first,
                         size_t calls)
{
    MPI_Datatype type = type_of(c->dtype);
    MPI_Op op = op_of(c);
    int root = perf_root(c, first, self.nranks), step = c->root == PERF_ROOT_ROTATES;
    int count = (int)c->count, status = MPI_SUCCESS;
    size_t i;

    for (i = 0; i < calls && status == MPI_SUCCESS; i++) {
        bool root_here = root == self.rank, in_place = c->in_place && root_here;
        void *buffer = root_here ? (void *)(uintptr_t)send : recv;

        switch (c->op) {
        case PERF_BROADCAST:
            status = MPI_Bcast(buffer, count, type, root, MPI_COMM_WORLD);
            break;
        case PERF_REDUCE:
            status = MPI_Reduce(in_place ? MPI_IN_PLACE : send, recv, count, type, op, root,
                                MPI_COMM_WORLD);
            break;
        case PERF_GATHER:
            status = MPI_Gather(in_place ? MPI_IN_PLACE : send, count, type, recv, count, type,
                                root, MPI_COMM_WORLD);
            break;
        default: /* scatter */
            status = MPI_Scatter(send, count, type, in_place ? MPI_IN_PLACE : recv, count, type,
                                 root, MPI_COMM_WORLD);
            break;
        }
        root += step;
        if (root == self.nranks)
            root = 0;
    }
    return status;
}

static bool failed(perf_error_t *error, int status)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;

    MPI_Error_string(status, text, &length);
    snprintf(error->text, sizeof(error->text), "%.500s", text);
    return false;
}

static bool batch(const perf_case_t *c, const void *send, void *recv, size_t first, size_t calls,
                  perf_error_t *error)
{
    int status = perf_op_rooted(c->op) ? repeat_rooted(c, send, recv, first, calls)
                                       : repeat(c, send, recv, calls);

    return status == MPI_SUCCESS ? true : failed(error, status);
}

static bool barrier(perf_error_t *error)
{
    int status = MPI_Barrier(MPI_COMM_WORLD);

    return status == MPI_SUCCESS ? true : failed(error, status);
}

static const perf_library_t library = {
    .name = MPI_PERF_NAME,
    .rounding = PERF_ROUND_EACH,
    .broadcast_copies_at_root = false,
    .open = open_mpi,
    .close = close_mpi,
    .refuses = refuses,
    .batch = batch,
    .barrier = barrier,
};

int main(void)
{
    return perf_worker(&library, &perf_device_cpu);
}
