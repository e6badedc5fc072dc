/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_probe.c: latency and bandwidth between cores (see perf_probe.h).
 *
 * Shared memory:
 *
 *     slot 0: [line][line]...page | slot 1: page | ... | data of slot 0 | data of slot 1 | ...
 *
 * The first line of the first page counts arrivals (a barrier that only ever
 * grows); the lines of a slot's page, from the third on, are for ping-pong.
 */
#include "perf_probe.h"

#include "tool.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define PROBE_X86 1
#endif

#define PAGE 4096
#define LINE 64
#define WAIT_NS 10000000000u /* no worker is ever later than this: it is dead */

struct perf_probe {
    unsigned char *map;
    size_t map_bytes, data_bytes; /* data_bytes: of one slot, whole pages */
    int slots;
    unsigned arrived;    /* barriers that this worker has passed */
    float *own, *result; /* private */
};

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

size_t perf_probe_bytes(int slots, size_t bytes)
{
    return (size_t)slots * (PAGE + pages(bytes));
}

perf_probe_t *perf_probe_open(int fd, int slots, size_t bytes)
{
    perf_probe_t *probe = tool_calloc(1, sizeof(*probe));

    if (!probe)
        return NULL;
    probe->slots = slots;
    probe->data_bytes = pages(bytes);
    probe->map_bytes = perf_probe_bytes(slots, bytes);
    probe->own = tool_pages(bytes);
    probe->result = tool_pages(bytes);
    probe->map = mmap(NULL, probe->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (probe->map == MAP_FAILED || !probe->own || !probe->result) {
        if (probe->map == MAP_FAILED)
            probe->map = NULL;
        perf_probe_close(probe);
        return NULL;
    }
    return probe;
}

void perf_probe_close(perf_probe_t *probe)
{
    if (!probe)
        return;
    if (probe->map)
        munmap(probe->map, probe->map_bytes);
    tool_free(probe->own);
    tool_free(probe->result);
    tool_free(probe);
}

static _Atomic unsigned *line_of(perf_probe_t *probe, int slot, int line)
{
    return (_Atomic unsigned *)(void *)(probe->map + (size_t)slot * PAGE + (size_t)line * LINE);
}

static float *data_of(perf_probe_t *probe, int slot)
{
    return (float *)(void *)(probe->map + (size_t)probe->slots * PAGE +
                             (size_t)slot * probe->data_bytes);
}

static inline void relax(void)
{
#if defined(PROBE_X86)
    _mm_pause();
#endif
}

/* Spin until *at is `value` (pure loads: what is measured must not contain more). */
static bool await(_Atomic unsigned *at, unsigned value)
{
    uint64_t start = 0;
    unsigned spins = 0;

    while (atomic_load_explicit(at, memory_order_acquire) != value) {
        if (++spins % 16384)
            continue;
        sched_yield(); /* the other may need this very CPU: such a repetition is never the best */
        if (!start)
            start = tool_now_ns();
        else if (tool_now_ns() - start > WAIT_NS)
            return false;
    }
    return true;
}

/* Nobody leaves before all `slots` have come. */
static bool barrier(perf_probe_t *probe, int slots)
{
    _Atomic unsigned *count = line_of(probe, 0, 0);
    unsigned target = ++probe->arrived * (unsigned)slots, spins = 0;
    uint64_t start = tool_now_ns();

    atomic_fetch_add_explicit(count, 1, memory_order_acq_rel);
    while ((int)(atomic_load_explicit(count, memory_order_acquire) - target) < 0) {
        relax();
        if (++spins % 4096)
            continue;
        sched_yield();
        if (tool_now_ns() - start > WAIT_NS)
            return false;
    }
    return true;
}

/* One repetition: ns one way, or negative. `to` and `from` may be the same line. */
static double ping_pong(_Atomic unsigned *to, _Atomic unsigned *from, int role, int rounds,
                        unsigned first)
{
    uint64_t start = tool_now_ns();
    unsigned i, value;

    for (i = 0; i < (unsigned)rounds; i++) {
        value = first + 2 * i;
        if (role == 0) {
            atomic_store_explicit(to, value + 1, memory_order_release);
            if (!await(from, value + 2))
                return -1;
        } else {
            if (!await(to, value + 1))
                return -1;
            atomic_store_explicit(from, value + 2, memory_order_release);
        }
    }
    return (double)(tool_now_ns() - start) / (2.0 * rounds);
}

double perf_probe_latency(perf_probe_t *probe, int role, int slot, int rounds)
{
    double best = -1, ns;
    unsigned first[2] = {0, 0};
    int repetition, two;

    if (slot < 0 || slot >= probe->slots || rounds < 1)
        return -1;
    for (repetition = 0; repetition < 12; repetition++) {
        two = repetition & 1;
        ns = two ? ping_pong(line_of(probe, slot, 4), line_of(probe, slot, 6), role, rounds,
                             first[1])
                 : ping_pong(line_of(probe, slot, 2), line_of(probe, slot, 2), role, rounds,
                             first[0]);
        if (ns < 0)
            return -1;
        first[two] += 2 * (unsigned)rounds;
        /* the first two repetitions contain the wait for the other to wake */
        if (repetition >= 2 && (best < 0 || ns < best))
            best = ns;
    }
    for (two = 2; two <= 6; two += 2) /* the next pair on this slot starts from 0 again */
        if (role == 0)
            atomic_store(line_of(probe, slot, two), 0);
    return best;
}

/* ---- kernels: plain C, and the widest that the CPU has, with and without streaming stores */

typedef void (*move_fn)(float *to, const float *a, const float *b, size_t count);

static void copy_plain(float *to, const float *a, const float *b, size_t count)
{
    (void)b;
    memcpy(to, a, count * sizeof(*to));
}

static void add_plain(float *to, const float *a, const float *b, size_t count)
{
    size_t i;

    for (i = 0; i < count; i++)
        to[i] = a[i] + b[i];
}

#if defined(PROBE_X86)
#define AVX2 __attribute__((target("avx2")))

AVX2 static void copy_avx2(float *to, const float *a, const float *b, size_t count)
{
    size_t i;

    (void)b;
    for (i = 0; i + 32 <= count; i += 32) {
        __m256 x0 = _mm256_loadu_ps(a + i), x1 = _mm256_loadu_ps(a + i + 8);
        __m256 x2 = _mm256_loadu_ps(a + i + 16), x3 = _mm256_loadu_ps(a + i + 24);

        _mm256_storeu_ps(to + i, x0);
        _mm256_storeu_ps(to + i + 8, x1);
        _mm256_storeu_ps(to + i + 16, x2);
        _mm256_storeu_ps(to + i + 24, x3);
    }
    copy_plain(to + i, a + i, NULL, count - i);
}

AVX2 static void copy_stream(float *to, const float *a, const float *b, size_t count)
{
    size_t i;

    (void)b;
    for (i = 0; i + 16 <= count; i += 16) {
        _mm256_stream_ps(to + i, _mm256_loadu_ps(a + i));
        _mm256_stream_ps(to + i + 8, _mm256_loadu_ps(a + i + 8));
    }
    copy_plain(to + i, a + i, NULL, count - i);
    _mm_sfence();
}

AVX2 static void add_avx2(float *to, const float *a, const float *b, size_t count)
{
    size_t i;

    for (i = 0; i + 16 <= count; i += 16) {
        __m256 x = _mm256_add_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i));
        __m256 y = _mm256_add_ps(_mm256_loadu_ps(a + i + 8), _mm256_loadu_ps(b + i + 8));

        _mm256_storeu_ps(to + i, x);
        _mm256_storeu_ps(to + i + 8, y);
    }
    add_plain(to + i, a + i, b + i, count - i);
}

