/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_litmus.c: the file of `solccl info --litmus`, as the tool writes it and
 * the library reads it, and what follows from it. Needs no GPU.
 */
#include "backend/cuda/cuda_litmus.h"
#include "litmus_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const unsigned char gpu[3][16] = {{0x10, 0xab}, {0x20, 0xcd}, {0x30, 0xef}};

static void none_known_none_failed(void **state)
{
    (void)state;
    unsigned failed = 9;
    int line = 0;
    assert_true(sol_cuda_litmus_parse("solccl-litmus 1\n", gpu[0], &failed, &line));
    assert_int_equal(failed, 0);
    setenv("SOLCCL_LITMUS_FILE", "/nonexistent/litmus", 1);
    assert_int_equal(sol_cuda_litmus_read(gpu[0]), 0);
}

static void bad_files_are_failures(void **state)
{
    static const char *const bad[] = {
        "",
        "solccl-litmus 2\n",
        "solccl-litmus 1\nword\n",
        "solccl-litmus 1\n10ab0000000000000000000000000000 20cd 5 0 0\n",
        "solccl-litmus 1\n10ab0000000000000000000000000000 "
        "20cd0000000000000000000000000000 5 6 0\n",
        "solccl-litmus 1\n10ab0000000000000000000000000000 "
        "20cd0000000000000000000000000000 5 0 0 more\n"};
    (void)state;
    unsigned failed;
    int line;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(sol_cuda_litmus_parse(bad[i], gpu[0], &failed, &line));
    }
    char path[] = "/tmp/solccl-litmus-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "nothing\n", 8) == 8);
    close(fd);
    setenv("SOLCCL_LITMUS_FILE", path, 1);
    assert_int_equal(sol_cuda_litmus_read(gpu[0]), SOL_CUDA_WHOLE_16 | SOL_CUDA_WHOLE_128);
    unlink(path);
}

/* What the tool writes the library reads; later results of a pair replace earlier ones. */
static void written_and_read(void **state)
{
    char folder[] = "/tmp/solccl-litmus-XXXXXX", path[128], found[512];
    litmus_result_t first[2] = {{.read = 100}, {.read = 100, .torn128 = 3}};
    litmus_result_t second = {.read = 200, .torn16 = 1};
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a/b/litmus", folder);
    memcpy(first[0].from, gpu[0], 16);
    memcpy(first[0].to, gpu[1], 16);
    memcpy(first[1].from, gpu[1], 16);
    memcpy(first[1].to, gpu[2], 16);
    memcpy(second.from, gpu[0], 16);
    memcpy(second.to, gpu[1], 16);
    setenv("SOLCCL_LITMUS_FILE", path, 1);
    assert_true(litmus_file_path(found, sizeof found));
    assert_string_equal(found, path);
    assert_true(litmus_file_merge(path, first, 2));
    assert_int_equal(sol_cuda_litmus_read(gpu[0]), 0);
    assert_int_equal(sol_cuda_litmus_read(gpu[1]), SOL_CUDA_WHOLE_128);
    assert_int_equal(sol_cuda_litmus_read(gpu[2]), SOL_CUDA_WHOLE_128);
    assert_true(litmus_file_merge(path, &second, 1));
    assert_int_equal(sol_cuda_litmus_read(gpu[0]), SOL_CUDA_WHOLE_16 | SOL_CUDA_WHOLE_128);
    assert_int_equal(sol_cuda_litmus_read(gpu[2]), SOL_CUDA_WHOLE_128);
    second.torn16 = 0;
    assert_true(litmus_file_merge(path, &second, 1));
    assert_int_equal(sol_cuda_litmus_read(gpu[0]), 0);
    unlink(path);
}

/* The user's cache, where no file is named. */
static void in_the_cache(void **state)
{
    char path[512];
    (void)state;
    unsetenv("SOLCCL_LITMUS_FILE");
    setenv("XDG_CACHE_HOME", "/c", 1);
    assert_true(litmus_file_path(path, sizeof path));
    assert_string_equal(path, "/c/solccl/litmus");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "/h", 1);
    assert_true(litmus_file_path(path, sizeof path));
    assert_string_equal(path, "/h/.cache/solccl/litmus");
}

static void line_channels(void **state)
{
    sol_dev_config_t config = SOL_DEV_CONFIG_INIT;
    (void)state;
    config.channel[2].kind = SOL_CHANNEL_LINE; /* without sessions there is no such channel */
    assert_int_equal(sol_cuda_litmus_channel(&config, SOL_CUDA_WHOLE_128), -1);
    config.channel[2].sessions = 1;
    assert_int_equal(sol_cuda_litmus_channel(&config, SOL_CUDA_WHOLE_128), 2);
    assert_int_equal(sol_cuda_litmus_channel(&config, 0), -1);
    config.channel[2].kind = SOL_CHANNEL_TAG;
    assert_int_equal(sol_cuda_litmus_channel(&config, ~0u), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_known_none_failed), cmocka_unit_test(bad_files_are_failures),
        cmocka_unit_test(written_and_read),       cmocka_unit_test(in_the_cache),
        cmocka_unit_test(line_channels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
