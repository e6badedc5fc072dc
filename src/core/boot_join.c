/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_join.c: how the star of boot.h comes to be.
 *
 *     rank r                         rank 0
 *     connect, again and again       bind, listen
 *     same user? ------------------- accept; same user? else closed
 *     HELLO (secret, who I am) ----> right secret? else closed, nobody notices
 *                                    fits the others? else VERDICT to everybody
 *     <----------------------------- PROGRESS: you are in (and now and then: who is)
 *     <----------------------------- WELCOME when all are in: everybody's pid
 *
 * Never: block on one connection. A stranger who connects and says nothing, or
 * nonsense, costs a slot for HELLO_NS and delays nobody. A connection that ends
 * before PROGRESS is tried again, because rank 0 may have taken a slow rank for
 * a stranger; one that ends after it means that rank 0 died.
 */
#include "core/boot_wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HELLO_NS 2000000000u       /* how long a connection may be silent */
#define LINGER_NS 2000000000u      /* how long a failed rank 0 stays to tell late comers why ... */
#define LINGER_KNOWN_NS 500000000u /* ... and where most of them can learn it elsewhere */
#define PROGRESS_NS 100000000u     /* how often those who wait hear who is missing */
#define LOOK_NS 20000000u          /* how often ranks that may be gone are looked for */
#define PENDING_MAX 96             /* connections that have not said hello */
#define RETRY_FIRST_NS 50000u
#define RETRY_SOON_NS 2000000u
#define RETRY_LATE_NS 10000000u
#define SOON_NS 1000000000u

static const char *backend_word(int backend)
{
    switch (backend) {
    case SOL_BACKEND_CPU:
        return "CPU";
    case SOL_BACKEND_CUDA:
        return "CUDA";
    default:
        return "unknown";
    }
}

static sol_boot_hello_t hello_of(const sol_boot_config_t *config, const unsigned char *secret)
{
    sol_boot_hello_t hello = {.version = SOL_VERSION,
                              .nranks = config->nranks,
                              .rank = config->rank,
                              .backend = (int32_t)config->backend};
    memcpy(hello.secret, secret, sizeof(hello.secret));
    return hello;
}

