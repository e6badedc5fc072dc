/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference.c: see reference.h. Compiled with -ffp-contract=off, and on machines where float
 * arithmetic is IEEE single (FLT_EVAL_METHOD 0), so that `float a + b` is what the header promises.
 */
#include "conformance/reference.h"
#include "common/team.h"

#include <float.h>
#include <math.h>
#include <string.h>

#if FLT_EVAL_METHOD != 0
#error "the reference needs IEEE single precision arithmetic"
#endif

/* A small floating-point format: 1 sign bit, `exponent` bits, `mantissa` bits. */
typedef struct {
    int mantissa, exponent, bias;
    bool saturates; /* overflow and infinity become the largest finite value */
    uint32_t largest, infinity, nan;
    double largest_value;
} format_t;

static const format_t fp16 = {10, 5, 15, false, 0x7bff, 0x7c00, 0x7e00, 65504.0};
static const format_t bf16 = {7, 8, 127, false, 0x7f7f, 0x7f80, 0x7fc0, 0x1.fep127};
static const format_t e4m3 = {3, 4, 7, true, 0x7e, 0, 0x7f, 448.0};
static const format_t e5m2 = {2, 5, 15, true, 0x7b, 0x7c, 0x7e, 57344.0};

static const format_t *format_of(sol_dtype_t dtype)
{
    switch (dtype) {
    case SOL_FLOAT16:
        return &fp16;
    case SOL_BFLOAT16:
        return &bf16;
    case SOL_FLOAT8_E4M3:
        return &e4m3;
    case SOL_FLOAT8_E5M2:
        return &e5m2;
    default:
        return NULL;
    }
}

const char *ref_kind_name(ref_kind_t kind)
{
    static const char *const names[] = {"bits", "plain", "special", "pattern"};
    return names[kind];
}

size_t ref_size(sol_dtype_t dtype)
{
    static const size_t sizes[SOL_DTYPE_COUNT] = {1, 1, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1};
    return sizes[dtype];
}

bool ref_is_float(sol_dtype_t dtype)
{
    return dtype >= SOL_FLOAT16;
}

static bool is_signed(sol_dtype_t dtype)
{
    return dtype == SOL_INT8 || dtype == SOL_INT32 || dtype == SOL_INT64;
}

/* ---------------------------------------------------------------- bits in memory */

/* Little endian, as every machine we build for. Switches, because this is most of the suite's time.
 */
static uint64_t load_bits(const void *p, size_t size)
{
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    switch (size) {
    case 1:
        return *(const uint8_t *)p;
    case 2:
        memcpy(&u16, p, 2);
        return u16;
    case 4:
        memcpy(&u32, p, 4);
        return u32;
    default:
        memcpy(&u64, p, 8);
        return u64;
    }
}

static void store_bits(void *p, size_t size, uint64_t bits)
{
    switch (size) {
    case 1:
        memcpy(p, &bits, 1);
        break;
    case 2:
        memcpy(p, &bits, 2);
        break;
    case 4:
        memcpy(p, &bits, 4);
        break;
    default:
        memcpy(p, &bits, 8);
        break;
    }
}

/* ---------------------------------------------------------------- small floats */

static float decode(const format_t *f, uint32_t code)
{
    uint32_t mantissa = code & ((1u << f->mantissa) - 1);
    int exponent = (int)(code >> f->mantissa & ((1u << f->exponent) - 1));
    bool negative = code >> (f->mantissa + f->exponent) & 1;
    bool top = exponent == (1 << f->exponent) - 1;
    double value;
    if (f == &e4m3 ? (code & 0x7f) == 0x7f : top && mantissa != 0)
        return NAN;
    if (f != &e4m3 && top)
        value = HUGE_VAL;
    else if (exponent == 0)
        value = ldexp(mantissa, 1 - f->bias - f->mantissa);
    else
        value = ldexp(mantissa + ldexp(1, f->mantissa), exponent - f->bias - f->mantissa);
    return (float)(negative ? -value : value);
}

static uint32_t encode(const format_t *f, float value)
{
    uint32_t sign = signbit(value) ? 1u << (f->mantissa + f->exponent) : 0;
    double v = fabs((double)value);
    int exponent;
    if (isnan(value))
        return f->nan;
    if (isinf(value))
        return sign | (f->saturates ? f->largest : f->infinity);
    if (v == 0)
        return sign;
    frexp(v, &exponent);
    exponent -= 1; /* v = 1.xxx * 2^exponent */
    if (exponent < 1 - f->bias)
        exponent = 1 - f->bias;
    /* v in units of the last place: scaling by a power of two is exact, nearbyint rounds to even */
    double units = nearbyint(ldexp(v, f->mantissa - exponent));
    if (ldexp(units, exponent - f->mantissa) > f->largest_value)
        return sign | (f->saturates ? f->largest : f->infinity);
    /* A carry into the next binade comes out right by itself: mantissa 0, exponent one more. */
    uint32_t hidden = 1u << f->mantissa;
    if (units < hidden)
        return sign | (uint32_t)units; /* subnormal */
    return sign | ((((uint32_t)(exponent + f->bias)) << f->mantissa) + ((uint32_t)units - hidden));
}

