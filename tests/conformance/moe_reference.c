/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe_reference.c: see moe_reference.h. The definitions in solccl/moe.h, as
 * directly as C can say them.
 */
#include "conformance/moe_reference.h"

#include "common/team.h"
#include "solccl/device/gpu_word.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 48
#define FILL 0xa5

static const char *const array_names[MOE_ARRAYS] = {
    "x",           "topk_idx",     "topk_weights", "y",
    "weights",     "recv_x",       "recv_scales",  "recv_weights",
    "recv_counts", "recv_offsets", "out"};

static size_t below(uint64_t *random, size_t n)
{
    return (size_t)(team_random(random) % n);
}

/* --------------------------------------------------------------------------- cases */

void moe_config_draw(sol_moe_config_t *config, uint64_t *random, size_t most)
{
    static const sol_dtype_t floats[] = {SOL_BFLOAT16, SOL_BFLOAT16, SOL_FLOAT16, SOL_FLOAT32};
    static const size_t common[] = {128, 256, 512, 1024, 2048, 4096, 7168};
    static const sol_moe_config_t blank = SOL_MOE_CONFIG_INIT;
    *config = blank;
    config->hidden = below(random, 3) ? common[below(random, 7)] : 1 + below(random, 2500);
    config->hidden = config->hidden < most ? config->hidden : most;
    size_t tokens = most / config->hidden;
    config->max_tokens = 1 + below(random, tokens < 40 ? tokens : 40);
    config->top_k = 1 + (int)below(random, below(random, 4) ? 8 : SOL_MOE_MAX_TOP_K);
    config->experts = 1 + (int)below(random, below(random, 3) ? 16 : 300);
    config->dtype = floats[below(random, 4)];
    config->quant = below(random, 2)   ? SOL_QUANT_NONE
                    : below(random, 3) ? SOL_QUANT_GROUP
                                       : SOL_QUANT_GROUP_POW2;
    /* (padded rows of many experts would be a large memory) */
    config->layout = below(random, 2) || config->experts > 64 ? SOL_MOE_PACKED : SOL_MOE_PADDED;
    if (config->layout == SOL_MOE_PACKED)
        config->align = (int)below(random, 3) * 4;
}

void moe_case_draw(moe_case_t *c, const sol_moe_config_t *config, int nranks, uint64_t *random)
{
    memset(c, 0, sizeof(*c));
    c->seed = team_random(random);
    c->nranks = nranks;
    c->config = *config;
    for (int r = 0; r < nranks; r++)
        c->tokens[r] = below(random, 4) ? below(random, config->max_tokens + 1) : 0;
    if (below(random, 3) == 0)
        c->tokens[below(random, (size_t)nranks)] = config->max_tokens;
    c->idx_dtype = below(random, 2) ? SOL_INT64 : SOL_INT32;
    c->choice = below(random, 3) ? MOE_ANY : (moe_choice_t)below(random, MOE_CHOICES);
    c->weights = below(random, 5) != 0;
    c->others = below(random, 4) == 0;
    c->recv_weights = below(random, 2) != 0;
    c->recv_offsets = below(random, 2) != 0;
    c->aligned = below(random, 3) != 0;
    c->kind = below(random, 3) ? REF_PLAIN : (ref_kind_t)below(random, REF_PATTERN);
    c->marks = below(random, 3) == 0;
}

void moe_case_describe(const moe_case_t *c, char *text, size_t bytes)
{
    static const char *const quants[] = {"", "", "", " to fp8", " to fp8 pow2"};
    static const char *const choices[] = {"", ", same experts", ", no experts", ", strange"};
    int at = snprintf(text, bytes, "moe %zu x %s%s, top %d of %d, align %d%s%s%s%s, tokens",
                      c->config.hidden, sol_dtype_name(c->config.dtype), quants[c->config.quant],
                      c->config.top_k, c->config.experts,
                      c->config.layout == SOL_MOE_PACKED ? c->config.align : -1, choices[c->choice],
                      c->others ? ", other weights" : "", c->aligned ? ", aligned" : "",
                      c->kind == REF_PLAIN ? "" : ", any bits");
    for (int r = 0; r < c->nranks && at < (int)bytes; r++)
        at += snprintf(text + at, bytes - (size_t)at, " %zu", c->tokens[r]);
}

/* -------------------------------------------------------------------------- routes */

