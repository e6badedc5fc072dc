/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm_halves.cu: where the lanes of a handle of sol_norm_start lie, and from its halves to the
 * kernels of norm_halves.cuh, their arguments and grids.
 */
#include "device/kernels/enqueue.cuh"
#include "device/kernels/norm_args.cuh"
#include "device/kernels/norm_halves.cuh"
#include "device/kernels/norm_halves_launch.h"

/* ------------------------------------------------------------------------------- the lanes */

static uint64_t up(uint64_t x, uint64_t to)
{
    return (x + to - 1) / to * to;
}

/* Bytes of a source's slot. In two hops finished rows lie in its upper half: outputs, at most of
 * fp32, scales and residuals. */
static uint64_t slot_bytes(const sol_norm_config_t *c, uint64_t n)
{
    const uint64_t pitch = up(c->hidden * sol_dtype_size(c->dtype), 16);
    const uint64_t groups = (c->hidden + SOL_QUANT_GROUP_COLUMNS - 1) / SOL_QUANT_GROUP_COLUMNS;
    if (c->form == SOL_NORM_ONE_SHOT)
        return up(c->max_tokens * pitch, 128);
    uint64_t finished = c->shards & SOL_NORM_SHARD_RESIDUAL ? 0 : pitch;
    if (!(c->shards & SOL_NORM_SHARD_OUTPUT))
        finished += up(c->hidden * sizeof(float), 16) + up(groups * sizeof(float), 16);
    const uint64_t rows = (c->max_tokens + n - 1) / n;
    return up(2 * rows * (pitch > finished ? pitch : finished), 256);
}

/* A staging without lanes of its own for pairs: control, slots of both parities, their escapes. */
static struct sol_gpu_layout layout_of(const sol_norm_config_t *c, int nranks)
{
    struct sol_gpu_layout l;
    memset(&l, 0, sizeof l);
    l.slot_bytes = slot_bytes(c, (uint64_t)nranks);
    l.coll = SOL_GPU_CONTROL_BYTES;
    l.escape = (uint64_t)nranks * l.slot_bytes;
    l.parity_bytes = l.escape + l.escape / 2;
    l.p2p = l.coll + SOL_GPU_PARITIES * l.parity_bytes;
    l.p2p_source_bytes = l.p2p_escape = 1; /* (there are none; nobody divides by 0) */
    l.total = l.p2p;
    return l;
}

static uint64_t lane_bytes(const struct sol_gpu_layout *l)
{
    return up(l->total + sizeof(struct sol_gpu_state), 4096);
}

uint64_t sol_gpu_norm_halves_bytes(const sol_norm_config_t *config, int nranks)
{
    const struct sol_gpu_layout l = layout_of(config, nranks);
    if (l.total > 0x7fffffffu) /* kernels reckon with 32 bits */
        return 0;
    return (uint64_t)config->depth * lane_bytes(&l);
}

void sol_gpu_norm_halves_describe(struct sol_gpu_norm_halves *halves,
                                  const struct sol_gpu_comm *comm, const sol_norm_config_t *config,
                                  char *const *base)
{
    const struct sol_gpu_layout l = layout_of(config, comm->nranks);
    memset(halves, 0, sizeof *halves);
    halves->config = *config;
    for (int i = 0; i < config->depth; i++) {
        struct sol_gpu_comm *lane = &halves->lane[i];
        *lane = *comm;
        lane->layout = l;
        lane->multicast = NULL;
        lane->area = lane->area_bytes = 0;
        for (int r = 0; r < comm->nranks; r++)
            lane->staging[r] = base[r] + (uint64_t)i * lane_bytes(&l);
        lane->state =
            (struct sol_gpu_state *)(void *)(lane->staging[comm->rank] + up(l.total, 128));
    }
}

cudaError_t sol_gpu_norm_halves_init(const struct sol_gpu_norm_halves *halves, uint64_t epoch,
                                     cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;
    for (int i = 0; i < halves->config.depth && e == cudaSuccess; i++)
        e = sol_gpu_init(&halves->lane[i], epoch, stream);
    return e;
}

/* ------------------------------------------------------------------------------- the start */

typedef void (*start_kernel)(struct sol_norm_start_args, struct sol_link, struct sol_tail);

template <int N> static start_kernel start_of(bool all, bool exact)
{
    if (all)
        return exact ? sol_norm_start_kernel<N, true, true> : sol_norm_start_kernel<N, true, false>;
    return exact ? sol_norm_start_kernel<N, false, true> : sol_norm_start_kernel<N, false, false>;
}

