/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_wire.c: moving one record, or failing in bounded time. Knows nothing of
 * ranks. All sockets are non-blocking and close-on-exec; no call here raises
 * SIGPIPE.
 */
#include "core/boot_wire.h"

#include "base/sha256.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ABORT_TICK_NS 20000000u /* how late abort_flag, which has no descriptor, may be seen */

sol_boot_wait_t sol_boot_wait_from_now(const sol_boot_t *boot)
{
    return (sol_boot_wait_t){.deadline_ns = sol_now_ns() + (uint64_t)boot->timeout_ms * 1000000u,
                             .interrupt_fd = boot->interrupt_fd,
                             .abort_flag = boot->abort_flag};
}

static bool aborted(const sol_boot_wait_t *wait)
{
    return wait->abort_flag != NULL && atomic_load(wait->abort_flag) != 0;
}

sol_status_t sol_boot_poll(const sol_boot_wait_t *wait, struct pollfd *fds, int n,
                           uint64_t until_ns)
{
    fds[0] = (struct pollfd){.fd = wait->interrupt_fd, .events = POLLIN};
    for (;;) {
        if (aborted(wait)) {
            return SOL_ERR_ABORTED;
        }
        uint64_t now = sol_now_ns();
        uint64_t end = wait->deadline_ns;
        if (until_ns != 0 && until_ns < end) {
            end = until_ns;
        }
        uint64_t step = end > now ? end - now : 0; /* 0: still look once */
        if (wait->abort_flag != NULL && step > ABORT_TICK_NS) {
            step = ABORT_TICK_NS;
        }
        struct timespec timeout = {.tv_sec = (time_t)(step / 1000000000u),
                                   .tv_nsec = (long)(step % 1000000000u)};
        int ready = ppoll(fds, (nfds_t)n + 1, &timeout, NULL);
        if (ready < 0 && errno != EINTR) {
            return SOL_ERR_SYSTEM;
        }
        if (ready > 0) {
            return fds[0].revents != 0 ? SOL_ERR_ABORTED : SOL_OK;
        }
        if (sol_now_ns() >= end) {
            return end == wait->deadline_ns ? SOL_ERR_TIMEOUT : SOL_OK;
        }
    }
}

/* One sendmsg; 0 or errno. */
static int send_once(int fd, const sol_boot_head_t *head, const void *payload, const int *fds,
                     int nfds)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * SOL_BOOT_MAX_FDS)];
    } control;
    struct iovec parts[2] = {{.iov_base = (void *)(uintptr_t)head, .iov_len = sizeof(*head)},
                             {.iov_base = (void *)(uintptr_t)payload, .iov_len = head->bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = head->bytes > 0 ? 2 : 1};
    if (nfds > 0) {
        size_t length = sizeof(int) * (size_t)nfds;
        memset(&control, 0, sizeof(control));
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(length);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(length);
        memcpy(CMSG_DATA(rights), fds, length);
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0;
}

sol_status_t sol_boot_send(int fd, const sol_boot_wait_t *wait, const sol_boot_head_t *head,
                           const void *payload, const int *fds, int nfds)
{
    for (;;) {
        struct pollfd polled[2] = {{.fd = -1}, {.fd = fd, .events = POLLOUT}};
        sol_status_t status = SOL_OK;
        int error = send_once(fd, head, payload, fds, nfds);
        switch (error) {
        case 0:
            return SOL_OK;
        case EINTR:
            break;
        case EAGAIN:
        case ENOBUFS:
            status = sol_boot_poll(wait, polled, 1, 0);
            break;
        case ETOOMANYREFS: /* the user's limit of descriptors in flight: others have to read */
            status = sol_boot_poll(wait, polled, 0, sol_now_ns() + 1000000u);
            break;
        case EPIPE:
        case ECONNRESET:
        case ENOTCONN:
            return SOL_ERR_PEER;
        default:
            errno = error;
            return SOL_ERR_SYSTEM;
        }
        if (status != SOL_OK) {
            return status;
        }
    }
}

void sol_boot_close_fds(int *fds, int count)
{
    for (int i = 0; i < count; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
            fds[i] = -1;
        }
    }
}