static float load_float(const void *p, sol_dtype_t dtype)
{
    float value;
    if (dtype != SOL_FLOAT32)
        return decode(format_of(dtype), (uint32_t)load_bits(p, ref_size(dtype)));
    memcpy(&value, p, sizeof(value));
    return value;
}

static void store_float(void *p, sol_dtype_t dtype, float value)
{
    if (dtype != SOL_FLOAT32)
        store_bits(p, ref_size(dtype), encode(format_of(dtype), value));
    else if (isnan(value))
        store_bits(p, 4, 0x7fc00000u);
    else
        memcpy(p, &value, sizeof(value));
}

static void store_double(void *p, double value)
{
    if (isnan(value))
        store_bits(p, 8, 0x7ff8000000000000u);
    else
        memcpy(p, &value, sizeof(value));
}

/* ---------------------------------------------------------------- one step of an operation */

#define LESS(a, b) ((a) < (b) || ((a) == (b) && signbit(a) && !signbit(b)))

#define DEFINE_STEP(name, type)                                                                    \
    static type name(type a, type b, sol_redop_t op)                                               \
    {                                                                                              \
        switch (op) {                                                                              \
        case SOL_PROD:                                                                             \
            return a * b;                                                                          \
        case SOL_MIN:                                                                              \
            return isnan(a) ? a : isnan(b) ? b : LESS(b, a) ? b : a;                               \
        case SOL_MAX:                                                                              \
            return isnan(a) ? a : isnan(b) ? b : LESS(a, b) ? b : a;                               \
        default:                                                                                   \
            return a + b;                                                                          \
        }                                                                                          \
    }
DEFINE_STEP(step_float, float)
DEFINE_STEP(step_double, double)

static uint64_t widen(uint64_t bits, sol_dtype_t dtype)
{
    switch (dtype) {
    case SOL_INT8:
        return (uint64_t)(int64_t)(int8_t)bits;
    case SOL_INT32:
        return (uint64_t)(int64_t)(int32_t)bits;
    case SOL_UINT8:
        return (uint8_t)bits;
    case SOL_UINT32:
        return (uint32_t)bits;
    default:
        return bits;
    }
}

static bool int_less(uint64_t a, uint64_t b, sol_dtype_t dtype)
{
    return is_signed(dtype) ? (int64_t)a < (int64_t)b : a < b;
}

static uint64_t step_int(uint64_t a, uint64_t b, sol_dtype_t dtype, sol_redop_t op)
{
    switch (op) {
    case SOL_PROD:
        return widen(a * b, dtype);
    case SOL_MIN:
        return int_less(b, a, dtype) ? b : a;
    case SOL_MAX:
        return int_less(a, b, dtype) ? b : a;
    default:
        return widen(a + b, dtype);
    }
}

static uint64_t divide_int(uint64_t sum, int n, sol_dtype_t dtype)
{
    if (is_signed(dtype))
        return (uint64_t)((int64_t)sum / n);
    return sum / (uint64_t)n;
}

void ref_reduce(void *out, const void *const *srcs, int nsrcs, size_t count, sol_dtype_t dtype,
                sol_redop_t op)
{
    size_t size = ref_size(dtype);
    for (size_t i = 0; i < count; i++) {
        char *to = (char *)out + i * size;
#define AT(r) ((const char *)srcs[r] + i * size)
        if (dtype == SOL_FLOAT64) {
            double a, b;
            memcpy(&a, AT(0), 8);
            for (int r = 1; r < nsrcs; r++) {
                memcpy(&b, AT(r), 8);
                a = step_double(a, b, op);
            }
            store_double(to, op == SOL_AVG ? a / nsrcs : a);
        } else if (ref_is_float(dtype)) {
            float a = load_float(AT(0), dtype);
            for (int r = 1; r < nsrcs; r++)
                a = step_float(a, load_float(AT(r), dtype), op);
            store_float(to, dtype, op == SOL_AVG ? a / (float)nsrcs : a);
        } else {
            uint64_t a = widen(load_bits(AT(0), size), dtype);
            for (int r = 1; r < nsrcs; r++)
                a = step_int(a, widen(load_bits(AT(r), size), dtype), dtype, op);
            store_bits(to, size, op == SOL_AVG ? divide_int(a, nsrcs, dtype) : a);
        }
#undef AT
    }
}

void ref_scale(void *data, const void *scalar, size_t count, sol_dtype_t dtype)
{
    size_t size = ref_size(dtype);
    for (size_t i = 0; i < count; i++) {
        char *at = (char *)data + i * size;
        if (dtype == SOL_FLOAT64) {
            double a, b;
            memcpy(&a, at, 8);
            memcpy(&b, scalar, 8);
            store_double(at, a * b);
        } else if (ref_is_float(dtype)) {
            store_float(at, dtype, load_float(at, dtype) * load_float(scalar, dtype));
        } else {
            store_bits(at, size, load_bits(at, size) * load_bits(scalar, size));
        }
    }
}

