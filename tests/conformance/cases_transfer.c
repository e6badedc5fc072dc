/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases_transfer.c: the calls of solccl/transfer.h. Every rank writes to every
 * rank; all know from the seed what everybody writes, so that a rank can tell every
 * byte of its regions, also those that must not have changed.
 */
#include "conformance/conf.h"

#include <solccl/transfer.h>
#include <stdlib.h>
#include <string.h>

#define N(n) CONF_N(n)
#define REGIONS 2
#define COUNTERS 5
#define WRITES 40
#define PART ((size_t)48 << 10) /* of a region, for one source */
#define PAGES 24                /* of a part, in the paged form */

typedef struct arena {
    unsigned char *region[REGIONS];    /* the device's; each nranks parts */
    unsigned char *source;             /* PART */
    unsigned char *image, *got, *host; /* the host's */
    size_t bytes;                      /* of a region */
    sol_transfer_t transfer;
    uint64_t seen[COUNTERS][TEAM_MAX_RANKS];
} arena_t;

/* What one source does in one round. */
typedef struct plan {
    bool paged;
    int counter;
    sol_count_t count;
    size_t n;
    sol_write_t writes[WRITES]; /* from: an offset in the source */
    sol_pages_t pages[2];
    uint32_t from_pages[2][PAGES], to_pages[2][PAGES];
} plan_t;

static size_t below(uint64_t *random, size_t n)
{
    return (size_t)(team_random(random) % n);
}

/* Bytes of the source memory of `rank` in a round. */
static void fill_source(unsigned char *to, int rank, uint64_t round)
{
    for (size_t i = 0; i < PART; i += 8) {
        uint64_t x = team_mix(round * 1000003 + (uint64_t)rank * 7919 + i);
        memcpy(to + i, &x, 8);
    }
}

static void plan_writes(plan_t *p, uint64_t *random, int source, int nranks)
{
    size_t cursor[TEAM_MAX_RANKS][REGIONS] = {{0}};
    p->n = below(random, WRITES + 1);
    for (size_t i = 0; i < p->n; i++) {
        sol_write_t *w = &p->writes[i];
        w->peer = (int)below(random, (size_t)nranks);
        w->region = (int)below(random, REGIONS);
        size_t *at = &cursor[w->peer][w->region];
        size_t most = below(random, 4) ? 700 : 9000, gap = below(random, 3) ? below(random, 40) : 0;
        w->bytes = below(random, 8) ? below(random, most) : 0;
        if (below(random, 3) == 0) /* as in usual programs */
            w->bytes &= ~(size_t)63, gap = (size_t) - (ptrdiff_t)*at & 63;
        gap = *at + gap <= PART ? gap : 0;
        w->bytes = *at + gap + w->bytes <= PART ? w->bytes : 0;
        w->offset = (size_t)source * PART + *at + gap;
        w->from = (const void *)(uintptr_t)below(random, PART - w->bytes + 1);
        *at += gap + w->bytes;
    }
}

static void shuffle(uint32_t *pages, uint64_t *random)
{
    for (uint32_t i = 0; i < PAGES; i++)
        pages[i] = i;
    for (size_t i = PAGES - 1; i > 0; i--) {
        size_t k = below(random, i + 1);
        uint32_t x = pages[i];
        pages[i] = pages[k];
        pages[k] = x;
    }
}

static void plan_pages(plan_t *p, uint64_t *random, int source, int nranks)
{
    static const size_t sizes[] = {2048, 1024, 1000, 16, 0, 4};
    p->n = below(random, 3);
    for (size_t i = 0; i < p->n; i++) {
        sol_pages_t init = SOL_PAGES_INIT, *s = &p->pages[i];
        *s = init;
        s->peer = (int)below(random, (size_t)nranks);
        s->region = (int)i; /* the sets do not meet */
        s->page_bytes = sizes[below(random, 6)];
        s->npages = below(random, PAGES + 1);
        s->from_stride = below(random, 2) ? 0 : s->page_bytes;
        s->to_stride = s->page_bytes && s->page_bytes < 2048 && below(random, 2)
                           ? s->page_bytes + below(random, 9)
                           : 0;
        s->offset = (size_t)source * PART;
        shuffle(p->from_pages[i], random);
        shuffle(p->to_pages[i], random);
        s->from_pages = below(random, 3) ? p->from_pages[i] : NULL;
        s->to_pages = below(random, 3) ? p->to_pages[i] : NULL;
    }
}

