/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_perf_check.c: perf's verification must accept right results and must see
 * every kind of wrong one: who checks the checker.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "perf_check.h"

#define N 3
#define COUNT 2500 /* more than two of its chunks, and odd */

static unsigned char sent[N][N * COUNT * 8], got[N * COUNT * 8];

static perf_case_t make(perf_op_t op, sol_dtype_t dtype, sol_redop_t redop)
{
    perf_case_t c = {op, dtype, redop, false, 0, PERF_MEMORY_PLAIN, COUNT, PERF_MODE_CPU};

    return c;
}

static void fill_all(const perf_case_t *c, perf_data_t kind, uint64_t seed)
{
    int rank;

    for (rank = 0; rank < N; rank++)
        perf_fill(c, N, rank, kind, seed, 0, perf_shape(c, N).send, sent[rank]);
}

static size_t wrong(const perf_case_t *c, int rank, perf_data_t kind, uint64_t seed)
{
    return perf_wrong(c, N, rank, 0, kind, seed, PERF_ROUND_WIDE, got);
}

static void float_sums_in_rank_order_are_right(void **state)
{
    perf_case_t c = make(PERF_ALL_REDUCE, SOL_FLOAT32, SOL_SUM);
    perf_data_t kinds[2];
    float *out = (float *)(void *)got;
    int kind, i;

    (void)state;
    assert_int_equal(perf_data_kinds(&c, kinds), 2);
    for (kind = 0; kind < 2; kind++) {
        fill_all(&c, kinds[kind], 9);
        for (i = 0; i < COUNT; i++)
            out[i] = ((float *)(void *)sent[0])[i] + ((float *)(void *)sent[1])[i] +
                     ((float *)(void *)sent[2])[i];
        assert_int_equal(wrong(&c, 1, kinds[kind], 9), 0);
        assert_true(wrong(&c, 1, kinds[kind], 10) > COUNT / 2); /* another seed is other data */
        out[COUNT - 1] = nextafterf(out[COUNT - 1], 1e30f) + 8;
        out[1024] = NAN;
        assert_int_equal(wrong(&c, 1, kinds[kind], 9), 2);
    }
}

static void a_missing_contribution_is_seen(void **state)
{
    static const sol_dtype_t types[] = {SOL_FLOAT16,     SOL_BFLOAT16, SOL_FLOAT32, SOL_FLOAT64,
                                        SOL_FLOAT8_E4M3, SOL_INT8,     SOL_UINT64};
    size_t i, size;

    (void)state;
    for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        perf_case_t c = make(PERF_ALL_REDUCE, types[i], SOL_SUM);
        perf_data_t kinds[2];

        size = perf_dtype_size(types[i]);
        perf_data_kinds(&c, kinds);
        fill_all(&c, kinds[0], 1);
        memcpy(got, sent[0], COUNT * size); /* as if nobody else had sent */
        if (wrong(&c, 0, kinds[0], 1) < COUNT / 2)
            fail_msg("%s: rank 0's data alone passed for the sum", perf_dtype_name(types[i]));
        memset(got, 0xa5, sizeof(got)); /* as if nothing had been written */
        if (wrong(&c, 0, kinds[0], 1) < COUNT / 2)
            fail_msg("%s: an unwritten result passed", perf_dtype_name(types[i]));
    }
}

static void integers_wrap_and_average_towards_zero(void **state)
{
    perf_case_t c = make(PERF_ALL_REDUCE, SOL_INT8, SOL_AVG);
    int8_t *out = (int8_t *)(void *)got;
    int i;

    (void)state;
    fill_all(&c, PERF_DATA_BITS, 4);
    for (i = 0; i < COUNT; i++) {
        int8_t sum = (int8_t)(uint8_t)(sent[0][i] + sent[1][i] + sent[2][i]);

        out[i] = (int8_t)(sum / 3);
    }
    assert_int_equal(wrong(&c, 2, PERF_DATA_BITS, 4), 0);
    c.redop = SOL_MIN;
    fill_all(&c, PERF_DATA_BITS, 4);
    for (i = 0; i < COUNT; i++) {
        int8_t a = (int8_t)sent[0][i], b = (int8_t)sent[1][i], d = (int8_t)sent[2][i];

        out[i] = a < b ? (a < d ? a : d) : (b < d ? b : d);
    }
    assert_int_equal(wrong(&c, 2, PERF_DATA_BITS, 4), 0);
    out[7] ^= 1;
    assert_int_equal(wrong(&c, 2, PERF_DATA_BITS, 4), 1);
}

