/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_plan.c: the GPU plan's rules and tuning files, and the notice
 * board. Host logic that needs no GPU and no CUDA to be built.
 */
#include "backend/cuda/cuda_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int algorithm(const char *name)
{
    return strcmp(name, "one_shot") == 0 ? 1 : strcmp(name, "two_shot") == 0 ? 2 : 0;
}

static sol_status_t parse(struct sol_cuda_plan *plan, const char *text)
{
    memset(plan, 0, sizeof *plan);
    return sol_cuda_plan_parse(plan, text, "NVIDIA H200", 2, algorithm);
}

static const struct sol_cuda_rule *find(const struct sol_cuda_plan *plan, sol_dtype_t dtype,
                                        size_t bytes)
{
    return sol_cuda_plan_find(plan, SOL_FUNC_ALL_REDUCE, dtype, bytes);
}

/* The smallest size that fits, an exact type before any, other ranks' lines left out. */
static void rules_are_found(void **state)
{
    (void)state;
    struct sol_cuda_plan plan;
    assert_int_equal(parse(&plan, "solccl-tuning 1\n"
                                  "# sizes in any order\n"
                                  "all_reduce any 2 65536 two_shot 16 64 4\n"
                                  "all_reduce any 2 4096 one_shot 1 256 2 # small\n"
                                  "all_reduce bfloat16 2 1024 one_shot 2 128 1\n"
                                  "all_reduce any 4 4096 two_shot 9 96 1\r\n"
                                  "\n"
                                  "broadcast any 2 10 one_shot 1 32 0"),
                     SOL_OK);
    assert_int_equal(plan.count, 4);
    assert_int_equal(find(&plan, SOL_FLOAT32, 0)->choice.threads, 256);
    assert_int_equal(find(&plan, SOL_FLOAT32, 4096)->choice.threads, 256);
    assert_int_equal(find(&plan, SOL_FLOAT32, 4097)->choice.algorithm, 2);
    assert_null(find(&plan, SOL_FLOAT32, 65537));
    assert_int_equal(find(&plan, SOL_BFLOAT16, 1024)->choice.ctas, 2);
    assert_int_equal(find(&plan, SOL_BFLOAT16, 1025)->choice.ctas, 1);
    assert_null(sol_cuda_plan_find(&plan, SOL_FUNC_BARRIER, SOL_INT8, 0));
    assert_non_null(sol_cuda_plan_find(&plan, SOL_FUNC_BROADCAST, SOL_INT8, 10));
    sol_cuda_plan_close(&plan);
}

static void other_machines_are_skipped(void **state)
{
    (void)state;
    struct sol_cuda_plan plan;
    assert_int_equal(parse(&plan, "solccl-tuning 1\n"
                                  "machine NVIDIA B200\n"
                                  "all_reduce any 2 4096 two_shot 1 256 2\n"
                                  "machine  NVIDIA H200 \n"
                                  "all_reduce any 2 4096 one_shot 1 256 2\n"),
                     SOL_OK);
    assert_int_equal(plan.count, 1);
    assert_int_equal(find(&plan, SOL_INT8, 1)->choice.algorithm, 1);
    sol_cuda_plan_close(&plan);
}

/* Every kind of line that cannot be read is an error that names the line and what it found. */
static void bad_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "line 1"},
        {"solccl-tuning 2\n", "line 1"},
        {"solccl-tuning 1\nall_reduce any 2 4096 one_shot 1 256\n", "8 fields"},
        {"solccl-tuning 1\nall_reduce any 2 4096 one_shot 1 256 2 9\n", "8 fields"},
        {"solccl-tuning 1\n\nreduce_all any 2 4096 one_shot 1 256 2\n", "line 3"},
        {"solccl-tuning 1\nall_reduce half 2 4096 one_shot 1 256 2\n", "half"},
        {"solccl-tuning 1\nall_reduce any 0 4096 one_shot 1 256 2\n", "ranks"},
        {"solccl-tuning 1\nall_reduce any 2 -1 one_shot 1 256 2\n", "bytes"},
        {"solccl-tuning 1\nall_reduce any 2 99999999999999999999999 one_shot 1 256 2\n", "bytes"},
        {"solccl-tuning 1\nall_reduce any 2 4k one_shot 1 256 2\n", "4k"},
        {"solccl-tuning 1\nall_reduce any 2 4096 ring 1 256 2\n", "ring"},
        {"solccl-tuning 1\nall_reduce any 2 4096 one_shot 5000 256 2\n", "CTAs"},
        {"solccl-tuning 1\nall_reduce any 2 4096 one_shot 1 100 2\n", "threads"},
        {"solccl-tuning 1\nall_reduce any 2 4096 one_shot 1 256 3\n", "vectors"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sol_cuda_plan plan;
        assert_int_equal(parse(&plan, cases[i].text), SOL_ERR_ARGUMENT);
        if (strstr(sol_thread_error_text(), cases[i].says) == NULL) {
            fail_msg("case %zu says: %s", i, sol_thread_error_text());
        }
        sol_cuda_plan_close(&plan);
    }
}

