/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decode_layer.c: token generation with one transformer layer that is split across ranks, by the
 * calls of solccl/fused.h: each rank has some heads, some columns of the feed-forward block and
 * some columns of the vocabulary. Per token three small collectives:
 *
 *     attention of own heads, own part of its projection -> sol_all_reduce_norm
 *     own part of the feed-forward block                 -> sol_linear_all_reduce
 *     own columns of the logits                          -> sol_vocab_topk
 *
 *     solccl run -n 2 ./decode_layer
 *
 * Each step is checked against the same model, whole, in fp64.
 */
#include <solccl/fused.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD = 16, HEADS = 8, HIDDEN = HEAD * HEADS, INNER = 256, VOCABULARY = 500, STEPS = 12 };
enum { EMBEDDING, QUERY, KEY, VALUE, PROJECTION, UP, DOWN, LOGITS };

/* Element (row, column) of a weight matrix: every rank can make any part of all of them. */
static float weight(int matrix, int row, int column)
{
    uint64_t h = (uint64_t)matrix << 40 | (uint64_t)row << 20 | (uint64_t)column;
    h = (h ^ (h >> 31)) * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 29)) * 0xbf58476d1ce4e5b9u;
    return (float)((int)(h >> 56) - 128) / (matrix == EMBEDDING ? 128.0f : 1024.0f); /* bf16 */
}

static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, 4);
    return y;
}

/* ------------------------------------------------------------------- the model, in fp64 */

/* A layer's state of any part of the model: heads [head0, head1), inner [inner0, inner1). */
typedef struct part {
    int head0, head1, inner0, inner1;
    double keys[STEPS][HIDDEN], values[STEPS][HIDDEN];
} part_t;

static double dot(int matrix, int row, const double *x, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += weight(matrix, row, i) * x[i];
    return sum;
}

/* Attention of the part's heads at step `now`, into `out` (HIDDEN). */
static void attend(part_t *p, int now, const double *x, double *out)
{
    for (int c = p->head0 * HEAD; c < p->head1 * HEAD; c++) {
        p->keys[now][c] = dot(KEY, c, x, HIDDEN);
        p->values[now][c] = dot(VALUE, c, x, HIDDEN);
    }
    for (int h = p->head0; h < p->head1; h++) {
        double share[STEPS], total = 0;
        for (int t = 0; t <= now; t++) {
            double score = 0;
            for (int c = h * HEAD; c < (h + 1) * HEAD; c++)
                score += dot(QUERY, c, x, HIDDEN) * p->keys[t][c];
            total += share[t] = exp(score / 4);
        }
        for (int c = h * HEAD; c < (h + 1) * HEAD; c++) {
            out[c] = 0;
            for (int t = 0; t <= now; t++)
                out[c] += share[t] / total * p->values[t][c];
        }
    }
}

/* The part's inner activations, into `out` (INNER). */
static void rise(const part_t *p, const double *x, double *out)
{
    for (int i = p->inner0; i < p->inner1; i++)
        out[i] = fmax(0, dot(UP, i, x, HIDDEN));
}

static void rms_norm(double *x)
{
    double square = 0;
    for (int i = 0; i < HIDDEN; i++)
        square += x[i] * x[i] / HIDDEN;
    for (int i = 0; i < HIDDEN; i++)
        x[i] /= sqrt(square + 1e-6);
}

/* All of it on one rank: the logits after `token` at step `now`. */
static void whole_model(part_t *p, int now, int token, double *logits)
{
    double x[HIDDEN], y[HIDDEN], out[HIDDEN], inner[INNER];
    for (int i = 0; i < HIDDEN; i++)
        x[i] = weight(EMBEDDING, token, i);
    attend(p, now, x, out);
    for (int i = 0; i < HIDDEN; i++)
        y[i] = x[i] += dot(PROJECTION, i, out, HIDDEN);
    rms_norm(y);
    rise(p, y, inner);
    for (int i = 0; i < HIDDEN; i++)
        x[i] += dot(DOWN, i, inner, INNER);
    rms_norm(x);
    for (int v = 0; v < VOCABULARY; v++)
        logits[v] = dot(LOGITS, v, x, HIDDEN);
}

/* ------------------------------------------------------------------------ split, in bf16 */

static sol_comm_t comm;
static int rank, nranks, wrong;

static void check(sol_status_t status)
{
    if (status != SOL_OK) {
        puts(sol_last_error(comm));
        exit(1);
    }
}