/* Takes the descriptors out of a message; -1 if some were lost on the way. */
static int take_rights(struct msghdr *message, sol_boot_record_t *record)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        int count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        if (count > SOL_BOOT_MAX_FDS - record->nfds) {
            count = SOL_BOOT_MAX_FDS - record->nfds; /* the kernel sends no more than that */
        }
        memcpy(record->fds + record->nfds, CMSG_DATA(c), sizeof(int) * (size_t)count);
        record->nfds += count;
    }
    return (message->msg_flags & MSG_CTRUNC) != 0 ? -1 : 0;
}

int sol_boot_receive(int fd, sol_boot_record_t *record, bool take_fds)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * SOL_BOOT_MAX_FDS)];
    } control;
    struct iovec parts[2] = {{.iov_base = &record->head, .iov_len = sizeof(record->head)},
                             {.iov_base = record->payload, .iov_len = sizeof(record->payload)}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    if (take_fds) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
    }
    record->nfds = 0;
    ssize_t got;
    int resets = 0;
    do { /* a reset is reported once; what the other end had said before can still be read */
        got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && (errno == EINTR || (errno == ECONNRESET && resets++ == 0)));
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return 0;
    }
    if (got <= 0) {
        return -1;
    }
    bool lost = take_fds && take_rights(&message, record) != 0;
    if (lost || (size_t)got < sizeof(record->head) || (message.msg_flags & MSG_TRUNC) != 0 ||
        record->head.magic != SOL_BOOT_MAGIC ||
        record->head.bytes != (size_t)got - sizeof(record->head)) {
        sol_boot_close_fds(record->fds, record->nfds);
        record->nfds = 0;
        return -2;
    }
    return 1;
}

void sol_boot_send_verdict(int fd, sol_status_t status, const char *text)
{
    sol_boot_verdict_t verdict = {.status = status};
    snprintf(verdict.text, sizeof(verdict.text), "%s", text);
    sol_boot_head_t head = {.magic = SOL_BOOT_MAGIC,
                            .type = SOL_BOOT_VERDICT,
                            .bytes = sizeof(verdict),
                            .total = sizeof(verdict)};
    if (send_once(fd, &head, &verdict, NULL, 0) != 0) {
        sol_log(SOL_LOG_DEBUG, "a rank could not be told: %s", text);
    }
}

sol_status_t sol_boot_read_verdict(const sol_boot_record_t *record, char text[SOL_BOOT_TEXT])
{
    sol_boot_verdict_t verdict = {.status = SOL_ERR_PEER};
    size_t bytes = record->head.bytes < sizeof(verdict) ? record->head.bytes : sizeof(verdict);
    memcpy(&verdict, record->payload, bytes);
    verdict.text[sizeof(verdict.text) - 1] = '\0';
    snprintf(text, SOL_BOOT_TEXT, "%s", verdict.text);
    bool known = verdict.status <= SOL_ERR_ARGUMENT && verdict.status >= SOL_ERR_INTERNAL;
    return known ? (sol_status_t)verdict.status : SOL_ERR_PEER;
}

bool sol_boot_same_user(int fd, int *pid, unsigned *uid)
{
    struct ucred peer = {.pid = 0, .uid = (uid_t)-1, .gid = (gid_t)-1};
    socklen_t length = sizeof(peer);
    bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
    *pid = (int)peer.pid;
    *uid = (unsigned)peer.uid;
    return known && peer.uid == geteuid();
}

socklen_t sol_boot_address(const unsigned char secret[SOL_ID_SECRET_BYTES],
                           struct sockaddr_un *address)
{
    static const char purpose[] = "solccl rendezvous";
    unsigned char digest[SOL_SHA256_BYTES];
    sol_sha256_t hash;
    sol_sha256_start(&hash);
    sol_sha256_add(&hash, purpose, sizeof(purpose));
    sol_sha256_add(&hash, secret, SOL_ID_SECRET_BYTES);
    sol_sha256_end(&hash, digest);

    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    char *name = address->sun_path + 1; /* a first byte of 0: abstract, no file */
    int length = snprintf(name, sizeof(address->sun_path) - 1, "solccl-");
    for (int i = 0; i < 16; i++) {
        length += snprintf(name + length, sizeof(address->sun_path) - 1 - (size_t)length, "%02x",
                           digest[i]);
    }
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}
