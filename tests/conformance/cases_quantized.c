/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases_quantized.c: sol_all_reduce_quantized against sums in fp64 and the bound of
 * docs/quantized.md, worked out here from the contributions alone; with data that
 * is hard on it: one outlier in a group, NaNs, infinities, zeros, subnormals, the
 * largest numbers; equal bits on all ranks and in every call; and exact results
 * where all rounding is exact.
 */
#include "conformance/conf.h"

#include <math.h>
#include <solccl/quantized.h>
#include <stdlib.h>
#include <string.h>

#define N(n) CONF_N(n)
#define GROUP SOL_QUANTIZED_GROUP

typedef struct sum {
    size_t count, bytes;
    sol_dtype_t dtype, wire;
    int steps;
    unsigned offset; /* bytes from alignment */
    bool in_place, exact;
    uint64_t seed;
} sum_t;

/* ------------------------------------------------------------------------ the data */

static double of_bits(const unsigned char *at, sol_dtype_t dtype)
{
    uint16_t half;
    uint32_t bits;
    float value;
    if (dtype == SOL_FLOAT32) {
        memcpy(&value, at, 4);
        return (double)value;
    }
    memcpy(&half, at, 2);
    if (dtype == SOL_BFLOAT16) {
        bits = (uint32_t)half << 16;
        memcpy(&value, &bits, 4);
        return (double)value;
    }
    int exponent = half >> 10 & 31;
    double fraction = (double)(half & 1023) / 1024, sign = half >> 15 ? -1.0 : 1.0;
    if (exponent == 31)
        return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
    return sign * (exponent ? ldexp(1 + fraction, exponent - 15) : ldexp(fraction, -14));
}

/* Truncated to the type: any value will do as data. */
static void to_bits(unsigned char *at, sol_dtype_t dtype, float value)
{
    uint32_t bits;
    uint16_t half;
    memcpy(&bits, &value, 4);
    if (dtype == SOL_FLOAT32) {
        memcpy(at, &value, 4);
        return;
    }
    half = (uint16_t)(bits >> 16);
    if (dtype == SOL_FLOAT16) {
        int exponent = (int)(bits >> 23 & 255) - 112;
        half = (uint16_t)(bits >> 16 & 0x8000);
        if ((bits & 0x7f800000u) == 0x7f800000u)
            half |= (uint16_t)(0x7c00 | (bits & 0x7fffff ? 0x200 : 0));
        else if (exponent >= 31)
            half |= 0x7bff;
        else if (exponent > 0)
            half |= (uint16_t)(exponent << 10 | (bits >> 13 & 0x3ff));
    }
    memcpy(at, &half, 2);
}

/* What kind of data a group is. */
static float draw(uint64_t h, int kind, size_t i)
{
    float plain = (float)((int64_t)(h % 2000001) - 1000000) * 1e-6f;
    switch (kind) {
    case 1: /* one outlier */
        return i == 77 ? 30000.0f : plain;
    case 2:
        return 0.0f;
    case 3: /* subnormals and what is near */
        return plain * 0x1p-126f;
    case 4: /* large, so that sums of a few overflow nothing */
        return plain * 0x1p120f;
    case 5: /* of every size */
        return plain * (float)ldexp(1, (int)(h >> 40) % 60 - 40);
    case 6:
        return i == 5 ? (float)NAN : plain;
    case 7:
        return i == 100 ? -(float)INFINITY : plain;
    case 8:
        return h & 1 ? -0.0f : 0.0f;
    default:
        return plain;
    }
}

static void contribution(const sum_t *s, int rank, unsigned char *to)
{
    const size_t size = s->dtype == SOL_FLOAT32 ? 4 : 2;
    for (size_t i = 0; i < s->count; i++) {
        uint64_t group = team_mix(s->seed * 31 + i / GROUP),
                 h = team_mix(s->seed + i * 64 + (uint64_t)rank);
        int kind = group % 4 ? 0 : (int)(group >> 8) % 9;
        if (kind >= 6 && (int)(group >> 20) % 3 != rank) /* of one rank only */
            kind = 0;
        float value = draw(h, kind, i % GROUP);
        if (s->exact) /* multiples of a power of two, of which the largest is 127 of them */
            value = i % GROUP == 0 ? 127 : (float)((int)(h % 255) - 127);
        to_bits(to + i * size, s->dtype, value);
    }
}

/* ------------------------------------------------------------------------ the bound */

/* Of one rounding to the wire of x in a group whose largest magnitude is `amax`. */
static double wire_error(double x, double amax, sol_dtype_t wire)
{
    const double floor = ldexp(1, -100), slack = 1 + ldexp(1, -18);
    amax = amax > floor ? amax : floor;
    if (wire == SOL_INT8)
        return amax / 254 * slack + fabs(x) * ldexp(1, -20);
    double relative = fabs(x) / 16, absolute = amax / 448 / 1024;
    return (relative > absolute ? relative : absolute) * slack + fabs(x) * ldexp(1, -20);
}

