/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm.h: CPU ranks, inside: what a rank keeps, what lies in shared memory, and
 * how the files of this backend divide the work. Private to backend/shm.
 *
 *     shm_segment   shared memory: make, map, one address per process
 *     shm_open      joining and leaving: segments, capabilities, pipes
 *     shm_wait      every wait: spin, yield, sleep; abort, death, deadline
 *     shm_report    errors: who waits for whom, who called what
 *     shm_plan      which protocol a call takes, and why
 *     shm_small     collectives over cells and lines (proto/cell.h, proto/line.h)
 *     shm_packed    collectives over one staging slot a rank and one line a reader (medium)
 *     shm_share     shared-out reductions in rounds (large)
 *     shm_stream    transfers between pairs, progressed together (large, groups)
 *     shm_tune      how large data is made readable: learned while running
 *     shm_window    symmetric memory; where a buffer can be read directly
 *     shm_node      shared memory near the CPU of its rank
 *     shm_pages     huge pages under buffers that come again and again
 *     shm_sleep     the memory of an idle communicator given back, and taken again
 *     shm_transfer  one-sided writes
 *     shm_backend   the table
 *
 * A rank's segment, mapped by all ranks:
 *
 *     | control                  | pipes from 0 ... n-1 | cells from 0 ... n-1 | staging slots |
 *      identity, bell, story,     written by the peers                          written by the
 *      calls, acks to each peer                                                 owner
 *
 * Rules: memory of a peer is read only as the protocols allow, and after each
 * direct read the reader makes sure that the owner had not given up
 * (shm_window.c). Nothing waits but through sol_shm_idle.
 */
#ifndef SOL_BACKEND_SHM_H
#define SOL_BACKEND_SHM_H

#include "coll/reduce.h"
#include "core/comm.h"
#include "proto/cell.h"
#include "proto/line.h"
#include "proto/staging.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <sys/types.h>

/* Lines that neighbours' prefetchers do not drag along. */
#define SOL_SHM_APART 128

#define SOL_SHM_MAGIC 0x736f6c73686d3031ull
#define SOL_SHM_CALLS 16        /* calls of the past that a rank shows to others */
#define SOL_SHM_ARRIVALS 256    /* and its last arrivals, ... */
#define SOL_SHM_ARRIVAL_EACH 16 /* ... of one collective in so many */

/* ------------------------------------------------------------------- in shared memory */

/* One call, as its rank shows it. `index` is 0 while the rest is written. */
typedef struct sol_shm_note {
    alignas(SOL_CACHE_LINE) _Atomic uint64_t index; /* the rank's call number, from 1 */
    _Atomic uint64_t collective; /* its collective number, from 1; 0 for send and recv */
    _Atomic uint64_t sequence;
    _Atomic uint64_t count;
    _Atomic uint64_t what; /* func, dtype, op, premul, root; see sol_shm_note_call */
    _Atomic uint32_t sig;
} sol_shm_note_t;

/* When the rank came to one of its collectives: of one in SOL_SHM_ARRIVAL_EACH. */
typedef struct sol_shm_arrival {
    _Atomic uint64_t collective; /* 0 while the other is written */
    _Atomic uint64_t ticks;      /* sol_ticks: alike on all CPUs of the host */
} sol_shm_arrival_t;

/* What a rank tells one peer, as a reader of what that peer sends. */
typedef struct sol_shm_ack {
    alignas(SOL_SHM_APART) _Atomic uint32_t lines; /* proto/line.h: acked */
    _Atomic uint64_t chunks;                       /* proto/staging.h: done */
    _Atomic uint64_t directs; /* direct exposures of the peer that I have finished reading */
    _Atomic uint32_t reading; /* 1: I am inside a direct read of the peer's memory */
} sol_shm_ack_t;

/* How a rank makes its memory readable to others where they cannot just point into it. Its own
 * affair: peers learn from headers. */
typedef enum {
    SOL_SHM_KEEP, /* copied to a staging slot, through this core's cache */
    SOL_SHM_PASS, /* copied past the cache: nothing to take away from the readers' caches first */
    SOL_SHM_SHOW, /* not copied: process_vm_readv */
    SOL_SHM_WIDE, /* as KEEP, in large chunks and many slots in turn (sol_staging_spread) */
    SOL_SHM_WAYS
} sol_shm_way;

#define SOL_SHM_PLANS (2 * SOL_SHM_WAYS) /* a way, and how the own block is copied */
#define SOL_SHM_TUNE_LEAST_LOG 12        /* calls of 4 KB and more are tuned ... */
#define SOL_SHM_TUNE_SIZES 16            /* ... by powers of two, up to 128 MB */

