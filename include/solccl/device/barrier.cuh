/* SPDX-License-Identifier: Apache-2.0 */
/*
 * barrier.cuh: barriers between ranks, for kernels that do want one. Barrier i
 * of a device communicator joins one group (thread, warp, CTA, cluster) of each
 * rank of a team.
 *
 *     struct sol_rank_barrier b = sol_barrier_open(dev, 0, SOL_CTA, team);
 *     if (!sol_barrier_sync(dev, b, SOL_ACQ_REL)) return;
 *     ...
 *     sol_barrier_close(dev, b);
 *
 * Tokens are epochs that only grow, one word from each rank to each: nothing has
 * to be reset. arrive says that this rank has come, wait that all have; between
 * them the group may do something else.
 */
#ifndef SOL_DEVICE_BARRIER_CUH
#define SOL_DEVICE_BARRIER_CUH

#include "solccl/device/team.cuh"
#include "solccl/device/watch.cuh"

/* RELEASE: what the group did before it arrived comes before what others do after they waited with
 * ACQUIRE. RELAXED orders nothing, and costs no fence. */
enum sol_order { SOL_RELAXED = 0, SOL_ACQUIRE = 1, SOL_RELEASE = 2, SOL_ACQ_REL = 3 };

struct sol_rank_barrier {
    uint64_t epoch; /* the next one */
    int index;
    enum sol_level level;
    struct sol_team team;
};

SOL_GPU_FN uint64_t *sol_barrier_token(const sol_dev_comm_t &dev, int at, int index, int sender)
{
    uint64_t *tokens = (uint64_t *)(dev.control[at] + dev.barrier_at);
    return tokens + index * dev.nranks + sender;
}

/* All threads of the group; the same team in every use of barrier `index`. */
SOL_GPU_FN struct sol_rank_barrier sol_barrier_open(const sol_dev_comm_t &dev, int index,
                                                    enum sol_level level,
                                                    const struct sol_team &team)
{
    SOL_CHECK(index >= 0 && index < dev.barriers, "there are fewer barriers");
    struct sol_rank_barrier b = {sol_poll_word(&dev.barrier_epochs[index]), index, level, team};
    return b;
}

/* All threads of the group, after the last wait: the next kernel goes on from here. */
SOL_GPU_FN void sol_barrier_close(const sol_dev_comm_t &dev, const struct sol_rank_barrier &b)
{
    sol_level_sync(b.level);
    if (sol_level_thread(b.level) == 0)
        sol_push_word(&dev.barrier_epochs[b.index], b.epoch);
}

SOL_GPU_FN void sol_barrier_arrive(const sol_dev_comm_t &dev, const struct sol_rank_barrier &b,
                                   enum sol_order order)
{
    sol_level_sync(b.level);
    unsigned threads = sol_level_threads(b.level);
    for (int i = (int)sol_level_thread(b.level); i < b.team.size; i += (int)threads) {
        if (i == b.team.rank)
            continue;
        if (order & SOL_RELEASE)
            sol_fence_system(); /* what the group did, which the barrier put before this */
        sol_push_word(sol_barrier_token(dev, sol_team_member(b.team, i), b.index, dev.rank),
                      b.epoch);
    }
}

/* False, to all threads: gave up. */
SOL_GPU_FN bool sol_barrier_wait(const sol_dev_comm_t &dev, struct sol_rank_barrier &b,
                                 enum sol_order order)
{
    bool failed = false;
    unsigned threads = sol_level_threads(b.level);
    for (int i = (int)sol_level_thread(b.level); i < b.team.size && !failed; i += (int)threads) {
        const int peer = sol_team_member(b.team, i);
        const uint64_t *token = sol_barrier_token(dev, dev.rank, b.index, peer);
        struct sol_story story = {b.epoch, (uint64_t)b.index, SOL_GPU_WHO_BARRIER};
        struct sol_watch watch = {0, 0};
        if (i == b.team.rank)
            continue;
        while ((int64_t)(sol_poll_word(token) - b.epoch) < 0 && !failed)
            failed = sol_watch_expired(dev.bound, story, watch, peer);
        if (order & SOL_ACQUIRE)
            sol_fence_system();
    }
    b.epoch++;
    return !sol_level_any(b.level, failed);
}

SOL_GPU_FN bool sol_barrier_sync(const sol_dev_comm_t &dev, struct sol_rank_barrier &b,
                                 enum sol_order order)
{
    sol_barrier_arrive(dev, b, order);
    return sol_barrier_wait(dev, b, order);
}

#endif
