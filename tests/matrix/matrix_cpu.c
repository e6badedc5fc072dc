/* SPDX-License-Identifier: Apache-2.0 */
/* matrix_cpu.c: CPU ranks of the fault matrix. A call that has returned is over. */
#include "matrix/matrix.h"

#include <stdlib.h>
#include <string.h>

#define LARGE ((size_t)200000)

static bool cpu_open(side_t *side, int rank)
{
    (void)rank;
    side->data = calloc(LARGE * (1 + MATRIX_MAX_RANKS), sizeof(float));
    return side->data != NULL;
}

static void cpu_close(side_t *side)
{
    free(side->data);
}

static sol_status_t cpu_settle(side_t *side, sol_comm_t comm)
{
    (void)side;
    (void)comm;
    return SOL_OK;
}

static bool cpu_idle(side_t *side)
{
    (void)side;
    return true;
}

static bool cpu_write(side_t *side, int32_t value)
{
    memcpy(side->data, &value, sizeof(value));
    return true;
}

static bool cpu_read(side_t *side, int32_t *value)
{
    memcpy(value, side->data + 1, sizeof(*value));
    return true;
}

const device_t matrix_cpu = {.name = "cpu",
                             .backend = SOL_BACKEND_CPU,
                             .ranks = "2p 3p 8p 2t 3t 8t",
                             .large = LARGE,
                             .timeout_ms = 2000,
                             .init_ms = 2000,
                             .init_us = 700,
                             .blocking = true,
                             .notices_death = true,
                             .open = cpu_open,
                             .close = cpu_close,
                             .settle = cpu_settle,
                             .idle = cpu_idle,
                             .write = cpu_write,
                             .read = cpu_read};
