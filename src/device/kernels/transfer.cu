/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.cu: calls of solccl/transfer.h put together into batches, each the
 * parameters of one kernel of transfer.cuh.
 */
#include "device/kernels/enqueue.cuh"
#include "device/kernels/transfer.cuh"

#include <string.h>

/* A CTA moves a page of 2^SOL_TRANSFER_PART_SHIFT bytes in some microseconds; larger ones are
 * shared. */
#define SOL_TRANSFER_CTAS 64          /* saturate a link by far; not measured yet: bench/NOTES.md */
#define SOL_TRANSFER_UNITS (1u << 24) /* of a batch, at most */

#define ENTRY_WORDS (sizeof(struct sol_transfer_entry) / 8)
static_assert(sizeof(struct sol_transfer_entry) == 32, "four words");

static void empty(struct sol_gpu_transfer *call)
{
    call->most = call->total = call->units = 0;
    call->nsets = call->npairs = 0;
    call->strided = false;
}

void sol_gpu_transfer_begin(struct sol_gpu_transfer *call, const struct sol_gpu_comm *comm,
                            const struct sol_gpu_transfer_shape *shape, uint64_t *const *counters,
                            bool bytes_counted, unsigned flags, cudaStream_t stream)
{
    memset(call, 0, offsetof(struct sol_gpu_transfer, words));
    call->comm = comm;
    if (shape != NULL)
        call->shape = *shape;
    if (counters != NULL)
        memcpy(call->counters, counters, sizeof call->counters);
    call->bytes_counted = bytes_counted;
    call->flags = flags;
    call->stream = stream;
}

template <class A>
static cudaError_t enqueue(const struct sol_gpu_transfer *call, void (*kernel)(A), unsigned ctas,
                           unsigned threads, const A &args)
{
    const struct sol_grid grid = {ctas, threads, 1, call->flags, call->stream};
    return sol_enqueue(kernel, grid, args);
}

/* ----------------------------------------------------------------------------- a batch */

/* 63: pages stay whole, each with one CTA, which can count it. Else parts of at least the given
 * size, so many that all CTAs have some. */
static uint32_t choose_parts(const struct sol_gpu_transfer *call, int ctas)
{
    const int least = call->shape.part_shift > 0 ? call->shape.part_shift : SOL_TRANSFER_PART_SHIFT;
    int shift = least;
    if (call->most <= 1ull << least)
        return 63;
    while (shift < 30 && call->total >> shift > 16 * (uint64_t)ctas)
        shift++;
    return (uint32_t)shift;
}

/* Number the units of all sets. */
static uint64_t number_units(struct sol_gpu_transfer *call, uint32_t part_shift)
{
    uint64_t units = 0;
    for (unsigned i = 0; i < call->nsets; i++) {
        struct sol_transfer_entry entry;
        memcpy(&entry, &call->words[i * ENTRY_WORDS], sizeof entry);
        uint64_t pages = entry.first; /* until now: how many it has */
        entry.first = (uint32_t)units;
        units += pages * sol_transfer_parts(entry.bytes, part_shift);
        memcpy(&call->words[i * ENTRY_WORDS], &entry, sizeof entry);
    }
    return units;
}

/* What one CTA could not count. */
static void owe_all(struct sol_gpu_transfer *call)
{
    for (unsigned i = 0; i < call->nsets; i++) {
        struct sol_transfer_entry entry;
        memcpy(&entry, &call->words[i * ENTRY_WORDS], sizeof entry);
        call->owed[entry.peer] += entry.first * (call->bytes_counted ? entry.bytes : 1);
    }
}

static void flush(struct sol_gpu_transfer *call)
{
    struct sol_transfer_args args;
    const int wished = call->shape.ctas > 0 ? call->shape.ctas : SOL_TRANSFER_CTAS;
    if (call->nsets == 0 || call->error != cudaSuccess)
        return;
    memset(&args, 0, sizeof args);
    args.part_shift = choose_parts(call, wished);
    if (args.part_shift == 63)
        memcpy(args.counters, call->counters, sizeof args.counters);
    else
        owe_all(call);
    args.dead = &call->comm->state->fate.dead;
    args.from_stride = call->from_stride;
    args.to_stride = call->to_stride;
    args.nsets = call->nsets;
    args.bytes_counted = call->bytes_counted;
    args.units = (uint32_t)number_units(call, args.part_shift);
    memcpy(args.words, call->words, sizeof args.words);
    const unsigned ctas = args.units < (unsigned)wished ? args.units : (unsigned)wished;
    call->error = enqueue(call, sol_transfer_kernel, ctas, SOL_TRANSFER_THREADS, args);
    empty(call);
}

