/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases_memory.c: symmetric and registered memory change speed only, never results.
 */
#include "conformance/conf.h"

#include <stdlib.h>
#include <string.h>

#define N(n) CONF_N(n)
#define BYTES ((size_t)4 << 20)

/* All functions with symmetric send and receive buffers in each mixture, also different ones on
 * different ranks, across sizes. */
static void case_symmetric(conf_t *conf)
{
    static const size_t counts[] = {1, 33, 1000, 4096, 30011, 130003};
    if (!conf_use_symmetric(conf, BYTES))
        return;
    unsigned turn = 0;
    for (const sol_func_t *func = conf_funcs; *func != SOL_FUNC_COUNT; func++)
        for (size_t c = 0; c < 6; c++)
            for (unsigned mixture = 0; mixture < 6; mixture++) {
                uint64_t h = team_mix(turn++);
                /* 0-3: send and receive or not; 4: only even ranks; 5: in place */
                bool even = conf->rank % 2 == 0;
                conf_call_t call = {.func = *func,
                                    .dtype = (sol_dtype_t)(h % SOL_DTYPE_COUNT),
                                    .count = counts[c],
                                    .root = (int)(turn % (unsigned)conf->nranks),
                                    .send_offset = (unsigned)(h >> 8) % 16 * (turn % 2),
                                    .recv_offset = (unsigned)(h >> 16) % 16 * (turn % 2),
                                    .in_place = mixture == 5,
                                    .symmetric_send = mixture == 4 ? even : mixture & 1,
                                    .symmetric_recv = mixture == 4 ? even : mixture != 1,
                                    .seed = h};
                if (counts[c] * (size_t)conf->nranks * 8 > BYTES / 2)
                    call.count = BYTES / 16 / (size_t)conf->nranks;
                if (!conf_perform(conf, &call))
                    return;
            }
    conf_drop_symmetric(conf);
}

/* Zeroed, page-aligned, distinct; freed in another order on each rank; the memory of one life is
 * not seen by the next. */
static void case_alloc_free(conf_t *conf)
{
    static const size_t sizes[] = {1, 4096, 100, 1 << 20, 65537, 0, 12345, 1 << 16};
    void *memory[8];
    unsigned char *host = calloc(1, 1 << 20), *back = malloc(1 << 20);
    for (int round = 0; round < 10 && host && back; round++) {
        team_doing(conf->team, conf->rank, "allocation round %d", round);
        for (int i = 0; i < 8; i++) {
            size_t bytes = sizes[(i + round) % 8];
            memory[i] = conf;
            if (!TEAM_OK(conf->team, conf->rank, sol_mem_alloc(conf->comm, bytes, &memory[i]),
                         conf->comm))
                goto out;
            TEAM_CHECK(conf->team, conf->rank, (bytes == 0) == (memory[i] == NULL));
            TEAM_CHECK(conf->team, conf->rank, (uintptr_t)memory[i] % 4096 == 0);
            if (bytes == 0)
                continue;
            conf->device->download(back, memory[i], bytes);
            TEAM_CHECK(conf->team, conf->rank, memcmp(back, host, bytes) == 0);
            memset(back, 0x77, bytes);
            conf->device->upload(memory[i], back, bytes);
        }
        for (int i = 0; i < 8; i++) {
            int k = (i * 3 + conf->rank * 5 + round) % 8;
            TEAM_OK(conf->team, conf->rank, sol_mem_free(conf->comm, memory[k]), conf->comm);
        }
    }
out:
    free(host);
    free(back);
}

