/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_rows.c: rows of results, as JSON lines and CSV (see perf_rows.h). The
 * reader trusts nothing: a file may have been edited or cut off.
 */
#include "perf_rows.h"

#include "tool.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 16384

bool perf_rows_add(perf_rows_t *rows, const perf_row_t *row)
{
    if (rows->count == rows->room) {
        size_t room = rows->room ? 2 * rows->room : 256;
        perf_row_t *grown = tool_calloc(room, sizeof(*grown));

        if (!grown)
            return false;
        if (rows->count)
            memcpy(grown, rows->rows, rows->count * sizeof(*grown));
        tool_free(rows->rows);
        rows->rows = grown;
        rows->room = room;
    }
    rows->rows[rows->count++] = *row;
    return true;
}

void perf_rows_clear(perf_rows_t *rows)
{
    tool_free(rows->rows);
    memset(rows, 0, sizeof(*rows));
}

int perf_rows_peers(const perf_rows_t *rows, char peers[][32], int maximum)
{
    int found = 0, j;
    size_t i;

    for (i = 0; i < rows->count && found < maximum; i++) {
        const char *name = rows->rows[i].library;

        if (!strcmp(name, "solccl"))
            continue;
        for (j = 0; j < found && strcmp(peers[j], name); j++)
            continue;
        if (j == found)
            snprintf(peers[found++], 32, "%s", name);
    }
    return found;
}

const perf_row_t *perf_rows_beside(const perf_rows_t *rows, const perf_row_t *row,
                                   const char *library)
{
    size_t i;

    for (i = 0; i < rows->count; i++) {
        const perf_row_t *r = &rows->rows[i];

        if (r->bytes == row->bytes && r->in_place == row->in_place && !strcmp(r->op, row->op) &&
            !strcmp(r->dtype, row->dtype) && !strcmp(r->redop, row->redop) &&
            !strcmp(r->mode, row->mode) && !strcmp(r->run, row->run) &&
            !strcmp(r->library, library))
            return r;
    }
    return NULL;
}

/* ---- the fields, once, for writing and reading */

enum kind { TEXT, OBJECT, COUNT, INTEGER, REAL, FLAG };

struct field {
    const char *name;
    enum kind kind;
    size_t offset, bytes;
    bool required;
};

#define FIELD(kind, name, required)                                                                \
    {                                                                                              \
#name, kind, offsetof(perf_row_t, name), sizeof(((perf_row_t *)0)->name), required         \
    }

static const struct field fields[] = {
    FIELD(TEXT, run, true),           FIELD(TEXT, date, false),     FIELD(TEXT, machine, false),
    FIELD(TEXT, device, false),       FIELD(TEXT, driver, false),   FIELD(OBJECT, versions, false),
    FIELD(TEXT, command, false),      FIELD(TEXT, library, true),   FIELD(INTEGER, ranks, true),
    FIELD(INTEGER, processes, false), FIELD(TEXT, op, true),        FIELD(TEXT, dtype, true),
    FIELD(TEXT, redop, false),        FIELD(FLAG, in_place, false), FIELD(COUNT, bytes, true),
    FIELD(COUNT, count, false),       FIELD(TEXT, mode, false),     FIELD(REAL, us_min, false),
    FIELD(REAL, us_p50, true),        FIELD(REAL, us_p99, false),   FIELD(REAL, algbw, false),
    FIELD(REAL, busbw, false),        FIELD(REAL, sol_us, false),   FIELD(OBJECT, sol_terms, false),
    FIELD(COUNT, wrong, false),       FIELD(COUNT, samples, false), FIELD(TEXT, protocol, false),
    FIELD(TEXT, plan, false),
};

#define FIELDS (sizeof(fields) / sizeof(fields[0]))

/* ---- writing */

bool perf_json_string(char *to, size_t bytes, const char *text)
{
    bool fits = tool_append(to, bytes, "\"");

    for (; *text && fits; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\')
            fits = tool_append(to, bytes, "\\%c", c);
        else if (c < 0x20)
            fits = tool_append(to, bytes, "\\u%04x", c);
        else
            fits = tool_append(to, bytes, "%c", c);
    }
    return fits && tool_append(to, bytes, "\"");
}

