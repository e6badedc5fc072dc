/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.c: giving a file its size, and writing, without the signals that the
 * kernel sends where the limit of file sizes is passed or nobody reads a pipe:
 * they would end the program that only uses the library.
 */
#include "base/base.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t largest_file(void)
{
    struct rlimit limit;
    bool limited = getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return limited ? (uint64_t)limit.rlim_cur : UINT64_MAX;
}

int sol_file_resize(int fd, size_t bytes)
{
    if (bytes > largest_file()) {
        return EFBIG;
    }
    return ftruncate(fd, (off_t)bytes) == 0 ? 0 : errno;
}

ssize_t sol_file_write(int fd, const void *bytes, size_t count)
{
    const struct timespec now = {0, 0};
    sigset_t pipe, before, pending;
    sigemptyset(&pipe);
    sigemptyset(&pending);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    bool theirs = sigismember(&pending, SIGPIPE) == 1; /* that one is not ours to take */
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    ssize_t wrote = write(fd, bytes, count);
    int error = errno;
    if (wrote < 0 && error == EPIPE && !theirs) {
        (void)sigtimedwait(&pipe, NULL, &now);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return wrote;
}

bool sol_file_room(int fd, size_t bytes)
{
    struct stat st;
    uint64_t largest = largest_file();
    if (largest == UINT64_MAX || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        return true;
    }
    off_t at = lseek(fd, 0, SEEK_CUR);
    return at < 0 || ((uint64_t)at <= largest && bytes <= largest - (uint64_t)at);
}
