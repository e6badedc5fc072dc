/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_ranks.h: a communicator of emulated GPUs, each a rank, as the host side
 * would make it: staging of equal layout mapped everywhere, state, error record.
 */
#ifndef TESTS_EMU_RANKS_H
#define TESTS_EMU_RANKS_H

#include "device/kernels/launch.h"
#include "emu/emu.h"

struct emu_ranks {
    int n, devices; /* rank r is on device r mod devices */
    struct sol_gpu_comm comm[SOL_GPU_MAX_RANKS];
    cudaStream_t stream[SOL_GPU_MAX_RANKS];
    uint32_t *abort_word; /* of all ranks; the host may write it at any time */
};

#define EMU_RANKS_TIMEOUT_NS 100000000u
#define EMU_RANKS_AREA 16384 /* bytes behind each staging, for what the switch reduces */

/* Opens a machine of `devices`. `epoch`: see sol_gpu_init. `time_passes`: see emu.h. False: see
 * emu_report. */
bool emu_ranks_open(struct emu_ranks *ranks, int n, int devices, uint64_t seed, uint64_t epoch,
                    bool time_passes);
/* Gives an open machine a switch with multicast. */
void emu_ranks_multicast(struct emu_ranks *ranks);
/* Makes the device of a rank the current one. */
void emu_ranks_use(const struct emu_ranks *ranks, int rank);

#endif
