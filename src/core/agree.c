/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.c: ranks say what they are about to set up, and how it went. So a
 * split on one rank that meets an allocation on another is an error with names
 * at once, not a wait; and what fails on one rank fails on all.
 */
#include "core/setup.h"

#include <stdio.h>
#include <string.h>

static const char *function_of(uint32_t what)
{
    return what == SOL_AGREE_SPLIT      ? "sol_comm_split"
           : what == SOL_AGREE_DEV_COMM ? "sol_dev_comm_create"
           : what == SOL_AGREE_GROW     ? "sol_comm_grow"
           : what == SOL_AGREE_MOE      ? "sol_moe_create"
           : what == SOL_AGREE_SLEEP    ? "sol_comm_sleep"
           : what == SOL_AGREE_WAKE     ? "sol_comm_wake"
           : what == SOL_AGREE_TRANSFER ? "sol_transfer_create"
           : what == SOL_AGREE_NORM     ? "sol_norm_create"
                                        : "sol_mem_alloc";
}

sol_status_t sol_agree_exchange(sol_comm_t comm, const sol_agree_t *mine, sol_agree_t *all)
{
    sol_status_t status = sol_boot_all_gather(comm->boot, mine, sizeof(*mine), all);
    if (status != SOL_OK) {
        return sol_comm_fail_all(comm, status, "%s: %s", function_of(mine->what),
                                 sol_thread_error_text());
    }
    for (int r = 0; r < comm->nranks; r++) {
        if (all[r].what != all[0].what) {
            return sol_comm_error(comm, SOL_ERR_MISMATCH, "rank %d called %s, rank 0 %s", r,
                                  function_of(all[r].what), function_of(all[0].what));
        }
        if (all[r].refused != 0) {
            return sol_comm_error(comm, SOL_ERR_MEMORY, "%s: rank %d was refused memory",
                                  function_of(mine->what), r);
        }
    }
    return SOL_OK;
}

sol_status_t sol_agree_on_config(sol_comm_t comm, sol_agree_what what, const uint64_t *fields,
                                 size_t nfields)
{
    sol_agree_t own = {.what = what, .bytes = 0xcbf29ce484222325u};
    for (size_t i = 0; i < nfields; i++) {
        own.bytes = (own.bytes ^ fields[i]) * 0x100000001b3u;
        own.bytes ^= own.bytes >> 29;
    }
    sol_agree_t *all = sol_calloc((size_t)comm->nranks, sizeof *all);
    if (all == NULL) {
        sol_comm_fail_all(comm, SOL_ERR_MEMORY, "%s: no memory to compare configs",
                          function_of(what));
        return sol_boot_break(comm->boot, SOL_ERR_MEMORY);
    }
    sol_status_t status = sol_agree_exchange(comm, &own, all);
    for (int r = 1; r < comm->nranks && status == SOL_OK; r++) {
        if (all[r].bytes != all[0].bytes) {
            status =
                sol_comm_error(comm, SOL_ERR_MISMATCH, "%s: ranks %d and 0 pass different configs",
                               function_of(what), r);
        }
    }
    sol_free(all);
    return status;
}

typedef struct outcome {
    int32_t status;
    char text[508];
} outcome_t;

/* This thread's last error without the "comm 5f3a, rank 2 of 8: " that every rank puts before it.
 */
static const char *bare_error(sol_comm_t comm)
{
    char head[128];
    const char *text = sol_thread_error_text();
    int length =
        snprintf(head, sizeof(head), "%s, rank %d of %d: ", comm->name, comm->rank, comm->nranks);
    return strncmp(text, head, (size_t)length) == 0 ? text + length : text;
}

sol_status_t sol_agree_outcome(sol_comm_t comm, sol_status_t mine)
{
    outcome_t own = {.status = mine};
    if (mine != SOL_OK) {
        snprintf(own.text, sizeof(own.text), "%s", bare_error(comm));
    }
    outcome_t *all = sol_calloc((size_t)comm->nranks, sizeof(*all));
    if (all == NULL) {
        sol_thread_error(SOL_ERR_MEMORY, "no memory to compare the outcome with other ranks");
        sol_boot_break(comm->boot, SOL_ERR_MEMORY);
        return sol_comm_fail_all(comm, SOL_ERR_MEMORY, "%s", sol_thread_error_text());
    }
    sol_status_t status = sol_boot_all_gather(comm->boot, &own, sizeof(own), all);
    if (status != SOL_OK) {
        status = sol_comm_fail_all(comm, status, "%s", sol_thread_error_text());
    }
    for (int r = 0; r < comm->nranks && status == SOL_OK; r++) {
        if (all[r].status != SOL_OK) {
            all[r].text[sizeof(all[r].text) - 1] = '\0';
            status =
                sol_comm_error(comm, (sol_status_t)all[r].status, "rank %d: %s", r, all[r].text);
        }
    }
    sol_free(all);
    return status;
}
