/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_node.c: a rank's shared memory on the memory node of the CPU it runs on.
 *
 * What others write to a rank lies in its own segment, which it polls, and what
 * it shows lies there too: both belong near it. It touches its pages first, but
 * that alone does not decide: a policy of the process (numactl --interleave)
 * may put them elsewhere, and a window's page is placed by whoever touches it
 * first, which may be a peer that reads. So the memory itself is told which
 * node it prefers, by plain system calls; where that node is full or the call
 * is not allowed, pages lie where they would have lain. A host with one node:
 * nothing is done. A rank that is moved to another node later keeps its pages.
 */
#include "backend/shm/shm.h"

#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PREFERRED 1 /* MPOL_PREFERRED of the kernel's interface */
#define MOST_NODES 1024u
#define WORD_BITS (8u * (unsigned)sizeof(unsigned long))

bool sol_shm_several_nodes(const char *list)
{
    return strpbrk(list, ",-") != NULL; /* "0" against "0-1" or "0,2" */
}

bool sol_shm_nodes_differ(void)
{
    char list[256] = "";
    FILE *file = fopen("/sys/devices/system/node/online", "re");
    if (file == NULL) {
        return false;
    }
    bool read = fgets(list, sizeof(list), file) != NULL;
    fclose(file);
    return read && sol_shm_several_nodes(list);
}

void sol_shm_prefer_node(const sol_shm_t *s, const sol_shm_segment_t *segment)
{
    unsigned cpu, node;
    unsigned long mask[MOST_NODES / WORD_BITS] = {0};
    if (!s->by_node || syscall(SYS_getcpu, &cpu, &node, NULL) != 0 || node >= MOST_NODES) {
        return;
    }
    mask[node / WORD_BITS] = 1ul << node % WORD_BITS;
    long failed = syscall(SYS_mbind, segment->base, segment->bytes, PREFERRED, mask,
                          (unsigned long)MOST_NODES, 0);
    if (failed != 0) {
        sol_log(SOL_LOG_DEBUG, "memory node %u cannot be preferred: %m", node);
    }
}
