/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split.c: dividing a communicator, and letting new ranks in. One exchange over
 * the parent carries every rank's color, key and a fresh id; from then on each
 * new group is on its own, joined by the id of its first rank. To grow, the
 * exchange carries rank 0's id, which the new ranks have from the caller.
 */
#include "core/setup.h"
#include "core/unique_id.h"

#include <string.h>

typedef struct split_job {
    sol_job_t job;
    sol_comm_setup_t setup; /* but id, nranks, rank */
    int color, key;
    sol_comm_t made; /* stays NULL for SOL_SPLIT_NONE */
    sol_comm_t *result;
} split_job_t;

/* Does rank a come before rank b in a new group? */
static bool before(const sol_agree_t *all, int a, int b)
{
    return all[a].key != all[b].key ? all[a].key < all[b].key : a < b;
}

/* This rank's place in its new group. */
static void place(const sol_agree_t *all, int nranks, int self, sol_comm_setup_t *setup)
{
    int leader = self;
    setup->nranks = 0;
    for (int r = 0; r < nranks; r++) {
        if (all[r].color != all[self].color) {
            continue;
        }
        int rank = 0;
        for (int other = 0; other < nranks; other++) {
            rank += all[other].color == all[r].color && other != r && before(all, other, r);
        }
        setup->nranks++;
        setup->parent_ranks[rank] = (signed char)(r + 1);
        setup->rank = r == self ? rank : setup->rank;
        leader = before(all, r, leader) ? r : leader;
    }
    setup->id = all[leader].id;
}

/* This rank cannot even take part: the others, who will, have to hear it. */
static sol_status_t give_up(sol_comm_t comm, sol_status_t status)
{
    sol_boot_break(comm->boot, status);
    return sol_comm_fail_all(comm, status, "sol_comm_split: %s", sol_thread_error_text());
}

static sol_status_t join_part(split_job_t *split, sol_comm_t comm, sol_agree_t *own,
                              sol_agree_t *all)
{
    own->refused = split->color != SOL_SPLIT_NONE && !sol_comm_reserve(&split->setup);
    sol_status_t status = sol_agree_exchange(comm, own, all);
    if (status != SOL_OK || split->color == SOL_SPLIT_NONE) {
        sol_comm_unreserve(&split->setup);
        return status;
    }
    place(all, comm->nranks, comm->rank, &split->setup);
    split->setup.parent = comm;
    split->setup.with_parent = true;
    status = sol_comm_make(&split->setup, &split->made);
    split->setup.reserved = NULL; /* taken */
    if (status != SOL_OK) {
        sol_comm_error(comm, status, "sol_comm_split: %s", sol_thread_error_text());
    }
    return status;
}

static sol_status_t split_run(sol_job_t *job)
{
    split_job_t *split = (split_job_t *)job;
    sol_comm_t comm = job->comm;
    sol_agree_t own = {.what = SOL_AGREE_SPLIT, .color = split->color, .key = split->key};
    sol_status_t status = sol_comm_usable(comm, "sol_comm_split");
    if (status != SOL_OK) {
        return status;
    }
    status = sol_get_unique_id(&own.id);
    if (status != SOL_OK) {
        return give_up(comm, status);
    }
    sol_agree_t *all = sol_calloc((size_t)comm->nranks, sizeof(*all));
    if (all == NULL) {
        sol_thread_error(SOL_ERR_MEMORY, "no memory for a split");
        return give_up(comm, SOL_ERR_MEMORY);
    }
    status = join_part(split, comm, &own, all);
    sol_free(all);
    return status;
}

static void split_finish(sol_job_t *job, bool commit)
{
    split_job_t *split = (split_job_t *)job;
    if (commit) {
        *split->result = split->made;
    } else if (split->made != NULL) {
        sol_comm_free(split->made);
    }
}

void sol_comm_inherit(sol_comm_t comm, sol_comm_setup_t *setup)
{
    setup->backend = comm->backend;
    setup->timeout_ms = (int)(comm->timeout_ns / 1000000u);
    setup->check = comm->check;
    setup->staging_bytes = comm->staging_bytes;
    setup->debug_epoch = comm->debug_epoch;
    memcpy(setup->name, comm->user_name, sizeof(setup->name));
}

static sol_status_t check_split(sol_comm_t comm, int color, sol_comm_t *result)
{
    sol_status_t status = sol_comm_usable(comm, "sol_comm_split");
    if (status != SOL_OK) {
        return status;
    }
    if (result == NULL) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_comm_split: result is NULL");
    }
    if (color < 0 && color != SOL_SPLIT_NONE) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "sol_comm_split: color is %d: expected 0 or more, or SOL_SPLIT_NONE",
                              color);
    }
    return SOL_OK;
}

sol_status_t sol_comm_split(sol_comm_t comm, int color, int key, sol_comm_t *result,
                            const sol_comm_config_t *config)
{
    sol_comm_setup_t setup = {.nranks = 0};
    sol_status_t status = check_split(comm, color, result);
    if (status == SOL_OK) {
        sol_comm_inherit(comm, &setup);
        if (config != NULL) {
            status = sol_comm_setup_read(&setup, config, "sol_comm_split");
        }
    }
    if (status != SOL_OK) {
        return sol_group_note(status);
    }
    split_job_t *split = sol_calloc(1, sizeof(*split));
    if (split == NULL) {
        return sol_group_note(sol_comm_error(comm, SOL_ERR_MEMORY, "sol_comm_split: no memory"));
    }
    split->job = (sol_job_t){
        .run = split_run, .finish = split_finish, .comm = comm, .backend = setup.backend};
    split->setup = setup;
    split->color = color;
    split->key = key;
    split->result = result;
    return sol_job_submit(&split->job);
}

