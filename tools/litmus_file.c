/* SPDX-License-Identifier: Apache-2.0 */
/* litmus_file.c: see litmus_file.h. */
#include "litmus_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER "solccl-litmus 1"

bool litmus_file_path(char *path, size_t bytes)
{
    const char *own = getenv("SOLCCL_LITMUS_FILE"), *cache = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    int length = -1;

    if (own && own[0])
        length = snprintf(path, bytes, "%s", own);
    else if (cache && cache[0])
        length = snprintf(path, bytes, "%s/solccl/litmus", cache);
    else if (home && home[0])
        length = snprintf(path, bytes, "%s/.cache/solccl/litmus", home);
    return length > 0 && (size_t)length < bytes;
}

static void print_uuid(char text[33], const unsigned char uuid[16])
{
    int i;

    for (i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", uuid[i]);
}

/* "FROM TO": how a line begins. */
static void begin_line(char text[67], const litmus_result_t *r)
{
    print_uuid(text, r->from);
    text[32] = ' ';
    print_uuid(text + 33, r->to);
}

static bool replaced(const char *line, const litmus_result_t *results, size_t count)
{
    char begin[67];
    size_t i;

    for (i = 0; i < count; i++) {
        begin_line(begin, &results[i]);
        if (strncmp(line, begin, 65) == 0)
            return true;
    }
    return false;
}

static void copy_others(const char *path, FILE *to, const litmus_result_t *results, size_t count)
{
    char line[256];
    FILE *old = fopen(path, "re");
    bool ours = old && fgets(line, sizeof(line), old) && strcmp(line, HEADER "\n") == 0;

    while (ours && fgets(line, sizeof(line), old))
        if (!replaced(line, results, count))
            fputs(line, to);
    if (old)
        fclose(old);
}

static void make_folders(const char *path)
{
    char folder[512];
    char *slash;

    snprintf(folder, sizeof(folder), "%s", path);
    for (slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(folder, 0755); /* (that it is not there shows when the file is opened) */
        *slash = '/';
    }
}

bool litmus_file_merge(const char *path, const litmus_result_t *results, size_t count)
{
    char fresh[560], begin[67];
    size_t i;
    FILE *file;
    bool good;

    make_folders(path);
    snprintf(fresh, sizeof(fresh), "%s.%ld", path, (long)getpid());
    file = fopen(fresh, "we");
    if (!file)
        return false;
    fprintf(file, "%s\n", HEADER);
    copy_others(path, file, results, count);
    for (i = 0; i < count; i++) {
        begin_line(begin, &results[i]);
        fprintf(file, "%s %llu %llu %llu\n", begin, results[i].read, results[i].torn16,
                results[i].torn128);
    }
    good = !ferror(file);
    good = fclose(file) == 0 && good && rename(fresh, path) == 0;
    if (!good)
        unlink(fresh);
    return good;
}
