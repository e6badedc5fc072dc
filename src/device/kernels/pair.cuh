/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair.cuh: one_shot.cuh and push.cuh for two ranks, aligned buffers and the
 * types and operations of models, with nothing else in the way. The same
 * protocol, slots and results; ranks may even mix the two.
 *
 * Why it exists. A collective of a few kilobytes takes about 1.6 us, of which
 * launch, one hop and one load and store are 1.56: a warp alone executes an
 * instruction in about 3 ns, so a hundred of them on the way cost a fifth of the
 * whole; and a line of them (eight) that is not in the cache yet costs as much as
 * ten executed. Here some fifteen lie between the load and the push, and thirty
 * between arrival and store, one after the other in memory. Escapes, NaNs, late
 * peers: in functions that are called out of line.
 *
 * Shape. Thread t of CTA c takes V vectors, blockDim * 16 bytes apart; with V > 1
 * the message is a multiple of V * blockDim * 16 bytes. LOOP: several turns, the
 * next turn's input loaded while this one's data is on the way.
 */
#ifndef SOL_DEVICE_KERNELS_PAIR_CUH
#define SOL_DEVICE_KERNELS_PAIR_CUH

#include "device/kernels/one_shot.cuh"
#include "device/kernels/push.cuh"

/* The vector at byte `at` needs an escape, perhaps. */
SOL_GPU_RARE void sol_pair_push_suspect(const struct sol_link &comm, uint64_t epoch, uint32_t at,
                                        struct sol_vector v)
{
    const uint32_t shift = epoch & 1 ? comm.parity_step : 0;
    sol_push_parcel(comm, 0, shift, at, sol_wrap_vector(v, epoch));
}

/* A vector of the 0-th source that has come, but perhaps escaped: as it was meant. `failed`: gave
 * up waiting for its escape word. */
struct sol_pair_vector {
    struct sol_vector v;
    uint32_t failed;
};
SOL_GPU_RARE struct sol_pair_vector sol_pair_unescape(const struct sol_link &comm,
                                                      const struct sol_story &story, uint64_t epoch,
                                                      uint32_t at, struct sol_vector v)
{
    const int peer = 1 - comm.rank;
    const uint32_t shift = epoch & 1 ? comm.parity_step : 0;
    const char *escape = comm.in + sol_escape_offset(comm, peer) + shift + at / 2;
    struct sol_pair_vector r = {v, 0};
    r.failed = !sol_unescape(comm.bound, story, r.v, escape, epoch, peer);
    return r;
}

/*
 * A thread's addresses in this turn. Without LOOP they are worked out before the kernels before
 * this one have ended (sol_opaque), so that after it only what depends on data is left to do: each
 * line of parameters that is first touched later costs 30 ns. With LOOP there are not registers
 * enough.
 */
struct sol_pair_place {
    const char *from, *own; /* what to send, and own contribution (SPREAD: another block) */
    char *out, *in;         /* slot at the peer and here, parity 0 */
    char *to;               /* the result */
    uint32_t parity_step;
    const void *epoch;
};

template <bool LOOP>
SOL_GPU_FN struct sol_pair_place sol_pair_place(const struct sol_link &comm, const char *from,
                                                const char *own, char *to, uint32_t at)
{
    const struct sol_pair_place p = {from + at,
                                     own + at,
                                     comm.out[0] + at,
                                     comm.in + at,
                                     to + at,
                                     comm.parity_step,
                                     &comm.state->epochs[blockIdx.x]};
    if (LOOP)
        return p;
    const struct sol_pair_place q = {sol_opaque(p.from),
                                     sol_opaque(p.own),
                                     sol_opaque(p.out),
                                     sol_opaque(p.in),
                                     sol_opaque(p.to),
                                     sol_opaque(p.parity_step),
                                     sol_opaque((const char *)p.epoch)};
    return q;
}

/* What needs no escape, so nearly everything. */
template <int V>
SOL_GPU_FN void sol_pair_push(const struct sol_ticket &ticket, char *out, uint32_t step,
                              const struct sol_vector (&x)[V])
{
#pragma unroll
    for (int v = 0; v < V; v++)
        if (!sol_vector_suspect(x[v]))
            sol_push_vector(out + ticket.shift + v * step, x[v]);
}

/* And the rest, later: this rank has nothing to do until the peer's data comes. */
template <int V>
SOL_GPU_FN void sol_pair_push_rest(const struct sol_link &comm, const struct sol_ticket &ticket,
                                   uint32_t at, uint32_t step, const struct sol_vector (&x)[V])
{
#pragma unroll
    for (int v = 0; v < V; v++)
        if (SOL_UNLIKELY(sol_vector_suspect(x[v])))
            sol_pair_push_suspect(comm, ticket.epoch, at + v * step, x[v]);
}

/* From `slot`, where byte `at` of the message comes. False: gave up. The loop that waits is short,
 * and what follows it in the code is what is done when all has come and nothing is special. */
