/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 06: when a rank does not come. Waits are bounded and errors tell the whole story; another thread
 * can end them at once with sol_comm_abort. A call that has no need to wait any more, because all
 * that it needs has come, still succeeds: that is so for the late rank here.
 */
#include <pthread.h>
#include <solccl/solccl.h>
#include <stdio.h>
#include <unistd.h>

static sol_comm_t comms[2];
static sol_status_t ends[2];

static void *rank_main(void *number)
{
    int rank = *(int *)number;
    float x = 1;
    if (rank == 1)
        sleep(2); /* busy elsewhere, for longer than the watchdog allows */
    ends[rank] = sol_all_reduce(&x, &x, 1, SOL_FLOAT32, SOL_SUM, comms[rank], NULL);
    printf("rank %d: %s: %s\n", rank, sol_status_string(ends[rank]), sol_last_error(comms[rank]));
    return NULL;
}

int main(void)
{
    sol_unique_id_t id;
    pthread_t threads[2];
    int ranks[2] = {0, 1};
    sol_get_unique_id(&id);

    sol_group_start(); /* one thread makes both ranks */
    for (int r = 0; r < 2; r++)
        sol_comm_create(&comms[r], &id, 2, r, NULL);
    if (sol_group_end() != SOL_OK) {
        fprintf(stderr, "join: %s\n", sol_last_error(NULL));
        return 1;
    }
    for (int r = 0; r < 2; r++)
        if (pthread_create(&threads[r], NULL, rank_main, &ranks[r]) != 0)
            return 1;
    sleep(1);
    sol_comm_abort(comms[0]); /* the watchdog: everybody is out of it now, on every rank */
    for (int r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < 2; r++)
        sol_comm_destroy(comms[r]);
    return ends[0] == SOL_ERR_ABORTED && (ends[1] == SOL_ERR_ABORTED || ends[1] == SOL_OK) ? 0 : 1;
}
