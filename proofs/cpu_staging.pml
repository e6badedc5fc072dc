/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_staging.pml: large slots that one owner shows to any subset of READERS
 * readers (src/proto/staging.h), CHUNKS chunks, each for readers chosen
 * at random. The announcement is a pipe of lines, proved in cpu_line.pml and
 * modelled here as a channel.
 *
 * The numbers are 64 bits wide and never wrap (a reader may be left out for any
 * number of chunks, so numbers that did wrap soon would be wrong: this model
 * found that when they did). Here they end at CHUNKS, over three times SLOTS.
 *
 * What the owner knows of a reader is `seen`: loaded from its `done`, or heard in a line of that
 * reader's (sol_staging_heard), here a word that the reader writes and the owner may take at any
 * later time.
 *
 * Mutants, each of which must fail:
 *   M_NO_WAIT       a slot is refilled without asking its readers
 *   M_ONE_READER    ... after asking only one of them
 *   M_DONE_EARLY    a reader reports before it has read
 *   M_HEARD_EARLY   ... in a line of its own
 *   M_WAIT_ALL      the owner also waits for ranks that were not told (deadlock)
 *   M_ABORT_STUCK   a waiter that does not look at the abort word
 */
#define READERS 2
#define SLOTS 2
#define CHUNKS 7

byte content[SLOTS];
chan announce[READERS] = [2] of { byte };
byte below[READERS]; /* `done` of each reader: number of the first chunk not read */
byte said[READERS];  /* the same, in the last line that it sent to the owner */
byte seen[READERS];  /* what the owner knows of it */
bool aborted, finished;

#define IS_READ(d, c) (d > c)

#define MAY_REFILL(r) (((told[slot] >> r) & 1) == 0 || IS_READ(seen[r], chunk[slot]))
#ifdef M_WAIT_ALL
#define FREE (next < SLOTS || (IS_READ(seen[0], chunk[slot]) && IS_READ(seen[1], chunk[slot])))
#else
#ifdef M_ONE_READER
#define FREE MAY_REFILL(0)
#else
#define FREE (MAY_REFILL(0) && MAY_REFILL(1))
#endif
#endif

/* Only what changes something: the owner waits for news. */
#define LOOK(r) atomic { seen[r] < below[r] -> seen[r] = below[r]; }
#define HEAR(r) atomic { seen[r] < said[r] -> seen[r] = said[r]; }

active proctype owner()
{
    byte next = 0, slot, told[SLOTS], chunk[SLOTS], set;
    do
    :: next == CHUNKS -> finished = true; break;
    :: next < CHUNKS ->
        slot = next % SLOTS;
#ifndef M_NO_WAIT
        do
        :: FREE -> break;
        :: LOOK(0);
        :: LOOK(1);
        :: HEAR(0);
        :: HEAR(1);
#ifndef M_ABORT_STUCK
        :: aborted -> goto stopped;
#endif
        od;
#endif
        if
        :: set = 1;
        :: set = 2;
        :: set = 3;
        fi;
        chunk[slot] = next;
        told[slot] = set;
        content[slot] = next;
        if
        :: (set & 1) ->
            if
            :: announce[0] ! next;
#ifndef M_ABORT_STUCK
            :: aborted -> goto stopped;
#endif
            fi
        :: else -> skip;
        fi;
        if
        :: (set & 2) ->
            if
            :: announce[1] ! next;
#ifndef M_ABORT_STUCK
            :: aborted -> goto stopped;
#endif
            fi
        :: else -> skip;
        fi;
        next++;
    :: aborted = true; goto stopped;
    :: aborted -> goto stopped;
    od;
stopped:
    skip
}

proctype reader(byte r)
{
    byte c;
    do
    :: finished && empty(announce[r]) -> break;
    :: announce[r] ? c;
#ifdef M_DONE_EARLY
        below[r] = c + 1;
#endif
#ifdef M_HEARD_EARLY
        said[r] = c + 1;
#endif
        assert(content[c % SLOTS] == c);
        assert(content[c % SLOTS] == c); /* still, at the end of the read */
#ifndef M_DONE_EARLY
        below[r] = c + 1;
#endif
        if
        :: said[r] = below[r]; /* a line to the owner ... */
        :: skip;               /* ... or none, this time */
        fi;
#ifndef M_ABORT_STUCK
    :: aborted -> goto stopped;
#endif
    od;
stopped:
    skip
}

init {
    atomic { run reader(0); run reader(1); }
}
