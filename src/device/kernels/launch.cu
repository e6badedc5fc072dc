/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.cu: from an operation to a kernel, its arguments and its grid. Runs on
 * every call: no allocation, no device query, no loop over more than the ranks.
 */
#include "device/kernels/enqueue.cuh"
#include "device/kernels/exchange.cuh"
#include "device/kernels/kernels.cuh"
#include "device/kernels/lane_reduce.cuh"
#include "device/kernels/launch.h"
#include "device/kernels/multicast.cuh"
#include "device/kernels/pair_ragged.h"
#include "device/kernels/push.cuh"
#include "device/kernels/two_shot.cuh"

#include <string.h>

static_assert(SOL_GPU_MAX_CTAS <= SOL_GPU_EPOCHS, "every CTA has its epoch");

#define FUNC(f) (1u << SOL_FUNC_##f)
#define MOVERS                                                                                     \
    (FUNC(ALL_GATHER) | FUNC(ALL_TO_ALL) | FUNC(BROADCAST) | FUNC(GATHER) | FUNC(SCATTER) |        \
     FUNC(BARRIER))
#define REDUCERS (FUNC(ALL_REDUCE) | FUNC(REDUCE_SCATTER) | FUNC(REDUCE))
#define ALL_DTYPES ((1u << SOL_DTYPE_COUNT) - 1)

const struct sol_gpu_algorithm_info sol_gpu_algorithms[] = {
    {SOL_GPU_ONE_SHOT, "one_shot",
     "push everything to whoever needs it, reduce what arrives: one hop", REDUCERS, ALL_DTYPES, 1,
     "2 ranks: all sizes; more: small messages", 0},
    {SOL_GPU_TWO_SHOT, "two_shot", "reduce shares at their owners, push the results: two hops",
     FUNC(ALL_REDUCE), ALL_DTYPES, 3, "3 ranks and more, medium messages", 0},
    {SOL_GPU_PUSH, "push", "push blocks into peers' slots: one hop", MOVERS, ALL_DTYPES, 1,
     "up to a slot; 2 ranks: all sizes", 0},
    {SOL_GPU_LANES_ALGO, "lanes", "chunks through rings with credits",
     REDUCERS | (MOVERS & ~FUNC(BARRIER)) | FUNC(ALL_TO_ALL_V) | FUNC(SEND) | FUNC(RECV),
     ALL_DTYPES, 1, "beyond a slot; messages between pairs", 0},
    {SOL_GPU_MULTICAST, "multicast", "through the switch's multicast (SOLCCL_CUDA_MULTICAST=1)",
     FUNC(ALL_REDUCE) | FUNC(ALL_GATHER) | FUNC(BROADCAST), ALL_DTYPES, 2, "never measured", 0}};
const int sol_gpu_algorithm_count = sizeof sol_gpu_algorithms / sizeof sol_gpu_algorithms[0];

static bool is_reducer(sol_func_t func)
{
    return REDUCERS >> func & 1;
}

/* Receivers get different blocks of the send buffer. */
static bool is_spread(sol_func_t func)
{
    return func == SOL_FUNC_REDUCE_SCATTER || func == SOL_FUNC_ALL_TO_ALL ||
           func == SOL_FUNC_SCATTER;
}

static bool is_rooted(sol_func_t func)
{
    return func == SOL_FUNC_REDUCE || func == SOL_FUNC_BROADCAST || func == SOL_FUNC_GATHER ||
           func == SOL_FUNC_SCATTER;
}

/* Bytes of what one source sends one receiver (two-shot: before it is cut into shares). */
static uint64_t block_bytes(const struct sol_gpu_op *op)
{
    return op->func == SOL_FUNC_BARRIER ? 0 : (uint64_t)op->count * sol_dtype_size(op->dtype);
}

static uint64_t share_bytes(uint64_t bytes, int n)
{
    uint64_t vectors = (bytes + SOL_GPU_VECTOR - 1) / SOL_GPU_VECTOR;
    return (vectors + n - 1) / n * SOL_GPU_VECTOR;
}

/* Is every address and size that the kernel will form a multiple of 16? Blocks begin at multiples
 * of `bytes`, so buffers and block suffice. */
static bool is_exact(const void *send, const void *recv, uint64_t bytes)
{
    return (((uintptr_t)send | (uintptr_t)recv | (uintptr_t)bytes) & 15) == 0;
}

