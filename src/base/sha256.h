/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sha256.h: FIPS 180-4's SHA-256. Used as the one-way function from a
 * communicator's secret to its public names, and from a job's description to
 * its ids. Small, not fast; no heap.
 */
#ifndef SOL_BASE_SHA256_H
#define SOL_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SOL_SHA256_BYTES 32

typedef struct sol_sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes taken so far */
    unsigned char block[64];
} sol_sha256_t;

void sol_sha256_start(sol_sha256_t *hash);
void sol_sha256_add(sol_sha256_t *hash, const void *data, size_t bytes);
void sol_sha256_end(sol_sha256_t *hash, unsigned char digest[SOL_SHA256_BYTES]);

#endif