static void make_plan(plan_t *p, uint64_t seed, int source, int nranks)
{
    uint64_t random = team_mix(seed * 64 + (uint64_t)source);
    memset(p, 0, sizeof(*p));
    p->paged = below(&random, 2);
    p->counter = below(&random, 6) ? (int)below(&random, COUNTERS) : 0;
    p->count = below(&random, 2) ? SOL_COUNT_WRITES : SOL_COUNT_BYTES;
    if (p->paged)
        plan_pages(p, &random, source, nranks);
    else
        plan_writes(p, &random, source, nranks);
}

/* Bytes [offset, +bytes) of region `region` of `me` come from the source's byte `from`. */
typedef void (*each_fn)(arena_t *a, int region, size_t offset, size_t from, size_t bytes);

/* Calls `each` (may be NULL) for what the plan brings `me`, and says how much its counter grows. */
static uint64_t follow(arena_t *a, const plan_t *p, int me, int region, each_fn each)
{
    uint64_t grown = 0;
    for (size_t i = 0; i < p->n; i++) {
        const sol_write_t *w = &p->writes[i];
        const sol_pages_t *s = &p->pages[p->paged ? i : 0]; /* (fewer of these than writes) */
        size_t bytes = p->paged ? s->page_bytes : w->bytes;
        if ((p->paged ? s->peer : w->peer) != me)
            continue;
        for (size_t k = 0; k < (p->paged ? s->npages : 1); k++) {
            size_t to = w->offset, from = (size_t)(uintptr_t)w->from;
            if (p->paged) {
                to = s->to_pages ? s->to_pages[k] : k;
                from = s->from_pages ? s->from_pages[k] : k;
                to = s->offset + to * (s->to_stride ? s->to_stride : bytes);
                from *= s->from_stride ? s->from_stride : bytes;
            }
            grown += p->count == SOL_COUNT_WRITES ? 1 : bytes;
            if (each && (p->paged ? s->region : w->region) == region)
                each(a, region, to, from, bytes);
        }
    }
    return grown;
}

static void into_image(arena_t *a, int region, size_t offset, size_t from, size_t bytes)
{
    (void)region;
    memcpy(a->image + offset, a->host + from, bytes);
}

/* ---------------------------------------------------------------------------- memory */

static bool make_arena(conf_t *conf, arena_t *a, bool symmetric)
{
    sol_region_t regions[REGIONS];
    memset(a, 0, sizeof(*a));
    a->bytes = PART * (size_t)conf->nranks + 64;
    a->image = malloc(a->bytes);
    a->got = malloc(a->bytes);
    a->host = malloc(PART);
    a->source = conf->device->alloc(PART + 64);
    if (!TEAM_CHECK(conf->team, conf->rank, a->image && a->got && a->host && a->source))
        return false;
    for (int i = 0; i < REGIONS; i++) {
        void *memory = NULL;
        if (symmetric || conf->device->backend != SOL_BACKEND_CPU) {
            if (!TEAM_OK(conf->team, conf->rank, sol_mem_alloc(conf->comm, a->bytes, &memory),
                         conf->comm))
                return false;
        } else {
            memory = conf->device->alloc(a->bytes);
        }
        a->region[i] = memory;
        regions[i].memory = a->region[i] + 13 * i; /* (a region need not begin anywhere special) */
        regions[i].bytes = a->bytes - 64;
        a->region[i] = regions[i].memory;
    }
    sol_transfer_config_t config = SOL_TRANSFER_CONFIG_INIT;
    config.regions = regions;
    config.nregions = REGIONS;
    config.counters = COUNTERS;
    return TEAM_OK(conf->team, conf->rank, sol_transfer_create(conf->comm, &config, &a->transfer),
                   conf->comm);
}

static void drop_arena(conf_t *conf, arena_t *a, bool symmetric)
{
    TEAM_OK(conf->team, conf->rank, sol_transfer_destroy(a->transfer), conf->comm);
    for (int i = 0; i < REGIONS && a->region[i]; i++) {
        void *memory = a->region[i] - 13 * i;
        if (symmetric || conf->device->backend != SOL_BACKEND_CPU)
            TEAM_OK(conf->team, conf->rank, sol_mem_free(conf->comm, memory), conf->comm);
        else
            conf->device->free(memory);
    }
    conf->device->free(a->source);
    free(a->image);
    free(a->got);
    free(a->host);
}

