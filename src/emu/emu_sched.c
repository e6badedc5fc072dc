/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_sched.c: who runs next. Devices, grids, CTAs, warps, threads.
 *
 * A thread goes on until it has made some strong accesses (a random number) or
 * must wait; then a device, a CTA and a thread of it are drawn. The odds change
 * with the mood of the machine, drawn anew every few thousand steps: fine or
 * coarse interleaving, one device far ahead or far behind, stores that land soon
 * or late. Plain accesses are no places to switch at: a program without data
 * races cannot tell, and a race is found whatever the order.
 *
 * CTAs of a grid start in random order, when there is room for them, as on a
 * GPU: a grid that needs all its CTAs at once and has more than fit is found by
 * its deadlock.
 */
#include "emu/emu_stream.h"

#include <stdlib.h>
#include <string.h>

struct emu_machine emu;
struct emu_dim threadIdx, blockIdx, blockDim, gridDim;

/* ----------------------------------------------------------------------- slots */

uint32_t emu_slot_take(struct emu_device *d)
{
    if (d->free_count)
        return d->free_slots[--d->free_count];
    if (emu.slot_count == EMU_SLOTS_MAX) {
        emu_fail(0, "more than %d CTAs at once", EMU_SLOTS_MAX);
        return 0;
    }
    emu.slots[emu.slot_count].now = 1;
    emu.slots[emu.slot_count].device = d->index;
    return emu.slot_count++;
}

void emu_slot_give(struct emu_device *d, uint32_t slot)
{
    d->free_slots[d->free_count++] = slot;
}

void emu_sched_open(void)
{
    for (int i = 0; i < EMU_MAX_DEVICES; i++) {
        struct emu_device *d = &emu.devices[i];
        memset(d, 0, sizeof(*d));
        d->index = i;
        d->weight = 1;
        d->active = calloc(EMU_SLOTS_MAX, sizeof(*d->active));
        d->free_slots = calloc(EMU_SLOTS_MAX, sizeof(*d->free_slots));
    }
}

/* ----------------------------------------------------------- runnable and not */

static void make_runnable(struct emu_thread *t)
{
    struct emu_cta *c = t->cta;
    struct emu_device *d = c->device;
    t->state = EMU_RUNNABLE;
    t->place = c->runnable_count;
    c->runnable[c->runnable_count++] = t;
    if (c->place < 0) {
        c->place = d->active_count;
        d->active[d->active_count++] = c;
    }
}

static void make_idle(struct emu_thread *t)
{
    struct emu_cta *c = t->cta;
    struct emu_device *d = c->device;
    struct emu_thread *last = c->runnable[--c->runnable_count];
    c->runnable[t->place] = last;
    last->place = t->place;
    t->place = -1;
    if (c->runnable_count == 0) {
        struct emu_cta *other = d->active[--d->active_count];
        d->active[c->place] = other;
        other->place = c->place;
        c->place = -1;
    }
}

void emu_wake(struct emu_thread *t)
{
    emu_polls_unlink(t);
    make_runnable(t);
}

static void leave(struct emu_thread *t)
{
    emu_switch(&t->sp, emu.host_sp);
}

void emu_block(enum emu_state state, uintptr_t pc)
{
    struct emu_thread *t = emu.current;
    make_idle(t);
    t->state = state;
    t->wait_pc = pc;
    leave(t);
}

void emu_step(void)
{
    struct emu_thread *t = emu.current;
    emu.counts.steps++;
    emu.now_ns += 10;
    if (--emu.slice <= 0)
        leave(t);
}

uint64_t emu_clock_ns(void)
{
    emu_step();
    return emu.now_ns;
}

void emu_trap(const char *why)
{
    emu_fail((uintptr_t)__builtin_return_address(0), "the kernel stopped itself: %s", why);
}

/* ------------------------------------------------------------ ends of things */

static void join_end(struct emu_grid *g, struct emu_clock *c)
{
    for (int i = 0; i < EMU_ACQUIRED; i++)
        if (g->joined[i] == c)
            return;
    emu_clock_join(&g->end, c);
    emu_clock_set(&g->joined[g->joined_next++ % EMU_ACQUIRED], c);
}

