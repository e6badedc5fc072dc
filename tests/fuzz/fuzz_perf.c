/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_perf.c: command lines of `solccl perf`: the input's words, separated by zero bytes.
 */
#include "perf_options.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    int null = open("/dev/null", O_WRONLY);
    return null < 0 || dup2(null, STDOUT_FILENO) < 0 ? 1 : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { WORDS = 24 };
    char *argv[WORDS + 2], *text = calloc(1, size + 1);
    perf_options_t options;
    int argc = 1;
    if (!text)
        return 0;
    memcpy(text, data, size);
    argv[0] = (char *)(uintptr_t) "perf";
    for (size_t at = 0; at < size && argc <= WORDS; at += strlen(text + at) + 1)
        argv[argc++] = text + at;
    argv[argc] = NULL;
    memset(&options, 0, sizeof(options));
    if (perf_options_parse(argc, argv, &options) == -1) {
        size_t bytes = 8;
        for (int i = 0; i < 100 && bytes != 0; i++)
            bytes = perf_next_size(&options, bytes);
    }
    free(text);
    return 0;
}
