/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dropin_comm.c: NCCL's functions that make, end and question communicators. The
 * real library's is always called; if it succeeds, and every rank sits on this
 * host (dropin_join.c), the ranks join a communicator of solccl's beside it and
 * agree on limits. Whatever goes wrong with that is logged and leaves NCCL alone.
 */
#include "dropin/nccl/dropin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOIN_TIMEOUT_MS 20000
#define MEMBERS_MAX 65536 /* of a parent; each is asked for after a split */

int ncclCommInitRank(nccl_comm *comm, int nranks, nccl_id id, int rank);
int ncclCommInitRankConfig(nccl_comm *comm, int nranks, nccl_id id, int rank, nccl_config *config);
int ncclCommInitRankScalable(nccl_comm *comm, int nranks, int rank, int nids, nccl_id *ids,
                             nccl_config *config);
int ncclCommInitAll(nccl_comm *comms, int ndevices, const int *devices);
int ncclCommSplit(nccl_comm comm, int color, int key, nccl_comm *result, nccl_config *config);
int ncclCommShrink(nccl_comm comm, int *excluded, int nexcluded, nccl_comm *result,
                   nccl_config *config, int flags);
int ncclCommDestroy(nccl_comm comm);
int ncclCommAbort(nccl_comm comm);
int ncclCommRevoke(nccl_comm comm, int flags);
int ncclCommGetAsyncError(nccl_comm comm, int *result);
const char *ncclGetLastError(nccl_comm comm);
const char *ncclGetErrorString(int result);

/* ------------------------------------------------------------------------------ limits */

/* Up to which size solccl is not slower than NCCL (bench/NOTES.md, "In front of NCCL"). In
 * nccl-tests' "size": the bytes of all ranks' blocks together where each has one. */
static const size_t default_limits[SOL_FUNC_COUNT] = {
    [SOL_FUNC_ALL_REDUCE] = 8u << 20,     [SOL_FUNC_ALL_GATHER] = 8u << 20,
    [SOL_FUNC_REDUCE_SCATTER] = 8u << 20, [SOL_FUNC_BROADCAST] = 8u << 20,
    [SOL_FUNC_REDUCE] = 1u << 20,         [SOL_FUNC_ALL_TO_ALL] = 8u << 20,
    [SOL_FUNC_GATHER] = 1u << 20,         [SOL_FUNC_SCATTER] = 1u << 20,
};

/* What a rank tells the others when they have joined; the least of all holds. */
struct wishes {
    uint64_t limit[SOL_FUNC_COUNT];
};

static void make_wishes(struct wishes *wishes)
{
    const sol_nccl_real *real = sol_nccl();
    const sol_dropin_switches *switches = sol_dropin_switches_get();
    memset(wishes, 0, sizeof *wishes);
    for (int f = 0; f < SOL_FUNC_COUNT; f++) {
        size_t limit = default_limits[f];
        wishes->limit[f] = switches->max_bytes_given && limit > 0 ? switches->max_bytes : limit;
    }
    /* larger ones would have nowhere to go */
    if (real->all_to_all == NULL) {
        wishes->limit[SOL_FUNC_ALL_TO_ALL] = 0;
    }
    if (real->gather == NULL || real->scatter == NULL) {
        wishes->limit[SOL_FUNC_GATHER] = wishes->limit[SOL_FUNC_SCATTER] = 0;
    }
}

static bool counts_a_block(int func)
{
    return func == SOL_FUNC_ALL_GATHER || func == SOL_FUNC_REDUCE_SCATTER ||
           func == SOL_FUNC_ALL_TO_ALL || func == SOL_FUNC_GATHER || func == SOL_FUNC_SCATTER;
}

/* ----------------------------------------------------------------------------- joining */

typedef struct joining {
    sol_job_t job;
    sol_comm_setup_t setup;
    sol_comm_t made;
    struct wishes agreed;
    sol_dropin_comm *comm;
} joining;

