/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_comm.c: the life of communicators above a backend: config, errors,
 * split, memory, premultiplied sums, abort, fork, refused allocations.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/fake_backend.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

static int setup(void **state)
{
    (void)state;
    fake_open_fails_on = -1;
    fake_alloc_fails_on = -1;
    fake_run_result = SOL_OK;
    fake_timeout_ms = 5000;
    unsetenv("SOLCCL_TIMEOUT_MS");
    return 0;
}

/* Every test leaves nothing behind. */
static int teardown(void **state)
{
    (void)state;
    return fake_live == 0 && fake_memory == 0 && fake_registered == 0 ? 0 : -1;
}

static void expect_text(const char *text, const char *word)
{
    if (strstr(text, word) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", text, word);
    }
}

#define REFUSED(call, comm, word)                                                                  \
    do {                                                                                           \
        assert_int_equal(call, SOL_ERR_ARGUMENT);                                                  \
        expect_text(sol_last_error(comm), word);                                                   \
    } while (0)

static void destroy_all(sol_comm_t *comms, int n)
{
    for (int r = 0; r < n; r++) {
        assert_int_equal(sol_comm_destroy(comms[r]), SOL_OK);
    }
}

/* ----------------------------------------------------------------------------- config */

static void test_config(void **state)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    sol_comm_setup_t setup_;
    (void)state;
    memset(&setup_, 0, sizeof(setup_));
    assert_int_equal(sol_comm_setup_read(&setup_, NULL, "test"), SOL_OK);
    assert_int_equal(setup_.timeout_ms, 30000);
    setenv("SOLCCL_TIMEOUT_MS", "1234", 1);
    assert_int_equal(sol_comm_setup_read(&setup_, NULL, "test"), SOL_OK);
    assert_int_equal(setup_.timeout_ms, 1234);
    config.timeout_ms = 99; /* the field comes before the environment */
    config.name = "a name that is far longer than what is kept of it in texts";
    assert_int_equal(sol_comm_setup_read(&setup_, &config, "test"), SOL_OK);
    assert_int_equal(setup_.timeout_ms, 99);
    assert_int_equal(strlen(setup_.name), SOL_COMM_NAME - 1);
    setenv("SOLCCL_TIMEOUT_MS", "soon", 1);
    assert_int_equal(sol_comm_setup_read(&setup_, NULL, "test"), SOL_ERR_ARGUMENT);
    expect_text(sol_last_error(NULL), "SOLCCL_TIMEOUT_MS is \"soon\"");
}

/* Older and newer callers: a shorter config, and a longer one with and without unknown content. */
static void test_config_sizes(void **state)
{
    struct {
        sol_comm_config_t known;
        int unknown[4];
    } longer = {.known = SOL_COMM_CONFIG_INIT};
    sol_comm_setup_t setup_;
    (void)state;
    longer.known.size = sizeof(longer);
    assert_int_equal(sol_comm_setup_read(&setup_, &longer.known, "test"), SOL_OK);
    longer.unknown[3] = 1;
    assert_int_equal(sol_comm_setup_read(&setup_, &longer.known, "test"), SOL_ERR_UNSUPPORTED);
    longer.known.timeout_ms = 55;
    longer.known.check = 77; /* beyond the size below, so never looked at */
    longer.known.size = offsetof(sol_comm_config_t, check);
    assert_int_equal(sol_comm_setup_read(&setup_, &longer.known, "test"), SOL_OK);
    assert_int_equal(setup_.timeout_ms, 55);
    longer.known.size = 4;
    assert_int_equal(sol_comm_setup_read(&setup_, &longer.known, "test"), SOL_ERR_ARGUMENT);
    longer.known.size = (size_t)-1;
    assert_int_equal(sol_comm_setup_read(&setup_, &longer.known, "test"), SOL_ERR_ARGUMENT);
}

