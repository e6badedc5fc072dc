/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_group.c: what groups collect, refuse and hand on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/fake_backend.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static sol_comm_t comms[3];

static int setup(void **state)
{
    (void)state;
    return fake_comms(comms, 3) == SOL_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    for (int r = 0; r < 3; r++) {
        if (comms[r] != NULL) {
            sol_comm_destroy(comms[r]);
        }
    }
    return fake_live == 0 && sol_group_depth == 0 ? 0 : -1;
}

static fake_state_t *fake(int rank)
{
    return comms[rank]->state;
}

static void test_order(void **state)
{
    float x[8];
    (void)state;
    assert_int_equal(sol_group_start(), SOL_OK);
    for (int i = 0; i < 40; i++) { /* past the list's first size */
        assert_int_equal(sol_send(x, (size_t)i, SOL_FLOAT32, i % 3, comms[0], NULL), SOL_OK);
    }
    assert_int_equal(fake(0)->groups, 0);
    assert_int_equal(sol_group_end(), SOL_OK);
    assert_int_equal(fake(0)->groups, 1);
    assert_int_equal(fake(0)->group_calls, 40);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(fake(0)->group[i].count, i);
        assert_int_equal(fake(0)->group[i].sequence, i + 1);
    }
    assert_int_equal(fake(0)->runs, 0);
    assert_int_equal(sol_barrier(comms[0], NULL), SOL_OK);
    assert_int_equal(fake(0)->last.sequence, 41);
}

static void test_nested(void **state)
{
    float x[8];
    (void)state;
    assert_int_equal(sol_group_end(), SOL_ERR_STATE);
    assert_int_equal(sol_group_start(), SOL_OK);
    assert_int_equal(sol_group_start(), SOL_OK);
    assert_int_equal(sol_recv(x, 8, SOL_FLOAT32, 0, comms[0], NULL), SOL_OK); /* itself: legal */
    assert_int_equal(sol_group_end(), SOL_OK);
    assert_int_equal(fake(0)->groups, 0);
    assert_int_equal(sol_group_end(), SOL_OK);
    assert_int_equal(fake(0)->groups, 1);
    assert_int_equal(sol_recv(x, 8, SOL_FLOAT32, 0, comms[0], NULL), SOL_ERR_ARGUMENT);
}

static void test_several(void **state)
{
    float x[8];
    (void)state;
    assert_int_equal(sol_group_start(), SOL_OK);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(sol_all_reduce(x, x, (size_t)i, SOL_FLOAT32, SOL_SUM, comms[i % 3], NULL),
                         SOL_OK);
    }
    assert_int_equal(sol_group_end(), SOL_OK);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(fake(r)->groups, 1);
        assert_int_equal(fake(r)->group_calls, 2);
        assert_int_equal(fake(r)->group[0].count, r);
        assert_int_equal(fake(r)->group[1].count, r + 3);
        assert_int_equal(fake(r)->group[1].sequence, 2);
    }
}

/* all_to_all_v's arrays are the caller's only during its call. */
static void test_arrays(void **state)
{
    size_t counts[3] = {1, 2, 3};
    float x[8], y[8];
    (void)state;
    assert_int_equal(sol_group_start(), SOL_OK);
    assert_int_equal(
        sol_all_to_all_v(x, counts, counts, y, counts, counts, SOL_FLOAT32, comms[1], NULL),
        SOL_OK);
    memset(counts, 0xff, sizeof(counts));
    assert_int_equal(sol_group_end(), SOL_OK);
    assert_int_equal(fake(1)->v_sum, 4 * 6);
}

static void test_refused(void **state)
{
    float x[8];
    void *memory = state;
    (void)state;
    assert_int_equal(sol_group_start(), SOL_OK);
    assert_int_equal(sol_all_reduce(x, x, 1, SOL_FLOAT32, SOL_SUM, comms[0], NULL), SOL_OK);
    assert_int_equal(sol_mem_alloc(comms[0], 8, &memory), SOL_OK);
    assert_int_equal(sol_send(x, 1, SOL_FLOAT32, 9, comms[0], NULL), SOL_ERR_ARGUMENT);
    assert_int_equal(sol_send(NULL, 1, SOL_FLOAT32, 1, comms[0], NULL), SOL_ERR_ARGUMENT);
    assert_int_equal(sol_group_end(), SOL_ERR_ARGUMENT);
    assert_non_null(strstr(sol_last_error(NULL), "nothing of the group was done"));
    assert_non_null(strstr(sol_last_error(NULL), "peer is 9")); /* the first one */
    assert_int_equal(fake(0)->groups, 0);
    assert_ptr_equal(memory, state);
    assert_int_equal(sol_group_start(), SOL_OK); /* the next one is clean */
    assert_int_equal(sol_group_end(), SOL_OK);
}

