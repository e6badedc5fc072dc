/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear_reference.c: see linear_reference.h.
 */
#include "conformance/linear_reference.h"

#include "common/team.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 48
#define FILL 0xa5

static const char *const array_names[LINEAR_ARRAYS] = {"input", "weight", "scales", "output"};

static size_t below(uint64_t *random, size_t n)
{
    return (size_t)(team_random(random) % n);
}

void linear_case_draw(linear_case_t *c, uint64_t *random, int nranks, size_t inputs, size_t outputs)
{
    static const sol_dtype_t types[] = {SOL_BFLOAT16, SOL_BFLOAT16, SOL_FLOAT8_E4M3,
                                        SOL_FLOAT8_E5M2};
    memset(c, 0, sizeof(*c));
    c->seed = team_random(random);
    c->weights = types[below(random, 4)];
    c->scales = c->weights != SOL_BFLOAT16 || below(random, 4) == 0;
    c->tokens = 1 + below(random, below(random, 2) ? 2 : SOL_LINEAR_MAX_TOKENS);
    c->outputs = 1 + below(random, outputs);
    c->misfit = below(random, 3) == 0 ? (unsigned)below(random, 16) : 0;
    c->kind = below(random, 4) ? REF_PLAIN : REF_SPECIAL;
    const bool even = below(random, 2);
    for (int r = 0; r < nranks; r++) {
        c->inputs[r] = below(random, inputs);
        if (even)
            c->inputs[r] = r > 0 ? c->inputs[0] : c->inputs[0] / 64 * 64 + 64;
    }
}

void linear_case_describe(const linear_case_t *c, int nranks, char *text, size_t bytes)
{
    int n = snprintf(text, bytes, "linear_all_reduce of %zu tokens, %s %zu x%s%s%s", c->tokens,
                     sol_dtype_name(c->weights), c->outputs, c->scales ? " scales," : "",
                     c->misfit ? " unaligned," : "", c->kind == REF_PLAIN ? "" : " special,");
    for (int r = 0; r < nranks && n > 0 && (size_t)n < bytes; r++)
        n += snprintf(text + n, bytes - (size_t)n, " %zu", c->inputs[r]);
}

/* --------------------------------------------------------------------------- expected */

/* Halves onto each other: the first with the one in the middle ... */
static float halving(const float *x)
{
    float y[32];
    memcpy(y, x, sizeof(y));
    for (int n = 16; n >= 1; n /= 2)
        for (int i = 0; i < n; i++)
            y[i] = y[i] + y[i + n];
    return y[0];
}

/* One row by one token, of which a vector of the row holds `e`. */
static float product(const float *w, const float *x, size_t count, size_t e)
{
    float lanes[32] = {0};
    const size_t blocks = (count + 32 * e - 1) / (32 * e);
    for (size_t b = 0; b < blocks; b++)
        for (size_t i = 0; i < 32 * e; i++) {
            const size_t at = b * 32 * e + i;
            lanes[i / e] = fmaf(at < count ? w[at] : 0, at < count ? x[at] : 0, lanes[i / e]);
        }
    return halving(lanes);
}

/* Arrays of a rank, as they are before. Uses ref_fill with ranks of their own. */
static void fill(const linear_case_t *c, int rank, void *input, void *weight, void *scales)
{
    ref_fill(input, SOL_BFLOAT16, c->kind, c->seed, rank, 0, c->tokens * c->inputs[rank]);
    ref_fill(weight, c->weights, c->kind, c->seed, 64 + rank, 0, c->outputs * c->inputs[rank]);
    for (size_t o = 0; c->scales && o < c->outputs; o++)
        ref_put(scales, SOL_FLOAT32, o, 0.001f * (float)(1 + o % 7 + (size_t)rank));
}

