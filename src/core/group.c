/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.c: what sol_group_start collects and sol_group_end runs. State is per
 * thread and kept between groups, so that a group of a send and a receive
 * allocates nothing.
 *
 * At the end: first the set-up that was put off (each communicator's on a
 * thread of its own), all or nothing; then the calls, all of one communicator
 * handed to its backend at once. Several blocking communicators run on a
 * thread each, because one may wait for what another does.
 *
 * A group of several steps holds all its communicators from before the first
 * to after the last: where another thread is inside one, nothing is begun, and
 * nobody comes between.
 */
#include "core/setup.h"
#include "core/use.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

_Thread_local int sol_group_depth SOL_NEAR;

typedef struct group {
    sol_call_t *calls;
    sol_comm_t *comms; /* of each call */
    size_t ncalls, capacity;
    sol_job_t *jobs, **jobs_end;
    sol_comm_t *held; /* parked (use.h): from hold_all to release_all */
    size_t nheld;
    sol_status_t failed;
    char text[SOL_ERROR_TEXT];
} group_t;

static _Thread_local group_t *thread_group SOL_NEAR;

/* ------------------------------------------------------------------- state of a thread */

static pthread_key_t group_key;
static pthread_once_t group_once = PTHREAD_ONCE_INIT;
static bool group_key_made;

static void drop_calls(group_t *group)
{
    for (size_t i = 0; i < group->ncalls; i++) {
        if (group->calls[i].func == SOL_FUNC_ALL_TO_ALL_V) {
            sol_free((void *)(uintptr_t)group->calls[i].sendcounts); /* one block for all four */
        }
    }
    group->ncalls = 0;
}

/* Takes the list of jobs apart and frees each; results go to the callers if `commit`. */
static void finish_jobs(group_t *group, bool commit)
{
    while (group->jobs != NULL) {
        sol_job_t *job = group->jobs;
        group->jobs = job->next;
        if (job->status == SOL_OK) {
            job->finish(job, commit);
        }
        sol_free(job);
    }
    group->jobs_end = &group->jobs;
}

/* Jobs that never ran have nothing to undo. */
static void drop_jobs(group_t *group)
{
    for (sol_job_t *job = group->jobs; job != NULL; job = job->next) {
        job->status = SOL_ERR_STATE;
    }
    finish_jobs(group, false);
}

static void group_free(void *memory)
{
    group_t *group = memory;
    drop_calls(group);
    drop_jobs(group);
    sol_free(group->calls);
    sol_free(group->comms);
    sol_free(group);
}

static void group_key_make(void)
{
    group_key_made = pthread_key_create(&group_key, group_free) == 0;
}

/* This thread's group; NULL where memory is refused. */
static group_t *group_get(void)
{
    if (thread_group != NULL) {
        return thread_group;
    }
    pthread_once(&group_once, group_key_make);
    group_t *group = sol_calloc(1, sizeof(*group));
    if (group == NULL || !group_key_made || pthread_setspecific(group_key, group) != 0) {
        sol_free(group);
        return NULL;
    }
    group->jobs_end = &group->jobs;
    thread_group = group;
    return group;
}

/* ------------------------------------------------------------------------- holding */

static bool holds(const group_t *group, sol_comm_t comm)
{
    bool held = false;
    for (size_t i = 0; i < group->nheld && !held; i++) {
        held = group->held[i] == comm;
    }
    return held;
}

static void release_all(group_t *group)
{
    for (size_t i = 0; i < group->nheld; i++) {
        if (sol_use_unpark(group->held[i])) {
            sol_use_end();
        }
    }
    sol_free(group->held);
    group->held = NULL;
    group->nheld = 0;
}

/* One that is no communicator here any more is found out when its turn comes. */
static sol_status_t hold(group_t *group, sol_comm_t comm)
{
    if (comm == NULL || holds(group, comm) || !sol_comm_alive(comm) ||
        comm->fork_generation != sol_fork_generation) {
        return SOL_OK;
    }
    if (!sol_use_begin(comm)) {
        return sol_use_refused(comm, "sol_group_end");
    }
    sol_use_park(comm);
    group->held[group->nheld++] = comm;
    return SOL_OK;
}

