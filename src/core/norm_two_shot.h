/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_two_shot.h: sol_all_reduce_norm in two hops on CPU ranks, put together from
 * all_to_all_v and plain C. Arguments are checked; on failure the communicator's error
 * is set.
 */
#ifndef SOL_CORE_NORM_TWO_SHOT_H
#define SOL_CORE_NORM_TWO_SHOT_H

#include "core/comm.h"

sol_status_t sol_norm_two_shot(sol_comm_t comm, const sol_norm_args_t *args);

#endif
