/* SPDX-License-Identifier: Apache-2.0 */
/*
 * few_norm.cu: the kernels of solccl/fused.h and their launcher for one type, with
 * what else their test launches: what a mutant of them is compiled from.
 */
#define SOL_NORM_ONE_TYPE 1 /* norm.cu: bf16 stands for all */
#include "few_kernels.cu"

#include "device/kernels/norm.cu"
#define kernel_for kernel_in_two /* (files of their own otherwise) */
#define row_of row_in_two
#define enqueue enqueue_in_two
#include "device/kernels/norm_two.cu"

/* Those of its halves have a file of their own (few_halves.cu); here a handle has no lanes. */
#include "device/kernels/norm_halves_launch.h"
uint64_t sol_gpu_norm_halves_bytes(const sol_norm_config_t *, int)
{
    return 0;
}
void sol_gpu_norm_halves_describe(struct sol_gpu_norm_halves *, const struct sol_gpu_comm *,
                                  const sol_norm_config_t *, char *const *)
{
}
cudaError_t sol_gpu_norm_halves_init(const struct sol_gpu_norm_halves *, uint64_t, cudaStream_t)
{
    return cudaErrorNotSupported;
}
cudaError_t sol_gpu_norm_start(const struct sol_gpu_norm_halves *, int, const sol_norm_args_t *,
                               unsigned, uint64_t, cudaStream_t)
{
    return cudaErrorNotSupported;
}
cudaError_t sol_gpu_norm_wait(const struct sol_gpu_norm_halves *, int, const sol_norm_args_t *,
                              const struct sol_gpu_norm_shape *, unsigned, uint64_t, cudaStream_t)
{
    return cudaErrorNotSupported;
}
