/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_lane.pml: a lane of GPU ranks (src/proto/gpu_lanes.h): a ring of DEPTH chunks
 * of marked words, with credits. One direction of one pair: lanes share nothing.
 *
 * What is modelled
 *  - A chunk is two words, which arrive whenever `link` likes, in any order. The
 *    receiver takes a word when it is no mark, and puts the mark back; that store,
 *    too, takes its time.
 *  - The fence before the credit: the receiver's resets of the chunk are home
 *    before it is pushed. The credit itself is a word that arrives when it likes.
 *  - Counters are numbers modulo 8, compared by signed difference; -DSEED starts
 *    them anywhere.
 *  - Abort: at any time; a waiter then leaves.
 *
 * Properties: no stale and no lost word, no overwrite of unread or unreset words
 * (assert), no deadlock, every waiter leaves after an abort.
 *
 * Mutants (-DM_...), each of which must fail:
 *   M_NO_FENCE      the credit may overtake the resets that it speaks of
 *   M_CREDIT_EARLY  the credit is given before the chunk is taken
 *   M_ROOM          the sender thinks the ring has one chunk more
 *   M_UNSIGNED      counters are compared as they are, not by their difference
 *   M_NO_RESET      the receiver does not make the words empty again
 *   M_HALF          one word of two is waited for
 *   M_ABORT_STUCK   a waiter that does not look at the abort word
 */
#define DEPTH 2
#define WORDS 2
#define NUMBERS 8
#ifndef SEED
#define SEED 0
#endif
#define MARK 0
#define VALUE(s, w) (1 + (s) * WORDS + (w))
#define CELL(s, w) (((s) % DEPTH) * WORDS + (w))
#define CELLS (DEPTH * WORDS)

byte word[CELLS];
chan flight[CELLS] = [2] of { byte };
chan resets[CELLS] = [2] of { byte };
bool unread[CELLS]; /* ghost: holds data that its owner has not taken */
byte credit = SEED; /* at the sender */
chan credits = [4] of { byte };
bool aborted;

#ifdef M_ROOM
#define ROOM (DEPTH + 1)
#else
#define ROOM DEPTH
#endif
#ifdef M_UNSIGNED
#define MAY_PUSH(s) (credit + ROOM > (s))
#else /* (int)(credit + ROOM - s) > 0, in three bits */
#define DIFFERENCE(s) ((credit + ROOM + NUMBERS - (s)) % NUMBERS)
#define MAY_PUSH(s) (DIFFERENCE(s) > 0 && DIFFERENCE(s) < NUMBERS / 2)
#endif

proctype link(byte c)
{
    byte v;
end:
    do
    :: atomic {
        flight[c] ? v ->
        assert(!unread[c] && word[c] == MARK);
        word[c] = v;
        unread[c] = true;
        v = 0;
      }
    :: atomic { resets[c] ? v -> word[c] = MARK; v = 0; }
    od
}

/* In order: one thread's stores to one word. */
proctype back()
{
    byte v;
end:
    do
    :: atomic { credits ? v -> credit = v; v = 0; }
    od
}

proctype sender()
{
    byte s = SEED;
    do
    :: aborted -> break
    :: else ->
        atomic {
            if
            :: MAY_PUSH(s)
#ifndef M_ABORT_STUCK
            :: aborted -> goto stopped;
#endif
            fi
        }
        flight[CELL(s, 0)] ! VALUE(s, 0);
        flight[CELL(s, 1)] ! VALUE(s, 1);
        s = (s + 1) % NUMBERS
    od;
stopped:
    skip
}

inline take(s, w)
{
    atomic {
        if
        :: word[CELL(s, w)] != MARK && unread[CELL(s, w)] ->
            assert(word[CELL(s, w)] == VALUE(s, w));
            unread[CELL(s, w)] = false;
#ifndef M_NO_RESET
            resets[CELL(s, w)] ! MARK;
#endif
        :: word[CELL(s, w)] != MARK && !unread[CELL(s, w)] && empty(resets[CELL(s, w)]) ->
            assert(false); /* takes what it has taken before */
#ifndef M_ABORT_STUCK
        :: aborted -> goto stopped;
#endif
        fi
    }
}

inline give(s)
{
#ifndef M_NO_FENCE
    empty(resets[CELL(s, 0)]) && empty(resets[CELL(s, 1)]);
#endif
    credits ! (s + 1) % NUMBERS
}

proctype receiver()
{
    byte s = SEED;
    do
    :: aborted -> break
    :: else ->
#ifdef M_CREDIT_EARLY
        give(s);
#endif
        take(s, 0);
#ifndef M_HALF
        take(s, 1);
#endif
#ifndef M_CREDIT_EARLY
        give(s);
#endif
        s = (s + 1) % NUMBERS
    od;
stopped:
    skip
}

proctype fate()
{
    if
    :: aborted = true
    :: skip
    fi
}

init
{
    byte i;
    atomic {
        for (i : 0 .. CELLS - 1) {
            run link(i)
        }
        run back();
        run sender();
        run receiver();
        run fate()
    }
}
