/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear_reference.h: what sol_linear_all_reduce must give, bit for bit, written a second
 * time from solccl/fused.h and docs/fused.md; and cases of it, for every suite.
 */
#ifndef TESTS_LINEAR_REFERENCE_H
#define TESTS_LINEAR_REFERENCE_H

#include "conformance/reference.h"
#include "solccl/fused.h"

#define LINEAR_RANKS 64

typedef struct linear_case {
    size_t tokens, outputs, inputs[LINEAR_RANKS];
    sol_dtype_t weights;
    bool scales;
    unsigned misfit; /* bytes that arrays are off a multiple of 16 */
    ref_kind_t kind;
    uint64_t seed;
} linear_case_t;

void linear_case_draw(linear_case_t *c, uint64_t *random, int nranks, size_t inputs,
                      size_t outputs);
void linear_case_describe(const linear_case_t *c, int nranks, char *text, size_t bytes);

enum { LINEAR_INPUT, LINEAR_WEIGHT, LINEAR_SCALES, LINEAR_OUTPUT, LINEAR_ARRAYS };

/* All arrays of a rank in one block, with guards between them. */
typedef struct linear_image {
    size_t bytes;
    size_t at[LINEAR_ARRAYS], size[LINEAR_ARRAYS];
    unsigned char *before, *after;
    double error; /* of the sums, relative to the sum of the products' magnitudes; REF_PLAIN only */
} linear_image_t;

/* False: no memory. */
bool linear_image_make(linear_image_t *image, const linear_case_t *c, int nranks, int rank);
void linear_image_free(linear_image_t *image);
void linear_image_args(const linear_image_t *image, const linear_case_t *c, int rank, void *base,
                       sol_linear_args_t *args);
bool linear_image_check(const linear_image_t *image, const unsigned char *got, char *why,
                        size_t bytes);

#endif
