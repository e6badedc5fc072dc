/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fpmode.h: floating-point arithmetic in IEEE's default mode (round to nearest,
 * subnormals kept, nothing traps) between enter and leave, whatever mode the
 * calling thread is in. Usually it is in the default one, and this costs one
 * read of the mode register.
 *
 * The compiler does not know that arithmetic depends on the mode. It cannot
 * move loads or stores over the clobber, though, so arithmetic stays between
 * the two that reads its operands from memory and writes its results there.
 */
#ifndef SOL_COLL_FPMODE_H
#define SOL_COLL_FPMODE_H

#include "base/base.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#define SOL_FP_DEFAULT 0x1f80u /* all exceptions masked, nearest, no FTZ, no DAZ */
#define SOL_FP_STATE 0xffc0u   /* all but the sticky exception flags */

static inline unsigned sol_fp_get(void)
{
    return _mm_getcsr();
}

static inline void sol_fp_set(unsigned mode)
{
    _mm_setcsr(mode);
}

#elif defined(__aarch64__)
#define SOL_FP_DEFAULT 0u
#define SOL_FP_STATE 0x03c89f07u /* AHP DN FZ RMode FZ16, trap enables, NEP AH FIZ */

static inline unsigned sol_fp_get(void)
{
    uint64_t mode;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(mode));
    return (unsigned)mode;
}

static inline void sol_fp_set(unsigned mode)
{
    __asm__ __volatile__("msr fpcr, %0" : : "r"((uint64_t)mode));
}

#else /* no mode register that is known here: the platform's default is taken for granted */
#define SOL_FP_DEFAULT 0u
#define SOL_FP_STATE 0u

static inline unsigned sol_fp_get(void)
{
    return 0;
}

static inline void sol_fp_set(unsigned mode)
{
    (void)mode;
}
#endif

/* Returns what sol_fp_leave needs. */
static inline unsigned sol_fp_enter(void)
{
    unsigned mode = sol_fp_get();
    if (SOL_UNLIKELY((mode & SOL_FP_STATE) != SOL_FP_DEFAULT)) {
        sol_fp_set(SOL_FP_DEFAULT);
        __asm__ __volatile__("" ::: "memory");
    }
    return mode;
}

static inline void sol_fp_leave(unsigned mode)
{
    if (SOL_UNLIKELY((mode & SOL_FP_STATE) != SOL_FP_DEFAULT)) {
        __asm__ __volatile__("" ::: "memory");
        sol_fp_set(mode);
    }
}

#endif