/* The latest time of each plan on this rank, for one kind and size of call; 0: none yet. [0]: as
 * an equal or a rooted call's other rank, [1]: as its root. */
typedef struct sol_shm_learned {
    _Atomic uint32_t latest_ns[2][SOL_SHM_PLANS];
} sol_shm_learned_t;

/* Why the owner gave up a group of these ranks: ranks that wait for it there read it, also when it
 * has left. `group` is 0 while the rest is written, and may be written over. */
#define SOL_SHM_WILLS 4
typedef struct sol_shm_will {
    _Atomic uint64_t group;
    _Atomic uint64_t started; /* its calls then */
    _Atomic int status;
    _Atomic uint64_t text[SOL_WILL_TEXT / 8];
} sol_shm_will_t;

typedef struct sol_shm_control {
    uint64_t magic;
    unsigned char token[16];
    uint64_t bytes;

    alignas(SOL_SHM_APART) _Atomic uint32_t bell; /* futex; grows with each ring */
    _Atomic uint32_t sleeping;                    /* the owner sleeps on the bell, or is about to */

    alignas(SOL_SHM_APART) _Atomic uint32_t abort_word; /* 0, or 1 + rank whose story to read */
    _Atomic uint32_t closed;                            /* the owner has left */
    _Atomic uint32_t story_state;                       /* 0 none, 1 being written, 2 there */
    _Atomic int story_status;
    char story[SOL_ERROR_TEXT];

    sol_shm_will_t wills[SOL_SHM_WILLS]; /* number i at i % SOL_SHM_WILLS */
    _Atomic uint32_t will_count;
    _Atomic uint64_t shrunk; /* mask of the ranks that the owner has gone on with; 0: it has not */

    alignas(SOL_SHM_APART) _Atomic uint64_t started; /* index of the last call begun */
    _Atomic uint64_t finished;                       /* and completed */
    sol_shm_note_t notes[SOL_SHM_CALLS];             /* call i at i % SOL_SHM_CALLS */
    _Atomic uint64_t pairs_index;                    /* the call whose counts follow; 0: none */
    _Atomic uint64_t pair_counts[SOL_MAX_RANKS];     /* all_to_all_v: elements sent to each rank */

    alignas(SOL_SHM_APART) sol_shm_arrival_t arrivals[SOL_SHM_ARRIVALS];

    sol_shm_ack_t acks[SOL_MAX_RANKS];
    alignas(SOL_SHM_APART) sol_shm_learned_t learned[SOL_FUNC_COUNT][SOL_SHM_TUNE_SIZES];
} sol_shm_control_t;

/* --------------------------------------------------------------------- in this process */

/* A mapping of shared memory that a process has at most once (shm_segment.c). */
typedef struct sol_shm_segment sol_shm_segment_t;
struct sol_shm_segment {
    unsigned char *base;
    size_t bytes;
    unsigned char token[16];
    int users;
    bool created; /* by a rank of this process, not mapped from another's descriptor */
    bool fixed;   /* of a file system: its memory was allocated whole and is not given back */
    sol_shm_segment_t *next;
};

/* How the bytes at a place in some rank's memory can be reached from here. */
typedef enum {
    SOL_SHM_STAGED = 0,  /* only through its staging slots */
    SOL_SHM_ADDRESS = 1, /* at an address of its process: same process, or process_vm_readv */
    SOL_SHM_WINDOW = 2   /* at an offset in one of its windows, mapped here too */
} sol_shm_mode;

/* A place as it travels in a line. */
typedef struct sol_shm_place {
    uint32_t mode;
    uint32_t window;
    uint64_t where; /* address or offset */
} sol_shm_place_t;

typedef struct sol_shm_peer {
    alignas(SOL_CACHE_LINE) sol_line_out_t out; /* to it */
    sol_line_in_t in;                           /* from it */
    sol_cells_out_t cells_out;                  /* the same for small messages */
    sol_cells_in_t cells_in;
    sol_shm_control_t *control;   /* its */
    sol_shm_ack_t *ack;           /* mine to it, in my segment */
    const sol_shm_ack_t *its_ack; /* its to me */
    uint32_t distance;            /* ticks that a line which it has just written takes, about */
    uint32_t patience;            /* pauses before its next message is looked for */
    uint64_t directs_shown;       /* direct exposures announced to it */
    uint64_t directs_read;        /* of its, finished here */
    unsigned char *staging;       /* its slots */
    sol_shm_segment_t *segment;
    bool same_process;
    int pid, pidfd;
} sol_shm_peer_t;

