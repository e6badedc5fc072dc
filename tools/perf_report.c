/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_report.c: the HTML page (see perf_report.h).
 */
#include "perf_report.h"

#include "perf_chart.h"
#include "perf_table.h"
#include "tool.h"

#include <errno.h>
#include <string.h>

#define MAX_PEERS (PERF_CHART_SERIES - 2)

/* Colours: Okabe and Ito's, told apart by people with any colour vision; marks differ as well. */
static const char style[] =
    ":root{color-scheme:light dark;--page:#fbfbf9;--card:#fff;--ink:#17191c;--soft:#5b6169;"
    "--rule:#e4e4df;--edge:#e9e9e4;--s0:#0064a6;--s1:#c8540a;--s2:#00785a;--s3:#a8478a;"
    "--s4:#7a6a00;--sb:#6b7178;--good:#00684d;--bad:#b3261e}"
    "@media(prefers-color-scheme:dark){:root{--page:#121416;--card:#1a1d20;--ink:#eceef0;"
    "--soft:#a0a7af;--rule:#2e3338;--edge:#26292d;--s0:#62b8ee;--s1:#f2995c;--s2:#3cc79c;"
    "--s3:#de97c3;--s4:#e3d35a;--sb:#9aa1a9;--good:#4fd0a8;--bad:#ff8a80}}"
    "*{box-sizing:border-box}"
    "body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"
    "\"Segoe UI\",Roboto,\"Helvetica Neue\",\"DejaVu Sans\",sans-serif;"
    "-webkit-text-size-adjust:100%}"
    "main{max-width:1180px;margin:0 auto;padding:40px 24px 64px}"
    "h1{font-size:30px;line-height:1.2;letter-spacing:-.02em;margin:0 0 6px}"
    "h2{font-size:22px;letter-spacing:-.01em;margin:52px 0 4px;scroll-margin-top:56px}"
    "h3{font-size:15px;margin:0;font-weight:600}small{font-size:13px;font-weight:400;"
    "color:var(--soft);margin-left:6px}"
    "p{margin:0 0 12px;max-width:76ch}.soft{color:var(--soft)}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(210px,1fr));gap:12px;"
    "margin:26px 0}"
    ".tile,.card{background:var(--card);border:1px solid var(--edge);border-radius:12px}"
    ".tile{padding:16px 18px}.tile b{display:block;font-size:32px;line-height:1.15;"
    "letter-spacing:-.02em;font-weight:650;font-variant-numeric:tabular-nums}"
    ".tile span{font-size:14px;color:var(--soft)}"
    ".bad b{color:var(--bad)}"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;margin:0 0 8px;"
    "font-size:14px}dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}"
    "code{font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,\"DejaVu Sans Mono\",monospace;"
    "overflow-wrap:anywhere}"
    "nav{position:sticky;top:0;z-index:2;background:var(--page);border-bottom:1px solid "
    "var(--rule);"
    "margin:26px -24px 0;padding:10px 24px;display:flex;gap:6px;overflow-x:auto}"
    "nav a{flex:none;color:var(--ink);text-decoration:none;font-size:14px;padding:4px 12px;"
    "border:1px solid var(--rule);border-radius:999px;background:var(--card)}"
    "nav a:hover{border-color:var(--s0)}"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));"
    "gap:14px;margin:14px 0}"
    ".card{padding:14px 16px 10px;min-width:0;max-width:680px}"
    ".legend{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:13px;color:var(--soft);"
    "margin:4px 0 6px}.legend span{display:inline-flex;align-items:center;gap:6px}"
    ".key{width:34px;height:14px;flex:none}"
    "svg{display:block;width:100%;height:auto;overflow:visible}"
    ".grid line{stroke:var(--rule);stroke-width:1}.grid .axis{stroke:var(--sb)}"
    ".tick text,.label{font-size:15px;fill:var(--soft);font-variant-numeric:tabular-nums}"
    ".label{fill:var(--ink)}"
    ".line{fill:none;stroke-width:2.2;stroke-linejoin:round;stroke-linecap:round}"
    ".line.s0{stroke-width:3.2}"
    ".s0{stroke:var(--s0)}.s1{stroke:var(--s1)}.s2{stroke:var(--s2)}.s3{stroke:var(--s3)}"
    ".s4{stroke:var(--s4)}.sb{stroke:var(--sb);stroke-dasharray:2 6}"
    ".mark{stroke:var(--card);stroke-width:1.4}.mark.s0{fill:var(--s0)}.mark.s1{fill:var(--s1)}"
    ".mark.s2{fill:var(--s2)}.mark.s3{fill:var(--s3)}.mark.s4{fill:var(--s4)}"
    ".hit{fill:transparent;stroke:none}.mark:hover{stroke:var(--ink)}"
    ".scroll{overflow-x:auto;border:1px solid var(--edge);border-radius:12px;"
    "background:var(--card);margin:0 0 14px}"
    "table{border-collapse:collapse;font-size:13.5px;width:100%;font-variant-numeric:tabular-nums}"
    "caption{text-align:left;padding:12px 14px 6px;font-weight:600;font-size:15px}"
    "th,td{padding:5px 12px;text-align:right;white-space:nowrap}"
    "th{font-weight:500;color:var(--soft);border-bottom:1px solid var(--rule)}"
    "tr+tr td{border-top:1px solid var(--edge)}"
    "th:first-child,td:first-child{position:sticky;left:0;background:var(--card);text-align:right}"
    "td:last-child,th:last-child{text-align:left}"
    ".win{color:var(--good)}.lose{color:var(--bad);font-weight:600}.us{font-weight:600}"
    "@media(max-width:640px){main{padding:24px 14px 48px}nav{margin:20px -14px 0;padding:8px 14px}"
    "h1{font-size:25px}.tiles{grid-template-columns:1fr 1fr;gap:8px}.tile{padding:12px 14px}"
    ".tile b{font-size:25px}.tile span{font-size:13px;line-height:1.35;display:block}"
    "dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:8px}.card{padding:12px 10px 6px}"
    ".tick text,.label{font-size:21px}.line{stroke-width:3.2}.line.s0{stroke-width:4.6}"
    "td,th{padding:5px 9px}}"
    "@media print{nav{display:none}.card,.tile{break-inside:avoid}}";

