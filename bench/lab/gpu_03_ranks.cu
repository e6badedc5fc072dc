/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_03_ranks.cu: the library's kernels, through launch.h, on 1-8 ranks over
 * the GPUs that are there, against the CPU's arithmetic (coll/reduce.h): random
 * operations, types, counts, alignments, in place and not, grids that differ
 * between ranks, payloads full of marks and special values; several operations
 * in flight. Then the ways out: a rank that does not come, an abort, messages
 * whose sizes differ. A seed reproduces a run.
 *
 *   gpu_03_ranks [seconds per rank count] [seed] [first n] [last n]
 */
#include "coll/reduce.h"
#include "gpu_rig.cuh"
#include "solccl/device/gpu_word.h"

#include <chrono>

static uint64_t random_state;
static uint64_t rnd(void)
{
    random_state += 0x9e3779b97f4a7c15ull;
    uint64_t z = random_state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}
static int pick(int n)
{
    return (int)(rnd() % (uint64_t)n);
}

static double now(void)
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

enum { GUARD = 64 };
static const size_t capacity = 24u << 20; /* of a device buffer */

struct trial {
    struct sol_gpu_op op;
    size_t send_bytes, recv_bytes; /* of a rank */
    size_t send_off, recv_off;
    bool in_place;
    std::vector<std::vector<uint8_t>> send, before, want;
};

static size_t blocks_sent(int func, int n)
{
    return func == SOL_FUNC_REDUCE_SCATTER || func == SOL_FUNC_ALL_TO_ALL ||
                   func == SOL_FUNC_SCATTER
               ? n
               : 1;
}
static size_t blocks_received(int func, int n)
{
    return func == SOL_FUNC_ALL_GATHER || func == SOL_FUNC_ALL_TO_ALL || func == SOL_FUNC_GATHER
               ? n
               : 1;
}

static void fill(std::vector<uint8_t> &v, int style)
{
    size_t n = v.size();
    for (size_t i = 0; i < n; i += 8) {
        uint64_t x = rnd();
        memcpy(&v[i], &x, std::min<size_t>(8, n - i));
    }
    static const uint32_t special[] = {0x7fc00001, 0x7f800000, 0xff800000, 0x80000000, 0,
                                       0x00000001, 0x80000001, 0x7fff7fff, 0x7c007c00, 0xfc00fc01,
                                       0x7e7f7b7c, 0x3f800000, 0x3c003c00, 0x38383838, 0x7f7fffff};
    if (style == 1) /* special values */
        for (size_t i = 0; i + 4 <= n; i += 4)
            if (pick(3) == 0)
                memcpy(&v[i], &special[pick(15)], 4);
    if (style == 2) /* words that must be escaped */
        for (size_t i = 0; i + 8 <= n; i += 8) {
            uint64_t w = SOL_WORD_MARK | (rnd() & 1);
            int what = pick(4);
            if (what == 3)
                w ^= 1ull << pick(64);
            if (what)
                memcpy(&v[i], &w, 8);
        }
    if (style == 3) /* small values */
        for (size_t i = 0; i < n; i++)
            v[i] &= 0x3f;
}

/* What rank r's receive buffer must hold afterwards. */
static void expect(trial &t, int n)
{
    const struct sol_gpu_op &op = t.op;
    size_t es = sol_dtype_size(op.dtype), block = op.count * es;
    std::vector<std::vector<uint8_t>> data = t.send;
    if (op.premul) {
        sol_scale_fn scale = sol_scale_for(SOL_ISA_PLAIN, op.dtype);
        for (int r = 0; r < n; r++) {
            uint8_t scalar[8];
            memcpy(scalar, op.scalar, 8);
            scalar[0] ^= (uint8_t)r; /* each rank has its own */
            scale(data[r].data(), data[r].data(), scalar, data[r].size() / es);
        }
    }
    for (int r = 0; r < n; r++) {
        uint8_t *out = t.want[r].data();
        const void *srcs[8];
        bool root = r == op.root;
        switch (op.func) {
        case SOL_FUNC_ALL_REDUCE:
        case SOL_FUNC_REDUCE:
        case SOL_FUNC_REDUCE_SCATTER:
            if (op.func == SOL_FUNC_REDUCE && !root)
                break;
            for (int s = 0; s < n; s++)
                srcs[s] = data[s].data() + (op.func == SOL_FUNC_REDUCE_SCATTER ? r * block : 0);
            sol_reduce_for(SOL_ISA_PLAIN, op.dtype, op.redop)(out, srcs, n, op.count);
            break;
        case SOL_FUNC_ALL_GATHER:
        case SOL_FUNC_GATHER:
            for (int s = 0; s < n && (root || op.func == SOL_FUNC_ALL_GATHER); s++)
                memcpy(out + s * block, data[s].data(), block);
            break;
        case SOL_FUNC_ALL_TO_ALL:
            for (int s = 0; s < n; s++)
                memcpy(out + s * block, data[s].data() + r * block, block);
            break;
        case SOL_FUNC_BROADCAST:
            memcpy(out, data[op.root].data(), block);
            break;
        case SOL_FUNC_SCATTER:
            memcpy(out, data[op.root].data() + r * block, block);
            break;
        default:
            break;
        }
    }
}

