/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe.cu: which kernel of moe.cuh a call gets, and where everything of a handle lies
 * in its symmetric memory:
 *
 *     words   parity 0: source 0: tokens | a bit for each token | rows for each expert; source 1
 * ... parity 1 own     clocks | ranks of each token | what came | plan of the way back
 */
#include "device/kernels/enqueue.cuh"
#include "device/kernels/moe.cuh"
#include "device/kernels/moe_launch.h"
#include "proto/dev_layout.h"
#include "proto/gpu_moe.h"

#include <string.h>

/* Offsets in the memory, and steps. */
struct places {
    uint64_t words_source, words_parity, epochs, masks, came, plan, total;
    uint32_t count_at;
};

static uint64_t up(uint64_t x, uint64_t to)
{
    return (x + to - 1) / to * to;
}

static struct places places_of(const sol_moe_shape_t *shape)
{
    struct places p;
    const uint64_t n = (uint64_t)shape->nranks, tokens = shape->max_tokens;
    const uint64_t experts = (shape->first[shape->nranks] + n - 1) / n; /* of a rank, at most */
    p.count_at = (uint32_t)(1 + (tokens + 15) / 16);
    p.words_source = up((p.count_at + experts) * 8, 128);
    p.words_parity = n * p.words_source;
    p.epochs = 2 * p.words_parity;
    p.masks = p.epochs + 128;
    p.came = up(p.masks + 4 * tokens, 128);
    p.plan = up(p.came + 4 * SOL_DEV_MAX_RANKS, 128);
    p.total = p.plan + n * tokens * shape->top_k * 8;
    return p;
}

static uint32_t head_vectors(const sol_moe_shape_t *shape)
{
    return (shape->top_k + 1) / 2 + (shape->scales ? SOL_MOE_VECTORS : 0);
}

static uint32_t pieces(uint64_t bytes, uint32_t piece)
{
    return (uint32_t)((bytes + piece - 1) / piece);
}

/* For sol_moe_divide. */
static uint32_t inverse(uint32_t y)
{
    return y == 1 ? 0xffffffffu : (uint32_t)(((uint64_t)1 << 32) / y);
}

void sol_gpu_moe_config(const sol_moe_shape_t *shape, sol_dev_config_t *config)
{
    static const sol_dev_config_t blank = SOL_DEV_CONFIG_INIT;
    *config = blank;
    config->channel[0].kind = config->channel[1].kind = SOL_CHANNEL_WORD;
    config->channel[0].sessions = config->channel[1].sessions = (int)shape->max_tokens;
    config->channel[0].slot_bytes =
        (size_t)pieces(shape->row_sent, SOL_MOE_PIECE) * (head_vectors(shape) * 16 + SOL_MOE_PIECE);
    config->channel[1].slot_bytes = up(shape->row, SOL_MOE_BACK_PIECE);
    config->memory_bytes = places_of(shape).total;
}

size_t sol_gpu_moe_bytes(const sol_moe_shape_t *shape)
{
    sol_dev_config_t config;
    sol_gpu_moe_config(shape, &config);
    return sol_dev_layout_of(&config, shape->nranks).total;
}

static struct sol_moe_kernel kernel_of(const struct sol_gpu_moe *moe)
{
    const sol_moe_shape_t *s = &moe->shape;
    const struct places p = places_of(s);
    struct sol_moe_kernel m;
    memset(&m, 0, sizeof m);
    m.there = moe->dev.channel[0];
    m.back = moe->dev.channel[1];
    char *own = moe->dev.memory.base[s->rank];
    m.words_in = own;
    for (int r = 0; r < s->nranks; r++)
        m.words_out[r] = moe->dev.memory.base[r] + (uint64_t)s->rank * p.words_source;
    m.epochs = own + p.epochs;
    m.masks = own + p.masks;
    m.came = own + p.came;
    m.plan = own + p.plan;
    m.first_epoch = moe->first_epoch ? moe->first_epoch : 1;
    m.words_source = (uint32_t)p.words_source;
    m.words_parity = (uint32_t)p.words_parity;
    m.count_at = p.count_at;
    m.rank = s->rank;
    m.nranks = s->nranks;
    m.max_tokens = s->max_tokens;
    m.hidden = s->hidden;
    m.top_k = s->top_k;
    m.experts = s->first[s->nranks];
    m.local = s->local;
    for (int r = 0; r <= SOL_DEV_MAX_RANKS; r++)
        m.first[r] = s->first[r < s->nranks ? r : s->nranks];
    m.rows_per_expert = (uint32_t)s->rows_per_expert;
    m.align = s->align;
    m.row = (uint32_t)s->row;
    m.row_sent = (uint32_t)s->row_sent;
    m.scales = s->scales;
    m.pieces = pieces(s->row_sent, SOL_MOE_PIECE);
    m.pieces_back = pieces(s->row, SOL_MOE_BACK_PIECE);
    m.head = head_vectors(s);
    m.marks = SOL_MOE_MAX_EXPERTS / m.experts;
    m.marks = m.marks < SOL_MOE_MOST_MARKS ? m.marks : SOL_MOE_MOST_MARKS;
    m.per_k = inverse(m.top_k);
    m.per_piece = inverse(m.pieces);
    m.per_back = inverse(m.pieces_back);
    return m;
}

