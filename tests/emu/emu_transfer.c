/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_transfer: the kernels of solccl/transfer.h on the emulated machine, for 1 to
 * 8 ranks: lists and pages of any size and alignment, on two streams a rank and in
 * any order; what has come is read behind a wait for its counter and nothing else;
 * and a wait for what never comes.
 *
 *   emu_transfer [--quick] [--seeds N] [--seed S] [--ranks A[-B]] [--few] [-v]
 *                (--few: stop at the first failure: mutants)
 *
 * Exit status: 0 all passed; 1 failures; 2 nothing ran.
 */
#include "common/team.h"
#include "device/kernels/transfer_launch.h"
#include "emu/emu_args.h"
#include "emu_ranks.h"

#include <stdlib.h>
#include <string.h>

#define COUNTERS 3
#define CALLS 2   /* of a rank and round */
#define SETS 5    /* of a call, at most */
#define SLOT 2560 /* of a region, for one call of one source */
#define ROUNDS 2
#define MOST_REGION (SOL_GPU_MAX_RANKS * CALLS * SLOT)

static struct world {
    struct emu_ranks ranks;
    cudaStream_t other[SOL_GPU_MAX_RANKS];
    char *source[SOL_GPU_MAX_RANKS], *region[SOL_GPU_MAX_RANKS], *result[SOL_GPU_MAX_RANKS];
    uint64_t *counters[SOL_GPU_MAX_RANKS]; /* COUNTERS rows */
    unsigned char sent[SOL_GPU_MAX_RANKS][SLOT], image[SOL_GPU_MAX_RANKS][MOST_REGION];
    bool counted[SOL_GPU_MAX_RANKS][CALLS]; /* what is not counted must not be read behind a wait */
    uint64_t expected[SOL_GPU_MAX_RANKS][COUNTERS][SOL_GPU_MAX_RANKS];
} w;

static struct emu_args args = {.seeds = 60};

static size_t below(uint64_t *random, size_t n)
{
    return (size_t)(team_random(random) % n);
}

static size_t region_bytes(void)
{
    return (size_t)w.ranks.n * CALLS * SLOT;
}

static uint64_t *counter(int rank, int which, int source)
{
    return w.counters[rank] + which * SOL_GPU_MAX_RANKS + source;
}

/* ------------------------------------------------------------------------ what is sent */

static size_t draw_bytes(uint64_t *random, size_t room)
{
    static const size_t usual[] = {0, 1, 16, 64, 512, 1024, 1040, 2048};
    size_t bytes = below(random, 2) ? usual[below(random, 8)] : below(random, 1500);
    return bytes < room ? bytes : room;
}

/* One set of pages within [cursor, SLOT) of the slot; false: there is no room. */
static bool draw_set(uint64_t *random, struct sol_gpu_set *set, size_t *cursor, uint32_t *from,
                     uint32_t *to)
{
    const bool aligned = below(random, 2);
    size_t room = SLOT - *cursor, pages = below(random, 3) ? 1 : 1 + below(random, 7);
    memset(set, 0, sizeof(*set));
    set->bytes = draw_bytes(random, room / pages);
    set->bytes &= aligned ? ~(uint64_t)15 : ~(uint64_t)0;
    set->npages = below(random, 16) ? pages : 0;
    set->from_stride = set->to_stride = set->bytes;
    size_t start = below(random, SLOT - pages * set->bytes + 1);
    set->from = (const char *)(uintptr_t)(aligned ? start & ~(size_t)15 : start);
    set->to = (char *)(uintptr_t)*cursor;
    for (uint32_t i = 0; i < pages; i++) {
        from[i] = (uint32_t)below(random, pages); /* any page, also twice */
        to[i] = (uint32_t)((i * 5 + 3) % (pages % 5 ? pages : pages + 1));
        if (to[i] >= pages) /* (a set of 5 pages is sent in order) */
            to[i] = i;
    }
    for (uint32_t i = 0; pages % 5 == 0 && i < pages; i++)
        to[i] = i;
    set->from_pages = below(random, 2) ? from : NULL;
    set->to_pages = below(random, 2) ? to : NULL;
    if (pages == 1 && set->to_pages) { /* a number alone: the same place, by its stride */
        to[0] = 2;
        set->to = (char *)((uintptr_t)set->to - 2 * set->bytes);
    }
    *cursor += pages * set->bytes + (aligned ? -*cursor & 15 : below(random, 3));
    *cursor = *cursor < SLOT ? *cursor : SLOT;
    return true;
}

/* What it does to the peer, as the host knows it. */
static void note(int rank, int peer, const struct sol_gpu_set *set, size_t slot, uint64_t *grown,
                 bool bytes_counted)
{
    for (size_t i = 0; i < set->npages; i++) {
        size_t from = (uintptr_t)set->from, to = (uintptr_t)set->to;
        from += (set->from_pages ? set->from_pages[i] : i) * set->from_stride;
        to += (set->to_pages ? set->to_pages[i] : i) * set->to_stride;
        memcpy(w.image[peer] + slot + to, w.sent[rank] + from, set->bytes);
        *grown += bytes_counted ? set->bytes : 1;
    }
}

