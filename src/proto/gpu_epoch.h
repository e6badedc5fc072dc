/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_epoch.h: why two buffers are enough, and no barrier is needed.
 *
 * Every collective of a communicator has an epoch e, counted in each rank's
 * device memory (sol_gpu_state.ticks), and uses the slots of parity e mod 2 in
 * every staging. The rule that all collectives keep:
 *
 *   (R) In epoch e every rank sends every peer at least one word or token, and
 *       does not end before it has received one of epoch e from every peer.
 *
 *        rank A    | push e | poll e, reset e | end e | push e+1 | ... end e+1 | push e+2
 *                                                                     ^              |
 *        rank B    | push e | poll e, reset e | end e | push e+1 -----'   same slot  v
 *                                      '----------------- before -----------------> slot
 *
 * Claim: A's push of e+2 into a slot of B comes after B's reset of that slot in
 * epoch e. Proof: A's kernel e+2 starts after its kernel e+1 ended (stream
 * order, or griddepcontrol.wait), which by (R) was after A received a word of
 * e+1 from B. B pushed that after its kernel e had ended, resets included. The
 * ends of kernels are where memory is made visible, so each "after" is a
 * happens-before. Which thread of which CTA did it is of no importance: grids
 * may differ between ranks and between calls.
 *
 * Rooted operations (broadcast, reduce, gather, scatter) and barrier keep (R)
 * with tokens: where no data flows from A to B, A stores the epoch itself into
 * its token word in B's staging. Tokens only grow; the reader waits for
 * token - epoch >= 0 in 64-bit arithmetic, so they need neither parity nor
 * reset.
 *
 * Counting. The device counts ticks, SOL_GPU_TICKS of them a collective; the
 * epoch is ticks / SOL_GPU_TICKS. A CTA reads the ticks once, beside its input,
 * and later adds its share without waiting for an answer: CTA 0 of a grid of C
 * adds SOL_GPU_TICKS - (C - 1), every other one adds 1. While a CTA has not added
 * its own share the sum is short of the next epoch, so it reads the right one
 * however many others have gone before. CTAs that were not launched have nothing
 * to fall behind with. 64 bits last for 2^56 collectives: at one a microsecond,
 * 2,000 years.
 *
 * Messages larger than a slot and point-to-point messages have no such rule:
 * they go through lanes with credits (gpu_lanes.h).
 */
#ifndef SOL_PROTO_GPU_EPOCH_H
#define SOL_PROTO_GPU_EPOCH_H

#include "proto/gpu_layout.h"

/* From a parity's data to its escapes; as sol_gpu_layout.escape, from what a kernel has at hand. */
SOL_GPU_BOTH uint64_t sol_gpu_escape(int nranks, uint32_t slot_bytes)
{
    return (uint64_t)nranks * slot_bytes;
}

/* Offset of the slot that `source` fills in a staging, in this epoch. */
SOL_GPU_BOTH uint64_t sol_gpu_slot(int nranks, uint32_t slot_bytes, uint64_t epoch, int source)
{
    uint64_t data = sol_gpu_escape(nranks, slot_bytes);
    return SOL_GPU_CONTROL_BYTES + (epoch & 1) * (data + data / 2) + (uint64_t)source * slot_bytes;
}

#endif