static void test_query_sizes(void **state)
{
    sol_comm_t comms[2] = {NULL};
    sol_comm_info_t info;
    (void)state;
    assert_int_equal(fake_comms(comms, 2), SOL_OK);
    memset(&info, 0x55, sizeof(info));
    info.size = offsetof(sol_comm_info_t, device);
    assert_int_equal(sol_comm_query(comms[1], &info), SOL_OK);
    assert_int_equal(info.rank, 1);
    assert_int_equal(info.nranks, 2);
    assert_int_equal(info.device, 0x55555555); /* not this caller's field */
    info.size = 3;
    REFUSED(sol_comm_query(comms[1], &info), comms[1], "info->size is 3");
    destroy_all(comms, 2);
}

/* ------------------------------------------------------------------- calls and errors */

static void test_sequence(void **state)
{
    sol_comm_t comms[2] = {NULL};
    float x[2] = {0};
    (void)state;
    assert_int_equal(fake_comms(comms, 2), SOL_OK);
    fake_state_t *fake = comms[0]->state;
    assert_int_equal(sol_all_reduce(x, x, 2, SOL_FLOAT32, SOL_MAX, comms[0], NULL), SOL_OK);
    REFUSED(sol_all_reduce(x, x, 2, (sol_dtype_t)12, SOL_MAX, comms[0], NULL), comms[0],
            "sol_all_reduce: dtype is 12: expected 0 to 11");
    assert_int_equal(sol_broadcast(NULL, x, 2, SOL_FLOAT32, 1, comms[0], NULL), SOL_OK);
    assert_int_equal(fake->last.sequence, 2); /* what was refused has no number */
    assert_int_equal(fake->last.func, SOL_FUNC_BROADCAST);
    assert_int_equal(fake->runs, 2);
    destroy_all(comms, 2);
}

static void test_failed(void **state)
{
    sol_comm_t comms[2] = {NULL};
    float x[2] = {0};
    sol_status_t error;
    (void)state;
    assert_int_equal(fake_comms(comms, 2), SOL_OK);
    fake_run_result = SOL_ERR_TIMEOUT;
    assert_int_equal(sol_all_reduce(x, x, 2, SOL_FLOAT32, SOL_SUM, comms[0], NULL),
                     SOL_ERR_TIMEOUT);
    fake_run_result = SOL_OK;
    const char *story = sol_last_error(comms[0]);
    expect_text(story, "rank 0 of 2: all_reduce #1 (2 x float32 = 8 bytes, sum): the fake");
    assert_int_equal(sol_comm_async_error(comms[0], &error), SOL_OK);
    assert_int_equal(error, SOL_ERR_TIMEOUT);
    assert_int_equal(sol_barrier(comms[0], NULL), SOL_ERR_TIMEOUT); /* the first error, for ever */
    expect_text(sol_last_error(NULL), "sol_barrier: communicator unusable since: comm ");
    assert_string_equal(sol_last_error(comms[0]), story);
    assert_int_equal(((fake_state_t *)comms[0]->state)->runs, 1);
    assert_int_equal(sol_barrier(comms[1], NULL), SOL_OK);
    destroy_all(comms, 2);
}

static void test_destroyed(void **state)
{
    sol_comm_t comms[1] = {NULL};
    int rank;
    (void)state;
    assert_int_equal(fake_comms(comms, 1), SOL_OK);
    destroy_all(comms, 1);
    REFUSED(sol_comm_destroy(comms[0]), NULL, "destroyed");
    REFUSED(sol_comm_rank(comms[0], &rank), NULL, "destroyed");
    REFUSED(sol_barrier(comms[0], NULL), NULL, "destroyed");
    assert_non_null(sol_last_error(comms[0]));
}

static void test_abort(void **state)
{
    sol_comm_t comms[2] = {NULL};
    sol_status_t error;
    void *memory;
    (void)state;
    int before = fake_aborts;
    assert_int_equal(fake_comms(comms, 2), SOL_OK);
    assert_int_equal(sol_comm_abort(comms[1]), SOL_OK);
    assert_int_equal(sol_comm_abort(comms[1]), SOL_OK);
    assert_int_equal(fake_aborts, before + 2);
    assert_int_equal(sol_barrier(comms[1], NULL), SOL_ERR_ABORTED);
    assert_int_equal(sol_comm_async_error(comms[1], &error), SOL_OK);
    assert_int_equal(error, SOL_ERR_ABORTED);
    assert_int_equal(sol_mem_alloc(comms[0], 8, &memory), SOL_ERR_ABORTED); /* heard over boot */
    destroy_all(comms, 2);
}