static cudaError_t call(int rank, int number, uint64_t *random)
{
    const int n = w.ranks.n, which = (int)below(random, COUNTERS);
    const bool bytes_counted = below(random, 2), counted = below(random, 8);
    struct sol_gpu_transfer_shape shape = {(int)below(random, 5), (int)below(random, 2) * 9};
    uint64_t *counters[SOL_GPU_MAX_RANKS] = {NULL};
    size_t cursor[SOL_GPU_MAX_RANKS] = {0};
    struct sol_gpu_transfer t;
    w.counted[rank][number] = counted;
    for (int p = 0; p < n; p++)
        counters[p] = counter(p, which, rank);
    emu_ranks_use(&w.ranks, rank);
    sol_gpu_transfer_begin(&t, &w.ranks.comm[rank], &shape, counted ? counters : NULL,
                           bytes_counted, below(random, 2) ? SOL_GPU_PDL : 0,
                           below(random, 2) ? w.other[rank] : w.ranks.stream[rank]);
    for (size_t i = below(random, SETS + 1); i > 0; i--) {
        struct sol_gpu_set set;
        uint32_t from[8], to[8];
        const int peer = (int)below(random, (size_t)n);
        const size_t slot = (size_t)(rank * CALLS + number) * SLOT;
        uint64_t grown = 0;
        if (!draw_set(random, &set, &cursor[peer], from, to))
            continue;
        set.peer = peer;
        note(rank, peer, &set, slot, &grown, bytes_counted);
        w.expected[peer][which][rank] += counted ? grown : 0;
        if (args.verbose)
            printf("rank %d call %d to %d: %zu pages of %zu, counter %d += %zu\n", rank, number,
                   peer, (size_t)set.npages, (size_t)set.bytes, which, (size_t)grown);
        set.from = w.source[rank] + (uintptr_t)set.from;
        set.to = w.region[peer] + slot + (uintptr_t)set.to;
        sol_gpu_transfer_add(&t, &set);
    }
    return sol_gpu_transfer_end(&t);
}

/* ------------------------------------------------------------------------ who waits */

/* For everything that is counted, on its own stream; then its slots, read by that stream. */
static cudaError_t receive(int rank, uint64_t *random)
{
    const struct sol_gpu_comm *comm = &w.ranks.comm[rank];
    cudaStream_t stream = w.ranks.stream[rank];
    cudaError_t e = cudaSuccess;
    emu_ranks_use(&w.ranks, rank);
    for (int c = 0; c < COUNTERS && e == cudaSuccess; c++) {
        struct sol_gpu_await await = {counter(rank, c, 0), 0, -1, c};
        const unsigned flags = below(random, 2) ? SOL_GPU_PDL : 0;
        if (below(random, 4) == 0) /* less than may have come already */
            e = sol_gpu_transfer_await(comm, &await, flags, stream);
        if (below(random, 2)) { /* all together */
            for (int r = 0; r < w.ranks.n; r++)
                await.value += w.expected[rank][c][r];
            e = sol_gpu_transfer_await(comm, &await, flags, stream);
            continue;
        }
        for (int r = 0; r < w.ranks.n && e == cudaSuccess; r++) {
            await.from = r;
            await.value = w.expected[rank][c][r];
            e = sol_gpu_transfer_await(comm, &await, flags, stream);
        }
    }
    struct sol_gpu_transfer t;
    sol_gpu_transfer_begin(&t, comm, NULL, NULL, false, below(random, 2) ? SOL_GPU_PDL : 0, stream);
    for (size_t i = 0; i < (size_t)w.ranks.n * CALLS; i++) {
        struct sol_gpu_set slot = {.from = w.region[rank] + i * SLOT,
                                   .to = w.result[rank] + i * SLOT,
                                   .bytes = SLOT,
                                   .npages = 1,
                                   .peer = rank};
        if (w.counted[i / CALLS][i % CALLS])
            sol_gpu_transfer_add(&t, &slot);
    }
    return e != cudaSuccess ? e : sol_gpu_transfer_end(&t);
}

/* After all has ended: the regions with what was not counted, and what was read behind the waits.
 */
static bool check(int round)
{
    for (int r = 0; r < w.ranks.n; r++) {
        const struct sol_gpu_error *error = w.ranks.comm[r].error;
        for (size_t i = 0; i < region_bytes(); i++)
            if ((unsigned char)w.region[r][i] != w.image[r][i] ||
                (w.counted[i / SLOT / CALLS][i / SLOT % CALLS] &&
                 (unsigned char)w.result[r][i] != w.image[r][i])) {
                printf("FAILED %d ranks, round %d, rank %d: byte %zu is wrong\n", w.ranks.n, round,
                       r, i);
                return false;
            }
        for (int c = 0; c < COUNTERS; c++)
            for (int s = 0; s < w.ranks.n; s++)
                if (*counter(r, c, s) != w.expected[r][c][s]) {
                    printf("FAILED %d ranks, round %d: counter %d of rank %d from %d is wrong\n",
                           w.ranks.n, round, c, r, s);
                    return false;
                }
        if (error->fault != 0)
            return printf("FAILED rank %d gave up\n", r), false;
    }
    return true;
}