AVX2 static void add_stream(float *to, const float *a, const float *b, size_t count)
{
    size_t i;

    for (i = 0; i + 16 <= count; i += 16) {
        _mm256_stream_ps(to + i, _mm256_add_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
        _mm256_stream_ps(to + i + 8,
                         _mm256_add_ps(_mm256_loadu_ps(a + i + 8), _mm256_loadu_ps(b + i + 8)));
    }
    add_plain(to + i, a + i, b + i, count - i);
    _mm_sfence();
}
#endif

static int kernels_for(perf_move_t kind, move_fn kernels[4])
{
    int count = 0;

    kernels[count++] = kind == PERF_MOVE_REDUCE ? add_plain : copy_plain;
#if defined(PROBE_X86)
    if (__builtin_cpu_supports("avx2")) {
        kernels[count++] = kind == PERF_MOVE_REDUCE ? add_avx2 : copy_avx2;
        kernels[count++] = kind == PERF_MOVE_REDUCE ? add_stream : copy_stream;
    }
#endif
    return count;
}

double perf_probe_move(perf_probe_t *probe, perf_move_t kind, size_t bytes, int slot, int source,
                       int slots, int repetitions)
{
    size_t count = bytes / sizeof(float), i;
    move_fn kernels[4];
    int nkernels = kernels_for(kind, kernels), repetition;
    const float *from;
    double best = -1;

    if (bytes > probe->data_bytes || slot < 0 || slot >= probe->slots || source < 0 ||
        source >= probe->slots)
        return -1;
    for (repetition = 0; repetition < repetitions; repetition++) {
        float *mine = data_of(probe, slot);
        uint64_t start;
        double ns;

        for (i = 0; i < count; i++) /* the lines are now dirty in this core's cache */
            mine[i] = (float)(i + (size_t)repetition);
        if (!barrier(probe, slots))
            return -1;
        from = kind == PERF_MOVE_LOCAL ? probe->own : data_of(probe, source);
        start = tool_now_ns();
        kernels[repetition % nkernels](probe->result, from, probe->own, count);
        ns = (double)(tool_now_ns() - start);
        if (best < 0 || ns < best)
            best = ns;
        if (!barrier(probe, slots))
            return -1;
    }
    return best;
}
