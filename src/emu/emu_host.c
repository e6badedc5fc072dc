/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_host.c: programs as they are, on the emulated machine: the main() of a
 * program that uses solccl's device API runs once for every rank, and the host
 * functions of solccl.h and device.h that such a program needs are here.
 *
 *   c++ (flags of `solccl emu`) kernel.cu libsolccl-emu.a -o kernel
 *   ./kernel --ranks 4 --seeds 100
 *
 * Ranks are coroutines of one thread. A rank runs until it waits, for a stream or
 * for other ranks; when all wait, the machine runs until somebody's wait is over.
 * So kernels of all ranks are there before any runs, and everything follows from
 * the seed. Each seed has a process of its own, since programs have globals.
 */
#include "emu/emu_machine.h"
#include "proto/dev_layout.h"
#include "solccl/device.h"
#include "solccl/device/fate.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define STACK_BYTES ((size_t)8 << 20)
#define MEMORIES 64 /* symmetric, of a program */
#define TEXT 512

/* The program's main(), renamed by the compiler's command line: one of them is there. */
extern int emu_main_arguments(int argc, char **argv) __asm__("_Z13sol_emu_main_iPPc")
    __attribute__((weak));
extern int emu_main_plain(void) __asm__("_Z13sol_emu_main_v") __attribute__((weak));

struct sol_comm { /* one a rank */
    int rank;
    bool made;
    sol_status_t status;
    char text[TEXT];
};

struct memory { /* symmetric */
    char *base[SOL_DEV_MAX_RANKS];
    char *multicast; /* SOLCCL_CUDA_MULTICAST=1, as on GPUs */
    size_t bytes;
    bool freed[SOL_DEV_MAX_RANKS];
};

enum rank_state { READY, WAITING, MEETING, LEFT };

struct host_rank {
    ucontext_t context;
    enum rank_state state;
    bool (*done)(const void *);
    const void *arg;
    int device, code;
    const char *what; /* MEETING: in which function */
    uint64_t value;   /* and with what, which must be equal */
    uint64_t met;     /* meetings so far */
    struct sol_comm comm;
    int argc;
    char **argv;
};

static struct {
    int n, devices, running;
    bool time_passes;
    uint64_t random;
    ucontext_t scheduler;
    struct host_rank ranks[SOL_DEV_MAX_RANKS];
    struct memory memories[MEMORIES];
    int memory_count;
    struct sol_gpu_error *error[SOL_DEV_MAX_RANKS];
    uint32_t *abort_word;
} host;

static struct host_rank *me(void)
{
    return &host.ranks[host.running];
}

static uint64_t draw(void)
{
    uint64_t z = host.random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    return z ^ z >> 27;
}

/* ------------------------------------------------------------------------ turns */

static void give_turn(void)
{
    struct host_rank *r = me();
    cudaGetDevice(&r->device);
    swapcontext(&r->context, &host.scheduler);
    cudaSetDevice(r->device);
}

static bool wait_in_turns(bool (*done)(const void *), const void *arg)
{
    struct host_rank *r = me();
    r->state = WAITING;
    r->done = done;
    r->arg = arg;
    give_turn();
    return !emu_failed();
}

/* All ranks come here, with equal `value`. False: they differ. */
static bool meet(const char *what, uint64_t value)
{
    struct host_rank *r = me();
    r->state = MEETING;
    r->what = what;
    r->value = value;
    give_turn();
    for (int i = 0; i < host.n; i++) {
        if (host.ranks[i].value != value) {
            return false;
        }
    }
    return true;
}

static bool any_done(const void *unused)
{
    (void)unused;
    for (int i = 0; i < host.n; i++) {
        const struct host_rank *r = &host.ranks[i];
        if (r->state == WAITING && r->done(r->arg)) {
            return true;
        }
    }
    return false;
}

static void end_waits(void)
{
    int meeting = 0;
    for (int i = 0; i < host.n; i++) {
        struct host_rank *r = &host.ranks[i];
        meeting += r->state == MEETING;
        if (r->state == WAITING && (emu_failed() || r->done(r->arg))) {
            r->state = READY;
        }
    }
    for (int i = 0; meeting == host.n && i < host.n; i++) {
        host.ranks[i].state = READY;
    }
}

static int draw_ready(void)
{
    int ready[SOL_DEV_MAX_RANKS], count = 0;
    for (int i = 0; i < host.n; i++) {
        if (host.ranks[i].state == READY) {
            ready[count++] = i;
        }
    }
    return count ? ready[draw() % (uint64_t)count] : -1;
}

/* Ranks wait for a rank that will not come. */
static int stuck(void)
{
    for (int i = 0; i < host.n; i++) {
        if (host.ranks[i].state == MEETING) {
            printf("emu: rank %d waits in %s for a rank that has returned\n", i,
                   host.ranks[i].what);
        }
    }
    return 1;
}

