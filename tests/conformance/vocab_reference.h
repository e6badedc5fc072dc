/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vocab_reference.h: what sol_vocab_topk must give, written a second time from
 * solccl/fused.h: by sorting everything, and in fp64; and cases of it, for every
 * suite.
 */
#ifndef TESTS_VOCAB_REFERENCE_H
#define TESTS_VOCAB_REFERENCE_H

#include "conformance/reference.h"
#include "solccl/fused.h"

#define VOCAB_RANKS 64

typedef enum {
    VOCAB_PLAIN,   /* middling numbers, all different */
    VOCAB_SPECIAL, /* NaNs, infinities, zeros of both signs, often */
    VOCAB_BITS,    /* any bits */
    VOCAB_EQUAL,   /* one value */
    VOCAB_FEW,     /* three values */
    VOCAB_ASCENDING,
    VOCAB_LOW, /* -infinity, but for a few */
    VOCAB_KINDS
} vocab_kind_t;

typedef struct vocab_case {
    size_t tokens;
    size_t columns[VOCAB_RANKS], first[VOCAB_RANKS];
    size_t gap; /* elements between rows */
    sol_dtype_t dtype;
    unsigned k;
    bool values, indices, sum;
    unsigned misfit; /* bytes that arrays are off a multiple of 16 */
    vocab_kind_t kind;
    uint64_t seed;
} vocab_case_t;

/* Any case of at most `most` logits in all. */
void vocab_case_draw(vocab_case_t *c, uint64_t *random, int nranks, size_t most);
void vocab_case_describe(const vocab_case_t *c, int nranks, char *text, size_t bytes);

enum { VOCAB_LOGITS, VOCAB_VALUES, VOCAB_INDICES, VOCAB_SUM, VOCAB_ARRAYS };

/* All arrays of a rank in one block, with guards between them: as it is before. */
typedef struct vocab_image {
    size_t bytes;
    size_t at[VOCAB_ARRAYS], size[VOCAB_ARRAYS]; /* size 0: not there */
    unsigned char *before, *after;               /* `after` without the sums */
    double *sums;
} vocab_image_t;

/* False: no memory. */
bool vocab_image_make(vocab_image_t *image, const vocab_case_t *c, int nranks, int rank);
void vocab_image_free(vocab_image_t *image);
void vocab_image_args(const vocab_image_t *image, const vocab_case_t *c, int rank, void *base,
                      sol_vocab_args_t *args);
/* Is `got` (image->bytes) as it must be after? Otherwise says what is not. `worst` grows to the
 * largest error of a sum. */
bool vocab_image_check(const vocab_image_t *image, const vocab_case_t *c, const unsigned char *got,
                       double *worst, char *why, size_t bytes);

#endif
