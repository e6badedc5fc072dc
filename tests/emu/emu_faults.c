/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_faults: what kernels do when a peer does not come, when the host aborts,
 * and when two ranks disagree about a message. Every wait must end, say for whom
 * it waited, and leave later kernels harmless.
 *
 *   emu_faults [--seeds N]
 */
#include "common/team.h"
#include "emu_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 3000

static int passed, failed;

struct scene {
    struct emu_ranks ranks;
    char *send[SOL_GPU_MAX_RANKS], *recv[SOL_GPU_MAX_RANKS];
    char text[120];
};

static void say(const struct scene *s, bool good, const char *why)
{
    if (!good)
        printf("FAILED %s: %s\n%s", s->text, why, emu_report());
    passed += good;
    failed += !good;
}

static bool open_scene(struct scene *s, int n, uint64_t seed)
{
    if (!emu_ranks_open(&s->ranks, n, n, seed, 1, true))
        return false;
    for (int r = 0; r < n; r++) {
        cudaSetDevice(r);
        cudaMalloc((void **)&s->send[r], BYTES * (size_t)n);
        cudaMalloc((void **)&s->recv[r], BYTES * (size_t)n);
        cudaMemsetAsync(s->send[r], r, BYTES * (size_t)n, s->ranks.stream[r]);
    }
    return true;
}

static void launch(struct scene *s, int r, sol_func_t func, int algorithm, uint64_t sequence)
{
    struct sol_gpu_op op;
    memset(&op, 0, sizeof(op));
    op.func = func;
    op.dtype = SOL_INT32;
    op.redop = SOL_SUM;
    op.count = BYTES / 4;
    op.send = s->send[r];
    op.recv = s->recv[r];
    op.algorithm = algorithm;
    op.sequence = sequence;
    cudaSetDevice(r);
    sol_gpu_launch(&s->ranks.comm[r], &op, s->ranks.stream[r]);
}

static void wait_all(struct scene *s)
{
    for (int r = 0; r < s->ranks.n; r++)
        cudaStreamSynchronize(s->ranks.stream[r]);
}

/* All ranks but `absent` must have given up, for `fault`: at least the first to do so, whose record
 * ends the waits of the others. */
static void check_records(struct scene *s, int absent, uint32_t fault, bool all)
{
    const char *why = NULL;
    int told = 0;
    for (int r = 0; r < s->ranks.n; r++) {
        const struct sol_gpu_error *e = s->ranks.comm[r].error;
        if (r == absent)
            continue;
        told += e->fault == fault;
        if (e->fault != 0 && ((e->fault != fault && e->fault != SOL_GPU_FAULT_ABORT) ||
                              e->rank != r || e->sequence != 7))
            why = "a record is wrong";
        if (e->fault != 0 && (e->awaited < 0 || e->awaited >= s->ranks.n || e->awaited == r))
            why = "it does not say for whom it waited";
        if (e->fault == 0 && all)
            why = "a rank did not give up";
    }
    say(s, !why && !emu_failed() && (told > 0 || fault == 0), why ? why : "nobody gave up");
}

static const struct {
    sol_func_t func;
    int algorithm;
    int ranks; /* at least */
    const char *name;
} ways[] = {{SOL_FUNC_ALL_REDUCE, SOL_GPU_ONE_SHOT, 2, "all_reduce one_shot"},
            {SOL_FUNC_ALL_REDUCE, SOL_GPU_TWO_SHOT, 3, "all_reduce two_shot"},
            {SOL_FUNC_ALL_REDUCE, SOL_GPU_LANES_ALGO, 2, "all_reduce lanes"},
            {SOL_FUNC_REDUCE, SOL_GPU_ONE_SHOT, 2, "reduce one_shot"},
            {SOL_FUNC_REDUCE_SCATTER, SOL_GPU_LANES_ALGO, 2, "reduce_scatter lanes"},
            {SOL_FUNC_ALL_TO_ALL, SOL_GPU_PUSH, 2, "all_to_all push"},
            {SOL_FUNC_BROADCAST, SOL_GPU_PUSH, 2, "broadcast push"},
            {SOL_FUNC_GATHER, SOL_GPU_PUSH, 2, "gather push"},
            {SOL_FUNC_ALL_GATHER, SOL_GPU_LANES_ALGO, 2, "all_gather lanes"},
            {SOL_FUNC_BARRIER, SOL_GPU_PUSH, 2, "barrier"}};

/* Ranks that gave up launch all kinds of kernels: no byte of anybody's staging may change. */
static void check_silence(struct scene *s)
{
    const size_t bytes = (size_t)s->ranks.comm[0].layout.total;
    char *before = malloc(bytes * (size_t)s->ranks.n);
    bool same = before != NULL;
    for (int r = 0; r < s->ranks.n && same; r++)
        memcpy(before + bytes * (size_t)r, s->ranks.comm[0].staging[r], bytes);
    for (int r = 0; r < s->ranks.n; r++)
        for (size_t i = 0; s->ranks.comm[r].error->fault && i < sizeof(ways) / sizeof(*ways); i++)
            if (ways[i].ranks <= s->ranks.n)
                launch(s, r, ways[i].func, ways[i].algorithm, 8);
    wait_all(s);
    for (int r = 0; r < s->ranks.n; r++)
        same = same && memcmp(before + bytes * (size_t)r, s->ranks.comm[0].staging[r], bytes) == 0;
    free(before);
    say(s, same && !emu_failed(), "a rank that had given up wrote into staging memory");
}

