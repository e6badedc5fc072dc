/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.c: one-sided transfer (solccl/transfer.h), above the backend: making
 * one, checking every write against what its peer offered, and waiting on the
 * host. Where memory is, and how bytes get there, is the backend's.
 *
 * Must never: let a write through that does not end within the peer's region.
 */
#include "core/transfer.h"
#include "core/fused_call.h"
#include "core/setup.h"
#include "core/use.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#define SPIN_ROUNDS 2000u    /* looks at the counter before the first other thought */
#define YIELD_NS 200000u     /* then giving way, up to here */
#define NAP_NS 50000u        /* then sleeping so long between looks */
#define CHECK_NS 20000000u   /* between looks at the peers' lives */
#define LEAVE_NS 2000000000u /* longest that destroy waits for threads that wait */

/* ------------------------------------------------------------------------------ making */

typedef struct transfer_job {
    sol_job_t job;
    sol_transfer_config_t config; /* regions: behind the job, its own copy */
    struct sol_transfer *made;
    sol_transfer_t *result;
    sol_region_t regions[];
} transfer_job_t;

static sol_status_t agree_on_numbers(sol_comm_t comm, const sol_transfer_config_t *config)
{
    sol_agree_t own = {
        .what = SOL_AGREE_TRANSFER, .color = config->nregions, .key = config->counters};
    sol_agree_t *all = sol_calloc((size_t)comm->nranks, sizeof(*all));
    if (all == NULL) {
        sol_comm_fail_all(comm, SOL_ERR_MEMORY,
                          "sol_transfer_create: no memory to compare numbers");
        return sol_boot_break(comm->boot, SOL_ERR_MEMORY);
    }
    sol_status_t status = sol_agree_exchange(comm, &own, all);
    for (int r = 1; r < comm->nranks && status == SOL_OK; r++) {
        bool regions = all[r].color != all[0].color;
        if (regions || all[r].key != all[0].key) {
            status = sol_comm_error(
                comm, SOL_ERR_MISMATCH, "sol_transfer_create: %s is %d on rank %d, %d on rank 0",
                regions ? "nregions" : "counters", regions ? all[r].color : all[r].key, r,
                regions ? all[0].color : all[0].key);
        }
    }
    sol_free(all);
    return status;
}

/* Resources of this rank alone. What fails half-way is undone by release(). */
static sol_status_t make(sol_comm_t comm, const sol_transfer_config_t *config,
                         struct sol_transfer **made)
{
    const size_t nfar = (size_t)comm->nranks * (size_t)config->nregions;
    struct sol_transfer *t = sol_calloc(1, sizeof(*t));
    if (t != NULL) {
        t->far = sol_calloc(nfar > 0 ? nfar : 1, sizeof(*t->far));
        t->controls = sol_calloc((size_t)comm->nranks, sizeof(*t->controls));
        t->comm = comm;
        t->nregions = config->nregions;
        t->counters = config->counters;
        t->row = sol_round_up((size_t)comm->nranks * sizeof(uint64_t), SOL_CACHE_LINE);
    }
    *made = t;
    return t != NULL && t->far != NULL && t->controls != NULL
               ? SOL_OK
               : sol_comm_error(comm, SOL_ERR_MEMORY, "sol_transfer_create: no memory");
}

static void release(struct sol_transfer *t)
{
    if (t->state != NULL) {
        t->comm->backend->transfer_close(t->comm, t);
    } else if (t->control != NULL) {
        (void)t->comm->backend->mem_free(t->comm, t->control);
    }
    t->state = NULL;
    t->control = NULL;
    sol_free(t->far);
    sol_free(t->controls);
    t->far = NULL;
    t->controls = NULL;
}

