/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_shares.c: the division of elements over ranks and the walk in chunks,
 * for every rank count, against the properties that shares.h promises.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coll/shares.h"
#include "solccl/solccl.h"

static const size_t granules[] = {1, 2, 3, 4, 7, 16, 32, 64, 1000};
#define GRANULES (sizeof granules / sizeof *granules)

/* Disjoint, in order, covering, on granule boundaries, nearly equal, rank 0's the largest. */
static void check_division(size_t count, size_t granule, int n)
{
    size_t at = 0, largest = sol_share_max(count, granule, n), smallest = SIZE_MAX;
    for (int rank = 0; rank < n; rank++) {
        sol_range_t share = sol_share(count, granule, n, rank);
        assert_int_equal(share.begin, at);
        assert_true(share.end >= share.begin && share.end <= count);
        assert_true(share.begin == count || share.begin % granule == 0);
        assert_true(sol_range_count(share) <= largest);
        if (sol_range_count(share) < smallest)
            smallest = sol_range_count(share);
        at = share.end;
    }
    assert_int_equal(at, count);
    assert_int_equal(sol_range_count(sol_share(count, granule, n, 0)), largest);
    assert_true((largest - smallest) / 2 < granule); /* less than two granules apart */
}

static void check_owners(size_t count, size_t granule, int n)
{
    for (int rank = 0; rank < n; rank++) {
        sol_range_t share = sol_share(count, granule, n, rank);
        if (share.begin == share.end)
            continue;
        assert_int_equal(sol_share_owner(count, granule, n, share.begin), rank);
        assert_int_equal(sol_share_owner(count, granule, n, share.end - 1), rank);
    }
}

static void small_counts(void **state)
{
    (void)state;
    for (int n = 1; n <= SOL_MAX_RANKS; n++)
        for (size_t g = 0; g < GRANULES; g++)
            for (size_t count = 0; count <= 400; count++) {
                check_division(count, granules[g], n);
                check_owners(count, granules[g], n);
            }
}

static void huge_counts(void **state)
{
    (void)state;
    static const size_t counts[] = {10556587,     (size_t)1 << 31,  ((size_t)1 << 32) + 1,
                                    SIZE_MAX / 2, SIZE_MAX / 2 + 1, SIZE_MAX - 64,
                                    SIZE_MAX - 1, SIZE_MAX};
    for (int n = 1; n <= SOL_MAX_RANKS; n++)
        for (size_t g = 0; g < GRANULES; g++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                check_division(counts[c], granules[g], n);
                check_owners(counts[c], granules[g], n);
            }
    check_division(SIZE_MAX, SIZE_MAX, 64); /* a granule larger than most counts */
    check_division(5, SIZE_MAX, 64);
    check_owners(5, SIZE_MAX, 64);
}

/* One division worked out by hand: the picture in shares.h. */
static void worked_example(void **state)
{
    (void)state;
    static const size_t ends[] = {8, 16, 20, 22};
    for (int rank = 0; rank < 4; rank++)
        assert_int_equal(sol_share(22, 4, 4, rank).end, ends[rank]);
}

/* Chunks cover a range in order, all whole but the last; beyond it they are empty, at the end. */
static void chunks(void **state)
{
    (void)state;
    for (size_t begin = 0; begin <= 5; begin += 5)
        for (size_t size = 0; size <= 100; size++)
            for (size_t chunk = 1; chunk <= 101; chunk++) {
                sol_range_t range = {begin, begin + size};
                size_t number = sol_chunk_count(range, chunk), at = begin;
                for (size_t k = 0; k < number; k++) {
                    sol_range_t part = sol_chunk(range, chunk, k);
                    assert_int_equal(part.begin, at);
                    assert_true(part.end > part.begin);
                    assert_true(part.end - part.begin == chunk || k + 1 == number);
                    at = part.end;
                }
                assert_int_equal(at, range.end);
                sol_range_t beyond = sol_chunk(range, chunk, number + 3);
                assert_int_equal(beyond.begin, range.end);
                assert_int_equal(beyond.end, range.end);
            }
    sol_range_t all = {0, SIZE_MAX};
    assert_int_equal(sol_chunk_count(all, 4096), SIZE_MAX / 4096 + 1);
    assert_int_equal(sol_chunk(all, 4096, SIZE_MAX / 4096).begin, SIZE_MAX - 4095);
    assert_int_equal(sol_chunk(all, 4096, SIZE_MAX / 4096).end, SIZE_MAX);
    assert_int_equal(sol_chunk(all, 4096, SIZE_MAX).begin, SIZE_MAX);
}

/* At each step the ranks are all at different places, and n steps see everybody. */
static void ring(void **state)
{
    (void)state;
    for (int n = 1; n <= SOL_MAX_RANKS; n++)
        for (int step = 0; step <= n; step++) {
            uint64_t seen = 0;
            for (int rank = 0; rank < n; rank++) {
                int next = sol_ring_next(rank, step, n);
                assert_in_range(next, 0, n - 1);
                assert_int_equal(next, (rank + step) % n);
                seen |= (uint64_t)1 << next;
            }
            assert_true(seen == (n == 64 ? UINT64_MAX : ((uint64_t)1 << n) - 1));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worked_example), cmocka_unit_test(small_counts),
        cmocka_unit_test(huge_counts),    cmocka_unit_test(chunks),
        cmocka_unit_test(ring),
    };
    return cmocka_run_group_tests_name("shares", tests, NULL, NULL);
}