int moe_local(const moe_case_t *c, int rank)
{
    return c->config.experts / c->nranks + (rank < c->config.experts % c->nranks);
}

int moe_first(const moe_case_t *c, int rank)
{
    int first = 0;
    for (int r = 0; r < rank; r++)
        first += moe_local(c, r);
    return first;
}

static int owner_of(const moe_case_t *c, int64_t expert)
{
    int r = 0;
    while (r + 1 < c->nranks && expert >= moe_first(c, r + 1))
        r++;
    return r;
}

/* The number in topk_idx. */
static int64_t number(const moe_case_t *c, int rank, size_t token, int j)
{
    static const int64_t strange[] = {-1, INT32_MIN, INT32_MAX, -2};
    uint64_t h = team_mix(c->seed ^ ((uint64_t)rank << 40) ^ (token * 64 + (uint64_t)j) * 0x9e37u);
    int64_t any = (int64_t)(h >> 20) % c->config.experts;
    switch (c->choice) {
    case MOE_ONE:
        return (int64_t)(c->seed % (uint64_t)c->config.experts + (uint64_t)j) % c->config.experts;
    case MOE_NONE:
        return -1;
    case MOE_STRANGE:
        return h % 3 ? any % 3 : (h & 8) ? c->config.experts : strange[h >> 8 & 3];
    default:
        return h % 9 ? any : -1;
    }
}

/* The expert that entry j of a token stands for; -1: none. */
static int64_t expert_of(const moe_case_t *c, int rank, size_t token, int j)
{
    int64_t e = number(c, rank, token, j);
    if (e < 0 || e >= c->config.experts)
        return -1;
    for (int i = 0; i < j; i++)
        if (number(c, rank, token, i) == e)
            return -1;
    return e;
}

/* A token's row. */
static void token_of(const moe_case_t *c, int rank, size_t token, unsigned char *row)
{
    const size_t words = c->config.hidden * ref_size(c->config.dtype) / 8;
    ref_fill(row, c->config.dtype, c->kind, c->seed, rank, token * c->config.hidden,
             c->config.hidden);
    for (size_t w = 0; w < words && c->marks; w++) {
        const uint64_t h = team_mix(c->seed + token * 77777 + w),
                       mark = SOL_WORD_MARK + (h >> 9 & 1);
        if (h % 5 == 0)
            memcpy(row + 8 * w, &mark, 8);
    }
}

static float weight_of(const moe_case_t *c, int rank, size_t token, int j)
{
    float w;
    if (!c->weights)
        return 1.0f;
    ref_fill(&w, SOL_FLOAT32, c->kind, c->seed + 1, rank,
             token * (size_t)c->config.top_k + (size_t)j, 1);
    return w;
}

/* ------------------------------------------------------------------------- images */

static size_t rows_of(const moe_case_t *c, int rank)
{
    size_t tokens = (size_t)c->nranks * c->config.max_tokens, local = (size_t)moe_local(c, rank);
    if (c->config.layout == SOL_MOE_PADDED)
        return local * tokens;
    size_t most = (size_t)c->config.top_k < local ? (size_t)c->config.top_k : local;
    size_t align = c->config.align ? (size_t)c->config.align : 1;
    return most * tokens + local * (align - 1);
}

static size_t array_bytes(const moe_case_t *c, int rank, int array)
{
    const size_t row = c->config.hidden * ref_size(c->config.dtype), rows = rows_of(c, rank);
    const size_t entries = c->tokens[rank] * (size_t)c->config.top_k;
    const size_t local = (size_t)moe_local(c, rank);
    const bool quant = c->config.quant != SOL_QUANT_NONE;
    switch (array) {
    case MOE_X:
    case MOE_OUT:
        return c->tokens[rank] * row;
    case MOE_IDX:
        return entries * ref_size(c->idx_dtype);
    case MOE_WEIGHTS:
        return c->weights ? entries * 4 : 0;
    case MOE_Y:
        return rows * row;
    case MOE_OTHERS:
        return c->others ? rows * 4 : 0;
    case MOE_RECV_X:
        return rows * (quant ? c->config.hidden : row);
    case MOE_RECV_SCALES:
        return quant ? rows * ((c->config.hidden + 127) / 128) * 4 : 0;
    case MOE_RECV_WEIGHTS:
        return c->recv_weights ? rows * 4 : 0;
    case MOE_RECV_COUNTS:
        return local * 4;
    default:
        return c->recv_offsets ? (local + 1) * 4 : 0;
    }
}

