/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases_data.c: every function gives the right bits: types, operations, sizes, offsets, roots,
 * switches of algorithm, large and odd counts, wrapping counters, load and skew.
 */
#include "conformance/conf.h"

#include <stdlib.h>
#include <string.h>

#define PREMUL SOL_REDOP_COUNT /* in loops over operations: one more */

static bool level_is(const conf_t *conf, conf_level_t level)
{
    return conf->options->level == level;
}

/* Counts whose buffers grow with the number of ranks are kept to `elements` in all. */
static size_t fit(const conf_t *conf, sol_func_t func, size_t count, size_t elements)
{
    bool grows = func == SOL_FUNC_ALL_GATHER || func == SOL_FUNC_REDUCE_SCATTER ||
                 func == SOL_FUNC_ALL_TO_ALL || func == SOL_FUNC_ALL_TO_ALL_V ||
                 func == SOL_FUNC_GATHER || func == SOL_FUNC_SCATTER;
    if (grows && count * (size_t)conf->nranks > elements)
        return elements / (size_t)conf->nranks;
    return count;
}

/* A call whose free choices (root, offsets, in place, ...) rotate with `turn`, so that a loop over
 * the main ones meets many combinations of the others. */
static conf_call_t rotate(const conf_t *conf, sol_func_t func, sol_dtype_t dtype, int op,
                          size_t count, unsigned turn)
{
    uint64_t h = team_mix(turn);
    conf_call_t call = {.func = func,
                        .dtype = dtype,
                        .op = op == PREMUL ? SOL_SUM : (sol_redop_t)op,
                        .premul = op == PREMUL,
                        .count = count,
                        .root = (int)(turn % (unsigned)conf->nranks),
                        .send_offset = (h & 1) ? (unsigned)(h >> 8) % 16 : 0,
                        .recv_offset = (h & 2) ? (unsigned)(h >> 16) % 16 : 0,
                        .in_place = (h >> 24) % 3 == 0,
                        .null_if_empty = (h >> 25) % 2,
                        .kind = (ref_kind_t)((h >> 32) % REF_KIND_COUNT),
                        .seed = conf->options->seed + turn};
    return call;
}

/* All functions x types x operations, at a few sizes. */
static void case_matrix(conf_t *conf)
{
    static const size_t counts[] = {1, 0, 3, 2, 17, 64, 257, 1031};
    size_t ncounts = level_is(conf, CONF_QUICK) ? 5 : 8;
    unsigned turn = 0;
    for (const sol_func_t *func = conf_funcs; *func != SOL_FUNC_COUNT; func++)
        for (int dtype = 0; dtype < SOL_DTYPE_COUNT; dtype++)
            for (int op = 0; op <= (conf_func_reduces(*func) ? PREMUL : 0); op++)
                for (size_t i = 0; i < ncounts; i++) {
                    conf_call_t call =
                        rotate(conf, *func, (sol_dtype_t)dtype, op, counts[i], turn++);
                    if (!conf_perform(conf, &call))
                        return;
                }
}

/* All roots, small and not. */
static void case_roots(conf_t *conf)
{
    static const size_t counts[] = {1, 100, 5003, 100003};
    unsigned turn = 0;
    for (const sol_func_t *func = conf_funcs; *func != SOL_FUNC_COUNT; func++)
        for (int root = 0; root < conf->nranks; root++)
            for (size_t i = 0; i < 4; i++) {
                conf_call_t call =
                    rotate(conf, *func, SOL_FLOAT32, SOL_SUM, counts[i] / (i + 1), turn++);
                call.root = root;
                if (conf_func_rooted(*func) && !conf_perform(conf, &call))
                    return;
            }
}

