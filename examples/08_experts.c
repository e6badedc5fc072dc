/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 08: experts that are split over the ranks. Each token wants two experts, which are anywhere:
 * dispatch brings it to them, the experts do their work (here: multiply by their number), and
 * combine brings back the weighted sum.
 *
 *     solccl run -n 2 ./08_experts
 */
#include <solccl/moe.h>
#include <stdio.h>

enum { TOKENS = 4, HIDDEN = 8, EXPERTS = 6, RANKS = 8 };

int main(void)
{
    static float rows[RANKS * TOKENS * 2][HIDDEN]; /* the worst case: see sol_moe_query */
    float x[TOKENS][HIDDEN], out[TOKENS][HIDDEN];
    int32_t wanted[TOKENS][2], counts[EXPERTS], offsets[EXPERTS + 1];
    sol_comm_t comm;
    sol_moe_t moe;
    int rank, wrong = 0;
    sol_moe_config_t config = SOL_MOE_CONFIG_INIT;
    config.max_tokens = TOKENS; /* of a rank in one call; calls may bring fewer */
    config.hidden = HIDDEN, config.top_k = 2, config.experts = EXPERTS;
    config.dtype = SOL_FLOAT32, config.layout = SOL_MOE_PACKED;
    if (sol_comm_create_from_env(&comm, NULL) != SOL_OK ||
        sol_moe_create(&moe, &config, comm) != SOL_OK)
        return puts(sol_last_error(NULL)), 1;
    sol_moe_info_t info = {.size = sizeof info};
    sol_moe_query(moe, &info), sol_comm_rank(comm, &rank);
    for (int t = 0; t < TOKENS; t++) {
        wanted[t][0] = (rank + t) % EXPERTS, wanted[t][1] = (rank + t + 2) % EXPERTS;
        for (int i = 0; i < HIDDEN; i++)
            x[t][i] = (float)(rank + t + i);
    }

    sol_moe_dispatch_args_t d = SOL_MOE_DISPATCH_ARGS_INIT;
    d.tokens = TOKENS, d.x = x, d.topk_idx = wanted, d.idx_dtype = SOL_INT32;
    d.recv_x = rows, d.recv_counts = counts, d.recv_offsets = offsets;
    if (info.rows > RANKS * TOKENS * 2 || sol_moe_dispatch(moe, &d, NULL) != SOL_OK)
        return puts(sol_last_error(comm)), 1;
    for (int e = 0; e < info.local_experts; e++) /* the experts: in place */
        for (int r = offsets[e]; r < offsets[e] + counts[e]; r++)
            for (int i = 0; i < HIDDEN; i++)
                rows[r][i] *= (float)(info.first_expert + e);
    sol_moe_combine_args_t c = SOL_MOE_COMBINE_ARGS_INIT;
    c.tokens = TOKENS, c.y = rows, c.out = out;
    if (sol_moe_combine(moe, &c, NULL) != SOL_OK)
        return puts(sol_last_error(comm)), 1;

    for (int t = 0; t < TOKENS; t++) /* small integers: exact; the weights were not given: ones */
        for (int i = 0; i < HIDDEN; i++)
            wrong += out[t][i] != x[t][i] * (float)(wanted[t][0] + wanted[t][1]);
    printf("rank %d: %d experts, %d wrong\n", rank, info.local_experts, wrong);
    sol_moe_destroy(moe);
    return sol_comm_destroy(comm) != SOL_OK || wrong != 0;
}