static struct sol_kernel_key key_of(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op)
{
    struct sol_kernel_key key;
    key.dtype = op->dtype;
    key.redop = op->redop;
    key.nranks = comm->nranks;
    key.vectors = op->vectors;
    key.spread = is_spread(op->func);
    key.exact = op->func != SOL_FUNC_BARRIER && is_exact(op->send, op->recv, block_bytes(op));
    key.rooted = is_rooted(op->func) && is_reducer(op->func);
    key.premul = op->premul;
    key.reduces = is_reducer(op->func);
    key.loop = (uint64_t)op->ctas * op->threads * SOL_GPU_VECTOR < block_bytes(op);
    return key;
}

/* The kernel of pair.cuh or pair_ragged.cuh for it, of which the grid is known. Function NULL:
 * there is none. */
static struct sol_kernel pair_for(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op,
                                  const struct sol_kernel_key *key)
{
    const struct sol_kernel none = {NULL, 0, 0};
    const uint64_t bytes = block_bytes(op);
    const bool one_hop = op->algorithm == SOL_GPU_ONE_SHOT || op->algorithm == SOL_GPU_PUSH;
    if (sol_kernel_pair(key))
        return sol_pair_for(key);
    if (comm->nranks != 2 || op->func == SOL_FUNC_BARRIER || !one_hop || key->loop || key->rooted ||
        key->premul)
        return none;
    const uintptr_t bits = (uintptr_t)op->send | (uintptr_t)op->recv | (uintptr_t)bytes | 16;
    const unsigned unit = (unsigned)(bits & -bits);
    return unit == 16 || bytes <= SOL_PAIR_RAGGED_MOST ? sol_pair_ragged_for(key, unit) : none;
}

static int smaller(int a, uint64_t b)
{
    return (uint64_t)a < b ? a : (int)b;
}

/* `per_sm`: how often the kernel fits on an SM. */
static int most_ctas(const struct sol_gpu_comm *comm, int per_sm)
{
    int most = comm->max_ctas > 0 ? comm->max_ctas * per_sm : 1;
    return most < SOL_GPU_MAX_CTAS ? most : SOL_GPU_MAX_CTAS;
}

/* ------------------------------------------------------------------------------------ the plan */

/* What a second hop's 1.2 us are worth at 360 GB/s, in bytes. Less in the emulator, so that small
 * messages reach the switch. */
#ifndef SOL_GPU_HOP_WORTH
#define SOL_GPU_HOP_WORTH 432000
#endif

/* The largest message of n ranks for which one hop beats two: where the bytes saved,
 * (n-1)(1-2/n) S, take as long as the second hop. */
static uint64_t one_shot_limit(int n)
{
    return n <= 2 ? UINT64_MAX : (uint64_t)SOL_GPU_HOP_WORTH * n / ((uint64_t)(n - 1) * (n - 2));
}

/* With two ranks a message beyond a slot goes as several, one kernel each, if slots are worth it: a
 * ring of chunks is 1.2 to 2.5 times as slow. What decides is the same on both ranks. */
static bool in_segments(const struct sol_gpu_comm *comm)
{
    return comm->nranks == 2 && comm->layout.slot_bytes >= SOL_GPU_SLOT_WORTH;
}

/* Bytes of all segments but the last: nearly equal ones, whole tiles of every kernel. */
static uint64_t segment_of(const struct sol_gpu_comm *comm, uint64_t bytes)
{
    const uint64_t slot = comm->layout.slot_bytes, grain = SOL_GPU_SLOT_STEP;
    if (bytes <= slot)
        return bytes ? bytes : 1;
    const uint64_t count = (bytes + slot - 1) / slot;
    const uint64_t even = ((bytes + count - 1) / count + grain - 1) / grain * grain;
    return even < slot ? even : slot;
}

/* Has the switch's multicast been opened, and is there a kernel for it? Of reductions the same
 * answer on all ranks; what is moved may go both ways at once. */
static bool can_multicast(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op)
{
    const uint64_t bytes = block_bytes(op);
    if (comm->multicast == NULL)
        return false;
    if (op->func != SOL_FUNC_ALL_REDUCE)
        return (op->func == SOL_FUNC_ALL_GATHER || op->func == SOL_FUNC_BROADCAST) &&
               bytes <= comm->layout.slot_bytes && is_exact(op->send, op->recv, bytes);
    return (op->dtype == SOL_BFLOAT16 || op->dtype == SOL_FLOAT16 || op->dtype == SOL_FLOAT32) &&
           op->redop == SOL_SUM && !op->premul &&
           share_bytes(bytes, comm->nranks) * comm->nranks <= comm->area_bytes;
}

