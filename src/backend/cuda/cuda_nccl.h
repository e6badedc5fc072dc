/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_nccl.h: NCCL, where our kernels do not reach: GPUs without a path
 * between them, or sizes from which somebody measured NCCL to be faster
 * (SOLCCL_NCCL_ABOVE). Found at run time: an NCCL that the process has loaded
 * already, else SOLCCL_NCCL_LIB, else libnccl.so.2. solccl is built without it.
 *
 * What goes this way has NCCL's properties, not ours: the order of its sums
 * (so its bits) is its own, its waits are bounded by sol_comm_abort only.
 */
#ifndef SOL_CUDA_NCCL_H
#define SOL_CUDA_NCCL_H

#include "core/backend.h"
#include "core/boot.h"

#include <cuda_runtime_api.h>

struct sol_cuda_nccl;

/* Is there one? "2.28.9" into `version`, or why not. */
bool sol_cuda_nccl_found(char *version, size_t bytes);

/* Make an NCCL communicator of the same ranks. Collective over the boot; the device is current. All
 * ranks succeed or all fail (UNSUPPORTED where some rank finds no NCCL). Sets the thread error. */
sol_status_t sol_cuda_nccl_open(struct sol_cuda_nccl **nccl, sol_boot_t *boot, int rank,
                                int nranks);
/* `healthy`: false aborts it. NULL is fine. */
void sol_cuda_nccl_close(struct sol_cuda_nccl *nccl, bool healthy);

/* Enqueue; sends and receives among the calls are one NCCL group. SOL_ERR_DEVICE and the thread
 * error where NCCL refuses. */
sol_status_t sol_cuda_nccl_run(struct sol_cuda_nccl *nccl, const sol_call_t *calls, size_t ncalls);

/* Any thread. False: NCCL reports an error, its name in `text`. */
bool sol_cuda_nccl_healthy(struct sol_cuda_nccl *nccl, char *text, size_t bytes);
/* Any thread. */
void sol_cuda_nccl_abort(struct sol_cuda_nccl *nccl);

/* What an ncclComm_t of the caller's says, and an id of rank 0's spread over it. Blocks for the
 * other ranks of that communicator. Sets the thread error. */
sol_status_t sol_cuda_nccl_adopt(void *comm, sol_unique_id_t *id, int *nranks, int *rank);

#endif
