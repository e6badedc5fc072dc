/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce_type.h: the loops of one element type. A template: reduce_impl.h
 * defines
 *
 *   ELEMENT        the type's name in elements.h
 *   ELEMENT_BYTES  size of one element
 *   RAW            vec or half: the memory image of one step
 *   UNROLL         steps of one turn of the main loop
 *   GUARDED        1 if the floating-point mode must be the default one
 *
 * and includes this file, which makes ELEMENT_sum ... ELEMENT_avg and
 * ELEMENT_scale of the types in reduce.h, and undefines them.
 *
 * How a range is walked: whole steps from the front, and one last step that
 * ends exactly at the end and may overlap the one before. dst may be one of the
 * sources, so the last step's result is computed before anything is stored and
 * stored after everything else. A range shorter than a step is one partial
 * step. Nothing is read or written outside the range.
 */
#define PASTE_(a, b) a##_##b
#define PASTE(a, b) PASTE_(a, b)
#define FN(name) PASTE(ELEMENT, name)
#define ACC FN(acc)
#define RAW_TYPE PASTE(vec_of, RAW)
#define RAW_FN(name) PASTE(RAW, name)
#define STEP sizeof(RAW_TYPE)

VEC_INLINE RAW_TYPE FN(finish)(sol_redop_t op, ACC a, int n)
{
    return FN(pack)(op == SOL_AVG ? FN(divide)(a, n) : a);
}

/* One step at byte `at` of all sources. */
VEC_INLINE RAW_TYPE FN(step)(sol_redop_t op, const void *const *srcs, int n, size_t at)
{
    ACC a = FN(unpack)(RAW_FN(load)((const unsigned char *)srcs[0] + at));
    for (int s = 1; s < n; s++)
        a = FN(combine)(op, a, FN(unpack)(RAW_FN(load)((const unsigned char *)srcs[s] + at)));
    return FN(finish)(op, a, n);
}

VEC_INLINE void FN(part)(sol_redop_t op, unsigned char *dst, const void *const *srcs, int n,
                         size_t bytes)
{
    ACC a = FN(unpack)(RAW_FN(load_part)(srcs[0], bytes));
    for (int s = 1; s < n; s++)
        a = FN(combine)(op, a, FN(unpack)(RAW_FN(load_part)(srcs[s], bytes)));
    RAW_FN(store_part)(dst, FN(finish)(op, a, n), bytes);
}

/* UNROLL steps side by side: each source's pointer is fetched once for all of them, and their
 * chains of dependent additions overlap. */
VEC_INLINE void FN(turn)(sol_redop_t op, unsigned char *dst, const void *const *srcs, int n,
                         size_t at)
{
    ACC a[UNROLL];
    const unsigned char *src = (const unsigned char *)srcs[0] + at;
    for (int k = 0; k < UNROLL; k++)
        a[k] = FN(unpack)(RAW_FN(load)(src + k * STEP));
    for (int s = 1; s < n; s++) {
        src = (const unsigned char *)srcs[s] + at;
        for (int k = 0; k < UNROLL; k++)
            a[k] = FN(combine)(op, a[k], FN(unpack)(RAW_FN(load)(src + k * STEP)));
    }
    for (int k = 0; k < UNROLL; k++)
        RAW_FN(store)(dst + at + k * STEP, FN(finish)(op, a[k], n));
}

VEC_INLINE void FN(range)(sol_redop_t op, unsigned char *dst, const void *const *srcs, int n,
                          size_t bytes)
{
    if (bytes < STEP) {
        FN(part)(op, dst, srcs, n, bytes);
        return;
    }
    size_t last = bytes - STEP, at = 0;
    RAW_TYPE end = FN(step)(op, srcs, n, last);
    for (; UNROLL > 1 && at + UNROLL * STEP <= last; at += UNROLL * STEP)
        FN(turn)(op, dst, srcs, n, at);
    for (; at < last; at += STEP)
        RAW_FN(store)(dst + at, FN(step)(op, srcs, n, at));
    RAW_FN(store)(dst + last, end);
}