static size_t random_count(size_t es, size_t slot, size_t most)
{
    switch (pick(12)) {
    case 0:
        return 1 + pick(4);
    case 1:
        return std::max<size_t>(1, slot / es - 1 + pick(3)) % (most + 1);
    case 2:
        return std::max<size_t>(1, slot / 2 / es - 1 + pick(3)) % (most + 1);
    case 3:
        return std::min<size_t>(most, 1 + rnd() % most);
    case 4:
    case 5:
        return 1 + pick(40000) % most;
    case 6:
        return 4 * (1 + pick(20000));
    case 7:
        return 16 * (1 + pick(2000));
    default:
        return 1 + pick(3000);
    }
}

static bool make(trial &t, int n, size_t slot, uint64_t sequence)
{
    static const sol_func_t funcs[] = {
        SOL_FUNC_ALL_REDUCE,     SOL_FUNC_ALL_REDUCE, SOL_FUNC_ALL_REDUCE, SOL_FUNC_REDUCE_SCATTER,
        SOL_FUNC_REDUCE_SCATTER, SOL_FUNC_REDUCE,     SOL_FUNC_ALL_GATHER, SOL_FUNC_ALL_TO_ALL,
        SOL_FUNC_BROADCAST,      SOL_FUNC_GATHER,     SOL_FUNC_SCATTER,    SOL_FUNC_BARRIER};
    struct sol_gpu_op &op = t.op;
    memset(&op, 0, sizeof op);
    op.func = funcs[pick(12)];
    op.dtype = (sol_dtype_t)pick(SOL_DTYPE_COUNT);
    if (pick(2))
        op.dtype = pick(2) ? SOL_BFLOAT16 : SOL_FLOAT32;
    op.redop = pick(2) ? SOL_SUM : (sol_redop_t)pick(SOL_REDOP_COUNT);
    op.root = pick(n);
    op.sequence = sequence;
    bool reduces = op.func == SOL_FUNC_ALL_REDUCE || op.func == SOL_FUNC_REDUCE_SCATTER ||
                   op.func == SOL_FUNC_REDUCE;
    if (reduces && op.redop == SOL_SUM && pick(6) == 0) {
        op.premul = true;
        op.scalar_on_device = pick(2);
        for (int i = 0; i < 8; i++)
            op.scalar[i] = (unsigned char)rnd();
    }
    size_t es = sol_dtype_size(op.dtype);
    size_t widest = std::max(blocks_sent(op.func, n), blocks_received(op.func, n));
    size_t most = (capacity - 4096) / es / widest;
    bool big = pick(20) == 0; /* now and then beyond a slot */
    op.count = random_count(es, slot, big ? most : std::min<size_t>(most, 200000 / widest));
    if (op.count == 0 || op.count > most)
        op.count = 1;
    if (op.func == SOL_FUNC_BARRIER)
        op.count = 0;
    size_t block = op.count * es;
    if (pick(3) == 0) {
        if (op.func == SOL_FUNC_ALL_REDUCE) {
            int a = 1 + pick(3);
            uint64_t share = (block / 16 + n) / n * 16 + 16;
            if (a == 3 || (a == 2 && n < 3) || (a == 2 && share > slot / 2) ||
                (a == 1 && block > slot))
                a = SOL_GPU_LANES_ALGO;
            op.algorithm = a;
        } else if (op.func != SOL_FUNC_BARRIER) {
            op.algorithm = SOL_GPU_LANES_ALGO;
        }
    }
    if (n == 1 && op.func == SOL_FUNC_BARRIER)
        op.count = 0;
    t.send_bytes = blocks_sent(op.func, n) * block;
    t.recv_bytes = blocks_received(op.func, n) * block;
    int align = pick(4);
    t.send_off = GUARD + (align == 0 ? pick(16) : align == 1 ? 4 * pick(4) : 0);
    t.recv_off = GUARD + (align == 0 ? pick(16) : align == 1 ? 4 * pick(4) : 0);
    t.in_place = pick(3) == 0;
    t.send.assign(n, std::vector<uint8_t>(t.send_bytes));
    t.before.assign(n, std::vector<uint8_t>(t.recv_bytes));
    int style = pick(5);
    for (int r = 0; r < n; r++) {
        fill(t.send[r], style);
        for (auto &b : t.before[r])
            b = (uint8_t)(0xa5 + r);
    }
    t.want = t.before;
    expect(t, n);
    return true;
}