/* Perhaps on a thread of its own: ranks of one thread join at once. */
static sol_status_t join_run(sol_job_t *job)
{
    joining *join = (joining *)job;
    struct wishes mine, all[SOL_MAX_RANKS];
    sol_status_t status = sol_comm_make(&join->setup, &join->made);
    if (status == SOL_OK) {
        make_wishes(&mine);
        status = sol_boot_all_gather(join->made->boot, &mine, sizeof mine, all);
        if (status != SOL_OK) {
            sol_comm_destroy(join->made);
        }
    }
    if (status != SOL_OK) {
        sol_log(SOL_LOG_INFO, "nccl: comm %p of %d ranks is passed to NCCL: %s", join->comm->handle,
                join->comm->nranks, sol_thread_error_text());
        return status;
    }
    join->agreed = all[0];
    for (int r = 1; r < join->setup.nranks; r++) {
        for (int f = 0; f < SOL_FUNC_COUNT; f++) {
            bool less = all[r].limit[f] < join->agreed.limit[f];
            join->agreed.limit[f] = less ? all[r].limit[f] : join->agreed.limit[f];
        }
    }
    return SOL_OK;
}

/* `commit` says how all joins of the group went, of which other ranks have other ones: what was
 * joined holds, since it does so there. */
static void join_finish(sol_job_t *job, bool commit)
{
    (void)commit;
    joining *join = (joining *)job;
    sol_dropin_comm *comm = join->comm;
    for (int f = 0; f < SOL_FUNC_COUNT; f++) {
        size_t ranks = counts_a_block(f) ? (size_t)comm->nranks : 1;
        comm->limit[f] = (size_t)join->agreed.limit[f] / ranks;
    }
    comm->sol = join->made;
    sol_log(SOL_LOG_INFO,
            "nccl: comm %p, rank %d of %d: taken are all_reduce to %llu bytes, all_gather %llu, "
            "reduce_scatter %llu, broadcast %llu, all_to_all %llu",
            comm->handle, comm->rank, comm->nranks,
            (unsigned long long)join->agreed.limit[SOL_FUNC_ALL_REDUCE],
            (unsigned long long)join->agreed.limit[SOL_FUNC_ALL_GATHER],
            (unsigned long long)join->agreed.limit[SOL_FUNC_REDUCE_SCATTER],
            (unsigned long long)join->agreed.limit[SOL_FUNC_BROADCAST],
            (unsigned long long)join->agreed.limit[SOL_FUNC_ALL_TO_ALL]);
}

static void submit_join(sol_dropin_comm *comm)
{
    const sol_dropin_switches *switches = sol_dropin_switches_get();
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    unsigned char secret[SOL_SHA256_BYTES];
    joining *join = sol_calloc(1, sizeof *join);
    if (join == NULL) {
        return; /* the others find out when the join has taken too long */
    }
    join->job.run = join_run;
    join->job.finish = join_finish;
    join->comm = comm;
    config.backend = switches->ranks;
    config.timeout_ms = switches->timeout_ms;
    config.name = "nccl";
    if (sol_comm_setup_read(&join->setup, &config, "the drop-in for NCCL") != SOL_OK) {
        sol_log(SOL_LOG_INFO, "nccl: comm %p of %d ranks is passed to NCCL: %s", comm->handle,
                comm->nranks, sol_thread_error_text());
        sol_free(join);
        return;
    }
    join->setup.alone = true; /* NCCL as solccl's help would be a detour */
    join->setup.join_timeout_ms =
        switches->timeout_ms < JOIN_TIMEOUT_MS ? switches->timeout_ms : JOIN_TIMEOUT_MS;
    static const char purpose[] = "solccl nccl secret 1"; /* a seat's name comes from the key too */
    sol_sha256_t hash;
    sol_sha256_start(&hash);
    sol_sha256_add(&hash, purpose, sizeof purpose);
    sol_sha256_add(&hash, comm->key, sizeof comm->key);
    sol_sha256_end(&hash, secret);
    sol_id_make(&join->setup.id, secret);
    join->setup.nranks = comm->nranks;
    join->setup.rank = comm->rank;
    join->job.backend = join->setup.backend;
    int before = sol_dropin_device_set(comm->device);
    (void)sol_job_submit(&join->job); /* (logs what went wrong) */
    sol_dropin_device_restore(before);
}