/* ----------------------------------------------------------------- making, all or none */

static void test_open_fails(void **state)
{
    sol_comm_t comms[3] = {NULL, NULL, NULL};
    (void)state;
    fake_open_fails_on = 1;
    assert_int_equal(fake_comms(comms, 3), SOL_ERR_UNSUPPORTED);
    expect_text(sol_last_error(NULL), "the fake was told to fail");
    assert_null(comms[0]);
    assert_null(comms[2]);
}

/* Each allocation refused in turn: a clean error, or success where it was none of ours. */
static void test_refused_memory(void **state)
{
    sol_comm_t comms[2] = {NULL, NULL};
    uint64_t k = 0;
    sol_status_t status;
    (void)state;
    fake_timeout_ms = 200; /* one rank may never come */
    do {
        comms[0] = NULL;
        sol_alloc_fail_from(++k);
        status = fake_comms(comms, 2);
        sol_alloc_fail_from(0);
        if (status != SOL_OK) {
            assert_int_equal(status, SOL_ERR_MEMORY);
            assert_null(comms[0]);
            if (sol_group_depth > 0) { /* refused between start and end */
                assert_int_equal(sol_group_end(), SOL_ERR_MEMORY);
            }
        }
    } while (status != SOL_OK && k < 100);
    assert_int_equal(status, SOL_OK);
    destroy_all(comms, 2);
}

static void *destroy_without_memory(void *comm)
{
    sol_alloc_fail_from(1);
    intptr_t status = sol_comm_destroy(comm); /* this thread's first call */
    sol_alloc_fail_from(0);
    return (void *)status;
}

/* A thread that is refused even its seat can destroy: nothing is aborted for that. */
static void test_destroy_without_memory(void **state)
{
    sol_comm_t comms[2] = {NULL};
    pthread_t thread;
    void *status = comms;
    int aborts = fake_aborts;
    (void)state;
    assert_int_equal(fake_comms(comms, 2), SOL_OK);
    assert_int_equal(sol_barrier(comms[0], NULL), SOL_OK); /* so that it has another owner */
    assert_int_equal(pthread_create(&thread, NULL, destroy_without_memory, comms[0]), 0);
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, SOL_OK);
    assert_int_equal(fake_aborts, aborts);
    destroy_all(comms + 1, 1);
}

static void test_many(void **state)
{
    sol_comm_t comms[2] = {NULL};
    (void)state;
    assert_int_equal(fake_comms(comms, 2), SOL_OK);
    destroy_all(comms, 2);
    int first = open("/dev/null", O_RDONLY);
    close(first);
    uint64_t made = sol_alloc_count();
    for (int i = 0; i < 50; i++) {
        assert_int_equal(fake_comms(comms, 2), SOL_OK);
        destroy_all(comms, 2);
    }
    int last = open("/dev/null", O_RDONLY);
    close(last);
    assert_int_equal(last, first);
    assert_true(sol_alloc_count() > made);
}

/* ------------------------------------------------------------------------------- split */

static void test_split(void **state)
{
    sol_comm_t comms[5] = {NULL}, parts[5];
    static const int colors[5] = {7, 3, 7, SOL_SPLIT_NONE, 7}, keys[5] = {1, 0, -4, 0, 1};
    static const int ranks[5] = {1, 0, 0, -1, 2}, sizes[5] = {3, 1, 3, 0, 3};
    int rank, size;
    (void)state;
    assert_int_equal(fake_comms(comms, 5), SOL_OK);
    assert_int_equal(sol_group_start(), SOL_OK);
    for (int r = 0; r < 5; r++) {
        parts[r] = (sol_comm_t)(void *)&rank;
        assert_int_equal(sol_comm_split(comms[r], colors[r], keys[r], &parts[r], NULL), SOL_OK);
    }
    assert_int_equal(sol_group_end(), SOL_OK);
    for (int r = 0; r < 5; r++) {
        if (colors[r] == SOL_SPLIT_NONE) {
            assert_null(parts[r]);
            continue;
        }
        assert_int_equal(sol_comm_rank(parts[r], &rank), SOL_OK);
        assert_int_equal(sol_comm_size(parts[r], &size), SOL_OK);
        assert_int_equal(rank, ranks[r]);
        assert_int_equal(size, sizes[r]);
        assert_int_equal(parts[r]->timeout_ns, comms[r]->timeout_ns);
    }
    destroy_all(parts, 5);
    REFUSED(sol_comm_split(comms[0], -2, 0, &parts[0], NULL), comms[0], "color is -2");
    REFUSED(sol_comm_split(comms[0], 0, 0, NULL, NULL), comms[0], "result");
    destroy_all(comms, 5);
}