typedef struct sol_shm_window {
    uint32_t id; /* from 1, equal on all ranks, never used twice; 0: an unused entry */
    bool freed;  /* own memory given back; the peers' mappings stay until they free theirs */
    size_t bytes;
    unsigned char *own;
    sol_shm_segment_t *segments[SOL_MAX_RANKS];
} sol_shm_window_t;

/* Switches between protocols; shm_plan.c says how each was chosen. */
typedef struct sol_shm_limits {
    size_t line;          /* largest message of a pair that goes by lines */
    size_t one_shot;      /* largest all_reduce where each rank pushes everything to each (bytes) */
    size_t two_shot;      /* largest all_reduce over lines in two steps */
    size_t cell;          /* largest message in a cell; 0: none */
    size_t unpacked;      /* collectives of up to this go by lines, larger ones packed, ... */
    size_t packed;        /* ... up to this block, where all ranks send, */
    size_t packed_rooted; /* this, where one sends or receives: larger ones are pipelined, */
    size_t packed_reduce; /* this all_reduce */
    size_t packed_narrow; /* and this, of elements of 1 and 2 bytes, most of which are converted */
    size_t chunk;         /* staged at a time in a stream where all ranks send and receive */
    size_t way;           /* how large collectives move data: 0 learned, else 1 + sol_shm_way */
    size_t round;         /* bytes of a share in one round of a shared-out reduction, ... */
    size_t wide;          /* ... of a share twice as large this, and in a chunk that is WIDE */
    size_t piece;         /* bytes that a direct read moves between two looks at its owner */
    size_t vm_piece;      /* the same by process_vm_readv: a call costs 1-2 us beside its pages */
    size_t stream;        /* results beyond this pass by the cache */
} sol_shm_limits_t;

/* Times of the plan that is being tried. */
#define SOL_SHM_SAMPLES 3
typedef struct sol_shm_samples {
    unsigned count;
    uint32_t ns[SOL_SHM_SAMPLES];
} sol_shm_samples_t;

/* What was decided for one kind and size of call (shm_tune.c). */
typedef struct sol_shm_lesson {
    uint32_t period, at; /* calls of this period, and how many of them were made */
    uint8_t winner;
    uint8_t tried;                   /* bit p: plan p is tried in this period */
    uint8_t periods;                 /* from the last one that tried all */
    bool settled;                    /* plans that are clearly worse have been tried twice */
    bool inherited;                  /* its costs are those of calls half as large */
    uint32_t cost_ns[SOL_SHM_PLANS]; /* average over periods, on the slowest rank; 0: none yet */
    sol_shm_samples_t samples[2];    /* by role, as sol_shm_learned_t; kinds of calls take turns */
} sol_shm_lesson_t;

/* 2 MB of this process's memory that large calls use (shm_pages.c). */
#define SOL_SHM_EXTENTS 256
typedef struct sol_shm_extent {
    uintptr_t at;
    uint32_t uses;
} sol_shm_extent_t;

typedef struct sol_shm {
    sol_comm_t comm;
    int rank, nranks;
    uint32_t spin;        /* polls before the first look at the clock */
    uint32_t pause_ticks; /* of one pause between polls */
    bool demotes;         /* a written line can be sent on to the cache that all cores share */
    bool oversubscribed;
    bool all_threads; /* all ranks are threads of one process */
    bool vm_readable; /* process_vm_readv works between all pairs, or they are one process */
    bool direct;      /* direct reads not switched off */
    bool huge_pages;  /* may be asked for */
    bool by_node;     /* the host has several memory nodes */
    sol_shm_limits_t limits;
    sol_shm_control_t *control; /* mine */
    uint64_t calls;             /* index of the current call */
    uint64_t collectives;       /* and its collective number */
    const sol_call_t *call;     /* the one whose wait is going on, for texts */
    uint32_t sig;               /* its signature */
    uint64_t died;              /* bit r: rank r's process is known to be gone */
    sol_reduce_fn reduce[SOL_DTYPE_COUNT][SOL_REDOP_COUNT];
    sol_scale_fn scale[SOL_DTYPE_COUNT];
    sol_staging_t staging;
    const _Atomic uint64_t *chunk_done[SOL_MAX_RANKS];
    unsigned char *scratch; /* one area of scratch_bytes for each rank */
    size_t scratch_bytes;
    sol_shm_segment_t *segment;
    size_t messages; /* offset in it, and in every peer's: what is behind control */
    size_t incoming; /* bytes from there that peers write; staging is behind */
    _Atomic bool asleep, windows_kept; /* (any thread may ask) */
    sol_shm_window_t *windows;
    size_t window_count;
    uint32_t window_ids; /* given so far */
    _Atomic size_t window_bytes;
    sol_isa isa;
    int cpus; /* in the union of all ranks' affinity masks */
    sol_shm_lesson_t lessons[SOL_FUNC_COUNT][SOL_SHM_TUNE_SIZES];
    _Atomic uint32_t *timing; /* where the time of the call under way goes, or NULL */
    sol_shm_samples_t *timed;
    uint64_t timing_since_ns;
    sol_shm_extent_t extents[SOL_SHM_EXTENTS];
    const char *doing; /* what is no call, for texts; NULL: set-up */
    sol_shm_peer_t peers[SOL_MAX_RANKS];
} sol_shm_t;

