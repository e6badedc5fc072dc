/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_linear.c: the product of sol_linear_all_reduce without the CPU's fused multiply-add
 * gives the bits that it gives with it, for any bits of input.
 */
#include "coll/linear.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { TOKENS = 3, INPUTS = 700, OUTPUTS = 40 };

static void both_ways_give_the_same_bits(void **state)
{
    static uint16_t input[TOKENS * INPUTS], product[2][TOKENS * OUTPUTS];
    static uint16_t weight[OUTPUTS * INPUTS];
    uint64_t random = 7;
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        sol_linear_args_t args = SOL_LINEAR_ARGS_INIT;
        /* any exponents; middling ones; ones whose products vanish; ones that nearly do */
        static const uint16_t low[] = {0, 0x3c00, 0x1800, 0x2000};
        static const uint16_t span[] = {0x7fff, 0x07ff, 0x07ff, 0x0fff};
        for (size_t i = 0; i < OUTPUTS * INPUTS; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            const uint16_t bits = (uint16_t)(random >> 33), sign = (uint16_t)(bits & 0x8000);
            weight[i] = (uint16_t)(sign | ((bits & span[kind]) + low[kind]));
            if (i < TOKENS * INPUTS) {
                const uint16_t other = (uint16_t)(random >> 48);
                input[i] = (uint16_t)((other & 0x8000) | ((other & span[kind]) + low[kind]));
            }
        }
        args.tokens = TOKENS;
        args.inputs = INPUTS;
        args.outputs = OUTPUTS;
        args.input = input;
        args.weight = weight;
        float *scratch = malloc(sol_linear_scratch(&args) * sizeof(float));
        assert_non_null(scratch);
        sol_linear_product(&args, product[0], scratch, true);
        sol_linear_product(&args, product[1], scratch, false);
        assert_memory_equal(product[0], product[1], sizeof(product[0]));
        free(scratch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_ways_give_the_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
