/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_litmus.c: see cuda_litmus.h. */
#include "backend/cuda/cuda_litmus.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_FILE 65536

static bool read_uuid(const char *text, unsigned char uuid[16])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 32; i++) {
        const char *digit = text[i] != '\0' ? strchr(digits, text[i]) : NULL;
        if (digit == NULL) {
            return false;
        }
        unsigned value = (unsigned)(digit - digits);
        uuid[i / 2] = (unsigned char)(i % 2 == 0 ? value << 4 : uuid[i / 2] | value);
    }
    return text[32] == '\0';
}

static bool read_line(const char *text, const unsigned char uuid[16], unsigned *failed)
{
    char from[34], to[34], rest[2];
    unsigned char a[16], b[16];
    uint64_t read, torn16, torn128;
    if (sscanf(text, "%33s %33s %" SCNu64 " %" SCNu64 " %" SCNu64 " %1s", from, to, &read, &torn16,
               &torn128, rest) != 5 ||
        !read_uuid(from, a) || !read_uuid(to, b) || torn16 > read || torn128 > read) {
        return false;
    }
    if (memcmp(a, uuid, sizeof a) == 0 || memcmp(b, uuid, sizeof b) == 0) {
        *failed |= torn16 != 0 ? SOL_CUDA_WHOLE_16 | SOL_CUDA_WHOLE_128 : 0;
        *failed |= torn128 != 0 ? SOL_CUDA_WHOLE_128 : 0;
    }
    return true;
}

bool sol_cuda_litmus_parse(const char *text, const unsigned char uuid[16], unsigned *failed,
                           int *line)
{
    char one[256];
    *failed = 0;
    *line = 1;
    for (; *text != '\0'; ++*line) {
        size_t length = strcspn(text, "\n");
        if (length >= sizeof one) {
            return false;
        }
        memcpy(one, text, length);
        one[length] = '\0';
        text += length + (text[length] == '\n');
        if (*line == 1 ? strcmp(one, "solccl-litmus 1") != 0
                       : one[0] != '\0' && one[0] != '#' && !read_line(one, uuid, failed)) {
            return false;
        }
    }
    return *line > 1;
}

static FILE *open_file(char *path, size_t bytes)
{
    const char *own = sol_env_path("SOLCCL_LITMUS_FILE"), *cache = sol_env_path("XDG_CACHE_HOME"),
               *home = sol_env_path("HOME");
    if (own != NULL) {
        snprintf(path, bytes, "%s", own);
    } else if (cache != NULL) {
        snprintf(path, bytes, "%s/solccl/litmus", cache);
    } else if (home != NULL) {
        snprintf(path, bytes, "%s/.cache/solccl/litmus", home);
    } else {
        return NULL;
    }
    FILE *file = fopen(path, "re");
    if (file == NULL && (own != NULL || errno != ENOENT)) {
        sol_log(SOL_LOG_WARN, "%s cannot be opened: %m; nothing is known of this machine's GPUs",
                path);
    }
    return file;
}

unsigned sol_cuda_litmus_read(const unsigned char uuid[16])
{
    char path[512];
    unsigned failed = 0;
    int line = 0;
    FILE *file = open_file(path, sizeof path);
    if (file == NULL) {
        return 0;
    }
    char *text = sol_calloc(1, MAX_FILE + 1);
    size_t length = text != NULL ? fread(text, 1, MAX_FILE, file) : MAX_FILE;
    fclose(file);
    if (length == MAX_FILE || !sol_cuda_litmus_parse(text, uuid, &failed, &line)) {
        sol_log(SOL_LOG_WARN,
                "%s, line %d, is not as solccl info --litmus writes it: what it tests is taken as "
                "failed",
                path, line);
        failed = SOL_CUDA_WHOLE_16 | SOL_CUDA_WHOLE_128;
    }
    sol_free(text);
    return failed;
}

int sol_cuda_litmus_channel(const sol_dev_config_t *config, unsigned failed)
{
    for (int i = 0; i < SOL_DEV_MAX_CHANNELS && (failed & SOL_CUDA_WHOLE_128); i++) {
        if (config->channel[i].sessions > 0 && config->channel[i].kind == SOL_CHANNEL_LINE) {
            return i;
        }
    }
    return -1;
}
