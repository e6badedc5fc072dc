/* SPDX-License-Identifier: Apache-2.0 */
/*
 * float_reference.h: floating-point formats by their definition, for tests.
 *
 * A format is numbers; a pattern is decoded as sign * fraction * 2^exponent in
 * a wider type, and a value is rounded by scaling it so that the format's last
 * place is 1 and asking for the nearest even integer. Slow, obvious, and
 * without a line in common with the library.
 */
#ifndef SOL_TEST_FLOAT_REFERENCE_H
#define SOL_TEST_FLOAT_REFERENCE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct ref_format {
    const char *name;
    int bits, mantissa, bias;
    double largest;    /* largest finite value */
    bool has_infinity; /* encodes it (and then has NaNs of every other fraction) */
    bool saturates;    /* results beyond the largest become the largest */
    uint64_t nan;      /* the canonical NaN */
} ref_format;

static const ref_format ref_e4m3 = {"e4m3", 8, 3, 7, 448.0, false, true, 0x7f};
static const ref_format ref_e5m2 = {"e5m2", 8, 2, 15, 57344.0, true, true, 0x7e};
static const ref_format ref_fp16 = {"fp16", 16, 10, 15, 65504.0, true, false, 0x7e00};
static const ref_format ref_bf16 = {"bf16", 16, 7, 127, 0x1.fep127, true, false, 0x7fc0};
static const ref_format ref_fp32 = {"fp32", 32, 23, 127, 0x1.fffffep127, true, false, 0x7fc00000};

/* The value of a pattern of at most 32 bits. Exact. */
static inline double ref_decode(const ref_format *f, uint64_t pattern)
{
    uint64_t sign = pattern >> (f->bits - 1) & 1;
    uint64_t field = pattern & (((uint64_t)1 << (f->bits - 1)) - 1);
    uint64_t fraction = field & (((uint64_t)1 << f->mantissa) - 1);
    int exponent = (int)(field >> f->mantissa);
    int top = (1 << (f->bits - 1 - f->mantissa)) - 1;
    double value;
    if (f->has_infinity && exponent == top)
        value = fraction ? (double)NAN : (double)INFINITY;
    else if (!f->has_infinity && field == ((uint64_t)1 << (f->bits - 1)) - 1)
        value = (double)NAN;
    else if (exponent == 0)
        value = ldexp((double)fraction, 1 - f->bias - f->mantissa);
    else
        value = ldexp((double)fraction + ldexp(1.0, f->mantissa), exponent - f->bias - f->mantissa);
    return sign ? -value : value;
}

/* The pattern nearest to a value, ties to even. */
static inline uint64_t ref_encode(const ref_format *f, double value)
{
    if (isnan(value))
        return f->nan;
    uint64_t sign = signbit(value) ? (uint64_t)1 << (f->bits - 1) : 0;
    double magnitude = fabs(value);
    int exponent =
        1 - f->bias; /* that of the place where the result's last bit is, plus mantissa */
    if (magnitude > 0 && isfinite(magnitude) && ilogb(magnitude) > exponent)
        exponent = ilogb(magnitude);
    double units = isinf(magnitude) ? magnitude : rint(ldexp(magnitude, f->mantissa - exponent));
    double rounded = isinf(units) ? units : ldexp(units, exponent - f->mantissa);
    if (rounded > f->largest) {
        if (!f->saturates) {
            int top = (1 << (f->bits - 1 - f->mantissa)) - 1;
            return sign | (uint64_t)top << f->mantissa;
        }
        return ref_encode(f, signbit(value) ? -f->largest : f->largest);
    }
    /* units counts last places from 0 within the binade of `exponent`; binades are 2^mantissa apart
     * in the encoding, and the first one starts at 0. */
    return sign | ((uint64_t)units + ((uint64_t)(exponent - (1 - f->bias)) << f->mantissa));
}

/* A double to fp32 and back: the one rounding of an fp32 operation, whose exact (or 53-bit) result
 * is given. 53 >= 2 * 24 + 2 bits make rounding twice the same as rounding once for + - * /. */
static inline double ref_round_fp32(double value)
{
    return ref_decode(&ref_fp32, ref_encode(&ref_fp32, value));
}

/* A small generator of 64 random bits: splitmix64. */
static inline uint64_t ref_random(uint64_t *seed)
{
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

#endif
