/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_halves.c: sol_norm_start and sol_norm_wait where only GPUs show it: eight under way; in a
 * graph that is replayed on inputs that change; and as a model uses them, two batches of tokens,
 * starts on a second stream beside a compute kernel, called one by one and in a graph. Expected are
 * the bits of sol_all_reduce_norm, which conformance holds to its reference.
 */
#include "gpu/gpu_rank.h"

#include <solccl/fused.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH SOL_NORM_MAX_DEPTH
#define TOKENS 32 /* of a start, at most */
#define HIDDEN 40000
#define WORK 4194304 /* floats that the compute kernel goes through */

typedef struct halves_memory {
    char *source, *input, *weight; /* source: two variants of the input */
    char *residual[2], *output[2]; /* 0: in halves, 1: by the one call */
    float *work;
    unsigned char *got, *wanted; /* host */
} halves_memory_t;

static const size_t all_bytes = (size_t)DEPTH * TOKENS * HIDDEN * 2;

/* bf16 numbers of middling size, from hashes. */
static bool upload(gpu_rank_t *g, halves_memory_t *m, char *to, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes / 2; i++) {
        const uint64_t h = team_mix(seed + i);
        const uint16_t value = (uint16_t)((h & 0x80ff) | (0x3e + (h >> 20) % 3) << 8);
        memcpy(m->got + 2 * i, &value, 2);
    }
    return gpu_copy(g, to, m->got, bytes);
}

static bool make(gpu_rank_t *g, halves_memory_t *m)
{
    memset(m, 0, sizeof(*m));
    m->source = gpu_alloc(g, 2 * all_bytes);
    m->input = gpu_alloc(g, all_bytes);
    m->weight = gpu_alloc(g, HIDDEN * 2);
    m->work = gpu_alloc(g, WORK * sizeof(float));
    m->got = malloc(all_bytes);
    m->wanted = malloc(all_bytes);
    bool good = m->source && m->input && m->weight && m->work && m->got && m->wanted;
    for (int i = 0; i < 2; i++) {
        m->residual[i] = gpu_alloc(g, all_bytes);
        m->output[i] = gpu_alloc(g, all_bytes);
        good = good && m->residual[i] && m->output[i];
    }
    const uint64_t own = 1000 + (uint64_t)g->rank;
    return good && upload(g, m, m->source, all_bytes, own) &&
           upload(g, m, m->source + all_bytes, all_bytes, own << 20) &&
           upload(g, m, m->weight, HIDDEN * 2, 8) &&
           GPU_OK(g, cudaMemsetAsync(m->work, 0, WORK * sizeof(float), g->stream));
}

static void drop(gpu_rank_t *g, halves_memory_t *m)
{
    for (int i = 0; i < 2; i++) {
        gpu_free(g, m->residual[i]);
        gpu_free(g, m->output[i]);
    }
    gpu_free(g, m->source);
    gpu_free(g, m->input);
    gpu_free(g, m->weight);
    gpu_free(g, m->work);
    free(m->got);
    free(m->wanted);
}

/* Equal residuals for both ways, on all ranks, outputs overwritten. */
static bool reset(gpu_rank_t *g, halves_memory_t *m, size_t bytes)
{
    return upload(g, m, m->residual[0], bytes, 7) && upload(g, m, m->residual[1], bytes, 7) &&
           GPU_OK(g, cudaMemsetAsync(m->output[0], 0xff, bytes, g->stream)) &&
           GPU_OK(g, cudaMemsetAsync(m->output[1], 0xee, bytes, g->stream));
}

static sol_norm_args_t args_of(const halves_memory_t *m, int way, size_t first, size_t tokens,
                               size_t hidden)
{
    sol_norm_args_t args = SOL_NORM_ARGS_INIT;
    const size_t at = first * hidden * 2;
    args.tokens = tokens;
    args.hidden = hidden;
    args.input = m->input + at;
    args.residual = args.residual_out = m->residual[way] + at;
    args.weight = m->weight;
    args.epsilon = 1e-6f;
    args.output = m->output[way] + at;
    return args;
}

#define CALL(g, call) TEAM_OK((g)->team, (g)->rank, call, (g)->comm)

static bool open_handle(gpu_rank_t *g, sol_norm_halves_t *halves, sol_norm_form_t form, int depth,
                        size_t hidden)
{
    sol_norm_config_t config = SOL_NORM_CONFIG_INIT;
    config.max_tokens = TOKENS;
    config.hidden = hidden;
    config.form = form;
    config.depth = depth;
    return CALL(g, sol_norm_create(halves, &config, g->comm));
}

