/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_multicast.h: one address for all ranks' symmetric memory, through the
 * switch's multicast (NVLS): a store to it lands in every rank's memory, a
 * reducing load adds up what is in all of them.
 *
 * Off unless SOLCCL_CUDA_MULTICAST=1 on every rank. A multicast object is a
 * resource of the whole NVLink domain: a program that dies with one, or a
 * domain that is not set up for it, can take GPUs that others use out of
 * service. So without that switch nothing here is called, no function of the
 * driver's multicast interface is so much as looked up, and no device is asked
 * whether it has it; a unit test holds this file to that.
 *
 * Where it is wanted and cannot be had, everything works without, and one line
 * of the log says why.
 */
#ifndef SOL_CUDA_MULTICAST_H
#define SOL_CUDA_MULTICAST_H

#include "backend/cuda/cuda_symmetric.h"

/* The driver's multicast functions. */
struct sol_cuda_multicast_calls {
    CUresult (*granularity)(size_t *bytes, const CUmulticastObjectProp *prop,
                            CUmulticastGranularity_flags flags);
    CUresult (*create)(CUmemGenericAllocationHandle *object, const CUmulticastObjectProp *prop);
    CUresult (*add_device)(CUmemGenericAllocationHandle object, CUdevice device);
    CUresult (*bind)(CUmemGenericAllocationHandle object, size_t at,
                     CUmemGenericAllocationHandle memory, size_t memory_at, size_t bytes,
                     unsigned long long flags);
    CUresult (*unbind)(CUmemGenericAllocationHandle object, CUdevice device, size_t at,
                       size_t bytes);
};

/* Looks them up, anew each time: false and why, where the driver has none. cuda_driver.c */
bool sol_cuda_multicast_calls(struct sol_cuda_multicast_calls *calls, char *why, size_t why_bytes);

struct sol_cuda_multicast {
    char *base; /* stands for every rank's memory; NULL: no multicast */
    size_t bytes;
    char *kept; /* the address that `base` had, and has to have again; of kept_bytes */
    size_t kept_bytes;
    CUmemGenericAllocationHandle object;
    bool bound;
    CUdevice device;
    struct sol_cuda_multicast_calls calls;
};

/* Is it asked for here? *wanted is 0 or 1. Errors: ARGUMENT (the variable cannot be read). */
sol_status_t sol_cuda_multicast_wanted(int *wanted, char *why, size_t why_bytes);

/*
 * Collective over config->boot, after sol_cuda_symmetric_open of `memory` with the same config.
 * `multicast`: zeroed, or suspended.
 * `wanted`: of this rank. `look_up` finds the functions (sol_cuda_multicast_calls, or a test's).
 * All ranks come to the same end: multicast->base set on all, or on none and `why` says why (empty
 * where no rank wanted it). One that was suspended comes back at its address. Fails only if the
 * boot does, or where the ranks' wishes differ.
 */
sol_status_t sol_cuda_multicast_open(struct sol_cuda_multicast *multicast,
                                     const struct sol_cuda_symmetric_config *config,
                                     const struct sol_cuda_symmetric *memory, int wanted,
                                     bool (*look_up)(struct sol_cuda_multicast_calls *, char *,
                                                     size_t),
                                     char *why, size_t why_bytes);
/* Sleep: the object goes, the address stays, for the next open. Local; before the memory is
 * suspended. Fine where there is none. */
void sol_cuda_multicast_suspend(const struct sol_cuda_driver *cu,
                                struct sol_cuda_multicast *multicast);
/* Local; before the memory is closed. Fine on zeroed or half-open ones. */
void sol_cuda_multicast_close(const struct sol_cuda_driver *cu,
                              struct sol_cuda_multicast *multicast);

#endif
