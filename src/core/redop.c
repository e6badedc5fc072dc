/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redop.c: operations that a communicator's user makes: sums premultiplied by
 * a scalar. A handle is SOL_FIRST_PREMUL + generation * SOL_MAX_PREMUL + slot,
 * so a destroyed one is not mistaken for the next in its slot.
 */
#include "core/setup.h"
#include "core/use.h"

#include <string.h>

#define GENERATIONS (((unsigned)SOL_REDOP_MAX - SOL_FIRST_PREMUL) / SOL_MAX_PREMUL)

static sol_redop_t handle_of(const struct sol_comm *comm, int slot)
{
    return (sol_redop_t)(SOL_FIRST_PREMUL + (int)(comm->premul[slot].generation * SOL_MAX_PREMUL) +
                         slot);
}

/* The slot of a live handle, or -1. */
static int slot_of(const struct sol_comm *comm, sol_redop_t op)
{
    if ((int)op < SOL_FIRST_PREMUL) {
        return -1;
    }
    int slot = ((int)op - SOL_FIRST_PREMUL) % SOL_MAX_PREMUL;
    return atomic_load_explicit(&comm->premul[slot].used, memory_order_acquire) &&
                   handle_of(comm, slot) == op
               ? slot
               : -1;
}

bool sol_redop_resolve(const struct sol_comm *comm, sol_redop_t op, sol_dtype_t dtype,
                       sol_reduction_t *reduction)
{
    if ((unsigned)op < SOL_REDOP_COUNT) {
        *reduction = (sol_reduction_t){.op = op};
        return true;
    }
    int slot = slot_of(comm, op);
    if (slot < 0 || comm->premul[slot].dtype != dtype) {
        return false;
    }
    *reduction = comm->premul[slot].reduction;
    return true;
}

static sol_status_t check_premul(const sol_redop_t *op, const void *scalar, sol_dtype_t dtype,
                                 sol_residence_t residence, sol_comm_t comm)
{
    static const char who[] = "sol_redop_create_premul_sum";
    sol_status_t status = sol_comm_usable(comm, who);
    if (status != SOL_OK) {
        return status;
    }
    if (op == NULL || scalar == NULL) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "%s: %s is NULL", who,
                              op == NULL ? "op" : "scalar");
    }
    if ((unsigned)dtype >= SOL_DTYPE_COUNT) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT, "%s: dtype is %d: expected 0 to %d", who,
                              (int)dtype, SOL_DTYPE_COUNT - 1);
    }
    if (residence != SOL_HOST_IMMEDIATE && residence != SOL_DEVICE) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "%s: residence is %d: expected SOL_HOST_IMMEDIATE or SOL_DEVICE", who,
                              (int)residence);
    }
    if (residence == SOL_DEVICE && comm->backend->kind != SOL_BACKEND_CUDA) {
        return sol_comm_error(comm, SOL_ERR_UNSUPPORTED,
                              "%s: SOL_DEVICE needs GPU ranks; these are CPU ranks", who);
    }
    return SOL_OK;
}

/* By the thread that is inside: no other one takes the same slot. */
static sol_status_t make(sol_redop_t *op, const void *scalar, sol_dtype_t dtype,
                         sol_residence_t residence, sol_comm_t comm)
{
    int slot = 0;
    /* acquire: pairs with the release in sol_redop_destroy */
    while (slot < SOL_MAX_PREMUL &&
           atomic_load_explicit(&comm->premul[slot].used, memory_order_acquire)) {
        slot++;
    }
    if (slot == SOL_MAX_PREMUL) {
        return sol_comm_error(comm, SOL_ERR_MEMORY,
                              "sol_redop_create_premul_sum: %d operations exist already: destroy "
                              "some",
                              SOL_MAX_PREMUL);
    }
    struct sol_premul *premul = &comm->premul[slot];
    premul->dtype = dtype;
    premul->reduction = (sol_reduction_t){
        .op = SOL_SUM, .premul = true, .scalar_on_device = residence == SOL_DEVICE};
    if (residence == SOL_DEVICE) {
        premul->reduction.scalar.device = scalar;
    } else {
        memcpy(premul->reduction.scalar.immediate, scalar, sol_dtype_size(dtype));
    }
    *op = handle_of(comm, slot);
    /* release: pairs with the acquire in slot_of, of any thread that was given the handle */
    atomic_store_explicit(&premul->used, true, memory_order_release);
    return SOL_OK;
}

sol_status_t sol_redop_create_premul_sum(sol_redop_t *op, const void *scalar, sol_dtype_t dtype,
                                         sol_residence_t residence, sol_comm_t comm)
{
    bool step;
    sol_status_t status = check_premul(op, scalar, dtype, residence, comm);
    status = status == SOL_OK ? sol_use_enter(comm, "sol_redop_create_premul_sum", &step) : status;
    if (status == SOL_OK) {
        status = make(op, scalar, dtype, residence, comm);
        sol_use_exit(step);
    }
    return status;
}

sol_status_t sol_redop_destroy(sol_redop_t op, sol_comm_t comm)
{
    sol_status_t status = sol_comm_valid(comm, "sol_redop_destroy");
    if (status != SOL_OK) {
        return status;
    }
    int slot = slot_of(comm, op);
    if (slot < 0) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "sol_redop_destroy: op is %d: expected a value that "
                              "sol_redop_create_premul_sum gave on this communicator and that was "
                              "not destroyed",
                              (int)op);
    }
    struct sol_premul *premul = &comm->premul[slot];
    premul->generation = (premul->generation + 1) % GENERATIONS;
    /* release: pairs with the acquire in make */
    atomic_store_explicit(&premul->used, false, memory_order_release);
    return SOL_OK;
}
