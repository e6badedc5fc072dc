/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce.c: which instruction set this CPU has, and which reduction that gives.
 * Asked when a communicator is made; never per call.
 */
#include "coll/reduce.h"

#include "base/base.h"
#include "coll/reduce_table.h"

#include <stdatomic.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const isa_names[SOL_ISA_COUNT + 1] = {"plain", "avx2", "avx512", NULL};

const char *sol_isa_name(sol_isa isa)
{
    return (unsigned)isa < SOL_ISA_COUNT ? isa_names[isa] : "invalid";
}

#if defined(__x86_64__)

/* By hand: not every compiler's __builtin_cpu_supports knows this one. That the system saves the
 * registers is checked with avx2. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

bool sol_isa_usable(sol_isa isa)
{
    __builtin_cpu_init();
    switch (isa) {
    case SOL_ISA_PLAIN:
        return true;
    case SOL_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && has_f16c();
    case SOL_ISA_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
               has_f16c();
    default:
        return false;
    }
}

static const sol_reduce_table_t *table_of(sol_isa isa)
{
    return isa == SOL_ISA_AVX512 ? &sol_reduce_avx512
           : isa == SOL_ISA_AVX2 ? &sol_reduce_avx2
                                 : &sol_reduce_plain;
}

#else

bool sol_isa_usable(sol_isa isa)
{
    return isa == SOL_ISA_PLAIN;
}

static const sol_reduce_table_t *table_of(sol_isa isa)
{
    (void)isa;
    return &sol_reduce_plain;
}

#endif

/* The best usable one that is not above what SOLCCL_ISA asks for. */
static sol_isa choose_isa(void)
{
    char why[256];
    int ceiling = SOL_ISA_COUNT - 1;
    if (sol_env_choice("SOLCCL_ISA", isa_names, &ceiling, why, sizeof why) != SOL_OK)
        sol_log(SOL_LOG_WARN, "%s; the best of this CPU is used", why);
    while (ceiling > SOL_ISA_PLAIN && !sol_isa_usable((sol_isa)ceiling))
        ceiling--;
    return (sol_isa)ceiling;
}

sol_isa sol_isa_best(void)
{
    static _Atomic int chosen = -1; /* two threads may both choose, and choose the same */
    int isa = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (isa < 0) {
        isa = (int)choose_isa();
        atomic_store_explicit(&chosen, isa, memory_order_relaxed);
    }
    return (sol_isa)isa;
}

static bool valid(sol_dtype_t dtype, sol_redop_t op)
{
    return (unsigned)dtype < SOL_DTYPE_COUNT && (unsigned)op < SOL_REDOP_COUNT;
}

sol_reduce_fn sol_reduce_for(sol_isa isa, sol_dtype_t dtype, sol_redop_t op)
{
    return valid(dtype, op) ? table_of(isa)->reduce[dtype][op] : NULL;
}

sol_reduce_fn sol_reduce_bare_for(sol_isa isa, sol_dtype_t dtype, sol_redop_t op)
{
    return valid(dtype, op) ? table_of(isa)->bare[dtype][op] : NULL;
}

sol_scale_fn sol_scale_for(sol_isa isa, sol_dtype_t dtype)
{
    return valid(dtype, SOL_SUM) ? table_of(isa)->scale[dtype] : NULL;
}
