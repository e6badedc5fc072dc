/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_barrier.pml: barriers of the device API (solccl/device/barrier.cuh): a token
 * from each rank to each, an epoch that only grows. Between barriers every rank
 * reads what its peers wrote before the last one, and writes what they read after
 * the next: so two barriers a round.
 *
 * What is modelled
 *  - A word that a rank writes for all (plain), and its tokens, each arriving when
 *    `link` likes. RELEASE: the word is home before the tokens are pushed.
 *  - Epochs modulo 8, compared by signed difference; -DSEED starts them anywhere.
 *  - Abort: at any time; a waiter then leaves.
 *
 * Properties: what is read is what was written before the barrier (assert), no
 * deadlock, every waiter leaves after an abort.
 *
 * Mutants (-DM_...), each of which must fail:
 *   M_NO_RELEASE    a token may overtake what was written before it
 *   M_EQUAL         a peer that is ahead already is waited for for ever
 *   M_UNSIGNED      epochs are compared as they are, not by their difference
 *   M_ONE_BARRIER   a round has one barrier: the next writes meet the reads
 *   M_WRONG_SLOT    a token in another rank's name
 *   M_ABORT_STUCK   a waiter that does not look at the abort word
 */
#ifndef N
#define N 2
#endif
#ifndef SEED
#define SEED 1
#endif
#define NUMBERS 8
#define ROUNDS 2

#define AT(d, s) ((d) * N + (s))
byte word[N]; /* of each rank, for all */
chan writes[N] = [1] of { byte };
byte token[N * N];
chan tokens[N * N] = [2] of { byte };
bool aborted;

#if defined(M_EQUAL)
#define COME(t, e) ((t) == (e))
#elif defined(M_UNSIGNED)
#define COME(t, e) ((t) >= (e))
#else
#define COME(t, e) (((t) + NUMBERS - (e)) % NUMBERS < NUMBERS / 2)
#endif
#ifdef M_WRONG_SLOT
#define NAME(r) (((r) + 1) % N)
#else
#define NAME(r) (r)
#endif

proctype store(byte r)
{
    byte v;
end:
    do
    :: atomic { writes[r] ? v -> word[r] = v; v = 0; }
    od
}

proctype link(byte c)
{
    byte v;
end:
    do
    :: atomic { tokens[c] ? v -> token[c] = v; v = 0; }
    od
}

inline sync()
{
#ifndef M_NO_RELEASE
    empty(writes[r]);
#endif
    i = 0;
    do
    :: i < N && i != r -> tokens[AT(i, NAME(r))] ! epoch; i++
    :: i < N && i == r -> i++
    :: i == N -> break
    od;
    i = 0;
    do
    :: i < N && i != r ->
        atomic {
            if
            :: COME(token[AT(r, i)], epoch)
#ifndef M_ABORT_STUCK
            :: aborted -> goto stopped;
#endif
            fi
        }
        i++
    :: i < N && i == r -> i++
    :: i == N -> break
    od;
    i = 0;
    epoch = (epoch + 1) % NUMBERS
}

proctype rank(byte r)
{
    byte i, round, epoch = SEED;
    do
    :: aborted -> break
    :: else ->
        writes[r] ! 1 + round;
        sync();
        i = 0;
        do
        :: i < N -> assert(i == r || word[i] == 1 + round); i++
        :: i == N -> break
        od;
        i = 0;
#ifndef M_ONE_BARRIER
        sync();
#endif
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
    byte i;
    atomic {
        for (i : 0 .. N * N - 1) {
            token[i] = (SEED + NUMBERS - 1) % NUMBERS;
            run link(i)
        }
        for (i : 0 .. N - 1) {
            run store(i);
            run rank(i)
        }
        run fate()
    }
}
