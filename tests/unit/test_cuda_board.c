/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_board.c: the notice board of GPU ranks. The test plays the devices:
 * it writes error records as their kernels would.
 */
#include "backend/cuda/cuda_board.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 3

static struct sol_cuda_board *board;
static char text[SOL_CUDA_STORY];

static int fresh_board(void **state)
{
    (void)state;
    board = calloc(1, sol_cuda_board_bytes(RANKS));
    return board == NULL;
}

static int drop_board(void **state)
{
    (void)state;
    free(board);
    return 0;
}

static sol_status_t status(void)
{
    text[0] = '\0';
    return sol_cuda_board_status(board, RANKS, 30000000000u, text, sizeof text);
}

static void a_kernel_gives_up(int rank, int awaited, uint64_t sequence, uint32_t fault)
{
    struct sol_gpu_error *error = &board->ranks[rank].error;
    error->func = SOL_FUNC_ALL_REDUCE;
    error->rank = rank;
    error->awaited = awaited;
    error->sequence = sequence;
    error->bytes = 4096;
    error->detail = 17;
    error->fault = fault;
}

static sol_call_t call(uint64_t sequence, size_t count)
{
    sol_call_t made = {
        .func = SOL_FUNC_ALL_REDUCE, .dtype = SOL_FLOAT32, .count = count, .sequence = sequence};
    return made;
}

static void quiet_at_first(void **state)
{
    (void)state;
    assert_int_equal(status(), SOL_OK);
    assert_int_equal(board->abort_word, 0);
}

/* What a dump says of another rank. */
static void the_last_call_is_found(void **state)
{
    (void)state;
    sol_call_t found;
    uint64_t collective = 0;
    assert_false(sol_cuda_board_last(board, 2, &found, &collective));
    for (uint64_t i = 1; i <= SOL_CUDA_RECENT + 7; i++) {
        sol_call_t made = call(i, 10 * i);
        sol_cuda_board_note(board, 2, &made, i - 1, false);
        assert_true(sol_cuda_board_last(board, 2, &found, &collective));
        assert_int_equal(found.sequence, i);
        assert_int_equal(found.count, 10 * i);
        assert_int_equal(collective, i - 1);
    }
    assert_false(sol_cuda_board_last(board, 1, &found, &collective));
}

/* The story names the operation as the CPU backend would, and ends everybody's waits. */
static void a_timeout_becomes_a_story(void **state)
{
    (void)state;
    sol_call_t made = call(12, 1024);
    sol_cuda_board_note(board, 1, &made, 0, true);
    a_kernel_gives_up(1, 2, 12, SOL_GPU_FAULT_TIMEOUT);
    assert_int_equal(status(), SOL_ERR_TIMEOUT);
    assert_string_equal(text, "all_reduce #12 (1024 x float32 = 4096 bytes, sum): rank 1 waited "
                              "30.0 s for rank 2");
    assert_int_equal(board->abort_word, 1);
}

/* A call that has left the memory (a graph captured long ago) is told from the record alone. */
static void an_old_call_is_told_from_the_record(void **state)
{
    (void)state;
    sol_call_t made = call(12 + SOL_CUDA_RECENT, 5);
    sol_cuda_board_note(board, 1, &made, 0, true);
    a_kernel_gives_up(1, 2, 12, SOL_GPU_FAULT_TIMEOUT);
    assert_int_equal(status(), SOL_ERR_TIMEOUT);
    assert_non_null(strstr(text, "all_reduce #12 (4096 bytes)"));
}

/* The first story is kept; one that only followed from an abort tells nothing. */
static void the_first_story_wins(void **state)
{
    (void)state;
    sol_cuda_board_publish(board, SOL_ERR_MISMATCH, "first");
    a_kernel_gives_up(0, 1, 3, SOL_GPU_FAULT_TIMEOUT);
    assert_int_equal(status(), SOL_ERR_MISMATCH);
    assert_string_equal(text, "first");
    sol_cuda_board_publish(board, SOL_ERR_PEER, "second");
    assert_int_equal(status(), SOL_ERR_MISMATCH);
}

static void an_abort_is_told(void **state)
{
    (void)state;
    a_kernel_gives_up(0, 1, 3, SOL_GPU_FAULT_ABORT);
    assert_int_equal(status(), SOL_OK);
    sol_cuda_board_abort(board, 2);
    sol_cuda_board_abort(board, 1);
    assert_int_equal(status(), SOL_ERR_ABORTED);
    assert_non_null(strstr(text, "rank 2"));
}

static void a_length_mismatch_is_told(void **state)
{
    (void)state;
    a_kernel_gives_up(0, 1, 3, SOL_GPU_FAULT_MISMATCH);
    assert_int_equal(status(), SOL_ERR_MISMATCH);
    assert_non_null(strstr(text, "rank 0 expected 4096 bytes, rank 1 sent 17"));
}

/* Whoever comes second finds out, and both calls are named. */
static void different_calls_are_found(void **state)
{
    (void)state;
    sol_call_t mine = call(5, 100), theirs = call(7, 101);
    sol_cuda_board_note(board, 0, &mine, 4, true);
    assert_true(sol_cuda_board_agrees(board, 0, RANKS, 4, text, sizeof text));
    sol_cuda_board_note(board, 1, &theirs, 4, true);
    assert_false(sol_cuda_board_agrees(board, 1, RANKS, 4, text, sizeof text));
    assert_non_null(strstr(text, "rank 0 all_reduce #5 (100 x float32"));
    assert_non_null(strstr(text, "rank 1 all_reduce #7 (101 x float32"));
}

/* Ranks that are far apart are not compared with what is no longer, or not yet, there. */
static void distant_calls_are_not_compared(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= SOL_CUDA_RECENT + 1; i++) {
        sol_call_t mine = call(i, 100);
        sol_cuda_board_note(board, 0, &mine, i, true);
    }
    sol_call_t theirs = call(1, 5); /* number 1 was overwritten on rank 0 */
    sol_cuda_board_note(board, 1, &theirs, 1, true);
    assert_true(sol_cuda_board_agrees(board, 1, RANKS, 1, text, sizeof text));
    sol_call_t ahead = call(1000, 5);
    sol_cuda_board_note(board, 2, &ahead, 1000, true);
    assert_true(sol_cuda_board_agrees(board, 2, RANKS, 1000, text, sizeof text));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fresh_board, drop_board)
    const struct CMUnitTest tests[] = {
        TEST(quiet_at_first),
        TEST(the_last_call_is_found),
        TEST(a_timeout_becomes_a_story),
        TEST(an_old_call_is_told_from_the_record),
        TEST(the_first_story_wins),
        TEST(an_abort_is_told),
        TEST(a_length_mismatch_is_told),
        TEST(different_calls_are_found),
        TEST(distant_calls_are_not_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