static bool write_field(char *line, size_t bytes, const struct field *field, const void *value)
{
    if (!tool_append(line, bytes, "%s\"%s\": ", line[1] ? ", " : "", field->name))
        return false;
    switch (field->kind) {
    case TEXT:
        return perf_json_string(line, bytes, value);
    case OBJECT:
        return tool_append(line, bytes, "%s", *(const char *)value ? (const char *)value : "{}");
    case COUNT:
        return tool_append(line, bytes, "%zu", *(const size_t *)value);
    case INTEGER:
        return tool_append(line, bytes, "%d", *(const int *)value);
    case REAL:
        return tool_append(line, bytes, "%.6g", *(const double *)value);
    default:
        return tool_append(line, bytes, "%s", *(const bool *)value ? "true" : "false");
    }
}

bool perf_row_write_json(FILE *file, const perf_row_t *row)
{
    char line[LINE_BYTES] = "{";
    size_t i;

    for (i = 0; i < FIELDS; i++)
        if (!write_field(line, sizeof(line), &fields[i], (const char *)row + fields[i].offset))
            return false;
    return fprintf(file, "%s}\n", line) > 0;
}

/* ---- reading */

static const char *skip_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

/* Behind a string that starts at `at`; its text goes to `to` (cut if too long). NULL: not one.
 * Characters beyond ASCII that are escaped become '?': perf writes none. */
static const char *read_string(const char *at, char *to, size_t bytes)
{
    size_t used = 0;

    if (*at++ != '"')
        return NULL;
    for (; *at != '"'; at++) {
        char c = *at;

        if (!c)
            return NULL;
        if (c == '\\') {
            c = *++at;
            if (c == 'u') {
                if (strspn(at + 1, "0123456789abcdefABCDEF") < 4)
                    return NULL;
                at += 4;
                c = '?';
            } else if (c == 'n' || c == 't' || c == 'r' || c == 'b' || c == 'f') {
                c = ' ';
            } else if (c != '"' && c != '\\' && c != '/') {
                return NULL;
            }
        }
        if (bytes && used + 1 < bytes)
            to[used++] = c;
    }
    if (bytes)
        to[used] = '\0';
    return at + 1;
}

/* Behind any value that starts at `at`; NULL if it has no end. Depth is counted, not recursed. */
static const char *skip_value(const char *at)
{
    int depth = 0;

    do {
        at = skip_space(at);
        if (*at == '"') {
            at = read_string(at, NULL, 0);
            if (!at)
                return NULL;
        } else if (*at == '{' || *at == '[') {
            depth++;
            at++;
        } else if (*at == '}' || *at == ']') {
            depth--;
            at++;
        } else if (depth && (*at == ',' || *at == ':')) {
            at++;
        } else {
            size_t length = strcspn(at, ",:]}\" \t\r\n");

            if (!length)
                return NULL;
            at += length;
        }
        at = depth ? skip_space(at) : at;
        if (depth < 0 || (depth && !*at))
            return NULL;
    } while (depth);
    return at;
}

static bool read_number(const char *at, const char *end, double *value)
{
    char text[64], *stop;
    size_t length = (size_t)(end - at);

    if (length == 0 || length >= sizeof(text))
        return false;
    memcpy(text, at, length);
    text[length] = '\0';
    *value = strtod(text, &stop);
    return !*stop && isfinite(*value);
}

/* The value [at, end) into its field. */
static bool read_field(const char *at, const char *end, const struct field *field, void *value)
{
    size_t length = (size_t)(end - at);
    double number;

    switch (field->kind) {
    case TEXT:
        return read_string(at, value, field->bytes) == end;
    case OBJECT:
        if (*at != '{' || length >= field->bytes)
            return false;
        memcpy(value, at, length);
        ((char *)value)[length] = '\0';
        return true;
    case FLAG:
        *(bool *)value = length == 4 && !strncmp(at, "true", 4);
        return *(bool *)value || (length == 5 && !strncmp(at, "false", 5));
    default:
        break;
    }
    if (!read_number(at, end, &number))
        return false;
    if (field->kind == REAL) {
        *(double *)value = number;
        return true;
    }
    if (number < 0 || number > 9007199254740992.0 || number != floor(number))
        return false;
    if (field->kind == COUNT) {
        *(size_t *)value = (size_t)number;
        return true;
    }
    if (number > 1e6)
        return false;
    *(int *)value = (int)number;
    return true;
}