/* All functions at every small count, and at odd, prime and round ones. */
static void case_sizes(conf_t *conf)
{
    static const sol_dtype_t dtypes[] = {SOL_FLOAT32, SOL_BFLOAT16, SOL_INT8, SOL_FLOAT64};
    static const size_t large[] = {131,   191,   255,   256,    257,    509,    511,    512,
                                   513,   1021,  1023,  1024,   1025,   2039,   2048,   4093,
                                   4096,  8191,  8192,  16381,  16384,  32749,  32768,  65521,
                                   65536, 65537, 99991, 131071, 131072, 262139, 524287, 1048573};
    size_t small = level_is(conf, CONF_QUICK) ? 20 : 130, step = level_is(conf, CONF_QUICK) ? 5 : 1;
    unsigned turn = 0;
    for (const sol_func_t *func = conf_funcs; *func != SOL_FUNC_COUNT; func++)
        for (size_t d = 0; d < 4; d++)
            for (size_t i = 0; i < small + sizeof(large) / sizeof(large[0]);
                 i += i < small ? 1 : step) {
                size_t count = i < small ? i : fit(conf, *func, large[i - small], 262144);
                /* The large ones, for each function, in one type. */
                if (count > 20000 && d != (size_t)*func % 4)
                    continue;
                conf_call_t call = rotate(conf, *func, dtypes[d], SOL_SUM, count, turn++);
                if (!conf_perform(conf, &call))
                    return;
            }
}

/* Every byte offset 0-15 of source and destination. */
static void case_offsets(conf_t *conf)
{
    static const sol_dtype_t dtypes[] = {SOL_FLOAT32, SOL_BFLOAT16, SOL_UINT8, SOL_INT64};
    static const size_t counts[] = {1, 7, 33, 130, 1009, 5003, 20011};
    size_t ncounts = level_is(conf, CONF_QUICK) ? 4 : 7;
    unsigned turn = 0;
    for (const sol_func_t *func = conf_funcs; *func != SOL_FUNC_COUNT; func++)
        for (unsigned offsets = 0; offsets < 256; offsets += level_is(conf, CONF_QUICK) ? 7 : 1) {
            conf_call_t call =
                rotate(conf, *func, dtypes[turn % 4], SOL_SUM, counts[turn / 4 % ncounts], turn);
            call.send_offset = offsets % 16;
            call.recv_offset = offsets / 16;
            call.in_place = false;
            turn++;
            if (!conf_perform(conf, &call))
                return;
        }
}

/* ------------------------------------------------------------- switches of algorithm */

/* The choice at a count, as text without its numbers: sizes change it, digits do not. */
static void choice_at(conf_t *conf, sol_func_t func, sol_dtype_t dtype, size_t count, char *key,
                      size_t bytes)
{
    char text[1024] = "";
    size_t n = 0;
    TEAM_OK(conf->team, conf->rank,
            sol_explain(conf->comm, func, count, dtype, SOL_SUM, text, sizeof(text)), conf->comm);
    for (const char *c = text; *c && n + 1 < bytes; c++)
        if (*c < '0' || *c > '9')
            key[n++] = *c;
    key[n] = '\0';
}

/* Largest counts before a change of choice, found by bisection between powers of two. Nothing at
 * all against one element too: where one protocol is forced (SOLCCL_CPU_PROTOCOL), that is the only
 * change. */
static size_t find_switches(conf_t *conf, sol_func_t func, sol_dtype_t dtype, size_t *found,
                            size_t room)
{
    char low_key[1024], high_key[1024], key[1024];
    size_t n = 0, limit = ((size_t)8 << 20) / ref_size(dtype);
    for (size_t low = 0; low < limit && n < room; low = low == 0 ? 1 : low * 2) {
        size_t a = low, b = low == 0 ? 1 : 2 * low;
        choice_at(conf, func, dtype, a, low_key, sizeof(low_key));
        choice_at(conf, func, dtype, b, high_key, sizeof(high_key));
        if (strcmp(low_key, high_key) == 0)
            continue;
        while (b - a > 1) {
            size_t middle = a + (b - a) / 2;
            choice_at(conf, func, dtype, middle, key, sizeof(key));
            if (strcmp(key, low_key) == 0)
                a = middle;
            else
                b = middle;
        }
        found[n++] = a;
    }
    return n;
}

