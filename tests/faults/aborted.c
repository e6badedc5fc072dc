/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aborted.c: whatever rank 0 waits in, an abort of its own other thread, or of another rank, ends
 * it soon, with ABORTED. Then the communicator can be shrunk, and the new one works.
 */
#include "faults/faults.h"

#include "solccl/fused.h"
#include "solccl/moe.h"
#include "solccl/quantized.h"
#include "solccl/transfer.h"

#include <string.h>

#define INSIDE_US 5000 /* likely inside by then; an abort before it comes to the same */

typedef struct waiting {
    sol_comm_t comm;
    sol_norm_halves_t halves;
    sol_moe_t experts;
    sol_transfer_t transfer;
} waiting_t;

static char in[1 << 20], out[1 << 20], table[4096];

static sol_norm_args_t norm_args(sol_norm_form_t form)
{
    sol_norm_args_t args = SOL_NORM_ARGS_INIT;
    args.tokens = 4, args.hidden = 64, args.epsilon = 1e-5f, args.form = form;
    args.dtype = args.output_dtype = SOL_FLOAT32;
    args.input = in, args.output = out;
    return args;
}

static sol_norm_config_t norm_config(sol_norm_form_t form)
{
    sol_norm_config_t config = SOL_NORM_CONFIG_INIT;
    config.max_tokens = 4, config.hidden = 64, config.dtype = SOL_FLOAT32, config.form = form;
    return config;
}

static sol_moe_config_t moe_config(void)
{
    sol_moe_config_t config = SOL_MOE_CONFIG_INIT;
    config.max_tokens = 4, config.hidden = 64, config.dtype = SOL_FLOAT32;
    config.experts = 4, config.top_k = 2;
    return config;
}

static sol_transfer_config_t transfer_config(void)
{
    static sol_region_t region = {table, sizeof(table)};
    sol_transfer_config_t config = SOL_TRANSFER_CONFIG_INIT;
    config.regions = &region, config.nregions = 1, config.counters = 1;
    return config;
}

/* ------------------------------------------------------------- what can be waited in */

static sol_status_t in_split(waiting_t *w)
{
    sol_comm_t part;
    return sol_comm_split(w->comm, 0, 0, &part, NULL);
}

static sol_status_t in_grow(waiting_t *w)
{
    sol_unique_id_t id;
    sol_comm_t grown;
    sol_status_t status = sol_get_unique_id(&id);
    return status == SOL_OK ? sol_comm_grow(w->comm, &id, 3, &grown, NULL) : status;
}

/* (With a handle open it would be refused.) */
static sol_status_t in_sleep(waiting_t *w)
{
    return sol_comm_sleep(w->comm, SOL_SLEEP_KEEP);
}

static sol_status_t in_mem_alloc(waiting_t *w)
{
    void *memory;
    return sol_mem_alloc(w->comm, 4096, &memory);
}

static sol_status_t in_transfer_create(waiting_t *w)
{
    const sol_transfer_config_t config = transfer_config();
    sol_transfer_t made;
    return sol_transfer_create(w->comm, &config, &made);
}

static sol_status_t in_norm_create(waiting_t *w)
{
    const sol_norm_config_t config = norm_config(SOL_NORM_ONE_SHOT);
    sol_norm_halves_t made;
    return sol_norm_create(&made, &config, w->comm);
}

static sol_status_t in_moe_create(waiting_t *w)
{
    const sol_moe_config_t config = moe_config();
    sol_moe_t made;
    return sol_moe_create(&made, &config, w->comm);
}

static sol_status_t in_norm_wait(waiting_t *w)
{
    const sol_norm_args_t args = norm_args(SOL_NORM_TWO_SHOT);
    sol_status_t status = sol_norm_start(w->halves, &args, NULL);
    return status == SOL_OK ? sol_norm_wait(w->halves, &args, NULL) : status;
}

static sol_status_t in_dispatch(waiting_t *w)
{
    static const int64_t first[8] = {0, 1, 2, 3, 0, 1, 2, 3};
    sol_moe_dispatch_args_t args = SOL_MOE_DISPATCH_ARGS_INIT;
    args.tokens = 4, args.x = in, args.topk_idx = first;
    args.recv_x = out, args.recv_counts = (int32_t *)(void *)table;
    return sol_moe_dispatch(w->experts, &args, NULL);
}