static void blocks_must_be_in_their_places(void **state)
{
    perf_case_t c = make(PERF_ALL_TO_ALL, SOL_BFLOAT16, SOL_SUM);
    size_t block = COUNT * 2;
    int rank;

    (void)state;
    fill_all(&c, PERF_DATA_BITS, 2);
    for (rank = 0; rank < N; rank++)
        memcpy(got + (size_t)rank * block, sent[rank] + block, block);
    assert_int_equal(wrong(&c, 1, PERF_DATA_BITS, 2), 0);
    assert_true(wrong(&c, 0, PERF_DATA_BITS, 2) > 2 * COUNT);
    c.op = PERF_ALL_GATHER;
    fill_all(&c, PERF_DATA_BITS, 2);
    for (rank = 0; rank < N; rank++)
        memcpy(got + (size_t)rank * block, sent[rank], block);
    assert_int_equal(wrong(&c, 1, PERF_DATA_BITS, 2), 0);
    memcpy(got, sent[1], block);
    assert_true(wrong(&c, 1, PERF_DATA_BITS, 2) > COUNT * 9 / 10);
    c.op = PERF_GATHER; /* only the root, 0, is looked at */
    assert_int_equal(wrong(&c, 1, PERF_DATA_BITS, 2), 0);
    assert_true(wrong(&c, 0, PERF_DATA_BITS, 2) > 0);
}

static void a_written_send_buffer_is_seen(void **state)
{
    perf_case_t c = make(PERF_SCATTER, SOL_FLOAT64, SOL_SUM);

    (void)state;
    fill_all(&c, PERF_DATA_BITS, 3);
    assert_int_equal(perf_changed(&c, N, 1, PERF_DATA_BITS, 3, sent[1]), 0);
    sent[1][N * COUNT * 8 - 1] ^= 0x80;
    assert_int_equal(perf_changed(&c, N, 1, PERF_DATA_BITS, 3, sent[1]), 1);
}

static void every_16_bit_value_is_decoded(void **state)
{
    static const struct {
        sol_dtype_t dtype;
        uint16_t bits;
        double value;
    } known[] = {{SOL_FLOAT16, 0x3c00, 1},          {SOL_FLOAT16, 0xfbff, -65504},
                 {SOL_FLOAT16, 0x0001, 0x1p-24},    {SOL_BFLOAT16, 0x3f80, 1},
                 {SOL_BFLOAT16, 0x0001, 0x1p-133},  {SOL_FLOAT8_E4M3, 0x7e, 448},
                 {SOL_FLOAT8_E4M3, 0x01, 0x1p-9},   {SOL_FLOAT8_E5M2, 0x7b, 57344},
                 {SOL_FLOAT8_E5M2, 0x81, -0x1p-16}, {SOL_FLOAT16, 0x8000, -0.0}};
    uint16_t nans[] = {0x7e00, 0x7fc0};
    uint8_t nan8 = 0x7f;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        assert_true(perf_decode(known[i].dtype, &known[i].bits, 0) == known[i].value);
    assert_true(isnan(perf_decode(SOL_FLOAT16, &nans[0], 0)));
    assert_true(isnan(perf_decode(SOL_BFLOAT16, &nans[1], 0)));
    assert_true(isnan(perf_decode(SOL_FLOAT8_E4M3, &nan8, 0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float_sums_in_rank_order_are_right),
        cmocka_unit_test(a_missing_contribution_is_seen),
        cmocka_unit_test(integers_wrap_and_average_towards_zero),
        cmocka_unit_test(blocks_must_be_in_their_places),
        cmocka_unit_test(a_written_send_buffer_is_seen),
        cmocka_unit_test(every_16_bit_value_is_decoded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
