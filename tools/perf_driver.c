/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_driver.c: starting, commanding and ending the sides (see perf_driver.h).
 */
#include "perf_driver.h"

#include "perf_stats.h"

#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH_BYTES 4096
#define START_S 60   /* for a launcher to bring all ranks */
#define END_MS 10000 /* for a side to end when asked */

bool perf_driver_open(perf_driver_t *driver, bool gpu, double timeout_s)
{
    memset(driver, 0, sizeof(*driver));
    driver->gpu = gpu;
    driver->timeout_s = timeout_s;
    driver->message = tool_calloc(1, sizeof(*driver->message));
    driver->listener = perf_wire_listen(driver->socket, sizeof(driver->socket));
    if (driver->listener < 0)
        tool_error("perf", "no socket for the ranks: %s", strerror(errno));
    return driver->message && driver->listener >= 0;
}

static uint64_t deadline(double seconds)
{
    return tool_now_ns() + (uint64_t)(seconds * 1e9);
}

/* ---- launching */

static bool executable_in_path(const char *name, char *path, size_t bytes)
{
    const char *list = getenv("PATH"), *end;

    for (; list && *list; list = *end ? end + 1 : end) {
        end = list + strcspn(list, ":");
        snprintf(path, bytes, "%.*s/%s", (int)(end - list), list, name);
        if (access(path, X_OK) == 0)
            return true;
    }
    return false;
}

/* The peers' programs lie beside this one in a build, and in libexec when installed. */
static bool peer_program(const char *peer, char *path, size_t bytes)
{
    const char *directory = getenv("SOLCCL_PEER_DIR");
    char self[PATH_BYTES - 64], *slash;

    if (directory) {
        snprintf(path, bytes, "%s/solccl-perf-%s", directory, peer);
        return access(path, X_OK) == 0;
    }
    if (!tool_self_path(self, sizeof(self)) || !(slash = strrchr(self, '/')))
        return false;
    *slash = '\0';
    snprintf(path, bytes, "%s/solccl-perf-%s", self, peer);
    if (access(path, X_OK) == 0)
        return true;
    snprintf(path, bytes, "%s/../libexec/solccl/solccl-perf-%s", self, peer);
    return access(path, X_OK) == 0;
}

/* Peers on GPUs run under our own launcher: NCCL in this very program, PyTorch in Python. */
static bool is_gpu_peer(const char *peer)
{
    return !strcmp(peer, "nccl") || !strcmp(peer, "nccl-sym") || !strcmp(peer, "torch");
}

static bool torch_program(char *path, size_t bytes)
{
    char self[PATH_BYTES - 64], *slash;

    if (getenv("SOLCCL_PEER_DIR")) {
        snprintf(path, bytes, "%s/solccl-perf-torch.py", getenv("SOLCCL_PEER_DIR"));
        return access(path, R_OK) == 0;
    }
    if (!tool_self_path(self, sizeof(self)) || !(slash = strrchr(self, '/')))
        return false;
    *slash = '\0';
    snprintf(path, bytes, "%s/solccl-perf-torch.py", self);
    if (access(path, R_OK) == 0)
        return true;
    snprintf(path, bytes, "%s/../libexec/solccl/solccl-perf-torch.py", self);
    return access(path, R_OK) == 0;
}

bool perf_peer_present(const char *peer, char *why, size_t bytes)
{
    char path[PATH_BYTES], launcher[64];

    if (!strcmp(peer, "torch") && !torch_program(path, sizeof(path))) {
        snprintf(why, bytes, "solccl-perf-torch.py is not beside this program");
        return false;
    }
    if (is_gpu_peer(peer))
        return true; /* whether the library is there, its ranks will say */
    snprintf(launcher, sizeof(launcher), "mpirun.%s", peer);
    if (!executable_in_path(launcher, path, sizeof(path))) {
        snprintf(why, bytes, "%s is not installed (Debian: %s)", launcher,
                 !strcmp(peer, "mpich") ? "apt install mpich" : "apt install openmpi-bin");
        return false;
    }
    if (!peer_program(peer, path, sizeof(path))) {
        snprintf(why, bytes,
                 "solccl was built without it: mpicc.%s was not there (Debian: lib%s-dev); "
                 "install it, configure and build again",
                 peer, peer);
        return false;
    }
    return true;
}