/* The table's entry of a communicator that the real library has made; NULL: it stays unknown. */
static sol_dropin_comm *enter(const sol_dropin_birth *birth)
{
    const sol_nccl_real *real = sol_nccl();
    nccl_comm handle = *birth->handle;
    int nranks = 0, rank = -1;
    if (handle == NULL || real->count(handle, &nranks) != NCCL_SUCCESS ||
        real->user_rank(handle, &rank) != NCCL_SUCCESS) {
        return NULL;
    }
    sol_dropin_comm *comm = sol_calloc(1, sizeof *comm);
    if (comm == NULL) {
        return NULL;
    }
    comm->handle = handle;
    comm->nranks = nranks;
    comm->rank = rank;
    if (real->device(handle, &comm->device) != NCCL_SUCCESS) {
        comm->device = -1;
    }
    memcpy(comm->key, birth->key, sizeof comm->key);
    if (!sol_dropin_add(comm)) {
        sol_log(SOL_LOG_WARN, "nccl: comm %p is passed to NCCL: too many communicators", handle);
        sol_free(comm);
        return NULL;
    }
    return comm;
}

/* Are all ranks here, with the drop-in? */
static bool all_are_here(const sol_dropin_birth *birth, const sol_dropin_comm *comm)
{
    if (birth->seat == NULL) {
        return birth->local;
    }
    int seated = sol_dropin_seated(birth->seat);
    if (seated != comm->nranks) {
        sol_log(SOL_LOG_INFO,
                "nccl: comm %p of %d ranks is passed to NCCL: %d of them are on this host and "
                "have the drop-in",
                comm->handle, comm->nranks, seated);
    }
    return seated == comm->nranks;
}

void sol_dropin_births(sol_dropin_birth *list)
{
    bool many = list->next != NULL;
    if (many && sol_group_start() != SOL_OK) {
        many = false; /* out of memory: one after another, each bounded */
    }
    for (sol_dropin_birth *birth = list; birth != NULL; birth = birth->next) {
        sol_dropin_comm *comm = enter(birth);
        if (comm != NULL && all_are_here(birth, comm)) {
            submit_join(comm);
        }
    }
    if (many) {
        (void)sol_group_end(); /* each has logged its own failure */
    }
    while (list != NULL) { /* every rank has counted: joining, or failing to, needs them all */
        sol_dropin_birth *birth = list;
        list = birth->next;
        sol_dropin_rise(birth->seat);
        sol_free(birth);
    }
}

/* -------------------------------------------------------------------------------- keys */

static void key_of_ids(const nccl_id *ids, int nids, int nranks, unsigned char *key)
{
    static const char purpose[] = "solccl nccl init 1";
    int32_t numbers[2] = {nids, nranks};
    sol_sha256_t hash;
    sol_sha256_start(&hash);
    sol_sha256_add(&hash, purpose, sizeof purpose);
    sol_sha256_add(&hash, numbers, sizeof numbers);
    sol_sha256_add(&hash, ids, (size_t)nids * sizeof *ids);
    sol_sha256_end(&hash, key);
}

/* Of the `number`-th child of one kind; `details` is what its ranks have in common. */
static void key_of_child(const sol_dropin_comm *parent, const char *kind, unsigned number,
                         const int *details, size_t ndetails, unsigned char *key)
{
    sol_sha256_t hash;
    sol_sha256_start(&hash);
    sol_sha256_add(&hash, kind, strlen(kind) + 1);
    sol_sha256_add(&hash, parent->key, sizeof parent->key);
    sol_sha256_add(&hash, &number, sizeof number);
    sol_sha256_add(&hash, details, ndetails * sizeof *details);
    sol_sha256_end(&hash, key);
}

/* A communicator whose calls return before they are done is not for us: when it is made cannot be
 * seen from here. */
