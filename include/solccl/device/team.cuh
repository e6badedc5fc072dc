/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team.cuh: which ranks (teams) and which threads (levels) take part.
 *
 * A team is a regular selection of ranks. Its members are numbered 0 .. size-1;
 * functions that take a team and a peer mean that number. A level is how many
 * threads act as one: functions that take one are called by all of them.
 */
#ifndef SOL_DEVICE_TEAM_CUH
#define SOL_DEVICE_TEAM_CUH

#include "solccl/device/ptx.cuh"

/* Member i is rank first + i * stride. `rank`: this rank's number in the team. `whole`: all ranks.
 */
struct sol_team {
    int rank, size, first, stride;
    bool whole;
};

SOL_GPU_FN struct sol_team sol_team_all(const struct sol_channel &ch)
{
    struct sol_team t = {ch.rank, ch.nranks, 0, 1, true};
    return t;
}
SOL_GPU_FN struct sol_team sol_team_all(const sol_dev_comm_t &dev)
{
    struct sol_team t = {dev.rank, dev.nranks, 0, 1, true};
    return t;
}

/* The same where the number of ranks is known when the kernel is compiled: shorter code. */
template <int N> SOL_GPU_FN struct sol_team sol_team_of(const struct sol_channel &ch)
{
    struct sol_team t = {ch.rank, N, 0, 1, true};
    SOL_CHECK(ch.nranks == N, "another number of ranks");
    return t;
}

/* The ranks first, first + stride, ... `size` of them; this rank is one of them. */
SOL_GPU_FN struct sol_team sol_team_strided(int rank, int first, int stride, int size)
{
    struct sol_team t = {(rank - first) / stride, size, first, stride, false};
    return t;
}

/* The ranks on this rank's host, and those with its place on all hosts. */
SOL_GPU_FN struct sol_team sol_team_host(const sol_dev_comm_t &dev)
{
    int n = dev.ranks_per_host;
    return sol_team_strided(dev.rank, dev.rank / n * n, 1, n);
}
SOL_GPU_FN struct sol_team sol_team_rail(const sol_dev_comm_t &dev)
{
    int n = dev.ranks_per_host;
    return sol_team_strided(dev.rank, dev.rank % n, n, dev.nranks / n);
}

/* The rank that member i is. */
SOL_GPU_FN int sol_team_member(const struct sol_team &t, int i)
{
    return t.first + i * t.stride;
}

enum sol_level { SOL_THREAD, SOL_WARP, SOL_CTA, SOL_CLUSTER };

/* This thread's number in its group, and the group's threads. */
SOL_GPU_FN unsigned sol_level_thread(enum sol_level level)
{
    return level == SOL_THREAD ? 0
           : level == SOL_WARP ? threadIdx.x & 31
           : level == SOL_CTA  ? threadIdx.x
                               : sol_cluster_cta() * blockDim.x + threadIdx.x;
}
SOL_GPU_FN unsigned sol_level_threads(enum sol_level level)
{
    return level == SOL_THREAD ? 1
           : level == SOL_WARP ? 32
           : level == SOL_CTA  ? blockDim.x
                               : sol_cluster_ctas() * blockDim.x;
}

/* The group's threads meet, and see what each of them did before. */
SOL_GPU_FN void sol_level_sync(enum sol_level level)
{
    if (level == SOL_WARP)
        __syncwarp();
    else if (level == SOL_CTA)
        __syncthreads();
    else if (level == SOL_CLUSTER)
        sol_cluster_sync();
}

/* And: does any of them bring true? (A cluster: of its own CTA; it does not ask the others.) */
SOL_GPU_FN bool sol_level_any(enum sol_level level, bool x)
{
    if (level == SOL_WARP) {
        __syncwarp(); /* a vote alone orders no memory */
        return __any_sync(0xffffffffu, x);
    }
    if (level == SOL_THREAD)
        return x;
    bool any = __syncthreads_or(x);
    if (level == SOL_CLUSTER)
        sol_cluster_sync();
    return any;
}

#endif
