/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vocab.h: the arithmetic of sol_vocab_topk (solccl/fused.h), once, for CPU and GPU
 * ranks. A kernel includes it after the device API; other files need nothing.
 *
 * A logit and its index are one 64-bit key: the value, mapped so that integers have
 * the order of floats, above the complement of the index. So larger keys are better,
 * ties and NaNs included, no two keys are equal, and the k largest do not depend on
 * the way they were found. 0 is no key.
 *
 * A shard's sum of exponentials, relative to its largest logit, is one of integers:
 * it has no order either. Only the ranks' sums are added in an order, that of ranks.
 *
 * A token's message of one rank is sol_vocab_words words: keys, descending, and the
 * sum as the bits of a float.
 *
 * Must never: use an operation whose last bit a compiler may choose.
 */
#ifndef SOL_COLL_VOCAB_H
#define SOL_COLL_VOCAB_H

#include "solccl/device/channel.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef SOL_GPU_FN /* of ptx.cuh, or the emulator's */
#define SOL_VOCAB_FN SOL_GPU_FN
#define SOL_VOCAB_ADD(a, b) sol_add_f32(a, b)
#define SOL_VOCAB_MUL(a, b) sol_mul_f32(a, b)
#define SOL_VOCAB_DIV(a, b) sol_div_f32(a, b)
#else
#define SOL_VOCAB_FN static inline
#define SOL_VOCAB_ADD(a, b) ((a) + (b))
#define SOL_VOCAB_MUL(a, b) ((a) * (b))
#define SOL_VOCAB_DIV(a, b) ((a) / (b))
#endif

#define SOL_VOCAB_NAN 0x7fc00000u
#define SOL_VOCAB_INFINITY 0x7f800000u
#define SOL_VOCAB_MINUS_INFINITY 0xff800000u

SOL_VOCAB_FN float sol_vocab_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

SOL_VOCAB_FN uint32_t sol_vocab_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Words of a token's message: at least one key, the largest, which a sum is relative to. */
SOL_GPU_BOTH uint32_t sol_vocab_words(uint32_t k, bool sum)
{
    return (k > 0 ? k : 1) + (sum ? 1 : 0);
}

SOL_GPU_BOTH uint64_t sol_vocab_key(uint32_t bits, uint32_t index)
{
    const uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
    if (magnitude == 0)
        ordered = 0x80000000u;
    if (magnitude > SOL_VOCAB_INFINITY)
        ordered = 0xffffffffu;
    return (uint64_t)ordered << 32 | (uint32_t)~index;
}

/* The value of a key, as its bits. */
SOL_GPU_BOTH uint32_t sol_vocab_value(uint64_t key)
{
    const uint32_t ordered = (uint32_t)(key >> 32);
    if (key == 0)
        return SOL_VOCAB_MINUS_INFINITY;
    if (ordered == 0xffffffffu)
        return SOL_VOCAB_NAN;
    return ordered >> 31 ? ordered & 0x7fffffffu : ~ordered;
}

SOL_GPU_BOTH int64_t sol_vocab_index(uint64_t key)
{
    return key == 0 ? -1 : (int64_t)(uint32_t) ~(uint32_t)key;
}

/* Has a sum relative to this value a meaning? */
SOL_GPU_BOTH bool sol_vocab_finite(uint32_t value)
{
    return (value & 0x7fffffffu) < SOL_VOCAB_INFINITY;
}

/* A term's unit: 2^-fraction, so that as many terms of at most 1 as there are columns fit a word.
 */
SOL_GPU_BOTH int sol_vocab_fraction(uint64_t columns)
{
    int bits = 0;
    while (bits < 32 && (uint64_t)1 << bits < columns)
        bits++;
    return 62 - bits;
}

SOL_VOCAB_FN float sol_vocab_power(int n) /* 2^n of the normal ones */
{
    return sol_vocab_float((uint32_t)(127 + n) << 23);
}