static void grid_end(struct emu_grid *g)
{
    struct emu_device *d = g->device;
    struct emu_grid **link = &d->grids;
    while (*link != g)
        link = &(*link)->next;
    *link = g->next;
    for (struct emu_grid *other = d->grids; other; other = other->next) {
        if (other->before != g)
            continue;
        other->before = g->before;
        for (struct emu_cta *c = other->ctas; c; c = c->next)
            for (int i = 0; i < c->count; i++)
                if (c->threads[i] && c->threads[i]->state == EMU_PREDECESSOR)
                    emu_wake(c->threads[i]);
    }
    emu_stream_grid_ended(g);
    for (int i = 0; i < EMU_ACQUIRED; i++)
        emu_clock_drop(g->joined[i]);
    emu_clock_drop(g->start);
    emu_clock_drop(g->end);
    emu_launch_drop(g->launch);
    free(g->order);
    free(g);
}

static void cta_free(struct emu_cta *c)
{
    while (c->shared) {
        struct emu_shared *s = c->shared;
        c->shared = s->next;
        emu_deallocate(s->memory);
        free(s);
    }
    emu_cluster_leave(c);
    free(c->threads);
    free(c->runnable);
    free(c);
}

static void trigger(struct emu_cta *c)
{
    if (c->triggered)
        return;
    c->triggered = true;
    if (++c->grid->triggered == c->grid->blocks)
        emu.streams_dirty = true;
}

static void cta_end(struct emu_cta *c)
{
    struct emu_grid *g = c->grid;
    struct emu_device *d = c->device;
    struct emu_cta **link = &g->ctas;
    while (*link != c)
        link = &(*link)->next;
    *link = c->next;
    trigger(c);
    emu_clock_add_slot(&g->end, c->slot, emu.slots[c->slot].now++);
    emu_slot_give(d, c->slot);
    d->resident--;
    d->dirty = true;
    if (emu.last_cta == c)
        emu.last_cta = NULL;
    cta_free(c);
    if (++g->ended == g->blocks)
        grid_end(g);
}

static void thread_free(struct emu_thread *t)
{
    emu_clock_drop(t->known);
    emu_clock_drop(t->release_gpu);
    emu_clock_drop(t->release_sys);
    for (int i = 0; i < t->acquired_count; i++)
        emu_clock_drop(t->acquired[i]);
    emu_stack_give(t->stack); /* and t with it */
}

static void barrier_complete(struct emu_cta *c);

/* After its stack has been left. The end of a thread is a fence: what it saw comes before whatever
 * follows its kernel. */
static void thread_end(struct emu_thread *t)
{
    struct emu_cta *c = t->cta;
    if (!emu_stack_whole(t->stack))
        emu_fail((uintptr_t)c->grid->launch->kernel + 1, "a thread ran over its stack of %u bytes",
                 EMU_STACK_BYTES);
    join_end(c->grid, t->known);
    for (int i = 0; i < t->acquired_count; i++)
        join_end(c->grid, t->acquired[i]);
    c->threads[t->id & (EMU_THREADS_MAX - 1)] = NULL;
    thread_free(t);
    emu_cluster_thread_ends(c);
    if (--c->live == 0)
        cta_end(c);
    else if (c->arrived == c->live)
        barrier_complete(c);
}

static void thread_main(void)
{
    struct emu_thread *t = emu.current;
    const struct emu_launch *l = t->cta->grid->launch;
    l->invoke(l->arguments);
    make_idle(t);
    t->state = EMU_EXITED;
    emu.idle_rounds = 0;
    emu.last_effect = emu.counts.steps;
    emu.finished = t;
    leave(t);
}

/* ---------------------------------------------------------- beginnings of things */

static struct emu_thread *thread_new(struct emu_cta *c, unsigned index)
{
    const struct emu_launch *l = c->grid->launch;
    char *stack = emu_stack_take();
    if (!stack)
        return NULL;
    char *end = emu_stack_end(stack) - (sizeof(struct emu_thread) + 63) / 64 * 64;
    struct emu_thread *t = (struct emu_thread *)(void *)end;
    memset(t, 0, offsetof(struct emu_thread, polls));
    t->stack = stack;
    t->index.x = index % l->block.x;
    t->index.y = index / l->block.x % l->block.y;
    t->index.z = index / l->block.x / l->block.y;
    t->cta = c;
    t->id = emu_id_of(c->slot, index);
    t->known = emu_clock_hold(c->grid->start);
    t->release_gpu = emu_clock_hold(c->grid->start);
    t->release_sys = emu_clock_hold(c->grid->start);
    t->sp = emu_stack_prepare(end, thread_main);
    emu.counts.threads++;
    return t;
}