static void long_lines_are_refused(void **state)
{
    (void)state;
    struct sol_cuda_plan plan;
    char text[1100] = "solccl-tuning 1\n";
    memset(text + 16, ' ', 1000);
    assert_int_equal(parse(&plan, text), SOL_ERR_ARGUMENT);
    sol_cuda_plan_close(&plan);
}

/* Many rules: the array grows; each size finds its own. */
static void many_rules(void **state)
{
    (void)state;
    struct sol_cuda_plan plan;
    static char text[64 * 1024];
    int used = snprintf(text, sizeof text, "solccl-tuning 1\n");
    for (int i = 500; i > 0; i--) {
        used += snprintf(text + used, sizeof text - (size_t)used,
                         "all_reduce any 2 %d one_shot %d 32 1\n", i * 16, i);
    }
    assert_int_equal(parse(&plan, text), SOL_OK);
    assert_int_equal(plan.count, 500);
    for (int i = 1; i <= 500; i++) {
        assert_int_equal(find(&plan, SOL_INT8, (size_t)i * 16)->choice.ctas, i);
        assert_int_equal(find(&plan, SOL_INT8, (size_t)i * 16 - 15)->choice.ctas, i);
    }
    sol_cuda_plan_close(&plan);
}

static void environment_forces(void **state)
{
    (void)state;
    struct sol_cuda_plan plan, other;
    setenv("SOLCCL_CUDA_PROTOCOL", "two_shot", 1);
    setenv("SOLCCL_CUDA_CTAS", "12", 1);
    assert_int_equal(sol_cuda_plan_open(&plan, "x", 2, algorithm), SOL_OK);
    assert_int_equal(plan.forced.algorithm, 2);
    assert_int_equal(plan.forced.ctas, 12);
    setenv("SOLCCL_CUDA_CTAS", "13", 1);
    assert_int_equal(sol_cuda_plan_open(&other, "x", 2, algorithm), SOL_OK);
    assert_true(sol_cuda_plan_digest(&plan) != sol_cuda_plan_digest(&other));
    sol_cuda_plan_close(&plan);
    sol_cuda_plan_close(&other);
    setenv("SOLCCL_CUDA_THREADS", "33", 1);
    assert_int_equal(sol_cuda_plan_open(&plan, "x", 2, algorithm), SOL_ERR_ARGUMENT);
    unsetenv("SOLCCL_CUDA_THREADS");
    setenv("SOLCCL_CUDA_PROTOCOL", "nonsense", 1);
    assert_int_equal(sol_cuda_plan_open(&plan, "x", 2, algorithm), SOL_ERR_ARGUMENT);
    assert_non_null(strstr(sol_thread_error_text(), "nonsense"));
    unsetenv("SOLCCL_CUDA_PROTOCOL");
    unsetenv("SOLCCL_CUDA_CTAS");
    setenv("SOLCCL_TUNING_FILE", "/nonexistent/file", 1);
    assert_int_equal(sol_cuda_plan_open(&plan, "x", 2, algorithm), SOL_ERR_ARGUMENT);
    unsetenv("SOLCCL_TUNING_FILE");
    assert_int_equal(sol_cuda_plan_open(&plan, "x", 2, algorithm), SOL_OK);
    assert_int_equal(plan.count, 0);
    sol_cuda_plan_close(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_are_found),
        cmocka_unit_test(other_machines_are_skipped),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(long_lines_are_refused),
        cmocka_unit_test(many_rules),
        cmocka_unit_test(environment_forces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