struct buffers {
    char *send, *recv; /* of a slot of a batch */
    void *scalar;
};

/* Where the send buffer lies: in place, inside the receive buffer, or the other way round. */
static void place(const trial &t, const buffers &b, int r, char **send, char **recv)
{
    size_t block = t.op.count * sol_dtype_size(t.op.dtype);
    *send = b.send + t.send_off;
    *recv = b.recv + t.recv_off;
    if (!t.in_place)
        return;
    switch (t.op.func) {
    case SOL_FUNC_ALL_REDUCE:
    case SOL_FUNC_ALL_TO_ALL:
        *send = *recv;
        break;
    case SOL_FUNC_ALL_GATHER:
        *send = *recv + r * block;
        break;
    case SOL_FUNC_GATHER:
        if (r == t.op.root)
            *send = *recv + r * block;
        break;
    case SOL_FUNC_BROADCAST:
    case SOL_FUNC_REDUCE:
        if (r == t.op.root)
            *send = *recv;
        break;
    case SOL_FUNC_REDUCE_SCATTER:
        *recv = *send + r * block;
        break;
    case SOL_FUNC_SCATTER:
        if (r == t.op.root)
            *recv = *send + r * block;
        break;
    default:
        break;
    }
}

static const char *names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                              "reduce",     "all_to_all", "all_to_all_v",   "gather",
                              "scatter",    "send",       "recv",           "barrier"};

static void say(const trial &t, int n, int r)
{
    printf(
        "  n %d rank %d %s dtype %d redop %d premul %d/%d count %zu root %d algorithm %d offsets "
        "%zu %zu in place %d\n",
        n, r, names[t.op.func], t.op.dtype, t.op.redop, t.op.premul, t.op.scalar_on_device,
        t.op.count, t.op.root, t.op.algorithm, t.send_off, t.recv_off, t.in_place);
}

enum { BATCH = 4 };

