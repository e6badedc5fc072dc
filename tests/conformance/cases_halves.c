/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases_halves.c: sol_norm_start and sol_norm_wait against the reference of the one call: up to
 * the handle's depth under way, in every order that is legal, ranks late at random, between other
 * collectives; and what must be refused.
 */
#include "conformance/conf.h"
#include "conformance/norm_reference.h"

#include <stdlib.h>
#include <string.h>

#define N(n) CONF_N(n)

/* A start, and what its wait must give. */
typedef struct half {
    norm_case_t c;
    norm_image_t image;
    sol_norm_args_t args;
    unsigned char *memory, *base, *got;
    conf_spread_t spread;
} half_t;

typedef struct job {
    sol_norm_halves_t halves;
    sol_norm_config_t config;
    half_t under_way[SOL_NORM_MAX_DEPTH];
    unsigned started, waited;
} job_t;

static bool call(conf_t *conf, sol_status_t status)
{
    return TEAM_OK(conf->team, conf->rank, status, conf->comm);
}

static void be_late(conf_t *conf)
{
    const uint64_t h = team_random(&conf->own_random);
    if (h % 3 == 0)
        team_sleep_us((unsigned)((h >> 8) % 300));
}

/* A case that the handle is for. */
static void draw(conf_t *conf, const sol_norm_config_t *config, norm_case_t *c)
{
    norm_case_draw(c, &conf->random, config->max_tokens * config->hidden);
    c->dtype = config->dtype;
    c->hidden = config->hidden;
    c->tokens =
        team_random(&conf->random) % 8 ? 1 + team_random(&conf->random) % config->max_tokens : 0;
    c->form = config->form;
    c->shards = config->shards;
    if (ref_size(c->output_dtype) != ref_size(c->dtype) || (c->shards & SOL_NORM_SHARD_OUTPUT))
        c->output_in_place = false;
    if (c->shards & SOL_NORM_SHARD_RESIDUAL)
        c->residual_over_input = false;
    if (c->quant == SOL_QUANT_NONE && team_random(&conf->random) % 3)
        c->output_dtype = c->dtype;
}

static bool open_job(conf_t *conf, job_t *job, size_t most)
{
    static const sol_norm_config_t blank = SOL_NORM_CONFIG_INIT;
    norm_case_t c;
    memset(job, 0, sizeof(*job));
    if (conf->device->most_bytes && most > conf->device->most_bytes / 16)
        most = conf->device->most_bytes / 16; /* (a start has to fit where memory is little) */
    norm_case_draw(&c, &conf->random, most);
    job->config = blank;
    job->config.max_tokens = 1 + team_random(&conf->random) % 9;
    job->config.hidden = c.hidden;
    job->config.dtype = c.dtype;
    job->config.form = c.form;
    job->config.shards = c.shards;
    job->config.depth = (int)(team_random(&conf->random) % 5);
    return call(conf, sol_norm_create(&job->halves, &job->config, conf->comm));
}

static half_t *half_of(job_t *job, unsigned number)
{
    return &job->under_way[number % SOL_NORM_MAX_DEPTH];
}

static bool start(conf_t *conf, job_t *job)
{
    half_t *half = half_of(job, job->started);
    char text[160];
    draw(conf, &job->config, &half->c);
    norm_case_describe(&half->c, text, sizeof(text));
    snprintf(conf->doing, CONF_DOING, "%s, seed %#llx", text, (unsigned long long)half->c.seed);
    if (!norm_image_make(&half->image, &half->c, conf->nranks, conf->rank))
        return TEAM_CHECK(conf->team, conf->rank, !"memory");
    half->memory = conf->device->alloc(half->image.bytes + 16);
    half->got = malloc(half->image.bytes);
    if (half->memory == NULL || half->got == NULL)
        return TEAM_CHECK(conf->team, conf->rank, !"memory");
    half->base = (unsigned char *)(((uintptr_t)half->memory + 15) & ~(uintptr_t)15);
    conf->device->upload(half->base, half->image.before, half->image.bytes);
    norm_image_args(&half->image, &half->c, half->base, &half->args);
    conf_spread(conf, &half->spread, half->base, half->image.at, half->image.size, NORM_ARRAYS);
    conf_spread_args(&half->spread, half->base, half->image.at, &half->args, sizeof(half->args));
    be_late(conf);
    job->started++;
    return call(conf, sol_norm_start(job->halves, &half->args, conf->stream));
}

