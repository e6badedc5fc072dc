/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.c: the life of a communicator: from arguments, config and environment
 * to a joined group, and away again.
 *
 * A handle's memory is never given back to the heap but kept for a later
 * communicator, after at least QUARANTINE others were destroyed: so a handle
 * that is used after destroy, or destroyed twice, is found (its magic is gone)
 * instead of being read from freed memory or taken for a newer one. It costs
 * some KiB for the most communicators a process ever had at once.
 */
#include "core/experts.h"
#include "core/norm_halves.h"
#include "core/transfer.h"
#include "core/unique_id.h"
#include "core/use.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define QUARANTINE 64u
#define DEFAULT_TIMEOUT_MS 30000
#define READERS_NS 1000000000u /* a dump takes some milliseconds */
#define MAX_TIMEOUT_MS 86400000
#define MAX_STAGING_BYTES ((size_t)1 << 40)

/* ----------------------------------------------------------------- handles' memory */

static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static sol_comm_t spare_first, spare_last; /* a queue: the one destroyed longest ago is used next */
static unsigned spare_count;
static _Atomic(sol_comm_t) ever; /* every handle there ever was, linked by next_ever */
static pthread_once_t spare_once = PTHREAD_ONCE_INIT;

static void spare_hold(void)
{
    pthread_mutex_lock(&spare_lock);
}

static void spare_release(void)
{
    pthread_mutex_unlock(&spare_lock);
}

/* A child forked while another thread held the lock could never make a communicator. */
static void spare_watch_fork(void)
{
    (void)pthread_atfork(spare_hold, spare_release, spare_release);
}

static void put_handle(sol_comm_t comm)
{
    sol_flight_t *flight = comm->flight;
    comm->flight = NULL;
    sol_flight_put(flight);
    spare_hold();
    comm->next_spare = NULL;
    if (spare_last != NULL) {
        spare_last->next_spare = comm;
    } else {
        spare_first = comm;
    }
    spare_last = comm;
    spare_count++;
    spare_release();
}

static sol_comm_t reuse_handle(void)
{
    sol_comm_t comm = NULL;
    spare_hold();
    if (spare_count > QUARANTINE) {
        comm = spare_first;
        spare_first = comm->next_spare;
        spare_count--;
    }
    spare_release();
    return comm;
}

/* All of it but its place in the list of all handles, which others may be walking. Its locks last
 * until now: a thread that came too late finds out under them. */
static void clear_handle(sol_comm_t comm)
{
    pthread_mutex_destroy(&comm->error_lock);
    pthread_mutex_destroy(&comm->use_lock);
    char *link = (char *)&comm->next_ever, *end = (char *)(comm + 1);
    char *after = link + sizeof(comm->next_ever);
    memset(comm, 0, (size_t)(link - (char *)comm));
    memset(after, 0, (size_t)(end - after));
}

static sol_comm_t get_handle(void)
{
    pthread_once(&spare_once, spare_watch_fork);
    sol_flight_t *flight = sol_flight_get();
    if (flight == NULL) {
        return NULL;
    }
    sol_comm_t comm = reuse_handle();
    if (comm != NULL) {
        clear_handle(comm);
    } else {
        comm = sol_aligned_calloc(SOL_CACHE_LINE, sol_round_up(sizeof(*comm), SOL_CACHE_LINE));
        if (comm == NULL) {
            sol_flight_put(flight);
            return NULL;
        }
        comm->next_ever = atomic_load(&ever);
        while (!atomic_compare_exchange_weak(&ever, &comm->next_ever, comm)) {
        }
    }
    comm->flight = flight;
    pthread_mutex_init(&comm->error_lock, NULL);
    pthread_mutex_init(&comm->use_lock, NULL);
    return comm;
}

sol_comm_t sol_comm_ever(void)
{
    return atomic_load(&ever);
}

bool sol_comm_known(const struct sol_comm *comm)
{
    const struct sol_comm *known = sol_comm_ever();
    while (known != NULL && known != comm) {
        known = known->next_ever;
    }
    return known != NULL;
}

/* ------------------------------------------------------------------------- config */

