/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_memory.c: what memory may do, and what it must not be asked to do.
 *
 * All device memory and all pinned host memory lies in one arena; a cell
 * shadows each 64-bit word of it.
 *
 * Strong accesses (relaxed or stronger, volatile, atomics). A strong store is
 * put into its word's list of stores under way. It has landed when somebody has
 * seen it; until then
 *   - a strong load may be given the old value, by the toss of a coin, unless
 *     the store comes before the load (own, or known through a release and an
 *     acquire, a barrier, or the end of a kernel);
 *   - a later store of another thread may land before it, unless it knows of it.
 * Words are independent of each other. So every store is delayed and reordered
 * as far as the fences allow, vectors are torn into words, flags overtake data,
 * and loads are satisfied early. What a load has seen, everybody sees from then
 * on: memory has one home.
 *
 * A message carries what its writer's last release knew. A load that takes it
 * knows that too: at once if it is an acquire, otherwise from the next fence of
 * its thread on.
 *
 * Plain accesses take effect at once. Two conflicting accesses of which one is
 * plain, without one coming before the other, are a data race: an error, so
 * that it is of no importance what value they would have seen.
 *
 * Also errors: access outside an allocation, misaligned, or to bytes never
 * written.
 */
#include "emu/emu_machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

extern char __executable_start;

/* An access: bit 63 strong, then 8 bits which bytes, 20 bits who, 32 bits stamp. 0: none. */
typedef uint64_t emu_event;
#define STRONG (1ull << 63)

struct emu_cell {
    emu_event write[2], read[2];
    uint32_t write_pc[2], read_pc[2];
    uint32_t landed;    /* the store that memory holds, if it was a strong one */
    uint32_t under_way; /* in the order in which they will land */
    uint8_t written;    /* bytes */
    uint8_t waited;     /* some thread polls it */
    uint16_t unused[3];
};

struct emu_store { /* a strong store */
    uint64_t value;
    emu_event event;
    struct emu_clock *gpu, *sys; /* what it publishes, to its own GPU and to all */
    uint32_t next, pc;
    int device;
};

struct allocation {
    char *base;
    size_t bytes; /* 0: free */
    size_t room;
    int device;
    const char *kind;
    char name[64];
};

#define GRAIN 256 /* bytes; owners are kept for each */
#define PAGE 4096
static uint32_t *owners; /* index of allocation, 0: none */
static struct allocation *allocations;
static uint32_t allocation_count, allocation_room;
static char *arena_top;
static struct emu_store *stores;
static uint32_t store_count, store_room, free_store;
/* Words of host memory with stores under way, for the host to find. */
static uint64_t *host_words;
static uint32_t host_count, host_room;

#define BUCKETS 16384
static struct emu_poll *buckets[BUCKETS];

/* ------------------------------------------------------------------ allocation */

static void *reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

bool emu_memory_open(void)
{
    size_t bytes = emu.options.arena_bytes ? emu.options.arena_bytes : (size_t)2 << 30;
    emu.arena_bytes = bytes = (bytes + 65535) / 65536 * 65536;
    emu.arena = reserve(bytes);
    emu.cells = reserve(bytes / 8 * sizeof(struct emu_cell));
    owners = reserve(bytes / GRAIN * sizeof(*owners));
    if (!emu.arena || !emu.cells || !owners) {
        emu_memory_close();
        return false;
    }
    arena_top = emu.arena + GRAIN;
    allocation_count = 1;
    store_count = 1;
    return true;
}

void emu_memory_close(void)
{
    if (emu.arena)
        munmap(emu.arena, emu.arena_bytes);
    if (emu.cells)
        munmap(emu.cells, emu.arena_bytes / 8 * sizeof(struct emu_cell));
    if (owners)
        munmap(owners, emu.arena_bytes / GRAIN * sizeof(*owners));
    for (uint32_t i = 1; i < store_count; i++) {
        emu_clock_drop(stores[i].gpu);
        emu_clock_drop(stores[i].sys);
    }
    free(stores);
    free(allocations);
    free(host_words);
    host_words = NULL;
    host_count = host_room = 0;
    emu.arena = NULL;
    emu.cells = NULL;
    owners = NULL;
    stores = NULL;
    allocations = NULL;
    store_count = store_room = free_store = allocation_count = allocation_room = 0;
    memset(buckets, 0, sizeof(buckets));
}

static struct allocation *allocation_of(const void *p)
{
    if (!emu_inside(p))
        return NULL;
    uint32_t i = owners[((uintptr_t)p - (uintptr_t)emu.arena) / GRAIN];
    return i ? &allocations[i] : NULL;
}

