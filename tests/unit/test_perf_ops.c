/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_perf_ops.c: names, shapes and nccl-tests' formulas as perf uses them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "perf_ops.h"

static perf_case_t make(perf_op_t op, sol_dtype_t dtype, size_t count)
{
    perf_case_t c = {op,    dtype,        SOL_SUM, false, PERF_ROOT_ROTATES, PERF_MEMORY_PLAIN,
                     count, PERF_MODE_CPU};

    return c;
}

static void near(double got, double expected)
{
    if (fabs(got - expected) > 1e-9 * fabs(expected))
        fail_msg("%g instead of %g", got, expected);
}

static void names_go_there_and_back(void **state)
{
    perf_op_t op;
    sol_dtype_t dtype;
    sol_redop_t redop;
    int i;

    (void)state;
    for (i = 0; i < PERF_OP_COUNT; i++) {
        assert_true(perf_op_parse(perf_op_name((perf_op_t)i), &op));
        assert_int_equal(op, i);
    }
    for (i = 0; i < SOL_DTYPE_COUNT; i++) {
        assert_true(perf_dtype_parse(perf_dtype_name((sol_dtype_t)i), &dtype));
        assert_int_equal(dtype, i);
        assert_int_equal(perf_dtype_size(dtype), sol_dtype_size(dtype));
        assert_string_equal(perf_dtype_name(dtype), sol_dtype_name(dtype));
    }
    for (i = 0; i < SOL_REDOP_COUNT; i++) {
        assert_true(perf_redop_parse(perf_redop_name((sol_redop_t)i), &redop));
        assert_int_equal(redop, i);
        assert_string_equal(perf_redop_name(redop), sol_redop_name(redop));
    }
}

static void nccl_tests_names_are_understood(void **state)
{
    perf_op_t op;
    sol_dtype_t dtype;

    (void)state;
    assert_true(perf_op_parse("alltoall_perf", &op) && op == PERF_ALL_TO_ALL);
    assert_true(perf_op_parse("all_reduce_perf", &op) && op == PERF_ALL_REDUCE);
    assert_true(perf_op_parse("sendrecv_perf", &op) && op == PERF_SENDRECV);
    assert_true(perf_dtype_parse("half", &dtype) && dtype == SOL_FLOAT16);
    assert_true(perf_dtype_parse("bfloat16", &dtype) && dtype == SOL_BFLOAT16);
    assert_true(perf_dtype_parse("f8e4m3", &dtype) && dtype == SOL_FLOAT8_E4M3);
    assert_false(perf_op_parse("all_reduc", &op));
    assert_false(perf_op_parse("", &op));
    assert_false(perf_dtype_parse("float31", &dtype));
}

static void sizes_follow_nccl_tests(void **state)
{
    perf_case_t c;

    (void)state;
    assert_int_equal(perf_count_for(PERF_ALL_REDUCE, SOL_FLOAT32, 1024, 4), 256);
    assert_int_equal(perf_count_for(PERF_ALL_GATHER, SOL_FLOAT32, 1024, 4), 64);
    assert_int_equal(perf_count_for(PERF_BROADCAST, SOL_BFLOAT16, 1024, 4), 512);
    assert_int_equal(perf_count_for(PERF_REDUCE_SCATTER, SOL_FLOAT32, 8, 4), 0);

    c = make(PERF_ALL_GATHER, SOL_FLOAT32, 64);
    assert_int_equal(perf_shape(&c, 4).send, 64);
    assert_int_equal(perf_shape(&c, 4).recv, 256);
    assert_int_equal(perf_bytes(&c, 4), 1024);
    c = make(PERF_REDUCE_SCATTER, SOL_FLOAT32, 64);
    assert_int_equal(perf_shape(&c, 4).send, 256);
    assert_int_equal(perf_shape(&c, 4).recv, 64);
    c = make(PERF_ALL_TO_ALL, SOL_INT8, 3);
    assert_int_equal(perf_bytes(&c, 5), 15);
    c = make(PERF_BARRIER, SOL_FLOAT32, 0);
    assert_int_equal(perf_bytes(&c, 5), 0);
}

static void bandwidths_follow_nccl_tests(void **state)
{
    perf_case_t c = make(PERF_ALL_REDUCE, SOL_FLOAT32, 1000);

    (void)state;
    near(perf_algbw(&c, 4, 2.0), 2.0); /* 4000 bytes in 2 us */
    near(perf_busbw(&c, 4, 2.0), 2.0 * 2 * 3 / 4);
    c = make(PERF_ALL_GATHER, SOL_FLOAT32, 1000); /* 16000 bytes in total */
    near(perf_algbw(&c, 4, 2.0), 8.0);
    near(perf_busbw(&c, 4, 2.0), 6.0);
    c = make(PERF_REDUCE_SCATTER, SOL_FLOAT32, 1000);
    near(perf_busbw(&c, 4, 2.0), 6.0);
    c = make(PERF_ALL_TO_ALL, SOL_FLOAT32, 1000);
    near(perf_busbw(&c, 4, 2.0), 6.0);
    c = make(PERF_BROADCAST, SOL_FLOAT32, 1000);
    near(perf_busbw(&c, 4, 2.0), 2.0);
    c = make(PERF_REDUCE, SOL_FLOAT32, 1000);
    near(perf_busbw(&c, 4, 2.0), 2.0);
    c = make(PERF_SENDRECV, SOL_FLOAT32, 1000);
    near(perf_busbw(&c, 4, 2.0), 2.0);
    c = make(PERF_BARRIER, SOL_FLOAT32, 0);
    assert_true(perf_busbw(&c, 4, 2.0) == 0);
    assert_true(perf_busbw(&c, 4, 0) == 0);
}

static void roots_rotate_or_stay(void **state)
{
    perf_case_t c = make(PERF_BROADCAST, SOL_FLOAT32, 1);

    (void)state;
    assert_int_equal(perf_root(&c, 7, 3), 1);
    c.root = 2;
    assert_int_equal(perf_root(&c, 7, 3), 2);
}

static void cases_survive_the_wire(void **state)
{
    perf_case_t c = make(PERF_GATHER, SOL_FLOAT8_E5M2, (size_t)1 << 40), back;
    char text[256];

    (void)state;
    c.redop = SOL_MAX;
    c.in_place = true;
    c.root = 3;
    c.memory = PERF_MEMORY_SYMMETRIC;
    perf_case_write(&c, text, sizeof(text));
    assert_true(perf_case_read(text, &back));
    assert_int_equal(back.op, c.op);
    assert_int_equal(back.dtype, c.dtype);
    assert_int_equal(back.redop, c.redop);
    assert_int_equal(back.in_place, c.in_place);
    assert_int_equal(back.root, c.root);
    assert_int_equal(back.memory, c.memory);
    assert_int_equal(back.count, c.count);
    assert_false(perf_case_read("all_reduce float32", &back));
    assert_false(perf_case_read("all_reduce float32 sum 0 0 9 1", &back));
    assert_false(perf_case_read("", &back));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_go_there_and_back),
        cmocka_unit_test(nccl_tests_names_are_understood),
        cmocka_unit_test(sizes_follow_nccl_tests),
        cmocka_unit_test(bandwidths_follow_nccl_tests),
        cmocka_unit_test(roots_rotate_or_stay),
        cmocka_unit_test(cases_survive_the_wire),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