/* Where everything of this rank is: its counters, then its regions. */
static sol_status_t offer(sol_comm_t comm, const struct sol_transfer *t,
                          const sol_region_t *regions, sol_place_t *places)
{
    size_t control = sol_transfer_counter_bytes(t) + SOL_TRANSFER_GATE_BYTES;
    sol_status_t status = comm->backend->transfer_offer(comm, t->control, control, &places[0]);
    for (int i = 0; i < t->nregions && status == SOL_OK; i++) {
        if (regions[i].bytes > 0) {
            status = comm->backend->transfer_offer(comm, regions[i].memory, regions[i].bytes,
                                                   &places[1 + i]);
        }
        if (status != SOL_OK) {
            char why[SOL_ERROR_TEXT / 2];
            snprintf(why, sizeof(why), "%s", sol_thread_error_text());
            status = sol_comm_error(comm, status, "sol_transfer_create: regions[%d]: %s", i, why);
        }
        places[1 + i].bytes = regions[i].bytes;
    }
    return status;
}

static sol_status_t exchange(sol_comm_t comm, struct sol_transfer *t, const sol_region_t *regions,
                             sol_status_t mine)
{
    const size_t each = 1 + (size_t)t->nregions;
    sol_place_t *places = sol_calloc(each * ((size_t)comm->nranks + 1), sizeof(*places));
    if (places == NULL) {
        sol_comm_fail_all(comm, SOL_ERR_MEMORY, "sol_transfer_create: no memory for places");
        return sol_boot_break(comm->boot, SOL_ERR_MEMORY);
    }
    sol_place_t *own = &places[each * (size_t)comm->nranks];
    mine = mine == SOL_OK ? offer(comm, t, regions, own) : mine;
    sol_status_t wire = sol_boot_all_gather(comm->boot, own, each * sizeof(*own), places);
    if (wire != SOL_OK) {
        sol_free(places);
        return sol_comm_fail_all(comm, wire, "sol_transfer_create: %s", sol_thread_error_text());
    }
    /* a rank that could not offer says so in the outcome: nothing is looked up then */
    sol_status_t status = sol_agree_outcome(comm, mine);
    if (status == SOL_OK) {
        status = sol_agree_outcome(comm, comm->backend->transfer_open(comm, t, places));
    }
    sol_free(places);
    return status;
}

static sol_status_t transfer_run(sol_job_t *job)
{
    transfer_job_t *j = (transfer_job_t *)job;
    sol_comm_t comm = job->comm;
    void *control = NULL;
    sol_status_t status = sol_comm_usable(comm, "sol_transfer_create");
    status = status == SOL_OK ? agree_on_numbers(comm, &j->config) : status;
    status = status == SOL_OK ? sol_agree_outcome(comm, make(comm, &j->config, &j->made)) : status;
    if (status == SOL_OK) {
        size_t bytes = sol_transfer_counter_bytes(j->made) + SOL_TRANSFER_GATE_BYTES;
        sol_status_t mine = comm->backend->mem_alloc(comm, bytes, &control);
        j->made->control = control;
        status = exchange(comm, j->made, j->regions, mine);
    }
    if (status != SOL_OK && j->made != NULL) {
        release(j->made);
        sol_free(j->made);
        j->made = NULL;
    }
    return status;
}

static void transfer_finish(sol_job_t *job, bool commit)
{
    transfer_job_t *j = (transfer_job_t *)job;
    struct sol_transfer *t = j->made;
    if (commit) {
        atomic_store(&t->magic, SOL_TRANSFER_MAGIC);
        t->next = atomic_load(&job->comm->transfers); /* (not inside any more) */
        while (!atomic_compare_exchange_weak(&job->comm->transfers, &t->next, t)) {
        }
        *j->result = t;
    } else if (t != NULL) {
        release(t);
        sol_free(t);
    }
}

