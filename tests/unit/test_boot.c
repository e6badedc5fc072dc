/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_boot.c: ranks meet, exchange bytes and descriptors, and fail together
 * and in time: when one is missing, wrong, dead or aborted, and whatever
 * strangers do at their door. Ranks are threads here.
 */
#include "core/boot_wire.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define BIG 200000
#define SOON                                                                                       \
    9 /* s: an event ended it, not the timeout of 10 or 20 s; load does not take that long */

/* ------------------------------------------------------------------ ranks as threads */

typedef struct actor actor_t;
typedef void (*act_fn)(actor_t *actor);

struct actor {
    pthread_t thread;
    sol_boot_config_t config;
    act_fn act; /* after a successful open; NULL: nothing */
    sol_boot_t *boot;
    sol_status_t opened, status;
    char text[1024];
    int delay_us;
    double seconds;
};

static void note(actor_t *actor, sol_status_t status)
{
    actor->status = status;
    snprintf(actor->text, sizeof(actor->text), "%s",
             status == SOL_OK ? "" : sol_thread_error_text());
}

static void *actor_body(void *argument)
{
    actor_t *actor = argument;
    uint64_t begin = sol_now_ns();
    if (actor->delay_us > 0) {
        usleep((useconds_t)actor->delay_us);
    }
    actor->opened = sol_boot_open(&actor->boot, &actor->config);
    note(actor, actor->opened);
    if (actor->opened == SOL_OK) {
        if (actor->act != NULL) {
            actor->act(actor);
        }
        sol_boot_close(actor->boot);
    }
    actor->seconds = (double)(sol_now_ns() - begin) * 1e-9;
    return NULL;
}

static void fill(actor_t *actors, int n, const sol_unique_id_t *id, int timeout_ms, act_fn act)
{
    memset(actors, 0, sizeof(*actors) * (size_t)n);
    for (int r = 0; r < n; r++) {
        actors[r].config = (sol_boot_config_t){
            .id = id, .nranks = n, .rank = r, .backend = SOL_BACKEND_CPU, .timeout_ms = timeout_ms};
        actors[r].act = act;
    }
}

static void play(actor_t *actors, int n)
{
    for (int r = 0; r < n; r++) {
        assert_int_equal(pthread_create(&actors[r].thread, NULL, actor_body, &actors[r]), 0);
    }
    for (int r = 0; r < n; r++) {
        pthread_join(actors[r].thread, NULL);
    }
}

/* Every rank failed with `status`, saying `word`. */
static void all_failed(const actor_t *actors, int n, sol_status_t status, const char *word)
{
    for (int r = 0; r < n; r++) {
        if (actors[r].status != status || strstr(actors[r].text, word) == NULL) {
            fail_msg("rank %d: status %d, \"%s\"; expected %d, \"%s\"", r, (int)actors[r].status,
                     actors[r].text, (int)status, word);
        }
    }
}

static void all_fine(const actor_t *actors, int n)
{
    for (int r = 0; r < n; r++) {
        if (actors[r].status != SOL_OK) {
            fail_msg("rank %d: status %d, \"%s\"", r, (int)actors[r].status, actors[r].text);
        }
    }
}

static sol_unique_id_t fresh_id(void)
{
    sol_unique_id_t id;
    assert_int_equal(sol_get_unique_id(&id), SOL_OK);
    return id;
}

static int open_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++) {
        n += fcntl(fd, F_GETFD) != -1;
    }
    return n;
}

/* ------------------------------------------------------------------------- exchanges */

static void gather_sizes(actor_t *actor)
{
    static const size_t sizes[] = {0, 1,  7, SOL_BOOT_CHUNK - 1, SOL_BOOT_CHUNK, SOL_BOOT_CHUNK + 1,
                                   3, BIG};
    int n = actor->config.nranks, rank = actor->config.rank;
    unsigned char *mine = malloc(BIG), *all = malloc((size_t)BIG * (size_t)n);
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]) && actor->status == SOL_OK; k++) {
        size_t size = n > 8 && sizes[k] == BIG ? BIG / 16 : sizes[k];
        memset(mine, rank + 1, BIG);
        note(actor, sol_boot_all_gather(actor->boot, mine, size, all));
        for (size_t i = 0; i < size * (size_t)n && actor->status == SOL_OK; i++) {
            if (all[i] != i / size + 1) {
                note(actor, sol_thread_error(SOL_ERR_INTERNAL, "wrong byte %zu", i));
            }
        }
    }
    free(mine);
    free(all);
}

