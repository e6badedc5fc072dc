/* SPDX-License-Identifier: Apache-2.0 */
/*
 * counts.c: sizes near SIZE_MAX, whose products and sums with ranks, rows and elements wrap: every
 * function refuses them on all ranks, before it touches memory, and the communicator can still be
 * used. (Under the sanitizers the wrapped arithmetic would be seen, too.)
 */
#include "faults.h"

#include "solccl/fused.h"
#include "solccl/moe.h"
#include "solccl/quantized.h"
#include "solccl/transfer.h"

#include <stdalign.h>

static const size_t sizes[] = {SIZE_MAX,     SIZE_MAX - 1,     SIZE_MAX / 2,     SIZE_MAX / 2 + 1,
                               SIZE_MAX / 4, SIZE_MAX / 8 + 1, SIZE_MAX / 8 - 1, SIZE_MAX / 16};
#define SIZES (sizeof sizes / sizeof *sizes)

typedef struct subject {
    team_t *team;
    int rank;
    sol_comm_t comm;
    alignas(16) unsigned char in[1 << 12], out[1 << 12];
} subject_t;

/* Whoever is refused for what is not its own fault (a peer, a time) has let the call go on. */
static void refused(subject_t *s, const char *what, size_t size, sol_status_t got)
{
    if (got != SOL_ERR_ARGUMENT && got != SOL_ERR_MEMORY && got != SOL_ERR_UNSUPPORTED)
        team_fail(s->team, s->rank, "%s with %zx: %d, %s", what, size, (int)got,
                  sol_last_error(NULL));
}
#define REFUSED(call) refused(s, #call, v, call)

static void collectives(subject_t *s, size_t v, sol_dtype_t type)
{
    const int n = s->team->nranks, next = (s->rank + 1) % n;
    const size_t much[4] = {v, v, v, v}, half[4] = {SIZE_MAX / 2 + 1, SIZE_MAX / 2 + 1},
                 none[4] = {0};
    if (v <= SIZE_MAX / sol_dtype_size(type) / (size_t)n) /* all of it would be a size */
        return;
    REFUSED(sol_all_gather(s->in, s->out, v, type, s->comm, NULL));
    REFUSED(sol_reduce_scatter(s->in, s->out, v, type, SOL_SUM, s->comm, NULL));
    REFUSED(sol_all_to_all(s->in, s->out, v, type, s->comm, NULL));
    REFUSED(sol_gather(s->in, s->out, v, type, 0, s->comm, NULL));
    REFUSED(sol_scatter(s->in, s->out, v, type, 0, s->comm, NULL));
    REFUSED(sol_all_to_all_v(s->in, half, none, s->out, half, none, type, s->comm, NULL));
    if (v <= SIZE_MAX / sol_dtype_size(type))
        return;
    if (type == SOL_FLOAT32)
        REFUSED(sol_all_reduce_quantized(s->in, s->out, v, type, SOL_INT8, 1, s->comm, NULL));
    REFUSED(sol_all_reduce(s->in, s->out, v, type, SOL_SUM, s->comm, NULL));
    REFUSED(sol_broadcast(s->in, s->out, v, type, 0, s->comm, NULL));
    REFUSED(sol_reduce(s->in, s->out, v, type, SOL_SUM, 0, s->comm, NULL));
    REFUSED(sol_send(s->in, v, type, next, s->comm, NULL));
    REFUSED(sol_recv(s->out, v, type, next, s->comm, NULL));
    REFUSED(sol_all_to_all_v(s->in, much, none, s->out, none, none, type, s->comm, NULL));
    REFUSED(sol_all_to_all_v(s->in, none, none, s->out, much, none, type, s->comm, NULL));
}

/* One of two sizes is `v`, or both are. */
static void norms(subject_t *s, size_t v, int form)
{
    for (int which = 1; which < 4; which++) {
        sol_norm_args_t args = SOL_NORM_ARGS_INIT;
        sol_norm_config_t config = SOL_NORM_CONFIG_INIT;
        sol_norm_halves_t halves = NULL;
        args.tokens = config.max_tokens = which & 1 ? v : 3;
        args.hidden = config.hidden = which & 2 ? v : 3;
        args.form = config.form = form;
        args.input = s->in;
        args.output = s->out;
        REFUSED(sol_all_reduce_norm(&args, s->comm, NULL));
        REFUSED(sol_norm_create(&halves, &config, s->comm));
    }
}