static sol_status_t refuse_config(sol_comm_t comm, const sol_transfer_config_t *config,
                                  const sol_transfer_t *transfer)
{
#define WHO "sol_transfer_create: "
    if (transfer == NULL || config == NULL || config->size < sizeof(*config)) {
        return sol_comm_error(
            comm, SOL_ERR_ARGUMENT, WHO "%s",
            transfer == NULL ? "transfer is NULL"
            : config == NULL ? "config is NULL"
                             : "config->size is too small: start from SOL_TRANSFER_CONFIG_INIT");
    }
    if (config->nregions < 0 || config->nregions > SOL_TRANSFER_MAX_REGIONS) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, WHO "nregions is %d: expected 0 to %d",
                              config->nregions, SOL_TRANSFER_MAX_REGIONS);
    }
    if (config->counters < 0 || config->counters > SOL_TRANSFER_MAX_COUNTERS) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, WHO "counters is %d: expected 0 to %d",
                              config->counters, SOL_TRANSFER_MAX_COUNTERS);
    }
    if (config->nregions > 0 && config->regions == NULL) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, WHO "regions is NULL");
    }
    for (int i = 0; i < config->nregions; i++) {
        const sol_region_t *region = &config->regions[i];
        bool wraps = region->bytes > UINTPTR_MAX - (uintptr_t)region->memory;
        if (region->bytes > 0 && (region->memory == NULL || wraps)) {
            return sol_comm_error(comm, SOL_ERR_ARGUMENT, WHO "regions[%d]: %s", i,
                                  wraps ? "bytes: the range wraps around" : "memory is NULL");
        }
    }
    return SOL_OK;
#undef WHO
}

sol_status_t sol_transfer_create(sol_comm_t comm, const sol_transfer_config_t *config,
                                 sol_transfer_t *transfer)
{
    sol_status_t status = sol_comm_usable(comm, "sol_transfer_create");
    status = status == SOL_OK ? refuse_config(comm, config, transfer) : status;
    if (status == SOL_OK && comm->backend->transfer_open == NULL) {
        status = sol_comm_error(comm, SOL_ERR_UNSUPPORTED, "sol_transfer_create: not for %s ranks",
                                comm->backend->name);
    }
    if (status != SOL_OK) {
        return sol_group_note(status);
    }
    const size_t regions = (size_t)config->nregions * sizeof(sol_region_t);
    transfer_job_t *j = sol_calloc(1, sizeof(*j) + regions);
    if (j == NULL) {
        return sol_group_note(
            sol_comm_error(comm, SOL_ERR_MEMORY, "sol_transfer_create: no memory"));
    }
    j->job = (sol_job_t){
        .run = transfer_run, .finish = transfer_finish, .comm = comm, .backend = comm->backend};
    j->config = *config;
    j->result = transfer;
    if (regions > 0) {
        memcpy(j->regions, config->regions, regions);
    }
    return sol_job_submit(&j->job);
}

/* ---------------------------------------------------------------------------- leaving */

static sol_status_t gone(sol_transfer_t t, const char *who)
{
    return sol_thread_error(SOL_ERR_ARGUMENT, "%s: transfer is %s", who,
                            t == NULL ? "NULL" : "none, or was destroyed already");
}

/* May it be used? Its handle stays readable until its communicator is destroyed. */
static sol_status_t valid(sol_transfer_t t, const char *who, bool healthy)
{
    if (t == NULL || atomic_load(&t->magic) != SOL_TRANSFER_MAGIC) {
        return gone(t, who);
    }
    return healthy ? sol_comm_usable(t->comm, who) : sol_comm_valid(t->comm, who);
}

/* For sol_transfer_wait and _count, which any thread may call beside others: release() waits for
 * it. False: it was destroyed. */
static bool hold(struct sol_transfer *t)
{
    atomic_fetch_add(&t->waiters, 1); /* before the look: pairs with close_door */
    if (atomic_load(&t->magic) == SOL_TRANSFER_MAGIC) {
        return true;
    }
    atomic_fetch_sub(&t->waiters, 1);
    return false;
}

static void let_go(struct sol_transfer *t)
{
    atomic_fetch_sub(&t->waiters, 1);
}

/* False: it is closed already. Then who waits leaves: see consider(). */
static bool close_door(struct sol_transfer *t)
{
    const struct timespec step = {.tv_nsec = NAP_NS};
    uint64_t end = sol_now_ns() + LEAVE_NS;
    if (atomic_exchange(&t->magic, 0) != SOL_TRANSFER_MAGIC) {
        return false;
    }
    while (atomic_load(&t->waiters) != 0 && sol_now_ns() < end) {
        nanosleep(&step, NULL);
    }
    return true;
}

