/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_ranks.c: see emu_ranks.h.
 */
#include "emu_ranks.h"

#include "proto/gpu_lanes.h"

#include <stdio.h>
#include <string.h>

static const struct emu_ranks *explained; /* whose memory explain() explains */

/* Whose slot is at an address of a staging memory? */
static void explain(const void *address, char *text, size_t bytes)
{
    const struct emu_ranks *p = explained;
    for (int r = 0; p && r < p->n; r++) {
        const struct sol_gpu_layout *l = &p->comm[r].layout;
        uint64_t at = (uint64_t)((const char *)address - p->comm[r].staging[r]);
        if (at >= l->total)
            continue;
        if (at >= l->p2p) {
            uint64_t in = at - l->p2p, source = in / l->p2p_source_bytes;
            in %= l->p2p_source_bytes;
            snprintf(text, bytes, "lanes from rank %d, %s, lane %d chunk slot %d", (int)source,
                     in < l->p2p_escape ? "data" : "escapes",
                     (int)(in % l->p2p_escape / SOL_GPU_LANE_SLOT / SOL_GPU_LANE_DEPTH),
                     (int)(in % l->p2p_escape / SOL_GPU_LANE_SLOT % SOL_GPU_LANE_DEPTH));
        } else if (at >= l->coll) {
            uint64_t in = (at - l->coll) % l->parity_bytes;
            bool data = in < l->escape;
            uint64_t slot = data ? l->slot_bytes : l->slot_bytes / 2;
            in -= data ? 0 : l->escape;
            snprintf(text, bytes, "parity %d, slot of rank %d, %s byte %d",
                     (int)((at - l->coll) / l->parity_bytes), (int)(in / slot),
                     data ? "data" : "escape", (int)(in % slot));
        } else if (at >= SOL_GPU_CONTROL_BYTES / 2) {
            snprintf(text, bytes, "token of rank %d", (int)((at - SOL_GPU_CONTROL_BYTES / 2) / 64));
        } else {
            snprintf(text, bytes, "credit of rank %d, lane %d", (int)(at / 8 / SOL_GPU_LANES),
                     (int)(at / 8 % SOL_GPU_LANES));
        }
        return;
    }
}

void emu_ranks_use(const struct emu_ranks *p, int rank)
{
    cudaSetDevice(rank % p->devices);
}

/* Slots of 4 KB. */
static struct sol_gpu_layout layout_of(int n)
{
    const struct sol_gpu_layout least = sol_gpu_layout_of(n, 1);
    const uint64_t parity = (uint64_t)n * 4096;
    return sol_gpu_layout_of(n, SOL_GPU_CONTROL_BYTES + (least.total - least.p2p) +
                                    parity / 2 * 3 * SOL_GPU_PARITIES);
}

static void make_rank(struct emu_ranks *p, int r, char **staging)
{
    struct sol_gpu_comm *c = &p->comm[r];
    c->layout = layout_of(p->n);
    c->rank = r;
    c->nranks = p->n;
    c->timeout_ns = EMU_RANKS_TIMEOUT_NS;
    c->ranks_here = (p->n + p->devices - 1) / p->devices;
    c->max_ctas = 8; /* SMs for each rank, see below */
    emu_ranks_use(p, r);
    cudaStreamCreate(&p->stream[r]);
    cudaMalloc((void **)staging, c->layout.total + EMU_RANKS_AREA);
    cudaMalloc((void **)&c->state, sizeof(*c->state));
    cudaHostAlloc((void **)&c->error, sizeof(*c->error), cudaHostAllocMapped);
    cudaMemset(c->error, 0, sizeof(*c->error));
    c->abort_word = p->abort_word;
    emu_name(*staging, "staging of rank %d", r);
    emu_name(c->state, "state of rank %d", r);
    emu_name(c->error, "error record of rank %d", r);
}

void emu_ranks_multicast(struct emu_ranks *p)
{
    char *nowhere = (char *)(uintptr_t)0x5000000000000000u;
    for (int r = 0; r < p->n; r++) {
        struct sol_gpu_comm *c = &p->comm[r];
        c->multicast = nowhere;
        c->area = c->layout.total;
        c->area_bytes = EMU_RANKS_AREA;
    }
    emu_multicast(nowhere, p->comm[0].layout.total + EMU_RANKS_AREA, p->comm[0].staging, p->n);
}

bool emu_ranks_open(struct emu_ranks *p, int n, int devices, uint64_t seed, uint64_t epoch,
                    bool time_passes)
{
    struct emu_options options = {.seed = seed,
                                  .devices = devices,
                                  .sms = 8 * ((n + devices - 1) / devices),
                                  .time_passes = time_passes,
                                  .explain = explain};
    char *staging[SOL_GPU_MAX_RANKS];
    memset(p, 0, sizeof(*p));
    p->n = n;
    p->devices = devices;
    if (!emu_open(&options))
        return false;
    explained = p;
    cudaHostAlloc((void **)&p->abort_word, 4, cudaHostAllocMapped);
    cudaMemset(p->abort_word, 0, 4);
    for (int r = 0; r < n; r++)
        make_rank(p, r, &staging[r]);
    for (int r = 0; r < n; r++)
        memcpy(p->comm[r].staging, staging, (size_t)n * sizeof(*staging));
    for (int r = 0; r < n; r++) {
        emu_ranks_use(p, r);
        if (sol_gpu_init(&p->comm[r], epoch, p->stream[r]) != cudaSuccess)
            return false;
    }
    for (int r = 0; r < n; r++)
        cudaStreamSynchronize(p->stream[r]);
    return !emu_failed();
}