/* -------------------------------------------------------------------------- shm_segment */

/* A fresh zeroed segment and its descriptor (the caller's to close). Sets the thread error. */
sol_status_t sol_shm_segment_create(size_t bytes, sol_shm_segment_t **segment, int *fd);
/* The segment behind a peer's descriptor: the mapping with this token if the process has one
 * already, a new one otherwise. *same: a rank of this process made it. */
sol_status_t sol_shm_segment_attach(int fd, size_t bytes, const unsigned char token[16],
                                    sol_shm_segment_t **segment, bool *same);
/* Give its physical memory back although others still map it; they never read it again. */
void sol_shm_segment_discard(sol_shm_segment_t *segment);
void sol_shm_segment_release(sol_shm_segment_t *segment);
/* Its memory from `offset` on goes and is zero when it is touched again. Made by this rank. */
void sol_shm_segment_empty(sol_shm_segment_t *segment, size_t offset);

/* ----------------------------------------------------------------------------- shm_open */

sol_status_t sol_shm_open(sol_comm_t comm);
void sol_shm_close(sol_comm_t comm);
/* Does process_vm_readv exist and is it allowed on this process itself? */
bool sol_shm_vm_read_allowed(void);

/* ---------------------------------------------------------------------------- shm_sleep */

sol_status_t sol_shm_sleep_prepare(sol_comm_t comm, bool keep);
sol_status_t sol_shm_sleep_release(sol_comm_t comm);
sol_status_t sol_shm_sleep_restore(sol_comm_t comm);
void sol_shm_sleep_forget(sol_comm_t comm);

/* ----------------------------------------------------------------------------- shm_wait */

/* Has `rank` left or died? For sol_comm_shrink. */
bool sol_shm_gone(sol_comm_t comm, int rank);

/* One wait; zero-initialise, name the ranks waited for. */
typedef struct sol_shm_wait {
    uint64_t ranks; /* bit r: rank r is waited for */
    uint32_t idle;  /* polls since the last look at the clock */
    uint32_t rounds;
    uint64_t started_ns, next_check_ns;
    bool armed;          /* the bell is read and `sleeping` set; one more poll, then sleep */
    uint32_t bell;       /* its value then */
    uint64_t suspects;   /* ranks that left or died; one more poll, then fail */
    uint64_t last_ranks; /* `ranks` when the clock was last looked at */
} sol_shm_wait_t;

sol_status_t sol_shm_idle_slow(sol_shm_t *s, sol_shm_wait_t *w);
/* Call when a wait is over (it may have armed the bell). */
void sol_shm_wait_end(sol_shm_t *s, sol_shm_wait_t *w);

/* Every poll is followed by a pause. A poll of what is not yet there takes the line away from its
 * writer, who has to get it back before it can write: polling half as often makes an exchange of
 * one line 10 to 20% faster, near or far (bench/NOTES.md).
 *
 * After a poll that found nothing: SOL_OK to poll again, or why the wait is over (reported). */
static inline sol_status_t sol_shm_idle(sol_shm_t *s, sol_shm_wait_t *w)
{
    if (SOL_LIKELY(w->idle < s->spin)) {
        w->idle++;
        sol_cpu_relax();
        return SOL_OK;
    }
    return sol_shm_idle_slow(s, w);
}

void sol_shm_wake(sol_shm_peer_t *peer);

/* After something was published for `peer`: wake it if it sleeps. */
static inline void sol_shm_ring(sol_shm_t *s, sol_shm_peer_t *peer)
{
    if (SOL_UNLIKELY(s->oversubscribed)) {
        /* A read-modify-write, so that it and the sleeper's exchange of `sleeping` have an order:
         * whoever comes second sees what the first published. Pairs with arm() in shm_wait.c. */
        if (atomic_fetch_or_explicit(&peer->control->sleeping, 0, memory_order_acq_rel) != 0) {
            sol_shm_wake(peer);
        }
        return;
    }
    /* Unordered: may miss a rank that is just falling asleep, for whom a nap is 1 ms at most. */
    if (SOL_UNLIKELY(atomic_load_explicit(&peer->control->sleeping, memory_order_relaxed) != 0)) {
        sol_shm_wake(peer);
    }
}

