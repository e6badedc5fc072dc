/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_reference.c: see norm_reference.h. The definition in solccl/fused.h and the
 * order of sums in docs/fused.md, as directly as C can say it.
 */
#include "conformance/norm_reference.h"

#include "common/team.h"
#include "solccl/device/gpu_word.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 48
#define FILL 0xa5

static const char *const array_names[NORM_ARRAYS] = {
    "input", "residual", "weight", "bias", "static_scale", "residual_out", "output", "scales"};

/* --------------------------------------------------------------------------- cases */

static size_t below(uint64_t *random, size_t n)
{
    return (size_t)(team_random(random) % n);
}

static size_t draw_hidden(uint64_t *random, size_t most)
{
    static const size_t common[] = {128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 7168};
    size_t hidden;
    switch (below(random, 4)) {
    case 0:
        hidden = 1 + below(random, 40);
        break;
    case 1:
        hidden = 1 + below(random, 3000);
        break;
    default:
        hidden = common[below(random, 10)];
    }
    return hidden < most ? hidden : most;
}

void norm_case_draw(norm_case_t *c, uint64_t *random, size_t most)
{
    static const sol_dtype_t floats[] = {SOL_BFLOAT16, SOL_FLOAT16, SOL_FLOAT32};
    static const sol_dtype_t small[] = {SOL_FLOAT8_E4M3, SOL_FLOAT8_E5M2, SOL_INT8};
    memset(c, 0, sizeof(*c));
    c->seed = team_random(random);
    c->dtype = floats[below(random, 3)];
    c->hidden = draw_hidden(random, most);
    size_t tokens = most / c->hidden;
    c->tokens = 1 + below(random, tokens < 9 ? tokens : 9);
    c->norm = below(random, 4) == 0 ? SOL_NORM_LAYER : SOL_NORM_RMS;
    c->quant = (sol_quant_t)(below(random, 2) ? below(random, 5) : 0);
    c->output_dtype = c->quant != SOL_QUANT_NONE ? small[below(random, 3)]
                      : below(random, 3)         ? c->dtype
                                                 : floats[below(random, 3)];
    c->residual = below(random, 4) != 0;
    c->residual_out = below(random, 4) != 0;
    c->residual_in_place = c->residual && c->residual_out && below(random, 2);
    c->weight = below(random, 5) != 0;
    c->bias = below(random, 4) == 0;
    c->output_in_place = ref_size(c->output_dtype) == ref_size(c->dtype) && below(random, 4) == 0;
    c->weight_bias = (float)below(random, 2);
    c->epsilon = below(random, 3) ? 1e-5f : 0.0f;
    c->aligned = below(random, 3) != 0;
    c->kind = below(random, 3) ? REF_PLAIN : (ref_kind_t)below(random, REF_PATTERN);
    if (below(random, 3) == 0) {
        c->form = SOL_NORM_TWO_SHOT;
        c->shards = below(random, 2) ? (unsigned)below(random, 4) : 0;
        if (c->shards & SOL_NORM_SHARD_OUTPUT)
            c->output_in_place = false;
    }
    if (below(random, 3) == 0) { /* the form that has kernels of its own */
        c->norm = SOL_NORM_RMS;
        c->quant = SOL_QUANT_NONE;
        c->output_dtype = c->dtype;
        c->weight = c->aligned = true;
        c->bias = false;
    }
    if (c->form == SOL_NORM_TWO_SHOT && below(random, 2)) { /* so have rows of whole blocks */
        c->hidden = (1 + below(random, 8)) * 512 / ref_size(c->dtype);
        c->norm = SOL_NORM_RMS;
        c->output_dtype = c->quant != SOL_QUANT_NONE ? c->output_dtype : c->dtype;
        c->output_in_place &= ref_size(c->output_dtype) == ref_size(c->dtype);
        c->weight = c->aligned = true;
        c->bias = false;
    }
    c->marks = c->kind != REF_PLAIN && c->seed / 2 % 2;
    c->residual_over_input = c->residual_out && !c->residual_in_place && !c->output_in_place &&
                             !(c->shards & SOL_NORM_SHARD_RESIDUAL) && c->seed % 2;
}

