/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases_vocab.c: sol_vocab_topk against the reference, with uneven and empty shards;
 * the same bits on all ranks, and in every batch.
 */
#include "conformance/conf.h"
#include "conformance/vocab_reference.h"

#include <stdlib.h>
#include <string.h>

#define N(n) CONF_N(n)

static bool call_on(conf_t *conf, const vocab_case_t *c, const vocab_image_t *image,
                    unsigned char *got, char *why, size_t bytes)
{
    unsigned char *memory = conf->device->alloc(image->bytes + 16);
    unsigned char *base = (unsigned char *)(((uintptr_t)memory + 15) & ~(uintptr_t)15);
    sol_vocab_args_t args;
    conf_spread_t spread;
    double worst = 0;
    conf->device->upload(base, image->before, image->bytes);
    vocab_image_args(image, c, conf->rank, base, &args);
    conf_spread(conf, &spread, base, image->at, image->size, VOCAB_ARRAYS);
    conf_spread_args(&spread, base, image->at, &args, sizeof(args));
    bool good = TEAM_OK(conf->team, conf->rank, sol_vocab_topk(&args, conf->comm, conf->stream),
                        conf->comm) &&
                conf->device->sync(conf->stream);
    if (good) {
        conf_gather(conf, &spread, base, image->at, image->size);
        conf->device->download(got, base, image->bytes);
        good = vocab_image_check(image, c, got, &worst, why, bytes);
    }
    conf->device->free(memory);
    return good;
}

/* Performs a case and compares every byte; the sums with the other ranks' and with those of the
 * first token alone. */
static bool perform(conf_t *conf, vocab_case_t *c)
{
    char text[200], why[200] = "the call failed";
    vocab_image_t image;
    vocab_case_describe(c, conf->nranks, text, sizeof(text));
    snprintf(conf->doing, CONF_DOING, "%s, seed %#llx", text, (unsigned long long)c->seed);
    if (!vocab_image_make(&image, c, conf->nranks, conf->rank))
        return TEAM_CHECK(conf->team, conf->rank, !"memory");
    unsigned char *got = malloc(image.bytes), *alone = malloc(image.bytes);
    bool good = got && alone && call_on(conf, c, &image, got, why, sizeof(why));
    if (good && c->sum) {
        const size_t at = image.at[VOCAB_SUM], tokens = c->tokens;
        if (conf->hashes == TEAM_HASHES)
            conf_compare_hashes(conf);
        conf->team->rank[conf->rank].hash[conf->hashes++] =
            team_hash(got + at, image.size[VOCAB_SUM]);
        c->tokens = 1;
        vocab_image_t first;
        good = vocab_image_make(&first, c, conf->nranks, conf->rank) &&
               call_on(conf, c, &first, alone, why, sizeof(why));
        if (good && memcmp(got + at, alone + first.at[VOCAB_SUM], 4) != 0) {
            snprintf(why, sizeof(why), "the sum of token 0 has other bits when it is alone");
            good = false;
        }
        vocab_image_free(&first);
        c->tokens = tokens;
    }
    if (!good)
        team_fail(conf->team, conf->rank, "%s, seed %#llx: %s", text, (unsigned long long)c->seed,
                  why);
    free(got);
    free(alone);
    vocab_image_free(&image);
    conf->calls++;
    conf->stopped = !good;
    if (!good)
        atomic_store(&conf->team->stop, 1);
    return good;
}

static void case_vocab(conf_t *conf)
{
    static const unsigned counts[] = {30, 60, 2000};
    for (unsigned i = 0; i < counts[conf->options->level]; i++) {
        vocab_case_t c;
        vocab_case_draw(&c, &conf->random, conf->nranks, 30000);
        if (!perform(conf, &c))
            return;
    }
}