/* ---------------------------------------------------------------------------- rounds */

static bool send(conf_t *conf, arena_t *a, uint64_t round)
{
    plan_t p;
    make_plan(&p, round, conf->rank, conf->nranks);
    fill_source(a->host, conf->rank, round);
    conf->device->upload(a->source, a->host, PART);
    for (size_t i = 0; i < p.n && !p.paged; i++)
        p.writes[i].from = a->source + (uintptr_t)p.writes[i].from;
    for (size_t i = 0; i < p.n && p.paged; i++)
        p.pages[i].from = a->source;
    sol_status_t status =
        p.paged
            ? sol_transfer_write_pages(p.pages, p.n, p.counter, p.count, a->transfer, conf->stream)
            : sol_transfer_write(p.writes, p.n, p.counter, p.count, a->transfer, conf->stream);
    return TEAM_OK(conf->team, conf->rank, status, conf->comm);
}

/* In one of the ways there are: on the stream, on the host, or by looking. */
static bool await(conf_t *conf, arena_t *a, int counter, int from, uint64_t value)
{
    uint64_t now = 0;
    switch (team_random(&conf->own_random) % 3) {
    case 0:
        return TEAM_OK(conf->team, conf->rank,
                       sol_transfer_await(a->transfer, counter, from, value, conf->stream),
                       conf->comm) &&
               conf->device->sync(conf->stream);
    case 1:
        return TEAM_OK(conf->team, conf->rank,
                       sol_transfer_wait(a->transfer, counter, from, value, -1), conf->comm);
    default:
        do {
            if (!TEAM_OK(conf->team, conf->rank,
                         sol_transfer_count(a->transfer, counter, from, &now), conf->comm))
                return false;
            if (now < value)
                team_sleep_us(20);
        } while (now < value && atomic_load(&conf->team->failures) == 0);
        return TEAM_CHECK(conf->team, conf->rank, now == value);
    }
}

static bool receive(conf_t *conf, arena_t *a, uint64_t round)
{
    plan_t p;
    uint64_t total[COUNTERS] = {0};
    for (int r = 0; r < conf->nranks; r++) {
        make_plan(&p, round, r, conf->nranks);
        a->seen[p.counter][r] += follow(a, &p, conf->rank, 0, NULL);
        if (r % 2 == 0 && !await(conf, a, p.counter, r, a->seen[p.counter][r]))
            return false;
    }
    for (int c = 0; c < COUNTERS; c++) { /* and all together */
        for (int r = 0; r < conf->nranks; r++)
            total[c] += a->seen[c][r];
        if (!await(conf, a, c, SOL_ANY_RANK, total[c]))
            return false;
    }
    for (int i = 0; i < REGIONS; i++) {
        memset(a->image, 0xa5, a->bytes);
        for (int r = 0; r < conf->nranks; r++) {
            make_plan(&p, round, r, conf->nranks);
            fill_source(a->host, r, round);
            follow(a, &p, conf->rank, i, into_image);
        }
        conf->device->download(a->got, a->region[i], a->bytes - 64);
        for (size_t b = 0; b < a->bytes - 64; b++)
            if (a->got[b] != a->image[b]) {
                team_fail(conf->team, conf->rank, "region %d: byte %zu is %#x, expected %#x", i, b,
                          a->got[b], a->image[b]);
                return false;
            }
    }
    return true;
}

static void rounds(conf_t *conf, bool symmetric)
{
    static const unsigned counts[] = {12, 40, 600};
    arena_t a;
    bool good = make_arena(conf, &a, symmetric);
    for (unsigned i = 0; good && i < counts[conf->options->level]; i++) {
        uint64_t round = team_random(&conf->random) >> 16;
        snprintf(conf->doing, CONF_DOING, "transfer round %u, seed %#llx", i,
                 (unsigned long long)round);
        for (int k = 0; k < REGIONS; k++) {
            memset(a.image, 0xa5, a.bytes);
            conf->device->upload(a.region[k], a.image, a.bytes - 64);
        }
        good = conf_barrier(conf) && conf->device->sync(conf->stream) && send(conf, &a, round) &&
               receive(conf, &a, round) && conf->device->sync(conf->stream) && conf_barrier(conf) &&
               conf->device->sync(conf->stream);
        conf->calls++;
    }
    conf->stopped = !good;
    if (good)
        drop_arena(conf, &a, symmetric);
}