static int choose_algorithm(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op)
{
    /* of itself only where results are the same bits: the switch adds up in its own order */
    if (comm->nranks > 2 && op->func != SOL_FUNC_ALL_REDUCE && can_multicast(comm, op))
        return SOL_GPU_MULTICAST;
    const uint64_t bytes = block_bytes(op), slot = comm->layout.slot_bytes;
    if (!is_reducer(op->func))
        return bytes <= slot || in_segments(comm) ? SOL_GPU_PUSH : SOL_GPU_LANES_ALGO;
    if (op->func == SOL_FUNC_ALL_REDUCE && bytes > one_shot_limit(comm->nranks))
        return share_bytes(bytes, comm->nranks) <= slot / 2 ? SOL_GPU_TWO_SHOT : SOL_GPU_LANES_ALGO;
    return bytes <= slot || in_segments(comm) ? SOL_GPU_ONE_SHOT : SOL_GPU_LANES_ALGO;
}

/* Threads of a CTA and vectors of a thread, by the bytes that a source sends: the fastest with
 * dependent launch that two ranks on H200 showed (bench/NOTES.md), at most 16 CTAs to 64 KB. */
struct shape {
    uint64_t bytes;
    int threads, vectors;
};
static const struct shape shapes[] = {{1024, 32, 1},       {4096, 64, 1},    {32768, 128, 1},
                                      {65536, 256, 1},     {131072, 128, 1}, {1u << 20, 256, 1},
                                      {UINT64_MAX, 512, 1}};

/*
 * More ranks: one vector of every peer is enough in flight. By reasoning, not measured: an SM
 * pushes some 43 GB/s (bench/NOTES.md), so what a rank pushes to all its peers is spread over up to
 * 16 of them, 128 pushes and more on each; a CTA that a kernel has beyond the first costs 3 ns.
 */
static int threads_for_many(int nranks, uint64_t bytes)
{
    const uint64_t vectors = (bytes + SOL_GPU_VECTOR - 1) / SOL_GPU_VECTOR;
    uint64_t ctas = vectors * (uint64_t)(nranks - 1) / 128;
    ctas = ctas < 1 ? 1 : ctas > 16 ? 16 : ctas;
    const uint64_t threads = ((vectors + ctas - 1) / ctas + 31) / 32 * 32;
    return threads < 32 ? 32 : threads > 256 ? 256 : (int)threads;
}

static void choose_shape(const struct sol_gpu_comm *comm, uint64_t bytes, struct sol_gpu_op *op)
{
    const struct shape *s = shapes;
    while (s->bytes < bytes)
        s++;
    int threads = s->threads, vectors = s->vectors;
    if (comm->nranks != 2) {
        vectors = 1;
        threads = threads_for_many(comm->nranks, bytes);
    }
    if (op->vectors == 0)
        op->vectors = vectors;
    if (op->threads == 0)
        op->threads = threads;
}

/* Ranks that have a device to themselves may use an SM twice, as the launch bounds for two ranks
 * say; those that share one get SMs of their own. */
static int most_of_plan(const struct sol_gpu_comm *comm)
{
    return most_ctas(comm, comm->nranks == 2 && comm->ranks_here <= 1 ? 2 : 1);
}

/* The grid of a pair kernel. */
static void plan_pair(const struct sol_gpu_comm *comm, struct sol_gpu_op *op, uint64_t bytes)
{
    const uint64_t tile = (uint64_t)op->threads * SOL_GPU_VECTOR, full = (bytes + tile - 1) / tile;
    op->vectors = 1;
    if (op->ctas == 0 || (uint64_t)op->ctas > full)
        op->ctas = smaller(most_of_plan(comm), full);
    if (op->ctas > most_of_plan(comm))
        op->ctas = most_of_plan(comm);
}