static double dtype_error(double x, sol_dtype_t dtype)
{
    int digits = dtype == SOL_FLOAT32 ? 24 : dtype == SOL_FLOAT16 ? 11 : 8;
    int least = dtype == SOL_FLOAT16 ? -25 : dtype == SOL_BFLOAT16 ? -134 : -150;
    return fabs(x) * ldexp(1, -digits) + ldexp(1, least);
}

/* Checks one group of the result. */
static bool check_group(conf_t *conf, const sum_t *s, size_t first, unsigned char *const *in,
                        const unsigned char *out)
{
    const size_t size = s->dtype == SOL_FLOAT32 ? 4 : 2;
    const size_t n = s->count - first < GROUP ? s->count - first : GROUP;
    double sum[GROUP] = {0}, error[GROUP] = {0}, magnitude[GROUP] = {0}, largest = 0;
    bool lost = false;
    for (int r = 0; r < conf->nranks; r++) {
        double amax = 0;
        for (size_t i = 0; i < n; i++) {
            double x = of_bits(in[r] + (first + i) * size, s->dtype);
            lost |= !isfinite(x);
            amax = fabs(x) > amax ? fabs(x) : amax;
        }
        for (size_t i = 0; i < n; i++) {
            double x = of_bits(in[r] + (first + i) * size, s->dtype);
            sum[i] += x;
            error[i] += wire_error(x, amax, s->wire);
            magnitude[i] += fabs(x) + wire_error(x, amax, s->wire);
        }
    }
    for (size_t i = 0; i < n; i++) { /* rounding of the sums in fp32 */
        error[i] += magnitude[i] * conf->nranks * ldexp(1, -23);
        largest = magnitude[i] > largest ? magnitude[i] : largest;
    }
    for (size_t i = 0; i < n; i++) {
        double got = of_bits(out + (first + i) * size, s->dtype);
        double bound = error[i];
        if (s->steps != 1) /* (the choice of 0 is not asked for here) */
            bound += wire_error(fabs(sum[i]) + error[i], largest, s->wire);
        bound += dtype_error(fabs(sum[i]) + bound, s->dtype);
        bool over = s->dtype == SOL_FLOAT16 && fabs(sum[i]) + bound > 65000;
        bool good = lost ? isnan(got)
                         : over || (s->exact && s->steps == 1 ? got == sum[i]
                                                              : fabs(got - sum[i]) <= bound);
        if (!good) {
            team_fail(conf->team, conf->rank,
                      "count %zu, dtype %d, wire %d, steps %d, seed %#llx: element %zu is %g, "
                      "the sum is %g, bound %g",
                      s->count, (int)s->dtype, (int)s->wire, s->steps, (unsigned long long)s->seed,
                      first + i, got, sum[i], bound);
            return false;
        }
    }
    return true;
}

/* ------------------------------------------------------------------------ a call */

static bool call(conf_t *conf, const sum_t *s, unsigned char *own, unsigned char *got)
{
    const size_t room = conf->device->bare ? 0 : 64;
    unsigned char *send = conf->device->alloc(s->bytes + room), *recv = send;
    unsigned char *a, *b;
    if (!s->in_place)
        recv = conf->device->alloc(s->bytes + room);
    bool good = send && recv;
    a = room ? (unsigned char *)(((uintptr_t)send + 15) & ~(uintptr_t)15) + s->offset : send;
    b = s->in_place ? a
        : room      ? (unsigned char *)(((uintptr_t)recv + 15) & ~(uintptr_t)15) + s->offset
                    : recv;
    if (good) {
        conf->device->upload(a, own, s->bytes);
        good = TEAM_OK(conf->team, conf->rank,
                       sol_all_reduce_quantized(a, b, s->count, s->dtype, s->wire, s->steps,
                                                conf->comm, conf->stream),
                       conf->comm) &&
               conf->device->sync(conf->stream);
    }
    if (good)
        conf->device->download(got, b, s->bytes);
    if (!s->in_place)
        conf->device->free(recv);
    conf->device->free(send);
    conf->calls++;
    return good;
}