static void test_gather(void **state)
{
    static const int counts[] = {1, 2, 3, 8, 64};
    static actor_t actors[64];
    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        sol_unique_id_t id = fresh_id();
        fill(actors, counts[i], &id, 20000, gather_sizes);
        play(actors, counts[i]);
        all_fine(actors, counts[i]);
    }
}

/* Rank r gives a pipe end with its number in it, and nothing in the second place if odd. */
static void share(actor_t *actor)
{
    int n = actor->config.nranks, rank = actor->config.rank;
    int own[2], all[2 * 64], pipes[2];
    for (int k = 0; k < 2; k++) {
        assert_int_equal(pipe(pipes), 0);
        unsigned char byte = (unsigned char)(2 * rank + k);
        assert_int_equal(write(pipes[1], &byte, 1), 1);
        close(pipes[1]);
        own[k] = pipes[0];
    }
    if (rank % 2 == 1) {
        close(own[1]);
        own[1] = -1;
    }
    note(actor, sol_boot_share_fds(actor->boot, own, 2, all));
    /* a pipe's byte can be read once, so each rank reads its right neighbour's */
    int right = (rank + 1) % n;
    unsigned char byte = 0;
    for (int i = 0; i < 2 * n && actor->status == SOL_OK; i++) {
        bool none = i / 2 % 2 == 1 && i % 2 == 1;
        if ((all[i] < 0) != none) {
            note(actor, sol_thread_error(SOL_ERR_INTERNAL, "place %d", i));
        } else if (all[i] >= 0 && (fcntl(all[i], F_GETFD) & FD_CLOEXEC) == 0) {
            note(actor, sol_thread_error(SOL_ERR_INTERNAL, "not close-on-exec: %d", i));
        }
    }
    if (actor->status == SOL_OK && (read(all[2 * right], &byte, 1) != 1 || byte != 2 * right)) {
        note(actor, sol_thread_error(SOL_ERR_INTERNAL, "wrong pipe"));
    }
    sol_boot_close_fds(all, 2 * n);
    sol_boot_close_fds(own, 2);
}

static void test_share(void **state)
{
    static actor_t actors[16];
    static const int counts[] = {1, 2, 5, 16};
    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        sol_unique_id_t id = fresh_id();
        int before = open_descriptors();
        fill(actors, counts[i], &id, 20000, share);
        play(actors, counts[i]);
        all_fine(actors, counts[i]);
        assert_int_equal(open_descriptors(), before);
    }
}

/* More descriptors than one message carries. */
static void share_many(actor_t *actor)
{
    enum { COUNT = 100 };
    int own[COUNT], all[3 * COUNT];
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < COUNT; i++) {
        own[i] = null;
    }
    note(actor, sol_boot_share_fds(actor->boot, own, COUNT, all));
    for (int i = 0; i < 3 * COUNT && actor->status == SOL_OK; i++) {
        if (fcntl(all[i], F_GETFD) == -1) {
            note(actor, sol_thread_error(SOL_ERR_INTERNAL, "place %d", i));
        }
    }
    sol_boot_close_fds(all, actor->status == SOL_OK ? 3 * COUNT : 0);
    close(null);
}

static void test_share_many(void **state)
{
    actor_t actors[3];
    sol_unique_id_t id = fresh_id();
    (void)state;
    int before = open_descriptors();
    fill(actors, 3, &id, 20000, share_many);
    play(actors, 3);
    all_fine(actors, 3);
    assert_int_equal(open_descriptors(), before);
}

/* -------------------------------------------------------------------- going wrong */

static void test_absent(void **state)
{
    actor_t actors[5];
    sol_unique_id_t id = fresh_id();
    (void)state;
    fill(actors, 5, &id, 400, NULL);
    play(actors + 1, 3); /* without rank 0 */
    for (int r = 1; r < 4; r++) {
        assert_int_equal(actors[r].status, SOL_ERR_TIMEOUT);
        assert_non_null(strstr(actors[r].text, "rank 0 did not come"));
        assert_true(actors[r].seconds > 0.39 && actors[r].seconds < SOON);
    }
    fill(actors, 5, &id, 400, NULL);
    play(actors, 3); /* without 3 and 4 */
    all_failed(actors, 3, SOL_ERR_TIMEOUT, "ranks 3 and 4 did not come");
}