/* A caller's config of any size into ours: what it lacks is zero, what we do not know must be. */
static sol_status_t copy_config(sol_comm_config_t *own, const sol_comm_config_t *config,
                                const char *who)
{
    static const sol_comm_config_t defaults = SOL_COMM_CONFIG_INIT;
    *own = defaults;
    if (config == NULL) {
        return SOL_OK;
    }
    const size_t least = offsetof(sol_comm_config_t, timeout_ms);
    if (config->size < least || config->size > 4096) {
        return sol_thread_error(SOL_ERR_ARGUMENT,
                                "%s: config->size is %zu: expected sizeof(sol_comm_config_t), as "
                                "SOL_COMM_CONFIG_INIT sets it",
                                who, config->size);
    }
    const unsigned char *bytes = (const unsigned char *)config;
    for (size_t i = sizeof(*own); i < config->size; i++) {
        if (bytes[i] != 0) {
            return sol_thread_error(SOL_ERR_UNSUPPORTED,
                                    "%s: config has a field set that this version (%d) of solccl "
                                    "does not know",
                                    who, SOL_VERSION);
        }
    }
    memcpy(own, config, config->size < sizeof(*own) ? config->size : sizeof(*own));
    return SOL_OK;
}

static sol_status_t check_config(const sol_comm_config_t *config, const char *who)
{
    if ((unsigned)config->backend > SOL_BACKEND_CUDA) {
        return sol_thread_error(SOL_ERR_ARGUMENT,
                                "%s: config->backend is %d: expected SOL_BACKEND_AUTO, _CPU or "
                                "_CUDA",
                                who, (int)config->backend);
    }
    if (config->timeout_ms < 0 || config->timeout_ms > MAX_TIMEOUT_MS) {
        return sol_thread_error(SOL_ERR_ARGUMENT,
                                "%s: config->timeout_ms is %d: expected 1 to %d, or 0 for the "
                                "default",
                                who, config->timeout_ms, MAX_TIMEOUT_MS);
    }
    if (config->check != 0 && config->check != 1) {
        return sol_thread_error(SOL_ERR_ARGUMENT, "%s: config->check is %d: expected 0 or 1", who,
                                config->check);
    }
    if (config->staging_bytes > MAX_STAGING_BYTES) {
        return sol_thread_error(SOL_ERR_ARGUMENT,
                                "%s: config->staging_bytes is %zu: expected at most %zu", who,
                                config->staging_bytes, MAX_STAGING_BYTES);
    }
    return SOL_OK;
}

/* Where a field is 0, the environment. */
static sol_status_t fill_from_environment(sol_comm_config_t *config, uint64_t *debug_epoch,
                                          const char *who)
{
    static const char *const backends[] = {"auto", "cpu", "cuda", NULL};
    char why[256];
    long timeout_ms = config->timeout_ms, check = config->check;
    int backend = (int)config->backend;
    size_t epoch = 0;
    sol_status_t status = SOL_OK;
    if (backend == SOL_BACKEND_AUTO) {
        status = sol_env_choice("SOLCCL_BACKEND", backends, &backend, why, sizeof(why));
    }
    if (status == SOL_OK && timeout_ms == 0) {
        timeout_ms = DEFAULT_TIMEOUT_MS;
        status = sol_env_int("SOLCCL_TIMEOUT_MS", 1, MAX_TIMEOUT_MS, &timeout_ms, why, sizeof(why));
    }
    if (status == SOL_OK && check == 0) {
        status = sol_env_int("SOLCCL_CHECK", 0, 1, &check, why, sizeof(why));
    }
    if (status == SOL_OK && config->staging_bytes == 0) {
        status = sol_env_size("SOLCCL_STAGING_BYTES", 0, MAX_STAGING_BYTES, &config->staging_bytes,
                              why, sizeof(why));
    }
    if (status == SOL_OK) {
        status = sol_env_size("SOLCCL_DEBUG_EPOCH", 0, SIZE_MAX, &epoch, why, sizeof(why));
    }
    if (status == SOL_OK) {
        status = sol_dump_configure(why, sizeof(why));
    }
    if (status != SOL_OK) {
        return sol_thread_error(status, "%s: %s", who, why);
    }
    config->backend = (sol_backend_kind_t)backend;
    config->timeout_ms = (int)timeout_ms;
    config->check = (int)check;
    *debug_epoch = (uint64_t)epoch;
    return SOL_OK;
}

