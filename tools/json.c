/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.c: see json.h. One pass over the text; containers that are open are on a stack of fixed
 * depth, so no input can make it recurse.
 */
#include "json.h"

#include "tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 256

struct json_block {
    struct json_block *next;
    size_t used;
    json_value_t values[BLOCK];
};

struct parser {
    json_t *json;
    char *at;
    const char *why;
    json_value_t *open[JSON_DEPTH];
    json_value_t *last[JSON_DEPTH]; /* the newest value in each open container */
    int depth;
};

static json_value_t *new_value(struct parser *p)
{
    struct json_block *block = p->json->blocks;

    if (!block || block->used == BLOCK) {
        block = tool_calloc(1, sizeof(*block));
        if (!block) {
            p->why = "out of memory";
            return NULL;
        }
        block->next = p->json->blocks;
        p->json->blocks = block;
    }
    return &block->values[block->used++];
}

static void skip_blanks(struct parser *p)
{
    p->at += strspn(p->at, " \t\r\n");
}

static int hex4(const char *text)
{
    int value = 0, i;

    for (i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef";
        const char *found = text[i] ? strchr(digits, text[i] | 0x20) : NULL;

        if (!found)
            return -1;
        value = value << 4 | (int)(found - digits);
    }
    return value;
}

/* A character that was escaped by its number, as UTF-8 (halves of a pair become '?'). */
static char *put_unicode(char *to, int code)
{
    if (code == 0 || (code >= 0xd800 && code < 0xe000)) {
        *to++ = '?';
    } else if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3f));
    } else {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    }
    return to;
}

/* At the opening quote; unescapes in place, which never gets longer. */
static char *parse_string(struct parser *p)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    char *start = p->at + 1, *to = start, *c;
    const char *found;

    for (c = start; *c != '"'; c++) {
        if ((unsigned char)*c < 0x20) {
            p->why = "a string does not end";
            return NULL;
        }
        if (*c != '\\') {
            *to++ = *c;
            continue;
        }
        c++;
        found = *c ? strchr(from, *c) : NULL;
        if (found) {
            *to++ = into[found - from];
        } else if (*c == 'u' && hex4(c + 1) >= 0) {
            to = put_unicode(to, hex4(c + 1));
            c += 4;
        } else {
            p->why = "an escape in a string is none";
            return NULL;
        }
    }
    *to = '\0'; /* at the closing quote at the latest */
    p->at = c + 1;
    return start;
}

/* Numbers stay text; the byte after one is needed as it is, so they are copied. */
static bool parse_number(struct parser *p, json_value_t *value)
{
    size_t length = strspn(p->at, "+-.0123456789eE");
    char *copy, *end = NULL;

    if (length == 0 || length > 40) {
        p->why = "a value is expected";
        return false;
    }
    copy = tool_calloc(1, length + 1);
    if (!copy) {
        p->why = "out of memory";
        return false;
    }
    memcpy(copy, p->at, length);
    strtod(copy, &end);
    if (*end) {
        p->why = "a number cannot be read";
        tool_free(copy);
        return false;
    }
    value->kind = JSON_NUMBER;
    value->text = copy;
    p->at += length;
    return true;
}

static bool parse_word(struct parser *p, json_value_t *value)
{
    static const struct {
        const char *word;
        json_kind kind;
    } words[] = {{"null", JSON_NULL}, {"true", JSON_TRUE}, {"false", JSON_FALSE}};
    size_t i;

    for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t length = strlen(words[i].word);

        if (!strncmp(p->at, words[i].word, length)) {
            value->kind = words[i].kind;
            p->at += length;
            return true;
        }
    }
    return parse_number(p, value);
}

/* Hangs `value` into the innermost open container, or makes it the root. */
static void attach(struct parser *p, json_value_t *value)
{
    json_value_t **last;

    if (p->depth == 0) {
        p->json->root = value;
        return;
    }
    last = &p->last[p->depth - 1];
    if (*last)
        (*last)->next = value;
    else
        p->open[p->depth - 1]->first = value;
    *last = value;
}

