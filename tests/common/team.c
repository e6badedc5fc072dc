/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team.c: see team.h. Everything here is bounded by the deadline that the parent keeps; children
 * die with their parent (PR_SET_PDEATHSIG), so an interrupted test leaves nothing behind.
 */
#include "common/team.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FAILURES_SHOWN 6

double team_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

void team_sleep_us(unsigned us)
{
    struct timespec ts = {us / 1000000, (long)(us % 1000000) * 1000};
    nanosleep(&ts, NULL);
}

/* FNV-1a over words, then bytes: fast enough for the large buffers. */
uint64_t team_hash(const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint64_t hash = 0xcbf29ce484222325u ^ bytes;
    for (; bytes >= 8; p += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        hash = (hash ^ word) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    for (; bytes > 0; p++, bytes--)
        hash = (hash ^ *p) * 0x100000001b3u;
    return team_mix(hash);
}

void team_barrier(team_t *team)
{
    pthread_barrier_wait(&team->barrier);
}

void team_fail(team_t *team, int rank, const char *format, ...)
{
    char text[1600];
    va_list args;
    if (atomic_fetch_add(&team->failures, 1) >= FAILURES_SHOWN)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "  %s: rank %d of %d: %s\n", team->name, rank, team->nranks, text);
}

void team_skip(team_t *team, int rank, const char *why)
{
    if (atomic_fetch_add(&team->skips, 1) == 0)
        fprintf(stderr, "  %s: rank %d: skipped: %s\n", team->name, rank, why);
}

bool team_expect(team_t *team, int rank, const char *what, sol_status_t got, sol_status_t wanted,
                 sol_comm_t comm)
{
    if (got == wanted)
        return true;
    const char *text = sol_last_error(comm);
    if (text[0] == '\0')
        text = sol_last_error(NULL);
    team_fail(team, rank, "%s returned %d (%s), expected %d; error: %s", what, (int)got,
              sol_status_string(got), (int)wanted, text);
    return false;
}

/* --------------------------------------------------------------------- the children's side */

struct thread_arg {
    team_t *team;
    team_fn fn;
    void *arg;
    int rank;
};

static void run_rank(team_t *team, int rank, team_fn fn, void *arg)
{
    double begin = team_now();
    fn(team, rank, arg);
    team->rank[rank].seconds = team_now() - begin;
    atomic_store(&team->rank[rank].finished, 1);
}

static void *thread_main(void *opaque)
{
    struct thread_arg *t = opaque;
    run_rank(t->team, t->rank, t->fn, t->arg);
    return NULL;
}

static void run_all_as_threads(team_t *team, team_fn fn, void *arg)
{
    pthread_t threads[TEAM_MAX_RANKS];
    struct thread_arg args[TEAM_MAX_RANKS];
    for (int r = 0; r < team->nranks; r++) {
        args[r] = (struct thread_arg){team, fn, arg, r};
        if (pthread_create(&threads[r], NULL, thread_main, &args[r]) != 0) {
            team_fail(team, r, "pthread_create failed");
            _exit(1);
        }
    }
    for (int r = 0; r < team->nranks; r++)
        pthread_join(threads[r], NULL);
}

static pid_t fork_child(team_t *team, int rank, team_fn fn, void *arg)
{
    pid_t parent = getpid();
    fflush(stdout);
    fflush(stderr);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    if (team->threads)
        run_all_as_threads(team, fn, arg);
    else
        run_rank(team, rank, fn, arg);
    exit(0); /* not _exit: the leak checker looks here */
}

/* -------------------------------------------------------------------- the parent's side */

static void judge(team_t *team, int child, int wstatus)
{
    bool killed =
        WIFSIGNALED(wstatus) && (WTERMSIG(wstatus) == SIGKILL || WTERMSIG(wstatus) == SIGABRT);
    if (!team->threads && (team->expect_killed >> child & 1)) {
        if (!killed)
            team_fail(team, child, "was meant to be killed, ended with status 0x%x", wstatus);
        return;
    }
    if (WIFSIGNALED(wstatus))
        team_fail(team, child, "died of signal %d (%s) while: %s", WTERMSIG(wstatus),
                  strsignal(WTERMSIG(wstatus)), team->rank[child].doing);
    else if (WEXITSTATUS(wstatus) != 0)
        team_fail(team, child, "exited with status %d (99 and 66: a sanitizer) while: %s",
                  WEXITSTATUS(wstatus), team->rank[child].doing);
}

