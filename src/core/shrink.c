/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shrink.c: going on without the ranks that are gone. The survivors meet anew,
 * agree who is there, and make a communicator of their own.
 *
 *     first to come            the others
 *     bind, listen             EADDRINUSE: connect; same user?
 *     <---------------------- HELLO (key, rank, whom it excludes)
 *     everybody is here, gone or excluded?  or the time is up and enough are here
 *     ROLL (who is in, new id) ---------->   all: sol_comm_make, ranks in the old order
 *
 * The meeting place is one socket address, derived from the old communicator's
 * secret: whoever binds it first keeps the roll, so the kernel elects, and if
 * that rank dies the address is free again and the rest meet anew. Nothing of
 * the old communicator is used but its secret, its pids and what the backend
 * knows of who has left: it may be broken in any way.
 *
 * A rank that is gone for certain, as one of those that are here can see, is not waited for. One
 * that lives and does not come (stopped, hung) is left out when the time is up, but only by more
 * than half of those that live (or by half with the lowest rank): two parts of one job can never
 * both go on.
 *
 * Never waits past its deadline; never trusts a length or a rank it was sent.
 */
#include "base/sha256.h"
#include "core/boot_wire.h"
#include "core/use.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS 2000000u     /* between looks at who is gone, ... */
#define TELL_NS 20000000u    /* ... and of those who tell the one who keeps the roll */
#define RETRY_NS 300000u     /* between tries to find the one who keeps the roll */
#define LATE_NS 1000000000u  /* how much longer the others wait than who keeps the roll */
#define SILENT_NS 500000000u /* how long a connection may say nothing */
#define STRANGERS 16         /* connections that have not said hello */

typedef struct shrink_hello {
    uint32_t version;
    int32_t rank, nranks;
    uint32_t reserved;
    uint64_t exclude, gone; /* gone as far as it can tell: not every rank can see every other */
    unsigned char key[SOL_ID_SECRET_BYTES];
} shrink_hello_t;

typedef struct roll {
    uint64_t here;
    sol_unique_id_t id;
} roll_t;

typedef struct meeting {
    sol_comm_t comm;
    uint64_t exclude, here, gone;
    uint64_t others; /* ranks that have gone on without this one */
    sol_boot_wait_t wait;
    unsigned char key[SOL_ID_SECRET_BYTES];
    struct sockaddr_un address;
    socklen_t address_bytes;
    int listener;
    int sockets[SOL_MAX_RANKS]; /* of ranks that are here; -1 */
    struct {
        int fd;
        uint64_t since_ns;
    } strangers[STRANGERS];
    int nstrangers;
    sol_boot_record_t record;
} meeting_t;

static uint64_t all_ranks(int nranks)
{
    return nranks == 64 ? UINT64_MAX : ((uint64_t)1 << nranks) - 1;
}

/* ------------------------------------------------------------------------ who is gone */

/* Has `rank` shrunk the communicator to ranks of which this one is none? It says so before it
 * leaves: whoever comes to a shrink that is over must not take the others for gone, and go on too.
 */
static bool went_on_without_us(const meeting_t *m, int rank)
{
    const sol_backend_t *backend = m->comm->backend;
    uint64_t ranks = backend->shrunk != NULL ? backend->shrunk(m->comm, rank) : 0;
    return ranks != 0 && (ranks >> m->comm->rank & 1) == 0;
}

static void look_who_is_gone(meeting_t *m)
{
    for (int r = 0; r < m->comm->nranks; r++) {
        uint64_t bit = (uint64_t)1 << r;
        if (((m->here | m->gone | m->exclude) & bit) == 0 && sol_comm_gone(m->comm, r)) {
            m->gone |= bit;
        }
        m->others |= went_on_without_us(m, r) ? bit : 0;
    }
}

static sol_status_t left_out(const meeting_t *m)
{
    char names[256];
    sol_boot_name_ranks(m->others, names, sizeof(names));
    return sol_thread_error(SOL_ERR_PEER, "sol_comm_shrink: %s went on without this rank", names);
}

/* ------------------------------------------------------------------------ the roll */

