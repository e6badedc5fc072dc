/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sleep.c: sol_comm_sleep and sol_comm_wake, above the backend: who may, in
 * which order, and what happens when one rank cannot.
 *
 *     sleep   agree   prepare   outcome   release   outcome: all memory is free
 *     wake    agree   restore   outcome   awake
 *
 * All ranks do the same or none does: prepare changes nothing, so that a failure
 * of one is an error on all and everybody goes on awake; a restore that fails
 * on one rank is taken back on all, which sleep on and may try again. Asleep is
 * a value of comm->magic that the fast path of a call refuses without another
 * look.
 *
 * Must never: leave some ranks awake and others asleep, but where the ranks
 * cannot hear each other any more; then the communicator has failed.
 */
#include "core/transfer.h"

#include "core/setup.h"

typedef struct sleep_job {
    sol_job_t job;
    sol_sleep_level_t level;
} sleep_job_t;

/* All ranks have come here, with equal `level`. */
static sol_status_t agree(sol_comm_t comm, sol_agree_what what, sol_sleep_level_t level)
{
    sol_agree_t own = {.what = what, .bytes = (uint64_t)level};
    sol_agree_t *all = sol_calloc((size_t)comm->nranks, sizeof(*all));
    if (all == NULL) {
        sol_comm_fail_all(comm, SOL_ERR_MEMORY, "no memory to meet the other ranks");
        return sol_boot_break(comm->boot, SOL_ERR_MEMORY);
    }
    sol_status_t status = sol_agree_exchange(comm, &own, all);
    for (int r = 1; r < comm->nranks && status == SOL_OK; r++) {
        if (all[r].bytes != all[0].bytes) {
            status = sol_comm_error(comm, SOL_ERR_MISMATCH,
                                    "sol_comm_sleep: rank %d passed level %d, rank 0 %d", r,
                                    (int)all[r].bytes, (int)all[0].bytes);
        }
    }
    sol_free(all);
    return status;
}

/* What has counters of its own that peers go on counting: it would not come back as it was. */
static sol_status_t refuse_open_handles(sol_comm_t comm)
{
    const char *open = NULL;
    for (const struct sol_transfer *t = atomic_load(&comm->transfers); t != NULL; t = t->next) {
        open = atomic_load(&t->magic) == SOL_TRANSFER_MAGIC ? "sol_transfer_t" : open;
    }
    /* (on CPU ranks the latter has a transfer) */
    open = comm->moes != NULL ? "sol_moe_t" : comm->norms != NULL ? "sol_norm_halves_t" : open;
    return open == NULL ? SOL_OK
                        : sol_comm_error(comm, SOL_ERR_STATE,
                                         "sol_comm_sleep: a %s is open on this communicator: "
                                         "destroy it first",
                                         open);
}

static sol_status_t sleep_run(sol_job_t *job)
{
    sol_comm_t comm = job->comm;
    sol_sleep_level_t level = ((sleep_job_t *)job)->level;
    sol_status_t status = sol_comm_usable(comm, "sol_comm_sleep");
    if (status == SOL_OK) {
        status = agree(comm, SOL_AGREE_SLEEP, level);
    }
    if (status != SOL_OK) {
        return status;
    }
    sol_status_t mine = refuse_open_handles(comm);
    if (mine == SOL_OK) {
        mine = comm->backend->sleep_prepare(comm, level == SOL_SLEEP_KEEP);
    }
    status = sol_agree_outcome(comm, mine);
    if (status != SOL_OK) {
        comm->backend->sleep_forget(comm);
        return status;
    }
    atomic_store(&comm->magic, SOL_COMM_ASLEEP);
    mine = comm->backend->sleep_release(comm);
    return sol_agree_outcome(comm, mine);
}

static sol_status_t wake_run(sol_job_t *job)
{
    sol_comm_t comm = job->comm;
    sol_status_t status = sol_comm_healthy(comm, "sol_comm_wake");
    if (status == SOL_OK && atomic_load(&comm->magic) != SOL_COMM_ASLEEP) {
        status = sol_comm_error(comm, SOL_ERR_STATE, "sol_comm_wake: the communicator is awake");
    }
    if (status == SOL_OK) {
        status = agree(comm, SOL_AGREE_WAKE, 0);
    }
    if (status != SOL_OK) {
        return status;
    }
    sol_status_t mine = comm->backend->sleep_restore(comm);
    if (mine == SOL_OK) {
        mine = sol_dev_records_refill(comm);
    }
    status = sol_agree_outcome(comm, mine);
    if (status != SOL_OK) {
        (void)comm->backend->sleep_release(comm);
        return status;
    }
    comm->backend->sleep_forget(comm);
    atomic_store(&comm->magic, SOL_COMM_MAGIC);
    return SOL_OK;
}

/* Nothing to hand over; what is asleep stays so although another call of the group failed. */
static void finish(sol_job_t *job, bool commit)
{
    (void)job, (void)commit;
}

static sol_status_t submit(sol_comm_t comm, sol_status_t (*run)(sol_job_t *job),
                           sol_sleep_level_t level, const char *who)
{
    sleep_job_t *made = sol_calloc(1, sizeof(*made));
    if (made == NULL) {
        return sol_group_note(sol_comm_error(comm, SOL_ERR_MEMORY, "%s: no memory", who));
    }
    made->level = level;
    made->job = (sol_job_t){.run = run, .finish = finish, .comm = comm, .backend = comm->backend};
    return sol_job_submit(&made->job);
}

sol_status_t sol_comm_sleep(sol_comm_t comm, sol_sleep_level_t level)
{
    sol_status_t status = sol_comm_usable(comm, "sol_comm_sleep");
    if (status == SOL_OK && level != SOL_SLEEP_KEEP && level != SOL_SLEEP_DISCARD) {
        status = sol_comm_error(comm, SOL_ERR_ARGUMENT,
                                "sol_comm_sleep: level is %d: expected SOL_SLEEP_KEEP (1) or "
                                "SOL_SLEEP_DISCARD (2)",
                                (int)level);
    }
    if (status == SOL_OK && comm->backend->sleep_prepare == NULL) {
        status = sol_comm_error(comm, SOL_ERR_UNSUPPORTED, "sol_comm_sleep: %s ranks cannot",
                                comm->backend->name);
    }
    return status == SOL_OK ? submit(comm, sleep_run, level, "sol_comm_sleep")
                            : sol_group_note(status);
}

sol_status_t sol_comm_wake(sol_comm_t comm)
{
    sol_status_t status = sol_comm_healthy(comm, "sol_comm_wake");
    /* (in a group it may be asleep only when its turn comes) */
    if (status == SOL_OK && sol_group_depth == 0 && atomic_load(&comm->magic) != SOL_COMM_ASLEEP) {
        status = sol_comm_error(comm, SOL_ERR_STATE, "sol_comm_wake: the communicator is awake");
    }
    return status == SOL_OK ? submit(comm, wake_run, SOL_SLEEP_KEEP, "sol_comm_wake")
                            : sol_group_note(status);
}