static bool blocking(const nccl_config *config)
{
    const char *text = getenv("NCCL_COMM_BLOCKING");
    bool said =
        config != NULL && config->size > offsetof(nccl_config, blocking) && config->blocking == 0;
    return !said && (text == NULL || strcmp(text, "0") != 0);
}

/* A birth with this rank's seat; NULL: it will be NCCL's alone. */
static sol_dropin_birth *expect(nccl_comm *handle, const unsigned char *key, int member,
                                int members)
{
    sol_dropin_birth *birth = sol_calloc(1, sizeof *birth);
    if (birth == NULL) {
        return NULL;
    }
    birth->handle = handle;
    memcpy(birth->key, key, sizeof birth->key);
    birth->seat = sol_dropin_sit(key, member, members);
    return birth;
}

/* The real library is at work in this thread: what it calls of its own functions may come by here,
 * and is none of ours. */
static _Thread_local bool within SOL_NEAR;

static bool enter_real(void)
{
    bool before = within;
    within = true;
    return before;
}

/* The real library has been called for `birth`, with this result; `before` is enter_real()'s. */
static int delivered(sol_dropin_birth *birth, bool before, int result)
{
    within = before;
    if (birth == NULL) {
        return result;
    }
    if (result != NCCL_SUCCESS) {
        sol_dropin_rise(birth->seat);
        sol_free(birth);
    } else if (sol_dropin_depth > 0) {
        sol_dropin_group_later(birth);
    } else {
        sol_dropin_births(birth);
    }
    return result;
}

/* ------------------------------------------------------------------------------ making */

static sol_dropin_birth *expect_init(nccl_comm *comm, int nranks, int rank, int nids,
                                     const nccl_id *ids, const nccl_config *config)
{
    unsigned char key[SOL_SHA256_BYTES];
    if (within || !sol_dropin_switches_get()->on || comm == NULL || ids == NULL || nids < 1 ||
        nranks < 2 || nids > nranks || rank < 0 || rank >= nranks || nranks > MEMBERS_MAX ||
        !blocking(config)) {
        return NULL;
    }
    key_of_ids(ids, nids, nranks, key);
    if (nranks > SOL_MAX_RANKS) { /* its children may be small enough */
        sol_dropin_birth *birth = sol_calloc(1, sizeof *birth);
        if (birth != NULL) {
            birth->handle = comm;
            memcpy(birth->key, key, sizeof birth->key);
        }
        return birth;
    }
    return expect(comm, key, rank, nranks);
}

SOL_EXPORT int ncclCommInitRank(nccl_comm *comm, int nranks, nccl_id id, int rank)
{
    const sol_nccl_real *real = sol_nccl();
    if (real->init_rank == NULL) {
        return NCCL_SYSTEM_ERROR;
    }
    sol_dropin_birth *birth = expect_init(comm, nranks, rank, 1, &id, NULL);
    bool before = enter_real();
    return delivered(birth, before, real->init_rank(comm, nranks, id, rank));
}
int pncclCommInitRank(nccl_comm *comm, int nranks, nccl_id id, int rank)
    SOL_EXPORT_AS(ncclCommInitRank);

SOL_EXPORT int ncclCommInitRankConfig(nccl_comm *comm, int nranks, nccl_id id, int rank,
                                      nccl_config *config)
{
    const sol_nccl_real *real = sol_nccl();
    if (real->init_rank_config == NULL) {
        return NCCL_SYSTEM_ERROR;
    }
    sol_dropin_birth *birth = expect_init(comm, nranks, rank, 1, &id, config);
    bool before = enter_real();
    return delivered(birth, before, real->init_rank_config(comm, nranks, id, rank, config));
}
int pncclCommInitRankConfig(nccl_comm *comm, int nranks, nccl_id id, int rank, nccl_config *config)
    SOL_EXPORT_AS(ncclCommInitRankConfig);

