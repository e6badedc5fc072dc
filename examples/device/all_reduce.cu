/* SPDX-License-Identifier: Apache-2.0 */
/* all_reduce.cu: an all_reduce of one's own: every rank pushes its data to all, each adds up. */
#include <solccl/device.h>

#include <stdio.h>
#include <stdlib.h>

/* One 16-byte vector a thread, one session a CTA. */
__global__ void all_reduce(const __grid_constant__ struct sol_channel ch, const char *x, char *y,
                           unsigned bytes)
{
    const unsigned in_slot = threadIdx.x * 16, at = blockIdx.x * blockDim.x * 16 + in_slot;
    sol_await_predecessors();
    sol_admit_successor();
    struct sol_vector v = {0, 0};
    if (at < bytes)
        v = sol_load_16(x + at);
    struct sol_session s = sol_session_open(ch, SOL_CHANNEL_WORD, blockIdx.x, SOL_CTA);
    sol_session_push(ch, s, in_slot, v);
    sol_session_close(ch, s);
    if (sol_session_reduce<SOL_FLOAT32>(ch, s, SOL_SUM, in_slot, v) && at < bytes)
        sol_store_16(y + at, v);
}

int main(void)
{
    enum { count = 5000, threads = 128, ctas = (count * 4 / 16 + threads - 1) / threads };
    float *host = (float *)malloc(count * sizeof *host);
    sol_comm_t comm;
    sol_dev_comm_t dev;
    sol_dev_config_t config = SOL_DEV_CONFIG_INIT;
    int rank, n, wrong = 0;
    char *x, *y;
    cudaStream_t stream;
    if (sol_comm_create_from_env(&comm, NULL) != SOL_OK)
        return printf("%s\n", sol_last_error(NULL)), 1;
    sol_comm_rank(comm, &rank);
    sol_comm_size(comm, &n);
    config.channel[0].sessions = ctas;
    config.channel[0].slot_bytes = threads * 16;
    if (sol_dev_comm_create(comm, &config, &dev) != SOL_OK)
        return printf("%s\n", sol_last_error(comm)), 1;
    cudaStreamCreate(&stream);
    cudaMalloc((void **)&x, count * sizeof *host);
    cudaMalloc((void **)&y, count * sizeof *host);
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < count; i++)
            host[i] = (float)(i % 100 + rank + turn);
        cudaMemcpyAsync(x, host, count * sizeof *host, cudaMemcpyHostToDevice, stream);
        sol_dev_launch_early(all_reduce, ctas, threads, stream, dev.channel[0], x, y,
                             (unsigned)(count * sizeof *host));
        cudaMemcpyAsync(host, y, count * sizeof *host, cudaMemcpyDeviceToHost, stream);
        cudaStreamSynchronize(stream);
        for (int i = 0; i < count; i++)
            wrong += host[i] != (float)(n * (i % 100 + turn) + n * (n - 1) / 2);
    }
    printf("rank %d of %d: %d wrong\n", rank, n, wrong);
    sol_dev_comm_destroy(comm, &dev);
    sol_comm_destroy(comm);
    return wrong != 0;
}