/* One rank frees and allocates again what others still use: free is local. */
static void case_free_is_local(conf_t *conf)
{
    void *first = NULL, *second = NULL;
    if (!TEAM_OK(conf->team, conf->rank, sol_mem_alloc(conf->comm, BYTES, &first), conf->comm))
        return;
    if (conf->rank == 0) /* nobody else frees yet, and rank 0 must not wait for them */
        TEAM_OK(conf->team, conf->rank, sol_mem_free(conf->comm, first), conf->comm);
    team_barrier(conf->team);
    if (!TEAM_OK(conf->team, conf->rank, sol_mem_alloc(conf->comm, BYTES, &second), conf->comm))
        return;
    conf->symmetric[0] = conf->rank == 0 ? second : first;
    conf->symmetric[1] = second;
    conf->symmetric_bytes = BYTES;
    for (unsigned i = 0; i < 40; i++) {
        conf_call_t call = {.func = conf_funcs[i % 10],
                            .dtype = SOL_BFLOAT16,
                            .count = i % 3 ? 4001 : 100003 / (unsigned)conf->nranks,
                            .symmetric_send = conf->rank != 0,
                            .symmetric_recv = true,
                            .kind = REF_PLAIN,
                            .seed = i};
        if (!conf_perform(conf, &call))
            return;
    }
    if (conf->rank != 0)
        TEAM_OK(conf->team, conf->rank, sol_mem_free(conf->comm, first), conf->comm);
    TEAM_OK(conf->team, conf->rank, sol_mem_free(conf->comm, second), conf->comm);
    conf->symmetric[0] = conf->symmetric[1] = NULL;
}

/* Memory of the caller's, registered on some ranks only, or in part, or after use. */
static void case_registered(conf_t *conf)
{
    sol_registration_t registrations[2] = {NULL, NULL};
    void *buffers[2];
    for (int i = 0; i < 2; i++)
        buffers[i] = conf->device->alloc(BYTES);
    if (!TEAM_CHECK(conf->team, conf->rank, buffers[0] && buffers[1]))
        return;
    for (unsigned round = 0; round < 4; round++) {
        bool mine = (round + (unsigned)conf->rank) % 3 != 0;
        for (int i = 0; i < 2 && mine; i++)
            TEAM_OK(
                conf->team, conf->rank,
                sol_mem_register(conf->comm, buffers[i], BYTES >> (round % 2), &registrations[i]),
                conf->comm);
        conf->symmetric[0] = buffers[0];
        conf->symmetric[1] = buffers[1];
        conf->symmetric_bytes = BYTES;
        for (unsigned i = 0; i < 30; i++) {
            conf_call_t call = {.func = conf_funcs[i % 10],
                                .dtype = SOL_FLOAT32,
                                .count = i % 3 ? 77 : 200003 / (unsigned)conf->nranks,
                                .recv_offset = i % 4,
                                .symmetric_send = true,
                                .symmetric_recv = true,
                                .kind = REF_PLAIN,
                                .seed = i + round * 100};
            if (!conf_perform(conf, &call))
                return;
        }
        for (int i = 0; i < 2 && mine; i++)
            TEAM_OK(conf->team, conf->rank, sol_mem_deregister(conf->comm, registrations[i]),
                    conf->comm);
    }
    conf->symmetric[0] = conf->symmetric[1] = NULL;
    for (int i = 0; i < 2; i++)
        conf->device->free(buffers[i]);
}

/* ------------------------------------------------------------------- sleep and wake */

static size_t held(conf_t *conf)
{
    sol_comm_info_t info = {.size = sizeof(info)};
    TEAM_OK(conf->team, conf->rank, sol_comm_query(conf->comm, &info), conf->comm);
    return info.shared_bytes;
}

static bool all_kinds(conf_t *conf, uint64_t seed)
{
    for (unsigned i = 0; i < 40; i++) {
        conf_call_t call;
        conf_random_call(conf, &call, i % 4 == 3 ? BYTES / 64 / (size_t)conf->nranks : 600);
        call.symmetric_send = call.symmetric_recv = (i + seed) % 3 == 0;
        if (!conf_perform(conf, &call))
            return false;
    }
    return true;
}

/* Same addresses; the contents are kept or zero; results are right before and after, by every
 * protocol; asleep there is less memory, and calls are refused. */
