/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu_cell.pml: CELLS cells beside a pipe (src/proto/cell.h): one producer, which
 * sends each message by a cell or by the pipe as it likes, one consumer, any
 * number of messages.
 *
 * What is modelled
 *  - Cells of two halves, the number of the next line and a tag. The halves are stored in either
 *    order (plain stores), the tag after them (release), and loaded after the tag's
 *    load (acquire).
 *  - The pipe is proved in cpu_line.pml: here a channel, whose lines are counted modulo LINES.
 *  - The consumer looks at the cell, then at the pipe, then at the cell again, as
 *    sol_shm_find_message does; the producer may act between the looks.
 *  - `said` is the consumer's heard in its last message the other way; the producer may read it
 *    at any later time. Numbers of cells are modulo SEQS; SEED may be 0 in zeroed memory.
 *  - The content of message k is k + 1 modulo GHOST, known to the model alone.
 *  - Abort: either side may stop at any time; the other must then leave.
 *
 * Mutants, each of which must fail:
 *   M_NO_LINE       a cell is taken without comparing the number of the next line
 *   M_NO_AGAIN      a line is taken without a second look at the cell
 *   M_ROOM          a cell is written without knowing that it was read
 *   M_HEARD_EARLY   the consumer says that it has read what it is about to read
 *   M_TAG_FIRST     the tag is stored before the message
 *   M_NO_SIG        fresh memory is not told from a message with number 0
 *   M_ABORT_STUCK   a waiter that does not look at the abort word
 */
#define CELLS 2
#define SEQS 4
#define PIPE 1
#define LINES 2
#define GHOST 5
#ifndef SEED
#define SEED 0
#endif

byte half0[CELLS], half1[CELLS], at_line[CELLS], tag_seq[CELLS], tag_sig[CELLS];
chan pipe = [PIPE] of { byte };
byte said = SEED;
bool aborted;

#ifdef M_ROOM
#define ROOM (true)
#else
#define ROOM ((next - seen + SEQS) % SEQS < CELLS)
#endif
#ifdef M_NO_SIG
#define TAGGED (tag_seq[read % CELLS] == read)
#else
#define TAGGED (tag_seq[read % CELLS] == read && tag_sig[read % CELLS] != 0)
#endif
#ifdef M_NO_LINE
#define IN_CELL (TAGGED)
#else
#define IN_CELL (TAGGED && at_line[read % CELLS] == line)
#endif

active proctype producer()
{
    byte next = SEED, seen = SEED, line = 0, content = 1, slot;
    do
    :: atomic { seen != said -> seen = said; }
    :: ROOM -> /* by a cell */
        slot = next % CELLS;
#ifdef M_TAG_FIRST
        atomic { at_line[slot] = line; tag_seq[slot] = next; tag_sig[slot] = 1; }
#endif
        if
        :: half0[slot] = content; half1[slot] = content;
        :: half1[slot] = content; half0[slot] = content;
        fi;
#ifndef M_TAG_FIRST
        atomic { at_line[slot] = line; tag_seq[slot] = next; tag_sig[slot] = 1; }
#endif
        atomic { next = (next + 1) % SEQS; content = (content + 1) % GHOST; slot = 0; }
    :: atomic { nfull(pipe) -> /* by the pipe */
        pipe ! content;
        line = (line + 1) % LINES;
        content = (content + 1) % GHOST; }
    :: aborted = true; goto stopped;
    :: aborted -> goto stopped;
    od;
stopped:
    skip
}

active proctype consumer()
{
    byte read = SEED, line = 0, expect = 1, got;
    do
    :: got = 0; /* from here on it waits */
       if
       :: IN_CELL -> goto cell;
       :: nempty(pipe) ->
#ifndef M_NO_AGAIN
            if
            :: IN_CELL -> goto cell;
            :: !IN_CELL -> skip;
            fi;
#endif
            atomic { pipe ? got; assert(got == expect);
                     line = (line + 1) % LINES;
                     expect = (expect + 1) % GHOST; }
            goto answer;
#ifndef M_ABORT_STUCK
       :: aborted -> goto stopped;
#endif
       fi;
cell:
#ifdef M_HEARD_EARLY
       said = (read + 1) % SEQS;
#endif
       if
       :: assert(half0[read % CELLS] == expect); assert(half1[read % CELLS] == expect);
       :: assert(half1[read % CELLS] == expect); assert(half0[read % CELLS] == expect);
       fi;
       atomic { read = (read + 1) % SEQS; expect = (expect + 1) % GHOST; }
answer:
       if
       :: said = read; /* a message the other way ... */
       :: skip;        /* ... or none */
       fi;
    :: aborted = true; goto stopped;
    :: aborted -> goto stopped;
    od;
stopped:
    skip
}