static void case_switches(conf_t *conf)
{
    static const sol_dtype_t dtypes[] = {SOL_FLOAT32, SOL_BFLOAT16, SOL_INT8};
    size_t *found = (size_t *)conf->team->scratch, total = 0;
    unsigned turn = 0;
    for (const sol_func_t *func = conf_funcs; *func != SOL_FUNC_COUNT; func++)
        for (size_t d = 0; d < 3; d++) {
            /* Rank 0's choice, so that all ranks make the same calls. */
            if (!conf_barrier(conf))
                return;
            if (conf->rank == 0)
                found[0] = find_switches(conf, *func, dtypes[d], found + 1, 16);
            if (!conf_barrier(conf))
                return;
            total += found[0];
            for (size_t i = 1; i <= found[0]; i++)
                for (size_t count = found[i] - (found[i] > 0); count <= found[i] + 2; count++) {
                    conf_call_t call = rotate(conf, *func, dtypes[d], SOL_SUM, count, turn++);
                    if (fit(conf, *func, count, (size_t)32 << 20) != count)
                        continue;
                    if (!conf_perform(conf, &call))
                        return;
                }
        }
    if (total == 0 && conf->nranks > 1)
        team_fail(conf->team, conf->rank, "sol_explain never changes its mind: nothing was tested");
}

/* ------------------------------------------------------------- patterns and special values */

/* All 65,536 patterns of the 16-bit types, all 256 of the 8-bit ones, against each other. */
static void case_patterns(conf_t *conf)
{
    static const sol_dtype_t dtypes[] = {SOL_FLOAT16, SOL_BFLOAT16, SOL_FLOAT8_E4M3,
                                         SOL_FLOAT8_E5M2};
    unsigned seeds = level_is(conf, CONF_QUICK) ? 1 : level_is(conf, CONF_NORMAL) ? 3 : 200;
    for (size_t d = 0; d < 4; d++)
        for (int op = 0; op <= PREMUL; op++)
            for (unsigned k = 0; k < seeds; k++) {
                conf_call_t call = rotate(conf, SOL_FUNC_ALL_REDUCE, dtypes[d], op, 65536, k);
                call.kind = REF_PATTERN;
                if (!conf_perform(conf, &call))
                    return;
            }
}

static void case_specials(conf_t *conf)
{
    unsigned turn = 0;
    for (int dtype = 0; dtype < SOL_DTYPE_COUNT; dtype++)
        for (int op = 0; op <= PREMUL; op++)
            for (int k = 0; k < 3; k++) {
                static const sol_func_t funcs[] = {SOL_FUNC_ALL_REDUCE, SOL_FUNC_REDUCE_SCATTER,
                                                   SOL_FUNC_REDUCE};
                conf_call_t call = rotate(conf, funcs[k], (sol_dtype_t)dtype, op, 2003, turn++);
                call.kind = REF_SPECIAL;
                if (!conf_perform(conf, &call))
                    return;
            }
}

/* ------------------------------------------------------------- the same row, anywhere */

#define ROW 257

/* One all_reduce of `count` elements in which the row of `seed` lies at `at`. */
static bool reduce_with_row(conf_t *conf, sol_dtype_t dtype, size_t count, size_t at, uint64_t seed,
                            unsigned char *result)
{
    size_t size = ref_size(dtype);
    unsigned char *host = malloc(count * size), *memory = conf->device->alloc(count * size + 16);
    bool ok = host && memory;
    if (ok) {
        unsigned char *data = memory + at % 16;
        ref_fill(host, dtype, REF_BITS, seed + count + 1, conf->rank, 0, count);
        ref_fill(host + at * size, dtype, REF_PLAIN, seed, conf->rank, 0, ROW);
        conf->device->upload(data, host, count * size);
        ok = TEAM_OK(conf->team, conf->rank,
                     sol_all_reduce(data, data, count, dtype, SOL_SUM, conf->comm, conf->stream),
                     conf->comm) &&
             conf->device->sync(conf->stream);
        conf->device->download(result, data + at * size, ROW * size);
    }
    conf->device->free(memory);
    free(host);
    return ok;
}

static void case_rows(conf_t *conf)
{
    static const sol_dtype_t dtypes[] = {SOL_FLOAT32, SOL_BFLOAT16, SOL_FLOAT16, SOL_FLOAT64};
    unsigned char first[ROW * 8], other[ROW * 8];
    unsigned rounds = level_is(conf, CONF_QUICK) ? 8 : level_is(conf, CONF_NORMAL) ? 40 : 1000;
    size_t most = conf->device->most_bytes ? conf->device->most_bytes / 8 : 300000;
    for (size_t d = 0; d < 4; d++) {
        uint64_t seed = conf->options->seed + d, random = seed;
        if (!reduce_with_row(conf, dtypes[d], ROW, 0, seed, first))
            return;
        for (unsigned i = 0; i < rounds; i++) {
            size_t rest = conf_random_count(&random, most);
            size_t at = team_random(&random) % (rest + 1);
            team_doing(conf->team, conf->rank, "row at %zu of %zu x %s", at, ROW + rest,
                       sol_dtype_name(dtypes[d]));
            if (!reduce_with_row(conf, dtypes[d], ROW + rest, at, seed, other))
                return;
            if (memcmp(first, other, ROW * ref_size(dtypes[d])) != 0)
                team_fail(conf->team, conf->rank, "a row has other bits when %s",
                          conf->team->rank[conf->rank].doing);
        }
    }
}

