/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cg_persistent.h: the solve as one kernel; see cg_persistent.cu. slab.p lies at the beginning of
 * the device communicator's symmetric memory, on every rank.
 */
#ifndef SOL_APPS_CG_PERSISTENT_H
#define SOL_APPS_CG_PERSISTENT_H

#include "cg_kernels.h"

#include <solccl/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/** This rank's, on the device; all zero at first. */
typedef struct cg_persistent {
    unsigned *meeting;               /**< where CTAs meet */
    uint64_t *arrivals;              /**< how many arrivals of the halo counter have been used up */
    double *partial_pq, *partial_rr; /**< CG_BLOCKS each */
} cg_persistent_t;

/** How many CTAs: no more than `most`, and than there is work for. */
int cg_persistent_ctas(const cg_slab_t *slab, int most);
/** After cg_start and the all_reduce of rr[0]: `iterations` iterations. */
cudaError_t cg_persistent(const sol_dev_comm_t *dev, const cg_slab_t *slab,
                          const cg_persistent_t *state, int ctas, int iterations,
                          cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