static sol_status_t in_transfer_wait(waiting_t *w)
{
    return sol_transfer_wait(w->transfer, 0, 1, 1, -1);
}

static sol_status_t in_transfer_wait_any(waiting_t *w)
{
    return sol_transfer_wait(w->transfer, 0, SOL_ANY_RANK, 1, FAULT_LONG_MS);
}

static sol_status_t in_transfer_await(waiting_t *w)
{
    return sol_transfer_await(w->transfer, 0, 1, 1, NULL);
}

static sol_status_t in_norm(waiting_t *w)
{
    const sol_norm_args_t args = norm_args(SOL_NORM_ONE_SHOT);
    return sol_all_reduce_norm(&args, w->comm, NULL);
}

static sol_status_t in_norm_two_shot(waiting_t *w)
{
    const sol_norm_args_t args = norm_args(SOL_NORM_TWO_SHOT);
    return sol_all_reduce_norm(&args, w->comm, NULL);
}

static sol_status_t in_vocab(waiting_t *w)
{
    sol_vocab_args_t args = SOL_VOCAB_ARGS_INIT;
    args.tokens = 2, args.columns = 50, args.k = 4, args.dtype = SOL_FLOAT32;
    args.logits = in, args.values = (float *)(void *)out, args.indices = (int64_t *)(void *)table;
    return sol_vocab_topk(&args, w->comm, NULL);
}

static sol_status_t in_linear(waiting_t *w)
{
    sol_linear_args_t args = SOL_LINEAR_ARGS_INIT;
    args.tokens = 2, args.inputs = 32, args.outputs = 32;
    args.input = in, args.weight = in, args.output = out;
    return sol_linear_all_reduce(&args, w->comm, NULL);
}

static sol_status_t in_quantized(waiting_t *w)
{
    return sol_all_reduce_quantized(in, out, 100000, SOL_FLOAT32, SOL_INT8, 2, w->comm, NULL);
}

static sol_status_t in_barrier(waiting_t *w)
{
    return sol_barrier(w->comm, NULL);
}

static sol_status_t in_small(waiting_t *w)
{
    return sol_all_reduce(in, out, 2, SOL_FLOAT32, SOL_SUM, w->comm, NULL);
}

static sol_status_t in_large(waiting_t *w)
{
    return sol_all_reduce(in, out, 250000, SOL_FLOAT32, SOL_SUM, w->comm, NULL);
}

static sol_status_t in_all_to_all(waiting_t *w)
{
    return sol_all_to_all(in, out, 100000, SOL_FLOAT32, w->comm, NULL);
}

/* (The first few need nobody.) */
static sol_status_t in_send(waiting_t *w)
{
    sol_status_t status = SOL_OK;
    for (int i = 0; i < 1000 && status == SOL_OK; i++)
        status = sol_send(in, 250000, SOL_FLOAT32, 1, w->comm, NULL);
    return status;
}

static sol_status_t in_recv(waiting_t *w)
{
    return sol_recv(out, 100, SOL_FLOAT32, 1, w->comm, NULL);
}

static sol_status_t in_group(waiting_t *w)
{
    sol_comm_t part;
    sol_group_start();
    (void)sol_comm_split(w->comm, 0, 0, &part, NULL);
    (void)sol_all_reduce(in, out, 9, SOL_FLOAT32, SOL_SUM, w->comm, NULL);
    return sol_group_end();
}

