/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.c: one line to stderr per event, written with a single write(2) so that
 * lines of ranks and threads do not tear. No lock, no allocation, no stdio
 * buffer: it may be called from a failing allocation or in a forked child.
 */
#include "base/base.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const level_names[] = {"off", "error", "warn", "info", "debug", NULL};

static _Atomic int cached_level = -1;

static int current_level(void)
{
    int level = atomic_load_explicit(&cached_level, memory_order_relaxed);
    if (level >= 0) {
        return level;
    }
    char why[256];
    level = SOL_LOG_WARN;
    sol_status_t status = sol_env_choice("SOLCCL_LOG", level_names, &level, why, sizeof(why));
    /* stored first: the complaint below comes through here again */
    atomic_store_explicit(&cached_level, level, memory_order_relaxed);
    if (status != SOL_OK) {
        sol_log(SOL_LOG_WARN, "%s; using warn", why);
    }
    return level;
}

bool sol_log_enabled(sol_log_level level)
{
    return (int)level <= current_level();
}

void sol_log(sol_log_level level, const char *format, ...)
{
    if (!sol_log_enabled(level)) {
        return;
    }
    int saved_errno = errno;
    char line[2048];
    int head =
        snprintf(line, sizeof(line), "solccl[%ld] %s: ", (long)getpid(), level_names[(int)level]);
    va_list args;
    va_start(args, format);
    int body = vsnprintf(line + head, sizeof(line) - (size_t)head, format, args);
    va_end(args);
    size_t length = (size_t)head + (size_t)(body > 0 ? body : 0);
    if (length > sizeof(line) - 2) {
        length = sizeof(line) - 2;
    }
    line[length++] = '\n';
    ssize_t ignored = sol_file_write(STDERR_FILENO, line, length);
    (void)ignored;
    errno = saved_errno;
}
