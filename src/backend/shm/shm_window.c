/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_window.c: symmetric memory, and reading a peer's memory where it lies.
 *
 * A window is one segment a rank, mapped by all: a sender names (window,
 * offset), the reader finds it in its own mapping. Nothing requires that both
 * sides' buffers are alike: a place is only about the one that is read.
 *
 * Freeing is local. It gives the owner's physical memory back at once and
 * forgets the address, so that no later call can name the window; the owner
 * keeps its mappings of the peers' memory, which they may still send from,
 * until the communicator is destroyed (address space, but no memory once the
 * peers have freed theirs). Ids are never used twice, so an old place can
 * never mean new memory.
 *
 * Direct reads and failure. The owner of exposed memory waits for the reader's
 * `directs` before it returns, so the memory is stable while it is read. If
 * the owner fails instead, its caller may free or reuse the memory at once:
 *
 *     reader: reading <- 1    look    read a piece    look    reading <- 0 ...
 *     owner:  fails: abort words <- story    wait until reading == 0    return
 *
 * Threads of the owner's process could touch freed memory: the owner waits for
 * their `reading` (a piece takes microseconds). Exchange and fetch_or order the
 * two sides: either the reader's look sees the abort word or the owner sees
 * `reading`. Other processes read through the kernel or a mapping of their own,
 * which is safe; data read after the owner left is never used, because the
 * look that follows each piece finds the story and the call fails.
 */
#include "backend/shm/shm.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

/* Longest that a failing rank waits for a reader of its own process. */
#define LEAVE_NS 2000000000u

/* -------------------------------------------------------------------------- allocation */

/* What ranks tell each other of one window: bytes 0 if a rank could not make its part. */
typedef struct window_offer {
    unsigned char token[16];
    uint64_t bytes;
} window_offer_t;

static sol_shm_window_t *new_window(sol_shm_t *s)
{
    for (size_t i = 0; i < s->window_count; i++) {
        if (s->windows[i].id == 0) {
            return &s->windows[i];
        }
    }
    size_t count = s->window_count + 8;
    sol_shm_window_t *grown = sol_calloc(count, sizeof(*grown));
    if (grown == NULL) {
        return NULL;
    }
    if (s->window_count > 0) {
        memcpy(grown, s->windows, s->window_count * sizeof(*grown));
    }
    sol_free(s->windows);
    sol_shm_window_t *fresh = &grown[s->window_count];
    s->windows = grown;
    s->window_count = count;
    return fresh;
}

static void release_window(sol_shm_window_t *window, int nranks)
{
    for (int r = 0; r < nranks; r++) {
        sol_shm_segment_release(window->segments[r]);
    }
    memset(window, 0, sizeof(*window));
}

/* Map every peer's part, given all offers and descriptors. */
static sol_status_t attach_window(sol_shm_t *s, sol_shm_window_t *window,
                                  const window_offer_t *offers, const int *fds)
{
    for (int r = 0; r < s->nranks; r++) {
        if (offers[r].bytes == 0 || fds[r] < 0) {
            return sol_thread_error(SOL_ERR_MEMORY, "rank %d could not allocate its part", r);
        }
    }
    for (int r = 0; r < s->nranks; r++) {
        bool same;
        sol_status_t status = SOL_OK;
        if (r != s->rank) {
            status = sol_shm_segment_attach(fds[r], offers[r].bytes, offers[r].token,
                                            &window->segments[r], &same);
        }
        if (status != SOL_OK) {
            return status;
        }
    }
    return SOL_OK;
}

/* Both exchanges are made whatever happened before them, so that no rank waits for another. */
static sol_status_t exchange_window(sol_shm_t *s, sol_shm_window_t *window, size_t bytes,
                                    sol_status_t status, int fd)
{
    window_offer_t offers[SOL_MAX_RANKS], own = {.bytes = 0};
    int fds[SOL_MAX_RANKS];
    if (status == SOL_OK) {
        own.bytes = bytes;
        memcpy(own.token, window->segments[s->rank]->token, sizeof(own.token));
    }
    sol_status_t wire = sol_boot_all_gather(s->comm->boot, &own, sizeof(own), offers);
    if (wire != SOL_OK) {
        return wire;
    }
    wire = sol_boot_share_fds(s->comm->boot, &fd, 1, fds);
    if (wire != SOL_OK) {
        return wire;
    }
    if (status == SOL_OK) {
        status = attach_window(s, window, offers, fds);
    }
    for (int r = 0; r < s->nranks; r++) {
        if (fds[r] >= 0) {
            close(fds[r]);
        }
    }
    return status;
}