static void lay_out(moe_image_t *image, const moe_case_t *c, int rank)
{
    uint64_t random = c->seed ^ 0x6c61796f7574u;
    size_t at = GUARD;
    for (int a = 0; a < MOE_ARRAYS; a++) {
        image->size[a] = array_bytes(c, rank, a);
        at = (at + GUARD + 15) / 16 * 16;
        if (!c->aligned)
            at += below(&random, 16);
        image->at[a] = at;
        at += image->size[a];
    }
    image->bytes = at + GUARD;
}

static void put_i32(unsigned char *to, size_t i, size_t value)
{
    int32_t v = (int32_t)value;
    memcpy(to + 4 * i, &v, 4);
}

static void fill_inputs(moe_image_t *image, const moe_case_t *c, int rank)
{
    const size_t row = c->config.hidden * ref_size(c->config.dtype);
    memset(image->before, FILL, image->bytes);
    for (size_t t = 0; t < c->tokens[rank]; t++)
        token_of(c, rank, t, image->before + image->at[MOE_X] + t * row);
    for (size_t t = 0; t < c->tokens[rank]; t++)
        for (int j = 0; j < c->config.top_k; j++) {
            const size_t i = t * (size_t)c->config.top_k + (size_t)j;
            const int64_t wide = number(c, rank, t, j);
            const float w = weight_of(c, rank, t, j);
            if (c->idx_dtype == SOL_INT64)
                memcpy(image->before + image->at[MOE_IDX] + 8 * i, &wide, 8);
            else
                put_i32(image->before + image->at[MOE_IDX], i, (size_t)wide);
            if (c->weights)
                memcpy(image->before + image->at[MOE_WEIGHTS] + 4 * i, &w, 4);
        }
    if (c->others)
        ref_fill(image->before + image->at[MOE_OTHERS], SOL_FLOAT32, c->kind, c->seed + 2, rank, 0,
                 image->size[MOE_OTHERS] / 4);
}

/* What an expert makes of a token, as its row in y. */
static void output_of(const moe_case_t *c, int64_t expert, int source, size_t token, void *row)
{
    ref_fill(row, c->config.dtype, c->kind, c->seed + 1000 + (uint64_t)expert, source,
             token * c->config.hidden, c->config.hidden);
}

/* -------------------------------------------------------------------------- results */

static void quantise(const moe_case_t *c, const unsigned char *x, unsigned char *q,
                     unsigned char *scales)
{
    for (size_t first = 0; first < c->config.hidden; first += 128) {
        size_t end = first + 128 < c->config.hidden ? first + 128 : c->config.hidden;
        float amax = 0x1p-100f, scale;
        bool nan = false;
        for (size_t i = first; i < end; i++) {
            float v = ref_get(x, c->config.dtype, i);
            nan = nan || isnan(v);
            amax = fmaxf(amax, fabsf(v));
        }
        scale = nan ? nanf("") : amax / 448.0f;
        if (c->config.quant == SOL_QUANT_GROUP_POW2 && isfinite(scale)) {
            int exponent;
            float fraction = frexpf(scale, &exponent); /* 0.5 ... 1 */
            scale = ldexpf(1.0f, fraction > 0.5f ? exponent : exponent - 1);
        }
        ref_put(scales, SOL_FLOAT32, first / 128, scale);
        float inverse = 1.0f / scale;
        for (size_t i = first; i < end; i++)
            ref_put(q, SOL_FLOAT8_E4M3, i, ref_get(x, c->config.dtype, i) * inverse);
    }
}

/* The row of (source, token) among those of `expert` on `rank`: counted off. */
typedef struct moe_counts {
    size_t first, count;
} moe_counts_t;

static void count_rows(const moe_case_t *c, int rank, moe_counts_t *counts)
{
    const int first = moe_first(c, rank), local = moe_local(c, rank);
    const size_t align = c->config.align ? (size_t)c->config.align : 1;
    size_t row = 0;
    for (int s = 0; s < c->nranks; s++)
        for (size_t t = 0; t < c->tokens[s]; t++)
            for (int j = 0; j < c->config.top_k; j++) {
                int64_t e = expert_of(c, s, t, j);
                if (e >= first && e < first + local)
                    counts[e - first].count++;
            }
    for (int e = 0; e < local; e++) {
        counts[e].first = row;
        row += c->config.layout == SOL_MOE_PADDED ? (size_t)c->nranks * c->config.max_tokens
                                                  : (counts[e].count + align - 1) / align * align;
    }
    counts[local].first = row;
}

