/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases_fused.c: the calls of solccl/fused.h, against the reference; and that a
 * token's result does not depend on the batch that it is in.
 */
#include "conformance/conf.h"
#include "conformance/norm_reference.h"

#include <stdlib.h>
#include <string.h>

#define N(n) CONF_N(n)
#define PLAIN_ERROR 2e-5 /* of |y| / max |y|: fp32 sums of some thousand terms */

/* Performs a case and compares every byte. */
static bool perform(conf_t *conf, const norm_case_t *c)
{
    char text[160], why[200];
    norm_image_t image;
    sol_norm_args_t args;
    conf_spread_t spread;
    if (conf->device->most_bytes && c->hidden * ref_size(c->dtype) > conf->device->most_bytes / 8)
        return true; /* a row would not fit into a slot of so little staging */
    norm_case_describe(c, text, sizeof(text));
    snprintf(conf->doing, CONF_DOING, "%s, seed %#llx", text, (unsigned long long)c->seed);
    if (!norm_image_make(&image, c, conf->nranks, conf->rank))
        return TEAM_CHECK(conf->team, conf->rank, !"memory");
    unsigned char *memory = conf->device->alloc(image.bytes + 16), *got = malloc(image.bytes);
    unsigned char *base = (unsigned char *)(((uintptr_t)memory + 15) & ~(uintptr_t)15);
    bool good = memory != NULL && got != NULL, refused = false;
    if (good) {
        conf->device->upload(base, image.before, image.bytes);
        norm_image_args(&image, c, base, &args);
        conf_spread(conf, &spread, base, image.at, image.size, NORM_ARRAYS);
        conf_spread_args(&spread, base, image.at, &args, sizeof(args));
        const sol_status_t status = sol_all_reduce_norm(&args, conf->comm, conf->stream);
        /* (so little staging that half a slot is too short for a finished row) */
        refused = conf->device->most_bytes && c->form == SOL_NORM_TWO_SHOT &&
                  status == SOL_ERR_UNSUPPORTED;
        good = (refused || team_expect(conf->team, conf->rank, "sol_all_reduce_norm", status,
                                       SOL_OK, conf->comm)) &&
               conf->device->sync(conf->stream);
    }
    if (good && !refused) {
        conf_gather(conf, &spread, base, image.at, image.size);
        conf->device->download(got, base, image.bytes);
        good = norm_image_check(&image, got, why, sizeof(why));
        if (!good)
            team_fail(conf->team, conf->rank, "%s, seed %#llx: %s", text,
                      (unsigned long long)c->seed, why);
        if (image.error > PLAIN_ERROR)
            team_fail(conf->team, conf->rank, "%s, seed %#llx: the reference is %g off fp64", text,
                      (unsigned long long)c->seed, image.error);
    }
    conf->device->free(memory);
    free(got);
    norm_image_free(&image);
    conf->calls++;
    conf->stopped = !good;
    if (!good)
        atomic_store(&conf->team->stop, 1);
    return good;
}

/* Forms x sizes, drawn. */
static void case_norm(conf_t *conf)
{
    static const unsigned counts[] = {50, 120, 4000};
    for (unsigned i = 0; i < counts[conf->options->level]; i++) {
        norm_case_t c;
        norm_case_draw(&c, &conf->random, 20000);
        if (!perform(conf, &c))
            return;
    }
}

/* Large batches and long rows. */
static void case_norm_large(conf_t *conf)
{
    static const size_t sizes[][2] = {{300, 1024}, {33, 8192}, {2, 40001}, {1, 131072}, {700, 33}};
    for (unsigned i = 0; i < 5; i++) {
        norm_case_t c;
        if (conf_leaves_out(conf, sizes[i][0] * sizes[i][1]))
            return;
        norm_case_draw(&c, &conf->random, 1000);
        c.tokens = sizes[i][0];
        c.hidden = sizes[i][1];
        if (!perform(conf, &c))
            return;
    }
}

