/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_open.c: joining and leaving. Three small exchanges over boot: what each
 * rank may use; where its segment is; whether process_vm_readv reached all
 * peers. Rank 0's limits hold for all, so that every rank plans alike.
 *
 * A rank touches the pages that peers write to it before they can, so they lie
 * on its NUMA node; its staging it writes itself. Nothing else is touched: the
 * memory is zero as it comes, and that is a valid empty pipe (proto/line.h).
 */
#include "backend/shm/shm.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096u

/* The first exchange. */
typedef struct caps {
    cpu_set_t cpus;
    sol_shm_limits_t limits;
    uint64_t slot_bytes, slots;
    uint64_t epoch;
    uint32_t lines;
    uint32_t direct;
} caps_t;

/* The second. */
typedef struct offer {
    unsigned char token[16];
    uint64_t bytes;
    uint64_t probe; /* where 16 bytes equal to the token lie in this process */
} offer_t;

typedef struct layout {
    size_t pipes, pipe_bytes, cells, cells_bytes, staging, bytes;
} layout_t;

static layout_t lay_out(const caps_t *caps, int nranks)
{
    layout_t layout;
    layout.pipes = sol_round_up(sizeof(sol_shm_control_t), PAGE);
    layout.pipe_bytes = (size_t)caps->lines * sizeof(sol_line_t);
    layout.cells = layout.pipes + layout.pipe_bytes * (size_t)nranks;
    layout.cells_bytes = sol_round_up(sol_cells_bytes(caps->limits.cell), SOL_SHM_APART);
    layout.staging = layout.cells + layout.cells_bytes * (size_t)nranks;
    layout.staging = sol_round_up(layout.staging, PAGE);
    layout.bytes = layout.staging + (size_t)(caps->slots * caps->slot_bytes);
    return layout;
}

/* ------------------------------------------------------------------------ capabilities */

static void read_affinity(cpu_set_t *cpus)
{
    if (sched_getaffinity(0, sizeof(*cpus), cpus) == 0) {
        return;
    }
    CPU_ZERO(cpus); /* more CPUs than a cpu_set_t holds: their number is enough */
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    for (int i = 0; i < online && i < CPU_SETSIZE; i++) {
        CPU_SET(i, cpus);
    }
}

static uint32_t lines_for(int nranks)
{
    return nranks <= 8 ? 1024 : nranks <= 16 ? 512 : nranks <= 32 ? 256 : 128;
}

static void size_staging(const sol_shm_t *s, caps_t *caps)
{
    size_t bytes = s->comm->staging_bytes != 0 ? s->comm->staging_bytes : 1u << 20;
    caps->slots = s->nranks <= 8 ? 8 : (uint64_t)s->nranks; /* one a reader at least: staging.h */
    size_t slot = bytes / caps->slots / PAGE * PAGE;
    slot = slot < PAGE ? PAGE : slot > (1u << 20) ? 1u << 20 : slot;
    caps->slot_bytes = slot;
}

static sol_status_t exchange_caps(sol_shm_t *s, caps_t *all)
{
    char why[256];
    caps_t own;
    memset(&own, 0, sizeof(own));
    sol_status_t status = sol_shm_plan_init(s, why, sizeof(why));
    if (status != SOL_OK) {
        return sol_thread_error(status, "%s", why);
    }
    read_affinity(&own.cpus);
    own.lines = lines_for(s->nranks);
    own.limits = s->limits;
    own.direct = s->direct;
    own.epoch = s->comm->debug_epoch;
    size_staging(s, &own);
    return sol_boot_all_gather(s->comm->boot, &own, sizeof(own), all);
}

