/* SPDX-License-Identifier: Apache-2.0 */
/* emu_jobs.c: see emu_jobs.h. */
#include "emu_jobs.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void work(int to, struct emu_tally (*share)(const void *, int), const void *plan, int job)
{
    struct emu_tally tally = share(plan, job);
    fflush(stdout);
    _exit(write(to, &tally, sizeof(tally)) != sizeof(tally));
}

int emu_jobs(int jobs, struct emu_tally (*share)(const void *plan, int job), const void *plan)
{
    struct emu_tally sum = {0, 0};
    int pipes[2];
    if (pipe(pipes) != 0)
        return 1;
    fflush(stdout);
    for (int j = 0; j < jobs; j++)
        if (fork() == 0)
            work(pipes[1], share, plan, j);
    close(pipes[1]);
    for (int j = 0; j < jobs; j++) {
        struct emu_tally tally = {0, 0};
        int status = 0;
        wait(&status);
        if (WIFSIGNALED(status))
            printf("FAILED: a job died by signal %d\n", WTERMSIG(status));
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            sum.failed++;
        else if (read(pipes[0], &tally, sizeof(tally)) == sizeof(tally)) {
            sum.passed += tally.passed;
            sum.failed += tally.failed;
        }
    }
    close(pipes[0]);
    printf("%llu passed, %d failed\n", sum.passed, sum.failed);
    return sum.failed || sum.passed == 0 ? 1 : 0;
}