/* Fill argv for a side's launcher. The texts live in `text`. */
static bool gpu_command(const char *peer, int nranks, char text[4][PATH_BYTES], const char **argv)
{
    int i = 0;

    snprintf(text[0], PATH_BYTES, "%d", nranks);
    if (!tool_self_path(text[1], PATH_BYTES))
        return false;
    argv[i++] = text[1];
    argv[i++] = "run";
    argv[i++] = "-n";
    argv[i++] = text[0];
    argv[i++] = "--bind";
    argv[i++] = "none";
    argv[i++] = "--";
    if (peer && !strcmp(peer, "torch")) {
        if (!torch_program(text[2], PATH_BYTES))
            return false;
        argv[i++] = "python3";
        argv[i++] = text[2];
    } else {
        argv[i++] = text[1];
        argv[i++] = "perf";
        argv[i++] = "--worker";
        argv[i++] = "--device";
        argv[i++] = "cuda";
        argv[i++] = "--library";
        argv[i++] = peer ? peer : "solccl";
    }
    argv[i] = NULL;
    return true;
}

static bool launch_command(const char *peer, int nranks, bool bind, char text[4][PATH_BYTES],
                           const char **argv)
{
    int i = 0;

    snprintf(text[0], PATH_BYTES, "%d", nranks);
    if (peer) {
        snprintf(text[1], PATH_BYTES, "mpirun.%s", peer);
        argv[i++] = text[1];
        if (!peer_program(peer, text[2], PATH_BYTES))
            return false;
    } else {
        if (!tool_self_path(text[1], PATH_BYTES))
            return false;
        argv[i++] = text[1];
        argv[i++] = "run";
    }
    argv[i++] = "-n";
    argv[i++] = text[0];
    if (peer && !strcmp(peer, "openmpi")) {
        argv[i++] = "--allow-run-as-root";
        argv[i++] = "-x";
        argv[i++] = PERF_SOCKET_VARIABLE;
        argv[i++] = "--bind-to";
        argv[i++] = bind ? "core" : "none";
        argv[i++] = bind ? "--map-by" : "--oversubscribe";
        if (bind)
            argv[i++] = "core";
    } else if (peer) {
        argv[i++] = "-bind-to";
        argv[i++] = bind ? "core" : "none";
    } else {
        argv[i++] = "--bind";
        argv[i++] = bind ? "core" : "none";
        argv[i++] = "--";
        argv[i++] = text[1];
        argv[i++] = "perf";
        argv[i++] = "--worker";
    }
    if (peer)
        argv[i++] = text[2];
    argv[i] = NULL;
    return true;
}