void norm_case_describe(const norm_case_t *c, char *text, size_t bytes)
{
    static const char *const quants[] = {"", " static", " token", " group", " group_pow2"};
    snprintf(text, bytes, "all_reduce_norm %s %zu x %zu %s to %s%s%s%s%s%s%s%s%s%s%s%s",
             c->norm == SOL_NORM_RMS ? "rms" : "layer", c->tokens, c->hidden,
             sol_dtype_name(c->dtype), sol_dtype_name(c->output_dtype), quants[c->quant],
             c->form == SOL_NORM_TWO_SHOT ? ", two-shot" : "",
             c->shards & SOL_NORM_SHARD_RESIDUAL ? ", residual in shards" : "",
             c->shards & SOL_NORM_SHARD_OUTPUT ? ", output in shards" : "",
             c->residual ? ", residual" : "",
             c->residual_in_place     ? " in place"
             : c->residual_over_input ? ", residual_out over the input"
             : c->residual_out        ? ", residual_out"
                                      : "",
             c->weight ? ", weight" : "", c->bias ? ", bias" : "",
             c->output_in_place ? ", output in place" : "", c->aligned ? ", aligned" : "",
             c->marks               ? ", words of the protocol"
             : c->kind == REF_PLAIN ? ""
                                    : ", any bits");
}

/* ----------------------------------------------------------------------- arithmetic */

/* Neighbours, then neighbours of neighbours ... : `n` is a power of two. */
static float pairwise(const float *x, int n)
{
    return n == 1 ? x[0] : pairwise(x, n / 2) + pairwise(x + n / 2, n / 2);
}

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

/* The sum of x, `hidden` of them, of a type of which a vector holds `e`. */
static float ordered_sum(const float *x, size_t hidden, int e)
{
    float lanes[32] = {0};
    size_t blocks = (hidden + (size_t)(32 * e) - 1) / (size_t)(32 * e);
    for (size_t b = 0; b < blocks; b++) {
        float vectors[32];
        for (int v = 0; v < 32; v++) {
            float elements[8];
            for (int i = 0; i < e; i++) {
                size_t at = (b * 32 + (size_t)v) * (size_t)e + (size_t)i;
                elements[i] = at < hidden ? x[at] : 0.0f;
            }
            vectors[v] = pairwise(elements, e);
        }
        lanes[b % 32] = lanes[b % 32] + halving(vectors);
    }
    return halving(lanes);
}

static float row_scale(const float *y, size_t count, sol_dtype_t dtype, bool power)
{
    float largest = 0.0f;
    for (size_t i = 0; i < count; i++) {
        if (isnan(y[i]))
            return nanf("");
        largest = fmaxf(largest, fabsf(y[i]));
    }
    largest = fmaxf(largest, 0x1p-100f);
    float scale = largest / (dtype == SOL_INT8 ? 127.0f : dtype == SOL_FLOAT8_E4M3 ? 448 : 57344);
    if (power && isfinite(scale)) {
        int exponent;
        float fraction = frexpf(scale, &exponent); /* 0.5 ... 1 */
        scale = ldexpf(1.0f, fraction > 0.5f ? exponent : exponent - 1);
    }
    return scale;
}

static void put_small(void *out, sol_dtype_t dtype, size_t i, float value)
{
    if (dtype != SOL_INT8)
        ref_put(out, dtype, i, value);
    else
        ((signed char *)out)[i] =
            isnan(value) ? 0 : (signed char)rint(fmin(fmax((double)value, -127), 127));
}

static void put_quantised(const norm_case_t *c, size_t token, const float *y, float given,
                          unsigned char *output, unsigned char *scales)
{
    bool groups = c->quant >= SOL_QUANT_GROUP;
    size_t group = groups ? 128 : c->hidden, per_row = (c->hidden + group - 1) / group;
    for (size_t g = 0; g < per_row; g++) {
        size_t first = g * group, count = c->hidden - first < group ? c->hidden - first : group;
        float scale = given;
        if (c->quant != SOL_QUANT_STATIC) {
            scale = row_scale(y + first, count, c->output_dtype, c->quant == SOL_QUANT_GROUP_POW2);
            ref_put(scales, SOL_FLOAT32, token * per_row + g, scale);
        }
        float inverse = 1.0f / scale;
        for (size_t i = first; i < first + count; i++)
            put_small(output, c->output_dtype, token * c->hidden + i, y[i] * inverse);
    }
}

