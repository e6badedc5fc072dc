/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_probe.c: the write-verify test of all paths, host side.
 *
 *   all ranks: write to every staging; stream idle; meet
 *   all ranks: check own staging; stream idle; tell the others what is missing
 *
 * SOLCCL_DEBUG_DROP_PAIR=a,b makes rank a lose its write to rank b, for tests
 * of what follows from it.
 */
#include "backend/cuda/cuda_probe.h"

#include "backend/cuda/cuda_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned dropped(int rank)
{
    const char *text = getenv("SOLCCL_DEBUG_DROP_PAIR");
    int from = -1, to = -1;
    if (text != NULL && sscanf(text, "%d,%d", &from, &to) == 2 && from == rank && to >= 0 &&
        to < SOL_GPU_MAX_RANKS) {
        return 1u << to;
    }
    return 0;
}

/* Both halves end so: the kernel has run, or we say why not. */
static sol_status_t finish(sol_comm_t comm, cudaError_t error, cudaStream_t stream)
{
    if (error != cudaSuccess) {
        return sol_thread_error(SOL_ERR_DEVICE, "testing the paths between GPUs: %s",
                                cudaGetErrorString(error));
    }
    return sol_cuda_wait_stream(stream, comm->timeout_ns, "testing the paths between GPUs");
}

static void describe_missing(const uint32_t *all, int nranks, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int to = 0; to < nranks; to++) {
        for (int from = 0; from < nranks && used + 24 < bytes; from++) {
            if (!all[to * SOL_GPU_MAX_RANKS + from]) {
                used += (size_t)snprintf(text + used, bytes - used, "%s%d to %d",
                                         used == 0 ? "" : ", ", from, to);
            }
        }
    }
}

sol_status_t sol_cuda_probe_paths(sol_comm_t comm, struct sol_cuda *state, cudaStream_t stream)
{
    struct sol_cuda_probe probe;
    uint32_t mine[SOL_GPU_MAX_RANKS], all[SOL_GPU_MAX_RANKS * SOL_GPU_MAX_RANKS];
    char missing[256];
    const struct sol_cuda_board_rank *board = &state->board->ranks[comm->rank];
    memset(&probe, 0, sizeof probe);
    memcpy(probe.staging, state->staging.base, sizeof probe.staging);
    probe.nonce = state->nonce;
    probe.rank = comm->rank;
    probe.nranks = comm->nranks;
    probe.skip = dropped(comm->rank);
    size_t arrived_at = (size_t)((const char *)board->arrived - (const char *)state->board);
    probe.arrived = (uint32_t *)(void *)((char *)state->board_memory.device + arrived_at);
    cudaError_t error = sol_cuda_probe_write(&probe, stream);
    sol_status_t status = finish(comm, error, stream);
    if (status != SOL_OK) {
        return sol_boot_break(comm->boot, status);
    }
    status = sol_boot_all_gather(comm->boot, NULL, 0, NULL);
    if (status != SOL_OK) {
        return status;
    }
    status = finish(comm, sol_cuda_probe_check(&probe, stream), stream);
    if (status != SOL_OK) {
        return sol_boot_break(comm->boot, status);
    }
    memcpy(mine, board->arrived, sizeof mine);
    status = sol_boot_all_gather(comm->boot, mine, sizeof mine, all);
    if (status != SOL_OK) {
        return status;
    }
    describe_missing(all, comm->nranks, missing, sizeof missing);
    return missing[0] == '\0'
               ? SOL_OK
               : sol_thread_error(SOL_ERR_UNSUPPORTED,
                                  "writes between GPUs do not arrive (rank %s), although the "
                                  "driver maps the memory",
                                  missing);
}