static sol_status_t choose_backend(sol_backend_kind_t kind, const sol_backend_t **backend,
                                   const char *who)
{
    for (int i = 0; sol_backends[i] != NULL; i++) {
        const sol_backend_t *b = sol_backends[i];
        bool chosen = kind == SOL_BACKEND_AUTO ? b->wanted == NULL || b->wanted() : b->kind == kind;
        if (chosen) {
            *backend = b;
            return SOL_OK;
        }
    }
    return sol_thread_error(SOL_ERR_UNSUPPORTED, "%s: this build of solccl has no %s backend", who,
                            kind == SOL_BACKEND_CUDA ? "CUDA" : "CPU");
}

sol_status_t sol_comm_setup_read(sol_comm_setup_t *setup, const sol_comm_config_t *config,
                                 const char *who)
{
    sol_comm_config_t own;
    sol_status_t status = copy_config(&own, config, who);
    if (status == SOL_OK) {
        status = check_config(&own, who);
    }
    if (status == SOL_OK) {
        status = fill_from_environment(&own, &setup->debug_epoch, who);
    }
    if (status == SOL_OK) {
        status = choose_backend(own.backend, &setup->backend, who);
    }
    if (status != SOL_OK) {
        return status;
    }
    setup->foreign = NULL;
    setup->reserved = NULL;
    setup->parent = NULL;
    setup->with_parent = false;
    setup->join_timeout_ms = 0;
    setup->alone = false;
    setup->timeout_ms = own.timeout_ms;
    setup->check = own.check != 0;
    setup->staging_bytes = own.staging_bytes;
    snprintf(setup->name, sizeof(setup->name), "%s", own.name != NULL ? own.name : "");
    return SOL_OK;
}

/* --------------------------------------------------------------- who is gone */

/* Ended, also if nobody has collected it yet. A pid that was reused counts as alive. */
static bool process_ended(int pid)
{
    bool ended = kill(pid, 0) != 0 && errno == ESRCH;
#ifdef SYS_pidfd_open
    int fd = ended ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd >= 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ended = poll(&p, 1, 0) == 1 && (p.revents & POLLIN) != 0;
        close(fd);
    }
#endif
    return ended;
}

bool sol_comm_gone(sol_comm_t comm, int rank)
{
    if (comm->backend->gone != NULL && comm->backend->gone(comm, rank)) {
        return true;
    }
    int pid = sol_boot_pid(comm->boot, rank);
    if (pid <= 0) {
        return sol_boot_hung_up(comm->boot, rank);
    }
    return pid != (int)getpid() && process_ended(pid);
}

/* Has the parent failed, here or elsewhere, so that nothing will come of a split of it? */
static sol_status_t parent_failed(sol_comm_t parent, char *why, size_t why_bytes)
{
    if (parent->backend->poll_error != NULL) {
        parent->backend->poll_error(parent);
    }
    /* acquire: pairs with the release in sol_comm_fail; the text is whole */
    sol_status_t status = (sol_status_t)atomic_load_explicit(&parent->failed, memory_order_acquire);
    if (status != SOL_OK) {
        snprintf(why, why_bytes, "the communicator it is made of has failed: %s", parent->fatal);
    }
    return status;
}

/* Of a group whose ranks are some of its parent's: why `rank` of it will not come. A rank says why
 * it gives up before it leaves, so the first cause is read, and not that it has left. */
