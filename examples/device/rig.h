/* SPDX-License-Identifier: Apache-2.0 */
/* rig.h: what every example needs around its kernel: a rank, a device communicator, buffers. */
#ifndef EXAMPLES_DEVICE_RIG_H
#define EXAMPLES_DEVICE_RIG_H

#include <math.h>
#include <solccl/device.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rig {
    sol_comm_t comm;
    sol_dev_comm_t dev;
    cudaStream_t stream;
    int rank, n;
    long wrong; /* results */
};

static inline bool rig_open(struct rig *rig, const sol_dev_config_t *config)
{
    const char *local = getenv("SOLCCL_LOCAL_RANK"); /* of `solccl run`; one GPU a rank */
    memset(rig, 0, sizeof *rig);
    if (local)
        cudaSetDevice(atoi(local));
    if (sol_comm_create_from_env(&rig->comm, NULL) != SOL_OK) {
        printf("%s\n", sol_last_error(NULL));
        return false;
    }
    sol_comm_rank(rig->comm, &rig->rank);
    sol_comm_size(rig->comm, &rig->n);
    cudaStreamCreate(&rig->stream);
    if (sol_dev_comm_create(rig->comm, config, &rig->dev) == SOL_OK)
        return true;
    printf("rank %d: %s\n", rig->rank, sol_last_error(rig->comm));
    return false;
}

static inline char *rig_upload(struct rig *rig, const void *from, size_t bytes)
{
    char *memory = NULL;
    cudaMalloc((void **)&memory, bytes);
    cudaMemcpyAsync(memory, from, bytes, cudaMemcpyHostToDevice, rig->stream);
    cudaStreamSynchronize(rig->stream);
    return memory;
}

/* After everything on the stream. */
static inline void rig_download(struct rig *rig, void *to, const void *from, size_t bytes)
{
    sol_status_t error = SOL_OK;
    cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, rig->stream);
    if (cudaStreamSynchronize(rig->stream) != cudaSuccess)
        rig->wrong++;
    sol_comm_async_error(rig->comm, &error);
    if (error != SOL_OK) {
        printf("rank %d: %s\n", rig->rank, sol_last_error(rig->comm));
        rig->wrong++;
    }
}

/* The exit status. */
static inline int rig_close(struct rig *rig)
{
    printf("rank %d of %d: %ld wrong\n", rig->rank, rig->n, rig->wrong);
    sol_dev_comm_destroy(rig->comm, &rig->dev);
    sol_comm_destroy(rig->comm);
    return rig->wrong != 0;
}

/* fp16 of a number that it can hold, and back. */
static inline uint16_t rig_half(float x)
{
    int e;
    float m = frexpf(fabsf(x), &e);
    unsigned sign = x < 0 ? 0x8000 : 0;
    return (uint16_t)(x == 0 ? 0 : sign | (unsigned)(e + 14) << 10 | ((unsigned)(m * 2048) & 1023));
}
static inline float rig_float(uint16_t h)
{
    int e = h >> 10 & 31;
    float m = ldexpf((float)((h & 1023) + (e ? 1024 : 0)), (e ? e : 1) - 25);
    return h & 0x8000 ? -m : m;
}

#endif
