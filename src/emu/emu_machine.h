/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_machine.h: the inside of the emulated machine, shared by its files.
 *
 *   emu_clock.c    who knows of what: vector clocks
 *   emu_memory.c   words, undelivered stores, races
 *   emu_hooks.c    what the compiler calls at plain loads and stores
 *   emu_fiber.c    stacks and the switch between them
 *   emu_sched.c    devices, grids, CTAs, warps, threads; who runs next
 *   emu_cluster.c  CTAs that start together and reach each other's shared memory
 *   emu_stream.c   streams, events, copies
 *   emu_runtime.c  the CUDA runtime's functions
 *   emu_library.c  those that only a library's host side asks for
 *   emu_turns.c    several threads of the host that wait at once
 *   emu_report.c   errors, with source lines
 *
 * One thread of the system runs the machine at a time, under `emu.lock`.
 */
#ifndef SOL_EMU_EMU_MACHINE_H
#define SOL_EMU_EMU_MACHINE_H

#include "emu/emu.h"
#include "emu/emu_device.h"

#include <pthread.h>
#include <stdarg.h>

#define EMU_THREADS_MAX 1024 /* of a CTA */
#define EMU_SLOTS_MAX 1024   /* CTAs and streams with a clock of their own */
#define EMU_POLLS 64         /* addresses of a loop that waits */
#define EMU_ACQUIRED 8

/* ---- clocks ------------------------------------------------------------------------------- */

/* The name of a thread for clocks: its CTA's slot and its index there. */
typedef uint32_t emu_id;
static inline emu_id emu_id_of(uint32_t slot, uint32_t thread)
{
    return slot << 10 | thread;
}
static inline uint32_t emu_slot_of(emu_id id)
{
    return id >> 10;
}

/* Knowledge: an immutable set of events that come before. Counted references. */
struct emu_extra {
    uint32_t key; /* emu_id, or EMU_WARP | emu_id of lane 0 */
    uint32_t stamp;
};
#define EMU_WARP 0x80000000u
struct emu_clock {
    uint32_t refs;
    uint32_t slots, extras;
    struct emu_extra *extra; /* by key */
    uint32_t full[];         /* of each slot: all events of all its threads up to this stamp */
};

struct emu_clock *emu_clock_hold(struct emu_clock *c);
void emu_clock_drop(struct emu_clock *c);
bool emu_clock_knows(const struct emu_clock *c, emu_id id, uint32_t stamp);
/* *c becomes what it was and `other` (not taken over), and so on. */
void emu_clock_join(struct emu_clock **c, struct emu_clock *other);
void emu_clock_add_slot(struct emu_clock **c, uint32_t slot, uint32_t stamp);
void emu_clock_add_key(struct emu_clock **c, uint32_t key, uint32_t stamp);
void emu_clock_set(struct emu_clock **c, struct emu_clock *to);

/* ---- threads -------------------------------------------------------------------------------- */

enum emu_state {
    EMU_RUNNABLE,
    EMU_POLLING,     /* until one of polls[] changes */
    EMU_AT_BARRIER,  /* __syncthreads */
    EMU_AT_CLUSTER,  /* the wait of a cluster's barrier */
    EMU_AT_WARP,     /* vote, shuffle, __syncwarp */
    EMU_PREDECESSOR, /* for the kernel before */
    EMU_EXITED
};

struct emu_poll { /* an address of a waiting loop; linked into a bucket while the thread waits */
    uint64_t word;
    uint64_t value;
    struct emu_poll *next, *previous;
    struct emu_thread *thread;
};

struct emu_thread { /* lies at the end of its own stack */
    void *sp;
    struct emu_dim index;
    char *stack;
    struct emu_cta *cta;
    emu_id id;
    enum emu_state state;
    int place;         /* in cta->runnable */
    uintptr_t wait_pc; /* where it waits */
    uint64_t argument; /* what it brings to a vote or shuffle; `result` is what it takes away */
    uint64_t result;
    uint32_t warp_kind, warp_mask;
    int warp_source;
    bool arrived;   /* at the cluster's barrier, and has not waited yet */
    uint32_t phase; /* of that arrival */
    /* memory order */
    struct emu_clock *known; /* what comes before whatever this thread does now */
    struct emu_clock *release_gpu, *release_sys; /* what its relaxed stores publish */
    struct emu_clock *acquired[EMU_ACQUIRED];    /* seen by relaxed loads; known after a fence */
    int acquired_count;
    /* the loop it may be waiting in */
    int polls_count;
    bool linked;
    struct emu_poll polls[EMU_POLLS];
};