static bool finish(conf_t *conf, job_t *job)
{
    half_t *half = half_of(job, job->waited++);
    char why[200], text[160];
    norm_case_describe(&half->c, text, sizeof(text));
    be_late(conf);
    bool good = call(conf, sol_norm_wait(job->halves, &half->args, conf->stream)) &&
                conf->device->sync(conf->stream);
    if (good) {
        conf_gather(conf, &half->spread, half->base, half->image.at, half->image.size);
        conf->device->download(half->got, half->base, half->image.bytes);
        good = norm_image_check(&half->image, half->got, why, sizeof(why));
        if (!good)
            team_fail(conf->team, conf->rank, "%s, seed %#llx, in halves: %s", text,
                      (unsigned long long)half->c.seed, why);
    }
    conf->device->free(half->memory);
    free(half->got);
    norm_image_free(&half->image);
    conf->calls++;
    return good;
}

static unsigned depth_of(const job_t *job)
{
    return job->config.depth > 0 ? (unsigned)job->config.depth : 2;
}

/* A step that is drawn: a start, a wait, or another collective. */
static bool step(conf_t *conf, job_t *job)
{
    const unsigned under_way = job->started - job->waited;
    const uint64_t h = team_random(&conf->random);
    if (h % 8 == 0)
        return conf_barrier(conf);
    if (under_way == 0 || (under_way < depth_of(job) && h % 3 != 0))
        return start(conf, job);
    return finish(conf, job);
}

static void stop(conf_t *conf)
{
    conf->stopped = true;
    atomic_store(&conf->team->stop, 1);
}

/* Handles, each with some starts and waits. */
static void case_halves(conf_t *conf)
{
    static const unsigned counts[] = {5, 12, 400};
    for (unsigned i = 0; i < counts[conf->options->level]; i++) {
        job_t job;
        bool good = open_job(conf, &job, i % 4 ? 2000 : 9000);
        for (int n = 0; n < 14 && good; n++)
            good = step(conf, &job);
        while (good && job.waited < job.started)
            good = finish(conf, &job);
        if (!good) {
            stop(conf);
            return;
        }
        call(conf, sol_norm_destroy(job.halves));
    }
}

/* Two handles in turns: two layers' norms of two halves of the tokens, the whole depth used. */
static void case_halves_two(conf_t *conf)
{
    job_t a, b;
    bool good = open_job(conf, &a, 3000) && open_job(conf, &b, 3000);
    for (int again = 0; again < 3 && good; again++) {
        while (good && a.started - a.waited < depth_of(&a))
            good = start(conf, &a);
        while (good && b.started - b.waited < depth_of(&b))
            good = start(conf, &b);
        while (good && a.started - a.waited > (unsigned)again)
            good = finish(conf, &a);
        while (good && b.waited < b.started)
            good = finish(conf, &b);
    }
    while (good && a.waited < a.started)
        good = finish(conf, &a);
    if (!good) {
        stop(conf);
        return;
    }
    TEAM_STATUS(conf->team, conf->rank, sol_comm_sleep(conf->comm, SOL_SLEEP_KEEP), SOL_ERR_STATE,
                conf->comm); /* while they are open */
    call(conf, sol_norm_destroy(a.halves));
    call(conf, sol_norm_destroy(b.halves));
    call(conf, sol_comm_sleep(conf->comm, SOL_SLEEP_KEEP));
    call(conf, sol_comm_wake(conf->comm));
}

#define REFUSED(wanted, expression)                                                                \
    TEAM_STATUS(conf->team, conf->rank, expression, wanted, conf->comm)

static void refused_configs(conf_t *conf)
{
    sol_norm_halves_t halves = NULL;
    sol_norm_config_t good = SOL_NORM_CONFIG_INIT, bad;
    good.max_tokens = 4, good.hidden = 64;
#define WITH(change)                                                                               \
    do {                                                                                           \
        bad = good;                                                                                \
        change;                                                                                    \
        REFUSED(SOL_ERR_ARGUMENT, sol_norm_create(&halves, &bad, conf->comm));                     \
    } while (0)
    WITH(bad.size = 8);
    WITH(bad.max_tokens = 0);
    WITH(bad.hidden = 0);
    WITH(bad.hidden = SIZE_MAX);
    WITH((bad.max_tokens = (size_t)1 << 30, bad.hidden = (size_t)1 << 30));
    WITH(bad.dtype = SOL_INT8);
    WITH(bad.form = (sol_norm_form_t)3);
    WITH(bad.shards = SOL_NORM_SHARD_OUTPUT);
    WITH((bad.form = SOL_NORM_ANY, bad.shards = 4));
    WITH(bad.depth = -1);
    WITH(bad.depth = SOL_NORM_MAX_DEPTH + 1);
#undef WITH
    REFUSED(SOL_ERR_ARGUMENT, sol_norm_create(NULL, &good, conf->comm));
    REFUSED(SOL_ERR_ARGUMENT, sol_norm_create(&halves, NULL, conf->comm));
    REFUSED(SOL_OK, sol_group_start());
    REFUSED(SOL_ERR_STATE, sol_norm_create(&halves, &good, conf->comm));
    REFUSED(SOL_OK, sol_group_end());
    bad = good; /* ranks that want different things */
    bad.max_tokens += (size_t)conf->rank;
    if (conf->nranks > 1)
        REFUSED(SOL_ERR_MISMATCH, sol_norm_create(&halves, &bad, conf->comm));
    TEAM_CHECK(conf->team, conf->rank, halves == NULL);
}

