/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_moe.h: how the kernels of solccl/moe.h name themselves in an error record: values beyond
 * those of enum sol_gpu_who (device/channel.h). `sequence` is the call's number, as in a
 * collective's record.
 */
#ifndef SOL_PROTO_GPU_MOE_H
#define SOL_PROTO_GPU_MOE_H

enum sol_gpu_moe_who { SOL_GPU_WHO_DISPATCH = 80, SOL_GPU_WHO_COMBINE = 81 };

#endif