static bool complete(const meeting_t *m)
{
    return ((m->here | m->gone | m->exclude) & all_ranks(m->comm->nranks)) ==
           all_ranks(m->comm->nranks);
}

/* May those that are here go on without those that live elsewhere? */
static bool enough(const meeting_t *m)
{
    uint64_t alive = all_ranks(m->comm->nranks) & ~(m->gone | m->exclude);
    int here = __builtin_popcountll(m->here), all = __builtin_popcountll(alive);
    return 2 * here > all || (2 * here == all && (m->here & alive & (0 - alive)) != 0);
}

static void refuse(meeting_t *m, int fd, sol_status_t status, const char *why)
{
    (void)m;
    sol_boot_send_verdict(fd, status, why);
    close(fd);
}

/* Is what lies in m->record a hello of somebody who has the key? */
static bool read_hello(const meeting_t *m, shrink_hello_t *hello)
{
    unsigned char different = 0;
    if (m->record.head.type != SOL_BOOT_SHRINK || m->record.head.bytes != sizeof(*hello)) {
        return false;
    }
    memcpy(hello, m->record.payload, sizeof(*hello));
    for (int i = 0; i < SOL_ID_SECRET_BYTES; i++) {
        different |= (unsigned char)(hello->key[i] ^ m->key[i]);
    }
    return different == 0;
}

/* Who is gone by what `rank` says; those that are here are not. */
static void take_gone(meeting_t *m, int rank, uint64_t gone)
{
    m->gone |= gone & all_ranks(m->comm->nranks) & ~(m->here | (uint64_t)1 << rank);
}

/* A hello in m->record from `fd`: it joins or is turned away. */
static void take_hello(meeting_t *m, int fd)
{
    shrink_hello_t hello = {.version = 0};
    if (!read_hello(m, &hello)) {
        close(fd);
        return;
    }
    if (hello.version != SOL_VERSION || hello.nranks != m->comm->nranks || hello.rank < 0 ||
        hello.rank >= hello.nranks || m->sockets[hello.rank] >= 0 || hello.rank == m->comm->rank) {
        refuse(m, fd, SOL_ERR_MISMATCH, "the ranks that shrink do not fit each other");
        return;
    }
    m->exclude |= hello.exclude & ~((uint64_t)1 << hello.rank);
    m->sockets[hello.rank] = fd;
    m->here |= (uint64_t)1 << hello.rank;
    m->gone &= ~((uint64_t)1 << hello.rank);
    take_gone(m, hello.rank, hello.gone);
}

/* Those that somebody excludes are told, also if they had come already. */
static void turn_away(meeting_t *m)
{
    for (uint64_t left = m->here & m->exclude; left != 0; left &= left - 1) {
        int r = __builtin_ctzll(left);
        m->here &= ~((uint64_t)1 << r);
        if (m->sockets[r] >= 0) {
            refuse(m, m->sockets[r], SOL_ERR_PEER, "another rank has excluded this one");
            m->sockets[r] = -1;
        }
    }
}

static void accept_all(meeting_t *m)
{
    for (;;) {
        int pid, fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        unsigned uid;
        if (fd < 0) {
            return;
        }
        if (m->nstrangers == STRANGERS || !sol_boot_same_user(fd, &pid, &uid)) {
            close(fd);
            continue;
        }
        m->strangers[m->nstrangers].fd = fd;
        m->strangers[m->nstrangers++].since_ns = sol_now_ns();
    }
}

static void hear_strangers(meeting_t *m, uint64_t now)
{
    for (int i = m->nstrangers - 1; i >= 0; i--) {
        int fd = m->strangers[i].fd;
        int got = sol_boot_receive(fd, &m->record, false);
        if (got == 0 && now - m->strangers[i].since_ns < SILENT_NS) {
            continue;
        }
        m->strangers[i] = m->strangers[--m->nstrangers];
        if (got == 1) {
            take_hello(m, fd);
        } else {
            close(fd);
        }
    }
}

/* One that had come and whose line ends, is not here any more. One that says more has seen that
 * another one is gone. */
