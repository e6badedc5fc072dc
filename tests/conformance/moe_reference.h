/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe_reference.h: what dispatch and combine of solccl/moe.h must give, bit for
 * bit, written a second time from that header; and cases of them, for every suite.
 *
 * A case on a rank is one block of memory ("image") that holds all its arrays, with
 * guards between them: as it must be before, and after a dispatch and a combine. The
 * experts' outputs do not depend on their inputs, so they are there before.
 */
#ifndef TESTS_MOE_REFERENCE_H
#define TESTS_MOE_REFERENCE_H

#include "conformance/reference.h"
#include "solccl/moe.h"

#define MOE_MAX_RANKS 8

/* How tokens choose. */
typedef enum {
    MOE_ANY,     /* any experts, now and then none */
    MOE_ONE,     /* all the same few */
    MOE_NONE,    /* none at all */
    MOE_STRANGE, /* numbers that are no experts, and experts named twice */
    MOE_CHOICES
} moe_choice_t;

typedef struct moe_case {
    int nranks;
    sol_moe_config_t config;
    size_t tokens[MOE_MAX_RANKS];
    sol_dtype_t idx_dtype;
    moe_choice_t choice;
    bool weights; /* given; else ones */
    bool others;  /* combine with weights other than those that came */
    bool recv_weights, recv_offsets;
    bool aligned; /* to 16 bytes, each array */
    bool marks;   /* among the tokens' words: those that a slot says by that it is empty */
    ref_kind_t kind;
    uint64_t seed;
} moe_case_t;

/* A config, and a case of it; `most`: elements of a rank's tokens. */
void moe_config_draw(sol_moe_config_t *config, uint64_t *random, size_t most);
void moe_case_draw(moe_case_t *c, const sol_moe_config_t *config, int nranks, uint64_t *random);
void moe_case_describe(const moe_case_t *c, char *text, size_t bytes);

enum {
    MOE_X,
    MOE_IDX,
    MOE_WEIGHTS,
    MOE_Y,
    MOE_OTHERS,
    MOE_RECV_X,
    MOE_RECV_SCALES,
    MOE_RECV_WEIGHTS,
    MOE_RECV_COUNTS,
    MOE_RECV_OFFSETS,
    MOE_OUT,
    MOE_ARRAYS
};

typedef struct moe_image {
    size_t bytes;
    size_t at[MOE_ARRAYS], size[MOE_ARRAYS]; /* size 0: not there */
    unsigned char *before, *after;
} moe_image_t;

/* Experts of a rank: the first one's number; how many. */
int moe_first(const moe_case_t *c, int rank);
int moe_local(const moe_case_t *c, int rank);

/* False: no memory. */
bool moe_image_make(moe_image_t *image, const moe_case_t *c, int rank);
void moe_image_free(moe_image_t *image);
/* The calls' arguments, with the image at `base`. */
void moe_image_args(const moe_image_t *image, const moe_case_t *c, int rank, void *base,
                    sol_moe_dispatch_args_t *dispatch, sol_moe_combine_args_t *combine);
/* Is `got` (image->bytes) as it must be after? Otherwise says what is not. */
bool moe_image_check(const moe_image_t *image, const unsigned char *got, char *why, size_t bytes);

#endif
