/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 04: memory that every rank can reach: large operations in it need one copy fewer. What the plan
 * makes of it, sol_explain tells.
 */
#include <solccl/solccl.h>
#include <stdio.h>

#define COUNT ((size_t)1 << 20)

static int failed(const char *what, sol_comm_t comm)
{
    fprintf(stderr, "%s: %s\n", what, sol_last_error(comm));
    return 1;
}

int main(void)
{
    sol_comm_t comm;
    void *memory;
    char plan[512];
    int rank, nranks;
    if (sol_comm_create_from_env(&comm, NULL) != SOL_OK)
        return failed("join", NULL);
    sol_comm_rank(comm, &rank);
    sol_comm_size(comm, &nranks);

    /* All ranks together; zeroed. */
    if (sol_mem_alloc(comm, COUNT * sizeof(float), &memory) != SOL_OK)
        return failed("mem_alloc", comm);
    float *x = memory;
    for (size_t i = 0; i < COUNT; i++)
        x[i] = (float)(i % 100);
    if (sol_all_reduce(x, x, COUNT, SOL_FLOAT32, SOL_AVG, comm, NULL) != SOL_OK)
        return failed("all_reduce", comm);

    sol_explain(comm, SOL_FUNC_ALL_REDUCE, COUNT, SOL_FLOAT32, SOL_AVG, plan, sizeof(plan));
    if (rank == 0)
        printf("x[77] = %g; the plan: %s\n", x[77], plan);
    int wrong = x[77] != 77 || x[COUNT - 1] != (float)((COUNT - 1) % 100);
    sol_mem_free(comm, memory); /* local: no other rank is waited for */
    sol_comm_destroy(comm);
    return wrong;
}