static start_kernel start_for(int nranks, bool all, bool exact)
{
#ifndef SOL_NORM_MANY_RANKS /* (mutants, with more than two) */
    if (nranks == 2)
        return start_of<2>(all, exact);
#endif
    (void)nranks;
    return start_of<SOL_GPU_MAX_RANKS>(all, exact);
}

/* The most that one peer gets, in vectors, is what the grid is for. */
static unsigned start_ctas(const struct sol_gpu_norm_halves *halves,
                           const struct sol_norm_start_args *a, const struct sol_gpu_comm *lane)
{
    const uint64_t each = SOL_NORM_START_THREADS * SOL_NORM_START_VECTORS * SOL_GPU_VECTOR;
    const int most = sol_most_ctas(lane);
    uint64_t wanted = 1;
    for (int p = 0; p < lane->nranks; p++) {
        const uint64_t ctas = ((uint64_t)a->rows[p] * a->pitch + each - 1) / each;
        wanted = ctas > wanted ? ctas : wanted;
    }
    const uint64_t allowed =
        (uint64_t)(halves->config.start_ctas < most ? halves->config.start_ctas : most);
    return (unsigned)(wanted < allowed ? wanted : allowed);
}

cudaError_t sol_gpu_norm_start(const struct sol_gpu_norm_halves *halves, int which,
                               const sol_norm_args_t *args, unsigned flags, uint64_t sequence,
                               cudaStream_t stream)
{
    const struct sol_gpu_comm *lane = &halves->lane[which];
    const bool all = halves->config.form == SOL_NORM_ONE_SHOT;
    struct sol_norm_two_args rows;
    struct sol_norm_start_args a;
    memset(&a, 0, sizeof a);
    a.input = (const char *)args->input;
    a.row = (uint32_t)sol_norm_row_bytes(args);
    a.pitch = sol_norm_whole(a.row);
    sol_norm_two_sizes(&rows, args);
    sol_norm_two_fill(&rows, lane, args, 0, args->tokens);
    for (int p = 0; p < lane->nranks; p++) {
        a.first[p] = all ? 0 : rows.first[p];
        a.rows[p] = all ? (uint32_t)args->tokens : rows.rows[p];
    }
    /* (the start may not know yet whether a residual is wanted: shards decide) */
    a.finished = !(args->shards & SOL_NORM_SHARD_OUTPUT);
    const bool exact = a.row == a.pitch && sol_norm_aligned(args->input);
    const struct sol_grid grid = {start_ctas(halves, &a, lane), SOL_NORM_START_THREADS, 1, flags,
                                  stream};
    return sol_enqueue(start_for(lane->nranks, all, exact), grid, a, sol_link_of(lane),
                       sol_tail_for(sequence, args->tokens * a.row, SOL_FUNC_ALL_REDUCE));
}

/* -------------------------------------------------------------------------------- the wait */

typedef void (*wait_kernel)(struct sol_norm_kernel_args, struct sol_link, struct sol_tail);
typedef void (*rows_kernel)(struct sol_norm_two_args, struct sol_link, struct sol_tail);

/* Two ranks have forms of their own for the usual norm only, for the time that all of them take to
 * compile; other norms have that of any number of ranks. NULL: piece by piece. */
template <int D> static wait_kernel wait_of(int nranks, int vectors, bool plain)
{
#ifndef SOL_NORM_MANY_RANKS
    if constexpr (D != SOL_FLOAT32)
        if (nranks == 2 && plain)
            return vectors == 1 ? sol_norm_wait_kernel<D, 2, 1, true>
                                : sol_norm_wait_kernel<D, 2, 2, true>;
#endif
    (void)nranks, (void)plain;
    return vectors == 1 ? sol_norm_wait_kernel<D, SOL_GPU_MAX_RANKS, 1, false> : NULL;
}

static wait_kernel wait_for(sol_dtype_t dtype, int nranks, int vectors, bool plain)
{
#ifndef SOL_NORM_ONE_TYPE /* (mutants) */
    if (dtype == SOL_FLOAT16)
        return wait_of<SOL_FLOAT16>(nranks, vectors, plain);
    if (dtype == SOL_FLOAT32)
        return wait_of<SOL_FLOAT32>(nranks, vectors, plain);
#endif
    (void)dtype;
    return wait_of<SOL_BFLOAT16>(nranks, vectors, plain);
}

