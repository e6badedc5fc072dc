/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_check.c: data and references of perf (see perf_check.h). Everything here
 * is written from the types' definitions and shares nothing with the library,
 * so that a fault in its arithmetic cannot hide behind itself.
 */
#include "perf_check.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define CHUNK 1024 /* elements checked at a time: small enough to stay in the cache */

/* ---- the floating-point formats */

struct format {
    int mantissa, bias; /* explicit mantissa bits, exponent bias */
    bool infinities;    /* false: OCP E4M3, where only the last code is NaN */
};

static const struct format *format_of(sol_dtype_t dtype)
{
    static const struct format half = {10, 15, true}, brain = {7, 127, true},
                               single = {23, 127, true}, wide = {52, 1023, true},
                               e4m3 = {3, 7, false}, e5m2 = {2, 15, true};

    switch (dtype) {
    case SOL_FLOAT16:
        return &half;
    case SOL_BFLOAT16:
        return &brain;
    case SOL_FLOAT32:
        return &single;
    case SOL_FLOAT64:
        return &wide;
    case SOL_FLOAT8_E4M3:
        return &e4m3;
    case SOL_FLOAT8_E5M2:
        return &e5m2;
    default:
        return NULL;
    }
}

/* The value of a bit pattern of a format with `width` bits. */
static double value_of(const struct format *f, int width, uint64_t bits)
{
    int exponent_bits = width - 1 - f->mantissa;
    uint64_t mantissa = bits & ((1ull << f->mantissa) - 1);
    int exponent = (int)(bits >> f->mantissa & ((1ull << exponent_bits) - 1));
    int last = (1 << exponent_bits) - 1;
    double sign = bits >> (width - 1) & 1 ? -1 : 1;

    if (exponent == last && f->infinities)
        return mantissa ? NAN : sign * INFINITY;
    if (exponent == last && !f->infinities && mantissa == (1ull << f->mantissa) - 1)
        return NAN;
    if (exponent == 0)
        return sign * ldexp((double)mantissa, 1 - f->bias - f->mantissa);
    return sign * ldexp((double)(mantissa | 1ull << f->mantissa), exponent - f->bias - f->mantissa);
}

/* The pattern of a value that the format has exactly (perf makes no others). */
static uint64_t bits_of(const struct format *f, int width, double value)
{
    uint64_t sign = signbit(value) ? 1ull << (width - 1) : 0;
    int exponent;
    double fraction = frexp(fabs(value), &exponent); /* [0.5, 1) */

    if (fraction == 0)
        return sign;
    return sign | (uint64_t)(exponent - 1 + f->bias) << f->mantissa |
           ((uint64_t)ldexp(fraction, f->mantissa + 1) & ((1ull << f->mantissa) - 1));
}

static uint64_t load(const void *data, size_t size, size_t index)
{
    uint64_t bits = 0;

    memcpy(&bits, (const unsigned char *)data + index * size, size);
    return bits;
}

static void store(void *data, size_t size, size_t index, uint64_t bits)
{
    memcpy((unsigned char *)data + index * size, &bits, size);
}

double perf_decode(sol_dtype_t dtype, const void *data, size_t index)
{
    const unsigned char *at = (const unsigned char *)data + index * perf_dtype_size(dtype);
    uint64_t bits;
    double wide;
    float single;

    switch (dtype) {
    case SOL_FLOAT32:
        memcpy(&single, at, sizeof(single));
        return single;
    case SOL_FLOAT64:
        memcpy(&wide, at, sizeof(wide));
        return wide;
    case SOL_BFLOAT16: {
        uint32_t word = (uint32_t)load(at, 2, 0) << 16;

        memcpy(&single, &word, sizeof(single));
        return single;
    }
    default:
        bits = load(at, perf_dtype_size(dtype), 0);
        return value_of(format_of(dtype), 8 * (int)perf_dtype_size(dtype), bits);
    }
}

/* ---- contributions */