/* The first `bytes` of output and residual are what the one call has made. */
static bool same(gpu_rank_t *g, halves_memory_t *m, size_t bytes, const char *what)
{
    char *const *const pairs[] = {m->output, m->residual};
    for (int i = 0; i < 2; i++) {
        if (!gpu_copy(g, m->got, pairs[i][0], bytes) || !gpu_copy(g, m->wanted, pairs[i][1], bytes))
            return false;
        for (size_t b = 0; b < bytes; b++)
            if (m->got[b] != m->wanted[b]) {
                team_fail(g->team, g->rank, "%s: byte %zu of %s is another", what, b,
                          i == 0 ? "output" : "residual");
                return false;
            }
    }
    return true;
}

/* ---------------------------------------------------------------------- all under way */

static bool eight(gpu_rank_t *g, halves_memory_t *m, sol_norm_halves_t halves, size_t tokens,
                  size_t hidden)
{
    const size_t bytes = DEPTH * tokens * hidden * 2;
    bool good =
        reset(g, m, bytes) &&
        GPU_OK(g, cudaMemcpyAsync(m->input, m->source, bytes, cudaMemcpyDeviceToDevice, g->stream));
    for (size_t i = 0; i < DEPTH && good; i++) {
        const sol_norm_args_t args = args_of(m, 0, i * tokens, tokens, hidden);
        good = CALL(g, sol_norm_start(halves, &args, g->stream));
    }
    const sol_norm_args_t whole = args_of(m, 1, 0, DEPTH * tokens, hidden);
    good = good && CALL(g, sol_all_reduce_norm(&whole, g->comm, g->stream));
    for (size_t i = 0; i < DEPTH && good; i++) {
        const sol_norm_args_t args = args_of(m, 0, i * tokens, tokens, hidden);
        good = CALL(g, sol_norm_wait(halves, &args, g->stream));
    }
    return good && same(g, m, bytes, "eight under way");
}

static void all_under_way(gpu_rank_t *g)
{
    static const size_t hidden[] = {8192, 4096, 5000, 8, HIDDEN}, tokens[] = {1, 7, TOKENS};
    halves_memory_t m;
    bool good = make(g, &m);
    for (int h = 0; h < 5 && good; h++)
        for (int form = SOL_NORM_ONE_SHOT; form <= SOL_NORM_TWO_SHOT && good; form++) {
            sol_norm_halves_t halves = NULL;
            good = open_handle(g, &halves, (sol_norm_form_t)form, DEPTH, hidden[h]);
            for (int t = 0; t < 9 && good; t++) {
                team_doing(g->team, g->rank, "form %d, %zu tokens of %zu", form, tokens[t % 3],
                           hidden[h]);
                good = eight(g, &m, halves, tokens[t % 3], hidden[h]);
            }
            CALL(g, sol_norm_destroy(halves));
        }
    drop(g, &m);
}

/* ------------------------------------------------------------------------------ layers */

#define LAYERS 6
#define WIDE 8192
static const size_t batch_bytes = (size_t)TOKENS * WIDE * 2;

typedef struct layers {
    halves_memory_t m;
    sol_norm_halves_t halves;
    cudaStream_t side; /* where starts go; g->stream: one stream for all */
    cudaEvent_t event;
} layers_t;

/* A batch's product: its input comes to be, after a while. */
static bool product(gpu_rank_t *g, layers_t *l, int layer, int batch)
{
    const size_t at = (size_t)batch * batch_bytes;
    const char *from = l->m.source + ((size_t)layer % 2) * 2 * batch_bytes + at;
    return GPU_OK(g, gpu_turn(g->stream, l->m.work, l->m.work, WORK, (float)layer, false)) &&
           GPU_OK(g, cudaMemcpyAsync(l->m.input + at, from, batch_bytes, cudaMemcpyDeviceToDevice,
                                     g->stream));
}

/* Behind the product on the main stream, before all that comes there later. */
static bool start(gpu_rank_t *g, layers_t *l, int batch)
{
    const sol_norm_args_t args = args_of(&l->m, 0, (size_t)batch * TOKENS, TOKENS, WIDE);
    if (l->side != g->stream && (!GPU_OK(g, cudaEventRecord(l->event, g->stream)) ||
                                 !GPU_OK(g, cudaStreamWaitEvent(l->side, l->event, 0))))
        return false;
    return CALL(g, sol_norm_start(l->halves, &args, l->side));
}

static bool finish(gpu_rank_t *g, layers_t *l, int batch)
{
    const sol_norm_args_t args = args_of(&l->m, 0, (size_t)batch * TOKENS, TOKENS, WIDE);
    return CALL(g, sol_norm_wait(l->halves, &args, g->stream));
}

