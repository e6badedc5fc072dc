/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe.h: the arithmetic of experts that are split over ranks: who has which, how
 * large everything is, and what CPU ranks do with tokens (solccl/moe.h). Pure:
 * communicates nothing, allocates nothing. The twin of device/kernels/moe.cuh,
 * whose bits these are.
 *
 * What goes from one CPU rank to another for a token is a record:
 *
 *     top_k entries: number of the expert among the receiver's, or -1, and weight
 *     scales, with a quant
 *     the row, as it arrives
 *
 * one after the other in the order of tokens. The way back is a row a record.
 */
#ifndef SOL_COLL_MOE_H
#define SOL_COLL_MOE_H

#include "solccl/moe.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What follows from a config. */
typedef struct sol_moe_shape {
    int rank, nranks;
    uint32_t max_tokens, hidden, top_k;
    uint32_t local;                    /* experts of this rank */
    uint32_t first[SOL_MAX_RANKS + 1]; /* expert of each rank; then the number of all */
    sol_dtype_t dtype;
    sol_quant_t quant;
    uint32_t align;  /* 0: padded */
    uint32_t scales; /* of a row; 0: no quant */
    size_t row;      /* bytes of a token */
    size_t row_sent; /* and as it arrives */
    size_t rows_per_expert, rows;
    size_t stride; /* CPU ranks: bytes from one record, or row on the way back, to the next */
} sol_moe_shape_t;

/* Of a config within its limits. */
void sol_moe_shape_of(sol_moe_shape_t *shape, const sol_moe_config_t *config, int rank, int nranks);

/* Of a record: an expert among the receiver's, or -1. Of a plan: a row, or -1. */
typedef struct sol_moe_entry {
    int32_t at;
    float weight;
} sol_moe_entry_t;

/* How many records go to each of the ranks, to sent[nranks]. */
void sol_moe_count(const sol_moe_shape_t *shape, const sol_moe_dispatch_args_t *args, size_t *sent);
/* All records, those of rank r from to + displs[r] records on; and masks[t]: bit r: rank r gets
 * token t. */
void sol_moe_pack(const sol_moe_shape_t *shape, const sol_moe_dispatch_args_t *args,
                  const size_t *displs, void *to, uint64_t *masks);
/* `count` records, in order, to rows; and plan[count][top_k]: which rows are whose. `next`: scratch
 * of as many words as there are local experts. */
void sol_moe_unpack(const sol_moe_shape_t *shape, const sol_moe_dispatch_args_t *args,
                    const void *records, size_t count, sol_moe_entry_t *plan, uint32_t *next);
/* A weighted sum for each record, to `to` with shape->stride between them. `sums`: hidden floats.
 */
void sol_moe_partials(const sol_moe_shape_t *shape, const sol_moe_combine_args_t *args,
                      const sol_moe_entry_t *plan, size_t count, void *to, float *sums);
/* The results, from the rows that came back: those of rank r from displs[r] rows on. */
void sol_moe_sum(const sol_moe_shape_t *shape, const sol_moe_combine_args_t *args,
                 const uint64_t *masks, const void *rows, const size_t *displs, float *sums);

#ifdef __cplusplus
}
#endif
#endif