static void use_caps(sol_shm_t *s, caps_t *all)
{
    cpu_set_t cpus = all[0].cpus;
    for (int r = 1; r < s->nranks; r++) {
        CPU_OR(&cpus, &cpus, &all[r].cpus);
    }
    s->cpus = CPU_COUNT(&cpus);
    s->oversubscribed = s->cpus < s->nranks;
    if (s->oversubscribed) {
        s->spin = 0;
    }
    s->limits = all[0].limits;
    s->direct = all[0].direct != 0;
    size_t most = all[0].lines / 4 * 3 * SOL_LINE_PAYLOAD; /* beside a full quota: line.h */
    size_t *capped[] = {&s->limits.line, &s->limits.one_shot, &s->limits.two_shot};
    for (int i = 0; i < 3; i++) {
        size_t cap = i == 2 ? most * (size_t)s->nranks : most;
        *capped[i] = *capped[i] < cap ? *capped[i] : cap;
    }
    size_t sub = all[0].slot_bytes / (size_t)(s->nranks > 1 ? s->nranks - 1 : 1);
    sub = sub / SOL_CACHE_LINE * SOL_CACHE_LINE;
    size_t *rounds[] = {&s->limits.round, &s->limits.wide};
    for (int i = 0; i < 2; i++) {
        size_t round = *rounds[i] < sub ? *rounds[i] : sub;
        *rounds[i] = round / SOL_CACHE_LINE * SOL_CACHE_LINE;
    }
    size_t *slotted[] = {&s->limits.packed, &s->limits.packed_rooted, &s->limits.packed_reduce,
                         &s->limits.packed_narrow};
    for (int i = 0; i < 4; i++) { /* an all_reduce has a slot to itself */
        size_t cap = i >= 2 ? all[0].slot_bytes : sub;
        *slotted[i] = *slotted[i] < cap ? *slotted[i] : cap;
    }
}

bool sol_shm_vm_read_allowed(void)
{
    volatile uint64_t value = 0x736f6c, copy = 0;
    struct iovec local = {(void *)(uintptr_t)&copy, sizeof(copy)};
    struct iovec remote = {(void *)(uintptr_t)&value, sizeof(value)};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)sizeof(copy) &&
           copy == value;
}

/* Does reading at the peer's address give the peer's token? Also finds out wrong pids. */
static bool vm_reaches(int pid, const offer_t *offer)
{
    unsigned char token[16];
    struct iovec local = {token, sizeof(token)};
    struct iovec remote = {(void *)(uintptr_t)offer->probe, sizeof(token)};
    return pid > 0 && process_vm_readv(pid, &local, 1, &remote, 1, 0) == (ssize_t)sizeof(token) &&
           memcmp(token, offer->token, sizeof(token)) == 0;
}

static sol_status_t agree_on_reach(sol_shm_t *s, const offer_t *offers)
{
    unsigned char own[2] = {1, 1}, all[SOL_MAX_RANKS][2];
    for (int r = 0; r < s->nranks; r++) {
        if (r == s->rank || s->peers[r].same_process) {
            continue;
        }
        own[0] = 0;
        own[1] = own[1] && vm_reaches(s->peers[r].pid, &offers[r]);
    }
    sol_status_t status = sol_boot_all_gather(s->comm->boot, own, sizeof(own), all);
    s->all_threads = s->vm_readable = status == SOL_OK;
    for (int r = 0; r < s->nranks && status == SOL_OK; r++) {
        s->all_threads = s->all_threads && all[r][0];
        s->vm_readable = s->vm_readable && all[r][1];
    }
    return status;
}

/* ----------------------------------------------------------------------------- segments */

static sol_status_t make_segment(sol_shm_t *s, const caps_t *caps, const layout_t *layout, int *fd)
{
    sol_status_t status = sol_shm_segment_create(layout->bytes, &s->segment, fd);
    if (status != SOL_OK) {
        return status;
    }
    s->messages = layout->pipes;
    s->incoming = layout->staging - layout->pipes;
    sol_shm_prefer_node(s, s->segment);
    volatile unsigned char *page = s->segment->base;
    for (size_t at = 0; at < layout->staging; at += PAGE) {
        page[at] = 0;
    }
    s->control = (sol_shm_control_t *)(void *)s->segment->base;
    s->control->magic = SOL_SHM_MAGIC;
    s->control->bytes = layout->bytes;
    memcpy(s->control->token, s->segment->token, sizeof(s->control->token));
    for (int r = 0; r < s->nranks; r++) {
        sol_shm_ack_t *ack = &s->control->acks[r];
        atomic_store_explicit(&ack->lines, (uint32_t)caps->epoch, memory_order_relaxed);
        atomic_store_explicit(&ack->chunks, caps->epoch, memory_order_relaxed);
        atomic_store_explicit(&ack->directs, caps->epoch, memory_order_relaxed);
    }
    return SOL_OK;
}