static bool no_row(char *why, size_t bytes, const char *text, const char *name)
{
    snprintf(why, bytes, "%s%s", text, name);
    return false;
}

bool perf_row_read_json(const char *line, perf_row_t *row, char *why, size_t why_bytes)
{
    bool seen[FIELDS] = {false};
    const char *at = skip_space(line), *end;
    char name[64];
    size_t i;

    memset(row, 0, sizeof(*row));
    if (*at != '{')
        return no_row(why, why_bytes, "it is not a JSON object", "");
    at = skip_space(at + 1);
    while (*at != '}') {
        at = read_string(at, name, sizeof(name));
        at = at ? skip_space(at) : NULL;
        if (!at || *at != ':')
            return no_row(why, why_bytes, "a key and a colon were expected", "");
        at = skip_space(at + 1);
        end = skip_value(at);
        if (!end)
            return no_row(why, why_bytes, "the value has no end: ", name);
        for (i = 0; i < FIELDS && strcmp(fields[i].name, name); i++)
            continue;
        if (i < FIELDS) {
            if (!read_field(at, end, &fields[i], (char *)row + fields[i].offset))
                return no_row(why, why_bytes, "the value is of the wrong type: ", name);
            seen[i] = true;
        }
        at = skip_space(end);
        if (*at == ',')
            at = skip_space(at + 1);
        else if (*at != '}')
            return no_row(why, why_bytes, "a comma was expected behind ", name);
    }
    if (*skip_space(at + 1))
        return no_row(why, why_bytes, "there is more behind the object", "");
    for (i = 0; i < FIELDS; i++)
        if (fields[i].required && !seen[i])
            return no_row(why, why_bytes, "a key is missing: ", fields[i].name);
    return true;
}

bool perf_rows_read(const char *path, perf_rows_t *rows)
{
    FILE *file = fopen(path, "re");
    char *line = tool_calloc(1, LINE_BYTES), why[128];
    bool well = file && line;
    perf_row_t row;
    int number = 0;

    if (!file)
        tool_error("perf", "%s cannot be read: %s", path, strerror(errno));
    while (well && fgets(line, LINE_BYTES, file)) {
        number++;
        if (!*skip_space(line))
            continue;
        if (!perf_row_read_json(line, &row, why, sizeof(why))) {
            tool_error("perf", "%s, line %d: %s", path, number, why);
            well = false;
        } else {
            well = perf_rows_add(rows, &row);
        }
    }
    if (file)
        fclose(file);
    tool_free(line);
    if (well && !rows->count) {
        tool_error("perf", "%s has no rows", path);
        return false;
    }
    return well;
}

/* ---- CSV */

static void write_cell(FILE *file, const struct field *field, const void *value)
{
    const char *text = value;

    switch (field->kind) {
    case TEXT:
    case OBJECT:
        fputc('"', file);
        for (; *text; text++) {
            if (*text == '"')
                fputc('"', file);
            fputc(*text, file);
        }
        fputc('"', file);
        break;
    case COUNT:
        fprintf(file, "%zu", *(const size_t *)value);
        break;
    case INTEGER:
        fprintf(file, "%d", *(const int *)value);
        break;
    case REAL:
        fprintf(file, "%.6g", *(const double *)value);
        break;
    default:
        fprintf(file, "%d", *(const bool *)value);
        break;
    }
}

bool perf_rows_write_csv(const char *path, const perf_rows_t *rows)
{
    FILE *file = fopen(path, "we");
    size_t i, r;

    if (!file) {
        tool_error("perf", "%s cannot be written: %s", path, strerror(errno));
        return false;
    }
    for (i = 0; i < FIELDS; i++)
        fprintf(file, "%s%s", i ? "," : "", fields[i].name);
    fputc('\n', file);
    for (r = 0; r < rows->count; r++)
        for (i = 0; i < FIELDS; i++) {
            write_cell(file, &fields[i], (const char *)&rows->rows[r] + fields[i].offset);
            fputc(i + 1 < FIELDS ? ',' : '\n', file);
        }
    if (fclose(file) != 0) {
        tool_error("perf", "%s could not be written whole: %s", path, strerror(errno));
        return false;
    }
    return true;
}