static bool perform(conf_t *conf, const sum_t *s)
{
    unsigned char *in[TEAM_MAX_RANKS] = {NULL}, *got = malloc(s->bytes + 1),
                  *again = malloc(s->bytes + 1);
    bool good = got && again;
    snprintf(conf->doing, CONF_DOING, "all_reduce_quantized of %zu, dtype %d, seed %#llx", s->count,
             (int)s->dtype, (unsigned long long)s->seed);
    for (int r = 0; r < conf->nranks && good; r++) {
        in[r] = malloc(s->bytes + 1);
        good = in[r] != NULL;
        if (good)
            contribution(s, r, in[r]);
    }
    good = good && call(conf, s, in[conf->rank], got) && call(conf, s, in[conf->rank], again);
    if (good && memcmp(got, again, s->bytes) != 0)
        team_fail(conf->team, conf->rank, "other bits the second time, seed %#llx",
                  (unsigned long long)s->seed);
    for (size_t first = 0; first < s->count && good; first += GROUP)
        good = check_group(conf, s, first, in, got);
    if (good) { /* the same on all ranks */
        conf->team->rank[conf->rank].hash[0] = team_hash(got, s->bytes);
        team_barrier(conf->team);
        TEAM_CHECK(conf->team, conf->rank,
                   conf->team->rank[conf->rank].hash[0] == conf->team->rank[0].hash[0]);
        team_barrier(conf->team); /* before the next one is written */
    }
    for (int r = 0; r < conf->nranks; r++)
        free(in[r]);
    free(got);
    free(again);
    conf->stopped = !good;
    if (!good)
        atomic_store(&conf->team->stop, 1);
    return good;
}

static void case_quantized(conf_t *conf)
{
    static const unsigned counts[] = {24, 60, 2000};
    static const sol_dtype_t dtypes[] = {SOL_FLOAT32, SOL_FLOAT16, SOL_BFLOAT16};
    for (unsigned i = 0; i < counts[conf->options->level]; i++) {
        uint64_t h = team_random(&conf->random);
        sum_t s = {.seed = h >> 8,
                   .dtype = dtypes[h % 3],
                   .wire = h >> 4 & 1 ? SOL_INT8 : SOL_FLOAT8_E4M3,
                   .steps = (int)(h >> 5 & 7) % 3,
                   .in_place = h >> 8 & 1,
                   .exact = (h >> 9 & 7) == 0,
                   .offset = (h >> 12 & 3) == 0 ? (unsigned)(h >> 14) % 16 : 0};
        s.count = conf_random_count(&conf->random, i % 16 == 15 ? 300000 : 9000);
        if (s.exact) /* only then is every rounding exact */
            s.wire = SOL_INT8, s.dtype = SOL_FLOAT32;
        s.bytes = s.count * (s.dtype == SOL_FLOAT32 ? 4 : 2);
        if (!perform(conf, &s))
            return;
        if (atomic_load(&conf->team->failures) > 0)
            return;
    }
}

static void case_quantized_arguments(conf_t *conf)
{
    float *x = conf->device->alloc(4096);
    sol_comm_t comm = conf->comm;
#define STATUS(status, ...)                                                                        \
    TEAM_STATUS(conf->team, conf->rank, sol_all_reduce_quantized(__VA_ARGS__, comm, conf->stream), \
                status, comm)
    STATUS(SOL_OK, NULL, NULL, 0, SOL_FLOAT32, SOL_INT8, 0);
    STATUS(SOL_ERR_ARGUMENT, NULL, x, 1, SOL_FLOAT32, SOL_INT8, 0);
    STATUS(SOL_ERR_ARGUMENT, x, NULL, 1, SOL_FLOAT32, SOL_INT8, 0);
    STATUS(SOL_ERR_ARGUMENT, x, x, 1, SOL_FLOAT64, SOL_INT8, 0);
    STATUS(SOL_ERR_ARGUMENT, x, x, 1, SOL_FLOAT32, SOL_FLOAT8_E5M2, 0);
    STATUS(SOL_ERR_ARGUMENT, x, x, 1, SOL_FLOAT32, SOL_INT8, 3);
    STATUS(SOL_ERR_ARGUMENT, x, x, 1, SOL_FLOAT32, SOL_INT8, -1);
    STATUS(SOL_ERR_ARGUMENT, x, x, SIZE_MAX / 2, SOL_FLOAT32, SOL_INT8, 0);
    TEAM_OK(conf->team, conf->rank, sol_group_start(), NULL);
    STATUS(SOL_ERR_STATE, x, x, 1, SOL_FLOAT32, SOL_INT8, 0);
    TEAM_OK(conf->team, conf->rank, sol_group_end(), NULL);
#undef STATUS
    conf->device->sync(conf->stream);
    conf->device->free(x);
    conf_barrier(conf);
}

const conf_case_t conf_cases_quantized[] = {
    {.name = "quantized",
     .run = case_quantized,
     .ranks = {N(2) | N(3), N(1) | N(2) | N(3) | N(5) | N(8), CONF_ALL},
     .threads = {N(3), N(4), CONF_ALL}},
    {.name = "quantized-arguments",
     .run = case_quantized_arguments,
     .ranks = {N(2), N(1) | N(2), CONF_ALL},
     .threads = {0, 0, CONF_ALL}},
    {.name = NULL},
};