/* Adds the contribution of `rank` to `sums`. */
static void add_rank(linear_image_t *image, const linear_case_t *c, int rank, float *sums,
                     unsigned char *raw)
{
    const size_t k = c->inputs[rank], e = 16 / ref_size(c->weights);
    unsigned char *weight = raw + c->tokens * k * 2, *scales = weight + c->outputs * k * 2;
    float *x = malloc((c->tokens + 1) * (k + 1) * sizeof(float)), *w = x + c->tokens * k;
    fill(c, rank, raw, weight, scales);
    for (size_t i = 0; i < c->tokens * k; i++)
        x[i] = ref_get(raw, SOL_BFLOAT16, i);
    for (size_t o = 0; o < c->outputs; o++) {
        for (size_t i = 0; i < k; i++)
            w[i] = ref_get(weight, c->weights, o * k + i);
        for (size_t t = 0; t < c->tokens; t++) {
            unsigned char rounded[4];
            double exact = 0, size = 1e-30;
            float sum = product(w, x + t * k, k, e);
            for (size_t i = 0; i < k; i++) {
                exact += (double)w[i] * x[t * k + i];
                size += fabs((double)w[i] * x[t * k + i]);
            }
            if (c->kind == REF_PLAIN)
                image->error = fmax(image->error, fabs(sum - exact) / size);
            if (c->scales)
                sum = sum * ref_get(scales, SOL_FLOAT32, o);
            ref_put(rounded, SOL_BFLOAT16, 0, sum);
            sum = ref_get(rounded, SOL_BFLOAT16, 0);
            float *total = &sums[t * c->outputs + o];
            *total = rank == 0 ? sum : *total + sum;
        }
    }
    free(x);
}

bool linear_image_make(linear_image_t *image, const linear_case_t *c, int nranks, int rank)
{
    size_t most = 0, at = GUARD;
    memset(image, 0, sizeof(*image));
    for (int r = 0; r < nranks; r++)
        most = c->inputs[r] > most ? c->inputs[r] : most;
    image->size[LINEAR_INPUT] = c->tokens * c->inputs[rank] * 2;
    image->size[LINEAR_WEIGHT] = c->outputs * c->inputs[rank] * ref_size(c->weights);
    image->size[LINEAR_SCALES] = c->scales ? c->outputs * 4 : 0;
    image->size[LINEAR_OUTPUT] = c->tokens * c->outputs * 2;
    for (int a = 0; a < LINEAR_ARRAYS; a++) {
        at = (at + GUARD + 15) / 16 * 16 + c->misfit;
        image->at[a] = at;
        at += image->size[a];
    }
    image->bytes = at + GUARD;
    image->before = malloc(image->bytes);
    image->after = malloc(image->bytes);
    float *sums = malloc(c->tokens * c->outputs * sizeof(float));
    unsigned char *raw = malloc((c->tokens + c->outputs) * (most + 1) * 2 + c->outputs * 4);
    const bool good = image->before && image->after && sums && raw;
    if (good) {
        memset(image->before, FILL, image->bytes);
        fill(c, rank, image->before + image->at[LINEAR_INPUT],
             image->before + image->at[LINEAR_WEIGHT], image->before + image->at[LINEAR_SCALES]);
        memcpy(image->after, image->before, image->bytes);
        for (int r = 0; r < nranks; r++)
            add_rank(image, c, r, sums, raw);
        for (size_t i = 0; i < c->tokens * c->outputs; i++)
            ref_put(image->after + image->at[LINEAR_OUTPUT], SOL_BFLOAT16, i, sums[i]);
    }
    free(sums);
    free(raw);
    if (!good)
        linear_image_free(image);
    return good;
}

void linear_image_free(linear_image_t *image)
{
    free(image->before);
    free(image->after);
    image->before = image->after = NULL;
}

void linear_image_args(const linear_image_t *image, const linear_case_t *c, int rank, void *base,
                       sol_linear_args_t *args)
{
    static const sol_linear_args_t blank = SOL_LINEAR_ARGS_INIT;
    char *b = base;
    *args = blank;
    args->tokens = c->tokens;
    args->inputs = c->inputs[rank];
    args->outputs = c->outputs;
    args->weight_dtype = c->weights;
    args->input = b + image->at[LINEAR_INPUT];
    args->weight = b + image->at[LINEAR_WEIGHT];
    args->scales = c->scales ? (float *)(void *)(b + image->at[LINEAR_SCALES]) : NULL;
    args->output = b + image->at[LINEAR_OUTPUT];
}

bool linear_image_check(const linear_image_t *image, const unsigned char *got, char *why,
                        size_t bytes)
{
    if (memcmp(got, image->after, image->bytes) == 0)
        return true;
    size_t at = 0;
    while (got[at] == image->after[at])
        at++;
    snprintf(why, bytes, ": byte %zu, outside all arrays, was written", at);
    for (int a = 0; a < LINEAR_ARRAYS; a++)
        if (at >= image->at[a] && at < image->at[a] + image->size[a])
            snprintf(why, bytes, "%s: byte %zu of %zu is %02x, must be %02x", array_names[a],
                     at - image->at[a], image->size[a], got[at], image->after[at]);
    return false;
}