SOL_EXPORT int ncclCommInitRankScalable(nccl_comm *comm, int nranks, int rank, int nids,
                                        nccl_id *ids, nccl_config *config)
{
    const sol_nccl_real *real = sol_nccl();
    if (real->init_rank_scalable == NULL) {
        return NCCL_INVALID_USAGE;
    }
    sol_dropin_birth *birth = expect_init(comm, nranks, rank, nids, ids, config);
    bool before = enter_real();
    return delivered(birth, before,
                     real->init_rank_scalable(comm, nranks, rank, nids, ids, config));
}
int pncclCommInitRankScalable(nccl_comm *comm, int nranks, int rank, int nids, nccl_id *ids,
                              nccl_config *config) SOL_EXPORT_AS(ncclCommInitRankScalable);

/* All ranks are this thread's: nobody to look for, and any key will do that nobody else has. */
SOL_EXPORT int ncclCommInitAll(nccl_comm *comms, int ndevices, const int *devices)
{
    const sol_nccl_real *real = sol_nccl();
    sol_unique_id_t id;
    if (real->init_all == NULL) {
        return NCCL_SYSTEM_ERROR;
    }
    bool before = enter_real();
    int result = real->init_all(comms, ndevices, devices);
    within = before;
    if (result != NCCL_SUCCESS || within || !sol_dropin_switches_get()->on ||
        sol_dropin_depth > 0 || ndevices < 2 || ndevices > SOL_MAX_RANKS || !blocking(NULL) ||
        sol_get_unique_id(&id) != SOL_OK) {
        return result;
    }
    sol_dropin_birth *list = NULL;
    for (int i = 0; i < ndevices; i++) {
        sol_dropin_birth *birth = sol_calloc(1, sizeof *birth);
        if (birth == NULL) {
            break; /* the others wait for it in vain, bounded, and stand back */
        }
        sol_sha256_t hash;
        sol_sha256_start(&hash);
        sol_sha256_add(&hash, &id, sizeof id);
        sol_sha256_end(&hash, birth->key);
        birth->handle = &comms[i];
        birth->local = true;
        birth->next = list;
        list = birth;
    }
    if (list != NULL) {
        sol_dropin_births(list);
    }
    return result;
}
int pncclCommInitAll(nccl_comm *comms, int ndevices, const int *devices)
    SOL_EXPORT_AS(ncclCommInitAll);

SOL_EXPORT int ncclCommSplit(nccl_comm comm, int color, int key, nccl_comm *result,
                             nccl_config *config)
{
    const sol_nccl_real *real = sol_nccl();
    if (real->split == NULL) {
        return NCCL_INVALID_USAGE;
    }
    sol_dropin_comm *parent = within ? NULL : sol_dropin_find(comm);
    sol_dropin_birth *birth = NULL;
    if (parent != NULL && result != NULL) {
        unsigned char child[SOL_SHA256_BYTES];
        unsigned number = parent->splits++; /* counted on every rank, also of no color */
        if (color >= 0 && blocking(config)) {
            key_of_child(parent, "solccl nccl split 1", number, &color, 1, child);
            birth = expect(result, child, parent->rank, parent->nranks);
        }
    }
    bool before = enter_real();
    return delivered(birth, before, real->split(comm, color, key, result, config));
}
int pncclCommSplit(nccl_comm comm, int color, int key, nccl_comm *result, nccl_config *config)
    SOL_EXPORT_AS(ncclCommSplit);

SOL_EXPORT int ncclCommShrink(nccl_comm comm, int *excluded, int nexcluded, nccl_comm *result,
                              nccl_config *config, int flags)
{
    const sol_nccl_real *real = sol_nccl();
    if (real->shrink == NULL) {
        return NCCL_INVALID_USAGE;
    }
    sol_dropin_comm *parent = within ? NULL : sol_dropin_find(comm);
    sol_dropin_birth *birth = NULL;
    if (parent != NULL && result != NULL && excluded != NULL && nexcluded > 0) {
        unsigned char child[SOL_SHA256_BYTES];
        unsigned number = parent->shrinks++; /* those left out do not count; splits do not see it */
        if ((flags & NCCL_SHRINK_ABORT) != 0 && parent->sol != NULL) {
            sol_comm_abort(parent->sol);
        }
        if (blocking(config)) {
            key_of_child(parent, "solccl nccl shrink 1", number, excluded, (size_t)nexcluded,
                         child);
            birth = expect(result, child, parent->rank, parent->nranks);
        }
    }
    bool before = enter_real();
    return delivered(birth, before, real->shrink(comm, excluded, nexcluded, result, config, flags));
}
int pncclCommShrink(nccl_comm comm, int *excluded, int nexcluded, nccl_comm *result,
                    nccl_config *config, int flags) SOL_EXPORT_AS(ncclCommShrink);