static void experts(subject_t *s, size_t v)
{
    for (int which = 1; which < 4; which++) {
        sol_moe_config_t config = SOL_MOE_CONFIG_INIT;
        sol_moe_t moe = NULL;
        config.top_k = 2;
        config.experts = 4;
        config.max_tokens = which & 1 ? v : 4;
        config.hidden = which & 2 ? v : 64;
        REFUSED(sol_moe_create(&moe, &config, s->comm));
    }
}

static void products(subject_t *s, size_t v)
{
    for (int which = 1; which < 8; which++) {
        sol_linear_args_t linear = SOL_LINEAR_ARGS_INIT;
        sol_vocab_args_t vocab = SOL_VOCAB_ARGS_INIT;
        linear.input = linear.weight = s->in;
        linear.output = s->out;
        linear.tokens = which & 1 ? v : 2;
        linear.outputs = which & 2 ? v : 2;
        linear.inputs = which & 4 ? v : 2;
        REFUSED(sol_linear_all_reduce(&linear, s->comm, NULL));
        vocab.logits = s->in;
        vocab.values = (float *)(void *)s->out;
        vocab.indices = (int64_t *)(void *)s->out;
        vocab.k = 4;
        vocab.tokens = which & 1 ? v : 2;
        vocab.columns = which & 2 ? v : 2;
        vocab.pitch = which & 4 ? v : vocab.columns;
        REFUSED(sol_vocab_topk(&vocab, s->comm, NULL));
    }
}

static void writes(subject_t *s, size_t v, sol_transfer_t transfer)
{
    const int peer = (s->rank + 1) % s->team->nranks;
    const sol_write_t list[] = {
        {s->in, v, 0, peer, 0}, {s->in, 8, v, peer, 0}, {s->in, v, v, peer, 0}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        REFUSED(sol_transfer_write(&list[i], 1, 0, SOL_COUNT_WRITES, transfer, NULL));
    for (int which = 0; which < 4; which++) {
        sol_pages_t pages = SOL_PAGES_INIT;
        pages.from = s->in;
        pages.peer = peer;
        pages.npages = which == 0 ? v : 2;
        pages.page_bytes = which == 1 ? v : 8;
        pages.to_stride = which == 2 ? v : 0;
        pages.offset = which == 3 ? v : 0;
        REFUSED(sol_transfer_write_pages(&pages, 1, 0, SOL_COUNT_WRITES, transfer, NULL));
    }
}

static void transfers(subject_t *s)
{
    sol_region_t region = {s->out, sizeof s->out};
    sol_transfer_config_t config = SOL_TRANSFER_CONFIG_INIT;
    sol_transfer_t transfer;
    config.regions = &region;
    config.nregions = 1;
    config.counters = 2;
    if (!TEAM_OK(s->team, s->rank, sol_transfer_create(s->comm, &config, &transfer), s->comm))
        return;
    for (size_t i = 0; i < SIZES; i++)
        writes(s, sizes[i], transfer);
    TEAM_OK(s->team, s->rank, sol_barrier(s->comm, NULL), s->comm);
    TEAM_OK(s->team, s->rank, sol_transfer_destroy(transfer), s->comm);
}

static void near_the_end(team_t *team, int rank, void *arg)
{
    static subject_t subject;
    subject_t *s = &subject;
    (void)arg;
    *s = (subject_t){.team = team, .rank = rank};
    if (!fault_comm(team, rank, FAULT_LONG_MS, &s->comm))
        return;
    for (size_t i = 0; i < SIZES; i++) {
        const size_t v = sizes[i];
        void *memory;
        for (int type = 0; type < SOL_DTYPE_COUNT; type++)
            collectives(s, v, (sol_dtype_t)type);
        for (int form = 0; form < 3; form++)
            norms(s, v, form);
        experts(s, v);
        products(s, v);
        REFUSED(sol_mem_alloc(s->comm, v, &memory));
    }
    transfers(s);
    fault_still_works(team, rank, s->comm);
    TEAM_OK(team, rank, sol_comm_destroy(s->comm), NULL);
}

const fault_case_t fault_counts[] = {
    {.name = "counts: near SIZE_MAX, 1 rank", .run = near_the_end, .nranks = 1},
    {.name = "counts: near SIZE_MAX, 2 ranks", .run = near_the_end, .nranks = 2},
    {.name = "counts: near SIZE_MAX, 3 ranks", .run = near_the_end, .nranks = 3},
    {.name = NULL},
};