/* Rows that make one plot and one table: those of the same panel as `key`. */
static bool same_panel(const perf_row_t *a, const perf_row_t *key)
{
    return !strcmp(a->op, key->op) && !strcmp(a->dtype, key->dtype) &&
           !strcmp(a->redop, key->redop) && !strcmp(a->mode, key->mode) &&
           !strcmp(a->run, key->run) && a->in_place == key->in_place;
}

/* Is solccl's row number `index` the first of its panel, or (whole_op) of its operation? */
static bool is_first(const perf_rows_t *rows, size_t index, bool whole_op)
{
    const perf_row_t *row = &rows->rows[index];
    size_t i;

    if (strcmp(row->library, "solccl"))
        return false;
    for (i = 0; i < index; i++) {
        if (strcmp(rows->rows[i].library, "solccl"))
            continue;
        if (whole_op ? !strcmp(rows->rows[i].op, row->op) : same_panel(&rows->rows[i], row))
            return false;
    }
    return true;
}

static void text(FILE *file, const char *before, const char *middle, const char *after)
{
    fputs(before, file);
    perf_html_text(file, middle);
    fputs(after, file);
}

static void panel_name(const perf_rows_t *rows, const perf_row_t *row, char *name, size_t bytes)
{
    size_t i;
    bool redops = false, places = false;

    for (i = 0; i < rows->count; i++) {
        redops =
            redops || (strcmp(rows->rows[i].redop, "sum") && strcmp(rows->rows[i].redop, "none"));
        places = places || rows->rows[i].in_place;
    }
    name[0] = '\0';
    tool_append(name, bytes, "%s", row->dtype);
    if (redops && row->redop[0] && strcmp(row->redop, "none"))
        tool_append(name, bytes, ", %s", row->redop);
    if (places)
        tool_append(name, bytes, ", %s", row->in_place ? "in place" : "out of place");
    if (strcmp(row->mode, "cpu"))
        tool_append(name, bytes, ", %s", row->mode);
}