/* Grids of reductions are equal on all ranks: their CTAs meet. */
static void plan_multicast(const struct sol_gpu_comm *comm, struct sol_gpu_op *op, uint64_t bytes)
{
    const bool reduces = op->func == SOL_FUNC_ALL_REDUCE;
    const int most = reduces ? SOL_GPU_MEETING_CTAS : SOL_GPU_MAX_CTAS;
    const uint64_t piece = reduces ? share_bytes(bytes, comm->nranks) : bytes;
    op->vectors = 1;
    op->threads = reduces ? 512 : 256;
    const uint64_t full = (piece + (uint64_t)op->threads * 16 - 1) / ((uint64_t)op->threads * 16);
    op->ctas = smaller(most < most_ctas(comm, 1) ? most : most_ctas(comm, 1), full ? full : 1);
}

void sol_gpu_plan(const struct sol_gpu_comm *comm, struct sol_gpu_op *op)
{
    uint64_t bytes = block_bytes(op);
    if (op->algorithm == SOL_GPU_MULTICAST && !can_multicast(comm, op))
        op->algorithm = SOL_GPU_AUTO;
    if (op->algorithm == SOL_GPU_AUTO)
        op->algorithm = choose_algorithm(comm, op);
    if (op->algorithm == SOL_GPU_MULTICAST) {
        plan_multicast(comm, op, bytes);
        return;
    }
    if (op->algorithm == SOL_GPU_TWO_SHOT)
        bytes = share_bytes(bytes, comm->nranks);
    choose_shape(comm, bytes, op);
    if (op->threads > 512)
        op->threads = 512;
    if (comm->nranks == 2 && op->algorithm != SOL_GPU_LANES_ALGO) {
        struct sol_gpu_op paired = *op; /* whether there is a kernel depends on the grid, too */
        plan_pair(comm, &paired, bytes);
        const struct sol_kernel_key key = key_of(comm, &paired);
        if (pair_for(comm, &paired, &key).function) {
            *op = paired;
            return;
        }
    }
    struct sol_kernel_key key = key_of(comm, op);
    struct sol_kernel k = op->algorithm == SOL_GPU_ONE_SHOT   ? sol_one_shot_for(&key)
                          : op->algorithm == SOL_GPU_TWO_SHOT ? sol_two_shot_for(&key)
                          : op->algorithm == SOL_GPU_PUSH     ? sol_push_for(&key)
                          : is_reducer(op->func)              ? sol_lane_reduce_for(&key)
                                                              : sol_exchange_for(&key);
    if (op->algorithm == SOL_GPU_LANES_ALGO) {
        op->threads = k.threads;
        op->vectors = k.vectors ? k.vectors : SOL_EXCHANGE_VECTORS;
        op->ctas = 0; /* follows from the lanes */
        return;
    }
    if (op->threads > k.threads)
        op->threads = k.threads;
    op->vectors = k.vectors;
    uint64_t per_cta = (uint64_t)op->threads * op->vectors * SOL_GPU_VECTOR;
    uint64_t full = (bytes + per_cta - 1) / per_cta;
    if (op->ctas == 0 || (uint64_t)op->ctas > full)
        op->ctas = smaller(SOL_GPU_MAX_CTAS, full ? full : 1);
    if (op->ctas > most_of_plan(comm))
        op->ctas = most_of_plan(comm);
}

size_t sol_gpu_segment_bytes(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op)
{
    if (op->algorithm == SOL_GPU_MULTICAST && op->func == SOL_FUNC_ALL_REDUCE)
        return comm->area_bytes;
    size_t slot = comm->layout.slot_bytes;
    if (in_segments(comm))
        return SIZE_MAX;
    return op->algorithm == SOL_GPU_TWO_SHOT ? slot / 2 * comm->nranks : slot;
}

/* -------------------------------------------------------------------------------------- launches
 */

static struct sol_tail tail_of(const struct sol_gpu_op *op, uint64_t bytes)
{
    struct sol_tail tail = sol_tail_for(op->sequence, bytes, (uint32_t)op->func);
    tail.scalar_pointer = op->premul && op->scalar_on_device ? op->scalar_pointer : NULL;
    if (op->premul && !op->scalar_on_device)
        memcpy(&tail.scalar, op->scalar, sol_dtype_size(op->dtype));
    return tail;
}

/* `bytes`: of the operation, for the error text. */
template <class A>
static cudaError_t enqueue(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op,
                           const void *function, const A *args, uint64_t bytes, int ctas,
                           int threads, cudaStream_t stream)
{
    typedef void (*kernel)(A, struct sol_link, struct sol_tail);
    const struct sol_grid grid = {(unsigned)ctas, (unsigned)threads, 1, op->flags, stream};
    return sol_enqueue((kernel)function, grid, *args, sol_link_of(comm), tail_of(op, bytes));
}