static void test_mismatch(void **state)
{
    actor_t actors[3];
    sol_unique_id_t id = fresh_id();
    (void)state;
    fill(actors, 3, &id, 20000, NULL);
    actors[2].config.nranks = 4;
    play(actors, 3);
    all_failed(actors, 3, SOL_ERR_MISMATCH, "passed nranks 4, rank 0 passed 3");
    fill(actors, 3, &id, 20000, NULL);
    actors[1].config.rank = 2;
    play(actors, 3);
    all_failed(actors, 3, SOL_ERR_MISMATCH, "rank 2 came twice");
    fill(actors, 3, &id, 20000, NULL);
    actors[1].config.rank = 0;
    actors[2].delay_us = 50000; /* a late comer hears it too */
    play(actors, 3);
    all_failed(actors, 3, SOL_ERR_MISMATCH, "rank 0 came twice");
    fill(actors, 3, &id, 20000, NULL);
    actors[1].config.backend = SOL_BACKEND_CUDA;
    play(actors, 3);
    all_failed(actors, 3, SOL_ERR_MISMATCH, "rank 1");
    for (int r = 0; r < 3; r++) {
        assert_true(actors[r].seconds < SOON);
    }
}

static void gather_different(actor_t *actor)
{
    char mine[32] = "", all[128];
    note(actor, sol_boot_all_gather(actor->boot, mine, actor->config.rank == 1 ? 16 : 8, all));
    sol_status_t first = actor->status;
    note(actor, sol_boot_all_gather(actor->boot, mine, 8, all)); /* it stays broken, at once */
    actor->status = first == SOL_ERR_MISMATCH ? actor->status : SOL_ERR_INTERNAL;
}

static void test_out_of_step(void **state)
{
    actor_t actors[3];
    sol_unique_id_t id = fresh_id();
    (void)state;
    fill(actors, 3, &id, 20000, gather_different);
    play(actors, 3);
    all_failed(actors, 3, SOL_ERR_MISMATCH, "different points");
    assert_true(actors[0].seconds < SOON && actors[1].seconds < SOON && actors[2].seconds < SOON);
}

static void one_breaks(actor_t *actor)
{
    char all[64];
    if (actor->config.rank == 2) {
        sol_thread_error(SOL_ERR_MEMORY, "no memory for a test");
        note(actor, sol_boot_break(actor->boot, SOL_ERR_MEMORY));
    } else {
        note(actor, sol_boot_all_gather(actor->boot, "x", 1, all));
    }
}

static void test_break(void **state)
{
    actor_t actors[4];
    sol_unique_id_t id = fresh_id();
    (void)state;
    fill(actors, 4, &id, 5000, one_breaks);
    play(actors, 4);
    all_failed(actors, 4, SOL_ERR_MEMORY, "no memory for a test");
}

static void one_leaves(actor_t *actor)
{
    char all[64];
    if (actor->config.rank != 1) {
        note(actor, sol_boot_all_gather(actor->boot, "x", 1, all));
    }
}

static void test_leave(void **state)
{
    actor_t actors[3];
    sol_unique_id_t id = fresh_id();
    (void)state;
    fill(actors, 3, &id, 5000, one_leaves);
    play(actors, 3);
    actors[1] = actors[0];
    all_failed(actors, 3, SOL_ERR_PEER, "rank 1 died or left");
    assert_true(actors[2].seconds < SOON);
}

static void wait_for_abort(actor_t *actor)
{
    char all[64];
    if (actor->config.rank == 1) {
        usleep(50000);
        sol_boot_interrupt(actor->boot, "rank 1 aborted the communicator");
    }
    note(actor, sol_boot_all_gather(actor->boot, "x", 1, all));
}

static void test_interrupt(void **state)
{
    actor_t actors[4];
    sol_unique_id_t id = fresh_id();
    (void)state;
    fill(actors, 4, &id, 10000, wait_for_abort);
    play(actors, 4);
    all_failed(actors, 4, SOL_ERR_ABORTED, "abort");
    assert_true(actors[0].seconds < SOON);
}

static _Atomic int abort_flag;

static void *raise_flag(void *unused)
{
    usleep(100000);
    atomic_store(&abort_flag, 1);
    return unused;
}

static void test_abort_flag(void **state)
{
    actor_t actors[3];
    pthread_t thread;
    sol_unique_id_t id = fresh_id();
    (void)state;
    fill(actors, 3, &id, 10000, NULL);
    actors[0].config.abort_flag = &abort_flag;
    assert_int_equal(pthread_create(&thread, NULL, raise_flag, NULL), 0);
    play(actors, 2);
    pthread_join(thread, NULL);
    all_failed(actors, 2, SOL_ERR_ABORTED, "abort");
    assert_true(actors[1].seconds < SOON);
}

/* ------------------------------------------------------------- strangers at the door */

