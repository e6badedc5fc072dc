/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fused_call.c: see fused_call.h.
 */
#include "core/fused_call.h"

#include "core/flight.h"
#include "core/setup.h"
#include "core/use.h"

bool sol_fused_float(sol_dtype_t dtype)
{
    return dtype == SOL_FLOAT32 || dtype == SOL_FLOAT16 || dtype == SOL_BFLOAT16;
}

sol_status_t sol_fused_usable(sol_comm_t comm, const char *who, const void *stream)
{
    sol_status_t status = sol_comm_usable(comm, who);
    if (status != SOL_OK) {
        return status;
    }
    if (sol_group_depth > 0) {
        return sol_comm_error(comm, SOL_ERR_STATE, "%s: not legal inside a group", who);
    }
    if (stream != NULL && comm->blocking) {
        return sol_comm_error(comm, SOL_ERR_ARGUMENT,
                              "%s: stream is %p: expected NULL on CPU ranks", who, stream);
    }
    return SOL_OK;
}

sol_status_t sol_fused_begin(sol_comm_t comm, const char *who)
{
    return sol_use_begin(comm) ? SOL_OK : sol_use_refused(comm, who);
}

sol_status_t sol_fused_end(sol_comm_t comm, sol_status_t status)
{
    sol_use_end();
    if (status != SOL_OK) {
        sol_dump_failed(comm);
    }
    return status;
}

sol_status_t sol_fused_perform(sol_comm_t comm, sol_call_t *call, sol_fused_run run,
                               const void *args)
{
    call->sequence = atomic_load_explicit(&comm->sequence, memory_order_relaxed) + 1;
    sol_flight_begin(comm->flight, call, comm->blocking);
    /* release: the record is there before the number; pairs with the acquire in dump.c */
    atomic_store_explicit(&comm->sequence, call->sequence, memory_order_release);
    sol_status_t status = run(comm, call, args);
    sol_flight_end(comm->flight, call->sequence, status);
    return status;
}

sol_status_t sol_fused_submit(sol_comm_t comm, const char *who, sol_call_t *call, sol_fused_run run,
                              const void *args)
{
    sol_status_t status = sol_fused_begin(comm, who);
    return status != SOL_OK ? status
                            : sol_fused_end(comm, sol_fused_perform(comm, call, run, args));
}

void *sol_fused_scratch(sol_comm_t comm, const char *who, size_t bytes)
{
    void *memory = sol_calloc(1, bytes);
    if (memory == NULL) {
        sol_comm_fail_all(comm, SOL_ERR_MEMORY, "%s: no memory for %zu bytes", who, bytes);
        comm->backend->abort(comm);
    }
    return memory;
}