static void add_point(perf_series_t *series, double bytes, double us)
{
    if (series->count == PERF_CHART_POINTS || us <= 0)
        return;
    series->bytes[series->count] = bytes;
    series->us[series->count++] = us;
}

static void write_chart(FILE *file, const perf_rows_t *rows, const perf_row_t *key,
                        char peers[][32], int npeers)
{
    perf_series_t *series = tool_calloc(PERF_CHART_SERIES, sizeof(*series));
    char name[128], title[256];
    int used = 1, p;
    size_t i;

    if (!series)
        return;
    series[0].name = "solccl";
    for (p = 0; p < npeers; p++)
        series[used++].name = peers[p];
    series[used].name = "bound";
    series[used].bound = true;
    for (i = 0; i < rows->count; i++) {
        const perf_row_t *row = &rows->rows[i];

        if (!same_panel(row, key))
            continue;
        for (p = 0; p < used; p++)
            if (!strcmp(series[p].name, row->library))
                add_point(&series[p], (double)row->bytes, row->us_p50);
        if (!strcmp(row->library, "solccl"))
            add_point(&series[used], (double)row->bytes, row->sol_us);
    }
    used += series[used].count > 0;
    panel_name(rows, key, name, sizeof(name));
    text(file, "<div class=\"card\"><h3>", name,
         " <small>&#181;s per operation over bytes</small></h3><div class=\"legend\">");
    for (p = 0; p < used; p++) {
        fputs("<span>", file);
        perf_chart_key(file, p, series[p].bound);
        perf_html_text(file, series[p].name);
        fputs("</span>", file);
    }
    fputs("</div>", file);
    snprintf(title, sizeof(title), "%s, %s: latency against size", key->op, name);
    perf_chart_draw(file, title, series, used);
    fputs("</div>\n", file);
    tool_free(series);
}

/* Three significant digits and no exponent, the way people read times. */
static void number(FILE *file, double value)
{
    fprintf(file, "%.*f", value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0, value);
}

static void write_table_row(FILE *file, const perf_rows_t *rows, const perf_row_t *row,
                            char peers[][32], int npeers)
{
    char size[32];
    int p;

    fprintf(file, "<tr><td>%s</td><td class=\"us\">", tool_format_size(row->bytes, size));
    number(file, row->us_p50);
    fputs("</td><td>", file);
    number(file, row->us_p99);
    fputs("</td><td>", file);
    number(file, row->us_min);
    fprintf(file, "</td><td>%.2f</td><td>%.2f</td><td>", row->algbw, row->busbw);
    if (row->sol_us > 0) {
        number(file, row->sol_us);
        fprintf(file, "</td><td>%.2f</td>", row->us_p50 / row->sol_us);
    } else {
        fputs("&#8211;</td><td>&#8211;</td>", file);
    }
    for (p = 0; p < npeers; p++) {
        const perf_row_t *peer = perf_rows_beside(rows, row, peers[p]);
        double ratio = peer && row->us_p50 > 0 ? peer->us_p50 / row->us_p50 : 0;

        if (!peer) {
            fputs("<td>&#8211;</td><td>&#8211;</td>", file);
            continue;
        }
        fputs("<td>", file);
        number(file, peer->us_p50);
        fprintf(file, "</td><td class=\"%s\">%.2f&#215;</td>", ratio >= 1 ? "win" : "lose", ratio);
    }
    fprintf(file, "<td%s>%zu</td>", row->wrong ? " class=\"lose\"" : "", row->wrong);
    text(file, "<td title=\"", row->plan, "\">");
    text(file, "", row->protocol, "</td></tr>\n");
}

