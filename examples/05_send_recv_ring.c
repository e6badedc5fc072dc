/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 05: a ring of messages. Sends and receives that depend on each other go into one group, so that
 * they cannot wait for each other in a circle.
 */
#include <solccl/solccl.h>
#include <stdio.h>

int main(void)
{
    sol_comm_t comm;
    int rank, nranks;
    if (sol_comm_create_from_env(&comm, NULL) != SOL_OK) {
        fprintf(stderr, "join: %s\n", sol_last_error(NULL));
        return 1;
    }
    sol_comm_rank(comm, &rank);
    sol_comm_size(comm, &nranks);
    int next = (rank + 1) % nranks, previous = (rank + nranks - 1) % nranks;

    /* After nranks steps everybody's number has been everywhere and is back. */
    int64_t token = 1000 + rank, visitor;
    for (int step = 0; step < nranks; step++) {
        sol_group_start();
        sol_send(&token, 1, SOL_INT64, next, comm, NULL);
        sol_recv(&visitor, 1, SOL_INT64, previous, comm, NULL);
        if (sol_group_end() != SOL_OK) {
            fprintf(stderr, "rank %d: %s\n", rank, sol_last_error(comm));
            return 1;
        }
        token = visitor;
    }
    printf("rank %d has %lld back\n", rank, (long long)token);
    sol_comm_destroy(comm);
    return token == 1000 + rank ? 0 : 1;
}