/* y, from h; and the same in fp64, for the largest difference. */
static double norm_row(const norm_case_t *c, const float *h, const void *weight, const void *bias,
                       float *y, float *scratch)
{
    const int e = c->dtype == SOL_FLOAT32 ? 4 : 8;
    const float inverse = 1.0f / (float)c->hidden;
    float mean = 0;
    double mean64 = 0, square64 = 0, worst = 0, largest = 0;
    for (size_t i = 0; i < c->hidden; i++)
        mean64 += (double)h[i] / (double)c->hidden;
    if (c->norm == SOL_NORM_LAYER)
        mean = ordered_sum(h, c->hidden, e) * inverse;
    else
        mean64 = 0;
    for (size_t i = 0; i < c->hidden; i++) {
        float x = c->norm == SOL_NORM_LAYER ? h[i] - mean : h[i];
        scratch[i] = x * x;
        square64 += (h[i] - mean64) * (h[i] - mean64) / (double)c->hidden;
    }
    float r = 1.0f / sqrtf(ordered_sum(scratch, c->hidden, e) * inverse + c->epsilon);
    double r64 = 1 / sqrt(square64 + (double)c->epsilon);
    for (size_t i = 0; i < c->hidden; i++) {
        float w = weight ? ref_get(weight, c->dtype, i) : 1,
              b = bias ? ref_get(bias, c->dtype, i) : 0;
        y[i] = (c->norm == SOL_NORM_LAYER ? h[i] - mean : h[i]) * r;
        double y64 = (h[i] - mean64) * r64;
        if (weight) {
            y[i] = y[i] * (w + c->weight_bias);
            y64 *= (double)w + (double)c->weight_bias;
        }
        if (bias) {
            y[i] = y[i] + b;
            y64 += b;
        }
        worst = fmax(worst, fabs(y[i] - y64));
        largest = fmax(largest, fabs(y64));
    }
    return largest > 0 ? worst / largest : worst;
}

/* ------------------------------------------------------------------------- images */

static size_t array_bytes(const norm_image_t *image, const norm_case_t *c, int array)
{
    const size_t outputs = c->shards & SOL_NORM_SHARD_OUTPUT ? image->rows : c->tokens;
    size_t matrix = c->tokens * c->hidden * ref_size(c->dtype);
    if (array != NORM_INPUT && (c->shards & SOL_NORM_SHARD_RESIDUAL))
        matrix = image->rows * c->hidden * ref_size(c->dtype);
    switch (array) {
    case NORM_INPUT:
        return matrix;
    case NORM_RESIDUAL:
        return c->residual ? matrix : 0;
    case NORM_WEIGHT:
        return c->weight ? c->hidden * ref_size(c->dtype) : 0;
    case NORM_BIAS:
        return c->bias ? c->hidden * ref_size(c->dtype) : 0;
    case NORM_STATIC:
        return c->quant == SOL_QUANT_STATIC ? 4 : 0;
    case NORM_RESIDUAL_OUT:
        return c->residual_out ? matrix : 0;
    case NORM_OUTPUT:
        return outputs * c->hidden * ref_size(c->output_dtype);
    default:
        return c->quant == SOL_QUANT_TOKEN   ? outputs * 4
               : c->quant >= SOL_QUANT_GROUP ? outputs * ((c->hidden + 127) / 128) * 4
                                             : 0;
    }
}