static void write_panel_table(FILE *file, const perf_rows_t *rows, const perf_row_t *key,
                              char peers[][32], int npeers)
{
    char name[128];
    size_t i;
    int p;

    panel_name(rows, key, name, sizeof(name));
    text(file, "<div class=\"scroll\"><table><caption>", key->op, ", ");
    text(file, "", name, "</caption>\n<tr><th>bytes</th><th>p50 &#181;s</th><th>p99</th>");
    fputs("<th>min</th><th>algbw GB/s</th><th>busbw GB/s</th><th>bound &#181;s</th>"
          "<th>&#215; bound</th>",
          file);
    for (p = 0; p < npeers; p++)
        text(file, "<th>", peers[p], " &#181;s</th><th>ratio</th>");
    fputs("<th>wrong</th><th>protocol</th></tr>\n", file);
    for (i = 0; i < rows->count; i++)
        if (same_panel(&rows->rows[i], key) && !strcmp(rows->rows[i].library, "solccl"))
            write_table_row(file, rows, &rows->rows[i], peers, npeers);
    fputs("</table></div>\n", file);
}

static void write_op(FILE *file, const perf_rows_t *rows, const char *op, char peers[][32],
                     int npeers)
{
    perf_summary_t s = perf_summarise(rows, op, NULL);
    char size[32];
    size_t i;

    text(file, "<section><h2 id=\"", op, "\">");
    text(file, "", op, "</h2>\n<p class=\"soft\">");
    if (s.compared)
        fprintf(file,
                "The better peer takes %.2f&#215; as long as solccl on average (%.2f&#215; at "
                "the least, at %s bytes; %.1f&#215; at the most). ",
                s.mean, s.worst, tool_format_size(s.worst_bytes, size), s.best);
    if (s.sol_small > 0)
        fprintf(file, "Up to 4 KB solccl stays within %.2f&#215; of the bound.", s.sol_small);
    fputs("</p>\n<div class=\"charts\">\n", file);
    for (i = 0; i < rows->count; i++)
        if (!strcmp(rows->rows[i].op, op) && is_first(rows, i, false))
            write_chart(file, rows, &rows->rows[i], peers, npeers);
    fputs("</div>\n", file);
    for (i = 0; i < rows->count; i++)
        if (!strcmp(rows->rows[i].op, op) && is_first(rows, i, false))
            write_panel_table(file, rows, &rows->rows[i], peers, npeers);
    fputs("</section>\n", file);
}

static void write_tiles(FILE *file, const perf_rows_t *rows)
{
    perf_summary_t s = perf_summarise(rows, NULL, NULL);

    fputs("<div class=\"tiles\">", file);
    if (s.compared) {
        fprintf(file,
                "<div class=\"tile\"><b>%.2f&#215;</b><span>the better peer&#8217;s time over "
                "solccl&#8217;s, geometric mean of %d points</span></div>",
                s.mean, s.compared);
        fprintf(file,
                "<div class=\"tile%s\"><b>%.2f&#215;</b><span>the same, at the point where it "
                "is least</span></div>",
                s.worst < 1 ? " bad" : "", s.worst);
    }
    if (s.sol_small > 0)
        fprintf(file,
                "<div class=\"tile\"><b>%.2f&#215;</b><span>of the speed-of-light bound, at "
                "most, up to 4 KB</span></div>",
                s.sol_small);
    fprintf(file,
            "<div class=\"tile%s\"><b>%zu</b><span>wrong elements in %d verified "
            "points</span></div></div>\n",
            s.wrong ? " bad" : "", s.wrong, s.points);
}