/* All ranks to their ends. The largest exit status; 1 if the machine failed. */
static int run_ranks(void)
{
    int code = 0;
    for (;;) {
        int left = 0, waiting = 0, next = draw_ready();
        for (int i = 0; i < host.n; i++) {
            left += host.ranks[i].state == LEFT;
            waiting += host.ranks[i].state == WAITING;
        }
        if (left == host.n) {
            break;
        }
        if (next >= 0) {
            host.running = next;
            swapcontext(&host.scheduler, &host.ranks[next].context);
        } else if (waiting) {
            emu_run(any_done, NULL);
        } else if (left) {
            return stuck();
        }
        end_waits();
    }
    for (int i = 0; i < host.n; i++) {
        code = host.ranks[i].code > code ? host.ranks[i].code : code;
    }
    return emu_failed() ? 1 : code;
}

static void enter_rank(void)
{
    struct host_rank *r = me();
    cudaSetDevice(host.running % host.devices);
    r->code = emu_main_arguments ? emu_main_arguments(r->argc, r->argv) : emu_main_plain();
    me()->state = LEFT;
    swapcontext(&me()->context, &host.scheduler);
}

static bool prepare(struct host_rank *r, int argc, char **argv)
{
    void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED || getcontext(&r->context) != 0) {
        return false;
    }
    r->argc = argc;
    r->argv = argv;
    r->context.uc_stack.ss_sp = stack;
    r->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&r->context, enter_rank, 0);
    return true;
}

/* --------------------------------------------------------------- what solccl.h has */

static sol_status_t fail(sol_comm_t comm, sol_status_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static sol_status_t fail(sol_comm_t comm, sol_status_t status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(comm->text, sizeof comm->text, format, args);
    va_end(args);
    return status;
}

sol_status_t sol_comm_create_from_env(sol_comm_t *comm, const sol_comm_config_t *config)
{
    struct host_rank *r = me();
    (void)config;
    *comm = &r->comm;
    r->comm.rank = host.running;
    r->comm.made = true;
    meet("sol_comm_create_from_env", 1);
    return SOL_OK;
}

sol_status_t sol_comm_destroy(sol_comm_t comm)
{
    if (comm) {
        comm->made = false;
    }
    return SOL_OK;
}

sol_status_t sol_comm_rank(sol_comm_t comm, int *rank)
{
    *rank = comm->rank;
    return SOL_OK;
}

sol_status_t sol_comm_size(sol_comm_t comm, int *nranks)
{
    (void)comm;
    *nranks = host.n;
    return SOL_OK;
}

sol_status_t sol_comm_query(sol_comm_t comm, sol_comm_info_t *info)
{
    info->rank = comm->rank;
    info->nranks = host.n;
    info->backend = SOL_BACKEND_CUDA;
    info->device = comm->rank % host.devices;
    info->sequence = 0;
    info->shared_bytes = 0;
    info->oversubscribed = 0;
    info->asleep = 0;
    return SOL_OK;
}

sol_status_t sol_comm_abort(sol_comm_t comm)
{
    (void)comm;
    *(volatile uint32_t *)host.abort_word = 1;
    return SOL_OK;
}

/* What a kernel that gave up wrote down. */
static void look_at_records(sol_comm_t comm)
{
    for (int r = 0; comm->status == SOL_OK && r < host.n; r++) {
        const struct sol_gpu_error *e = host.error[r];
        const char *what = e->func == SOL_GPU_WHO_SESSION   ? "session"
                           : e->func == SOL_GPU_WHO_BARRIER ? "barrier"
                                                            : "counter";
        if (e->fault == SOL_GPU_FAULT_NONE) {
            continue;
        }
        comm->status = fail(
            comm, e->fault == SOL_GPU_FAULT_ABORT ? SOL_ERR_ABORTED : SOL_ERR_TIMEOUT,
            "a kernel: %s %llu, epoch or value %llu: rank %d gave up waiting for rank %d", what,
            (unsigned long long)e->bytes, (unsigned long long)e->sequence, e->rank, e->awaited);
    }
}

sol_status_t sol_comm_async_error(sol_comm_t comm, sol_status_t *error)
{
    look_at_records(comm);
    *error = comm->status;
    return SOL_OK;
}

const char *sol_last_error(sol_comm_t comm)
{
    return comm ? comm->text : me()->comm.text;
}

/* An address at which nothing lies, for all ranks' memories. */
static void give_multicast(struct memory *m)
{
    const char *asked = getenv("SOLCCL_CUDA_MULTICAST");
    char *nowhere = (char *)(((uintptr_t)host.memory_count + 1) << 36 | (uintptr_t)5 << 60);
    if (asked && strcmp(asked, "1") == 0 && emu_multicast(nowhere, m->bytes, m->base, host.n)) {
        m->multicast = nowhere;
    }
}

sol_status_t sol_mem_alloc(sol_comm_t comm, size_t bytes, void **memory)
{
    struct memory *m = &host.memories[host.memory_count];
    char *own = NULL;
    if (host.memory_count == MEMORIES) {
        return fail(comm, SOL_ERR_MEMORY, "the emulator has %d symmetric memories", MEMORIES);
    }
    if (cudaMalloc((void **)&own, bytes) != cudaSuccess) {
        return fail(comm, SOL_ERR_MEMORY, "sol_mem_alloc: no memory");
    }
    cudaMemset(own, 0, bytes);
    emu_name(own, "symmetric memory %d of rank %d", host.memory_count, comm->rank);
    m->base[comm->rank] = own;
    m->bytes = bytes;
    bool equal = meet("sol_mem_alloc", bytes);
    if (m == &host.memories[host.memory_count]) {
        give_multicast(m);
        host.memory_count++; /* by the first to come back */
    }
    *memory = own;
    return equal ? SOL_OK
                 : fail(comm, SOL_ERR_MISMATCH, "sol_mem_alloc: ranks passed different sizes");
}

static struct memory *find(sol_comm_t comm, const void *memory)
{
    for (int i = 0; i < host.memory_count; i++) {
        if (host.memories[i].base[comm->rank] == memory) {
            return &host.memories[i];
        }
    }
    return NULL;
}

sol_status_t sol_mem_free(sol_comm_t comm, void *memory)
{
    struct memory *m = find(comm, memory);
    if (!memory) {
        return SOL_OK;
    }
    if (!m || m->freed[comm->rank]) {
        return fail(comm, SOL_ERR_ARGUMENT, "sol_mem_free: not from sol_mem_alloc, or freed");
    }
    m->freed[comm->rank] = true; /* peers may still push: it stays until the end */
    return SOL_OK;
}

sol_status_t sol_mem_window(sol_comm_t comm, void *memory, sol_window_t *window)
{
    const struct memory *m = find(comm, memory);
    memset(window, 0, sizeof *window);
    if (!m) {
        return fail(comm, SOL_ERR_ARGUMENT, "sol_mem_window: not from sol_mem_alloc");
    }
    memcpy(window->base, m->base, sizeof window->base);
    window->bytes = m->bytes;
    window->multicast = m->multicast;
    return SOL_OK;
}

/* -------------------------------------------------------------- what device.h has */

static uint64_t fingerprint(const sol_dev_config_t *config)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof *config; i++) {
        hash = (hash ^ ((const unsigned char *)config)[i]) * 0x100000001b3u;
    }
    return hash;
}

