/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair_ragged.cuh: pair.cuh for what it leaves out of small messages: sizes that
 * are no multiple of 16, addresses aligned to less, and reductions of other
 * types and operations. The same protocol, slots and results; ranks may even mix
 * them with the general kernels.
 *
 * Why it exists. An all_reduce of 8 bytes, the dot product of a solver, took 1 us
 * longer in the general kernels than one of 16 bytes in pair.cuh.
 *
 * Shape. One vector a thread and one turn, so the grid covers the message. User's
 * data is taken in units of U: struct sol_vector where all is aligned, else the
 * largest of 8, 4, 2 and 1 bytes that divides all addresses and sizes; all units
 * of a vector are in flight at once, and what lies beyond the message is neither
 * read nor written. In slots a vector is always whole: its rest is zero, which is
 * neither mark nor escape (gpu_word.h), and is reset like the others.
 *
 * Must never: be launched with a grid that does not cover the message.
 */
#ifndef SOL_DEVICE_KERNELS_PAIR_RAGGED_CUH
#define SOL_DEVICE_KERNELS_PAIR_RAGGED_CUH

#include "device/kernels/pair.cuh"
#include "solccl/device/units.cuh"

/* all_reduce (own == first) and reduce_scatter (SPREAD). */
template <int D, int OP, class U, bool SPREAD>
__global__ void __launch_bounds__(512, 2)
    sol_pair_ragged_reduce_kernel(const __grid_constant__ struct sol_one_shot_args args,
                                  const __grid_constant__ struct sol_link comm,
                                  const __grid_constant__ struct sol_tail tail)
{
    const uint32_t at = (blockIdx.x * blockDim.x + threadIdx.x) * 16;
    const uint32_t left = sol_opaque(args.bytes - at);
    const bool mine = at < args.bytes; /* others only count their share of the epochs on */
    struct sol_vector own[1], out[1], in[1];
    const struct sol_pair_place p =
        sol_pair_place<false>(comm, SPREAD ? args.first : args.own, args.own, args.recv, at);
    sol_await_predecessors();
    sol_admit_successor();
    if (mine)
        out[0] = sol_load_units<U>(p.from, left);
    const struct sol_ticket ticket = sol_take_ticket_at(p.epoch, p.parity_step);
    if (SPREAD && mine)
        own[0] = sol_load_units<U>(p.own, left);
    if (SOL_UNLIKELY(ticket.dead))
        return;
    if (mine)
        sol_pair_push<1>(ticket, p.out, 0, out);
    sol_leave_ticket(comm, ticket); /* all threads of a warp meet at its barrier */
    if (!mine)
        return;
    sol_pair_push_rest<1>(comm, ticket, at, 0, out);
    if (!sol_pair_receive<1>(comm, tail.story, ticket, p.in + ticket.shift, at, 0, in))
        return;
    sol_pair_reset<1>(p.in + ticket.shift, 0);
    sol_store_units<U>(p.to, left, sol_reduce_pair<D>(OP, SPREAD ? own[0] : out[0], in[0]));
}

/* all_gather, broadcast, gather (own == first) and all_to_all, scatter (SPREAD). */
template <class U, bool SPREAD>
__global__ void __launch_bounds__(512, 2)
    sol_pair_ragged_push_kernel(const __grid_constant__ struct sol_push_args args,
                                const __grid_constant__ struct sol_link comm,
                                const __grid_constant__ struct sol_tail tail)
{
    const uint32_t at = (blockIdx.x * blockDim.x + threadIdx.x) * 16;
    const uint32_t left = sol_opaque(args.bytes - at);
    const bool mine = at < args.bytes; /* others only count their share of the epochs on */
    const bool takes = args.to || (!SPREAD && args.copy);
    struct sol_vector own[1], out[1], in[1];
    const struct sol_pair_place p =
        sol_pair_place<false>(comm, args.first, args.own, args.recv_first, at);
    char *own_to = sol_opaque(args.own_to + at);
    sol_await_predecessors();
    sol_admit_successor();
    if (mine && takes)
        out[0] = sol_load_units<U>(p.from, left);
    const struct sol_ticket ticket = sol_take_ticket_at(p.epoch, p.parity_step);
    if (SPREAD && args.copy && mine)
        own[0] = sol_load_units<U>(p.own, left);
    if (SOL_UNLIKELY(ticket.dead))
        return;
    if (args.to && mine)
        sol_pair_push<1>(ticket, p.out, 0, out);
    else if (!args.to)
        sol_send_tokens(comm, ticket, 1);
    sol_leave_ticket(comm, ticket); /* all threads of a warp meet at its barrier */
    if (!mine)
        return;
    if (args.to)
        sol_pair_push_rest<1>(comm, ticket, at, 0, out);
    if (args.copy)
        sol_store_units<U>(own_to, left, SPREAD ? own[0] : out[0]);
    if (args.from) {
        if (!sol_pair_receive<1>(comm, tail.story, ticket, p.in + ticket.shift, at, 0, in))
            return;
        sol_pair_reset<1>(p.in + ticket.shift, 0);
        sol_store_units<U>(p.to, left, in[0]);
    } else {
        sol_await_tokens(comm, ticket, 1, tail.story);
    }
}

#endif
