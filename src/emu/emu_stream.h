/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_stream.h: streams, events and graphs, between the runtime's functions
 * (emu_runtime.c) and the machine (emu_stream.c).
 *
 * A stream is a queue of operations. What a finished operation did comes before
 * the next one of its stream; events carry that to other streams, and waiting
 * carries it to the host.
 */
#ifndef SOL_EMU_EMU_STREAM_H
#define SOL_EMU_EMU_STREAM_H

#include "emu/emu_machine.h"

enum emu_op_kind {
    EMU_OP_KERNEL,
    EMU_OP_COPY,
    EMU_OP_FILL,
    EMU_OP_CALL,
    EMU_OP_RECORD,
    EMU_OP_WAIT
};

struct emu_op {
    struct emu_op *next;
    enum emu_op_kind kind;
    struct emu_launch *launch;
    void *to;
    const void *from;
    size_t bytes;
    int value;
    void (*function)(void *);
    void *argument;
    struct emu_event_object *event;
    uint64_t count;          /* of the event's records, to wait for */
    struct emu_clock *known; /* what the host knew when it enqueued this */
};

struct emu_stream {
    struct emu_stream *next;
    struct emu_device *device;
    uint32_t slot;
    struct emu_op *head, **tail;
    struct emu_grid *last; /* the latest kernel, while it has not ended */
    int live;              /* kernels that have not ended */
    struct emu_clock *known;
    struct emu_graph *capture;
};

struct emu_event_object {
    uint64_t asked, done; /* records */
    uint64_t time;
    struct emu_clock *known;
    int users;
    struct emu_graph *capture; /* recorded in it */
};

struct emu_graph {
    struct emu_op *head, **tail;
    int users;
};

struct emu_stream *emu_stream_new(struct emu_device *d);
void emu_stream_free(struct emu_stream *s);
/* Takes `op` over (it is copied). False: out of memory. */
bool emu_stream_add(struct emu_stream *s, const struct emu_op *op);
bool emu_stream_idle(const void *stream);
/* Nothing to do in any stream of a device. */
bool emu_streams_idle(const struct emu_device *d);
bool emu_machine_idle(void);
/* The host has waited for all of a device's streams. */
void emu_streams_learn(const struct emu_device *d);
/* No stream captures into `g` any more. */
void emu_streams_end_capture(const struct emu_graph *g);
bool emu_graph_add(struct emu_graph *g, const struct emu_op *op);
void emu_graph_drop(struct emu_graph *g);
void emu_event_drop(struct emu_event_object *e);
void emu_launch_drop(struct emu_launch *l);

#endif
