/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_session.pml: many epochs of a session in one kernel (solccl/device/
 * session.cuh), for N ranks, of a group that acts as one thread. -DWORD: marks that
 * the reader puts back; otherwise TAG: words that carry their epoch.
 *
 * What is modelled
 *  - One word per (source, parity) in each rank's slots. A relaxed store arrives
 *    whenever `link` likes, in any order except to one word from one rank.
 *  - sol_session_next of a WORD channel: its fences put the resets before the
 *    pushes that follow. (Cumulativity: later stores of the group arrive after them,
 *    so it is enough here to let the resets arrive first.) Of a TAG channel: nothing.
 *  - Rule R: an epoch ends when something of it has come from every peer.
 *  - Abort: at any time; a waiter then leaves.
 * Epochs are counted modulo 4, so that an old word is told from a new one by the
 * assertion. TAG words compare all of it, as 32 bits do between two scrubbings.
 *
 * Properties: no stale and no lost word, no overwrite of unread data (assert), no
 * deadlock, every waiter leaves after an abort.
 *
 * Mutants (-DM_...), each of which must fail:
 *   M_ONE_PARITY    one buffer too few
 *   M_NO_R          rank 0 does not wait for the last rank's word
 *   M_ANY_TAG       TAG: a word of any epoch is taken
 *   M_NO_FENCE      WORD: the next epoch's pushes may overtake the resets
 *   M_NO_RESET      WORD: the reader does not make the slot empty again
 *   M_ABORT_STUCK   a waiter that does not look at the abort word
 */
#ifndef N
#define N 2
#endif
#define EPOCHS 4
#ifdef M_ONE_PARITY
#define PARITY(e) 0
#else
#define PARITY(e) ((e) % 2)
#endif

#define MARK 0
#define VALUE(e, s) (1 + (e) * N + (s))
#define TAG(v) (((v) - 1) / N)

#define CELL(d, p, s) (((d) * 2 + (p)) * N + (s))
#define CELLS (N * 2 * N)
byte word[CELLS];
chan flight[CELLS] = [2] of { byte };
chan resets[CELLS] = [2] of { byte };
bool unread[CELLS]; /* ghost: holds data that its owner has not taken */
bool aborted;

#define HOME(r, s) (empty(resets[CELL(r, 0, s)]) && empty(resets[CELL(r, 1, s)]))

/* Delivers the stores to one cell. */
proctype link(byte c)
{
    byte v;
end:
    do
    :: atomic {
        flight[c] ? v ->
        assert(!unread[c]); /* would overwrite data that nobody has read */
#ifdef WORD
        assert(word[c] == MARK);
#endif
        word[c] = v;
        unread[c] = true;
        v = 0;
      }
#ifdef WORD
    :: atomic { resets[c] ? v -> word[c] = MARK; v = 0; }
#endif
    od
}

#ifdef WORD
#define COME(r, s, e) (word[CELL(r, PARITY(e), s)] != MARK)
#else
#ifdef M_ANY_TAG
#define COME(r, s, e) (word[CELL(r, PARITY(e), s)] != MARK)
#else
#define COME(r, s, e) (word[CELL(r, PARITY(e), s)] != MARK && TAG(word[CELL(r, PARITY(e), s)]) == (e))
#endif
#endif

inline take(r, s, e)
{
    atomic {
        if
        :: COME(r, s, e) ->
            assert(word[CELL(r, PARITY(e), s)] == VALUE(e, s));
            unread[CELL(r, PARITY(e), s)] = false;
#ifdef WORD
#ifndef M_NO_RESET
            resets[CELL(r, PARITY(e), s)] ! MARK;
#endif
#endif
#ifndef M_ABORT_STUCK
        :: aborted -> goto stopped;
#endif
        fi
    }
}

proctype rank(byte r)
{
    byte e, s;
    do
    :: aborted -> break
    :: else ->
        s = 0;
        do /* push */
        :: s < N && s != r -> flight[CELL(s, PARITY(e), r)] ! VALUE(e, r); s++
        :: s < N && s == r -> s++
        :: s == N -> break
        od;
        s = 0;
        do /* receive */
#ifdef M_NO_R
        :: s < N && (s == r || (r == 0 && s == N - 1)) -> s++
        :: s < N && !(s == r || (r == 0 && s == N - 1)) -> take(r, s, e); s++
#else
        :: s < N && s == r -> s++
        :: s < N && s != r -> take(r, s, e); s++
#endif
        :: s == N -> break
        od;
#ifdef WORD
#ifndef M_NO_FENCE
        s = 0;
        do /* the fences of sol_session_next */
        :: s < N -> HOME(r, s); s++
        :: s == N -> break
        od;
#endif
#endif
        s = 0;
        e = (e + 1) % EPOCHS
    od;
stopped:
    skip
}

/* One rank gives up at some moment; the others see it. */
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
        for (i : 0 .. N - 1) {
            run rank(i)
        }
        run fate()
    }
}
