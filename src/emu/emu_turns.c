/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_turns.c: several threads of the host on one machine, as a library's ranks
 * that are threads are. One of those that wait turns the machine for all; it
 * stops when anybody's wait is over or a thread wants to call. When nobody can
 * run, that may be because a rank has not launched its kernel yet: then it is a
 * deadlock only if for a while no thread comes at all.
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
    bool over; /* found so; it is one of the callers now */
    struct waiter *next;
};

static struct waiter *waiters;
static bool turning, given_up;
static atomic_int callers;
static uint64_t calls; /* under emu.lock */
/* Something happened that waiters and the one that turns wait for; no caller is left. */
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER, none_left = PTHREAD_COND_INITIALIZER;

void emu_turn_lock(void)
{
    atomic_fetch_add(&callers, 1);
    pthread_mutex_lock(&emu.lock);
    if (atomic_fetch_sub(&callers, 1) == 1)
        pthread_cond_signal(&none_left);
    calls++;
    if (emu.stuck)
        pthread_cond_broadcast(&moved);
}

bool emu_others_may_come(void)
{
    return emu.options.threads && !given_up;
}

static bool somebody(const void *unused)
{
    bool any = false;
    (void)unused;
    for (struct waiter *w = waiters; w; w = w->next)
        if (!w->over && w->done(w->arg)) {
            w->over = any = true;
            atomic_fetch_add(&callers, 1);
        }
    if (any)
        pthread_cond_broadcast(&moved);
    return atomic_load_explicit(&callers, memory_order_relaxed) != 0;
}

static void wait_until(pthread_cond_t *what, long ms, const struct timespec *since)
{
    struct timespec end = *since;
    end.tv_sec += ms / 1000 + (end.tv_nsec + ms % 1000 * 1000000) / 1000000000;
    end.tv_nsec = (end.tv_nsec + ms % 1000 * 1000000) % 1000000000;
    pthread_cond_timedwait(what, &emu.lock, &end);
}

/* The one that turns sleeps while others call: the system has better use for its processor. */
static void let_callers_in(void)
{
    struct timespec now;
    while (atomic_load(&callers)) {
        clock_gettime(CLOCK_REALTIME, &now);
        wait_until(&none_left, 10, &now);
    }
}

/* Nobody can run: until a thread calls, `me` is over (somebody else turned), or none will. */
static void wait_for_calls(const struct waiter *me)
{
    struct timespec begin, now;
    const uint64_t before = calls;
    clock_gettime(CLOCK_REALTIME, &begin);
    do {
        wait_until(&moved, 1000L * PATIENCE_S, &begin);
        clock_gettime(CLOCK_REALTIME, &now);
    } while (calls == before && !me->over && !emu.failed && now.tv_sec < begin.tv_sec + PATIENCE_S);
    given_up = calls == before && !me->over;
}

bool emu_wait_in_turns(bool (*done)(const void *), const void *arg, bool patient)
{
    struct waiter me = {done, arg, false, waiters}, **link = &waiters;
    bool more = true;
    waiters = &me;
    while (more && !emu.failed && !me.over && !done(arg)) {
        if (turning) {
            pthread_cond_wait(&moved, &emu.lock);
            continue;
        }
        turning = true;
        emu_run(somebody, NULL);
        if (!me.over && !emu.stuck && !emu.failed)
            let_callers_in();
        turning = false;
        pthread_cond_broadcast(&moved);
        if (emu.stuck && !patient)
            more = false;
        else if (emu.stuck && !me.over)
            wait_for_calls(&me);
    }
    while (*link != &me)
        link = &(*link)->next;
    *link = me.next;
    if (me.over && atomic_fetch_sub(&callers, 1) == 1)
        pthread_cond_signal(&none_left);
    return !emu.failed;
}
