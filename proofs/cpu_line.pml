/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_line.pml: a pipe of self-validating lines with credits (src/proto/line.h),
 * one producer, one consumer, any number of lines.
 *
 * What is modelled
 *  - A ring of RING lines of two payload halves and a tag (seq, sig). The
 *    producer's halves are stored in either order (plain stores), the tag after
 *    them (release), the consumer's loads of the halves in either order after
 *    the tag's (acquire); `acked` is stored after those loads (release). What C11
 *    allows beyond that does not exist for this shape: the only data that
 *    travels does so through these two release/acquire pairs.
 *  - Sequence numbers modulo SEQS, SEQS a multiple of RING and more than it, as
 *    2^32 is of the ring's size; ring memory starts as zeroes and SEED may be 0.
 *  - The content of line k is k + 1 modulo GHOST (> SEQS), known to the model alone.
 *  - Abort: either side may stop at any time; the other must then leave.
 *
 * Mutants, each of which must fail:
 *   M_TAG_FIRST     the tag is stored before the payload
 *   M_ACK_EARLY     the slot is given back before it has been read
 *   M_ROOM          the producer believes in one line more than there is
 *   M_NO_SIG        fresh memory is not told from a line with number 0
 *   M_SEQ_IS_RING   as many numbers as lines: an old lap looks like the next
 *   M_ABORT_STUCK   a waiter that does not look at the abort word
 */
#define RING 2
#ifdef M_SEQ_IS_RING
#define SEQS 2
#else
#define SEQS 4
#endif
#define GHOST 8
#ifndef SEED
#define SEED 0
#endif

byte half0[RING], half1[RING]; /* ghost number of the line that wrote it */
byte tag_seq[RING], tag_sig[RING];
byte acked = SEED;
bool aborted;

#ifdef M_NO_SIG
#define VALID(s, i) (tag_seq[i] == s)
#else
#define VALID(s, i) (tag_seq[i] == s && tag_sig[i] != 0)
#endif
#ifdef M_ROOM
#define LINES (RING + 1)
#else
#define LINES RING
#endif

active proctype producer()
{
    byte next = SEED, content = 1, slot, known = SEED;
    do
    :: /* room: the cached credit first, then the consumer's word */
        do
        :: (next - known + SEQS) % SEQS < LINES -> break;
        :: (next - known + SEQS) % SEQS >= LINES ->
            if
            :: atomic { known != acked -> known = acked; }
#ifndef M_ABORT_STUCK
            :: aborted -> goto stopped;
#endif
            fi
        od;
        slot = next % RING;
#ifdef M_TAG_FIRST
        atomic { tag_seq[slot] = next; tag_sig[slot] = 1; }
#endif
        if
        :: half0[slot] = content; half1[slot] = content;
        :: half1[slot] = content; half0[slot] = content;
        fi;
#ifndef M_TAG_FIRST
        atomic { tag_seq[slot] = next; tag_sig[slot] = 1; }
#endif
        next = (next + 1) % SEQS;
        content = (content + 1) % GHOST;
    :: aborted = true; goto stopped;
    :: aborted -> goto stopped;
    od;
stopped:
    skip
}

active proctype consumer()
{
    byte next = SEED, expect = 1, slot;
    do
    :: slot = next % RING;
        if
        :: VALID(next, slot) -> skip;
#ifndef M_ABORT_STUCK
        :: aborted -> goto stopped;
#endif
        fi;
#ifdef M_ACK_EARLY
        acked = (next + 1) % SEQS;
#endif
        if
        :: assert(half0[slot] == expect); assert(half1[slot] == expect);
        :: assert(half1[slot] == expect); assert(half0[slot] == expect);
        fi;
        next = (next + 1) % SEQS;
        expect = (expect + 1) % GHOST;
#ifndef M_ACK_EARLY
        if
        :: acked = next;                              /* tell now ... */
        :: (next - acked + SEQS) % SEQS < RING -> skip; /* ... or when more have gathered */
        fi;
#endif
    :: aborted = true; goto stopped;
    :: aborted -> goto stopped;
    od;
stopped:
    skip
}
