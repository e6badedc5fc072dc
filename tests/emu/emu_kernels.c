/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_kernels: every built-in kernel on the emulated machine, for 2 to 8 ranks,
 * against the reference arithmetic of the conformance suite.
 *
 * A program is a communicator and some batches of operations. A batch is
 * enqueued on all ranks before any of it runs, so that ranks run as far apart as
 * the protocols let them. What an operation is follows from its number, so that
 * every function, type and reduction has its turn; its size, alignment, shape,
 * root and the rest are drawn.
 *
 *   emu_kernels [--quick] [--seeds N] [--seed S] [--ranks A[-B]] [--only TEXT] [--jobs J] [-v]
 *               [--few]   reductions of int32 only, and stop at the first failure (mutants)
 *
 * Exit status: 0 all passed; 1 failures. With --seed the one program of that
 * seed is run, and its report is the same every time.
 */
#include "common/team.h"
#include "conformance/reference.h"
#include "emu_jobs.h"
#include "emu_ranks.h"
#include "solccl/device/gpu_word.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 6
#define BATCHES 4
#define GUARD 64 /* bytes around a receive buffer that nobody may write */

/* One operation, as all ranks see it. */
struct task {
    char text[160];
    struct sol_gpu_op op; /* without buffers */
    bool exchange;
    bool in_place;
    bool exact; /* all sizes and, but for some ranks, addresses are multiples of 16 */
    bool mark;  /* marks and escapes are in the data */
    ref_kind_t kind;
    uint64_t seed;
    size_t send_bytes, recv_bytes; /* of the collectives' buffers */
    size_t pair[SOL_GPU_MAX_RANKS]
               [SOL_GPU_MAX_RANKS]; /* exchange: bytes from, to; SIZE_MAX: none */
    struct buffers {
        char *send_block, *recv_block; /* as allocated */
        char *send, *recv;             /* where the data is */
        unsigned char *sent;           /* the host's copy */
        void *scalar;
        unsigned char scalar_value[8];
        size_t send_bytes, recv_bytes;
    } of[SOL_GPU_MAX_RANKS];
};

struct program {
    int n;
    uint64_t seed, random;
    struct emu_ranks ranks;
    uint64_t sequence;
    struct task tasks[BATCH];
    int count;
};

static const char *only;
static bool verbose, few;
static uint64_t operations;

static uint64_t draw(struct program *p)
{
    return team_random(&p->random);
}
static size_t below(struct program *p, size_t n)
{
    return n ? (size_t)(draw(p) % n) : 0;
}
static bool chance(struct program *p, unsigned of)
{
    return below(p, of) == 0;
}

/* Counters as they are after years, too. */
static bool set_up(struct program *p)
{
    static const uint64_t epochs[] = {0, 1, 0x7ffffffeu, 0xfffffffeu, (1ull << 48) - 2};
    int devices = chance(p, 4) ? 1 + (int)below(p, (size_t)p->n) : p->n; /* ranks share some */
    return emu_ranks_open(&p->ranks, p->n, devices, p->seed, epochs[below(p, 5)], false);
}

/* ---------------------------------------------------------------------- what to do */

static const struct {
    sol_func_t func;
    const char *name;
    bool send_all, recv_all; /* n blocks there */
} funcs[] = {{SOL_FUNC_ALL_REDUCE, "all_reduce", false, false},
             {SOL_FUNC_REDUCE_SCATTER, "reduce_scatter", true, false},
             {SOL_FUNC_REDUCE, "reduce", false, false},
             {SOL_FUNC_ALL_GATHER, "all_gather", false, true},
             {SOL_FUNC_ALL_TO_ALL, "all_to_all", true, true},
             {SOL_FUNC_BROADCAST, "broadcast", false, false},
             {SOL_FUNC_GATHER, "gather", false, true},
             {SOL_FUNC_SCATTER, "scatter", true, false},
             {SOL_FUNC_BARRIER, "barrier", false, false}};
