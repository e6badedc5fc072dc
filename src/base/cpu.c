/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpu.c: what this CPU can do beside arithmetic (coll/reduce.c has that).
 */
#include "base/base.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

bool sol_cpu_demotes(void)
{
#if defined(__x86_64__)
    enum { CLDEMOTE = 1 << 25 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & CLDEMOTE);
#else
    return false;
#endif
}