/* ------------------------------------------------------------- large */

static void case_large(conf_t *conf)
{
    const size_t count = 10556587;
    unsigned turn = 7;
    if (conf_leaves_out(conf, count))
        return;
    for (const sol_func_t *func = conf_funcs; *func != SOL_FUNC_COUNT; func++) {
        sol_dtype_t dtype = *func == SOL_FUNC_ALL_REDUCE ? SOL_BFLOAT16 : SOL_UINT8;
        conf_call_t call =
            rotate(conf, *func, dtype, SOL_SUM, fit(conf, *func, count, count), turn);
        turn++;
        call.kind = REF_PLAIN;
        if (!conf_perform(conf, &call))
            return;
    }
    if (conf->nranks == 2) {
        conf_call_t call = rotate(conf, SOL_FUNC_ALL_GATHER, SOL_INT8, SOL_SUM, count, turn);
        if (conf_perform(conf, &call)) {
            call = rotate(conf, SOL_FUNC_ALL_REDUCE, SOL_FLOAT32, SOL_SUM, count, turn);
            conf_perform(conf, &call);
        }
    }
}

static size_t memory_available(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return (size_t)kib << 10;
}

/* The over-2-GiB message of rank r is a pattern of prime length over and over, times 2r + 1: what
 * lands at a wrong place, by any power of two, differs. `rank` < 0: the sum over all ranks. */
#define HUGE_PERIOD ((size_t)1048573)

static unsigned char *huge_pattern(const conf_t *conf, int rank)
{
    unsigned factor = rank >= 0 ? 2 * (unsigned)rank + 1 : (unsigned)(conf->nranks * conf->nranks);
    unsigned char *pattern = malloc(HUGE_PERIOD);
    for (size_t i = 0; pattern && i < HUGE_PERIOD; i++)
        pattern[i] = (unsigned char)(team_mix(i) * factor);
    return pattern;
}

static void huge_fill(conf_t *conf, unsigned char *memory, size_t count)
{
    unsigned char *pattern = huge_pattern(conf, conf->rank);
    for (size_t at = 0; pattern && at < count; at += HUGE_PERIOD)
        conf->device->upload(memory + at, pattern,
                             count - at < HUGE_PERIOD ? count - at : HUGE_PERIOD);
    free(pattern);
}

static void huge_check(conf_t *conf, const unsigned char *memory, size_t count, int rank)
{
    unsigned char *pattern = huge_pattern(conf, rank), *host = malloc(HUGE_PERIOD);
    for (size_t at = 0; pattern && host && at < count; at += HUGE_PERIOD) {
        size_t i = 0, n = count - at < HUGE_PERIOD ? count - at : HUGE_PERIOD;
        conf->device->download(host, memory + at, n);
        if (memcmp(host, pattern, n) == 0)
            continue;
        while (host[i] == pattern[i])
            i++;
        team_fail(conf->team, conf->rank, "byte %zu of %zu is 0x%02x, expected 0x%02x", at + i,
                  count, host[i], pattern[i]);
        break;
    }
    free(pattern);
    free(host);
}