#define REDUCER_CASES (3 * SOL_DTYPE_COUNT * (SOL_REDOP_COUNT + 1))
#define MOVER_CASES (5 * 8 + 2)
#define EXCHANGE_CASES 16
#define CASES (REDUCER_CASES + MOVER_CASES + EXCHANGE_CASES)
#define STRIDE 101 /* no factor in common with CASES: all have their turn, of all kinds mixed */

/* Bytes, near a boundary that matters. */
static size_t draw_bytes(struct program *p)
{
    const size_t slot = p->ranks.comm[0].layout.slot_bytes, n = (size_t)p->n;
    size_t near;
    switch (below(p, 12)) {
    case 0:
        return 1 + below(p, 17);
    case 1:
    case 2:
        return 1 + below(p, 600);
    case 3:
        near = 16 * (1 + below(p, 40));
        break;
    case 4:
        near = 512 * (1 + below(p, 6)); /* CTAs */
        break;
    case 5:
        near = 16 * n * (1 + below(p, 20)); /* shares */
        break;
    case 6:
    case 7:
        near = slot;
        break;
    case 8:
        near = slot / 2 * n;
        break;
    case 9:
        near = SOL_GPU_LANE_CHUNK * (1 + below(p, 6));
        break;
    case 10:
        near = SOL_GPU_LANE_CHUNK * SOL_GPU_LANE_DEPTH * (1 + below(p, 3));
        break;
    default:
        return 16 * (1 + below(p, slot / 16)); /* all is aligned */
    }
    return chance(p, 3) ? near : chance(p, 2) ? near + 1 + below(p, 16) : near - 1 - below(p, 15);
}

static void draw_algorithm(struct program *p, struct task *t, size_t block)
{
    const size_t slot = p->ranks.comm[0].layout.slot_bytes;
    struct sol_gpu_op *op = &t->op;
    bool reducer = op->func == SOL_FUNC_ALL_REDUCE || op->func == SOL_FUNC_REDUCE_SCATTER ||
                   op->func == SOL_FUNC_REDUCE;
    if (chance(p, 3) && op->func != SOL_FUNC_BARRIER)
        op->algorithm = SOL_GPU_LANES_ALGO;
    else if (op->func == SOL_FUNC_ALL_REDUCE && p->n > 2 && block <= slot / 2 * (size_t)p->n &&
             chance(p, 2))
        op->algorithm = SOL_GPU_TWO_SHOT;
    else if (block <= slot)
        op->algorithm = reducer ? SOL_GPU_ONE_SHOT : SOL_GPU_PUSH;
}

static void describe(const struct program *p, struct task *t, const char *name)
{
    static const char *const algorithms[] = {"auto", "one_shot", "two_shot", "push", "lanes"};
    snprintf(t->text, sizeof(t->text), "%d ranks %s %s %s%s count %zu %s root %d%s%s%s", p->n, name,
             sol_dtype_name(t->op.dtype), sol_redop_name(t->op.redop),
             t->op.premul ? (t->op.scalar_on_device ? " premul(device)" : " premul") : "",
             t->op.count, algorithms[t->op.algorithm], t->op.root, t->in_place ? " in place" : "",
             t->op.flags & SOL_GPU_PDL ? " pdl" : "", t->mark ? " marks" : "");
    if (t->exact)
        strncat(t->text, " exact", sizeof(t->text) - strlen(t->text) - 1);
}

static void draw_exchange(struct program *p, struct task *t, bool all)
{
    t->exchange = true;
    t->op.func = all ? SOL_FUNC_ALL_TO_ALL_V : SOL_FUNC_SEND;
    t->op.dtype = SOL_UINT8;
    for (int a = 0; a < p->n; a++)
        for (int b = 0; b < p->n; b++)
            t->pair[a][b] = !all && !chance(p, 3)            ? SIZE_MAX
                            : chance(p, 4)                   ? 0
                            : below(p, 3) + 2 > (size_t)p->n ? draw_bytes(p)
                                                             : 1 + below(p, 5000);
}

