/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_layout.h: what lies where in a GPU rank's staging memory and its
 * device state. The one definition, for host and device.
 *
 * Every rank of a communicator has one staging memory of equal size, mapped by
 * all its peers. A rank only ever writes into peers' staging (push) and reads
 * its own.
 *
 *   0          control    credits of the lanes, one 64-bit word each
 *   coll       parity 0   nranks slots of slot_bytes data | their escapes
 *              parity 1   the same
 *   p2p        source 0   lanes x depth chunks of data     | their escapes
 *              source 1 ...
 *
 * Data is in message order: byte b of a message lies at byte b of its slot, in
 * vectors of 16 bytes, whatever the alignment of the user's buffers.
 *
 * A 64-bit word of data validates itself (gpu_word.h). It must never be cleared
 * by anybody but the rank that owns the staging, after reading it.
 */
#ifndef SOL_PROTO_GPU_LAYOUT_H
#define SOL_PROTO_GPU_LAYOUT_H

#include "solccl/device/channel.h"
#include "solccl/device/fate.h"

#include <stddef.h>
#include <stdint.h>

#define SOL_GPU_MAX_RANKS SOL_DEV_MAX_RANKS
/* These are smaller in the emulator, so that small messages reach every boundary. */
#ifndef SOL_GPU_LANES
#define SOL_GPU_LANES 64 /* most channels of one direction of a pair */
#endif
#ifndef SOL_GPU_LANE_CHUNK
#define SOL_GPU_LANE_CHUNK 32768 /* data bytes of one chunk */
#endif
#ifndef SOL_GPU_SLOT_MIN
#define SOL_GPU_SLOT_MIN 65536
#endif
#ifndef SOL_GPU_SLOT_STEP
#define SOL_GPU_SLOT_STEP 65536 /* slots are multiples of it */
#endif
#ifndef SOL_GPU_SLOT_WORTH
#define SOL_GPU_SLOT_WORTH (4u << 20) /* from here on several slots are faster than lanes */
#endif
#define SOL_GPU_LANE_SLOT (SOL_GPU_LANE_CHUNK + 128) /* a chunk with its header */
#define SOL_GPU_LANE_DEPTH 4                         /* chunks of a lane in flight */
#define SOL_GPU_EPOCHS 256                           /* at least the CTAs of any grid */
#define SOL_GPU_CONTROL_BYTES 65536
#define SOL_GPU_PARITIES 2
/* Data bytes of one parity, all sources together. Two ranks get enough for messages of 16 MiB,
 * which a slot carries 1.2 times as fast as lanes do. */
#define SOL_GPU_PARITY_DEFAULT (8u << 20)
#define SOL_GPU_PARITY_PAIR (32u << 20)
#define SOL_GPU_VECTOR 16

/* Byte offsets into a staging memory; equal on all ranks. */
struct sol_gpu_layout {
    uint64_t coll;         /* first byte of parity 0 */
    uint64_t parity_bytes; /* from parity 0 to parity 1: data and escapes */
    uint64_t slot_bytes;   /* data of one source in one parity */
    uint64_t escape;       /* from a parity's data to its escapes; data / 2 bytes of them */
    uint64_t p2p;
    uint64_t p2p_source_bytes; /* from one source's lanes to the next: data and escapes */
    uint64_t p2p_escape;       /* from a source's data to its escapes */
    uint64_t total;
    int lanes; /* channels of one direction of a pair: fewer with more ranks, for equal memory */
    int reserved;
};

/* Lay out staging for `nranks`; `wanted` bytes are a wish (0: the default), the result's `total`
 * is what to allocate: at least what a small slot needs, otherwise at most `wanted`. */
static inline struct sol_gpu_layout sol_gpu_layout_of(int nranks, uint64_t wanted)
{
    struct sol_gpu_layout l;
    uint64_t lanes;
    uint64_t parity = nranks == 2 ? SOL_GPU_PARITY_PAIR : SOL_GPU_PARITY_DEFAULT;
    uint64_t n = (uint64_t)nranks;
    uint64_t p2p;

    l.lanes = nranks <= 2 ? SOL_GPU_LANES : nranks <= 4 ? SOL_GPU_LANES / 2 : SOL_GPU_LANES / 4;
    l.reserved = 0;
    lanes = (uint64_t)l.lanes * SOL_GPU_LANE_DEPTH * SOL_GPU_LANE_SLOT;
    p2p = n * (lanes + lanes / 2);
    if (wanted) {
        uint64_t fixed = SOL_GPU_CONTROL_BYTES + p2p;
        parity = wanted > fixed ? (wanted - fixed) / (SOL_GPU_PARITIES * 3) * 2 : 0;
    }
    l.slot_bytes = parity / n / SOL_GPU_SLOT_STEP * SOL_GPU_SLOT_STEP;
    if (l.slot_bytes < SOL_GPU_SLOT_MIN)
        l.slot_bytes = SOL_GPU_SLOT_MIN;
    l.coll = SOL_GPU_CONTROL_BYTES;
    l.escape = n * l.slot_bytes;
    l.parity_bytes = l.escape + l.escape / 2;
    l.p2p = l.coll + SOL_GPU_PARITIES * l.parity_bytes;
    l.p2p_escape = lanes;
    l.p2p_source_bytes = lanes + lanes / 2;
    l.total = l.p2p + p2p;
    return l;
}

/* In the control area: the number of chunks that `receiver` has consumed of what the owner of the
 * staging sent to it on `lane`. Pushed by the receiver; see gpu_lanes.h. */
SOL_GPU_BOTH uint64_t sol_gpu_credit_offset(int receiver, int lane)
{
    return ((uint64_t)receiver * SOL_GPU_LANES + (uint64_t)lane) * 8;
}

/* In the control area: the last epoch for which `sender` sent the owner a token; see gpu_epoch.h.
 */
SOL_GPU_BOTH uint64_t sol_gpu_token_offset(int sender)
{
    return SOL_GPU_CONTROL_BYTES / 2 + (uint64_t)sender * 64;
}

/* What a CTA reads beside its input, as one vector; see gpu_epoch.h. */
struct sol_gpu_epoch {
    uint64_t epoch;
    uint64_t dead; /* as fate.dead */
};

/* In the control area: how far the CTA of number `cta` of `sender` has come in a kernel whose CTAs
 * meet (kernels/multicast.cuh). Only grows. */
#define SOL_GPU_MEETING_CTAS 64
SOL_GPU_BOTH uint64_t sol_gpu_meeting_offset(int cta, int sender)
{
    return SOL_GPU_CONTROL_BYTES / 2 + SOL_GPU_MAX_RANKS * 64 +
           ((uint64_t)cta * SOL_GPU_MAX_RANKS + (uint64_t)sender) * 32;
}

/* Protocol state of one rank, in its device memory. Only its own kernels touch it. */
struct sol_gpu_state {
    struct sol_gpu_fate fate;
    uint64_t reserved[14];
    struct sol_gpu_waits waits; /* of a communicator's own state, also for those of its handles */
    struct sol_gpu_epoch
        epochs[SOL_GPU_EPOCHS]; /* all equal between kernels; CTA b reads the b-th */
    /* numbers of chunks, per peer and lane; see lane.cuh */
    uint64_t sent[SOL_GPU_MAX_RANKS][SOL_GPU_LANES];
    uint64_t received[SOL_GPU_MAX_RANKS][SOL_GPU_LANES];
};

#endif
