/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dump.c: writing the flight recorder down, as JSON: on demand, when a
 * communicator fails, and in a signal handler. `solccl doctor` reads it.
 *
 * Everything below sol_comm_dump may run in a signal handler that interrupted
 * anything: it only loads, formats into a buffer on the stack and calls write,
 * openat, renameat, getrandom and clock_gettime. No lock, no memory, no stdio.
 *
 * A file is made under a name that cannot be foreseen, exclusively, without
 * following links, readable by its owner alone, and gets its final name when it
 * is whole.
 */
#include "core/use.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define DUMPS_AT_MOST 256 /* of one process, when communicators fail: a disk is finite */
#define SIGNALS_AT_MOST 3

/* ------------------------------------------------------------------------- writing */

typedef struct writer {
    int fd;
    int error; /* first errno */
    size_t used;
    char buffer[4096];
} writer_t;

static void flush(writer_t *w)
{
    size_t done = 0;
    if (w->error == 0 && !sol_file_room(w->fd, w->used)) {
        w->error = EFBIG;
    }
    while (done < w->used && w->error == 0) {
        ssize_t wrote = sol_file_write(w->fd, w->buffer + done, w->used - done);
        if (wrote > 0) {
            done += (size_t)wrote;
        } else if (wrote < 0 && errno != EINTR) {
            w->error = errno;
        } else if (wrote == 0) {
            w->error = EIO;
        }
    }
    w->used = 0;
}

static void put_char(writer_t *w, char c)
{
    if (w->used == sizeof(w->buffer)) {
        flush(w);
    }
    w->buffer[w->used++] = c;
}

static void put(writer_t *w, const char *text)
{
    while (*text != '\0') {
        put_char(w, *text++);
    }
}