static void draw_task(struct program *p, struct task *t, unsigned number)
{
    const char *name = NULL;
    unsigned f;
    memset(t, 0, sizeof(*t));
    t->seed = draw(p);
    t->kind = (ref_kind_t)below(p, REF_PATTERN);
    t->mark = chance(p, 3);
    t->op.flags = chance(p, 2) ? SOL_GPU_PDL : 0;
    t->op.sequence = ++p->sequence;
    t->op.root = (int)below(p, (size_t)p->n);
    number = number % CASES * STRIDE % CASES;
    if (number >= REDUCER_CASES + MOVER_CASES) {
        bool all = number & 1;
        draw_exchange(p, t, all);
        describe(p, t, all ? "all_to_all_v" : "send/recv");
        return;
    }
    if (number < REDUCER_CASES) {
        f = number / (SOL_DTYPE_COUNT * (SOL_REDOP_COUNT + 1));
        t->op.dtype = (sol_dtype_t)(number / (SOL_REDOP_COUNT + 1) % SOL_DTYPE_COUNT);
        if (few)
            t->op.dtype = SOL_INT32;
        unsigned redop = number % (SOL_REDOP_COUNT + 1);
        t->op.premul = redop == SOL_REDOP_COUNT;
        t->op.redop = t->op.premul ? SOL_SUM : (sol_redop_t)redop;
        t->op.scalar_on_device = t->op.premul && chance(p, 2);
    } else {
        f = 3 + (number - REDUCER_CASES) % 5;
        if (number - REDUCER_CASES >= 40)
            f = 8;
        t->op.dtype = (sol_dtype_t)below(p, SOL_DTYPE_COUNT);
    }
    name = funcs[f].name;
    t->op.func = funcs[f].func;
    size_t size = ref_size(t->op.dtype);
    t->exact = chance(p, 2);
    size_t block = draw_bytes(p) / size * size;
    if (t->exact)
        block = (block + 15) / 16 * 16;
    if (t->op.func == SOL_FUNC_BARRIER)
        block = 0;
    t->op.count = block / size;
    t->in_place = chance(p, 3) && f != 8;
    t->send_bytes = block * (funcs[f].send_all ? (size_t)p->n : 1);
    t->recv_bytes = block * (funcs[f].recv_all ? (size_t)p->n : 1);
    draw_algorithm(p, t, block);
    describe(p, t, name);
}

/* ------------------------------------------------------------------------- buffers */

static void fill(const struct program *p, const struct task *t, int rank, unsigned char *out,
                 size_t bytes)
{
    sol_dtype_t dtype = t->exchange ? SOL_UINT8 : t->op.dtype;
    uint64_t state = t->seed ^ (uint64_t)rank << 40;
    (void)p;
    ref_fill(out, dtype, t->exchange ? REF_BITS : t->kind, t->seed, rank, 0,
             bytes / ref_size(dtype));
    for (size_t at = 0; t->mark && at + 8 <= bytes; at += 8) {
        static const uint64_t words[] = {SOL_WORD_MARK, SOL_WORD_ESCAPE, SOL_WORD_MARK ^ 2,
                                         SOL_WORD_MARK ^ 1ull << 63};
        uint64_t r = team_random(&state);
        if (r % 3 == 0)
            memcpy(out + at, &words[r >> 8 & 3], 8);
    }
}

static size_t draw_offset(struct program *p, const struct task *t, size_t size)
{
    if (t->exact && !chance(p, 6))
        return 0;
    switch (below(p, 3)) {
    case 0:
        return below(p, 16);
    case 1:
        return below(p, 16) / size * size;
    default:
        return 0;
    }
}

/* Where in the receive buffer the send buffer is, in place. */
static size_t place_of(const struct task *t, int rank, int n)
{
    size_t block = t->op.count * ref_size(t->op.dtype);
    (void)n;
    return t->op.func == SOL_FUNC_ALL_GATHER || t->op.func == SOL_FUNC_GATHER ? (size_t)rank * block
                                                                              : 0;
}

