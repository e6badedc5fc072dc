/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.c: copies that leave the cache alone. A usual store first reads its line
 * into the cache, to write it out again later: three transfers a byte copied
 * where two are enough.
 */
#include "coll/reduce.h"

#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>

/* Below this a range fits the cache, and passing it by costs more than it saves. */
#define STREAM_MINIMUM 4096u

/* `to` on a 16-byte boundary; whole 64-byte blocks. The four stores of a block fill one write
 * combining buffer, so it leaves as one line. */
static void stream_blocks(unsigned char *to, const unsigned char *from, size_t blocks)
{
    for (; blocks > 0; blocks--, to += 64, from += 64) {
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

void sol_copy_stream(void *dst, const void *src, size_t bytes)
{
    if (bytes < STREAM_MINIMUM) {
        if (bytes > 0)
            memcpy(dst, src, bytes);
        return;
    }
    unsigned char *to = dst;
    const unsigned char *from = src;
    size_t head = -(uintptr_t)to & 63; /* up to the first whole line */
    memcpy(to, from, head);
    size_t blocks = (bytes - head) / 64, done = head + blocks * 64;
    stream_blocks(to + head, from + head, blocks);
    memcpy(to + done, from + done, bytes - done);
    /* Streaming stores are not ordered by a release store; this orders them before every later one.
     */
    _mm_sfence();
}

#else

void sol_copy_stream(void *dst, const void *src, size_t bytes)
{
    if (bytes > 0)
        memcpy(dst, src, bytes);
}

#endif
