/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_cluster.c: clusters. Their CTAs start together, have one more barrier, and
 * reach each other's shared memory; accesses to it are watched for races like all
 * others. Reaching into a CTA that has ended is an error, as is into one that may
 * not have started: here all have, so a kernel that forgets to wait for that is
 * not found.
 */
#include "emu/emu_stream.h"

#include <stdlib.h>

bool emu_cluster_join(struct emu_cta *c, struct emu_cta *first, unsigned place)
{
    struct emu_cluster *k = first ? first->cluster : calloc(1, sizeof(*k));
    if (!k)
        return false;
    k->ctas[place] = c;
    k->count++;
    k->live += (unsigned)c->count;
    c->cluster = k;
    return true;
}

void emu_cluster_leave(struct emu_cta *c)
{
    struct emu_cluster *k = c->cluster;
    if (!k)
        return;
    for (int i = 0; i < EMU_CLUSTER_MAX; i++)
        if (k->ctas[i] == c)
            k->ctas[i] = NULL;
    c->cluster = NULL;
    if (--k->count > 0)
        return;
    emu_clock_drop(k->coming);
    emu_clock_drop(k->known);
    free(k);
}

static void complete(struct emu_cluster *k)
{
    emu_clock_drop(k->known);
    k->known = k->coming;
    k->coming = NULL;
    k->arrived = 0;
    k->phase++;
    for (int i = 0; i < EMU_CLUSTER_MAX; i++) {
        struct emu_cta *c = k->ctas[i];
        if (!c)
            continue;
        for (int t = 0; t < c->count; t++)
            if (c->threads[t] && c->threads[t]->state == EMU_AT_CLUSTER)
                emu_wake(c->threads[t]);
    }
    emu.idle_rounds = 0;
    emu.last_effect = emu.counts.steps;
}

/* One that exits is not waited for; what it did comes before the barrier that it then completes,
 * which is more than CUDA promises. */
void emu_cluster_thread_ends(struct emu_cta *c)
{
    struct emu_cluster *k = c->cluster;
    if (k && --k->live > 0 && k->arrived == k->live)
        complete(k);
}

static struct emu_cluster *cluster_of(const struct emu_thread *t, uintptr_t pc)
{
    if (!t->cta->cluster)
        emu_fail(pc, "a barrier of clusters in a kernel that was launched without them");
    return t->cta->cluster;
}

unsigned emu_cluster_ctas(void)
{
    return emu.current->cta->grid->launch->cluster;
}

void emu_cluster_arrive(void)
{
    uintptr_t pc = (uintptr_t)__builtin_return_address(0);
    struct emu_thread *t = emu.current;
    emu_step();
    emu_polls_clear(t);
    struct emu_cluster *k = cluster_of(t, pc);
    if (t->arrived)
        emu_fail(pc, "arrives at the cluster's barrier twice without having waited");
    t->arrived = true;
    t->phase = k->phase;
    emu_clock_join(&k->coming, t->known);
    emu_clock_add_key(&k->coming, t->id, emu.slots[t->cta->slot].now++);
    if (++k->arrived == k->live)
        complete(k);
}

void emu_cluster_wait(void)
{
    uintptr_t pc = (uintptr_t)__builtin_return_address(0);
    struct emu_thread *t = emu.current;
    emu_step();
    emu_polls_clear(t);
    struct emu_cluster *k = cluster_of(t, pc);
    if (!t->arrived)
        emu_fail(pc, "waits at the cluster's barrier without having arrived");
    while (k->phase == t->phase)
        emu_block(EMU_AT_CLUSTER, pc);
    t->arrived = false;
    emu_clock_join(&t->known, k->known);
}

void *emu_cluster_map(void *mine, unsigned cta)
{
    uintptr_t pc = (uintptr_t)__builtin_return_address(0);
    struct emu_cta *c = emu.current->cta;
    struct emu_cluster *k = cluster_of(emu.current, pc);
    if (cta >= EMU_CLUSTER_MAX || !k->ctas[cta])
        emu_fail(pc, "shared memory of CTA %u of the cluster, which has ended or is none", cta);
    for (struct emu_shared *s = c->shared; s; s = s->next) {
        size_t offset = (size_t)((char *)mine - (char *)s->memory);
        if (offset < s->bytes)
            return (char *)emu_shared_of(k->ctas[cta], s->key, s->bytes) + offset;
    }
    emu_fail(pc, "not shared memory of this CTA");
    return mine;
}
