/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unique_id.c: making and reading unique ids. An id that was not made by
 * sol_get_unique_id (zeros, half a message, another library's) is told apart
 * at once instead of leading ranks to an empty meeting place.
 */
#include "core/unique_id.h"

#include "base/sha256.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

_Static_assert(sizeof(sol_id_content_t) == sizeof(sol_unique_id_t), "an id is 128 bytes");

void sol_id_make(sol_unique_id_t *id, const unsigned char secret[SOL_ID_SECRET_BYTES])
{
    sol_id_content_t content = {.format = SOL_ID_FORMAT};
    memcpy(content.magic, SOL_ID_MAGIC, sizeof(content.magic));
    memcpy(content.secret, secret, sizeof(content.secret));
    memcpy(id->bytes, &content, sizeof(content));
}

const char *sol_id_read(const sol_unique_id_t *id, sol_id_content_t *content)
{
    static const sol_unique_id_t zero;
    sol_id_content_t found;
    memcpy(&found, id->bytes, sizeof(found));
    if (memcmp(id, &zero, sizeof(zero)) == 0) {
        return "is all zeros: was it filled by sol_get_unique_id and carried to this rank?";
    }
    if (memcmp(found.magic, SOL_ID_MAGIC, sizeof(found.magic)) != 0) {
        return "was not made by sol_get_unique_id";
    }
    if (found.format != SOL_ID_FORMAT) {
        return "was made by another version of solccl";
    }
    *content = found;
    return NULL;
}

uint64_t sol_id_tag(const sol_unique_id_t *id)
{
    static const char purpose[] = "solccl name";
    unsigned char digest[SOL_SHA256_BYTES];
    sol_sha256_t hash;
    sol_sha256_start(&hash);
    sol_sha256_add(&hash, purpose, sizeof(purpose));
    sol_sha256_add(&hash, id->bytes, sizeof(id->bytes));
    sol_sha256_end(&hash, digest);
    uint64_t tag = 0;
    for (int i = 0; i < 8; i++) {
        tag = tag << 8 | digest[i];
    }
    return tag;
}

sol_status_t sol_get_unique_id(sol_unique_id_t *id)
{
    if (id == NULL) {
        return sol_thread_error(SOL_ERR_ARGUMENT, "sol_get_unique_id: id is NULL");
    }
    unsigned char secret[SOL_ID_SECRET_BYTES];
    ssize_t got;
    do { /* up to 256 bytes come whole or, before the pool is seeded, are interrupted */
        got = getrandom(secret, sizeof(secret), 0);
    } while (got < 0 && errno == EINTR);
    if (got != (ssize_t)sizeof(secret)) {
        return sol_thread_error(SOL_ERR_SYSTEM, "sol_get_unique_id: getrandom: %s",
                                strerror(errno));
    }
    sol_id_make(id, secret);
    return SOL_OK;
}