/* splitmix64's finaliser: every bit of the input moves every bit of the output. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static uint64_t stream_of(uint64_t seed, int rank)
{
    return mix(seed * 0x9e3779b97f4a7c15ull + (uint64_t)rank + 1);
}

static uint64_t word_at(uint64_t stream, size_t index)
{
    return mix(stream + (uint64_t)index * 0x9e3779b97f4a7c15ull);
}

int perf_data_kinds(const perf_case_t *c, perf_data_t kinds[2])
{
    if (!perf_op_reduces(c->op) || !format_of(c->dtype)) {
        kinds[0] = PERF_DATA_BITS;
        return 1;
    }
    kinds[0] = PERF_DATA_EXACT;
    kinds[1] = PERF_DATA_REAL;
    return 2;
}

/* The largest whole number that every rank may contribute such that each partial sum of `nranks`
 * of them is exact; 0: only one rank at a time may contribute 1. */
static int exact_limit(const struct format *f, int nranks)
{
    int bits = f->mantissa + 1 < 20 ? f->mantissa + 1 : 20;

    int limit = (1 << bits) / nranks;

    return limit > 100 ? 100 : limit;
}

/* A value that sums (or products) of all ranks keep exact in any order. */
static double exact_value(const perf_case_t *c, const struct format *f, int nranks, int rank,
                          size_t index, uint64_t word)
{
    int limit = exact_limit(f, nranks);

    if (c->redop == SOL_PROD) {
        static const double factors[4] = {1, -1, 2, 0.5};

        return (size_t)rank == index % (size_t)nranks ? factors[word & 3] : word & 1 ? -1 : 1;
    }
    if (limit == 0)
        return (size_t)rank == index % (size_t)nranks ? 1 : 0;
    return (double)((int)(word % (uint64_t)(2 * limit + 1)) - limit);
}

/* Random sign and mantissa; exponents close to each other, so that every bit counts. */
static uint64_t real_bits(const perf_case_t *c, const struct format *f, int width, int rank,
                          uint64_t word)
{
    uint64_t mantissa = word & ((1ull << f->mantissa) - 1);
    uint64_t sign = word >> 63 << (width - 1);
    int exponent = f->bias;

    if (c->redop == SOL_PROD)
        exponent -= rank & 1; /* [1, 2) and [0.5, 1) in turns: products stay in range */
    else
        exponent += (int)(word >> 56 & 3) - 3;
    return sign | (uint64_t)exponent << f->mantissa | mantissa;
}

void perf_fill(const perf_case_t *c, int nranks, int rank, perf_data_t kind, uint64_t seed,
               size_t first, size_t count, void *out)
{
    const struct format *f = format_of(c->dtype);
    size_t size = perf_dtype_size(c->dtype), i;
    uint64_t stream = stream_of(seed, rank), table[256], word;
    int width = 8 * (int)size, limit;

    if (kind == PERF_DATA_EXACT && c->redop != SOL_PROD && (limit = exact_limit(f, nranks)) > 0) {
        for (i = 0; i <= 2 * (size_t)limit; i++)
            table[i] = bits_of(f, width, (double)((int)i - limit));
        for (i = 0; i < count; i++)
            store(out, size, i, table[word_at(stream, first + i) % (uint64_t)(2 * limit + 1)]);
        return;
    }
    for (i = 0; i < count; i++) {
        word = word_at(stream, first + i);
        if (kind == PERF_DATA_EXACT)
            word = bits_of(f, width, exact_value(c, f, nranks, rank, first + i, word));
        else if (kind == PERF_DATA_REAL)
            word = real_bits(c, f, width, rank, word);
        store(out, size, i, word);
    }
}

/* ---- references of reductions */

struct reference {
    double value[CHUNK];   /* floating point: the exact or float64 result */
    double weight[CHUNK];  /* the sum of magnitudes, for the error bound */
    uint64_t whole[CHUNK]; /* integers, modulo 2^64 */
    unsigned char data[CHUNK * 8];
};

