/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_handover.c: which calls SOLCCL_NCCL_ABOVE gives to NCCL. Host logic
 * that needs no GPU and no CUDA to be built.
 */
#include "backend/cuda/cuda_handover.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GB ((size_t)1 << 30)

static char why[400];

static sol_status_t open_as(struct sol_cuda_handover *handover, const char *text,
                            const char *machine, int nranks)
{
    if (text != NULL) {
        setenv("SOLCCL_NCCL_ABOVE", text, 1);
    } else {
        unsetenv("SOLCCL_NCCL_ABOVE");
    }
    why[0] = '\0';
    sol_status_t status = sol_cuda_handover_open(handover, machine, nranks, why, sizeof why);
    unsetenv("SOLCCL_NCCL_ABOVE");
    return status;
}

static void never_by_default(void **state)
{
    (void)state;
    static const char *const texts[] = {NULL, "", "0", "broadcast=0"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct sol_cuda_handover handover;
        char text[200];
        assert_int_equal(open_as(&handover, texts[i], "NVIDIA H200", 2), SOL_OK);
        assert_false(handover.any);
        for (int f = 0; f < SOL_FUNC_COUNT; f++) {
            assert_false(sol_cuda_handover_wants(&handover, (sol_func_t)f, SIZE_MAX));
        }
        sol_cuda_handover_describe(&handover, text, sizeof text);
        assert_string_equal(text, "nothing");
    }
}

/* One size for all five; what NCCL must not get stays here. */
static void one_size(void **state)
{
    (void)state;
    struct sol_cuda_handover handover;
    assert_int_equal(open_as(&handover, "64K", "x", 2), SOL_OK);
    assert_true(handover.any);
    assert_false(sol_cuda_handover_wants(&handover, SOL_FUNC_ALL_REDUCE, 65535));
    assert_true(sol_cuda_handover_wants(&handover, SOL_FUNC_ALL_REDUCE, 65536));
    assert_true(sol_cuda_handover_wants(&handover, SOL_FUNC_ALL_GATHER, 65536));
    assert_true(sol_cuda_handover_wants(&handover, SOL_FUNC_REDUCE_SCATTER, 65536));
    assert_true(sol_cuda_handover_wants(&handover, SOL_FUNC_BROADCAST, 65536));
    assert_true(sol_cuda_handover_wants(&handover, SOL_FUNC_REDUCE, 65536));
    static const sol_func_t ours[] = {SOL_FUNC_ALL_TO_ALL, SOL_FUNC_ALL_TO_ALL_V, SOL_FUNC_GATHER,
                                      SOL_FUNC_SCATTER,    SOL_FUNC_SEND,         SOL_FUNC_RECV,
                                      SOL_FUNC_BARRIER};
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
        assert_false(sol_cuda_handover_wants(&handover, ours[i], SIZE_MAX));
    }
}

static void sizes_by_operation(void **state)
{
    (void)state;
    struct sol_cuda_handover handover;
    char text[200];
    assert_int_equal(open_as(&handover, "broadcast=1G,all_reduce=512M", "x", 4), SOL_OK);
    assert_true(sol_cuda_handover_wants(&handover, SOL_FUNC_BROADCAST, GB));
    assert_false(sol_cuda_handover_wants(&handover, SOL_FUNC_BROADCAST, GB - 1));
    assert_true(sol_cuda_handover_wants(&handover, SOL_FUNC_ALL_REDUCE, GB / 2));
    assert_false(sol_cuda_handover_wants(&handover, SOL_FUNC_ALL_GATHER, SIZE_MAX - 1));
    sol_cuda_handover_describe(&handover, text, sizeof text);
    assert_string_equal(text, "all_reduce from 536870912 bytes, broadcast from 1073741824 bytes");
    sol_cuda_handover_describe(&handover, text, 20); /* cut, not overrun */
    assert_int_equal(strlen(text), 19);
}

/* The sizes that were measured, on the machine they were measured on. */
static void measured_sizes(void **state)
{
    (void)state;
    struct sol_cuda_handover handover;
    assert_int_equal(open_as(&handover, "auto", "NVIDIA H200", 2), SOL_OK);
    assert_true(sol_cuda_handover_wants(&handover, SOL_FUNC_BROADCAST, GB));
    assert_true(sol_cuda_handover_wants(&handover, SOL_FUNC_ALL_REDUCE, GB));
    assert_false(sol_cuda_handover_wants(&handover, SOL_FUNC_ALL_REDUCE, GB / 4));
    assert_false(sol_cuda_handover_wants(&handover, SOL_FUNC_ALL_GATHER, GB));
    assert_int_equal(open_as(&handover, "auto", "NVIDIA H200", 4), SOL_OK);
    assert_false(handover.any);
    assert_int_equal(open_as(&handover, "auto", "NVIDIA B200", 2), SOL_OK);
    assert_false(handover.any);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "64Q",           "-1",          "broadcast",     "broadcast=",    "broadcast=x",
        "all_to_all=1G", "nonsense=1G", "broadcast=1G,", ",broadcast=1G", "broadcast=1G;reduce=1G",
        "Auto"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct sol_cuda_handover handover;
        if (open_as(&handover, texts[i], "NVIDIA H200", 2) != SOL_ERR_ARGUMENT ||
            strstr(why, texts[i]) == NULL || handover.any) {
            fail_msg("\"%s\": %s", texts[i], why);
        }
    }
    char longest[300];
    struct sol_cuda_handover handover;
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(open_as(&handover, longest, "x", 2), SOL_ERR_ARGUMENT);
}

static void digests_differ(void **state)
{
    (void)state;
    struct sol_cuda_handover a, b;
    assert_int_equal(open_as(&a, "broadcast=1G", "x", 2), SOL_OK);
    assert_int_equal(open_as(&b, "broadcast=1024M,reduce=0", "x", 2), SOL_OK);
    assert_true(sol_cuda_handover_digest(&a) == sol_cuda_handover_digest(&b));
    assert_int_equal(open_as(&b, "all_gather=1G", "x", 2), SOL_OK);
    assert_true(sol_cuda_handover_digest(&a) != sol_cuda_handover_digest(&b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_by_default),    cmocka_unit_test(one_size),
        cmocka_unit_test(sizes_by_operation),  cmocka_unit_test(measured_sizes),
        cmocka_unit_test(nonsense_is_refused), cmocka_unit_test(digests_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