static void make_buffers(struct program *p, struct task *t, int r)
{
    struct buffers *b = &t->of[r];
    emu_ranks_use(&p->ranks, r);
    size_t size = t->exchange ? 1 : ref_size(t->op.dtype);
    bool apart = !t->in_place;
    b->send_bytes = t->send_bytes;
    b->recv_bytes = t->recv_bytes;
    for (int o = 0; t->exchange && o < p->n; o++) {
        b->send_bytes += t->pair[r][o] == SIZE_MAX ? 0 : t->pair[r][o];
        b->recv_bytes += t->pair[o][r] == SIZE_MAX ? 0 : t->pair[o][r];
    }
    bool shared = !apart && b->send_bytes > b->recv_bytes; /* reduce_scatter, scatter */
    size_t whole = !apart && shared ? b->send_bytes : b->recv_bytes;
    cudaMalloc((void **)&b->recv_block, whole + 2 * GUARD + 16);
    b->recv = b->recv_block + GUARD + draw_offset(p, t, size);
    if (apart) {
        cudaMalloc((void **)&b->send_block, b->send_bytes + 16);
        b->send = b->send_block + draw_offset(p, t, size);
    } else if (shared) {
        b->send = b->recv;
        b->recv += t->op.func == SOL_FUNC_REDUCE_SCATTER || t->op.func == SOL_FUNC_SCATTER
                       ? (size_t)r * b->recv_bytes
                       : 0;
    } else {
        b->send = b->recv + place_of(t, r, p->n);
    }
    emu_name(b->recv_block, "output of rank %d", r);
    if (b->send_block)
        emu_name(b->send_block, "input of rank %d", r);
    b->sent = malloc(b->send_bytes + 1);
    fill(p, t, r, b->sent, b->send_bytes);
    cudaMemcpyAsync(b->send, b->sent, b->send_bytes, cudaMemcpyDefault, p->ranks.stream[r]);
    ref_scalar(b->scalar_value, t->op.dtype, t->seed, r);
    if (t->op.scalar_on_device) {
        cudaMalloc(&b->scalar, 8);
        cudaMemcpyAsync(b->scalar, b->scalar_value, 8, cudaMemcpyDefault, p->ranks.stream[r]);
    }
}

static void free_buffers(struct program *p, struct task *t)
{
    for (int r = 0; r < p->n; r++) {
        struct buffers *b = &t->of[r];
        emu_ranks_use(&p->ranks, r);
        cudaFree(b->send_block);
        cudaFree(b->recv_block);
        cudaFree(b->scalar);
        free(b->sent);
    }
}

/* ------------------------------------------------------------------------ launches */

static cudaError_t launch_messages(struct program *p, struct task *t, int r)
{
    struct sol_gpu_messages m;
    const struct buffers *b = &t->of[r];
    size_t out = 0, in = 0;
    memset(&m, 0, sizeof(m));
    for (int o = 0; o < p->n; o++) {
        if (t->pair[r][o] != SIZE_MAX) {
            m.send_mask |= 1u << o;
            m.send[o] = b->send + out;
            m.send_bytes[o] = t->pair[r][o];
            out += t->pair[r][o];
        }
        if (t->pair[o][r] != SIZE_MAX) {
            m.recv_mask |= 1u << o;
            m.recv[o] = b->recv + in;
            m.recv_bytes[o] = t->pair[o][r];
            in += t->pair[o][r];
        }
    }
    return sol_gpu_exchange(&p->ranks.comm[r], &t->op, &m, p->ranks.stream[r]);
}

static cudaError_t launch(struct program *p, struct task *t, int r)
{
    const struct buffers *b = &t->of[r];
    emu_ranks_use(&p->ranks, r);
    if (t->exchange)
        return launch_messages(p, t, r);
    struct sol_gpu_op op = t->op;
    bool root = r == op.root;
    op.send = op.func == SOL_FUNC_BROADCAST || op.func == SOL_FUNC_SCATTER ? (root ? b->send : NULL)
                                                                           : b->send;
    op.recv = op.func == SOL_FUNC_REDUCE || op.func == SOL_FUNC_GATHER ? (root ? b->recv : NULL)
                                                                       : b->recv;
    memcpy(op.scalar, b->scalar_value, 8);
    op.scalar_pointer = b->scalar;
    if (op.algorithm != SOL_GPU_LANES_ALGO && chance(p, 2)) {
        op.ctas = 1 + (int)below(p, 4);
        op.threads = 32 * (1 + (int)below(p, 4));
        op.vectors = 1 << below(p, 3);
    }
    return sol_gpu_launch(&p->ranks.comm[r], &op, p->ranks.stream[r]);
}