static int64_t as_signed(uint64_t bits, int width)
{
    return (int64_t)(bits << (64 - width)) >> (64 - width);
}

static bool is_signed(sol_dtype_t dtype)
{
    return dtype == SOL_INT8 || dtype == SOL_INT32 || dtype == SOL_INT64;
}

static uint64_t combine_whole(sol_redop_t redop, sol_dtype_t dtype, uint64_t a, uint64_t b)
{
    int width = 8 * (int)perf_dtype_size(dtype);
    bool less = is_signed(dtype) ? as_signed(b, width) < as_signed(a, width) : b < a;

    switch (redop) {
    case SOL_PROD:
        return a * b;
    case SOL_MIN:
        return less ? b : a;
    case SOL_MAX:
        return less ? a : b;
    default:
        return a + b;
    }
}

static double combine_value(sol_redop_t redop, double a, double b)
{
    switch (redop) {
    case SOL_PROD:
        return a * b;
    case SOL_MIN:
        return b < a ? b : a;
    case SOL_MAX:
        return b > a ? b : a;
    default:
        return a + b;
    }
}

static void add_contribution(struct reference *ref, const perf_case_t *c, int rank, size_t count)
{
    const struct format *f = format_of(c->dtype);
    size_t size = perf_dtype_size(c->dtype), i;

    for (i = 0; i < count; i++) {
        if (f) {
            double x = perf_decode(c->dtype, ref->data, i);

            ref->value[i] = rank ? combine_value(c->redop, ref->value[i], x) : x;
            ref->weight[i] = (rank ? ref->weight[i] : 0) + fabs(x);
        } else {
            uint64_t x = load(ref->data, size, i);

            ref->whole[i] = rank ? combine_whole(c->redop, c->dtype, ref->whole[i], x) : x;
        }
    }
}

static bool whole_is_wrong(const perf_case_t *c, int nranks, uint64_t sum, uint64_t got)
{
    int width = 8 * (int)perf_dtype_size(c->dtype);
    uint64_t mask = width == 64 ? ~0ull : (1ull << width) - 1;

    sum &= mask;
    if (c->redop == SOL_AVG) /* C divides towards zero, as the library promises */
        sum = is_signed(c->dtype) ? (uint64_t)(as_signed(sum, width) / nranks) & mask
                                  : sum / (uint64_t)nranks;
    return got != sum;
}

/* How far a right result may be from the float64 reference. */
static double allowed(const perf_case_t *c, const struct format *f, int nranks,
                      perf_rounding_t rounding, double reference, double weight)
{
    double unit = ldexp(1, -f->mantissa - 1);
    double step = rounding == PERF_ROUND_EACH || f->mantissa >= 23 ? unit : ldexp(1, -24);
    double tiny = ldexp(1, 1 - f->bias - f->mantissa);

    if (c->redop == SOL_MIN || c->redop == SOL_MAX)
        return 0;
    if (c->redop == SOL_PROD)
        weight = fabs(reference);
    if (c->redop == SOL_AVG)
        weight /= nranks;
    return 1.01 * (nranks * step * weight + unit * fabs(reference)) + tiny;
}

static bool value_is_wrong(const perf_case_t *c, int nranks, perf_data_t kind,
                           perf_rounding_t rounding, double reference, double weight, double got)
{
    const struct format *f = format_of(c->dtype);
    int exponent_bits = 8 * (int)perf_dtype_size(c->dtype) - 1 - f->mantissa;
    double limit;

    if (c->redop == SOL_AVG)
        reference /= nranks;
    if (kind == PERF_DATA_EXACT && c->redop != SOL_AVG)
        return !(got == reference);
    limit = ldexp(1, (1 << exponent_bits) - 2 - f->bias);
    if (fabs(reference) >= limit / 2) /* may overflow on the way: any value is right */
        return false;
    return !(fabs(got - reference) <= allowed(c, f, nranks, rounding, reference, weight));
}