/* `first`: of its cluster, or NULL. The new one, or NULL: no memory. */
static struct emu_cta *cta_start(struct emu_grid *g, unsigned index, struct emu_cta *first)
{
    struct emu_device *d = g->device;
    const struct emu_launch *l = g->launch;
    struct emu_cta *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->grid = g;
    c->device = d;
    c->count = (int)(l->block.x * l->block.y * l->block.z);
    c->threads = calloc((size_t)c->count, sizeof(*c->threads));
    c->runnable = calloc((size_t)c->count, sizeof(*c->runnable));
    c->place = -1;
    if (!c->threads || !c->runnable) {
        cta_free(c);
        return NULL;
    }
    c->slot = emu_slot_take(d);
    struct emu_slot *s = &emu.slots[c->slot];
    s->name = NULL;
    s->grid = g->number;
    s->block_size = l->block;
    s->block.x = index % l->grid.x;
    s->block.y = index / l->grid.x % l->grid.y;
    s->block.z = index / l->grid.x / l->grid.y;
    c->next = g->ctas;
    g->ctas = c;
    d->resident++;
    g->started++;
    if (l->cluster > 1 && !emu_cluster_join(c, first, index % l->cluster))
        return NULL;
    for (int i = 0; i < c->count; i++) {
        struct emu_thread *t = thread_new(c, (unsigned)i);
        if (!t)
            return NULL;
        c->threads[i] = t;
        c->live++;
        make_runnable(t);
    }
    return c;
}