/* b's product runs while a's contributions travel, and a's next one while b's do. Both are waited
 * for at the end. */
static bool in_halves(gpu_rank_t *g, layers_t *l)
{
    bool good = product(g, l, 0, 0) && start(g, l, 0);
    for (int layer = 0; layer < LAYERS && good; layer++) {
        good = product(g, l, layer, 1) && start(g, l, 1) && finish(g, l, 0);
        if (layer + 1 < LAYERS)
            good = good && product(g, l, layer + 1, 0) && start(g, l, 0);
        good = good && finish(g, l, 1);
    }
    if (l->side != g->stream)
        good = good && GPU_OK(g, cudaEventRecord(l->event, l->side)) &&
               GPU_OK(g, cudaStreamWaitEvent(g->stream, l->event, 0));
    return good;
}

static bool by_one_call(gpu_rank_t *g, layers_t *l)
{
    bool good = true;
    const sol_norm_args_t args = args_of(&l->m, 1, 0, 2 * TOKENS, WIDE);
    for (int layer = 0; layer < LAYERS && good; layer++)
        good = product(g, l, layer, 0) && product(g, l, layer, 1) &&
               CALL(g, sol_all_reduce_norm(&args, g->comm, g->stream));
    return good;
}

/* Rounds in turns of the graph (if there is one) and calls one by one, ranks late, inputs that
 * change. */
static bool rounds(gpu_rank_t *g, layers_t *l, cudaGraphExec_t exec)
{
    bool good = true;
    for (int i = 0; i < 12 && good; i++) {
        team_doing(g->team, g->rank, "round %d", i);
        good = upload(g, &l->m, l->m.source, 2 * batch_bytes, (uint64_t)(i * 100 + g->rank));
        if (i % g->nranks == g->rank)
            good = good && GPU_OK(g, gpu_spin(g->stream, 300000));
        good = good && (exec != NULL && i % 3 != 2 ? GPU_OK(g, cudaGraphLaunch(exec, g->stream))
                                                   : in_halves(g, l));
        good = good && by_one_call(g, l) && same(g, &l->m, 2 * batch_bytes, "layers");
    }
    return good;
}

static bool capture(gpu_rank_t *g, layers_t *l, cudaGraphExec_t *exec)
{
    cudaGraph_t graph = NULL;
    bool good = GPU_OK(g, cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal)) &&
                in_halves(g, l) && GPU_OK(g, cudaStreamEndCapture(g->stream, &graph)) &&
                GPU_OK(g, cudaGraphInstantiate(exec, graph, 0));
    if (graph)
        GPU_OK(g, cudaGraphDestroy(graph));
    return good;
}

/* One by one, then in turns with a graph. */
static void layers_on(gpu_rank_t *g, layers_t *l, sol_norm_form_t form)
{
    cudaGraphExec_t exec = NULL;
    if (open_handle(g, &l->halves, form, 2, WIDE) && reset(g, &l->m, 2 * batch_bytes) &&
        rounds(g, l, NULL) && capture(g, l, &exec))
        rounds(g, l, exec);
    if (exec)
        GPU_OK(g, cudaGraphExecDestroy(exec));
    GPU_OK(g, cudaStreamSynchronize(l->side));
    CALL(g, sol_norm_destroy(l->halves));
    l->halves = NULL;
}

static void layers_with(gpu_rank_t *g, bool beside)
{
    layers_t l;
    memset(&l, 0, sizeof(l));
    l.side = g->stream;
    if (beside)
        GPU_OK(g, cudaStreamCreateWithFlags(&l.side, cudaStreamNonBlocking));
    GPU_OK(g, cudaEventCreateWithFlags(&l.event, cudaEventDisableTiming));
    if (make(g, &l.m)) {
        layers_on(g, &l, SOL_NORM_ONE_SHOT);
        layers_on(g, &l, SOL_NORM_TWO_SHOT);
    }
    drop(g, &l.m);
    GPU_OK(g, cudaEventDestroy(l.event));
    if (beside)
        GPU_OK(g, cudaStreamDestroy(l.side));
}

static void replays(gpu_rank_t *g)
{
    layers_with(g, false);
}

static void overlap(gpu_rank_t *g)
{
    layers_with(g, true);
}

const gpu_case_t gpu_cases_halves[] = {
    {.name = "halves",
     .run = all_under_way,
     .least = 2,
     .most = 3,
     .threads = true,
     .processes = true},
    {.name = "halves-replays", .run = replays, .least = 2, .most = 2, .processes = true},
    {.name = "halves-overlap", .run = overlap, .least = 2, .most = 2, .processes = true},
    {.name = NULL},
};
