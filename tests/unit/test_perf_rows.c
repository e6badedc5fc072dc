/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_perf_rows.c: results survive the file, damaged files are refused, and the
 * bound adds up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf_rows.h"
#include "perf_sol.h"
#include "perf_table.h"

static perf_row_t example(const char *library, size_t bytes, double us)
{
    perf_row_t row;

    memset(&row, 0, sizeof(row));
    snprintf(row.run, sizeof(row.run), "r1");
    snprintf(row.machine, sizeof(row.machine), "A \"quoted\" \\ machine\twith <tags>");
    snprintf(row.versions, sizeof(row.versions),
             "{\"commit\": \"abc\", \"list\": [1, {\"x\": 2}]}");
    snprintf(row.library, sizeof(row.library), "%s", library);
    snprintf(row.op, sizeof(row.op), "all_reduce");
    snprintf(row.dtype, sizeof(row.dtype), "float32");
    snprintf(row.mode, sizeof(row.mode), "cpu");
    row.ranks = row.processes = 2;
    row.bytes = bytes;
    row.us_p50 = us;
    row.sol_us = 0.1;
    row.in_place = true;
    return row;
}

static size_t to_text(const perf_row_t *row, char *text, size_t bytes)
{
    FILE *file = tmpfile();
    size_t length;

    assert_non_null(file);
    assert_true(perf_row_write_json(file, row));
    rewind(file);
    length = fread(text, 1, bytes - 1, file);
    text[length] = '\0';
    fclose(file);
    return length;
}

static void rows_survive_the_file(void **state)
{
    perf_row_t row = example("solccl", 4096, 0.25), back;
    char text[8192], why[128] = "";

    (void)state;
    to_text(&row, text, sizeof(text));
    if (!perf_row_read_json(text, &back, why, sizeof(why)))
        fail_msg("%s", why);
    /* a tab is written as an escape, which the reader shows as a question mark */
    assert_string_equal(back.machine, "A \"quoted\" \\ machine?with <tags>");
    assert_string_equal(back.versions, row.versions);
    assert_string_equal(back.library, "solccl");
    assert_true(back.us_p50 == row.us_p50 && back.bytes == 4096 && back.in_place);
}

static void every_cut_line_is_refused(void **state)
{
    perf_row_t row = example("solccl", 4096, 0.25), back;
    char text[8192], why[128];
    size_t length, cut;

    (void)state;
    length = to_text(&row, text, sizeof(text)) - 1; /* without the newline */
    for (cut = 0; cut < length; cut++) {
        char kept = text[cut];

        text[cut] = '\0';
        assert_false(perf_row_read_json(text, &back, why, sizeof(why)));
        text[cut] = kept;
    }
}

static void damaged_lines_end_in_an_answer(void **state)
{
    perf_row_t row = example("solccl", 4096, 0.25), back;
    char text[8192], damaged[8192], why[128];
    size_t length, i;
    unsigned random = 12345;

    (void)state;
    length = to_text(&row, text, sizeof(text));
    for (i = 0; i < 20000; i++) { /* any outcome but a crash or a read beyond the end is right */
        memcpy(damaged, text, length + 1);
        random = random * 1664525u + 1013904223u;
        damaged[random / 7 % length] = (char)(random >> 24);
        perf_row_read_json(damaged, &back, why, sizeof(why));
    }
}

static void wrong_types_and_missing_keys_are_named(void **state)
{
    static const char *const bad[][2] = {
        {"[]", "object"},
        {"{}", "run"},
        {"{\"run\": 5}", "run"},
        {"{\"bytes\": \"many\"}", "bytes"},
        {"{\"bytes\": -8}", "bytes"},
        {"{\"bytes\": 1.5}", "bytes"},
        {"{\"in_place\": 1}", "in_place"},
        {"{\"versions\": [1]}", "versions"},
        {"{\"us_p50\": nan}", "us_p50"},
        {"{\"run\": \"a\"} x", "behind"},
        {"{\"run\" \"a\"}", "colon"},
        {"{\"unknown\": {\"a\": [1, 2, }", "unknown"},
    };
    perf_row_t row;
    char why[128];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(perf_row_read_json(bad[i][0], &row, why, sizeof(why)));
        if (!strstr(why, bad[i][1]))
            fail_msg("%s: the reason '%s' does not name '%s'", bad[i][0], why, bad[i][1]);
    }
}

