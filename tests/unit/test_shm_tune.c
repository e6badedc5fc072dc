/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_shm_tune.c: what a rank learns (shm_tune.c) from calls whose cost the
 * test decides: a sleep far longer than anything else here, or none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "backend/shm/shm.h"

#define BYTES ((size_t)1 << 16)
#define OWN_BYTES ((size_t)4 << 20)
#define COSTLY_NS 2000000

static sol_shm_control_t controls[2];
static sol_shm_t shm;

static void make(bool vm_readable)
{
    memset(controls, 0, sizeof(controls));
    memset(&shm, 0, sizeof(shm));
    shm.nranks = 2;
    shm.control = &controls[0];
    shm.peers[0].control = &controls[0];
    shm.peers[1].control = &controls[1];
    shm.vm_readable = vm_readable;
    shm.direct = true;
}

static unsigned plan_of(sol_shm_tuned_t tuned)
{
    return (unsigned)tuned.way + (tuned.own_past ? SOL_SHM_WAYS : 0);
}

static void spend(void)
{
    struct timespec time = {0, COSTLY_NS};
    nanosleep(&time, NULL);
}

/* One call; a plan that is not in `cheap` costs. Returns the plan. */
static unsigned call_once(const sol_call_t *call, size_t bytes, sol_shm_tune_kind kind,
                          unsigned cheap)
{
    unsigned plan = plan_of(sol_shm_tune_begin(&shm, call, bytes, kind));
    if (shm.timing != NULL && (cheap >> plan & 1) == 0)
        spend();
    sol_shm_tune_end(&shm);
    return plan;
}

/* The plan after everything was tried; all that were taken on the way in *tried. */
static unsigned learn(const sol_call_t *call, size_t bytes, sol_shm_tune_kind kind, unsigned cheap,
                      unsigned *tried)
{
    unsigned plan = 0;
    *tried = 0;
    for (int i = 0; i < 34; i++) { /* less than the warm-up and the first period */
        plan = call_once(call, bytes, kind, cheap);
        *tried |= 1u << plan;
    }
    return plan;
}

static void the_cheapest_plan_wins(void **state)
{
    (void)state;
    const sol_call_t call = {.func = SOL_FUNC_ALL_GATHER};
    const unsigned through = (1u << SOL_SHM_WAYS) - 1;
    /* where results pass by the cache, reading directly may still go through it; and what is
     * staged is staged wide, or past the cache */
    const unsigned large = (through & ~(1u << SOL_SHM_KEEP)) << SOL_SHM_WAYS | 1u << SOL_SHM_SHOW;
    for (unsigned best = 0; best < SOL_SHM_PLANS; best++) {
        unsigned tried;
        make(true);
        if ((through >> best & 1) != 0) {
            assert_int_equal(learn(&call, BYTES, SOL_SHM_TUNE_ALL, 1u << best, &tried), best);
            assert_int_equal(tried, through);
        }
        make(true);
        if ((large >> best & 1) != 0) {
            assert_int_equal(learn(&call, OWN_BYTES, SOL_SHM_TUNE_ALL, 1u << best, &tried), best);
            assert_int_equal(tried, large);
        }
    }
}

static int calls_not_of(unsigned plan, int calls, const sol_call_t *call)
{
    int others = 0;
    for (int i = 0; i < calls; i++)
        others += call_once(call, BYTES, SOL_SHM_TUNE_ALL, ~0u) != plan;
    return others;
}

/* Later periods leave out what is clearly worse, until all are looked at again. Costs are set, not
 * timed: on a busy machine the best one can look dearer for once, and then all are tried. */
static void what_is_worse_is_tried_less(void **state)
{
    (void)state;
    const sol_call_t call = {.func = SOL_FUNC_ALL_GATHER};
    make(true);
    sol_shm_lesson_t *lesson = &shm.lessons[SOL_FUNC_ALL_GATHER][4]; /* of 64 KB */
    assert_in_range(calls_not_of(SOL_SHM_PASS, 4 + 32, &call), 8, 36);
    assert_int_equal(lesson->at, lesson->period); /* at the end of the first period */
    for (unsigned plan = 0; plan < SOL_SHM_WAYS; plan++)
        lesson->cost_ns[plan] = plan == SOL_SHM_PASS ? 1000000 : 9000000;
    lesson->winner = SOL_SHM_PASS;
    assert_int_equal(calls_not_of(SOL_SHM_PASS, 64, &call), 0);
    lesson->periods = 16;
    assert_in_range(calls_not_of(SOL_SHM_PASS, 2 * 4, &call), 4, 4);
    assert_int_equal(lesson->tried, (1u << SOL_SHM_WAYS) - 1);
}