static void hear_members(meeting_t *m)
{
    for (int r = 0; r < m->comm->nranks; r++) {
        shrink_hello_t hello;
        int got = m->sockets[r] >= 0 ? sol_boot_receive(m->sockets[r], &m->record, false) : 0;
        if (got == 1 && read_hello(m, &hello) && hello.rank == r) {
            take_gone(m, r, hello.gone);
        } else if (got != 0) {
            close(m->sockets[r]);
            m->sockets[r] = -1;
            m->here &= ~((uint64_t)1 << r);
        }
    }
}

static sol_status_t gather(meeting_t *m)
{
    uint64_t next_look = 0;
    sol_status_t status = SOL_OK;
    while (status == SOL_OK && !complete(m)) {
        struct pollfd fds[2 + STRANGERS + SOL_MAX_RANKS];
        uint64_t now = sol_now_ns();
        int n = 1;
        if (now >= next_look) {
            look_who_is_gone(m);
            next_look = now + LOOK_NS;
            if (complete(m) || m->others != 0) {
                break;
            }
        }
        fds[n++] = (struct pollfd){.fd = m->listener, .events = POLLIN};
        for (int i = 0; i < m->nstrangers; i++) {
            fds[n++] = (struct pollfd){.fd = m->strangers[i].fd, .events = POLLIN};
        }
        for (int r = 0; r < m->comm->nranks; r++) {
            fds[n++] = (struct pollfd){.fd = m->sockets[r], .events = POLLIN};
        }
        status = sol_boot_poll(&m->wait, fds, n - 1, next_look);
        accept_all(m);
        hear_strangers(m, sol_now_ns());
        hear_members(m);
        turn_away(m);
    }
    return status == SOL_ERR_TIMEOUT && enough(m) ? SOL_OK : status;
}

static sol_status_t send_roll(meeting_t *m, roll_t *roll)
{
    sol_boot_head_t head = {
        .magic = SOL_BOOT_MAGIC, .type = SOL_BOOT_ROLL, .bytes = sizeof(*roll), .total = 0};
    sol_status_t status = sol_get_unique_id(&roll->id);
    roll->here = m->here;
    for (int r = 0; r < m->comm->nranks && status == SOL_OK; r++) {
        if (m->sockets[r] >= 0) { /* one that dies now is missed when the communicator is made */
            (void)sol_boot_send(m->sockets[r], &m->wait, &head, roll, NULL, 0);
        }
    }
    return status;
}

/* Nothing comes of it. */
static void tell_all(const meeting_t *m, sol_status_t status, const char *text)
{
    for (int r = 0; r < m->comm->nranks; r++) {
        if (m->sockets[r] >= 0) {
            sol_boot_send_verdict(m->sockets[r], status, text);
        }
    }
}

static sol_status_t explain_absence(meeting_t *m, sol_status_t status)
{
    char names[256], text[SOL_BOOT_TEXT];
    uint64_t missing = all_ranks(m->comm->nranks) & ~(m->here | m->gone | m->exclude);
    if (status == SOL_ERR_TIMEOUT) {
        sol_boot_name_ranks(missing, names, sizeof(names));
        snprintf(text, sizeof(text),
                 "sol_comm_shrink: %s did not come but may be alive, and the %d that came are not "
                 "more than half: exclude them, or wait for them",
                 names, __builtin_popcountll(m->here));
    } else {
        snprintf(text, sizeof(text), "sol_comm_shrink: %s", strerror(errno));
    }
    tell_all(m, status, text);
    return sol_thread_error(status, "%s", text);
}

/* This rank keeps the roll. */
static sol_status_t keep_roll(meeting_t *m, roll_t *roll)
{
    m->here = (uint64_t)1 << m->comm->rank;
    sol_status_t status = gather(m);
    look_who_is_gone(m);
    if (m->others != 0) {
        status = left_out(m);
        tell_all(m, status, sol_thread_error_text());
    } else if (status != SOL_OK) {
        status = explain_absence(m, status);
    } else if ((m->here >> m->comm->rank & 1) == 0) {
        status =
            sol_thread_error(SOL_ERR_PEER, "sol_comm_shrink: another rank has excluded this one");
    } else {
        status = send_roll(m, roll);
    }
    for (int r = 0; r < m->comm->nranks; r++) {
        if (m->sockets[r] >= 0) {
            close(m->sockets[r]);
            m->sockets[r] = -1;
        }
    }
    while (m->nstrangers > 0) {
        close(m->strangers[--m->nstrangers].fd);
    }
    close(m->listener);
    return status;
}