/* A JSON object of texts without its punctuation: "commit: 1a2b3c, openmpi: Open MPI v4.1.4". */
static void write_versions(FILE *file, const char *object)
{
    for (; *object; object++) {
        char one[2] = {*object, '\0'};

        if (!strchr("{}\"\\", *object))
            perf_html_text(file, one);
    }
}

static void write_facts(FILE *file, const perf_row_t *row)
{
    char ranks[64];

    snprintf(ranks, sizeof(ranks), "%d, in %d processes", row->ranks, row->processes);
    text(file, "<dl><dt>Machine</dt><dd>", row->machine, "");
    text(file, ", ", row->driver, "</dd>");
    text(file, "<dt>Ranks</dt><dd>", ranks, "");
    text(file, "; ", row->device, "</dd>");
    fputs("<dt>Versions</dt><dd>", file);
    write_versions(file, row->versions);
    fputs("</dd>", file);
    text(file, "<dt>Run</dt><dd>", row->run, "");
    text(file, ", ", row->date, "</dd>");
    text(file, "<dt>Command</dt><dd><code>", row->command, "</code></dd></dl>\n");
}

static const char notes[] =
    "<section><h2 id=\"method\">How to read this</h2>\n"
    "<p>Every result was compared with an independent reference before anything was timed. "
    "Operations run back to back in batches of at least 20 &#181;s; a sample is one batch on its "
    "slowest rank, per operation; p50, p99 and min are over all samples of all rounds. Libraries "
    "took turns within the run, on the same CPUs, with the same code around them; who was not "
    "measured slept.</p>\n"
    "<p>The dotted line is the bound measured on this machine in this run: one-way time of a cache "
    "line between the cores, for each hop that the operation needs, plus the bytes that the "
    "busiest rank must move or reduce, over the best bandwidth found with all ranks at work. "
    "algbw and busbw follow nccl-tests at the median.</p></section>\n";

static void write_page(FILE *file, const perf_rows_t *rows, const perf_row_t *first)
{
    char peers[MAX_PEERS][32];
    int npeers = perf_rows_peers(rows, peers, MAX_PEERS);
    size_t i;

    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<title>solccl perf</title>\n<style>",
          file);
    fputs(style, file);
    fputs("</style></head>\n<body><main>\n<h1>Collectives against the speed of light</h1>\n", file);
    text(file, "<p class=\"soft\">solccl perf on ", first->machine, "");
    fprintf(file, ", %d ranks. Latency of each operation against its size, for solccl, ",
            first->ranks);
    fputs(npeers ? "the installed peers and the bound that this machine sets.</p>\n"
                 : "and the bound that this machine sets.</p>\n",
          file);
    write_tiles(file, rows);
    write_facts(file, first);
    fputs("<nav>", file);
    for (i = 0; i < rows->count; i++)
        if (is_first(rows, i, true)) {
            text(file, "<a href=\"#", rows->rows[i].op, "\">");
            text(file, "", rows->rows[i].op, "</a>");
        }
    fputs("<a href=\"#method\">method</a></nav>\n", file);
    for (i = 0; i < rows->count; i++)
        if (is_first(rows, i, true))
            write_op(file, rows, rows->rows[i].op, peers, npeers);
    fputs(notes, file);
    fputs("</main></body></html>\n", file);
}

bool perf_report_write(const char *path, const perf_rows_t *rows)
{
    const perf_row_t *first = NULL;
    FILE *file;
    size_t i;

    for (i = 0; i < rows->count && !first; i++)
        if (!strcmp(rows->rows[i].library, "solccl"))
            first = &rows->rows[i];
    if (!first) {
        tool_error("perf", "there is no row of solccl to report");
        return false;
    }
    file = fopen(path, "we");
    if (!file) {
        tool_error("perf", "%s cannot be written: %s", path, strerror(errno));
        return false;
    }
    write_page(file, rows, first);
    if (fclose(file) != 0) {
        tool_error("perf", "%s could not be written whole: %s", path, strerror(errno));
        return false;
    }
    return true;
}
