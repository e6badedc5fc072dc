/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_line.c: the pipe of lines (proto/line.h), one thread playing both ends,
 * from seeds around which its 32-bit numbers wrap.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/line.h"

#define LINES 16u
#define SIG 7u

static const uint32_t seeds[] = {0, 1, 0x7ffffffe, 0x80000000, 0xffffffff - LINES, 0xfffffffe};
#define SEEDS (sizeof seeds / sizeof *seeds)

typedef struct {
    sol_line_t ring[LINES];
    _Atomic uint32_t acked;
    sol_line_out_t out;
    sol_line_in_t in;
} pipe_t;

static void make(pipe_t *pipe, uint32_t seed)
{
    memset(pipe, 0, sizeof(*pipe));
    atomic_store(&pipe->acked, seed);
    sol_line_out_init(&pipe->out, pipe->ring, LINES, &pipe->acked, seed);
    sol_line_in_init(&pipe->in, pipe->ring, LINES, &pipe->acked, seed);
}

static void push_number(pipe_t *pipe, uint64_t number)
{
    assert_true(sol_line_room(&pipe->out, 1) >= 1);
    sol_line_push(&pipe->out, SIG, &number, sizeof(number));
}

static void expect_number(pipe_t *pipe, uint64_t number)
{
    uint64_t tag, got;
    assert_int_equal(sol_line_peek(&pipe->in, 0, SIG, &tag), SOL_LINE_VALID);
    memcpy(&got, sol_line_payload(&pipe->in), sizeof(got));
    assert_int_equal(got, number);
    sol_line_pop(&pipe->in);
}

/* Fresh memory and old laps are no lines, whatever the numbers are. */
static void nothing_is_valid_before_it_is_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < SEEDS; i++) {
        pipe_t pipe;
        uint64_t tag;
        make(&pipe, seeds[i]);
        for (uint64_t k = 0; k < 5 * LINES; k++) {
            for (uint32_t ahead = 0; ahead < LINES; ahead++)
                assert_int_equal(sol_line_peek(&pipe.in, ahead, SIG, &tag), SOL_LINE_EMPTY);
            push_number(&pipe, k);
            assert_int_equal(sol_line_peek(&pipe.in, 1, SIG, &tag), SOL_LINE_EMPTY);
            expect_number(&pipe, k);
            sol_line_tell_some(&pipe.in);
        }
    }
}

static void room_ends_where_the_consumer_stands(void **state)
{
    (void)state;
    for (size_t i = 0; i < SEEDS; i++) {
        pipe_t pipe;
        make(&pipe, seeds[i]);
        uint64_t written = 0, read = 0;
        for (int lap = 0; lap < 6; lap++) {
            while (sol_line_room(&pipe.out, 1) > 0)
                push_number(&pipe, written++);
            assert_int_equal(written - read, LINES);
            for (int k = 0; k < 5; k++)
                expect_number(&pipe, read++);
            assert_int_equal(sol_line_room(&pipe.out, 1), 0); /* not told yet */
            sol_line_tell(&pipe.in);
            assert_int_equal(sol_line_room(&pipe.out, LINES), 5);
        }
    }
}

/* The producer hears of read lines by the eighth of a ring. */
static void the_producer_is_told_by_the_quota(void **state)
{
    (void)state;
    pipe_t pipe;
    make(&pipe, 0xfffffffe);
    for (uint64_t k = 0; k < LINES; k++)
        push_number(&pipe, k);
    for (uint64_t k = 0; k < LINES; k++) {
        expect_number(&pipe, k);
        assert_int_equal(sol_line_tell_some(&pipe.in), (k + 1) % (LINES / 8) == 0);
    }
    assert_int_equal(sol_line_room(&pipe.out, LINES), LINES);
}

static void another_signature_is_seen_as_such(void **state)
{
    (void)state;
    pipe_t pipe;
    uint64_t tag;
    make(&pipe, 0xffffffff);
    push_number(&pipe, 1);
    assert_int_equal(sol_line_peek(&pipe.in, 0, SIG + 1, &tag), SOL_LINE_OTHER);
    assert_int_equal(tag, sol_line_tag(0xffffffff, SIG));
    assert_int_equal(sol_line_peek(&pipe.in, 0, SIG, &tag), SOL_LINE_VALID);
}

/* Every length of a payload, from every offset of its source, whole and nothing beside it. */
static void payloads_are_copied_whole(void **state)
{
    (void)state;
    unsigned char from[96], to[96];
    for (size_t i = 0; i < sizeof(from); i++)
        from[i] = (unsigned char)(i + 1);
    for (size_t bytes = 0; bytes <= SOL_LINE_PAYLOAD; bytes++)
        for (size_t offset = 0; offset < 16; offset++) {
            memset(to, 0, sizeof(to));
            sol_line_copy(to + 8, from + offset, bytes);
            assert_memory_equal(to + 8, from + offset, bytes);
            for (size_t i = 0; i < sizeof(to); i++)
                assert_true((i >= 8 && i < 8 + bytes) || to[i] == 0);
        }
}

static void messages_of_several_lines_are_unpacked(void **state)
{
    (void)state;
    unsigned char from[LINES * SOL_LINE_PAYLOAD], to[sizeof(from) + 1];
    for (size_t i = 0; i < sizeof(from); i++)
        from[i] = (unsigned char)(i * 7 + 3);
    for (size_t i = 0; i < SEEDS; i++) {
        pipe_t pipe;
        make(&pipe, seeds[i]);
        for (size_t bytes = 1; bytes <= 8 * SOL_LINE_PAYLOAD; bytes += 5) {
            size_t lines = sol_line_count(bytes), last = bytes - (lines - 1) * SOL_LINE_PAYLOAD;
            assert_true(sol_line_room(&pipe.out, (uint32_t)lines) >= lines);
            for (size_t k = 0; k < lines; k++)
                sol_line_push(&pipe.out, SIG, from + k * SOL_LINE_PAYLOAD,
                              k + 1 < lines ? SOL_LINE_PAYLOAD : last);
            memset(to, 0xa5, sizeof(to));
            sol_line_unpack(&pipe.in, to, (uint32_t)lines - 1, last);
            assert_memory_equal(to, from, bytes);
            assert_int_equal(to[bytes], 0xa5);
            sol_line_tell(&pipe.in);
        }
    }
}

static void counts_of_lines(void **state)
{
    (void)state;
    assert_int_equal(sol_line_count(0), 1); /* an empty message is a message */
    assert_int_equal(sol_line_count(1), 1);
    assert_int_equal(sol_line_count(56), 1);
    assert_int_equal(sol_line_count(57), 2);
    assert_int_equal(sol_line_count(112), 2);
    assert_int_equal(sol_line_count(113), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_valid_before_it_is_written),
        cmocka_unit_test(room_ends_where_the_consumer_stands),
        cmocka_unit_test(the_producer_is_told_by_the_quota),
        cmocka_unit_test(another_signature_is_seen_as_such),
        cmocka_unit_test(payloads_are_copied_whole),
        cmocka_unit_test(messages_of_several_lines_are_unpacked),
        cmocka_unit_test(counts_of_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
