/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair.cuh: one_shot.cuh and push.cuh for two ranks, aligned buffers and the
 * types and operations of models, with nothing else in the way. The same
 * protocol, slots and results; ranks may even mix the two.
 *
 * Why it exists. A collective of a few kilobytes takes about 1.6 us, of which
 * launch, one hop and one load and store are 1.56: a warp alone executes an
 * instruction in about 3 ns, so a hundred of them on the way cost a fifth of the
 * whole. Here six lie between the load and the push, and some thirty between
 * arrival and store. Escapes, NaNs, late peers: in branches that are not taken.
 *
 * Shape. Thread t of CTA c takes V vectors, blockDim * 16 bytes apart; with V > 1
 * the message is a multiple of V * blockDim * 16 bytes, and threads beyond its
 * end return at once. LOOP: several turns, the next turn's input loaded while
 * this one's data is on the way.
 */
#ifndef SOL_DEVICE_KERNELS_PAIR_CUH
#define SOL_DEVICE_KERNELS_PAIR_CUH

#include "device/kernels/one_shot.cuh"
#include "device/kernels/push.cuh"

#define SOL_UNLIKELY(x) __builtin_expect((x) != 0, 0)

/* Push one vector at byte `at` of the peer's slot in the parity at `shift`. */
SOL_GPU_FN void sol_pair_push(const struct sol_link &comm, uint64_t ticks, uint32_t shift,
                              uint32_t at, struct sol_vector v)
{
    if (SOL_UNLIKELY(sol_vector_suspect(v)))
        sol_push_parcel(comm, 0, shift, at, sol_wrap_vector(v, ticks / SOL_GPU_TICKS));
    else
        sol_push_vector(comm.out[0] + (shift + at), v);
}

/* What a poll found suspicious: wait, resolve escapes, or give up. 0: poll again, 1: all there,
 * -1: gave up. */
template <int V>
SOL_GPU_FN int sol_pair_settle(const struct sol_link &comm, const struct sol_story &story,
                               uint64_t ticks, uint32_t shift, uint32_t at, uint32_t step,
                               struct sol_watch &watch, struct sol_vector (&in)[V])
{
    const int peer = 1 - comm.rank;
    bool missing = false;
#pragma unroll
    for (int v = 0; v < V; v++)
        missing |= sol_vector_missing(in[v]);
    if (missing)
        return sol_watch_expired(comm, story, watch, peer) ? -1 : 0;
#pragma unroll
    for (int v = 0; v < V; v++) {
        const char *escape = comm.in + sol_escape_offset(comm, peer) + shift + (at + v * step) / 2;
        if (!sol_unescape(comm, story, in[v], escape, ticks / SOL_GPU_TICKS, peer))
            return -1;
    }
    return 1;
}

template <int V>
SOL_GPU_FN bool sol_pair_receive(const struct sol_link &comm, const struct sol_story &story,
                                 uint64_t ticks, uint32_t shift, uint32_t at, uint32_t step,
                                 struct sol_vector (&in)[V])
{
    const char *slot = comm.in + (shift + at);
    struct sol_watch watch = {0, 0};
    for (;;) {
        bool suspect = false;
#pragma unroll
        for (int v = 0; v < V; v++)
            in[v] = sol_poll_vector(slot + v * step);
#pragma unroll
        for (int v = 0; v < V; v++)
            suspect |= sol_vector_suspect(in[v]);
        if (!suspect)
            return true;
        int settled = sol_pair_settle<V>(comm, story, ticks, shift, at, step, watch, in);
        if (settled != 0)
            return settled > 0;
    }
}

template <int V>
SOL_GPU_FN void sol_pair_load(const char *from, uint32_t at, uint32_t step,
                              struct sol_vector (&x)[V])
{
#pragma unroll
    for (int v = 0; v < V; v++)
        x[v] = sol_load_16(from + at + v * step);
}

