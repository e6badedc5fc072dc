/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_backend.h: a backend that moves nothing but remembers what core asked of
 * it, so that core can be tested alone. Ranks are threads of the test. Include
 * it in one file a program.
 */
#ifndef TESTS_FAKE_BACKEND_H
#define TESTS_FAKE_BACKEND_H

#include "core/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is remembered of one communicator; comm->state points to it. */
typedef struct fake_state {
    int runs, groups;
    uintptr_t context; /* under which it was opened */
    sol_call_t last;
    size_t group_calls;
    sol_call_t group[64];
    size_t v_sum; /* of the last all_to_all_v's four arrays in a group */
    int prepared, kept, released, restored, forgotten; /* sleep's steps */
} fake_state_t;

/* Switches, set before the call that they are for. */
static _Atomic int fake_open_fails_on = -1;                                /* rank */
static _Atomic int fake_alloc_fails_on = -1;                               /* rank */
static _Atomic int fake_prepare_fails_on = -1, fake_restore_fails_on = -1; /* rank */
static _Atomic int fake_live, fake_memory, fake_registered, fake_aborts;
static _Thread_local uintptr_t fake_context = 70; /* the thread's "device" */
static sol_status_t fake_run_result = SOL_OK;
static int fake_timeout_ms = 5000;

static sol_status_t fake_probe(char *why, size_t bytes)
{
    (void)why, (void)bytes;
    return SOL_OK;
}

static sol_status_t fake_open(sol_comm_t comm)
{
    int pids[SOL_MAX_RANKS], own = comm->rank;
    sol_status_t status = sol_boot_all_gather(comm->boot, &own, sizeof(own), pids);
    for (int r = 0; r < comm->nranks && status == SOL_OK; r++) {
        status = pids[r] == r ? SOL_OK : sol_thread_error(SOL_ERR_INTERNAL, "order");
    }
    if (status == SOL_OK && fake_open_fails_on == comm->rank) {
        status = sol_thread_error(SOL_ERR_UNSUPPORTED, "the fake was told to fail");
    }
    if (status == SOL_OK) {
        fake_state_t *made = calloc(1, sizeof(*made));
        made->context = fake_context;
        comm->state = made;
        fake_live++;
    }
    return status;
}

static void fake_close(sol_comm_t comm)
{
    free(comm->state);
    comm->state = NULL;
    fake_live--;
}

static sol_status_t fake_run(sol_comm_t comm, const sol_call_t *call)
{
    fake_state_t *state = comm->state;
    state->runs++;
    state->last = *call;
    if (fake_run_result != SOL_OK) {
        char text[128];
        sol_call_describe(call, text, sizeof(text));
        return sol_comm_fail(comm, fake_run_result, "%s: the fake was told to fail", text);
    }
    return SOL_OK;
}

static sol_status_t fake_run_group(sol_comm_t comm, const sol_call_t *calls, size_t ncalls)
{
    fake_state_t *state = comm->state;
    state->groups++;
    state->group_calls = ncalls;
    for (size_t i = 0; i < ncalls && i < 64; i++) {
        state->group[i] = calls[i];
        if (calls[i].func == SOL_FUNC_ALL_TO_ALL_V) {
            state->v_sum = 0;
            for (int p = 0; p < comm->nranks; p++) {
                state->v_sum += calls[i].sendcounts[p] + calls[i].senddispls[p] +
                                calls[i].recvcounts[p] + calls[i].recvdispls[p];
            }
        }
    }
    return SOL_OK;
}

static sol_status_t fake_mem_alloc(sol_comm_t comm, size_t bytes, void **memory)
{
    if (fake_alloc_fails_on == comm->rank) {
        return sol_comm_error(comm, SOL_ERR_MEMORY, "the fake was told to refuse");
    }
    *memory = calloc(1, bytes);
    fake_memory++;
    return SOL_OK;
}

static sol_status_t fake_mem_free(sol_comm_t comm, void *memory)
{
    (void)comm;
    free(memory);
    fake_memory--;
    return SOL_OK;
}

static sol_status_t fake_mem_register(sol_comm_t comm, void *memory, size_t bytes, void **handle)
{
    (void)comm, (void)bytes;
    *handle = memory;
    fake_registered++;
    return SOL_OK;
}

static sol_status_t fake_mem_deregister(sol_comm_t comm, void *handle)
{
    (void)comm, (void)handle;
    fake_registered--;
    return SOL_OK;
}

static sol_status_t fake_prepare(sol_comm_t comm, bool keep)
{
    fake_state_t *state = comm->state;
    state->prepared++;
    state->kept += keep;
    return fake_prepare_fails_on == comm->rank
               ? sol_comm_error(comm, SOL_ERR_MEMORY, "the fake was told to refuse")
               : SOL_OK;
}

static sol_status_t fake_release(sol_comm_t comm)
{
    ((fake_state_t *)comm->state)->released++;
    return SOL_OK;
}

static sol_status_t fake_restore(sol_comm_t comm)
{
    ((fake_state_t *)comm->state)->restored++;
    return fake_restore_fails_on == comm->rank
               ? sol_comm_error(comm, SOL_ERR_MEMORY, "the fake was told to refuse")
               : SOL_OK;
}

static void fake_forget(sol_comm_t comm)
{
    ((fake_state_t *)comm->state)->forgotten++;
}

static void fake_abort(sol_comm_t comm)
{
    (void)comm;
    fake_aborts++;
}

static sol_status_t fake_explain(sol_comm_t comm, const sol_call_t *call, char *text, size_t bytes)
{
    (void)comm;
    sol_call_describe(call, text, bytes);
    return SOL_OK;
}

static uintptr_t fake_context_save(void)
{
    return fake_context;
}

static void fake_context_set(uintptr_t context)
{
    fake_context = context;
}

static const sol_backend_t fake_backend = {.size = sizeof(sol_backend_t),
                                           .name = "fake",
                                           .kind = SOL_BACKEND_CPU,
                                           .blocking = true,
                                           .context_save = fake_context_save,
                                           .context_set = fake_context_set,
                                           .probe = fake_probe,
                                           .open = fake_open,
                                           .close = fake_close,
                                           .run = fake_run,
                                           .run_group = fake_run_group,
                                           .mem_alloc = fake_mem_alloc,
                                           .mem_free = fake_mem_free,
                                           .mem_register = fake_mem_register,
                                           .mem_deregister = fake_mem_deregister,
                                           .sleep_prepare = fake_prepare,
                                           .sleep_release = fake_release,
                                           .sleep_restore = fake_restore,
                                           .sleep_forget = fake_forget,
                                           .abort = fake_abort,
                                           .explain = fake_explain};

static sol_comm_setup_t fake_setup(const sol_unique_id_t *id, int nranks, int rank)
{
    sol_comm_setup_t setup = {.id = *id,
                              .nranks = nranks,
                              .rank = rank,
                              .backend = &fake_backend,
                              .timeout_ms = fake_timeout_ms};
    return setup;
}

/* All ranks of a fake communicator, made by this one thread in a group. */
static sol_status_t fake_comms(sol_comm_t *comms, int nranks)
{
    sol_unique_id_t id;
    sol_status_t status = sol_get_unique_id(&id);
    if (status == SOL_OK) {
        status = sol_group_start();
    }
    for (int r = 0; r < nranks && status == SOL_OK; r++) {
        sol_comm_setup_t setup = fake_setup(&id, nranks, r);
        status = sol_comm_make_or_defer(&setup, &comms[r]);
    }
    return status == SOL_OK ? sol_group_end() : status;
}

#endif