/* ------------------------------------------------------------------------- results */

static void expect_reduction(const struct program *p, const struct task *t, size_t from,
                             unsigned char *out, size_t bytes)
{
    const void *sources[SOL_GPU_MAX_RANKS];
    unsigned char *scaled[SOL_GPU_MAX_RANKS];
    size_t count = bytes / ref_size(t->op.dtype);
    for (int r = 0; r < p->n; r++) {
        scaled[r] = malloc(bytes + 1);
        memcpy(scaled[r], t->of[r].sent + from, bytes);
        if (t->op.premul)
            ref_scale(scaled[r], t->of[r].scalar_value, count, t->op.dtype);
        sources[r] = scaled[r];
    }
    ref_reduce(out, sources, p->n, count, t->op.dtype, t->op.redop);
    for (int r = 0; r < p->n; r++)
        free(scaled[r]);
}

/* What rank r must have. Returns its bytes; 0: nothing. */
static size_t expect(const struct program *p, const struct task *t, int r, unsigned char *out)
{
    const size_t block = t->op.count * ref_size(t->op.dtype), me = (size_t)r;
    const size_t n = (size_t)p->n;
    const bool root = r == t->op.root;
    switch (t->op.func) {
    case SOL_FUNC_ALL_REDUCE:
        expect_reduction(p, t, 0, out, block);
        return block;
    case SOL_FUNC_REDUCE_SCATTER:
        expect_reduction(p, t, me * block, out, block);
        return block;
    case SOL_FUNC_REDUCE:
        if (root)
            expect_reduction(p, t, 0, out, block);
        return root ? block : 0;
    case SOL_FUNC_ALL_GATHER:
    case SOL_FUNC_GATHER:
        for (size_t o = 0; o < n; o++)
            memcpy(out + o * block, t->of[o].sent, block);
        return root || t->op.func == SOL_FUNC_ALL_GATHER ? n * block : 0;
    case SOL_FUNC_ALL_TO_ALL:
        for (size_t o = 0; o < n; o++)
            memcpy(out + o * block, t->of[o].sent + me * block, block);
        return n * block;
    case SOL_FUNC_BROADCAST:
        memcpy(out, t->of[t->op.root].sent, block);
        return block;
    case SOL_FUNC_SCATTER:
        memcpy(out, t->of[t->op.root].sent + me * block, block);
        return block;
    default:
        return 0;
    }
}

static size_t expect_messages(const struct program *p, const struct task *t, int r,
                              unsigned char *out)
{
    size_t at = 0;
    for (int o = 0; o < p->n; o++) {
        size_t from = 0;
        for (int q = 0; q < r; q++)
            from += t->pair[o][q] == SIZE_MAX ? 0 : t->pair[o][q];
        if (t->pair[o][r] == SIZE_MAX)
            continue;
        memcpy(out + at, t->of[o].sent + from, t->pair[o][r]);
        at += t->pair[o][r];
    }
    return at;
}

/* The output of the task before becomes the input of this one, without a copy between: a kernel
 * that reads its input before the kernel before has ended is found. */
static void chain(struct program *p, const struct task *before, struct task *t)
{
    bool all = before->op.func != SOL_FUNC_REDUCE && before->op.func != SOL_FUNC_GATHER &&
               before->op.func != SOL_FUNC_BARRIER && !before->exchange && before->op.count;
    if (!all || t->in_place || t->exchange || t->send_bytes > before->recv_bytes || !t->send_bytes)
        return;
    for (int r = 0; r < p->n; r++) {
        struct buffers *b = &t->of[r];
        unsigned char *output = malloc(before->recv_bytes + before->send_bytes + 1);
        expect(p, before, r, output);
        memcpy(b->sent, output, b->send_bytes);
        free(output);
        b->send = before->of[r].recv;
    }
    strncat(t->text, " chained", sizeof(t->text) - strlen(t->text) - 1);
}