static void test_destroyed_inside(void **state)
{
    float x[8];
    (void)state;
    assert_int_equal(sol_group_start(), SOL_OK);
    assert_int_equal(sol_all_reduce(x, x, 1, SOL_FLOAT32, SOL_SUM, comms[2], NULL), SOL_OK);
    assert_int_equal(sol_comm_destroy(comms[2]), SOL_OK);
    comms[2] = NULL;
    assert_int_equal(sol_group_end(), SOL_ERR_STATE);
    assert_non_null(strstr(sol_last_error(NULL), "destroyed inside a group"));
}

static void test_failed_inside(void **state)
{
    float x[8];
    (void)state;
    assert_int_equal(sol_group_start(), SOL_OK);
    assert_int_equal(sol_all_reduce(x, x, 1, SOL_FLOAT32, SOL_SUM, comms[2], NULL), SOL_OK);
    assert_int_equal(sol_comm_abort(comms[2]), SOL_OK);
    assert_int_equal(sol_group_end(), SOL_ERR_ABORTED);
    assert_int_equal(fake(2)->groups, 0);
}

/* Set-up runs under the context of its call, whatever came later; ours stays as it is. */
static void test_context(void **state)
{
    sol_comm_t more[3] = {NULL};
    sol_unique_id_t id;
    (void)state;
    assert_int_equal(sol_get_unique_id(&id), SOL_OK);
    assert_int_equal(sol_group_start(), SOL_OK);
    for (int r = 0; r < 3; r++) {
        sol_comm_setup_t with = fake_setup(&id, 3, r);
        fake_context = 80 + (uintptr_t)r;
        assert_int_equal(sol_comm_make_or_defer(&with, &more[r]), SOL_OK);
    }
    fake_context = 90;
    assert_int_equal(sol_group_end(), SOL_OK);
    assert_int_equal(fake_context, 90);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(((fake_state_t *)more[r]->state)->context, 80 + r);
        sol_comm_destroy(more[r]);
    }
}

/* Several set-ups of one communicator keep their order on every rank. */
static void test_setup_order(void **state)
{
    sol_comm_t parts[3][2] = {{NULL}};
    (void)state;
    assert_int_equal(sol_group_start(), SOL_OK);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(sol_comm_split(comms[r], 0, 0, &parts[r][0], NULL), SOL_OK);
        assert_int_equal(sol_comm_split(comms[r], r % 2, 0, &parts[r][1], NULL), SOL_OK);
    }
    assert_int_equal(sol_group_end(), SOL_OK);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(parts[r][0]->nranks, 3);
        assert_int_equal(parts[r][1]->nranks, r == 1 ? 1 : 2);
        sol_comm_destroy(parts[r][0]);
        sol_comm_destroy(parts[r][1]);
    }
}

/* Where a thread is refused nothing is begun, and nobody waits for what will not come. */
static void test_refused_threads(void **state)
{
    (void)state;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    sol_comm_t parts[16] = {NULL};
    struct rlimit before, limit;
    pid_t child = fork();
    if (child == 0) { /* (the limit on the address space leaves no room for 15 stacks) */
        long pages = 0;
        FILE *file = fopen("/proc/self/statm", "r");
        int wrong = file == NULL || fscanf(file, "%ld", &pages) != 1;
        getrlimit(RLIMIT_AS, &before);
        limit = before;
        limit.rlim_cur = (rlim_t)(pages + 512) * 4096;
        wrong += setrlimit(RLIMIT_AS, &limit) != 0;
        wrong += fake_comms(parts, 16) != SOL_ERR_SYSTEM;
        wrong += strstr(sol_last_error(NULL), "15 threads are needed") == NULL;
        for (int r = 0; r < 16; r++) {
            wrong += parts[r] != NULL;
        }
        setrlimit(RLIMIT_AS, &before);
        wrong += fake_comms(parts, 16) != SOL_OK;
        _exit(wrong);
    }
    int status = -1;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
#endif
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_order),         TEST(test_nested),
                                       TEST(test_several),       TEST(test_arrays),
                                       TEST(test_refused),       TEST(test_destroyed_inside),
                                       TEST(test_failed_inside), TEST(test_context),
                                       TEST(test_setup_order),   TEST(test_refused_threads)};
    setenv("SOLCCL_LOG", "off", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