struct emu_grid *emu_grid_start(struct emu_launch *l, struct emu_device *d, struct emu_stream *s,
                                struct emu_grid *before, struct emu_clock *start)
{
    struct emu_grid *g = calloc(1, sizeof(*g));
    unsigned blocks = l->grid.x * l->grid.y * l->grid.z;
    unsigned clusters = blocks / l->cluster;
    unsigned *order = calloc(clusters, sizeof(*order));
    if (!g || !order) {
        free(g);
        free(order);
        return NULL;
    }
    for (unsigned i = 0; i < clusters; i++) {
        unsigned j = emu_below(i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    l->users++;
    g->launch = l;
    g->device = d;
    g->stream = s;
    g->before = before;
    g->blocks = blocks;
    g->order = order;
    g->number = ++emu.grids_made;
    g->start = emu_clock_hold(start);
    g->end = emu_clock_hold(start);
    g->next = d->grids;
    d->grids = g;
    d->dirty = true;
    return g;
}

static bool cluster_start(struct emu_grid *g, unsigned index)
{
    const unsigned size = g->launch->cluster;
    struct emu_cta *first = NULL;
    for (unsigned k = 0; k < size; k++) {
        struct emu_cta *c = cta_start(g, index * size + k, first);
        if (!c)
            return false;
        first = first ? first : c;
    }
    return true;
}

/* Older grids first. All CTAs of a cluster, or none. */
static void start_ctas_of(struct emu_device *d, struct emu_grid *g, int room)
{
    if (!g)
        return;
    start_ctas_of(d, g->next, room);
    const unsigned size = g->launch->cluster;
    while (g->started < g->blocks && d->resident + (int)size <= room)
        if (!cluster_start(g, g->order[g->started / size])) {
            emu_fail(0, "out of memory for CUDA threads");
            return;
        }
}

static void start_ctas(void)
{
    int room = emu.options.sms * emu.options.ctas_per_sm;
    for (int i = 0; i < emu.options.devices; i++) {
        struct emu_device *d = &emu.devices[i];
        if (d->dirty) {
            d->dirty = false;
            start_ctas_of(d, d->grids, room);
        }
    }
}

/* --------------------------------------------------------------- who runs next */

static void change_mood(void)
{
    static const int slices[] = {1, 2, 8, 32, 400};
    static const unsigned late[] = {0, 40, 128, 200, 240};
    static const unsigned weights[] = {1, 1, 1, 1, 8, 60, 1000, 0};
    emu.slice_mean = slices[emu_below(5)];
    emu.late_chance = late[emu_below(5)];
    emu.sticky = emu_below(3) == 0;
    bool fair = emu_below(3) == 0;
    for (int i = 0; i < emu.options.devices; i++)
        emu.devices[i].weight = fair ? 1 : weights[emu_below(8)];
    emu.mood_until = emu.counts.steps + 200 + emu_below(20000);
}

static struct emu_device *draw_device(void)
{
    unsigned total = 0;
    struct emu_device *other = NULL;
    for (int i = 0; i < emu.options.devices; i++) {
        struct emu_device *d = &emu.devices[i];
        if (d->active_count) {
            total += d->weight;
            if (!other || emu_below(2))
                other = d;
        }
    }
    if (total == 0)
        return other;
    unsigned drawn = emu_below(total);
    for (int i = 0; i < emu.options.devices; i++) {
        struct emu_device *d = &emu.devices[i];
        if (!d->active_count)
            continue;
        if (drawn < d->weight)
            return d;
        drawn -= d->weight;
    }
    return other;
}

static struct emu_thread *draw(void)
{
    struct emu_device *d = draw_device();
    if (!d)
        return NULL;
    struct emu_cta *c = emu.last_cta;
    if (!emu.sticky || !c || c->device != d || c->place < 0)
        c = d->active[emu_below((uint32_t)d->active_count)];
    emu.last_cta = c;
    return c->runnable[emu_below((uint32_t)c->runnable_count)];
}

static void resume(struct emu_thread *t)
{
    emu.current = t;
    threadIdx = t->index;
    blockIdx = emu.slots[t->cta->slot].block;
    blockDim = t->cta->grid->launch->block;
    gridDim = t->cta->grid->launch->grid;
    emu.slice = 1 + (int)emu_below((uint32_t)(2 * emu.slice_mean));
    emu.counts.switches++;
    emu_switch(&emu.host_sp, t->sp);
    emu.current = NULL;
    if (emu.finished) {
        t = emu.finished;
        emu.finished = NULL;
        thread_end(t);
    }
}

/* Nobody can run. Waiting loops may end by themselves, after some number of tries or some time: let
 * them try. False: they have, and nothing came of it. */
static bool idle(void)
{
    uint64_t rounds = emu.options.time_passes ? 20000 : 8;
    bool any = false;
    if (emu.idle_rounds++ >= rounds)
        return false;
    emu.now_ns += 1000000;
    for (int i = 0; i < emu.options.devices; i++)
        for (struct emu_grid *g = emu.devices[i].grids; g; g = g->next)
            for (struct emu_cta *c = g->ctas; c; c = c->next)
                for (int k = 0; k < c->count; k++)
                    if (c->threads[k] && c->threads[k]->state == EMU_POLLING) {
                        emu_wake(c->threads[k]);
                        any = true;
                    }
    return any;
}

bool emu_run(bool (*done)(const void *arg), const void *arg)
{
    emu.last_effect = emu.counts.steps;
    emu.idle_rounds = 0;
    emu.stuck = false;
    while (!emu.failed) {
        if (emu.streams_dirty)
            emu_streams_advance();
        if (done(arg))
            break;
        start_ctas();
        if (emu.counts.steps >= emu.mood_until)
            change_mood();
        struct emu_thread *t = draw();
        if (t) {
            resume(t);
        } else if (!idle()) {
            emu.stuck = emu_others_may_come();
            if (emu.stuck)
                break;
            emu_report_deadlock();
        }
        if (emu.counts.steps - emu.last_effect > 20000000)
            emu_report_deadlock();
    }
    if (emu.failed)
        emu_report_finish();
    return !emu.failed;
}

/* --------------------------------------------------------------- cooperation */

static void barrier_complete(struct emu_cta *c)
{
    struct emu_clock *joint = NULL;
    struct emu_slot *s = &emu.slots[c->slot];
    for (int i = 0; i < c->count; i++)
        if (c->threads[i])
            emu_clock_join(&joint, c->threads[i]->known);
    emu_clock_add_slot(&joint, c->slot, s->now++);
    c->arrived = 0;
    for (int i = 0; i < c->count; i++) {
        struct emu_thread *t = c->threads[i];
        if (!t)
            continue;
        emu_clock_set(&t->known, joint);
        t->result = c->votes;
        if (t->state == EMU_AT_BARRIER)
            emu_wake(t);
    }
    c->votes = 0;
    emu_clock_drop(joint);
    emu.idle_rounds = 0;
    emu.last_effect = emu.counts.steps;
}

/* __syncthreads is an instruction of the warp (bar.sync ... .aligned): its threads that have not
 * exited must all come to the same one. Compilers may have copied it: lines count, not addresses.
 */
static void check_aligned_barrier(struct emu_thread *t, uintptr_t pc)
{
    unsigned first = (t->id & (EMU_THREADS_MAX - 1)) & ~31u;
    t->wait_pc = pc;
    for (unsigned i = first; i < first + 32 && i < (unsigned)t->cta->count; i++) {
        const struct emu_thread *o = t->cta->threads[i];
        if (o && o != t && o->state == EMU_AT_BARRIER && o->wait_pc != pc &&
            !emu_same_line(o->wait_pc, pc)) {
            emu_say("threads %u and %u of a warp are at different __syncthreads\n", i,
                    t->id & (EMU_THREADS_MAX - 1));
            emu_say_where(o->wait_pc, "    ");
            emu_fail(pc, "a warp has to come to a __syncthreads together");
        }
    }
}

static unsigned barrier(bool vote, uintptr_t pc)
{
    struct emu_thread *t = emu.current;
    emu_step();
    emu_polls_clear(t);
    check_aligned_barrier(t, pc);
    t->cta->votes += vote;
    if (++t->cta->arrived == t->cta->live)
        barrier_complete(t->cta);
    else
        emu_block(EMU_AT_BARRIER, pc);
    return (unsigned)t->result;
}

void emu_syncthreads(void)
{
    barrier(false, (uintptr_t)__builtin_return_address(0));
}

unsigned emu_syncthreads_count(bool predicate)
{
    return barrier(predicate, (uintptr_t)__builtin_return_address(0));
}

/* The lanes of `mask` of this thread's warp, if all of them are there. */
static bool warp_gather(struct emu_thread *t, struct emu_thread *lanes[32], uintptr_t pc)
{
    unsigned first = (t->id & (EMU_THREADS_MAX - 1)) & ~31u;
    bool all = true;
    for (unsigned i = 0; i < 32; i++) {
        lanes[i] = NULL;
        if (!(t->warp_mask >> i & 1))
            continue;
        if (first + i >= (unsigned)t->cta->count || !t->cta->threads[first + i])
            emu_fail(pc, "lane %u is in the mask %#x but does not exist or has exited", i,
                     t->warp_mask);
        lanes[i] = t->cta->threads[first + i];
        if (lanes[i] != t &&
            (lanes[i]->state != EMU_AT_WARP || lanes[i]->warp_kind != t->warp_kind ||
             lanes[i]->warp_mask != t->warp_mask))
            all = false;
    }
    return all;
}

static void warp_order(struct emu_thread *lanes[32], uint32_t slot)
{
    struct emu_clock *joint = NULL;
    struct emu_slot *s = &emu.slots[slot];
    for (int i = 0; i < 32; i++)
        if (lanes[i])
            emu_clock_join(&joint, lanes[i]->known);
    bool whole = true;
    for (int i = 0; i < 32; i++)
        whole = whole && lanes[i];
    if (whole)
        emu_clock_add_key(&joint, EMU_WARP | lanes[0]->id, s->now);
    for (int i = 0; i < 32 && !whole; i++)
        if (lanes[i])
            emu_clock_add_key(&joint, lanes[i]->id, s->now);
    s->now++;
    for (int i = 0; i < 32; i++)
        if (lanes[i])
            emu_clock_set(&lanes[i]->known, joint);
    emu_clock_drop(joint);
}

static uint64_t warp_meet(enum emu_warp_kind kind, uint32_t mask, uint64_t value, int source,
                          uintptr_t pc)
{
    struct emu_thread *t = emu.current, *lanes[32];
    uint32_t ballot = 0;
    emu_step();
    emu_polls_clear(t);
    t->warp_kind = kind;
    t->warp_mask = mask;
    t->argument = value;
    t->warp_source = source;
    if (!(mask >> (t->id & 31) & 1))
        emu_fail(pc, "a lane calls with a mask (%#x) that it is not in", mask);
    if (!warp_gather(t, lanes, pc)) {
        emu_block(EMU_AT_WARP, pc);
        return t->result;
    }
    for (int i = 0; i < 32; i++)
        if (lanes[i] && lanes[i]->argument)
            ballot |= 1u << i;
    for (int i = 0; i < 32; i++) {
        if (!lanes[i])
            continue;
        const struct emu_thread *from = lanes[lanes[i]->warp_source & 31];
        lanes[i]->result =
            kind == EMU_SHUFFLE ? (from ? from->argument : 0xdeadbeefdeadbeef) : ballot;
    }
    if (kind == EMU_SYNCWARP)
        warp_order(lanes, t->cta->slot);
    for (int i = 0; i < 32; i++)
        if (lanes[i] && lanes[i] != t)
            emu_wake(lanes[i]);
    return t->result;
}

void emu_syncwarp(uint32_t mask)
{
    warp_meet(EMU_SYNCWARP, mask, 0, 0, (uintptr_t)__builtin_return_address(0));
}

uint32_t emu_ballot(uint32_t mask, bool predicate)
{
    return (uint32_t)warp_meet(EMU_BALLOT, mask, predicate, 0,
                               (uintptr_t)__builtin_return_address(0));
}

uint64_t emu_shuffle(uint32_t mask, uint64_t value, int source_lane)
{
    return warp_meet(EMU_SHUFFLE, mask, value, source_lane, (uintptr_t)__builtin_return_address(0));
}

/* The kernels before it in the stream have ended, and their memory is visible here. */
void emu_await_predecessors(void)
{
    struct emu_thread *t = emu.current;
    uintptr_t pc = (uintptr_t)__builtin_return_address(0);
    emu_step();
    emu_polls_clear(t);
    while (t->cta->grid->before)
        emu_block(EMU_PREDECESSOR, pc);
    struct emu_clock *ended = emu_stream_known(t->cta->grid);
    emu_clock_join(&t->known, ended);
    emu_clock_join(&t->release_gpu, ended);
    emu_clock_join(&t->release_sys, ended);
}

void emu_admit_successor(void)
{
    emu_step();
    trigger(emu.current->cta);
}

void *emu_shared_of(struct emu_cta *c, const void *key, size_t bytes)
{
    for (struct emu_shared *s = c->shared; s; s = s->next)
        if (s->key == key)
            return s->memory;
    struct emu_shared *s = calloc(1, sizeof(*s));
    void *memory = s ? emu_allocate(bytes, c->device->index, "shared memory") : NULL;
    if (!memory) {
        free(s);
        emu_fail(0, "out of memory for %zu bytes of shared memory", bytes);
        return NULL;
    }
    s->key = key;
    s->memory = memory;
    s->bytes = bytes;
    s->next = c->shared;
    c->shared = s;
    return memory;
}

void *emu_shared(const void *key, size_t bytes)
{
    return emu_shared_of(emu.current->cta, key, bytes);
}

void *emu_shared_dynamic(void)
{
    static const char dynamic;
    return emu_shared(&dynamic, emu.current->cta->grid->launch->shared_bytes);
}

/* ------------------------------------------------------------------------ close */

static void grid_abandon(struct emu_grid *g)
{
    while (g->ctas) {
        struct emu_cta *c = g->ctas;
        g->ctas = c->next;
        for (int i = 0; i < c->count; i++)
            if (c->threads[i]) {
                thread_free(c->threads[i]);
            }
        cta_free(c);
    }
    for (int i = 0; i < EMU_ACQUIRED; i++)
        emu_clock_drop(g->joined[i]);
    emu_clock_drop(g->start);
    emu_clock_drop(g->end);
    emu_launch_drop(g->launch);
    free(g->order);
    free(g);
}

void emu_sched_close(void)
{
    for (int i = 0; i < EMU_MAX_DEVICES; i++) {
        struct emu_device *d = &emu.devices[i];
        while (d->grids) {
            struct emu_grid *g = d->grids;
            d->grids = g->next;
            grid_abandon(g);
        }
        free(d->active);
        free(d->free_slots);
        d->active = NULL;
        d->free_slots = NULL;
    }
}
