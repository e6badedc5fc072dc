/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_reduce.c: how fast the arithmetic of reductions is on one core.
 *
 *   cc -O2 -Iinclude -Isrc bench/lab/cpu_reduce.c build/release/libsolccl.a -lpthread -ldl -o
 * cpu_reduce
 *   ./cpu_reduce            every instruction set, type and size; sum, max, avg of 2 sources
 *   ./cpu_reduce small      ns a call of 1..16 elements, 2 sources
 *   ./cpu_reduce many       fp32 and bf16 sums of 2..16 sources
 *   ./cpu_reduce stream     copies and fp32 sums, by usual and by streaming stores
 *
 * GB/s counts the bytes of the result, not those of the sources. Each figure is
 * the best of several runs: what the core can do, not what a busy machine gave.
 * Results are compared with the plain ones before anything is timed.
 */
#include "base/base.h"
#include "coll/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES ((size_t)16 << 20)
#define MAX_SOURCES 16

static unsigned char *sources[MAX_SOURCES], *result, *expected;

/* Distinct, ordinary numbers of the type: no NaN, no subnormals, no zeros. */
static void fill(sol_dtype_t dtype, int source)
{
    size_t bytes = sol_dtype_size(dtype);
    for (size_t i = 0; i < MAX_BYTES / bytes; i++) {
        double d = 1.0 + (double)((i * 7 + (size_t)source * 13) % 97) / 64.0;
        float f = (float)d;
        uint32_t bits;
        uint64_t word = i * 2654435761u + (size_t)source;
        memcpy(&bits, &f, sizeof bits);
        if (dtype == SOL_FLOAT32)
            word = bits;
        else if (dtype == SOL_BFLOAT16)
            word = bits >> 16;
        else if (dtype == SOL_FLOAT16)
            word = 0x3c00 + i % 1000;
        else if (dtype == SOL_FLOAT8_E4M3 || dtype == SOL_FLOAT8_E5M2)
            word = 0x28 + i % 40;
        else if (dtype == SOL_FLOAT64)
            memcpy(&word, &d, sizeof word);
        memcpy(sources[source] + i * bytes, &word, bytes);
    }
}

/* Best time of one call, in ns, of many runs much shorter than a scheduler's time slice: on a busy
 * machine some of them are undisturbed. */
static double time_reduce(sol_reduce_fn reduce, int nsrcs, size_t count)
{
    const void *const *srcs = (const void *const *)sources;
    double best = 1e30;
    size_t calls = 1;
    for (int run = 0; run < 40; run++) {
        uint64_t start = sol_now_ns();
        for (size_t k = 0; k < calls; k++)
            reduce(result, srcs, nsrcs, count);
        uint64_t took = sol_now_ns() - start;
        if (took < 30000 && run < 20)
            calls *= 2; /* still growing: to some 50 us a run */
        else if ((double)took / (double)calls < best)
            best = (double)took / (double)calls;
    }
    return best;
}

static void check(sol_isa isa, sol_dtype_t dtype, sol_redop_t op, int nsrcs, size_t count)
{
    const void *const *srcs = (const void *const *)sources;
    sol_reduce_for(SOL_ISA_PLAIN, dtype, op)(expected, srcs, nsrcs, count);
    sol_reduce_for(isa, dtype, op)(result, srcs, nsrcs, count);
    if (memcmp(result, expected, count * sol_dtype_size(dtype)) != 0)
        fprintf(stderr, "%s %s %s differs from plain\n", sol_isa_name(isa), sol_dtype_name(dtype),
                sol_redop_name(op));
}

static void throughput(void)
{
    static const size_t sizes[] = {4096, 256 << 10, 16 << 20};
    static const sol_redop_t ops[] = {SOL_SUM, SOL_MAX, SOL_AVG};
    printf("%-14s %-7s %-4s %10s %10s %10s  GB/s of result\n", "type", "isa", "op", "4 KB",
           "256 KB", "16 MB");
    for (int t = 0; t < SOL_DTYPE_COUNT; t++) {
        sol_dtype_t dtype = (sol_dtype_t)t;
        fill(dtype, 0);
        fill(dtype, 1);
        for (int isa = 0; isa < SOL_ISA_COUNT; isa++)
            for (int k = 0; k < 3 && sol_isa_usable((sol_isa)isa); k++) {
                printf("%-14s %-7s %-4s", sol_dtype_name(dtype), sol_isa_name((sol_isa)isa),
                       sol_redop_name(ops[k]));
                check((sol_isa)isa, dtype, ops[k], 2, 4096);
                for (int s = 0; s < 3; s++) {
                    size_t count = sizes[s] / sol_dtype_size(dtype);
                    double ns = time_reduce(sol_reduce_for((sol_isa)isa, dtype, ops[k]), 2, count);
                    printf(" %10.2f", (double)sizes[s] / ns);
                }
                printf("\n");
            }
    }
}