/* Who sends data to whom: of this rank, by peer. */
static void traffic(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op, unsigned *to,
                    unsigned *from)
{
    const unsigned others = ((1u << comm->nranks) - 1) & ~(1u << comm->rank);
    const unsigned root = others & 1u << op->root;
    const bool am_root = comm->rank == op->root;
    *to = *from = 0;
    switch (op->func) {
    case SOL_FUNC_BROADCAST:
    case SOL_FUNC_SCATTER:
        *to = am_root ? others : 0;
        *from = root;
        break;
    case SOL_FUNC_GATHER:
    case SOL_FUNC_REDUCE:
        *to = root;
        *from = am_root ? others : 0;
        break;
    case SOL_FUNC_BARRIER:
        break;
    default:
        *to = *from = others;
    }
}

/* Peers by rank, as bits of k and of q (link.cuh). */
static uint8_t push_bits(const struct sol_gpu_comm *comm, unsigned ranks)
{
    unsigned bits = 0;
    for (int k = 0; k < comm->nranks - 1; k++)
        bits |= (ranks >> sol_push_peer(comm->rank, comm->nranks, k) & 1) << k;
    return (uint8_t)bits;
}
static uint8_t poll_bits(const struct sol_gpu_comm *comm, unsigned ranks)
{
    unsigned bits = 0;
    for (int q = 0; q < comm->nranks - 1; q++)
        bits |= (ranks >> sol_poll_peer(comm->rank, q) & 1) << q;
    return (uint8_t)bits;
}

static cudaError_t launch_one_shot(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op,
                                   cudaStream_t stream)
{
    struct sol_kernel_key key = key_of(comm, op);
    struct sol_one_shot_args args;
    const int n = comm->nranks;
    uint64_t bytes = block_bytes(op);
    unsigned to, from;
    traffic(comm, op, &to, &from);
    args.stride = key.spread ? (int64_t)bytes : 0;
    args.own = (const char *)op->send + comm->rank * args.stride;
    args.first =
        n > 1 ? (const char *)op->send + sol_push_peer(comm->rank, n, 0) * args.stride : args.own;
    args.recv = (char *)op->recv;
    args.to = push_bits(comm, to);
    args.from = poll_bits(comm, from);
    args.receives = !key.rooted || comm->rank == op->root;
    args.redop = (uint8_t)op->redop & 0x7f;
    args.premul = op->premul;
    const struct sol_kernel pair = pair_for(comm, op, &key);
    const struct sol_kernel k = pair.function ? pair : sol_one_shot_for(&key);
    const uint64_t segment = segment_of(comm, bytes);
    cudaError_t error = cudaSuccess;
    for (uint64_t at = 0; at < bytes && error == cudaSuccess; at += segment) {
        args.bytes = (uint32_t)(bytes - at < segment ? bytes - at : segment);
        error = enqueue(comm, op, k.function, &args, bytes, op->ctas, op->threads, stream);
        args.own += segment;
        args.first += segment;
        args.recv += segment;
    }
    return error;
}

static cudaError_t launch_two_shot(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op,
                                   cudaStream_t stream)
{
    struct sol_kernel_key key = key_of(comm, op);
    struct sol_two_shot_args args;
    args.send = (const char *)op->send;
    args.recv = (char *)op->recv;
    args.bytes = block_bytes(op);
    args.share = (uint32_t)share_bytes(args.bytes, comm->nranks);
    args.redop = (uint8_t)op->redop;
    args.premul = op->premul;
    return enqueue(comm, op, sol_two_shot_for(&key).function, &args, args.bytes, op->ctas,
                   op->threads, stream);
}