static void only_what_is_possible_is_tried(void **state)
{
    (void)state;
    const sol_call_t call = {.func = SOL_FUNC_ALL_GATHER};
    const unsigned keep = 1u << SOL_SHM_KEEP, pass = 1u << SOL_SHM_PASS, show = 1u << SOL_SHM_SHOW,
                   wide = 1u << SOL_SHM_WIDE;
    unsigned tried;
    make(true);
    learn(&call, BYTES, SOL_SHM_TUNE_ALL, ~0u, &tried);
    assert_int_equal(tried, keep | pass | show | wide); /* small own blocks stay in the cache */
    make(true);
    learn(&call, BYTES, SOL_SHM_TUNE_COPIES, ~0u, &tried);
    assert_int_equal(tried, keep | pass);
    make(false);
    learn(&call, BYTES, SOL_SHM_TUNE_ALL, ~0u, &tried);
    assert_int_equal(tried, keep | pass | wide);
    make(true);
    shm.nranks = 3; /* wide is of two */
    shm.peers[2].control = &controls[1];
    learn(&call, BYTES, SOL_SHM_TUNE_ALL, ~0u, &tried);
    assert_int_equal(tried, keep | pass | show);
    make(true);
    learn(&call, 4095, SOL_SHM_TUNE_ALL, ~0u, &tried);
    assert_int_equal(tried, keep);
    make(true);
    shm.limits.way = 1 + SOL_SHM_PASS;
    learn(&call, BYTES, SOL_SHM_TUNE_ALL, ~0u, &tried);
    assert_int_equal(tried, pass);
    make(false);
    shm.limits.way = 1 + SOL_SHM_SHOW; /* asked for, and impossible */
    learn(&call, BYTES, SOL_SHM_TUNE_ALL, ~0u, &tried);
    assert_int_equal(tried, keep);
}

/* A rank that ends early must not choose for one that waits: its time counts as well. */
static void the_slowest_rank_and_role_decide(void **state)
{
    (void)state;
    const sol_call_t call = {.func = SOL_FUNC_BROADCAST, .root = 0};
    for (int role = 0; role < 2; role++) {
        unsigned tried;
        make(true);
        for (unsigned size = 0; size < SOL_SHM_TUNE_SIZES; size++) {
            sol_shm_learned_t *theirs = &controls[1].learned[SOL_FUNC_BROADCAST][size];
            atomic_store(&theirs->latest_ns[role][SOL_SHM_KEEP], 1000000000);
            atomic_store(&theirs->latest_ns[role][SOL_SHM_PASS], 10);
        }
        assert_int_equal(learn(&call, BYTES, SOL_SHM_TUNE_COPIES, ~0u, &tried), SOL_SHM_PASS);
    }
}

/* Of a send only its receiver's time counts beside its own, and only as a receiver's. */
static void a_send_is_learned_from_its_receiver(void **state)
{
    (void)state;
    const sol_call_t call = {.func = SOL_FUNC_SEND, .root = 1};
    unsigned tried;
    for (int receiver = 0; receiver < 2; receiver++) {
        make(true);
        sol_shm_t peer = {.control = &controls[1]}; /* it reports what it received */
        uint64_t long_ago = sol_now_ns() - 1000000000;
        unsigned dear = receiver ? SOL_SHM_KEEP : SOL_SHM_PASS;
        for (unsigned plan = 0; plan < SOL_SHM_WAYS; plan++)
            sol_shm_tune_received(&peer, BYTES, plan, plan == dear ? long_ago : sol_now_ns());
        sol_shm_tune_received(&peer, BYTES, SOL_SHM_SHOW, long_ago);
        assert_int_equal(learn(&call, BYTES, SOL_SHM_TUNE_PAIRS, ~0u, &tried),
                         receiver ? SOL_SHM_PASS : SOL_SHM_KEEP);
        assert_int_equal(tried, 1u << SOL_SHM_KEEP | 1u << SOL_SHM_PASS | 1u << SOL_SHM_SHOW);
        assert_int_equal(sol_shm_tune_known(&shm, BYTES), receiver ? SOL_SHM_PASS : SOL_SHM_KEEP);
    }
    make(true); /* nothing learned */
    assert_int_equal(sol_shm_tune_known(&shm, BYTES), SOL_SHM_SHOW);
    assert_int_equal(sol_shm_tune_known(&shm, 8192), SOL_SHM_KEEP);
    make(false);
    assert_int_equal(sol_shm_tune_known(&shm, BYTES), SOL_SHM_KEEP);
}

static void lists_of_nodes_are_read(void **state)
{
    (void)state;
    assert_false(sol_shm_several_nodes("0\n"));
    assert_false(sol_shm_several_nodes(""));
    assert_true(sol_shm_several_nodes("0-1\n"));
    assert_true(sol_shm_several_nodes("0,2\n"));
}