/* Elements [first, first + count) of the reduced vector against recv[0 ... count). */
static size_t wrong_reduced(const perf_case_t *c, int nranks, perf_data_t kind, uint64_t seed,
                            perf_rounding_t rounding, size_t first, size_t count, const void *recv)
{
    struct reference ref;
    size_t size = perf_dtype_size(c->dtype), done, n, i, wrong = 0;
    bool real = format_of(c->dtype) != NULL;
    int rank;

    for (done = 0; done < count; done += n) {
        n = count - done < CHUNK ? count - done : CHUNK;
        for (rank = 0; rank < nranks; rank++) {
            perf_fill(c, nranks, rank, kind, seed, first + done, n, ref.data);
            add_contribution(&ref, c, rank, n);
        }
        for (i = 0; i < n; i++)
            wrong += real ? value_is_wrong(c, nranks, kind, rounding, ref.value[i], ref.weight[i],
                                           perf_decode(c->dtype, recv, done + i))
                          : whole_is_wrong(c, nranks, ref.whole[i], load(recv, size, done + i));
    }
    return wrong;
}

/* recv[0 ... count) against elements [first, ...) of what `from` sent, bit for bit. */
static size_t wrong_moved(const perf_case_t *c, int nranks, int from, perf_data_t kind,
                          uint64_t seed, size_t first, size_t count, const void *recv)
{
    unsigned char expected[CHUNK * 8];
    size_t size = perf_dtype_size(c->dtype), done, n, i, wrong = 0;
    const unsigned char *got = recv;

    for (done = 0; done < count; done += n) {
        n = count - done < CHUNK ? count - done : CHUNK;
        perf_fill(c, nranks, from, kind, seed, first + done, n, expected);
        if (!memcmp(expected, got + done * size, n * size))
            continue;
        for (i = 0; i < n; i++)
            wrong += memcmp(expected + i * size, got + (done + i) * size, size) != 0;
    }
    return wrong;
}

size_t perf_wrong(const perf_case_t *c, int nranks, int rank, int root, perf_data_t kind,
                  uint64_t seed, perf_rounding_t rounding, const void *recv)
{
    size_t count = c->count, size = perf_dtype_size(c->dtype), wrong = 0;
    const unsigned char *got = recv;
    int from;

    switch (c->op) {
    case PERF_ALL_REDUCE:
        return wrong_reduced(c, nranks, kind, seed, rounding, 0, count, recv);
    case PERF_REDUCE:
        return rank == root ? wrong_reduced(c, nranks, kind, seed, rounding, 0, count, recv) : 0;
    case PERF_REDUCE_SCATTER:
        return wrong_reduced(c, nranks, kind, seed, rounding, count * (size_t)rank, count, recv);
    case PERF_BROADCAST:
        return wrong_moved(c, nranks, root, kind, seed, 0, count, recv);
    case PERF_SCATTER:
        return wrong_moved(c, nranks, root, kind, seed, count * (size_t)rank, count, recv);
    case PERF_SENDRECV:
        return wrong_moved(c, nranks, (rank + nranks - 1) % nranks, kind, seed, 0, count, recv);
    case PERF_GATHER:
        if (rank != root)
            return 0;
        break;
    case PERF_BARRIER:
        return 0;
    default:
        break;
    }
    for (from = 0; from < nranks; from++) /* all_gather, gather, all_to_all: a block of each */
        wrong += wrong_moved(c, nranks, from, kind, seed,
                             c->op == PERF_ALL_TO_ALL ? count * (size_t)rank : 0, count,
                             got + (size_t)from * count * size);
    return wrong;
}

size_t perf_changed(const perf_case_t *c, int nranks, int rank, perf_data_t kind, uint64_t seed,
                    const void *send)
{
    return wrong_moved(c, nranks, rank, kind, seed, 0, perf_shape(c, nranks).send, send);
}