static cudaError_t launch_lane_reduce(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op,
                                      cudaStream_t stream)
{
    struct sol_kernel_key key = key_of(comm, op);
    struct sol_lane_reduce_args args;
    args.send = (const char *)op->send;
    args.recv = (char *)op->recv;
    args.bytes = block_bytes(op);
    args.stride = key.spread ? args.bytes : 0;
    args.root = (int16_t)(key.rooted ? op->root : -1);
    args.redop = (uint8_t)op->redop;
    args.premul = op->premul;
    args.hops = op->func == SOL_FUNC_ALL_REDUCE && comm->nranks > 2 ? 2 : 1;
    uint64_t unit = (uint64_t)SOL_GPU_LANE_CHUNK * (args.hops == 2 ? comm->nranks : 1);
    int lanes = smaller(comm->layout.lanes, (args.bytes + unit - 1) / unit);
    lanes = lanes < most_ctas(comm, 1) ? lanes : most_ctas(comm, 1);
    struct sol_kernel k = sol_lane_reduce_for(&key);
    return enqueue(comm, op, k.function, &args, args.bytes, lanes, k.threads, stream);
}

/* Where this rank's own block goes from and to, if it takes part itself and is not in place. */
static bool own_copy(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op, uint64_t bytes,
                     const char **from, char **to)
{
    bool gathers = op->func == SOL_FUNC_ALL_GATHER || op->func == SOL_FUNC_GATHER ||
                   op->func == SOL_FUNC_ALL_TO_ALL;
    if (op->func == SOL_FUNC_BARRIER || (is_rooted(op->func) && comm->rank != op->root))
        return false;
    *from = (const char *)op->send + (is_spread(op->func) ? comm->rank * bytes : 0);
    *to = (char *)op->recv + (gathers ? comm->rank * bytes : 0);
    return bytes > 0 && *from != *to;
}

static struct sol_push_args push_args(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op)
{
    struct sol_push_args args;
    const int n = comm->nranks, rank = comm->rank;
    const bool gathers = op->func == SOL_FUNC_ALL_GATHER || op->func == SOL_FUNC_GATHER ||
                         op->func == SOL_FUNC_ALL_TO_ALL;
    const char *from;
    char *to;
    uint64_t bytes = block_bytes(op);
    unsigned to_ranks, from_ranks;
    traffic(comm, op, &to_ranks, &from_ranks);
    args.send_stride = is_spread(op->func) ? (int64_t)bytes : 0;
    args.recv_stride = gathers ? (int64_t)bytes : 0;
    args.own = (const char *)op->send + rank * args.send_stride;
    args.own_to = (char *)op->recv + rank * args.recv_stride;
    args.first =
        n > 1 ? (const char *)op->send + sol_push_peer(rank, n, 0) * args.send_stride : args.own;
    args.recv_first =
        n > 1 ? (char *)op->recv + sol_poll_peer(rank, 0) * args.recv_stride : args.own_to;
    args.bytes = (uint32_t)bytes; /* as far as they are sent at once */
    args.to = push_bits(comm, to_ranks);
    args.from = poll_bits(comm, from_ranks);
    args.copy = own_copy(comm, op, bytes, &from, &to);
    args.reserved = 0;
    return args;
}

static cudaError_t launch_push(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op,
                               cudaStream_t stream)
{
    struct sol_kernel_key key = key_of(comm, op);
    struct sol_push_args args = push_args(comm, op);
    const struct sol_kernel pair = pair_for(comm, op, &key);
    const struct sol_kernel k = pair.function ? pair : sol_push_for(&key);
    const uint64_t bytes = block_bytes(op), segment = segment_of(comm, bytes);
    cudaError_t error = cudaSuccess;
    uint64_t at = 0;
    do { /* a barrier has no bytes */
        args.bytes = (uint32_t)(bytes - at < segment ? bytes - at : segment);
        error = enqueue(comm, op, k.function, &args, bytes, op->ctas, op->threads, stream);
        args.own += segment;
        args.own_to += segment;
        args.first += segment;
        args.recv_first += segment;
        at += segment;
    } while (at < bytes && error == cudaSuccess);
    return error;
}

static cudaError_t launch_multicast(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op,
                                    cudaStream_t stream)
{
    struct sol_kernel_key key = key_of(comm, op);
    const uint64_t bytes = block_bytes(op);
    if (op->func != SOL_FUNC_ALL_REDUCE) {
        struct sol_multicast_push_args push = {push_args(comm, op), NULL};
        push.all = comm->multicast + comm->layout.coll + comm->rank * comm->layout.slot_bytes;
        return enqueue(comm, op, sol_multicast_push_for(&key).function, &push, bytes, op->ctas,
                       op->threads, stream);
    }
    struct sol_multicast_reduce_args args;
    args.send = (const char *)op->send;
    args.recv = (char *)op->recv;
    args.area = comm->staging[comm->rank] + comm->area;
    args.all = comm->multicast + comm->area;
    args.bytes = bytes;
    args.share = share_bytes(bytes, comm->nranks);
    return enqueue(comm, op, sol_multicast_reduce_for(&key).function, &args, bytes, op->ctas,
                   op->threads, stream);
}