/* One rank never comes. The others give up; what they launch afterwards ends too. Rank 0 is the
 * root, and in lanes a rank may be done before it misses anybody. */
static void test_absent(uint64_t seed, int n, int way)
{
    static struct scene s;
    int absent = n - 1;
    bool lanes = ways[way].algorithm == SOL_GPU_LANES_ALGO;
    bool all = !lanes || ways[way].func == SOL_FUNC_ALL_REDUCE;
    snprintf(s.text, sizeof(s.text), "seed %#llx %d ranks %s: one is absent",
             (unsigned long long)seed, n, ways[way].name);
    if (!open_scene(&s, n, seed))
        return say(&s, false, "no scene");
    for (int r = 0; r < n; r++)
        if (r != absent) {
            launch(&s, r, ways[way].func, ways[way].algorithm, 7);
            launch(&s, r, SOL_FUNC_ALL_REDUCE, SOL_GPU_ONE_SHOT, 8);
            launch(&s, r, SOL_FUNC_ALL_GATHER, SOL_GPU_LANES_ALGO, 9);
        }
    wait_all(&s);
    check_records(&s, absent, SOL_GPU_FAULT_TIMEOUT, all);
    check_silence(&s);
}

/* The first rank to lose patience ends the waits of all. */
static void test_impatient(uint64_t seed, int way)
{
    static struct scene s;
    snprintf(s.text, sizeof(s.text), "seed %#llx %s: the least patient rank ends it for all",
             (unsigned long long)seed, ways[way].name);
    if (!open_scene(&s, 3, seed))
        return say(&s, false, "no scene");
    s.ranks.comm[1].timeout_ns = 1000000000000u;
    for (int r = 0; r < 2; r++)
        launch(&s, r, ways[way].func, ways[way].algorithm, 7);
    wait_all(&s);
    const struct sol_gpu_error *first = s.ranks.comm[0].error, *second = s.ranks.comm[1].error;
    say(&s,
        !emu_failed() && first->fault == SOL_GPU_FAULT_TIMEOUT &&
            second->fault == SOL_GPU_FAULT_ABORT && *(volatile uint32_t *)s.ranks.abort_word == 1,
        "the others went on waiting");
}

/* The host ends the waits at some moment. */
static void test_abort(uint64_t seed, int n, int way)
{
    static struct scene s;
    snprintf(s.text, sizeof(s.text), "seed %#llx %d ranks %s: aborted", (unsigned long long)seed, n,
             ways[way].name);
    if (!open_scene(&s, n, seed))
        return say(&s, false, "no scene");
    for (int r = 0; r < n; r++) {
        s.ranks.comm[r].timeout_ns = 1000000000000u;
        if (r != n - 1)
            launch(&s, r, ways[way].func, ways[way].algorithm, 7);
    }
    for (uint64_t i = 0; i < seed % 7; i++)
        cudaStreamQuery(s.ranks.stream[0]);
    *(volatile uint32_t *)s.ranks.abort_word = 1;
    wait_all(&s);
    check_records(&s, n - 1, SOL_GPU_FAULT_ABORT,
                  ways[way].algorithm != SOL_GPU_LANES_ALGO ||
                      ways[way].func == SOL_FUNC_ALL_REDUCE);
}

/* A message of another size than the receiver expects. */
static void test_mismatch(uint64_t seed, size_t sent, size_t expected)
{
    static struct scene s;
    struct sol_gpu_op op;
    struct sol_gpu_messages m[2];
    memset(&op, 0, sizeof(op));
    memset(m, 0, sizeof(m));
    snprintf(s.text, sizeof(s.text), "seed %#llx: %zu bytes are sent, %zu expected",
             (unsigned long long)seed, sent, expected);
    if (!open_scene(&s, 2, seed))
        return say(&s, false, "no scene");
    op.func = SOL_FUNC_SEND;
    op.sequence = 7;
    m[0].send_mask = 1u << 1;
    m[0].send[1] = s.send[0];
    m[0].send_bytes[1] = sent;
    m[1].recv_mask = 1u << 0;
    m[1].recv[0] = s.recv[1];
    m[1].recv_bytes[0] = expected;
    for (int r = 0; r < 2; r++) {
        cudaSetDevice(r);
        sol_gpu_exchange(&s.ranks.comm[r], &op, &m[r], s.ranks.stream[r]);
    }
    wait_all(&s);
    const struct sol_gpu_error *e = s.ranks.comm[1].error;
    say(&s,
        !emu_failed() && e->fault == SOL_GPU_FAULT_MISMATCH && e->awaited == 0 && e->detail == sent,
        "the receiver did not say what it was sent");
}

int main(int argc, char **argv)
{
    unsigned seeds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (unsigned seed = 1; seed <= seeds; seed++) {
        for (int way = 0; way < (int)(sizeof(ways) / sizeof(*ways)); way++)
            for (int n = ways[way].ranks; n <= 4; n += 2) {
                test_absent(seed, n, way);
                test_abort(seed * 31, n, way);
            }
        for (int way = 0; way < 3; way++) /* all_reduce: every rank waits for every other */
            test_impatient(seed, way);
        test_mismatch(seed, 100, 200);
        test_mismatch(seed, 200, 100);
        test_mismatch(seed, 0, 16);
        test_mismatch(seed, 2900, 0);
    }
    emu_close();
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}
