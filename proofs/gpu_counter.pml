/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_counter.pml: puts and counters of the device API (solccl/device/onesided.cuh):
 * every rank puts a word to every peer, adds to the peer's counter, waits for all
 * its own to have come, reads, and says by another counter that it is done.
 *
 * What is modelled
 *  - A put is a plain store that arrives whenever `link` likes. sol_signal: the
 *    fence lets it arrive before the addition is made; the addition, too, takes its
 *    time, and additions of several ranks come in any order.
 *  - Counters modulo 8, compared by signed difference; -DSEED starts them anywhere.
 *  - Abort: at any time; a waiter then leaves.
 *
 * Properties: what is read is this round's, nothing is overwritten before it is read
 * (assert), no deadlock, every waiter leaves after an abort.
 *
 * Mutants (-DM_...), each of which must fail:
 *   M_NO_FENCE      the addition may overtake the put that it counts
 *   M_SIGNAL_FIRST  the addition is made before the put
 *   M_ONE_LESS      one message fewer is waited for
 *   M_NO_DONE       the next put does not wait for the reader
 *   M_STORE         the counter is set and not added to: two ranks' signals are one
 *   M_UNSIGNED      counters are compared as they are, not by their difference
 *   M_ABORT_STUCK   a waiter that does not look at the abort word
 */
#ifndef N
#define N 2
#endif
#ifndef SEED
#define SEED 0
#endif
#define NUMBERS 8
#define ROUNDS 2 /* told apart: a rank is at most one ahead */

#define AT(d, s) ((d) * N + (s))
byte word[N * N];
chan puts[N * N] = [1] of { byte };
bool unread[N * N]; /* ghost */
chan come_adds[N * N] = [2] of { byte };
chan done_adds[N * N] = [2] of { byte };
byte come[N], done[N];
bool aborted;

#ifdef M_UNSIGNED
#define REACHED(c, v) ((c) >= (v))
#else
#define REACHED(c, v) (((c) + NUMBERS - (v)) % NUMBERS < NUMBERS / 2)
#endif
#ifdef M_ONE_LESS
#define ALL (N - 2)
#else
#define ALL (N - 1)
#endif

proctype link(byte d, s)
{
    byte v;
end:
    do
    :: atomic {
        puts[AT(d, s)] ? v ->
        assert(!unread[AT(d, s)]);
        word[AT(d, s)] = v;
        unread[AT(d, s)] = true;
        v = 0;
      }
#ifdef M_STORE
    :: atomic { come_adds[AT(d, s)] ? v -> come[d] = v; v = 0; }
#else
    :: atomic { come_adds[AT(d, s)] ? v -> come[d] = (come[d] + 1) % NUMBERS; v = 0; }
#endif
    :: atomic { done_adds[AT(d, s)] ? v -> done[d] = (done[d] + 1) % NUMBERS; v = 0; }
    od
}

inline wait_for(counter, value)
{
    atomic {
        if
        :: REACHED(counter, value)
#ifndef M_ABORT_STUCK
        :: aborted -> goto stopped;
#endif
        fi
    }
}

inline signal(d)
{
#ifdef M_STORE
    come_adds[AT(d, r)] ! (seen + 1) % NUMBERS
#else
    come_adds[AT(d, r)] ! 1
#endif
}

proctype rank(byte r)
{
    byte i, round, seen = SEED, freed = SEED;
    do
    :: aborted -> break
    :: else ->
        i = 0;
        do
        :: i < N && i != r ->
#ifdef M_SIGNAL_FIRST
            signal(i);
            puts[AT(i, r)] ! 1 + round;
#else
            puts[AT(i, r)] ! 1 + round;
#ifndef M_NO_FENCE
            empty(puts[AT(i, r)]); /* the fence of sol_counter_add */
#endif
            signal(i);
#endif
            i++
        :: i < N && i == r -> i++
        :: i == N -> break
        od;
        wait_for(come[r], (seen + ALL) % NUMBERS);
        seen = (seen + N - 1) % NUMBERS;
        i = 0;
        do
        :: i < N && i != r ->
            atomic {
                assert(word[AT(r, i)] == 1 + round && unread[AT(r, i)]);
                unread[AT(r, i)] = false;
            }
            done_adds[AT(i, r)] ! 1;
            i++
        :: i < N && i == r -> i++
        :: i == N -> break
        od;
#ifndef M_NO_DONE
        wait_for(done[r], (freed + N - 1) % NUMBERS);
#endif
        freed = (freed + N - 1) % NUMBERS;
        i = 0;
        round = (round + 1) % ROUNDS
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
    byte i, k;
    atomic {
        for (i : 0 .. N - 1) {
            come[i] = SEED;
            done[i] = SEED;
        }
        for (i : 0 .. N - 1) {
            for (k : 0 .. N - 1) {
                if
                :: i != k -> run link(i, k)
                :: else
                fi
            }
            run rank(i)
        }
        run fate()
    }
}
