/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread_error.c: the text of the last failure in each thread. A thread's own, so
 * it needs no lock and one rank's story never overwrites another's. Only a
 * pointer is thread-local (near.h says why); the memory is made with
 * a thread's first error and goes with the thread. It is the one allocation that
 * tests do not refuse: it tells what has been refused.
 */
#include "base/base.h"
#include "base/near.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREAD_ERROR_BYTES 1536

static _Thread_local char *thread_text SOL_NEAR;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool key_made;

static void forget(void *text)
{
    thread_text = NULL;
    free(text);
}

static void make_key(void)
{
    key_made = pthread_key_create(&key, forget) == 0;
}

/* This thread's text; NULL where memory is refused. */
static char *own_text(void)
{
    if (thread_text == NULL) {
        pthread_once(&once, make_key);
        char *text = key_made ? calloc(1, THREAD_ERROR_BYTES) : NULL;
        if (text == NULL || pthread_setspecific(key, text) != 0) {
            free(text);
            return NULL;
        }
        thread_text = text;
    }
    return thread_text;
}

sol_status_t sol_thread_error_v(sol_status_t status, const char *format, va_list args)
{
    /* through a second buffer: an argument may be the old text itself */
    char fresh[THREAD_ERROR_BYTES];
    char *text = own_text();
    if (text != NULL) {
        vsnprintf(fresh, sizeof(fresh), format, args);
        memcpy(text, fresh, strlen(fresh) + 1);
    }
    return status;
}

sol_status_t sol_thread_error(sol_status_t status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    sol_thread_error_v(status, format, args);
    va_end(args);
    return status;
}

const char *sol_thread_error_text(void)
{
    return thread_text != NULL ? thread_text : "";
}