/* More than 2 GiB, and more than 2^31 elements, in one call. */
static void case_huge(conf_t *conf)
{
    size_t count = ((size_t)1 << 31) + 4099, half = count / 2 + 1;
    if (conf_leaves_out(conf, count))
        return;
    if (memory_available() < 3 * count) {
        team_skip(conf->team, conf->rank, "not enough memory for two buffers of 2 GiB");
        return;
    }
    team_barrier(conf->team); /* (all have looked before any allocates) */
    unsigned char *memory = conf->device->alloc(count + 2);
    if (!TEAM_CHECK(conf->team, conf->rank, memory != NULL))
        exit(1);
    team_doing(conf->team, conf->rank, "all_reduce of %zu x uint8 in place", count);
    huge_fill(conf, memory, count);
    TEAM_OK(conf->team, conf->rank,
            sol_all_reduce(memory, memory, count, SOL_UINT8, SOL_SUM, conf->comm, conf->stream),
            conf->comm);
    conf->device->sync(conf->stream);
    huge_check(conf, memory, count, -1);

    team_doing(conf->team, conf->rank, "all_gather to %zu x uint8 in place", 2 * half);
    unsigned char *mine = memory + (size_t)conf->rank * half;
    huge_fill(conf, mine, half);
    TEAM_OK(conf->team, conf->rank,
            sol_all_gather(mine, memory, half, SOL_UINT8, conf->comm, conf->stream), conf->comm);
    conf->device->sync(conf->stream);
    for (int r = 0; r < conf->nranks; r++)
        huge_check(conf, memory + (size_t)r * half, half, r);
    conf->device->free(memory);
}

/* ------------------------------------------------------------- random calls, skew, bursts */

static unsigned random_calls(const conf_t *conf, unsigned quick, unsigned normal)
{
    if (conf->options->calls)
        return conf->options->calls;
    return level_is(conf, CONF_QUICK) ? quick : level_is(conf, CONF_NORMAL) ? normal : normal * 40;
}

static void random_run(conf_t *conf, unsigned calls, size_t largest)
{
    conf_call_t call;
    for (unsigned i = 0; i < calls; i++) {
        conf_random_call(conf, &call, i % 50 == 49 ? largest * 16 : largest);
        call.count = fit(conf, call.func, call.count, largest * 16);
        if (!conf_perform(conf, &call))
            return;
    }
}

/* Differential: any call, any buffers, symmetric or not, against the reference. */
static void case_random(conf_t *conf)
{
    if (!conf_use_symmetric(conf, 1 << 20))
        return;
    random_run(conf, random_calls(conf, 150, 1000), 20000);
    conf_drop_symmetric(conf);
}

/* The same with ranks that come late, each at its own times. */
static void case_skew(conf_t *conf)
{
    conf->delay_us = 400;
    random_run(conf, random_calls(conf, 60, 300), 5000);
}

/* Protocol counters begin shortly before they wrap (SOLCCL_DEBUG_EPOCH). */
static void case_epoch(conf_t *conf)
{
    random_run(conf, random_calls(conf, 100, 300), 3000);
}

/* Operations back to back, nothing between them: ranks run as far ahead as the protocols let them,
 * and slots are reused as soon as they may be. Payloads check themselves. */
static bool burst_step(conf_t *conf, unsigned i, int64_t *values, int64_t *result)
{
    int n = conf->nranks, root = (int)(i % (unsigned)n);
    size_t count = 1 + i % 9;
    int64_t sum = (int64_t)n * i * 1000 + (int64_t)n * (n - 1) / 2;
    bool ok;
    for (size_t k = 0; k < count * (size_t)n; k++)
        values[k] = (int64_t)i * 1000 + conf->rank;
    switch (team_mix(i) % 5) {
    case 0:
    case 1:
        ok = TEAM_OK(conf->team, conf->rank,
                     sol_all_reduce(values, result, count, SOL_INT64, SOL_SUM, conf->comm, NULL),
                     conf->comm);
        break;
    case 2:
        sum = (int64_t)i * 1000 + root;
        ok = TEAM_OK(conf->team, conf->rank,
                     sol_broadcast(values, result, count, SOL_INT64, root, conf->comm, NULL),
                     conf->comm);
        break;
    case 3:
        ok =
            TEAM_OK(conf->team, conf->rank,
                    sol_reduce_scatter(values, result, count, SOL_INT64, SOL_SUM, conf->comm, NULL),
                    conf->comm);
        break;
    default:
        ok =
            TEAM_OK(conf->team, conf->rank,
                    sol_all_gather(values, result, count, SOL_INT64, conf->comm, NULL), conf->comm);
        sum = (int64_t)i * 1000 + n - 1;
        result += count * (size_t)(n - 1);
        break;
    }
    for (size_t k = 0; ok && k < count; k++)
        if (result[k] != sum) {
            team_fail(conf->team, conf->rank, "step %u, element %zu: %lld, expected %lld", i, k,
                      (long long)result[k], (long long)sum);
            return false;
        }
    return ok;
}