static uint32_t new_allocation(void)
{
    if (allocation_count >= allocation_room) {
        uint32_t room = allocation_room ? allocation_room * 2 : 256;
        struct allocation *a = realloc(allocations, room * sizeof(*a));
        if (!a)
            return 0;
        allocations = a;
        allocation_room = room;
    }
    return allocation_count++;
}

/* A freed one of the right size, or 0. Sizes recur, so that nothing finer is needed. */
static uint32_t reuse(size_t room)
{
    for (uint32_t i = 1; i < allocation_count; i++)
        if (allocations[i].bytes == 0 && allocations[i].room == room)
            return i;
    return 0;
}

static void *take(uint32_t i, size_t bytes, int device, const char *kind)
{
    struct allocation *a = &allocations[i];
    a->bytes = bytes ? bytes : 1;
    a->device = device;
    a->kind = kind;
    a->name[0] = 0;
    size_t first = (size_t)(a->base - emu.arena) / GRAIN;
    for (size_t g = 0; g < a->room / GRAIN; g++)
        owners[first + g] = i;
    return a->base;
}

void *emu_allocate_at(void *base, size_t bytes, int device, const char *kind)
{
    for (uint32_t i = 1; i < allocation_count; i++)
        if (allocations[i].base == base && allocations[i].bytes == 0 &&
            bytes <= allocations[i].room)
            return take(i, bytes, device, kind);
    return NULL;
}

void *emu_allocate(size_t bytes, int device, const char *kind)
{
    size_t room = (bytes + GRAIN - 1) / GRAIN * GRAIN + (bytes == 0 ? GRAIN : 0);
    uint32_t i = reuse(room);
    if (!i) {
        if (room >= PAGE) /* large ones begin at one, as on a GPU */
            arena_top += (size_t)(emu.arena - arena_top) & (PAGE - 1);
        if (arena_top > emu.arena + emu.arena_bytes ||
            room + GRAIN > (size_t)(emu.arena + emu.arena_bytes - arena_top))
            return NULL;
        i = new_allocation();
        if (!i)
            return NULL;
        allocations[i].base = arena_top;
        allocations[i].room = room;
        arena_top += room + GRAIN; /* a gap that belongs to nobody */
    }
    return take(i, bytes, device, kind);
}

static struct emu_cell *cell_of(const void *p)
{
    return &emu.cells[((uintptr_t)p - (uintptr_t)emu.arena) / 8];
}

static void forget_stores(struct emu_cell *c);

bool emu_deallocate(void *p)
{
    struct allocation *a = allocation_of(p);
    if (!a || a->base != p || a->bytes == 0)
        return false;
    size_t room = a->room;
    size_t first = (size_t)(a->base - emu.arena) / GRAIN;
    for (size_t g = 0; g < room / GRAIN; g++)
        owners[first + g] = 0;
    struct emu_cell *c = cell_of(p);
    for (size_t w = 0; w < room / 8; w++)
        forget_stores(&c[w]);
    memset(c, 0, room / 8 * sizeof(*c));
    a->bytes = 0;
    return true;
}

void emu_name(const void *memory, const char *format, ...)
{
    struct allocation *a = allocation_of(memory);
    va_list args;
    if (!a)
        return;
    va_start(args, format);
    vsnprintf(a->name, sizeof(a->name), format, args);
    va_end(args);
}

int emu_owner(const void *p, const char **kind, char **base, size_t *bytes)
{
    const struct allocation *a = allocation_of(p);
    if (!a)
        return -2;
    if (kind)
        *kind = a->kind;
    if (base)
        *base = a->base;
    if (bytes)
        *bytes = a->bytes;
    return a->device;
}

void emu_describe(const void *p, char *text, size_t bytes)
{
    const struct allocation *a = allocation_of(p);
    if (!a) {
        snprintf(text, bytes, "%p, in no allocation", p);
        return;
    }
    int n = snprintf(text, bytes, "%s%s+%#zx", a->name[0] ? a->name : a->kind,
                     a->name[0] ? " " : "", (size_t)((const char *)p - a->base));
    if (a->device >= 0 && !a->name[0])
        n += snprintf(text + n, bytes - (size_t)n, " of device %d", a->device);
    if (emu.options.explain && (size_t)n + 4 < bytes) {
        char more[200] = "";
        emu.options.explain(p, more, sizeof(more));
        if (more[0])
            snprintf(text + n, bytes - (size_t)n, " (%s)", more);
    }
}