static void become_launcher(const perf_driver_t *driver, pid_t parent, const char **argv)
{
    int null = open("/dev/null", O_RDONLY);

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    setpgid(0, 0); /* so that all of it can be ended at once */
    if (null >= 0)
        dup2(null, STDIN_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO); /* the table is ours alone */
    setenv(PERF_SOCKET_VARIABLE, driver->socket, 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    tool_error("perf", "cannot run %s: %s", argv[0], strerror(errno));
    _exit(127);
}

static bool launch(perf_driver_t *driver, perf_side_t *side, const char *peer, bool bind)
{
    char(*text)[PATH_BYTES] = tool_calloc(4, PATH_BYTES);
    const char *argv[24];
    pid_t parent = getpid();

    if (!text)
        return false;
    if (!(driver->gpu ? gpu_command(peer, side->nranks, text, argv)
                      : launch_command(peer, side->nranks, bind, text, argv))) {
        tool_free(text);
        tool_error("perf", "the program for %s is not to be found", side->name);
        return false;
    }
    fflush(NULL);
    side->launcher = fork();
    if (side->launcher == 0)
        become_launcher(driver, parent, argv);
    tool_free(text);
    if (side->launcher < 0) {
        side->launcher = 0;
        tool_error("perf", "%s cannot be started: %s", side->name, strerror(errno));
        return false;
    }
    return true;
}

/* ---- hello */

static bool launcher_has_ended(perf_side_t *side)
{
    int status;

    if (!side->launcher || waitpid(side->launcher, &status, WNOHANG) != side->launcher)
        return false;
    side->launcher = 0;
    tool_error("perf", "the ranks of %s ended (status %d) before all had come", side->name,
               WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return true;
}

static bool take_hello(perf_side_t *side, const char *line, int fd)
{
    char name[32];
    int rank, nranks, pid, cpu, length = 0;

    if (sscanf(line, "hello %31s %d %d %d %d %n", name, &rank, &nranks, &pid, &cpu, &length) < 5 ||
        strcmp(name, side->name) || rank < 0 || rank >= SOL_MAX_RANKS) {
        tool_error("perf", "an unexpected rank said '%s'", line);
        return false;
    }
    if (side->nranks == 0)
        side->nranks = nranks; /* attached: the launcher decided */
    if (nranks != side->nranks || rank >= nranks || side->fds[rank] >= 0) {
        tool_error("perf", "rank %d of %d came where one of %d ranks was expected", rank, nranks,
                   side->nranks);
        return false;
    }
    side->fds[rank] = fd;
    side->pids[rank] = pid;
    side->cpus[rank] = cpu;
    if (rank == 0)
        snprintf(side->version, sizeof(side->version), "%s", line + length);
    return true;
}

static bool await_ranks(perf_driver_t *driver, perf_side_t *side)
{
    uint64_t end = deadline(START_S);
    int came = 0;

    while (side->nranks == 0 || came < side->nranks) {
        uint64_t look = tool_now_ns() + 200000000u;
        int fd = perf_wire_accept(driver->listener, look);

        if (fd < 0 && (launcher_has_ended(side) || tool_now_ns() > end)) {
            tool_error("perf", "%d of %d ranks of %s came within %d s", came, side->nranks,
                       side->name, START_S);
            return false;
        }
        if (fd < 0)
            continue;
        if (!perf_wire_receive(fd, driver->message, end)) {
            tool_error("perf", "a rank of %s came and did not say hello (%s)", side->name,
                       errno ? strerror(errno) : "it has gone");
            close(fd);
            return false;
        }
        if (!take_hello(side, driver->message->line, fd)) {
            close(fd);
            return false;
        }
        came++;
    }
    return true;
}

bool perf_driver_add(perf_driver_t *driver, const char *peer, int nranks, bool bind, bool launched)
{
    perf_side_t *side = &driver->sides[driver->nsides];
    int rank;

    if (driver->nsides == PERF_MAX_SIDES)
        return false;
    memset(side, 0, sizeof(*side));
    for (rank = 0; rank < SOL_MAX_RANKS; rank++)
        side->fds[rank] = -1;
    snprintf(side->name, sizeof(side->name), "%s", peer ? peer : "solccl");
    side->nranks = nranks;
    driver->nsides++; /* from here on perf_driver_close ends it */
    if (launched && !launch(driver, side, peer, bind))
        return false;
    return await_ranks(driver, side);
}

/* ---- commands */

bool perf_side_tell(perf_side_t *side, int rank, const char *line, int pass)
{
    if (perf_wire_send(side->fds[rank], line, NULL, 0, pass))
        return true;
    tool_error("perf", "rank %d of %s (pid %d) has gone", rank, side->name, side->pids[rank]);
    return false;
}

static bool tell_all(perf_side_t *side, const char *line)
{
    int rank;

    for (rank = 0; rank < side->nranks; rank++)
        if (!perf_side_tell(side, rank, line, -1))
            return false;
    return true;
}

/* The next message of a rank; says on stderr what is wrong. */
static bool hear(perf_driver_t *driver, perf_side_t *side, int rank, uint64_t end)
{
    perf_message_t *message = driver->message;

    if (perf_wire_receive(side->fds[rank], message, end)) {
        if (strncmp(message->line, "error ", 6))
            return true;
        tool_error("perf", "rank %d of %s: %s", rank, side->name, message->line + 6);
        return false;
    }
    if (errno == ETIMEDOUT)
        tool_error("perf", "rank %d of %s has not answered for %g s (--timeout)", rank, side->name,
                   driver->timeout_s);
    else
        tool_error("perf", "rank %d of %s (pid %d) has ended", rank, side->name, side->pids[rank]);
    return false;
}

const char *perf_side_answer(perf_driver_t *driver, perf_side_t *side, int rank)
{
    const char *line = driver->message->line;

    if (!hear(driver, side, rank, deadline(driver->timeout_s)))
        return NULL;
    return strncmp(line, "ok ", 3) ? line + strlen(line) : line + 3;
}

bool perf_side_bind(perf_driver_t *driver, perf_side_t *side, const int *cpus)
{
    char line[64];
    int rank;

    for (rank = 0; rank < side->nranks; rank++) {
        snprintf(line, sizeof(line), "bind %d", cpus[rank]);
        if (!perf_side_tell(side, rank, line, -1) || !perf_side_answer(driver, side, rank))
            return false;
        side->cpus[rank] = cpus[rank];
    }
    return true;
}

bool perf_side_setup(perf_driver_t *driver, perf_side_t *side, const perf_case_t *c, long checks,
                     perf_setup_t *setup)
{
    uint64_t end = deadline(driver->timeout_s);
    char line[PERF_LINE], text[256];
    bool well = true;
    int rank, length;
    size_t wrong;

    memset(setup, 0, sizeof(*setup));
    setup->supported = true;
    perf_case_write(c, text, sizeof(text));
    snprintf(line, sizeof(line), "setup %ld %s", checks, text);
    if (!tell_all(side, line))
        return false;
    for (rank = 0; rank < side->nranks; rank++) {
        const char *said = driver->message->line;

        if (!hear(driver, side, rank, end)) {
            well = false; /* hear the others too: their texts belong to the story */
            continue;
        }
        if (!strncmp(said, "unsupported ", 12)) {
            setup->supported = false;
            snprintf(setup->protocol, sizeof(setup->protocol), "%.255s", said + 12);
        } else if (sscanf(said, "ok %zu %n", &wrong, &length) == 1) {
            setup->wrong += wrong;
            if (rank == 0)
                snprintf(setup->protocol, sizeof(setup->protocol), "%.255s", said + length);
        }
    }
    return well;
}

bool perf_side_time(perf_driver_t *driver, perf_side_t *side, size_t samples, size_t warm,
                    size_t batch, bool alone, double *slowest)
{
    uint64_t end = deadline(driver->timeout_s);
    char line[PERF_LINE];
    bool well = true;
    int rank;

    snprintf(line, sizeof(line), "time %zu %zu %zu %d", samples, warm, batch, alone);
    if (!tell_all(side, line))
        return false;
    memset(slowest, 0, samples * sizeof(*slowest));
    for (rank = 0; rank < side->nranks; rank++) {
        if (!hear(driver, side, rank, end))
            well = false;
        else if (driver->message->count == samples)
            perf_take_slowest(slowest, driver->message->samples, samples);
        else
            well = false;
    }
    return well;
}

bool perf_side_clear(perf_driver_t *driver, perf_side_t *side)
{
    uint64_t end = deadline(driver->timeout_s);
    bool well = tell_all(side, "clear");
    int rank;

    for (rank = 0; well && rank < side->nranks; rank++)
        well = hear(driver, side, rank, end);
    return well;
}

/* ---- the end */

/* Wait for a launcher, at most so long. */
static bool gone_within(perf_side_t *side, int ms)
{
    int waited;

    for (waited = 0; waited < ms && side->launcher; waited += 10) {
        if (waitpid(side->launcher, NULL, WNOHANG) != 0)
            side->launcher = 0;
        else
            poll(NULL, 0, 10);
    }
    return side->launcher == 0;
}

void perf_driver_close(perf_driver_t *driver)
{
    int i, rank;

    for (i = 0; i < driver->nsides; i++)
        for (rank = 0; rank < SOL_MAX_RANKS; rank++) {
            if (driver->sides[i].fds[rank] < 0)
                continue;
            perf_wire_send(driver->sides[i].fds[rank], "quit", NULL, 0, -1);
            close(driver->sides[i].fds[rank]);
            driver->sides[i].fds[rank] = -1;
        }
    for (i = 0; i < driver->nsides; i++) {
        perf_side_t *side = &driver->sides[i];

        if (!side->launcher || gone_within(side, END_MS))
            continue;
        kill(-side->launcher, SIGTERM);
        if (gone_within(side, END_MS))
            continue;
        kill(-side->launcher, SIGKILL);
        gone_within(side, END_MS);
    }
    if (driver->listener >= 0)
        close(driver->listener);
    tool_free(driver->message);
    memset(driver, 0, sizeof(*driver));
    driver->listener = -1;
}
