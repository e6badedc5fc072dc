/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c: `solccl run`: start N ranks of a command on this host and stay with
 * them until the last has ended.
 *
 * Each rank gets SOLCCL_RANK, SOLCCL_SIZE, SOLCCL_LOCAL_RANK and SOLCCL_JOB (a
 * fresh secret of 64 hexadecimal digits, the same for all: who has it can join).
 *
 * What it promises: when one rank fails, the others have --grace seconds to say
 * what they make of it (their error, a dump of their flight recorder), then they
 * are ended, and the first failing status is returned; signals are passed on;
 * what ranks leave behind when they end is adopted (PR_SET_CHILD_SUBREAPER) and
 * ended too; ranks die with it even if it is killed itself (PR_SET_PDEATHSIG;
 * children of theirs may then live on). It never waits longer than --timeout
 * allows.
 */
#include "tool.h"

#include "solccl/solccl.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATUS_TIMEOUT 124 /* as timeout(1) */
#define STATUS_CANNOT_RUN 126
#define STATUS_NOT_FOUND 127
#define STATUS_SIGNAL 128    /* plus the signal, as shells do */
#define DEATH_NS 3000000000u /* from SIGTERM to SIGKILL */
/* From a rank's failure to SIGTERM for the others. Survivors learn of a dead rank within some tens
 * of ms (bench/lab/cpu_recovery.c); the rest is for writing on a busy machine. */
#define GRACE_S 0.5
#define POLL_MS 250
#define LINE_BYTES 4096

static const char help[] =
    "Usage: solccl run -n N [options] [--] COMMAND [ARGUMENT...]\n"
    "\n"
    "Start N ranks of COMMAND on this host. Each finds its place in SOLCCL_RANK,\n"
    "SOLCCL_SIZE and SOLCCL_LOCAL_RANK, and the job's secret in SOLCCL_JOB, which is\n"
    "what sol_comm_create_from_env reads.\n"
    "\n"
    "  -n, --ranks N      number of ranks (1 to 64)\n"
    "  -t, --timeout S    end everything after S seconds (status 124); 0: never (default)\n"
    "      --bind MODE    core: one CPU a rank where there are enough (default); none\n"
    "  -l, --label        write \"[rank] \" before each line of output\n"
    "      --grace S      when a rank fails, give the others S seconds to say what they\n"
    "                     make of it before they are ended (default: 0.5)\n"
    "  -k, --keep-going   when a rank fails, let the others end by themselves\n"
    "  -h, --help\n"
    "\n"
    "Returns the status of the first rank that failed (128 + signal if it was killed).\n"
    "Rank 0 gets the standard input; the others read an empty one.\n";

struct options {
    long ranks;
    double timeout, grace;
    bool bind, label, keep_going;
    char **command;
};

/* One output pipe of a rank, when lines are labelled. */
struct stream {
    int fd, target, rank;
    size_t used;
    char line[LINE_BYTES];
};

struct launch {
    struct options options;
    pid_t pids[SOL_MAX_RANKS];
    int left;             /* ranks that have not ended */
    int status;           /* of the first that failed */
    bool ending;          /* SIGTERM has been sent */
    bool killed;          /* SIGKILL has been sent */
    uint64_t deadline_ns; /* of the whole run; 0: none */
    uint64_t end_ns;      /* when SIGTERM is due, once a rank has failed; 0: not yet */
    uint64_t kill_ns;     /* when SIGKILL is due, once `ending` */
    int signals;          /* signalfd */
    sigset_t inherited;   /* the mask that ranks get back */
    struct stream *streams;
    int nstreams;
};