/* ------------------------------------------------------------------------------ ending */

SOL_EXPORT int ncclCommDestroy(nccl_comm comm)
{
    const sol_nccl_real *real = sol_nccl();
    sol_dropin_remove(comm, false);
    return real->destroy != NULL ? real->destroy(comm) : NCCL_SYSTEM_ERROR;
}
int pncclCommDestroy(nccl_comm comm) SOL_EXPORT_AS(ncclCommDestroy);

SOL_EXPORT int ncclCommAbort(nccl_comm comm)
{
    const sol_nccl_real *real = sol_nccl();
    sol_dropin_remove(comm, true);
    return real->abort != NULL ? real->abort(comm) : NCCL_SYSTEM_ERROR;
}
int pncclCommAbort(nccl_comm comm) SOL_EXPORT_AS(ncclCommAbort);

/* Afterwards it can only be ended, or have children. */
SOL_EXPORT int ncclCommRevoke(nccl_comm comm, int flags)
{
    const sol_nccl_real *real = sol_nccl();
    if (real->revoke == NULL) {
        return NCCL_INVALID_USAGE;
    }
    sol_dropin_comm *known = sol_dropin_find(comm);
    if (known != NULL && known->sol != NULL) {
        sol_comm_abort(known->sol);
    }
    return real->revoke(comm, flags);
}
int pncclCommRevoke(nccl_comm comm, int flags) SOL_EXPORT_AS(ncclCommRevoke);

/* ------------------------------------------------------------------------------ errors */

/* NCCL's error comes first; then solccl's. */
SOL_EXPORT int ncclCommGetAsyncError(nccl_comm comm, int *result)
{
    const sol_nccl_real *real = sol_nccl();
    if (real->async_error == NULL) {
        return NCCL_SYSTEM_ERROR;
    }
    int called = real->async_error(comm, result);
    sol_dropin_comm *known = sol_dropin_find(comm);
    sol_status_t status = SOL_OK;
    if (called == NCCL_SUCCESS && *result == NCCL_SUCCESS && known != NULL && known->sol != NULL &&
        sol_comm_async_error(known->sol, &status) == SOL_OK && status != SOL_OK) {
        *result = sol_dropin_result(status);
    }
    return called;
}
int pncclCommGetAsyncError(nccl_comm comm, int *result) SOL_EXPORT_AS(ncclCommGetAsyncError);

SOL_EXPORT const char *ncclGetLastError(nccl_comm comm)
{
    const sol_nccl_real *real = sol_nccl();
    sol_dropin_comm *known = comm != NULL ? sol_dropin_find(comm) : NULL;
    if (known != NULL && known->sol != NULL && sol_last_error(known->sol)[0] != '\0') {
        return sol_last_error(known->sol);
    }
    if (sol_dropin_failed) {
        return sol_last_error(NULL);
    }
    return real->last_error != NULL ? real->last_error(comm) : sol_nccl_missing();
}
const char *pncclGetLastError(nccl_comm comm) SOL_EXPORT_AS(ncclGetLastError);

SOL_EXPORT const char *ncclGetErrorString(int result)
{
    const sol_nccl_real *real = sol_nccl();
    return real->error_string != NULL ? real->error_string(result) : "no NCCL was found";
}
const char *pncclGetErrorString(int result) SOL_EXPORT_AS(ncclGetErrorString);