static long run_trials(rig &r, double seconds, long *wrong)
{
    int n = r.nranks;
    size_t slot = r.ranks[0].comm.layout.slot_bytes;
    std::vector<std::vector<buffers>> dev(n, std::vector<buffers>(BATCH));
    for (int i = 0; i < n; i++) {
        CHECK(cudaSetDevice(r.ranks[i].device));
        for (auto &b : dev[i]) {
            CHECK(cudaMalloc((void **)&b.send, capacity + 4096));
            CHECK(cudaMalloc((void **)&b.recv, capacity + 4096));
            CHECK(cudaMalloc(&b.scalar, 8));
        }
    }
    long trials = 0;
    uint64_t sequence = 0;
    double until = now() + seconds;
    std::vector<uint8_t> got;
    while (now() < until && *wrong < 10) {
        std::vector<trial> batch(BATCH);
        for (auto &t : batch)
            make(t, n, slot, ++sequence);
        for (int b = 0; b < BATCH; b++)
            for (int i = 0; i < n; i++) {
                trial &t = batch[b];
                char *send, *recv;
                CHECK(cudaSetDevice(r.ranks[i].device));
                place(t, dev[i][b], i, &send, &recv);
                CHECK(cudaMemsetAsync(recv - GUARD, 0x5a, t.recv_bytes + 2 * GUARD,
                                      r.ranks[i].stream));
                CHECK(cudaMemcpyAsync(recv, t.before[i].data(), t.recv_bytes,
                                      cudaMemcpyHostToDevice, r.ranks[i].stream));
                CHECK(cudaMemcpyAsync(send, t.send[i].data(), t.send_bytes, cudaMemcpyHostToDevice,
                                      r.ranks[i].stream));
                if (t.op.premul) {
                    uint8_t scalar[8];
                    memcpy(scalar, t.op.scalar, 8);
                    scalar[0] ^= (uint8_t)i;
                    CHECK(cudaMemcpyAsync(dev[i][b].scalar, scalar, 8, cudaMemcpyHostToDevice,
                                          r.ranks[i].stream));
                }
                CHECK(cudaStreamSynchronize(r.ranks[i].stream));
            }
        double began = now();
        struct sol_gpu_op shapes[BATCH][8];
        for (int i = 0; i < n; i++) {
            CHECK(cudaSetDevice(r.ranks[i].device));
            for (int b = 0; b < BATCH; b++) {
                struct sol_gpu_op op = batch[b].op;
                char *send, *recv;
                place(batch[b], dev[i][b], i, &send, &recv);
                op.send = send;
                op.recv = recv;
                op.scalar[0] ^= (unsigned char)i;
                op.scalar_pointer = dev[i][b].scalar;
                if (pick(3) == 0) { /* another grid than the other ranks */
                    op.ctas = 1 + pick(40);
                    op.threads = 32 * (1 + pick(8));
                    op.vectors = 1 << pick(3);
                }
                if (pick(2) && r.nranks <= r.ndevices)
                    op.flags = SOL_GPU_PDL;
                shapes[b][i] = op;
                sol_gpu_plan(&r.ranks[i].comm, &shapes[b][i]);
                CHECK(sol_gpu_launch(&r.ranks[i].comm, &op, r.ranks[i].stream));
            }
        }
        double launched = now();
        rig_sync(r);
        if (rig_faults(r, "trials")) {
            printf("launching took %.3f s, running %.3f s, into the run %.3f s\n", launched - began,
                   now() - launched, began - until + seconds);
            for (int b = 0; b < BATCH; b++)
                for (int i = 0; i < n; i++)
                    printf("  op %d rank %d: algorithm %d, %d x %d x %d\n", b, i,
                           shapes[b][i].algorithm, shapes[b][i].ctas, shapes[b][i].threads,
                           shapes[b][i].vectors);
            for (auto &t : batch)
                say(t, n, -1);
            *wrong += 100;
            break;
        }
        for (int b = 0; b < BATCH; b++) {
            trial &t = batch[b];
            trials++;
            for (int i = 0; i < n; i++) {
                char *send, *recv;
                place(t, dev[i][b], i, &send, &recv);
                bool inside = t.in_place && (t.op.func == SOL_FUNC_REDUCE_SCATTER ||
                                             t.op.func == SOL_FUNC_SCATTER);
                got.resize(t.recv_bytes + 2 * GUARD);
                CHECK(cudaMemcpy(got.data(), recv - GUARD, got.size(), cudaMemcpyDefault));
                bool writes = !((t.op.func == SOL_FUNC_REDUCE || t.op.func == SOL_FUNC_GATHER) &&
                                i != t.op.root);
                size_t bad = 0, first = 0;
                for (size_t k = 0; writes && k < t.recv_bytes; k++)
                    if (got[GUARD + k] != t.want[i][k] && bad++ == 0)
                        first = k;
                for (size_t k = 0; !inside && k < GUARD; k++)
                    if (got[k] != 0x5a || got[GUARD + t.recv_bytes + k] != 0x5a) {
                        bad++;
                        printf("guard at %zu\n", k);
                    }
                if (bad) {
                    printf("WRONG %zu bytes from %zu of %zu: got %02x%02x%02x%02x want "
                           "%02x%02x%02x%02x\n",
                           bad, first, t.recv_bytes, got[GUARD + first + 3], got[GUARD + first + 2],
                           got[GUARD + first + 1], got[GUARD + first], t.want[i][first + 3],
                           t.want[i][first + 2], t.want[i][first + 1], t.want[i][first]);
                    say(t, n, i);
                    ++*wrong;
                }
            }
        }
    }
    for (auto &row : dev)
        for (auto &b : row) {
            CHECK(cudaFree(b.send));
            CHECK(cudaFree(b.recv));
            CHECK(cudaFree(b.scalar));
        }
    return trials;
}

