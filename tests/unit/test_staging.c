/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_staging.c: which staging slot is free when (proto/staging.h), against a
 * list of who was told what and has read it, with chunk numbers from around
 * 2^32 and 2^63.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/staging.h"

#define READERS 5
#define SLOTS 4u
#define CHUNKS 3000

static const uint64_t seeds[] = {0, 0xfffffff0, 0x7ffffffffffffff0};

typedef struct {
    sol_staging_t staging;
    unsigned char memory[SLOTS * 64];
    _Atomic uint64_t done[READERS];
    const _Atomic uint64_t *at[READERS];
    uint64_t waiting[READERS][CHUNKS]; /* chunks told to each and not read, oldest first */
    unsigned waits[READERS];
    int slot_of[CHUNKS];
} world_t;

static world_t world;
static uint64_t random_state;

static unsigned draw(unsigned below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % below;
}

static void make(uint64_t seed)
{
    memset(&world, 0, sizeof(world));
    random_state = 42;
    sol_staging_init(&world.staging, world.memory, 64, SLOTS, seed);
    for (int r = 0; r < READERS; r++) {
        atomic_store(&world.done[r], seed);
        world.at[r] = &world.done[r];
    }
}

/* Is `slot` in use by a chunk that somebody has still to read? */
static bool in_use(uint64_t seed, int slot)
{
    for (int r = 0; r < READERS; r++)
        for (unsigned i = 0; i < world.waits[r]; i++)
            if (world.slot_of[world.waiting[r][i] - seed] == slot)
                return true;
    return false;
}

static void read_one(int r)
{
    if (world.waits[r] == 0)
        return;
    atomic_store(&world.done[r], world.waiting[r][0] + 1);
    world.waits[r]--;
    memmove(world.waiting[r], world.waiting[r] + 1, world.waits[r] * sizeof(uint64_t));
    if (draw(2))
        sol_staging_heard(&world.staging, r, atomic_load(&world.done[r]));
}

static void slots_are_free_when_all_told_have_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        uint64_t seed = seeds[i], chunk = seed;
        make(seed);
        while (chunk - seed < CHUNKS) {
            uint64_t pending, readers = 1 + draw((1u << READERS) - 1);
            sol_staging_spread(&world.staging, draw(3) * SOL_STAGING_DISTANCE / 3);
            int slot = sol_staging_find(&world.staging, world.at, &pending);
            if (slot < 0) {
                for (unsigned k = 0; k < SLOTS; k++)
                    assert_true(in_use(seed, (int)k));
                assert_true(pending != 0);
                read_one(__builtin_ctzll(pending)); /* who is named has indeed something to read */
                continue;
            }
            assert_false(in_use(seed, slot));
            assert_int_equal(sol_staging_take(&world.staging, slot, readers), chunk);
            world.slot_of[chunk - seed] = slot;
            for (int r = 0; r < READERS; r++)
                if (readers >> r & 1)
                    world.waiting[r][world.waits[r]++] = chunk;
            chunk++;
            for (unsigned reads = draw(8); reads > 0; reads--)
                read_one((int)draw(READERS));
        }
    }
}

/* Two ranks that answer each other use two slots in turn, and never look at the other's memory. */
static void answered_chunks_alternate(void **state)
{
    (void)state;
    static const _Atomic uint64_t *nowhere[1] = {NULL}; /* a load of it would end the test */
    uint64_t pending;
    make(0xfffffffe);
    for (unsigned k = 0; k < 100; k++) {
        int slot = sol_staging_find(&world.staging, nowhere, &pending);
        assert_int_equal(slot, k % 2);
        uint64_t chunk = sol_staging_take(&world.staging, slot, 1);
        sol_staging_heard(&world.staging, 0, chunk); /* the answer to the chunk before */
    }
}

/* As many slots in turn as come to the distance, again without a look; then two again. */
static void spread_chunks_go_round(void **state)
{
    (void)state;
    static const _Atomic uint64_t *nowhere[1] = {NULL};
    static const struct {
        size_t bytes;
        unsigned slots;
    } cases[] = {{SOL_STAGING_DISTANCE / 3, 3}, {SOL_STAGING_DISTANCE, 2}, {1, SLOTS}, {0, 2}};
    uint64_t pending;
    make(0xfffffffe);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned first = 0;
        sol_staging_spread(&world.staging, cases[i].bytes);
        for (unsigned k = 0; k < 5 * SLOTS; k++) {
            int slot = sol_staging_find(&world.staging, nowhere, &pending);
            uint64_t chunk = sol_staging_take(&world.staging, slot, 1);
            sol_staging_heard(&world.staging, 0, chunk);
            if (k == 2 * SLOTS) /* what was used before has been read by now */
                first = (unsigned)slot;
            else if (k > 2 * SLOTS && cases[i].slots > 2)
                assert_int_equal((unsigned)slot, (first + k - 2 * SLOTS) % cases[i].slots);
            else if (k > 2 * SLOTS)
                assert_int_equal((unsigned)slot, (first + k) % 2);
        }
    }
}

static void held_slots_are_counted_by_reader(void **state)
{
    (void)state;
    uint64_t pending;
    make(0);
    for (unsigned k = 0; k < SLOTS; k++) {
        int slot = sol_staging_find(&world.staging, world.at, &pending);
        sol_staging_take(&world.staging, slot, k < 3 ? 1u << 0 : 1u << 1);
    }
    assert_int_equal(sol_staging_held(&world.staging, world.at, 1u << 0), 3);
    assert_int_equal(sol_staging_held(&world.staging, world.at, 1u << 1), 1);
    assert_int_equal(sol_staging_held(&world.staging, world.at, 1u << 2), 0);
    atomic_store(&world.done[0], 2);
    assert_int_equal(sol_staging_held(&world.staging, world.at, 1u << 0), 1);
}

static void what_was_heard_never_goes_back(void **state)
{
    (void)state;
    make(10);
    sol_staging_heard(&world.staging, 1, 15);
    sol_staging_heard(&world.staging, 1, 12);
    assert_int_equal(world.staging.seen[1], 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_free_when_all_told_have_read),
        cmocka_unit_test(answered_chunks_alternate),
        cmocka_unit_test(spread_chunks_go_round),
        cmocka_unit_test(held_slots_are_counted_by_reader),
        cmocka_unit_test(what_was_heard_never_goes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
