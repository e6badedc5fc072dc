/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 03: dividing a communicator: even and odd ranks add up on their own, as tensor-parallel groups
 * within a data-parallel job do.
 */
#include <solccl/solccl.h>
#include <stdio.h>

static int failed(const char *what, sol_comm_t comm)
{
    fprintf(stderr, "%s: %s\n", what, sol_last_error(comm));
    return 1;
}

int main(void)
{
    sol_comm_t world, half;
    int rank, nranks;
    if (sol_comm_create_from_env(&world, NULL) != SOL_OK)
        return failed("join", NULL);
    sol_comm_rank(world, &rank);
    sol_comm_size(world, &nranks);

    /* Ranks of one colour form a communicator, ordered by key. */
    if (sol_comm_split(world, rank % 2, rank, &half, NULL) != SOL_OK)
        return failed("split", world);

    int32_t sum = rank, expected = 0;
    if (sol_all_reduce(&sum, &sum, 1, SOL_INT32, SOL_SUM, half, NULL) != SOL_OK)
        return failed("all_reduce", half);
    for (int r = rank % 2; r < nranks; r += 2)
        expected += r;
    printf("rank %d: the %s ranks sum to %d\n", rank, rank % 2 ? "odd" : "even", (int)sum);

    sol_comm_destroy(half); /* in any order, waiting for nobody */
    sol_comm_destroy(world);
    return sum == expected ? 0 : 1;
}