/* Batches of messages of random sizes between random pairs. */
static long run_messages(rig &r, double seconds, long *wrong)
{
    int n = r.nranks;
    long rounds = 0;
    size_t area = 2u << 20;
    std::vector<char *> send(n), recv(n);
    std::vector<std::vector<uint8_t>> out(n, std::vector<uint8_t>(area * n)), in = out;
    for (int i = 0; i < n; i++) {
        CHECK(cudaSetDevice(r.ranks[i].device));
        CHECK(cudaMalloc((void **)&send[i], area * n));
        CHECK(cudaMalloc((void **)&recv[i], area * n));
    }
    double until = now() + seconds;
    while (now() < until && *wrong < 10) {
        std::vector<size_t> size(n * n), off(n * n);
        std::vector<bool> have(n * n);
        for (int k = 0; k < n * n; k++) {
            have[k] = pick(3) != 0;
            size[k] = pick(8) == 0 ? 0 : pick(8) == 0 ? rnd() % (area - 64) : rnd() % 20000;
            off[k] = pick(2) ? 0 : pick(16);
        }
        for (int i = 0; i < n; i++) {
            fill(out[i], pick(4));
            CHECK(cudaSetDevice(r.ranks[i].device));
            CHECK(cudaMemcpy(send[i], out[i].data(), area * n, cudaMemcpyDefault));
            CHECK(cudaMemset(recv[i], 0x5a, area * n));
            CHECK(cudaDeviceSynchronize());
        }
        for (int rep = 0; rep < 3; rep++)
            for (int i = 0; i < n; i++) {
                struct sol_gpu_messages m;
                struct sol_gpu_op op;
                memset(&m, 0, sizeof m);
                memset(&op, 0, sizeof op);
                op.func = SOL_FUNC_SEND;
                op.sequence = rounds;
                for (int p = 0; p < n; p++) {
                    m.send[p] = send[i] + p * area + off[i * n + p];
                    m.send_bytes[p] = size[i * n + p];
                    m.recv[p] = recv[i] + p * area + off[p * n + i];
                    m.recv_bytes[p] = size[p * n + i];
                    m.send_mask |= have[i * n + p] ? 1u << p : 0;
                    m.recv_mask |= have[p * n + i] ? 1u << p : 0;
                }
                CHECK(cudaSetDevice(r.ranks[i].device));
                CHECK(sol_gpu_exchange(&r.ranks[i].comm, &op, &m, r.ranks[i].stream));
            }
        rig_sync(r);
        if (rig_faults(r, "messages")) {
            *wrong += 100;
            break;
        }
        rounds++;
        for (int i = 0; i < n; i++) {
            CHECK(cudaMemcpy(in[i].data(), recv[i], area * n, cudaMemcpyDefault));
            for (int p = 0; p < n; p++) {
                size_t k = p * n + i, bad = 0;
                for (size_t b = 0; b < area; b++) {
                    bool inside = have[k] && b >= off[k] && b < off[k] + size[k];
                    uint8_t want = inside ? out[p][i * area + b] : 0x5a;
                    bad += in[i][p * area + b] != want;
                }
                if (bad) {
                    printf("WRONG message %d to %d of %zu bytes at %zu: %zu\n", p, i, size[k],
                           off[k], bad);
                    ++*wrong;
                }
            }
        }
    }
    for (int i = 0; i < n; i++) {
        CHECK(cudaFree(send[i]));
        CHECK(cudaFree(recv[i]));
    }
    return rounds;
}

static void reset(rig &r, uint64_t epoch)
{
    *r.abort_host = 0;
    for (auto &k : r.ranks) {
        memset(k.error, 0, sizeof *k.error);
        CHECK(cudaSetDevice(k.device));
        CHECK(sol_gpu_init(&k.comm, epoch, k.stream));
    }
    rig_sync(r);
}