static void case_transfer(conf_t *conf)
{
    rounds(conf, true);
}

/* Memory of the caller's, and regions of sol_mem_alloc beside it. */
static void case_transfer_heap(conf_t *conf)
{
    rounds(conf, false);
}

/* One write of `bytes` to the next rank's memory at `at`, and what the previous one's brought. */
static bool large_write(conf_t *conf, sol_transfer_t transfer, const void *source, size_t bytes,
                        unsigned at, const void *memory)
{
    const int to = (conf->rank + 1) % conf->nranks,
              from = (conf->rank + conf->nranks - 1) % conf->nranks;
    const sol_write_t w = {source, bytes, at, to, 0};
    size_t wrong = 0;
    TEAM_OK(conf->team, conf->rank,
            sol_transfer_write(&w, 1, 0, SOL_COUNT_WRITES, transfer, conf->stream), conf->comm);
    if (!TEAM_OK(conf->team, conf->rank,
                 sol_transfer_await(transfer, 0, from, at + 1, conf->stream), conf->comm) ||
        !conf->device->sync(conf->stream))
        return false;
    unsigned char *host = malloc(bytes);
    if (host == NULL) {
        team_fail(conf->team, conf->rank, "no memory");
        return false;
    }
    conf->device->download(host, (const char *)memory + at, bytes);
    for (size_t b = 0; b < bytes; b++)
        wrong += host[b] != (unsigned char)team_mix(b + (uint64_t)from);
    free(host);
    TEAM_CHECK(conf->team, conf->rank, wrong == 0);
    return conf_barrier(conf) && conf->device->sync(conf->stream);
}

static void upload_large(conf_t *conf, void *source, size_t bytes)
{
    unsigned char *host = malloc(bytes);
    if (host == NULL) {
        team_fail(conf->team, conf->rank, "no memory");
        return;
    }
    for (size_t i = 0; i < bytes; i++)
        host[i] = (unsigned char)team_mix(i + (uint64_t)conf->rank);
    conf->device->upload(source, host, bytes);
    free(host);
}

/* Large writes, of which one goes through several CTAs, or past the cache. */
static void case_transfer_large(conf_t *conf)
{
    const size_t bytes = ((size_t)5 << 20) + 3;
    void *memory = NULL, *source = conf->device->alloc(bytes);
    sol_transfer_t transfer;
    if (!TEAM_OK(conf->team, conf->rank, sol_mem_alloc(conf->comm, bytes + 4, &memory), conf->comm))
        return;
    sol_region_t region = {memory, bytes + 4};
    sol_transfer_config_t config = SOL_TRANSFER_CONFIG_INIT;
    config.regions = &region, config.nregions = 1, config.counters = 1;
    if (!TEAM_OK(conf->team, conf->rank, sol_transfer_create(conf->comm, &config, &transfer),
                 conf->comm))
        return;
    upload_large(conf, source, bytes);
    for (unsigned i = 0; i < 4; i++)
        if (!large_write(conf, transfer, source, bytes - i, i, memory))
            return;
    TEAM_STATUS(conf->team, conf->rank, sol_comm_sleep(conf->comm, SOL_SLEEP_KEEP), SOL_ERR_STATE,
                conf->comm); /* while it is open */
    TEAM_OK(conf->team, conf->rank, sol_transfer_destroy(transfer), conf->comm);
    if (TEAM_OK(conf->team, conf->rank, sol_comm_sleep(conf->comm, SOL_SLEEP_KEEP), conf->comm))
        TEAM_OK(conf->team, conf->rank, sol_comm_wake(conf->comm), conf->comm);
    TEAM_OK(conf->team, conf->rank, sol_mem_free(conf->comm, memory), conf->comm);
    conf->device->free(source);
}

/* --------------------------------------------------------------------------- refusals */

