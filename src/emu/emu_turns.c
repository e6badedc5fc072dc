/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_turns.c: several threads of the host on one machine, as a library's ranks
 * that are threads are. One of those that wait turns the machine for all; it
 * stops when anybody's wait is over or a thread wants to call. The others sleep,
 * each until its own wait is over or it is its turn to turn: to wake them all
 * each time costs more than what the machine does. When nobody can run, that may
 * be because a rank has not launched its kernel yet: then it is a deadlock only
 * if for a while no thread comes at all.
 *
 * Must never: hold emu.lock while it sleeps.
 */
#include "emu/emu_machine.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define PATIENCE_S 20

struct waiter {
    bool (*done)(const void *);
    const void *arg;
    bool patient;
    bool over;   /* found so; it is one of the callers now */
    bool asleep; /* until `moved` */
    pthread_cond_t moved;
    struct waiter *next;
};

static struct waiter *waiters;
static bool turning, given_up;
static atomic_int callers;
static uint64_t calls; /* under emu.lock */
/* A thread has called while the machine was stuck; no caller is left. */
static pthread_cond_t called = PTHREAD_COND_INITIALIZER, none_left = PTHREAD_COND_INITIALIZER;

void emu_turn_lock(void)
{
    atomic_fetch_add(&callers, 1);
    pthread_mutex_lock(&emu.lock);
    if (atomic_fetch_sub(&callers, 1) == 1)
        pthread_cond_signal(&none_left);
    calls++;
    if (emu.stuck)
        pthread_cond_broadcast(&called);
}

bool emu_others_may_come(void)
{
    return emu.options.threads && !given_up;
}

static bool somebody(const void *unused)
{
    (void)unused;
    for (struct waiter *w = waiters; w; w = w->next)
        if (!w->over && w->done(w->arg)) {
            w->over = true;
            atomic_fetch_add(&callers, 1);
            pthread_cond_signal(&w->moved);
        }
    return atomic_load_explicit(&callers, memory_order_relaxed) != 0;
}

static void wait_ms(pthread_cond_t *what, long ms)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += ms * 1000000;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    pthread_cond_timedwait(what, &emu.lock, &end);
}

/* The one that turns sleeps while others call: the system has better use for its processor. */
static void let_callers_in(void)
{
    while (atomic_load(&callers))
        wait_ms(&none_left, 10);
}

/*
 * Nobody can run: until a thread calls, `me` is over (somebody else turned), or none will. In
 * pieces: a process that was stopped for a while (a debugger, job control) has not been idle.
 */
static void wait_for_calls(const struct waiter *me)
{
    const uint64_t before = calls;
    for (int i = 0; i < PATIENCE_S * 4 && calls == before && !me->over && !emu.failed; i++)
        wait_ms(&called, 250);
    given_up = calls == before && !me->over;
}

/* Somebody else turns now; `all`: everybody looks what there is to do. */
static void wake_others(bool all, bool patient_too)
{
    for (struct waiter *w = waiters; w; w = w->next) {
        if (!w->asleep || w->over || (w->patient && !patient_too))
            continue;
        pthread_cond_signal(&w->moved);
        if (!all)
            return;
    }
}

static void sleep_until_moved(struct waiter *me)
{
    me->asleep = true;
    pthread_cond_wait(&me->moved, &emu.lock);
    me->asleep = false;
}

/* Until `me` or somebody else is over, or all are stuck. False: `me` is stuck and does not wait. */
static bool turn(struct waiter *me)
{
    turning = true;
    emu_run(somebody, NULL);
    if (!me->over && !emu.stuck && !emu.failed)
        let_callers_in();
    turning = false;
    if (!emu.stuck || me->over)
        return true;
    wake_others(true, false); /* who does not want to wait for calls */
    if (me->patient)
        wait_for_calls(me);
    return me->patient;
}

bool emu_wait_in_turns(bool (*done)(const void *), const void *arg, bool patient)
{
    struct waiter me = {.done = done, .arg = arg, .patient = patient, .next = waiters};
    struct waiter **link = &waiters;
    bool more = true;
    pthread_cond_init(&me.moved, NULL);
    waiters = &me;
    while (more && !emu.failed && !me.over && !done(arg)) {
        if (turning)
            sleep_until_moved(&me);
        else
            more = turn(&me);
    }
    while (*link != &me)
        link = &(*link)->next;
    *link = me.next;
    if (!turning || emu.failed)
        wake_others(emu.failed, true);
    pthread_cond_destroy(&me.moved);
    if (me.over && atomic_fetch_sub(&callers, 1) == 1)
        pthread_cond_signal(&none_left);
    return !emu.failed;
}