static bool any_written(const char *from, const char *to)
{
    for (; from < to; from++)
        if (emu_first_unwritten(from, 1) == 1)
            return true;
    return false;
}

/* False: wrong, and said so. */
static bool check(const struct program *p, const struct task *t, int r)
{
    const struct buffers *b = &t->of[r];
    unsigned char *wanted = malloc(b->recv_bytes + b->send_bytes + 1);
    size_t bytes = t->exchange ? expect_messages(p, t, r, wanted) : expect(p, t, r, wanted);
    const char *trouble = NULL;
    size_t at = emu_first_unwritten(b->recv, bytes);
    if (at < bytes)
        trouble = "was not written";
    for (size_t i = 0; !trouble && i < bytes; i++)
        if ((unsigned char)b->recv[i] != wanted[i]) {
            trouble = "is wrong";
            at = i;
        }
    if (trouble) {
        printf("FAILED seed %#llx: %s: rank %d: byte %zu of %zu %s: is %02x, must be %02x\n",
               (unsigned long long)p->seed, t->text, r, at, bytes, trouble,
               (unsigned char)b->recv[at], wanted[at]);
    } else if (!t->in_place && (any_written(b->recv_block, b->recv) ||
                                any_written(b->recv + bytes, b->recv + b->recv_bytes + GUARD))) {
        printf("FAILED seed %#llx: %s: rank %d: wrote outside its output\n",
               (unsigned long long)p->seed, t->text, r);
        trouble = "outside";
    }
    free(wanted);
    return !trouble;
}

/* ------------------------------------------------------------------------ programs */

static void tell(const struct program *p)
{
    printf("FAILED seed %#llx, %d ranks, a batch of\n", (unsigned long long)p->seed, p->n);
    for (int i = 0; i < p->count; i++)
        printf("    %s\n", p->tasks[i].text);
    fputs(emu_report(), stdout);
}

/* All tasks on one rank; as a graph that is launched `times` if not 0. */
static bool launch_batch(struct program *p, int r, unsigned times)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    emu_ranks_use(&p->ranks, r);
    if (times)
        cudaStreamBeginCapture(p->ranks.stream[r], cudaStreamCaptureModeThreadLocal);
    for (int i = 0; i < p->count; i++) {
        cudaError_t e = launch(p, &p->tasks[i], r);
        if (e != cudaSuccess) {
            printf("FAILED seed %#llx: %s: launch: %s\n", (unsigned long long)p->seed,
                   p->tasks[i].text, cudaGetErrorName(e));
            return false;
        }
    }
    if (!times)
        return true;
    cudaStreamEndCapture(p->ranks.stream[r], &graph);
    cudaGraphInstantiate(&exec, graph, 0);
    for (unsigned i = 0; i < times; i++)
        cudaGraphLaunch(exec, p->ranks.stream[r]);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return true;
}

/* Replays of what is in place would reduce its own results. */
static unsigned draw_replays(struct program *p)
{
    unsigned times = chance(p, 3) ? 1 + (unsigned)below(p, 3) : 0;
    for (int i = 0; i < p->count; i++)
        if (p->tasks[i].in_place && times)
            times = 1;
    return times;
}

static void draw_batch(struct program *p, unsigned number)
{
    p->count = 0;
    for (int i = 0; i < BATCH; i++) {
        draw_task(p, &p->tasks[p->count], number + (unsigned)i);
        if (!only || strstr(p->tasks[p->count].text, only))
            p->count++;
    }
    for (int i = 0; i < p->count; i++)
        for (int r = 0; r < p->n; r++)
            make_buffers(p, &p->tasks[i], r);
    for (int i = 1; i < p->count; i++)
        if (chance(p, 2))
            chain(p, &p->tasks[i - 1], &p->tasks[i]);
    for (int i = 0; verbose && i < p->count; i++)
        printf("%s\n", p->tasks[i].text);
}