static sol_status_t absent_from_parent(void *context, int rank, char *why, size_t why_bytes)
{
    const sol_comm_setup_t *setup = context;
    sol_comm_t parent = setup->parent;
    int there = setup->parent_ranks[rank] - 1;
    char text[SOL_WILL_TEXT];
    sol_status_t status = SOL_OK;
    if (setup->with_parent) {
        status = parent_failed(parent, why, why_bytes);
    }
    if (status != SOL_OK || there < 0 || there == parent->rank) {
        return status;
    }
    bool gone = sol_comm_gone(parent, there); /* first: it said why before */
    if (parent->backend->given_up != NULL) {
        status = parent->backend->given_up(parent, there, sol_id_tag(&setup->id), text);
    }
    if (status != SOL_OK) {
        snprintf(why, why_bytes, "rank %d gave up: %s", rank, text);
        return status;
    }
    snprintf(why, why_bytes, "rank %d is gone: it did not come", rank);
    return gone ? SOL_ERR_PEER : SOL_OK;
}

/* -------------------------------------------------------------------------- making */

static void fill(sol_comm_t comm, const sol_comm_setup_t *setup)
{
    comm->backend = setup->backend;
    comm->rank = setup->rank;
    comm->nranks = setup->nranks;
    comm->fork_generation = sol_fork_generation;
    /* the widest type, every rank's block: below this no size or offset overflows */
    comm->max_count = (size_t)PTRDIFF_MAX / 8 / (size_t)setup->nranks;
    comm->check = setup->check;
    comm->blocking = setup->backend->blocking;
    comm->alone = setup->alone;
    comm->timeout_ns = (uint64_t)setup->timeout_ms * 1000000u;
    comm->staging_bytes = setup->staging_bytes;
    comm->debug_epoch = setup->debug_epoch;
    comm->id = setup->id;
    memcpy(comm->user_name, setup->name, sizeof(comm->user_name));
    comm->tag = sol_id_tag(&setup->id);
    unsigned tag = (unsigned)(comm->tag >> 48);
    if (setup->name[0] != '\0') {
        snprintf(comm->name, sizeof(comm->name), "comm %04x (%s)", tag, setup->name);
    } else {
        snprintf(comm->name, sizeof(comm->name), "comm %04x", tag);
    }
}

/* With the others already joined: this rank's part, then everybody's outcome. */
static sol_status_t open_backend(sol_comm_t comm)
{
    char why[512] = "";
    sol_status_t status =
        comm->backend->probe != NULL ? comm->backend->probe(why, sizeof(why)) : SOL_OK;
    if (status != SOL_OK) {
        sol_thread_error(status, "%s ranks cannot be used here: %s", comm->backend->name, why);
        return sol_boot_break(comm->boot, status);
    }
    status = comm->backend->open(comm);
    if (status != SOL_OK) {
        return sol_boot_break(comm->boot, status);
    }
    status = sol_boot_all_gather(comm->boot, NULL, 0, NULL);
    if (status != SOL_OK) {
        comm->backend->close(comm);
    }
    return status;
}

bool sol_comm_reserve(sol_comm_setup_t *setup)
{
    sol_comm_t comm = get_handle();
    if (comm != NULL && (comm->boot = sol_boot_reserve()) == NULL) {
        put_handle(comm);
        comm = NULL;
    }
    setup->reserved = comm;
    return comm != NULL;
}

void sol_comm_unreserve(sol_comm_setup_t *setup)
{
    if (setup->reserved != NULL) {
        sol_boot_close(setup->reserved->boot);
        setup->reserved->boot = NULL;
        put_handle(setup->reserved);
        setup->reserved = NULL;
    }
}

/* This rank will not come to the group after all, or leaves it: the others hear why. */
static void give_up(const sol_comm_setup_t *setup, sol_status_t status)
{
    sol_comm_t parent = setup->parent;
    if (parent != NULL && parent->backend->give_up != NULL) {
        parent->backend->give_up(parent, sol_id_tag(&setup->id), status, sol_thread_error_text());
    }
}

static sol_status_t join(sol_comm_t comm, const sol_comm_setup_t *setup)
{
    fill(comm, setup);
    sol_boot_config_t boot = {.id = &comm->id,
                              .reserved = comm->boot,
                              .nranks = setup->nranks,
                              .rank = setup->rank,
                              .backend = setup->backend->kind,
                              .timeout_ms = setup->join_timeout_ms != 0 ? setup->join_timeout_ms
                                                                        : setup->timeout_ms};
    if (setup->parent != NULL) {
        boot.absent = absent_from_parent;
        boot.absent_context = (void *)(uintptr_t)setup;
        boot.abort_flag = setup->with_parent ? &setup->parent->abort_flag : NULL;
    }
    comm->boot = NULL;
    sol_status_t status = sol_boot_open(&comm->boot, &boot);
    return status == SOL_OK ? open_backend(comm) : status;
}