/* Kinds and sizes of calls are learned apart. */
static void lessons_are_apart(void **state)
{
    (void)state;
    const sol_call_t gather = {.func = SOL_FUNC_ALL_GATHER}, all = {.func = SOL_FUNC_ALL_TO_ALL};
    unsigned tried;
    make(false);
    assert_int_equal(learn(&gather, BYTES, SOL_SHM_TUNE_ALL, 1u << SOL_SHM_PASS, &tried),
                     SOL_SHM_PASS);
    assert_int_equal(learn(&gather, 2 * BYTES, SOL_SHM_TUNE_ALL, 1u << SOL_SHM_KEEP, &tried),
                     SOL_SHM_KEEP);
    assert_int_equal(learn(&all, BYTES, SOL_SHM_TUNE_ALL, 1u << SOL_SHM_KEEP, &tried),
                     SOL_SHM_KEEP);
    assert_int_equal(call_once(&gather, BYTES, SOL_SHM_TUNE_ALL, ~0u), SOL_SHM_PASS);
}

/* What is worse by far for calls half as large is not tried for large ones. */
static void large_calls_inherit(void **state)
{
    (void)state;
    const sol_call_t call = {.func = SOL_FUNC_ALL_GATHER};
    const unsigned cheap = SOL_SHM_WAYS + SOL_SHM_PASS;
    unsigned tried;
    make(true);
    assert_int_equal(learn(&call, OWN_BYTES, SOL_SHM_TUNE_ALL, 1u << cheap, &tried), cheap);
    assert_int_equal(learn(&call, 2 * OWN_BYTES, SOL_SHM_TUNE_ALL, 1u << cheap, &tried), cheap);
    assert_int_equal(tried, 1u << cheap);
}

/* What was best for calls half as large may not be possible for large ones: then it is nobody's
 * winner, however cheap it was. */
static void only_what_is_possible_is_inherited(void **state)
{
    (void)state;
    const sol_call_t call = {.func = SOL_FUNC_ALL_REDUCE}; /* past the cache only, from 8 MB on */
    const unsigned past = SOL_SHM_WAYS + SOL_SHM_WIDE;
    unsigned tried, plan = 0;
    make(true);
    assert_int_equal(learn(&call, OWN_BYTES, SOL_SHM_TUNE_ALL, 1u << SOL_SHM_WIDE, &tried),
                     SOL_SHM_WIDE);
    for (int i = 0; i < 34; i++) { /* all of them dearer than that was, `past` the least */
        plan = plan_of(sol_shm_tune_begin(&shm, &call, 2 * OWN_BYTES, SOL_SHM_TUNE_ALL));
        if (shm.timing != NULL) {
            spend();
            if (plan != past)
                spend();
        }
        sol_shm_tune_end(&shm);
        assert_true(plan >= SOL_SHM_WAYS);
    }
    assert_int_equal(plan, past);
}

/* Two kinds of calls in turn, as training makes them: what one costs says nothing of the other. */
static void kinds_in_turn_learn_apart(void **state)
{
    (void)state;
    const sol_call_t light = {.func = SOL_FUNC_ALL_GATHER}, call = {.func = SOL_FUNC_ALL_TO_ALL};
    const unsigned ways[] = {SOL_SHM_KEEP, SOL_SHM_PASS, SOL_SHM_WIDE};
    for (int best = 0; best < 3; best++) {
        unsigned plan = 0;
        make(false);
        for (int i = 0; i < 34; i++) {
            call_once(&light, BYTES, SOL_SHM_TUNE_ALL, ~0u);
            plan = call_once(&call, BYTES, SOL_SHM_TUNE_ALL, 1u << ways[best]);
        }
        assert_int_equal(plan, ways[best]);
    }
}

/* Calls without end, with a machine that changes under way. */
static void it_learns_again(void **state)
{
    (void)state;
    const sol_call_t call = {.func = SOL_FUNC_ALL_GATHER};
    unsigned tried;
    make(false);
    assert_int_equal(learn(&call, BYTES, SOL_SHM_TUNE_ALL, 1u << SOL_SHM_PASS, &tried),
                     SOL_SHM_PASS);
    unsigned plan = SOL_SHM_PASS;
    for (int i = 0; i < 600; i++)
        plan = call_once(&call, BYTES, SOL_SHM_TUNE_ALL, 1u << SOL_SHM_KEEP);
    assert_int_equal(plan, SOL_SHM_KEEP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cheapest_plan_wins),
        cmocka_unit_test(what_is_worse_is_tried_less),
        cmocka_unit_test(only_what_is_possible_is_tried),
        cmocka_unit_test(the_slowest_rank_and_role_decide),
        cmocka_unit_test(a_send_is_learned_from_its_receiver),
        cmocka_unit_test(lists_of_nodes_are_read),
        cmocka_unit_test(lessons_are_apart),
        cmocka_unit_test(large_calls_inherit),
        cmocka_unit_test(only_what_is_possible_is_inherited),
        cmocka_unit_test(kinds_in_turn_learn_apart),
        cmocka_unit_test(it_learns_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
