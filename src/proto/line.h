/* SPDX-License-Identifier: Apache-2.0 */
/*
 * line.h: a pipe of self-validating cache lines from one rank to another. The
 * small-message protocol of CPU ranks and the control channel of the large
 * ones. It never waits, never calls the system and knows nothing of operations.
 *
 * Slot layout (64 bytes, 64-aligned, so one cache line, moved as a whole):
 *
 *     0                                                     56           64
 *     | payload (56 bytes)                                  | tag        |
 *                                                            \ seq << 32 | sig
 *
 * seq is the number of the line in this pipe, 32 bits, counting from a seed;
 * sig names the operation that the line belongs to and is never 0.
 *
 * Timeline (one producer P, one consumer C, ring of n = 2^k lines in C's memory):
 *
 *     P: payload ... tag(release) ----.                 acked(acquire) -> reuse the slot
 *     C:          tag(acquire) <-----'  payload ... acked(release) --'
 *
 * Invariants
 *  - Only P writes lines, in seq order, at ring[seq % n]; only C writes `acked`, the number of
 *    the first line it still needs. P writes line s only if s - acked < n (unsigned).
 *  - A line is valid for C exactly when its seq half equals the number C expects and its sig half
 *    is not 0. The tag is stored after the payload (release) and loaded before it (acquire), so a
 *    valid tag implies a whole payload; 8-byte stores are single on every supported machine.
 *  - P's release of line s covers all its earlier lines: C may wait for the last of several only.
 *    (It should: a line polled before it is written goes back and forth between the caches.)
 *  - C learns of a peer that does something else from the same load: right seq, other sig.
 *
 * Wrap-around. A slot holds, before line s arrives, either line s - n or the zeroes of fresh
 * memory. s - n differs from s modulo 2^32 because 0 < n < 2^32, so an old lap is never valid;
 * a zero tag has sig 0, so fresh memory is not either, whatever seed is used. All comparisons are
 * unsigned differences; n divides 2^32, so ring positions continue smoothly across the wrap.
 *
 * Abort. Nothing to undo: a waiter just stops polling. Lines already written stay in memory that
 * both sides unmap. A pipe is never reset or reused by another communicator.
 */
#ifndef SOL_PROTO_LINE_H
#define SOL_PROTO_LINE_H

#include "base/base.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>

#define SOL_LINE_PAYLOAD 56u

typedef struct sol_line {
    alignas(SOL_CACHE_LINE) unsigned char payload[SOL_LINE_PAYLOAD];
    _Atomic uint64_t tag;
} sol_line_t;

/* The producer's end; private to it. */
typedef struct sol_line_out {
    sol_line_t *ring;
    const _Atomic uint32_t *acked; /* in the consumer's memory */
    uint32_t mask;                 /* n - 1 */
    uint32_t next;                 /* number of the next line to write */
    uint32_t limit;                /* first number that may not be written yet */
} sol_line_out_t;

/* The consumer's end; private to it. */
typedef struct sol_line_in {
    const sol_line_t *ring;
    _Atomic uint32_t *acked; /* in the consumer's memory */
    uint32_t mask;
    uint32_t next;  /* number of the next line to read */
    uint32_t told;  /* last value stored to *acked */
    uint32_t quota; /* lines read before the producer is told */
} sol_line_in_t;

typedef enum { SOL_LINE_EMPTY, SOL_LINE_VALID, SOL_LINE_OTHER } sol_line_state;

/* Lines that a message of `bytes` takes; an empty message is one line. */
static inline size_t sol_line_count(size_t bytes)
{
    return bytes <= SOL_LINE_PAYLOAD ? 1 : (bytes + SOL_LINE_PAYLOAD - 1) / SOL_LINE_PAYLOAD;
}

static inline void sol_line_out_init(sol_line_out_t *out, sol_line_t *ring, uint32_t lines,
                                     const _Atomic uint32_t *acked, uint32_t seed)
{
    *out = (sol_line_out_t){ring, acked, lines - 1, seed, seed + lines};
}

/* *acked must be `seed` before the producer first looks at it. */
static inline void sol_line_in_init(sol_line_in_t *in, const sol_line_t *ring, uint32_t lines,
                                    _Atomic uint32_t *acked, uint32_t seed)
{
    *in = (sol_line_in_t){ring, acked, lines - 1, seed, seed, lines / 8};
}

static inline uint64_t sol_line_tag(uint32_t seq, uint32_t sig)
{
    return (uint64_t)seq << 32 | sig;
}

/* Lines that may be written now. Looks at the consumer's memory only when fewer than `wanted` are
 * known to be free: that load costs a cache miss. */