/*
 * One operation: for two sources, the commonest number, with pointers in registers and no inner
 * loop; for any number; and the choice, which does the smallest ranges itself, so that they pay
 * for no more registers than they use. ELEMENT_op looks at the floating-point mode first, and
 * ELEMENT_op_bare leaves that to its caller.
 */
#define REDUCTION(name, op)                                                                        \
    static VEC_NOINLINE void FN(PASTE(name, two))(void *dst, const void *first,                    \
                                                  const void *second, size_t bytes)                \
    {                                                                                              \
        const void *const srcs[2] = {first, second};                                               \
        FN(range)(op, dst, srcs, 2, bytes);                                                        \
    }                                                                                              \
    static VEC_NOINLINE void FN(PASTE(name, any))(void *dst, const void *const *srcs, int nsrcs,   \
                                                  size_t bytes)                                    \
    {                                                                                              \
        FN(range)(op, dst, srcs, nsrcs, bytes);                                                    \
    }                                                                                              \
    static void FN(PASTE(name, bare))(void *dst, const void *const *srcs, int nsrcs, size_t count) \
    {                                                                                              \
        size_t bytes = count * ELEMENT_BYTES;                                                      \
        if (nsrcs != 2)                                                                            \
            FN(PASTE(name, any))(dst, srcs, nsrcs, bytes);                                         \
        else if (bytes < STEP)                                                                     \
            FN(part)(op, dst, srcs, 2, bytes);                                                     \
        else                                                                                       \
            FN(PASTE(name, two))(dst, srcs[0], srcs[1], bytes);                                    \
    }                                                                                              \
    static void FN(name)(void *dst, const void *const *srcs, int nsrcs, size_t count)              \
    {                                                                                              \
        unsigned mode = GUARDED ? sol_fp_enter() : 0;                                              \
        FN(PASTE(name, bare))(dst, srcs, nsrcs, count);                                            \
        if (GUARDED)                                                                               \
            sol_fp_leave(mode);                                                                    \
    }
REDUCTION(sum, SOL_SUM)
REDUCTION(prod, SOL_PROD)
REDUCTION(min, SOL_MIN)
REDUCTION(max, SOL_MAX)
REDUCTION(avg, SOL_AVG)
#undef REDUCTION

/* A product with a source whose every element is the scalar: the same arithmetic as SOL_PROD. */
static void FN(scale)(void *dst, const void *src, const void *scalar, size_t count)
{
    size_t bytes = count * ELEMENT_BYTES, at = 0;
    unsigned char *to = dst, all[STEP];
    for (size_t k = 0; k < STEP; k += ELEMENT_BYTES)
        memcpy(all + k, scalar, ELEMENT_BYTES);
    unsigned mode = GUARDED ? sol_fp_enter() : 0;
    const ACC factor = FN(unpack)(RAW_FN(load)(all));
#define SCALED(raw) FN(pack)(FN(combine)(SOL_PROD, FN(unpack)(raw), factor))
    if (bytes < STEP) {
        RAW_FN(store_part)(to, SCALED(RAW_FN(load_part)(src, bytes)), bytes);
    } else {
        size_t last = bytes - STEP;
        RAW_TYPE end = SCALED(RAW_FN(load)((const unsigned char *)src + last));
        for (; at < last; at += STEP)
            RAW_FN(store)(to + at, SCALED(RAW_FN(load)((const unsigned char *)src + at)));
        RAW_FN(store)(to + last, end);
    }
#undef SCALED
    if (GUARDED)
        sol_fp_leave(mode);
}

#undef ELEMENT
#undef ELEMENT_BYTES
#undef RAW
#undef UNROLL
#undef GUARDED
#undef PASTE_
#undef PASTE
#undef FN
#undef ACC
#undef RAW_TYPE
#undef RAW_FN
#undef STEP
