/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_pages.c: huge pages under buffers that are used again and again.
 *
 * Large calls pay for small pages twice: process_vm_readv takes a reference on
 * each page (as long as it takes to copy one), and on a virtual machine a miss
 * of the translation cache is a walk in two tables. A buffer that has been
 * given to USES large calls is likely to come again, so its memory is asked to
 * be collapsed into huge pages (MADV_COLLAPSE, Linux 6.1): once per extent, one
 * extent a call, and without effect but speed. Measured: all_to_all of 2 MB
 * 175 us, 90 after; 1 to 4 ms for an extent. So it is asked for when small pages
 * have cost about as much: whoever stops just then has paid twice, no more.
 *
 *     extents (2 MB)   |         |         |         |         |
 *     buffer                    [============================]
 *     asked for         no       yes       yes       yes        (64 KB of it are the buffer's)
 *
 * It changes neither content nor the flags of a mapping, adds at most 1/8 to
 * the memory in use (an extent with more untouched pages is left alone), and
 * takes no for an answer: an older kernel, a mapping of other kind or that ends
 * within the extent, no huge page to be had.
 * SOLCCL_CPU_HUGE_PAGES=off: it asks for nothing.
 */
#include "backend/shm/shm.h"

#include <sys/mman.h>
#include <unistd.h>

#define EXTENT ((uintptr_t)2 << 20)
#define PAGE ((uintptr_t)4096)
#define PAGES (EXTENT / PAGE)
#define USES 32u
#define TRIED UINT32_MAX
#define LEAST_BYTES ((size_t)1 << 16)

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Is nearly all of it in memory? Not where pages are larger than PAGE, which need no help. */
static bool in_use(uintptr_t extent)
{
    unsigned char there[PAGES];
    size_t count = 0;
    if (sysconf(_SC_PAGESIZE) != (long)PAGE || mincore((void *)extent, EXTENT, there) != 0) {
        return false;
    }
    for (size_t i = 0; i < PAGES; i++) {
        count += there[i] & 1u;
    }
    return count >= PAGES / 8 * 7;
}

/* One more use of an extent; is it time to collapse it? Each has one place in a table of a few
 * hundred, so that buffers beyond half a gigabyte push each other out and are left alone. */
static bool is_due(sol_shm_t *s, uintptr_t extent)
{
    sol_shm_extent_t *known = &s->extents[extent / EXTENT % SOL_SHM_EXTENTS];
    if (known->at != extent) {
        *known = (sol_shm_extent_t){extent, 0};
    }
    return known->uses != TRIED && ++known->uses >= USES;
}

/* True when one was collapsed, or not: then it is enough for this call. */
static bool use_buffer(sol_shm_t *s, const void *buffer, size_t bytes)
{
    uintptr_t at = (uintptr_t)buffer, end = at + bytes;
    for (uintptr_t extent = at & ~(EXTENT - 1); extent < end; extent += EXTENT) {
        uintptr_t first = extent > at ? extent : at;
        uintptr_t last = extent + EXTENT < end ? extent + EXTENT : end;
        if (last - first < LEAST_BYTES || !is_due(s, extent)) {
            continue;
        }
        s->extents[extent / EXTENT % SOL_SHM_EXTENTS].uses = TRIED;
        if (in_use(extent)) {
            madvise((void *)extent, EXTENT, MADV_COLLAPSE); /* nothing depends on it */
            return true;
        }
    }
    return false;
}

void sol_shm_use_pages(sol_shm_t *s, const sol_call_t *call)
{
    size_t size = sol_dtype_size(call->dtype);
    size_t sent = sol_call_send_elements(call, s->rank, s->nranks) * size;
    size_t received = sol_call_recv_elements(call, s->rank, s->nranks) * size;
    if (s->huge_pages && !use_buffer(s, call->send, sent) && call->recv != call->send) {
        use_buffer(s, call->recv, received);
    }
}