/* ------------------------------------------------------------------------ programs */

static bool make_world(int n, uint64_t seed, bool time_passes)
{
    uint64_t random = seed;
    memset(&w, 0, sizeof(w));
    if (!emu_ranks_open(&w.ranks, n, n, seed, 1, time_passes))
        return false;
    for (int r = 0; r < n; r++) {
        emu_ranks_use(&w.ranks, r);
        cudaStreamCreate(&w.other[r]);
        cudaMalloc((void **)&w.source[r], SLOT);
        cudaMalloc((void **)&w.region[r], region_bytes());
        cudaMalloc((void **)&w.result[r], region_bytes());
        cudaMalloc((void **)&w.counters[r], COUNTERS * SOL_GPU_MAX_RANKS * 8);
        emu_name(w.source[r], "source of rank %d", r);
        emu_name(w.region[r], "region of rank %d", r);
        emu_name(w.result[r], "result of rank %d", r);
        emu_name(w.counters[r], "counters of rank %d", r);
        for (size_t i = 0; i < SLOT; i++)
            w.sent[r][i] = (unsigned char)team_random(&random);
        cudaMemset(w.counters[r], 0, COUNTERS * SOL_GPU_MAX_RANKS * 8);
        cudaMemset(w.region[r], 0xee, region_bytes());
        memset(w.image[r], 0xee, region_bytes());
        cudaMemcpy(w.source[r], w.sent[r], SLOT, cudaMemcpyDefault);
    }
    return !emu_failed();
}

static bool run_round(uint64_t *random)
{
    const int n = w.ranks.n;
    bool good = true;
    for (int i = 0; i < n * CALLS && good; i++)
        good = call(i % n, i / n, random) == cudaSuccess;
    for (int r = 0; r < n && good; r++)
        good = receive((r + 1) % n, random) == cudaSuccess;
    for (int r = 0; r < n && good; r++)
        good = cudaStreamSynchronize(w.ranks.stream[r]) == cudaSuccess &&
               cudaStreamSynchronize(w.other[r]) == cudaSuccess;
    return good && !emu_failed();
}

static void run_program(const void *of, uint64_t seed, int n)
{
    (void)of;
    uint64_t random = seed;
    bool good = make_world(n, seed, false);
    for (int i = 0; i < ROUNDS && good; i++)
        good = run_round(&random) && check(i);
    if (!good)
        printf("FAILED seed %#llx\n%s", (unsigned long long)seed, emu_report());
    emu_close();
    args.passed += good;
    args.failed += !good;
}

/* Of two writes only one comes: the wait ends, and says what it saw. */
static void run_absent(uint64_t seed, int n, int from)
{
    bool good = make_world(n, seed, true);
    struct sol_gpu_transfer t;
    uint64_t *counters[SOL_GPU_MAX_RANKS] = {NULL};
    struct sol_gpu_set set = {.from = w.source[1], .to = w.region[0], .bytes = 100, .npages = 1};
    struct sol_gpu_await await = {w.counters[0] + SOL_GPU_MAX_RANKS, 2, from, 1};
    counters[0] = counter(0, 1, 1);
    w.ranks.comm[0].timeout_ns = 2000000; /* a step is 10 ns */
    emu_ranks_use(&w.ranks, 1);
    sol_gpu_transfer_begin(&t, &w.ranks.comm[1], NULL, counters, false, 0, w.ranks.stream[1]);
    sol_gpu_transfer_add(&t, &set);
    good = good && sol_gpu_transfer_end(&t) == cudaSuccess;
    emu_ranks_use(&w.ranks, 0);
    good = good && sol_gpu_transfer_await(&w.ranks.comm[0], &await, 0, w.ranks.stream[0]) == 0;
    for (int r = 0; r < 2 && good; r++)
        good = cudaStreamSynchronize(w.ranks.stream[r]) == cudaSuccess;
    const struct sol_gpu_error *error = w.ranks.comm[0].error;
    good = good && error->fault == SOL_GPU_FAULT_TIMEOUT && error->awaited == from &&
           error->func == SOL_GPU_WHO_TRANSFER && error->sequence == 2 &&
           error->bytes == (1 << 16 | 1);
    if (!good)
        printf("FAILED absent write, %d ranks, from %d\n%s", n, from, emu_report());
    emu_close();
    args.passed += good;
    args.failed += !good;
}

int main(int argc, char **argv)
{
    emu_args_read(&args, argc, argv, 8);
    emu_args_run(&args, run_program, NULL);
    for (int n = 2; n <= 4 && !args.seed && (!args.few || args.failed == 0); n++) {
        run_absent(100 + (uint64_t)n, n, -1);
        run_absent(200 + (uint64_t)n, n, 1);
    }
    return emu_args_end(&args);
}
