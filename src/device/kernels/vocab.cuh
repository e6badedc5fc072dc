/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vocab.cuh: the k largest logits of a token and the log of the sum of their
 * exponentials, of a vocabulary that is divided among ranks, in one kernel, one hop.
 * What is computed is said in solccl/fused.h, keys and sums are those of
 * coll/vocab.h: any way that finds the k largest keys finds the same bits.
 *
 *     own k largest of each token | push it to every peer || poll theirs | merge | store
 *
 * A shard's row is spread over a cluster of `spread` CTAs. Each finds the k largest
 * keys of its part, and the first one merges the lists, talks to the peers and
 * writes the results.
 *
 * The k largest of a part: each thread's largest key is known after one pass, and
 * the k-th largest of these is not larger than the k-th of all. So a second pass
 * collects the few keys that are at least that large, and these are ranked. Rows
 * made to defeat this (many keys above it) have their k-th key found bit by bit.
 *
 * Must never: poll before the pushes of all its tokens have been issued; let a thread
 * leave a barrier out: all branches around barriers are the same for the whole CTA
 * or cluster.
 */
#ifndef SOL_DEVICE_KERNELS_VOCAB_CUH
#define SOL_DEVICE_KERNELS_VOCAB_CUH

#include "device/prim/slots.cuh"
#include "solccl/fused.h"

#include "coll/vocab.h"

#ifndef SOL_VOCAB_THREADS /* (fewer in the emulator) */
#define SOL_VOCAB_THREADS 512
#endif
#define SOL_VOCAB_SPREAD 8 /* CTAs of a cluster, at most */
/* Keys in shared memory: candidates of a CTA, or the lists of a cluster or of all ranks. */
#define SOL_VOCAB_KEYS (SOL_GPU_MAX_RANKS * (SOL_VOCAB_MAX_K + 2))

struct sol_vocab_kernel_args {
    const char *logits;
    uint64_t pitch;    /* bytes from a row to the next */
    uint32_t columns;  /* of this rank's shard */
    uint32_t part;     /* columns that a CTA of the cluster takes: whole vectors */
    uint32_t tokens;   /* of this launch */
    uint32_t first;    /* index of column 0 */
    uint16_t spread;   /* CTAs of a cluster */
    uint16_t k, words; /* of a message, and of it in a slot: a multiple of 2 */
    uint16_t slot_words;
    int32_t fraction; /* of sol_vocab_fraction */
    bool sum;
    char *values, *indices, *log_sum_exp; /* NULL: not wanted */
};

struct sol_vocab_shared {
    uint64_t keys[SOL_VOCAB_KEYS];
    uint64_t top[SOL_VOCAB_MAX_K + 2];      /* the result of this CTA; then the message */
    uint64_t maxima[SOL_VOCAB_THREADS];     /* of each thread */
    uint64_t warps[SOL_VOCAB_THREADS / 32]; /* what warps tell each other */
    uint64_t largest[SOL_VOCAB_SPREAD];     /* of each CTA of the cluster */
    uint64_t sums[SOL_VOCAB_SPREAD];
    uint64_t least; /* the least key that can be in the result */
    uint32_t count; /* keys collected */
};

/* --- the CTA, the cluster -----------------------------------------------------------------------
 */

SOL_GPU_FN void sol_vocab_store_word(uint64_t *mine, uint32_t cta, uint32_t spread, uint64_t w)
{
    if (spread == 1) {
        *mine = w;
        return;
    }
    float *half = (float *)mine;
    sol_cluster_store(half, cta, sol_f32_bits((uint32_t)w));
    sol_cluster_store(half + 1, cta, sol_f32_bits((uint32_t)(w >> 32)));
}

SOL_GPU_FN void sol_vocab_sync(uint32_t spread)
{
    if (spread > 1)
        sol_cluster_sync();
    else
        __syncthreads();
}