/* The namespace that this process's pids are of; 0: cannot be told. */
static uint64_t pid_space(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

static uint32_t welcome_bytes(const sol_boot_t *boot)
{
    return (uint32_t)(offsetof(sol_boot_welcome_t, pids) + sizeof(int) * (size_t)boot->nranks);
}

/* The pids that rank 0 sees are only good where they mean the same: in a container of its own a
 * rank would take strangers, or nobody, for the others. There they are not known, 0. */
static void take_pids(sol_boot_t *boot, const sol_boot_record_t *record)
{
    sol_boot_welcome_t all = {.pid_space = 0};
    memcpy(&all, record->payload, record->head.bytes);
    int own = boot->pids[boot->rank];
    bool same = all.pid_space == pid_space() && all.pids[boot->rank] == own;
    for (int r = 0; r < boot->nranks; r++) {
        boot->pids[r] = same ? all.pids[r] : 0;
    }
    boot->pids[boot->rank] = own;
}

/* ------------------------------------------------------------------ rank 0's side */

typedef struct pending {
    int fd, pid;
    uint64_t since_ns;
} pending_t;

typedef struct gathering {
    sol_boot_t *boot;
    sol_boot_hello_t own; /* what every hello has to agree with */
    sol_boot_wait_t wait;
    int listener;
    pending_t pending[PENDING_MAX];
    int npending;
    const sol_boot_config_t *config;
    uint64_t next_look_ns; /* at who will not come */
    uint64_t joined;       /* ranks that are in; bit 0 from the start */
    uint64_t reported;     /* `joined` as the others last heard it */
    int told;              /* members turned away since it failed */
} gathering_t;

static uint64_t all_ranks(int nranks)
{
    return nranks == 64 ? UINT64_MAX : ((uint64_t)1 << nranks) - 1;
}

static void drop_pending(gathering_t *g, int i)
{
    close(g->pending[i].fd);
    g->pending[i] = g->pending[--g->npending];
}

/* Takes what has connected; a full table loses its oldest, so that silence cannot shut the door. */
static void accept_new(gathering_t *g)
{
    for (int i = 0; i < PENDING_MAX; i++) {
        int fd = accept4(g->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            return;
        }
        int pid;
        unsigned uid;
        if (!sol_boot_same_user(fd, &pid, &uid)) {
            sol_log(SOL_LOG_INFO, "refused a connection from user %u", uid);
            close(fd);
            continue;
        }
        if (g->npending == PENDING_MAX) {
            int oldest = 0;
            for (int k = 1; k < g->npending; k++) {
                if (g->pending[k].since_ns < g->pending[oldest].since_ns) {
                    oldest = k;
                }
            }
            drop_pending(g, oldest);
        }
        g->pending[g->npending++] = (pending_t){fd, pid, sol_now_ns()};
    }
}

/* Does it hold the secret? In constant time, and nothing else is looked at before. */
static bool is_member(const gathering_t *g, const sol_boot_record_t *record,
                      sol_boot_hello_t *hello)
{
    const size_t fixed = offsetof(sol_boot_hello_t, nranks);
    if (record->head.type != SOL_BOOT_HELLO || record->head.bytes < fixed) {
        return false;
    }
    memset(hello, 0, sizeof(*hello));
    memcpy(hello, record->payload,
           record->head.bytes < sizeof(*hello) ? record->head.bytes : sizeof(*hello));
    unsigned char different = 0;
    for (int i = 0; i < SOL_ID_SECRET_BYTES; i++) {
        different |= (unsigned char)(hello->secret[i] ^ g->own.secret[i]);
    }
    return different == 0;
}

/* A member that does not fit makes everybody fail, with the reason. */
static sol_status_t compare_hello(gathering_t *g, const sol_boot_hello_t *hello, int pid)
{
    const sol_boot_hello_t *own = &g->own;
    sol_boot_t *boot = g->boot;
    if (hello->version != own->version) {
        return sol_boot_fail(boot, SOL_ERR_MISMATCH,
                             "process %d runs solccl version %u, rank 0 version %u", pid,
                             hello->version, own->version);
    }
    if (hello->nranks != own->nranks) {
        return sol_boot_fail(boot, SOL_ERR_MISMATCH,
                             "rank %d (process %d) passed nranks %d, rank 0 passed %d", hello->rank,
                             pid, hello->nranks, own->nranks);
    }
    if (hello->rank < 0 || hello->rank >= own->nranks) {
        return sol_boot_fail(boot, SOL_ERR_MISMATCH, "process %d says it is rank %d of %d", pid,
                             hello->rank, own->nranks);
    }
    if (hello->backend != own->backend) {
        return sol_boot_fail(boot, SOL_ERR_MISMATCH,
                             "rank %d (process %d) is a %s rank, rank 0 a %s rank", hello->rank,
                             pid, backend_word(hello->backend), backend_word(own->backend));
    }
    if ((g->joined >> hello->rank & 1) != 0) {
        return sol_boot_fail(boot, SOL_ERR_MISMATCH, "rank %d came twice: processes %d and %d",
                             hello->rank, boot->pids[hello->rank], pid);
    }
    return SOL_OK;
}

static void send_progress(gathering_t *g, int rank)
{
    sol_boot_head_t head = {.magic = SOL_BOOT_MAGIC,
                            .type = SOL_BOOT_PROGRESS,
                            .bytes = sizeof(g->joined),
                            .total = sizeof(g->joined)};
    /* a rank whose buffer is full, or that is gone, is found out by other means */
    sol_boot_wait_t no_wait = {.interrupt_fd = g->wait.interrupt_fd};
    (void)sol_boot_send(g->boot->sockets[rank], &no_wait, &head, &g->joined, NULL, 0);
}

/* Something to read on a connection that has not said hello. */
static void hear_pending(gathering_t *g, int i)
{
    sol_boot_t *boot = g->boot;
    sol_boot_hello_t hello;
    int fd = g->pending[i].fd, pid = g->pending[i].pid;
    int got = sol_boot_receive(fd, &boot->record, false);
    if (got == 0) {
        return;
    }
    if (got < 0 || !is_member(g, &boot->record, &hello)) {
        if (got != -1) {
            sol_log(SOL_LOG_INFO, "refused a malformed or foreign hello from process %d", pid);
        }
        drop_pending(g, i);
        return;
    }
    if (boot->broken != SOL_OK || compare_hello(g, &hello, pid) != SOL_OK) {
        sol_boot_send_verdict(fd, boot->broken, boot->why);
        g->told++;
        drop_pending(g, i);
        return;
    }
    g->pending[i] = g->pending[--g->npending];
    boot->sockets[hello.rank] = fd;
    boot->pids[hello.rank] = pid;
    g->joined |= (uint64_t)1 << hello.rank;
    send_progress(g, hello.rank);
}

static void fail_for_absent(gathering_t *g)
{
    char names[256];
    sol_boot_name_ranks(all_ranks(g->boot->nranks) & ~g->joined, names, sizeof(names));
    sol_boot_fail(g->boot, SOL_ERR_TIMEOUT, "timed out after %d ms: of %d ranks, %s did not come",
                  g->boot->timeout_ms, g->boot->nranks, names);
}

/* A rank that is in has nothing to say before WELCOME but that it gives up. */
static void hear_joined(gathering_t *g, int rank)
{
    sol_boot_t *boot = g->boot;
    char text[SOL_BOOT_TEXT];
    int got = sol_boot_receive(boot->sockets[rank], &boot->record, false);
    if (got == 0 || boot->broken != SOL_OK) {
        return;
    }
    if (got == 1 && boot->record.head.type == SOL_BOOT_VERDICT) {
        sol_status_t status = sol_boot_read_verdict(&boot->record, text);
        if (status == SOL_ERR_TIMEOUT) { /* it came first; who is missing is known best here */
            fail_for_absent(g);
        } else {
            sol_boot_fail(boot, status, "%s", text);
        }
        return;
    }
    sol_boot_fail(boot, SOL_ERR_PEER, "rank %d (process %d) %s while the ranks were joining", rank,
                  boot->pids[rank], got == -1 ? "died" : "sent something unexpected");
    close(boot->sockets[rank]);
    boot->sockets[rank] = -1;
    g->told++; /* nobody waits for it any more */
}

static void drop_silent(gathering_t *g, uint64_t now)
{
    for (int i = g->npending - 1; i >= 0; i--) {
        if (now - g->pending[i].since_ns > HELLO_NS) {
            drop_pending(g, i);
        }
    }
}

/* Fails with the first cause where `rank` will not come. */
static sol_status_t check_absent(const sol_boot_config_t *config, sol_boot_t *boot, int rank)
{
    char why[SOL_BOOT_TEXT];
    sol_status_t status = config->absent(config->absent_context, rank, why, sizeof(why));
    return status == SOL_OK ? SOL_OK : sol_boot_fail(boot, status, "%s", why);
}

/* A rank that will never come ends it for all. */
static void look_for_absent(gathering_t *g, uint64_t now)
{
    if (g->config->absent == NULL || now < g->next_look_ns || g->boot->broken != SOL_OK) {
        return;
    }
    g->next_look_ns = now + LOOK_NS;
    for (int r = 1; r < g->boot->nranks; r++) {
        if ((g->joined >> r & 1) == 0 && check_absent(g->config, g->boot, r) != SOL_OK) {
            g->told++; /* nobody waits for it */
            return;
        }
    }
}

/* One turn: wait a little, then serve whatever came. */
static sol_status_t turn(gathering_t *g)
{
    struct pollfd fds[2 + PENDING_MAX + SOL_MAX_RANKS];
    sol_boot_t *boot = g->boot;
    int n = 1, npending = g->npending;
    fds[n++] = (struct pollfd){.fd = g->listener, .events = POLLIN};
    for (int i = 0; i < npending; i++) {
        fds[n++] = (struct pollfd){.fd = g->pending[i].fd, .events = POLLIN};
    }
    for (int r = 1; r < boot->nranks; r++) {
        fds[n++] = (struct pollfd){.fd = boot->sockets[r], .events = POLLIN};
    }
    uint64_t tick = g->config->absent != NULL ? LOOK_NS : PROGRESS_NS;
    sol_status_t status = sol_boot_poll(&g->wait, fds, n - 1, sol_now_ns() + tick);
    if (status != SOL_OK) {
        return status;
    }
    for (int r = 1; r < boot->nranks; r++) {
        if (fds[1 + npending + r].revents != 0 && boot->sockets[r] >= 0) {
            hear_joined(g, r);
        }
    }
    for (int i = npending - 1; i >= 0; i--) { /* downwards: a served one is replaced by the last */
        if (fds[2 + i].revents != 0) {
            hear_pending(g, i);
        }
    }
    if (fds[1].revents != 0) {
        accept_new(g);
    }
    drop_silent(g, sol_now_ns());
    look_for_absent(g, sol_now_ns());
    return SOL_OK;
}

/* All have come, or boot is broken. */
static void gather_ranks(gathering_t *g)
{
    sol_boot_t *boot = g->boot;
    uint64_t all = all_ranks(boot->nranks);
    uint64_t next_report = sol_now_ns() + PROGRESS_NS;
    while (g->joined != all && boot->broken == SOL_OK) {
        sol_status_t status = turn(g);
        if (status == SOL_ERR_TIMEOUT) {
            fail_for_absent(g);
        } else if (status == SOL_ERR_ABORTED) {
            sol_boot_fail(boot, status, "aborted while the ranks were joining");
        } else if (status != SOL_OK) {
            sol_boot_fail(boot, status, "poll: %s", strerror(errno));
        }
        if (g->joined != g->reported && sol_now_ns() >= next_report) {
            for (int r = 1; r < boot->nranks; r++) {
                if (boot->sockets[r] >= 0) {
                    send_progress(g, r);
                }
            }
            g->reported = g->joined;
            next_report = sol_now_ns() + PROGRESS_NS;
        }
    }
}

/* Ranks that are still on their way hear the reason too, instead of waiting for nobody. */
static void tell_late_comers(gathering_t *g)
{
    uint64_t end = sol_now_ns() + (g->config->absent != NULL ? LINGER_KNOWN_NS : LINGER_NS);
    if (end < g->wait.deadline_ns) {
        g->wait.deadline_ns = end;
    }
    int members = 0;
    for (int r = 1; r < g->boot->nranks; r++) {
        if (g->boot->sockets[r] >= 0) { /* they know, and leave: poll would never rest */
            close(g->boot->sockets[r]);
            g->boot->sockets[r] = -1;
            members++;
        }
    }
    while (members + g->told < g->boot->nranks - 1 && turn(g) == SOL_OK) {
    }
}

static sol_status_t welcome(gathering_t *g)
{
    sol_boot_t *boot = g->boot;
    uint32_t bytes = welcome_bytes(boot);
    sol_boot_welcome_t all = {.pid_space = pid_space()};
    memcpy(all.pids, boot->pids, sizeof(all.pids));
    sol_boot_head_t head = {
        .magic = SOL_BOOT_MAGIC, .type = SOL_BOOT_WELCOME, .bytes = bytes, .total = bytes};
    for (int r = 1; r < boot->nranks; r++) {
        sol_status_t status = sol_boot_send(boot->sockets[r], &g->wait, &head, &all, NULL, 0);
        if (status != SOL_OK) {
            return sol_boot_fail(boot, status,
                                 "rank %d (process %d) died while the ranks were "
                                 "joining",
                                 r, boot->pids[r]);
        }
    }
    return SOL_OK;
}

static sol_status_t host(sol_boot_t *boot, const sol_boot_config_t *config,
                         const sol_boot_hello_t *own, int listener, sol_boot_wait_t wait)
{
    gathering_t g = {.boot = boot,
                     .config = config,
                     .own = *own,
                     .wait = wait,
                     .listener = listener,
                     .joined = 1,
                     .reported = 1};
    gather_ranks(&g);
    /* (who comes after a timeout is late in any case) */
    if (boot->broken != SOL_OK && boot->broken != SOL_ERR_TIMEOUT &&
        boot->broken != SOL_ERR_ABORTED) {
        tell_late_comers(&g);
    }
    while (g.npending > 0) {
        drop_pending(&g, g.npending - 1);
    }
    return boot->broken != SOL_OK ? boot->broken : welcome(&g);
}

/* -------------------------------------------------------------- the other ranks' side */

typedef struct caller {
    sol_boot_t *boot;
    const sol_boot_config_t *config;
    uint64_t next_look_ns;
    sol_boot_hello_t hello;
    sol_boot_wait_t wait;
    struct sockaddr_un address;
    socklen_t address_bytes;
    uint64_t started_ns, retry_ns;
    uint64_t joined;   /* who was in when last heard */
    bool accepted;     /* rank 0 has said that this rank is in */
    unsigned stranger; /* another user who holds the address */
    bool has_stranger;
} caller_t;

static sol_status_t caller_timeout(caller_t *c)
{
    sol_boot_t *boot = c->boot;
    char names[256];
    if (c->accepted) {
        sol_boot_name_ranks(all_ranks(boot->nranks) & ~c->joined, names, sizeof(names));
        return sol_boot_fail(boot, SOL_ERR_TIMEOUT,
                             "timed out after %d ms: of %d ranks, %s did not come",
                             boot->timeout_ms, boot->nranks, names);
    }
    if (c->has_stranger) {
        return sol_boot_fail(boot, SOL_ERR_TIMEOUT,
                             "timed out after %d ms: user %u holds the meeting place of this id",
                             boot->timeout_ms, c->stranger);
    }
    return sol_boot_fail(boot, SOL_ERR_TIMEOUT, "timed out after %d ms: rank 0 did not come",
                         boot->timeout_ms);
}

static sol_status_t caller_failed(caller_t *c, sol_status_t status, const char *doing)
{
    switch (status) {
    case SOL_ERR_TIMEOUT:
        return caller_timeout(c);
    case SOL_ERR_ABORTED:
        return sol_boot_fail(c->boot, status, "aborted while the ranks were joining");
    default:
        return sol_boot_fail(c->boot, status, "%s: %s", doing, strerror(errno));
    }
}

/* Will rank 0 never come, or never say more? Then it has failed. */
static sol_status_t look_for_host(caller_t *c, uint64_t now)
{
    if (c->config->absent == NULL || c->boot->rank == 0 || now < c->next_look_ns) {
        return SOL_OK;
    }
    c->next_look_ns = now + LOOK_NS;
    return check_absent(c->config, c->boot, 0);
}

/* Waits before the next try: first very short, since ranks mostly start together. */
static sol_status_t back_off(caller_t *c)
{
    struct pollfd fds[1];
    uint64_t now = sol_now_ns();
    if (look_for_host(c, now) != SOL_OK) {
        return c->boot->broken;
    }
    uint64_t most = now - c->started_ns < SOON_NS ? RETRY_SOON_NS : RETRY_LATE_NS;
    sol_status_t status = sol_boot_poll(&c->wait, fds, 0, now + c->retry_ns);
    c->retry_ns = c->retry_ns * 2 < most ? c->retry_ns * 2 : most;
    return status == SOL_OK ? SOL_OK : caller_failed(c, status, "poll");
}

/* One record from rank 0. *done: WELCOME has come. PEER without a text: the connection ended. */
static sol_status_t hear_host(caller_t *c, int fd, bool *done)
{
    sol_boot_t *boot = c->boot;
    sol_boot_record_t *record = &boot->record;
    char text[SOL_BOOT_TEXT];
    sol_status_t status;
    int got = sol_boot_receive(fd, record, false);
    if (got <= 0) {
        return got == 0 ? SOL_OK : SOL_ERR_PEER;
    }
    switch (record->head.type) {
    case SOL_BOOT_PROGRESS:
        if (record->head.bytes == sizeof(c->joined)) {
            memcpy(&c->joined, record->payload, sizeof(c->joined));
        }
        c->accepted = true;
        return SOL_OK;
    case SOL_BOOT_WELCOME:
        if (record->head.bytes != welcome_bytes(boot)) {
            return SOL_ERR_PEER;
        }
        take_pids(boot, record);
        *done = true;
        return SOL_OK;
    case SOL_BOOT_VERDICT:
        status = sol_boot_read_verdict(record, text);
        return sol_boot_fail(boot, status, "%s", text);
    default:
        return SOL_ERR_PEER;
    }
}

/* Says hello on a connected socket and listens until it is decided. *again: worth another try. */
static sol_status_t say_hello(caller_t *c, int fd, int host_pid, bool *again)
{
    sol_boot_t *boot = c->boot;
    sol_boot_head_t head = {.magic = SOL_BOOT_MAGIC,
                            .type = SOL_BOOT_HELLO,
                            .bytes = sizeof(c->hello),
                            .total = sizeof(c->hello)};
    bool done = false;
    sol_status_t status = sol_boot_send(fd, &c->wait, &head, &c->hello, NULL, 0);
    while (status == SOL_OK && !done) {
        struct pollfd fds[2] = {{.fd = -1}, {.fd = fd, .events = POLLIN}};
        uint64_t tick = c->config->absent != NULL ? sol_now_ns() + LOOK_NS : 0;
        status = sol_boot_poll(&c->wait, fds, 1, tick);
        if (status == SOL_OK && fds[1].revents != 0) {
            status = hear_host(c, fd, &done);
        } else if (status == SOL_OK) { /* (after what it has said: that is nearer to the cause) */
            status = look_for_host(c, sol_now_ns());
        }
    }
    if (status == SOL_OK) {
        boot->pids[0] = host_pid; /* as the kernel says; the others' as it said to rank 0 */
        boot->sockets[0] = fd;
        return SOL_OK;
    }
    if (boot->broken != SOL_OK) {
        sol_boot_send_verdict(fd, boot->broken, boot->why); /* (rank 0's own, it does not read) */
        return boot->broken;
    }
    if (status != SOL_ERR_PEER) {
        char text[96];
        snprintf(text, sizeof(text), "rank %d gave up while the ranks were joining: %s", boot->rank,
                 sol_status_string(status));
        sol_boot_send_verdict(fd, status, text);
        return caller_failed(c, status, "hello");
    }
    if (c->accepted) {
        return sol_boot_fail(boot, SOL_ERR_PEER,
                             "rank 0 (process %d) died while the ranks were joining", host_pid);
    }
    *again = true;
    return SOL_OK;
}

/* One attempt. *again: nobody there yet. */
static sol_status_t call_once(caller_t *c, bool *again)
{
    *again = false;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return sol_boot_fail(c->boot, SOL_ERR_SYSTEM, "socket: %s", strerror(errno));
    }
    sol_status_t status = SOL_OK;
    int pid = 0;
    if (connect(fd, (struct sockaddr *)&c->address, c->address_bytes) != 0) {
        int error = errno;
        *again = error == ECONNREFUSED || error == EAGAIN || error == EINTR;
        if (!*again) {
            status = sol_boot_fail(c->boot, SOL_ERR_SYSTEM, "connect: %s", strerror(error));
        }
    } else if (!sol_boot_same_user(fd, &pid, &c->stranger)) {
        c->has_stranger = true;
        *again = true;
    } else {
        status = say_hello(c, fd, pid, again);
    }
    if (c->boot->sockets[0] != fd) {
        close(fd);
    }
    return status;
}

