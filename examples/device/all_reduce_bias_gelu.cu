/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all_reduce_bias_gelu.cu: y = gelu(all_reduce(x) + bias) in one kernel, fp16: the sum is still in
 * registers when bias and activation are applied. What tensor parallelism does after a row-split
 * matrix product.
 */
#include "rig.h"

template <int N>
__global__ void fused(const __grid_constant__ struct sol_channel ch, const char *x,
                      const char *bias, char *y, unsigned bytes, unsigned row)
{
    const unsigned in_slot = threadIdx.x * 16, at = blockIdx.x * blockDim.x * 16 + in_slot;
    sol_await_predecessors();
    sol_admit_successor();
    struct sol_vector v = {0, 0}, b = {0, 0};
    if (at < bytes) {
        v = sol_load_16(x + at);
        b = sol_load_16(bias + at % row);
    }
    struct sol_session s = sol_session_open(ch, SOL_CHANNEL_WORD, blockIdx.x, SOL_CTA);
    sol_session_push(ch, s, in_slot, v);
    sol_session_close(ch, s);
    if (!sol_session_reduce<SOL_FLOAT16, N>(ch, s, SOL_SUM, in_slot, v) || at >= bytes)
        return;
    struct sol_lanes<SOL_FLOAT16> sum = sol_unpack<SOL_FLOAT16>(v),
                                  add = sol_unpack<SOL_FLOAT16>(b);
    for (int i = 0; i < 8; i++) {
        float z = sum.x[i] + add.x[i];
        sum.x[i] = 0.5f * z * (1.0f + tanhf(0.7978845608f * (z + 0.044715f * z * z * z)));
    }
    sol_store_16(y + at, sol_pack<SOL_FLOAT16>(sum));
}

static float gelu(float z)
{
    return 0.5f * z * (1.0f + tanhf(0.7978845608f * (z + 0.044715f * z * z * z)));
}

int main(void)
{
    enum { rows = 4, columns = 512, count = rows * columns, threads = 64 };
    const unsigned bytes = count * 2, ctas = bytes / (threads * 16);
    struct rig rig;
    sol_dev_config_t config = SOL_DEV_CONFIG_INIT;
    config.channel[0].sessions = (int)ctas;
    config.channel[0].slot_bytes = threads * 16;
    if (!rig_open(&rig, &config))
        return 1;
    uint16_t *x = (uint16_t *)malloc(bytes), *bias = (uint16_t *)malloc(columns * 2);
    for (int i = 0; i < count; i++)
        x[i] = rig_half((float)(i % 7 - 3 + rig.rank) / 8);
    for (int i = 0; i < columns; i++)
        bias[i] = rig_half((float)(i % 5) / 4);
    char *dx = rig_upload(&rig, x, bytes), *db = rig_upload(&rig, bias, columns * 2);
    char *dy = rig_upload(&rig, x, bytes);
    sol_dev_launch_early(rig.n == 2 ? fused<2> : fused<8>, ctas, threads, rig.stream,
                         rig.dev.channel[0], dx, db, dy, bytes, (unsigned)(columns * 2));
    rig_download(&rig, x, dy, bytes);
    for (int i = 0; i < count; i++) {
        float sum = (float)(rig.n * (i % 7 - 3) + rig.n * (rig.n - 1) / 2) / 8;
        float wanted = gelu(sum + (float)(i % columns % 5) / 4);
        rig.wrong += !(fabsf(rig_float(x[i]) - wanted) <= 0.004f * (1 + fabsf(wanted)));
    }
    return rig_close(&rig);
}
