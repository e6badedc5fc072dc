/* SPDX-License-Identifier: Apache-2.0 */
/*
 * word.cuh: sending and receiving vectors of self-validating words. The
 * protocol, with its argument, is in gpu_word.h.
 */
#ifndef SOL_DEVICE_WORD_CUH
#define SOL_DEVICE_WORD_CUH

#include "solccl/device/gpu_word.h"
#include "solccl/device/watch.cuh"

/* May a word of it be MARK or ESCAPE? Tells by the high halves: the common case is two compares. */
SOL_GPU_FN bool sol_vector_suspect(struct sol_vector v)
{
    return (uint32_t)(v.a >> 32) == SOL_WORD_HIGH || (uint32_t)(v.b >> 32) == SOL_WORD_HIGH;
}

SOL_GPU_FN bool sol_word_special(uint64_t w)
{
    return (w | 1) == SOL_WORD_ESCAPE;
}

/* A vector as it goes over the link, and the escape word that must go with it (0: none; a real one
 * is never 0, since epochs start at 1). */
struct sol_parcel {
    struct sol_vector v;
    uint64_t escape;
};

SOL_GPU_FN struct sol_parcel sol_wrap_vector(struct sol_vector v, uint64_t epoch)
{
    struct sol_parcel p = {v, 0};
    if (sol_vector_suspect(v)) {
        bool a = sol_word_special(v.a), b = sol_word_special(v.b);
        if (a || b)
            p.escape = epoch << 2 | (b ? v.b & 1 : 0) << 1 | (a ? v.a & 1 : 0);
        p.v.a = a ? SOL_WORD_ESCAPE : v.a;
        p.v.b = b ? SOL_WORD_ESCAPE : v.b;
    }
    return p;
}

/* Has it not come yet? */
SOL_GPU_FN bool sol_vector_missing(struct sol_vector v)
{
    return v.a == SOL_WORD_MARK || v.b == SOL_WORD_MARK;
}

/* Replace escaped words of a vector that has come by what they stand for. False: gave up waiting
 * for the escape word. */
SOL_GPU_FN bool sol_unescape(const struct sol_bound &bound, const struct sol_story &story,
                             struct sol_vector &v, const char *escape, uint64_t epoch, int peer)
{
    bool a = v.a == SOL_WORD_ESCAPE, b = v.b == SOL_WORD_ESCAPE;
    if (!a && !b)
        return true;
    struct sol_watch watch = {0, 0};
    uint64_t e = sol_poll_word(escape);
    while (e >> 2 != epoch) {
        if (sol_watch_expired(bound, story, watch, peer))
            return false;
        e = sol_poll_word(escape);
    }
    v.a = a ? SOL_WORD_MARK | (e & 1) : v.a;
    v.b = b ? SOL_WORD_MARK | (e >> 1 & 1) : v.b;
    return true;
}

/* Make the slot empty again, after its vector has been taken. */
SOL_GPU_FN void sol_reset_vector(char *slot)
{
    struct sol_vector empty = {SOL_WORD_MARK, SOL_WORD_MARK};
    sol_push_vector(slot, empty);
}

#endif
