/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe.c: see moe.h.
 */
#include "coll/moe.h"

#include "base/base.h"
#include "coll/convert.h"
#include "coll/moe_rows.h"
#include "coll/norm.h"
#include "coll/reduce.h"
#include "coll/shares.h"

static const sol_moe_rows_t *rows(void)
{
#if defined(__x86_64__)
    if (sol_isa_best() != SOL_ISA_PLAIN) {
        return &sol_moe_rows_avx2;
    }
#endif
    return &sol_moe_rows_plain;
}

/* --------------------------------------------------------------------- routes */

static int64_t number_at(const void *numbers, sol_dtype_t dtype, size_t i)
{
    int64_t wide;
    int32_t narrow;
    if (dtype == SOL_INT64) {
        memcpy(&wide, (const char *)numbers + 8 * i, 8);
        return wide;
    }
    memcpy(&narrow, (const char *)numbers + 4 * i, 4);
    return narrow;
}

static int rank_of(const sol_moe_shape_t *shape, uint32_t expert)
{
    return sol_share_owner(shape->first[shape->nranks], 1, shape->nranks, expert);
}

/* A token's experts, -1 for none; returns which ranks have them. */
static uint64_t route(const sol_moe_shape_t *shape, const sol_moe_dispatch_args_t *args,
                      size_t token, int32_t *experts)
{
    uint64_t mask = 0;
    for (uint32_t j = 0; j < shape->top_k; j++) {
        int64_t number = number_at(args->topk_idx, args->idx_dtype, token * shape->top_k + j);
        bool good = number >= 0 && number < (int64_t)shape->first[shape->nranks];
        for (uint32_t i = 0; i < j && good; i++) {
            good = experts[i] != number;
        }
        experts[j] = good ? (int32_t)number : -1;
        if (good) {
            mask |= 1ull << rank_of(shape, (uint32_t)number);
        }
    }
    return mask;
}

void sol_moe_count(const sol_moe_shape_t *shape, const sol_moe_dispatch_args_t *args, size_t *sent)
{
    int32_t experts[SOL_MOE_MAX_TOP_K];
    memset(sent, 0, (size_t)shape->nranks * sizeof *sent);
    for (size_t t = 0; t < args->tokens; t++) {
        for (uint64_t mask = route(shape, args, t, experts); mask != 0; mask &= mask - 1) {
            sent[__builtin_ctzll(mask)]++;
        }
    }
}

/* ----------------------------------------------------------------------- rows */

static void widen(float *to, const void *from, sol_dtype_t dtype, size_t count)
{
    if (dtype == SOL_BFLOAT16) {
        rows()->widen(to, from, count);
    } else {
        sol_norm_widen(to, from, dtype, count);
    }
}

/* Rounds once; a NaN becomes the canonical one. */
static void narrow(void *to, const float *from, sol_dtype_t dtype, size_t count)
{
    char *out = to;
    if (dtype == SOL_BFLOAT16) {
        rows()->narrow(to, from, count);
        return;
    }
    for (size_t i = 0; i < count && dtype == SOL_FLOAT16; i++) {
        uint16_t half = sol_float_to_fp16(from[i]);
        memcpy(out + 2 * i, &half, 2);
    }
    for (size_t i = 0; i < count && dtype == SOL_FLOAT32; i++) {
        uint32_t bits = from[i] != from[i] ? 0x7fc00000u : sol_float_bits(from[i]);
        memcpy(out + 4 * i, &bits, 4);
    }
}

