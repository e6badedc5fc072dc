/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cell.h: four cells from one rank to another, for small messages between ranks
 * that answer each other. Beside the pipe of line.h, never in place of it: a
 * message goes by a cell if the producer knows that one is free, else by the
 * pipe. It never waits, never calls the system and knows nothing of operations.
 *
 * Layout of a cell (in the consumer's memory, 64-aligned, 64 + capacity bytes):
 *
 *     0                             48      52      56           64
 *     | message of up to 48 bytes   | line  | heard | tag        | message of more than that ...
 *                                                     \ seq << 32 | sig
 *
 * seq is the number of the message among those in cells, from a seed; it lies in
 * cell seq % 4. sig names the operation and is never 0. heard is the number of
 * the first message in the cells of the other direction that the producer still
 * needs. line is the number of the next line of the pipe when this was written.
 *
 * Why beside the pipe: a pipe's lines come round after kilobytes. A few cells in
 * turn stay in the first-level caches of both sides, data lies behind its flag,
 * and no counter has to be fetched from the other side: the answer brings it.
 * Both sides may ask for lines ahead or send them on (sol_cell_own, sol_cell_fetch,
 * sol_cell_demote); that moves copies between caches and nothing else.
 *
 *     P: message, line, heard ... tag(release) --.
 *     C:           tag(acquire) <----------------'  message ...  its own message, heard = seq + 1
 * --. P:                                          tag(acquire)
 * <------------------------------------' the cell of seq is free
 *
 * Invariants
 *  - P writes message s only if s - seen < 4, where seen is the largest `heard` that it read: C
 *    has read s - 4 before it wrote that.
 *  - One order over both ways. A cell is C's next message only if `line` is the number of the line
 *    that C expects: all lines before it have been read. A line is C's next message only if, looked
 *    at again after the line was seen, the next cell is not: P's release of the line covers what
 *    it wrote to cells before.
 *  - A tag's sig is never 0, so fresh zeroes are no message; a cell holds s - 4 or zeroes before s,
 *    and s - 4 differs from s modulo 2^32. Numbers are 32 bits and wrap; 4 divides 2^32.
 *
 * Abort: nothing to undo, as in line.h.
 */
#ifndef SOL_PROTO_CELL_H
#define SOL_PROTO_CELL_H

#include "proto/line.h"

#define SOL_CELL_INLINE 48u
#define SOL_CELLS 4u /* a power of two */

typedef struct sol_cell {
    alignas(SOL_CACHE_LINE) unsigned char inlined[SOL_CELL_INLINE];
    uint32_t line, heard;
    _Atomic uint64_t tag;
    unsigned char body[]; /* `capacity` bytes */
} sol_cell_t;

/* The producer's end; private to it. */
typedef struct sol_cells_out {
    unsigned char *base;
    size_t stride;
    uint32_t next; /* number of the next message to write */
    uint32_t seen; /* first number that the consumer may still need */
} sol_cells_out_t;

/* The consumer's end; private to it. */
typedef struct sol_cells_in {
    unsigned char *base;
    size_t stride;
    uint32_t next; /* number of the next message to read */
} sol_cells_in_t;

/* Bytes of the cells of one direction. */
static inline size_t sol_cells_bytes(size_t capacity)
{
    return SOL_CELLS * (sizeof(sol_cell_t) + capacity);
}

static inline void sol_cells_out_init(sol_cells_out_t *out, void *base, size_t capacity,
                                      uint32_t seed)
{
    *out = (sol_cells_out_t){(unsigned char *)base, sizeof(sol_cell_t) + capacity, seed, seed};
}

static inline void sol_cells_in_init(sol_cells_in_t *in, void *base, size_t capacity, uint32_t seed)
{
    *in = (sol_cells_in_t){(unsigned char *)base, sizeof(sol_cell_t) + capacity, seed};
}

static inline sol_cell_t *sol_cell_at(unsigned char *base, size_t stride, uint32_t seq)
{
    return (sol_cell_t *)(void *)(base + stride * (seq % SOL_CELLS));
}

/* May a message be written now? */
static inline bool sol_cells_room(const sol_cells_out_t *out)
{
    return out->next - out->seen < SOL_CELLS;
}

/* Where the message of `bytes` goes; the caller has made sure of room, writes it, then pushes. */
static inline unsigned char *sol_cell_payload(sol_cell_t *cell, size_t bytes)
{
    return bytes <= SOL_CELL_INLINE ? cell->inlined : cell->body;
}

static inline sol_cell_t *sol_cell_open(const sol_cells_out_t *out)
{
    return sol_cell_at(out->base, out->stride, out->next);
}

/* Begin to send the body of the message that was written on towards the consumer. */
static inline void sol_cell_demote(const sol_cells_out_t *out, size_t bytes)
{
    const sol_cell_t *cell = sol_cell_open(out);
    for (size_t at = 0; at < bytes && bytes > SOL_CELL_INLINE; at += SOL_CACHE_LINE) {
        sol_demote(cell->body + at);
    }
}

/* `line`: the pipe's next number; `heard`: the next number of the cells of the other direction. */
static inline void sol_cell_push(sol_cells_out_t *out, uint32_t sig, uint32_t line, uint32_t heard)
{
    sol_cell_t *cell = sol_cell_open(out);
    cell->line = line;
    cell->heard = heard;
    /* release: pairs with the acquire in sol_cell_peek. */
    atomic_store_explicit(&cell->tag, sol_line_tag(out->next, sig), memory_order_release);
    out->next++;
}

/* Begin to bring the cell of the next message here for writing, if the consumer has read it;
 * `bytes` of message are expected. */
static inline void sol_cell_own(const sol_cells_out_t *out, size_t bytes)
{
    if (sol_cells_room(out)) {
        const sol_cell_t *cell = sol_cell_open(out);
        sol_prefetch_write(cell);
        for (size_t at = 0; at < bytes && bytes > SOL_CELL_INLINE; at += SOL_CACHE_LINE) {
            sol_prefetch_write(cell->body + at);
        }
    }
}

/* Begin to bring the lines behind the flag of the next message here. */
static inline void sol_cell_fetch(const sol_cells_in_t *in, size_t bytes)
{
    const sol_cell_t *cell = sol_cell_at(in->base, in->stride, in->next);
    for (size_t at = 0; at < bytes && bytes > SOL_CELL_INLINE; at += SOL_CACHE_LINE) {
        __builtin_prefetch(cell->body + at, 0, 3);
    }
}

/* Is the next message in a cell, given that the next line of the pipe is number `line`? *tag is
 * what the cell holds. */
static inline sol_line_state sol_cell_peek(const sol_cells_in_t *in, uint32_t line, uint32_t sig,
                                           uint64_t *tag)
{
    const sol_cell_t *cell = sol_cell_at(in->base, in->stride, in->next);
    /* acquire: pairs with the release in sol_cell_push. */
    *tag = atomic_load_explicit(&cell->tag, memory_order_acquire);
    if ((uint32_t)(*tag >> 32) != in->next || (uint32_t)*tag == 0 || cell->line != line) {
        return SOL_LINE_EMPTY;
    }
    return (uint32_t)*tag == sig ? SOL_LINE_VALID : SOL_LINE_OTHER;
}

/* The message that peek found; it stays until sol_cell_pop and the next push the other way. */
static inline const unsigned char *sol_cell_read(const sol_cells_in_t *in, size_t bytes)
{
    return sol_cell_payload(sol_cell_at(in->base, in->stride, in->next), bytes);
}

/* What the message that peek found says of the other direction. */
static inline void sol_cell_hear(const sol_cells_in_t *in, sol_cells_out_t *back)
{
    uint32_t heard = sol_cell_at(in->base, in->stride, in->next)->heard;
    if ((int32_t)(heard - back->seen) > 0) {
        back->seen = heard;
    }
}

static inline void sol_cell_pop(sol_cells_in_t *in)
{
    in->next++;
}

#endif
