/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_reference.h: what sol_all_reduce_norm must give, bit for bit, written a
 * second time from solccl/fused.h; and cases of it, for every suite.
 *
 * A case on a rank is one block of memory ("image") that holds all its arrays,
 * with guards between them: as it must be before the call, and after.
 */
#ifndef TESTS_NORM_REFERENCE_H
#define TESTS_NORM_REFERENCE_H

#include "conformance/reference.h"
#include "solccl/fused.h"

typedef struct norm_case {
    size_t tokens, hidden;
    sol_dtype_t dtype, output_dtype;
    sol_norm_t norm;
    sol_quant_t quant;
    bool residual, residual_out, weight, bias;
    bool residual_in_place;   /* residual_out is residual */
    bool residual_over_input; /* residual_out is input */
    bool output_in_place;     /* output is input; same size of elements */
    float weight_bias, epsilon;
    sol_norm_form_t form;
    unsigned shards;
    bool aligned; /* to 16 bytes, each array */
    ref_kind_t kind;
    bool marks; /* some words of the input are those that mean something in slots */
    uint64_t seed;
} norm_case_t;

/* Any case of at most `most` elements in all. */
void norm_case_draw(norm_case_t *c, uint64_t *random, size_t most);
void norm_case_describe(const norm_case_t *c, char *text, size_t bytes);

enum {
    NORM_INPUT,
    NORM_RESIDUAL,
    NORM_WEIGHT,
    NORM_BIAS,
    NORM_STATIC,
    NORM_RESIDUAL_OUT,
    NORM_OUTPUT,
    NORM_SCALES,
    NORM_ARRAYS
};

typedef struct norm_image {
    size_t bytes;
    size_t at[NORM_ARRAYS], size[NORM_ARRAYS]; /* size 0: not there */
    unsigned char *before, *after;
    size_t first, rows; /* the tokens that this rank owns */
    double
        error; /* largest of |y - y in fp64|, relative to the row's largest; 0: not of REF_PLAIN */
} norm_image_t;

/* False: no memory. */
bool norm_image_make(norm_image_t *image, const norm_case_t *c, int nranks, int rank);
void norm_image_free(norm_image_t *image);
/* The call's arguments, with the image at `base`. */
void norm_image_args(const norm_image_t *image, const norm_case_t *c, void *base,
                     sol_norm_args_t *args);
/* Is `got` (image->bytes) as it must be after? Otherwise says what is not. */
bool norm_image_check(const norm_image_t *image, const unsigned char *got, char *why, size_t bytes);

#endif