/* A block of shared memory. */
struct emu_shared {
    struct emu_shared *next;
    const void *key;
    void *memory;
    size_t bytes;
};

#define EMU_CLUSTER_MAX 8
struct emu_cluster {
    struct emu_cta *ctas[EMU_CLUSTER_MAX]; /* by place; NULL: ended */
    unsigned count, live;                  /* CTAs; threads that have not exited */
    unsigned arrived;
    uint32_t phase;                   /* barriers completed */
    struct emu_clock *coming, *known; /* of those that have arrived; of the last barrier */
};

struct emu_cta {
    struct emu_grid *grid;
    struct emu_device *device;
    struct emu_thread **threads;
    int count, live;
    int arrived; /* at the barrier */
    unsigned votes;
    uint32_t slot;
    int runnable_count;
    struct emu_thread **runnable;
    int place; /* in device->active, or -1 */
    bool triggered;
    struct emu_shared *shared;
    struct emu_cluster *cluster; /* NULL: it is alone */
    struct emu_cta *next;
};

/* One launch of a kernel. */
struct emu_launch {
    const void *kernel; /* its address, for reports */
    void (*invoke)(const void *arguments);
    void *arguments;
    void (*release)(void *arguments); /* frees them */
    struct emu_dim grid, block;
    unsigned cluster; /* CTAs; 1: none */
    size_t shared_bytes;
    bool early; /* programmatic stream serialization */
    int users;
};

struct emu_grid {
    struct emu_launch *launch;
    struct emu_device *device;
    struct emu_stream *stream;
    struct emu_grid *next;   /* of the device */
    struct emu_grid *before; /* the kernel before it in the stream, while that has not ended */
    uint64_t number;
    unsigned blocks, started, ended, triggered;
    unsigned *order; /* in which clusters start */
    struct emu_clock *start, *end;
    struct emu_clock *joined[EMU_ACQUIRED]; /* lately joined into `end` */
    unsigned joined_next;
    struct emu_cta *ctas; /* live ones */
};

struct emu_device {
    int index;
    int resident; /* CTAs */
    int active_count;
    struct emu_cta **active; /* with runnable threads */
    unsigned weight;
    uint32_t *free_slots;
    int free_count;
    struct emu_grid *grids; /* not ended, latest launched first */
    bool dirty;             /* CTAs may be able to start */
};

struct emu_slot { /* whose clock it is */
    uint32_t now;
    int device;
    const char *name;
    uint64_t grid;
    struct emu_dim block, block_size;
};

/* ---- the machine ------------------------------------------------------------------------------
 */

struct emu_machine {
    bool open, failed, running;
    struct emu_options options;
    pthread_mutex_t lock;
    uint64_t random;
    /* scheduler */
    struct emu_device devices[EMU_MAX_DEVICES];
    struct emu_slot slots[EMU_SLOTS_MAX];
    uint32_t slot_count;
    struct emu_thread *current;
    void *host_sp;
    int slice, slice_mean;
    uint32_t late_chance; /* of 256: a load does not see the next undelivered store */
    bool sticky, streams_dirty;
    struct emu_cta *last_cta;
    uint64_t mood_until; /* in steps */
    uint64_t now_ns;
    bool stuck; /* nobody can run, but a thread of the host may come and change that */
    uint64_t idle_rounds, last_effect;
    uint64_t grids_made;
    struct emu_counts counts;
    uint64_t step_limit;
    struct emu_thread *finished;  /* its stack is still the one that is left */
    struct emu_clock *host_known; /* what the host has waited for */
    /* memory */
    char *arena;
    size_t arena_bytes;
    struct emu_cell *cells;
    char report[16384];
};
extern struct emu_machine emu;

