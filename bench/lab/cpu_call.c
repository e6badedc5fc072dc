/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_call.c: what a call costs before anything moves: barriers of a communicator of one CPU rank,
 * back to back. Run it against two builds of the library (LD_LIBRARY_PATH) to see what a change to
 * the path of every call adds, to a tenth of a nanosecond; a latency between ranks is too noisy for
 * that.
 *
 *     cc -O2 -Iinclude bench/lab/cpu_call.c -Lbuild/release -lsolccl -o cpu_call
 */
#include "solccl/solccl.h"

#include <stdio.h>
#include <time.h>

static double now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

int main(void)
{
    enum { CALLS = 200000, ROUNDS = 25 };
    sol_comm_t comm;
    double best = 1e9;
    if (sol_comm_create_from_env(&comm, NULL) != SOL_OK) {
        fprintf(stderr, "%s\n", sol_last_error(NULL));
        return 1;
    }
    for (int round = 0; round < ROUNDS; round++) {
        double begin = now_ns();
        for (int i = 0; i < CALLS; i++) {
            sol_barrier(comm, NULL);
        }
        double ns = (now_ns() - begin) / CALLS;
        best = ns < best ? ns : best;
    }
    printf("%.2f ns a call (the best of %d rounds of %d calls)\n", best, ROUNDS, CALLS);
    return sol_comm_destroy(comm) == SOL_OK ? 0 : 1;
}
