/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_probe.h: two small kernels that show whether writes to a peer's staging
 * arrive. A path that loses writes (an IOMMU or PCIe switch set up wrongly) is
 * reported as working by every query there is; only a write tells.
 */
#ifndef SOL_CUDA_PROBE_H
#define SOL_CUDA_PROBE_H

#include "proto/gpu_layout.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SOL_CUDA_PROBE_BYTES 4096 /* per pair, at source rank * SOL_CUDA_PROBE_BYTES */

struct sol_cuda_probe {
    char *staging[SOL_GPU_MAX_RANKS];
    uint32_t *arrived; /* one word a source rank, in mapped host memory: 1 if all is there */
    uint64_t nonce;    /* equal on all ranks, new for each communicator */
    int rank, nranks;
    unsigned skip; /* bit p: do not write to rank p (fault tests) */
};

/* Write a pattern into every rank's staging. */
cudaError_t sol_cuda_probe_write(const struct sol_cuda_probe *probe, cudaStream_t stream);
/* Compare what is in ours. After all ranks' writes have completed. */
cudaError_t sol_cuda_probe_check(const struct sol_cuda_probe *probe, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
