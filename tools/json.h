/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h: a small reader of JSON for files that somebody else wrote: strict, bounded in depth, and
 * without recursion on what it reads. The whole text stays in memory and the values point into it.
 */
#ifndef SOL_TOOLS_JSON_H
#define SOL_TOOLS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_DEPTH 32

typedef enum {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
} json_kind;

typedef struct json_value {
    json_kind kind;
    const char *key;                 /**< in an object; else NULL */
    const char *text;                /**< of a string, unescaped; of a number, as written */
    struct json_value *first, *next; /**< members or elements; the following one of the same */
} json_value_t;

typedef struct json {
    json_value_t *root;
    char *text;
    struct json_block *blocks;
} json_t;

/** Parses `bytes` of `text` (copied). False and `why` where it is no JSON. Free it in any case. */
bool json_parse(json_t *json, const char *text, size_t bytes, char *why, size_t why_bytes);
void json_free(json_t *json);

/** The member of an object, or NULL (also where `object` is NULL or none). */
const json_value_t *json_get(const json_value_t *object, const char *key);
/** Its text if it is a string, else `otherwise`. */
const char *json_text(const json_value_t *object, const char *key, const char *otherwise);
/** Its value if it is an integer that fits, else `otherwise`. */
int64_t json_int(const json_value_t *object, const char *key, int64_t otherwise);

#endif
