/* SPDX-License-Identifier: Apache-2.0 */
/*
 * word.cuh: sending and receiving vectors of self-validating words. The
 * protocol, with its argument, is in proto/gpu_word.h.
 */
#ifndef SOL_DEVICE_PRIM_WORD_CUH
#define SOL_DEVICE_PRIM_WORD_CUH

#include "device/prim/ptx.cuh"
#include "proto/gpu_word.h"

/* May a word be MARK or ESCAPE? Tells by the high half, so that the common case is one compare. */
SOL_GPU_FN bool sol_word_suspect(uint64_t w)
{
    return (uint32_t)(w >> 32) == SOL_WORD_HIGH;
}

SOL_GPU_FN bool sol_vector_suspect(struct sol_vector v)
{
    return sol_word_suspect(v.a) || sol_word_suspect(v.b);
}

/* The rare half of sending: escape what needs it. `escape` is the vector's escape word. */
SOL_GPU_FN struct sol_vector sol_vector_escape(struct sol_vector v, char *escape, uint64_t epoch)
{
    bool a = (v.a | 1) == SOL_WORD_ESCAPE, b = (v.b | 1) == SOL_WORD_ESCAPE;
    if (!a && !b)
        return v;
    sol_push_word(escape, epoch << 2 | (b ? v.b & 1 : 0) << 1 | (a ? v.a & 1 : 0));
    v.a = a ? SOL_WORD_ESCAPE : v.a;
    v.b = b ? SOL_WORD_ESCAPE : v.b;
    return v;
}

/* Store a vector of any content into a peer's slot. */
SOL_GPU_FN void sol_send_vector(char *slot, char *escape, struct sol_vector v, uint64_t epoch)
{
    if (sol_vector_suspect(v))
        v = sol_vector_escape(v, escape, epoch);
    sol_push_vector(slot, v);
}

/* The rare half of receiving: is `v`, as polled, complete? If so its escapes are resolved. */
SOL_GPU_FN bool sol_vector_settle(struct sol_vector &v, const char *escape, uint64_t epoch)
{
    if (v.a == SOL_WORD_MARK || v.b == SOL_WORD_MARK)
        return false;
    bool a = v.a == SOL_WORD_ESCAPE, b = v.b == SOL_WORD_ESCAPE;
    if (!a && !b)
        return true;
    uint64_t e = sol_poll_word(escape);
    if (e >> 2 != (epoch << 2) >> 2)
        return false;
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
