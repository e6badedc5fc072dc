/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refused.c: memory, descriptors and shared memory that the system refuses. Every allocation of
 * the library is made to fail once (SOLCCL_DEBUG_FAIL_ALLOC); the address sanitizer sees leaks.
 */
#include "faults/faults.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>

/* The life of a communicator, as far as it gets. Returns the first error. */
static sol_status_t whole_life(team_t *team, int rank, const sol_unique_id_t *id, int timeout_ms)
{
    sol_comm_t comm = NULL, part = NULL, other = NULL;
    sol_unique_id_t more;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    void *memory = NULL;
    static float x[30000], y[30000];
    float scalar = 2;
    sol_redop_t op;
    sol_registration_t registration = NULL;
    config.backend = SOL_BACKEND_CPU;
    config.timeout_ms = timeout_ms;
    sol_status_t status = sol_comm_create(&comm, id, team->nranks, rank, &config);
    if (status != SOL_OK)
        return status;
    if ((status = sol_all_reduce(x, y, 1, SOL_FLOAT32, SOL_SUM, comm, NULL)) == SOL_OK)
        status = sol_all_reduce(x, y, 30000, SOL_FLOAT32, SOL_SUM, comm, NULL);
    if (status == SOL_OK)
        status = sol_comm_split(comm, 0, rank, &part, NULL);
    if (status == SOL_OK)
        status = sol_comm_dump(comm, -1) == SOL_ERR_ARGUMENT ? SOL_OK : SOL_ERR_INTERNAL;
    if (status == SOL_OK && (status = sol_comm_shrink(comm, 0, &other, NULL)) == SOL_OK)
        status = sol_comm_destroy(other);
    if (status == SOL_OK && (status = sol_get_unique_id(&more)) == SOL_OK &&
        (status = sol_comm_grow(comm, &more, team->nranks, &other, NULL)) == SOL_OK)
        status = sol_comm_destroy(other);
    if (status == SOL_OK)
        status = sol_mem_alloc(comm, 1 << 16, &memory);
    if (status == SOL_OK)
        status = sol_mem_register(comm, x, sizeof(x), &registration);
    if (status == SOL_OK)
        status = sol_redop_create_premul_sum(&op, &scalar, SOL_FLOAT32, SOL_HOST_IMMEDIATE, comm);
    if (status == SOL_OK)
        status = sol_group_start();
    if (status == SOL_OK) {
        sol_all_reduce(x, y, 10, SOL_FLOAT32, op, comm, NULL);
        sol_broadcast(x, y + 50, 100, SOL_FLOAT32, 0, part, NULL);
        status = sol_group_end();
    }
    sol_mem_deregister(comm, registration);
    sol_status_t left = sol_comm_destroy(part);
    if (status == SOL_OK)
        status = left;
    left = sol_comm_destroy(comm);
    return status == SOL_OK ? left : status;
}

#define ALONE 0x100
#define ONE_RANK 0x200 /* rank 1's alone */

struct refusal {
    int k;         /* the first allocation that fails */
    bool alone;    /* and no other; otherwise all later ones do too */
    bool one_rank; /* and only rank 1's: the others have to hear why */
    int timeout_ms;
    _Atomic int *succeeded; /* ranks that did not notice; in shared memory */
    _Atomic int *slow;      /* one ran into its timeout, before anything was refused */
};

/* What a rank hears of memory that another one was refused: the reason, where that one could still
 * tell it, or that it has left; where it could not even come, that it did not. Never an abort. */
static void check_reason(team_t *team, int rank, sol_status_t status)
{
    const char *text = sol_last_error(NULL);
    bool told = status == SOL_ERR_MEMORY && strstr(text, "rank 1");
    bool left = status == SOL_ERR_PEER && strstr(text, "rank 1") &&
                (strstr(text, "left") || strstr(text, "gone") || strstr(text, "destroyed"));
    bool absent = status == SOL_ERR_TIMEOUT && strstr(text, "rank 1 did not come");
    if (!told && !left && !absent)
        team_fail(team, rank, "another rank was refused memory: status %d: %s", (int)status, text);
}

static void one_refusal(team_t *team, int rank, void *arg)
{
    const struct refusal *refusal = arg;
    char text[16];
    snprintf(text, sizeof(text), "%s%d", refusal->alone ? "-" : "", refusal->k);
    bool victim = !refusal->one_rank || rank == 1;
    if (victim)
        setenv("SOLCCL_DEBUG_FAIL_ALLOC", text, 1);
    team_doing(team, rank, "with allocation %s refused", text);
    sol_status_t status = whole_life(team, rank, &team->ids[0], refusal->timeout_ms);
    if (status == SOL_OK)
        atomic_fetch_add(refusal->succeeded, 1);
    else if (victim && status == SOL_ERR_TIMEOUT)
        atomic_store(refusal->slow, 1);
    else if (!victim)
        check_reason(team, rank, status);
    else if (status != SOL_ERR_MEMORY && status != SOL_ERR_PEER)
        team_fail(team, rank, "allocation %s refused: status %d, expected SOL_ERR_MEMORY: %s", text,
                  (int)status, sol_last_error(NULL));
}