static int connect_raw(const sol_unique_id_t *id)
{
    sol_id_content_t content;
    struct sockaddr_un address;
    assert_null(sol_id_read(id, &content));
    socklen_t length = sol_boot_address(content.secret, &address);
    for (int i = 0; i < 2000; i++) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&address, length) == 0) {
            return fd;
        }
        close(fd);
        usleep(1000);
    }
    fail_msg("rank 0 does not listen");
    return -1;
}

static void say(int fd, uint32_t type, const void *payload, size_t bytes)
{
    sol_boot_head_t head = {
        .magic = SOL_BOOT_MAGIC, .type = type, .bytes = (uint32_t)bytes, .total = (uint32_t)bytes};
    struct iovec parts[2] = {{&head, sizeof(head)}, {(void *)(uintptr_t)payload, bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    (void)sendmsg(fd, &message, MSG_NOSIGNAL);
}

static sol_boot_hello_t hello_for(const sol_unique_id_t *id, int nranks, int rank)
{
    sol_id_content_t content;
    assert_null(sol_id_read(id, &content));
    sol_boot_hello_t hello = {
        .version = SOL_VERSION, .nranks = nranks, .rank = rank, .backend = SOL_BACKEND_CPU};
    memcpy(hello.secret, content.secret, sizeof(hello.secret));
    return hello;
}

typedef struct siege {
    pthread_t thread;
    const sol_unique_id_t *id;
    sol_boot_hello_t hello;
    int fds[300];
    int nfds;
} siege_t;

/* Everything that a hello should not be; and silence, more often than there are places. */
static void *besiege(void *argument)
{
    siege_t *siege = argument;
    static char big[200000];
    sol_boot_hello_t hello = siege->hello;
    for (int i = 0; i < 300; i++) {
        int fd = connect_raw(siege->id);
        siege->fds[siege->nfds++] = fd;
        switch (i % 10) {
        case 0:
            hello.secret[i % 32] ^= 1;
            say(fd, SOL_BOOT_HELLO, &hello, sizeof(hello));
            hello.secret[i % 32] ^= 1;
            break;
        case 1:
            say(fd, SOL_BOOT_HELLO, &hello, 4);
            break;
        case 2:
            say(fd, SOL_BOOT_HELLO, big, SOL_BOOT_CHUNK + 50000);
            break;
        case 3:
            say(fd, SOL_BOOT_VERDICT, &hello, sizeof(hello));
            break;
        case 4:
            (void)send(fd, "x", 1, MSG_NOSIGNAL);
            break;
        case 5:
            (void)send(fd, big, 1000, MSG_NOSIGNAL);
            break;
        case 6:
            close(fd);
            siege->nfds--;
            break;
        default:
            break;
        }
    }
    return NULL;
}

static void test_strangers(void **state)
{
    static siege_t siege;
    actor_t actors[4];
    sol_unique_id_t id = fresh_id();
    (void)state;
    siege.id = &id;
    siege.hello = hello_for(&id, 4, 1);
    fill(actors, 4, &id, 20000, gather_sizes);
    for (int r = 1; r < 4; r++) {
        actors[r].delay_us = 300000 * r;
    }
    assert_int_equal(pthread_create(&siege.thread, NULL, besiege, &siege), 0);
    play(actors, 4);
    pthread_join(siege.thread, NULL);
    sol_boot_close_fds(siege.fds, siege.nfds);
    all_fine(actors, 4);
    assert_true(actors[0].seconds < SOON);
}

static void *other_version(void *argument)
{
    siege_t *siege = argument;
    siege->fds[0] = connect_raw(siege->id);
    say(siege->fds[0], SOL_BOOT_HELLO, &siege->hello,
        offsetof(sol_boot_hello_t, nranks)); /* all that versions have in common */
    return NULL;
}

static void test_version(void **state)
{
    static siege_t siege;
    actor_t actors[3];
    sol_unique_id_t id = fresh_id();
    (void)state;
    siege.id = &id;
    siege.hello = hello_for(&id, 3, 2);
    siege.hello.version = 990000;
    fill(actors, 3, &id, 20000, NULL);
    assert_int_equal(pthread_create(&siege.thread, NULL, other_version, &siege), 0);
    play(actors, 2);
    pthread_join(siege.thread, NULL);
    all_failed(actors, 2, SOL_ERR_MISMATCH, "version 990000");
    close(siege.fds[0]);
}

static void *join_and_die(void *argument)
{
    siege_t *siege = argument;
    int fd = connect_raw(siege->id);
    say(fd, SOL_BOOT_HELLO, &siege->hello, sizeof(siege->hello));
    usleep(100000);
    close(fd);
    return NULL;
}

static void test_death_while_joining(void **state)
{
    static siege_t siege;
    actor_t actors[4];
    sol_unique_id_t id = fresh_id();
    (void)state;
    siege.id = &id;
    siege.hello = hello_for(&id, 4, 2);
    fill(actors, 4, &id, 20000, NULL);
    assert_int_equal(pthread_create(&siege.thread, NULL, join_and_die, &siege), 0);
    play(actors, 2);
    pthread_join(siege.thread, NULL);
    all_failed(actors, 2, SOL_ERR_PEER, "rank 2");
    assert_true(actors[0].seconds < SOON);
}

/* Another user takes the address first, or knocks: never trusted, never told anything. */
static void other_user(const sol_unique_id_t *id, bool squat, int ready)
{
    sol_id_content_t content;
    struct sockaddr_un address;
    char byte = 0;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (setgid(65534) != 0 || setuid(65534) != 0 || sol_id_read(id, &content) != NULL) {
        _exit(1);
    }
    socklen_t length = sol_boot_address(content.secret, &address);
    if (squat) {
        if (bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, 16) != 0) {
            _exit(1);
        }
        (void)!write(ready, &byte, 1);
        int called = accept(fd, NULL, NULL);
        bool told = recv(called, &byte, 1, 0) > 0; /* a hello would be a secret given away */
        usleep(800000);                            /* the place stays taken */
        _exit(told);
    }
    (void)!write(ready, &byte, 1);
    sol_boot_hello_t hello = hello_for(id, 2, 1);
    close(fd);
    fd = connect_raw(id);
    say(fd, SOL_BOOT_HELLO, &hello, sizeof(hello));
    _exit(recv(fd, &byte, 1, 0) > 0);
}

static void test_other_user(void **state)
{
    actor_t actors[2];
    int ready[2], status;
    char byte;
    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    for (int squat = 0; squat < 2; squat++) {
        sol_unique_id_t id = fresh_id();
        assert_int_equal(pipe(ready), 0);
        pid_t child = fork();
        if (child == 0) {
            other_user(&id, squat == 1, ready[1]);
        }
        assert_int_equal(read(ready[0], &byte, 1), 1);
        fill(actors, 2, &id, squat ? 300 : 5000, NULL);
        actors[1].delay_us = squat ? 0 : 200000; /* the other user knocks first */
        play(actors, 2);
        if (squat) {
            all_failed(actors, 2, SOL_ERR_TIMEOUT, "user 65534 holds the meeting place");
        } else {
            all_fine(actors, 2);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        close(ready[0]);
        close(ready[1]);
    }
}

/* A record with descriptors where none belong, or the wrong number, leaks none. */
static void test_wrong_descriptors(void **state)
{
    int pair[2];
    sol_boot_record_t *record = malloc(sizeof(*record));
    (void)state;
    int before = open_descriptors();
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    sol_boot_wait_t wait = {.interrupt_fd = -1};
    sol_boot_head_t head = {.magic = SOL_BOOT_MAGIC, .type = SOL_BOOT_HELLO};
    assert_int_equal(sol_boot_send(pair[0], &wait, &head, NULL, pair, 2), SOL_OK);
    assert_int_equal(sol_boot_receive(pair[1], record, false), 1);
    head.magic = 7;
    assert_int_equal(sol_boot_send(pair[0], &wait, &head, NULL, pair, 2), SOL_OK);
    assert_int_equal(sol_boot_receive(pair[1], record, true), -2);
    assert_int_equal(sol_boot_receive(pair[1], record, true), 0);
    close(pair[0]);
    assert_int_equal(sol_boot_receive(pair[1], record, true), -1);
    close(pair[1]);
    assert_int_equal(open_descriptors(), before);
    free(record);
}

static void test_ids(void **state)
{
    sol_unique_id_t a = fresh_id(), b = fresh_id(), zero;
    sol_id_content_t content;
    (void)state;
    assert_memory_not_equal(&a, &b, sizeof(a));
    memset(&zero, 0, sizeof(zero));
    assert_non_null(strstr(sol_id_read(&zero, &content), "zeros"));
    b.bytes[0] ^= 1;
    assert_non_null(sol_id_read(&b, &content));
    b = a;
    b.bytes[8] ^= 2;
    assert_non_null(strstr(sol_id_read(&b, &content), "version"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids),         cmocka_unit_test(test_gather),
        cmocka_unit_test(test_share),       cmocka_unit_test(test_share_many),
        cmocka_unit_test(test_absent),      cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_out_of_step), cmocka_unit_test(test_break),
        cmocka_unit_test(test_leave),       cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_abort_flag),  cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_version),     cmocka_unit_test(test_death_while_joining),
        cmocka_unit_test(test_other_user),  cmocka_unit_test(test_wrong_descriptors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