static void quantise(const sol_moe_shape_t *shape, const char *row, char *scales, char *out)
{
    float y[SOL_QUANT_GROUP_COLUMNS];
    const size_t size = sol_dtype_size(shape->dtype);
    for (size_t first = 0, g = 0; first < shape->hidden; first += SOL_QUANT_GROUP_COLUMNS, g++) {
        size_t left = shape->hidden - first;
        size_t count = left < SOL_QUANT_GROUP_COLUMNS ? left : SOL_QUANT_GROUP_COLUMNS;
        widen(y, row + first * size, shape->dtype, count);
        float scale = sol_norm_scale(rows()->amax(y, count), SOL_FLOAT8_E4M3,
                                     shape->quant == SOL_QUANT_GROUP_POW2);
        const float inverse = 1.0f / scale;
        memcpy(scales + g * sizeof scale, &scale, sizeof scale);
        rows()->quantise((unsigned char *)out + first, y, inverse, count);
    }
}

/* ------------------------------------------------------------------- dispatch */

static size_t scales_at(const sol_moe_shape_t *shape)
{
    return shape->top_k * sizeof(sol_moe_entry_t);
}

static size_t row_at(const sol_moe_shape_t *shape)
{
    return scales_at(shape) + shape->scales * sizeof(float);
}

static void put_entries(const sol_moe_shape_t *shape, const sol_moe_dispatch_args_t *args,
                        size_t token, const int32_t *experts, int to, char *record)
{
    const uint32_t k = shape->top_k;
    for (uint32_t j = 0; j < k; j++) {
        const int32_t expert = experts[j], first = (int32_t)shape->first[to];
        sol_moe_entry_t entry = {-1, 1.0f};
        if (expert >= first && expert < (int32_t)shape->first[to + 1]) {
            entry.at = expert - first;
            if (args->topk_weights != NULL) {
                memcpy(&entry.weight, (const char *)args->topk_weights + 4 * (token * k + j), 4);
            }
        }
        memcpy(record + j * sizeof entry, &entry, sizeof entry);
    }
}

void sol_moe_pack(const sol_moe_shape_t *shape, const sol_moe_dispatch_args_t *args,
                  const size_t *displs, void *to, uint64_t *masks)
{
    size_t next[SOL_MAX_RANKS];
    int32_t experts[SOL_MOE_MAX_TOP_K];
    memcpy(next, displs, (size_t)shape->nranks * sizeof *next);
    for (size_t t = 0; t < args->tokens; t++) {
        const char *row = (const char *)args->x + t * shape->row, *made = NULL;
        masks[t] = route(shape, args, t, experts);
        for (uint64_t mask = masks[t]; mask != 0; mask &= mask - 1) {
            const int r = __builtin_ctzll(mask);
            char *record = (char *)to + next[r]++ * shape->stride;
            put_entries(shape, args, t, experts, r, record);
            if (made != NULL) { /* quantised once */
                memcpy(record + scales_at(shape), made + scales_at(shape),
                       row_at(shape) - scales_at(shape) + shape->row_sent);
            } else if (shape->scales != 0) {
                quantise(shape, row, record + scales_at(shape), record + row_at(shape));
            } else {
                memcpy(record + row_at(shape), row, shape->row);
            }
            made = record;
        }
    }
}

/* The first row of each expert, from the number of each one's rows; both to the caller. */
static void place(const sol_moe_shape_t *shape, const sol_moe_dispatch_args_t *args, uint32_t *next)
{
    size_t row = 0;
    for (uint32_t e = 0; e < shape->local; e++) {
        const int32_t count = (int32_t)next[e], first = (int32_t)row;
        memcpy((char *)args->recv_counts + 4 * e, &count, 4);
        if (args->recv_offsets != NULL) {
            memcpy((char *)args->recv_offsets + 4 * e, &first, 4);
        }
        next[e] = (uint32_t)row;
        row += shape->align ? sol_round_up((size_t)count, shape->align) : shape->rows_per_expert;
    }
    const int32_t end = (int32_t)row;
    if (args->recv_offsets != NULL) {
        memcpy((char *)args->recv_offsets + 4 * shape->local, &end, 4);
    }
}