/* Kernel after kernel, with nothing between, so that dependent launches overlap. */
static bool run_batch(struct program *p, unsigned number)
{
    bool good = true;
    draw_batch(p, number);
    unsigned times = draw_replays(p);
    if (verbose)
        printf("%d devices, %u replays\n", p->ranks.devices, times);
    for (int r = 0; r < p->n && good; r++)
        good = launch_batch(p, r, times);
    for (int r = 0; r < p->n && good; r++)
        good = cudaStreamSynchronize(p->ranks.stream[r]) == cudaSuccess;
    if (!good) {
        tell(p);
        return false;
    }
    for (int i = 0; i < p->count; i++) {
        operations++;
        for (int r = 0; r < p->n && good; r++)
            good = check(p, &p->tasks[i], r);
        free_buffers(p, &p->tasks[i]);
    }
    return good;
}

/* One seed: number of ranks and operations follow from it. */
static bool run_program(uint64_t seed, int n)
{
    static struct program p;
    memset(&p, 0, sizeof(p));
    p.n = n;
    p.seed = seed;
    p.random = seed;
    bool good = set_up(&p);
    if (!good)
        tell(&p);
    unsigned number = (unsigned)(seed >> 8) * BATCH * BATCHES;
    for (int i = 0; good && i < BATCHES; i++)
        good = run_batch(&p, number + (unsigned)(i * BATCH));
    emu_close();
    return good;
}

struct plan {
    int low, high;  /* ranks */
    unsigned seeds; /* programs of each number of ranks */
    uint64_t base;
    int jobs;
};

/* Seeds are (number << 8 | ranks), so that a seed alone repeats its program. */
static struct emu_tally run_share(const void *arg, int job)
{
    const struct plan *plan = arg;
    struct emu_tally tally = {0, 0};
    unsigned k = 0;
    for (unsigned s = 0; s < plan->seeds && tally.failed < (few ? 1 : 3); s++)
        for (int n = plan->low; n <= plan->high && tally.failed < (few ? 1 : 3); n++)
            if ((int)(k++ % (unsigned)plan->jobs) == job)
                tally.failed += !run_program((plan->base + s) << 8 | (uint64_t)n, n);
    tally.passed = operations;
    return tally;
}

int main(int argc, char **argv)
{
    struct plan plan = {2, 8, 24, 1, 2};
    uint64_t seed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--quick") == 0) {
            plan.seeds = 12; /* every function, type and reduction once for each number of ranks */
            continue;
        }
        if (strcmp(argv[i], "--few") == 0) {
            few = true;
            continue;
        }
        if (strcmp(argv[i], "-v") == 0) {
            verbose = true;
            continue;
        }
        if (strcmp(argv[i], "--seeds") == 0)
            plan.seeds = (unsigned)strtoul(value, NULL, 0);
        else if (strcmp(argv[i], "--base") == 0)
            plan.base = strtoull(value, NULL, 0);
        else if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(value, NULL, 0);
        else if (strcmp(argv[i], "--jobs") == 0)
            plan.jobs = (int)strtol(value, NULL, 0);
        else if (strcmp(argv[i], "--only") == 0)
            only = value;
        else if (strcmp(argv[i], "--ranks") == 0) {
            char *end;
            plan.low = plan.high = (int)strtol(value, &end, 10);
            if (*end == '-')
                plan.high = (int)strtol(end + 1, NULL, 10);
        } else {
            fprintf(stderr, "emu_kernels: what is %s?\n", argv[i]);
            return 2;
        }
        i++;
    }
    if (seed) {
        bool good = run_program(seed, (int)(seed & 255));
        printf("%llu passed, %d failed\n", (unsigned long long)operations, !good);
        return good ? 0 : 1;
    }
    return emu_jobs(plan.jobs, run_share, &plan);
}