sol_status_t sol_transfer_destroy(sol_transfer_t transfer)
{
    static const char who[] = "sol_transfer_destroy";
    bool step;
    if (transfer == NULL) {
        return SOL_OK;
    }
    sol_status_t status = valid(transfer, who, false);
    status = status == SOL_OK ? sol_use_enter(transfer->comm, who, &step) : status;
    if (status != SOL_OK) {
        return status;
    }
    if (close_door(transfer)) {
        release(transfer);
    } else {
        status = valid(transfer, who, false);
    }
    sol_use_exit(step);
    return status;
}

void sol_transfers_free(sol_comm_t comm)
{
    struct sol_transfer *next = atomic_exchange(&comm->transfers, NULL);
    while (next != NULL) {
        struct sol_transfer *t = next;
        next = t->next;
        if (close_door(t)) {
            release(t);
        }
        sol_free_late(t);
    }
}

/* ---------------------------------------------------------------------------- writing */

void sol_transfer_set(const sol_transfer_work_t *work, size_t i, sol_transfer_set_t *set)
{
    if (work->writes != NULL) {
        const sol_write_t *w = &work->writes[i];
        *set = (sol_transfer_set_t){.from = w->from,
                                    .offset = w->offset,
                                    .bytes = w->bytes,
                                    .npages = 1,
                                    .from_stride = w->bytes,
                                    .to_stride = w->bytes,
                                    .peer = w->peer,
                                    .region = w->region};
        return;
    }
    const sol_pages_t *p = &work->pages[i];
    *set = (sol_transfer_set_t){.from = p->from,
                                .offset = p->offset,
                                .bytes = p->page_bytes,
                                .npages = p->npages,
                                .from_stride = p->from_stride ? p->from_stride : p->page_bytes,
                                .to_stride = p->to_stride ? p->to_stride : p->page_bytes,
                                .from_pages = p->from_pages,
                                .to_pages = p->to_pages,
                                .peer = p->peer,
                                .region = p->region};
}

/* Does one end within the region? The text names the argument as the caller knows it. */
static sol_status_t refuse_end(sol_transfer_t t, const sol_transfer_set_t *set, size_t i,
                               size_t page, const char *who, bool list)
{
    const size_t there =
        t->far[(size_t)set->peer * (size_t)t->nregions + (size_t)set->region].bytes;
    const size_t index = set->to_pages != NULL ? set->to_pages[page] : page;
    char which[96];
    if (set->bytes <= there && set->offset <= there - set->bytes &&
        (index == 0 || set->to_stride == 0 ||
         index <= (there - set->bytes - set->offset) / set->to_stride)) {
        return SOL_OK;
    }
    if (list) {
        snprintf(which, sizeof(which), "writes[%zu].offset is %zu", i, set->offset);
    } else {
        snprintf(which, sizeof(which), "pages[%zu].%s[%zu] is %zu", i,
                 set->to_pages != NULL ? "to_pages" : "npages", page, index);
    }
    return sol_comm_error(t->comm, SOL_ERR_ARGUMENT,
                          "%s: %s: %zu bytes from there end beyond region %d of rank %d, which has "
                          "%zu",
                          who, which, set->bytes, set->region, set->peer, there);
}

