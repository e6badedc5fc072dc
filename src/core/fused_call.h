/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fused_call.h: what the calls beside the collectives (solccl/fused.h, moe.h,
 * quantized.h, transfer.h) have in common: who may call, and the way to a backend
 * that has a kernel for one.
 */
#ifndef SOL_CORE_FUSED_CALL_H
#define SOL_CORE_FUSED_CALL_H

#include "core/comm.h"

/* Is `comm` usable, no group open, and `stream` legal on its ranks? Otherwise the error. */
sol_status_t sol_fused_usable(sol_comm_t comm, const char *who, const void *stream);

/* FLOAT32, FLOAT16 or BFLOAT16? */
bool sol_fused_float(sol_dtype_t dtype);

/* Gives `call` its number and runs it, with all that submit in api.c does. */
typedef sol_status_t (*sol_fused_run)(sol_comm_t comm, const sol_call_t *call, const void *args);
sol_status_t sol_fused_submit(sol_comm_t comm, const char *who, sol_call_t *call, sol_fused_run run,
                              const void *args);

/* Memory for what a call is put together from on CPU ranks. Where it is refused the communicator
 * fails, for all ranks: the others are not to wait for this one. */
void *sol_fused_scratch(sol_comm_t comm, const char *who, size_t bytes);

#endif
