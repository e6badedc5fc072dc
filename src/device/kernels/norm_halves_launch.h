/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_halves_launch.h: the host's door to the kernels of sol_norm_start and _wait. A handle's
 * lanes lie in symmetric memory of their own:
 *
 *     bytes = sol_gpu_norm_halves_bytes(&config, nranks);   // 0: too much; all ranks' same
 *     base[] = as much on every rank, mapped here
 *     sol_gpu_norm_halves_describe(&halves, &comm, &config, base);
 *     sol_gpu_norm_halves_init(&halves, epoch, stream);     // done on all ranks before the first
 *     sol_gpu_norm_start(&halves, lane, &args, flags, sequence, stream);
 *     sol_gpu_norm_wait(&halves, lane, &args, NULL, flags, sequence, stream); ...
 *
 * What the caller guarantees: as launch.h, and on each lane all ranks launch start, wait, start,
 * wait, one after the other, with the arguments of a wait's start.
 */
#ifndef SOL_DEVICE_KERNELS_NORM_HALVES_LAUNCH_H
#define SOL_DEVICE_KERNELS_NORM_HALVES_LAUNCH_H

#include "device/kernels/norm_launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A handle on this rank. */
struct sol_gpu_norm_halves {
    sol_norm_config_t config;                     /* no field is 0 for a default */
    struct sol_gpu_comm lane[SOL_NORM_MAX_DEPTH]; /* only what is of collectives in one hop */
};

/* Of a config whose fields are none 0 for a default. */
uint64_t sol_gpu_norm_halves_bytes(const sol_norm_config_t *config, int nranks);
/* `comm`: the communicator's own; its error record, limits and abort word are used. */
void sol_gpu_norm_halves_describe(struct sol_gpu_norm_halves *halves,
                                  const struct sol_gpu_comm *comm, const sol_norm_config_t *config,
                                  char *const *base);
/* As sol_gpu_init, of all lanes. */
cudaError_t sol_gpu_norm_halves_init(const struct sol_gpu_norm_halves *halves, uint64_t epoch,
                                     cudaStream_t stream);

/* One kernel each. args.tokens is at least 1, and args.form the handle's. */
cudaError_t sol_gpu_norm_start(const struct sol_gpu_norm_halves *halves, int lane,
                               const sol_norm_args_t *args, unsigned flags, uint64_t sequence,
                               cudaStream_t stream);
/* `wished` as in sol_gpu_norm_launch; in two hops its ctas alone count. */
cudaError_t sol_gpu_norm_wait(const struct sol_gpu_norm_halves *halves, int lane,
                              const sol_norm_args_t *args, const struct sol_gpu_norm_shape *wished,
                              unsigned flags, uint64_t sequence, cudaStream_t stream);

/* As sol_gpu_preload, of these kernels. */
cudaError_t sol_gpu_norm_halves_preload(void);

#ifdef __cplusplus
}
#endif
#endif