/* (A group of one communicator's calls is one step, which holds it anyway.) */
static sol_status_t hold_all(group_t *group)
{
    size_t n = group->ncalls;
    bool one = group->jobs == NULL;
    for (size_t i = 1; i < group->ncalls; i++) {
        one = one && group->comms[i] == group->comms[0];
    }
    for (const sol_job_t *job = group->jobs; job != NULL; job = job->next) {
        n++;
    }
    if (one) {
        return SOL_OK;
    }
    sol_status_t status = SOL_OK;
    group->held = sol_calloc(n, sizeof(sol_comm_t));
    if (group->held == NULL) {
        return sol_thread_error(SOL_ERR_MEMORY, "sol_group_end: no memory");
    }
    for (const sol_job_t *job = group->jobs; job != NULL && status == SOL_OK; job = job->next) {
        status = hold(group, job->comm);
    }
    for (size_t i = 0; i < group->ncalls && status == SOL_OK; i++) {
        status = hold(group, group->comms[i]);
    }
    return status;
}

/* Inside, for one step: of a communicator that the group holds, or not. And out. */
static sol_status_t step_in(sol_comm_t comm, bool held, const char *who, bool *step)
{
    *step = false;
    if (!held) {
        return sol_use_enter(comm, who, step);
    }
    return sol_use_unpark(comm) ? SOL_OK : sol_use_refused(comm, who);
}

static void step_out(sol_comm_t comm, bool held, bool step)
{
    if (held) {
        sol_use_park(comm);
    } else {
        sol_use_exit(step);
    }
}

/* ------------------------------------------------------------------------- collecting */

sol_status_t sol_group_start(void)
{
    if (sol_group_depth == 0) {
        group_t *group = group_get();
        if (group == NULL) {
            return sol_thread_error(SOL_ERR_MEMORY, "sol_group_start: no memory");
        }
        group->failed = SOL_OK;
    }
    sol_group_depth++;
    return SOL_OK;
}

sol_status_t sol_group_note(sol_status_t status)
{
    group_t *group = thread_group;
    if (sol_group_depth > 0 && status != SOL_OK && group->failed == SOL_OK) {
        group->failed = status;
        snprintf(group->text, sizeof(group->text), "%s", sol_thread_error_text());
    }
    return status;
}

static sol_status_t grow(group_t *group)
{
    size_t capacity = group->capacity == 0 ? 16 : group->capacity * 2;
    sol_call_t *calls = sol_calloc(capacity, sizeof(*calls));
    sol_comm_t *comms = sol_calloc(capacity, sizeof(sol_comm_t));
    if (calls == NULL || comms == NULL) {
        sol_free(calls);
        sol_free(comms);
        return SOL_ERR_MEMORY;
    }
    if (group->ncalls > 0) {
        memcpy(calls, group->calls, group->ncalls * sizeof(*calls));
        memcpy(comms, group->comms, group->ncalls * sizeof(sol_comm_t));
    }
    sol_free(group->calls);
    sol_free(group->comms);
    group->calls = calls;
    group->comms = comms;
    group->capacity = capacity;
    return SOL_OK;
}

/* The caller's arrays are only there during its call. */
static sol_status_t copy_arrays(sol_call_t *call, size_t nranks)
{
    size_t *block = sol_calloc(4 * nranks, sizeof(*block));
    if (block == NULL) {
        return SOL_ERR_MEMORY;
    }
    const size_t **arrays[] = {&call->sendcounts, &call->senddispls, &call->recvcounts,
                               &call->recvdispls};
    for (size_t i = 0; i < 4; i++) {
        memcpy(block + i * nranks, *arrays[i], nranks * sizeof(*block));
        *arrays[i] = block + i * nranks;
    }
    return SOL_OK;
}

sol_status_t sol_group_append(sol_comm_t comm, const sol_call_t *call)
{
    group_t *group = thread_group;
    sol_call_t copy = *call;
    sol_status_t status = group->ncalls < group->capacity ? SOL_OK : grow(group);
    if (status == SOL_OK && call->func == SOL_FUNC_ALL_TO_ALL_V) {
        status = copy_arrays(&copy, (size_t)comm->nranks);
    }
    if (status != SOL_OK) {
        return sol_group_note(sol_comm_error(comm, status, "%s: no memory to collect it in a group",
                                             sol_func_name(call->func)));
    }
    group->calls[group->ncalls] = copy;
    group->comms[group->ncalls] = comm;
    group->ncalls++;
    return SOL_OK;
}

