/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_report.c: errors in words, with source lines. The first error is the one
 * that counts: the machine stops there.
 *
 * Source lines come from the program's debug information, asked of addr2line,
 * which knows inlining; without it a report has addresses to ask about later.
 */
#include "emu/emu_machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char __executable_start;

static char text[sizeof(emu.report)];
static size_t used;

/* A place in the text that the host fills with source lines, when no CUDA thread's small stack is
 * in the way: "\1hex address\2indent\3". */
void emu_say_where(uintptr_t pc, const char *indent)
{
    if (pc)
        emu_say("\1%lx\2%s\3", (unsigned long)(pc - 1), indent);
}

void emu_say(const char *format, ...)
{
    va_list args;
    if (emu.failed || used + 1 >= sizeof(text))
        return;
    va_start(args, format);
    int n = vsnprintf(text + used, sizeof(text) - used, format, args);
    va_end(args);
    if (n > 0)
        used = used + (size_t)n < sizeof(text) ? used + (size_t)n : sizeof(text) - 1;
}

void emu_who(emu_id id, char *name, size_t bytes)
{
    const struct emu_slot *s = &emu.slots[emu_slot_of(id)];
    unsigned thread = id & (EMU_THREADS_MAX - 1);
    if (s->grid == 0)
        snprintf(name, bytes, "%s of device %d", s->name ? s->name : "the host", s->device);
    else
        snprintf(name, bytes, "device %d kernel %lu block %u thread %u", s->device,
                 (unsigned long)s->grid, s->block.x, thread);
}

void emu_fail(uintptr_t pc, const char *format, ...)
{
    struct emu_thread *t = emu.current;
    char line[600], me[160];
    if (!emu.failed) {
        if (format) {
            va_list args;
            va_start(args, format);
            vsnprintf(line, sizeof(line), format, args);
            va_end(args);
            emu_say("%s\n", line);
            if (t) {
                emu_who(t->id, me, sizeof(me));
                emu_say("  by %s\n", me);
            }
        }
        emu_say_where(pc, "    ");
        emu.failed = true;
    }
    if (t)
        emu_switch(&t->sp, emu.host_sp); /* for good */
}

/* ------------------------------------------------------------------- deadlocks */

static const char *state_name(enum emu_state s)
{
    switch (s) {
    case EMU_RUNNABLE:
        return "run without end";
    case EMU_POLLING:
        return "wait for a change of memory";
    case EMU_AT_BARRIER:
        return "wait at __syncthreads";
    case EMU_AT_WARP:
        return "wait for other lanes";
    case EMU_AT_CLUSTER:
        return "wait for their cluster";
    default:
        return "wait for the kernel before";
    }
}

static void say_polls(const struct emu_thread *t)
{
    int shown = 0;
    for (int i = 0; i < t->polls_count && shown < 8; i++, shown++) {
        char what[400];
        emu_describe((const void *)(uintptr_t)t->polls[i].word, what, sizeof(what));
        emu_say("      of %s, which holds %#lx\n", what, (unsigned long)t->polls[i].value);
    }
    if (t->polls_count > shown)
        emu_say("      and %d more words\n", t->polls_count - shown);
}

/* Threads of a CTA that wait at the same place are told of once. */
static void say_cta(const struct emu_cta *c, int *budget)
{
    for (int i = 0; i<c->count && * budget> 0; i++) {
        const struct emu_thread *t = c->threads[i];
        bool first = t != NULL;
        int same = 0;
        for (int k = 0; t && k < c->count; k++) {
            const struct emu_thread *o = c->threads[k];
            if (!o || o->state != t->state || o->wait_pc != t->wait_pc)
                continue;
            same++;
            first = first && k >= i;
        }
        if (!first)
            continue;
        (*budget)--;
        emu_say("  device %d kernel %lu block %u: %d threads, the first is %d, %s\n",
                c->device->index, (unsigned long)c->grid->number, emu.slots[c->slot].block.x, same,
                i, state_name(t->state));
        if (t->state != EMU_RUNNABLE)
            emu_say_where(t->wait_pc, "      ");
        if (t->state == EMU_POLLING)
            say_polls(t);
    }
}

void emu_report_deadlock(void)
{
    int budget = 16;
    emu_say("deadlock: nobody can go on, and nothing is under way\n");
    for (int i = 0; i < emu.options.devices; i++) {
        const struct emu_device *d = &emu.devices[i];
        if (!d->grids)
            emu_say("  device %d runs nothing\n", i);
        for (const struct emu_grid *g = d->grids; g; g = g->next) {
            emu_say("  device %d kernel %lu: ", i, (unsigned long)g->number);
            emu_say_where((uintptr_t)g->launch->kernel + 1, "");
            if (g->started < g->blocks)
                emu_say("    %u of its %u blocks found no room\n", g->blocks - g->started,
                        g->blocks);
            for (const struct emu_cta *c = g->ctas; c; c = c->next)
                say_cta(c, &budget);
        }
    }
    if (budget == 0)
        emu_say("  ... and others\n");
    emu.failed = true;
}

