/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_plan.c: which protocol a call takes. A function of the call's name, count
 * and type and of rank 0's limits alone, so that all ranks choose alike; how a
 * rank's own buffer is reached (place, staging) is its own affair and travels
 * in headers. The limits were measured: bench/NOTES.md, "CPU ranks".
 * SOLCCL_CPU_* variables set them: docs/environment.md has the list.
 */
#include "backend/shm/shm.h"

#include <stdio.h>

enum { AUTO, LINE, PACKED, STAGED, DIRECT };

static void default_limits(sol_shm_t *s)
{
    size_t peers = (size_t)(s->nranks > 1 ? s->nranks - 1 : 1);
    /* Where written lines stay in a large cache of their writer's own, a block that is written to a
     * slot, too, is read from there at half the speed of what lies in the shared cache; and each
     * hand-over of a large all_reduce costs more. */
    size_t packed = s->nranks > 2 || s->demotes ? 8192 : 32768;
    size_t packed_reduce = s->demotes ? 65536 : 32768, packed_narrow = s->demotes ? 16384 : 32768;
    s->limits = (sol_shm_limits_t){
        .line = 2048,
        .one_shot = s->nranks <= 2 ? 3072 : 8192 / peers,
        .two_shot = s->nranks <= 2 ? 0 : 8192,
        .cell = s->nranks <= 2 ? 16384 : 256,
        .unpacked = 256,
        .packed = packed,
        .packed_rooted = 8192,
        .packed_reduce = s->nranks <= 2 ? packed_reduce : 8192 / peers,
        .packed_narrow = s->nranks <= 2 ? packed_narrow : 8192 / peers,
        .chunk = 32768,
        .round = 65536,
        .wide = s->nranks <= 2 ? 131072 : 65536,
        .piece = 262144,
        .vm_piece = (size_t)4 << 20,
        .stream = (size_t)8 << 20, /* a copy of 1 MB past the cache took twice as long */
    };
}

/* use_caps in shm_open.c cuts the limits to what a pipe and a slot hold. */
static void force_protocol(sol_shm_t *s, int protocol)
{
    const size_t all = (size_t)1 << 30;
    sol_shm_limits_t *l = &s->limits;
    if (protocol == AUTO) {
        return;
    }
    l->cell = 0;
    l->line = l->one_shot = l->two_shot = l->unpacked = protocol == LINE ? all : 0;
    l->packed = l->packed_rooted = protocol == PACKED ? all : 0;
    l->packed_reduce = l->packed_narrow = l->packed;
    if (protocol == STAGED) {
        s->direct = false;
    } else if (protocol == DIRECT) {
        l->way = 1 + SOL_SHM_SHOW;
    }
}

sol_status_t sol_shm_plan_init(sol_shm_t *s, char *why, size_t why_bytes)
{
    static const char *const protocols[] = {"auto", "line", "packed", "staged", "direct", NULL};
    struct {
        const char *name;
        size_t *value, least;
    } sizes[] = {
        {"SOLCCL_CPU_LINE_BYTES", &s->limits.line, 0},
        {"SOLCCL_CPU_ONE_SHOT_BYTES", &s->limits.one_shot, 0},
        {"SOLCCL_CPU_TWO_SHOT_BYTES", &s->limits.two_shot, 0},
        {"SOLCCL_CPU_CELL_BYTES", &s->limits.cell, 0},
        {"SOLCCL_CPU_UNPACKED_BYTES", &s->limits.unpacked, 0},
        {"SOLCCL_CPU_PACKED_BYTES", &s->limits.packed, 0},
        {"SOLCCL_CPU_PACKED_ROOTED_BYTES", &s->limits.packed_rooted, 0},
        {"SOLCCL_CPU_PACKED_REDUCE_BYTES", &s->limits.packed_reduce, 0},
        {"SOLCCL_CPU_PACKED_NARROW_BYTES", &s->limits.packed_narrow, 0},
        {"SOLCCL_CPU_CHUNK_BYTES", &s->limits.chunk, SOL_CACHE_LINE},
        {"SOLCCL_CPU_ROUND_BYTES", &s->limits.round, SOL_CACHE_LINE},
        {"SOLCCL_CPU_WIDE_BYTES", &s->limits.wide, SOL_CACHE_LINE},
        {"SOLCCL_CPU_PIECE_BYTES", &s->limits.piece, SOL_CACHE_LINE},
        {"SOLCCL_CPU_VM_PIECE_BYTES", &s->limits.vm_piece, SOL_CACHE_LINE},
        {"SOLCCL_CPU_STREAM_BYTES", &s->limits.stream, 0},
    };
    static const char *const ways[] = {"learn", "keep", "pass", "show", "wide", NULL};
    static const char *const huge_pages[] = {"off", "auto", NULL};
    static const char *const nodes[] = {"off", "auto", "always", NULL};
    int protocol = AUTO, way = 0, huge = 1, by_node = 1;
    long spin = 2000;
    s->demotes = sol_cpu_demotes();
    default_limits(s);
    s->isa = sol_isa_best();
    s->direct = true;
    sol_status_t status =
        sol_env_choice("SOLCCL_CPU_PROTOCOL", protocols, &protocol, why, why_bytes);
    if (status == SOL_OK) {
        force_protocol(s, protocol);
        status = sol_env_int("SOLCCL_CPU_SPIN", 0, 1000000, &spin, why, why_bytes);
    }
    if (status == SOL_OK) {
        way = (int)s->limits.way;
        status = sol_env_choice("SOLCCL_CPU_WAY", ways, &way, why, why_bytes);
        s->limits.way = (size_t)way;
    }
    if (status == SOL_OK) {
        status = sol_env_choice("SOLCCL_CPU_HUGE_PAGES", huge_pages, &huge, why, why_bytes);
        s->huge_pages = huge != 0;
    }
    if (status == SOL_OK) {
        status = sol_env_choice("SOLCCL_CPU_NUMA", nodes, &by_node, why, why_bytes);
        s->by_node = by_node == 2 || (by_node == 1 && sol_shm_nodes_differ());
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && status == SOL_OK; i++) {
        status = sol_env_size(sizes[i].name, sizes[i].least, (size_t)1 << 40, sizes[i].value, why,
                              why_bytes);
    }
    size_t most = 65536; /* of memory: some a pair */
    s->limits.cell = sol_round_up(s->limits.cell < most ? s->limits.cell : most, SOL_CACHE_LINE);
    s->spin = (uint32_t)spin;
    s->pause_ticks = sol_shm_pause_ticks();
    return status;
}