static void put_number(writer_t *w, uint64_t value)
{
    char digits[24];
    int n = 0;
    do {
        digits[n++] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    while (n > 0) {
        put_char(w, digits[--n]);
    }
}

static void put_signed(writer_t *w, int64_t value)
{
    if (value < 0) {
        put_char(w, '-');
    }
    put_number(w, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

static void put_hex(writer_t *w, uint64_t value, int digits)
{
    for (int i = digits - 1; i >= 0; i--) {
        put_char(w, "0123456789abcdef"[value >> 4 * i & 15]);
    }
}

static void put_string(writer_t *w, const char *text)
{
    put_char(w, '"');
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            put_char(w, '\\');
            put_char(w, (char)c);
        } else {
            put_char(w, c < 0x20 || c == 0x7f ? ' ' : (char)c);
        }
    }
    put_char(w, '"');
}

/* "key": of an object's first (or later) member. */
static void key(writer_t *w, const char *name)
{
    put(w, ", \"");
    put(w, name);
    put(w, "\": ");
}

static void put_member(writer_t *w, const char *name, uint64_t value)
{
    key(w, name);
    put_number(w, value);
}

static void put_text(writer_t *w, const char *name, const char *value)
{
    key(w, name);
    put_string(w, value);
}

/* -------------------------------------------------------------------------- clocks */

/* Ticks to nanoseconds of CLOCK_REALTIME, by the two moments at which both clocks were read. */
typedef struct scale {
    uint64_t ticks, epoch_ns;
    double ns_per_tick;
} scale_t;

static scale_t scale_of(const sol_flight_t *flight)
{
    uint64_t ticks = sol_ticks() - flight->ticks, ns = sol_now_ns() - flight->now_ns;
    return (scale_t){flight->ticks, flight->epoch_ns,
                     ticks != 0 ? (double)ns / (double)ticks : 1.0};
}

static uint64_t scale_ticks(const scale_t *scale, uint64_t ticks)
{
    return scale->epoch_ns + (uint64_t)((double)(ticks - scale->ticks) * scale->ns_per_tick);
}

/* ---------------------------------------------------------------------- operations */

static bool reduces(sol_func_t func)
{
    return func == SOL_FUNC_ALL_REDUCE || func == SOL_FUNC_REDUCE_SCATTER ||
           func == SOL_FUNC_REDUCE;
}

static bool has_root(sol_func_t func)
{
    return func == SOL_FUNC_BROADCAST || func == SOL_FUNC_REDUCE || func == SOL_FUNC_GATHER ||
           func == SOL_FUNC_SCATTER;
}

static void put_call(writer_t *w, const sol_call_t *call, uint64_t collective)
{
    bool pair = call->func == SOL_FUNC_SEND || call->func == SOL_FUNC_RECV;
    put(w, "{\"sequence\": ");
    put_number(w, call->sequence);
    put_member(w, "collective", collective);
    put_text(w, "func", sol_func_name(call->func));
    put_member(w, "count", call->count);
    put_text(w, "dtype", sol_dtype_name(call->dtype));
    if (reduces(call->func)) {
        put_text(w, "op",
                 call->reduction.premul ? "premul_sum" : sol_redop_name(call->reduction.op));
    }
    if (pair || has_root(call->func)) {
        key(w, pair ? "peer" : "root");
        put_signed(w, call->root);
    }
}

/* What is known of one operation; times in ns, 0 where it was not clocked. */
typedef struct entry {
    sol_call_t call;
    uint64_t begun, ns, waited_ns, stream;
    int status;
    bool captured;
} entry_t;

/* Copies entry `s` while it is there. False: it was overwritten, or is being. */
static bool read_entry(sol_comm_t comm, uint64_t s, const scale_t *scale, entry_t *e)
{
    const sol_flight_op_t *op = &comm->flight->ops[s % SOL_FLIGHT_OPS];
    const sol_flight_more_t *more = &comm->flight->more[s % SOL_FLIGHT_OPS];
    memset(e, 0, sizeof(*e));
    sol_call_unpack(SOL_FLIGHT_GET(op->what), &e->call);
    e->call.count = (size_t)SOL_FLIGHT_GET(op->count);
    e->call.sequence = s;
    uint64_t begun = SOL_FLIGHT_GET(op->begun), ended = SOL_FLIGHT_GET(op->ended);
    e->begun = begun != 0 ? scale_ticks(scale, begun) : 0;
    e->ns = begun != 0 && ended != 0 ? (uint64_t)((double)(ended - begun) * scale->ns_per_tick) : 0;
    /* acquire: pairs with the release in sol_flight_more */
    if (atomic_load_explicit(&more->sequence, memory_order_acquire) == s) {
        e->status = SOL_FLIGHT_GET(more->status);
        e->captured = SOL_FLIGHT_GET(more->captured) != 0;
        e->waited_ns = SOL_FLIGHT_GET(more->waited_ns);
        e->stream = SOL_FLIGHT_GET(more->stream);
    }
    e->status = e->status == SOL_FLIGHT_RUNNING ? SOL_OK : e->status;
    atomic_thread_fence(memory_order_acquire);
    /* the next one to be written takes the place of the oldest */
    bool oldest =
        atomic_load_explicit(&comm->sequence, memory_order_acquire) + 1 >= s + SOL_FLIGHT_OPS;
    return !oldest || !sol_use_inside(comm);
}

static const char *state_of(sol_comm_t comm, const entry_t *e, bool last)
{
    if (e->status != SOL_OK) {
        return "failed";
    }
    if (!comm->blocking) {
        return e->captured ? "captured" : "enqueued";
    }
    return last && sol_use_inside(comm) ? "running" : "done";
}

static void put_entry(writer_t *w, sol_comm_t comm, const entry_t *e, uint64_t collective,
                      bool last)
{
    put_call(w, &e->call, collective);
    if (!comm->blocking) {
        key(w, "stream");
        put(w, "\"0x");
        put_hex(w, e->stream, 16);
        put(w, "\"");
    }
    if (e->begun != 0) {
        put_member(w, "begun", e->begun);
    }
    if (e->ns != 0) {
        put_member(w, "ns", e->ns);
    }
    if (e->waited_ns != 0) {
        put_member(w, "waited_ns", e->waited_ns);
    }
    put_text(w, "state", state_of(comm, e, last));
    if (e->status != SOL_OK) {
        key(w, "status");
        put_signed(w, e->status);
    }
    put(w, "}");
}

static bool is_collective(const entry_t *e)
{
    return e->call.func != SOL_FUNC_SEND && e->call.func != SOL_FUNC_RECV;
}

/* The number of the last collective before operation `s`: the total less those since then. */
static uint64_t collectives_before(sol_comm_t comm, uint64_t s, uint64_t sequence,
                                   const scale_t *scale)
{
    uint64_t total = sequence - SOL_FLIGHT_GET(comm->flight->pairs);
    entry_t e;
    for (; s <= sequence; s++) {
        total -= read_entry(comm, s, scale, &e) && is_collective(&e) && total > 0;
    }
    return total;
}

static void put_ops(writer_t *w, sol_comm_t comm, uint64_t sequence)
{
    scale_t scale = scale_of(comm->flight);
    uint64_t first = sequence > SOL_FLIGHT_OPS ? sequence + 1 - SOL_FLIGHT_OPS : 1, n = 0;
    uint64_t collective = collectives_before(comm, first, sequence, &scale);
    entry_t e;
    key(w, "operations");
    put(w, "[");
    for (uint64_t s = first; s <= sequence; s++) {
        if (!read_entry(comm, s, &scale, &e)) {
            continue; /* the communicator goes on meanwhile */
        }
        collective += is_collective(&e);
        put(w, n++ == 0 ? "\n  " : ",\n  ");
        put_entry(w, comm, &e, is_collective(&e) ? collective : 0, s == sequence);
    }
    put(w, "]");
}

/* --------------------------------------------------------------------- other ranks */

static void put_waiting(writer_t *w, sol_comm_t comm)
{
    const sol_flight_t *flight = comm->flight;
    uint64_t ranks = SOL_FLIGHT_GET(flight->waiting_for);
    uint64_t since = SOL_FLIGHT_GET(flight->waiting_since_ns), now = sol_now_ns();
    uint64_t ns = now > since ? now - since : 0;
    if (comm->backend->waiting != NULL) {
        ranks = comm->backend->waiting(comm, &ns);
    }
    key(w, "waiting_for");
    put(w, "[");
    for (int r = 0, n = 0; r < SOL_MAX_RANKS; r++) {
        if ((ranks >> r & 1) != 0) {
            put(w, n++ > 0 ? ", " : "");
            put_number(w, (uint64_t)r);
        }
    }
    put(w, "]");
    if (ranks != 0) {
        put_member(w, "waiting_ns", ns);
    }
}

static void put_waited(writer_t *w, sol_comm_t comm)
{
    bool first = true;
    key(w, "waited");
    put(w, "[");
    for (int r = 0; r < comm->nranks; r++) {
        uint64_t waits = SOL_FLIGHT_GET(comm->flight->waits[r]);
        uint64_t ns = SOL_FLIGHT_GET(comm->flight->waited_ns[r]);
        if (comm->backend->waited != NULL) {
            comm->backend->waited(comm, r, &waits, &ns);
        }
        if (waits == 0) {
            continue;
        }
        put(w, first ? "{\"rank\": " : ", {\"rank\": ");
        put_number(w, (uint64_t)r);
        put_member(w, "waits", waits);
        put_member(w, "ns", ns);
        put(w, "}");
        first = false;
    }
    put(w, "]");
}

static void put_peers(writer_t *w, sol_comm_t comm)
{
    bool first = true;
    key(w, "peers");
    put(w, "[");
    for (int r = 0; r < comm->nranks && comm->backend->whereabouts != NULL; r++) {
        sol_whereabouts_t at;
        if (r == comm->rank || !comm->backend->whereabouts(comm, r, &at)) {
            continue;
        }
        put(w, first ? "\n  {\"rank\": " : ",\n  {\"rank\": ");
        put_number(w, (uint64_t)r);
        put_member(w, "pid", (uint64_t)sol_boot_pid(comm->boot, r));
        if (at.call.sequence != 0) {
            key(w, "last");
            put_call(w, &at.call, at.collective);
            put_text(w, "state", at.finished ? "done" : "running");
            put(w, "}");
        }
        put(w, "}");
        first = false;
    }
    put(w, "]");
}

/* Of every rank, as it shows here: how long after the first it came, on average and at most. */
static void put_skew(writer_t *w, sol_comm_t comm)
{
    sol_skew_t skew;
    scale_t scale = scale_of(comm->flight);
    bool first = true;
    key(w, "skew");
    put(w, "[");
    for (int r = 0; r < comm->nranks && comm->backend->skew != NULL; r++) {
        if (!comm->backend->skew(comm, r, &skew)) {
            continue;
        }
        double mean = (double)skew.late_ticks / (double)skew.samples;
        put(w, first ? "\n  {\"rank\": " : ",\n  {\"rank\": ");
        put_number(w, (uint64_t)r);
        put_member(w, "samples", skew.samples);
        put_member(w, "last", skew.last);
        put_member(w, "late_ns", (uint64_t)(mean * scale.ns_per_tick));
        put_member(w, "most_ns", (uint64_t)((double)skew.most_ticks * scale.ns_per_tick));
        put(w, "}");
        first = false;
    }
    put(w, "]");
}

/* ------------------------------------------------------------------ one communicator */

static void put_version(writer_t *w)
{
    put_number(w, SOL_VERSION_MAJOR);
    put_char(w, '.');
    put_number(w, SOL_VERSION_MINOR);
    put_char(w, '.');
    put_number(w, SOL_VERSION_PATCH);
}

/* The caller is counted in comm->readers and has looked at magic since. 0 or errno. */
static int write_dump(sol_comm_t comm, int fd, const char *reason)
{
    writer_t w;
    struct timespec ts;
    /* acquire: the records up to there; pairs with the release in submit (api.c) */
    uint64_t sequence = atomic_load_explicit(&comm->sequence, memory_order_acquire);
    /* acquire: the text is whole; pairs with the release in sol_comm_fail */
    int failed = atomic_load_explicit(&comm->failed, memory_order_acquire);
    w.fd = fd;
    w.error = 0;
    w.used = 0;
    clock_gettime(CLOCK_REALTIME, &ts);
    put(&w, "{\"solccl_dump\": 1, \"version\": \"");
    put_version(&w);
    put(&w, "\"");
    put_text(&w, "reason", reason);
    put_member(&w, "at", (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec);
    put_member(&w, "pid", (uint64_t)getpid());
    key(&w, "comm");
    put(&w, "\"");
    put_hex(&w, comm->tag, 16);
    put(&w, "\"");
    put_text(&w, "name", comm->user_name);
    put_text(&w, "backend", comm->backend->name);
    put_member(&w, "rank", (uint64_t)comm->rank);
    put_member(&w, "nranks", (uint64_t)comm->nranks);
    put_member(&w, "timeout_ms", comm->timeout_ns / 1000000u);
    put_member(&w, "sequence", sequence);
    put_member(&w, "collectives", sequence - SOL_FLIGHT_GET(comm->flight->pairs));
    if (failed != 0) {
        key(&w, "error");
        put(&w, "{\"status\": ");
        put_signed(&w, failed);
        put_text(&w, "text", comm->fatal);
        put(&w, "}");
    }
    put_waiting(&w, comm);
    put_waited(&w, comm);
    put_peers(&w, comm);
    put_skew(&w, comm);
    put_ops(&w, comm, sequence);
    put(&w, "}\n");
    flush(&w);
    return w.error;
}

sol_status_t sol_comm_dump(sol_comm_t comm, int fd)
{
    sol_status_t status = sol_comm_valid(comm, "sol_comm_dump");
    if (status != SOL_OK) {
        return status;
    }
    if (fd < 0) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_comm_dump: fd is %d", fd);
    }
    if (!sol_comm_hold(comm)) {
        return sol_comm_valid(comm, "sol_comm_dump");
    }
    int error = write_dump(comm, fd, "asked");
    sol_comm_let_go(comm);
    return error == 0
               ? SOL_OK
               : sol_comm_error(comm, SOL_ERR_SYSTEM, "sol_comm_dump: write: %s", strerror(error));
}

/* ---------------------------------------------------------------------------- files */

/* A path that stays in memory for good, since a handler may be using it. */
typedef struct place {
    struct place *before;
    char path[];
} place_t;

static _Atomic(place_t *) place;
static pthread_mutex_t place_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int files_made;

typedef struct file_name {
    char part[96], whole[96];
} file_name_t;

/* "solccl-COMM-rRANK-pPID-RANDOM.json" */
static bool name_file(const struct sol_comm *comm, file_name_t *name)
{
    writer_t w; /* only its buffer */
    uint64_t chance = 0;
    if (getrandom(&chance, sizeof(chance), GRND_NONBLOCK) != (ssize_t)sizeof(chance)) {
        return false;
    }
    w.used = 0;
    put(&w, "solccl-");
    put_hex(&w, comm->tag, 16);
    put(&w, "-r");
    put_number(&w, (uint64_t)comm->rank);
    put(&w, "-p");
    put_number(&w, (uint64_t)getpid());
    put(&w, "-");
    put_hex(&w, chance, 16);
    put(&w, ".json");
    memcpy(name->whole, w.buffer, w.used);
    name->whole[w.used] = '\0';
    memcpy(name->part, w.buffer, w.used);
    memcpy(name->part + w.used, ".part", 6);
    return true;
}

/* 0 or errno. */
static int write_file(sol_comm_t comm, const char *reason)
{
    file_name_t name;
    const place_t *where = atomic_load(&place);
    if (where == NULL || where->path[0] == '\0' || !name_file(comm, &name)) {
        return where == NULL || where->path[0] == '\0' ? 0 : EAGAIN;
    }
    int directory = open(where->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) {
        return errno;
    }
    int error = 0;
    int fd = openat(directory, name.part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                    S_IRUSR | S_IWUSR);
    if (fd < 0) {
        error = errno;
    } else {
        error = write_dump(comm, fd, reason);
        if (close(fd) != 0 && error == 0) {
            error = errno;
        }
        if (error == 0 && renameat(directory, name.part, directory, name.whole) != 0) {
            error = errno;
        }
        if (error != 0) {
            (void)unlinkat(directory, name.part, 0);
        }
    }
    close(directory);
    return error;
}

void sol_dump_failed(sol_comm_t comm)
{
    const place_t *where = atomic_load(&place);
    if (where == NULL || where->path[0] == '\0' || atomic_load(&comm->failed) == 0 ||
        atomic_exchange(&comm->dumped, 1) != 0 || !sol_comm_hold(comm)) {
        return;
    }
    int error = atomic_fetch_add(&files_made, 1) < DUMPS_AT_MOST ? write_file(comm, "error") : 0;
    sol_comm_let_go(comm);
    if (error != 0) {
        sol_log(SOL_LOG_WARN, "%s: no dump in SOLCCL_DUMP_DIR: %s", comm->name, strerror(error));
    }
}

/* -------------------------------------------------------------------------- signals */

static const char *const signal_names[] = {"USR1", "USR2", "QUIT", NULL};
static const int signal_numbers[SIGNALS_AT_MOST] = {SIGUSR1, SIGUSR2, SIGQUIT};
static struct sigaction before[SIGNALS_AT_MOST]; /* what the program had installed */
static bool installed[SIGNALS_AT_MOST];

static void on_signal(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    for (sol_comm_t comm = sol_comm_ever(); comm != NULL; comm = comm->next_ever) {
        if (sol_comm_hold(comm)) {
            (void)write_file(comm, "signal");
            sol_comm_let_go(comm);
        }
    }
    for (int i = 0; i < SIGNALS_AT_MOST; i++) {
        if (signal_numbers[i] != number) {
            continue;
        }
        if ((before[i].sa_flags & SA_SIGINFO) != 0) {
            before[i].sa_sigaction(number, info, context);
        } else if (before[i].sa_handler != SIG_DFL && before[i].sa_handler != SIG_IGN) {
            before[i].sa_handler(number);
        }
    }
    errno = saved;
}

static bool install(int which)
{
    struct sigaction ours;
    if (installed[which]) {
        return true;
    }
    memset(&ours, 0, sizeof(ours));
    ours.sa_sigaction = on_signal;
    ours.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    if (sigaction(signal_numbers[which], NULL, &before[which]) != 0 ||
        sigaction(signal_numbers[which], &ours, NULL) != 0) {
        return false;
    }
    installed[which] = true;
    return true;
}

/* --------------------------------------------------------------------- environment */

/* Under place_lock. */
static sol_status_t use_place(const char *path, char *why, size_t why_bytes)
{
    place_t *now = atomic_load(&place);
    if (strcmp(now != NULL ? now->path : "", path) == 0) {
        return SOL_OK;
    }
    size_t bytes = strlen(path) + 1;
    place_t *made = sol_calloc(1, sizeof(*made) + bytes);
    if (made == NULL) {
        snprintf(why, why_bytes, "no memory for SOLCCL_DUMP_DIR");
        return SOL_ERR_MEMORY;
    }
    memcpy(made->path, path, bytes);
    made->before = now;
    atomic_store(&place, made);
    return SOL_OK;
}

sol_status_t sol_dump_configure(char *why, size_t why_bytes)
{
    const char *path = sol_env_path("SOLCCL_DUMP_DIR");
    int which = -1;
    sol_status_t status =
        sol_env_choice("SOLCCL_DUMP_SIGNAL", signal_names, &which, why, why_bytes);
    if (status != SOL_OK) {
        return status;
    }
    if (path != NULL && access(path, W_OK | X_OK) != 0) {
        snprintf(why, why_bytes,
                 "environment variable SOLCCL_DUMP_DIR is \"%.200s\": expected a directory to "
                 "write to: %s",
                 path, strerror(errno));
        return SOL_ERR_ARGUMENT;
    }
    if (path == NULL && which >= 0) {
        snprintf(why, why_bytes,
                 "environment variable SOLCCL_DUMP_SIGNAL is set, but SOLCCL_DUMP_DIR, the "
                 "directory for the dumps, is not");
        return SOL_ERR_ARGUMENT;
    }
    pthread_mutex_lock(&place_lock);
    status = use_place(path != NULL ? path : "", why, why_bytes);
    if (status == SOL_OK && which >= 0 && !install(which)) {
        snprintf(why, why_bytes, "SOLCCL_DUMP_SIGNAL: sigaction: %s", strerror(errno));
        status = SOL_ERR_SYSTEM;
    }
    pthread_mutex_unlock(&place_lock);
    return status;
}
