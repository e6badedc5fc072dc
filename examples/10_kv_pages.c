/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 10: a prefill rank (0) hands its KV cache to a decode rank (the last), layer by layer, from its
 * pages to pages that are free there. The receiver calls nothing to receive; it begins with a layer
 * when that layer's counter says that its pages have come.
 *
 *     solccl run -n 2 ./10_kv_pages
 */
#include <solccl/transfer.h>
#include <stdio.h>
#include <string.h>

#define LAYERS 4
#define LAYER 64 /* pages of a layer's cache */
#define PAGE 16384
#define N 9 /* pages of the sequence that moves */

int main(void)
{
    sol_comm_t comm;
    sol_transfer_t transfer;
    void *memory;
    uint32_t mine[N], theirs[N]; /* page tables */
    int rank, nranks, wrong = 0;
    const size_t bytes = (size_t)LAYERS * LAYER * PAGE;
    if (sol_comm_create_from_env(&comm, NULL) != SOL_OK ||
        sol_mem_alloc(comm, bytes, &memory) != SOL_OK)
        return puts(sol_last_error(NULL)), 1;
    sol_comm_rank(comm, &rank), sol_comm_size(comm, &nranks);
    unsigned char *cache = memory;
    sol_region_t region = {cache, bytes};
    sol_transfer_config_t config = SOL_TRANSFER_CONFIG_INIT;
    config.regions = &region, config.nregions = 1, config.counters = LAYERS;
    if (sol_transfer_create(comm, &config, &transfer) != SOL_OK)
        return puts(sol_last_error(comm)), 1;
    for (uint32_t i = 0; i < N; i++)
        mine[i] = 2 * i, theirs[i] = LAYER - 1 - 3 * i;
    for (int layer = 0; layer < LAYERS && rank == 0; layer++) {
        unsigned char *pages = cache + (size_t)layer * LAYER * PAGE;
        for (int i = 0; i < N; i++) /* the layer is computed, and goes while the next one is */
            memset(pages + mine[i] * PAGE, 10 * layer + i + 1, PAGE);
        sol_pages_t set = SOL_PAGES_INIT;
        set.from = pages, set.offset = (size_t)layer * LAYER * PAGE, set.page_bytes = PAGE;
        set.from_pages = mine, set.to_pages = theirs, set.npages = N, set.peer = nranks - 1;
        wrong += sol_transfer_write_pages(&set, 1, layer, SOL_COUNT_WRITES, transfer, NULL) != 0;
    }
    for (int layer = 0; layer < LAYERS && rank == nranks - 1; layer++) {
        wrong += sol_transfer_await(transfer, layer, 0, N, NULL) != SOL_OK;
        for (int i = 0; i < N; i++)
            wrong += cache[((size_t)layer * LAYER + theirs[i]) * PAGE + 77] != 10 * layer + i + 1;
    }
    if (rank == nranks - 1)
        printf("%d layers of %d pages, %s\n", LAYERS, N, wrong ? sol_last_error(comm) : "right");
    sol_barrier(comm, NULL); /* all has come */
    sol_transfer_destroy(transfer);
    return sol_comm_destroy(comm) != SOL_OK || wrong != 0;
}