static sol_status_t call_host(caller_t *c)
{
    bool again;
    sol_status_t status = call_once(c, &again);
    while (status == SOL_OK && again) {
        status = back_off(c);
        if (status == SOL_OK) {
            status = call_once(c, &again);
        }
    }
    return status;
}

/* --------------------------------------------------------------------------- both */

/* The listening socket, or -1: *error is EADDRINUSE where somebody is already there. */
static int listen_at(const caller_t *c, int *error)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&c->address, c->address_bytes) == 0 &&
        listen(fd, 1024) == 0) {
        return fd;
    }
    *error = errno;
    if (fd >= 0) {
        close(fd);
    }
    return -1;
}

/*
 * Rank 0 takes the address. Where it is taken, a second rank 0 is there (or one that is just
 * leaving): this one calls like any other rank, is told so, and with it everybody else.
 */
static sol_status_t join_as_host(caller_t *c)
{
    for (;;) {
        int error = 0;
        int listener = listen_at(c, &error);
        if (listener >= 0) {
            sol_status_t status = host(c->boot, c->config, &c->hello, listener, c->wait);
            close(listener);
            return status;
        }
        if (error != EADDRINUSE) {
            return sol_boot_fail(c->boot, SOL_ERR_SYSTEM, "listening for the other ranks: %s",
                                 strerror(error));
        }
        bool again;
        sol_status_t status = call_once(c, &again);
        if (status == SOL_OK) {
            status = back_off(c);
        }
        if (status != SOL_OK) {
            return status;
        }
    }
}

sol_status_t sol_boot_join(sol_boot_t *boot, const sol_boot_config_t *config)
{
    sol_id_content_t content;
    const char *wrong = sol_id_read(config->id, &content);
    if (wrong != NULL) {
        return sol_boot_fail(boot, SOL_ERR_ARGUMENT, "id %s", wrong);
    }
    caller_t c = {.boot = boot,
                  .config = config,
                  .hello = hello_of(config, content.secret),
                  .wait = sol_boot_wait_from_now(boot),
                  .started_ns = sol_now_ns(),
                  .retry_ns = RETRY_FIRST_NS};
    c.address_bytes = sol_boot_address(content.secret, &c.address);
    boot->pids[boot->rank] = (int)getpid();
    return boot->rank == 0 ? join_as_host(&c) : call_host(&c);
}