static void case_sleep(conf_t *conf)
{
    size_t bytes = BYTES / 4;
    unsigned char *pattern = malloc(bytes), *back = malloc(bytes);
    void *memory = NULL;
    if (!TEAM_CHECK(conf->team, conf->rank, pattern && back) || !conf_use_symmetric(conf, BYTES) ||
        !TEAM_OK(conf->team, conf->rank, sol_mem_alloc(conf->comm, bytes, &memory), conf->comm))
        goto out;
    memset(pattern, 0x5a + conf->rank, bytes);
    for (unsigned round = 0; round < 4; round++) {
        sol_sleep_level_t level = round % 2 ? SOL_SLEEP_DISCARD : SOL_SLEEP_KEEP;
        size_t awake = held(conf);
        conf->device->upload(memory, pattern, bytes);
        if (!all_kinds(conf, round))
            goto out;
        team_doing(conf->team, conf->rank, "sleep %u", round);
        if (!TEAM_OK(conf->team, conf->rank, sol_comm_sleep(conf->comm, level), conf->comm))
            goto out;
        TEAM_CHECK(conf->team, conf->rank, held(conf) < awake);
        TEAM_CHECK(conf->team, conf->rank, sol_barrier(conf->comm, conf->stream) == SOL_ERR_STATE);
        TEAM_CHECK(conf->team, conf->rank,
                   sol_comm_sleep(conf->comm, SOL_SLEEP_KEEP) == SOL_ERR_STATE);
        if (!TEAM_OK(conf->team, conf->rank, sol_comm_wake(conf->comm), conf->comm))
            goto out;
        TEAM_CHECK(conf->team, conf->rank, held(conf) == awake);
        TEAM_CHECK(conf->team, conf->rank, sol_comm_wake(conf->comm) == SOL_ERR_STATE);
        conf->device->download(back, memory, bytes);
        if (level == SOL_SLEEP_DISCARD)
            memset(pattern, 0, bytes);
        TEAM_CHECK(conf->team, conf->rank, memcmp(back, pattern, bytes) == 0);
        memset(pattern, 0x33 + (int)round, bytes);
    }
    all_kinds(conf, 5);
    if (conf->rank == 0) { /* freed by one rank, awake or asleep: the others' comes back */
        TEAM_OK(conf->team, conf->rank, sol_mem_free(conf->comm, conf->symmetric[0]), conf->comm);
        conf->symmetric[0] = NULL;
    }
    if (TEAM_OK(conf->team, conf->rank, sol_comm_sleep(conf->comm, SOL_SLEEP_KEEP), conf->comm)) {
        if (conf->rank == conf->nranks - 1)
            TEAM_OK(conf->team, conf->rank, sol_mem_free(conf->comm, memory), conf->comm);
        TEAM_OK(conf->team, conf->rank, sol_comm_wake(conf->comm), conf->comm);
    }
    all_kinds(conf, 6);
    if (conf->rank != 0)
        TEAM_OK(conf->team, conf->rank, sol_mem_free(conf->comm, conf->symmetric[0]), conf->comm);
    conf->symmetric[0] = conf->symmetric[1] = NULL; /* the rest is freed by destroy */
out:
    free(pattern);
    free(back);
}

const conf_case_t conf_cases_memory[] = {
    {.name = "symmetric",
     .run = case_symmetric,
     .ranks = {N(2), N(1) | N(2) | N(3) | N(5) | N(8), CONF_ALL},
     .threads = {N(2), N(3), CONF_ALL}},
    {.name = "alloc-free",
     .run = case_alloc_free,
     .ranks = {N(3), N(1) | N(2) | N(5), CONF_ALL},
     .threads = {N(2), N(3), CONF_ALL}},
    {.name = "free-is-local",
     .run = case_free_is_local,
     .ranks = {N(2), N(2) | N(4), CONF_MULTI},
     .threads = {N(2), N(3), CONF_MULTI}},
    {.name = "registered",
     .run = case_registered,
     .ranks = {N(2), N(1) | N(2) | N(5), CONF_ALL},
     .threads = {N(2), N(3), CONF_ALL}},
    {.name = "sleep",
     .run = case_sleep,
     .ranks = {N(3), N(1) | N(2) | N(5), CONF_ALL},
     .threads = {N(2), N(3), CONF_ALL}},
    {.name = "sleep-wrap",
     .run = case_sleep,
     .epoch = 0xffffff80u,
     .ranks = {N(2), N(2) | N(4), CONF_MULTI},
     .threads = {N(2), N(3), CONF_MULTI}},
    {.name = NULL},
};