/* The largest (SUM: the sum) of all threads' words; all get it. Two barriers. */
template <bool SUM> SOL_GPU_FN uint64_t sol_vocab_join(struct sol_vocab_shared &shared, uint64_t x)
{
    const uint32_t lane = threadIdx.x % 32, warps = blockDim.x / 32;
#pragma unroll
    for (int half = 16; half > 0; half /= 2) {
        uint64_t y = __shfl_xor_sync(0xffffffffu, x, half);
        x = SUM ? x + y : y > x ? y : x;
    }
    __syncthreads(); /* the words of the last time have been read */
    if (lane == 0)
        shared.warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (uint32_t w = 0; w < warps; w++) {
        uint64_t y = shared.warps[w];
        x = SUM ? x + y : y > x ? y : x;
    }
    return x;
}

/* --- passes over a part of a row ----------------------------------------------------------------
 */

enum sol_vocab_pass { SOL_VOCAB_LARGEST, SOL_VOCAB_COUNT, SOL_VOCAB_COLLECT, SOL_VOCAB_TERMS };

/* Unaligned, or the row's end. */
SOL_GPU_RARE struct sol_vector sol_vocab_load_some(const char *p, uint32_t left)
{
    return sol_load_vector<false>(p, left);
}

SOL_GPU_FN struct sol_vector sol_vocab_load(const char *p, uint32_t left)
{
    return left >= 16 && ((uintptr_t)p & 15) == 0 ? sol_load_16(p) : sol_vocab_load_some(p, left);
}

/* One pass of this thread: its largest key; how many keys are at least `least`; the same into
 * shared.keys; or the terms relative to `largest`. */
template <int D, int PASS>
SOL_GPU_FN uint64_t sol_vocab_take(const struct sol_vocab_kernel_args &args,
                                   struct sol_vocab_shared &shared, const char *row, uint32_t from,
                                   uint32_t to, uint64_t least, float largest)
{
    enum { E = sol_element<D>::count, AHEAD = 4 };
    const uint32_t step = blockDim.x * E;
    uint64_t result = 0;
    for (uint32_t base = from + threadIdx.x * E; base < to; base += AHEAD * step) {
        struct sol_vector v[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            const uint32_t column = base + a * step;
            v[a].a = v[a].b = 0;
            if (column < to && column >= base)
                v[a] = sol_vocab_load(row + (uint64_t)column * (16 / E),
                                      to - column < E ? (to - column) * (16 / E) : 16);
        }
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            const uint32_t column = base + a * step;
            const struct sol_lanes<D> x = sol_unpack<D>(v[a]);
#pragma unroll
            for (int i = 0; i < E; i++) {
                if (column + i >= to || column + i < base)
                    continue;
                const uint64_t key = sol_vocab_key(sol_bits_f32(x.x[i]), args.first + column + i);
                if (PASS == SOL_VOCAB_LARGEST)
                    result = key > result ? key : result;
                else if (PASS == SOL_VOCAB_TERMS)
                    result += sol_vocab_term(x.x[i], largest, args.fraction);
                else if (key >= least)
                    result++;
                if (PASS == SOL_VOCAB_COLLECT && key >= least) {
                    uint32_t at = atomicAdd(&shared.count, 1u);
                    if (at < SOL_VOCAB_KEYS)
                        shared.keys[at] = key;
                }
            }
        }
    }
    return result;
}

/* The k-th largest key of a part that has at least k, bit by bit. All threads. */
template <int D>
SOL_GPU_RARE uint64_t sol_vocab_bisect(const struct sol_vocab_kernel_args &args,
                                       struct sol_vocab_shared &shared, const char *row,
                                       uint32_t from, uint32_t to)
{
    uint64_t least = 0;
#pragma unroll 1
    for (int bit = 63; bit >= 0; bit--) {
        const uint64_t tried = least | (uint64_t)1 << bit;
        uint64_t mine =
            sol_vocab_take<D, SOL_VOCAB_COUNT>(args, shared, row, from, to, tried, 0.0f);
        if (sol_vocab_join<true>(shared, mine) >= args.k)
            least = tried;
    }
    return least;
}

