/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unique_id.h: what is inside a sol_unique_id_t. The secret never leaves the
 * processes that hold it except over a socket to the same user; whatever is
 * public (a socket's name, a communicator's name in a log) is a hash of it.
 */
#ifndef SOL_CORE_UNIQUE_ID_H
#define SOL_CORE_UNIQUE_ID_H

#include "base/base.h"

#define SOL_ID_MAGIC "solccl\n\1"
#define SOL_ID_FORMAT 1u
#define SOL_ID_SECRET_BYTES 32

typedef struct sol_id_content {
    unsigned char magic[8];
    uint32_t format;
    uint32_t reserved; /* zero */
    unsigned char secret[SOL_ID_SECRET_BYTES];
    unsigned char later[80]; /* zero; room for an address */
} sol_id_content_t;

/* The id with this secret. */
void sol_id_make(sol_unique_id_t *id, const unsigned char secret[SOL_ID_SECRET_BYTES]);
/* NULL if the id is one of ours, else what is wrong with it. `content` is filled on success. */
const char *sol_id_read(const sol_unique_id_t *id, sol_id_content_t *content);
/* 64 bits that name it in dumps (and the upper 16 in texts), and give nothing away. */
uint64_t sol_id_tag(const sol_unique_id_t *id);

#endif
