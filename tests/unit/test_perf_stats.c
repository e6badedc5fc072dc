/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_perf_stats.c: percentiles, batches, sizes and strict parsing of perf.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "perf_options.h"
#include "perf_stats.h"
#include "tool.h"

static void percentiles_are_nearest_rank(void **state)
{
    perf_samples_t samples = {NULL, 0, 0, false};
    perf_figures_t figures;
    int i;

    (void)state;
    assert_true(perf_percentile(&samples, 50) == 0);
    for (i = 200; i >= 1; i--)
        assert_true(perf_samples_add(&samples, i));
    figures = perf_figures(&samples);
    assert_true(figures.min == 1);
    assert_true(figures.p50 == 100);
    assert_true(figures.p99 == 198);
    assert_int_equal(figures.samples, 200);
    assert_true(perf_percentile(&samples, 100) == 200);
    assert_true(perf_samples_add(&samples, 0.5)); /* sorts again */
    assert_true(perf_percentile(&samples, 0) == 0.5);
    perf_samples_clear(&samples);
    assert_true(perf_samples_add(&samples, 7));
    figures = perf_figures(&samples);
    assert_true(figures.min == 7 && figures.p50 == 7 && figures.p99 == 7);
    perf_samples_clear(&samples);
}

static void the_slowest_rank_counts(void **state)
{
    double slowest[3] = {1, 5, 2};
    const double rank[3] = {3, 4, 2};

    (void)state;
    perf_take_slowest(slowest, rank, 3);
    assert_true(slowest[0] == 3 && slowest[1] == 5 && slowest[2] == 2);
}

static void batches_are_long_enough(void **state)
{
    (void)state;
    assert_int_equal(perf_batch_for(0.08, 20, 4096), 250);
    assert_int_equal(perf_batch_for(0.001, 20, 4096), 4096);
    assert_int_equal(perf_batch_for(0, 20, 4096), 4096);
    assert_int_equal(perf_batch_for(5000, 20, 4096), 1);
    assert_int_equal(perf_sample_count(0.08, 250, 20000, 2000), 1000);
    assert_int_equal(perf_sample_count(10000, 1, 20000, 2000), 3);
    assert_int_equal(perf_sample_count(0.001, 1, 20000, 2000), 2000);
}

static void sizes_are_parsed_strictly(void **state)
{
    static const char *const bad[] = {"",
                                      "K",
                                      "-1",
                                      "8Q",
                                      "8 ",
                                      " 8",
                                      "1.5M",
                                      "8KK",
                                      "0x8",
                                      "8KBB",
                                      "99999999999999999999",
                                      "99999999999999999T"};
    size_t value, i;
    char text[32];

    (void)state;
    assert_true(tool_parse_size("8", &value) && value == 8);
    assert_true(tool_parse_size("4K", &value) && value == 4096);
    assert_true(tool_parse_size("16MB", &value) && value == 16u << 20);
    assert_true(tool_parse_size("1g", &value) && value == 1u << 30);
    assert_true(tool_parse_size("0", &value) && value == 0);
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (tool_parse_size(bad[i], &value))
            fail_msg("'%s' was taken for %zu", bad[i], value);
    assert_string_equal(tool_format_size(4096, text), "4K");
    assert_string_equal(tool_format_size(4097, text), "4097");
    assert_string_equal(tool_format_size((size_t)3 << 30, text), "3G");
    assert_string_equal(tool_format_size(0, text), "0");
}

static int parse(perf_options_t *options, const char *line)
{
    static char text[512];
    char *argv[32] = {"perf"}, *word;
    int argc = 1;

    snprintf(text, sizeof(text), "%s", line);
    for (word = strtok(text, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    return perf_options_parse(argc, argv, options);
}

static void options_are_those_of_nccl_tests(void **state)
{
    perf_options_t o;

    (void)state;
    assert_int_equal(parse(&o, "all_reduce bcast -b 1K -e 1M -f 4 -d float,half -o max -g 4 -n 20 "
                               "-w 2 -c 0 -z 1 -r 3 -R 2"),
                     -1);
    assert_true(o.ops[PERF_ALL_REDUCE] && o.ops[PERF_BROADCAST] && !o.ops[PERF_ALL_GATHER]);
    assert_true(o.dtypes[SOL_FLOAT32] && o.dtypes[SOL_FLOAT16] && !o.dtypes[SOL_FLOAT64]);
    assert_true(o.redops[SOL_MAX] && !o.redops[SOL_SUM]);
    assert_true(o.begin == 1024 && o.end == 1u << 20 && o.factor == 4);
    assert_true(o.ranks == 4 && o.iterations == 20 && o.warm == 2 && o.checks == 0);
    assert_true(o.alone && o.root == 3 && o.memory == PERF_MEMORY_SYMMETRIC);
    assert_int_equal(parse(&o, "all --peer openmpi,mpich --in-place both -t 2 -g 2"), -1);
    assert_true(o.npeers == 2 && o.in_place[0] && o.in_place[1] && o.ranks == 4);
    assert_true(o.ops[PERF_ALL_TO_ALL] && !o.ops[PERF_SENDRECV]);
}

static void wrong_options_are_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "all_redux",
                                      "all -b x",
                                      "all -b 1M -e 1K",
                                      "all -d float31",
                                      "all -o plus",
                                      "all -g 0",
                                      "all -g 65",
                                      "all -g 40 -t 2",
                                      "all -g 2 -r 2",
                                      "all -f 1",
                                      "all -c -1",
                                      "all -z 2",
                                      "all --peer nccl",
                                      "all --in-place 2",
                                      "all --peer mpich -R 2",
                                      "all --frobnicate",
                                      "all -b"};
    perf_options_t o;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (parse(&o, bad[i]) != TOOL_USAGE)
            fail_msg("'%s' was accepted", bad[i]);
}

static void sizes_step(void **state)
{
    perf_options_t o;
    size_t bytes = 8, steps = 0;

    (void)state;
    parse(&o, "all -b 8 -e 128 -f 2");
    while ((bytes = perf_next_size(&o, bytes)))
        steps++;
    assert_int_equal(steps, 4);
    parse(&o, "all -b 8 -e 20 -i 4");
    assert_int_equal(perf_next_size(&o, 8), 12);
    assert_int_equal(perf_next_size(&o, 20), 0);
    parse(&o, "all -b 8 -e 20 -f 1.01"); /* always moves on */
    assert_int_equal(perf_next_size(&o, 8), 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles_are_nearest_rank),
        cmocka_unit_test(the_slowest_rank_counts),
        cmocka_unit_test(batches_are_long_enough),
        cmocka_unit_test(sizes_are_parsed_strictly),
        cmocka_unit_test(options_are_those_of_nccl_tests),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(sizes_step),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