sol_status_t sol_dev_comm_create(sol_comm_t comm, const sol_dev_config_t *config,
                                 sol_dev_comm_t *dev)
{
    const int rank = comm->rank;
    struct sol_bound bound = {.error = host.error[rank],
                              .abort_word = host.abort_word,
                              .timeout_ns = 100000000,
                              .rank = rank};
    void *memory = NULL;
    if (sol_dev_check(config, host.n, comm->text, sizeof comm->text) != SOL_OK) {
        return SOL_ERR_ARGUMENT;
    }
    if (!meet("sol_dev_comm_create", fingerprint(config))) {
        return fail(comm, SOL_ERR_MISMATCH, "sol_dev_comm_create: ranks ask for different things");
    }
    struct sol_dev_layout layout = sol_dev_layout_of(config, host.n);
    sol_status_t status = sol_mem_alloc(comm, layout.total, &memory);
    unsigned char *image = calloc(1, layout.memory);
    if (status != SOL_OK || !image) {
        free(image);
        return fail(comm, SOL_ERR_MEMORY, "sol_dev_comm_create: no memory");
    }
    sol_dev_fill(&layout, config, host.n, image);
    cudaMemcpy(memory, image, layout.memory, cudaMemcpyHostToDevice);
    free(image);
    emu_name(memory, "device communicator of rank %d", rank);
    meet("sol_dev_comm_create", 2);
    const struct memory *m = find(comm, memory);
    sol_dev_describe(&layout, config, m->base, rank, host.n, &bound, dev);
    if (config->multicast && m->multicast) {
        dev->memory.multicast = m->multicast + layout.memory;
    }
    return SOL_OK;
}

sol_status_t sol_dev_comm_destroy(sol_comm_t comm, sol_dev_comm_t *dev)
{
    sol_status_t status = sol_mem_free(comm, dev->allocation);
    memset(dev, 0, sizeof *dev);
    return status;
}

/* ------------------------------------------------------------------------ program */