static inline uint64_t emu_random(void)
{
    uint64_t z = emu.random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
static inline uint32_t emu_below(uint32_t n)
{
    return (uint32_t)((emu_random() >> 32) * n >> 32);
}

/* ---- scheduler --------------------------------------------------------------------------------
 */

/* Run until `done(arg)`. False: it cannot be (an error has been reported). */
bool emu_run(bool (*done)(const void *arg), const void *arg);
/* Waiting of the host goes through `wait`, which returns false if the machine failed; NULL:
 * emu_run. */
void emu_host_waits(bool (*wait)(bool (*done)(const void *), const void *arg));
/* Every function of the runtime is between these two. */
void emu_enter(void);
void emu_leave(void);
/* emu_turns.c: a wait of one of several threads of the host, with emu.lock. `patient`: also while
 * nobody can run. False: the machine failed. */
bool emu_wait_in_turns(bool (*done)(const void *arg), const void *arg, bool patient);
void emu_turn_lock(void);
/* May a thread of the host still come? */
bool emu_others_may_come(void);
/* In a thread: a place where others may go on. */
void emu_step(void);
/* In a thread: stop until emu_wake. */
void emu_block(enum emu_state state, uintptr_t pc);
void emu_wake(struct emu_thread *t);
/* `start`: what comes before the kernel. NULL: refused. */
struct emu_grid *emu_grid_start(struct emu_launch *l, struct emu_device *d, struct emu_stream *s,
                                struct emu_grid *before, struct emu_clock *start);
void emu_sched_open(void);
void emu_sched_close(void);
uint32_t emu_slot_take(struct emu_device *d);
void emu_slot_give(struct emu_device *d, uint32_t slot);

/* This thread's CTA's block of shared memory of `key`, or another one's. */
void *emu_shared_of(struct emu_cta *c, const void *key, size_t bytes);
/* emu_cluster.c: CTA `index` of a grid joins its cluster; a thread, a CTA has ended. */
bool emu_cluster_join(struct emu_cta *c, struct emu_cta *first, unsigned place);
void emu_cluster_thread_ends(struct emu_cta *c);
void emu_cluster_leave(struct emu_cta *c);

/* ---- fibers -----------------------------------------------------------------------------------
 */

#define EMU_STACK_BYTES (64u << 10)
char *emu_stack_take(void);
void emu_stack_give(char *stack);
bool emu_stack_whole(const char *stack); /* it did not run over */
void emu_stacks_close(void);
/* A multiple of 64; what lies below it is free. */
char *emu_stack_end(char *stack);
/* What to load to begin with entry(), with a stack that ends at `end`, a multiple of 16. */
void *emu_stack_prepare(void *end, void (*entry)(void));
void emu_switch(void **save, void *load);

/* ---- memory -----------------------------------------------------------------------------------
 */

bool emu_memory_open(void);
void emu_memory_close(void);
void *emu_allocate(size_t bytes, int device, const char *kind);
/* The same where something was that has been freed. NULL: nothing was, or it is not free any more.
 */
void *emu_allocate_at(void *base, size_t bytes, int device, const char *kind);
/* False: not an allocation's first byte. */
bool emu_deallocate(void *p);
/* Describe an address for a report. */
void emu_describe(const void *p, char *text, size_t bytes);
/* Device of an address, or -1 (the host's), or -2 (not ours). */
int emu_owner(const void *p, const char **kind, char **base, size_t *bytes);
static inline bool emu_inside(const void *p)
{
    return (uintptr_t)p - (uintptr_t)emu.arena < emu.arena_bytes;
}
/* Plain accesses, as the current thread or, in copies, as a stream. */
void emu_weak_read(const void *p, size_t bytes, uintptr_t pc);
void emu_weak_write(const void *p, size_t bytes, uintptr_t pc);
void emu_volatile_read(const void *p, size_t bytes, uintptr_t pc);
void emu_volatile_write(const void *p, size_t bytes, uintptr_t pc);
/* Copies and fills in a stream: its slot and knowledge. */
void emu_stream_access(uint32_t slot, struct emu_clock *known, const void *p, size_t bytes,
                       bool write);
/* Before the host reads pinned memory by itself: on every return to it. */
void emu_host_looks(void);
/* A waiting loop's addresses: forget them, as the thread does something else. */
void emu_polls_clear(struct emu_thread *t);
void emu_polls_unlink(struct emu_thread *t);
/* Takes what relaxed loads saw into what is known, as a fence does. */
void emu_take_acquired(struct emu_thread *t);

/* ---- streams ----------------------------------------------------------------------------------
 */

/* Begin what can begin. Called when emu.streams_dirty. */
void emu_streams_advance(void);
void emu_stream_grid_ended(struct emu_grid *g);
/* What has ended in the stream of a kernel. */
struct emu_clock *emu_stream_known(const struct emu_grid *g);
void emu_streams_close(void);

/* ---- reports ----------------------------------------------------------------------------------
 */

/* Report an error; in a thread it does not return. `pc` 0: none. */
void emu_fail(uintptr_t pc, const char *format, ...) __attribute__((format(printf, 2, 3)));
void emu_report_deadlock(void);
void emu_report_finish(void);
void emu_report_open(void);
/* "function file:line" for each address. */
void emu_say_where(uintptr_t pc, const char *indent);
/* Do two addresses of kernel code come from the same lines, inlining included? Yes, if nobody
 * knows. */
bool emu_same_line(uintptr_t a, uintptr_t b);
void emu_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void emu_who(emu_id id, char *text, size_t bytes);

#endif
