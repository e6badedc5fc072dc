/* SPDX-License-Identifier: Apache-2.0 */
/*
 * litmus_file.h: what `solccl info --litmus` found, kept for the library, which
 * reads it when a communicator of GPU ranks is made (docs/memory-model.md).
 */
#ifndef SOLCCL_LITMUS_FILE_H
#define SOLCCL_LITMUS_FILE_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct litmus_result {
    unsigned char from[16], to[16]; /* UUIDs: who stores, who reads */
    unsigned long long read, torn16, torn128;
} litmus_result_t;

/* Where it is: SOLCCL_LITMUS_FILE, or in the user's cache. False: nowhere. */
bool litmus_file_path(char *path, size_t bytes);
/* Results of these pairs take the place of older ones; of other pairs they stay. The file is
 * replaced at once. False: errno says why. */
bool litmus_file_merge(const char *path, const litmus_result_t *results, size_t count);

#ifdef __cplusplus
}
#endif
#endif