void emu_poison(const void *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const char *p = (const char *)memory + i;
        if (emu_inside(p))
            cell_of(p)->written &= (uint8_t) ~(1u << ((uintptr_t)p & 7));
    }
}

size_t emu_first_unwritten(const void *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const char *p = (const char *)memory + i;
        if (emu_inside(p) && !(cell_of(p)->written >> ((uintptr_t)p & 7) & 1))
            return i;
    }
    return bytes;
}

/* ---------------------------------------------------------------------- events */

static emu_event event_of(emu_id id, uint32_t stamp, uint8_t mask, bool strong)
{
    return (strong ? STRONG : 0) | (uint64_t)mask << 52 | (uint64_t)id << 32 | stamp;
}
static uint8_t mask_of(emu_event e)
{
    return (uint8_t)(e >> 52);
}
static emu_id who_of(emu_event e)
{
    return (emu_id)(e >> 32) & 0xfffff;
}

/* Who accesses: a thread, or a stream that copies. */
struct actor {
    emu_id id;
    struct emu_clock *known;
    uintptr_t pc;
    bool strong, write;
};

static bool comes_before(emu_event e, const struct actor *a)
{
    return who_of(e) == a->id || emu_clock_knows(a->known, who_of(e), (uint32_t)e);
}

static uint32_t short_pc(uintptr_t pc)
{
    uintptr_t offset = pc - (uintptr_t)&__executable_start;
    return offset < UINT32_MAX ? (uint32_t)offset : 0;
}
static uintptr_t long_pc(uint32_t pc)
{
    return pc ? pc + (uintptr_t)&__executable_start : 0;
}

static const char *manner(bool strong, bool write)
{
    return strong ? (write ? "strong store" : "strong load")
                  : (write ? "plain store" : "plain load");
}

static void race(const struct actor *a, const void *p, emu_event e, uint32_t pc, bool write)
{
    char what[400], me[160], other[160];
    emu_describe(p, what, sizeof(what));
    emu_who(a->id, me, sizeof(me));
    emu_who(who_of(e), other, sizeof(other));
    emu_say("data race on %s\n", what);
    emu_say("  a %s by %s\n", manner(e & STRONG, write), other);
    emu_say_where(long_pc(pc), "    ");
    emu_say("  does not come before a %s by %s\n", manner(a->strong, a->write), me);
    emu_fail(a->pc, NULL);
}

/* The events of a cell that conflict with this access must come before it. */
static void check_races(const struct emu_cell *c, const struct actor *a, uint8_t mask,
                        const void *p)
{
    for (int i = 0; i < 2; i++) {
        emu_event w = c->write[i];
        if ((mask_of(w) & mask) && !(a->strong && (w & STRONG)) && !comes_before(w, a))
            race(a, p, w, c->write_pc[i], true);
        emu_event r = c->read[i];
        if (a->write && (mask_of(r) & mask) && !(a->strong && (r & STRONG)) && !comes_before(r, a))
            race(a, p, r, c->read_pc[i], false);
    }
}

static void note(emu_event e[2], uint32_t pcs[2], emu_event event, uintptr_t pc)
{
    if (mask_of(e[0]) & ~mask_of(event)) {
        e[1] = e[0];
        pcs[1] = pcs[0];
    }
    e[0] = event;
    pcs[0] = short_pc(pc);
}

static void check_bounds(const void *p, size_t bytes, uintptr_t pc)
{
    const struct allocation *a = allocation_of(p);
    if (a && (const char *)p + bytes <= a->base + a->bytes)
        return;
    if (!a) /* one just before it? */
        a = allocation_of((const char *)p - GRAIN);
    if (a)
        emu_fail(pc, "access to %zu bytes at %s+%#zx, which has %zu bytes", bytes,
                 a->name[0] ? a->name : a->kind, (size_t)((const char *)p - a->base), a->bytes);
    else
        emu_fail(pc, "access to %zu bytes at %p, in no allocation", bytes, p);
}

static void check_written(const struct emu_cell *c, uint8_t mask, const void *p, uintptr_t pc)
{
    char what[400];
    if ((c->written & mask) == mask)
        return;
    emu_describe(p, what, sizeof(what));
    emu_fail(pc, "load of bytes that were never written: %s", what);
}

/* ---------------------------------------------------------------------- stores */

static uint32_t take_store(void)
{
    if (free_store) {
        uint32_t i = free_store;
        free_store = stores[i].next;
        return i;
    }
    if (store_count >= store_room) {
        uint32_t room = store_room ? store_room * 2 : 4096;
        struct emu_store *s = realloc(stores, room * sizeof(*s));
        if (!s) {
            emu_fail(0, "out of memory");
            return 0;
        }
        stores = s;
        store_room = room;
    }
    return store_count++;
}