static rows_kernel rows_for(sol_dtype_t dtype)
{
#ifndef SOL_NORM_ONE_TYPE
    if (dtype == SOL_FLOAT16)
        return sol_norm_wait_rows_kernel<SOL_FLOAT16>;
    if (dtype == SOL_FLOAT32)
        return sol_norm_wait_rows_kernel<SOL_FLOAT32>;
#endif
    (void)dtype;
    return sol_norm_wait_rows_kernel<SOL_BFLOAT16>;
}

/* In one hop all rows are this rank's to finish, and none travels then. */
static void all_rows(struct sol_norm_two_args *a, const sol_norm_args_t *args, int nranks)
{
    a->output = a->scales = a->residual_out = NULL;
    a->finished = 0;
    a->most = a->own.tokens = (uint32_t)args->tokens;
    for (int p = 0; p < nranks; p++) {
        a->first[p] = 0;
        a->rows[p] = a->most;
    }
    a->own.input = (const char *)args->input;
    a->own.residual = (const char *)args->residual;
    a->own.residual_out = (char *)args->residual_out;
    a->own.output = (char *)args->output;
    a->own.scales = (char *)args->scales;
}

static cudaError_t wait_rows(const struct sol_gpu_comm *lane, const sol_norm_args_t *args,
                             bool one_hop, int ctas, unsigned flags, const struct sol_tail &tail,
                             cudaStream_t stream)
{
    struct sol_norm_two_args a;
    const int most = sol_most_ctas(lane);
    sol_norm_two_sizes(&a, args);
    sol_norm_two_fill(&a, lane, args, 0, args->tokens);
    if (one_hop)
        all_rows(&a, args, lane->nranks);
    const unsigned wished = (unsigned)(ctas > 0 && ctas < most ? ctas : most);
    const struct sol_grid grid = {wished < a.most ? wished : a.most, SOL_NORM_LONG_THREADS, 1,
                                  flags, stream};
    return sol_enqueue(rows_for(args->dtype), grid, a, sol_link_of(lane), tail);
}

cudaError_t sol_gpu_norm_wait(const struct sol_gpu_norm_halves *halves, int which,
                              const sol_norm_args_t *args, const struct sol_gpu_norm_shape *wished,
                              unsigned flags, uint64_t sequence, cudaStream_t stream)
{
    const struct sol_gpu_comm *lane = &halves->lane[which];
    const bool one_hop = halves->config.form == SOL_NORM_ONE_SHOT;
    const struct sol_tail tail =
        sol_tail_for(sequence, args->tokens * sol_norm_row_bytes(args), SOL_FUNC_ALL_REDUCE);
    struct sol_gpu_norm_shape shape = {0, 0, 0, 0, 0};
    if (wished != NULL)
        shape = *wished;
    if (!one_hop)
        return wait_rows(lane, args, false, shape.ctas, flags, tail, stream);
    sol_gpu_norm_plan(lane, args, &shape);
    const wait_kernel kernel =
        wait_for(args->dtype, lane->nranks, shape.vectors, sol_norm_is_plain(lane, args, &shape));
    if (kernel == NULL)
        return wait_rows(lane, args, true, shape.ctas, flags, tail, stream);
    const struct sol_norm_kernel_args a = sol_norm_args_of(args, &shape, 0, (uint32_t)args->tokens);
    const struct sol_grid grid = {(unsigned)shape.ctas, (unsigned)shape.threads,
                                  (unsigned)shape.spread, flags, stream};
    return sol_enqueue(kernel, grid, a, sol_link_of(lane), tail);
}

cudaError_t sol_gpu_norm_halves_preload(void)
{
    static const sol_dtype_t dtypes[] = {SOL_BFLOAT16, SOL_FLOAT16, SOL_FLOAT32};
    cudaError_t e = cudaSuccess;
    for (int bits = 0; bits < 8 && e == cudaSuccess; bits++)
        e = sol_load((const void *)start_for(bits & 1 ? 2 : SOL_GPU_MAX_RANKS, bits & 2, bits & 4));
    for (int d = 0; d < 3 && e == cudaSuccess; d++) {
        e = sol_load((const void *)rows_for(dtypes[d]));
        for (int bits = 0; bits < 8 && e == cudaSuccess; bits++) {
            const wait_kernel kernel =
                wait_for(dtypes[d], bits & 1 ? 2 : SOL_GPU_MAX_RANKS, bits & 2 ? 2 : 1, bits & 4);
            e = kernel != NULL ? sol_load((const void *)kernel) : e;
        }
    }
    return e;
}