void sol_group_forget(sol_comm_t comm)
{
    group_t *group = thread_group;
    bool used = false;
    if (sol_group_depth == 0) {
        return;
    }
    for (size_t i = 0; i < group->ncalls; i++) {
        used = used || group->comms[i] == comm;
    }
    for (const sol_job_t *job = group->jobs; job != NULL; job = job->next) {
        used = used || job->comm == comm;
    }
    if (used) {
        drop_calls(group);
        drop_jobs(group);
        (void)sol_group_note(
            sol_thread_error(SOL_ERR_STATE,
                             "sol_comm_destroy: %s was destroyed inside a group that uses it: "
                             "nothing of the group is done",
                             comm->name));
    }
}

/* ----------------------------------------------------------------------------- threads */

/* Signals of the application are not for a thread it does not know. */
static int start_thread(pthread_t *thread, void *(*body)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, body, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* One strand of work of sol_group_end: some jobs, or one communicator's calls. */
typedef struct gate {
    pthread_mutex_t lock; /* held until all strands have a thread */
    bool closed;          /* one has none: none may begin */
} gate_t;

typedef struct strand {
    pthread_t thread;
    gate_t *gate;
    sol_job_t **jobs; /* in order */
    size_t njobs;
    sol_comm_t comm; /* with calls */
    sol_call_t *calls;
    size_t ncalls;
    bool held; /* by the group */
    sol_status_t status;
    char text[SOL_ERROR_TEXT];
} strand_t;

static sol_status_t run_calls(sol_comm_t comm, sol_call_t *calls, size_t ncalls, bool held)
{
    sol_status_t status = SOL_OK;
    bool step;
    if (atomic_load_explicit(&comm->magic, memory_order_relaxed) != SOL_COMM_MAGIC ||
        atomic_load_explicit(&comm->failed, memory_order_relaxed) != 0 ||
        comm->fork_generation != sol_fork_generation) {
        status = sol_comm_usable(comm, "sol_group_end");
    }
    if (status != SOL_OK) {
        return status;
    }
    status = step_in(comm, held, "sol_group_end", &step);
    if (status != SOL_OK) {
        return status;
    }
    uint64_t sequence = atomic_load_explicit(&comm->sequence, memory_order_relaxed);
    for (size_t i = 0; i < ncalls; i++) {
        calls[i].sequence = ++sequence;
        sol_flight_begin(comm->flight, &calls[i], comm->blocking);
    }
    /* release: the records are there before the number; pairs with the acquire in dump.c */
    atomic_store_explicit(&comm->sequence, sequence, memory_order_release);
    status = comm->backend->run_group(comm, calls, ncalls);
    for (size_t i = 0; i < ncalls; i++) {
        sol_flight_end(comm->flight, calls[i].sequence, status);
    }
    step_out(comm, held, step);
    if (status != SOL_OK) {
        sol_dump_failed(comm);
    }
    return status;
}

/* With no other call on its communicator meanwhile. */
static void run_alone(sol_job_t *job, bool held)
{
    bool step;
    if (job->comm == NULL) {
        job->status = job->run(job);
        return;
    }
    job->status = step_in(job->comm, held, "collective set-up", &step);
    if (job->status != SOL_OK) {
        return;
    }
    job->status = job->run(job);
    step_out(job->comm, held, step);
    if (!step && job->status != SOL_OK) {
        sol_dump_failed(job->comm);
    }
}

/* Under the context that was current when the call was made, on whatever thread: a group may hold
 * set-up for several devices. The caller's thread gets its own back. */
static sol_status_t run_job(sol_job_t *job, bool held, bool elsewhere)
{
    const sol_backend_t *backend = job->backend;
    bool set = backend->context_set != NULL && job->context != 0;
    uintptr_t before = set && !elsewhere ? backend->context_save() : 0;
    if (set) {
        backend->context_set(job->context);
    }
    run_alone(job, held);
    if (before != 0) {
        backend->context_set(before);
    }
    return job->status;
}

static void run_strand(strand_t *strand, bool elsewhere)
{
    for (size_t i = 0; i < strand->njobs; i++) {
        sol_status_t status = run_job(strand->jobs[i], strand->held, elsewhere);
        strand->status = strand->status == SOL_OK ? status : strand->status;
    }
    if (strand->ncalls > 0) {
        strand->status = run_calls(strand->comm, strand->calls, strand->ncalls, strand->held);
    }
    if (strand->status != SOL_OK) {
        snprintf(strand->text, sizeof(strand->text), "%s", sol_thread_error_text());
    }
}

static void *strand_body(void *argument)
{
    strand_t *strand = argument;
    pthread_mutex_lock(&strand->gate->lock);
    bool closed = strand->gate->closed;
    pthread_mutex_unlock(&strand->gate->lock);
    if (!closed) {
        run_strand(strand, true);
    }
    return NULL;
}

/* The failure to report: a cause rather than what followed from it on the other ranks. */
static const strand_t *worst_strand(const strand_t *strands, size_t n)
{
    const strand_t *worst = NULL;
    for (size_t i = 0; i < n; i++) {
        sol_status_t status = strands[i].status;
        bool follows = status == SOL_ERR_TIMEOUT || status == SOL_ERR_PEER;
        if (status != SOL_OK && !follows) {
            return &strands[i];
        }
        if (status != SOL_OK && worst == NULL) {
            worst = &strands[i];
        }
    }
    return worst;
}

/* Runs all strands at once, the first in this thread; a failure becomes this thread's error. They
 * wait for each other, so where one cannot have a thread nothing is begun. */
static sol_status_t run_strands(strand_t *strands, size_t n)
{
    gate_t gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
    size_t started = 1;
    int error = 0;
    pthread_mutex_lock(&gate.lock);
    while (started < n && error == 0) {
        strands[started].gate = &gate;
        error = start_thread(&strands[started].thread, strand_body, &strands[started]);
        started += error == 0;
    }
    gate.closed = error != 0;
    pthread_mutex_unlock(&gate.lock);
    if (error == 0) {
        run_strand(&strands[0], false);
    }
    for (size_t i = 1; i < started; i++) {
        pthread_join(strands[i].thread, NULL);
    }
    pthread_mutex_destroy(&gate.lock);
    if (error != 0) {
        for (size_t i = 0; i < n; i++) {
            for (size_t k = 0; k < strands[i].njobs; k++) {
                strands[i].jobs[k]->status = SOL_ERR_SYSTEM; /* nothing to undo */
            }
        }
        return sol_thread_error(SOL_ERR_SYSTEM,
                                "sol_group_end: nothing of the group was done: %zu threads are "
                                "needed, of which number %zu was refused: %s",
                                n - 1, started, strerror(error));
    }
    const strand_t *worst = worst_strand(strands, n);
    return worst == NULL ? SOL_OK : sol_thread_error(worst->status, "%s", worst->text);
}

/* -------------------------------------------------------------------------------- jobs */

static size_t count_jobs(const group_t *group)
{
    size_t n = 0;
    for (const sol_job_t *job = group->jobs; job != NULL; job = job->next) {
        n++;
    }
    return n;
}

/* Puts each communicator's jobs, in order, on one strand; returns how many strands. `slots` has
 * room for a pointer to each job. */
static size_t arrange_jobs(const group_t *group, strand_t *strands, sol_job_t **slots)
{
    size_t n = 0;
    for (sol_job_t *job = group->jobs; job != NULL; job = job->next) {
        bool placed = false;
        for (sol_job_t *first = group->jobs; first != job && job->comm != NULL && !placed;
             first = first->next) {
            placed = first->comm == job->comm;
        }
        if (placed) {
            continue;
        }
        strand_t *strand = &strands[n++];
        strand->jobs = slots;
        strand->held = holds(group, job->comm);
        for (sol_job_t *other = job; other != NULL; other = other->next) {
            if (other == job || (job->comm != NULL && other->comm == job->comm)) {
                strand->jobs[strand->njobs++] = other;
            }
        }
        slots += strand->njobs;
    }
    return n;
}

static sol_status_t run_jobs(group_t *group)
{
    size_t n = count_jobs(group);
    if (n == 0) {
        return SOL_OK;
    }
    strand_t *strands = sol_calloc(n, sizeof(*strands));
    sol_job_t **slots = sol_calloc(n, sizeof(sol_job_t *));
    sol_status_t status = SOL_ERR_MEMORY;
    if (strands != NULL && slots != NULL) {
        status = run_strands(strands, arrange_jobs(group, strands, slots));
        finish_jobs(group, status == SOL_OK);
    } else {
        sol_thread_error(status, "sol_group_end: no memory");
        drop_jobs(group);
    }
    sol_free(strands);
    sol_free(slots);
    return status;
}

sol_status_t sol_job_submit(sol_job_t *job)
{
    if (sol_group_depth > 0) {
        if (job->backend->context_save != NULL) {
            job->context = job->backend->context_save();
        }
        *thread_group->jobs_end = job;
        thread_group->jobs_end = &job->next;
        return SOL_OK;
    }
    sol_status_t status = run_job(job, false, false);
    if (status == SOL_OK) {
        job->finish(job, true);
    }
    sol_free(job);
    return status;
}

/* ------------------------------------------------------------------------------- calls */

/* The calls sorted by communicator, order kept: fills `sorted` and one strand for each. */
static size_t arrange_calls(const group_t *group, strand_t *strands, sol_call_t *sorted)
{
    size_t n = 0;
    for (size_t i = 0; i < group->ncalls; i++) {
        bool placed = false;
        for (size_t k = 0; k < n && !placed; k++) {
            placed = strands[k].comm == group->comms[i];
        }
        if (placed) {
            continue;
        }
        strand_t *strand = &strands[n++];
        strand->comm = group->comms[i];
        strand->held = holds(group, strand->comm);
        strand->calls = sorted;
        for (size_t k = i; k < group->ncalls; k++) {
            if (group->comms[k] == strand->comm) {
                strand->calls[strand->ncalls++] = group->calls[k];
            }
        }
        sorted += strand->ncalls;
    }
    return n;
}

/* Those that only enqueue first, one after another here; the blocking ones then, together. */
static sol_status_t run_arranged(strand_t *strands, size_t n)
{
    size_t blocking = 0;
    sol_status_t first = SOL_OK;
    char text[SOL_ERROR_TEXT] = "";
    for (size_t i = 0; i < n; i++) {
        if (strands[i].comm->blocking) {
            strand_t kept = strands[i];
            strands[blocking++] = kept;
            continue;
        }
        run_strand(&strands[i], false);
        if (first == SOL_OK && strands[i].status != SOL_OK) {
            first = strands[i].status;
            memcpy(text, strands[i].text, sizeof(text));
        }
    }
    sol_status_t status = blocking > 0 ? run_strands(strands, blocking) : SOL_OK;
    return first == SOL_OK ? status : sol_thread_error(first, "%s", text);
}

static sol_status_t run_many(group_t *group)
{
    strand_t *strands = sol_calloc(group->ncalls, sizeof(*strands));
    sol_call_t *sorted = sol_calloc(group->ncalls, sizeof(*sorted));
    sol_status_t status = SOL_ERR_MEMORY;
    if (strands != NULL && sorted != NULL) {
        status = run_arranged(strands, arrange_calls(group, strands, sorted));
    } else {
        sol_thread_error(status, "sol_group_end: no memory");
    }
    sol_free(strands);
    sol_free(sorted);
    return status;
}

static sol_status_t run_collected(group_t *group)
{
    bool one = true;
    if (group->ncalls == 0) {
        return SOL_OK;
    }
    for (size_t i = 1; i < group->ncalls; i++) {
        one = one && group->comms[i] == group->comms[0];
    }
    return one ? run_calls(group->comms[0], group->calls, group->ncalls,
                           holds(group, group->comms[0]))
               : run_many(group);
}

sol_status_t sol_group_end(void)
{
    if (sol_group_depth == 0) {
        return sol_thread_error(SOL_ERR_STATE, "sol_group_end: no group is open in this thread");
    }
    if (--sol_group_depth > 0) {
        return SOL_OK;
    }
    group_t *group = thread_group;
    sol_status_t status = group->failed;
    if (status != SOL_OK) {
        sol_thread_error(status, "sol_group_end: nothing of the group was done: %s", group->text);
    } else {
        status = hold_all(group);
    }
    if (status == SOL_OK) {
        status = run_jobs(group);
    }
    if (status == SOL_OK) {
        status = run_collected(group);
    }
    drop_jobs(group); /* (those that never ran) */
    drop_calls(group);
    release_all(group);
    return status;
}