static int parse(int argc, char **argv, struct options *options)
{
    static const struct option longs[] = {
        {"ranks", required_argument, NULL, 'n'}, {"timeout", required_argument, NULL, 't'},
        {"bind", required_argument, NULL, 'b'},  {"label", no_argument, NULL, 'l'},
        {"grace", required_argument, NULL, 'g'}, {"keep-going", no_argument, NULL, 'k'},
        {"help", no_argument, NULL, 'h'},        {NULL, 0, NULL, 0}};
    int c;

    memset(options, 0, sizeof(*options));
    options->bind = true;
    options->grace = GRACE_S;
    optind = 1;
    opterr = 0;
    while ((c = getopt_long(argc, argv, "+n:t:b:lkh", longs, NULL)) != -1) {
        switch (c) {
        case 'n':
            if (!tool_parse_int(optarg, 1, SOL_MAX_RANKS, &options->ranks))
                return tool_usage("run", "-n %s: a number from 1 to %d was expected", optarg,
                                  SOL_MAX_RANKS);
            break;
        case 't':
            if (!tool_parse_real(optarg, 0, 1e7, &options->timeout))
                return tool_usage("run", "--timeout %s: seconds were expected", optarg);
            break;
        case 'b':
            if (strcmp(optarg, "core") && strcmp(optarg, "none"))
                return tool_usage("run", "--bind %s: core or none was expected", optarg);
            options->bind = !strcmp(optarg, "core");
            break;
        case 'l':
            options->label = true;
            break;
        case 'g':
            if (!tool_parse_real(optarg, 0, 1e7, &options->grace))
                return tool_usage("run", "--grace %s: seconds were expected", optarg);
            break;
        case 'k':
            options->keep_going = true;
            break;
        case 'h':
            fputs(help, stdout);
            return 0;
        default:
            return tool_usage("run", "%s: not an option, or its value is missing",
                              argv[optind > 1 ? optind - 1 : 1]);
        }
    }
    if (!options->ranks)
        return tool_usage("run", "-n N, the number of ranks, is missing");
    if (optind >= argc)
        return tool_usage("run", "the command is missing");
    options->command = argv + optind;
    return -1;
}

static void set_number(const char *name, long value)
{
    char text[32];

    snprintf(text, sizeof(text), "%ld", value);
    setenv(name, text, 1);
}

/* In the child. Says why on `report` and ends; nothing here returns. */
static void become_rank(const struct launch *launch, int rank, const int *cpus, int ncpus,
                        const char *job, pid_t launcher, int out, int err, int report)
{
    int why, null;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) /* it died before the line above */
        _exit(STATUS_CANNOT_RUN);
    set_number("SOLCCL_RANK", rank);
    set_number("SOLCCL_SIZE", launch->options.ranks);
    set_number("SOLCCL_LOCAL_RANK", rank);
    setenv("SOLCCL_JOB", job, 1);
    if (launch->options.bind && launch->options.ranks <= ncpus)
        tool_bind(cpus[rank]);
    if (rank > 0) {
        null = open("/dev/null", O_RDONLY);
        if (null >= 0)
            dup2(null, STDIN_FILENO);
    }
    if (out >= 0) {
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
    }
    sigprocmask(SIG_SETMASK, &launch->inherited, NULL);
    signal(SIGPIPE, SIG_DFL);
    execvp(launch->options.command[0], launch->options.command);
    why = errno;
    if (write(report, &why, sizeof(why)) < 0)
        why = errno; /* nobody left to tell */
    _exit(why == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_RUN);
}

static bool open_streams(struct launch *launch, int rank, int out[2], int err[2])
{
    int i;

    out[0] = out[1] = err[0] = err[1] = -1;
    if (!launch->options.label)
        return true;
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
        return false;
    for (i = 0; i < 2; i++) {
        struct stream *stream = &launch->streams[launch->nstreams++];

        stream->fd = i ? err[0] : out[0];
        stream->target = i ? STDERR_FILENO : STDOUT_FILENO;
        stream->rank = rank;
    }
    return true;
}

/* Start one rank and wait until it has executed the command, so that a wrong name is told once. */
static int start_rank(struct launch *launch, int rank, const int *cpus, int ncpus, const char *job)
{
    int report[2], out[2], err[2], why = 0;
    pid_t launcher = getpid(), pid;
    ssize_t got;

    if (pipe2(report, O_CLOEXEC) != 0 || !open_streams(launch, rank, out, err))
        return tool_error("run", "no pipe for rank %d: %s", rank, strerror(errno));
    pid = fork();
    if (pid == 0)
        become_rank(launch, rank, cpus, ncpus, job, launcher, out[1], err[1], report[1]);
    close(report[1]);
    if (out[1] >= 0) {
        close(out[1]);
        close(err[1]);
    }
    if (pid < 0) {
        close(report[0]);
        return tool_error("run", "rank %d could not be started: %s", rank, strerror(errno));
    }
    launch->pids[rank] = pid;
    launch->left++;
    do
        got = read(report[0], &why, sizeof(why));
    while (got < 0 && errno == EINTR);
    close(report[0]);
    if (got == (ssize_t)sizeof(why)) {
        tool_error("run", "cannot run '%s': %s", launch->options.command[0], strerror(why));
        return why == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_RUN;
    }
    return 0;
}

