/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_word.h: 64-bit words that carry their own arrival ("the data is the
 * flag"), for any bit pattern of data, at the cost of no extra byte on the link.
 *
 * Overview. A slot of staging is EMPTY: every word of it holds the mark. The
 * sender stores data over it; the reader polls until a word is no longer the
 * mark, uses it, and stores the mark back. No flag, no fence, no barrier.
 *
 * The one pattern that cannot be sent so is the mark itself. It is escaped: a
 * word that is MARK or ESCAPE (= MARK + 1) is sent as ESCAPE, and which of the
 * two it was goes into the escape word of its vector (two words, 16 bytes):
 *
 *     escape word = epoch << 2 | bit of second word << 1 | bit of first word
 *
 * where a bit is 0 for MARK and 1 for ESCAPE. A reader that finds ESCAPE waits
 * until the escape word carries the present epoch. So a sender pays one compare
 * of a word's high half; data that is full of marks costs half as much traffic
 * again and is right.
 *
 * Memory model (PTX ISA, "memory consistency model"). Only the single-copy
 * atomicity of aligned 64-bit accesses is used: a 16-byte vector access is two
 * of them in any order, and each word is validated by itself. Both sides use
 * relaxed accesses of system scope, so there is no race. Nothing is published
 * by a word but itself: no fence is needed.
 *
 * Wrap-around. The mark does not depend on the epoch. Escape words do: an old
 * one is mistaken for the present one only 2^62 epochs later, which at one a
 * microsecond is 146,000 years. The reset of a slot happens before the next
 * push into it; see gpu_epoch.h for why.
 *
 * Abort. A rank that gives up leaves words behind in its peers' slots and marks
 * unset in its own: the communicator cannot be used again.
 */
#ifndef SOL_DEVICE_GPU_WORD_H
#define SOL_DEVICE_GPU_WORD_H

#include <stdint.h>

/* A signalling NaN as fp64, and a mixture of lanes that no constant array holds: rare in real data.
 * Bit 0 is clear. */
#define SOL_WORD_MARK 0x7ff4a5c3965ae1d2ull
#define SOL_WORD_ESCAPE (SOL_WORD_MARK | 1)
#define SOL_WORD_HIGH ((uint32_t)(SOL_WORD_MARK >> 32))

#endif