static void case_burst(conf_t *conf)
{
    int64_t values[9 * TEAM_MAX_RANKS], result[9 * TEAM_MAX_RANKS];
    unsigned steps = random_calls(conf, 500, conf->nranks > 2 ? 4000 : 40000);
    if (!conf->device->cheap_alloc) {
        team_skip(conf->team, conf->rank, "needs buffers that the host can read");
        return;
    }
    for (unsigned i = 1; i <= steps; i++) {
        if (i % 512 == 0)
            team_doing(conf->team, conf->rank, "step %u of %u", i, steps);
        if (team_random(&conf->own_random) % 1000 == 0)
            team_sleep_us(200);
        if (!burst_step(conf, i, values, result)) {
            sol_comm_abort(conf->comm);
            conf->stopped = true;
            return;
        }
    }
}

#define N(n) CONF_N(n)
#define EPOCH(label, value)                                                                        \
    {                                                                                              \
        .name = "epoch-" label, .run = case_epoch, .ranks = {N(2), N(2) | N(3), CONF_ALL},         \
        .threads = {N(2), N(4), CONF_ALL}, .epoch = value                                          \
    }

const conf_case_t conf_cases_data[] = {
    {.name = "matrix",
     .run = case_matrix,
     .ranks = {N(2) | N(3), CONF_ALL, CONF_ALL},
     .threads = {N(3), N(2) | N(5), CONF_ALL}},
    {.name = "roots",
     .run = case_roots,
     .ranks = {N(3), CONF_MULTI, CONF_ALL},
     .threads = {N(3), N(4), CONF_ALL}},
    {.name = "sizes",
     .run = case_sizes,
     .ranks = {N(2), N(1) | N(2) | N(3) | N(4) | N(7) | N(8), CONF_ALL},
     .threads = {N(2), N(2), CONF_ALL}},
    {.name = "offsets",
     .run = case_offsets,
     .ranks = {N(2), N(1) | N(2) | N(3) | N(5) | N(8), CONF_ALL},
     .threads = {N(2), N(3), CONF_ALL}},
    {.name = "switches",
     .run = case_switches,
     .staging_bytes = 1 << 20, /* little, so that there is a switch within small sizes */
     .ranks = {N(2), N(2) | N(3) | N(4) | N(8), CONF_MULTI},
     .threads = {0, N(2), CONF_MULTI}},
    {.name = "patterns",
     .run = case_patterns,
     .ranks = {N(2), N(1) | N(2) | N(3), CONF_ALL},
     .threads = {0, 0, N(2)}},
    {.name = "specials",
     .run = case_specials,
     .ranks = {N(2) | N(3), CONF_ALL, CONF_ALL},
     .threads = {0, N(3), CONF_ALL}},
    {.name = "rows",
     .run = case_rows,
     .ranks = {N(3), N(2) | N(3) | N(8), CONF_MULTI},
     .threads = {0, N(4), CONF_MULTI}},
    {.name = "large",
     .run = case_large,
     .ranks = {0, N(2) | N(3) | N(8), CONF_ALL},
     .threads = {0, N(2), CONF_ALL},
     .deadline_s = 200},
    {.name = "huge", .run = case_huge, .ranks = {0, N(2), N(2) | N(3)}, .deadline_s = 200},
    {.name = "random",
     .run = case_random,
     .ranks = {N(3), CONF_MULTI, CONF_ALL},
     .threads = {N(2) | N(4), N(2) | N(3) | N(8), CONF_ALL},
     .deadline_s = 200},
    {.name = "skew",
     .run = case_skew,
     .ranks = {N(3), CONF_MULTI, CONF_ALL},
     .threads = {N(3), N(3), CONF_ALL}},
    {.name = "burst",
     .run = case_burst,
     .ranks = {N(2), CONF_MULTI, CONF_ALL},
     .threads = {N(2) | N(4), N(2) | N(5), CONF_ALL}},
    EPOCH("2^31-2", 0x7ffffffeu),
    EPOCH("2^31-100", 0x7fffffffu - 99),
    EPOCH("2^32-2", 0xfffffffeu),
    EPOCH("2^32-100", 0xffffffffu - 99),
    EPOCH("2^16-50", 0xffffu - 49),
    EPOCH("2^63-50", 0x7fffffffffffffffu - 49),
    {.name = NULL},
};
