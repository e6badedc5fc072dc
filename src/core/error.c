/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error.c: recording what went wrong on a communicator, and telling it. The
 * first fatal story is kept for good; later errors never hide it.
 */
#include "core/setup.h"

#include <stdio.h>
#include <string.h>

static void compose(sol_comm_t comm, char text[SOL_ERROR_TEXT], const char *format, va_list args)
{
    int head =
        snprintf(text, SOL_ERROR_TEXT, "%s, rank %d of %d: ", comm->name, comm->rank, comm->nranks);
    vsnprintf(text + head, SOL_ERROR_TEXT - (size_t)head, format, args);
}

sol_status_t sol_comm_fail(sol_comm_t comm, sol_status_t status, const char *format, ...)
{
    char text[SOL_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    compose(comm, text, format, args);
    va_end(args);
    pthread_mutex_lock(&comm->error_lock);
    bool first = atomic_load_explicit(&comm->failed, memory_order_relaxed) == 0;
    if (first) {
        memcpy(comm->fatal, text, sizeof(text));
        /* pairs with the acquire in sol_last_error and sol_comm_usable: the text is whole */
        atomic_store_explicit(&comm->failed, (int)status, memory_order_release);
    }
    pthread_mutex_unlock(&comm->error_lock);
    sol_log(first ? SOL_LOG_WARN : SOL_LOG_INFO, "%s", text);
    return sol_thread_error(status, "%s", text);
}

sol_status_t sol_comm_fail_all(sol_comm_t comm, sol_status_t status, const char *format, ...)
{
    char text[SOL_ERROR_TEXT - 128]; /* room for what each rank puts before it */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return comm->backend->fail != NULL ? comm->backend->fail(comm, status, text)
                                       : sol_comm_fail(comm, status, "%s", text);
}

sol_status_t sol_comm_error(sol_comm_t comm, sol_status_t status, const char *format, ...)
{
    char text[SOL_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    compose(comm, text, format, args);
    va_end(args);
    pthread_mutex_lock(&comm->error_lock);
    unsigned count = atomic_load_explicit(&comm->error_count, memory_order_relaxed);
    memcpy(comm->errors[count % SOL_ERROR_SLOTS], text, sizeof(text));
    atomic_store_explicit(&comm->error_count, count + 1, memory_order_release);
    pthread_mutex_unlock(&comm->error_lock);
    sol_log(SOL_LOG_INFO, "%s", text);
    return sol_thread_error(status, "%s", text);
}

sol_status_t sol_comm_valid(sol_comm_t comm, const char *who)
{
    if (comm == NULL) {
        return sol_thread_error(SOL_ERR_ARGUMENT, "%s: comm is NULL", who);
    }
    if (!sol_comm_known(comm) || !sol_comm_alive(comm)) {
        return sol_thread_error(SOL_ERR_ARGUMENT,
                                "%s: comm is not a communicator: it was destroyed, or never made",
                                who);
    }
    if (comm->fork_generation != sol_fork_generation) {
        return sol_thread_error(SOL_ERR_STATE,
                                "%s: this is a forked child, and comm belongs to its parent: make "
                                "a communicator of its own here",
                                who);
    }
    return SOL_OK;
}

sol_status_t sol_comm_healthy(sol_comm_t comm, const char *who)
{
    sol_status_t status = sol_comm_valid(comm, who);
    if (status != SOL_OK) {
        return status;
    }
    int failed = atomic_load_explicit(&comm->failed, memory_order_acquire);
    if (failed != 0) {
        return sol_thread_error((sol_status_t)failed, "%s: communicator unusable since: %s", who,
                                comm->fatal);
    }
    return SOL_OK;
}

sol_status_t sol_comm_usable(sol_comm_t comm, const char *who)
{
    sol_status_t status = sol_comm_healthy(comm, who);
    if (status != SOL_OK) {
        return status;
    }
    if (atomic_load(&comm->magic) == SOL_COMM_ASLEEP) {
        return sol_comm_error(comm, SOL_ERR_STATE,
                              "%s: the communicator is asleep: call sol_comm_wake on all ranks",
                              who);
    }
    return SOL_OK;
}

const char *sol_last_error(sol_comm_t comm)
{
    if (comm == NULL || !sol_comm_known(comm) || !sol_comm_alive(comm) ||
        comm->fork_generation != sol_fork_generation) {
        return sol_thread_error_text();
    }
    if (atomic_load_explicit(&comm->failed, memory_order_acquire) != 0) {
        return comm->fatal;
    }
    unsigned count = atomic_load_explicit(&comm->error_count, memory_order_acquire);
    return count == 0 ? "" : comm->errors[(count - 1) % SOL_ERROR_SLOTS];
}

sol_status_t sol_comm_async_error(sol_comm_t comm, sol_status_t *error)
{
    sol_status_t status = sol_comm_valid(comm, "sol_comm_async_error");
    if (status != SOL_OK) {
        return status;
    }
    if (error == NULL) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_comm_async_error: error is NULL");
    }
    if (!sol_comm_hold(comm)) {
        return sol_comm_valid(comm, "sol_comm_async_error");
    }
    if (comm->backend->poll_error != NULL) {
        comm->backend->poll_error(comm);
    }
    *error = (sol_status_t)atomic_load_explicit(&comm->failed, memory_order_acquire);
    if (*error != SOL_OK) {
        sol_dump_failed(comm);
    }
    sol_comm_let_go(comm);
    return SOL_OK;
}