static void put_row(const sol_moe_shape_t *shape, const sol_moe_dispatch_args_t *args,
                    const char *record, size_t row, float weight)
{
    const size_t scales = shape->scales * sizeof(float);
    memcpy((char *)args->recv_x + row * shape->row_sent, record + row_at(shape), shape->row_sent);
    if (scales != 0) {
        memcpy((char *)args->recv_scales + row * scales, record + scales_at(shape), scales);
    }
    if (args->recv_weights != NULL) {
        memcpy((char *)args->recv_weights + 4 * row, &weight, 4);
    }
}

void sol_moe_unpack(const sol_moe_shape_t *shape, const sol_moe_dispatch_args_t *args,
                    const void *records, size_t count, sol_moe_entry_t *plan, uint32_t *next)
{
    const size_t k = shape->top_k;
    memset(next, 0, shape->local * sizeof *next);
    for (size_t i = 0; i < count; i++) {
        memcpy(plan + i * k, (const char *)records + i * shape->stride, k * sizeof *plan);
        for (size_t j = 0; j < k; j++) {
            if (plan[i * k + j].at >= 0) {
                next[plan[i * k + j].at]++;
            }
        }
    }
    place(shape, args, next);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < k; j++) {
            sol_moe_entry_t *entry = &plan[i * k + j];
            if (entry->at >= 0) {
                entry->at = (int32_t)next[entry->at]++;
                put_row(shape, args, (const char *)records + i * shape->stride, (size_t)entry->at,
                        entry->weight);
            }
        }
    }
}

/* -------------------------------------------------------------------- combine */

/* sums = or += the row times a weight: a product and a sum, each rounded. */
static void add_row(const sol_moe_shape_t *shape, float *sums, const void *row, float weight,
                    bool first, bool weighted)
{
    float some[256];
    const size_t size = sol_dtype_size(shape->dtype);
    if (shape->dtype == SOL_BFLOAT16) {
        rows()->add(sums, row, weight, shape->hidden, first, weighted);
        return;
    }
    for (size_t at = 0; at < shape->hidden; at += 256) {
        const size_t count = shape->hidden - at < 256 ? shape->hidden - at : 256;
        widen(some, (const char *)row + at * size, shape->dtype, count);
        for (size_t i = 0; i < count && weighted; i++) {
            some[i] = some[i] * weight;
        }
        for (size_t i = 0; i < count; i++) {
            sums[at + i] = first ? some[i] : sums[at + i] + some[i];
        }
    }
}

void sol_moe_partials(const sol_moe_shape_t *shape, const sol_moe_combine_args_t *args,
                      const sol_moe_entry_t *plan, size_t count, void *to, float *sums)
{
    for (size_t i = 0; i < count; i++) {
        bool first = true;
        for (size_t j = 0; j < shape->top_k; j++) {
            const sol_moe_entry_t entry = plan[i * shape->top_k + j];
            float weight = entry.weight;
            if (entry.at < 0) {
                continue;
            }
            if (args->weights != NULL) {
                memcpy(&weight, (const char *)args->weights + 4 * (size_t)entry.at, 4);
            }
            add_row(shape, sums, (const char *)args->y + (size_t)entry.at * shape->row, weight,
                    first, true);
            first = false;
        }
        narrow((char *)to + i * shape->stride, sums, shape->dtype, shape->hidden);
    }
}

void sol_moe_sum(const sol_moe_shape_t *shape, const sol_moe_combine_args_t *args,
                 const uint64_t *masks, const void *rows, const size_t *displs, float *sums)
{
    size_t next[SOL_MAX_RANKS];
    memcpy(next, displs, (size_t)shape->nranks * sizeof *next);
    for (size_t t = 0; t < args->tokens; t++) {
        memset(sums, 0, shape->hidden * sizeof *sums);
        for (uint64_t mask = masks[t]; mask != 0; mask &= mask - 1) {
            const int r = __builtin_ctzll(mask);
            add_row(shape, sums, (const char *)rows + next[r]++ * shape->stride, 1.0f,
                    mask == masks[t], false);
        }
        narrow((char *)args->out + t * shape->row, sums, shape->dtype, shape->hidden);
    }
}