/* Attention and its projection; x becomes the new residual, `normed` its norm. */
static void attention_block(part_t *p, int now, uint16_t *x, uint16_t *normed)
{
    double wide[HIDDEN], out[HIDDEN];
    uint16_t partial[HIDDEN], gamma[HIDDEN];
    for (int i = 0; i < HIDDEN; i++)
        wide[i] = from_bf16(x[i]), gamma[i] = to_bf16(1);
    attend(p, now, wide, out);
    for (int i = 0; i < HIDDEN; i++) {
        double sum = 0; /* own heads' columns of the projection */
        for (int c = p->head0 * HEAD; c < p->head1 * HEAD; c++)
            sum += weight(PROJECTION, i, c) * out[c];
        partial[i] = to_bf16((float)sum);
    }
    sol_norm_args_t args = SOL_NORM_ARGS_INIT;
    args.tokens = 1;
    args.hidden = HIDDEN;
    args.input = partial;
    args.residual = args.residual_out = x;
    args.weight = gamma;
    args.epsilon = 1e-6f;
    args.output = normed;
    check(sol_all_reduce_norm(&args, comm, NULL));
}

/* x += feed-forward of `normed`. down: own columns of its second matrix, row by row. */
static void feed_forward(const part_t *p, const uint16_t *down, const uint16_t *normed, uint16_t *x)
{
    double wide[HIDDEN], inner[INNER];
    uint16_t own[INNER], sum[HIDDEN];
    for (int i = 0; i < HIDDEN; i++)
        wide[i] = from_bf16(normed[i]);
    rise(p, wide, inner);
    for (int i = p->inner0; i < p->inner1; i++)
        own[i - p->inner0] = to_bf16((float)inner[i]);
    sol_linear_args_t args = SOL_LINEAR_ARGS_INIT;
    args.tokens = 1;
    args.inputs = (size_t)(p->inner1 - p->inner0);
    args.outputs = HIDDEN;
    args.input = own;
    args.weight = down;
    args.output = sum;
    check(sol_linear_all_reduce(&args, comm, NULL));
    for (int i = 0; i < HIDDEN; i++)
        x[i] = to_bf16(from_bf16(x[i]) + from_bf16(sum[i]));
}

/* The likeliest next token, with the log of its probability. */
static int next_token(const uint16_t *x, double *log_probability)
{
    double wide[HIDDEN];
    float logits[VOCABULARY], value, total;
    int64_t token;
    const int first = VOCABULARY * rank / nranks, end = VOCABULARY * (rank + 1) / nranks;
    for (int i = 0; i < HIDDEN; i++)
        wide[i] = from_bf16(x[i]);
    rms_norm(wide);
    for (int v = first; v < end; v++)
        logits[v - first] = (float)dot(LOGITS, v, wide, HIDDEN);
    sol_vocab_args_t args = SOL_VOCAB_ARGS_INIT;
    args.tokens = args.k = 1;
    args.columns = (size_t)(end - first);
    args.first = (uint64_t)first;
    args.dtype = SOL_FLOAT32;
    args.logits = logits;
    args.values = &value;
    args.indices = &token;
    args.log_sum_exp = &total;
    check(sol_vocab_topk(&args, comm, NULL));
    *log_probability = (double)value - (double)total;
    return (int)token;
}

/* Is `token` as good as the best of the whole model's, up to bf16's rounding? */
static void compare(part_t *all, int now, int before, int token, double log_probability)
{
    double logits[VOCABULARY], sum = 0, best = -1e9;
    whole_model(all, now, before, logits);
    for (int v = 0; v < VOCABULARY; v++) {
        sum += exp(logits[v]);
        best = fmax(best, logits[v]);
    }
    wrong += logits[token] < best - 0.05 || fabs(logits[token] - log(sum) - log_probability) > 0.05;
}

int main(void)
{
    static part_t mine, all = {.head1 = HEADS, .inner1 = INNER};
    static uint16_t down[HIDDEN * INNER];
    int token = 1;
    if (sol_comm_create_from_env(&comm, NULL) != SOL_OK)
        return puts(sol_last_error(NULL)), 1;
    sol_comm_rank(comm, &rank), sol_comm_size(comm, &nranks);
    mine.head0 = HEADS * rank / nranks, mine.head1 = HEADS * (rank + 1) / nranks;
    mine.inner0 = INNER * rank / nranks, mine.inner1 = INNER * (rank + 1) / nranks;
    const int width = mine.inner1 - mine.inner0;
    for (int i = 0; i < HIDDEN * width; i++)
        down[i] = to_bf16(weight(DOWN, i / width, mine.inner0 + i % width));
    for (int now = 0; now < STEPS; now++) {
        uint16_t x[HIDDEN], normed[HIDDEN];
        double log_probability;
        const int before = token;
        for (int i = 0; i < HIDDEN; i++)
            x[i] = to_bf16(weight(EMBEDDING, token, i));
        attention_block(&mine, now, x, normed);
        feed_forward(&mine, down, normed, x);
        token = next_token(x, &log_probability);
        compare(&all, now, before, token, log_probability);
        if (rank == 0)
            printf("%d (%.2f)%s", token, log_probability, now + 1 < STEPS ? ", " : "\n");
    }
    if (wrong != 0)
        printf("rank %d: %d steps are not those of the whole model\n", rank, wrong);
    return sol_comm_destroy(comm) != SOL_OK || wrong != 0;
}
