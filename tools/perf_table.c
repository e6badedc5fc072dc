/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_table.c: the table of perf (see perf_table.h).
 */
#include "perf_table.h"

#include "tool.h"

#include <math.h>
#include <string.h>

#define MAX_PEERS 8
#define SMALL_BYTES 4096 /* up to here the bound is a promise */

void perf_table_head(FILE *file, const char *op, char peers[][32], int npeers)
{
    int i;

    fprintf(file, "#\n# %s\n", op);
    fprintf(file, "#%11s %11s %11s %5s %2s %10s %10s %10s %8s %8s %7s %9s %6s", "size", "count",
            "type", "redop", "in", "p50", "p99", "min", "algbw", "busbw", "#wrong", "bound",
            "xbound");
    for (i = 0; i < npeers; i++)
        fprintf(file, " | %10s %6s", peers[i], "ratio");
    fprintf(file, "  protocol\n");
    fprintf(file, "#%11s %11s %11s %5s %2s %10s %10s %10s %8s %8s %7s %9s %6s", "(B)", "(elements)",
            "", "", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "");
    for (i = 0; i < npeers; i++)
        fprintf(file, " | %10s %6s", "p50 (us)", "");
    fprintf(file, "\n");
}

void perf_table_row(FILE *file, const perf_rows_t *rows, const perf_row_t *row, char peers[][32],
                    int npeers)
{
    int i;

    fprintf(file, " %11zu %11zu %11s %5s %2d %10.3f %10.3f %10.3f %8.2f %8.2f %7zu", row->bytes,
            row->count, row->dtype, row->redop, row->in_place, row->us_p50, row->us_p99,
            row->us_min, row->algbw, row->busbw, row->wrong);
    if (row->sol_us > 0)
        fprintf(file, " %9.3f %6.2f", row->sol_us, row->us_p50 / row->sol_us);
    else
        fprintf(file, " %9s %6s", "-", "-");
    for (i = 0; i < npeers; i++) {
        const perf_row_t *peer = perf_rows_beside(rows, row, peers[i]);

        if (peer && row->us_p50 > 0)
            fprintf(file, " | %10.3f %5.2fx", peer->us_p50, peer->us_p50 / row->us_p50);
        else
            fprintf(file, " | %10s %6s", "-", "-");
        if (peer && peer->wrong)
            fprintf(file, " (%zu wrong)", peer->wrong);
    }
    fprintf(file, "  %s\n", row->protocol);
    fflush(file);
}

double perf_best_peer(const perf_rows_t *rows, const perf_row_t *row)
{
    char peers[MAX_PEERS][32];
    int npeers = perf_rows_peers(rows, peers, MAX_PEERS), i;
    double best = 0;

    for (i = 0; i < npeers; i++) {
        const perf_row_t *peer = perf_rows_beside(rows, row, peers[i]);

        if (peer && peer->us_p50 > 0 && (best == 0 || peer->us_p50 < best))
            best = peer->us_p50;
    }
    return best;
}

perf_summary_t perf_summarise(const perf_rows_t *rows, const char *op, const char *dtype)
{
    perf_summary_t s;
    double logs = 0;
    size_t i;

    memset(&s, 0, sizeof(s));
    for (i = 0; i < rows->count; i++) {
        const perf_row_t *row = &rows->rows[i];
        double best, ratio;

        if ((op && strcmp(op, row->op)) || (dtype && strcmp(dtype, row->dtype)))
            continue;
        s.wrong += row->wrong;
        if (strcmp(row->library, "solccl") || row->us_p50 <= 0)
            continue;
        s.points++;
        if (row->sol_us > 0 && row->bytes <= SMALL_BYTES && row->us_p50 / row->sol_us > s.sol_small)
            s.sol_small = row->us_p50 / row->sol_us;
        best = perf_best_peer(rows, row);
        if (best <= 0)
            continue;
        ratio = best / row->us_p50;
        logs += log(ratio);
        if (!s.compared || ratio < s.worst) {
            s.worst = ratio;
            s.worst_bytes = row->bytes;
        }
        if (!s.compared || ratio > s.best)
            s.best = ratio;
        s.compared++;
    }
    s.mean = s.compared ? exp(logs / s.compared) : 0;
    return s;
}

/* Is this the first row of its operation and type? */
static bool first_of_kind(const perf_rows_t *rows, size_t index)
{
    size_t i;

    for (i = 0; i < index; i++)
        if (!strcmp(rows->rows[i].op, rows->rows[index].op) &&
            !strcmp(rows->rows[i].dtype, rows->rows[index].dtype))
            return false;
    return true;
}

void perf_table_summary(FILE *file, const perf_rows_t *rows)
{
    char size[32], peers[1][32];
    size_t i;

    fprintf(file, "#\n# Summary%s\n",
            perf_rows_peers(rows, peers, 1)
                ? ": the better peer's p50 over solccl's (above 1: solccl is faster)"
                : "");
    fprintf(file, "# %-15s %-11s %7s %9s %9s %9s  %-11s %s\n", "", "", "points", "least", "mean",
            "most", "least at", "x bound to 4K");
    for (i = 0; i < rows->count; i++) {
        perf_summary_t s;

        if (!first_of_kind(rows, i))
            continue;
        s = perf_summarise(rows, rows->rows[i].op, rows->rows[i].dtype);
        fprintf(file, "# %-15s %-11s %7d", rows->rows[i].op, rows->rows[i].dtype, s.points);
        if (s.compared)
            fprintf(file, " %8.2fx %8.2fx %8.2fx  %-11s", s.worst, s.mean, s.best,
                    tool_format_size(s.worst_bytes, size));
        else
            fprintf(file, " %9s %9s %9s  %-11s", "-", "-", "-", "-");
        if (s.sol_small > 0)
            fprintf(file, " %.2f\n", s.sol_small);
        else
            fprintf(file, " -\n");
    }
}

void perf_table(FILE *file, const perf_rows_t *rows)
{
    char peers[MAX_PEERS][32];
    int npeers = perf_rows_peers(rows, peers, MAX_PEERS);
    const char *op = "", *run = "";
    size_t i;

    for (i = 0; i < rows->count; i++) {
        const perf_row_t *row = &rows->rows[i];

        if (strcmp(row->library, "solccl"))
            continue;
        if (strcmp(run, row->run)) {
            fprintf(file,
                    "# run      %s, %s\n# machine  %s, %s\n# device   %s\n# ranks    %d in %d "
                    "processes\n",
                    row->run, row->date, row->machine, row->driver, row->device, row->ranks,
                    row->processes);
            fprintf(file, "# versions %s\n# command  %s\n", row->versions, row->command);
            op = "";
        }
        if (strcmp(op, row->op))
            perf_table_head(file, row->op, peers, npeers);
        run = row->run;
        op = row->op;
        perf_table_row(file, rows, row, peers, npeers);
    }
    perf_table_summary(file, rows);
}