static void give_store(uint32_t i)
{
    emu_clock_drop(stores[i].gpu);
    emu_clock_drop(stores[i].sys);
    stores[i].gpu = stores[i].sys = NULL;
    stores[i].next = free_store;
    free_store = i;
}

static void forget_stores(struct emu_cell *c)
{
    if (c->landed)
        give_store(c->landed);
    c->landed = 0;
    while (c->under_way) {
        uint32_t i = c->under_way;
        c->under_way = stores[i].next;
        give_store(i);
    }
}

static uint64_t bytes_mask(uint8_t mask)
{
    uint64_t m = 0;
    for (int i = 0; i < 8; i++)
        if (mask >> i & 1)
            m |= 0xffull << 8 * i;
    return m;
}

/* The first store under way lands. */
static void land(struct emu_cell *c, volatile uint64_t *word)
{
    uint32_t i = c->under_way;
    struct emu_store *s = &stores[i];
    uint8_t mask = mask_of(s->event);
    c->under_way = s->next;
    if (mask == 0xff) {
        *word = s->value;
    } else {
        uint64_t m = bytes_mask(mask);
        *word = (*word & ~m) | (s->value & m);
    }
    c->written |= mask;
    if (c->landed)
        give_store(c->landed);
    c->landed = i;
}

/* All stores up to the last one that comes before this access land. */
static void land_known(struct emu_cell *c, volatile uint64_t *word, const struct actor *a)
{
    int known = 0, n = 0;
    for (uint32_t i = c->under_way; i; i = stores[i].next) {
        n++;
        if (comes_before(stores[i].event, a))
            known = n;
    }
    while (known-- > 0)
        land(c, word);
}

/* And perhaps some of the others. */
static void land_some(struct emu_cell *c, volatile uint64_t *word)
{
    while (c->under_way) {
        if ((emu_random() & 255) < emu.late_chance) {
            emu.counts.late++;
            return;
        }
        land(c, word);
    }
}

/* Insert before any that do not come before it, at random. */
static void send(struct emu_cell *c, volatile uint64_t *word, uint32_t store, const struct actor *a)
{
    uint32_t position = 0, count = 0;
    for (uint32_t i = c->under_way; i; i = stores[i].next) {
        count++;
        if (comes_before(stores[i].event, a))
            position = count;
    }
    if (count > position) {
        uint32_t chosen = position + emu_below(count - position + 1);
        if (chosen < count)
            emu.counts.overtaken++;
        position = chosen;
    }
    uint32_t *link = &c->under_way;
    while (position--)
        link = &stores[*link].next;
    stores[store].next = *link;
    *link = store;
    if (count >= 6)
        land(c, word);
}

static void remember_host_word(uint64_t word)
{
    if (host_count == host_room) {
        uint32_t room = host_room ? host_room * 2 : 64;
        uint64_t *w = realloc(host_words, room * sizeof(*w));
        if (!w) {
            emu_fail(0, "out of memory");
            return;
        }
        host_words = w;
        host_room = room;
    }
    host_words[host_count++] = word;
}

/* The host looks at its memory, with ordinary loads that the machine cannot see: whatever it has
 * waited for has landed, and some of the rest, with all that this rests on. */
void emu_host_looks(void)
{
    struct actor host = {0, emu.host_known, 0, true, false};
    bool again = true;
    host.id = emu_id_of(EMU_SLOTS_MAX - 1, 0);
    while (again) {
        again = false;
        for (uint32_t i = 0; i < host_count; i++) {
            volatile uint64_t *word = (void *)(uintptr_t)host_words[i];
            struct emu_cell *c = cell_of((const void *)word);
            uint32_t before = c->under_way;
            host.known = emu.host_known;
            land_known(c, word, &host);
            land_some(c, word);
            if (c->under_way != before && c->landed) {
                emu_clock_join(&emu.host_known, stores[c->landed].sys);
                again = true;
            }
            if (!c->under_way)
                host_words[i--] = host_words[--host_count];
        }
    }
}

/* ------------------------------------------------------------- loops that wait */

static uint32_t bucket_of(uint64_t word)
{
    return (uint32_t)((word >> 3) * 0x9e3779b97f4a7c15u >> 50);
}

void emu_polls_clear(struct emu_thread *t)
{
    t->polls_count = 0;
}