static void connect_peer(sol_shm_t *s, int rank, unsigned char *base, const caps_t *caps,
                         const layout_t *layout)
{
    sol_shm_peer_t *peer = &s->peers[rank];
    uint32_t seed = (uint32_t)caps->epoch;
    peer->control = (sol_shm_control_t *)(void *)base;
    peer->ack = &s->control->acks[rank];
    peer->its_ack = &peer->control->acks[s->rank];
    peer->directs_shown = peer->directs_read = caps->epoch;
    peer->staging = base + layout->staging;
    unsigned char *out = base + layout->pipes + layout->pipe_bytes * (size_t)s->rank;
    unsigned char *in = s->segment->base + layout->pipes + layout->pipe_bytes * (size_t)rank;
    sol_line_out_init(&peer->out, (sol_line_t *)(void *)out, caps->lines, &peer->its_ack->lines,
                      seed);
    sol_line_in_init(&peer->in, (sol_line_t *)(void *)in, caps->lines, &peer->ack->lines, seed);
    unsigned char *cells_out = base + layout->cells + layout->cells_bytes * (size_t)s->rank;
    unsigned char *cells_in = s->segment->base + layout->cells + layout->cells_bytes * (size_t)rank;
    sol_cells_out_init(&peer->cells_out, cells_out, caps->limits.cell, seed);
    sol_cells_in_init(&peer->cells_in, cells_in, caps->limits.cell, seed);
    if (caps->limits.cell == 0) {
        peer->cells_out.seen -= SOL_CELLS; /* never room */
    }
    s->chunk_done[rank] = &peer->its_ack->chunks;
}

static sol_status_t attach_peer(sol_shm_t *s, int rank, const offer_t *offer, int fd,
                                const caps_t *caps, const layout_t *layout)
{
    sol_shm_peer_t *peer = &s->peers[rank];
    if (rank == s->rank) {
        connect_peer(s, rank, s->segment->base, caps, layout);
        return SOL_OK;
    }
    if (offer->bytes != layout->bytes) {
        return sol_thread_error(SOL_ERR_INTERNAL, "rank %d's segment has %llu bytes: expected %zu",
                                rank, (unsigned long long)offer->bytes, layout->bytes);
    }
    sol_status_t status = sol_shm_segment_attach(fd, layout->bytes, offer->token, &peer->segment,
                                                 &peer->same_process);
    if (status != SOL_OK) {
        return status;
    }
    connect_peer(s, rank, peer->segment->base, caps, layout);
    if (peer->control->magic != SOL_SHM_MAGIC ||
        memcmp(peer->control->token, offer->token, sizeof(offer->token)) != 0) {
        return sol_thread_error(SOL_ERR_INTERNAL, "rank %d's segment is not one", rank);
    }
#ifdef SYS_pidfd_open
    if (!peer->same_process && peer->pid > 0) {
        peer->pidfd = (int)syscall(SYS_pidfd_open, peer->pid, 0);
    }
#endif
    return SOL_OK;
}

static sol_status_t exchange_segments(sol_shm_t *s, const caps_t *caps, const layout_t *layout,
                                      int fd, offer_t *offers)
{
    int fds[SOL_MAX_RANKS];
    offer_t own = {.bytes = layout->bytes, .probe = (uint64_t)(uintptr_t)s->segment->token};
    memcpy(own.token, s->segment->token, sizeof(own.token));
    sol_status_t status = sol_boot_all_gather(s->comm->boot, &own, sizeof(own), offers);
    if (status == SOL_OK) {
        status = sol_boot_share_fds(s->comm->boot, &fd, 1, fds);
    }
    if (status != SOL_OK) {
        return status;
    }
    for (int r = 0; r < s->nranks && status == SOL_OK; r++) {
        status = attach_peer(s, r, &offers[r], fds[r], caps, layout);
    }
    for (int r = 0; r < s->nranks; r++) {
        if (fds[r] >= 0) {
            close(fds[r]);
        }
    }
    return status;
}

/* ----------------------------------------------------------------------- open and close */