/* The one line of SOLCCL_LOG=info where nothing goes wrong. */
static void log_made(sol_comm_t comm)
{
    char where[128] = "";
    if (!sol_log_enabled(SOL_LOG_INFO)) {
        return;
    }
    if (comm->backend->runs_on != NULL) {
        comm->backend->runs_on(comm, where, sizeof(where));
    }
    sol_log(SOL_LOG_INFO, "%s, rank %d of %d: made of %s ranks%s%s; solccl %d.%d.%d", comm->name,
            comm->rank, comm->nranks, comm->backend->name, where[0] != '\0' ? ", on " : "", where,
            SOL_VERSION_MAJOR, SOL_VERSION_MINOR, SOL_VERSION_PATCH);
}

sol_status_t sol_comm_make(const sol_comm_setup_t *setup, sol_comm_t *result)
{
    sol_fork_watch();
    sol_comm_t comm = setup->reserved;
    if (comm == NULL && sol_use_prepare()) {
        comm = get_handle();
    }
    if (comm == NULL) {
        sol_thread_error(SOL_ERR_MEMORY, "no memory for a communicator");
        give_up(setup, SOL_ERR_MEMORY);
        return SOL_ERR_MEMORY;
    }
    sol_status_t status = join(comm, setup);
    if (status == SOL_OK) {
        sol_boot_opened(comm->boot);
        comm->magic = SOL_COMM_MAGIC;
        *result = comm;
        log_made(comm);
        return SOL_OK;
    }
    give_up(setup, status);
    sol_thread_error(status, "%s, rank %d of %d, could not be made: %s", comm->name, comm->rank,
                     comm->nranks, sol_thread_error_text());
    sol_log(SOL_LOG_INFO, "%s", sol_thread_error_text());
    sol_boot_close(comm->boot);
    put_handle(comm);
    return status;
}

typedef struct make_job {
    sol_job_t job;
    sol_comm_setup_t setup;
    sol_comm_t made;
    sol_comm_t *result;
} make_job_t;

static sol_status_t make_run(sol_job_t *job)
{
    make_job_t *make = (make_job_t *)job;
    sol_comm_setup_t *setup = &make->setup;
    sol_status_t status = SOL_OK;
    if (setup->foreign != NULL) {
        status = setup->backend->adopt(setup->foreign, &setup->id, &setup->nranks, &setup->rank);
    }
    return status == SOL_OK ? sol_comm_make(setup, &make->made) : status;
}

static void make_finish(sol_job_t *job, bool commit)
{
    make_job_t *make = (make_job_t *)job;
    if (commit) {
        *make->result = make->made;
    } else {
        sol_comm_free(make->made);
    }
}

sol_status_t sol_comm_make_or_defer(const sol_comm_setup_t *setup, sol_comm_t *comm)
{
    make_job_t *make = sol_calloc(1, sizeof(*make));
    if (make == NULL) {
        return sol_group_note(
            sol_thread_error(SOL_ERR_MEMORY, "no memory for a communicator's set-up"));
    }
    make->job = (sol_job_t){.run = make_run, .finish = make_finish, .backend = setup->backend};
    make->setup = *setup;
    make->result = comm;
    return sol_job_submit(&make->job);
}

