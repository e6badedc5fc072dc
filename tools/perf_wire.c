/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_wire.c: packets between the perf driver and its workers (see perf_wire.h).
 */
#include "perf_wire.h"

#include "tool.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

/* A whole packet must fit the socket's buffer: a line and all samples. */
#define BUFFER_BYTES (4 * (int)(PERF_LINE + PERF_MAX_SAMPLES * sizeof(double)))

static socklen_t abstract_name(struct sockaddr_un *address, const char *name)
{
    size_t length = strlen(name);

    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    if (length > sizeof(address->sun_path) - 1)
        length = sizeof(address->sun_path) - 1;
    memcpy(address->sun_path + 1, name, length); /* sun_path[0] is 0: no file is made */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static bool same_user(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

static void grow_buffers(int fd)
{
    int bytes = BUFFER_BYTES;

    /* The kernel's default is usually enough; a refusal shows up in send. */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

int perf_wire_listen(char *name, size_t bytes)
{
    struct sockaddr_un address;
    char secret[33];
    socklen_t length;
    int fd;

    if (!tool_random_hex(secret, 16))
        return -1;
    snprintf(name, bytes, "solccl-perf-%s", secret);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    length = abstract_name(&address, name);
    if (bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, 128) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* 1: readable; 0: time is up; -1: error. */
static int wait_readable(int fd, uint64_t deadline_ns)
{
    struct pollfd poll_fd = {fd, POLLIN, 0};
    int ready, wait_ms = -1;

    do {
        if (deadline_ns) {
            uint64_t now = tool_now_ns();

            wait_ms = now >= deadline_ns ? 0 : (int)((deadline_ns - now) / 1000000) + 1;
        }
        ready = poll(&poll_fd, 1, wait_ms);
    } while (ready < 0 && errno == EINTR);
    if (ready == 0)
        errno = ETIMEDOUT;
    return ready;
}

int perf_wire_accept(int listener, uint64_t deadline_ns)
{
    int fd;

    if (wait_readable(listener, deadline_ns) <= 0)
        return -1;
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return -1;
    if (!same_user(fd)) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    grow_buffers(fd);
    return fd;
}

int perf_wire_connect(const char *name)
{
    struct sockaddr_un address;
    socklen_t length = abstract_name(&address, name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&address, length) != 0 || !same_user(fd)) {
        close(fd);
        return -1;
    }
    grow_buffers(fd);
    return fd;
}

bool perf_wire_send(int fd, const char *line, const double *samples, size_t count, int pass)
{
    struct iovec parts[2] = {{(void *)(uintptr_t)line, strlen(line) + 1},
                             {(void *)(uintptr_t)samples, count * sizeof(double)}};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message;
    ssize_t sent;

    memset(&message, 0, sizeof(message));
    memset(&control, 0, sizeof(control));
    message.msg_iov = parts;
    message.msg_iovlen = count ? 2 : 1;
    if (pass >= 0) {
        message.msg_control = control.room;
        message.msg_controllen = sizeof(control.room);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.header), &pass, sizeof(int));
    }
    do
        sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)(parts[0].iov_len + (count ? parts[1].iov_len : 0));
}

static int passed_descriptor(struct msghdr *message)
{
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    int fd = -1;

    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&fd, CMSG_DATA(header), sizeof(int));
    return fd;
}

bool perf_wire_receive(int fd, perf_message_t *message, uint64_t deadline_ns)
{
    static _Thread_local char packet[PERF_LINE + sizeof(message->samples)];
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {packet, sizeof(packet)};
    struct msghdr header;
    size_t line;
    ssize_t got;

    memset(&header, 0, sizeof(header));
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    message->pass = -1;
    message->count = 0;
    if (deadline_ns && wait_readable(fd, deadline_ns) <= 0)
        return false;
    do
        got = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got <= 0) {
        errno = got == 0 || errno == ECONNRESET ? 0 : errno;
        return false;
    }
    message->pass = passed_descriptor(&header);
    line = strnlen(packet, (size_t)got);
    if (line >= PERF_LINE || line == (size_t)got || header.msg_flags & MSG_TRUNC ||
        ((size_t)got - line - 1) % sizeof(double)) {
        errno = EPROTO;
        return false;
    }
    memcpy(message->line, packet, line + 1);
    message->count = ((size_t)got - line - 1) / sizeof(double);
    memcpy(message->samples, packet + line + 1, message->count * sizeof(double));
    return true;
}
