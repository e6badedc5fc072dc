/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all_gather_matvec.cu: y = A x, with x in pieces on all ranks and A's rows on each. Every CTA
 * gathers all of x, and multiplies the part that is its own while the others' are on the way.
 */
#include "rig.h"

#define ROWS 8    /* of a CTA: a warp each */
#define PIECE 512 /* floats of x on each rank */

/* One warp's row times one vector of x, summed over lanes at the end. */
static __device__ float dot(const float *row, unsigned at, struct sol_vector v)
{
    struct sol_lanes<SOL_FLOAT32> x = sol_unpack<SOL_FLOAT32>(v);
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += row[at + i] * x.x[i];
    return sum;
}

__global__ void matvec(const __grid_constant__ struct sol_channel ch, const float *a, const char *x,
                       float *y)
{
    SOL_SHARED_ARRAY(struct sol_vector, whole, SOL_DEV_MAX_RANKS * PIECE / 4);
    const unsigned vectors = PIECE / 4, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned row = blockIdx.x * ROWS + warp;
    const float *mine = a + (uint64_t)row * ch.nranks * PIECE;
    struct sol_session s = sol_session_open(ch, SOL_CHANNEL_TAG, blockIdx.x, SOL_CTA);
    for (unsigned i = threadIdx.x; i < vectors; i += blockDim.x) {
        whole[ch.rank * vectors + i] = sol_load_16(x + i * 16);
        sol_all_gather_start(ch, s, i * 16, whole[ch.rank * vectors + i]);
    }
    sol_session_close(ch, s);
    float sum = 0; /* own piece, while the others' come */
    for (unsigned i = lane; i < vectors; i += 32)
        sum += dot(mine, ch.rank * PIECE + i * 4, whole[ch.rank * vectors + i]);
    bool good = true;
    for (unsigned i = threadIdx.x; i < vectors; i += blockDim.x)
        for (int k = 1; k < ch.nranks; k++) {
            const int peer = (ch.rank + k) % ch.nranks;
            good = good && sol_session_receive(ch, s, peer, i * 16, whole[peer * vectors + i]);
        }
    if (__syncthreads_or(!good))
        return;
    for (int k = 1; k < ch.nranks; k++) {
        const int peer = (ch.rank + k) % ch.nranks;
        for (unsigned i = lane; i < vectors; i += 32)
            sum += dot(mine, peer * PIECE + i * 4, whole[peer * vectors + i]);
    }
    for (int by = 16; by > 0; by /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, by);
    if (lane == 0)
        y[row] = sum;
}

int main(void)
{
    enum { ctas = 3, rows = ctas * ROWS };
    struct rig rig;
    sol_dev_config_t config = SOL_DEV_CONFIG_INIT;
    config.channel[0].kind = SOL_CHANNEL_TAG;
    config.channel[0].sessions = ctas;
    config.channel[0].slot_bytes = PIECE * 4;
    if (!rig_open(&rig, &config))
        return 1;
    const int columns = PIECE * rig.n;
    float x[PIECE], y[rows], *a = (float *)malloc(sizeof(float) * (size_t)rows * (size_t)columns);
    for (int i = 0; i < PIECE; i++)
        x[i] = (float)((i + rig.rank * PIECE) % 9 - 4);
    for (int i = 0; i < rows * columns; i++)
        a[i] = (float)((i + rig.rank) % 5 - 2);
    char *dx = rig_upload(&rig, x, sizeof x), *dy = rig_upload(&rig, y, sizeof y);
    char *da = rig_upload(&rig, a, sizeof(float) * (size_t)rows * (size_t)columns);
    sol_dev_launch(matvec, ctas, ROWS * 32, rig.stream, rig.dev.channel[0], (const float *)da, dx,
                   (float *)dy);
    rig_download(&rig, y, dy, sizeof y);
    for (int r = 0; r < rows; r++) {
        float sum = 0; /* small integers: exact in any order */
        for (int c = 0; c < columns; c++)
            sum += a[r * columns + c] * (float)(c % 9 - 4);
        rig.wrong += y[r] != sum;
    }
    return rig_close(&rig);
}