/* ---------------------------------------------------------------------------- growing */

typedef struct grow_job {
    sol_job_t job;
    sol_comm_setup_t setup; /* but id */
    sol_unique_id_t id;     /* of rank 0; else zero */
    sol_comm_t made;
    sol_comm_t *result;
} grow_job_t;

/* Rank 0's id, if all ranks want the same number. */
static sol_status_t agree_to_grow(sol_comm_t comm, grow_job_t *grow, sol_agree_t *all)
{
    sol_id_content_t content;
    sol_agree_t own = {
        .what = SOL_AGREE_GROW, .bytes = (uint64_t)grow->setup.nranks, .id = grow->id};
    own.refused = !sol_comm_reserve(&grow->setup);
    sol_status_t status = sol_agree_exchange(comm, &own, all);
    for (int r = 1; r < comm->nranks && status == SOL_OK; r++) {
        if (all[r].bytes != all[0].bytes) {
            status = sol_comm_error(
                comm, SOL_ERR_MISMATCH, "sol_comm_grow: rank %d passed nranks %llu, rank 0 %llu", r,
                (unsigned long long)all[r].bytes, (unsigned long long)all[0].bytes);
        }
    }
    const char *wrong = status == SOL_OK ? sol_id_read(&all[0].id, &content) : NULL;
    if (wrong != NULL) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_comm_grow: rank 0's id %s", wrong);
    }
    grow->setup.id = all[0].id;
    grow->setup.parent = comm;
    grow->setup.with_parent = true;
    for (int r = 0; r < comm->nranks; r++) {
        grow->setup.parent_ranks[r] = (signed char)(r + 1);
    }
    return status;
}

static sol_status_t grow_run(sol_job_t *job)
{
    grow_job_t *grow = (grow_job_t *)job;
    sol_comm_t comm = job->comm;
    sol_status_t status = sol_comm_usable(comm, "sol_comm_grow");
    if (status != SOL_OK) {
        return status;
    }
    sol_agree_t *all = sol_calloc((size_t)comm->nranks, sizeof(*all));
    if (all == NULL) {
        status = sol_thread_error(SOL_ERR_MEMORY, "no memory to grow");
        sol_boot_break(comm->boot, status);
        return sol_comm_fail_all(comm, status, "sol_comm_grow: %s", sol_thread_error_text());
    }
    status = agree_to_grow(comm, grow, all);
    sol_free(all);
    if (status != SOL_OK) {
        sol_comm_unreserve(&grow->setup);
        return status;
    }
    status = sol_comm_make(&grow->setup, &grow->made);
    grow->setup.reserved = NULL; /* taken */
    if (status != SOL_OK) {
        sol_comm_error(comm, status, "sol_comm_grow: %s", sol_thread_error_text());
    }
    return status;
}

static void grow_finish(sol_job_t *job, bool commit)
{
    grow_job_t *grow = (grow_job_t *)job;
    if (commit) {
        *grow->result = grow->made;
    } else if (grow->made != NULL) {
        sol_comm_free(grow->made);
    }
}

static sol_status_t check_grow(sol_comm_t comm, const sol_unique_id_t *id, int nranks,
                               sol_comm_t *result)
{
    static const char who[] = "sol_comm_grow";
    sol_id_content_t content;
    sol_status_t status = sol_comm_usable(comm, who);
    if (status != SOL_OK) {
        return status;
    }
    if (result == NULL) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "%s: result is NULL", who);
    }
    if (nranks < comm->nranks || nranks > SOL_MAX_RANKS) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "%s: nranks is %d: expected %d to %d", who,
                              nranks, comm->nranks, SOL_MAX_RANKS);
    }
    const char *wrong = comm->rank != 0 ? NULL : id == NULL ? "is NULL" : sol_id_read(id, &content);
    if (wrong != NULL) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "%s: id %s", who, wrong);
    }
    return SOL_OK;
}

sol_status_t sol_comm_grow(sol_comm_t comm, const sol_unique_id_t *id, int nranks,
                           sol_comm_t *result, const sol_comm_config_t *config)
{
    sol_comm_setup_t setup = {.nranks = 0};
    sol_status_t status = check_grow(comm, id, nranks, result);
    if (status == SOL_OK) {
        sol_comm_inherit(comm, &setup);
        if (config != NULL) {
            status = sol_comm_setup_read(&setup, config, "sol_comm_grow");
        }
    }
    if (status != SOL_OK) {
        return sol_group_note(status);
    }
    grow_job_t *grow = sol_calloc(1, sizeof(*grow));
    if (grow == NULL) {
        return sol_group_note(sol_comm_error(comm, SOL_ERR_MEMORY, "sol_comm_grow: no memory"));
    }
    grow->job =
        (sol_job_t){.run = grow_run, .finish = grow_finish, .comm = comm, .backend = setup.backend};
    grow->setup = setup;
    grow->setup.nranks = nranks;
    grow->setup.rank = comm->rank;
    grow->result = result;
    if (comm->rank == 0) {
        grow->id = *id;
    }
    return sol_job_submit(&grow->job);
}