/* -------------------------------------------------------------------- symmetric memory */

static sol_status_t alloc_both(sol_comm_t *comms, size_t bytes0, size_t bytes1, void **memory)
{
    assert_int_equal(sol_group_start(), SOL_OK);
    sol_mem_alloc(comms[0], bytes0, &memory[0]);
    sol_mem_alloc(comms[1], bytes1, &memory[1]);
    return sol_group_end();
}

static void test_memory(void **state)
{
    sol_comm_t comms[2] = {NULL};
    void *memory[2] = {state, state};
    (void)state;
    assert_int_equal(fake_comms(comms, 2), SOL_OK);
    assert_int_equal(alloc_both(comms, 100, 200, memory), SOL_ERR_MISMATCH);
    expect_text(sol_last_error(comms[0]), "rank 1 passed 200 bytes, rank 0 passed 100");
    assert_ptr_equal(memory[0], state);
    fake_alloc_fails_on = 1;
    assert_int_equal(alloc_both(comms, 100, 100, memory), SOL_ERR_MEMORY);
    expect_text(sol_last_error(comms[0]), "rank 0 of 2: rank 1: the fake was told to refuse");
    assert_int_equal(fake_memory, 0);
    fake_alloc_fails_on = -1;
    assert_int_equal(alloc_both(comms, 100, 100, memory), SOL_OK);
    assert_int_equal(fake_memory, 2);
    assert_int_equal(sol_mem_free(comms[0], memory[0]), SOL_OK);
    assert_int_equal(sol_mem_free(comms[1], memory[1]), SOL_OK);
    assert_int_equal(alloc_both(comms, 0, 0, memory), SOL_OK);
    assert_null(memory[1]);
    destroy_all(comms, 2);
}

/* One rank splits while the other allocates: said so, and both go on. */
static void test_different_setup(void **state)
{
    sol_comm_t comms[2] = {NULL}, part = NULL;
    void *memory[2] = {NULL, NULL};
    (void)state;
    assert_int_equal(fake_comms(comms, 2), SOL_OK);
    assert_int_equal(sol_group_start(), SOL_OK);
    assert_int_equal(sol_mem_alloc(comms[0], 64, &memory[0]), SOL_OK);
    assert_int_equal(sol_comm_split(comms[1], 0, 0, &part, NULL), SOL_OK);
    assert_int_equal(sol_group_end(), SOL_ERR_MISMATCH);
    expect_text(sol_last_error(NULL), "rank 1 called sol_comm_split, rank 0 sol_mem_alloc");
    assert_int_equal(alloc_both(comms, 8, 8, memory), SOL_OK);
    sol_mem_free(comms[0], memory[0]);
    sol_mem_free(comms[1], memory[1]);
    destroy_all(comms, 2);
}

static void test_registration(void **state)
{
    sol_comm_t comms[2] = {NULL};
    sol_registration_t a, b;
    char memory[16];
    (void)state;
    assert_int_equal(fake_comms(comms, 2), SOL_OK);
    assert_int_equal(sol_mem_register(comms[0], memory, 16, &a), SOL_OK);
    assert_int_equal(sol_mem_register(comms[0], memory, 8, &b), SOL_OK);
    REFUSED(sol_mem_deregister(comms[1], a), comms[1], "registration");
    assert_int_equal(sol_mem_deregister(comms[0], a), SOL_OK);
    REFUSED(sol_mem_deregister(comms[0], a), comms[0], "registration");
    REFUSED(sol_mem_register(comms[0], memory, SIZE_MAX, &a), comms[0], "bytes");
    assert_int_equal(fake_registered, 1); /* the rest goes with the communicator */
    destroy_all(comms, 2);
}