/* From inside a team of one: each k in a team of its own, until there is no k-th allocation. */
static void sweep(team_t *team, int rank, void *arg)
{
    const int nranks = *(int *)arg & 0xff, last = 1000;
    struct refusal refusal = {0,
                              (*(int *)arg & ALONE) != 0,
                              (*(int *)arg & ONE_RANK) != 0,
                              (*(int *)arg & ONE_RANK) != 0 ? 1000 : 5000,
                              (_Atomic int *)(void *)team->scratch,
                              (_Atomic int *)(void *)(team->scratch + 64)};
    int failures = 0;
    while (failures == 0 && refusal.k < last) {
        team_options_t options = {.name = team->name, .nranks = nranks, .deadline_s = 60};
        refusal.k++;
        team_doing(team, rank, "allocation %d", refusal.k);
        atomic_store(refusal.succeeded, 0);
        atomic_store(refusal.slow, 0);
        failures = team_run(&options, one_refusal, &refusal, NULL);
        if (atomic_load(refusal.slow) && refusal.timeout_ms < FAULT_LONG_MS) {
            refusal.timeout_ms *= 2; /* the machine is: once more */
            refusal.k--;
            continue;
        }
        if (atomic_load(refusal.slow))
            team_fail(team, rank, "allocation %d: a timeout where nothing was refused", refusal.k);
        if (atomic_load(refusal.succeeded) == nranks)
            break;
    }
    if (failures > 0)
        team_fail(team, rank, "refused allocation %d was not survived", refusal.k);
    else if (refusal.k < 3 || refusal.k == last)
        team_fail(team, rank, "the sweep ended at %d: refusals do not reach it", refusal.k);
}

/* ------------------------------------------------------------- a small /dev/shm */

static bool small_dev_shm(void)
{
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return false;
    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    return mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=16m") == 0;
}

/* Eight ranks with 16 MB of /dev/shm (a container's 64 MB, and less): everything works. */
static void small_shm(team_t *team, int rank, void *arg)
{
    sol_comm_t comm;
    size_t count = 300000;
    void *memory = NULL;
    (void)arg;
    if (!small_dev_shm()) {
        team_skip(team, rank, "no permission to mount a small /dev/shm");
        return;
    }
    if (!fault_comm(team, rank, 20000, &comm))
        return;
    fault_still_works(team, rank, comm);
    int32_t *x = malloc(count * sizeof(*x));
    for (size_t i = 0; x && i < count; i++)
        x[i] = (int32_t)i + rank;
    if (x && TEAM_OK(team, rank, sol_all_reduce(x, x, count, SOL_INT32, SOL_SUM, comm, NULL), comm))
        TEAM_CHECK(team, rank, x[count - 1] == 8 * (int32_t)(count - 1) + 28);
    free(x);
    TEAM_OK(team, rank, sol_mem_alloc(comm, (size_t)8 << 20, &memory), comm);
    if (memory)
        memset(memory, 1, (size_t)8 << 20);
    fault_still_works(team, rank, comm);
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

/* ------------------------------------------------------------- limits */

/* One rank has no descriptors left: it gets SYSTEM, the others hear of it, all in time. */
static void no_descriptors(team_t *team, int rank, void *arg)
{
    sol_comm_t comm = NULL;
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    config.backend = SOL_BACKEND_CPU;
    config.timeout_ms = 3000;
    struct rlimit limit = {(rlim_t) * (int *)arg, 1024};
    if (rank == 1 && setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        team_skip(team, rank, "setrlimit is refused");
        return;
    }
    double begin = team_now();
    sol_status_t status = sol_comm_create(&comm, &team->ids[0], team->nranks, rank, &config);
    TEAM_CHECK(team, rank, team_now() - begin < 3 + FAULT_SOON);
    if (status == SOL_OK)
        TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
    else
        TEAM_CHECK(team, rank, sol_last_error(NULL)[0] != '\0');
    if (rank == 1 && status != SOL_OK)
        fault_expect(team, rank, "creation without descriptors", status, SOL_ERR_SYSTEM, NULL, "");
}

/* More symmetric memory than the address space allows: MEMORY, and the communicator lives on. */
static void no_address_space(team_t *team, int rank, void *arg)
{
    sol_comm_t comm;
    void *memory = NULL;
    struct rlimit limit;
    (void)arg;
    if (fault_sanitized()) {
        team_skip(team, rank, "a sanitizer needs the address space");
        return;
    }
    if (!fault_comm(team, rank, 10000, &comm))
        return;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = (rlim_t)200 << 20;
    if (rank == 1)
        setrlimit(RLIMIT_AS, &limit);
    for (int i = 0; i < 3; i++) {
        sol_status_t status = sol_mem_alloc(comm, (size_t)512 << 20, &memory);
        TEAM_CHECK(team, rank, status == SOL_ERR_MEMORY || (rank != 1 && status == SOL_ERR_PEER));
        TEAM_CHECK(team, rank, memory == NULL && sol_last_error(comm)[0] != '\0');
        fault_still_works(team, rank, comm);
    }
    TEAM_OK(team, rank, sol_comm_destroy(comm), NULL);
}

const fault_case_t fault_refused[] = {
    {.name = "every allocation refused, 1 rank",
     .run = sweep,
     .nranks = 1,
     .argument = 1,
     .deadline_s = 120},
    {.name = "every allocation refused, 2 ranks",
     .run = sweep,
     .nranks = 1,
     .argument = 2,
     .deadline_s = 240},
    {.name = "each allocation alone refused, 2 ranks",
     .run = sweep,
     .nranks = 1,
     .argument = 2 | ALONE,
     .deadline_s = 240},
    {.name = "every allocation of one rank refused",
     .run = sweep,
     .nranks = 1,
     .argument = 2 | ONE_RANK,
     .deadline_s = 240},
    {.name = "a small /dev/shm", .run = small_shm, .nranks = 8},
    {.name = "no descriptors", .run = no_descriptors, .nranks = 3, .argument = 5},
    {.name = "few descriptors", .run = no_descriptors, .nranks = 3, .argument = 9},
    {.name = "no address space", .run = no_address_space, .nranks = 2},
    {.name = NULL},
};
