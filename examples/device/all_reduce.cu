/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all_reduce.cu: an all_reduce of one's own: every rank pushes its data
 * to all, each adds up what arrives. bench/device measures this file.
 */
#include "rig.h"

/* One 16-byte vector a thread, one session a CTA. */
template <int D, int N>
__global__ void all_reduce(const __grid_constant__ struct sol_channel ch, const char *x, char *y,
                           unsigned bytes)
{
    const unsigned in_slot = threadIdx.x * 16, at = blockIdx.x * blockDim.x * 16 + in_slot;
    struct sol_vector v = {0, 0};
    struct sol_session s = sol_session_prepare(ch, SOL_CHANNEL_WORD, blockIdx.x, SOL_CTA,
                                               N == 2 ? sol_team_of<2>(ch) : sol_team_all(ch));
    const char *from = sol_opaque(x + at);
    char *to = sol_opaque(y + at);
    sol_await_predecessors();
    sol_admit_successor();
    if (at < bytes)
        v = sol_load_16(from);
    sol_session_start(ch, s);
    sol_session_push(ch, s, in_slot, v);
    sol_session_close(ch, s);
    if (sol_session_reduce<D, N>(ch, s, SOL_SUM, in_slot, v) && at < bytes)
        sol_store_16(to, v);
}

/* Threads of a CTA: many CTAs share the work, no more than sessions. */
static unsigned threads_for(unsigned bytes)
{
    return bytes <= 1024 ? 32 : bytes <= 2048 ? 64 : bytes <= 32768 ? 128 : 256;
}

int main(void)
{
    enum { count = 5000, bytes = count * 4 };
    const unsigned threads = threads_for(bytes), ctas = (bytes + threads * 16 - 1) / (threads * 16);
    float host[count];
    struct rig rig;
    sol_dev_config_t config = SOL_DEV_CONFIG_INIT;
    config.channel[0].sessions = 256;
    config.channel[0].slot_bytes = 4096;
    if (!rig_open(&rig, &config))
        return 1;
    for (int i = 0; i < count; i++)
        host[i] = (float)(i % 100 + rig.rank);
    char *x = rig_upload(&rig, host, bytes), *y = rig_upload(&rig, host, bytes);
    for (int turn = 0; turn < 3; turn++)
        sol_dev_launch_early(rig.n == 2 ? all_reduce<SOL_FLOAT32, 2> : all_reduce<SOL_FLOAT32, 8>,
                             ctas, threads, rig.stream, rig.dev.channel[0], x, y, (unsigned)bytes);
    rig_download(&rig, host, y, bytes);
    for (int i = 0; i < count; i++)
        rig.wrong += host[i] != (float)(rig.n * (i % 100) + rig.n * (rig.n - 1) / 2);
    return rig_close(&rig);
}
