/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_jobs.h: a test's programs shared out to several processes, since a machine
 * uses one core. Prints the sum as every test program does.
 */
#ifndef TESTS_EMU_JOBS_H
#define TESTS_EMU_JOBS_H

struct emu_tally {
    unsigned long long passed;
    int failed;
};

/* `share` does job `job` of `jobs`, in a process of its own. Exit status for main(). */
int emu_jobs(int jobs, struct emu_tally (*share)(const void *plan, int job), const void *plan);

#endif