/* Too many, too few, others than were started; the handle stays usable. */
static bool refused_halves(conf_t *conf, job_t *job)
{
    void *stream = conf->stream;
    sol_norm_args_t args = SOL_NORM_ARGS_INIT;
    args.hidden = job->config.hidden;
    args.dtype = job->config.dtype;
    args.shards = job->config.shards;
    REFUSED(SOL_ERR_STATE, sol_norm_wait(job->halves, &args, stream));
    REFUSED(SOL_ERR_ARGUMENT, sol_norm_start(NULL, &args, stream));
    REFUSED(SOL_ERR_ARGUMENT, sol_norm_wait(NULL, &args, stream));
    REFUSED(SOL_ERR_ARGUMENT, sol_norm_start(job->halves, NULL, stream));
    args.tokens = 1;
    REFUSED(SOL_ERR_ARGUMENT, sol_norm_start(job->halves, &args, stream)); /* no input */
    args.input = &args;
    args.tokens = job->config.max_tokens + 1;
    REFUSED(SOL_ERR_ARGUMENT, sol_norm_start(job->halves, &args, stream));
    args.tokens = 1, args.hidden++;
    REFUSED(SOL_ERR_ARGUMENT, sol_norm_start(job->halves, &args, stream));
    args.hidden--, args.shards ^= SOL_NORM_SHARD_OUTPUT;
    REFUSED(SOL_ERR_ARGUMENT, sol_norm_start(job->halves, &args, stream));
    REFUSED(SOL_OK, sol_group_start());
    args.shards = job->config.shards;
    REFUSED(SOL_ERR_STATE, sol_norm_start(job->halves, &args, stream));
    REFUSED(SOL_OK, sol_group_end());
    while (job->started < depth_of(job))
        if (!start(conf, job))
            return false;
    args = half_of(job, 0)->args;
    REFUSED(SOL_ERR_STATE, sol_norm_start(job->halves, &args, stream));
    args.tokens = args.tokens ? 0 : 1, args.input = &args;
    REFUSED(SOL_ERR_ARGUMENT, sol_norm_wait(job->halves, &args, stream));
    args = half_of(job, 0)->args;
    args.norm = (sol_norm_t)7;
    REFUSED(SOL_ERR_ARGUMENT, sol_norm_wait(job->halves, &args, stream));
    while (job->waited < job->started)
        if (!finish(conf, job))
            return false;
    REFUSED(SOL_ERR_STATE, sol_norm_wait(job->halves, &args, stream));
    return true;
}

/* What was started is dropped with the handle, and nothing else suffers. */
static bool destroyed_between(conf_t *conf, job_t *job)
{
    half_t *half = half_of(job, job->started);
    bool good = start(conf, job) && conf->device->sync(conf->stream) && conf_barrier(conf) &&
                call(conf, sol_norm_destroy(job->halves));
    conf->device->free(half->memory);
    free(half->got);
    norm_image_free(&half->image);
    return good;
}

static void case_halves_arguments(conf_t *conf)
{
    job_t job;
    refused_configs(conf);
    if (!open_job(conf, &job, 2000) || !refused_halves(conf, &job) ||
        !destroyed_between(conf, &job) || !open_job(conf, &job, 2000) || !start(conf, &job) ||
        !finish(conf, &job)) {
        stop(conf);
        return;
    }
    call(conf, sol_norm_destroy(job.halves));
    call(conf, sol_norm_destroy(NULL));
    conf_barrier(conf);
}

const conf_case_t conf_cases_halves[] = {
    {.name = "halves",
     .run = case_halves,
     .ranks = {N(3), N(1) | N(2) | N(5) | N(8), CONF_ALL},
     .threads = {N(2), N(4), CONF_ALL}},
    {.name = "halves-two",
     .run = case_halves_two,
     .ranks = {N(2), N(2) | N(3), CONF_ALL},
     .threads = {0, 0, CONF_ALL}},
    {.name = "halves-epoch",
     .run = case_halves,
     .ranks = {0, N(2), CONF_ALL},
     .threads = {0, 0, CONF_ALL},
     .epoch = 0xfffffffcu}, /* an escape word has 62 bits of it, which never wrap */
    {.name = "halves-arguments",
     .run = case_halves_arguments,
     .ranks = {N(2), N(1) | N(3), CONF_ALL},
     .threads = {0, 0, CONF_ALL}},
    {.name = NULL},
};