/* ------------------------------------------------------------------- sleep and wake */

/* On all ranks, in a group, by this one thread. */
static sol_status_t sleep_all(sol_comm_t *comms, int n, sol_sleep_level_t level)
{
    sol_group_start();
    for (int r = 0; r < n; r++) {
        sol_comm_sleep(comms[r], level);
    }
    return sol_group_end();
}

static sol_status_t wake_all(sol_comm_t *comms, int n)
{
    sol_group_start();
    for (int r = 0; r < n; r++) {
        sol_comm_wake(comms[r]);
    }
    return sol_group_end();
}

static void check_steps(sol_comm_t comm, int prepared, int released, int restored, int forgotten)
{
    const fake_state_t *fake = comm->state;
    assert_int_equal(fake->prepared, prepared);
    assert_int_equal(fake->released, released);
    assert_int_equal(fake->restored, restored);
    assert_int_equal(fake->forgotten, forgotten);
}

static bool asleep(sol_comm_t comm)
{
    sol_comm_info_t info = {.size = sizeof(info)};
    assert_int_equal(sol_comm_query(comm, &info), SOL_OK);
    return info.asleep == 1;
}

#define ASLEEP(call)                                                                               \
    do {                                                                                           \
        assert_int_equal(call, SOL_ERR_STATE);                                                     \
        expect_text(sol_last_error(NULL), "asleep");                                               \
    } while (0)

static void test_sleep(void **state)
{
    sol_comm_t comms[2] = {NULL}, part;
    sol_registration_t registration;
    sol_status_t error;
    sol_redop_t op;
    float x = 1;
    void *memory = NULL;
    (void)state;
    assert_int_equal(fake_comms(comms, 2), SOL_OK);
    REFUSED(sol_comm_sleep(comms[0], (sol_sleep_level_t)0), comms[0], "level is 0");
    assert_int_equal(sol_comm_wake(comms[0]), SOL_ERR_STATE);
    for (int round = 1; round <= 2; round++) {
        assert_int_equal(sleep_all(comms, 2, round == 1 ? SOL_SLEEP_KEEP : SOL_SLEEP_DISCARD),
                         SOL_OK);
        check_steps(comms[1], round, round, round - 1, round - 1);
        assert_int_equal(((fake_state_t *)comms[1]->state)->kept, 1);
        assert_true(asleep(comms[0]) && asleep(comms[1]));
        ASLEEP(sol_comm_sleep(comms[0], SOL_SLEEP_KEEP));
        ASLEEP(sol_all_reduce(&x, &x, 1, SOL_FLOAT32, SOL_SUM, comms[0], NULL));
        ASLEEP(sol_barrier(comms[0], NULL));
        ASLEEP(sol_send(&x, 0, SOL_FLOAT32, 1, comms[0], NULL));
        ASLEEP(sol_mem_alloc(comms[0], 8, &memory));
        ASLEEP(sol_mem_register(comms[0], &x, 4, &registration));
        ASLEEP(sol_comm_split(comms[0], 0, 0, &part, NULL));
        ASLEEP(sol_redop_create_premul_sum(&op, &x, SOL_FLOAT32, SOL_HOST_IMMEDIATE, comms[0]));
        sol_group_start();
        ASLEEP(sol_barrier(comms[0], NULL));
        assert_int_equal(sol_group_end(), SOL_ERR_STATE);
        assert_int_equal(sol_comm_async_error(comms[0], &error), SOL_OK);
        assert_int_equal(error, SOL_OK);
        assert_int_equal(wake_all(comms, 2), SOL_OK);
        check_steps(comms[1], round, round, round, round);
        assert_false(asleep(comms[0]) || asleep(comms[1]));
        assert_int_equal(sol_barrier(comms[0], NULL), SOL_OK);
    }
    assert_int_equal(sleep_all(comms, 2, SOL_SLEEP_DISCARD), SOL_OK);
    destroy_all(comms, 2); /* asleep */
}

