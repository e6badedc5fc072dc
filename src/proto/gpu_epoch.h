/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_epoch.h: why two buffers are enough, and no barrier is needed.
 *
 * Every collective of a communicator has an epoch e, counted in each rank's
 * device memory (sol_gpu_state.epochs), and uses the slots of parity e mod 2 in
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
 * Counting. The device holds the epoch SOL_GPU_EPOCHS times, once for every CTA
 * that a grid can have. CTA b of a grid of C reads the b-th beside its input and
 * later, after a barrier, stores the next epoch into the b-th, (b+C)-th, (b+2C)-th
 * ...: so every one is stored by one CTA, which is the only one to read it in
 * this kernel, and those of CTAs that were not launched do not fall behind. Plain
 * loads and stores, ordered by the ends of kernels. (One counter to which all
 * CTAs add costs 0.08 us more: a load of what was last changed by an atomic is
 * slow.) 64 bits never wrap.
 *
 * Failure. A rank that gives up in epoch e has not had every peer's word, so (R)
 * does not hold for it and its next push could meet a slot that a peer has not
 * read. Therefore whoever gives up writes `dead` beside every epoch before its
 * kernel ends, and a kernel that finds it pushes nothing and returns. Peers see
 * the abort word that it sets too, or their own timeouts: never wrong data.
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
