/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 02: ranks that are threads. One makes an id, everybody joins by it. (Ranks that are processes do
 * the same; the id, 128 bytes without pointers, then travels over any channel.)
 */
#include <pthread.h>
#include <solccl/solccl.h>
#include <stdio.h>

#define NRANKS 4

static sol_unique_id_t id;

static void *rank_main(void *number)
{
    int rank = *(int *)number;
    sol_comm_t comm;
    double mine = rank + 1, all[NRANKS] = {0};
    if (sol_comm_create(&comm, &id, NRANKS, rank, NULL) != SOL_OK) {
        fprintf(stderr, "rank %d cannot join: %s\n", rank, sol_last_error(NULL));
        return NULL;
    }
    if (sol_all_gather(&mine, all, 1, SOL_FLOAT64, comm, NULL) != SOL_OK)
        fprintf(stderr, "rank %d: %s\n", rank, sol_last_error(comm));
    printf("rank %d has %g %g %g %g\n", rank, all[0], all[1], all[2], all[3]);
    sol_comm_destroy(comm);
    return all[0] == 1 && all[NRANKS - 1] == NRANKS ? number : NULL;
}

int main(void)
{
    pthread_t threads[NRANKS];
    int ranks[NRANKS], failed = 0;
    if (sol_get_unique_id(&id) != SOL_OK)
        return 1;
    for (int r = 0; r < NRANKS; r++) {
        ranks[r] = r;
        if (pthread_create(&threads[r], NULL, rank_main, &ranks[r]) != 0)
            return 1;
    }
    for (int r = 0; r < NRANKS; r++) {
        void *result;
        pthread_join(threads[r], &result);
        failed += result == NULL;
    }
    return failed;
}