/* What fails on one rank leaves all awake, or all asleep. */
static void test_sleep_fails(void **state)
{
    sol_comm_t comms[3] = {NULL};
    (void)state;
    assert_int_equal(fake_comms(comms, 3), SOL_OK);
    sol_group_start();
    for (int r = 0; r < 3; r++) {
        sol_comm_sleep(comms[r], r == 2 ? SOL_SLEEP_KEEP : SOL_SLEEP_DISCARD);
    }
    assert_int_equal(sol_group_end(), SOL_ERR_MISMATCH);
    expect_text(sol_last_error(comms[0]), "rank 2 passed level 1, rank 0 2");
    fake_prepare_fails_on = 1;
    assert_int_equal(sleep_all(comms, 3, SOL_SLEEP_KEEP), SOL_ERR_MEMORY);
    fake_prepare_fails_on = -1;
    for (int r = 0; r < 3; r++) {
        expect_text(sol_last_error(comms[r]), "rank 1: the fake was told to refuse");
        check_steps(comms[r], 1, 0, 0, 1);
        assert_false(asleep(comms[r]));
        assert_int_equal(sol_barrier(comms[r], NULL), SOL_OK);
    }
    assert_int_equal(sleep_all(comms, 3, SOL_SLEEP_KEEP), SOL_OK);
    fake_restore_fails_on = 2;
    for (int tries = 1; tries <= 2; tries++) {
        assert_int_equal(wake_all(comms, 3), SOL_ERR_MEMORY);
        for (int r = 0; r < 3; r++) {
            check_steps(comms[r], 2, 1 + tries, tries, 1); /* what is saved is still there */
            assert_true(asleep(comms[r]));
        }
    }
    fake_restore_fails_on = -1;
    assert_int_equal(wake_all(comms, 3), SOL_OK);
    check_steps(comms[0], 2, 3, 3, 2);
    assert_int_equal(sol_barrier(comms[0], NULL), SOL_OK);
    destroy_all(comms, 3);
}

/* ---------------------------------------------------------------- premultiplied sums */

static void test_premul(void **state)
{
    sol_comm_t comms[2] = {NULL};
    sol_redop_t op, old;
    float two = 2, x = 1;
    (void)state;
    if (fake_comms(comms, 2) != SOL_OK || comms[0] == NULL) {
        fail();
        return;
    }
    fake_state_t *fake = comms[0]->state;
    assert_int_equal(
        sol_redop_create_premul_sum(&op, &two, SOL_FLOAT32, SOL_HOST_IMMEDIATE, comms[0]), SOL_OK);
    two = 3; /* read during the call */
    assert_true((int)op >= 16);
    assert_string_equal(sol_redop_name(op), "premul_sum");
    assert_int_equal(sol_all_reduce(&x, &x, 1, SOL_FLOAT32, op, comms[0], NULL), SOL_OK);
    float kept;
    memcpy(&kept, fake->last.reduction.scalar.immediate, sizeof(kept));
    assert_true(fake->last.reduction.premul && kept == 2.0f);
    assert_int_equal(fake->last.reduction.op, SOL_SUM);
    REFUSED(sol_all_reduce(&x, &x, 1, SOL_FLOAT64, op, comms[0], NULL), comms[0],
            "op was made for float32 but dtype is float64");
    REFUSED(sol_all_reduce(&x, &x, 1, SOL_FLOAT32, op, comms[1], NULL), comms[1], "op is 16");
    assert_int_equal(sol_redop_destroy(op, comms[0]), SOL_OK);
    old = op;
    assert_int_equal(
        sol_redop_create_premul_sum(&op, &two, SOL_FLOAT32, SOL_HOST_IMMEDIATE, comms[0]), SOL_OK);
    assert_int_not_equal(op, old); /* the same slot, another handle */
    REFUSED(sol_redop_destroy(old, comms[0]), comms[0], "op is");
    REFUSED(sol_all_reduce(&x, &x, 1, SOL_FLOAT32, old, comms[0], NULL), comms[0], "op is");
    destroy_all(comms, 2);
}

/* -------------------------------------------------------------------------------- fork */