static sol_status_t prepare(sol_shm_t *s, const caps_t *caps, const layout_t *layout)
{
    for (int r = 0; r < s->nranks; r++) {
        s->peers[r].pidfd = -1;
        s->peers[r].pid = sol_boot_pid(s->comm->boot, r);
    }
    for (int d = 0; d < SOL_DTYPE_COUNT; d++) {
        for (int op = 0; op < SOL_REDOP_COUNT; op++) {
            s->reduce[d][op] = sol_reduce_bare_for(s->isa, (sol_dtype_t)d, (sol_redop_t)op);
        }
        s->scale[d] = sol_scale_for(s->isa, (sol_dtype_t)d);
    }
    size_t most = s->limits.one_shot > s->limits.round ? s->limits.one_shot : s->limits.round;
    most = most > s->limits.wide ? most : s->limits.wide;
    most = most > s->limits.line ? most : s->limits.line;
    most = most > s->limits.packed ? most : s->limits.packed;
    most = most > s->limits.packed_reduce ? most : s->limits.packed_reduce;
    most = most > s->limits.packed_narrow ? most : s->limits.packed_narrow;
    size_t share = s->limits.two_shot / (size_t)s->nranks + SOL_CACHE_LINE;
    most = most > share ? most : share;
    s->scratch_bytes = sol_round_up(most + SOL_CACHE_LINE, SOL_CACHE_LINE);
    s->scratch = sol_aligned_calloc(PAGE, s->scratch_bytes * (size_t)s->nranks);
    if (s->scratch == NULL) {
        return sol_thread_error(SOL_ERR_MEMORY, "no memory for %zu bytes of scratch",
                                s->scratch_bytes * (size_t)s->nranks);
    }
    sol_staging_init(&s->staging, s->segment->base + layout->staging, caps->slot_bytes,
                     (unsigned)caps->slots, caps->epoch);
    return SOL_OK;
}

static sol_status_t join(sol_shm_t *s, caps_t *caps)
{
    offer_t offers[SOL_MAX_RANKS];
    int fd = -1;
    sol_status_t status = exchange_caps(s, caps);
    if (status != SOL_OK) {
        return status;
    }
    use_caps(s, caps);
    layout_t layout = lay_out(&caps[0], s->nranks);
    status = make_segment(s, &caps[0], &layout, &fd);
    if (status != SOL_OK) {
        return status;
    }
    status = prepare(s, &caps[0], &layout);
    if (status == SOL_OK) {
        status = exchange_segments(s, &caps[0], &layout, fd, offers);
    }
    close(fd);
    return status == SOL_OK ? agree_on_reach(s, offers) : status;
}

static void tear_down(sol_shm_t *s)
{
    sol_shm_windows_close(s);
    for (int r = 0; r < s->nranks; r++) {
        if (s->peers[r].pidfd >= 0) {
            close(s->peers[r].pidfd);
        }
        sol_shm_segment_release(s->peers[r].segment);
    }
    sol_shm_segment_release(s->segment);
    sol_free(s->scratch);
    sol_free(s);
}

sol_status_t sol_shm_open(sol_comm_t comm)
{
    sol_shm_t *s = sol_aligned_calloc(SOL_CACHE_LINE, sol_round_up(sizeof(*s), SOL_CACHE_LINE));
    caps_t *caps = sol_calloc((size_t)comm->nranks, sizeof(*caps));
    if (s == NULL || caps == NULL) {
        sol_free(s);
        sol_free(caps);
        return sol_thread_error(SOL_ERR_MEMORY, "no memory for the state of CPU ranks");
    }
    s->comm = comm;
    s->rank = comm->rank;
    s->nranks = comm->nranks;
    for (int r = 0; r < s->nranks; r++) {
        s->peers[r].pidfd = -1;
    }
    sol_status_t status = join(s, caps);
    sol_free(caps);
    if (status != SOL_OK) {
        tear_down(s);
        return status;
    }
    comm->state = s;
    return SOL_OK;
}

void sol_shm_close(sol_comm_t comm)
{
    sol_shm_t *s = comm->state;
    if (s == NULL) {
        return;
    }
    comm->state = NULL;
    /* release: what this rank sent is visible to who finds it gone; pairs with find_suspects */
    atomic_store_explicit(&s->control->closed, 1, memory_order_release);
    tear_down(s);
}
