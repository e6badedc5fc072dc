/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases_moe.c: solccl/moe.h against the reference: every config, with handles that
 * are used again and again, in one call and in halves, two at once, between other
 * collectives; and what must be refused.
 */
#include "conformance/conf.h"
#include "conformance/moe_reference.h"

#include <stdlib.h>
#include <string.h>

#define N(n) CONF_N(n)

/* A handle and a case that it is used for. */
typedef struct job {
    sol_moe_t moe;
    moe_case_t c;
    char text[240];
    moe_image_t image;
    unsigned char *memory, *base, *got;
    conf_spread_t spread;
    sol_moe_dispatch_args_t dispatch;
    sol_moe_combine_args_t combine;
} job_t;

static bool call(conf_t *conf, sol_status_t status)
{
    return TEAM_OK(conf->team, conf->rank, status, conf->comm);
}

static bool open_job(conf_t *conf, job_t *job, size_t most)
{
    sol_moe_config_t config;
    moe_config_draw(&config, &conf->random, most);
    memset(job, 0, sizeof(*job));
    moe_case_draw(&job->c, &config, conf->nranks, &conf->random);
    return call(conf, sol_moe_create(&job->moe, &config, conf->comm));
}

/* A new case of the same handle, its arrays uploaded. */
static bool prepare(conf_t *conf, job_t *job)
{
    const sol_moe_config_t config = job->c.config;
    moe_case_draw(&job->c, &config, conf->nranks, &conf->random);
    moe_case_describe(&job->c, job->text, sizeof(job->text));
    snprintf(conf->doing, CONF_DOING, "%.180s, seed %#llx", job->text,
             (unsigned long long)job->c.seed);
    if (!moe_image_make(&job->image, &job->c, conf->rank))
        return TEAM_CHECK(conf->team, conf->rank, !"memory");
    job->memory = conf->device->alloc(job->image.bytes + 16);
    job->base = (unsigned char *)(((uintptr_t)job->memory + 15) & ~(uintptr_t)15);
    job->got = malloc(job->image.bytes);
    if (job->memory == NULL || job->got == NULL)
        return TEAM_CHECK(conf->team, conf->rank, !"memory");
    conf->device->upload(job->base, job->image.before, job->image.bytes);
    moe_image_args(&job->image, &job->c, conf->rank, job->base, &job->dispatch, &job->combine);
    const size_t *at = job->image.at;
    const bool good = conf_spread(conf, &job->spread, job->base, at, job->image.size, MOE_ARRAYS);
    conf_spread_args(&job->spread, job->base, at, &job->dispatch, sizeof(job->dispatch));
    conf_spread_args(&job->spread, job->base, at, &job->combine, sizeof(job->combine));
    return good;
}

static bool check(conf_t *conf, job_t *job)
{
    char why[200];
    if (!conf->device->sync(conf->stream))
        return false;
    conf_gather(conf, &job->spread, job->base, job->image.at, job->image.size);
    conf->device->download(job->got, job->base, job->image.bytes);
    bool good = moe_image_check(&job->image, job->got, why, sizeof(why));
    if (!good)
        team_fail(conf->team, conf->rank, "%s, seed %#llx: %s", job->text,
                  (unsigned long long)job->c.seed, why);
    conf->calls++;
    return good;
}

static void finish(conf_t *conf, job_t *job)
{
    conf->device->free(job->memory);
    free(job->got);
    moe_image_free(&job->image);
    job->memory = job->got = NULL;
}

static bool run_job(conf_t *conf, job_t *job, bool halves)
{
    void *stream = conf->stream;
    if (!halves)
        return call(conf, sol_moe_dispatch(job->moe, &job->dispatch, stream)) &&
               call(conf, sol_moe_combine(job->moe, &job->combine, stream));
    return call(conf, sol_moe_dispatch_send(job->moe, &job->dispatch, stream)) &&
           call(conf, sol_moe_dispatch_recv(job->moe, &job->dispatch, stream)) &&
           call(conf, sol_moe_combine_send(job->moe, &job->combine, stream)) &&
           call(conf, sol_moe_combine_recv(job->moe, &job->combine, stream));
}

static void stop(conf_t *conf)
{
    conf->stopped = true;
    atomic_store(&conf->team->stop, 1);
}