template <int V>
SOL_GPU_FN bool sol_pair_receive(const struct sol_link &comm, const struct sol_story &story,
                                 const struct sol_ticket &ticket, const char *slot, uint32_t at,
                                 uint32_t step, struct sol_vector (&in)[V])
{
    uint64_t deadline = 0;
    for (uint32_t look = 1;; look++) {
        uint32_t polls = SOL_WATCH_POLLS;
        bool missing, suspect = false;
        do {
            missing = false;
#pragma unroll
            for (int v = 0; v < V; v++)
                in[v] = sol_poll_vector(slot + v * step);
#pragma unroll
            for (int v = 0; v < V; v++)
                missing |= sol_vector_missing(in[v]);
        } while (missing && --polls != 0);
#pragma unroll
        for (int v = 0; v < V; v++)
            suspect |= sol_vector_suspect(in[v]);
        if (!SOL_UNLIKELY(suspect))
            return true;
        if (!missing)
            break;
        deadline = sol_watch_look(comm.bound, story, deadline, look, 1 - comm.rank);
        if (deadline == 0)
            return false;
    }
#pragma unroll
    for (int v = 0; v < V; v++) {
        struct sol_pair_vector r =
            sol_pair_unescape(comm, story, ticket.epoch, at + v * step, in[v]);
        if (r.failed)
            return false;
        in[v] = r.v;
    }
    return true;
}

template <int V>
SOL_GPU_FN void sol_pair_load(const char *from, uint32_t step, struct sol_vector (&x)[V])
{
#pragma unroll
    for (int v = 0; v < V; v++)
        x[v] = sol_load_16(from + v * step);
}

template <int V> SOL_GPU_FN void sol_pair_reset(char *slot, uint32_t step)
{
#pragma unroll
    for (int v = 0; v < V; v++)
        sol_reset_vector(slot + v * step);
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
    const bool mine = at < args.bytes; /* others only count their share of the epochs on */
    struct sol_vector own[V], out[V], in[V];
    struct sol_pair_place p =
        sol_pair_place<LOOP>(comm, SPREAD ? args.first : args.own, args.own, args.recv, at);
    sol_await_predecessors();
    sol_admit_successor();
    if (mine)
        sol_pair_load<V>(p.from, step, out);
    const struct sol_ticket ticket = sol_take_ticket_at(p.epoch, p.parity_step);
    if (SPREAD && mine)
        sol_pair_load<V>(p.own, step, own);
    if (SOL_UNLIKELY(ticket.dead))
        return;
    for (bool first = true;; first = false) {
        if (mine)
            sol_pair_push<V>(ticket, p.out, step, out);
        if (first)
            sol_leave_ticket(comm, ticket); /* all threads of a warp meet at its barrier */
        if (!mine)
            return;
        sol_pair_push_rest<V>(comm, ticket, at, step, out);
        const bool more = LOOP && at + turn < args.bytes;
        if (!SPREAD) {
#pragma unroll
            for (int v = 0; v < V; v++)
                own[v] = out[v];
        }
        if (more)
            sol_pair_load<V>((SPREAD ? args.first : args.own) + at + turn, step, out);
        if (!sol_pair_receive<V>(comm, tail.story, ticket, p.in + ticket.shift, at, step, in))
            return;
        sol_pair_reset<V>(p.in + ticket.shift, step);
#pragma unroll
        for (int v = 0; v < V; v++)
            sol_store_16(p.to + v * step, sol_sum_of_two<D>(own[v], in[v]));
        if (!more)
            return;
        at += turn;
        p = sol_pair_place<true>(comm, SPREAD ? args.first : args.own, args.own, args.recv, at);
        if (SPREAD)
            sol_pair_load<V>(p.own, step, own);
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
    const bool mine = at < args.bytes; /* others only count their share of the epochs on */
    const bool takes = args.to || (!SPREAD && args.copy);
    struct sol_vector own[V], out[V], in[V];
    struct sol_pair_place p = sol_pair_place<LOOP>(comm, args.first, args.own, args.recv_first, at);
    char *own_to = LOOP ? args.own_to + at : sol_opaque(args.own_to + at);
    sol_await_predecessors();
    sol_admit_successor();
    if (mine && takes)
        sol_pair_load<V>(p.from, step, out);
    const struct sol_ticket ticket = sol_take_ticket_at(p.epoch, p.parity_step);
    if (SPREAD && args.copy && mine)
        sol_pair_load<V>(p.own, step, own);
    if (SOL_UNLIKELY(ticket.dead))
        return;
    for (bool first = true;; first = false) {
        if (args.to && mine)
            sol_pair_push<V>(ticket, p.out, step, out);
        else if (first && !args.to)
            sol_send_tokens(comm, ticket, 1);
        if (first)
            sol_leave_ticket(comm, ticket); /* all threads of a warp meet at its barrier */
        if (!mine)
            return;
        if (args.to)
            sol_pair_push_rest<V>(comm, ticket, at, step, out);
        if (args.copy) {
#pragma unroll
            for (int v = 0; v < V; v++)
                sol_store_16(own_to + v * step, SPREAD ? own[v] : out[v]);
        }
        const bool more = LOOP && at + turn < args.bytes;
        if (more && takes)
            sol_pair_load<V>(args.first + at + turn, step, out);
        if (more && SPREAD && args.copy)
            sol_pair_load<V>(args.own + at + turn, step, own);
        if (args.from) {
            if (!sol_pair_receive<V>(comm, tail.story, ticket, p.in + ticket.shift, at, step, in))
                return;
            sol_pair_reset<V>(p.in + ticket.shift, step);
#pragma unroll
            for (int v = 0; v < V; v++)
                sol_store_16(p.to + v * step, in[v]);
        }
        if (!more)
            break;
        at += turn;
        p = sol_pair_place<true>(comm, args.first, args.own, args.recv_first, at);
        own_to = args.own_to + at;
    }
    if (!args.from)
        sol_await_tokens(comm, ticket, 1, tail.story);
}

#endif