static void refuse_making(conf_t *conf, void *memory)
{
    sol_transfer_t t = NULL;
    sol_region_t region = {memory, 100};
    sol_transfer_config_t config = SOL_TRANSFER_CONFIG_INIT;
#define REFUSED(change, status)                                                                    \
    do {                                                                                           \
        sol_transfer_config_t bad = config;                                                        \
        change;                                                                                    \
        TEAM_STATUS(conf->team, conf->rank, sol_transfer_create(conf->comm, &bad, &t), status,     \
                    conf->comm);                                                                   \
    } while (0)
    REFUSED(bad.size = 3, SOL_ERR_ARGUMENT);
    REFUSED(bad.counters = -1, SOL_ERR_ARGUMENT);
    REFUSED(bad.counters = SOL_TRANSFER_MAX_COUNTERS + 1, SOL_ERR_ARGUMENT);
    REFUSED(bad.nregions = 1, SOL_ERR_ARGUMENT);
    REFUSED(bad.nregions = -1, SOL_ERR_ARGUMENT);
    region.memory = NULL;
    REFUSED((bad.nregions = 1, bad.regions = &region), SOL_ERR_ARGUMENT);
    if (conf->nranks > 1)
        REFUSED(bad.counters = 1 + conf->rank, SOL_ERR_MISMATCH);
    TEAM_STATUS(conf->team, conf->rank, sol_transfer_create(conf->comm, &config, NULL),
                SOL_ERR_ARGUMENT, conf->comm);
#undef REFUSED
}

static void refuse_writes(conf_t *conf, sol_transfer_t t, void *memory)
{
    uint32_t pages[2] = {0, 24};
    uint64_t value;
#define WRITE(status, ...)                                                                         \
    do {                                                                                           \
        sol_write_t w = __VA_ARGS__;                                                               \
        TEAM_STATUS(conf->team, conf->rank,                                                        \
                    sol_transfer_write(&w, 1, 0, SOL_COUNT_WRITES, t, conf->stream), status,       \
                    conf->comm);                                                                   \
    } while (0)
    WRITE(SOL_ERR_ARGUMENT, {memory, 1, 0, -1, 0});
    WRITE(SOL_ERR_ARGUMENT, {memory, 1, 0, conf->nranks, 0});
    WRITE(SOL_ERR_ARGUMENT, {memory, 1, 0, 0, 1});
    WRITE(SOL_ERR_ARGUMENT, {memory, 1, 0, 0, -1});
    WRITE(SOL_ERR_ARGUMENT, {memory, 1, 100, 0, 0});
    WRITE(SOL_ERR_ARGUMENT, {memory, 101, 0, 0, 0});
    WRITE(SOL_ERR_ARGUMENT, {memory, 2, SIZE_MAX, 0, 0});
    WRITE(SOL_ERR_ARGUMENT, {memory, SIZE_MAX, 2, 0, 0});
    WRITE(SOL_ERR_ARGUMENT, {NULL, 1, 0, 0, 0});
    WRITE(SOL_OK, {NULL, 0, 100, 0, 0}); /* the end itself */
#undef WRITE
    sol_pages_t p = SOL_PAGES_INIT;
    p.from = (char *)memory + 2048, p.page_bytes = 4, p.npages = 25;
    p.peer = (conf->rank + 1) % conf->nranks; /* each region has one writer */
    TEAM_OK(conf->team, conf->rank,
            sol_transfer_write_pages(&p, 1, 0, SOL_COUNT_WRITES, t, conf->stream), conf->comm);
    p.npages = 26;
    TEAM_STATUS(conf->team, conf->rank,
                sol_transfer_write_pages(&p, 1, 0, SOL_COUNT_WRITES, t, conf->stream),
                SOL_ERR_ARGUMENT, conf->comm);
    p.npages = 2, p.to_pages = pages, p.offset = 1;
    TEAM_STATUS(conf->team, conf->rank,
                sol_transfer_write_pages(&p, 1, 0, SOL_COUNT_WRITES, t, conf->stream),
                SOL_ERR_ARGUMENT, conf->comm);
    p.offset = 0, p.to_stride = SIZE_MAX / 2;
    TEAM_STATUS(conf->team, conf->rank,
                sol_transfer_write_pages(&p, 1, 0, SOL_COUNT_WRITES, t, conf->stream),
                SOL_ERR_ARGUMENT, conf->comm);
    TEAM_STATUS(conf->team, conf->rank,
                sol_transfer_write_pages(&p, 1, 1, SOL_COUNT_WRITES, t, conf->stream),
                SOL_ERR_ARGUMENT, conf->comm);
    TEAM_STATUS(conf->team, conf->rank, sol_transfer_count(t, 1, 0, &value), SOL_ERR_ARGUMENT,
                conf->comm);
    TEAM_STATUS(conf->team, conf->rank, sol_transfer_count(t, 0, conf->nranks, &value),
                SOL_ERR_ARGUMENT, conf->comm);
    TEAM_STATUS(conf->team, conf->rank, sol_transfer_await(t, 0, -2, 1, conf->stream),
                SOL_ERR_ARGUMENT, conf->comm);
}