sol_status_t sol_shm_mem_alloc(sol_comm_t comm, size_t bytes, void **memory)
{
    sol_shm_t *s = comm->state;
    size_t whole = sol_round_up(bytes, 4096);
    int fd = -1;
    sol_status_t status = SOL_OK;
    sol_shm_window_t none = {0}, *window = new_window(s);
    if (window == NULL) {
        window = &none;
        status = sol_thread_error(SOL_ERR_MEMORY, "no memory to describe a window");
    } else {
        status = sol_shm_segment_create(whole, &window->segments[s->rank], &fd);
    }
    if (window != &none && status == SOL_OK) {
        sol_shm_prefer_node(s, window->segments[s->rank]);
    }
    uint32_t id = ++s->window_ids; /* on every rank, whatever the outcome */
    status = exchange_window(s, window, whole, status, fd);
    if (fd >= 0) {
        close(fd);
    }
    if (status != SOL_OK) {
        release_window(window, s->nranks);
        return sol_comm_error(comm, status, "sol_mem_alloc of %zu bytes: %s", bytes,
                              sol_thread_error_text());
    }
    window->id = id;
    window->bytes = whole;
    window->own = window->segments[s->rank]->base;
    atomic_fetch_add(&s->window_bytes, whole);
    *memory = window->own;
    return SOL_OK;
}

sol_status_t sol_shm_mem_free(sol_comm_t comm, void *memory)
{
    sol_shm_t *s = comm->state;
    for (size_t i = 0; i < s->window_count; i++) {
        sol_shm_window_t *window = &s->windows[i];
        if (window->id != 0 && !window->freed && window->own == memory) {
            sol_shm_segment_discard(window->segments[s->rank]);
            sol_shm_segment_release(window->segments[s->rank]);
            window->segments[s->rank] = NULL;
            window->own = NULL;
            window->freed = true;
            atomic_fetch_sub(&s->window_bytes, window->bytes);
            return SOL_OK;
        }
    }
    return sol_comm_error(
        comm, SOL_ERR_ARGUMENT,
        "sol_mem_free: memory (%p) is not from sol_mem_alloc on this communicator, or "
        "was freed already",
        memory);
}

void sol_shm_windows_close(sol_shm_t *s)
{
    for (size_t i = 0; i < s->window_count; i++) {
        if (s->windows[i].id != 0) {
            release_window(&s->windows[i], s->nranks);
        }
    }
    sol_free(s->windows);
    s->windows = NULL;
    s->window_count = 0;
}

/* ------------------------------------------------------------------------------ places */

bool sol_shm_in_window(const sol_shm_t *s, const void *memory, size_t bytes, sol_shm_place_t *place)
{
    uintptr_t at = (uintptr_t)memory;
    for (size_t i = 0; i < s->window_count; i++) {
        const sol_shm_window_t *window = &s->windows[i];
        uintptr_t base = (uintptr_t)window->own;
        if (window->own != NULL && at >= base && bytes <= window->bytes &&
            at - base <= window->bytes - bytes) {
            *place = (sol_shm_place_t){SOL_SHM_WINDOW, window->id, at - base};
            return true;
        }
    }
    return false;
}

sol_shm_place_t sol_shm_place(const sol_shm_t *s, const void *memory, size_t bytes, bool show)
{
    sol_shm_place_t place = {.mode = SOL_SHM_STAGED, .where = (uint64_t)(uintptr_t)memory};
    if (!s->direct || bytes == 0 || sol_shm_in_window(s, memory, bytes, &place)) {
        return place;
    }
    if (s->all_threads || (s->vm_readable && show)) {
        place.mode = SOL_SHM_ADDRESS;
    }
    return place;
}

const unsigned char *sol_shm_pointer(const sol_shm_t *s, int rank, const sol_shm_place_t *place)
{
    if (place->mode == SOL_SHM_ADDRESS && s->peers[rank].same_process) {
        return (const unsigned char *)(uintptr_t)place->where;
    }
    if (place->mode == SOL_SHM_WINDOW) {
        for (size_t i = 0; i < s->window_count; i++) {
            if (s->windows[i].id == place->window && s->windows[i].segments[rank] != NULL) {
                return s->windows[i].segments[rank]->base + place->where;
            }
        }
    }
    return NULL;
}

