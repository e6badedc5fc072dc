/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 01: three steps: join, communicate, leave. Any launcher starts the ranks:
 *     solccl run -n 4 ./01_all_reduce
 *     mpirun -n 4 ./01_all_reduce
 */
#include <solccl/solccl.h>
#include <stdio.h>

int main(void)
{
    sol_comm_t comm;
    if (sol_comm_create_from_env(&comm, NULL) != SOL_OK) {
        fprintf(stderr, "cannot join: %s\n", sol_last_error(NULL));
        return 1;
    }
    int rank, nranks;
    sol_comm_rank(comm, &rank);
    sol_comm_size(comm, &nranks);

    float x[4] = {1, 2, 3, (float)rank};
    if (sol_all_reduce(x, x, 4, SOL_FLOAT32, SOL_SUM, comm, NULL) != SOL_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, sol_last_error(comm));
        return 1;
    }
    printf("rank %d of %d: %g %g %g %g\n", rank, nranks, x[0], x[1], x[2], x[3]);
    return sol_comm_destroy(comm) == SOL_OK && x[0] == (float)nranks ? 0 : 1;
}
