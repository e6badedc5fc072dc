/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_chart.c: a log-log plot in SVG (see perf_chart.h). Coordinates are those
 * of a 640 x 400 drawing which the page scales.
 */
#include "perf_chart.h"

#include "tool.h"

#include <math.h>
#include <string.h>

#define WIDTH 640.0
#define HEIGHT 400.0
#define LEFT 62.0
#define RIGHT 98.0
#define TOP 18.0
#define BOTTOM 44.0
#define LABEL_STEP 21.0 /* two labels at the lines' ends are never nearer */

struct scale {
    double x0, x1; /* log2 of bytes */
    double y0, y1; /* log10 of us */
};

void perf_html_text(FILE *file, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", file);
            break;
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '"':
            fputs("&quot;", file);
            break;
        default:
            fputc(*text, file);
        }
    }
}

static double x_of(const struct scale *s, double bytes)
{
    return LEFT + (log2(bytes) - s->x0) / (s->x1 - s->x0) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct scale *s, double us)
{
    return HEIGHT - BOTTOM - (log10(us) - s->y0) / (s->y1 - s->y0) * (HEIGHT - TOP - BOTTOM);
}

/* A point that has a place on logarithmic axes. */
static bool shown(const perf_series_t *series, int i)
{
    return series->bytes[i] >= 1 && series->us[i] > 0;
}

static bool fit(struct scale *scale, const perf_series_t *series, int count)
{
    bool found = false;
    int s, i;

    for (s = 0; s < count; s++) {
        for (i = 0; i < series[s].count; i++) {
            double x, y;

            if (!shown(&series[s], i))
                continue;
            x = log2(series[s].bytes[i]);
            y = log10(series[s].us[i]);
            if (!found) {
                scale->x0 = scale->x1 = x;
                scale->y0 = scale->y1 = y;
                found = true;
            }
            scale->x0 = fmin(scale->x0, x);
            scale->x1 = fmax(scale->x1, x);
            scale->y0 = fmin(scale->y0, y);
            scale->y1 = fmax(scale->y1, y);
        }
    }
    if (scale->x1 - scale->x0 < 1) {
        scale->x0 -= 1;
        scale->x1 += 1;
    }
    scale->y0 = floor((scale->y0 - 0.05) * 4) / 4; /* quarter decades */
    scale->y1 = ceil((scale->y1 + 0.05) * 4) / 4;
    return found;
}

static void draw_grid(FILE *file, const struct scale *s)
{
    int first = (int)ceil(s->x0), last = (int)floor(s->x1), step = 1, e;
    char text[32];

    while ((last - first) / step > 7)
        step++;
    fputs("<g class=\"grid\">", file);
    for (e = (int)ceil(s->y0); e <= (int)floor(s->y1); e++)
        fprintf(file, "<line x1=\"%.0f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
                WIDTH - RIGHT, y_of(s, pow(10, e)), y_of(s, pow(10, e)));
    fprintf(file, "<line class=\"axis\" x1=\"%.0f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/></g>",
            LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM, HEIGHT - BOTTOM);
    fputs("<g class=\"tick\">", file);
    for (e = (int)ceil(s->y0); e <= (int)floor(s->y1); e++)
        fprintf(file, "<text x=\"%.0f\" y=\"%.1f\" dy=\".35em\" text-anchor=\"end\">%g</text>",
                LEFT - 9, y_of(s, pow(10, e)), pow(10, e));
    for (e = first; e <= last; e += step)
        fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>",
                x_of(s, exp2(e)), HEIGHT - BOTTOM + 22, tool_format_size((size_t)exp2(e), text));
    fputs("</g>", file);
}

/* The mark of series `index` around a point: circle, triangle, square, diamond, cross-free shapes
 * that differ without colour. */
