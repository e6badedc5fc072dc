/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork.c: lets a communicator notice that it is looked at from a forked child.
 * The child shares the parent's sockets and shared memory; one store there
 * would break the parent, so every function compares a number first.
 */
#include "base/base.h"

#include <pthread.h>

unsigned sol_fork_generation;

static pthread_once_t watch_once = PTHREAD_ONCE_INIT;

/* Runs in the child before fork() returns there, when it has one thread. */
static void in_child(void)
{
    sol_fork_generation++;
}

static void install(void)
{
    if (pthread_atfork(NULL, NULL, in_child) != 0) {
        sol_log(SOL_LOG_WARN, "pthread_atfork failed: use of a communicator after fork() will "
                              "not be noticed");
    }
}

void sol_fork_watch(void)
{
    pthread_once(&watch_once, install);
}