/* shared.top: the k largest of `count` different keys in shared.keys. A barrier before and after is
 * the caller's. */
SOL_GPU_FN void sol_vocab_rank(struct sol_vocab_shared &shared, uint32_t count, uint32_t k)
{
    for (uint32_t i = threadIdx.x; i < k; i += blockDim.x)
        if (i >= count)
            shared.top[i] = 0;
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
        const uint64_t key = shared.keys[i];
        uint32_t above = 0;
        for (uint32_t j = 0; j < count && above < k; j++)
            above += shared.keys[j] > key;
        if (above < k)
            shared.top[above] = key;
    }
}

/* The k-th largest of the threads' largest keys into shared.least, which is 0. */
SOL_GPU_FN void sol_vocab_bound(struct sol_vocab_shared &shared, uint64_t mine, uint32_t k)
{
    uint32_t above = 0;
    for (uint32_t j = 0; j < blockDim.x; j++)
        above += shared.maxima[j] > mine;
    if (mine != 0 && above == k - 1)
        shared.least = mine;
}

/* shared.top: the k largest keys of this CTA's part; shared.top[0] also for k = 0. All threads; a
 * barrier after it is the caller's. */
template <int D>
SOL_GPU_FN void sol_vocab_part(const struct sol_vocab_kernel_args &args,
                               struct sol_vocab_shared &shared, const char *row, uint32_t from,
                               uint32_t to)
{
    const uint64_t mine =
        sol_vocab_take<D, SOL_VOCAB_LARGEST>(args, shared, row, from, to, 0, 0.0f);
    if (args.k <= 1) {
        uint64_t best = sol_vocab_join<false>(shared, mine);
        if (threadIdx.x == 0)
            shared.top[0] = best;
        return;
    }
    __syncthreads(); /* nobody is still at the token before */
    shared.maxima[threadIdx.x] = mine;
    if (threadIdx.x == 0) {
        shared.least = 0;
        shared.count = 0;
    }
    __syncthreads();
    sol_vocab_bound(shared, mine, args.k);
    __syncthreads();
    uint64_t least = shared.least;
    uint32_t count;
    for (;;) { /* twice at most: the second time exactly k are collected */
        sol_vocab_take<D, SOL_VOCAB_COLLECT>(args, shared, row, from, to, least, 0.0f);
        __syncthreads();
        count = shared.count;
        if (count <= SOL_VOCAB_KEYS)
            break;
        least = sol_vocab_bisect<D>(args, shared, row, from, to);
        if (threadIdx.x == 0)
            shared.count = 0;
        __syncthreads();
    }
    sol_vocab_rank(shared, count, args.k);
}

/* --- lists
 * ----------------------------------------------------------------------------------------
 */

