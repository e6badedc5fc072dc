/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_rows.h: results: one row per library and measured point, as they are kept
 * in bench/results/NAME.jsonl, and back. Everything that is shown (table, report) is
 * made from rows, so a saved run shows exactly what the live one did.
 */
#ifndef SOL_TOOLS_PERF_ROWS_H
#define SOL_TOOLS_PERF_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct perf_row {
    char run[48];  /**< one id for all rows measured side by side in one run */
    char date[32]; /**< ISO 8601, UTC */
    char machine[128];
    char device[160];   /**< which CPUs or GPUs, and how the ranks are bound to them */
    char driver[64];    /**< kernel or GPU driver */
    char versions[512]; /**< a JSON object */
    char command[1024];
    char library[32];
    int ranks, processes;
    char op[24], dtype[16], redop[16], mode[16];
    bool in_place;
    size_t bytes, count; /**< nccl-tests' `size` and `count` columns */
    double us_min, us_p50, us_p99;
    double algbw, busbw; /**< GB/s, of the median */
    double sol_us;
    char sol_terms[512]; /**< a JSON object */
    size_t wrong, samples;
    char protocol[32]; /**< what the plan chose; "" for peers */
    char plan[256];    /**< the same with its reasons */
} perf_row_t;

typedef struct perf_rows {
    perf_row_t *rows;
    size_t count, room;
} perf_rows_t;

bool perf_rows_add(perf_rows_t *rows, const perf_row_t *row);
void perf_rows_clear(perf_rows_t *rows);
/** The names of the libraries beside solccl, in order of appearance; returns how many. */
int perf_rows_peers(const perf_rows_t *rows, char peers[][32], int maximum);
/** The row of `library` measured at the same point in the same run as `row`, or NULL. */
const perf_row_t *perf_rows_beside(const perf_rows_t *rows, const perf_row_t *row,
                                   const char *library);

/** One line of JSON, with its newline. */
bool perf_row_write_json(FILE *file, const perf_row_t *row);
/** Parse such a line. Unknown keys are skipped; false, with the reason in `why`, if it is not an
 * object or the keys that identify a point are missing or of the wrong type. */
bool perf_row_read_json(const char *line, perf_row_t *row, char *why, size_t why_bytes);
/** All rows of a file, added to `rows`. Says on stderr which line is wrong. */
bool perf_rows_read(const char *path, perf_rows_t *rows);
bool perf_rows_write_csv(const char *path, const perf_rows_t *rows);

/** "text" with JSON's escapes and quotes, appended to a bounded text. */
bool perf_json_string(char *to, size_t bytes, const char *text);

#endif
