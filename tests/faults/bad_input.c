/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bad_input.c: wrong arguments. Each is refused with a status and a text that names the argument;
 * nothing was sent, so the communicator works afterwards (and is used between, on every rank).
 */
#include "faults/faults.h"

#include <string.h>

#define BAD(call, status, comm, words)                                                             \
    (team_doing(team, rank, "%s", #call),                                                          \
     fault_expect(team, rank, #call, call, status, comm, words))
#define ARG SOL_ERR_ARGUMENT

static void bad_create(team_t *team, int rank, void *arg)
{
    sol_comm_t comm = (sol_comm_t)(void *)team;
    sol_unique_id_t *id = &team->ids[0], empty;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT, bad;
    (void)arg;
    memset(&empty, 0, sizeof(empty));
    config.backend = SOL_BACKEND_CPU;
    BAD(sol_get_unique_id(NULL), ARG, NULL, "id");
    BAD(sol_comm_create(NULL, id, 1, 0, &config), ARG, NULL, "comm");
    BAD(sol_comm_create(&comm, NULL, 1, 0, &config), ARG, NULL, "id");
    BAD(sol_comm_create(&comm, &empty, 1, 0, &config), ARG, NULL, "id");
    BAD(sol_comm_create(&comm, id, 0, 0, &config), ARG, NULL, "nranks|0");
    BAD(sol_comm_create(&comm, id, -3, 0, &config), ARG, NULL, "nranks|-3");
    BAD(sol_comm_create(&comm, id, SOL_MAX_RANKS + 1, 0, &config), ARG, NULL, "nranks|65|64");
    BAD(sol_comm_create(&comm, id, 2, 2, &config), ARG, NULL, "rank|2");
    BAD(sol_comm_create(&comm, id, 2, -1, &config), ARG, NULL, "rank|-1");
    bad = config, bad.size = 0;
    BAD(sol_comm_create(&comm, id, 1, 0, &bad), ARG, NULL, "size");
    bad = config, bad.backend = (sol_backend_kind_t)9;
    BAD(sol_comm_create(&comm, id, 1, 0, &bad), ARG, NULL, "backend|9");
    bad = config, bad.timeout_ms = -5;
    BAD(sol_comm_create(&comm, id, 1, 0, &bad), ARG, NULL, "timeout_ms|-5");
    bad = config, bad.timeout_ms = 86400001;
    BAD(sol_comm_create(&comm, id, 1, 0, &bad), ARG, NULL, "timeout_ms|86400001");
    bad = config, bad.check = 7;
    BAD(sol_comm_create(&comm, id, 1, 0, &bad), ARG, NULL, "check|7");
    bad = config, bad.staging_bytes = SIZE_MAX;
    BAD(sol_comm_create(&comm, id, 1, 0, &bad), ARG, NULL, "staging_bytes");
    BAD(sol_comm_create_from_env(NULL, &config), ARG, NULL, "comm");
    TEAM_CHECK(team, rank, comm == (sol_comm_t)(void *)team); /* outputs only on success */
    TEAM_CHECK(team, rank, sol_comm_destroy(NULL) == SOL_OK);
    if (fault_comm(team, rank, 5000, &comm)) {
        fault_still_works(team, rank, comm);
        TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
    }
}

static void bad_calls(team_t *team, int rank, void *arg)
{
    sol_comm_t comm;
    double x[8] = {0}, y[8] = {0};
    sol_dtype_t f64 = SOL_FLOAT64, none = (sol_dtype_t)12, negative = (sol_dtype_t)-1;
    size_t much = SIZE_MAX / 8 + 1, counts[2] = {1, 1}, huge[2] = {SIZE_MAX / 2, SIZE_MAX / 2};
    (void)arg;
    if (!fault_comm(team, rank, 5000, &comm))
        return;
    BAD(sol_all_reduce(x, y, 1, f64, SOL_SUM, NULL, NULL), ARG, NULL, "comm");
    BAD(sol_all_reduce(NULL, y, 1, f64, SOL_SUM, comm, NULL), ARG, comm, "sendbuf|NULL");
    BAD(sol_all_reduce(x, NULL, 1, f64, SOL_SUM, comm, NULL), ARG, comm, "recvbuf|NULL");
    BAD(sol_all_reduce(x, y, 1, none, SOL_SUM, comm, NULL), ARG, comm, "dtype|12");
    BAD(sol_all_reduce(x, y, 1, negative, SOL_SUM, comm, NULL), ARG, comm, "dtype|-1");
    BAD(sol_all_reduce(x, y, 1, f64, SOL_REDOP_COUNT, comm, NULL), ARG, comm, "op|5");
    BAD(sol_all_reduce(x, y, 1, f64, (sol_redop_t)-1, comm, NULL), ARG, comm, "op|-1");
    BAD(sol_all_reduce(x, y, 1, f64, (sol_redop_t)16, comm, NULL), ARG, comm, "op|16");
    BAD(sol_all_reduce(x, y, 1, f64, SOL_REDOP_MAX, comm, NULL), ARG, comm, "op");
    BAD(sol_all_reduce(x, y, much, f64, SOL_SUM, comm, NULL), ARG, comm, "count");
    BAD(sol_all_reduce(x, y, 1, f64, SOL_SUM, comm, x), ARG, comm, "stream");
    fault_still_works(team, rank, comm);
    BAD(sol_all_gather(x, y, SIZE_MAX / 16 + 1, f64, comm, NULL), ARG, comm, "sendcount");
    BAD(sol_all_gather(NULL, y, 1, f64, comm, NULL), ARG, comm, "sendbuf");
    BAD(sol_reduce_scatter(x, y, SIZE_MAX / 16 + 1, f64, SOL_SUM, comm, NULL), ARG, comm,
        "recvcount");
    BAD(sol_reduce_scatter(x, NULL, 1, f64, SOL_SUM, comm, NULL), ARG, comm, "recvbuf");
    BAD(sol_broadcast(x, y, 1, f64, 2, comm, NULL), ARG, comm, "root|2");
    BAD(sol_broadcast(x, y, 1, f64, -1, comm, NULL), ARG, comm, "root|-1");
    BAD(sol_reduce(x, y, 1, f64, SOL_SUM, 99, comm, NULL), ARG, comm, "root|99");
    BAD(sol_gather(x, y, 1, f64, 2, comm, NULL), ARG, comm, "root|2");
    BAD(sol_scatter(x, y, 1, f64, -7, comm, NULL), ARG, comm, "root|-7");
    BAD(sol_all_to_all(NULL, y, 1, f64, comm, NULL), ARG, comm, "sendbuf");
    BAD(sol_all_to_all(x, y, much, f64, comm, NULL), ARG, comm, "count");
    fault_still_works(team, rank, comm);
    BAD(sol_all_to_all_v(x, NULL, counts, y, counts, counts, f64, comm, NULL), ARG, comm,
        "sendcounts");
    BAD(sol_all_to_all_v(x, counts, NULL, y, counts, counts, f64, comm, NULL), ARG, comm,
        "senddispls");
    BAD(sol_all_to_all_v(x, counts, counts, y, NULL, counts, f64, comm, NULL), ARG, comm,
        "recvcounts");
    BAD(sol_all_to_all_v(x, counts, counts, y, counts, NULL, f64, comm, NULL), ARG, comm,
        "recvdispls");
    BAD(sol_all_to_all_v(x, huge, counts, y, counts, counts, f64, comm, NULL), ARG, comm,
        "sendcounts");
    BAD(sol_all_to_all_v(x, counts, huge, y, counts, counts, f64, comm, NULL), ARG, comm,
        "senddispls");
    BAD(sol_all_to_all_v(NULL, counts, counts, y, counts, counts, f64, comm, NULL), ARG, comm,
        "sendbuf");
    BAD(sol_send(x, 1, f64, 2, comm, NULL), ARG, comm, "peer|2");
    BAD(sol_send(x, 1, f64, -1, comm, NULL), ARG, comm, "peer|-1");
    BAD(sol_send(NULL, 1, f64, !rank, comm, NULL), ARG, comm, "sendbuf");
    BAD(sol_send(x, 1, f64, rank, comm, NULL), ARG, comm, "peer|group"); /* to itself, alone */
    BAD(sol_recv(x, 1, none, !rank, comm, NULL), ARG, comm, "dtype");
    BAD(sol_recv(NULL, 1, f64, !rank, comm, NULL), ARG, comm, "recvbuf");
    BAD(sol_barrier(NULL, NULL), ARG, NULL, "comm");
    fault_still_works(team, rank, comm);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

static void bad_operations(team_t *team, int rank, void *arg)
{
    sol_comm_t comm, other = NULL;
    float scalar = 2, x = 1, y = 0;
    sol_redop_t op = SOL_SUM, ops[64];
    (void)arg;
    if (!fault_comm(team, rank, 5000, &comm) ||
        !TEAM_OK(team, rank, sol_comm_split(comm, 0, rank, &other, NULL), comm))
        return;
    BAD(sol_redop_create_premul_sum(NULL, &scalar, SOL_FLOAT32, SOL_HOST_IMMEDIATE, comm), ARG,
        comm, "op");
    BAD(sol_redop_create_premul_sum(&op, NULL, SOL_FLOAT32, SOL_HOST_IMMEDIATE, comm), ARG, comm,
        "scalar");
    BAD(sol_redop_create_premul_sum(&op, &scalar, (sol_dtype_t)77, SOL_HOST_IMMEDIATE, comm), ARG,
        comm, "dtype|77");
    BAD(sol_redop_create_premul_sum(&op, &scalar, SOL_FLOAT32, (sol_residence_t)3, comm), ARG, comm,
        "residence|3");
    BAD(sol_redop_create_premul_sum(&op, &scalar, SOL_FLOAT32, SOL_DEVICE, comm),
        SOL_ERR_UNSUPPORTED, comm, "SOL_DEVICE");
    BAD(sol_redop_create_premul_sum(&op, &scalar, SOL_FLOAT32, SOL_HOST_IMMEDIATE, NULL), ARG, NULL,
        "comm");
    TEAM_CHECK(team, rank, op == SOL_SUM);
    for (int i = 0; i < 64; i++)
        TEAM_OK(
            team, rank,
            sol_redop_create_premul_sum(&ops[i], &scalar, SOL_FLOAT32, SOL_HOST_IMMEDIATE, comm),
            comm);
    BAD(sol_redop_create_premul_sum(&op, &scalar, SOL_FLOAT32, SOL_HOST_IMMEDIATE, comm),
        SOL_ERR_MEMORY, comm, "64");
    BAD(sol_all_reduce(&x, &y, 1, SOL_BFLOAT16, ops[3], comm, NULL), ARG, comm, "op");
    BAD(sol_all_reduce(&x, &y, 1, SOL_FLOAT32, ops[3], other, NULL), ARG, other, "op");
    BAD(sol_redop_destroy(SOL_SUM, comm), ARG, comm, "op");
    BAD(sol_redop_destroy(ops[63], other), ARG, other, "op");
    for (int i = 0; i < 64; i++)
        TEAM_OK(team, rank, sol_redop_destroy(ops[i], comm), comm);
    BAD(sol_redop_destroy(ops[5], comm), ARG, comm, "op"); /* twice */
    BAD(sol_all_reduce(&x, &y, 1, SOL_FLOAT32, ops[3], comm, NULL), ARG, comm, "op");
    fault_still_works(team, rank, comm);
    fault_still_works(team, rank, other);
    TEAM_OK(team, rank, sol_comm_destroy(other), NULL);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

static void bad_memory(team_t *team, int rank, void *arg)
{
    sol_comm_t comm;
    void *memory = NULL;
    char own[64];
    sol_registration_t registration = NULL;
    (void)arg;
    if (!fault_comm(team, rank, 5000, &comm))
        return;
    BAD(sol_mem_alloc(NULL, 8, &memory), ARG, NULL, "comm");
    BAD(sol_mem_alloc(comm, 8, NULL), ARG, comm, "memory");
    fault_still_works(team, rank, comm);
    sol_status_t huge = sol_mem_alloc(comm, SIZE_MAX / 2, &memory);
    TEAM_CHECK(team, rank, huge == SOL_ERR_MEMORY || huge == SOL_ERR_ARGUMENT);
    TEAM_CHECK(team, rank, memory == NULL);
    fault_still_works(team, rank, comm);
    BAD(sol_mem_free(comm, own), ARG, comm, "memory");
    TEAM_CHECK(team, rank, sol_mem_free(comm, NULL) == SOL_OK);
    if (TEAM_OK(team, rank, sol_mem_alloc(comm, 10000, &memory), comm)) {
        BAD(sol_mem_free(comm, (char *)memory + 64), ARG, comm, "memory");
        TEAM_OK(team, rank, sol_mem_free(comm, memory), comm);
        BAD(sol_mem_free(comm, memory), ARG, comm, "memory"); /* twice */
    }
    BAD(sol_mem_register(comm, NULL, 8, &registration), ARG, comm, "memory");
    BAD(sol_mem_register(comm, own, 8, NULL), ARG, comm, "registration");
    BAD(sol_mem_register(comm, own, SIZE_MAX, &registration), ARG, comm, "bytes");
    BAD(sol_mem_register(NULL, own, 8, &registration), ARG, NULL, "comm");
    TEAM_CHECK(team, rank, sol_mem_deregister(comm, NULL) == SOL_OK);
    fault_still_works(team, rank, comm);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

static void bad_queries(team_t *team, int rank, void *arg)
{
    sol_comm_t comm, result = NULL;
    sol_comm_info_t info = {.size = 0};
    sol_status_t error;
    char text[64];
    int n;
    (void)arg;
    if (!fault_comm(team, rank, 5000, &comm))
        return;
    BAD(sol_comm_query(comm, NULL), ARG, comm, "info");
    BAD(sol_comm_query(comm, &info), ARG, comm, "size");
    info.size = sizeof(info);
    BAD(sol_comm_query(NULL, &info), ARG, NULL, "comm");
    BAD(sol_comm_rank(comm, NULL), ARG, comm, "rank");
    BAD(sol_comm_rank(NULL, &n), ARG, NULL, "comm");
    BAD(sol_comm_size(comm, NULL), ARG, comm, "nranks");
    BAD(sol_comm_async_error(comm, NULL), ARG, comm, "error");
    BAD(sol_comm_async_error(NULL, &error), ARG, NULL, "comm");
    BAD(sol_comm_abort(NULL), ARG, NULL, "comm");
    BAD(sol_comm_split(NULL, 0, 0, &result, NULL), ARG, NULL, "comm");
    BAD(sol_comm_split(comm, 0, 0, NULL, NULL), ARG, comm, "result");
    BAD(sol_comm_split(comm, -2, 0, &result, NULL), ARG, comm, "color|-2");
    BAD(sol_explain(comm, (sol_func_t)12, 1, SOL_INT8, SOL_SUM, text, 64), ARG, comm, "func|12");
    BAD(sol_explain(comm, SOL_FUNC_REDUCE, 1, (sol_dtype_t)12, SOL_SUM, text, 64), ARG, comm,
        "dtype|12");
    BAD(sol_explain(comm, SOL_FUNC_REDUCE, 1, SOL_INT8, SOL_SUM, NULL, 64), ARG, comm, "text");
    BAD(sol_explain(comm, SOL_FUNC_REDUCE, 1, SOL_INT8, SOL_SUM, text, 0), ARG, comm, "bytes");
    BAD(sol_explain(NULL, SOL_FUNC_REDUCE, 1, SOL_INT8, SOL_SUM, text, 64), ARG, NULL, "comm");
    BAD(sol_machine_info(NULL, 64), ARG, NULL, "text");
    BAD(sol_machine_info(text, 0), ARG, NULL, "bytes");
    TEAM_CHECK(team, rank, sol_machine_info(text, sizeof(text)) == SOL_OK);
    TEAM_CHECK(team, rank, memchr(text, 0, sizeof(text)) != NULL);
    TEAM_CHECK(team, rank, sol_dtype_size((sol_dtype_t)12) == 0);
    TEAM_CHECK(team, rank, strcmp(sol_dtype_name((sol_dtype_t)-1), "invalid") == 0);
    TEAM_CHECK(team, rank, strcmp(sol_redop_name((sol_redop_t)9), "invalid") == 0);
    TEAM_CHECK(team, rank, strcmp(sol_func_name((sol_func_t)12), "invalid") == 0);
    TEAM_CHECK(team, rank, sol_status_string((sol_status_t)-99) != NULL);
    TEAM_CHECK(team, rank, sol_version() == SOL_VERSION);
    fault_still_works(team, rank, comm);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
    BAD(sol_barrier(comm, NULL), ARG, NULL, "comm"); /* a handle that is no more */
    BAD(sol_comm_destroy(comm), ARG, NULL, "comm");
}

static void bad_groups(team_t *team, int rank, void *arg)
{
    sol_comm_t comm;
    int32_t x = rank + 1, y = -1;
    (void)arg;
    if (!fault_comm(team, rank, 5000, &comm))
        return;
    BAD(sol_group_end(), SOL_ERR_STATE, NULL, "group");
    /* One bad call: the whole group is refused, and nothing of it is done. */
    TEAM_OK(team, rank, sol_group_start(), NULL);
    TEAM_OK(team, rank, sol_all_reduce(&x, &y, 1, SOL_INT32, SOL_SUM, comm, NULL), comm);
    BAD(sol_send(&x, 1, SOL_INT32, 7, comm, NULL), ARG, comm, "peer|7");
    BAD(sol_group_end(), ARG, NULL, "peer|7");
    TEAM_CHECK(team, rank, y == -1);
    fault_still_works(team, rank, comm);
    /* An empty group, and a nested empty one, are fine. */
    TEAM_CHECK(team, rank,
               sol_group_start() == SOL_OK && sol_group_start() == SOL_OK &&
                   sol_group_end() == SOL_OK && sol_group_end() == SOL_OK);
    /* Destroying what an open group uses is refused, not followed by a crash. */
    TEAM_OK(team, rank, sol_group_start(), NULL);
    TEAM_OK(team, rank, sol_all_reduce(&x, &y, 1, SOL_INT32, SOL_SUM, comm, NULL), comm);
    TEAM_OK(team, rank, sol_group_end(), NULL);
    TEAM_CHECK(team, rank, y == team->nranks * (team->nranks + 1) / 2);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

const fault_case_t fault_bad_input[] = {
    {.name = "bad create", .run = bad_create, .nranks = 2},
    {.name = "bad calls", .run = bad_calls, .nranks = 2},
    {.name = "bad calls, threads", .run = bad_calls, .nranks = 2, .threads = true},
    {.name = "bad operations", .run = bad_operations, .nranks = 2},
    {.name = "bad memory", .run = bad_memory, .nranks = 2},
    {.name = "bad queries", .run = bad_queries, .nranks = 2},
    {.name = "bad groups", .run = bad_groups, .nranks = 2},
    {.name = NULL},
};
