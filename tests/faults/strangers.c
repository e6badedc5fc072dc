/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strangers.c: somebody who should not be there, while a communicator is made: another user, and a
 * process of the same user that does not have the secret. They see the name of the meeting place in
 * /proc/net/unix, connect, and say nothing, nonsense, or nearly the right thing. Nobody notices.
 */
#include "faults/faults.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINES = 150 }; /* more than rank 0 keeps open at once */

static int call_place(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
    size_t length = strlen(name);
    memcpy(address.sun_path + 1, name, length);
    if (connect(fd, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Does a process of this program listen there? (Another may run beside it.) */
static bool is_ours(const char *name)
{
    struct ucred peer = {.pid = 0};
    socklen_t size = sizeof(peer);
    int fd = call_place(name);
    if (fd < 0)
        return false;
    bool ours = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0 &&
                getpgid(peer.pid) == getpgrp();
    close(fd);
    return ours;
}

/* The meeting place that is there now: its abstract name, without the @. */
static bool find_place(char name[108])
{
    char line[512];
    bool found = false;
    FILE *file = fopen("/proc/net/unix", "r");
    while (file && !found && fgets(line, sizeof(line), file)) {
        char *at = strstr(line, "@solccl-");
        if (at && sscanf(at + 1, "%107s", name) == 1)
            found = is_ours(name);
    }
    if (file)
        fclose(file);
    return found;
}

/* Is the line closed by the other side within `ms`? */
static bool closed_within(int fd, int ms)
{
    char byte;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, ms) == 1 && recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

/* Records that look right from far away: the magic, then lengths and types that are not. */
static void say_nonsense(int fd, unsigned turn, uint64_t *random)
{
    unsigned char record[20000];
    uint32_t head[5] = {0x4c4f5342u, turn % 10, turn % 3, 0, 0};
    size_t bytes = turn % 4 == 0   ? turn % sizeof(head)
                   : turn % 4 == 1 ? sizeof(head) + 64
                   : turn % 4 == 2 ? sizeof(record)
                                   : sizeof(head) + turn % 200;
    for (size_t i = 0; i < sizeof(record); i++)
        record[i] = (unsigned char)team_random(random);
    head[3] = turn % 5 == 0 ? UINT32_MAX : (uint32_t)(bytes - sizeof(head));
    head[4] = head[3];
    if (turn % 7 != 0)
        memcpy(record, head, sizeof(head));
    (void)!send(fd, record, bytes, MSG_NOSIGNAL);
}

/* In a child of its own. Exit status 0: it was turned away as it should be. */
static int be_stranger(bool other_user)
{
    char name[108];
    uint64_t random = 7;
    int fds[LINES], wrong = 0;
    alarm(60);
    if (other_user && (setgid(65534) != 0 || setuid(65534) != 0))
        return 77;
    for (int tries = 0; !find_place(name); tries++) {
        if (tries > 2000)
            return 2;
        team_sleep_us(1000);
    }
    for (unsigned i = 0; i < LINES; i++) {
        fds[i] = call_place(name);
        if (fds[i] < 0)
            continue; /* the queue is full, or it is over */
        if (i % 3 != 0)
            say_nonsense(fds[i], i, &random);
    }
    for (unsigned i = 0; i < LINES; i++)
        if (fds[i] >= 0 && (other_user || i % 3 != 0) && !closed_within(fds[i], 10000))
            wrong++;
    return wrong > 0;
}

/* Rank 0 is at the meeting place; strangers come; then the others. */
static void strangers(team_t *team, int rank, void *arg)
{
    sol_comm_t comm;
    bool other_user = *(int *)arg != 0;
    int status = 0;
    if (other_user && geteuid() != 0) {
        team_skip(team, rank, "only root can try another user");
        return;
    }
    pid_t child = rank == 1 ? fork() : 0;
    if (rank == 1 && child == 0)
        _exit(be_stranger(other_user));
    if (rank != 0)
        team_sleep_us(400000);
    double begin = team_now();
    if (fault_comm(team, rank, FAULT_LONG_MS, &comm)) {
        TEAM_CHECK(team, rank, team_now() - begin < FAULT_SOON);
        fault_still_works(team, rank, comm);
        TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
    }
    if (rank == 1) {
        waitpid(child, &status, 0);
        TEAM_CHECK(team, rank, WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

/* Who has the id but is another user does not get in, and does not get a word. */
static void other_user_with_id(team_t *team, int rank, void *arg)
{
    sol_comm_t comm = NULL;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    (void)arg;
    if (geteuid() != 0) {
        team_skip(team, rank, "only root can try another user");
        return;
    }
    config.backend = SOL_BACKEND_CPU;
    config.timeout_ms = 800;
    team_barrier(team); /* both are at the meeting place at once */
    if (rank == 1 && (setgid(65534) != 0 || setuid(65534) != 0))
        return;
    sol_status_t status = sol_comm_create(&comm, &team->ids[0], 2, rank, &config);
    fault_expect(team, rank, "two users", status, SOL_ERR_TIMEOUT, NULL,
                 rank == 1 ? "user 0" : "rank 1");
    TEAM_CHECK(team, rank, comm == NULL);
}

const fault_case_t fault_strangers[] = {
    {.name = "strangers of the same user", .run = strangers, .nranks = 3, .argument = 0},
    {.name = "strangers of another user", .run = strangers, .nranks = 3, .argument = 1},
    {.name = "another user with the id", .run = other_user_with_id, .nranks = 2},
    {.name = NULL},
};
