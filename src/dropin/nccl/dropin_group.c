/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dropin_group.c: ncclGroupStart to ncclGroupEnd, of a thread.
 *
 * The real library's group is always opened too, since calls that are passed may
 * come. At the outermost end solccl's calls are enqueued first and then the real
 * library's, on every rank; so on a stream that has both, ranks agree on the
 * order whatever the order of the calls in the group was. Communicators that are
 * made in a group exist when the real group has ended, and get theirs of solccl
 * then, all at once, since ranks of one thread wait for each other.
 */
#include "dropin/nccl/dropin.h"

_Thread_local int sol_dropin_depth;
static _Thread_local bool joined SOL_NEAR;
static _Thread_local sol_dropin_birth *births SOL_NEAR;

int sol_dropin_group_joins(void)
{
    if (joined) {
        return NCCL_SUCCESS;
    }
    int result = sol_dropin_result(sol_group_start());
    joined = result == NCCL_SUCCESS;
    return result;
}

void sol_dropin_group_later(sol_dropin_birth *birth)
{
    birth->next = births;
    births = birth;
}

int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclGroupSimulateEnd(void *info);

SOL_EXPORT int ncclGroupStart(void)
{
    const sol_nccl_real *real = sol_nccl();
    if (real->group_start == NULL) {
        return NCCL_SYSTEM_ERROR;
    }
    int result = real->group_start();
    if (result == NCCL_SUCCESS) {
        sol_dropin_depth++;
    }
    return result;
}
int pncclGroupStart(void) SOL_EXPORT_AS(ncclGroupStart);

/* The outermost group ends: solccl's part of it. `drop`: nothing of it is to be done. */
static int end_joined(bool drop)
{
    if (!joined) {
        return NCCL_SUCCESS;
    }
    joined = false;
    if (drop) {
        (void)sol_group_note(sol_thread_error(SOL_ERR_STATE, "ncclGroupSimulateEnd: not done"));
        (void)sol_group_end();
        return NCCL_SUCCESS;
    }
    return sol_dropin_result(sol_group_end());
}

static void end_births(void)
{
    sol_dropin_birth *list = births;
    births = NULL;
    if (list != NULL) {
        sol_dropin_births(list);
    }
}

SOL_EXPORT int ncclGroupEnd(void)
{
    const sol_nccl_real *real = sol_nccl();
    if (real->group_end == NULL) {
        return NCCL_SYSTEM_ERROR;
    }
    if (sol_dropin_depth != 1) { /* an inner one, or one too many: the real library says so */
        sol_dropin_depth -= sol_dropin_depth > 0;
        return real->group_end();
    }
    sol_dropin_depth = 0;
    int ours = end_joined(false);
    bool failed = sol_dropin_failed;
    int theirs = real->group_end();
    sol_dropin_order_group_end();
    end_births();
    sol_dropin_failed = failed;
    return ours != NCCL_SUCCESS ? ours : theirs;
}
int pncclGroupEnd(void) SOL_EXPORT_AS(ncclGroupEnd);

/* What the group would cost, of what would be passed; nothing is done. */
SOL_EXPORT int ncclGroupSimulateEnd(void *info)
{
    const sol_nccl_real *real = sol_nccl();
    if (real->group_simulate_end == NULL) {
        return NCCL_INVALID_USAGE;
    }
    if (sol_dropin_depth == 1) {
        (void)end_joined(true);
    }
    sol_dropin_depth -= sol_dropin_depth > 0;
    int result = real->group_simulate_end(info);
    if (sol_dropin_depth == 0) {
        sol_dropin_order_group_end();
        end_births();
    }
    return result;
}
int pncclGroupSimulateEnd(void *info) SOL_EXPORT_AS(ncclGroupSimulateEnd);