/* What sol_comm_create's arguments have to be. */
static sol_status_t check_create(sol_comm_t *comm, const sol_unique_id_t *id, int nranks, int rank)
{
    sol_id_content_t content;
    if (comm == NULL) {
        return sol_thread_error(SOL_ERR_ARGUMENT, "sol_comm_create: comm is NULL");
    }
    if (id == NULL) {
        return sol_thread_error(SOL_ERR_ARGUMENT, "sol_comm_create: id is NULL");
    }
    if (nranks < 1 || nranks > SOL_MAX_RANKS) {
        return sol_thread_error(SOL_ERR_ARGUMENT, "sol_comm_create: nranks is %d: expected 1 to %d",
                                nranks, SOL_MAX_RANKS);
    }
    if (rank < 0 || rank >= nranks) {
        return sol_thread_error(SOL_ERR_ARGUMENT,
                                "sol_comm_create: rank is %d: expected 0 to nranks - 1 = %d", rank,
                                nranks - 1);
    }
    const char *wrong = sol_id_read(id, &content);
    if (wrong != NULL) {
        return sol_thread_error(SOL_ERR_ARGUMENT, "sol_comm_create: id %s", wrong);
    }
    return SOL_OK;
}

sol_status_t sol_comm_create(sol_comm_t *comm, const sol_unique_id_t *id, int nranks, int rank,
                             const sol_comm_config_t *config)
{
    sol_comm_setup_t setup;
    sol_status_t status = check_create(comm, id, nranks, rank);
    if (status == SOL_OK) {
        status = sol_comm_setup_read(&setup, config, "sol_comm_create");
    }
    if (status != SOL_OK) {
        return sol_group_note(status);
    }
    setup.id = *id;
    setup.nranks = nranks;
    setup.rank = rank;
    return sol_comm_make_or_defer(&setup, comm);
}

sol_status_t sol_comm_create_from_nccl(sol_comm_t *comm, void *nccl,
                                       const sol_comm_config_t *config)
{
    static const char who[] = "sol_comm_create_from_nccl";
    sol_comm_setup_t setup;
    sol_comm_config_t own = SOL_COMM_CONFIG_INIT;
    if (comm == NULL || nccl == NULL) {
        return sol_group_note(sol_thread_error(SOL_ERR_ARGUMENT, "%s: %s is NULL", who,
                                               comm == NULL ? "comm" : "nccl"));
    }
    if (config == NULL) {
        own.backend = SOL_BACKEND_CUDA; /* NCCL's ranks are GPUs, whatever the environment says */
        config = &own;
    }
    sol_status_t status = sol_comm_setup_read(&setup, config, who);
    if (status == SOL_OK && setup.backend->adopt == NULL) {
        status = sol_thread_error(SOL_ERR_UNSUPPORTED, "%s: %s ranks have nothing to do with NCCL",
                                  who, setup.backend->name);
    }
    if (status != SOL_OK) {
        return sol_group_note(status);
    }
    setup.foreign = nccl;
    return sol_comm_make_or_defer(&setup, comm);
}

/* ------------------------------------------------------------------ leaving, asking */

bool sol_comm_hold(sol_comm_t comm)
{
    atomic_fetch_add(&comm->readers, 1); /* before the look: pairs with sol_comm_free */
    if (sol_comm_alive(comm) && comm->fork_generation == sol_fork_generation) {
        return true;
    }
    atomic_fetch_sub(&comm->readers, 1);
    return false;
}

void sol_comm_let_go(sol_comm_t comm)
{
    atomic_fetch_sub(&comm->readers, 1);
}

/* A dump under way, in a signal handler or another thread, or an abort, may be looking at what goes
 * now. */
static void let_readers_finish(sol_comm_t comm)
{
    const struct timespec step = {.tv_nsec = 20000};
    uint64_t end = sol_now_ns() + READERS_NS;
    while (atomic_load(&comm->readers) != 0 && sol_now_ns() < end) {
        nanosleep(&step, NULL);
    }
}

void sol_comm_free(sol_comm_t comm)
{
    atomic_store(&comm->magic, 0); /* first: who looks afterwards finds no communicator */
    let_readers_finish(comm);
    sol_registrations_free(comm);
    sol_dev_records_free(comm);
    sol_transfers_free(comm);
    comm->backend->close(comm);
    sol_norms_free(comm);
    sol_moes_free(comm);
    sol_boot_close(comm->boot);
    comm->boot = NULL;
    put_handle(comm);
}