static void summaries_compare_with_the_better_peer(void **state)
{
    perf_rows_t rows = {NULL, 0, 0};
    perf_row_t r[5];
    perf_summary_t s;
    size_t i;

    (void)state;
    r[0] = example("solccl", 8, 0.2);
    r[1] = example("openmpi", 8, 0.4);
    r[2] = example("mpich", 8, 0.8);
    r[3] = example("solccl", 65536, 2);
    r[4] = example("mpich", 65536, 16);
    for (i = 0; i < 5; i++)
        assert_true(perf_rows_add(&rows, &r[i]));
    s = perf_summarise(&rows, "all_reduce", NULL);
    assert_int_equal(s.points, 2);
    assert_int_equal(s.compared, 2);
    assert_true(fabs(s.worst - 2) < 1e-12 && fabs(s.best - 8) < 1e-12 && fabs(s.mean - 4) < 1e-12);
    assert_int_equal(s.worst_bytes, 8);
    assert_true(fabs(s.sol_small - 2) < 1e-12);
    perf_rows_clear(&rows);
}

static perf_terms_t terms(void)
{
    perf_terms_t t;

    memset(&t, 0, sizeof(t));
    t.line_us = 0.1;
    t.sizes = 2;
    t.bytes[0] = 16384;
    t.bytes[1] = 65536;
    t.move_gbs[0] = t.reduce_gbs[0] = 10;
    t.move_gbs[1] = 20;
    t.reduce_gbs[1] = 5;
    t.local_gbs[0] = t.local_gbs[1] = 40;
    t.ranks_per_cpu = 1;
    return t;
}

static void near(double got, double expected)
{
    if (fabs(got - expected) > 1e-9)
        fail_msg("%g instead of %g", got, expected);
}

static void the_bound_adds_up(void **state)
{
    perf_terms_t t = terms();
    perf_case_t c = {PERF_ALL_GATHER,   SOL_INT8,          SOL_SUM, false,
                     PERF_ROOT_ROTATES, PERF_MEMORY_PLAIN, 1000,    PERF_MODE_CPU};

    (void)state;
    /* the best bandwidth at this size or above: 20 moving, 10 reducing */
    near(perf_sol_bandwidth(&t, t.move_gbs, 1000), 20);
    near(perf_sol_bandwidth(&t, t.reduce_gbs, 1000), 10);
    near(perf_sol_bandwidth(&t, t.reduce_gbs, 60000), 5);
    near(perf_sol_bandwidth(&t, t.reduce_gbs, 1e9), 5);
    near(perf_sol_bound(&t, &c, 3).us, 0.1 + 2 * 1000 / 20e3 + 1000 / 40e3);
    c.in_place = true;
    near(perf_sol_bound(&t, &c, 3).us, 0.1 + 2 * 1000 / 20e3);
    c.op = PERF_REDUCE_SCATTER;
    near(perf_sol_bound(&t, &c, 3).us, 0.1 + 2 * 1000 / 10e3);
    c.op = PERF_BARRIER;
    c.count = 0;
    near(perf_sol_bound(&t, &c, 3).us, 0.1);
}

static void the_lower_algorithm_counts(void **state)
{
    perf_terms_t t = terms();
    perf_case_t c = {PERF_ALL_REDUCE,   SOL_INT8,          SOL_SUM, false,
                     PERF_ROOT_ROTATES, PERF_MEMORY_PLAIN, 100,     PERF_MODE_CPU};
    perf_bound_t bound = perf_sol_bound(&t, &c, 4);

    (void)state;
    assert_int_equal(bound.hops, 1); /* small: latency counts */
    near(bound.us, 0.1 + 300 / 10e3);
    c.count = 40000;
    bound = perf_sol_bound(&t, &c, 4);
    assert_int_equal(bound.hops, 2); /* large: bytes count */
    near(bound.us, 0.2 + 30000 / 5e3 + 30000 / 20e3);
    c.op = PERF_BROADCAST;
    c.root = 0;
    assert_int_equal(perf_sol_bound(&t, &c, 4).hops, 0);
    t.ranks_per_cpu = 2;
    near(perf_sol_bound(&t, &c, 4).us, 2 * 40000 / 20e3);
    c.op = PERF_ALL_REDUCE;
    c.in_place = true;
    near(perf_sol_bound(&t, &c, 1).us, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_survive_the_file),
        cmocka_unit_test(every_cut_line_is_refused),
        cmocka_unit_test(damaged_lines_end_in_an_answer),
        cmocka_unit_test(wrong_types_and_missing_keys_are_named),
        cmocka_unit_test(summaries_compare_with_the_better_peer),
        cmocka_unit_test(the_bound_adds_up),
        cmocka_unit_test(the_lower_algorithm_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
