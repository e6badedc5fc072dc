/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_wire.h: the records that ranks exchange over boot's sockets, and the
 * bounded ways to move one. Shared by boot_join.c (coming together) and boot.c
 * (exchanges afterwards); nobody else includes it.
 *
 * Sockets are AF_UNIX SOCK_SEQPACKET: a record arrives whole or not at all, so
 * there is no half-read state, and a malformed record is one record lost, not
 * a stream out of step. Every record starts with sol_boot_head_t. Nothing here
 * trusts a length, a type or a text that came from outside.
 */
#ifndef SOL_CORE_BOOT_WIRE_H
#define SOL_CORE_BOOT_WIRE_H

#include "core/boot.h"
#include "core/unique_id.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>

#define SOL_BOOT_MAGIC 0x4c4f5342u /* "BSOL" in memory */
#define SOL_BOOT_CHUNK 16384u      /* payload of one record; far below any default socket buffer */
#define SOL_BOOT_TEXT 900u

typedef enum {
    SOL_BOOT_HELLO = 1,    /* a rank to rank 0: who it is, with the secret */
    SOL_BOOT_PROGRESS = 2, /* rank 0: a mask of the ranks that have come; the first one says "you
                              are in" */
    SOL_BOOT_WELCOME = 3,  /* rank 0: all have come; sol_boot_welcome_t */
    SOL_BOOT_VERDICT = 4,  /* either way: it has failed; status and text */
    SOL_BOOT_GATHER = 5,   /* a piece of an all_gather */
    SOL_BOOT_FDS = 6,      /* descriptors, with a flag for each place whether it holds one */
    SOL_BOOT_SHRINK = 7,   /* shrink.c: a survivor: who it is, with the key */
    SOL_BOOT_ROLL = 8      /* shrink.c: back to it: who is in, and the new id */
} sol_boot_type_t;

typedef struct sol_boot_head {
    uint32_t magic;
    uint32_t type;
    uint32_t step;  /* number of the exchange, from 1; 0 while joining */
    uint32_t bytes; /* of payload in this record */
    uint32_t total; /* bytes (or descriptors) of the whole message */
} sol_boot_head_t;

typedef struct sol_boot_record {
    sol_boot_head_t head;
    unsigned char payload[SOL_BOOT_CHUNK];
    int fds[SOL_BOOT_MAX_FDS];
    int nfds;
} sol_boot_record_t;

/* The layout up to `secret` is the same in every version, so that any two can tell each other. */
typedef struct sol_boot_hello {
    uint32_t version; /* SOL_VERSION */
    uint32_t reserved;
    unsigned char secret[SOL_ID_SECRET_BYTES];
    int32_t nranks, rank, backend;
} sol_boot_hello_t;

/* Of rank 0: which namespace its pids are of, and the pid of each rank in there (nranks). */
typedef struct sol_boot_welcome {
    uint64_t pid_space;
    int pids[SOL_MAX_RANKS];
} sol_boot_welcome_t;

typedef struct sol_boot_verdict {
    int32_t status;
    char text[SOL_BOOT_TEXT];
} sol_boot_verdict_t;

/* What ends a wait besides its event. */
typedef struct sol_boot_wait {
    uint64_t deadline_ns;
    int interrupt_fd; /* readable: interrupted */
    const _Atomic int *abort_flag;
} sol_boot_wait_t;

struct sol_boot {
    int rank, nranks;
    int timeout_ms;
    const _Atomic int *abort_flag;
    int interrupt_fd;
    _Atomic int interrupted;
    int sockets[SOL_MAX_RANKS]; /* rank 0: to each other rank; others: [0] only; -1 where none */
    int pids[SOL_MAX_RANKS];
    uint32_t step;
    sol_status_t broken; /* first failure; every later exchange returns it with `why` */
    char why[SOL_BOOT_TEXT];
    sol_boot_record_t record; /* scratch of the thread that is in an exchange */
};

sol_boot_wait_t sol_boot_wait_from_now(const sol_boot_t *boot);

/*
 * Wait until one of fds[1..n] is ready; fds[0] belongs to this function. `until_ns` cuts the wait
 * short without failing (0: the deadline alone counts). OK (also when cut short), TIMEOUT, ABORTED
 * or SYSTEM (errno).
 */
sol_status_t sol_boot_poll(const sol_boot_wait_t *wait, struct pollfd *fds, int n,
                           uint64_t until_ns);

/*
 * Send one record, whole. `fds` may be NULL. OK, TIMEOUT, ABORTED, PEER (the other end is gone) or
 * SYSTEM (errno).
 */
sol_status_t sol_boot_send(int fd, const sol_boot_wait_t *wait, const sol_boot_head_t *head,
                           const void *payload, const int *fds, int nfds);

/* Never waits. 1: `record` is filled; 0: nothing there; -1: the other end is gone; -2: malformed
 * (descriptors that came with it are closed). Descriptors are only taken where `take_fds`. */
int sol_boot_receive(int fd, sol_boot_record_t *record, bool take_fds);

/* Tell the other end that it has failed; one try, never waits. */
void sol_boot_send_verdict(int fd, sol_status_t status, const char *text);
/* The verdict in a record: its status (never SOL_OK) and its text, made safe to print. */
sol_status_t sol_boot_read_verdict(const sol_boot_record_t *record, char text[SOL_BOOT_TEXT]);

void sol_boot_close_fds(int *fds, int count);

/* Is the other end of this socket the same user? `pid` and `uid` are set where the kernel says. */
bool sol_boot_same_user(int fd, int *pid, unsigned *uid);

/* The address that a secret stands for; gives its length. */
socklen_t sol_boot_address(const unsigned char secret[SOL_ID_SECRET_BYTES],
                           struct sockaddr_un *address);

/* boot.c: make `boot` fail for good: keeps the text, tells the other ranks that are connected, and
 * sets the thread error. Returns `status`. The first one wins. */
sol_status_t sol_boot_fail(sol_boot_t *boot, sol_status_t status, const char *format, ...)
    SOL_PRINTF(3, 4);
/* "1, 2 and 5" of a mask of ranks. */
void sol_boot_name_ranks(uint64_t mask, char *text, size_t bytes);

/* boot_join.c: connect the star. */
sol_status_t sol_boot_join(sol_boot_t *boot, const sol_boot_config_t *config);

#endif
