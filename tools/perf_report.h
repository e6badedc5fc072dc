/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_report.h: rows as one self-contained HTML page: plots of latency against
 * size for solccl, each peer and the bound, and the tables below them. No
 * scripts, no fonts, nothing fetched; readable on a phone and in the dark.
 */
#ifndef SOL_TOOLS_PERF_REPORT_H
#define SOL_TOOLS_PERF_REPORT_H

#include "perf_rows.h"

/** Write the page; says on stderr what is wrong. */
bool perf_report_write(const char *path, const perf_rows_t *rows);

#endif