static void draw_mark(FILE *file, int index, double x, double y, const char *tip)
{
    fprintf(file, "<g class=\"mark s%d\">", index);
    switch (index % 4) {
    case 0:
        fprintf(file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.4\"/>", x, y);
        break;
    case 1:
        fprintf(file, "<path d=\"M%.1f %.1fl5 8.8h-10z\"/>", x, y - 5.6);
        break;
    case 2:
        fprintf(file, "<rect x=\"%.1f\" y=\"%.1f\" width=\"7.6\" height=\"7.6\"/>", x - 3.8,
                y - 3.8);
        break;
    default:
        fprintf(file, "<path d=\"M%.1f %.1fl5.4 5.4l-5.4 5.4l-5.4 -5.4z\"/>", x, y - 5.4);
        break;
    }
    if (tip)
        fprintf(file,
                "<circle class=\"hit\" cx=\"%.1f\" cy=\"%.1f\" r=\"11\"><title>%s</title></circle>",
                x, y, tip);
    fputs("</g>", file);
}

static void draw_series(FILE *file, const struct scale *s, const perf_series_t *series, int index)
{
    char tip[160], size[32];
    bool first = true;
    int i;

    if (series->bound)
        fputs("<path class=\"line sb\" d=\"", file);
    else
        fprintf(file, "<path class=\"line s%d\" d=\"", index);
    for (i = 0; i < series->count; i++) {
        if (!shown(series, i))
            continue;
        fprintf(file, "%c%.1f %.1f", first ? 'M' : 'L', x_of(s, series->bytes[i]),
                y_of(s, series->us[i]));
        first = false;
    }
    fputs("\"/>", file);
    for (i = 0; !series->bound && i < series->count; i++) {
        if (!shown(series, i))
            continue;
        snprintf(tip, sizeof(tip), "%.40s, %s: %.4g &#181;s", series->name,
                 tool_format_size((size_t)series->bytes[i], size), series->us[i]);
        draw_mark(file, index, x_of(s, series->bytes[i]), y_of(s, series->us[i]), tip);
    }
}

/* Names at the right ends of the lines, moved apart where they would touch. */
static void draw_labels(FILE *file, const struct scale *s, const perf_series_t *series, int count)
{
    double y[PERF_CHART_SERIES];
    int order[PERF_CHART_SERIES], i, j, shift, last;

    for (i = 0; i < count; i++) {
        for (last = series[i].count - 1; last >= 0 && !shown(&series[i], last); last--)
            continue;
        y[i] = last < 0 ? -1 : y_of(s, series[i].us[last]);
        for (j = i; j > 0 && y[order[j - 1]] > y[i]; j--)
            order[j] = order[j - 1];
        order[j] = i;
    }
    for (shift = 0; shift < 40; shift++) /* relax: each step moves a touching pair apart */
        for (i = 0; i + 1 < count; i++) {
            double gap = y[order[i + 1]] - y[order[i]];

            if (y[order[i]] < 0 || gap >= LABEL_STEP)
                continue;
            y[order[i]] -= (LABEL_STEP - gap) / 2;
            y[order[i + 1]] += (LABEL_STEP - gap) / 2;
        }
    for (i = 0; i < count; i++) {
        if (y[i] < 0)
            continue;
        fprintf(file, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\" dy=\".35em\">",
                WIDTH - RIGHT + 11, y[i]);
        perf_html_text(file, series[i].name);
        fputs("</text>", file);
    }
}

void perf_chart_draw(FILE *file, const char *title, const perf_series_t *series, int count)
{
    struct scale scale = {0, 0, 0, 0};
    int i;

    if (!fit(&scale, series, count)) {
        fputs("<p>Nothing to plot.</p>", file);
        return;
    }
    fprintf(file, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
    perf_html_text(file, title);
    fputs("\">", file);
    draw_grid(file, &scale);
    for (i = count - 1; i >= 0; i--) /* solccl, the first, on top */
        draw_series(file, &scale, &series[i], i);
    draw_labels(file, &scale, series, count);
    fputs("</svg>\n", file);
}

void perf_chart_key(FILE *file, int index, bool bound)
{
    fputs("<svg class=\"key\" viewBox=\"0 0 34 14\" aria-hidden=\"true\">", file);
    if (bound)
        fputs("<path class=\"line sb\" d=\"M1 7h32\"/>", file);
    else
        fprintf(file, "<path class=\"line s%d\" d=\"M1 7h32\"/>", index);
    if (!bound)
        draw_mark(file, index, 17, 7, NULL);
    fputs("</svg>", file);
}