void emu_polls_unlink(struct emu_thread *t)
{
    if (!t->linked)
        return;
    for (int i = 0; i < t->polls_count; i++) {
        struct emu_poll *p = &t->polls[i];
        if (p->previous)
            p->previous->next = p->next;
        else
            buckets[bucket_of(p->word)] = p->next;
        if (p->next)
            p->next->previous = p->previous;
    }
    t->linked = false;
    t->polls_count = 0;
}

static void polls_link(struct emu_thread *t)
{
    for (int i = 0; i < t->polls_count; i++) {
        struct emu_poll *p = &t->polls[i];
        struct emu_poll **bucket = &buckets[bucket_of(p->word)];
        p->thread = t;
        p->previous = NULL;
        p->next = *bucket;
        if (*bucket)
            (*bucket)->previous = p;
        *bucket = p;
        if (emu_inside((void *)(uintptr_t)p->word))
            cell_of((void *)(uintptr_t)p->word)->waited = 1;
    }
    t->linked = true;
}

static void wake_pollers(struct emu_cell *c, uint64_t word)
{
    c->waited = 0;
    struct emu_poll *p = buckets[bucket_of(word)];
    while (p) {
        struct emu_thread *t = p->thread;
        bool hit = p->word == word;
        p = p->next;
        if (hit) {
            while (p && p->thread == t) /* unlinking takes these away too */
                p = p->next;
            emu_wake(t);
        }
    }
}

/* The thread is back at the first address of its loop. If nothing that the loop looked at has
 * changed or can still change by itself, it waits for that; otherwise it lets others go on. */
static void loop_closed(struct emu_thread *t, uintptr_t pc)
{
    bool unchanged = true;
    for (int i = 0; i < t->polls_count && unchanged; i++) {
        const volatile uint64_t *word = (void *)(uintptr_t)t->polls[i].word;
        unchanged = *word == t->polls[i].value &&
                    !(emu_inside((const void *)word) && cell_of((const void *)word)->under_way);
    }
    if (unchanged) {
        polls_link(t);
        emu_block(EMU_POLLING, pc);
    } else {
        emu.slice = 0;
        emu_step();
    }
    t->polls_count = 0;
}

static void remember_poll(struct emu_thread *t, uint64_t word, uint64_t value)
{
    if (t->polls_count == EMU_POLLS)
        t->polls_count = 0;
    t->polls[t->polls_count].word = word;
    t->polls[t->polls_count++].value = value;
}

/* ------------------------------------------------------------- strong accesses */

static void effect(struct emu_thread *t)
{
    t->polls_count = 0;
    emu.idle_rounds = 0;
    emu.last_effect = emu.counts.steps;
}

static uint8_t byte_mask(const volatile void *p, int bytes)
{
    return (uint8_t)(((1u << bytes) - 1) << ((uintptr_t)p & 7));
}

static void learn(struct emu_thread *t, struct emu_clock *c, bool at_once)
{
    if (!c || c == t->known)
        return;
    if (at_once) {
        emu_clock_join(&t->known, c);
        return;
    }
    for (int i = 0; i < t->acquired_count; i++)
        if (t->acquired[i] == c)
            return;
    if (t->acquired_count == EMU_ACQUIRED) {
        emu_clock_join(&t->acquired[EMU_ACQUIRED - 1], c);
        return;
    }
    t->acquired[t->acquired_count++] = emu_clock_hold(c);
}

void emu_take_acquired(struct emu_thread *t)
{
    for (int i = 0; i < t->acquired_count; i++) {
        emu_clock_join(&t->known, t->acquired[i]);
        emu_clock_drop(t->acquired[i]);
    }
    t->acquired_count = 0;
}

static void learn_from(struct emu_thread *t, const struct emu_cell *c, enum emu_order order,
                       enum emu_scope scope)
{
    if (!c->landed)
        return;
    const struct emu_store *s = &stores[c->landed];
    bool near = s->device == t->cta->device->index;
    if (!near && scope != EMU_SYS)
        return;
    learn(t, near ? s->gpu : s->sys, order == EMU_ACQUIRE || order == EMU_ACQ_REL);
}

/* The word as it is to this load. Leaves it in memory. */
static uint64_t look(struct emu_thread *t, const volatile void *p, int bytes, enum emu_order order,
                     enum emu_scope scope, uintptr_t pc)
{
    uint64_t at = (uintptr_t)p & ~(uint64_t)7;
    volatile uint64_t *word = (void *)(uintptr_t)at;
    struct actor a = {t->id, t->known, pc, true, false};
    uint8_t mask = byte_mask(p, bytes);
    check_bounds((const void *)p, (size_t)bytes, pc);
    struct emu_cell *c = cell_of((const void *)word);
    check_races(c, &a, mask, (const void *)p);
    if (c->under_way) {
        land_known(c, word, &a);
        land_some(c, word);
    }
    check_written(c, mask, (const void *)p, pc);
    learn_from(t, c, order, scope);
    note(c->read, c->read_pc, event_of(a.id, emu.slots[emu_slot_of(a.id)].now, mask, true), pc);
    return *word;
}