static void lay_out(norm_image_t *image, const norm_case_t *c)
{
    uint64_t random = c->seed ^ 0x6c61796f7574u;
    size_t at = GUARD;
    for (int a = 0; a < NORM_ARRAYS; a++) {
        image->size[a] = array_bytes(image, c, a);
        at = (at + GUARD + 15) / 16 * 16;
        if (!c->aligned)
            at += below(&random, 16);
        image->at[a] = at;
        if (a == NORM_RESIDUAL_OUT && c->residual_in_place)
            image->at[a] = image->at[NORM_RESIDUAL];
        else if (a == NORM_RESIDUAL_OUT && c->residual_over_input)
            image->at[a] = image->at[NORM_INPUT];
        else if (a == NORM_OUTPUT && c->output_in_place)
            image->at[a] = image->at[NORM_INPUT];
        else
            at += image->size[a];
    }
    image->bytes = at + GUARD;
}

/* Words that mean something in slots, in some of the places of a row. */
static void put_marks(const norm_case_t *c, int rank, size_t token, unsigned char *row)
{
    static const uint64_t words[] = {SOL_WORD_MARK, SOL_WORD_ESCAPE, SOL_WORD_MARK ^ 2,
                                     SOL_WORD_MARK ^ 1ull << 63};
    const size_t bytes = c->hidden * ref_size(c->dtype);
    for (size_t at = 0; c->marks && at + 8 <= bytes; at += 8) {
        uint64_t r = team_mix(c->seed ^ (uint64_t)rank << 50 ^ (uint64_t)token << 30 ^ at);
        if (r % 16 == 0)
            memcpy(row + at, &words[r >> 8 & 3], 8);
    }
}

static void fill_inputs(norm_image_t *image, const norm_case_t *c, int rank)
{
    static const int ranks[] = {0, 100, 101, 102};
    memset(image->before, FILL, image->bytes);
    for (int a = NORM_INPUT; a <= NORM_BIAS; a++)
        ref_fill(image->before + image->at[a], c->dtype, a == NORM_WEIGHT ? REF_PLAIN : c->kind,
                 c->seed, a == NORM_INPUT ? rank : ranks[a],
                 a == NORM_RESIDUAL && (c->shards & SOL_NORM_SHARD_RESIDUAL)
                     ? image->first * c->hidden
                     : 0,
                 image->size[a] / ref_size(c->dtype));
    for (size_t t = 0; t < c->tokens; t++)
        put_marks(c, rank, t,
                  image->before + image->at[NORM_INPUT] + t * c->hidden * ref_size(c->dtype));
    if (image->size[NORM_STATIC])
        ref_put(image->before + image->at[NORM_STATIC], SOL_FLOAT32, 0, 0.0371f);
}

/* Rank `rank`'s contribution to a row, as floats. */
static void contribution(const norm_case_t *c, int rank, size_t token, unsigned char *raw, float *x)
{
    ref_fill(raw, c->dtype, c->kind, c->seed, rank, token * c->hidden, c->hidden);
    put_marks(c, rank, token, raw);
    for (size_t i = 0; i < c->hidden; i++)
        x[i] = ref_get(raw, c->dtype, i);
}

static void expect_row(norm_image_t *image, const norm_case_t *c, int nranks, size_t token,
                       float *row)
{
    float *h = row, *y = row + c->hidden, *scratch = row + 2 * c->hidden;
    unsigned char *raw = (unsigned char *)(row + 3 * c->hidden);
    const bool own = token >= image->first && token < image->first + image->rows;
    const bool in_shards = c->shards & SOL_NORM_SHARD_RESIDUAL;
    const bool out_shards = c->shards & SOL_NORM_SHARD_OUTPUT;
    contribution(c, 0, token, raw, h);
    for (int r = 1; r < nranks; r++) {
        contribution(c, r, token, raw, scratch);
        for (size_t i = 0; i < c->hidden; i++)
            h[i] = h[i] + scratch[i];
    }
    ref_fill(raw, c->dtype, c->kind, c->seed, 100, token * c->hidden, c->hidden);
    for (size_t i = 0; i < c->hidden && c->residual; i++)
        h[i] = h[i] + ref_get(raw, c->dtype, i);
    for (size_t i = 0; i < c->hidden; i++) {
        ref_put(raw, c->dtype, i, h[i]);
        h[i] = ref_get(raw, c->dtype, i);
    }
    size_t bytes = c->hidden * ref_size(c->dtype);
    if (c->residual_out && (own || !in_shards))
        memcpy(image->after + image->at[NORM_RESIDUAL_OUT] +
                   (in_shards ? token - image->first : token) * bytes,
               raw, bytes);
    double error = norm_row(c, h, c->weight ? image->before + image->at[NORM_WEIGHT] : NULL,
                            c->bias ? image->before + image->at[NORM_BIAS] : NULL, y, scratch);
    image->error = fmax(image->error, c->kind == REF_PLAIN ? error : 0);
    if (out_shards && !own)
        return;
    token = out_shards ? token - image->first : token;
    unsigned char *output = image->after + image->at[NORM_OUTPUT];
    if (c->quant != SOL_QUANT_NONE)
        put_quantised(c, token, y,
                      image->size[NORM_STATIC]
                          ? ref_get(image->before + image->at[NORM_STATIC], SOL_FLOAT32, 0)
                          : 1,
                      output, image->after + image->at[NORM_SCALES]);
    for (size_t i = 0; i < c->hidden && c->quant == SOL_QUANT_NONE; i++)
        ref_put(output, c->output_dtype, token * c->hidden + i, y[i]);
}