/* Configs, each with some cases. */
static void case_moe(conf_t *conf)
{
    static const unsigned counts[] = {6, 14, 600};
    for (unsigned i = 0; i < counts[conf->options->level]; i++) {
        job_t job;
        bool good = open_job(conf, &job, i % 4 ? 3000 : 20000);
        for (int again = 0; again < 3 && good; again++) {
            good = prepare(conf, &job) && run_job(conf, &job, conf->random >> 7 & 1) &&
                   check(conf, &job);
            finish(conf, &job);
            if (good && i % 3 == 0)
                good = conf_barrier(conf);
        }
        if (!good) {
            stop(conf);
            return;
        }
        call(conf, sol_moe_destroy(job.moe));
    }
}

/* Two handles whose halves are interleaved: what one batch computes while the other travels. */
static void case_moe_two(conf_t *conf)
{
    job_t a, b;
    bool good = open_job(conf, &a, 3000) && open_job(conf, &b, 3000);
    for (int again = 0; again < 4 && good; again++) {
        void *stream = conf->stream;
        good = prepare(conf, &a) && prepare(conf, &b) &&
               call(conf, sol_moe_dispatch_send(a.moe, &a.dispatch, stream)) &&
               call(conf, sol_moe_dispatch_send(b.moe, &b.dispatch, stream)) &&
               call(conf, sol_moe_dispatch_recv(a.moe, &a.dispatch, stream)) &&
               call(conf, sol_moe_combine_send(a.moe, &a.combine, stream)) &&
               call(conf, sol_moe_dispatch_recv(b.moe, &b.dispatch, stream)) &&
               call(conf, sol_moe_combine_recv(a.moe, &a.combine, stream)) &&
               call(conf, sol_moe_combine(b.moe, &b.combine, stream)) && check(conf, &a) &&
               check(conf, &b);
        finish(conf, &a);
        finish(conf, &b);
    }
    if (!good) {
        stop(conf);
        return;
    }
    TEAM_STATUS(conf->team, conf->rank, sol_comm_sleep(conf->comm, SOL_SLEEP_KEEP), SOL_ERR_STATE,
                conf->comm); /* while they are open */
    call(conf, sol_moe_destroy(a.moe));
    call(conf, sol_moe_destroy(b.moe));
    call(conf, sol_comm_sleep(conf->comm, SOL_SLEEP_KEEP));
    call(conf, sol_comm_wake(conf->comm));
}

/* A dispatch without a combine, many times; then both. */
static void case_moe_dispatches(conf_t *conf)
{
    job_t job;
    bool good = open_job(conf, &job, 2000);
    for (int again = 0; again < 6 && good; again++) {
        good = prepare(conf, &job) &&
               call(conf, sol_moe_dispatch(job.moe, &job.dispatch, conf->stream));
        for (int more = 0; more < again % 3 && good; more++)
            good = call(conf, sol_moe_dispatch(job.moe, &job.dispatch, conf->stream));
        good = good && call(conf, sol_moe_combine(job.moe, &job.combine, conf->stream)) &&
               check(conf, &job);
        finish(conf, &job);
    }
    if (!good)
        stop(conf);
    else
        call(conf, sol_moe_destroy(job.moe));
}

#define REFUSED(wanted, expression)                                                                \
    TEAM_STATUS(conf->team, conf->rank, expression, wanted, conf->comm)

static void refused_configs(conf_t *conf)
{
    sol_moe_t moe = NULL;
    sol_moe_config_t good = SOL_MOE_CONFIG_INIT, bad;
    good.max_tokens = 4, good.hidden = 64, good.top_k = 2, good.experts = 8;
#define WITH(change)                                                                               \
    do {                                                                                           \
        bad = good;                                                                                \
        change;                                                                                    \
        REFUSED(SOL_ERR_ARGUMENT, sol_moe_create(&moe, &bad, conf->comm));                         \
    } while (0)
    WITH(bad.size = 8);
    WITH(bad.max_tokens = 0);
    WITH(bad.max_tokens = SOL_MOE_MAX_TOKENS + 1);
    WITH(bad.hidden = 0);
    WITH(bad.top_k = 0);
    WITH(bad.top_k = SOL_MOE_MAX_TOP_K + 1);
    WITH(bad.experts = 0);
    WITH(bad.experts = SOL_MOE_MAX_EXPERTS + 1);
    WITH(bad.dtype = SOL_INT8);
    WITH(bad.quant = SOL_QUANT_TOKEN);
    WITH(bad.align = 2);
    WITH(bad.layout = (sol_moe_layout_t)2);
#undef WITH
    REFUSED(SOL_ERR_ARGUMENT, sol_moe_create(NULL, &good, conf->comm));
    REFUSED(SOL_ERR_ARGUMENT, sol_moe_create(&moe, NULL, conf->comm));
    bad = good; /* ranks that want different things */
    bad.experts += conf->rank;
    if (conf->nranks > 1)
        REFUSED(SOL_ERR_MISMATCH, sol_moe_create(&moe, &bad, conf->comm));
    TEAM_CHECK(conf->team, conf->rank, moe == NULL);
}