/* Wait for the line `ahead` of the next one from `rank`, and so for all before it. */
sol_status_t sol_shm_await_line_slow(sol_shm_t *s, int rank, uint32_t ahead, uint32_t sig);
static inline sol_status_t sol_shm_await_line(sol_shm_t *s, int rank, uint32_t ahead, uint32_t sig)
{
    uint64_t tag;
    for (uint32_t polls = 0; polls < 64; polls++) {
        if (SOL_LIKELY(sol_line_peek(&s->peers[rank].in, ahead, sig, &tag) == SOL_LINE_VALID)) {
            return SOL_OK;
        }
        sol_cpu_relax();
    }
    return sol_shm_await_line_slow(s, rank, ahead, sig);
}
/* The next message of a small collective from `rank`: in a cell or in the pipe? */
typedef enum { SOL_SHM_NOTHING, SOL_SHM_IN_CELL, SOL_SHM_IN_PIPE, SOL_SHM_STRANGE } sol_shm_found;

static inline sol_shm_found sol_shm_find_message(const sol_shm_peer_t *peer, uint32_t sig,
                                                 uint64_t *tag)
{
    sol_line_state cell = sol_cell_peek(&peer->cells_in, peer->in.next, sig, tag);
    if (SOL_LIKELY(cell == SOL_LINE_VALID)) {
        return SOL_SHM_IN_CELL;
    }
    uint64_t line_tag;
    sol_line_state line = sol_line_peek(&peer->in, 0, sig, &line_tag);
    if (cell == SOL_LINE_EMPTY && line == SOL_LINE_EMPTY) {
        return SOL_SHM_NOTHING;
    }
    if (cell == SOL_LINE_EMPTY) { /* written before the line, and seen only now? See cell.h */
        cell = sol_cell_peek(&peer->cells_in, peer->in.next, sig, tag);
    }
    if (cell != SOL_LINE_EMPTY) {
        return cell == SOL_LINE_VALID ? SOL_SHM_IN_CELL : SOL_SHM_STRANGE;
    }
    *tag = line_tag;
    return line == SOL_LINE_VALID ? SOL_SHM_IN_PIPE : SOL_SHM_STRANGE;
}

#define SOL_SHM_SAMPLE 128u       /* one message in so many shows how far its sender is */
#define SOL_SHM_OWN_MOST 4096u    /* of the next cell, fetched for writing */
#define SOL_SHM_SHORT 512u        /* fetched with its flag, and not looked for at once */
#define SOL_SHM_DEMOTE_MOST 1024u /* of a cell; more holds its writer up */

/* Has each rank something to wait for and something to send? */
static inline bool sol_shm_mutual(const sol_call_t *call)
{
    return call->func != SOL_FUNC_BROADCAST && call->func != SOL_FUNC_REDUCE &&
           call->func != SOL_FUNC_GATHER && call->func != SOL_FUNC_SCATTER;
}

/* Between two ranks that answer each other: what is best done before the first look at a message of
 * `bytes`. A line that is looked at before its sender has written it must be taken back for that,
 * which takes as long as to fetch it. So a short pause where the sender is far costs less than a
 * look too early, and meanwhile the cell of the own next message comes here. */
static inline void sol_shm_prepare(const sol_shm_t *s, const sol_shm_peer_t *peer, size_t bytes)
{
    bool mutual = sol_shm_mutual(s->call), brief = bytes <= SOL_SHM_SHORT;
    uint32_t pauses = peer->patience;
    if (!mutual) {
        pauses += pauses / 2; /* the root began when it had our last message */
    } else if (bytes <= SOL_CELL_INLINE) {
        pauses /= 2;
    }
    for (; pauses > 0 && brief; pauses--) {
        sol_cpu_relax();
    }
    sol_cell_own(&peer->cells_out, bytes <= SOL_SHM_OWN_MOST ? bytes : 0);
    if (mutual && brief && peer->patience > 0 && !s->demotes) { /* (would be taken back first) */
        sol_cell_fetch(&peer->cells_in, bytes);
    }
}

