/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_shm_pages.c: which memory is asked to become huge pages, and when (shm_pages.c). The
 * kernel's part, mincore and madvise, is this file's: the buffers are mere addresses, but in the
 * last test. What is expected is counted here from the rules: the 32nd use, 2 MB at a time, one a
 * call, once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/shm/shm.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MB ((uintptr_t)1 << 20)
#define BASE ((uintptr_t)1 << 40) /* a multiple of 2 MB */
#define COLLAPSE 25

static sol_shm_t shm;
static uintptr_t asked[16]; /* in order */
static int nasked;
static size_t resident; /* pages of each extent that are in memory */
static bool real;

__attribute__((visibility("default"))) int madvise(void *at, size_t bytes, int advice)
{
    if (advice != COLLAPSE || real)
        return (int)syscall(SYS_madvise, at, bytes, advice);
    assert_int_equal(bytes, 2 * MB);
    assert_true(nasked < 16);
    asked[nasked++] = (uintptr_t)at;
    return -1; /* an older kernel: nothing depends on it */
}

__attribute__((visibility("default"))) int mincore(void *at, size_t bytes, unsigned char *there)
{
    if (real)
        return (int)syscall(SYS_mincore, at, bytes, there);
    for (size_t i = 0; i < bytes / 4096; i++)
        there[i] =
            (unsigned char)((i < resident ? 1u : 0u) | 0xfeu); /* the other bits mean nothing */
    return 0;
}

static void make(bool huge_pages)
{
    memset(&shm, 0, sizeof(shm));
    shm.nranks = 2;
    shm.huge_pages = huge_pages;
    nasked = 0;
    resident = 512;
    real = false;
}

static void use(uintptr_t send, uintptr_t recv, size_t bytes, int times)
{
    sol_call_t call = {.func = SOL_FUNC_ALL_REDUCE,
                       .dtype = SOL_UINT8,
                       .count = bytes,
                       .send = (const void *)send,
                       .recv = (void *)recv};
    for (int i = 0; i < times; i++)
        sol_shm_use_pages(&shm, &call);
}

static void test_the_32nd_use(void **state)
{
    (void)state;
    make(true);
    use(BASE, BASE, 2 * MB, 31);
    assert_int_equal(nasked, 0);
    use(BASE, BASE, 2 * MB, 1);
    assert_int_equal(nasked, 1);
    assert_int_equal(asked[0], BASE);
    use(BASE, BASE, 2 * MB, 200); /* never again */
    assert_int_equal(nasked, 1);
    make(false);
    use(BASE, BASE, 2 * MB, 100);
    assert_int_equal(nasked, 0);
}

static void test_one_a_call(void **state)
{
    (void)state;
    make(true);
    use(BASE, BASE, 6 * MB, 32);
    assert_int_equal(nasked, 1);
    use(BASE, BASE, 6 * MB, 1);
    assert_int_equal(nasked, 2);
    use(BASE, BASE, 6 * MB, 100);
    assert_int_equal(nasked, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(asked[i], BASE + (uintptr_t)i * 2 * MB);
}

/* Both buffers count, each for itself; the second one waits for a call that the first leaves free.
 */
static void test_two_buffers(void **state)
{
    (void)state;
    make(true);
    use(BASE, BASE + 64 * MB, 2 * MB, 32);
    assert_int_equal(nasked, 1);
    use(BASE, BASE + 64 * MB, 2 * MB, 1);
    assert_int_equal(nasked, 2);
    assert_int_equal(asked[0], BASE);
    assert_int_equal(asked[1], BASE + 64 * MB);
}

/* An extent of which the buffer has 64 KB or more is asked for whole; one with less is not. */
static void test_ends_of_a_buffer(void **state)
{
    (void)state;
    make(true);
    use(BASE + 2 * MB - 65535, BASE + 2 * MB - 65535, 65535 + 2 * MB + 65536, 100);
    assert_int_equal(nasked, 2);
    assert_int_equal(asked[0], BASE + 2 * MB);
    assert_int_equal(asked[1], BASE + 4 * MB);
    make(true);
    use(BASE + 2 * MB - 65536, BASE + 2 * MB - 65536, 65536 + 65535, 100);
    assert_int_equal(nasked, 1);
    assert_int_equal(asked[0], BASE);
}

/* At most 1/8 of it may be new to memory: 64 of 512 pages. */
static void test_untouched_pages(void **state)
{
    (void)state;
    make(true);
    resident = 447;
    use(BASE, BASE, 2 * MB, 100);
    assert_int_equal(nasked, 0);
    resident = 512; /* it was looked at once */
    use(BASE, BASE, 2 * MB, 100);
    assert_int_equal(nasked, 0);
    make(true);
    resident = 448;
    use(BASE, BASE, 2 * MB, 100);
    assert_int_equal(nasked, 1);
}

/* Buffers 512 MB apart have one place: used in turns, they are left alone. */
static void test_pushed_out(void **state)
{
    (void)state;
    make(true);
    for (int i = 0; i < 100; i++) {
        use(BASE, BASE, 2 * MB, 1);
        use(BASE + 512 * MB, BASE + 512 * MB, 2 * MB, 1);
    }
    assert_int_equal(nasked, 0);
    use(BASE + 512 * MB, BASE + 512 * MB, 2 * MB, 31); /* the 32nd with the last one of those */
    assert_int_equal(nasked, 1);
    assert_int_equal(asked[0], BASE + 512 * MB);
}

/* Real memory: whatever the kernel makes of it, its bytes stay, and so does its neighbour's
 * absence.
 */
static void test_contents_stay(void **state)
{
    (void)state;
    make(true);
    real = true;
    unsigned char *map =
        mmap(NULL, 8 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    unsigned char *buffer = map + 12345;
    const size_t bytes = 4 * MB;
    for (size_t i = 0; i < bytes; i++)
        buffer[i] = (unsigned char)(i * 7 + (i >> 12));
    use((uintptr_t)buffer, (uintptr_t)buffer, bytes, 40);
    size_t wrong = 0;
    for (size_t i = 0; i < bytes; i++)
        wrong += buffer[i] != (unsigned char)(i * 7 + (i >> 12));
    assert_int_equal(wrong, 0);
    assert_int_equal(map[8 * MB - 1], 0);
    munmap(map, 8 * MB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_32nd_use),    cmocka_unit_test(test_one_a_call),
        cmocka_unit_test(test_two_buffers),     cmocka_unit_test(test_ends_of_a_buffer),
        cmocka_unit_test(test_untouched_pages), cmocka_unit_test(test_pushed_out),
        cmocka_unit_test(test_contents_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