static sol_status_t refuse_set(sol_transfer_t t, const sol_transfer_set_t *set, size_t i,
                               const char *who, bool list)
{
    const char *name = list ? "writes" : "pages";
    if ((unsigned)set->peer >= (unsigned)t->comm->nranks) {
        return sol_comm_error(t->comm, SOL_ERR_ARGUMENT, "%s: %s[%zu].peer is %d: expected 0 to %d",
                              who, name, i, set->peer, t->comm->nranks - 1);
    }
    if ((unsigned)set->region >= (unsigned)t->nregions) {
        return sol_comm_error(t->comm, SOL_ERR_ARGUMENT, "%s: %s[%zu].region is %d: there are %d",
                              who, name, i, set->region, t->nregions);
    }
    if (set->from == NULL && set->bytes > 0 && set->npages > 0) {
        return sol_comm_error(t->comm, SOL_ERR_ARGUMENT, "%s: %s[%zu].from is NULL", who, name, i);
    }
    if (set->npages == 0) {
        return SOL_OK;
    }
    if (set->to_pages == NULL) { /* the last one stands for all */
        return refuse_end(t, set, i, set->npages - 1, who, list);
    }
    for (size_t page = 0; page < set->npages; page++) {
        sol_status_t status = refuse_end(t, set, i, page, who, list);
        if (status != SOL_OK) {
            return status;
        }
    }
    return SOL_OK;
}

static sol_status_t refuse_counter(sol_transfer_t t, int counter, const char *who)
{
    return (unsigned)counter < (unsigned)t->counters
               ? SOL_OK
               : sol_comm_error(t->comm, SOL_ERR_ARGUMENT,
                                "%s: counter is %d: expected 0 to %d (there are %d)", who, counter,
                                t->counters - 1, t->counters);
}

static sol_status_t refuse_work(sol_transfer_t t, const sol_transfer_work_t *work, const char *who)
{
    sol_status_t status = sol_fused_usable(t->comm, who, work->stream);
    if (status == SOL_OK && work->counter != SOL_NO_COUNTER) {
        status = refuse_counter(t, work->counter, who);
    }
    if (status == SOL_OK && (unsigned)work->count > SOL_COUNT_BYTES) {
        status = sol_comm_error(t->comm, SOL_ERR_ARGUMENT, "%s: count is %d: expected 0 or 1", who,
                                (int)work->count);
    }
    for (size_t i = 0; i < work->n && status == SOL_OK; i++) {
        sol_transfer_set_t set;
        if (work->pages != NULL && work->pages[i].size < sizeof(sol_pages_t)) {
            return sol_comm_error(t->comm, SOL_ERR_ARGUMENT,
                                  "%s: pages[%zu].size is too small: start from SOL_PAGES_INIT",
                                  who, i);
        }
        sol_transfer_set(work, i, &set);
        status = refuse_set(t, &set, i, who, work->writes != NULL);
    }
    return status;
}

static sol_status_t perform(sol_transfer_t t, const sol_transfer_work_t *work, const char *who)
{
    sol_status_t status = valid(t, who, false);
    status = status == SOL_OK ? refuse_work(t, work, who) : status;
    if (status != SOL_OK || work->n == 0) {
        return status;
    }
    sol_comm_t comm = t->comm;
    status = sol_fused_begin(comm, who);
    if (status != SOL_OK) {
        return status;
    }
    status = valid(t, who, true); /* since the first look */
    return sol_fused_end(comm,
                         status == SOL_OK ? comm->backend->transfer_write(comm, t, work) : status);
}

sol_status_t sol_transfer_write(const sol_write_t *writes, size_t nwrites, int counter,
                                sol_count_t count, sol_transfer_t transfer, void *stream)
{
    const sol_transfer_work_t work = {writes, NULL, nwrites, counter, count, stream};
    if (nwrites > 0 && writes == NULL) {
        sol_status_t status = valid(transfer, "sol_transfer_write", true);
        return status != SOL_OK ? status
                                : sol_comm_error(transfer->comm, SOL_ERR_ARGUMENT,
                                                 "sol_transfer_write: writes is NULL");
    }
    return perform(transfer, &work, "sol_transfer_write");
}

sol_status_t sol_transfer_write_pages(const sol_pages_t *pages, size_t nsets, int counter,
                                      sol_count_t count, sol_transfer_t transfer, void *stream)
{
    const sol_transfer_work_t work = {NULL, pages, nsets, counter, count, stream};
    if (nsets > 0 && pages == NULL) {
        sol_status_t status = valid(transfer, "sol_transfer_write_pages", true);
        return status != SOL_OK ? status
                                : sol_comm_error(transfer->comm, SOL_ERR_ARGUMENT,
                                                 "sol_transfer_write_pages: pages is NULL");
    }
    return perform(transfer, &work, "sol_transfer_write_pages");
}

