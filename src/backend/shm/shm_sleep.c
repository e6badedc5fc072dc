/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_sleep.c: the shared memory of an idle communicator given back, and taken
 * again. Each rank empties what it made: holes are punched into its segment
 * behind `control` and into its windows, which all ranks' mappings show at once
 * and at their old addresses.
 *
 * No counter is set back. Zeroes are an empty pipe and empty cells at any number
 * (proto/line.h, cell.h), so all that is needed is that no message is under way:
 * prepare makes sure, after core has let all ranks meet. Control stays: abort,
 * death and dumps work asleep as awake.
 */
#include "backend/shm/shm.h"

#include <sys/mman.h>

#define PAGE 4096u

/* Is there a message from `rank` that was not received? */
static bool unread(const sol_shm_peer_t *peer)
{
    const sol_line_t *line = &peer->in.ring[peer->in.next & peer->in.mask];
    const sol_cell_t *cell =
        sol_cell_at(peer->cells_in.base, peer->cells_in.stride, peer->cells_in.next);
    /* acquire: pairs with the releases in sol_line_push and sol_cell_push */
    uint64_t in_line = atomic_load_explicit(&line->tag, memory_order_acquire);
    uint64_t in_cell = atomic_load_explicit(&cell->tag, memory_order_acquire);
    return ((uint32_t)in_line != 0 && (uint32_t)(in_line >> 32) == peer->in.next) ||
           ((uint32_t)in_cell != 0 && (uint32_t)(in_cell >> 32) == peer->cells_in.next);
}

sol_status_t sol_shm_sleep_prepare(sol_comm_t comm, bool keep)
{
    sol_shm_t *s = comm->state;
    sol_status_t status = sol_shm_look(s);
    for (int r = 0; r < s->nranks && status == SOL_OK; r++) {
        if (r != s->rank && unread(&s->peers[r])) {
            status = sol_comm_error(comm, SOL_ERR_STATE,
                                    "sol_comm_sleep: rank %d has sent a message that rank %d has "
                                    "not received",
                                    r, s->rank);
        }
    }
    s->windows_kept = keep;
    return status;
}

sol_status_t sol_shm_sleep_release(sol_comm_t comm)
{
    sol_shm_t *s = comm->state;
    s->asleep = true;
    sol_shm_segment_empty(s->segment, s->messages);
    size_t scratch = s->scratch_bytes * (size_t)s->nranks / PAGE * PAGE;
    (void)madvise(s->scratch, scratch, MADV_DONTNEED); /* refused: it only stays */
    for (size_t i = 0; i < s->window_count && !s->windows_kept; i++) {
        if (s->windows[i].own != NULL) {
            sol_shm_segment_empty(s->windows[i].segments[s->rank], 0);
        }
    }
    return SOL_OK;
}

/* What peers write is touched by its owner first, as at the beginning: it lies on its node. */
sol_status_t sol_shm_sleep_restore(sol_comm_t comm)
{
    sol_shm_t *s = comm->state;
    volatile unsigned char *page = s->segment->base + s->messages;
    for (size_t at = 0; at < s->incoming; at += PAGE) {
        page[at] = 0;
    }
    s->asleep = false;
    return SOL_OK;
}

void sol_shm_sleep_forget(sol_comm_t comm)
{
    sol_shm_t *s = comm->state;
    s->windows_kept = false;
}