static void signal_ranks(const struct launch *launch, int number)
{
    int rank;

    for (rank = 0; rank < launch->options.ranks; rank++)
        if (launch->pids[rank] > 0)
            kill(launch->pids[rank], number);
}

static void end_ranks(struct launch *launch)
{
    if (launch->ending)
        return;
    launch->ending = true;
    launch->kill_ns = tool_now_ns() + DEATH_NS;
    signal_ranks(launch, SIGTERM);
    signal_ranks(launch, SIGCONT); /* a stopped rank could not end */
}

static void rank_ended(struct launch *launch, int rank, int wait_status)
{
    int status =
        WIFSIGNALED(wait_status) ? STATUS_SIGNAL + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);

    launch->pids[rank] = 0;
    launch->left--;
    if (status == 0 || launch->status)
        return;
    launch->status = status;
    if (launch->ending)
        return;
    if (WIFSIGNALED(wait_status))
        tool_error("run", "rank %d was killed by signal %d (%s)", rank, WTERMSIG(wait_status),
                   strsignal(WTERMSIG(wait_status)));
    else
        tool_error("run", "rank %d ended with status %d", rank, status);
    if (!launch->options.keep_going)
        launch->end_ns = tool_now_ns() + (uint64_t)(launch->options.grace * 1e9);
}

static void reap(struct launch *launch)
{
    int status, rank;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (rank = 0; rank < launch->options.ranks; rank++)
            if (launch->pids[rank] == pid)
                rank_ended(launch, rank, status);
}

