/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_abi.c: sizes, offsets and values that programs were compiled with. A change here breaks
 * every program that exists: structs may only grow at their end, values never change.
 */
#include "solccl/solccl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void structs_keep_their_layout(void **state)
{
    (void)state;
    assert_int_equal(sizeof(sol_unique_id_t), 128);

    assert_int_equal(offsetof(sol_comm_config_t, size), 0);
    assert_int_equal(offsetof(sol_comm_config_t, backend), 8);
    assert_int_equal(offsetof(sol_comm_config_t, timeout_ms), 12);
    assert_int_equal(offsetof(sol_comm_config_t, check), 16);
    assert_int_equal(offsetof(sol_comm_config_t, staging_bytes), 24);
    assert_int_equal(offsetof(sol_comm_config_t, name), 32);
    assert_int_equal(sizeof(sol_comm_config_t), 40);

    assert_int_equal(offsetof(sol_comm_info_t, size), 0);
    assert_int_equal(offsetof(sol_comm_info_t, rank), 8);
    assert_int_equal(offsetof(sol_comm_info_t, nranks), 12);
    assert_int_equal(offsetof(sol_comm_info_t, backend), 16);
    assert_int_equal(offsetof(sol_comm_info_t, device), 20);
    assert_int_equal(offsetof(sol_comm_info_t, sequence), 24);
    assert_int_equal(offsetof(sol_comm_info_t, shared_bytes), 32);
    assert_int_equal(offsetof(sol_comm_info_t, oversubscribed), 40);
    assert_int_equal(sizeof(sol_comm_info_t), 48);
}

static void enums_are_ints(void **state)
{
    (void)state;
    assert_int_equal(sizeof(sol_status_t), 4);
    assert_int_equal(sizeof(sol_dtype_t), 4);
    assert_int_equal(sizeof(sol_redop_t), 4);
    assert_int_equal(sizeof(sol_backend_kind_t), 4);
    assert_int_equal(sizeof(sol_residence_t), 4);
    assert_int_equal(sizeof(sol_func_t), 4);
}

static void values_keep_their_meaning(void **state)
{
    static const struct {
        sol_dtype_t dtype;
        int value;
        size_t size;
        const char *name;
    } dtypes[] = {
        {SOL_INT8, 0, 1, "int8"},
        {SOL_UINT8, 1, 1, "uint8"},
        {SOL_INT32, 2, 4, "int32"},
        {SOL_UINT32, 3, 4, "uint32"},
        {SOL_INT64, 4, 8, "int64"},
        {SOL_UINT64, 5, 8, "uint64"},
        {SOL_FLOAT16, 6, 2, "float16"},
        {SOL_BFLOAT16, 7, 2, "bfloat16"},
        {SOL_FLOAT32, 8, 4, "float32"},
        {SOL_FLOAT64, 9, 8, "float64"},
        {SOL_FLOAT8_E4M3, 10, 1, "float8_e4m3"},
        {SOL_FLOAT8_E5M2, 11, 1, "float8_e5m2"},
    };
    static const char *const redops[] = {"sum", "prod", "min", "max", "avg"};
    static const char *const funcs[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                        "reduce",     "all_to_all", "all_to_all_v",   "gather",
                                        "scatter",    "send",       "recv",           "barrier"};
    (void)state;
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        assert_int_equal(dtypes[i].dtype, dtypes[i].value);
        assert_int_equal(sol_dtype_size(dtypes[i].dtype), dtypes[i].size);
        assert_string_equal(sol_dtype_name(dtypes[i].dtype), dtypes[i].name);
    }
    assert_int_equal(SOL_DTYPE_COUNT, 12);
    assert_int_equal(SOL_REDOP_COUNT, 5);
    assert_int_equal(SOL_FUNC_COUNT, 12);
    for (int i = 0; i < SOL_REDOP_COUNT; i++)
        assert_string_equal(sol_redop_name((sol_redop_t)i), redops[i]);
    for (int i = 0; i < SOL_FUNC_COUNT; i++)
        assert_string_equal(sol_func_name((sol_func_t)i), funcs[i]);
    assert_int_equal(SOL_ERR_ARGUMENT, -1);
    assert_int_equal(SOL_ERR_INTERNAL, -11);
    assert_int_equal(SOL_MAX_RANKS, 64);
}

static void every_status_has_its_own_text(void **state)
{
    (void)state;
    for (int i = 0; i >= SOL_ERR_INTERNAL; i--)
        for (int k = 0; k > i; k--)
            assert_string_not_equal(sol_status_string((sol_status_t)i),
                                    sol_status_string((sol_status_t)k));
    assert_non_null(sol_status_string((sol_status_t)-1000));
    assert_non_null(sol_status_string((sol_status_t)1));
}

static void the_library_is_of_the_headers_version(void **state)
{
    (void)state;
    assert_int_equal(sol_version(), SOL_VERSION);
    assert_int_equal(SOL_VERSION,
                     SOL_VERSION_MAJOR * 10000 + SOL_VERSION_MINOR * 100 + SOL_VERSION_PATCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(structs_keep_their_layout),
        cmocka_unit_test(enums_are_ints),
        cmocka_unit_test(values_keep_their_meaning),
        cmocka_unit_test(every_status_has_its_own_text),
        cmocka_unit_test(the_library_is_of_the_headers_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
