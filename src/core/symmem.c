/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symmem.c: symmetric memory and registrations, above the backend. Allocation
 * is collective and succeeds on all ranks or on none; freeing is local.
 */
#include "core/setup.h"
#include "core/use.h"

#include <inttypes.h>
#include <stdio.h>

/* ---------------------------------------------------------------------- allocation */

typedef struct alloc_job {
    sol_job_t job;
    size_t bytes;
    void *memory;
    void **result;
} alloc_job_t;

/* All ranks have to want the same size. */
static sol_status_t agree_on_bytes(sol_comm_t comm, size_t bytes)
{
    sol_agree_t own = {.what = SOL_AGREE_MEM_ALLOC, .bytes = bytes};
    sol_agree_t *all = sol_calloc((size_t)comm->nranks, sizeof(*all));
    if (all == NULL) {
        sol_comm_fail_all(comm, SOL_ERR_MEMORY, "sol_mem_alloc: no memory to compare sizes");
        return sol_boot_break(comm->boot, SOL_ERR_MEMORY);
    }
    sol_status_t status = sol_agree_exchange(comm, &own, all);
    for (int r = 1; r < comm->nranks && status == SOL_OK; r++) {
        if (all[r].bytes != all[0].bytes) {
            status = sol_comm_error(comm, SOL_ERR_MISMATCH,
                                    "sol_mem_alloc: rank %d passed %" PRIu64
                                    " bytes, rank 0 passed %" PRIu64,
                                    r, all[r].bytes, all[0].bytes);
        }
    }
    sol_free(all);
    return status;
}

static sol_status_t alloc_run(sol_job_t *job)
{
    alloc_job_t *alloc = (alloc_job_t *)job;
    sol_comm_t comm = job->comm;
    sol_status_t status = sol_comm_usable(comm, "sol_mem_alloc");
    if (status == SOL_OK) {
        status = agree_on_bytes(comm, alloc->bytes);
    }
    if (status != SOL_OK || alloc->bytes == 0) {
        return status;
    }
    sol_status_t mine = comm->backend->mem_alloc(comm, alloc->bytes, &alloc->memory);
    status = sol_agree_outcome(comm, mine);
    if (mine == SOL_OK && status != SOL_OK) {
        comm->backend->mem_free(comm, alloc->memory);
    }
    return status;
}

static void alloc_finish(sol_job_t *job, bool commit)
{
    alloc_job_t *alloc = (alloc_job_t *)job;
    if (commit) {
        *alloc->result = alloc->memory;
    } else if (alloc->memory != NULL) {
        job->comm->backend->mem_free(job->comm, alloc->memory);
    }
}

sol_status_t sol_mem_alloc(sol_comm_t comm, size_t bytes, void **memory)
{
    sol_status_t status = sol_comm_usable(comm, "sol_mem_alloc");
    if (status == SOL_OK && memory == NULL) {
        status = sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_mem_alloc: memory is NULL");
    }
    if (status == SOL_OK && bytes > (size_t)PTRDIFF_MAX / SOL_MAX_RANKS) {
        status = sol_comm_error(comm, SOL_ERR_ARGUMENT,
                                "sol_mem_alloc: bytes is %zu: expected at most %zu", bytes,
                                (size_t)PTRDIFF_MAX / SOL_MAX_RANKS);
    }
    if (status != SOL_OK) {
        return sol_group_note(status);
    }
    alloc_job_t *alloc = sol_calloc(1, sizeof(*alloc));
    if (alloc == NULL) {
        return sol_group_note(sol_comm_error(comm, SOL_ERR_MEMORY, "sol_mem_alloc: no memory"));
    }
    alloc->job = (sol_job_t){
        .run = alloc_run, .finish = alloc_finish, .comm = comm, .backend = comm->backend};
    alloc->bytes = bytes;
    alloc->result = memory;
    return sol_job_submit(&alloc->job);
}

sol_status_t sol_mem_free(sol_comm_t comm, void *memory)
{
    sol_status_t status = sol_comm_valid(comm, "sol_mem_free");
    if (status != SOL_OK || memory == NULL) {
        return status;
    }
    bool step;
    status = sol_use_enter(comm, "sol_mem_free", &step);
    if (status == SOL_OK) {
        status = comm->backend->mem_free(comm, memory);
        sol_use_exit(step);
    }
    return status;
}

/* -------------------------------------------------------------------- registration */

struct sol_registration {
    void *handle; /* the backend's */
    struct sol_registration *next;
};

sol_status_t sol_mem_register(sol_comm_t comm, void *memory, size_t bytes,
                              sol_registration_t *registration)
{
    sol_status_t status = sol_comm_usable(comm, "sol_mem_register");
    if (status != SOL_OK) {
        return status;
    }
    if (registration == NULL) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_mem_register: registration is NULL");
    }
    if (memory == NULL || bytes == 0) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "sol_mem_register: %s",
                              memory == NULL ? "memory is NULL" : "bytes is 0");
    }
    if (bytes > UINTPTR_MAX - (uintptr_t)memory) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "sol_mem_register: bytes is %zu: the range wraps around", bytes);
    }
    struct sol_registration *made = sol_calloc(1, sizeof(*made));
    if (made == NULL) {
        return sol_comm_error(comm, SOL_ERR_MEMORY, "sol_mem_register: no memory");
    }
    bool step;
    status = sol_use_enter(comm, "sol_mem_register", &step);
    if (status == SOL_OK) {
        status = comm->backend->mem_register(comm, memory, bytes, &made->handle);
        if (status == SOL_OK) {
            made->next = comm->registrations;
            comm->registrations = made;
        }
        sol_use_exit(step);
    }
    if (status != SOL_OK) {
        sol_free(made);
        return status;
    }
    *registration = made;
    return SOL_OK;
}

/* By the thread that is inside. */
static sol_status_t deregister(sol_comm_t comm, struct sol_registration *registration)
{
    struct sol_registration **link = &comm->registrations;
    while (*link != NULL && *link != registration) {
        link = &(*link)->next;
    }
    if (*link == NULL) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "sol_mem_deregister: registration is not of this communicator, or "
                              "was deregistered already");
    }
    *link = registration->next;
    sol_status_t status = comm->backend->mem_deregister(comm, registration->handle);
    sol_free(registration);
    return status;
}

sol_status_t sol_mem_deregister(sol_comm_t comm, sol_registration_t registration)
{
    bool step;
    sol_status_t status = sol_comm_valid(comm, "sol_mem_deregister");
    if (status != SOL_OK || registration == NULL) {
        return status;
    }
    status = sol_use_enter(comm, "sol_mem_deregister", &step);
    if (status == SOL_OK) {
        status = deregister(comm, registration);
        sol_use_exit(step);
    }
    return status;
}

void sol_registrations_free(sol_comm_t comm)
{
    while (comm->registrations != NULL) {
        struct sol_registration *next = comm->registrations->next;
        (void)comm->backend->mem_deregister(comm, comm->registrations->handle);
        sol_free(comm->registrations);
        comm->registrations = next;
    }
}
