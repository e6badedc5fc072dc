/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile.cuh: collectives in two halves, for each vector of a tile: start sends,
 * wait receives. Between them a kernel computes. A tile is what one epoch of a
 * session carries: start all vectors, wait for all, sol_session_next, the next
 * tile. No kernel is launched between.
 *
 *     for (int t = 0; t < tiles; t++) {
 *         sol_all_reduce_start(ch, s, at, v);
 *         ... something else ...
 *         if (!sol_all_reduce_wait<SOL_BFLOAT16>(ch, s, SOL_SUM, at, v)) return;
 *         sol_session_next(ch, s);
 *     }
 *
 * `at` is the vector's byte in the slot, the same on all ranks. One thread (LINE:
 * eight) calls both halves for a vector. BULK is for whole buffers and not here.
 */
#ifndef SOL_DEVICE_TILE_CUH
#define SOL_DEVICE_TILE_CUH

#include "solccl/device/session.cuh"

SOL_GPU_FN void sol_all_reduce_start(const struct sol_channel &ch, const struct sol_session &s,
                                     uint32_t at, struct sol_vector own)
{
    sol_session_push(ch, s, at, own);
}
/* `v`: own contribution, then the result. */
template <int D, int N = SOL_DEV_MAX_RANKS>
SOL_GPU_FN bool sol_all_reduce_wait(const struct sol_channel &ch, const struct sol_session &s,
                                    int op, uint32_t at, struct sol_vector &v)
{
    return sol_session_reduce<D, N>(ch, s, op, at, v);
}

SOL_GPU_FN void sol_all_gather_start(const struct sol_channel &ch, const struct sol_session &s,
                                     uint32_t at, struct sol_vector own)
{
    sol_session_push(ch, s, at, own);
}
/* all[i]: member i's; own entry included. */
template <int N>
SOL_GPU_FN bool sol_all_gather_wait(const struct sol_channel &ch, const struct sol_session &s,
                                    uint32_t at, struct sol_vector own, struct sol_vector (&all)[N])
{
    bool good = sol_session_receive_all<N>(ch, s, at, all);
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i == s.team.rank)
            all[i] = own;
    return good;
}

/* to[i] goes to member i. Also the first half of reduce_scatter. */
template <int N>
SOL_GPU_FN void sol_all_to_all_start(const struct sol_channel &ch, const struct sol_session &s,
                                     uint32_t at, const struct sol_vector (&to)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i < s.team.size && i != s.team.rank)
            sol_session_send(ch, s, i, at, to[i]);
}
template <int N>
SOL_GPU_FN bool sol_all_to_all_wait(const struct sol_channel &ch, const struct sol_session &s,
                                    uint32_t at, struct sol_vector own,
                                    struct sol_vector (&from)[N])
{
    return sol_all_gather_wait<N>(ch, s, at, own, from);
}
template <int N>
SOL_GPU_FN void sol_reduce_scatter_start(const struct sol_channel &ch, const struct sol_session &s,
                                         uint32_t at, const struct sol_vector (&to)[N])
{
    sol_all_to_all_start<N>(ch, s, at, to);
}
/* `v`: own contribution to own block, then the result. */
template <int D, int N = SOL_DEV_MAX_RANKS>
SOL_GPU_FN bool sol_reduce_scatter_wait(const struct sol_channel &ch, const struct sol_session &s,
                                        int op, uint32_t at, struct sol_vector &v)
{
    return sol_session_reduce<D, N>(ch, s, op, at, v);
}

/* The root sends; everybody else owes it, and each other, a sign of life (rule R of session.cuh):
 * one thread of the group calls sol_broadcast_tokens once an epoch, before it waits. */
SOL_GPU_FN void sol_broadcast_start(const struct sol_channel &ch, const struct sol_session &s,
                                    int root, uint32_t at, struct sol_vector v)
{
    if (s.team.rank == root)
        sol_session_push(ch, s, at, v);
}
SOL_GPU_FN bool sol_broadcast_wait(const struct sol_channel &ch, const struct sol_session &s,
                                   int root, uint32_t at, struct sol_vector &v)
{
    return s.team.rank == root || sol_session_receive(ch, s, root, at, v);
}
/* False: gave up. */
SOL_GPU_FN bool sol_broadcast_tokens(const struct sol_channel &ch, const struct sol_session &s,
                                     int root)
{
    for (int i = 0; i < s.team.size; i++)
        if (i != s.team.rank && s.team.rank != root)
            sol_session_send_token(ch, s, i);
    for (int i = 0; i < s.team.size; i++)
        if (i != s.team.rank && i != root && !sol_session_await_token(ch, s, i))
            return false;
    return true;
}

#endif
