/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dev_layout.h: what lies where in the memory of a device communicator, and
 * what is in it at first. One definition, for GPU ranks and for the emulator.
 *
 *   control     counters, 32 bytes apart | barriers: a token from every rank
 *   channel 0   tokens of each session from every rank
 *               parity 0   source 0: a slot of each session, source 1 ... | WORD: their escapes
 *               parity 1   the same
 *   channel 1 ...
 *   local       epochs of every channel's sessions, epochs of the barriers, fate
 *   memory      the caller's
 *
 * Peers write into control, channels and memory; local is this rank's own.
 */
#ifndef SOL_PROTO_DEV_LAYOUT_H
#define SOL_PROTO_DEV_LAYOUT_H

#include "solccl/device.h"
#include "solccl/device/gpu_word.h"

#include <stdio.h>
#include <string.h>

#define SOL_DEV_COUNTER_STEP 32 /* SOL_COUNTER_STEP of onesided.cuh */
#define SOL_DEV_FATE_BYTES 64   /* struct sol_gpu_fate, device/fate.h */
#define SOL_DEV_MAX_SESSIONS 65536
#define SOL_DEV_MAX_COUNTERS 65536
#define SOL_DEV_MAX_SLOT (256u << 20)
#define SOL_DEV_MAX_STEP 0x7fffffffu /* kernels reckon with 32 bits within a channel */

struct sol_dev_place { /* of a channel */
    uint64_t at, tokens, slot, source, parity, epochs;
};
struct sol_dev_layout {
    struct sol_dev_place channel[SOL_DEV_MAX_CHANNELS];
    uint64_t barriers, control_bytes, barrier_epochs, fate;
    uint64_t memory; /* all before it is set by sol_dev_fill */
    uint64_t total;
};

static inline uint64_t sol_dev_up(uint64_t x, uint64_t to)
{
    return (x + to - 1) / to * to;
}

/* A slot as it lies in memory. */
static inline uint64_t sol_dev_slot_bytes(const sol_channel_config_t *c)
{
    switch (c->kind) {
    case SOL_CHANNEL_TAG:
        return sol_dev_up(sol_dev_up(c->slot_bytes, 16) * 2, 128);
    case SOL_CHANNEL_LINE:
        return sol_dev_up(c->slot_bytes, 120) / 120 * 128;
    default:
        return sol_dev_up(c->slot_bytes, 128);
    }
}

/* SOL_OK, or SOL_ERR_ARGUMENT with what is wrong in `why`. */
static inline sol_status_t sol_dev_check(const sol_dev_config_t *c, int nranks, char *why,
                                         size_t why_bytes)
{
    for (int i = 0; i < SOL_DEV_MAX_CHANNELS; i++) {
        const sol_channel_config_t *ch = &c->channel[i];
        if (ch->sessions == 0) {
            continue;
        }
        if (ch->sessions < 0 || ch->sessions > SOL_DEV_MAX_SESSIONS || (int)ch->kind < 0 ||
            ch->kind >= SOL_CHANNEL_KINDS || ch->slot_bytes == 0 ||
            ch->slot_bytes > SOL_DEV_MAX_SLOT) {
            snprintf(why, why_bytes,
                     "channel %d has kind %d, %d sessions, slots of %zu bytes: expected a kind "
                     "below %d, at most %d sessions, slots of 1 to %u bytes",
                     i, (int)ch->kind, ch->sessions, ch->slot_bytes, SOL_CHANNEL_KINDS,
                     SOL_DEV_MAX_SESSIONS, SOL_DEV_MAX_SLOT);
            return SOL_ERR_ARGUMENT;
        }
        if ((double)sol_dev_slot_bytes(ch) * 3 * nranks * ch->sessions > (double)SOL_DEV_MAX_STEP) {
            snprintf(why, why_bytes,
                     "channel %d: %d sessions of %zu bytes are more than 2 GiB: use several "
                     "channels, or shorter slots",
                     i, ch->sessions, ch->slot_bytes);
            return SOL_ERR_ARGUMENT;
        }
    }
    if (c->counters < 0 || c->counters > SOL_DEV_MAX_COUNTERS || c->barriers < 0 ||
        c->barriers > SOL_DEV_MAX_COUNTERS || c->memory_bytes > (size_t)1 << 46 ||
        c->ranks_per_host < 0 || (c->ranks_per_host > 0 && nranks % c->ranks_per_host != 0)) {
        snprintf(why, why_bytes,
                 "counters %d, barriers %d, memory_bytes %zu, ranks_per_host %d: expected 0 to %d, "
                 "0 to %d, at most 2^46, and a divisor of %d",
                 c->counters, c->barriers, c->memory_bytes, c->ranks_per_host, SOL_DEV_MAX_COUNTERS,
                 SOL_DEV_MAX_COUNTERS, nranks);
        return SOL_ERR_ARGUMENT;
    }
    return SOL_OK;
}