/* ------------------------------------------------------------------------ the others */

/* *done: `roll` has come, or the meeting has failed. Otherwise it was nobody of ours, or it died.
 */
static sol_status_t hear_keeper(meeting_t *m, int fd, roll_t *roll, bool *done)
{
    char text[SOL_BOOT_TEXT];
    int got = sol_boot_receive(fd, &m->record, false);
    if (got == 0) {
        return SOL_OK;
    }
    if (got == 1 && m->record.head.type == SOL_BOOT_ROLL && m->record.head.bytes == sizeof(*roll)) {
        memcpy(roll, m->record.payload, sizeof(*roll));
        bool mine = (roll->here >> m->comm->rank & 1) != 0 &&
                    (roll->here & ~all_ranks(m->comm->nranks)) == 0;
        *done = mine;
        return mine ? SOL_OK : SOL_ERR_PEER;
    }
    if (got == 1 && m->record.head.type == SOL_BOOT_VERDICT) {
        sol_status_t status = sol_boot_read_verdict(&m->record, text);
        *done = true;
        return sol_thread_error(status, "%s", text);
    }
    return SOL_ERR_PEER;
}

static sol_status_t say_hello(meeting_t *m, int fd)
{
    shrink_hello_t hello = {.version = SOL_VERSION,
                            .rank = m->comm->rank,
                            .nranks = m->comm->nranks,
                            .exclude = m->exclude,
                            .gone = m->gone};
    sol_boot_head_t head = {.magic = SOL_BOOT_MAGIC,
                            .type = SOL_BOOT_SHRINK,
                            .bytes = sizeof(hello),
                            .total = sizeof(hello)};
    memcpy(hello.key, m->key, sizeof(hello.key));
    return sol_boot_send(fd, &m->wait, &head, &hello, NULL, 0);
}

/* Says who it is and, while it listens, whom it sees go. */
static sol_status_t attend(meeting_t *m, int fd, roll_t *roll, bool *done)
{
    look_who_is_gone(m);
    sol_status_t status = say_hello(m, fd);
    while (status == SOL_OK && !*done) {
        struct pollfd fds[2] = {{.fd = -1}, {.fd = fd, .events = POLLIN}};
        uint64_t known = m->gone;
        status = sol_boot_poll(&m->wait, fds, 1, sol_now_ns() + TELL_NS);
        if (status == SOL_OK && fds[1].revents != 0) {
            status = hear_keeper(m, fd, roll, done);
            continue;
        }
        look_who_is_gone(m);
        if (m->others != 0) {
            *done = true;
            return left_out(m);
        }
        if (status == SOL_OK && m->gone != known) {
            status = say_hello(m, fd);
        }
    }
    return status;
}

/* One try at each part. *done as above. SOL_OK without it: try again. */
static sol_status_t try_once(meeting_t *m, roll_t *roll, bool *done)
{
    int pid, fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    unsigned uid;
    if (fd < 0) {
        *done = true;
        return sol_thread_error(SOL_ERR_SYSTEM, "sol_comm_shrink: socket: %s", strerror(errno));
    }
    if (bind(fd, (struct sockaddr *)&m->address, m->address_bytes) == 0 && listen(fd, 128) == 0) {
        m->listener = fd;
        m->wait.deadline_ns -= LATE_NS;
        *done = true;
        return keep_roll(m, roll);
    }
    close(fd); /* (one that failed to bind may be bound half) */
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        *done = true;
        return sol_thread_error(SOL_ERR_SYSTEM, "sol_comm_shrink: socket: %s", strerror(errno));
    }
    sol_status_t status = SOL_ERR_PEER;
    if (connect(fd, (struct sockaddr *)&m->address, m->address_bytes) == 0 &&
        sol_boot_same_user(fd, &pid, &uid)) {
        status = attend(m, fd, roll, done);
    }
    close(fd);
    return status == SOL_ERR_PEER && !*done ? SOL_OK : status;
}