static void take_signals(struct launch *launch)
{
    struct signalfd_siginfo info;

    while (read(launch->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            continue; /* reap() looks anyway */
        /* The terminal has signalled the whole process group already. */
        if (info.ssi_code != SI_KERNEL)
            signal_ranks(launch, (int)info.ssi_signo);
        if (info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM || info.ssi_signo == SIGHUP ||
            info.ssi_signo == SIGQUIT) {
            if (!launch->status)
                launch->status = STATUS_SIGNAL + (int)info.ssi_signo;
            end_ranks(launch);
        }
    }
}

static void write_all(int fd, const char *data, size_t bytes)
{
    while (bytes) {
        ssize_t wrote = write(fd, data, bytes);

        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return; /* the reader has gone: the ranks go on */
        data += wrote;
        bytes -= (size_t)wrote;
    }
}

static void write_line(const struct stream *stream, const char *line, size_t bytes)
{
    char text[LINE_BYTES + 32];
    int head = snprintf(text, sizeof(text), "[%d] ", stream->rank);

    memcpy(text + head, line, bytes);
    text[head + (int)bytes] = '\n';
    write_all(stream->target, text, (size_t)head + bytes + 1);
}

/* Returns false when the pipe has ended. Lines too long for the buffer are cut into several. */
static bool copy_lines(struct stream *stream)
{
    ssize_t got = read(stream->fd, stream->line + stream->used, LINE_BYTES - stream->used);
    char *end, *start = stream->line;

    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return true;
    if (got > 0)
        stream->used += (size_t)got;
    while ((end = memchr(start, '\n', stream->used))) {
        write_line(stream, start, (size_t)(end - start));
        stream->used -= (size_t)(end - start) + 1;
        start = end + 1;
    }
    memmove(stream->line, start, stream->used);
    if (stream->used && (got <= 0 || stream->used == LINE_BYTES)) {
        write_line(stream, stream->line, stream->used);
        stream->used = 0;
    }
    return got > 0;
}

/* How long to sleep if nothing happens: until the end of a grace, POLL_MS at most. */
static int sleep_ms(const struct launch *launch, bool output)
{
    uint64_t now = tool_now_ns();

    if (!launch->left)
        return output ? 20 : 0;
    if (launch->ending || !launch->end_ns)
        return POLL_MS;
    if (now >= launch->end_ns)
        return 0;
    now = (launch->end_ns - now) / 1000000 + 1;
    return now < POLL_MS ? (int)now : POLL_MS;
}

/* Sleep until something happens, and copy what the ranks wrote. */
static void wait_for_news(struct launch *launch)
{
    struct pollfd polls[2 * SOL_MAX_RANKS + 1];
    bool output = false;
    int i;

    polls[0].fd = launch->signals;
    polls[0].events = POLLIN;
    for (i = 0; i < launch->nstreams; i++) {
        polls[i + 1].fd = launch->streams[i].fd; /* -1 is skipped by poll */
        polls[i + 1].events = POLLIN;
        output |= launch->streams[i].fd >= 0;
    }
    if (poll(polls, (nfds_t)launch->nstreams + 1, sleep_ms(launch, output)) <= 0)
        return;
    for (i = 0; i < launch->nstreams; i++) {
        struct stream *stream = &launch->streams[i];

        if (stream->fd >= 0 && polls[i + 1].revents && !copy_lines(stream)) {
            close(stream->fd);
            stream->fd = -1;
        }
    }
}

static void check_clock(struct launch *launch)
{
    uint64_t now = tool_now_ns();

    if (launch->deadline_ns && now >= launch->deadline_ns && !launch->ending) {
        tool_error("run", "%g s have passed: ending the %d ranks that are left",
                   launch->options.timeout, launch->left);
        if (!launch->status)
            launch->status = STATUS_TIMEOUT;
        end_ranks(launch);
    }
    if (launch->end_ns && now >= launch->end_ns)
        end_ranks(launch);
    if (launch->ending && !launch->killed && now >= launch->kill_ns) {
        launch->killed = true;
        signal_ranks(launch, SIGKILL);
    }
}

/* What ranks have left behind has become ours (subreaper): end it. Bounded by its own count. */
static void sweep_orphans(void)
{
    char path[64];
    FILE *file;
    int pid, round, found = 1;

    for (round = 0; round < 20 && found; round++) {
        found = 0;
        snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
        file = fopen(path, "re");
        if (!file)
            return;
        while (fscanf(file, "%d", &pid) == 1) {
            kill(pid, SIGKILL);
            found++;
        }
        fclose(file);
        if (found)
            poll(NULL, 0, 5);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
    }
}

static bool open_signals(struct launch *launch)
{
    static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};
    sigset_t set;
    size_t i;

    sigemptyset(&set);
    for (i = 0; i < sizeof(forwarded) / sizeof(forwarded[0]); i++)
        sigaddset(&set, forwarded[i]);
    if (sigprocmask(SIG_BLOCK, &set, &launch->inherited) != 0)
        return false;
    launch->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return launch->signals >= 0;
}

int tool_run(int argc, char **argv)
{
    struct launch launch;
    int cpus[TOOL_MAX_CPUS], ncpus, status, rank;
    char job[65];

    memset(&launch, 0, sizeof(launch));
    status = parse(argc, argv, &launch.options);
    if (status >= 0)
        return status;
    if (!tool_random_hex(job, 32))
        return tool_error("run", "the system gave no random bytes: %s", strerror(errno));
    launch.streams = tool_calloc(2 * SOL_MAX_RANKS, sizeof(*launch.streams));
    if (!launch.streams)
        return 1;
    if (!open_signals(&launch)) {
        tool_free(launch.streams);
        return tool_error("run", "signals cannot be watched: %s", strerror(errno));
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGPIPE, SIG_IGN);
    ncpus = tool_cpus(cpus, TOOL_MAX_CPUS, NULL);
    if (launch.options.timeout > 0)
        launch.deadline_ns = tool_now_ns() + (uint64_t)(launch.options.timeout * 1e9);
    fflush(NULL);
    for (rank = 0; rank < launch.options.ranks && !launch.status; rank++)
        launch.status = start_rank(&launch, rank, cpus, ncpus, job);
    if (launch.status)
        end_ranks(&launch);
    while (launch.left) {
        wait_for_news(&launch);
        take_signals(&launch);
        reap(&launch);
        check_clock(&launch);
    }
    sweep_orphans();
    for (rank = 0; rank < launch.nstreams; rank++) /* the last words */
        while (launch.streams[rank].fd >= 0 && copy_lines(&launch.streams[rank]))
            continue;
    close(launch.signals);
    tool_free(launch.streams);
    return launch.status;
}