static cudaError_t launch_exchange(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op,
                                   const struct sol_gpu_messages *m, bool in_place,
                                   cudaStream_t stream)
{
    const int n = comm->nranks, most = most_ctas(comm, 1);
    const unsigned others = ((1u << n) - 1) & ~(1u << comm->rank);
    const bool copies = (m->send_mask & m->recv_mask) >> comm->rank & 1;
    struct sol_exchange_args args;
    struct sol_kernel_key key;
    uint64_t bits = 0, total = 0;
    memset(&args, 0, sizeof args);
    args.copy_ctas = copies ? (most >= 64 ? 8 : 1) : 0;
    /* both ends must find the same number: it may depend on n, max_ctas and the bytes only */
    int limit = n > 1 ? (most - (most >= 64 ? 8 : 1)) / (n - 1) : 1;
    args.paired = in_place || limit < 2;
    limit = limit < 2 ? limit : limit / 2;
    limit = limit < comm->layout.lanes ? limit : comm->layout.lanes;
    if (limit < 1)
        return cudaErrorInvalidConfiguration;
    int ctas = args.copy_ctas;
    for (int p = 0; p < n; p++) {
        if (m->send_mask >> p & 1) {
            args.send[p].data = (char *)m->send[p];
            args.send[p].bytes = m->send_bytes[p];
            bits |= (uintptr_t)m->send[p] | m->send_bytes[p];
            total += m->send_bytes[p];
        }
        if (m->recv_mask >> p & 1) {
            args.recv[p].data = (char *)m->recv[p];
            args.recv[p].bytes = m->recv_bytes[p];
            bits |= (uintptr_t)m->recv[p] | m->recv_bytes[p];
        }
        int send = m->send_mask & others & 1u << p ? sol_gpu_lanes_for(m->send_bytes[p], limit) : 0;
        int recv = m->recv_mask & others & 1u << p ? sol_gpu_lanes_for(m->recv_bytes[p], limit) : 0;
        args.send_lanes[p] = (uint8_t)send;
        args.recv_lanes[p] = (uint8_t)recv;
        ctas += !args.paired ? send + recv : send > recv ? send : recv;
    }
    if (ctas == 0)
        return cudaSuccess;
    memset(&key, 0, sizeof key);
    key.exact = (bits & 15) == 0;
    return enqueue(comm, op, sol_exchange_for(&key).function, &args, total, ctas,
                   SOL_EXCHANGE_THREADS, stream);
}

/* A collective that moves bytes, as messages. */
static cudaError_t launch_moves(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op,
                                cudaStream_t stream)
{
    const bool spread = is_spread(op->func);
    const bool gathers = op->func == SOL_FUNC_ALL_GATHER || op->func == SOL_FUNC_GATHER ||
                         op->func == SOL_FUNC_ALL_TO_ALL;
    const uint64_t bytes = block_bytes(op);
    struct sol_gpu_messages m;
    memset(&m, 0, sizeof m);
    traffic(comm, op, &m.send_mask, &m.recv_mask);
    for (int p = 0; p < comm->nranks; p++) {
        m.send[p] = (const char *)op->send + (spread ? p * bytes : 0);
        m.recv[p] = (char *)op->recv + (gathers ? p * bytes : 0);
        m.send_bytes[p] = m.recv_bytes[p] = bytes;
    }
    const char *from;
    char *to;
    if (own_copy(comm, op, bytes, &from, &to)) {
        m.send[comm->rank] = from;
        m.recv[comm->rank] = to;
        m.send_mask |= 1u << comm->rank;
        m.recv_mask |= 1u << comm->rank;
    }
    return launch_exchange(comm, op, &m, op->func == SOL_FUNC_ALL_TO_ALL && op->send == op->recv,
                           stream);
}

