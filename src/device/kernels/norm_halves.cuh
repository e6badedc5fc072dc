/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_halves.cuh: the kernels of norm.cuh and norm_two.cuh cut in two: a start, which pushes this
 * rank's contribution and waits for nobody, and a wait, which does the rest; between them the GPU
 * is the caller's.
 *
 *     start   read the epoch | push to every peer, or each row to its owner
 *     wait    read the epoch, leave the next one | poll, add up, residual, norm, store
 *             (two hops: push own finished rows, store others')
 *
 * They work in slots of their own ("lane"), laid out like a communicator's, with epochs of their
 * own, which the wait moves on. A lane has one start under way at a time; so the epoch that a start
 * reads is that of its wait, and the argument of proto/gpu_epoch.h holds with "start" for the
 * kernel that pushes and "wait" for the one that has received a word or token of every peer:
 *
 *     rank A    start e | wait e | start e+1 | wait e+1 | start e+2
 *                                                 ^           |
 *     rank B    start e | wait e | start e+1 -----'           v   same slot
 *
 * B's start of e+1 comes after its wait of e, which emptied the slots of e; A has seen it.
 *
 * A start admits its successor at once: it waits for nobody. A wait does when it has nothing more
 * to wait for, or at its end: what is let in early holds SMs, on which a peer may depend in ways
 * that this rank does not see (a transfer on another stream).
 *
 * Must never: wait in a start; move the epoch there; admit a successor before a wait's last poll;
 * let a sum's order differ from norm.cuh's.
 */
#ifndef SOL_DEVICE_KERNELS_NORM_HALVES_CUH
#define SOL_DEVICE_KERNELS_NORM_HALVES_CUH

#include "device/kernels/norm_two.cuh"

#ifndef SOL_NORM_START_THREADS /* (fewer in the emulator) */
#define SOL_NORM_START_THREADS 512
#endif
#define SOL_NORM_START_VECTORS 4 /* of 16 bytes that a thread has in flight */

/* What a start pushes. Rows follow each other without gaps, here and, with `pitch`, in a slot. */
struct sol_norm_start_args {
    const char *input;
    uint32_t row, pitch;               /* bytes */
    uint32_t first[SOL_GPU_MAX_RANKS]; /* of rank p: its first row, and how many it is sent */
    uint32_t rows[SOL_GPU_MAX_RANKS];
    bool finished; /* finished rows will come back from those who have any */
};

/* V vectors of `rows`, which are `bytes` long in a slot, from byte place.at of that on. */
template <bool EXACT, int V>
SOL_GPU_FN void sol_norm_start_load(const struct sol_norm_start_args &args, const char *rows,
                                    uint32_t bytes, const struct sol_place &place,
                                    struct sol_vector (&x)[V])
{
#pragma unroll
    for (int v = 0; v < V; v++) {
        const uint32_t at = place.at + v * place.step;
        x[v].a = x[v].b = 0;
        if (at >= bytes)
            continue;
        if (EXACT) { /* rows without gaps in a slot either */
            x[v] = sol_load_16(rows + at);
        } else {
            const uint32_t i = at / args.pitch, column = at % args.pitch;
            x[v] =
                sol_load_vector<false>(rows + (uint64_t)i * args.row + column, args.row - column);
        }
    }
}

/* As sol_norm_two_silent: to which peers (by k) nothing flows; they get a token. */
SOL_GPU_FN unsigned sol_norm_start_silent(const struct sol_norm_start_args &args,
                                          const struct sol_link &comm)
{
    unsigned silent = 0;
    for (int k = 0; k < comm.nranks - 1; k++) {
        const bool contributes = args.rows[sol_push_peer(comm.rank, comm.nranks, k)] > 0;
        const bool finishes = args.finished && args.rows[comm.rank] > 0;
        silent |= contributes || finishes ? 0 : 1u << k;
    }
    return silent;
}

/* ALL: every row to every peer; otherwise to its owner. EXACT: whole, aligned vectors. */
template <int N, bool ALL, bool EXACT>
__global__ void __launch_bounds__(SOL_NORM_START_THREADS, 1)
    sol_norm_start_kernel(const __grid_constant__ struct sol_norm_start_args args,
                          const __grid_constant__ struct sol_link comm,
                          const __grid_constant__ struct sol_tail tail)
{
    enum { V = SOL_NORM_START_VECTORS };
    const int n = N == 2 ? 2 : comm.nranks;
    struct sol_vector x[V];
    (void)tail;
    sol_await_predecessors();
    sol_admit_successor();
    const struct sol_ticket ticket = sol_take_ticket(comm);
    if (ticket.dead)
        return;
#pragma unroll 1
    for (int k = 0; k < (ALL ? 1 : n - 1); k++) {
        const int peer = ALL ? comm.rank : sol_push_peer(comm.rank, n, k);
        const char *rows = args.input + (uint64_t)args.first[peer] * args.row;
        const uint32_t bytes = args.rows[peer] * args.pitch;
#pragma unroll 1
        for (struct sol_place place = sol_first_place<V>(); place.at < bytes;
             place.at += place.turn) {
            sol_norm_start_load<EXACT, V>(args, rows, bytes, place, x);
            if (ALL)
                sol_send_to_all<N, V, true>(comm, ticket, n, 0, bytes, place, x);
            else
                sol_send_to<V>(comm, ticket, k, bytes, place, x);
        }
    }
    if (!ALL)
        sol_send_tokens(comm, ticket, sol_norm_start_silent(args, comm));
}

/* One token's outputs, from h and the sums of its row. `good`: they may be written. `last`: nothing
 * is waited for after this row. */
template <int D, int N, int V, bool PLAIN>
SOL_GPU_FN void sol_norm_wait_row(struct sol_norm_shared &shared, unsigned &set,
                                  const struct sol_norm_kernel_args &args,
                                  const struct sol_link &comm, const struct sol_ticket &ticket,
                                  const struct sol_norm_place &place, uint32_t token,
                                  const struct sol_norm_span &span, struct sol_vector (&h)[V],
                                  const struct sol_lanes<D> (&weight)[V], bool good, bool last)
{
    enum { E = sol_element<D>::count };
    const bool layer = !PLAIN && args.norm == SOL_NORM_LAYER;
    float block[V], mean = 0;
    if (layer) {
#pragma unroll
        for (int v = 0; v < V; v++)
            block[v] = sol_norm_block<D>(h[v], false, 0, false, 0, 0);
        sol_norm_tell<V>(shared, set, args, place, block);
        mean = sol_mul_f32(sol_norm_collect<false>(shared, set++, args, place), args.inverse);
    }
#pragma unroll
    for (int v = 0; v < V; v++)
        block[v] = sol_norm_block<D>(h[v], layer, mean, true, sol_norm_column<E>(args, span, v),
                                     args.hidden);
    sol_norm_tell<V>(shared, set, args, place, block);
    if (args.residual_out && good)
        sol_norm_store<V, PLAIN>(args.residual_out, args.row, token, span, h);
    sol_reset<N, V, true>(comm, ticket, comm.rank, N == 2 ? 2 : comm.nranks, 0,
                          sol_norm_slot_end<PLAIN>(args, token, span),
                          sol_norm_slot(args, token, span));
    const float sum = sol_norm_collect<false>(shared, set++, args, place);
    if (last) /* behind a barrier that all threads have come to with all that they wait for */
        sol_admit_successor();
    if constexpr (PLAIN) {
        if (good)
            sol_norm_plain_outputs<D, V>(args, token, span, h, sol_norm_root(args, sum), weight);
    } else {
        sol_norm_outputs<D, V>(shared, set, args, place, token, span, h, mean,
                               sol_norm_root(args, sum), weight);
    }
}

/* sol_norm_kernel without its pushes. */
template <int D, int N, int V, bool PLAIN>
__global__ void __launch_bounds__(512, V == 1 && PLAIN ? 2 : 1)
    sol_norm_wait_kernel(const __grid_constant__ struct sol_norm_kernel_args args,
                         const __grid_constant__ struct sol_link comm,
                         const __grid_constant__ struct sol_tail tail)
{
    SOL_SHARED(struct sol_norm_shared, shared);
    const int n = N == 2 ? 2 : comm.nranks, rank = comm.rank;
    const struct sol_norm_place place = {blockIdx.x % args.spread, threadIdx.x / 32,
                                         blockDim.x / 32, threadIdx.x % 32};
    const struct sol_norm_span span = sol_norm_span_of(args, place);
    const uint32_t step = gridDim.x / args.spread;
    struct sol_vector own[V], residual[V], in[N - 1][V], h[V];
    struct sol_lanes<D> weight[V];
    unsigned set = 0;
    if (args.spread > 1)
        sol_cluster_arrive(); /* nobody stores to a CTA that has not started: waited for below */
    sol_await_predecessors();
    const struct sol_ticket ticket = sol_take_ticket(comm);
    bool good = !ticket.dead; /* who has given up goes on to all barriers, but writes nothing */
#pragma unroll
    for (int v = 0; v < V; v++)
        weight[v] = sol_norm_weights<D, PLAIN>(args, span.at + v * span.step, span.end);
    sol_leave_ticket(comm, ticket);
    for (uint32_t token = blockIdx.x / args.spread; token < args.tokens; token += step) {
        sol_norm_load<V, PLAIN>(args.input, args.row, token, span, own);
        if (args.residual)
            sol_norm_load<V, PLAIN>(args.residual, args.row, token, span, residual);
        good = good && sol_norm_receive<N, V, PLAIN>(args, comm, ticket, rank, n, token, span,
                                                     tail.story, in);
#pragma unroll
        for (int v = 0; v < V; v++)
            h[v] = sol_norm_h<D, N, V>(rank, n, own[v], in, v, args.residual, residual[v]);
        if (token == blockIdx.x / args.spread && args.spread > 1)
            sol_cluster_wait();
        sol_norm_wait_row<D, N, V, PLAIN>(shared, set, args, comm, ticket, place, token, span, h,
                                          weight, good, token + step >= args.tokens);
    }
}

/* Rows of any length, and both hops' forms: sol_norm_two_kernel without the push. In one hop every
 * row is this rank's. */
template <int D>
__global__ void __launch_bounds__(SOL_NORM_LONG_THREADS, 2)
    sol_norm_wait_rows_kernel(const __grid_constant__ struct sol_norm_two_args args,
                              const __grid_constant__ struct sol_link comm,
                              const __grid_constant__ struct sol_tail tail)
{
    SOL_SHARED(struct sol_norm_shared, shared);
    unsigned set = 0;
    sol_await_predecessors();
    const struct sol_ticket ticket = sol_take_ticket(comm);
    sol_leave_ticket(comm, ticket);
    if (ticket.dead)
        return;
    for (uint32_t i = blockIdx.x; i < args.rows[comm.rank]; i += gridDim.x) {
        if (!sol_norm_two_own<D>(args.own, comm, ticket, tail.story, shared, set, i))
            return;
        if (args.finished)
            sol_norm_two_finished(args, comm, ticket, i);
    }
    for (uint32_t i = blockIdx.x; i < args.most && args.finished; i += gridDim.x)
        if (!sol_norm_two_receive(args, comm, ticket, tail.story, i))
            return;
    sol_await_tokens(comm, ticket, sol_norm_two_silent(args, comm, false), tail.story);
}

#endif
