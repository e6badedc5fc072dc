/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env.c: strict readers of environment variables. A variable that cannot be
 * read is an error with a text, never a silent default: a mistyped timeout that
 * is ignored costs somebody a night.
 */
#include "base/base.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The variable's content, or NULL if it is unset or empty. */
static const char *content_of(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

/* strtol and strtoull skip blanks and take signs where we do not want them. */
static bool starts_like_number(const char *text, bool sign_allowed)
{
    if (sign_allowed && text[0] == '-') {
        text++;
    }
    return text[0] >= '0' && text[0] <= '9';
}

sol_status_t sol_env_int(const char *name, long minimum, long maximum, long *value, char *why,
                         size_t why_bytes)
{
    const char *text = content_of(name);
    if (text == NULL) {
        return SOL_OK;
    }
    char *end = NULL;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (!starts_like_number(text, true) || *end != '\0' || errno != 0 || number < minimum ||
        number > maximum) {
        snprintf(why, why_bytes,
                 "environment variable %s is \"%.100s\": expected an integer from "
                 "%ld to %ld",
                 name, text, minimum, maximum);
        return SOL_ERR_ARGUMENT;
    }
    *value = number;
    return SOL_OK;
}

/* Shift for a unit suffix; -1 if it is none. "KiB" and "kb" are read as K is: powers of 1024. */
static int unit_shift(const char *suffix)
{
    int shift = 0;
    switch (suffix[0]) {
    case '\0':
        return 0;
    case 'k':
    case 'K':
        shift = 10;
        break;
    case 'm':
    case 'M':
        shift = 20;
        break;
    case 'g':
    case 'G':
        shift = 30;
        break;
    default:
        return -1;
    }
    suffix++;
    if (suffix[0] == 'i') {
        suffix++;
    }
    if (suffix[0] == 'B' || suffix[0] == 'b') {
        suffix++;
    }
    return suffix[0] == '\0' ? shift : -1;
}

bool sol_read_size(const char *text, size_t *bytes)
{
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    int shift = unit_shift(end);
    if (!starts_like_number(text, false) || errno != 0 || shift < 0 ||
        number > (SIZE_MAX >> shift)) {
        return false;
    }
    *bytes = (size_t)number << shift;
    return true;
}

sol_status_t sol_env_size(const char *name, size_t minimum, size_t maximum, size_t *value,
                          char *why, size_t why_bytes)
{
    const char *text = content_of(name);
    size_t bytes = 0;
    if (text == NULL) {
        return SOL_OK;
    }
    if (!sol_read_size(text, &bytes) || bytes < minimum || bytes > maximum) {
        snprintf(why, why_bytes,
                 "environment variable %s is \"%.100s\": expected a size from %zu "
                 "to %zu bytes, such as 65536 or 64K",
                 name, text, minimum, maximum);
        return SOL_ERR_ARGUMENT;
    }
    *value = bytes;
    return SOL_OK;
}

sol_status_t sol_env_choice(const char *name, const char *const *choices, int *value, char *why,
                            size_t why_bytes)
{
    const char *text = content_of(name);
    if (text == NULL) {
        return SOL_OK;
    }
    for (int i = 0; choices[i] != NULL; i++) {
        if (strcmp(text, choices[i]) == 0) {
            *value = i;
            return SOL_OK;
        }
    }
    int used = snprintf(why, why_bytes, "environment variable %s is \"%.100s\": expected one of",
                        name, text);
    for (int i = 0; choices[i] != NULL && used >= 0 && (size_t)used < why_bytes; i++) {
        used +=
            snprintf(why + used, why_bytes - (size_t)used, "%s %s", i > 0 ? "," : "", choices[i]);
    }
    return SOL_ERR_ARGUMENT;
}

const char *sol_env_path(const char *name)
{
    const char *text = secure_getenv(name);
    return text != NULL && text[0] != '\0' ? text : NULL;
}
