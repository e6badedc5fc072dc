/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vocab_reference.c: see vocab_reference.h.
 */
#include "conformance/vocab_reference.h"

#include "common/team.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 48
#define FILL 0xa5
#define SUM_ERROR 1e-6 /* what fused.h promises */

static const char *const array_names[VOCAB_ARRAYS] = {"logits", "values", "indices", "log_sum_exp"};

static size_t below(uint64_t *random, size_t n)
{
    return (size_t)(team_random(random) % n);
}

void vocab_case_draw(vocab_case_t *c, uint64_t *random, int nranks, size_t most)
{
    static const sol_dtype_t floats[] = {SOL_BFLOAT16, SOL_FLOAT16, SOL_FLOAT32};
    static const unsigned ks[] = {1, 1, 0, 2, 5, 50, 127, 128};
    size_t total = 0, largest = 0;
    memset(c, 0, sizeof(*c));
    c->seed = team_random(random);
    c->dtype = floats[below(random, 3)];
    c->kind = (vocab_kind_t)below(random, VOCAB_KINDS);
    c->k = ks[below(random, 8)];
    c->sum = c->k == 0 || below(random, 2);
    c->values = below(random, 4) != 0;
    c->indices = !c->values || below(random, 4) != 0;
    c->misfit = below(random, 3) == 0 ? (unsigned)below(random, 16) : 0;
    c->gap = below(random, 3) == 0 ? below(random, 20) : 0;
    const size_t size = below(random, 3) == 0 ? 40 : below(random, 2) ? 1500 : 9000;
    const bool backwards = below(random, 3) == 0, equal = below(random, 3) == 0;
    for (int r = 0; r < nranks; r++) {
        c->columns[r] = equal && r > 0 ? c->columns[0] : below(random, size);
        if (below(random, 8) == 0 && !equal)
            c->columns[r] = 0;
        if (c->columns[r] > most / (size_t)nranks)
            c->columns[r] = most / (size_t)nranks;
        largest = c->columns[r] > largest ? c->columns[r] : largest;
    }
    for (int i = 0; i < nranks; i++) { /* shards need not be in the order of ranks */
        int r = backwards ? nranks - 1 - i : i;
        c->first[r] = total;
        total += c->columns[r] + below(random, 3);
    }
    size_t tokens = most / (largest * (size_t)nranks + 1);
    c->tokens = 1 + below(random, tokens < 1 ? 1 : tokens < 12 ? tokens : 12);
}

void vocab_case_describe(const vocab_case_t *c, int nranks, char *text, size_t bytes)
{
    static const char *const kinds[] = {"",      ", special",   ", any bits", ", equal",
                                        ", few", ", ascending", ", low"};
    int n = snprintf(text, bytes, "vocab_topk %u%s of %zu x %s%s%s%s", c->k, c->sum ? ", sum" : "",
                     c->tokens, sol_dtype_name(c->dtype), kinds[c->kind], c->gap ? ", gaps" : "",
                     c->misfit ? ", unaligned" : "");
    for (int r = 0; r < nranks && n > 0 && (size_t)n < bytes; r++)
        n += snprintf(text + n, bytes - (size_t)n, " %zu", c->columns[r]);
}

/* Logit of a token, by its index in the vocabulary. */
static void put_logit(const vocab_case_t *c, size_t token, size_t index, void *out, size_t at)
{
    const uint64_t h = team_mix(c->seed + token * 0x10001u + index);
    float x = (float)((double)(h >> 11) * 0x1p-53 * 24.0 - 12.0);
    switch (c->kind) {
    case VOCAB_SPECIAL:
    case VOCAB_BITS: {
        unsigned char element[8];
        ref_fill(element, c->dtype, c->kind == VOCAB_BITS ? REF_BITS : REF_SPECIAL, c->seed, 0,
                 token * 70001u + index, 1);
        memcpy((char *)out + at * ref_size(c->dtype), element, ref_size(c->dtype));
        return;
    }
    case VOCAB_EQUAL:
        x = 1.25f;
        break;
    case VOCAB_FEW:
        x = (float)(h % 3);
        break;
    case VOCAB_ASCENDING:
        x = (float)index * 0.001f - 3.0f;
        break;
    case VOCAB_LOW:
        x = h % 97 == 0 ? x : -INFINITY;
        break;
    default:
        break;
    }
    ref_put(out, c->dtype, at, x);
}

/* ---------------------------------------------------------------------------- expected */

struct pair {
    float value;
    size_t index;
};

static int better(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    const int nans = isnan(y->value) - isnan(x->value);
    if (nans != 0)
        return nans;
    if (!isnan(x->value) && x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* All logits of a token, best first; their number. */
static size_t sorted(const vocab_case_t *c, int nranks, size_t token, struct pair *pairs)
{
    size_t n = 0;
    for (int r = 0; r < nranks; r++)
        for (size_t i = 0; i < c->columns[r]; i++, n++) {
            unsigned char element[8];
            put_logit(c, token, c->first[r] + i, element, 0);
            pairs[n].value = ref_get(element, c->dtype, 0);
            pairs[n].index = c->first[r] + i;
        }
    qsort(pairs, n, sizeof(*pairs), better);
    return n;
}

static double sum_of(const struct pair *pairs, size_t n)
{
    double sum = 0, largest = n > 0 ? (double)pairs[0].value : -INFINITY;
    if (!isfinite(largest))
        return largest;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)pairs[i].value - largest);
    return largest + log(sum);
}