/* Nothing to do, and what must be refused; the communicator stays usable. */
static void case_norm_arguments(conf_t *conf)
{
    team_t *team = conf->team;
    const int rank = conf->rank;
    if (conf_leaves_out(conf, (size_t)1 << 17)) /* (a row of 8192 is wide for little staging) */
        return;
    float *memory = conf->device->alloc(4096);
    sol_norm_args_t args = SOL_NORM_ARGS_INIT, bad;
    TEAM_OK(team, rank, sol_all_reduce_norm(&args, conf->comm, conf->stream), conf->comm);
    args.hidden = 8192;
    TEAM_OK(team, rank, sol_all_reduce_norm(&args, conf->comm, conf->stream), conf->comm);
    args.hidden = 64;
    args.tokens = 2;
    args.input = args.residual = args.weight = memory;
    args.output = memory;
#define REFUSED(change, status)                                                                    \
    do {                                                                                           \
        bad = args;                                                                                \
        change;                                                                                    \
        TEAM_STATUS(team, rank, sol_all_reduce_norm(&bad, conf->comm, conf->stream), status,       \
                    conf->comm);                                                                   \
    } while (0)
    REFUSED(bad.size = 8, SOL_ERR_ARGUMENT);
    REFUSED(bad.input = NULL, SOL_ERR_ARGUMENT);
    REFUSED(bad.output = NULL, SOL_ERR_ARGUMENT);
    REFUSED(bad.dtype = SOL_FLOAT64, SOL_ERR_ARGUMENT);
    REFUSED(bad.output_dtype = SOL_INT8, SOL_ERR_ARGUMENT);
    REFUSED(bad.norm = (sol_norm_t)2, SOL_ERR_ARGUMENT);
    REFUSED(bad.quant = (sol_quant_t)5, SOL_ERR_ARGUMENT);
    REFUSED(bad.quant = SOL_QUANT_TOKEN, SOL_ERR_ARGUMENT);
    REFUSED(bad.epsilon = -1.0f, SOL_ERR_ARGUMENT);
    REFUSED(bad.form = (sol_norm_form_t)3, SOL_ERR_ARGUMENT);
    REFUSED(bad.shards = SOL_NORM_SHARD_OUTPUT, SOL_ERR_ARGUMENT);
    REFUSED(bad.tokens = SIZE_MAX / 2, SOL_ERR_ARGUMENT);
    REFUSED((bad.quant = SOL_QUANT_GROUP, bad.output_dtype = SOL_FLOAT8_E4M3), SOL_ERR_ARGUMENT);
    REFUSED((bad.quant = SOL_QUANT_STATIC, bad.output_dtype = SOL_FLOAT8_E4M3), SOL_ERR_ARGUMENT);
#undef REFUSED
    TEAM_STATUS(team, rank, sol_all_reduce_norm(NULL, conf->comm, conf->stream), SOL_ERR_ARGUMENT,
                conf->comm);
    TEAM_OK(team, rank, sol_group_start(), NULL);
    TEAM_STATUS(team, rank, sol_all_reduce_norm(&args, conf->comm, conf->stream), SOL_ERR_STATE,
                conf->comm);
    TEAM_OK(team, rank, sol_group_end(), NULL);
    conf->device->sync(conf->stream);
    conf->device->free(memory);
    conf_barrier(conf);
}

const conf_case_t conf_cases_fused[] = {
    {.name = "norm",
     .run = case_norm,
     .ranks = {N(2), N(1) | N(2) | N(3) | N(5) | N(8), CONF_ALL},
     .threads = {N(3), N(4), CONF_ALL}},
    {.name = "norm-large",
     .run = case_norm_large,
     .ranks = {0, N(2) | N(3), CONF_ALL},
     .threads = {0, 0, CONF_ALL}},
    {.name = "norm-arguments",
     .run = case_norm_arguments,
     .ranks = {N(2), N(1) | N(2), CONF_ALL},
     .threads = {0, 0, CONF_ALL}},
    {.name = NULL},
};