/* Each way to fail: the faults that must be recorded, and the device usable afterwards. */
static void run_faults(rig &r)
{
    int n = r.nranks;
    char *buffer[8];
    struct sol_gpu_op op;
    for (int i = 0; i < n; i++) {
        CHECK(cudaSetDevice(r.ranks[i].device));
        CHECK(cudaMalloc((void **)&buffer[i], 32u << 20));
        CHECK(cudaMemset(buffer[i], 1, 32u << 20));
        CHECK(cudaDeviceSynchronize());
        r.ranks[i].comm.timeout_ns = 50000000ull;
    }
    for (size_t count : {(size_t)1000, (size_t)3000000, (size_t)7000000})
        for (int what = 0; what < 2; what++) {
            reset(r, 1);
            double t0 = now();
            for (int i = 0; i < n - 1; i++) {
                CHECK(cudaSetDevice(r.ranks[i].device));
                memset(&op, 0, sizeof op);
                op.func = SOL_FUNC_ALL_REDUCE, op.dtype = SOL_FLOAT32, op.count = count;
                op.send = op.recv = buffer[i];
                op.sequence = 7;
                struct sol_gpu_comm c = r.ranks[i].comm;
                c.timeout_ns = what ? 20000000000ull : c.timeout_ns;
                CHECK(sol_gpu_launch(&c, &op, r.ranks[i].stream));
            }
            if (what)
                *r.abort_host = 1;
            rig_sync(r);
            double ms = (now() - t0) * 1000;
            struct sol_gpu_error *e = r.ranks[0].error;
            bool good = e->fault == (what ? SOL_GPU_FAULT_ABORT : SOL_GPU_FAULT_TIMEOUT) &&
                        e->sequence == 7 && e->awaited > 0 &&
                        (what || n > 2 || e->awaited == n - 1);
            printf("%s %s count %zu: fault %u awaited %d sequence %llu bytes %llu, %.1f ms\n",
                   good ? "good" : "BAD", what ? "abort" : "timeout", count, e->fault, e->awaited,
                   (unsigned long long)e->sequence, (unsigned long long)e->bytes, ms);
        }
    reset(r, 1);
    for (int i = 0; i < 2; i++) {
        struct sol_gpu_messages m;
        memset(&m, 0, sizeof m);
        memset(&op, 0, sizeof op);
        op.func = i ? SOL_FUNC_RECV : SOL_FUNC_SEND;
        m.send[1] = buffer[0], m.send_bytes[1] = 100, m.send_mask = i ? 0 : 2;
        m.recv[0] = buffer[1], m.recv_bytes[0] = 200, m.recv_mask = i ? 1 : 0;
        CHECK(cudaSetDevice(r.ranks[i].device));
        CHECK(sol_gpu_exchange(&r.ranks[i].comm, &op, &m, r.ranks[i].stream));
    }
    rig_sync(r);
    struct sol_gpu_error *e = r.ranks[1].error;
    printf("%s mismatch: fault %u awaited %d detail %llu\n",
           e->fault == SOL_GPU_FAULT_MISMATCH && e->detail == 100 ? "good" : "BAD", e->fault,
           e->awaited, (unsigned long long)e->detail);
    for (int i = 0; i < n; i++)
        CHECK(cudaFree(buffer[i]));
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 5;
    uint64_t seed = argc > 2 ? strtoull(argv[2], 0, 0) : 1;
    int first = argc > 3 ? atoi(argv[3]) : 1, last = argc > 4 ? atoi(argv[4]) : 8;
    int devices = 0;
    long wrong = 0;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    CHECK(cudaGetDeviceCount(&devices));
    devices = std::min(devices, 2);
    double t0 = now();
    for (int d = 0; d < devices; d++) {
        CHECK(cudaSetDevice(d));
        CHECK(sol_gpu_preload());
    }
    printf("preload %.1f ms on %d devices; seed %llu\n", (now() - t0) * 1000, devices,
           (unsigned long long)seed);
    for (int n = first; n <= last && wrong < 10; n++) {
        random_state = seed * 1000003 + n;
        rig r;
        rig_open(r, n, std::min(n, devices), n % 2 ? 0 : 40u << 20, 3000000000ull);
        reset(r, n % 3 == 0 ? 0xfffffff0ull : n % 3 == 1 ? 1 : 0x7ffffff0ull);
        long trials = run_trials(r, seconds, &wrong);
        long messages = wrong < 10 ? run_messages(r, seconds / 4, &wrong) : 0;
        printf("n %d: slot %llu, %ld operations, %ld batches of messages, %ld wrong so far\n", n,
               (unsigned long long)r.ranks[0].comm.layout.slot_bytes, trials, messages, wrong);
        fflush(stdout);
        if ((n == 2 || n == 5) && wrong == 0)
            run_faults(r);
        for (auto &k : r.ranks) {
            CHECK(cudaSetDevice(k.device));
            CHECK(cudaFree(k.comm.staging[k.comm.rank]));
            CHECK(cudaFree(k.comm.state));
        }
    }
    printf("%s\n", wrong ? "FAILED" : "ALL GOOD");
    return wrong != 0;
}