/* ---------------------------------------------------------------------------- waiting */

static sol_status_t refuse_wait(sol_transfer_t t, int counter, int from, const char *who)
{
    sol_status_t status = valid(t, who, true);
    status = status == SOL_OK ? refuse_counter(t, counter, who) : status;
    if (status == SOL_OK && from != SOL_ANY_RANK && (unsigned)from >= (unsigned)t->comm->nranks) {
        status = sol_comm_error(t->comm, SOL_ERR_ARGUMENT,
                                "%s: from is %d: expected 0 to %d, or SOL_ANY_RANK", who, from,
                                t->comm->nranks - 1);
    }
    return status;
}

static sol_status_t look(sol_transfer_t t, int counter, int from, uint64_t *value)
{
    uint64_t words[SOL_MAX_RANKS];
    sol_status_t status = t->comm->backend->transfer_read(t->comm, t, counter, words);
    *value = 0;
    for (int r = 0; r < t->comm->nranks && status == SOL_OK; r++) {
        *value += from == SOL_ANY_RANK || from == r ? words[r] : 0;
    }
    return status;
}

/* One wait on the host. */
typedef struct waiting {
    sol_transfer_t t;
    const char *who;
    int counter, from;
    uint64_t value, seen;
    uint64_t begin_ns, check_ns;
    bool suspect; /* who is waited for is gone; one more look */
} waiting_t;

static void describe(const waiting_t *w, char *text, size_t bytes)
{
    char from[32] = "all ranks";
    if (w->from != SOL_ANY_RANK) {
        snprintf(from, sizeof(from), "rank %d", w->from);
    }
    snprintf(text, bytes,
             "%s: counter %d from %s stands at %" PRIu64 ", %" PRIu64 " was awaited for %.1f s",
             w->who, w->counter, from, w->seen, w->value,
             (double)(sol_now_ns() - w->begin_ns) * 1e-9);
}

/* Will nobody count any more? */
static bool deserted(const waiting_t *w)
{
    const sol_comm_t comm = w->t->comm;
    for (int r = 0; r < comm->nranks; r++) {
        bool counts = w->from == SOL_ANY_RANK || w->from == r;
        if (counts && (r == comm->rank || !sol_comm_gone(comm, r))) {
            return false;
        }
    }
    return true;
}

/* The rarer thoughts of a wait: has it all failed, is there anybody? */
static sol_status_t consider(waiting_t *w, uint64_t now)
{
    sol_comm_t comm = w->t->comm;
    char text[SOL_ERROR_TEXT / 2];
    comm->backend->poll_error(comm);
    if (atomic_load_explicit(&comm->failed, memory_order_acquire) != 0) {
        return sol_comm_usable(comm, w->who);
    }
    if (atomic_load(&w->t->magic) != SOL_TRANSFER_MAGIC) {
        return gone(w->t, w->who);
    }
    if (now >= w->check_ns) {
        w->check_ns = now + CHECK_NS;
        if (w->suspect) {
            describe(w, text, sizeof(text));
            return sol_comm_fail_all(comm, SOL_ERR_PEER, "%s, but its ranks are gone", text);
        }
        w->suspect = deserted(w);
    }
    return SOL_OK;
}

