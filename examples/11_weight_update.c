/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 11: new weights for a model that is running. The trainer (rank 0) writes all tensors of a server
 * (each other rank; the trainer too, if alone) in one call; a server answers with the old ones
 * until as many writes have come as it has tensors. The memory is the caller's own.
 *
 *     solccl run -n 3 ./11_weight_update
 */
#include <solccl/transfer.h>
#include <stdio.h>

#define TENSORS 6
#define FLOATS 20000 /* of a tensor */
#define VERSIONS 3

static float weights[TENSORS][FLOATS], trained[TENSORS][FLOATS];

int main(void)
{
    sol_comm_t comm;
    sol_transfer_t transfer;
    sol_region_t regions[TENSORS];
    sol_write_t writes[TENSORS];
    int rank, nranks, wrong = 0, answered = 0;
    if (sol_comm_create_from_env(&comm, NULL) != SOL_OK)
        return puts(sol_last_error(NULL)), 1;
    sol_comm_rank(comm, &rank), sol_comm_size(comm, &nranks);
    for (int t = 0; t < TENSORS; t++)
        regions[t] = (sol_region_t){weights[t], sizeof weights[t]};
    sol_transfer_config_t config = SOL_TRANSFER_CONFIG_INIT;
    config.regions = regions, config.nregions = TENSORS, config.counters = 1;
    if (sol_transfer_create(comm, &config, &transfer) != SOL_OK)
        return puts(sol_last_error(comm)), 1;

    for (int version = 1; version <= VERSIONS; version++) {
        for (int i = 0; i < TENSORS * FLOATS && rank == 0; i++)
            trained[i / FLOATS][i % FLOATS] = (float)(version + i);
        for (int server = nranks > 1; server < nranks && rank == 0; server++) {
            for (int t = 0; t < TENSORS; t++)
                writes[t] = (sol_write_t){trained[t], sizeof trained[t], 0, server, t};
            wrong +=
                sol_transfer_write(writes, TENSORS, 0, SOL_COUNT_WRITES, transfer, NULL) != SOL_OK;
        }
        if (rank > 0 || nranks == 1) {
            const uint64_t all = (uint64_t)version * TENSORS;
            while (sol_transfer_wait(transfer, 0, 0, all, 0) == SOL_ERR_TIMEOUT)
                answered++; /* (a request, with the old weights) */
            for (int i = 0; i < TENSORS * FLOATS; i++)
                wrong += weights[i / FLOATS][i % FLOATS] != (float)(version + i);
        }
        wrong +=
            sol_barrier(comm, NULL) != SOL_OK; /* all are done with it: it may be overwritten */
    }
    if (rank == nranks - 1)
        printf("%d versions, %s\n", VERSIONS, wrong ? "wrong" : "right");
    sol_transfer_destroy(transfer);
    return sol_comm_destroy(comm) != SOL_OK || wrong != 0;
}
