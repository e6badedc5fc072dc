/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_lanes.h: channels with credits, for messages of any length and for pairs.
 *
 * A lane is one direction of one pair of ranks, times SOL_GPU_LANES. It has a
 * ring of SOL_GPU_LANE_DEPTH chunks in the receiver's staging, and numbers its
 * chunks 0, 1, 2 ... for the life of the communicator. One CTA at each end works
 * on it at a time.
 *
 *     sender                                receiver
 *     wait: credit > s - DEPTH
 *     push the words of chunk s  ------->   poll them, use them, reset them
 *                                           barrier of the CTA, fence
 *     credit = s + 1             <-------   push credit
 *
 * Invariants
 *  - sent[peer][lane] at the sender and received[peer][lane] at the receiver are
 *    the number of chunks of that lane in all messages before; both sides cut a
 *    message into lanes and chunks by the same function of its size, so they
 *    agree without talking.
 *  - Chunk s goes to slot s mod DEPTH. It is pushed only after credit >= s + 1 -
 *    DEPTH, which the receiver pushed after it had reset chunk s - DEPTH, with a
 *    fence between (cumulative over the CTA's barrier). So a push never meets a
 *    word that is still to be read or reset.
 *  - Words validate themselves (gpu_word.h); the epoch of their escapes is s + 1,
 *    which a slot never sees twice.
 *  - Lane 0 of a message has at least one chunk, and its first carries a header:
 *    the message's bytes. A receiver that expected another number reports it.
 *
 * Wrap-around. 64-bit counters; compared by signed difference.
 *
 * Abort. As gpu_word.h: the communicator ends.
 */
#ifndef SOL_PROTO_GPU_LANES_H
#define SOL_PROTO_GPU_LANES_H

#include "proto/gpu_layout.h"

/* Offset, from a source's area, of the slot of chunk `s` on `lane`; the header follows the data. */
SOL_GPU_BOTH uint32_t sol_gpu_lane_slot(int lane, uint64_t s)
{
    return ((uint32_t)lane * SOL_GPU_LANE_DEPTH + (uint32_t)(s % SOL_GPU_LANE_DEPTH)) *
           SOL_GPU_LANE_SLOT;
}

/* Chunks of a message of `bytes`. */
SOL_GPU_BOTH uint64_t sol_gpu_chunks(uint64_t bytes)
{
    return (bytes + SOL_GPU_LANE_CHUNK - 1) / SOL_GPU_LANE_CHUNK;
}

/* Of these, on `lane` of `lanes`: lane, lane + lanes, lane + 2 * lanes ... */
SOL_GPU_BOTH uint64_t sol_gpu_chunks_of_lane(uint64_t chunks, int lane, int lanes)
{
    return chunks > (uint64_t)lane ? (chunks - 1 - (uint64_t)lane) / (uint64_t)lanes + 1 : 0;
}

/* Lanes that a message of `bytes` uses, of at most `most`: a power of two, one a chunk at most. A
 * function of what both ends know. */
SOL_GPU_BOTH int sol_gpu_lanes_for(uint64_t bytes, int most)
{
    uint64_t chunks = sol_gpu_chunks(bytes);
    int lanes = 1;
    while (lanes * 2 <= most && (uint64_t)lanes * 2 <= chunks)
        lanes *= 2;
    return lanes;
}

#endif
