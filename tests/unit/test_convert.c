/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_convert.c: single conversions of convert.h against the formats'
 * definitions: every small pattern, every tie and its neighbours, a sweep
 * through the fp32 patterns.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coll/convert.h"
#include "float_reference.h"

struct small {
    const ref_format *reference;
    const sol_float_format_t *format;
};

static const struct small smalls[] = {{&ref_fp16, &sol_format_fp16},
                                      {&ref_bf16, &sol_format_bf16},
                                      {&ref_e4m3, &sol_format_e4m3},
                                      {&ref_e5m2, &sol_format_e5m2}};
#define SMALLS (sizeof smalls / sizeof *smalls)

static void check_narrow(const struct small *s, uint32_t wide)
{
    uint64_t expected = ref_encode(s->reference, ref_decode(&ref_fp32, wide));
    uint32_t got = sol_narrow_bits(wide, *s->format);
    if (got != expected)
        fail_msg("fp32 %08x to %s: %x, expected %llx", wide, s->reference->name, got,
                 (unsigned long long)expected);
}

/* The reference itself, where a hand or the compiler can check it. */
static void reference(void **state)
{
    (void)state;
    assert_true(ref_decode(&ref_e4m3, 0x7e) == 448.0 && ref_decode(&ref_e4m3, 0x01) == 0x1p-9);
    assert_true(ref_decode(&ref_e5m2, 0x7b) == 57344.0 && ref_decode(&ref_e5m2, 0x81) == -0x1p-16);
    assert_true(ref_decode(&ref_fp16, 0x3c01) == 1.0009765625 &&
                isnan(ref_decode(&ref_fp16, 0x7c01)));
    assert_int_equal(ref_encode(&ref_e4m3, 464.0), 0x7e);
    assert_int_equal(ref_encode(&ref_e4m3, -INFINITY), 0xfe);
    assert_int_equal(ref_encode(&ref_fp16, 65519.99), 0x7bff);
    assert_int_equal(ref_encode(&ref_fp16, 65520.0), 0x7c00);
    assert_int_equal(ref_encode(&ref_fp16, 0x1p-25), 0);
    assert_int_equal(ref_encode(&ref_fp16, 0x1.8p-25), 1);
    assert_int_equal(ref_encode(&ref_bf16, -0.0), 0x8000);
    for (uint64_t wide = 0; wide <= UINT32_MAX; wide += 65521) {
        float value = sol_float_from_bits((uint32_t)wide);
        if (isnan(value))
            continue;
        assert_true(ref_decode(&ref_fp32, wide) == (double)value);
        assert_int_equal(ref_encode(&ref_fp32, (double)value), wide);
    }
}

static void every_small_pattern(void **state)
{
    (void)state;
    for (size_t k = 0; k < SMALLS; k++) {
        const struct small *s = &smalls[k];
        for (uint32_t small = 0; small < 1u << s->format->bits; small++) {
            double expected = ref_decode(s->reference, small);
            uint32_t wide = sol_widen_bits(small, *s->format);
            assert_int_equal(wide, ref_encode(&ref_fp32, expected));
            uint64_t back = ref_encode(s->reference, expected); /* e5m2: infinities saturate */
            assert_int_equal(sol_narrow_bits(wide, *s->format), back);
            if (!isnan(expected) && !isinf(expected))
                assert_int_equal(back, small);
        }
    }
}

/* Halfway between each two neighbours, and one fp32 place to either side of that. */
static void every_tie(void **state)
{
    (void)state;
    for (size_t k = 0; k < SMALLS; k++) {
        const struct small *s = &smalls[k];
        for (uint32_t small = 0; small < (1u << (s->format->bits - 1)) - 1; small++) {
            double low = ref_decode(s->reference, small),
                   high = ref_decode(s->reference, small + 1);
            if (isnan(low) || isnan(high) || isinf(low))
                continue;
            if (isinf(
                    high)) /* the place where infinity begins: a largest number plus half a step */
                high = 2 * low - ref_decode(s->reference, small - 1);
            uint32_t tie = (uint32_t)ref_encode(&ref_fp32, low + (high - low) / 2);
            for (uint32_t wide = tie - 1; wide != tie + 2; wide++) {
                check_narrow(s, wide);
                check_narrow(s, wide ^ 0x80000000u);
            }
        }
    }
}

static void sweep(void **state)
{
    (void)state;
    for (size_t k = 0; k < SMALLS; k++)
        for (uint64_t wide = 0; wide <= UINT32_MAX; wide += 2039)
            check_narrow(&smalls[k], (uint32_t)wide);
}

/* The named functions are these formats. */
static void by_name(void **state)
{
    (void)state;
    for (uint32_t wide = 0; wide < UINT32_MAX - 1000003; wide += 1000003) {
        float value = sol_float_from_bits(wide);
        double exact = ref_decode(&ref_fp32, wide);
        assert_int_equal(sol_float_to_fp16(value), ref_encode(&ref_fp16, exact));
        assert_int_equal(sol_float_to_bf16(value), ref_encode(&ref_bf16, exact));
        assert_int_equal(sol_float_to_e4m3(value), ref_encode(&ref_e4m3, exact));
        assert_int_equal(sol_float_to_e5m2(value), ref_encode(&ref_e5m2, exact));
    }
    assert_true((double)sol_fp16_to_float(0x3555) == ref_decode(&ref_fp16, 0x3555));
    assert_true((double)sol_bf16_to_float(0x0001) == ref_decode(&ref_bf16, 0x0001));
    assert_true((double)sol_e4m3_to_float(0x83) == ref_decode(&ref_e4m3, 0x83));
    assert_true((double)sol_e5m2_to_float(0x7c) == (double)INFINITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference), cmocka_unit_test(every_small_pattern),
        cmocka_unit_test(every_tie), cmocka_unit_test(sweep),
        cmocka_unit_test(by_name),
    };
    return cmocka_run_group_tests_name("convert", tests, NULL, NULL);
}