/* The communicator and the handle stay usable. */
static void case_moe_arguments(conf_t *conf)
{
    job_t job;
    sol_moe_info_t info = {.size = sizeof(info)};
    void *stream = conf->stream;
    refused_configs(conf);
    if (!open_job(conf, &job, 2000) || !prepare(conf, &job)) {
        stop(conf);
        return;
    }
    call(conf, sol_moe_query(job.moe, &info));
    TEAM_CHECK(conf->team, conf->rank,
               info.first_expert == moe_first(&job.c, conf->rank) &&
                   info.local_experts == moe_local(&job.c, conf->rank));
    sol_moe_dispatch_args_t d = job.dispatch;
    sol_moe_combine_args_t c = job.combine;
    REFUSED(SOL_ERR_STATE, sol_moe_combine(job.moe, &c, stream));
    REFUSED(SOL_ERR_STATE, sol_moe_dispatch_recv(job.moe, &d, stream));
    d.tokens = job.c.config.max_tokens + 1;
    REFUSED(SOL_ERR_ARGUMENT, sol_moe_dispatch(job.moe, &d, stream));
    d.tokens = 1, d.x = NULL;
    REFUSED(SOL_ERR_ARGUMENT, sol_moe_dispatch(job.moe, &d, stream));
    d = job.dispatch;
    d.idx_dtype = SOL_UINT8;
    REFUSED(SOL_ERR_ARGUMENT, sol_moe_dispatch(job.moe, &d, stream));
    d = job.dispatch;
    d.size = 0;
    REFUSED(SOL_ERR_ARGUMENT, sol_moe_dispatch(job.moe, &d, stream));
    d.size = sizeof(d), d.recv_counts = NULL;
    if (info.local_experts > 0)
        REFUSED(SOL_ERR_ARGUMENT, sol_moe_dispatch(job.moe, &d, stream));
    REFUSED(SOL_ERR_ARGUMENT, sol_moe_dispatch(job.moe, NULL, stream));
    REFUSED(SOL_ERR_ARGUMENT, sol_moe_dispatch(NULL, &job.dispatch, stream));
    call(conf, sol_moe_dispatch(job.moe, &job.dispatch, stream));
    REFUSED(SOL_ERR_STATE, sol_moe_combine_recv(job.moe, &c, stream));
    c.tokens++;
    REFUSED(SOL_ERR_ARGUMENT, sol_moe_combine(job.moe, &c, stream));
    call(conf, sol_moe_combine(job.moe, &job.combine, stream));
    REFUSED(SOL_ERR_STATE, sol_moe_combine(job.moe, &job.combine, stream));
    if (!check(conf, &job))
        stop(conf);
    finish(conf, &job);
    call(conf, sol_moe_destroy(job.moe));
    call(conf, sol_moe_destroy(NULL));
    conf_barrier(conf);
}

const conf_case_t conf_cases_moe[] = {
    {.name = "moe",
     .run = case_moe,
     .ranks = {N(3), N(1) | N(2) | N(5) | N(8), CONF_ALL},
     .threads = {N(2), N(4), CONF_ALL}},
    {.name = "moe-two",
     .run = case_moe_two,
     .ranks = {0, N(2) | N(3), CONF_ALL},
     .threads = {N(2), 0, CONF_ALL}},
    {.name = "moe-dispatches",
     .run = case_moe_dispatches,
     .ranks = {0, N(3), CONF_ALL},
     .threads = {0, 0, CONF_ALL}},
    {.name = "moe-arguments",
     .run = case_moe_arguments,
     .ranks = {N(2), N(1) | N(3), CONF_ALL},
     .threads = {0, 0, CONF_ALL}},
    {.name = NULL},
};
