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

/*
 * A call that is put together from several steps (CPU ranks) is one call: the communicator is held
 * from its first step to its last, so that no other thread comes in between and leaves it refused
 * half-way, when other ranks have gone on. begin: STATE where another thread is inside. end: out
 * again, after a call that has come to `status`, which it returns. A handle's own state is read and
 * written between the two, too.
 */
sol_status_t sol_fused_begin(sol_comm_t comm, const char *who);
sol_status_t sol_fused_end(sol_comm_t comm, sol_status_t status);

/* A step: an all_reduce (a sum), all_gather, all_to_all or all_to_all_v with a number of its own,
 * checked as the public function checks it. Between begin and end, outside of groups. (api.c) */
sol_status_t sol_step(sol_comm_t comm, sol_call_t *call);

/* Gives `call` its number and runs it, with all that submit in api.c does; `perform`: between begin
 * and end. */
typedef sol_status_t (*sol_fused_run)(sol_comm_t comm, const sol_call_t *call, const void *args);
sol_status_t sol_fused_submit(sol_comm_t comm, const char *who, sol_call_t *call, sol_fused_run run,
                              const void *args);
sol_status_t sol_fused_perform(sol_comm_t comm, sol_call_t *call, sol_fused_run run,
                               const void *args);

/* Memory for what a call is put together from on CPU ranks. Where it is refused the communicator
 * fails, for all ranks: the others are not to wait for this one. */
void *sol_fused_scratch(sol_comm_t comm, const char *who, size_t bytes);

#endif