/* One row of an expert: in recv_x and its companions, and in y. */
static void expect_row(moe_image_t *image, const moe_case_t *c, int source, size_t token, int j,
                       size_t row)
{
    const size_t bytes = c->config.hidden * ref_size(c->config.dtype);
    unsigned char *x = malloc(bytes);
    unsigned char *after = image->after;
    float w = weight_of(c, source, token, j);
    if (x == NULL)
        return;
    token_of(c, source, token, x);
    if (c->config.quant != SOL_QUANT_NONE)
        quantise(c, x, after + image->at[MOE_RECV_X] + row * c->config.hidden,
                 after + image->at[MOE_RECV_SCALES] + row * ((c->config.hidden + 127) / 128) * 4);
    else
        memcpy(after + image->at[MOE_RECV_X] + row * bytes, x, bytes);
    if (c->recv_weights)
        memcpy(after + image->at[MOE_RECV_WEIGHTS] + 4 * row, &w, 4);
    output_of(c, expert_of(c, source, token, j), source, token, x);
    memcpy(after + image->at[MOE_Y] + row * bytes, x, bytes);
    memcpy(image->before + image->at[MOE_Y] + row * bytes, x, bytes);
    free(x);
}

static void expect_dispatch(moe_image_t *image, const moe_case_t *c, int rank, moe_counts_t *counts)
{
    const size_t local = (size_t)moe_local(c, rank);
    count_rows(c, rank, counts);
    for (size_t e = 0; e <= local; e++) {
        if (e < local)
            put_i32(image->after + image->at[MOE_RECV_COUNTS], e, counts[e].count);
        if (c->recv_offsets)
            put_i32(image->after + image->at[MOE_RECV_OFFSETS], e, counts[e].first);
    }
    for (int s = 0; s < c->nranks; s++)
        for (size_t t = 0; t < c->tokens[s]; t++)
            for (int j = 0; j < c->config.top_k; j++) {
                int64_t e = expert_of(c, s, t, j);
                if (e >= 0 && owner_of(c, e) == rank)
                    expect_row(image, c, s, t, j, counts[e - moe_first(c, rank)].first++);
            }
}

/* The weight with which rank `owner` takes a row of its into the sum: where it lies decides if it
 * is one of the others. `rows`: by expert of all, the next row there. */
static float combine_weight(const moe_case_t *c, int owner, size_t row, int rank, size_t token,
                            int j)
{
    float w;
    if (!c->others)
        return weight_of(c, rank, token, j);
    ref_fill(&w, SOL_FLOAT32, c->kind, c->seed + 2, owner, row, 1);
    return w;
}

/* Where each (source, token) of an expert lies on its rank: a running row for each expert, up to
 * `source`'s first token. */
static void rows_before(const moe_case_t *c, int source, size_t *next)
{
    for (int r = 0; r < c->nranks; r++) {
        moe_counts_t *counts = calloc((size_t)moe_local(c, r) + 1, sizeof(*counts));
        if (counts == NULL)
            return;
        count_rows(c, r, counts);
        for (int e = 0; e < moe_local(c, r); e++)
            next[moe_first(c, r) + e] = counts[e].first;
        free(counts);
    }
    for (int s = 0; s < source; s++)
        for (size_t t = 0; t < c->tokens[s]; t++)
            for (int j = 0; j < c->config.top_k; j++)
                if (expert_of(c, s, t, j) >= 0)
                    next[expert_of(c, s, t, j)]++;
}

/* One token's result. */
static void expect_out(const moe_case_t *c, int rank, size_t token, size_t *next, unsigned char *y,
                       float *partial, float *sum, unsigned char *out)
{
    const size_t h = c->config.hidden;
    bool any = false;
    for (size_t i = 0; i < h; i++)
        sum[i] = 0;
    for (int r = 0; r < c->nranks; r++) {
        bool here = false;
        for (int j = 0; j < c->config.top_k; j++) {
            int64_t e = expert_of(c, rank, token, j);
            if (e < 0 || owner_of(c, e) != r)
                continue;
            float w = combine_weight(c, r, next[e]++, rank, token, j);
            output_of(c, e, rank, token, y);
            for (size_t i = 0; i < h; i++) {
                float term = w * ref_get(y, c->config.dtype, i);
                partial[i] = here ? partial[i] + term : term;
            }
            here = true;
        }
        for (size_t i = 0; i < h && here; i++) {
            unsigned char rounded[4];
            ref_put(rounded, c->config.dtype, 0, partial[i]);
            float p = ref_get(rounded, c->config.dtype, 0);
            sum[i] = any ? sum[i] + p : p;
        }
        any = any || here;
    }
    for (size_t i = 0; i < h; i++)
        ref_put(out, c->config.dtype, i, sum[i]);
}