static uint64_t narrow(uint64_t value, int bytes)
{
    return bytes == 8 ? value : value & ((1ull << 8 * bytes) - 1);
}

static uint64_t raw_load(const volatile void *p, int bytes)
{
    switch (bytes) {
    case 1:
        return *(const volatile uint8_t *)p;
    case 2:
        return *(const volatile uint16_t *)p;
    case 4:
        return *(const volatile uint32_t *)p;
    default:
        return *(const volatile uint64_t *)p;
    }
}

static void raw_store(volatile void *p, uint64_t value, int bytes)
{
    switch (bytes) {
    case 1:
        *(volatile uint8_t *)p = (uint8_t)value;
        break;
    case 2:
        *(volatile uint16_t *)p = (uint16_t)value;
        break;
    case 4:
        *(volatile uint32_t *)p = (uint32_t)value;
        break;
    default:
        *(volatile uint64_t *)p = value;
    }
}

static void check_aligned(const volatile void *p, size_t to, uintptr_t pc)
{
    if ((uintptr_t)p % to)
        emu_fail(pc, "misaligned access of %zu bytes at %p", to, (const void *)p);
}

static uint64_t load(const volatile void *p, int bytes, enum emu_order order, enum emu_scope scope,
                     uintptr_t pc)
{
    struct emu_thread *t = emu.current;
    uint64_t at = (uintptr_t)p & ~(uint64_t)7, value;
    check_aligned(p, (size_t)bytes, pc);
    if (t->polls_count && t->polls[0].word == at)
        loop_closed(t, pc);
    if (!emu_inside((const void *)p)) { /* plain memory of the host */
        value = raw_load(p, bytes);
        remember_poll(t, at, *(volatile uint64_t *)(uintptr_t)at);
        return value;
    }
    value = look(t, p, bytes, order, scope, pc);
    remember_poll(t, at, value);
    return narrow(value >> 8 * ((uintptr_t)p & 7), bytes);
}

uint64_t emu_load(const volatile void *p, int bytes, enum emu_order order, enum emu_scope scope)
{
    emu_step();
    return load(p, bytes, order, scope, (uintptr_t)__builtin_return_address(0));
}

/* What a store publishes. A release store: all that its thread knows and did. */
static void publish(struct emu_thread *t, struct emu_store *s, enum emu_order order,
                    enum emu_scope scope)
{
    s->gpu = s->sys = NULL;
    if (order == EMU_RELEASE || order == EMU_ACQ_REL) {
        struct emu_clock *now = emu_clock_hold(t->known);
        struct emu_slot *slot = &emu.slots[t->cta->slot];
        emu_clock_add_key(&now, t->id, slot->now++);
        s->gpu = emu_clock_hold(now);
        s->sys = scope == EMU_SYS ? emu_clock_hold(now) : emu_clock_hold(t->release_sys);
        emu_clock_drop(now);
    } else {
        s->gpu = emu_clock_hold(t->release_gpu);
        s->sys = emu_clock_hold(t->release_sys);
    }
}

static void store(volatile void *p, uint64_t value, int bytes, enum emu_order order,
                  enum emu_scope scope, uintptr_t pc)
{
    struct emu_thread *t = emu.current;
    check_aligned(p, (size_t)bytes, pc);
    effect(t);
    if (!emu_inside((const void *)p)) {
        raw_store(p, value, bytes);
        return;
    }
    uint64_t at = (uintptr_t)p & ~(uint64_t)7;
    int shift = 8 * (int)((uintptr_t)p & 7);
    struct actor a = {t->id, t->known, pc, true, true};
    uint8_t mask = byte_mask(p, bytes);
    check_bounds((const void *)p, (size_t)bytes, pc);
    struct emu_cell *c = cell_of((const void *)p);
    check_races(c, &a, mask, (const void *)p);
    uint32_t i = take_store();
    struct emu_store *s = &stores[i];
    s->event = event_of(a.id, emu.slots[t->cta->slot].now, mask, true);
    s->value = value << shift;
    s->pc = short_pc(pc);
    s->device = t->cta->device->index;
    publish(t, s, order, scope);
    if (!c->under_way && allocation_of((const void *)p)->device < 0)
        remember_host_word(at);
    send(c, (volatile uint64_t *)(uintptr_t)at, i, &a);
    note(c->write, c->write_pc, stores[i].event, pc);
    if (c->waited)
        wake_pollers(c, at);
}

