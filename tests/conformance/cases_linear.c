/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases_linear.c: sol_linear_all_reduce against the reference, with uneven and empty
 * shards. (The reference computes each token alone, so equal bits mean that the batch
 * does not matter.)
 */
#include "conformance/conf.h"
#include "conformance/linear_reference.h"

#include <stdlib.h>

#define N(n) CONF_N(n)
#define PLAIN_ERROR 1e-6 /* of the sum, in the sum of the products' magnitudes */

static bool perform(conf_t *conf, const linear_case_t *c)
{
    char text[200], why[200] = "the call failed";
    linear_image_t image;
    sol_linear_args_t args;
    conf_spread_t spread;
    linear_case_describe(c, conf->nranks, text, sizeof(text));
    snprintf(conf->doing, CONF_DOING, "%s, seed %#llx", text, (unsigned long long)c->seed);
    if (!linear_image_make(&image, c, conf->nranks, conf->rank))
        return TEAM_CHECK(conf->team, conf->rank, !"memory");
    unsigned char *memory = conf->device->alloc(image.bytes + 16), *got = malloc(image.bytes);
    unsigned char *base = (unsigned char *)(((uintptr_t)memory + 15) & ~(uintptr_t)15);
    conf->device->upload(base, image.before, image.bytes);
    linear_image_args(&image, c, conf->rank, base, &args);
    conf_spread(conf, &spread, base, image.at, image.size, LINEAR_ARRAYS);
    conf_spread_args(&spread, base, image.at, &args, sizeof(args));
    bool good = TEAM_OK(conf->team, conf->rank,
                        sol_linear_all_reduce(&args, conf->comm, conf->stream), conf->comm) &&
                conf->device->sync(conf->stream);
    if (good) {
        conf_gather(conf, &spread, base, image.at, image.size);
        conf->device->download(got, base, image.bytes);
        good = linear_image_check(&image, got, why, sizeof(why));
    }
    if (!good || image.error > PLAIN_ERROR)
        team_fail(conf->team, conf->rank, "%s, seed %#llx: %s (%g off fp64)", text,
                  (unsigned long long)c->seed, why, image.error);
    conf->device->free(memory);
    free(got);
    linear_image_free(&image);
    conf->calls++;
    conf->stopped = !good;
    if (!good)
        atomic_store(&conf->team->stop, 1);
    return good;
}

static void case_linear(conf_t *conf)
{
    static const unsigned counts[] = {25, 60, 2000};
    for (unsigned i = 0; i < counts[conf->options->level]; i++) {
        linear_case_t c;
        linear_case_draw(&c, &conf->random, conf->nranks, 1200, i % 3 ? 20 : 100);
        if (!perform(conf, &c))
            return;
    }
}

/* Nothing to do, and what must be refused; the communicator stays usable. */
static void case_linear_arguments(conf_t *conf)
{
    team_t *team = conf->team;
    const int rank = conf->rank;
    char *memory = conf->device->alloc(4096);
    sol_linear_args_t args = SOL_LINEAR_ARGS_INIT, bad;
    TEAM_OK(team, rank, sol_linear_all_reduce(&args, conf->comm, conf->stream), conf->comm);
    args.tokens = 2;
    TEAM_OK(team, rank, sol_linear_all_reduce(&args, conf->comm, conf->stream), conf->comm);
    args.inputs = args.outputs = 16;
    args.input = args.weight = memory;
    args.output = memory + 2048;
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        bad = args;                                                                                \
        change;                                                                                    \
        TEAM_STATUS(team, rank, sol_linear_all_reduce(&bad, conf->comm, conf->stream),             \
                    SOL_ERR_ARGUMENT, conf->comm);                                                 \
    } while (0)
    REFUSED(bad.size = 8);
    REFUSED(bad.tokens = 17);
    REFUSED(bad.input = NULL);
    REFUSED(bad.weight = NULL);
    REFUSED(bad.output = NULL);
    REFUSED(bad.weight_dtype = SOL_INT8);
    REFUSED(bad.inputs = SIZE_MAX / 2);
    REFUSED(bad.outputs = SIZE_MAX / 2);
#undef REFUSED
    TEAM_STATUS(team, rank, sol_linear_all_reduce(NULL, conf->comm, conf->stream), SOL_ERR_ARGUMENT,
                conf->comm);
    TEAM_OK(team, rank, sol_group_start(), NULL);
    TEAM_STATUS(team, rank, sol_linear_all_reduce(&args, conf->comm, conf->stream), SOL_ERR_STATE,
                conf->comm);
    TEAM_OK(team, rank, sol_group_end(), NULL);
    conf->device->sync(conf->stream);
    conf->device->free(memory);
    conf_barrier(conf);
}

const conf_case_t conf_cases_linear[] = {
    {.name = "linear",
     .run = case_linear,
     .ranks = {N(2), N(1) | N(2) | N(3) | N(8), CONF_ALL},
     .threads = {N(3), N(4), CONF_ALL}},
    {.name = "linear-arguments",
     .run = case_linear_arguments,
     .ranks = {N(2), N(1) | N(2), CONF_ALL},
     .threads = {0, 0, CONF_ALL}},
    {.name = NULL},
};