static const struct {
    const char *name;
    sol_status_t (*wait)(waiting_t *w);
    bool bare; /* without open handles */
} waits[] = {{"split", in_split, false},
             {"grow", in_grow, false},
             {"sleep", in_sleep, true},
             {"mem_alloc", in_mem_alloc, false},
             {"transfer_create", in_transfer_create, false},
             {"norm_create", in_norm_create, false},
             {"moe_create", in_moe_create, false},
             {"norm_wait", in_norm_wait, false},
             {"moe_dispatch", in_dispatch, false},
             {"transfer_wait", in_transfer_wait, false},
             {"transfer_wait for any", in_transfer_wait_any, false},
             {"transfer_await", in_transfer_await, false},
             {"all_reduce_norm", in_norm, false},
             {"all_reduce_norm in two shots", in_norm_two_shot, false},
             {"vocab_topk", in_vocab, false},
             {"linear_all_reduce", in_linear, false},
             {"all_reduce_quantized", in_quantized, false},
             {"barrier", in_barrier, false},
             {"a small all_reduce", in_small, false},
             {"a large all_reduce", in_large, false},
             {"all_to_all", in_all_to_all, false},
             {"send", in_send, false},
             {"recv", in_recv, false},
             {"a group", in_group, false}};

/* ------------------------------------------------------------------------ the case */

static bool create(team_t *team, int rank, int id, bool bare, waiting_t *w)
{
    sol_comm_config_t config = SOL_COMM_CONFIG_INIT;
    const sol_norm_config_t norm = norm_config(SOL_NORM_TWO_SHOT);
    const sol_moe_config_t moe = moe_config();
    const sol_transfer_config_t transfer = transfer_config();
    config.backend = SOL_BACKEND_CPU, config.timeout_ms = FAULT_LONG_MS, config.name = "faults";
    memset(w, 0, sizeof(*w));
    return TEAM_OK(team, rank,
                   sol_comm_create(&w->comm, &team->ids[id], team->nranks, rank, &config), NULL) &&
           (bare ||
            (TEAM_OK(team, rank, sol_norm_create(&w->halves, &norm, w->comm), w->comm) &&
             TEAM_OK(team, rank, sol_moe_create(&w->experts, &moe, w->comm), w->comm) &&
             TEAM_OK(team, rank, sol_transfer_create(w->comm, &transfer, &w->transfer), w->comm)));
}

static void *abort_soon(void *comm)
{
    team_sleep_us(INSIDE_US);
    sol_comm_abort(comm);
    return NULL;
}

/* Rank 0 is in the wait `i`; `self`: it aborts by itself. */
static void end_wait(team_t *team, int rank, int i, bool self)
{
    waiting_t w;
    pthread_t thread;
    sol_comm_t rest = NULL;
    team_doing(team, rank, "%s, aborted by rank %d", waits[i].name, self ? 0 : 1);
    if (!create(team, rank, i % TEAM_IDS, waits[i].bare, &w))
        return;
    team_barrier(team);
    if (rank == (self ? 0 : 1))
        TEAM_CHECK(team, rank, pthread_create(&thread, NULL, abort_soon, w.comm) == 0);
    if (rank == 0) {
        double begin = team_now();
        team_expect(team, rank, waits[i].name, waits[i].wait(&w), SOL_ERR_ABORTED, w.comm);
        TEAM_CHECK(team, rank, team_now() - begin < FAULT_SOON);
    }
    if (rank == (self ? 0 : 1))
        pthread_join(thread, NULL);
    team_barrier(team);
    if (TEAM_OK(team, rank, sol_comm_shrink(w.comm, 0, &rest, NULL), NULL)) {
        fault_still_works(team, rank, rest);
        TEAM_OK(team, rank, sol_comm_destroy(rest), NULL);
    }
    TEAM_OK(team, rank, sol_comm_destroy(w.comm), NULL);
    team_barrier(team);
}

static void every_wait(team_t *team, int rank, void *arg)
{
    const int count = (int)(sizeof(waits) / sizeof(waits[0]));
    for (int i = 0; i < count && atomic_load(&team->failures) == 0; i++)
        end_wait(team, rank, i, *(int *)arg != 0);
}

const fault_case_t fault_aborted[] = {
    {.name = "aborted in every wait, by another rank", .run = every_wait, .nranks = 2},
    {.name = "aborted in every wait, by itself", .run = every_wait, .nranks = 2, .argument = 1},
    {.name = "aborted in every wait, by itself, threads",
     .run = every_wait,
     .nranks = 2,
     .threads = true,
     .argument = 1},
    {.name = NULL}};
