/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 07: what follows an attention block that is split across ranks: the sum of the ranks' parts, the
 * residual, and an RMS norm, in one call (one kernel on GPU ranks). The new residual and the
 * normalised rows have the same bits on every rank, in every batch.
 *
 *     solccl run -n 2 ./07_fused_norm
 */
#include <solccl/fused.h>
#include <stdio.h>

#define TOKENS 3
#define HIDDEN 8

int main(void)
{
    sol_comm_t comm;
    float part[TOKENS][HIDDEN], residual[TOKENS][HIDDEN], normed[TOKENS][HIDDEN], weight[HIDDEN];
    int rank, nranks;
    if (sol_comm_create_from_env(&comm, NULL) != SOL_OK)
        return puts(sol_last_error(NULL)), 1;
    sol_comm_rank(comm, &rank), sol_comm_size(comm, &nranks);
    for (int i = 0; i < HIDDEN; i++) {
        weight[i] = 1;
        for (int t = 0; t < TOKENS; t++) {
            part[t][i] = (float)(rank + t + i) / 8; /* this rank's share of the block's output */
            residual[t][i] = 1;
        }
    }

    sol_norm_args_t args = SOL_NORM_ARGS_INIT;
    args.tokens = TOKENS;
    args.hidden = HIDDEN;
    args.dtype = args.output_dtype = SOL_FLOAT32;
    args.input = part;
    args.residual = args.residual_out = residual; /* in place: the next block adds to it */
    args.weight = weight;
    args.epsilon = 1e-6f;
    args.output = normed;
    if (sol_all_reduce_norm(&args, comm, NULL) != SOL_OK)
        return puts(sol_last_error(comm)), 1;

    int wrong = 0;
    for (int t = 0; t < TOKENS; t++) {
        float squares = 0;
        for (int i = 0; i < HIDDEN; i++) { /* eighths: exact */
            float sum = 1 + (float)(nranks * (nranks - 1) / 2 + nranks * (t + i)) / 8;
            wrong += residual[t][i] != sum;
            squares += normed[t][i] * normed[t][i];
        }
        wrong += squares < HIDDEN - 0.01f || squares > HIDDEN + 0.01f; /* their mean is 1 */
        if (rank == 0)
            printf("token %d: residual %g ..., normed %.3f ...\n", t, (double)residual[t][0],
                   (double)normed[t][0]);
    }
    return sol_comm_destroy(comm) != SOL_OK || wrong != 0;
}
