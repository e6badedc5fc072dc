/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_segment.c: shared memory without a name. A segment is a memfd (or, where
 * that is refused, a POSIX shared memory object whose name is removed before
 * anybody else could need it), so nothing is left when a process is killed.
 *
 * Ranks that are threads of one process must see a segment at one address:
 * then what they do to it is ordinary memory access between threads, which
 * race detectors understand, and their caches hold it once. So a process
 * keeps a list of its mappings by their random tokens.
 *
 * Mappings are not inherited by forked children. Never blocks.
 */
#include "backend/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static sol_shm_segment_t *list;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* A fork while another thread holds the lock must not leave it locked in the child. */
static void fork_prepare(void)
{
    pthread_mutex_lock(&list_lock);
}

static void fork_done(void)
{
    pthread_mutex_unlock(&list_lock);
}

static void fork_install(void)
{
    pthread_atfork(fork_prepare, fork_done, fork_done);
}

static bool random_bytes(void *bytes, size_t count)
{
    ssize_t got;
    do {
        got = getrandom(bytes, count, 0);
    } while (got < 0 && errno == EINTR);
    return got == (ssize_t)count;
}

/* The unnamed object itself. The fallback is allocated at once: /dev/shm may be smaller than what
 * it promises, and a fault later would be a signal. */
static int make_object(size_t bytes, const unsigned char token[16], bool *fixed)
{
    int fd = memfd_create("solccl", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0) {
        int error = sol_file_resize(fd, bytes);
        if (error == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
            return fd;
        }
        error = error != 0 ? error : errno;
        close(fd);
        errno = error;
        return -1;
    }
    char name[64];
    snprintf(name, sizeof(name), "/solccl-%02x%02x%02x%02x%02x%02x%02x%02x", token[0], token[1],
             token[2], token[3], token[4], token[5], token[6], token[7]);
    fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return -1;
    }
    shm_unlink(name);
    *fixed = true;
    int error = sol_file_resize(fd, bytes);
    error = error == 0 ? posix_fallocate(fd, 0, (off_t)bytes) : error;
    if (error != 0) {
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static unsigned char *map_object(int fd, size_t bytes)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        return NULL;
    }
    madvise(base, bytes, MADV_DONTFORK);
    return base;
}

static void insert(sol_shm_segment_t *segment)
{
    segment->users = 1;
    segment->next = list;
    list = segment;
}

sol_status_t sol_shm_segment_create(size_t bytes, sol_shm_segment_t **segment, int *fd)
{
    pthread_once(&fork_once, fork_install);
    sol_shm_segment_t *made = sol_calloc(1, sizeof(*made));
    if (made == NULL) {
        return sol_thread_error(SOL_ERR_MEMORY, "no memory to describe a shared segment");
    }
    if (!random_bytes(made->token, sizeof(made->token))) {
        sol_free(made);
        return sol_thread_error(SOL_ERR_SYSTEM, "getrandom failed: %m");
    }
    made->bytes = bytes;
    made->created = true;
    *fd = make_object(bytes, made->token, &made->fixed);
    if (*fd >= 0) {
        made->base = map_object(*fd, bytes);
    }
    if (made->base == NULL) {
        sol_status_t status = errno == ENOMEM || errno == ENOSPC ? SOL_ERR_MEMORY : SOL_ERR_SYSTEM;
        sol_thread_error(status, "%zu bytes of shared memory were refused: %m%s", bytes,
                         errno == EFBIG ? " (ulimit -f)" : "");
        if (*fd >= 0) {
            close(*fd);
            *fd = -1;
        }
        sol_free(made);
        return status;
    }
    pthread_mutex_lock(&list_lock);
    insert(made);
    pthread_mutex_unlock(&list_lock);
    *segment = made;
    return SOL_OK;
}

static sol_shm_segment_t *find_token(const unsigned char token[16])
{
    for (sol_shm_segment_t *s = list; s != NULL; s = s->next) {
        if (memcmp(s->token, token, sizeof(s->token)) == 0) {
            return s;
        }
    }
    return NULL;
}

/* A peer's object that is smaller than it says would be a bus error later. */
static sol_status_t check_object(int fd, size_t bytes)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size < 0 || (size_t)st.st_size < bytes) {
        return sol_thread_error(SOL_ERR_INTERNAL,
                                "a peer's shared segment is %lld bytes: expected %zu",
                                (long long)st.st_size, bytes);
    }
    return SOL_OK;
}

sol_status_t sol_shm_segment_attach(int fd, size_t bytes, const unsigned char token[16],
                                    sol_shm_segment_t **segment, bool *same)
{
    sol_status_t status = SOL_OK;
    pthread_mutex_lock(&list_lock);
    sol_shm_segment_t *found = find_token(token);
    *same = found != NULL && found->created;
    if (found != NULL) {
        found->users++;
    } else if ((status = check_object(fd, bytes)) == SOL_OK) {
        found = sol_calloc(1, sizeof(*found));
        if (found != NULL && (found->base = map_object(fd, bytes)) == NULL) {
            sol_free(found);
            found = NULL;
        }
        if (found == NULL) {
            status = sol_thread_error(SOL_ERR_MEMORY,
                                      "%zu bytes of a peer's shared memory could "
                                      "not be mapped: %m",
                                      bytes);
        } else {
            found->bytes = bytes;
            memcpy(found->token, token, sizeof(found->token));
            insert(found);
        }
    }
    pthread_mutex_unlock(&list_lock);
    *segment = found;
    return status;
}

void sol_shm_segment_discard(sol_shm_segment_t *segment)
{
    madvise(segment->base, segment->bytes, MADV_REMOVE);
}

void sol_shm_segment_empty(sol_shm_segment_t *segment, size_t offset)
{
    /* what was allocated whole might be refused later, by a signal: it is only cleared */
    if (segment->fixed || madvise(segment->base + offset, segment->bytes - offset, MADV_REMOVE)) {
        memset(segment->base + offset, 0, segment->bytes - offset);
    }
}

void sol_shm_segment_release(sol_shm_segment_t *segment)
{
    if (segment == NULL) {
        return;
    }
    pthread_mutex_lock(&list_lock);
    bool last = --segment->users == 0;
    if (last) {
        for (sol_shm_segment_t **at = &list; *at != NULL; at = &(*at)->next) {
            if (*at == segment) {
                *at = segment->next;
                break;
            }
        }
        munmap(segment->base, segment->bytes);
    }
    pthread_mutex_unlock(&list_lock);
    if (last) {
        sol_free(segment);
    }
}