/* Pages [first, first + n) of a set that fit: words are there, and units. */
static void take(struct sol_gpu_transfer *call, const struct sol_gpu_set *set, uint64_t first,
                 uint64_t n, bool pairs)
{
    struct sol_transfer_entry entry;
    entry.from = set->from + (pairs ? 0 : first * set->from_stride);
    entry.to = set->to + (pairs ? 0 : first * set->to_stride);
    entry.bytes = set->bytes;
    entry.first = (uint32_t)n;
    entry.peer = (uint16_t)set->peer;
    entry.pair = 0;
    if (pairs) {
        call->npairs += (unsigned)n;
        entry.pair = (uint16_t)(SOL_GPU_TRANSFER_WORDS - call->npairs);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t from = set->from_pages != NULL ? set->from_pages[first + i] : first + i;
            uint64_t to = set->to_pages != NULL ? set->to_pages[first + i] : first + i;
            call->words[entry.pair + i] = to << 32 | from;
        }
    }
    memcpy(&call->words[call->nsets * ENTRY_WORDS], &entry, sizeof entry);
    call->nsets++;
    call->units += n;
    call->total += n * set->bytes;
    call->most = set->bytes > call->most ? set->bytes : call->most;
}

void sol_gpu_transfer_add(struct sol_gpu_transfer *call, const struct sol_gpu_set *set)
{
    const bool pairs = set->from_pages != NULL || set->to_pages != NULL;
    const bool strided = pairs || set->npages > 1; /* a page without a number has no stride */
    const bool other = call->from_stride != set->from_stride || call->to_stride != set->to_stride;
    if (strided && call->strided && other)
        flush(call);
    if (strided) {
        call->from_stride = set->from_stride;
        call->to_stride = set->to_stride;
        call->strided = true;
    }
    for (uint64_t first = 0; first < set->npages && call->error == cudaSuccess;) {
        const unsigned used = call->nsets * (unsigned)ENTRY_WORDS + call->npairs;
        uint64_t room = SOL_GPU_TRANSFER_WORDS - used, n = set->npages - first;
        room = room > ENTRY_WORDS ? room - ENTRY_WORDS : 0;
        if (!pairs)
            room =
                room > 0 && call->units < SOL_TRANSFER_UNITS ? SOL_TRANSFER_UNITS - call->units : 0;
        n = n < room ? n : room;
        if (n > 0)
            take(call, set, first, n, pairs);
        first += n;
        if (first < set->npages) {
            flush(call);
            call->strided = strided;
        }
    }
}

void sol_gpu_transfer_owe(struct sol_gpu_transfer *call, int peer, uint64_t count)
{
    call->owed[peer] += count;
}

cudaError_t sol_gpu_transfer_end(struct sol_gpu_transfer *call)
{
    struct sol_transfer_counts counts;
    bool any = false;
    flush(call);
    memset(&counts, 0, sizeof counts);
    counts.dead = &call->comm->state->fate.dead;
    for (int r = 0; r < SOL_GPU_MAX_RANKS; r++)
        if (call->counters[r] != NULL && call->owed[r] != 0) {
            counts.counters[r] = call->counters[r];
            counts.n[r] = call->owed[r];
            any = true;
        }
    if (any && call->error == cudaSuccess)
        call->error = enqueue(call, sol_transfer_count_kernel, 1, 32, counts);
    return call->error;
}

/* ------------------------------------------------------------------------------ the wait */

cudaError_t sol_gpu_transfer_await(const struct sol_gpu_comm *comm,
                                   const struct sol_gpu_await *await, unsigned flags,
                                   cudaStream_t stream)
{
    struct sol_gpu_transfer call;
    struct sol_await_args args;
    call.flags = flags;
    call.stream = stream;
    args.await = *await;
    args.nranks = comm->nranks;
    args.bound.fate = &comm->state->fate;
    args.bound.error = comm->error;
    args.bound.abort_word = comm->abort_word;
    args.bound.timeout_ns = comm->timeout_ns;
    args.bound.tickets = &comm->state->epochs[0].epoch;
    args.bound.waits = comm->waits;
    args.bound.rank = comm->rank;
    args.bound.ntickets = SOL_GPU_EPOCHS;
    return enqueue(&call, sol_transfer_await_kernel, 1, 32, args);
}

cudaError_t sol_gpu_transfer_look(const uint64_t *words, uint64_t *out, int nranks,
                                  cudaStream_t stream)
{
    return sol_dev_launch(sol_transfer_look_kernel, 1, 32, stream, words, out, nranks);
}

cudaError_t sol_gpu_transfer_preload(void)
{
    const void *const kernels[] = {
        (const void *)sol_transfer_kernel, (const void *)sol_transfer_count_kernel,
        (const void *)sol_transfer_await_kernel, (const void *)sol_transfer_look_kernel};
    for (int i = 0; i < 4; i++) {
        cudaError_t e = sol_load(kernels[i]);
        if (e != cudaSuccess)
            return e;
    }
    return cudaSuccess;
}
