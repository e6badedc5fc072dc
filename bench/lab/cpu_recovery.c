/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_recovery.c: how long it takes to go on when one of 8 CPU ranks is killed. Each round makes 8
 * processes that call all_reduce without end, kills one of them, and takes the slowest survivor's
 *
 *     detection   from the kill to the error that its call returns
 *     recovery    from there to the first right result of the shrunk communicator
 *
 *     cc -O2 -Iinclude bench/lab/cpu_recovery.c -Lbuild/release -lsolccl -o cpu_recovery
 */
#include "solccl/solccl.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 8, ROUNDS = 20 };

struct shared {
    _Atomic int calling;
    int victim;
    double killed, detected[RANKS], recovered[RANKS];
    sol_unique_id_t id;
};

static double now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec * 1e-6;
}

static int be_rank(struct shared *s, int rank)
{
    sol_comm_t comm, rest;
    int32_t mine = rank + 1, sum = 0;
    sol_status_t status;
    int n;
    if (sol_comm_create(&comm, &s->id, RANKS, rank, NULL) != SOL_OK) {
        return 1;
    }
    sol_barrier(comm, NULL);
    s->calling++;
    do {
        status = sol_all_reduce(&mine, &sum, 1, SOL_INT32, SOL_SUM, comm, NULL);
    } while (status == SOL_OK);
    s->detected[rank] = now_ms();
    if (sol_comm_shrink(comm, 0, &rest, NULL) != SOL_OK ||
        sol_all_reduce(&mine, &sum, 1, SOL_INT32, SOL_SUM, rest, NULL) != SOL_OK) {
        fprintf(stderr, "%s\n", sol_last_error(NULL));
        return 1;
    }
    s->recovered[rank] = now_ms();
    sol_comm_size(rest, &n);
    n = sum == RANKS * (RANKS + 1) / 2 - s->victim - 1 ? n : -1;
    sol_comm_destroy(rest);
    sol_comm_destroy(comm);
    return n == RANKS - 1 ? 0 : 1;
}

/* Returns 0 if a survivor failed or had a wrong sum; times are the slowest survivor's. */
static int one_round(struct shared *s, int victim, double *detection, double *recovery)
{
    pid_t pids[RANKS];
    int failed = 0, status;
    memset(s, 0, sizeof(*s));
    s->victim = victim;
    sol_get_unique_id(&s->id);
    for (int r = 0; r < RANKS; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            _exit(be_rank(s, r));
        }
    }
    while (s->calling < RANKS) {
        usleep(1000);
    }
    usleep(20000);
    s->killed = now_ms();
    kill(pids[victim], SIGKILL);
    for (int r = 0; r < RANKS; r++) {
        waitpid(pids[r], &status, 0);
        failed += r != victim && status != 0;
    }
    *detection = *recovery = 0;
    for (int r = 0; r < RANKS; r++) {
        double d = s->detected[r] - s->killed, c = s->recovered[r] - s->detected[r];
        if (r != victim) {
            *detection = d > *detection ? d : *detection;
            *recovery = c > *recovery ? c : *recovery;
        }
    }
    return failed == 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    double detection[ROUNDS], recovery[ROUNDS];
    struct shared *s =
        mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    setenv("SOLCCL_LOG", "error", 1);
    setenv("SOLCCL_BACKEND", "cpu", 1);
    for (int i = 0; i < ROUNDS; i++) {
        if (!one_round(s, i % RANKS, &detection[i], &recovery[i])) {
            return 1;
        }
    }
    qsort(detection, ROUNDS, sizeof(double), ascending);
    qsort(recovery, ROUNDS, sizeof(double), ascending);
    printf("%d rounds: detection median %.1f, most %.1f ms; recovery median %.1f, most %.1f ms\n",
           ROUNDS, detection[ROUNDS / 2], detection[ROUNDS - 1], recovery[ROUNDS / 2],
           recovery[ROUNDS - 1]);
    return 0;
}