/* Vocabularies of models, and more tokens than one exchange carries. */
static void case_vocab_large(conf_t *conf)
{
    static const size_t sizes[][3] = {{1, 128256, 50}, {3, 152064, 1}, {2000, 40, 128}};
    for (unsigned i = 0; i < 3; i++) {
        vocab_case_t c;
        size_t each = sizes[i][1] / (size_t)conf->nranks + 1, total = 0;
        vocab_case_draw(&c, &conf->random, conf->nranks, 1000);
        c.tokens = sizes[i][0];
        c.k = (unsigned)sizes[i][2];
        c.gap = 0;
        for (int r = 0; r < conf->nranks; r++) { /* the last one's is shorter */
            c.first[r] = total;
            c.columns[r] = sizes[i][1] - total < each ? sizes[i][1] - total : each;
            total += c.columns[r];
        }
        if (!perform(conf, &c))
            return;
    }
}

/* Nothing to do, and what must be refused; the communicator stays usable. */
static void case_vocab_arguments(conf_t *conf)
{
    team_t *team = conf->team;
    const int rank = conf->rank;
    float *memory = conf->device->alloc(4096);
    sol_vocab_args_t args = SOL_VOCAB_ARGS_INIT, bad;
    TEAM_OK(team, rank, sol_vocab_topk(&args, conf->comm, conf->stream), conf->comm);
    args.columns = 64;
    args.k = 4;
    TEAM_OK(team, rank, sol_vocab_topk(&args, conf->comm, conf->stream), conf->comm);
    args.tokens = 2;
    args.logits = args.values = memory;
#define REFUSED(change, status)                                                                    \
    do {                                                                                           \
        bad = args;                                                                                \
        change;                                                                                    \
        TEAM_STATUS(team, rank, sol_vocab_topk(&bad, conf->comm, conf->stream), status,            \
                    conf->comm);                                                                   \
    } while (0)
    REFUSED(bad.size = 8, SOL_ERR_ARGUMENT);
    REFUSED(bad.logits = NULL, SOL_ERR_ARGUMENT);
    REFUSED(bad.k = 129, SOL_ERR_ARGUMENT);
    REFUSED(bad.k = 0, SOL_ERR_ARGUMENT);
    REFUSED(bad.dtype = SOL_FLOAT64, SOL_ERR_ARGUMENT);
    REFUSED(bad.pitch = 63, SOL_ERR_ARGUMENT);
    REFUSED(bad.first = 0xffffffffu - 63, SOL_ERR_ARGUMENT);
    REFUSED(bad.columns = SIZE_MAX, SOL_ERR_ARGUMENT);
    REFUSED(bad.tokens = SIZE_MAX / 2, SOL_ERR_ARGUMENT);
#undef REFUSED
    TEAM_STATUS(team, rank, sol_vocab_topk(NULL, conf->comm, conf->stream), SOL_ERR_ARGUMENT,
                conf->comm);
    TEAM_OK(team, rank, sol_group_start(), NULL);
    TEAM_STATUS(team, rank, sol_vocab_topk(&args, conf->comm, conf->stream), SOL_ERR_STATE,
                conf->comm);
    TEAM_OK(team, rank, sol_group_end(), NULL);
    conf->device->sync(conf->stream);
    conf->device->free(memory);
    conf_barrier(conf);
}

const conf_case_t conf_cases_vocab[] = {
    {.name = "vocab",
     .run = case_vocab,
     .ranks = {N(2), N(1) | N(2) | N(3) | N(8), CONF_ALL},
     .threads = {N(3), N(4), CONF_ALL}},
    {.name = "vocab-large",
     .run = case_vocab_large,
     .ranks = {0, N(2) | N(3), CONF_ALL},
     .threads = {0, 0, CONF_ALL}},
    {.name = "vocab-arguments",
     .run = case_vocab_arguments,
     .ranks = {N(2), N(1) | N(2), CONF_ALL},
     .threads = {0, 0, CONF_ALL}},
    {.name = NULL},
};