static sol_status_t meet(meeting_t *m, roll_t *roll)
{
    bool done = false;
    sol_status_t status = try_once(m, roll, &done);
    while (status == SOL_OK && !done) {
        struct pollfd none[1];
        status = sol_boot_poll(&m->wait, none, 0, sol_now_ns() + RETRY_NS);
        if (status == SOL_OK) {
            status = try_once(m, roll, &done);
        }
    }
    if (status == SOL_ERR_TIMEOUT && !done) {
        return sol_thread_error(status, "sol_comm_shrink: timed out: the ranks could not meet");
    }
    return status;
}

/* ------------------------------------------------------------------------ the call */

static void derive_key(sol_comm_t comm, unsigned char key[SOL_ID_SECRET_BYTES])
{
    static const char purpose[] = "solccl shrink";
    sol_sha256_t hash;
    sol_sha256_start(&hash);
    sol_sha256_add(&hash, purpose, sizeof(purpose));
    sol_sha256_add(&hash, comm->id.bytes, sizeof(comm->id.bytes));
    sol_sha256_end(&hash, key);
}

static sol_status_t shrink(sol_comm_t comm, uint64_t exclude, sol_comm_setup_t *setup,
                           sol_comm_t *made)
{
    roll_t roll;
    meeting_t *m = sol_calloc(1, sizeof(*m));
    if (m == NULL) {
        return sol_thread_error(SOL_ERR_MEMORY, "sol_comm_shrink: no memory");
    }
    m->comm = comm;
    m->exclude = exclude & all_ranks(comm->nranks);
    m->wait = (sol_boot_wait_t){.deadline_ns =
                                    sol_now_ns() + (uint64_t)setup->timeout_ms * 1000000u + LATE_NS,
                                .interrupt_fd = -1};
    for (int r = 0; r < SOL_MAX_RANKS; r++) {
        m->sockets[r] = -1;
    }
    derive_key(comm, m->key);
    m->address_bytes = sol_boot_address(m->key, &m->address);
    sol_status_t status = meet(m, &roll);
    sol_free(m);
    if (status != SOL_OK) {
        return status;
    }
    setup->id = roll.id;
    setup->nranks = __builtin_popcountll(roll.here);
    setup->rank = __builtin_popcountll(roll.here & (((uint64_t)1 << comm->rank) - 1));
    setup->parent = comm;
    for (int r = 0, n = 0; r < comm->nranks; r++) {
        if ((roll.here >> r & 1) != 0) {
            setup->parent_ranks[n++] = (signed char)(r + 1);
        }
    }
    status = sol_comm_make(setup, made);
    if (status == SOL_OK && comm->backend->note_shrunk != NULL) {
        comm->backend->note_shrunk(comm, roll.here);
    }
    return status;
}

static sol_status_t check_shrink(sol_comm_t comm, uint64_t exclude, sol_comm_t *result)
{
    static const char who[] = "sol_comm_shrink";
    sol_status_t status = sol_comm_valid(comm, who);
    if (status != SOL_OK) {
        return status;
    }
    if (result == NULL) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "%s: result is NULL", who);
    }
    if ((exclude >> comm->rank & 1) != 0) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "%s: exclude holds this rank itself", who);
    }
    if (sol_group_depth > 0) {
        return sol_comm_error(comm, SOL_ERR_STATE, "%s: not between sol_group_start and _end", who);
    }
    return SOL_OK;
}

sol_status_t sol_comm_shrink(sol_comm_t comm, uint64_t exclude, sol_comm_t *result,
                             const sol_comm_config_t *config)
{
    sol_comm_setup_t setup = {.nranks = 0};
    sol_comm_t made = NULL;
    sol_status_t status = check_shrink(comm, exclude, result);
    if (status == SOL_OK) {
        sol_comm_inherit(comm, &setup);
        status = config != NULL ? sol_comm_setup_read(&setup, config, "sol_comm_shrink") : SOL_OK;
    }
    if (status != SOL_OK) {
        return status;
    }
    if (!sol_use_begin(comm)) {
        return sol_use_refused(comm, "sol_comm_shrink");
    }
    status = shrink(comm, exclude, &setup, &made);
    sol_use_end();
    if (status == SOL_OK) {
        *result = made;
    }
    return status;
}