/* In one step each rank adds up everything: it ends earlier for types whose sums are slow. */
static sol_shm_protocol plan_all_reduce(const sol_shm_t *s, const sol_call_t *call, size_t bytes)
{
    const sol_shm_limits_t *l = &s->limits;
    size_t packed = sol_dtype_size(call->dtype) <= 2 ? l->packed_narrow : l->packed_reduce;
    if (bytes > l->unpacked && bytes <= packed) {
        return SOL_SHM_PACKED;
    }
    if (bytes <= l->one_shot) {
        return SOL_SHM_LINES;
    }
    return bytes <= l->two_shot ? SOL_SHM_LINES_TWO : SOL_SHM_SHARED;
}

sol_shm_protocol sol_shm_plan(const sol_shm_t *s, const sol_call_t *call)
{
    const sol_shm_limits_t *l = &s->limits;
    size_t bytes = call->count * sol_dtype_size(call->dtype), packed = l->packed;
    sol_shm_protocol large = SOL_SHM_STREAMS;
    if (call->func == SOL_FUNC_ALL_TO_ALL_V) {
        return SOL_SHM_STREAMS;
    }
    if (call->func == SOL_FUNC_BARRIER || call->count == 0) {
        return SOL_SHM_LINES;
    }
    switch (call->func) {
    case SOL_FUNC_ALL_REDUCE:
        return plan_all_reduce(s, call, bytes);
    case SOL_FUNC_REDUCE:
    case SOL_FUNC_REDUCE_SCATTER:
        large = SOL_SHM_SHARED;
        break;
    case SOL_FUNC_BROADCAST:
    case SOL_FUNC_GATHER:
    case SOL_FUNC_SCATTER:
        packed = l->packed_rooted;
        break;
    case SOL_FUNC_SEND:
    case SOL_FUNC_RECV:
        packed = 0;
        break;
    default:
        break;
    }
    if (bytes > l->unpacked && bytes <= packed) {
        return SOL_SHM_PACKED;
    }
    return bytes <= l->line ? SOL_SHM_LINES : large;
}

/* ------------------------------------------------------------------------------- explain */

static const char *reach(const sol_shm_t *s)
{
    if (!s->direct) {
        return "through staging slots (direct reads are switched off)";
    }
    if (s->all_threads) {
        return "read where they lie (the ranks are threads of one process)";
    }
    return s->vm_readable ? "read where they lie if from sol_mem_alloc, else through staging slots "
                            "or by process_vm_readv, as proves faster while running"
                          : "read where they lie if from sol_mem_alloc, else through staging slots "
                            "(process_vm_readv is not allowed between these processes)";
}

sol_status_t sol_shm_explain(sol_comm_t comm, const sol_call_t *call, char *text, size_t bytes)
{
    const sol_shm_t *s = comm->state;
    size_t size = call->count * sol_dtype_size(call->dtype);
    const sol_shm_limits_t *l = &s->limits;
    if (s->nranks == 1) {
        snprintf(text, bytes, "local: one rank, nothing is sent");
        return SOL_OK;
    }
    switch (sol_shm_plan(s, call)) {
    case SOL_SHM_LINES:
        snprintf(text, bytes,
                 "line: %zu self-validating cache lines to each peer, one one-way latency, no "
                 "barrier; taken to %zu bytes, where bytes cost more than the latency",
                 sol_line_count(size), l->unpacked);
        break;
    case SOL_SHM_LINES_TWO:
        snprintf(text, bytes,
                 "line, two steps: each rank reduces 1/%d and pushes the result; two latencies "
                 "but 2/%d of the bytes; taken from %zu to %zu bytes",
                 s->nranks, s->nranks, l->one_shot + 1, l->two_shot);
        break;
    case SOL_SHM_PACKED:
        snprintf(text, bytes,
                 "packed: %zu bytes a block, written once to a staging slot and announced by one "
                 "line to each reader; one one-way latency, no barrier; taken from %zu bytes, "
                 "where a tag in each line costs more than a line of its own",
                 size, l->unpacked + 1);
        break;
    case SOL_SHM_SHARED: {
        bool block = call->func == SOL_FUNC_REDUCE_SCATTER;
        size_t share = block ? size : size / (size_t)s->nranks;
        snprintf(text, bytes,
                 "shared: each rank reduces one share of %zu bytes in rounds of %zu (%s); "
                 "contributions are %s",
                 share, l->round, sol_isa_name(s->isa), reach(s));
        break;
    }
    default:
        snprintf(text, bytes,
                 "stream: %zu bytes a pair, all pairs progressed together; they are %s", size,
                 reach(s));
        break;
    }
    return SOL_OK;
}