/* Keys of a descending list that are larger than `key`. */
SOL_GPU_FN uint32_t sol_vocab_above(const uint64_t *list, uint32_t k, uint64_t key)
{
    uint32_t low = 0, high = k;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (list[middle] > key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* shared.top: the k largest of `lists` descending lists in shared.keys, `stride` words apart. All
 * threads; barriers before and after are the caller's. */
SOL_GPU_FN void sol_vocab_merge_lists(struct sol_vocab_shared &shared, uint32_t lists,
                                      uint32_t stride, uint32_t k)
{
    for (uint32_t i = threadIdx.x; i < k; i += blockDim.x)
        shared.top[i] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < lists * k; i += blockDim.x) {
        const uint32_t list = i / k;
        const uint64_t key = shared.keys[list * stride + i % k];
        uint32_t above = i % k;
        for (uint32_t l = 0; l < lists && key != 0; l++)
            if (l != list)
                above += sol_vocab_above(shared.keys + l * stride, k, key);
        if (key != 0 && above < k)
            shared.top[above] = key;
    }
}

/* This rank's message into shared.top of the cluster's first CTA. */
template <int D>
SOL_GPU_FN void sol_vocab_own(const struct sol_vocab_kernel_args &args,
                              struct sol_vocab_shared &shared, const char *row)
{
    const uint32_t part = blockIdx.x % args.spread, k = args.k > 0 ? args.k : 1;
    const uint32_t from = part * args.part < args.columns ? part * args.part : args.columns;
    const uint32_t to = args.columns - from < args.part ? args.columns : from + args.part;
    uint64_t terms = 0;
    sol_vocab_part<D>(args, shared, row, from, to);
    __syncthreads();
    if (args.sum) {
        if (threadIdx.x < args.spread)
            sol_vocab_store_word(&shared.largest[part], threadIdx.x, args.spread, shared.top[0]);
        sol_vocab_sync(args.spread);
        uint64_t best = 0;
        for (uint32_t p = 0; p < args.spread; p++)
            best = shared.largest[p] > best ? shared.largest[p] : best;
        const uint32_t bits = sol_vocab_value(best);
        if (sol_vocab_finite(bits))
            terms = sol_vocab_take<D, SOL_VOCAB_TERMS>(args, shared, row, from, to, 0,
                                                       sol_f32_bits(bits));
        terms = sol_vocab_join<true>(shared, terms);
    }
    if (args.spread > 1) {
        if (args.sum && threadIdx.x == 0)
            sol_vocab_store_word(&shared.sums[part], 0, args.spread, terms);
        sol_cluster_sync(); /* nobody needs shared.keys for its own part any more */
        for (uint32_t i = threadIdx.x; i < k; i += blockDim.x)
            sol_vocab_store_word(&shared.keys[part * k + i], 0, args.spread, shared.top[i]);
        sol_cluster_sync();
        if (part != 0)
            return;
        sol_vocab_merge_lists(shared, args.spread, k, k);
        terms = 0;
        for (uint32_t p = 0; p < args.spread && args.sum; p++)
            terms += shared.sums[p];
    }
    if (threadIdx.x == 0) {
        if (args.sum)
            shared.top[k] = sol_vocab_sum(terms, args.fraction);
        if (args.words < args.slot_words)
            shared.top[args.words] = 0;
    }
    __syncthreads();
}

/* --- the exchange
 * ---------------------------------------------------------------------------------
 */

SOL_GPU_FN void sol_vocab_put(char *to, uint64_t index, uint32_t bytes, uint64_t w)
{
    struct sol_vector v = {w, 0};
    sol_store_vector<false>(to + index * bytes, bytes, v);
}

/* Where this rank's own message waits for those of the others: in its own slot, in plain words. */
SOL_GPU_FN char *sol_vocab_kept(const struct sol_link &comm, const struct sol_ticket &ticket)
{
    const int from_first = comm.rank - sol_poll_peer(comm.rank, 0);
    return comm.in + (int64_t)from_first * comm.slot_bytes + ticket.shift;
}

/* Push shared.top to every peer. All threads. */
SOL_GPU_FN void sol_vocab_send(const struct sol_vocab_kernel_args &args,
                               const struct sol_link &comm, const struct sol_ticket &ticket,
                               const struct sol_vocab_shared &shared, uint32_t token)
{
    const uint32_t slot = token * args.slot_words * 8, end = slot + args.slot_words * 8;
    for (uint32_t i = threadIdx.x * 2; i < args.slot_words; i += blockDim.x * 2) {
        const struct sol_place place = {slot + i * 8, 0, 0};
        const struct sol_vector own[1] = {{shared.top[i], shared.top[i + 1]}};
        sol_send_to_all<SOL_GPU_MAX_RANKS, 1, true>(comm, ticket, comm.nranks, 0, end, place, own);
        sol_push_vector(sol_vocab_kept(comm, ticket) + place.at, own[0]);
    }
}

/* Take all ranks' messages into shared.keys, in their order. False: gave up. All threads. */
SOL_GPU_FN bool sol_vocab_receive(const struct sol_vocab_kernel_args &args,
                                  const struct sol_link &comm, const struct sol_ticket &ticket,
                                  const struct sol_story &story, struct sol_vocab_shared &shared,
                                  uint32_t token)
{
    enum { N = SOL_GPU_MAX_RANKS };
    const int n = comm.nranks, rank = comm.rank;
    const uint32_t slot = token * args.slot_words * 8, end = slot + args.slot_words * 8;
    bool good = true;
    for (uint32_t i = threadIdx.x * 2; i < args.slot_words && good; i += blockDim.x * 2) {
        const struct sol_place place = {slot + i * 8, 0, 0};
        char *kept = sol_vocab_kept(comm, ticket) + place.at;
        struct sol_vector in[N - 1][1];
        good = sol_receive<N, 1, true>(comm, ticket, rank, n, 0, end, place, story, in);
        if (!good)
            break;
        const struct sol_vector own = sol_poll_vector(kept); /* now: registers */
        sol_reset<N, 1, true>(comm, ticket, rank, n, 0, end, place);
        sol_reset_vector(kept);
        shared.keys[rank * args.slot_words + i] = own.a;
        shared.keys[rank * args.slot_words + i + 1] = own.b;
#pragma unroll
        for (int q = 0; q < N - 1; q++) {
            if (q >= n - 1)
                break;
            const int peer = sol_poll_peer(rank, q);
            shared.keys[peer * args.slot_words + i] = in[q][0].a;
            shared.keys[peer * args.slot_words + i + 1] = in[q][0].b;
        }
    }
    return !__syncthreads_or(!good);
}

SOL_GPU_FN void sol_vocab_results(const struct sol_vocab_kernel_args &args,
                                  struct sol_vocab_shared &shared, uint32_t nranks, uint32_t token)
{
    if (args.sum && threadIdx.x == 0)
        sol_vocab_put(args.log_sum_exp, token, 4,
                      sol_vocab_total(shared.keys, args.slot_words, args.words, (int)nranks));
    if (args.k == 0)
        return;
    sol_vocab_merge_lists(shared, nranks, args.slot_words, args.k);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < args.k; i += blockDim.x) {
        const uint64_t key = shared.top[i], at = (uint64_t)token * args.k + i;
        if (args.values)
            sol_vocab_put(args.values, at, 4, sol_vocab_value(key));
        if (args.indices)
            sol_vocab_put(args.indices, at, 8, (uint64_t)sol_vocab_index(key));
    }
}

