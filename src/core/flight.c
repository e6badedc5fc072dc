/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flight.c: where flight records come from. They are kept when a communicator
 * is destroyed and handed to the next one: a signal handler may still be
 * reading. 72 KiB for the most communicators a process ever had at once.
 */
#include "core/flight.h"

#include <pthread.h>
#include <string.h>

static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static sol_flight_t *spare;
static pthread_once_t spare_once = PTHREAD_ONCE_INIT;

static void spare_hold(void)
{
    pthread_mutex_lock(&spare_lock);
}

static void spare_release(void)
{
    pthread_mutex_unlock(&spare_lock);
}

/* A child forked while another thread held the lock could never make a communicator. */
static void spare_watch_fork(void)
{
    (void)pthread_atfork(spare_hold, spare_release, spare_release);
}

sol_flight_t *sol_flight_get(void)
{
    struct timespec ts;
    pthread_once(&spare_once, spare_watch_fork);
    spare_hold();
    sol_flight_t *flight = spare;
    if (flight != NULL) {
        spare = flight->next;
    }
    spare_release();
    if (flight != NULL) {
        memset(flight, 0, sizeof(*flight));
    } else {
        flight = sol_aligned_calloc(SOL_CACHE_LINE, sizeof(*flight));
    }
    if (flight != NULL) {
        clock_gettime(CLOCK_REALTIME, &ts);
        flight->epoch_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
        flight->now_ns = sol_now_ns();
        flight->ticks = sol_ticks();
    }
    return flight;
}

void sol_flight_put(sol_flight_t *flight)
{
    if (flight != NULL) {
        spare_hold();
        flight->next = spare;
        spare = flight;
        spare_release();
    }
}

void sol_call_unpack(uint64_t what, sol_call_t *call)
{
    call->func = (sol_func_t)(what & 0xff);
    call->dtype = (sol_dtype_t)(what >> 8 & 0xff);
    call->reduction.op = (sol_redop_t)(what >> 16 & 0xff);
    call->reduction.premul = (what >> 24 & 1) != 0;
    call->root = (int)(uint32_t)(what >> 32);
}