static void expect_token(vocab_image_t *image, const vocab_case_t *c, size_t token,
                         const struct pair *pairs, size_t n)
{
    for (size_t i = 0; i < c->k; i++) {
        float value = i < n ? pairs[i].value : -INFINITY;
        const int64_t index = i < n ? (int64_t)pairs[i].index : -1;
        value = isnan(value) ? nanf("") : value == 0 ? 0.0f : value;
        if (c->values)
            memcpy(image->after + image->at[VOCAB_VALUES] + (token * c->k + i) * 4, &value, 4);
        if (c->indices)
            memcpy(image->after + image->at[VOCAB_INDICES] + (token * c->k + i) * 8, &index, 8);
    }
    image->sums[token] = sum_of(pairs, n);
}

/* ------------------------------------------------------------------------------ images */

static void lay_out(vocab_image_t *image, const vocab_case_t *c, int rank)
{
    const size_t pitch = c->columns[rank] + c->gap;
    size_t at = GUARD;
    image->size[VOCAB_LOGITS] = c->tokens * pitch * ref_size(c->dtype);
    image->size[VOCAB_VALUES] = c->values ? c->tokens * c->k * 4 : 0;
    image->size[VOCAB_INDICES] = c->indices ? c->tokens * c->k * 8 : 0;
    image->size[VOCAB_SUM] = c->sum ? c->tokens * 4 : 0;
    for (int a = 0; a < VOCAB_ARRAYS; a++) {
        at = (at + GUARD + 15) / 16 * 16 + c->misfit;
        image->at[a] = at;
        at += image->size[a];
    }
    image->bytes = at + GUARD;
}

bool vocab_image_make(vocab_image_t *image, const vocab_case_t *c, int nranks, int rank)
{
    size_t total = 1;
    memset(image, 0, sizeof(*image));
    lay_out(image, c, rank);
    for (int r = 0; r < nranks; r++)
        total += c->columns[r];
    image->before = malloc(image->bytes);
    image->after = malloc(image->bytes);
    image->sums = malloc((c->tokens + 1) * sizeof(double));
    struct pair *pairs = malloc(total * sizeof(*pairs));
    const bool good = image->before && image->after && image->sums && pairs;
    if (good) {
        const size_t pitch = c->columns[rank] + c->gap;
        memset(image->before, FILL, image->bytes);
        for (size_t t = 0; t < c->tokens; t++)
            for (size_t i = 0; i < c->columns[rank]; i++)
                put_logit(c, t, c->first[rank] + i, image->before + image->at[VOCAB_LOGITS],
                          t * pitch + i);
        memcpy(image->after, image->before, image->bytes);
        for (size_t t = 0; t < c->tokens; t++)
            expect_token(image, c, t, pairs, sorted(c, nranks, t, pairs));
    }
    free(pairs);
    if (!good)
        vocab_image_free(image);
    return good;
}

void vocab_image_free(vocab_image_t *image)
{
    free(image->before);
    free(image->after);
    free(image->sums);
    image->before = image->after = NULL;
    image->sums = NULL;
}

static void *array(const vocab_image_t *image, char *base, int which)
{
    return image->size[which] ? base + image->at[which] : NULL;
}

void vocab_image_args(const vocab_image_t *image, const vocab_case_t *c, int rank, void *base,
                      sol_vocab_args_t *args)
{
    static const sol_vocab_args_t blank = SOL_VOCAB_ARGS_INIT;
    *args = blank;
    args->tokens = c->tokens;
    args->columns = c->columns[rank];
    args->pitch = c->gap ? c->columns[rank] + c->gap : 0;
    args->first = c->first[rank];
    args->dtype = c->dtype;
    args->k = c->k;
    args->logits = array(image, base, VOCAB_LOGITS);
    args->values = array(image, base, VOCAB_VALUES);
    args->indices = array(image, base, VOCAB_INDICES);
    args->log_sum_exp = array(image, base, VOCAB_SUM);
}

static bool check_sum(const vocab_image_t *image, size_t token, float got, double *worst, char *why,
                      size_t bytes)
{
    const double exact = image->sums[token];
    double error = fabs(got - exact) / (1 + fabs(exact));
    if (!isfinite(exact) || !isfinite(got))
        error = (isnan(exact) ? isnan(got) : (double)got == exact) ? 0 : INFINITY;
    *worst = fmax(*worst, error);
    if (error <= SUM_ERROR)
        return true;
    snprintf(why, bytes, "log_sum_exp of token %zu is wrong: %.9g, must be %.9g", token,
             (double)got, exact);
    return false;
}

bool vocab_image_check(const vocab_image_t *image, const vocab_case_t *c, const unsigned char *got,
                       double *worst, char *why, size_t bytes)
{
    size_t at = 0;
    while (at < image->bytes &&
           (got[at] == image->after[at] ||
            (at >= image->at[VOCAB_SUM] && at < image->at[VOCAB_SUM] + image->size[VOCAB_SUM])))
        at++;
    for (size_t t = 0; t < c->tokens && c->sum && at == image->bytes; t++) {
        float sum;
        memcpy(&sum, got + image->at[VOCAB_SUM] + t * 4, 4);
        if (!check_sum(image, t, sum, worst, why, bytes))
            return false;
    }
    if (at == image->bytes)
        return true;
    snprintf(why, bytes, ": byte %zu, outside all arrays, was written", at);
    for (int a = 0; a < VOCAB_ARRAYS; a++)
        if (at >= image->at[a] && at < image->at[a] + image->size[a])
            snprintf(why, bytes, "%s: byte %zu of %zu is %02x, must be %02x", array_names[a],
                     at - image->at[a], image->size[a], got[at], image->after[at]);
    return false;
}
