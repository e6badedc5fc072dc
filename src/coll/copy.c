/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.c: copies and reductions that leave the cache alone. A usual store first
 * reads its line into the cache, to write it out again later: three transfers
 * for a byte copied where two are enough. Worth it from about the size of the
 * second-level cache on; a loss below, where the reader would have found the
 * data in the cache.
 */
#include "coll/reduce.h"

#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>

/* Below this a range fits the cache, and passing it by costs more than it saves. */
#define STREAM_MINIMUM 4096u
#define STREAM_BLOCK 4096u /* results in flight between the arithmetic and the streaming stores */

/* `to` on a line; whole lines. The four stores of a line fill one write combining buffer, so it
 * leaves as a whole. */
static void stream_lines(unsigned char *to, const unsigned char *from, size_t lines)
{
    for (; lines > 0; lines--, to += 64, from += 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)from);
        __m128i b = _mm_loadu_si128((const __m128i *)(from + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(from + 32));
        __m128i d = _mm_loadu_si128((const __m128i *)(from + 48));
        _mm_stream_si128((__m128i *)to, a);
        _mm_stream_si128((__m128i *)(to + 16), b);
        _mm_stream_si128((__m128i *)(to + 32), c);
        _mm_stream_si128((__m128i *)(to + 48), d);
    }
}

/* Bytes from `to` up to the next line. */
static size_t to_line(const void *to)
{
    return -(uintptr_t)to & 63;
}

/* At least a line's worth of bytes, without the fence. */
static void stream_unfenced(unsigned char *to, const unsigned char *from, size_t bytes)
{
    size_t head = to_line(to), lines = (bytes - head) / 64, done = head + lines * 64;
    memcpy(to, from, head);
    stream_lines(to + head, from + head, lines);
    memcpy(to + done, from + done, bytes - done);
}

void sol_copy_stream(void *dst, const void *src, size_t bytes)
{
    if (bytes >= STREAM_MINIMUM) {
        stream_unfenced(dst, src, bytes);
        _mm_sfence(); /* a release store does not order streaming stores before it; this does */
    } else if (bytes > 0) {
        memcpy(dst, src, bytes);
    }
}

/* A block of results at a time into a scratch that stays in the first-level cache, then past the
 * cache to its place: one more trip through the nearest cache, and no second copy of every loop. */
void sol_reduce_stream(sol_reduce_fn reduce, void *dst, const void *const *srcs, int nsrcs,
                       size_t count, size_t element_bytes)
{
    _Alignas(64) unsigned char block[STREAM_BLOCK];
    const void *at[SOL_MAX_RANKS];
    unsigned char *to = dst;
    /* a first block that ends at a line, if the elements' place allows it */
    size_t some = (to_line(to) + STREAM_BLOCK / 2) / element_bytes;
    for (size_t done = 0; done < count; done += some, some = STREAM_BLOCK / element_bytes) {
        some = some < count - done ? some : count - done;
        for (int s = 0; s < nsrcs; s++)
            at[s] = (const unsigned char *)srcs[s] + done * element_bytes;
        reduce(block, at, nsrcs, some);
        if (some * element_bytes >= 64)
            stream_unfenced(to + done * element_bytes, block, some * element_bytes);
        else
            memcpy(to + done * element_bytes, block, some * element_bytes);
    }
    _mm_sfence();
}

#else

void sol_copy_stream(void *dst, const void *src, size_t bytes)
{
    if (bytes > 0)
        memcpy(dst, src, bytes);
}

void sol_reduce_stream(sol_reduce_fn reduce, void *dst, const void *const *srcs, int nsrcs,
                       size_t count, size_t element_bytes)
{
    (void)element_bytes;
    reduce(dst, srcs, nsrcs, count);
}

#endif
