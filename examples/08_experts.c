/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 08: experts that are split over the ranks. Each rank has some tokens, each token wants two
 * experts, which are anywhere: dispatch brings it to them, the experts do their work (here:
 * multiply by their number), and combine brings back the weighted sum.
 *
 *     solccl run -n 2 ./08_experts
 */
#include <solccl/moe.h>
#include <stdio.h>
#include <stdlib.h>

#define TOKENS 4
#define HIDDEN 8
#define EXPERTS 6

int main(void)
{
    sol_comm_t comm;
    sol_moe_t moe;
    int rank, nranks, wrong = 0;
    if (sol_comm_create_from_env(&comm, NULL) != SOL_OK)
        return puts(sol_last_error(NULL)), 1;
    sol_comm_rank(comm, &rank), sol_comm_size(comm, &nranks);

    sol_moe_config_t config = SOL_MOE_CONFIG_INIT;
    config.max_tokens = TOKENS; /* of a rank in one call; calls may bring fewer */
    config.hidden = HIDDEN;
    config.top_k = 2;
    config.experts = EXPERTS; /* of all ranks */
    config.dtype = SOL_FLOAT32;
    config.layout = SOL_MOE_PACKED;
    if (sol_moe_create(&moe, &config, comm) != SOL_OK)
        return puts(sol_last_error(comm)), 1;
    sol_moe_info_t info = {.size = sizeof info};
    sol_moe_query(moe, &info);

    float x[TOKENS][HIDDEN], weights[TOKENS][2], out[TOKENS][HIDDEN];
    int32_t wanted[TOKENS][2], counts[EXPERTS], offsets[EXPERTS + 1];
    float *rows = malloc(info.rows * HIDDEN * sizeof(float) + 1);
    if (rows == NULL)
        return 1;
    for (int t = 0; t < TOKENS; t++) {
        wanted[t][0] = (rank + t) % EXPERTS;
        wanted[t][1] = (rank + 3 * t + 1) % EXPERTS;
        if (wanted[t][1] == wanted[t][0])
            wanted[t][1] = -1; /* none */
        weights[t][0] = 0.75f, weights[t][1] = 0.25f;
        for (int i = 0; i < HIDDEN; i++)
            x[t][i] = (float)(rank + t + i);
    }

    sol_moe_dispatch_args_t d = SOL_MOE_DISPATCH_ARGS_INIT;
    d.tokens = TOKENS;
    d.x = x, d.topk_idx = wanted, d.idx_dtype = SOL_INT32, d.topk_weights = &weights[0][0];
    d.recv_x = rows, d.recv_counts = counts, d.recv_offsets = offsets;
    if (sol_moe_dispatch(moe, &d, NULL) != SOL_OK)
        return puts(sol_last_error(comm)), 1;

    for (int e = 0; e < info.local_experts; e++) /* the experts: in place */
        for (int r = offsets[e]; r < offsets[e] + counts[e]; r++)
            for (int i = 0; i < HIDDEN; i++)
                rows[r * HIDDEN + i] *= (float)(info.first_expert + e);

    sol_moe_combine_args_t c = SOL_MOE_COMBINE_ARGS_INIT;
    c.tokens = TOKENS, c.y = rows, c.out = out;
    if (sol_moe_combine(moe, &c, NULL) != SOL_OK)
        return puts(sol_last_error(comm)), 1;

    for (int t = 0; t < TOKENS; t++) { /* quarters of small integers: exact */
        float factor = 0.75f * (float)wanted[t][0];
        if (wanted[t][1] >= 0)
            factor += 0.25f * (float)wanted[t][1];
        for (int i = 0; i < HIDDEN; i++)
            wrong += out[t][i] != x[t][i] * factor;
        printf("rank %d, token %d: experts %d and %d: %g times\n", rank, t, wanted[t][0],
               wanted[t][1], (double)factor);
    }
    free(rows);
    sol_moe_destroy(moe);
    return sol_comm_destroy(comm) != SOL_OK || wrong != 0;
}
