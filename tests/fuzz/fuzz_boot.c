/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_boot.c: what a rank could be sent over boot's sockets. The input is cut into records (a byte
 * of length / 8 before each); they arrive at rank 0 of 2, in the middle of an exchange, and at
 * rank 1. Any sequence has to end in an error or a result within the timeout.
 */
#include "core/boot_wire.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void send_all(int fd, const uint8_t *data, size_t size)
{
    while (size > 0) {
        size_t bytes = (size_t)data[0] * 8;
        data++;
        size--;
        bytes = bytes < size ? bytes : size;
        (void)!send(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        data += bytes;
        size -= bytes;
    }
}

static void as_rank(int rank, const uint8_t *data, size_t size)
{
    int pair[2], fds[2] = {-1, -1}, one = -1;
    char text[SOL_BOOT_TEXT];
    unsigned char all[64], mine[32] = {0};
    struct sol_boot *boot = calloc(1, sizeof(*boot));
    if (!boot || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) != 0) {
        free(boot);
        return;
    }
    boot->rank = rank;
    boot->nranks = 2;
    boot->timeout_ms = 0; /* whatever came is looked at once */
    boot->interrupt_fd = -1;
    for (int r = 0; r < SOL_MAX_RANKS; r++)
        boot->sockets[r] = -1;
    boot->sockets[1 - rank] = pair[0];
    send_all(pair[1], data, size);
    if (size > 0 && data[size - 1] % 3 == 0) {
        if (sol_boot_share_fds(boot, &one, 1, fds) == SOL_OK)
            sol_boot_close_fds(fds, 2);
    } else {
        sol_boot_all_gather(boot, mine, sizeof(mine), all);
    }
    if (sol_boot_receive(pair[0], &boot->record, true) == 1) {
        sol_boot_read_verdict(&boot->record, text);
        sol_boot_close_fds(boot->record.fds, boot->record.nfds);
    }
    close(pair[0]);
    close(pair[1]);
    free(boot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    as_rank(0, data, size);
    as_rank(1, data, size);
    return 0;
}