/* ---------------------------------------------------------------------------- which kernel */

typedef void (*dispatch_kernel)(struct sol_moe_kernel, struct sol_moe_dispatch_call);
typedef void (*combine_kernel)(struct sol_moe_kernel, struct sol_moe_combine_call);

template <int D, bool QUANT> static dispatch_kernel dispatch_of(int nranks, bool exact)
{
    if (nranks <= 2)
        return exact ? sol_moe_dispatch_kernel<D, 2, QUANT, true>
                     : sol_moe_dispatch_kernel<D, 2, QUANT, false>;
    return exact ? sol_moe_dispatch_kernel<D, SOL_DEV_MAX_RANKS, QUANT, true>
                 : sol_moe_dispatch_kernel<D, SOL_DEV_MAX_RANKS, QUANT, false>;
}

static dispatch_kernel dispatch_for(sol_dtype_t dtype, int nranks, bool quant, bool exact)
{
    if (!quant) /* bytes are bytes */
        return dispatch_of<SOL_BFLOAT16, false>(nranks, exact);
#ifndef SOL_MOE_ONE_TYPE
    if (dtype == SOL_FLOAT32)
        return dispatch_of<SOL_FLOAT32, true>(nranks, exact);
    if (dtype == SOL_FLOAT16)
        return dispatch_of<SOL_FLOAT16, true>(nranks, exact);
#endif
    (void)dtype;
    return dispatch_of<SOL_BFLOAT16, true>(nranks, exact);
}

template <int D> static combine_kernel combine_of(int nranks, bool exact)
{
    if (nranks <= 2)
        return exact ? sol_moe_combine_kernel<D, 2, true> : sol_moe_combine_kernel<D, 2, false>;
    return exact ? sol_moe_combine_kernel<D, SOL_DEV_MAX_RANKS, true>
                 : sol_moe_combine_kernel<D, SOL_DEV_MAX_RANKS, false>;
}

static combine_kernel combine_for(sol_dtype_t dtype, int nranks, bool exact)
{
#ifndef SOL_MOE_ONE_TYPE
    if (dtype == SOL_FLOAT32)
        return combine_of<SOL_FLOAT32>(nranks, exact);
    if (dtype == SOL_FLOAT16)
        return combine_of<SOL_FLOAT16>(nranks, exact);
#endif
    (void)dtype;
    return combine_of<SOL_BFLOAT16>(nranks, exact);
}

/* -------------------------------------------------------------------------------- launches */

/* A warp for each piece that this rank sends, and another for each that it gets if the others have
 * as many tokens, and CTAs that count; within what fits. Any grid will do: how many tokens other
 * ranks have is not known here. */
#define LEAST_TOKENS 16 /* that others are taken to have */
static struct sol_grid grid_of(const struct sol_gpu_moe *moe, uint64_t tokens, uint64_t pieces_each,
                               unsigned most_threads, unsigned flags, cudaStream_t stream)
{
    const uint64_t n = (uint64_t)moe->shape.nranks, most = moe->shape.max_tokens;
    const uint64_t least = most < LEAST_TOKENS ? most : LEAST_TOKENS;
    const uint64_t units = (tokens > least ? tokens : least) * (n > 1 ? n : 2) * pieces_each;
    const uint64_t warps = SOL_MOE_FEW_THREADS / 32, wanted = n + (units + warps - 1) / warps;
    const uint64_t room = (uint64_t)moe->max_ctas;
    struct sol_grid grid = {(unsigned)(wanted < room ? wanted : room), SOL_MOE_FEW_THREADS, 1,
                            flags, stream};
    if (units > room * warps)
        grid.threads = most_threads;
    return grid;
}

