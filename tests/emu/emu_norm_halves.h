/* SPDX-License-Identifier: Apache-2.0 */
/* emu_norm_halves.h: the part of emu_norm that is about sol_norm_start and _wait. */
#ifndef TESTS_EMU_NORM_HALVES_H
#define TESTS_EMU_NORM_HALVES_H

#include "common/team.h"
#include "emu_ranks.h"

/* A handle, with some starts and waits on ranks that are open. False, and it says why: failed. */
bool emu_norm_halves(struct emu_ranks *ranks, uint64_t epoch, uint64_t *random, bool few);
/* Rank 1 does not start; time passes. */
bool emu_norm_halves_absent(struct emu_ranks *ranks, uint64_t *random);

#endif
