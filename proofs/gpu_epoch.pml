/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_epoch.pml: self-validating words in two parities, without a barrier
 * (src/proto/gpu_epoch.h, include/solccl/device/gpu_word.h), for N ranks and any number of
 * collectives.
 *
 * What is modelled
 *  - One word per (source, parity) in each rank's staging; more words are
 *    independent copies of it.
 *  - A relaxed store leaves its rank at once and arrives whenever `link` likes,
 *    in any order except to the same word from the same rank (PTX: coherence).
 *    The reset of a word is such a store too.
 *  - A kernel ends when its stores have arrived: what griddepcontrol.wait and
 *    stream order give to the next kernel.
 *  - The escape word (ESC) of the same slot: a payload equal to the mark.
 *  - Abort: at any time one rank may stop. The others may then wait for ever in
 *    this model; in the library the timeout ends their waits. So a waiter also
 *    has the exit `aborted`.
 * -DNO_ESCAPE leaves the escape words out (the state space of 3 ranks is large).
 * Epochs are counted modulo 4: more than the 2 that may be in flight, so an old
 * word is told from a new one by the assertion, never by the protocol.
 *
 * Properties: no stale and no lost word (assert), no overwrite of unread data
 * (assert), no deadlock (no invalid end state), every waiter leaves after an abort.
 *
 * Mutants (-DM_...), each of which must fail:
 *   M_ONE_PARITY    one buffer too few
 *   M_NO_RESET      the reader does not make the slot empty again
 *   M_NO_WAIT       the next kernel starts before this one's stores have arrived
 *   M_NO_TOKEN      an operation in which rank 0 hears nothing from the others (rule R broken)
 *   M_ESCAPE_TAG    the escape word is taken without comparing its epoch
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

#define MARK 0 /* empty */
#define ESC 1  /* "look into the escape word" */
#define VALUE(e, s) (2 + (e) * N + (s))

/* word and escape of rank d, parity p, source s */
#define CELL(d, p, s) (((d) * 2 + (p)) * N + (s))
#define CELLS (N * 2 * N)
byte word[CELLS];
byte escape[CELLS]; /* 0, or 1 + epoch */
/* stores on their way: to the word by its source, by its owner (reset), and to the escape */
chan flight[CELLS] = [2] of { byte };
chan resets[CELLS] = [2] of { byte };
chan escapes[CELLS] = [2] of { byte };
bool unread[CELLS]; /* ghost: holds data that its owner has not taken */
bool aborted;

#define QUIET(r, s) (empty(flight[CELL(s, 0, r)]) && empty(flight[CELL(s, 1, r)]) && \
                     empty(escapes[CELL(s, 0, r)]) && empty(escapes[CELL(s, 1, r)]) && \
                     empty(resets[CELL(r, 0, s)]) && empty(resets[CELL(r, 1, s)]))

/* Delivers the stores to one cell. */
proctype link(byte c)
{
    byte v;
end:
    do
    :: atomic {
        flight[c] ? v ->
        assert(!unread[c]); /* would overwrite data that nobody has read */
        assert(word[c] == MARK);
        word[c] = v;
        unread[c] = true;
        v = 0;
      }
    :: atomic { resets[c] ? v -> word[c] = MARK; v = 0; }
#ifndef NO_ESCAPE
    :: atomic { escapes[c] ? v -> escape[c] = v; v = 0; }
#endif
    od
}

inline push(r, d, e)
{
    atomic {
        if
        :: flight[CELL(d, PARITY(e), r)] ! VALUE(e, r);
#ifndef NO_ESCAPE
        :: escapes[CELL(d, PARITY(e), r)] ! 1 + e;
           flight[CELL(d, PARITY(e), r)] ! ESC; /* the payload is the mark */
#endif
        fi
    }
}

inline take(r, s, e)
{
    atomic {
        if
        :: word[CELL(r, PARITY(e), s)] != MARK &&
           (word[CELL(r, PARITY(e), s)] != ESC
#ifdef M_ESCAPE_TAG
            || escape[CELL(r, PARITY(e), s)] != 0
#else
            || escape[CELL(r, PARITY(e), s)] == 1 + e
#endif
           ) ->
            assert(word[CELL(r, PARITY(e), s)] == VALUE(e, s) ||
                   (word[CELL(r, PARITY(e), s)] == ESC &&
                    escape[CELL(r, PARITY(e), s)] == 1 + e));
            unread[CELL(r, PARITY(e), s)] = false;
#ifndef M_NO_RESET
            resets[CELL(r, PARITY(e), s)] ! MARK;
#endif
#ifndef M_ABORT_STUCK
        :: aborted -> goto stopped;
#endif
        fi
    }
}

proctype rank(byte r)
{
    byte e = 1;
    byte s;
    do
    :: /* one kernel: all pushes before the first poll, peers in any fixed order */
        s = 0;
        do
        :: s < N && s != r -> push(r, s, e); s++;
        :: s == r -> s++;
        :: s >= N -> break;
        od;
        s = 0;
        do
        :: s < N && s != r ->
#ifdef M_NO_TOKEN
            if
            :: r == 0 -> skip; /* the root of a broadcast without tokens: it hears nobody ... */
               atomic { if :: word[CELL(r, PARITY(e), s)] != MARK -> unread[CELL(r, PARITY(e), s)] = false;
                              resets[CELL(r, PARITY(e), s)] ! MARK;
                           :: word[CELL(r, PARITY(e), s)] == MARK -> skip; fi }
            :: else -> take(r, s, e);
            fi;
#else
            take(r, s, e);
#endif
            s++;
        :: s == r -> s++;
        :: s >= N -> break;
        od;
        s = 0;
#ifndef M_NO_WAIT
        /* the end of the kernel: its stores have arrived */
        do
        :: s < N && s != r && QUIET(r, s) -> s++;
        :: s == r -> s++;
        :: s >= N -> break;
        od;
        s = 0;
#endif
        e = (e + 1) % EPOCHS;
    :: atomic { !aborted -> aborted = true; goto stopped; } /* abort, at any moment between kernels */
    :: atomic { aborted -> goto stopped; }
    od;
stopped:
    skip
}

init {
    atomic {
        byte i = 0;
        byte j = 0;
        do
        :: i < N -> run rank(i); i++;
        :: else -> break;
        od;
        i = 0;
        do
        :: i < N && j < N ->
            if
            :: i != j -> run link(CELL(i, 0, j)); run link(CELL(i, 1, j));
            :: else -> skip;
            fi;
            j++;
        :: i < N && j == N -> j = 0; i++;
        :: i == N -> break;
        od
    }
}