/* all_reduce (own == first) and reduce_scatter (SPREAD), SOL_SUM. */
template <int D, int V, bool SPREAD, bool LOOP>
__global__ void __launch_bounds__(512, 2)
    sol_pair_reduce_kernel(const __grid_constant__ struct sol_one_shot_args args,
                           const __grid_constant__ struct sol_link comm,
                           const __grid_constant__ struct sol_tail tail)
{
    const uint32_t step = blockDim.x * 16, turn = gridDim.x * V * step;
    uint32_t at = (blockIdx.x * V * blockDim.x + threadIdx.x) * 16;
    sol_await_predecessors();
    sol_admit_successor();
    if (at >= args.bytes)
        return;
    struct sol_vector own[V], out[V], in[V];
    sol_pair_load<V>(SPREAD ? args.first : args.own, at, step, out);
    uint64_t ticks = sol_poll_word(&comm.state->ticks);
    if (SPREAD)
        sol_pair_load<V>(args.own, at, step, own);
    const uint32_t shift = ticks & SOL_GPU_TICKS ? comm.parity_step : 0;
    for (bool first = true;; first = false) {
#pragma unroll
        for (int v = 0; v < V; v++)
            sol_pair_push(comm, ticks, shift, at + v * step, out[v]);
        if (first)
            sol_leave_ticket(comm);
        const bool more = LOOP && at + turn < args.bytes;
        if (!SPREAD) {
#pragma unroll
            for (int v = 0; v < V; v++)
                own[v] = out[v];
        }
        if (more)
            sol_pair_load<V>(SPREAD ? args.first : args.own, at + turn, step, out);
        if (!sol_pair_receive<V>(comm, tail.story, ticks, shift, at, step, in))
            return;
#pragma unroll
        for (int v = 0; v < V; v++)
            sol_store_16(args.recv + at + v * step, sol_sum_of_two<D>(own[v], in[v]));
#pragma unroll
        for (int v = 0; v < V; v++)
            sol_reset_vector(comm.in + (shift + at) + v * step);
        if (!more)
            return;
        at += turn;
        if (SPREAD)
            sol_pair_load<V>(args.own, at, step, own);
    }
}

/* all_gather, broadcast, gather (own == first) and all_to_all, scatter (SPREAD). */
template <int V, bool SPREAD, bool LOOP>
__global__ void __launch_bounds__(512, 2)
    sol_pair_push_kernel(const __grid_constant__ struct sol_push_args args,
                         const __grid_constant__ struct sol_link comm,
                         const __grid_constant__ struct sol_tail tail)
{
    const uint32_t step = blockDim.x * 16, turn = gridDim.x * V * step;
    uint32_t at = (blockIdx.x * V * blockDim.x + threadIdx.x) * 16;
    sol_await_predecessors();
    sol_admit_successor();
    if (at >= args.bytes)
        return;
    struct sol_vector own[V], out[V], in[V];
    if (args.to || (!SPREAD && args.copy))
        sol_pair_load<V>(args.first, at, step, out);
    uint64_t ticks = sol_poll_word(&comm.state->ticks);
    if (SPREAD && args.copy)
        sol_pair_load<V>(args.own, at, step, own);
    const uint32_t shift = ticks & SOL_GPU_TICKS ? comm.parity_step : 0;
    const struct sol_ticket ticket = {ticks / SOL_GPU_TICKS, shift};
    for (bool first = true;; first = false) {
        if (args.to) {
#pragma unroll
            for (int v = 0; v < V; v++)
                sol_pair_push(comm, ticks, shift, at + v * step, out[v]);
        } else if (first) {
            sol_send_tokens(comm, ticket, 1);
        }
        if (first)
            sol_leave_ticket(comm);
        if (args.copy) {
#pragma unroll
            for (int v = 0; v < V; v++)
                sol_store_16(args.own_to + at + v * step, SPREAD ? own[v] : out[v]);
        }
        const bool more = LOOP && at + turn < args.bytes;
        if (more && (args.to || (!SPREAD && args.copy)))
            sol_pair_load<V>(args.first, at + turn, step, out);
        if (more && SPREAD && args.copy)
            sol_pair_load<V>(args.own, at + turn, step, own);
        if (args.from) {
            if (!sol_pair_receive<V>(comm, tail.story, ticks, shift, at, step, in))
                return;
#pragma unroll
            for (int v = 0; v < V; v++)
                sol_store_16(args.recv_first + at + v * step, in[v]);
#pragma unroll
            for (int v = 0; v < V; v++)
                sol_reset_vector(comm.in + (shift + at) + v * step);
        }
        if (!more)
            break;
        at += turn;
    }
    if (!args.from)
        sol_await_tokens(comm, ticket, 1, tail.story);
}

#endif
