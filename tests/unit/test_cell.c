/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cell.c: the cells beside a pipe (proto/cell.h), one thread playing
 * both ends, from seeds around which their 32-bit numbers wrap.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "proto/cell.h"

#define CAPACITY 256u
#define SIG 9u

static const uint32_t seeds[] = {0, 1, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
#define SEEDS (sizeof seeds / sizeof *seeds)

typedef struct {
    alignas(SOL_CACHE_LINE) unsigned char memory[SOL_CELLS * (sizeof(sol_cell_t) + CAPACITY)];
    sol_cells_out_t out, back; /* back: of the consumer, the other way */
    sol_cells_in_t in;
} cells_t;

static void make(cells_t *cells, uint32_t seed)
{
    memset(cells, 0, sizeof(*cells));
    assert_int_equal(sol_cells_bytes(CAPACITY), sizeof(cells->memory));
    sol_cells_out_init(&cells->out, cells->memory, CAPACITY, seed);
    sol_cells_in_init(&cells->in, cells->memory, CAPACITY, seed);
    sol_cells_out_init(&cells->back, NULL, CAPACITY, seed);
}

static void send_filled(cells_t *cells, unsigned char fill, size_t bytes, uint32_t line)
{
    assert_true(sol_cells_room(&cells->out));
    memset(sol_cell_payload(sol_cell_open(&cells->out), bytes), fill, bytes);
    sol_cell_push(&cells->out, SIG, line, cells->back.next);
}

static void expect_filled(cells_t *cells, unsigned char fill, size_t bytes, uint32_t line)
{
    uint64_t tag;
    assert_int_equal(sol_cell_peek(&cells->in, line, SIG, &tag), SOL_LINE_VALID);
    const unsigned char *at = sol_cell_read(&cells->in, bytes);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(at[i], fill);
    sol_cell_pop(&cells->in);
}

/* What the consumer has read is heard with its next message. */
static void answer(cells_t *cells)
{
    sol_cell_t message = {.heard = cells->in.next};
    sol_cells_in_t from_consumer = {(unsigned char *)&message, sizeof(message), 0};
    sol_cell_hear(&from_consumer, &cells->out);
}

static void all_cells_and_then_an_answer(void **state)
{
    (void)state;
    for (size_t i = 0; i < SEEDS; i++) {
        cells_t cells;
        uint64_t tag;
        make(&cells, seeds[i]);
        for (unsigned lap = 0; lap < 10; lap++) {
            assert_int_equal(sol_cell_peek(&cells.in, 5, SIG, &tag), SOL_LINE_EMPTY);
            for (unsigned k = 0; k < SOL_CELLS; k++)
                send_filled(&cells, (unsigned char)(lap * SOL_CELLS + k + 1),
                            k % 2 ? CAPACITY : SOL_CELL_INLINE, 5);
            for (unsigned k = 0; k < SOL_CELLS; k++) {
                assert_false(sol_cells_room(&cells.out)); /* read, but not heard of */
                expect_filled(&cells, (unsigned char)(lap * SOL_CELLS + k + 1),
                              k % 2 ? CAPACITY : SOL_CELL_INLINE, 5);
            }
            answer(&cells);
            assert_true(sol_cells_room(&cells.out));
        }
    }
}

/* An answer given before all were read frees as many as it says, and an older one nothing. */
static void an_answer_frees_what_it_says(void **state)
{
    (void)state;
    cells_t cells;
    make(&cells, 0xffffffff);
    for (unsigned k = 0; k < SOL_CELLS; k++)
        send_filled(&cells, (unsigned char)(k + 1), 8, 0);
    expect_filled(&cells, 1, 8, 0);
    answer(&cells);
    send_filled(&cells, SOL_CELLS + 1, 8, 0);
    assert_false(sol_cells_room(&cells.out));
    uint32_t seen = cells.out.seen;
    sol_cell_t late = {.heard = seen - 1};
    sol_cells_in_t from_consumer = {(unsigned char *)&late, sizeof(late), 0};
    sol_cell_hear(&from_consumer, &cells.out);
    assert_int_equal(cells.out.seen, seen);
    for (unsigned k = 1; k <= SOL_CELLS; k++)
        expect_filled(&cells, (unsigned char)(k + 1), 8, 0);
}

/* Lines and cells have one order: a cell waits for the lines written before it. */
static void a_cell_waits_for_the_lines_before_it(void **state)
{
    (void)state;
    cells_t cells;
    uint64_t tag;
    make(&cells, 3);
    send_filled(&cells, 1, 8, 0xffffffff);
    assert_int_equal(sol_cell_peek(&cells.in, 0xfffffffe, SIG, &tag), SOL_LINE_EMPTY);
    assert_int_equal(sol_cell_peek(&cells.in, 0, SIG, &tag), SOL_LINE_EMPTY);
    expect_filled(&cells, 1, 8, 0xffffffff);
}

static void another_signature_is_seen_as_such(void **state)
{
    (void)state;
    cells_t cells;
    uint64_t tag;
    make(&cells, 0);
    send_filled(&cells, 1, 8, 0);
    assert_int_equal(sol_cell_peek(&cells.in, 0, SIG + 1, &tag), SOL_LINE_OTHER);
    assert_int_equal((uint32_t)tag, SIG);
    assert_int_equal(sol_cell_peek(&cells.in, 1, SIG + 1, &tag), SOL_LINE_EMPTY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_cells_and_then_an_answer),
        cmocka_unit_test(an_answer_frees_what_it_says),
        cmocka_unit_test(a_cell_waits_for_the_lines_before_it),
        cmocka_unit_test(another_signature_is_seen_as_such),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
