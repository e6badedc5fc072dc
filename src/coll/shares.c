/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shares.c: the division of elements over ranks. Works in units of one
 * granule, the last unit perhaps partial; must never multiply before it is
 * certain that the product fits.
 */
#include "coll/shares.h"

static size_t units_of(size_t count, size_t granule)
{
    return count / granule + (count % granule != 0);
}

/* The first element of unit `unit`, or `count` for units at or past the end. unit * granule cannot
 * overflow here: it is at most count. */
static size_t unit_begin(size_t count, size_t granule, size_t unit)
{
    return unit <= count / granule ? unit * granule : count;
}

/* Units before `rank`: every rank has units / n of them, the first units % n one more. */
static size_t units_before(size_t units, size_t n, size_t rank)
{
    size_t extra = units % n;
    return units / n * rank + (rank < extra ? rank : extra);
}

sol_range_t sol_share(size_t count, size_t granule, int n, int rank)
{
    size_t units = units_of(count, granule);
    size_t first = units_before(units, (size_t)n, (size_t)rank);
    size_t past = units_before(units, (size_t)n, (size_t)rank + 1);
    return (sol_range_t){unit_begin(count, granule, first), unit_begin(count, granule, past)};
}

size_t sol_share_max(size_t count, size_t granule, int n)
{
    return sol_share(count, granule, n, 0).end;
}

int sol_share_owner(size_t count, size_t granule, int n, size_t index)
{
    size_t units = units_of(count, granule);
    size_t base = units / (size_t)n, extra = units % (size_t)n;
    size_t unit = index / granule;
    size_t long_units = (base + 1) * extra; /* held by the ranks with one unit more; <= units */
    if (unit < long_units)
        return (int)(unit / (base + 1));
    return (int)(extra +
                 (unit - long_units) / base); /* base > 0: there are units past long_units */
}

size_t sol_chunk_count(sol_range_t range, size_t chunk)
{
    return units_of(sol_range_count(range), chunk);
}

sol_range_t sol_chunk(sol_range_t range, size_t chunk, size_t k)
{
    size_t size = sol_range_count(range);
    size_t begin = unit_begin(size, chunk, k);
    size_t end = size - begin < chunk ? size : begin + chunk;
    return (sol_range_t){range.begin + begin, range.begin + end};
}