static const char usage[] =
    "options of a program built for solccl's emulator:\n"
    "  -n, --ranks N  ranks, 1 to 8 (2)\n"
    "  --seed S       of the first run; printed (drawn from the clock)\n"
    "  --seeds K      so many runs, with the seeds S, S + 1, ... (1)\n"
    "  --devices D    emulated GPUs; rank r is on r mod D (N)\n"
    "  --time-passes  a wait that nobody will end times out, and is no error by itself\n"
    "  --             what follows is the program's own\n"
    "  -h, --help\n";

struct plan {
    int ranks, devices;
    uint64_t seed, seeds;
    bool time_passes;
    int argc;
    char **argv;
};

/* A whole number from `least` to `most`; false: it is none, or lacks. */
static bool read_value(const char *text, uint64_t least, uint64_t most, uint64_t *value)
{
    char *end = NULL;
    errno = 0;
    *value = text != NULL ? strtoull(text, &end, 0) : 0;
    return text != NULL && text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 &&
           *value >= least && *value <= most;
}

/* -1, or the exit status: of a wrong option, which is named, or of a call for help. */
static int read_plan(struct plan *p, int argc, char **argv)
{
    uint64_t ranks = 2, devices = 0;
    int i = 1;
    *p = (struct plan){.seeds = 1, .seed = (uint64_t)time(NULL) % 1000000 + 1};
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool good = false;
        if (strcmp(name, "--time-passes") == 0) {
            p->time_passes = true;
            continue;
        }
        if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
            fputs(usage, stdout);
            return 0;
        }
        if (strcmp(name, "--ranks") == 0 || strcmp(name, "-n") == 0) {
            good = read_value(value, 1, SOL_DEV_MAX_RANKS, &ranks);
        } else if (strcmp(name, "--devices") == 0) {
            good = read_value(value, 1, SOL_DEV_MAX_RANKS, &devices);
        } else if (strcmp(name, "--seed") == 0) {
            good = read_value(value, 0, UINT64_MAX, &p->seed);
        } else if (strcmp(name, "--seeds") == 0) {
            good = read_value(value, 0, UINT64_MAX, &p->seeds);
        } else {
            fprintf(stderr, "%s: '%s' is not an option\n%s", argv[0], name, usage);
            return 2;
        }
        if (!good) {
            fprintf(stderr, "%s: %s %s: not a number that it can be\n%s", argv[0], name,
                    value != NULL ? value : "without a value", usage);
            return 2;
        }
        i++;
    }
    p->argc = i < argc ? argc - i : 1;
    p->argv = i < argc ? argv + i : argv + argc - 1;
    p->argv[0] = argv[0];
    p->ranks = (int)ranks;
    p->devices = devices != 0 ? (int)devices : p->ranks;
    return -1;
}

static int run_seed(const struct plan *p, uint64_t seed)
{
    struct emu_options options = {.seed = seed,
                                  .devices = p->devices,
                                  .sms = 132 * ((p->ranks + p->devices - 1) / p->devices),
                                  .time_passes = p->time_passes};
    if (!emu_open(&options)) {
        fputs("emu: the system refused memory\n", stderr);
        return 2;
    }
    host.n = p->ranks;
    host.devices = p->devices;
    host.random = seed ^ 0x5bd1e995u;
    cudaHostAlloc((void **)&host.abort_word, 8, cudaHostAllocMapped);
    cudaMemset(host.abort_word, 0, 8);
    for (int r = 0; r < host.n; r++) {
        cudaSetDevice(r % host.devices);
        cudaHostAlloc((void **)&host.error[r], sizeof *host.error[r], cudaHostAllocMapped);
        cudaMemset(host.error[r], 0, sizeof *host.error[r]);
        if (!prepare(&host.ranks[r], p->argc, p->argv)) {
            return 2;
        }
    }
    emu_host_waits(wait_in_turns);
    int code = run_ranks();
    emu_host_waits(NULL);
    if (emu_failed()) {
        fflush(stdout);
        fputs(emu_report(), stdout);
    }
    fflush(stdout);
    return code;
}

int main(int argc, char **argv)
{
    struct plan p;
    unsigned long long good = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    int done = emu_main_arguments || emu_main_plain ? read_plan(&p, argc, argv) : 2;
    if (done >= 0) {
        return done;
    }
    for (uint64_t i = 0; i < p.seeds; i++) {
        int status = 0;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            _exit(run_seed(&p, p.seed + i));
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            printf("FAILED: %d ranks, --seed %#llx (%s %d)\n", p.ranks,
                   (unsigned long long)p.seed + i, WIFSIGNALED(status) ? "signal" : "exit status",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            return 1;
        }
        good++;
    }
    printf("%llu passed, 0 failed: %d ranks, seeds from %#llx\n", good, p.ranks,
           (unsigned long long)p.seed);
    return 0;
}
