/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_backend.c: CPU ranks behind the seam of core/backend.h. Here a call
 * finds its protocol; everything else is told in shm.h.
 */
#include "backend/shm/shm.h"

#include <sched.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <unistd.h>

static sol_status_t run_protocol(sol_shm_t *s, const sol_call_t *call)
{
    switch (sol_shm_plan(s, call)) {
    case SOL_SHM_LINES:
        return sol_shm_run_small(s, call);
    case SOL_SHM_LINES_TWO:
        return sol_shm_run_small_two(s, call);
    case SOL_SHM_PACKED:
        return sol_shm_run_packed(s, call);
    case SOL_SHM_SHARED:
        sol_shm_use_pages(s, call);
        return sol_shm_run_shared(s, call);
    default:
        sol_shm_use_pages(s, call);
        return sol_shm_run_streams(s, call);
    }
}

static bool is_pair(const sol_call_t *call)
{
    return call->func == SOL_FUNC_SEND || call->func == SOL_FUNC_RECV;
}

static inline bool others_failed(const sol_shm_t *s)
{
    return atomic_load_explicit(&s->control->abort_word, memory_order_relaxed) != 0;
}

/* Another rank has failed since this one's last call. What a late rank needs for its call may all
 * be there; it gets the others' error all the same. */
static sol_status_t fail_at_once(sol_shm_t *s, const sol_call_t *call)
{
    sol_shm_note_call(s, call, sol_shm_signature(call));
    sol_status_t status = sol_shm_look(s);
    sol_shm_note_end(s);
    return status;
}

static sol_status_t shm_run(sol_comm_t comm, const sol_call_t *call)
{
    sol_shm_t *s = comm->state;
    sol_status_t status;
    if (SOL_UNLIKELY(others_failed(s))) {
        return fail_at_once(s, call);
    }
    if (is_pair(call) && (call->root == s->rank || sol_shm_plan(s, call) != SOL_SHM_LINES)) {
        status = sol_shm_run_pairs(s, call, 1);
    } else {
        sol_shm_note_call(s, call, sol_shm_signature(call));
        status = s->nranks == 1 ? sol_shm_run_alone(s, call) : run_protocol(s, call);
    }
    sol_shm_note_end(s);
    return status;
}

/* The sends and receives of a group make one set; its collectives then run in their order. The
 * buffers of a group's calls do not depend on each other, so this order is as good as any, and the
 * same on all ranks. */
static sol_status_t shm_run_group(sol_comm_t comm, const sol_call_t *calls, size_t ncalls)
{
    sol_shm_t *s = comm->state;
    size_t npairs = 0;
    sol_status_t status = SOL_OK;
    if (SOL_UNLIKELY(others_failed(s))) {
        return fail_at_once(s, &calls[0]);
    }
    for (size_t i = 0; i < ncalls; i++) {
        npairs += is_pair(&calls[i]);
    }
    if (npairs == ncalls) {
        status = sol_shm_run_pairs(s, calls, ncalls);
    } else if (npairs > 0) {
        sol_call_t *pairs = sol_calloc(npairs, sizeof(*pairs));
        if (pairs == NULL) {
            return sol_shm_fail(s, SOL_ERR_MEMORY, "no memory for a group of %zu calls", ncalls);
        }
        for (size_t i = 0, k = 0; i < ncalls; i++) {
            if (is_pair(&calls[i])) {
                pairs[k++] = calls[i];
            }
        }
        status = sol_shm_run_pairs(s, pairs, npairs);
        sol_free(pairs);
    }
    for (size_t i = 0; i < ncalls && status == SOL_OK; i++) {
        if (!is_pair(&calls[i])) {
            status = shm_run(comm, &calls[i]);
        }
    }
    sol_shm_note_end(s);
    return status;
}

/* ------------------------------------------------------------------------- registration */

/* Nothing is needed to read a peer's memory at any address, so a registration only has to be a
 * handle that can be told from others. */
static sol_status_t shm_mem_register(sol_comm_t comm, void *memory, size_t bytes, void **handle)
{
    (void)comm;
    (void)bytes;
    *handle = memory;
    return SOL_OK;
}

static sol_status_t shm_mem_deregister(sol_comm_t comm, void *handle)
{
    (void)comm;
    (void)handle;
    return SOL_OK;
}

/* ------------------------------------------------------------------------- other threads */

static void shm_abort(sol_comm_t comm)
{
    sol_shm_tell(comm->state, SOL_ERR_ABORTED, comm->abort_text);
}