static int in_child(sol_comm_t comm)
{
    int rank;
    float x = 0;
    void *memory;
    sol_comm_t part;
    sol_comm_info_t info = {.size = sizeof(info)};
    sol_comm_t own = NULL;
    int wrong = 0;
    wrong += sol_comm_rank(comm, &rank) != SOL_ERR_STATE;
    wrong += sol_comm_query(comm, &info) != SOL_ERR_STATE;
    wrong += sol_all_reduce(&x, &x, 1, SOL_FLOAT32, SOL_SUM, comm, NULL) != SOL_ERR_STATE;
    wrong += sol_mem_alloc(comm, 8, &memory) != SOL_ERR_STATE;
    wrong += sol_mem_free(comm, &x) != SOL_ERR_STATE;
    wrong += sol_comm_split(comm, 0, 0, &part, NULL) != SOL_ERR_STATE;
    wrong += sol_comm_abort(comm) != SOL_ERR_STATE;
    wrong += strstr(sol_last_error(comm), "forked child") == NULL;
    wrong += sol_comm_destroy(comm) != SOL_ERR_STATE;
    wrong += fake_comms(&own, 1) != SOL_OK; /* but its own is fine */
    wrong += own == NULL || sol_barrier(own, NULL) != SOL_OK || sol_comm_destroy(own) != SOL_OK;
    return wrong;
}

static void test_fork(void **state)
{
    sol_comm_t comms[2] = {NULL};
    int status = -1;
    void *memory[2];
    (void)state;
    assert_int_equal(fake_comms(comms, 2), SOL_OK);
    pid_t child = fork();
    if (child == 0) {
        _exit(in_child(comms[0]));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(sol_barrier(comms[0], NULL), SOL_OK);
    assert_int_equal(alloc_both(comms, 8, 8, memory), SOL_OK); /* the sockets are unharmed */
    sol_mem_free(comms[0], memory[0]);
    sol_mem_free(comms[1], memory[1]);
    destroy_all(comms, 2);
}

static void test_words(void **state)
{
    char text[128];
    sol_call_t call = {.func = SOL_FUNC_ALL_REDUCE,
                       .dtype = SOL_BFLOAT16,
                       .count = 1024,
                       .sequence = 12,
                       .root = 3,
                       .reduction = {.op = SOL_AVG}};
    (void)state;
    sol_call_describe(&call, text, sizeof(text));
    assert_string_equal(text, "all_reduce #12 (1024 x bfloat16 = 2048 bytes, avg)");
    call.func = SOL_FUNC_REDUCE;
    call.reduction = (sol_reduction_t){.op = SOL_SUM, .premul = true};
    sol_call_describe(&call, text, sizeof(text));
    assert_string_equal(text, "reduce #12 (1024 x bfloat16 = 2048 bytes, premul_sum, root 3)");
    call.func = SOL_FUNC_RECV;
    sol_call_describe(&call, text, sizeof(text));
    assert_string_equal(text, "recv #12 (1024 x bfloat16 = 2048 bytes, from rank 3)");
    call.func = SOL_FUNC_BARRIER;
    sol_call_describe(&call, text, sizeof(text));
    assert_string_equal(text, "barrier #12");
    for (int status = 0; status >= SOL_ERR_INTERNAL; status--) {
        assert_string_not_equal(sol_status_string((sol_status_t)status), "unknown status");
    }
    assert_string_equal(sol_status_string((sol_status_t)1), "unknown status");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_config),         TEST(test_config_sizes),
                                       TEST(test_query_sizes),    TEST(test_sequence),
                                       TEST(test_failed),         TEST(test_destroyed),
                                       TEST(test_abort),          TEST(test_open_fails),
                                       TEST(test_refused_memory), TEST(test_destroy_without_memory),
                                       TEST(test_many),           TEST(test_split),
                                       TEST(test_memory),         TEST(test_different_setup),
                                       TEST(test_registration),   TEST(test_sleep),
                                       TEST(test_sleep_fails),    TEST(test_premul),
                                       TEST(test_fork),           TEST(test_words)};
    setenv("SOLCCL_LOG", "off", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