/* e^x for x <= 0, relative error below 1e-6 where it matters, that is above 2^-40. */
SOL_VOCAB_FN float sol_vocab_exp(float x)
{
    /* ln(2)^i / i!, of 2^f with |f| <= 1/2 */
    static const float c[7] = {1.52527338e-5f, 1.54035304e-4f, 1.33335581e-3f, 9.61812911e-3f,
                               5.55041087e-2f, 2.40226507e-1f, 6.93147181e-1f};
    const float whole = 0x1.8p23f; /* where the last bit is worth 1 */
    if (!(x > -87.0f))
        return 0.0f;
    float y = SOL_VOCAB_MUL(x, 1.44269504f);
    float n = SOL_VOCAB_ADD(SOL_VOCAB_ADD(y, whole), -whole);
    float f = SOL_VOCAB_ADD(y, -n), p = c[0];
    for (int i = 1; i < 7; i++)
        p = SOL_VOCAB_ADD(SOL_VOCAB_MUL(p, f), c[i]);
    p = SOL_VOCAB_ADD(SOL_VOCAB_MUL(p, f), 1.0f);
    return SOL_VOCAB_MUL(p, sol_vocab_power((int)n));
}

/* The natural logarithm of a normal number that is not negative; error below 1e-6 * (1 + |log|). */
SOL_VOCAB_FN float sol_vocab_log(float x)
{
    const uint32_t bits = sol_vocab_bits(x);
    int n = (int)(bits >> 23) - 127;
    float m = sol_vocab_float((bits & 0x7fffffu) | 0x3f800000u); /* 1 to 2 */
    if (m > 1.5f) {
        m = SOL_VOCAB_MUL(m, 0.5f);
        n++;
    }
    const float s = SOL_VOCAB_DIV(SOL_VOCAB_ADD(m, -1.0f), SOL_VOCAB_ADD(m, 1.0f));
    const float q = SOL_VOCAB_MUL(s, s);
    float p = SOL_VOCAB_ADD(SOL_VOCAB_MUL(q, 0.111111111f), 0.142857143f);
    p = SOL_VOCAB_ADD(SOL_VOCAB_MUL(q, p), 0.2f);
    p = SOL_VOCAB_ADD(SOL_VOCAB_MUL(q, p), 0.333333333f);
    p = SOL_VOCAB_ADD(SOL_VOCAB_MUL(q, p), 1.0f);
    p = SOL_VOCAB_MUL(SOL_VOCAB_MUL(s, 2.0f), p);
    return SOL_VOCAB_ADD(SOL_VOCAB_MUL((float)n, 0.693147181f), p);
}

/* One logit's part in the sum of its shard, whose largest value is `largest`. */
SOL_VOCAB_FN uint64_t sol_vocab_term(float x, float largest, int fraction)
{
    float e = sol_vocab_exp(SOL_VOCAB_ADD(x, -largest));
    return (uint64_t)SOL_VOCAB_MUL(e, sol_vocab_power(fraction));
}

/* A shard's sum, as it travels. */
SOL_VOCAB_FN uint64_t sol_vocab_sum(uint64_t terms, int fraction)
{
    return sol_vocab_bits(SOL_VOCAB_MUL((float)terms, sol_vocab_power(-fraction)));
}

/* From all ranks' messages, `stride` words apart, with `words` words each; as bits. */
SOL_VOCAB_FN uint32_t sol_vocab_total(const uint64_t *messages, uint32_t stride, uint32_t words,
                                      int nranks)
{
    uint64_t best = 0;
    for (int r = 0; r < nranks; r++) {
        uint64_t key = messages[(uint32_t)r * stride];
        best = key > best ? key : best;
    }
    const uint32_t bits = sol_vocab_value(best);
    if (!sol_vocab_finite(bits))
        return bits;
    const float largest = sol_vocab_float(bits);
    float total = 0.0f;
    for (int r = 0; r < nranks; r++) {
        const uint64_t *message = messages + (uint32_t)r * stride;
        float x = sol_vocab_float(sol_vocab_value(message[0]));
        float sum = sol_vocab_float((uint32_t)message[words - 1]);
        float weight = sol_vocab_exp(SOL_VOCAB_ADD(x, -largest));
        total = SOL_VOCAB_ADD(total, SOL_VOCAB_MUL(sum, weight));
    }
    return sol_vocab_bits(SOL_VOCAB_ADD(largest, sol_vocab_log(total)));
}

#endif