static void shm_poll_error(sol_comm_t comm)
{
    sol_shm_t *s = comm->state;
    /* acquire: pairs with raise_all in shm_report.c; the story lies behind it */
    uint32_t word = atomic_load_explicit(&s->control->abort_word, memory_order_acquire);
    if (word != 0 && (int)word - 1 != s->rank) {
        sol_shm_note_story(s, word, "between calls");
    }
}

static void shm_note_shrunk(sol_comm_t comm, uint64_t ranks)
{
    sol_shm_t *s = comm->state;
    /* relaxed: who sees that this rank has left (`closed`, a release) sees this */
    atomic_store_explicit(&s->control->shrunk, ranks, memory_order_relaxed);
}

static uint64_t shm_shrunk(sol_comm_t comm, int rank)
{
    const sol_shm_t *s = comm->state;
    return atomic_load_explicit(&s->peers[rank].control->shrunk, memory_order_relaxed);
}

/* --------------------------------------------------------------------------------- facts */

static void shm_info(char *text, size_t bytes)
{
    cpu_set_t cpus;
    struct statvfs fs;
    int allowed = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : -1;
    char dev_shm[64] = "not mounted (not needed)";
    if (statvfs("/dev/shm", &fs) == 0) {
        snprintf(dev_shm, sizeof(dev_shm), "%llu MiB (not needed)",
                 (unsigned long long)fs.f_blocks * fs.f_frsize >> 20);
    }
    snprintf(text, bytes,
             "cpu ranks: CPUs online: %ld\ncpu ranks: CPUs this process may use: %d\n"
             "cpu ranks: instruction set: %s\ncpu ranks: shared memory: memfd, /dev/shm %s\n"
             "cpu ranks: process_vm_readv: %s\n",
             sysconf(_SC_NPROCESSORS_ONLN), allowed, sol_isa_name(sol_isa_best()), dev_shm,
             sol_shm_vm_read_allowed() ? "allowed (checked again between ranks)" : "not allowed");
}

static void shm_query(sol_comm_t comm, sol_comm_info_t *info)
{
    const sol_shm_t *s = comm->state;
    info->device = -1;
    info->shared_bytes = s->asleep && !s->segment->fixed ? s->messages : s->segment->bytes;
    info->shared_bytes += s->asleep && !s->windows_kept ? 0 : atomic_load(&s->window_bytes);
    info->oversubscribed = s->oversubscribed;
}

static void shm_runs_on(sol_comm_t comm, char *text, size_t bytes)
{
    const sol_shm_t *s = comm->state;
    snprintf(text, bytes, "%s%s", sol_isa_name(s->isa),
             s->oversubscribed ? ", fewer CPUs than ranks" : "");
}

static sol_status_t shm_probe(char *why, size_t why_bytes)
{
    (void)why;
    (void)why_bytes;
    return SOL_OK; /* what could be missing shows when memory is asked for */
}

const sol_backend_t sol_backend_shm = {
    .size = sizeof(sol_backend_t),
    .name = "cpu",
    .kind = SOL_BACKEND_CPU,
    .blocking = true,
    .probe = shm_probe,
    .open = sol_shm_open,
    .close = sol_shm_close,
    .run = shm_run,
    .run_group = shm_run_group,
    .mem_alloc = sol_shm_mem_alloc,
    .mem_free = sol_shm_mem_free,
    .mem_register = shm_mem_register,
    .mem_deregister = shm_mem_deregister,
    .sleep_prepare = sol_shm_sleep_prepare,
    .sleep_release = sol_shm_sleep_release,
    .sleep_restore = sol_shm_sleep_restore,
    .sleep_forget = sol_shm_sleep_forget,
    .transfer_offer = sol_shm_transfer_offer,
    .transfer_open = sol_shm_transfer_open,
    .transfer_close = sol_shm_transfer_close,
    .transfer_write = sol_shm_transfer_write,
    .transfer_read = sol_shm_transfer_read,
    .fail = sol_shm_fail_text,
    .abort = shm_abort,
    .poll_error = shm_poll_error,
    .explain = sol_shm_explain,
    .info = shm_info,
    .query = shm_query,
    .gone = sol_shm_gone,
    .give_up = sol_shm_give_up,
    .given_up = sol_shm_given_up,
    .note_shrunk = shm_note_shrunk,
    .shrunk = shm_shrunk,
    .whereabouts = sol_shm_whereabouts,
    .skew = sol_shm_skew,
    .runs_on = shm_runs_on,
};