/* *reached: it was, in time. Otherwise SOL_OK says that the time is over. */
static sol_status_t wait_for(waiting_t *w, uint64_t timeout_ns, bool *reached)
{
    sol_status_t status = SOL_OK;
    w->begin_ns = sol_now_ns();
    w->check_ns = w->begin_ns + CHECK_NS / 20;
    for (uint32_t rounds = 0; status == SOL_OK; rounds++) {
        status = look(w->t, w->counter, w->from, &w->seen);
        *reached = status == SOL_OK && (int64_t)(w->seen - w->value) >= 0;
        if (*reached || status != SOL_OK) {
            return status;
        }
        if (rounds < SPIN_ROUNDS && timeout_ns > 0) {
            sol_cpu_relax();
            if (rounds % 64 != 63) {
                continue;
            }
        }
        uint64_t now = sol_now_ns();
        status = consider(w, now);
        if (now - w->begin_ns >= timeout_ns) {
            return status;
        }
        if (now - w->begin_ns > YIELD_NS) {
            struct timespec nap = {0, NAP_NS};
            nanosleep(&nap, NULL);
        } else if (rounds >= SPIN_ROUNDS) {
            sched_yield();
        }
    }
    return status;
}

sol_status_t sol_transfer_await_as(sol_transfer_t transfer, const char *who, int counter, int from,
                                   uint64_t value)
{
    char text[SOL_ERROR_TEXT / 2];
    bool reached = false;
    waiting_t w = {.t = transfer, .who = who, .counter = counter, .from = from, .value = value};
    sol_status_t status = wait_for(&w, transfer->comm->timeout_ns, &reached);
    if (status == SOL_OK && !reached) {
        describe(&w, text, sizeof(text));
        status = sol_comm_fail_all(transfer->comm, SOL_ERR_TIMEOUT, "%s", text);
    }
    return status;
}

sol_status_t sol_transfer_await(sol_transfer_t transfer, int counter, int from, uint64_t value,
                                void *stream)
{
    static const char who[] = "sol_transfer_await";
    sol_status_t status = refuse_wait(transfer, counter, from, who);
    status = status == SOL_OK ? sol_fused_usable(transfer->comm, who, stream) : status;
    if (status != SOL_OK) {
        return status;
    }
    sol_comm_t comm = transfer->comm;
    status = sol_fused_begin(comm, who);
    if (status != SOL_OK) {
        return status;
    }
    status = valid(transfer, who, true); /* since the first look */
    if (status != SOL_OK) {
        return sol_fused_end(comm, status);
    }
    status = comm->backend->transfer_await != NULL
                 ? comm->backend->transfer_await(comm, transfer, counter, from, value, stream)
                 : sol_transfer_await_as(transfer, who, counter, from, value);
    return sol_fused_end(comm, status);
}

sol_status_t sol_transfer_wait(sol_transfer_t transfer, int counter, int from, uint64_t value,
                               int timeout_ms)
{
    static const char who[] = "sol_transfer_wait";
    char text[SOL_ERROR_TEXT / 2];
    bool reached = false;
    sol_status_t status = refuse_wait(transfer, counter, from, who);
    if (status != SOL_OK) {
        return status;
    }
    if (!hold(transfer)) {
        return gone(transfer, who);
    }
    waiting_t w = {.t = transfer, .who = who, .counter = counter, .from = from, .value = value};
    status =
        wait_for(&w, timeout_ms < 0 ? transfer->comm->timeout_ns : (uint64_t)timeout_ms * 1000000u,
                 &reached);
    if (status == SOL_OK && !reached) {
        describe(&w, text, sizeof(text));
        status = sol_comm_error(transfer->comm, SOL_ERR_TIMEOUT, "%s", text);
    }
    let_go(transfer);
    return status;
}

sol_status_t sol_transfer_count(sol_transfer_t transfer, int counter, int from, uint64_t *value)
{
    uint64_t seen = 0;
    sol_status_t status = refuse_wait(transfer, counter, from, "sol_transfer_count");
    if (status == SOL_OK && value == NULL) {
        status =
            sol_comm_error(transfer->comm, SOL_ERR_ARGUMENT, "sol_transfer_count: value is NULL");
    }
    if (status == SOL_OK && !hold(transfer)) {
        return gone(transfer, "sol_transfer_count");
    }
    if (status == SOL_OK) {
        status = look(transfer, counter, from, &seen);
        let_go(transfer);
    }
    if (status == SOL_OK) {
        *value = seen;
    }
    return status;
}