/* ---------------------------------------------------------------- contributions */

/* Bits of mantissa and exponent of any float type. */
static void layout_of(sol_dtype_t dtype, int *mantissa, int *exponent)
{
    const format_t *f = format_of(dtype);
    *mantissa = f ? f->mantissa : dtype == SOL_FLOAT32 ? 23 : 52;
    *exponent = f ? f->exponent : dtype == SOL_FLOAT32 ? 8 : 11;
}

uint64_t ref_special(sol_dtype_t dtype, unsigned k)
{
    int m, e;
    unsigned bits = 8 * (unsigned)ref_size(dtype);
    uint64_t all = bits == 64 ? ~0ull : (1ull << bits) - 1, top = 1ull << (bits - 1);
    k %= REF_SPECIALS;
    if (!ref_is_float(dtype)) {
        const uint64_t ints[] = {0, 1, all, top, top - 1, top + 1, 2, all - 1, 0x55, 7};
        return ints[k % 10] & all;
    }
    layout_of(dtype, &m, &e);
    uint64_t one = ((1ull << (e - 1)) - 1) << m; /* 1.0 */
    uint64_t ones = ((1ull << e) - 1) << m;      /* infinity, where there is one */
    uint64_t quiet = 1ull << (m - 1);
    const uint64_t values[REF_SPECIALS / 2] = {
        0,                /* zero */
        1,                /* the smallest subnormal */
        (1ull << m) - 1,  /* the largest subnormal */
        1ull << m,        /* the smallest normal */
        one,              /* 1 */
        one + 1,          /* the next after 1 */
        ones - 1,         /* the largest finite (E4M3: one less exponent) */
        ones,             /* infinity (E4M3: 256) */
        ones | quiet | 1, /* a quiet NaN with a payload */
        ones | 1,         /* a signalling NaN (E4M3: 288) */
    };
    uint64_t value = values[k / 2];
    if (dtype == SOL_FLOAT8_E4M3 && k / 2 >= 8)
        value = k / 2 == 8 ? 0x7f : 0x7e; /* its NaN, its largest */
    return value | (k & 1 ? top : 0);
}

static uint64_t plain_bits(sol_dtype_t dtype, uint64_t h)
{
    int m, e;
    layout_of(dtype, &m, &e);
    uint64_t mantissa = h & ((1ull << m) - 1);
    uint64_t exponent = (1ull << (e - 1)) - 1 - 3 + (h >> 56) % 6; /* 1/8 to 4 */
    return (h >> 55 & 1) << (m + e) | exponent << m | mantissa;
}

void ref_fill(void *out, sol_dtype_t dtype, ref_kind_t kind, uint64_t seed, int rank, size_t first,
              size_t count)
{
    size_t size = ref_size(dtype);
    uint64_t base = team_mix(seed ^ ((uint64_t)rank + 1) * 0xd1342543de82ef95u);
    if (kind == REF_PLAIN && !ref_is_float(dtype))
        kind = REF_BITS;
    for (size_t i = 0; i < count; i++) {
        uint64_t index = first + i, h = team_mix(base + index), bits = h;
        if (kind == REF_PLAIN)
            bits = plain_bits(dtype, h);
        else if (kind == REF_SPECIAL && h >> 62)
            bits = ref_special(dtype, (unsigned)(h >> 32) & 0xffff);
        else if (kind == REF_PATTERN)
            bits = rank == 0 ? index : index * (2 * (base & 0xffff) + 1) + (base >> 32);
        store_bits((char *)out + i * size, size, bits);
    }
}

void ref_scalar(void *out, sol_dtype_t dtype, uint64_t seed, int rank)
{
    uint64_t h = team_mix(seed + 77 + (uint64_t)rank * 0x9e3779b97f4a7c15u);
    uint64_t bits = h % 5 == 0 ? h : ref_is_float(dtype) ? plain_bits(dtype, h) : h % 7;
    store_bits(out, ref_size(dtype), bits);
}

/* ---------------------------------------------------------------- single elements */

float ref_get(const void *data, sol_dtype_t dtype, size_t i)
{
    const char *p = (const char *)data + i * ref_size(dtype);
    float value;
    if (dtype != SOL_FLOAT32)
        return decode(format_of(dtype), (uint32_t)load_bits(p, ref_size(dtype)));
    memcpy(&value, p, sizeof(value));
    return value;
}

void ref_put(void *data, sol_dtype_t dtype, size_t i, float value)
{
    char *p = (char *)data + i * ref_size(dtype);
    uint32_t bits = 0x7fc00000u;
    if (dtype != SOL_FLOAT32)
        store_bits(p, ref_size(dtype), encode(format_of(dtype), value));
    else
        memcpy(p, value == value ? (const void *)&value : &bits, sizeof(value));
}