/* What a pause takes on this CPU, in ticks. */
uint32_t sol_shm_pause_ticks(void);
/* Wait for it; `bytes` are expected, and sent next. */
sol_status_t sol_shm_await_message_timed(sol_shm_t *s, int rank, uint32_t sig, bool *in_cell);
sol_status_t sol_shm_await_message_slow(sol_shm_t *s, int rank, uint32_t sig, bool *in_cell);
static inline sol_status_t sol_shm_await_message(sol_shm_t *s, int rank, uint32_t sig, size_t bytes,
                                                 bool *in_cell)
{
    const sol_shm_peer_t *peer = &s->peers[rank];
    uint64_t tag;
    if (SOL_LIKELY(s->nranks == 2)) {
        sol_shm_prepare(s, peer, bytes);
        if (SOL_UNLIKELY(peer->cells_in.next % SOL_SHM_SAMPLE == 0)) {
            return sol_shm_await_message_timed(s, rank, sig, in_cell);
        }
    }
    for (uint32_t polls = 0; polls < 64; polls++) {
        sol_shm_found found = sol_shm_find_message(peer, sig, &tag);
        if (SOL_LIKELY(found == SOL_SHM_IN_CELL || found == SOL_SHM_IN_PIPE)) {
            *in_cell = found == SOL_SHM_IN_CELL;
            return SOL_OK;
        }
        sol_cpu_relax();
    }
    return sol_shm_await_message_slow(s, rank, sig, in_cell);
}

/* Wait for room for `lines` to `rank`. */
sol_status_t sol_shm_await_room_slow(sol_shm_t *s, int rank, uint32_t lines);
static inline sol_status_t sol_shm_await_room(sol_shm_t *s, int rank, uint32_t lines)
{
    if (SOL_LIKELY(sol_line_room(&s->peers[rank].out, lines) >= lines)) {
        return SOL_OK;
    }
    return sol_shm_await_room_slow(s, rank, lines);
}
/* Wait until a staging slot is free. */
sol_status_t sol_shm_await_slot(sol_shm_t *s, int *slot);
/* Wait until `rank` has finished reading all that was shown to it directly. */
sol_status_t sol_shm_await_directs(sol_shm_t *s, int rank);

/* Look, without waiting, for news that end everything: abort here or elsewhere. */
sol_status_t sol_shm_look(sol_shm_t *s);

/* --------------------------------------------------------------------------- shm_report */

/* Begin and end of a call: what other ranks can see of it. */
void sol_shm_note_call(sol_shm_t *s, const sol_call_t *call, uint32_t sig);
static inline void sol_shm_note_end(sol_shm_t *s)
{
    atomic_store_explicit(&s->control->finished, s->calls, memory_order_relaxed);
}
/* The 32-bit name of a call that all its ranks agree on; never 0. */
uint32_t sol_shm_signature(const sol_call_t *call);
/* The same for one pair's part of an all_to_all_v, of `count` elements. */
uint32_t sol_shm_pair_signature(const sol_call_t *call, size_t count);

/* Make the communicator fail and tell all ranks. Each returns the status. */
sol_status_t sol_shm_fail(sol_shm_t *s, sol_status_t status, const char *format, ...)
    SOL_PRINTF(3, 4);
sol_status_t sol_shm_fail_timeout(sol_shm_t *s, const sol_shm_wait_t *w, uint64_t now_ns);
sol_status_t sol_shm_fail_gone(sol_shm_t *s, int rank, bool died);
sol_status_t sol_shm_fail_line(sol_shm_t *s, int rank, uint32_t sig, uint64_t tag);
sol_status_t sol_shm_fail_story(sol_shm_t *s, uint32_t abort_word);
/* Any thread: record the story behind the word, without the rest. */
sol_status_t sol_shm_note_story(sol_shm_t *s, uint32_t abort_word, const char *during);
sol_status_t sol_shm_fail_aborted(sol_shm_t *s);
/* Does `rank` show another call under this collective number? Then fails. */
sol_status_t sol_shm_compare_calls(sol_shm_t *s, int rank);
/* For dumps: the last call of `rank`; only reads memory. */
bool sol_shm_whereabouts(sol_comm_t comm, int rank, sol_whereabouts_t *at);
/* For dumps: when `rank` came to the last collectives; only reads memory. */
bool sol_shm_skew(sol_comm_t comm, int rank, sol_skew_t *skew);
/* Leave word why a group of these ranks was given up, and read what `rank` has left. */
void sol_shm_give_up(sol_comm_t comm, uint64_t group, sol_status_t status, const char *text);
sol_status_t sol_shm_given_up(sol_comm_t comm, int rank, uint64_t group, char text[SOL_WILL_TEXT]);
/* Put this rank's story where the others read it and end their waits. Any thread. */
void sol_shm_tell(sol_shm_t *s, sol_status_t status, const char *text);

/* ----------------------------------------------------------------------------- shm_plan */

typedef enum {
    SOL_SHM_LINES,     /* shm_small: one step */
    SOL_SHM_LINES_TWO, /* shm_small: two steps */
    SOL_SHM_PACKED,    /* shm_packed */
    SOL_SHM_SHARED,    /* shm_share */
    SOL_SHM_STREAMS    /* shm_stream */
} sol_shm_protocol;