void emu_store(volatile void *p, uint64_t value, int bytes, enum emu_order order,
               enum emu_scope scope)
{
    emu_step();
    store(p, value, bytes, order, scope, (uintptr_t)__builtin_return_address(0));
}

void emu_poll_pair(const void *p, uint64_t pair[2])
{
    uintptr_t pc = (uintptr_t)__builtin_return_address(0);
    emu_step();
    check_aligned(p, 16, pc);
    int first = emu.current->polls_count ? 0 : (int)(emu_random() & 1);
    pair[first] = load((const uint64_t *)p + first, 8, EMU_RELAXED, EMU_SYS, pc);
    pair[!first] = load((const uint64_t *)p + !first, 8, EMU_RELAXED, EMU_SYS, pc);
}

void emu_push_pair(void *p, uint64_t a, uint64_t b)
{
    uintptr_t pc = (uintptr_t)__builtin_return_address(0);
    emu_step();
    check_aligned(p, 16, pc);
    store((uint64_t *)p, a, 8, EMU_RELAXED, EMU_SYS, pc);
    store((uint64_t *)p + 1, b, 8, EMU_RELAXED, EMU_SYS, pc);
}

static uint64_t apply(enum emu_rmw_op op, uint64_t old, uint64_t operand, uint64_t expected)
{
    switch (op) {
    case EMU_ADD:
        return old + operand;
    case EMU_EXCHANGE:
        return operand;
    case EMU_CAS:
        return old == expected ? operand : old;
    case EMU_MIN:
        return operand < old ? operand : old;
    case EMU_MAX:
        return operand > old ? operand : old;
    case EMU_AND:
        return old & operand;
    case EMU_OR:
        return old | operand;
    default:
        return old ^ operand;
    }
}

/* An atomic acts on the newest value, and goes on publishing what the one before it did. */
uint64_t emu_rmw(volatile void *p, int bytes, enum emu_rmw_op op, uint64_t operand,
                 uint64_t expected, enum emu_order order, enum emu_scope scope)
{
    uintptr_t pc = (uintptr_t)__builtin_return_address(0);
    struct emu_thread *t = emu.current;
    emu_step();
    check_aligned(p, (size_t)bytes, pc);
    effect(t);
    if (!emu_inside((const void *)p)) {
        uint64_t was = raw_load(p, bytes);
        raw_store(p, apply(op, was, operand, expected), bytes);
        return was;
    }
    volatile uint64_t *word = (void *)((uintptr_t)p & ~(uintptr_t)7);
    struct actor a = {t->id, t->known, pc, true, true};
    uint8_t mask = byte_mask(p, bytes);
    check_bounds((const void *)p, (size_t)bytes, pc);
    struct emu_cell *c = cell_of((const void *)p);
    check_races(c, &a, mask, (const void *)p);
    while (c->under_way)
        land(c, word);
    check_written(c, mask, (const void *)p, pc);
    learn_from(t, c, order, scope);
    uint64_t old = raw_load(p, bytes);
    raw_store(p, narrow(apply(op, old, operand, expected), bytes), bytes);
    uint32_t i = take_store();
    struct emu_store *s = &stores[i];
    s->event = event_of(a.id, emu.slots[t->cta->slot].now, mask, true);
    s->pc = short_pc(pc);
    s->device = t->cta->device->index;
    publish(t, s, order, scope);
    if (c->landed) {
        emu_clock_join(&s->gpu, stores[c->landed].gpu);
        emu_clock_join(&s->sys, stores[c->landed].sys);
        give_store(c->landed);
    }
    c->landed = i;
    note(c->write, c->write_pc, s->event, pc);
    note(c->read, c->read_pc, s->event, pc);
    if (c->waited)
        wake_pollers(c, (uintptr_t)word);
    return old;
}

void emu_fence(enum emu_scope scope)
{
    struct emu_thread *t = emu.current;
    emu_step();
    effect(t);
    emu_take_acquired(t);
    if (scope == EMU_CTA)
        return;
    struct emu_slot *slot = &emu.slots[t->cta->slot];
    emu_clock_add_key(&t->known, t->id, slot->now++);
    emu_clock_set(&t->release_gpu, t->known);
    if (scope == EMU_SYS)
        emu_clock_set(&t->release_sys, t->known);
}