template <int D>
__global__ void __launch_bounds__(SOL_VOCAB_THREADS, 1)
    sol_vocab_kernel(const __grid_constant__ struct sol_vocab_kernel_args args,
                     const __grid_constant__ struct sol_link comm,
                     const __grid_constant__ struct sol_tail tail)
{
    SOL_SHARED(struct sol_vocab_shared, shared);
    const uint32_t clusters = gridDim.x / args.spread, mine = blockIdx.x / args.spread;
    sol_await_predecessors();
    sol_admit_successor();
    const struct sol_ticket ticket = sol_take_ticket(comm);
    sol_leave_ticket(comm, ticket);
    if (args.spread > 1)
        sol_cluster_sync(); /* nobody stores to a CTA that has not started */
    for (uint32_t token = mine; token < args.tokens; token += clusters) {
        sol_vocab_own<D>(args, shared, args.logits + token * args.pitch);
        if (blockIdx.x % args.spread == 0 && !ticket.dead)
            sol_vocab_send(args, comm, ticket, shared, token);
    }
    if (blockIdx.x % args.spread != 0 || ticket.dead)
        return;
    for (uint32_t token = mine; token < args.tokens; token += clusters) {
        __syncthreads(); /* shared.keys and shared.top have been read */
        if (!sol_vocab_receive(args, comm, ticket, tail.story, shared, token))
            return;
        sol_vocab_results(args, shared, (uint32_t)comm.nranks, token);
    }
}

#endif