/* What is wrong is refused, and named; a wait that is too short spoils nothing. */
static void case_transfer_arguments(conf_t *conf)
{
    void *memory = NULL;
    sol_transfer_t t = NULL, none = NULL;
    if (!TEAM_OK(conf->team, conf->rank, sol_mem_alloc(conf->comm, 4096, &memory), conf->comm))
        return;
    refuse_making(conf, memory);
    sol_region_t region = {memory, 100};
    sol_transfer_config_t config = SOL_TRANSFER_CONFIG_INIT;
    if (!TEAM_OK(conf->team, conf->rank, sol_transfer_create(conf->comm, &config, &none),
                 conf->comm)) /* of nothing */
        return;
    config.regions = &region, config.nregions = 1, config.counters = 1;
    if (!TEAM_OK(conf->team, conf->rank, sol_transfer_create(conf->comm, &config, &t), conf->comm))
        return;
    uint64_t value = 99;
    TEAM_OK(conf->team, conf->rank, sol_transfer_count(t, 0, SOL_ANY_RANK, &value), conf->comm);
    conf_barrier(conf); /* before the first write to anybody */
    TEAM_STATUS(conf->team, conf->rank, sol_transfer_wait(t, 0, SOL_ANY_RANK, 1000000, 0),
                SOL_ERR_TIMEOUT, conf->comm);
    TEAM_STATUS(conf->team, conf->rank, sol_transfer_wait(t, 0, 0, 1000000, 30), SOL_ERR_TIMEOUT,
                conf->comm);
    TEAM_CHECK(conf->team, conf->rank, value == 0);
    refuse_writes(conf, t, memory);
    TEAM_OK(conf->team, conf->rank, sol_group_start(), NULL);
    TEAM_STATUS(conf->team, conf->rank,
                sol_transfer_write(NULL, 0, 0, SOL_COUNT_WRITES, t, conf->stream), SOL_ERR_STATE,
                conf->comm);
    TEAM_OK(conf->team, conf->rank, sol_group_end(), NULL);
    /* all ranks have written nothing to rank 0, and its neighbour 25 pages */
    if (conf->rank == 0)
        TEAM_OK(conf->team, 0,
                sol_transfer_wait(t, 0, SOL_ANY_RANK, 25 + (uint64_t)conf->nranks, -1), conf->comm);
    conf->device->sync(conf->stream);
    conf_barrier(conf);
    TEAM_OK(conf->team, conf->rank, sol_transfer_destroy(t), conf->comm);
    TEAM_STATUS(conf->team, conf->rank, sol_transfer_destroy(t), SOL_ERR_ARGUMENT, NULL);
    TEAM_STATUS(conf->team, conf->rank, sol_transfer_count(NULL, 0, 0, &value), SOL_ERR_ARGUMENT,
                NULL);
    TEAM_OK(conf->team, conf->rank, sol_mem_free(conf->comm, memory), conf->comm);
    conf_barrier(conf); /* `none` goes with the communicator */
}

const conf_case_t conf_cases_transfer[] = {
    {.name = "transfer",
     .run = case_transfer,
     .ranks = {N(2) | N(3), N(1) | N(2) | N(3) | N(5) | N(8), CONF_ALL},
     .threads = {N(3), N(4), CONF_ALL}},
    {.name = "transfer-heap",
     .run = case_transfer_heap,
     .ranks = {N(2), N(1) | N(2) | N(5), CONF_ALL},
     .threads = {N(3), N(4), CONF_ALL}},
    {.name = "transfer-large",
     .run = case_transfer_large,
     .ranks = {0, N(1) | N(2), CONF_ALL},
     .threads = {0, N(2), CONF_ALL}},
    {.name = "transfer-arguments",
     .run = case_transfer_arguments,
     .ranks = {N(2), N(1) | N(2) | N(3), CONF_ALL},
     .threads = {0, N(2), CONF_ALL}},
    {.name = NULL},
};