sol_status_t sol_comm_destroy(sol_comm_t comm)
{
    if (comm == NULL) {
        return SOL_OK;
    }
    sol_status_t status = sol_comm_valid(comm, "sol_comm_destroy");
    if (status != SOL_OK) {
        return status;
    }
    if (!sol_use_take_over(comm)) {
        if (atomic_exchange(&comm->magic, 0) == 0) {
            return sol_comm_valid(comm, "sol_comm_destroy"); /* another thread did, meanwhile */
        }
        /* its memory stays: it is in use */
        return sol_thread_error(SOL_ERR_STATE,
                                "sol_comm_destroy: a call on %s in another thread did not end: its "
                                "memory is not freed",
                                comm->name);
    }
    sol_group_forget(comm);
    atomic_store(&comm->magic, 0);
    sol_use_close(comm);
    sol_comm_free(comm);
    return SOL_OK;
}

/* "sol_comm_abort was called on rank 3", and the caller's reason; the first call's stays. */
static void set_abort_text(sol_comm_t comm, const char *reason)
{
    pthread_mutex_lock(&comm->error_lock);
    if (comm->abort_text[0] == '\0') {
        snprintf(comm->abort_text, sizeof(comm->abort_text),
                 "sol_comm_abort was called on rank %d%s%.400s", comm->rank,
                 reason != NULL ? ": " : "", reason != NULL ? reason : "");
    }
    pthread_mutex_unlock(&comm->error_lock);
}

sol_status_t sol_comm_abort_reason(sol_comm_t comm, const char *reason)
{
    sol_status_t status = sol_comm_valid(comm, "sol_comm_abort");
    if (status != SOL_OK) {
        return status;
    }
    if (!sol_comm_hold(comm)) {
        return sol_comm_valid(comm, "sol_comm_abort");
    }
    set_abort_text(comm, reason);
    atomic_store(&comm->abort_flag, 1);
    (void)sol_comm_fail(comm, SOL_ERR_ABORTED, "%s", comm->abort_text);
    if (comm->backend->abort != NULL) {
        comm->backend->abort(comm);
    }
    sol_boot_interrupt(comm->boot, comm->abort_text);
    sol_dump_failed(comm);
    sol_comm_let_go(comm);
    return SOL_OK;
}

sol_status_t sol_comm_abort(sol_comm_t comm)
{
    return sol_comm_abort_reason(comm, NULL);
}

sol_status_t sol_comm_query(sol_comm_t comm, sol_comm_info_t *info)
{
    sol_status_t status = sol_comm_valid(comm, "sol_comm_query");
    if (status != SOL_OK) {
        return status;
    }
    if (info == NULL) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_comm_query: info is NULL");
    }
    const size_t least = offsetof(sol_comm_info_t, backend);
    if (info->size < least) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "sol_comm_query: info->size is %zu: expected "
                              "sizeof(sol_comm_info_t)",
                              info->size);
    }
    sol_comm_info_t own = {.size = info->size,
                           .rank = comm->rank,
                           .nranks = comm->nranks,
                           .backend = comm->backend->kind,
                           .device = -1};
    own.sequence = atomic_load_explicit(&comm->sequence, memory_order_relaxed);
    own.asleep = atomic_load(&comm->magic) == SOL_COMM_ASLEEP;
    if (!sol_comm_hold(comm)) {
        return sol_comm_valid(comm, "sol_comm_query");
    }
    if (comm->backend->query != NULL) {
        comm->backend->query(comm, &own);
    }
    sol_comm_let_go(comm);
    memcpy(info, &own, info->size < sizeof(own) ? info->size : sizeof(own));
    return SOL_OK;
}

sol_status_t sol_comm_rank(sol_comm_t comm, int *rank)
{
    sol_status_t status = sol_comm_valid(comm, "sol_comm_rank");
    if (status != SOL_OK) {
        return status;
    }
    if (rank == NULL) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_comm_rank: rank is NULL");
    }
    *rank = comm->rank;
    return SOL_OK;
}

sol_status_t sol_comm_size(sol_comm_t comm, int *nranks)
{
    sol_status_t status = sol_comm_valid(comm, "sol_comm_size");
    if (status != SOL_OK) {
        return status;
    }
    if (nranks == NULL) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_comm_size: nranks is NULL");
    }
    *nranks = comm->nranks;
    return SOL_OK;
}
