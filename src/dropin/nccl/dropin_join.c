/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dropin_join.c: do all ranks of a new communicator have the drop-in, and are
 * they on this host? A rank without it cannot be asked: it would never answer.
 *
 *     every rank with the drop-in                     the real library
 *     sit: take a name made of (key, my number)
 *     ncclCommInitRank ..............................> returns on no rank before all have called
 *     count the names that are taken
 *     all of them: join solccl's communicator         (bounded; all or none)
 *     else: stand back, everything is passed
 *     rise: give the name up
 *
 * Everybody sat down before anybody counts, and nobody rises before having
 * counted; so all ranks of a host see the same number, at once, without a wait.
 * Ranks on another host, or without the drop-in, are missing for everybody. A
 * name given up early (its rank stood back) is missing for the others too.
 *
 * A name is an address in the kernel's abstract socket space, a hash of a key
 * that only the ranks know (NCCL's unique id). It goes away with its process. It
 * carries nothing, and whoever takes it wrongly only makes ranks try to join,
 * where the secret is asked for.
 *
 * Never: wait. Never: leave a name behind after rise.
 */
#include "dropin/nccl/dropin.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct sol_dropin_seat {
    int fd;
    int members;
    unsigned char key[SOL_SHA256_BYTES];
};

static socklen_t name_of(const unsigned char key[SOL_SHA256_BYTES], int member,
                         struct sockaddr_un *address)
{
    unsigned char digest[SOL_SHA256_BYTES];
    char text[40];
    static const char purpose[] = "solccl nccl seat 1";
    uint32_t number = (uint32_t)member;
    sol_sha256_t hash;
    sol_sha256_start(&hash);
    sol_sha256_add(&hash, purpose, sizeof purpose);
    sol_sha256_add(&hash, key, SOL_SHA256_BYTES);
    sol_sha256_add(&hash, &number, sizeof number);
    sol_sha256_end(&hash, digest);
    for (int i = 0; i < 16; i++) {
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    }
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "solccl-%s", text);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

sol_dropin_seat *sol_dropin_sit(const unsigned char key[SOL_SHA256_BYTES], int member, int members)
{
    struct sockaddr_un address;
    sol_dropin_seat *seat = sol_calloc(1, sizeof *seat);
    if (seat == NULL) {
        return NULL;
    }
    memcpy(seat->key, key, sizeof seat->key);
    seat->members = members;
    seat->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t bytes = name_of(key, member, &address);
    if (seat->fd < 0 || bind(seat->fd, (const struct sockaddr *)&address, bytes) != 0) {
        sol_dropin_rise(seat);
        return NULL;
    }
    return seat;
}

int sol_dropin_seated(const sol_dropin_seat *seat)
{
    struct sockaddr_un address;
    int seated = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (int m = 0; m < seat->members && fd >= 0; m++) {
        socklen_t bytes = name_of(seat->key, m, &address);
        seated += connect(fd, (const struct sockaddr *)&address, bytes) == 0;
    }
    if (fd >= 0) {
        close(fd);
    }
    return seated;
}

void sol_dropin_rise(sol_dropin_seat *seat)
{
    if (seat != NULL) {
        if (seat->fd >= 0) {
            close(seat->fd);
        }
        sol_free(seat);
    }
}