static void small(void)
{
    static const sol_dtype_t types[] = {SOL_FLOAT32, SOL_FLOAT64, SOL_BFLOAT16,
                                        SOL_FLOAT16, SOL_INT32,   SOL_FLOAT8_E4M3};
    printf("%-14s %-7s %7s %7s %7s %7s %7s %7s  ns a call, sum of 2\n", "type", "isa", "1", "2",
           "3", "4", "8", "16");
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int isa = 0; isa < SOL_ISA_COUNT; isa++) {
            static const size_t counts[] = {1, 2, 3, 4, 8, 16};
            if (!sol_isa_usable((sol_isa)isa))
                continue;
            fill(types[t], 0);
            fill(types[t], 1);
            printf("%-14s %-7s", sol_dtype_name(types[t]), sol_isa_name((sol_isa)isa));
            for (int k = 0; k < 6; k++)
                printf(" %7.2f",
                       time_reduce(sol_reduce_for((sol_isa)isa, types[t], SOL_SUM), 2, counts[k]));
            printf("\n");
        }
    sol_reduce_fn bare = sol_reduce_bare_for(sol_isa_best(), SOL_FLOAT32, SOL_SUM);
    printf("float32, bare, 2 elements: %.2f\n", time_reduce(bare, 2, 2));
}

static void many(void)
{
    static const sol_dtype_t types[] = {SOL_FLOAT32, SOL_BFLOAT16};
    static const int numbers[] = {2, 3, 4, 8, 16};
    sol_isa isa = sol_isa_best();
    printf("%-14s %-8s %10s %10s  GB/s of result, sum, %s\n", "type", "sources", "4 KB", "256 KB",
           sol_isa_name(isa));
    for (int t = 0; t < 2; t++) {
        for (int s = 0; s < MAX_SOURCES; s++)
            fill(types[t], s);
        for (int k = 0; k < 5; k++) {
            sol_reduce_fn reduce = sol_reduce_for(isa, types[t], SOL_SUM);
            size_t size = sol_dtype_size(types[t]);
            printf("%-14s %-8d %10.2f %10.2f\n", sol_dtype_name(types[t]), numbers[k],
                   4096 / time_reduce(reduce, numbers[k], 4096 / size),
                   262144 / time_reduce(reduce, numbers[k], 262144 / size));
        }
    }
}

enum way { COPY_CACHED, COPY_STREAM, SUM_CACHED, SUM_STREAM, WAYS };

static void move(enum way way, size_t bytes)
{
    const void *const *srcs = (const void *const *)sources;
    sol_reduce_fn sum = sol_reduce_for(sol_isa_best(), SOL_FLOAT32, SOL_SUM);
    if (way == COPY_CACHED)
        memcpy(result, sources[0], bytes);
    else if (way == COPY_STREAM)
        sol_copy_stream(result, sources[0], bytes);
    else if (way == SUM_CACHED)
        sum(result, srcs, 2, bytes / 4);
    else
        sol_reduce_stream(sum, result, srcs, 2, bytes / 4, 4);
}

/* The ways take turns, so that a change of the machine's mood meets all of them. */
static void streams(void)
{
    fill(SOL_FLOAT32, 0);
    fill(SOL_FLOAT32, 1);
    printf("%10s %10s %10s %10s %10s  GB/s of result\n", "bytes", "memcpy", "stream", "fp32 sum",
           "streamed");
    for (size_t bytes = 65536; bytes <= MAX_BYTES; bytes *= 2) {
        double best[WAYS] = {1e30, 1e30, 1e30, 1e30};
        for (int run = 0; run < 15; run++)
            for (enum way way = 0; way < WAYS; way++) {
                uint64_t start = sol_now_ns();
                move(way, bytes);
                move(way, bytes);
                double each = (double)(sol_now_ns() - start) / 2;
                best[way] = each < best[way] ? each : best[way];
            }
        printf("%10zu", bytes);
        for (enum way way = 0; way < WAYS; way++)
            printf(" %10.2f", (double)bytes / best[way]);
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    for (int s = 0; s < MAX_SOURCES; s++)
        sources[s] = sol_aligned_calloc(4096, MAX_BYTES);
    result = sol_aligned_calloc(4096, MAX_BYTES);
    expected = sol_aligned_calloc(4096, MAX_BYTES);
    if (!result || !expected || !sources[MAX_SOURCES - 1])
        return 1;
    if (strcmp(what, "small") == 0)
        small();
    else if (strcmp(what, "many") == 0)
        many();
    else if (strcmp(what, "stream") == 0)
        streams();
    else
        throughput();
    return 0;
}