bool norm_image_make(norm_image_t *image, const norm_case_t *c, int nranks, int rank)
{
    memset(image, 0, sizeof(*image));
    image->first = sol_norm_first_token(c->tokens, nranks, rank);
    image->rows = sol_norm_first_token(c->tokens, nranks, rank + 1) - image->first;
    lay_out(image, c);
    image->before = malloc(image->bytes);
    image->after = malloc(image->bytes);
    float *row = malloc(4 * c->hidden * sizeof(float));
    bool good = image->before && image->after && row;
    if (good) {
        fill_inputs(image, c, rank);
        memcpy(image->after, image->before, image->bytes);
        for (size_t t = 0; t < c->tokens; t++)
            expect_row(image, c, nranks, t, row);
    }
    free(row);
    if (!good)
        norm_image_free(image);
    return good;
}

void norm_image_free(norm_image_t *image)
{
    free(image->before);
    free(image->after);
    image->before = image->after = NULL;
}

/* (A shard may have no rows, but is there.) */
static void *array(const norm_image_t *image, char *base, int which, bool wanted)
{
    return wanted ? base + image->at[which] : NULL;
}

void norm_image_args(const norm_image_t *image, const norm_case_t *c, void *base,
                     sol_norm_args_t *args)
{
    static const sol_norm_args_t blank = SOL_NORM_ARGS_INIT;
    *args = blank;
    args->tokens = c->tokens;
    args->hidden = c->hidden;
    args->dtype = c->dtype;
    args->norm = c->norm;
    args->input = array(image, base, NORM_INPUT, true);
    args->residual = array(image, base, NORM_RESIDUAL, c->residual);
    args->residual_out = array(image, base, NORM_RESIDUAL_OUT, c->residual_out);
    args->weight = array(image, base, NORM_WEIGHT, c->weight);
    args->bias = array(image, base, NORM_BIAS, c->bias);
    args->weight_bias = c->weight_bias;
    args->epsilon = c->epsilon;
    args->output = array(image, base, NORM_OUTPUT, true);
    args->output_dtype = c->output_dtype;
    args->quant = c->quant;
    args->static_scale = array(image, base, NORM_STATIC, c->quant == SOL_QUANT_STATIC);
    args->form = c->form;
    args->shards = c->shards;
    args->scales = array(image, base, NORM_SCALES, c->quant >= SOL_QUANT_TOKEN);
}

bool norm_image_check(const norm_image_t *image, const unsigned char *got, char *why, size_t bytes)
{
    if (memcmp(got, image->after, image->bytes) == 0)
        return true;
    size_t at = 0;
    while (got[at] == image->after[at])
        at++;
    snprintf(why, bytes, "byte %zu, outside all arrays, was written", at);
    for (int a = 0; a < NORM_ARRAYS; a++)
        if (at >= image->at[a] && at < image->at[a] + image->size[a])
            snprintf(why, bytes, "%s: byte %zu of %zu is %02x, must be %02x", array_names[a],
                     at - image->at[a], image->size[a], got[at], image->after[at]);
    return false;
}
