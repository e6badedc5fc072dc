/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_json.c: any file given to `solccl doctor`.
 */
#include "json.h"
#include "tool.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    int null = open("/dev/null", O_WRONLY); /* the fuzzer itself writes to stderr */
    return null < 0 || dup2(null, STDOUT_FILENO) < 0 ? 1 : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64], *argv[] = {(char *)(uintptr_t) "doctor", path, NULL};
    json_t json;
    char why[128];
    bool good = json_parse(&json, (const char *)data, size, why, sizeof(why));
    json_free(&json);
    if (!good)
        return 0; /* the doctor says why, on stderr */
    int fd = memfd_create("dump", MFD_CLOEXEC);
    if (fd >= 0 && write(fd, data, size) == (ssize_t)size) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        tool_doctor(2, argv);
    }
    close(fd);
    return 0;
}