static void say_who_hangs(team_t *team, double seconds)
{
    team_fail(team, -1, "still running after %.0f s; all ranks are killed", seconds);
    for (int r = 0; r < team->nranks; r++)
        fprintf(stderr, "    rank %d %s: %s\n", r,
                atomic_load(&team->rank[r].finished) ? "had finished" : "hangs",
                team->rank[r].doing);
}

static void supervise(team_t *team, const pid_t *pids, int children, int deadline_s)
{
    double begin = team_now();
    bool gone[TEAM_MAX_RANKS] = {false};
    int left = children;
    bool hung = false;
    while (left > 0) {
        for (int c = 0; c < children; c++) {
            int wstatus;
            if (gone[c] || waitpid(pids[c], &wstatus, WNOHANG) == 0)
                continue;
            gone[c] = true;
            left--;
            if (!hung)
                judge(team, c, wstatus);
        }
        if (!hung && left > 0 && team_now() - begin > deadline_s) {
            say_who_hangs(team, team_now() - begin);
            hung = true;
            for (int c = 0; c < children; c++)
                if (!gone[c])
                    kill(pids[c], SIGKILL);
        }
        if (left > 0)
            team_sleep_us(500);
    }
}

static team_t *team_new(const team_options_t *options)
{
    team_t *team =
        mmap(NULL, sizeof(*team), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (team == MAP_FAILED)
        return NULL;
    team->name = options->name;
    team->nranks = options->nranks;
    team->threads = options->threads;
    team->seed = options->seed;
    team->expect_killed = options->expect_killed;
    pthread_barrierattr_t attr;
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&team->barrier, &attr, (unsigned)options->nranks);
    pthread_barrierattr_destroy(&attr);
    return team;
}

static const char *running_here;

static void say_that_it_hangs(int number)
{
    static const char text[] = ": still running after its deadline; the process ends\n";
    (void)number;
    if (write(STDERR_FILENO, running_here, strlen(running_here)) >= 0 &&
        write(STDERR_FILENO, text, sizeof(text) - 1) >= 0)
        _exit(1);
    _exit(1);
}

/* Nobody can be killed but all of us. */
static void run_here(team_t *team, team_fn fn, void *arg, int deadline_s)
{
    running_here = team->name;
    signal(SIGALRM, say_that_it_hangs);
    alarm((unsigned)deadline_s);
    run_all_as_threads(team, fn, arg);
    alarm(0);
}

int team_run(const team_options_t *options, team_fn fn, void *arg, int *skips)
{
    team_t *team = team_new(options);
    if (!team) {
        fprintf(stderr, "  %s: no memory for the team\n", options->name);
        return 1;
    }
    for (int i = 0; i < TEAM_IDS; i++)
        if (sol_get_unique_id(&team->ids[i]) != SOL_OK)
            team_fail(team, -1, "sol_get_unique_id: %s", sol_last_error(NULL));

    pid_t pids[TEAM_MAX_RANKS];
    int children = !options->threads ? options->nranks : options->here ? 0 : 1;
    if (options->threads && options->here)
        run_here(team, fn, arg, options->deadline_s);
    for (int c = 0; c < children; c++) {
        pids[c] = fork_child(team, c, fn, arg);
        team->rank[c].pid = pids[c];
    }
    supervise(team, pids, children, options->deadline_s);

    int failures = atomic_load(&team->failures);
    if (failures > FAILURES_SHOWN)
        fprintf(stderr, "  %s: and %d more failures\n", options->name, failures - FAILURES_SHOWN);
    if (skips)
        *skips = atomic_load(&team->skips);
    munmap(team, sizeof(*team));
    return failures;
}

/* --------------------------------------------------------------------------- counting */

bool tally_wants(const tally_t *tally, const char *name)
{
    return !tally->only || strstr(name, tally->only);
}

void tally_case(tally_t *tally, const char *name, int failures, bool skipped, double seconds)
{
    const char *verdict = "ok";
    if (failures > 0) {
        tally->failed++;
        verdict = "FAILED";
    } else if (skipped) {
        tally->skipped++;
        verdict = "skipped";
    } else {
        tally->passed++;
    }
    printf("%-8s %-52s %6.2f s\n", verdict, name, seconds);
    fflush(stdout);
}

int tally_finish(const tally_t *tally)
{
    if (tally->passed + tally->failed + tally->skipped == 0) {
        fprintf(stderr, "no case ran\n");
        return 2;
    }
    if (tally->skipped > 0)
        printf("%d passed, %d failed, %d skipped\n", tally->passed, tally->failed, tally->skipped);
    else
        printf("%d passed, %d failed\n", tally->passed, tally->failed);
    return tally->failed > 0 ? 1 : 0;
}
