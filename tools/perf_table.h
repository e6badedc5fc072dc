/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_table.h: rows as a table for people, in nccl-tests' manner.
 */
#ifndef SOL_TOOLS_PERF_TABLE_H
#define SOL_TOOLS_PERF_TABLE_H

#include "perf_rows.h"

/** The head of the columns for an operation; `peers` adds two columns each. */
void perf_table_head(FILE *file, const char *op, char peers[][32], int npeers);
/** One point: solccl's row with those of the peers beside it. */
void perf_table_row(FILE *file, const perf_rows_t *rows, const perf_row_t *row, char peers[][32],
                    int npeers);
/** Per operation and type: how the points compare with the better peer and with the bound. */
void perf_table_summary(FILE *file, const perf_rows_t *rows);
/** The whole of it, for saved results. */
void perf_table(FILE *file, const perf_rows_t *rows);

/** What the points of one operation and type say together. */
typedef struct perf_summary {
    int points, compared;     /**< measured; with a peer beside them */
    double worst, best, mean; /**< better peer / solccl: extremes, geometric mean */
    size_t worst_bytes;
    double sol_small; /**< largest multiple of the bound up to 4 KB */
    size_t wrong;     /**< of all libraries */
} perf_summary_t;

/** `op` or `dtype` NULL: all. */
perf_summary_t perf_summarise(const perf_rows_t *rows, const char *op, const char *dtype);
/** The least median of all peers beside `row`; 0 if there is none. */
double perf_best_peer(const perf_rows_t *rows, const perf_row_t *row);

#endif