cudaError_t sol_gpu_launch(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op,
                           cudaStream_t stream)
{
    struct sol_gpu_op planned = *op;
    if (op->func == SOL_FUNC_BARRIER ? comm->nranks == 1 : op->count == 0)
        return cudaSuccess;
    if (op->func == SOL_FUNC_BARRIER)
        planned.dtype = SOL_UINT8;
    sol_gpu_plan(comm, &planned);
    switch (planned.algorithm) {
    case SOL_GPU_ONE_SHOT:
        return launch_one_shot(comm, &planned, stream);
    case SOL_GPU_TWO_SHOT:
        return launch_two_shot(comm, &planned, stream);
    case SOL_GPU_PUSH:
        return launch_push(comm, &planned, stream);
    case SOL_GPU_MULTICAST:
        return launch_multicast(comm, &planned, stream);
    default:
        return is_reducer(op->func) ? launch_lane_reduce(comm, &planned, stream)
                                    : launch_moves(comm, &planned, stream);
    }
}

cudaError_t sol_gpu_exchange(const struct sol_gpu_comm *comm, const struct sol_gpu_op *op,
                             const struct sol_gpu_messages *messages, cudaStream_t stream)
{
    return launch_exchange(comm, op, messages, false, stream);
}

/* ------------------------------------------------------------------------------------------
 * loading */

static cudaError_t load_pairs(void)
{
    const sol_dtype_t dtypes[] = {SOL_BFLOAT16, SOL_FLOAT16, SOL_FLOAT32};
    cudaError_t e = cudaSuccess;
    for (int d = 0; d < 3; d++)
        for (int bits = 0; bits < 8 && e == cudaSuccess; bits++) {
            struct sol_kernel_key key = {};
            key.dtype = dtypes[d];
            key.nranks = 2;
            key.exact = true;
            key.vectors = 1;
            key.spread = (bits & 1) != 0;
            key.loop = (bits & 2) != 0;
            key.reduces = (bits & 4) != 0;
            e = sol_load(sol_pair_for(&key).function);
        }
    return e;
}

static cudaError_t load_ragged_pairs(void)
{
    const sol_redop_t redops[] = {SOL_SUM, SOL_MIN, SOL_MAX};
    cudaError_t e = cudaSuccess;
    for (int d = 0; d < SOL_DTYPE_COUNT; d++)
        for (int bits = 0; bits < 4; bits++)
            for (int r = 0; r < 3; r++)
                for (unsigned unit = 1; unit <= 16 && e == cudaSuccess; unit *= 2) {
                    struct sol_kernel_key key = {};
                    key.dtype = (sol_dtype_t)d;
                    key.redop = redops[r];
                    key.spread = (bits & 1) != 0;
                    key.reduces = (bits & 2) != 0;
                    const struct sol_kernel k = sol_pair_ragged_for(&key, unit);
                    e = k.function ? sol_load(k.function) : cudaSuccess;
                }
    return e;
}

cudaError_t sol_gpu_preload_multicast(void)
{
    const sol_dtype_t dtypes[] = {SOL_BFLOAT16, SOL_FLOAT16, SOL_FLOAT32};
    cudaError_t e = cudaSuccess;
    for (int i = 0; i < 6 && e == cudaSuccess; i++) {
        struct sol_kernel_key key = {};
        key.dtype = dtypes[i % 3];
        key.nranks = i < 3 ? 4 : 8;
        e = sol_load(sol_multicast_push_for(&key).function);
        e = e != cudaSuccess ? e : sol_load(sol_multicast_reduce_for(&key).function);
    }
    return e;
}

cudaError_t sol_gpu_preload(void)
{
    const int ranks[] = {2, 4, 8}, vectors[] = {1, 2, 4};
    cudaError_t e = load_pairs();
    e = e != cudaSuccess ? e : load_ragged_pairs();
    for (int d = 0; d < SOL_DTYPE_COUNT; d++)
        for (int r = 0; r < 3; r++)
            for (int v = 0; v < 3; v++)
                for (int bits = 0; bits < 4; bits++) {
                    struct sol_kernel_key key = {};
                    key.dtype = (sol_dtype_t)d;
                    key.nranks = ranks[r];
                    key.vectors = vectors[v];
                    key.spread = (bits & 1) != 0;
                    key.exact = (bits & 2) != 0;
                    struct sol_kernel k[] = {sol_one_shot_for(&key), sol_two_shot_for(&key),
                                             sol_lane_reduce_for(&key), sol_push_for(&key),
                                             sol_exchange_for(&key)};
                    for (int i = 0; i < 5 && e == cudaSuccess; i++)
                        e = sol_load(k[i].function);
                }
    return e;
}