sol_status_t sol_shm_plan_init(sol_shm_t *s, char *why, size_t why_bytes);
sol_shm_protocol sol_shm_plan(const sol_shm_t *s, const sol_call_t *call);
sol_status_t sol_shm_explain(sol_comm_t comm, const sol_call_t *call, char *text, size_t bytes);

/* ---------------------------------------------------------------------------- protocols */

/* Pointer arithmetic that is defined for NULL + 0 too. */
static inline unsigned char *sol_shm_at(const void *base, size_t bytes)
{
    return (unsigned char *)((uintptr_t)base + bytes);
}

/* A line of the control channel: a header opens a large transfer, chunks follow where the data is
 * staged, results where a share is reduced. All carry the signature of their call. */
typedef struct sol_shm_header {
    sol_shm_place_t send;   /* where the sender's data is */
    sol_shm_place_t result; /* where its reduced share will be */
    uint32_t plan;          /* of a send that is timed: 1 + its plan; else 0 */
} sol_shm_header_t;

typedef struct sol_shm_chunk {
    uint64_t chunk;
    uint64_t bytes;
    uint32_t slot;
    uint32_t staged; /* 0: nothing staged, the share's next round is at `result` */
    uint64_t heard;  /* the sender's done counter for chunks of the receiver's */
} sol_shm_chunk_t;

/* What this rank has read of the chunks of `rank`: the `heard` of a line to it. */
static inline uint64_t sol_shm_chunks_read(const sol_shm_t *s, int rank)
{
    return atomic_load_explicit(&s->peers[rank].ack->chunks, memory_order_relaxed);
}

/* `chunk` of `rank` has been read: its slot may be filled again. */
static inline void sol_shm_chunk_read(sol_shm_t *s, int rank, uint64_t chunk)
{
    /* release: pairs with the acquire in sol_staging_pending */
    atomic_store_explicit(&s->peers[rank].ack->chunks, chunk + 1, memory_order_release);
    sol_shm_ring(s, &s->peers[rank]);
}

static inline const unsigned char *sol_shm_staged_at(const sol_shm_t *s, int rank,
                                                     const sol_shm_chunk_t *line)
{
    return s->peers[rank].staging + (size_t)line->slot * s->staging.slot_bytes;
}

/* Where a message of `bytes` to `rank` goes if it can go by a cell, else NULL; then push it. */
static inline unsigned char *sol_shm_cell_open(sol_shm_t *s, int rank, size_t bytes)
{
    sol_cells_out_t *out = &s->peers[rank].cells_out;
    if (SOL_UNLIKELY(bytes > s->limits.cell || !sol_cells_room(out))) {
        return NULL;
    }
    return sol_cell_payload(sol_cell_open(out), bytes);
}

static inline void sol_shm_cell_push(sol_shm_t *s, int rank, size_t bytes)
{
    sol_shm_peer_t *peer = &s->peers[rank];
    if (s->demotes && peer->patience > 0 && bytes <= SOL_SHM_DEMOTE_MOST) {
        sol_cell_demote(&peer->cells_out, bytes);
    }
    sol_cell_push(&peer->cells_out, s->sig, peer->out.next, peer->cells_in.next);
    sol_shm_ring(s, peer);
}

sol_status_t sol_shm_run_small(sol_shm_t *s, const sol_call_t *call);
sol_status_t sol_shm_run_small_two(sol_shm_t *s, const sol_call_t *call);
sol_status_t sol_shm_run_packed(sol_shm_t *s, const sol_call_t *call);
sol_status_t sol_shm_run_shared(sol_shm_t *s, const sol_call_t *call);
sol_status_t sol_shm_run_streams(sol_shm_t *s, const sol_call_t *call);
/* Sends and receives only. */
sol_status_t sol_shm_run_pairs(sol_shm_t *s, const sol_call_t *calls, size_t ncalls);

/* A communicator of one rank. */
sol_status_t sol_shm_run_alone(sol_shm_t *s, const sol_call_t *call);

sol_status_t sol_shm_send_lines(sol_shm_t *s, int rank, uint32_t sig, const void *src,
                                size_t bytes);
sol_status_t sol_shm_recv_lines(sol_shm_t *s, int rank, uint32_t sig, void *dst, size_t bytes);

/* ----------------------------------------------------------------------------- shm_tune */

/* What may be chosen: how staged data is copied; also process_vm_readv, and how what only this rank
 * reads (its own block, results) is written. */
