/* SPDX-License-Identifier: Apache-2.0 */
/*
 * panel_broadcast.cu: panels of a factorisation, each from another rank to all, without a barrier:
 * the next panel is on its way while the last one is still used. One persistent kernel; CTAs do not
 * wait for each other; plain 16-byte stores and one flag a tile (a BULK channel).
 */
#include "rig.h"

#define TILE 2048 /* bytes of a CTA's part of a panel */
#define PANELS 10

__global__ void factor(const __grid_constant__ struct sol_channel ch, const char *panels,
                       char *trailing)
{
    struct sol_session s = sol_session_open(ch, SOL_CHANNEL_BULK, blockIdx.x, SOL_CTA);
    for (int k = 0; k < PANELS; k++) {
        const int root = k % ch.nranks;
        const uint64_t tile = ((uint64_t)k * gridDim.x + blockIdx.x) * TILE;
        if (ch.rank == root)
            for (unsigned at = threadIdx.x * 16; at < TILE; at += blockDim.x * 16)
                sol_session_push(ch, s, at, sol_load_16(panels + tile + at));
        sol_session_flush(ch, s); /* data and flag; from those that are not root the flag alone */
        if (!sol_session_await(ch, s))
            return;
        for (unsigned at = threadIdx.x * 16; at < TILE; at += blockDim.x * 16) {
            struct sol_vector v, sum = sol_load_16(trailing + blockIdx.x * TILE + at);
            if (ch.rank == root)
                v = sol_load_16(panels + tile + at);
            else
                sol_session_receive(ch, s, root, at, v);
            sum.a += v.a; /* the update of what is left of the matrix, here a sum */
            sum.b += v.b;
            sol_store_16(trailing + blockIdx.x * TILE + at, sum);
        }
        if (k < PANELS - 1)
            sol_session_next(ch, s);
    }
    sol_session_close(ch, s);
}

static uint64_t element(int rank, int panel, size_t i)
{
    return (uint64_t)rank * 1000000007u + (uint64_t)panel * 10007u + i * 31u;
}

int main(void)
{
    enum { ctas = 4, words = ctas * TILE / 8 };
    struct rig rig;
    sol_dev_config_t config = SOL_DEV_CONFIG_INIT;
    config.channel[0].kind = SOL_CHANNEL_BULK;
    config.channel[0].sessions = ctas;
    config.channel[0].slot_bytes = TILE;
    if (!rig_open(&rig, &config))
        return 1;
    uint64_t *panels = (uint64_t *)malloc((size_t)PANELS * words * 8);
    uint64_t *trailing = (uint64_t *)calloc(words, 8);
    for (int k = 0; k < PANELS; k++)
        for (size_t i = 0; i < words; i++)
            panels[(size_t)k * words + i] = element(rig.rank, k, i);
    char *dp = rig_upload(&rig, panels, (size_t)PANELS * words * 8);
    char *dt = rig_upload(&rig, trailing, words * 8);
    sol_dev_launch(factor, ctas, 64, rig.stream, rig.dev.channel[0], dp, dt);
    rig_download(&rig, trailing, dt, words * 8);
    for (size_t i = 0; i < words; i++) {
        uint64_t sum = 0;
        for (int k = 0; k < PANELS; k++)
            sum += element(k % rig.n, k, i);
        rig.wrong += trailing[i] != sum;
    }
    return rig_close(&rig);
}
