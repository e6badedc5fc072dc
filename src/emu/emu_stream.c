/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_stream.c: the queues of the machine; see emu_stream.h.
 */
#include "emu/emu_stream.h"

#include <stdlib.h>
#include <string.h>

static struct emu_stream *streams;

struct emu_stream *emu_stream_new(struct emu_device *d)
{
    struct emu_stream *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->device = d;
    s->slot = emu_slot_take(d);
    emu.slots[s->slot].name = "a copy in a stream";
    emu.slots[s->slot].grid = 0;
    s->tail = &s->head;
    s->next = streams;
    streams = s;
    return s;
}

void emu_launch_drop(struct emu_launch *l)
{
    if (l && --l->users == 0) {
        l->release(l->arguments);
        free(l);
    }
}

void emu_event_drop(struct emu_event_object *e)
{
    if (e && --e->users == 0) {
        emu_clock_drop(e->known);
        free(e);
    }
}

static void op_free(struct emu_op *op)
{
    emu_launch_drop(op->launch);
    emu_event_drop(op->event);
    emu_clock_drop(op->known);
    free(op);
}

static struct emu_op *op_copy(const struct emu_op *op)
{
    struct emu_op *copy = malloc(sizeof(*copy));
    if (!copy)
        return NULL;
    *copy = *op;
    copy->next = NULL;
    copy->known = emu_clock_hold(emu.host_known);
    if (op->launch)
        op->launch->users++;
    if (op->event)
        op->event->users++;
    return copy;
}

bool emu_stream_add(struct emu_stream *s, const struct emu_op *op)
{
    struct emu_op *copy = op_copy(op);
    if (!copy)
        return false;
    *s->tail = copy;
    s->tail = &copy->next;
    emu.streams_dirty = true;
    return true;
}

bool emu_graph_add(struct emu_graph *g, const struct emu_op *op)
{
    struct emu_op *copy = op_copy(op);
    if (!copy)
        return false;
    *g->tail = copy;
    g->tail = &copy->next;
    return true;
}

void emu_graph_drop(struct emu_graph *g)
{
    if (!g || --g->users > 0)
        return;
    while (g->head) {
        struct emu_op *op = g->head;
        g->head = op->next;
        op_free(op);
    }
    free(g);
}

void emu_stream_free(struct emu_stream *s)
{
    struct emu_stream **link = &streams;
    while (*link && *link != s)
        link = &(*link)->next;
    if (*link)
        *link = s->next;
    while (s->head) {
        struct emu_op *op = s->head;
        s->head = op->next;
        op_free(op);
    }
    emu_clock_drop(s->known);
    if (s->device->free_slots)
        emu_slot_give(s->device, s->slot);
    free(s);
}

bool emu_stream_idle(const void *stream)
{
    const struct emu_stream *s = stream;
    return !s->head && !s->live;
}

bool emu_streams_idle(const struct emu_device *d)
{
    for (const struct emu_stream *s = streams; s; s = s->next)
        if (s->device == d && !emu_stream_idle(s))
            return false;
    return true;
}

bool emu_machine_idle(void)
{
    for (const struct emu_stream *s = streams; s; s = s->next)
        if (!emu_stream_idle(s))
            return false;
    return true;
}

void emu_streams_learn(const struct emu_device *d)
{
    for (const struct emu_stream *s = streams; s; s = s->next)
        if (s->device == d)
            emu_clock_join(&emu.host_known, s->known);
}

void emu_streams_end_capture(const struct emu_graph *g)
{
    for (struct emu_stream *s = streams; s; s = s->next)
        if (s->capture == g)
            s->capture = NULL;
}

struct emu_clock *emu_stream_known(const struct emu_grid *g)
{
    return g->stream->known;
}

void emu_stream_grid_ended(struct emu_grid *g)
{
    struct emu_stream *s = g->stream;
    emu_clock_join(&s->known, g->end);
    s->live--;
    if (s->last == g)
        s->last = NULL;
    emu.streams_dirty = true;
}

static void access_memory(struct emu_stream *s, const void *p, size_t bytes, bool write)
{
    emu_stream_access(s->slot, s->known, p, bytes, write);
}

static void finish(struct emu_stream *s)
{
    emu_clock_add_slot(&s->known, s->slot, emu.slots[s->slot].now++);
}

static bool start_kernel(struct emu_stream *s, const struct emu_op *op)
{
    struct emu_clock *start;
    if (s->live > 0) {
        const struct emu_grid *last = s->last;
        if (!op->launch->early || !last || last->triggered < last->blocks)
            return false;
        start = emu_clock_hold(last->start);
    } else {
        start = emu_clock_hold(s->known);
    }
    emu_clock_join(&start, op->known);
    struct emu_grid *g = emu_grid_start(op->launch, s->device, s, s->last, start);
    emu_clock_drop(start);
    if (!g) {
        emu_fail(0, "out of memory for a grid");
        return false;
    }
    s->last = g;
    s->live++;
    return true;
}

/* Do, or begin, the first operation. False: it is not its time. */
static bool advance(struct emu_stream *s)
{
    struct emu_op *op = s->head;
    if (!op)
        return false;
    if (op->kind == EMU_OP_KERNEL) {
        if (!start_kernel(s, op))
            return false;
    } else if (s->live > 0 || (op->kind == EMU_OP_WAIT && op->event->done < op->count)) {
        return false;
    }
    emu_clock_join(&s->known, op->known);
    switch (op->kind) {
    case EMU_OP_COPY:
        access_memory(s, op->from, op->bytes, false);
        access_memory(s, op->to, op->bytes, true);
        if (!emu.failed)
            memmove(op->to, op->from, op->bytes);
        finish(s);
        break;
    case EMU_OP_FILL:
        access_memory(s, op->to, op->bytes, true);
        if (!emu.failed)
            memset(op->to, op->value, op->bytes);
        finish(s);
        break;
    case EMU_OP_CALL:
        op->function(op->argument);
        break;
    case EMU_OP_RECORD:
        op->event->done = op->count;
        op->event->time = emu.now_ns;
        emu_clock_set(&op->event->known, s->known);
        break;
    case EMU_OP_WAIT:
        emu_clock_join(&s->known, op->event->known);
        break;
    case EMU_OP_KERNEL:
        break;
    }
    s->head = op->next;
    if (!s->head)
        s->tail = &s->head;
    op_free(op);
    return true;
}

void emu_streams_advance(void)
{
    bool any = true;
    emu.streams_dirty = false;
    while (any && !emu.failed) {
        any = false;
        for (struct emu_stream *s = streams; s; s = s->next)
            while (!emu.failed && advance(s))
                any = true;
    }
}

void emu_streams_close(void)
{
    while (streams)
        emu_stream_free(streams);
}