/* -------------------------------------------------------------- plain accesses */

static void plain_word(const struct actor *a, uint64_t at, uint8_t mask)
{
    volatile uint64_t *word = (void *)(uintptr_t)at;
    const char *p = (const char *)(uintptr_t)at + __builtin_ctz(mask);
    struct emu_cell *c = cell_of((const void *)word);
    if (c->under_way) {
        land_known(c, word, a);
        if (c->under_way) {
            const struct emu_store *s = &stores[c->under_way];
            race(a, p, s->event, s->pc, true);
        }
    }
    check_races(c, a, mask, p);
    emu_event event = event_of(a->id, emu.slots[emu_slot_of(a->id)].now, mask, false);
    if (!a->write) {
        check_written(c, mask, p, a->pc);
        note(c->read, c->read_pc, event, a->pc);
        return;
    }
    note(c->write, c->write_pc, event, a->pc);
    c->written |= mask;
    if (c->landed) {
        give_store(c->landed);
        c->landed = 0;
    }
    if (c->waited)
        wake_pollers(c, at);
}

static void plain(const struct actor *a, const void *p, size_t bytes)
{
    uintptr_t begin = (uintptr_t)p, end = begin + bytes;
    check_bounds(p, bytes, a->pc);
    for (uintptr_t at = begin & ~(uintptr_t)7; at < end; at += 8) {
        unsigned mask = 0xff;
        if (at < begin)
            mask &= 0xffu << (begin - at);
        if (at + 8 > end)
            mask &= 0xffu >> (at + 8 - end);
        plain_word(a, at, (uint8_t)mask);
    }
}

void emu_weak_read(const void *p, size_t bytes, uintptr_t pc)
{
    struct emu_thread *t = emu.current;
    if (t && emu_inside(p)) {
        struct actor a = {t->id, t->known, pc, false, false};
        plain(&a, p, bytes);
    }
}

void emu_weak_write(const void *p, size_t bytes, uintptr_t pc)
{
    struct emu_thread *t = emu.current;
    if (t && emu_inside(p)) {
        struct actor a = {t->id, t->known, pc, false, true};
        effect(t);
        plain(&a, p, bytes);
    }
}

void emu_stream_access(uint32_t slot, struct emu_clock *known, const void *p, size_t bytes,
                       bool write)
{
    struct actor a = {emu_id_of(slot, 0), known, 0, false, write};
    if (emu_inside(p) && bytes)
        plain(&a, p, bytes);
}

/* Compiled code makes the access itself, after this: a store lands at once. */
void emu_volatile_read(const void *p, size_t bytes, uintptr_t pc)
{
    struct emu_thread *t = emu.current;
    if (!t || !emu_inside(p))
        return;
    emu_step();
    (void)load(p, (int)bytes, EMU_RELAXED, EMU_SYS, pc);
}

void emu_volatile_write(const void *p, size_t bytes, uintptr_t pc)
{
    struct emu_thread *t = emu.current;
    if (!t || !emu_inside(p))
        return;
    emu_step();
    store((void *)(uintptr_t)p, raw_load(p, (int)bytes), (int)bytes, EMU_RELAXED, EMU_SYS, pc);
    struct emu_cell *c = cell_of(p);
    while (c->under_way)
        land(c, (void *)((uintptr_t)p & ~(uintptr_t)7));
}

void emu_load_pair(const void *p, uint64_t pair[2])
{
    uintptr_t pc = (uintptr_t)__builtin_return_address(0);
    check_aligned(p, 16, pc);
    emu_weak_read(p, 16, pc);
    pair[0] = *(const uint64_t *)p;
    pair[1] = *((const uint64_t *)p + 1);
}

void emu_store_pair(void *p, uint64_t a, uint64_t b)
{
    uintptr_t pc = (uintptr_t)__builtin_return_address(0);
    check_aligned(p, 16, pc);
    emu_weak_write(p, 16, pc);
    *(uint64_t *)p = a;
    *((uint64_t *)p + 1) = b;
}

uint64_t emu_load_plain(const void *p, int bytes)
{
    uintptr_t pc = (uintptr_t)__builtin_return_address(0);
    check_aligned(p, (size_t)bytes, pc);
    emu_weak_read(p, (size_t)bytes, pc);
    return raw_load(p, bytes);
}

void emu_store_plain(void *p, uint64_t value, int bytes)
{
    uintptr_t pc = (uintptr_t)__builtin_return_address(0);
    check_aligned(p, (size_t)bytes, pc);
    emu_weak_write(p, (size_t)bytes, pc);
    raw_store(p, value, bytes);
}