static bool sixteen(const void *p, size_t bytes)
{
    return (((uintptr_t)p | bytes) & 15) == 0;
}

cudaError_t sol_gpu_moe_dispatch(const struct sol_gpu_moe *moe, const sol_moe_dispatch_args_t *args,
                                 unsigned halves, unsigned flags, uint64_t sequence,
                                 cudaStream_t stream)
{
    const sol_moe_shape_t *s = &moe->shape;
    const struct sol_moe_kernel m = kernel_of(moe);
    struct sol_moe_dispatch_call call;
    const size_t idx = sol_dtype_size(args->idx_dtype);
    bool exact = sixteen(NULL, s->row) && sixteen(NULL, s->row_sent);
    memset(&call, 0, sizeof call);
    call.tokens = (uint32_t)args->tokens;
    call.halves = (uint8_t)halves;
    call.story.sequence = sequence;
    call.story.bytes = args->tokens * s->row;
    call.story.func = SOL_GPU_WHO_DISPATCH;
    call.power = s->quant == SOL_QUANT_GROUP_POW2;
    if (halves & 1) {
        call.x = (const char *)args->x;
        call.idx = (const char *)args->topk_idx;
        call.weights = (const char *)args->topk_weights;
        call.idx_bytes = (uint8_t)idx;
        exact = exact && ((uintptr_t)args->topk_idx & (idx - 1)) == 0 &&
                ((uintptr_t)args->topk_weights & 3) == 0;
        call.direct = halves == 3 && args->tokens <= 32 * (size_t)m.marks; /* in one chunk */
        exact = exact && sixteen(args->x, s->row);
    }
    if (halves & 2) {
        call.recv_x = (char *)args->recv_x;
        call.recv_scales = (char *)args->recv_scales;
        call.recv_weights = (char *)args->recv_weights;
        call.recv_counts = (char *)args->recv_counts;
        call.recv_offsets = (char *)args->recv_offsets;
        exact = exact && sixteen(args->recv_x, s->row_sent) &&
                (!s->scales || sixteen(args->recv_scales, s->scales * sizeof(float)));
    }
    return sol_enqueue(dispatch_for(s->dtype, s->nranks, s->scales != 0, exact),
                       grid_of(moe, args->tokens, m.pieces,
                               sol_moe_threads(s->dtype, s->scales != 0), flags, stream),
                       m, call);
}

cudaError_t sol_gpu_moe_combine(const struct sol_gpu_moe *moe, const sol_moe_combine_args_t *args,
                                unsigned halves, unsigned flags, uint64_t sequence,
                                cudaStream_t stream)
{
    const sol_moe_shape_t *s = &moe->shape;
    const struct sol_moe_kernel m = kernel_of(moe);
    struct sol_moe_combine_call call;
    bool exact = sixteen(NULL, s->row);
    memset(&call, 0, sizeof call);
    call.tokens = (uint32_t)args->tokens;
    call.halves = (uint8_t)halves;
    call.direct = halves == 3;
    call.story.sequence = sequence;
    call.story.bytes = args->tokens * s->row;
    call.story.func = SOL_GPU_WHO_COMBINE;
    if (halves & 1) {
        call.y = (const char *)args->y;
        call.weights = (const char *)args->weights;
        exact = exact && sixteen(args->y, s->row) && ((uintptr_t)args->weights & 3) == 0;
    }
    if (halves & 2) {
        call.out = (char *)args->out;
        exact = exact && sixteen(args->out, s->row);
    }
    const unsigned most = s->nranks <= 2 ? SOL_MOE_THREADS : SOL_MOE_FEW_THREADS;
    return sol_enqueue(combine_for(s->dtype, s->nranks, exact),
                       grid_of(moe, args->tokens, m.pieces_back, most, flags, stream), m, call);
}

cudaError_t sol_gpu_moe_preload(void)
{
    static const sol_dtype_t dtypes[] = {SOL_BFLOAT16, SOL_FLOAT16, SOL_FLOAT32};
    cudaError_t e = cudaSuccess;
    for (int d = 0; d < 3; d++)
        for (int bits = 0; bits < 8 && e == cudaSuccess; bits++) {
            const int nranks = bits & 4 ? SOL_GPU_MAX_RANKS : 2;
            const bool exact = bits & 1, quant = bits & 2;
            e = sol_load((const void *)dispatch_for(dtypes[d], nranks, quant, exact));
            if (e == cudaSuccess && !quant)
                e = sol_load((const void *)combine_for(dtypes[d], nranks, exact));
        }
    return e;
}