static inline uint32_t sol_line_room(sol_line_out_t *out, uint32_t wanted)
{
    uint32_t room = out->limit - out->next;
    if (SOL_UNLIKELY(room < wanted)) {
        /* acquire: pairs with the release in sol_line_tell; the consumer has read the slot. */
        out->limit = atomic_load_explicit(out->acked, memory_order_acquire) + out->mask + 1;
        room = out->limit - out->next;
    }
    return room;
}

/* memcpy for 0..56 bytes: at most two overlapping moves of each width. */
static inline void sol_line_copy(unsigned char *dst, const unsigned char *src, size_t bytes)
{
    if (bytes >= 32) {
        memcpy(dst, src, 16);
        memcpy(dst + 16, src + 16, 16);
        if (bytes > 48) {
            memcpy(dst + 32, src + 32, 16);
        }
        memcpy(dst + bytes - 16, src + bytes - 16, 16);
    } else if (bytes >= 16) {
        memcpy(dst, src, 16);
        memcpy(dst + bytes - 16, src + bytes - 16, 16);
    } else if (bytes >= 8) {
        memcpy(dst, src, 8);
        memcpy(dst + bytes - 8, src + bytes - 8, 8);
    } else if (bytes >= 4) {
        memcpy(dst, src, 4);
        memcpy(dst + bytes - 4, src + bytes - 4, 4);
    } else if (bytes > 0) {
        dst[0] = src[0];
        dst[bytes / 2] = src[bytes / 2];
        dst[bytes - 1] = src[bytes - 1];
    }
}

/* Write one line. The caller has made sure of room. */
static inline void sol_line_push(sol_line_out_t *out, uint32_t sig, const void *src, size_t bytes)
{
    sol_line_t *line = &out->ring[out->next & out->mask];
    sol_line_copy(line->payload, (const unsigned char *)src, bytes);
    /* release: pairs with the acquire in sol_line_peek. */
    atomic_store_explicit(&line->tag, sol_line_tag(out->next, sig), memory_order_release);
    out->next++;
}

/* Bring the next line to write into this core, so that its store needs no round trip then. */
static inline void sol_line_warm(const sol_line_out_t *out, uint32_t ahead)
{
    __builtin_prefetch(&out->ring[(out->next + ahead) & out->mask], 1, 3);
}

/* Is the line `ahead` of the next one there (0: the next itself)? *tag is what its slot holds. As
 * the producer writes in order, a valid line means that all before it are whole too. */
static inline sol_line_state sol_line_peek(const sol_line_in_t *in, uint32_t ahead, uint32_t sig,
                                           uint64_t *tag)
{
    uint32_t seq = in->next + ahead;
    const sol_line_t *line = &in->ring[seq & in->mask];
    /* acquire: pairs with the release in sol_line_push. */
    *tag = atomic_load_explicit(&line->tag, memory_order_acquire);
    if (SOL_LIKELY(*tag == sol_line_tag(seq, sig))) {
        return SOL_LINE_VALID;
    }
    if ((uint32_t)(*tag >> 32) == seq && (uint32_t)*tag != 0) {
        return SOL_LINE_OTHER;
    }
    return SOL_LINE_EMPTY;
}

/* Payload of the line that peek found valid; it stays until sol_line_pop and a tell. */
static inline const unsigned char *sol_line_payload(const sol_line_in_t *in)
{
    return in->ring[in->next & in->mask].payload;
}

/* Begin to bring the next `count` lines here. */
static inline void sol_line_fetch(const sol_line_in_t *in, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        __builtin_prefetch(&in->ring[(in->next + i) & in->mask], 0, 3);
    }
}

static inline void sol_line_pop(sol_line_in_t *in)
{
    in->next++;
}

/* Payloads of `count` whole lines, then of one with `last` bytes, to dst; pops them all. The last
 * one was found valid. */
static inline void sol_line_unpack(sol_line_in_t *in, unsigned char *dst, uint32_t count,
                                   size_t last)
{
    for (; count > 0; count--, dst += SOL_LINE_PAYLOAD) {
        const unsigned char *payload = sol_line_payload(in);
        memcpy(dst, payload, 32);
        memcpy(dst + 32, payload + 32, 16);
        memcpy(dst + 48, payload + 48, 8);
        in->next++;
    }
    sol_line_copy(dst, sol_line_payload(in), last);
    in->next++;
}

/* Give the lines read so far back to the producer. */
static inline void sol_line_tell(sol_line_in_t *in)
{
    in->told = in->next;
    /* release: pairs with the acquire in sol_line_room. */
    atomic_store_explicit(in->acked, in->next, memory_order_release);
}

/* The same, when enough have gathered: the rest of a ring is always more than a message's most. */
static inline bool sol_line_tell_some(sol_line_in_t *in)
{
    if (SOL_LIKELY((uint32_t)(in->next - in->told) < in->quota)) {
        return false;
    }
    sol_line_tell(in);
    return true;
}

#endif