/* ---------------------------------------------------------------- source lines */

static void put(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void put(const char *format, ...)
{
    size_t n = strlen(emu.report);
    va_list args;
    va_start(args, format);
    vsnprintf(emu.report + n, sizeof(emu.report) - n, format, args);
    va_end(args);
}

/* The part of a path that people know: below src/ or tests/, or below the current folder. */
static const char *short_path(const char *path)
{
    static const char *const roots[] = {"/include/solccl/", "/src/", "/tests/", "/examples/"};
    static char here[1024];
    const size_t length = getcwd(here, sizeof(here)) ? strlen(here) : 0;
    for (size_t i = 0; i < sizeof(roots) / sizeof(*roots); i++) {
        const char *found = strstr(path, roots[i]);
        if (found)
            return found + 1;
    }
    if (length > 1 && strncmp(path, here, length) == 0 && path[length] == '/')
        return path + length + 1;
    return path;
}

/* addr2line about this very program, though its file may have been built anew or be gone. */
static FILE *lines_of(unsigned long pc)
{
    static char command[100]; /* (stacks of fibers are small) */
    snprintf(command, sizeof(command), "addr2line -Cfipe /proc/%ld/exe %#lx 2>/dev/null",
             (long)getpid(), pc - (unsigned long)&__executable_start);
    return popen(command, "re");
}

static void put_lines(unsigned long pc, const char *indent)
{
    char line[1024];
    FILE *f = lines_of(pc);
    bool any = false;
    while (f && fgets(line, sizeof(line), f)) {
        char *name = line, *at = strstr(line, " at ");
        line[strcspn(line, "\n")] = 0;
        if (strncmp(name, " (inlined by) ", 14) == 0)
            name += 14;
        if (!at || strstr(line, "??"))
            continue;
        *at = 0;
        name[strcspn(name, "(<")] = 0;
        char *blank = strrchr(name, ' ');
        name = blank ? blank + 1 : name;
        if (strstr(at + 4, "src/emu/") || strstr(at + 4, "/emu_ptx.h"))
            continue;
        put("%s%s %s\n", indent, name, short_path(at + 4));
        any = true;
    }
    if (f)
        pclose(f);
    if (!any)
        put("%sat %#lx of the program\n", indent, pc - (unsigned long)&__executable_start);
}

/* addr2line's whole answer for an address, as a number; 0: it has none. On whatever stack: little
 * of it is used. */
static uint64_t line_of(uintptr_t pc)
{
    static struct {
        uintptr_t pc;
        uint64_t line;
    } known[256];
    static char line[1024];
    uint64_t hash = 0xcbf29ce484222325u;
    unsigned at = (unsigned)(pc * 0x9e3779b1u >> 8) & 255;
    bool any = false;
    if (known[at].pc == pc)
        return known[at].line;
    FILE *f = lines_of(pc - 1);
    while (f && fgets(line, sizeof(line), f)) {
        any = any || !strstr(line, "??");
        for (const char *c = line; *c && strncmp(c, " (discriminator", 15) != 0; c++)
            hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    }
    if (f)
        pclose(f);
    if (!any)
        return 0; /* (the next time there may be one) */
    known[at].pc = pc;
    known[at].line = hash;
    return hash;
}

bool emu_same_line(uintptr_t a, uintptr_t b)
{
    const uint64_t x = a == b ? 0 : line_of(a), y = a == b ? 0 : line_of(b);
    return x == 0 || y == 0 || x == y;
}

/* Turn the text into the report. On the host's stack. */
void emu_report_finish(void)
{
    if (emu.report[0])
        return;
    put("emu: error (seed %#lx, step %lu): ", (unsigned long)emu.options.seed,
        (unsigned long)emu.counts.steps);
    text[used] = 0;
    for (char *p = text; *p;) {
        if (*p != '\1') {
            size_t n = strcspn(p, "\1");
            put("%.*s", (int)n, p);
            p += n;
            continue;
        }
        unsigned long pc = strtoul(p + 1, &p, 16);
        char *indent = p + 1, *end = strchr(indent, '\3');
        if (!end)
            break;
        *end = 0;
        put_lines(pc, indent);
        p = end + 1;
    }
    used = 0;
}

const char *emu_report(void)
{
    if (emu.failed)
        emu_report_finish();
    return emu.report;
}

void emu_report_open(void)
{
    used = 0;
    emu.report[0] = 0;
}

bool emu_failed(void)
{
    return emu.failed;
}
