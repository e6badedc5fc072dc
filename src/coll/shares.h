/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shares.h: who works on what: `count` elements divided over n ranks, and a
 * share walked in chunks. Pure arithmetic; no call can overflow, whatever
 * count is, and none allocates or fails.
 *
 * Layout for count = 22, granule = 4, n = 4 (units of 4 elements, 6 of them;
 * the first units % n ranks hold one unit more):
 *
 *     element  0       4       8       12      16      20  22
 *              |---------------|---------------|-------|---|
 *              rank 0          rank 1          rank 2  rank 3
 *
 * Every share begins at a multiple of the granule (or at `count`, when empty),
 * so ranks that write their own shares never write the same cache line when
 * the buffer is line-aligned and the granule is a line. The division is a
 * function of its arguments alone: all ranks compute it and agree.
 */
#ifndef SOL_COLL_SHARES_H
#define SOL_COLL_SHARES_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Elements begin <= i < end. */
typedef struct sol_range {
    size_t begin, end;
} sol_range_t;

static inline size_t sol_range_count(sol_range_t range)
{
    return range.end - range.begin;
}

/* The share of `rank` of n (n >= 1, 0 <= rank < n, granule >= 1). Shares are in rank order,
 * disjoint and cover 0..count; sizes differ by less than two granules (by one element if the
 * granule is 1). */
sol_range_t sol_share(size_t count, size_t granule, int n, int rank);

/* The size of the largest share, which is rank 0's. */
size_t sol_share_max(size_t count, size_t granule, int n);

/* The rank whose share holds element `index` < count. */
int sol_share_owner(size_t count, size_t granule, int n, size_t index);

/* A range walked in chunks of `chunk` >= 1 elements, the last one perhaps shorter: their number,
 * and the k-th (empty, at range.end, for k beyond the last: ranks of unequal shares take equal
 * rounds). */
size_t sol_chunk_count(sol_range_t range, size_t chunk);
sol_range_t sol_chunk(sol_range_t range, size_t chunk, size_t k);

/* The rank `step` places after `rank` on the ring of n; 0 <= step <= n. Walking step = 1..n-1 from
 * each rank's own place spreads the ranks over different peers at any moment. */
static inline int sol_ring_next(int rank, int step, int n)
{
    int next = rank + step;
    return next >= n ? next - n : next;
}

#ifdef __cplusplus
}
#endif
#endif