/* Of a config that sol_dev_check likes. */
static inline struct sol_dev_layout sol_dev_layout_of(const sol_dev_config_t *c, int nranks)
{
    struct sol_dev_layout l;
    const uint64_t n = (uint64_t)nranks;
    uint64_t at;
    memset(&l, 0, sizeof l);
    l.barriers = sol_dev_up((uint64_t)c->counters * SOL_DEV_COUNTER_STEP, 128);
    l.control_bytes = at = sol_dev_up(l.barriers + (uint64_t)c->barriers * n * 8, 128);
    for (int i = 0; i < SOL_DEV_MAX_CHANNELS; i++) {
        struct sol_dev_place *p = &l.channel[i];
        const uint64_t sessions = (uint64_t)c->channel[i].sessions;
        if (sessions == 0) {
            continue;
        }
        p->tokens = sol_dev_up(sessions * n * 8, 128);
        p->slot = sol_dev_slot_bytes(&c->channel[i]);
        p->source = sessions * p->slot;
        p->parity = n * p->source;
        if (c->channel[i].kind == SOL_CHANNEL_WORD) {
            p->parity = sol_dev_up(p->parity + p->parity / 2, 128);
        }
        p->at = at + p->tokens;
        at = p->at + 2 * p->parity;
    }
    for (int i = 0; i < SOL_DEV_MAX_CHANNELS; i++) {
        l.channel[i].epochs = at;
        at += sol_dev_up((uint64_t)c->channel[i].sessions * 8, 128);
    }
    l.barrier_epochs = at;
    l.fate = sol_dev_up(at + (uint64_t)c->barriers * 8, 128);
    l.memory = sol_dev_up(l.fate + SOL_DEV_FATE_BYTES, 4096);
    l.total = l.memory + sol_dev_up(c->memory_bytes, 4096);
    return l;
}

static inline void sol_dev_fill_words(unsigned char *at, uint64_t count, uint64_t word)
{
    for (uint64_t i = 0; i < count; i++) {
        memcpy(at + 8 * i, &word, 8);
    }
}

/* What `image`, zeroed, of l->memory bytes, has to hold at first. */
static inline void sol_dev_fill(const struct sol_dev_layout *l, const sol_dev_config_t *c,
                                int nranks, unsigned char *image)
{
    const uint64_t first = c->first_epoch ? c->first_epoch : 1;
    for (int i = 0; i < SOL_DEV_MAX_CHANNELS; i++) {
        const struct sol_dev_place *p = &l->channel[i];
        const uint64_t sessions = (uint64_t)c->channel[i].sessions;
        sol_dev_fill_words(image + p->epochs, sessions, first);
        for (uint64_t half = 0; c->channel[i].kind == SOL_CHANNEL_WORD && half < 2; half++) {
            sol_dev_fill_words(image + p->at + half * p->parity, (uint64_t)nranks * p->source / 8,
                               SOL_WORD_MARK);
        }
        /* tags and flags of before the first epoch, wherever that is; tokens only grow */
        if (c->channel[i].kind == SOL_CHANNEL_TAG) {
            sol_dev_fill_words(image + p->at, 2 * p->parity / 8, ((first - 1) & 0xffffffffu) << 32);
        }
        sol_dev_fill_words(image + p->at - p->tokens, sessions * (uint64_t)nranks, first - 1);
    }
    sol_dev_fill_words(image + l->barriers, (uint64_t)c->barriers * (uint64_t)nranks, first - 1);
    sol_dev_fill_words(image + l->barrier_epochs, (uint64_t)c->barriers, first);
}

static inline struct sol_channel sol_dev_channel_of(const struct sol_dev_layout *l,
                                                    const sol_dev_config_t *c, int i,
                                                    char *const *base, int rank, int nranks)
{
    const struct sol_dev_place *p = &l->channel[i];
    struct sol_channel ch;
    memset(&ch, 0, sizeof ch);
    ch.rank = rank;
    ch.nranks = nranks;
    if (c->channel[i].sessions == 0) {
        return ch;
    }
    ch.epochs = (uint64_t *)(void *)(base[rank] + p->epochs);
    ch.in = base[rank] + p->at + (uint64_t)sol_poll_peer(rank, 0) * p->source;
    ch.parity_step = (uint32_t)p->parity;
    ch.source_step = (uint32_t)p->source;
    for (int k = 0; k < nranks - 1; k++) {
        ch.out[k] = base[sol_push_peer(rank, nranks, k)] + p->at + (uint64_t)rank * p->source;
    }
    ch.slot_bytes = (uint32_t)p->slot;
    ch.token_step = (uint32_t)p->tokens;
    ch.sessions = (uint32_t)c->channel[i].sessions;
    ch.kind = (uint32_t)c->channel[i].kind;
    return ch;
}

/* `bound`: all but its fate. `base`: where each rank's memory is mapped for this rank's kernels. */
static inline void sol_dev_describe(const struct sol_dev_layout *l, const sol_dev_config_t *c,
                                    char *const *base, int rank, int nranks,
                                    const struct sol_bound *bound, sol_dev_comm_t *dev)
{
    memset(dev, 0, sizeof *dev);
    dev->rank = rank;
    dev->nranks = nranks;
    dev->counters = c->counters;
    dev->barriers = c->barriers;
    dev->ranks_per_host = c->ranks_per_host ? c->ranks_per_host : nranks;
    dev->barrier_epochs = (uint64_t *)(void *)(base[rank] + l->barrier_epochs);
    dev->barrier_at = (uint32_t)l->barriers;
    dev->control_bytes = (uint32_t)l->control_bytes;
    dev->bound = *bound;
    dev->bound.fate = (struct sol_gpu_fate *)(void *)(base[rank] + l->fate);
    dev->allocation = base[rank];
    dev->memory.bytes = c->memory_bytes;
    for (int r = 0; r < nranks; r++) {
        dev->control[r] = base[r];
        dev->memory.base[r] = base[r] + l->memory;
    }
    for (int i = 0; i < SOL_DEV_MAX_CHANNELS; i++) {
        dev->channel[i] = sol_dev_channel_of(l, c, i, base, rank, nranks);
        dev->channel[i].bound = dev->bound;
        dev->channels += c->channel[i].sessions != 0;
    }
}

#endif