static bool parse_value(struct parser *p, const char *key)
{
    json_value_t *value = new_value(p);
    char *text;

    if (!value)
        return false;
    value->key = key;
    attach(p, value);
    if (*p->at == '"') {
        text = parse_string(p);
        value->kind = JSON_STRING;
        value->text = text;
        return text != NULL;
    }
    if (*p->at != '{' && *p->at != '[')
        return parse_word(p, value);
    if (p->depth == JSON_DEPTH) {
        p->why = "it is nested too deeply";
        return false;
    }
    value->kind = *p->at == '{' ? JSON_OBJECT : JSON_ARRAY;
    p->open[p->depth] = value;
    p->last[p->depth++] = NULL;
    p->at++;
    return true;
}

/* The key of the next member, and its colon. */
static const char *parse_key(struct parser *p)
{
    const char *key;

    if (*p->at != '"') {
        p->why = "a key is expected";
        return NULL;
    }
    key = parse_string(p);
    if (!key)
        return NULL;
    skip_blanks(p);
    if (*p->at != ':') {
        p->why = "':' is expected";
        return NULL;
    }
    p->at++;
    skip_blanks(p);
    return key;
}

/* After a value: closes what closes, and finds the next value's place. False: at the end, or wrong.
 */
static bool advance(struct parser *p, bool opened)
{
    for (skip_blanks(p); p->depth > 0; skip_blanks(p)) {
        char close = p->open[p->depth - 1]->kind == JSON_OBJECT ? '}' : ']';

        if (*p->at == close) {
            p->depth--;
            p->at++;
            opened = false;
            continue;
        }
        if (opened)
            return true;
        if (*p->at != ',') {
            p->why = "',' or a closing bracket is expected";
            return false;
        }
        p->at++;
        skip_blanks(p);
        return true;
    }
    return false;
}

bool json_parse(json_t *json, const char *text, size_t bytes, char *why, size_t why_bytes)
{
    struct parser p;
    bool more = true;

    memset(json, 0, sizeof(*json));
    memset(&p, 0, sizeof(p));
    p.json = json;
    json->text = tool_calloc(1, bytes + 1);
    if (!json->text) {
        snprintf(why, why_bytes, "out of memory");
        return false;
    }
    memcpy(json->text, text, bytes);
    p.at = json->text;
    skip_blanks(&p);
    while (more && !p.why) {
        bool in_object = p.depth > 0 && p.open[p.depth - 1]->kind == JSON_OBJECT;
        const char *key = in_object ? parse_key(&p) : NULL;
        int depth = p.depth;

        if (p.why || !parse_value(&p, key))
            break;
        more = advance(&p, p.depth > depth);
    }
    if (!p.why && *p.at)
        p.why = "something follows the end";
    if (p.why)
        snprintf(why, why_bytes, "%s, at byte %zu", p.why, (size_t)(p.at - json->text));
    return !p.why;
}

void json_free(json_t *json)
{
    while (json->blocks) {
        struct json_block *next = json->blocks->next;
        size_t i;

        for (i = 0; i < json->blocks->used; i++)
            if (json->blocks->values[i].kind == JSON_NUMBER)
                tool_free((char *)(uintptr_t)json->blocks->values[i].text);
        tool_free(json->blocks);
        json->blocks = next;
    }
    tool_free(json->text);
    memset(json, 0, sizeof(*json));
}

const json_value_t *json_get(const json_value_t *object, const char *key)
{
    const json_value_t *value;

    if (!object || object->kind != JSON_OBJECT)
        return NULL;
    for (value = object->first; value; value = value->next)
        if (!strcmp(value->key, key))
            return value;
    return NULL;
}

const char *json_text(const json_value_t *object, const char *key, const char *otherwise)
{
    const json_value_t *value = json_get(object, key);

    return value && value->kind == JSON_STRING ? value->text : otherwise;
}

int64_t json_int(const json_value_t *object, const char *key, int64_t otherwise)
{
    const json_value_t *value = json_get(object, key);
    long long number;
    char *end;

    if (!value || value->kind != JSON_NUMBER)
        return otherwise;
    errno = 0;
    number = strtoll(value->text, &end, 10);
    return errno || *end ? otherwise : (int64_t)number;
}
