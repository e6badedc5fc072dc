/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread_error.c: the text of the last failure in each thread. Thread-local, so
 * it needs no lock and one rank's story never overwrites another's.
 */
#include "base/base.h"

#include <stdio.h>
#include <string.h>

#define THREAD_ERROR_BYTES 1536

static _Thread_local char thread_text[THREAD_ERROR_BYTES];

sol_status_t sol_thread_error_v(sol_status_t status, const char *format, va_list args)
{
    /* through a second buffer: an argument may be the old text itself */
    char fresh[THREAD_ERROR_BYTES];
    vsnprintf(fresh, sizeof(fresh), format, args);
    memcpy(thread_text, fresh, strlen(fresh) + 1);
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
    return thread_text;
}
