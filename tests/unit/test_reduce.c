/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_reduce.c: the arithmetic of reductions, for every instruction set of
 * this machine, type and operation, against reduce_reference.h: all patterns
 * of the small types, special values of the wide ones, every count and byte
 * offset around a vector, buffers that end at an unmapped page, in place,
 * hostile floating-point modes, random bits (SOLCCL_TEST_SEED repeats a run).
 *
 * Instruction sets that this machine lacks are skipped; they are compiled from
 * the same text as those that run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "coll/fpmode.h"
#include "coll/reduce.h"
#include "reduce_reference.h"

#define MAX_SOURCES 64

static uint64_t seed;

#define FOR_ISAS(isa)                                                                              \
    for (int isa = 0; isa < SOL_ISA_COUNT; isa++)                                                  \
        if (sol_isa_usable((sol_isa)isa))
#define FOR_TYPES(type)                                                                            \
    for (const ref_type *type = ref_types; type < ref_types + SOL_DTYPE_COUNT; type++)
#define FOR_OPS(op) for (int op = 0; op < SOL_REDOP_COUNT; op++)

static void *must_alloc(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

static void run(int isa, const ref_type *type, int op, void *dst, const void *const *srcs, int n,
                size_t count)
{
    static unsigned turn; /* the bare function is the same one in the default mode */
    sol_reduce_fn reduce = turn++ % 2
                               ? sol_reduce_bare_for((sol_isa)isa, type->dtype, (sol_redop_t)op)
                               : sol_reduce_for((sol_isa)isa, type->dtype, (sol_redop_t)op);
    assert_non_null(reduce);
    reduce(dst, srcs, n, count);
}

static void expect_element(int isa, const ref_type *type, const char *what, const uint64_t *x,
                           int n, uint64_t got, uint64_t expected)
{
    if (got != expected)
        fail_msg("%s %s %s of %d (%llx, %llx, ...): %llx, expected %llx",
                 sol_isa_name((sol_isa)isa), type->name, what, n, (unsigned long long)x[0],
                 (unsigned long long)x[n - 1], (unsigned long long)got,
                 (unsigned long long)expected);
}

static void gather(const ref_type *type, const void *const *srcs, int n, size_t index, uint64_t *x)
{
    for (int s = 0; s < n; s++)
        x[s] = ref_get(type, srcs[s], index);
}

/* The reference's result for `count` elements into `expected`. */
static void reference_into(const ref_type *type, int op, const void *const *srcs, int n,
                           size_t count, void *expected)
{
    uint64_t x[MAX_SOURCES];
    for (size_t i = 0; i < count; i++) {
        gather(type, srcs, n, i, x);
        ref_set(type, expected, i, ref_reduce(type, (sol_redop_t)op, x, n));
    }
}

static void expect_array(int isa, const ref_type *type, int op, const void *const *srcs, int n,
                         size_t count, const void *got, const void *expected)
{
    if (memcmp(got, expected, count * (size_t)type->bytes) == 0)
        return;
    uint64_t x[MAX_SOURCES];
    for (size_t i = 0; i < count; i++) {
        gather(type, srcs, n, i, x);
        expect_element(isa, type, sol_redop_name((sol_redop_t)op), x, n, ref_get(type, got, i),
                       ref_get(type, expected, i));
    }
}

/* All instruction sets against the reference. */
static void verify(const ref_type *type, int op, const void *const *srcs, int n, size_t count)
{
    size_t bytes = count * (size_t)type->bytes;
    void *expected = must_alloc(bytes), *got = must_alloc(bytes);
    reference_into(type, op, srcs, n, count, expected);
    FOR_ISAS(isa)
    {
        memset(got, 0x5a, bytes);
        run(isa, type, op, got, srcs, n, count);
        expect_array(isa, type, op, srcs, n, count, got, expected);
    }
    free(expected);
    free(got);
}

/* ------------------------------------------------------------------------ values */

/* Patterns worth meeting: zeros, ones, subnormals, limits, infinities, NaNs; for integers the
 * limits and small numbers. From the layout of the type; `list` has room for 64. */
static int specials(const ref_type *type, uint64_t *list)
{
    int n = 0, mantissa = 0;
    uint64_t sign = (uint64_t)1 << (8 * type->bytes - 1);
    if (type->format)
        mantissa = type->format->mantissa;
    else if (type->dtype == SOL_FLOAT64)
        mantissa = 52;
    if (mantissa == 0) {
        const uint64_t integers[] = {0, 1, 2, 3, 5, 7, 100, sign - 1, sign, sign + 1, sign / 2};
        for (size_t k = 0; k < sizeof integers / sizeof *integers; k++) {
            list[n++] = integers[k] & ref_mask(type);
            list[n++] = -integers[k] & ref_mask(type);
        }
        return n;
    }
    uint64_t step = (uint64_t)1 << mantissa, infinity = (sign - 1) / step * step;
    uint64_t one = infinity / 2 / step * step;
    const uint64_t floats[] = {0,
                               1, /* the smallest subnormal */
                               2,
                               3,
                               step - 1, /* the largest one */
                               step,     /* the smallest normal */
                               step + 1,
                               2 * step - 1,
                               one - step,
                               one,
                               one + 1,
                               one + step,
                               one + step / 2,
                               one + 3 * step,
                               infinity - 1, /* the largest finite, of most types */
                               infinity - step / 2,
                               infinity - step,
                               infinity,            /* or 256, in e4m3 */
                               infinity + 1,        /* a signalling NaN */
                               infinity + step / 2, /* a quiet one */
                               sign - 1};           /* NaN of all ones */
    for (size_t k = 0; k < sizeof floats / sizeof *floats; k++) {
        list[n++] = floats[k];
        list[n++] = floats[k] | sign;
    }
    return n;
}

/* Random bits; often a special value, or near the last element's exponent, so that sums round and
 * cancel instead of one operand swallowing the other. */
static void random_fill(const ref_type *type, void *array, size_t count)
{
    uint64_t list[64], mask = ref_mask(type), last = 0;
    uint64_t number = (uint64_t)specials(type, list);
    for (size_t i = 0; i < count; i++) {
        uint64_t r = ref_random(&seed), pattern = ref_random(&seed) & mask;
        if (r % 8 == 0)
            pattern = list[(r >> 8) % number];
        else if (r % 8 < 5)
            pattern = (last & mask << (4 * type->bytes)) | (pattern & mask >> (4 * type->bytes));
        ref_set(type, array, i, pattern & mask);
        last = pattern;
    }
}

/* Every pattern of the 8-bit types with every other. */
static void all_pairs_of_bytes(void **state)
{
    (void)state;
    unsigned char *a = must_alloc(65536), *b = must_alloc(65536);
    for (int i = 0; i < 65536; i++) {
        a[i] = (unsigned char)(i & 255);
        b[i] = (unsigned char)(i >> 8);
    }
    const void *const srcs[] = {a, b};
    FOR_TYPES(type)
    if (type->bytes == 1)
        FOR_OPS(op) verify(type, op, srcs, 2, 65536);
    free(a);
    free(b);
}

/* Every pattern of the 16-bit types alone and with each special one, in both orders. */
static void all_halves(void **state)
{
    (void)state;
    uint16_t *a = must_alloc(65536 * 2), *b = must_alloc(65536 * 2);
    for (int i = 0; i < 65536; i++)
        a[i] = (uint16_t)i;
    const void *const forward[] = {a, b}, *const backward[] = {b, a};
    FOR_TYPES(type)
    {
        uint64_t list[64];
        if (type->bytes != 2)
            continue;
        FOR_OPS(op) verify(type, op, forward, 1, 65536);
        int number = specials(type, list);
        for (int k = 0; k < number; k++) {
            for (int i = 0; i < 65536; i++)
                b[i] = (uint16_t)list[k];
            FOR_OPS(op) verify(type, op, k % 2 ? forward : backward, 2, 65536);
        }
        for (int i = 0; i < 65536; i++) /* and with a random one each */
            b[i] = (uint16_t)ref_random(&seed);
        FOR_OPS(op) verify(type, op, forward, 2, 65536);
    }
    free(a);
    free(b);
}

/* Every special value with every other, and with a third. */
static void special_values(void **state)
{
    (void)state;
    FOR_TYPES(type)
    {
        uint64_t list[64];
        size_t number = (size_t)specials(type, list), count = number * number * number;
        size_t bytes = count * (size_t)type->bytes;
        void *srcs[] = {must_alloc(bytes), must_alloc(bytes), must_alloc(bytes)};
        for (size_t i = 0; i < count; i++) {
            ref_set(type, srcs[0], i, list[i % number]);
            ref_set(type, srcs[1], i, list[i / number % number]);
            ref_set(type, srcs[2], i, list[i / number / number]);
        }
        FOR_OPS(op)
        {
            verify(type, op, (const void *const *)srcs, 2, number * number);
            verify(type, op, (const void *const *)srcs, 3, count);
        }
        for (int s = 0; s < 3; s++)
            free(srcs[s]);
    }
}

/* Random bits, 1 to 64 sources, sizes past several turns of the widest loop. */
static void random_bits(void **state)
{
    (void)state;
    for (int round = 0; round < 1500; round++) {
        const ref_type *type = &ref_types[ref_random(&seed) % SOL_DTYPE_COUNT];
        int op = (int)(ref_random(&seed) % SOL_REDOP_COUNT);
        int n = 1 + (int)(ref_random(&seed) % (round % 4 ? 8 : MAX_SOURCES));
        size_t count = ref_random(&seed) % 1200;
        void *srcs[MAX_SOURCES];
        for (int s = 0; s < n; s++) {
            srcs[s] = must_alloc(count * (size_t)type->bytes);
            random_fill(type, srcs[s], count);
        }
        verify(type, op, (const void *const *)srcs, n, count);
        for (int s = 0; s < n; s++)
            free(srcs[s]);
    }
}

/* Sums are taken in the order given: (big + -big) + 1 is 1, and any other order is 0. */
static void order(void **state)
{
    (void)state;
    float big[40], minus[40], one[40], got[40];
    for (int i = 0; i < 40; i++) {
        big[i] = 0x1p60f;
        minus[i] = -0x1p60f;
        one[i] = 1.0f;
    }
    const void *const good[] = {big, minus, one}, *const bad[] = {big, one, minus};
    FOR_ISAS(isa)
    {
        run(isa, &ref_types[SOL_FLOAT32], SOL_SUM, got, good, 3, 40);
        assert_true(got[0] == 1.0f && got[39] == 1.0f);
        run(isa, &ref_types[SOL_FLOAT32], SOL_SUM, got, bad, 3, 40);
        assert_true(got[0] == 0.0f && got[39] == 0.0f);
    }
}

/* ------------------------------------------------------------------------- places */

#define PLACES_COUNT 70
#define PLACES_BYTES (PLACES_COUNT * 8 + 64)

static void check_place(int isa, const ref_type *type, int op, const void *const *srcs,
                        size_t count, size_t offset, const unsigned char *expected)
{
    unsigned char out[PLACES_BYTES];
    size_t bytes = count * (size_t)type->bytes;
    memset(out, 0xa5, sizeof out);
    run(isa, type, op, out + offset, srcs, 2, count);
    if (memcmp(out + offset, expected, bytes) != 0)
        expect_array(isa, type, op, srcs, 2, count, out + offset, expected);
    for (size_t i = 0; i < sizeof out; i++)
        if ((i < offset || i >= offset + bytes) && out[i] != 0xa5)
            fail_msg("%s %s: byte %zd past %zu elements was written", sol_isa_name((sol_isa)isa),
                     type->name, (ssize_t)(i - offset), count);
}

/* Every count of 0..70 at every byte offset of 0..15 of destination and sources. */
static void counts_and_offsets(void **state)
{
    (void)state;
    static unsigned char a[16][PLACES_BYTES], b[16][PLACES_BYTES], expected[PLACES_BYTES];
    FOR_TYPES(type)
    {
        size_t bytes = PLACES_COUNT * (size_t)type->bytes;
        random_fill(type, a[0], PLACES_COUNT);
        random_fill(type, b[0], PLACES_COUNT);
        for (int offset = 1; offset < 16; offset++) {
            memcpy(a[offset] + offset, a[0], bytes);
            memcpy(b[offset] + offset, b[0], bytes);
        }
        FOR_OPS(op)
        {
            const void *const plain[] = {a[0], b[0]};
            reference_into(type, op, plain, 2, PLACES_COUNT, expected);
            FOR_ISAS(isa)
            for (size_t count = 0; count <= PLACES_COUNT; count++)
                for (size_t to = 0; to < 16; to++)
                    for (size_t from = 0; from < 16; from++) {
                        size_t other = (from * 7 + 3 + count) % 16;
                        const void *const srcs[] = {a[from] + from, b[other] + other};
                        check_place(isa, type, op, srcs, count, to, expected);
                    }
        }
    }
}

/* A page with unmapped ones on both sides. */
static unsigned char *lonely_page(size_t page)
{
    unsigned char *three = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(three != MAP_FAILED);
    assert_int_equal(mprotect(three + page, page, PROT_READ | PROT_WRITE), 0);
    return three + page;
}

/* Buffers at the very end, and at the very start, of what is mapped: nothing beyond is touched. */
static void edges_of_memory(void **state)
{
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *a = lonely_page(page), *b = lonely_page(page), *out = lonely_page(page);
    FOR_TYPES(type)
    FOR_ISAS(isa)
    for (size_t count = 0; count <= 300; count++) {
        size_t end = page - count * (size_t)type->bytes;
        for (int op = SOL_SUM; op <= SOL_MAX; op += SOL_MAX) {
            const void *const last[] = {a + end, b + end, b + end}, *const first[] = {a, b, a};
            run(isa, type, op, out + end, last, 2, count);
            run(isa, type, op, out + end, last, 3, count);
            run(isa, type, op, out, first, 2, count);
            run(isa, type, op, out, first, 3, count);
        }
        sol_scale_for((sol_isa)isa, type->dtype)(out + end, a + end, b + page - type->bytes, count);
        sol_scale_for((sol_isa)isa, type->dtype)(out, a, b, count);
    }
    munmap(a - page, 3 * page);
    munmap(b - page, 3 * page);
    munmap(out - page, 3 * page);
}

/* Null pointers are legal where there is nothing to do. */
static void nothing(void **state)
{
    (void)state;
    const void *const srcs[] = {NULL, NULL, NULL};
    const double scalar = 1;
    FOR_TYPES(type)
    FOR_ISAS(isa)
    {
        FOR_OPS(op)
        {
            run(isa, type, op, NULL, srcs, 2, 0);
            run(isa, type, op, NULL, srcs, 3, 0);
        }
        sol_scale_for((sol_isa)isa, type->dtype)(NULL, NULL, &scalar, 0);
    }
}

/* The destination is one of the sources, each in turn; also all of them at once. */
static void in_place(void **state)
{
    (void)state;
    static const int numbers[] = {1, 2, 3, 5, 8};
    static const size_t counts[] = {1, 3, 7, 8, 9, 31, 33, 64, 65, 100, 257, 1000};
    unsigned char *memory[8], *expected = must_alloc(8000), *kept = must_alloc(8000);
    for (int s = 0; s < 8; s++)
        memory[s] = must_alloc(8000);
    FOR_TYPES(type)
    FOR_OPS(op)
    FOR_ISAS(isa)
    for (size_t k = 0; k < 5 * 12; k++) {
        int n = numbers[k % 5];
        size_t count = counts[k / 5];
        for (int s = 0; s < n; s++)
            random_fill(type, memory[s], count);
        const void *const *srcs = (const void *const *)memory;
        reference_into(type, op, srcs, n, count, expected);
        for (int s = 0; s < n; s++) {
            memcpy(kept, memory[s], 8000);
            run(isa, type, op, memory[s], srcs, n, count);
            expect_array(isa, type, op, srcs, n, count, memory[s], expected);
            memcpy(memory[s], kept, 8000);
        }
        const void *const same[] = {memory[0], memory[0], memory[0]};
        reference_into(type, op, same, 3, count, expected);
        run(isa, type, op, memory[0], same, 3, count);
        expect_array(isa, type, op, same, 3, count, memory[0], expected);
    }
    for (int s = 0; s < 8; s++)
        free(memory[s]);
    free(expected);
    free(kept);
}

/* ------------------------------------------------------------- floating-point modes */

#if defined(__x86_64__)
/* flush and denormals-are-zero, up, down, towards zero, everything traps */
static const unsigned modes[] = {0x9fc0, 0x5f80, 0x3f80, 0x7f80, 0x0000};
#elif defined(__aarch64__)
static const unsigned modes[] = {1u << 24, 1u << 22, 2u << 22, 3u << 22, 1u << 25};
#else
static const unsigned modes[] = {0};
#endif
#define MODES (sizeof modes / sizeof *modes)

/* The same bits whatever mode the caller is in, and the caller's mode afterwards. */
static void floating_point_modes(void **state)
{
    (void)state;
    enum { COUNT = 203 };
    unsigned char a[COUNT * 8], b[COUNT * 8], c[COUNT * 8], got[COUNT * 8], expected[COUNT * 8];
    const void *const srcs[] = {a, b, c};
    FOR_TYPES(type)
    {
        random_fill(type, a, COUNT);
        random_fill(type, b, COUNT);
        random_fill(type, c, COUNT);
        FOR_OPS(op)
        for (int n = 1; n <= 3; n++) {
            reference_into(type, op, srcs, n, COUNT, expected);
            FOR_ISAS(isa)
            for (size_t m = 0; m < MODES; m++) {
                sol_reduce_fn reduce = sol_reduce_for((sol_isa)isa, type->dtype, (sol_redop_t)op);
                unsigned before = sol_fp_get();
                sol_fp_set(modes[m]);
                reduce(got, srcs, n, COUNT);
                unsigned after = sol_fp_get();
                sol_fp_set(before);
                assert_int_equal(after & SOL_FP_STATE, modes[m] & SOL_FP_STATE);
                expect_array(isa, type, op, srcs, n, COUNT, got, expected);
            }
        }
    }
}

/* --------------------------------------------------------------------------- scale */

static void check_scale(const ref_type *type, uint64_t scalar, const void *src, size_t count)
{
    unsigned char got[1300 * 8];
    FOR_ISAS(isa)
    for (size_t m = 0; m <= MODES; m++) {
        sol_scale_fn scale = sol_scale_for((sol_isa)isa, type->dtype);
        unsigned before = sol_fp_get();
        memcpy(got, src, count * (size_t)type->bytes);
        if (m < MODES)
            sol_fp_set(modes[m]);
        scale(got, m % 2 ? got : src, &scalar, count);
        sol_fp_set(before);
        for (size_t i = 0; i < count; i++) {
            uint64_t x = ref_get(type, src, i);
            expect_element(isa, type, "premul", &x, 1, ref_get(type, got, i),
                           ref_scale(type, x, scalar));
        }
    }
}

static void scaling(void **state)
{
    (void)state;
    FOR_TYPES(type)
    {
        uint64_t list[64];
        unsigned char src[1300 * 8];
        int number = specials(type, list);
        for (int k = 0; k < number + 8; k++) {
            uint64_t scalar = k < number ? list[k] : ref_random(&seed) & ref_mask(type);
            size_t count = ref_random(&seed) % 300;
            random_fill(type, src, count);
            check_scale(type, scalar, src, count);
            for (int s = 0; s < number; s++)
                ref_set(type, src, (size_t)s, list[s]);
            check_scale(type, scalar, src, (size_t)number);
        }
        for (size_t count = 0; count <= 70; count++)
            check_scale(type, list[4], src, count);
    }
}

/* ------------------------------------------------------------------------ dispatch */

static void dispatch(void **state)
{
    (void)state;
    assert_true(sol_isa_usable(SOL_ISA_PLAIN));
    assert_false(sol_isa_usable(SOL_ISA_COUNT));
    assert_true(sol_isa_usable(sol_isa_best()));
    assert_int_equal(sol_isa_best(), sol_isa_best());
    assert_string_equal(sol_isa_name(SOL_ISA_AVX512), "avx512");
    assert_string_equal(sol_isa_name(SOL_ISA_COUNT), "invalid");
    FOR_ISAS(isa)
    {
        print_message("instruction set: %s\n", sol_isa_name((sol_isa)isa));
        FOR_TYPES(type)
        {
            assert_non_null(sol_scale_for((sol_isa)isa, type->dtype));
            FOR_OPS(op)
            {
                assert_non_null(sol_reduce_for((sol_isa)isa, type->dtype, (sol_redop_t)op));
                assert_non_null(sol_reduce_bare_for((sol_isa)isa, type->dtype, (sol_redop_t)op));
            }
        }
        assert_null(sol_reduce_for((sol_isa)isa, SOL_DTYPE_COUNT, SOL_SUM));
        assert_null(sol_reduce_for((sol_isa)isa, SOL_FLOAT32, SOL_REDOP_COUNT));
        assert_null(sol_scale_for((sol_isa)isa, SOL_DTYPE_COUNT));
    }
    if (!sol_isa_usable(SOL_ISA_AVX512))
        print_message("avx512: not on this machine; its functions were not run\n");
}

/* ----------------------------------------------------------------------------- copy */

static void copy_stream(void **state)
{
    (void)state;
    static const size_t sizes[] = {0,    1,    63,   64,    65,    4095,  4096,
                                   4097, 4160, 5000, 10007, 65536, 100003};
    unsigned char *from = must_alloc(100200), *to = must_alloc(100200);
    for (size_t i = 0; i < 100200; i++)
        from[i] = (unsigned char)ref_random(&seed);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (size_t offset = 0; offset < 64; offset++) {
            size_t other = (offset * 5 + k) % 64, bytes = sizes[k];
            memset(to, 0x77, 100200);
            sol_copy_stream(to + offset, from + other, bytes);
            assert_memory_equal(to + offset, from + other, bytes);
            for (size_t i = 0; i < 64; i++) {
                assert_int_equal(to[offset + bytes + i], 0x77);
                assert_true(i >= offset || to[i] == 0x77);
            }
        }
    sol_copy_stream(NULL, NULL, 0);
    free(from);
    free(to);
}

/* The same results as without streaming, wherever they lie, in place too, and nothing beside them.
 */
static void reduce_stream(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 7, 63, 511, 1023, 1024, 1025, 2048, 5000};
    unsigned char *memory[3], *expected = must_alloc(40200), *got = must_alloc(40200);
    for (int s = 0; s < 3; s++)
        memory[s] = must_alloc(40000);
    const void *const *srcs = (const void *const *)memory;
    FOR_TYPES(type)
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        size_t count = counts[k], bytes = count * (size_t)type->bytes;
        sol_reduce_fn sum = sol_reduce_for(sol_isa_best(), type->dtype, SOL_SUM);
        for (int s = 0; s < 3; s++)
            random_fill(type, memory[s], count);
        sum(expected, srcs, 3, count);
        for (size_t offset = 0; offset < 70; offset += offset < 16 ? 1 : 16) {
            memset(got, 0x77, 40200);
            sol_reduce_stream(sum, got + offset, srcs, 3, count, (size_t)type->bytes);
            assert_memory_equal(got + offset, expected, bytes);
            for (size_t i = 0; i < 64; i++) {
                assert_int_equal(got[offset + bytes + i], 0x77);
                assert_true(i >= offset || got[i] == 0x77);
            }
        }
        sol_reduce_stream(sum, memory[1], srcs, 3, count, (size_t)type->bytes);
        assert_memory_equal(memory[1], expected, bytes);
    }
    for (int s = 0; s < 3; s++)
        free(memory[s]);
    free(expected);
    free(got);
}

int main(void)
{
    const char *asked = getenv("SOLCCL_TEST_SEED");
    seed = asked ? strtoull(asked, NULL, 0) : (uint64_t)time(NULL);
    print_message("SOLCCL_TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dispatch),
        cmocka_unit_test(nothing),
        cmocka_unit_test(order),
        cmocka_unit_test(all_pairs_of_bytes),
        cmocka_unit_test(all_halves),
        cmocka_unit_test(special_values),
        cmocka_unit_test(random_bits),
        cmocka_unit_test(counts_and_offsets),
        cmocka_unit_test(edges_of_memory),
        cmocka_unit_test(in_place),
        cmocka_unit_test(floating_point_modes),
        cmocka_unit_test(scaling),
        cmocka_unit_test(copy_stream),
        cmocka_unit_test(reduce_stream),
    };
    return cmocka_run_group_tests_name("reduce", tests, NULL, NULL);
}
