/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_clock.c: knowledge of what came before, small enough for tens of
 * thousands of threads.
 *
 * A clock per thread would cost a megabyte a clock. Here time is counted per
 * CTA ("slot"): every barrier and every release in a CTA begins a new stamp of
 * it, and an event is (thread, stamp of its CTA). What a thread knows is
 *   - for each slot: all its threads' events up to a stamp (from barriers, and
 *     from ends of kernels), and
 *   - for single threads or warps: their events up to a stamp (from fences).
 * Both only grow, and a value is never changed once made: most threads share
 * the same one.
 */
#include "emu/emu_machine.h"

#include <stdlib.h>
#include <string.h>

static struct emu_clock *clock_new(uint32_t slots, uint32_t extras)
{
    size_t bytes = sizeof(struct emu_clock) + ((size_t)slots + (slots & 1)) * 4;
    struct emu_clock *c = malloc(bytes + extras * sizeof(struct emu_extra));
    if (!c)
        return NULL;
    c->refs = 1;
    c->slots = slots;
    c->extras = extras;
    c->extra = (struct emu_extra *)(void *)((char *)c + bytes);
    return c;
}

struct emu_clock *emu_clock_hold(struct emu_clock *c)
{
    if (c)
        c->refs++;
    return c;
}

void emu_clock_drop(struct emu_clock *c)
{
    if (c && --c->refs == 0)
        free(c);
}

void emu_clock_set(struct emu_clock **c, struct emu_clock *to)
{
    emu_clock_hold(to);
    emu_clock_drop(*c);
    *c = to;
}

static uint32_t full_of(const struct emu_clock *c, uint32_t slot)
{
    return c && slot < c->slots ? c->full[slot] : 0;
}

static uint32_t extra_of(const struct emu_clock *c, uint32_t key)
{
    uint32_t low = 0, high = c ? c->extras : 0;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (c->extra[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return c && low < c->extras && c->extra[low].key == key ? c->extra[low].stamp : 0;
}

bool emu_clock_knows(const struct emu_clock *c, emu_id id, uint32_t stamp)
{
    if (!c)
        return false;
    if (full_of(c, emu_slot_of(id)) >= stamp)
        return true;
    if (c->extras == 0)
        return false;
    return extra_of(c, id) >= stamp || extra_of(c, EMU_WARP | (id & ~31u)) >= stamp;
}

/* The slot that a key belongs to. */
static uint32_t slot_of_key(uint32_t key)
{
    return (key & ~EMU_WARP) >> 10;
}

/* Is everything of `b` in `a`? */
static bool covers(const struct emu_clock *a, const struct emu_clock *b)
{
    for (uint32_t s = 0; s < b->slots; s++)
        if (b->full[s] > full_of(a, s))
            return false;
    for (uint32_t i = 0; i < b->extras; i++) {
        uint32_t key = b->extra[i].key, stamp = b->extra[i].stamp;
        if (full_of(a, slot_of_key(key)) < stamp && extra_of(a, key) < stamp)
            return false;
    }
    return true;
}

/* Extras of both, without those that the full stamps of `r` cover. */
static void merge_extras(struct emu_clock *r, const struct emu_clock *a, const struct emu_clock *b)
{
    uint32_t i = 0, j = 0, n = 0;
    while (i < a->extras || j < b->extras) {
        struct emu_extra e;
        if (j >= b->extras || (i < a->extras && a->extra[i].key < b->extra[j].key)) {
            e = a->extra[i++];
        } else if (i >= a->extras || b->extra[j].key < a->extra[i].key) {
            e = b->extra[j++];
        } else {
            e = a->extra[i++];
            if (b->extra[j].stamp > e.stamp)
                e.stamp = b->extra[j].stamp;
            j++;
        }
        if (r->full[slot_of_key(e.key)] < e.stamp)
            r->extra[n++] = e;
    }
    r->extras = n;
}

void emu_clock_join(struct emu_clock **c, struct emu_clock *other)
{
    struct emu_clock *a = *c;
    if (!other || a == other)
        return;
    if (!a || covers(other, a)) {
        emu_clock_set(c, other);
        return;
    }
    if (covers(a, other))
        return;
    uint32_t slots = emu.slot_count;
    struct emu_clock *r = clock_new(slots, a->extras + other->extras);
    if (!r)
        return;
    for (uint32_t s = 0; s < slots; s++) {
        uint32_t x = full_of(a, s), y = full_of(other, s);
        r->full[s] = x > y ? x : y;
    }
    merge_extras(r, a, other);
    emu_clock_drop(a);
    *c = r;
}

static struct emu_clock empty_clock = {1u << 30, 0, 0, NULL};

/* A copy with one more thing in it. */
static void add(struct emu_clock **c, uint32_t slot, uint32_t slot_stamp,
                const struct emu_extra *extra)
{
    const struct emu_clock *a = *c ? *c : &empty_clock;
    struct emu_clock one = {1, 0, extra ? 1 : 0, NULL};
    struct emu_extra copy = extra ? *extra : (struct emu_extra){0, 0};
    one.extra = &copy;
    struct emu_clock *r = clock_new(emu.slot_count, a->extras + 1);
    if (!r)
        return;
    memset(r->full, 0, (size_t)r->slots * 4);
    if (a->slots)
        memcpy(r->full, a->full, (size_t)a->slots * 4);
    if (slot_stamp > r->full[slot])
        r->full[slot] = slot_stamp;
    merge_extras(r, a, &one);
    emu_clock_drop(*c);
    *c = r;
}

void emu_clock_add_slot(struct emu_clock **c, uint32_t slot, uint32_t stamp)
{
    if (full_of(*c, slot) < stamp)
        add(c, slot, stamp, NULL);
}

void emu_clock_add_key(struct emu_clock **c, uint32_t key, uint32_t stamp)
{
    struct emu_extra e = {key, stamp};
    if (full_of(*c, slot_of_key(key)) < stamp && extra_of(*c, key) < stamp)
        add(c, slot_of_key(key), 0, &e);
}