typedef enum { SOL_SHM_TUNE_COPIES, SOL_SHM_TUNE_PAIRS, SOL_SHM_TUNE_ALL } sol_shm_tune_kind;

typedef struct sol_shm_tuned {
    sol_shm_way way;
    bool own_past; /* what only this rank reads is written past the cache */
} sol_shm_tuned_t;

/* The plan of a call of `bytes`, the same on all ranks or not; its time counts until the end. */
sol_shm_tuned_t sol_shm_tune_begin(sol_shm_t *s, const sol_call_t *call, size_t bytes,
                                   sol_shm_tune_kind kind);
void sol_shm_tune_end(sol_shm_t *s);
/* A send of `bytes`, whose header came at `begun_ns` and named `plan`, has been received. */
void sol_shm_tune_received(sol_shm_t *s, size_t bytes, unsigned plan, uint64_t begun_ns);
/* The way of a transfer of which no time is taken: what like ones have learned, else by size. */
sol_shm_way sol_shm_tune_known(const sol_shm_t *s, size_t bytes);

static inline void sol_shm_stage_copy(sol_shm_way way, void *dst, const void *src, size_t bytes)
{
    if (way == SOL_SHM_PASS) {
        sol_copy_stream(dst, src, bytes);
    } else if (bytes > 0) {
        memcpy(dst, src, bytes);
    }
}

/* --------------------------------------------------------------------------- shm_window */

sol_status_t sol_shm_mem_alloc(sol_comm_t comm, size_t bytes, void **memory);
sol_status_t sol_shm_mem_free(sol_comm_t comm, void *memory);
void sol_shm_windows_close(sol_shm_t *s);

/* Is [memory, memory + bytes) in one of this rank's windows? Then *place says where. */
bool sol_shm_in_window(const sol_shm_t *s, const void *memory, size_t bytes,
                       sol_shm_place_t *place);
/* How peers can reach [memory, memory + bytes) of this rank. `show`: by process_vm_readv too. */
sol_shm_place_t sol_shm_place(const sol_shm_t *s, const void *memory, size_t bytes, bool show);
/* Where that is in this address space, or NULL: then only sol_shm_read_place reaches it. */
const unsigned char *sol_shm_pointer(const sol_shm_t *s, int rank, const sol_shm_place_t *place);
/* Copy from a peer's place + offset, in pieces, each followed by sol_shm_look. */
sol_status_t sol_shm_read_place(sol_shm_t *s, int rank, const sol_shm_place_t *place, size_t offset,
                                void *dst, size_t bytes);
/* Around reads of a peer's memory: the owner, if it fails, waits for the end before it returns. */
sol_status_t sol_shm_read_begin(sol_shm_t *s, int rank);
sol_status_t sol_shm_read_end(sol_shm_t *s, int rank);
/* Tell the owner that one exposure has been read to its end. */
void sol_shm_directs_done(sol_shm_t *s, int rank);
/* Called on failure: wait (bounded) until no thread of this process reads this rank's memory. */
void sol_shm_readers_leave(sol_shm_t *s);

/* Move `bytes` between `near` and the address `far` of `rank`, by the kernel; `write`: there. */
sol_status_t sol_shm_vm_move(sol_shm_t *s, int rank, uint64_t far, void *near, size_t bytes,
                             bool write);

/* ----------------------------------------------------------------------------- shm_node */

bool sol_shm_nodes_differ(void);
/* Does the kernel's list of nodes name more than one? */
bool sol_shm_several_nodes(const char *list);
/* Own memory, before it is touched: on this CPU's node, where there are several. */
void sol_shm_prefer_node(const sol_shm_t *s, const sol_shm_segment_t *segment);

/* ---------------------------------------------------------------------------- shm_pages */

/* A large call is about to use its buffers. */
void sol_shm_use_pages(sol_shm_t *s, const sol_call_t *call);

/* ------------------------------------------------------------------------- shm_transfer */

sol_status_t sol_shm_transfer_offer(sol_comm_t comm, void *memory, size_t bytes,
                                    struct sol_place *place);
sol_status_t sol_shm_transfer_open(sol_comm_t comm, struct sol_transfer *t,
                                   const struct sol_place *places);
void sol_shm_transfer_close(sol_comm_t comm, struct sol_transfer *t);
sol_status_t sol_shm_transfer_write(sol_comm_t comm, struct sol_transfer *t,
                                    const struct sol_transfer_work *work);
sol_status_t sol_shm_transfer_read(sol_comm_t comm, struct sol_transfer *t, int counter,
                                   uint64_t *values);
sol_status_t sol_shm_fail_text(sol_comm_t comm, sol_status_t status, const char *text);

#endif