static bool expect_combine(moe_image_t *image, const moe_case_t *c, int rank)
{
    const size_t h = c->config.hidden, bytes = h * ref_size(c->config.dtype);
    float *sums = malloc(2 * h * sizeof(float));
    unsigned char *y = malloc(bytes);
    size_t *next = calloc((size_t)c->config.experts, sizeof(*next));
    bool good = sums && y && next;
    if (good)
        rows_before(c, rank, next);
    for (size_t t = 0; good && t < c->tokens[rank]; t++)
        expect_out(c, rank, t, next, y, sums, sums + h,
                   image->after + image->at[MOE_OUT] + t * bytes);
    free(sums);
    free(y);
    free(next);
    return good;
}

bool moe_image_make(moe_image_t *image, const moe_case_t *c, int rank)
{
    memset(image, 0, sizeof(*image));
    lay_out(image, c, rank);
    image->before = malloc(image->bytes);
    image->after = malloc(image->bytes);
    moe_counts_t *counts = calloc((size_t)moe_local(c, rank) + 1, sizeof(*counts));
    bool good = image->before && image->after && counts;
    if (good) {
        fill_inputs(image, c, rank);
        memcpy(image->after, image->before, image->bytes);
        expect_dispatch(image, c, rank, counts);
        good = expect_combine(image, c, rank);
    }
    free(counts);
    if (!good)
        moe_image_free(image);
    return good;
}

void moe_image_free(moe_image_t *image)
{
    free(image->before);
    free(image->after);
    image->before = image->after = NULL;
}

static void *array(const moe_image_t *image, char *base, int which)
{
    return image->size[which] ? base + image->at[which] : NULL;
}

void moe_image_args(const moe_image_t *image, const moe_case_t *c, int rank, void *base,
                    sol_moe_dispatch_args_t *dispatch, sol_moe_combine_args_t *combine)
{
    static const sol_moe_dispatch_args_t no_dispatch = SOL_MOE_DISPATCH_ARGS_INIT;
    static const sol_moe_combine_args_t no_combine = SOL_MOE_COMBINE_ARGS_INIT;
    *dispatch = no_dispatch;
    *combine = no_combine;
    dispatch->tokens = combine->tokens = c->tokens[rank];
    dispatch->x = array(image, base, MOE_X);
    dispatch->topk_idx = array(image, base, MOE_IDX);
    dispatch->idx_dtype = c->idx_dtype;
    dispatch->topk_weights = array(image, base, MOE_WEIGHTS);
    dispatch->recv_x = array(image, base, MOE_RECV_X);
    dispatch->recv_scales = array(image, base, MOE_RECV_SCALES);
    dispatch->recv_weights = array(image, base, MOE_RECV_WEIGHTS);
    dispatch->recv_counts = array(image, base, MOE_RECV_COUNTS);
    dispatch->recv_offsets = array(image, base, MOE_RECV_OFFSETS);
    combine->y = array(image, base, MOE_Y);
    combine->weights = array(image, base, MOE_OTHERS);
    combine->out = array(image, base, MOE_OUT);
}

bool moe_image_check(const moe_image_t *image, const unsigned char *got, char *why, size_t bytes)
{
    if (memcmp(got, image->after, image->bytes) == 0)
        return true;
    size_t at = 0;
    while (got[at] == image->after[at])
        at++;
    snprintf(why, bytes, "byte %zu, outside all arrays, was written", at);
    for (int a = 0; a < MOE_ARRAYS; a++)
        if (at >= image->at[a] && at < image->at[a] + image->size[a])
            snprintf(why, bytes, "%s: byte %zu of %zu is %02x, must be %02x", array_names[a],
                     at - image->at[a], image->size[a], got[at], image->after[at]);
    return false;
}