sol_status_t sol_shm_vm_move(sol_shm_t *s, int rank, uint64_t far, void *near, size_t bytes,
                             bool write)
{
    size_t done = 0;
    while (done < bytes) {
        struct iovec local = {(unsigned char *)near + done, bytes - done};
        struct iovec remote = {(void *)(uintptr_t)(far + done), bytes - done};
        pid_t pid = s->peers[rank].pid;
        ssize_t moved = write ? process_vm_writev(pid, &local, 1, &remote, 1, 0)
                              : process_vm_readv(pid, &local, 1, &remote, 1, 0);
        if (moved > 0) {
            done += (size_t)moved;
        } else if (moved == 0 || errno != EINTR) {
            int error = moved == 0 ? EFAULT : errno;
            sol_status_t status = sol_shm_look(s); /* it may have failed and gone on */
            if (status != SOL_OK) {
                return status;
            }
            if (error == ESRCH) {
                return sol_shm_fail_gone(s, rank, true);
            }
            errno = error;
            return sol_shm_fail(s, SOL_ERR_SYSTEM, "process_vm_%sv of rank %d (pid %d): %m",
                                write ? "write" : "read", rank, pid);
        }
    }
    return SOL_OK;
}

sol_status_t sol_shm_read_begin(sol_shm_t *s, int rank)
{
    if (s->peers[rank].same_process) {
        /* pairs with the fetch_or in sol_shm_readers_leave */
        atomic_exchange_explicit(&s->peers[rank].ack->reading, 1, memory_order_seq_cst);
    }
    return sol_shm_look(s);
}

sol_status_t sol_shm_read_end(sol_shm_t *s, int rank)
{
    atomic_store_explicit(&s->peers[rank].ack->reading, 0, memory_order_release);
    return sol_shm_look(s);
}

void sol_shm_readers_leave(sol_shm_t *s)
{
    uint64_t until = sol_now_ns() + LEAVE_NS;
    for (int r = 0; r < s->nranks; r++) {
        if (r == s->rank || !s->peers[r].same_process) {
            continue;
        }
        _Atomic uint32_t *reading = &s->peers[r].control->acks[s->rank].reading;
        /* A rank that this one itself reads from at the moment of failure has the look behind it:
         * its own mark is cleared first, or two failing readers would wait for each other. */
        atomic_store_explicit(&s->peers[r].ack->reading, 0, memory_order_release);
        while (atomic_fetch_or_explicit(reading, 0, memory_order_seq_cst) != 0 &&
               sol_now_ns() < until) {
            sol_cpu_relax();
        }
    }
}

sol_status_t sol_shm_read_place(sol_shm_t *s, int rank, const sol_shm_place_t *place, size_t offset,
                                void *dst, size_t bytes)
{
    const unsigned char *from = sol_shm_pointer(s, rank, place);
    for (size_t done = 0; done < bytes;) {
        size_t most = from != NULL ? s->limits.piece : s->limits.vm_piece;
        size_t piece = bytes - done < most ? bytes - done : most;
        unsigned char *to = (unsigned char *)dst + done;
        sol_status_t status = sol_shm_read_begin(s, rank);
        if (status == SOL_OK && from != NULL) {
            if (bytes >= s->limits.stream) {
                sol_copy_stream(to, from + offset + done, piece);
            } else {
                memcpy(to, from + offset + done, piece);
            }
        } else if (status == SOL_OK && place->mode == SOL_SHM_ADDRESS) {
            status = sol_shm_vm_move(s, rank, place->where + offset + done, to, piece, false);
        } else if (status == SOL_OK) {
            status = sol_shm_fail(s, SOL_ERR_INTERNAL, "rank %d named window %u, unknown here",
                                  rank, place->window);
        }
        if (status == SOL_OK) {
            status = sol_shm_read_end(s, rank);
        }
        if (status != SOL_OK) {
            return status;
        }
        done += piece;
    }
    return SOL_OK;
}

void sol_shm_directs_done(sol_shm_t *s, int rank)
{
    sol_shm_peer_t *peer = &s->peers[rank];
    /* release: pairs with the acquire in sol_shm_await_directs; the reads above are over */
    atomic_store_explicit(&peer->ack->directs, ++peer->directs_read, memory_order_release);
    sol_shm_ring(s, peer);
}
