/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe.cuh: tokens to experts and back (solccl/moe.h), one hop each way, written on
 * solccl/device.h alone. What is computed is said there; coll/moe.c is the twin for
 * CPU ranks, with the same bits.
 *
 * A token's row is cut into pieces, each the work of one warp: a whole warp sends,
 * receives or adds up a piece, and warps know nothing of each other. There is no grid
 * barrier and no wait before a push.
 *
 *   dispatch   owner of a token                        rank of an expert
 *     idx -> which ranks; piece of x (or as FP8) -----> slot [source][token][piece]
 *     how many tokens before this one go where   -----> head of the slot: expert, place, weight
 *     n CTAs count: tokens, a bit for each, rows -----> words [source]: counts of all sources give
 *     of each expert there                              each expert's first row, then:
 *                                                       slot -> row of each expert of the token
 *   combine    rank of an expert                       owner of a token
 *     rows of the token's experts here, weighted -----> slot [rank][token][piece]: added up in the
 *     and added up                                      order of ranks
 *
 * Slots are those of two WORD channels (session.cuh), one session a token: a vector says
 * itself that it has come, and is received once. Which epoch it is, one word of this rank's
 * memory says, that the last CTA to come moves on. Words carry 48 bits of epoch and 16 of
 * value; they are read by every CTA.
 *
 * Why two buffers are enough, and one epoch's slots are empty when their turn comes again:
 * rank s pushes into rank r's slots in epoch e + 2 after its own dispatch e + 1 has ended,
 * which has waited for r's words of e + 1, which r sent after its kernel of epoch e, which
 * emptied the slots, had ended. A combine's slots likewise: after it there is a dispatch.
 *
 * Must never: let an order of additions, or a row's place, depend on what came first; wait
 * for anything before the own part has been sent.
 */
#ifndef SOL_DEVICE_KERNELS_MOE_CUH
#define SOL_DEVICE_KERNELS_MOE_CUH

#include "solccl/device.h"
#include "solccl/moe.h"

#ifdef SOL_EMU
#define SOL_MOE_THREADS 64
#else
#define SOL_MOE_THREADS 256
#endif
#define SOL_MOE_VECTORS 4 /* of 16 bytes that a lane has of a piece of a dispatch */
#ifndef SOL_MOE_BACK
#define SOL_MOE_BACK 2 /* and of a combine */
#endif
#define SOL_MOE_ROWS 4 /* of experts that are fetched at once */
#define SOL_MOE_PIECE (32 * 16 * SOL_MOE_VECTORS)
#define SOL_MOE_BACK_PIECE (32 * 16 * SOL_MOE_BACK)
#define SOL_MOE_ALL 0xffffffffu
#define SOL_MOE_NOBODY 0xffffu /* an expert's number in a head: not one of the receiver's */

/* A handle. Read-only; by value to every kernel. */
struct sol_moe_kernel {
    struct sol_channel there, back;
    char *words_in;                     /* of source 0, parity 0 */
    char *words_out[SOL_DEV_MAX_RANKS]; /* this rank's place at each rank, itself too */
    char *epochs; /* two clocks, 64 bytes apart: the epoch's number from `first_epoch` on, and how
                     many CTAs have read it */
    char *masks;  /* u32 of each own token: which ranks have it */
    char *came;   /* u32: tokens of each source; then for each source and token: has it come? */
    char *plan;   /* for each source, token: top_k words: row of an expert, weight << 32; those of
                     experts here first, in order, then -1 */
    uint64_t first_epoch;
    uint32_t words_source, words_parity; /* steps in bytes */
    uint32_t count_at; /* word of the first expert's count; before: tokens, bits */
    int rank, nranks;
    uint32_t max_tokens, hidden, top_k, experts, local;
    uint32_t first[SOL_DEV_MAX_RANKS + 1]; /* expert of each rank; from nranks on: experts */
    uint32_t rows_per_expert, align;       /* align 0: padded */
    uint32_t row, row_sent, scales;        /* bytes, bytes, floats */
    uint32_t pieces, pieces_back;          /* of a row */
    uint32_t head; /* vectors at the beginning of a piece: expert and place, then scales */
};

struct sol_moe_dispatch_call {
    const char *x, *idx, *weights;
    char *recv_x, *recv_scales, *recv_weights, *recv_counts, *recv_offsets;
    struct sol_story story;
    uint32_t tokens;
    uint8_t idx_bytes, idx_aligned, halves, power;
};

struct sol_moe_combine_call {
    const char *y, *weights;
    char *out;
    struct sol_story story;
    uint32_t tokens, halves;
};

#define SOL_MOE_TABLE (SOL_MOE_MAX_EXPERTS + SOL_DEV_MAX_RANKS)
struct sol_moe_shared {
    uint32_t before[SOL_MOE_TABLE]; /* [source][expert]: rows of the sources before */
    uint32_t total[SOL_MOE_MAX_EXPERTS];
    uint32_t first[SOL_MOE_MAX_EXPERTS + 1];
    uint32_t tokens[SOL_DEV_MAX_RANKS];
};

/* Bits that are set. */
SOL_GPU_FN uint32_t sol_moe_bits(uint32_t x)
{
    x -= x >> 1 & 0x55555555u;
    x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
    return ((x + (x >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
}

/* --- the caller's memory ---------------------------------------------------------------------- */

SOL_GPU_RARE struct sol_vector sol_moe_load_ragged(const char *p, uint32_t left)
{
    return sol_load_vector<false>(p, left);
}
SOL_GPU_RARE void sol_moe_store_ragged(char *p, uint32_t left, struct sol_vector v)
{
    sol_store_vector<false>(p, left, v);
}
template <bool EXACT> SOL_GPU_FN struct sol_vector sol_moe_load(const char *p, uint32_t left)
{
    return EXACT ? sol_load_16(p) : sol_moe_load_ragged(p, left);
}
template <bool EXACT> SOL_GPU_FN void sol_moe_store(char *p, uint32_t left, struct sol_vector v)
{
    if (EXACT)
        sol_store_16(p, v);
    else
        sol_moe_store_ragged(p, left, v);
}
SOL_GPU_FN void sol_moe_store_u32(char *p, uint32_t x)
{
    struct sol_vector v = {x, 0};
    sol_moe_store_ragged(p, 4, v);
}

/* What one kernel keeps for the next: word i of own memory. */
SOL_GPU_FN void sol_moe_keep(char *memory, uint64_t i, uint32_t x)
{
    sol_store_unit((uint32_t *)memory + i, x);
}
SOL_GPU_FN uint32_t sol_moe_kept(const char *memory, uint64_t i)
{
    return sol_load_unit((const uint32_t *)memory + i);
}

/* Entry i of topk_idx; -1: no expert. */
SOL_GPU_FN int32_t sol_moe_number(const struct sol_moe_kernel &m,
                                  const struct sol_moe_dispatch_call &call, uint32_t i)
{
    const char *p = call.idx + (uint64_t)i * call.idx_bytes;
    uint32_t low, high = 0;
    if (call.idx_aligned) {
        low = sol_load_unit((const uint32_t *)p);
        if (call.idx_bytes == 8)
            high = sol_load_unit((const uint32_t *)(p + 4));
    } else {
        struct sol_vector v = sol_moe_load_ragged(p, call.idx_bytes);
        low = (uint32_t)v.a;
        high = (uint32_t)(v.a >> 32);
    }
    return high == 0 && low < m.experts ? (int32_t)low : -1;
}

/* Eight entries of a token from `from` on; those that a token does not have are -1. */
SOL_GPU_FN void sol_moe_numbers(const struct sol_moe_kernel &m,
                                const struct sol_moe_dispatch_call &call, uint32_t token,
                                uint32_t from, int32_t (&e)[8])
{
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        e[i] = -1;
        if (from + i < m.top_k)
            e[i] = sol_moe_number(m, call, token * m.top_k + from + i);
    }
}

/* --- epochs and words --------------------------------------------------------------------------
 */

SOL_GPU_FN uint64_t sol_moe_epoch(const struct sol_moe_kernel &m, int clock)
{
    return m.first_epoch + sol_poll_word(m.epochs + 64 * clock);
}

/* All threads of the CTA: they have read the epoch. The last CTA to say so moves it on. */
SOL_GPU_FN void sol_moe_leave(const struct sol_moe_kernel &m, int clock, uint64_t epoch)
{
    uint32_t *left = (uint32_t *)(m.epochs + 64 * clock + 8);
    __syncthreads();
    if (threadIdx.x == 0 && atomicAdd(left, 1u) == gridDim.x - 1) {
        sol_push_u32(left, 0);
        sol_push_word(m.epochs + 64 * clock, epoch - m.first_epoch + 1);
    }
}

SOL_GPU_FN void sol_moe_send_word(const struct sol_moe_kernel &m, int to, uint64_t epoch,
                                  uint32_t word, uint32_t value)
{
    char *words = m.words_out[to] + (epoch & 1) * m.words_parity;
    sol_push_word(words + 8 * word, epoch << 16 | value);
}

/* False: gave up. */
SOL_GPU_FN bool sol_moe_await_word(const struct sol_moe_kernel &m, const struct sol_story &story,
                                   int from, uint64_t epoch, uint32_t word, uint32_t &value)
{
    const char *words = m.words_in + (epoch & 1) * m.words_parity + (uint64_t)from * m.words_source;
    struct sol_watch watch = {0, 0};
    uint64_t w = sol_poll_word(words + 8 * word);
    while (w >> 16 != (epoch & 0xffffffffffffull)) {
        if (sol_watch_expired(m.there.bound, story, watch, from))
            return false;
        w = sol_poll_word(words + 8 * word);
    }
    value = (uint32_t)w & 0xffff;
    return true;
}

/* --- slots -------------------------------------------------------------------------------------
 */

/* A token's slots in this epoch: a session that a warp opens by itself. */
SOL_GPU_FN struct sol_session sol_moe_slots(const struct sol_channel &ch, uint32_t token,
                                            uint64_t epoch)
{
    struct sol_team team = sol_team_all(ch);
    team.whole = false; /* (no short cuts for two) */
    struct sol_session s = sol_session_prepare(ch, SOL_CHANNEL_WORD, token, SOL_WARP, team);
    s.epoch = epoch;
    sol_session_begin(ch, s);
    return s;
}

/* Own slot at a rank, which may be this one. */
SOL_GPU_FN char *sol_moe_out(const struct sol_channel &ch, const struct sol_session &s, int to)
{
    return to == ch.rank ? sol_session_in(ch, s, to) : sol_session_out(ch, s, to);
}

/* One try of a lane. 0: it is in `v`; 1: it, or its escape word, has not come. */
SOL_GPU_FN uint32_t sol_moe_look(const struct sol_channel &ch, const struct sol_session &s,
                                 int source, uint32_t at, struct sol_vector &v)
{
    const char *in = sol_session_in(ch, s, source) + at;
    v = sol_poll_vector(in);
    if (!SOL_UNLIKELY(sol_vector_suspect(v)))
        return 0;
    const bool a = v.a == SOL_WORD_ESCAPE, b = v.b == SOL_WORD_ESCAPE;
    if (sol_vector_missing(v))
        return 1;
    if (!a && !b)
        return 0;
    const uint64_t e = sol_poll_word(in - at + sol_session_escape(ch, s.base, source, at));
    v.a = a ? SOL_WORD_MARK | (e & 1) : v.a;
    v.b = b ? SOL_WORD_MARK | (e >> 1 & 1) : v.b;
    return e >> 2 != s.epoch;
}

/* The warp, after a try of all lanes: 0: go on, 1: try again, 2: gave up. */
SOL_GPU_FN uint32_t sol_moe_vote(const struct sol_channel &ch, const struct sol_story &story,
                                 struct sol_watch &watch, int source, uint32_t state)
{
    if (state && sol_watch_expired(ch.bound, story, watch, source))
        state = 2;
    if (!sol_level_any(SOL_WARP, state != 0))
        return 0;
    return sol_level_any(SOL_WARP, state == 2) ? 2 : 1;
}

/* The i-th of all tokens of all sources. */
SOL_GPU_FN void sol_moe_locate(const struct sol_moe_shared &shared, int n, uint32_t i, int &source,
                               uint32_t &token)
{
    for (source = 0; source < n - 1 && i >= shared.tokens[source]; source++)
        i -= shared.tokens[source];
    token = i;
}

SOL_GPU_FN uint32_t sol_moe_tokens(const struct sol_moe_shared &shared, int n)
{
    uint32_t sum = 0;
    for (int s = 0; s < n; s++)
        sum += shared.tokens[s];
    return sum;
}

/* --- dispatch: routes --------------------------------------------------------------------------
 */

/* Lane j: entry j of the token, -1 if it is none or named before. */
SOL_GPU_FN int32_t sol_moe_entry(const struct sol_moe_kernel &m,
                                 const struct sol_moe_dispatch_call &call, uint32_t token,
                                 uint32_t lane)
{
    int32_t e = -1;
    bool again = false;
    if (lane < m.top_k)
        e = sol_moe_number(m, call, token * m.top_k + lane);
    for (uint32_t j = 0; j + 1 < m.top_k; j++) {
        int32_t other = __shfl_sync(SOL_MOE_ALL, e, (int)j);
        again |= j < lane && other == e;
    }
    return again ? -1 : e;
}

SOL_GPU_FN int sol_moe_rank_of(const struct sol_moe_kernel &m, int32_t expert)
{
    int r = 0;
#pragma unroll
    for (int i = 1; i < SOL_DEV_MAX_RANKS; i++)
        r += (uint32_t)expert >= m.first[i];
    return r;
}

/* Which ranks have an expert of the token. The same to all lanes. */
SOL_GPU_FN uint32_t sol_moe_mask(const struct sol_moe_kernel &m, int32_t entry)
{
    uint32_t mask = 0;
    const int owner = entry < 0 ? -1 : sol_moe_rank_of(m, entry);
    for (int r = 0; r < m.nranks; r++)
        mask |= (uint32_t)(__ballot_sync(SOL_MOE_ALL, owner == r) != 0) << r;
    return mask;
}

/* Lane j: how many tokens before this one want the expert of its entry. Counts of 16 bits, two a
 * word. */
SOL_GPU_FN uint32_t sol_moe_place(const struct sol_moe_kernel &m,
                                  const struct sol_moe_dispatch_call &call, uint32_t token,
                                  uint32_t lane, int32_t entry)
{
    uint32_t place = 0;
    for (uint32_t group = 0; group < m.top_k; group += 8) {
        int32_t wanted[8], theirs[8];
        uint32_t count[4] = {0, 0, 0, 0};
#pragma unroll
        for (int q = 0; q < 8; q++)
            wanted[q] = __shfl_sync(SOL_MOE_ALL, entry, (int)group + q);
        for (uint32_t t = lane; t < token; t += 32) {
            uint32_t has = 0;
            for (uint32_t from = 0; from < m.top_k; from += 8) {
                sol_moe_numbers(m, call, t, from, theirs);
#pragma unroll
                for (int i = 0; i < 64; i++)
                    has |= (uint32_t)(theirs[i / 8] == wanted[i % 8]) << i % 8;
            }
#pragma unroll
            for (int q = 0; q < 8; q++)
                count[q / 2] += (has >> q & 1) << 16 * (q & 1);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int half = 16; half > 0; half /= 2)
                count[i] += __shfl_xor_sync(SOL_MOE_ALL, count[i], half);
        }
#pragma unroll
        for (int q = 0; q < 8; q++)
            place = lane == group + q ? count[q / 2] >> 16 * (q & 1) & 0xffff : place;
    }
    return place;
}

/* To every rank of the token, into the head of each piece: for each entry that is one of its
 * experts number, place and weight. */
SOL_GPU_FN void sol_moe_send_heads(const struct sol_moe_kernel &m,
                                   const struct sol_moe_dispatch_call &call,
                                   const struct sol_session &s, uint32_t token, uint32_t mask,
                                   uint32_t lane, int32_t entry)
{
    const uint32_t place = sol_moe_place(m, call, token, lane, entry);
    const uint32_t vectors = (m.top_k + 1) / 2, all = vectors * m.pieces;
    uint32_t weight = 0x3f800000u;
    if (call.weights && lane < m.top_k)
        weight =
            (uint32_t)sol_moe_load_ragged(call.weights + 4 * ((uint64_t)token * m.top_k + lane), 4)
                .a;
    for (int k = 1; k <= m.nranks; k++) {
        const int to = m.rank + k < m.nranks ? m.rank + k : m.rank + k - m.nranks;
        const uint32_t first = m.first[to], end = m.first[to + 1], e = (uint32_t)entry;
        if (!(mask >> to & 1))
            continue;
        char *out = sol_moe_out(m.there, s, to);
        uint64_t word = entry >= 0 && e >= first && e < end ? e - first : SOL_MOE_NOBODY;
        word |= (uint64_t)place << 16 | (uint64_t)weight << 32;
        for (uint32_t base = 0; base < all; base += 32) {
            const uint32_t i = base + lane, v = i % vectors, piece = i / vectors;
            struct sol_vector both;
            both.a = __shfl_sync(SOL_MOE_ALL, word, (int)(2 * v));
            both.b = __shfl_sync(SOL_MOE_ALL, word, (int)(2 * v + 1) & 31);
            if (i < all)
                sol_session_send_at(m.there, s, out, piece * (m.head * 16 + SOL_MOE_PIECE) + v * 16,
                                    both);
        }
    }
}

/* --- dispatch: a piece of a row ----------------------------------------------------------------
 */

SOL_GPU_FN float sol_moe_scale(float amax, bool power)
{
    float scale = sol_div_f32(amax < 0x1p-100f ? 0x1p-100f : amax, 448.0f);
    uint32_t bits = sol_bits_f32(scale);
    if (scale != scale)
        bits = 0x7fc00000u;
    else if (power && (bits & 0x7fffffu) != 0 && bits < 0x7f800000u)
        bits = (bits & 0x7f800000u) + 0x800000u;
    return sol_f32_bits(bits);
}

/* Sixteen columns to FP8. Eight neighbouring lanes have a group of 128. */
template <int D, int S>
SOL_GPU_FN struct sol_vector sol_moe_quantise(const struct sol_vector *x, bool power, float &scale)
{
    enum { E = sol_element<D>::count };
    struct sol_lanes<SOL_FLOAT8_E4M3> y;
    float amax = 0;
#pragma unroll
    for (int i = 0; i < S; i++) {
        struct sol_lanes<D> some = sol_unpack<D>(x[i]);
#pragma unroll
        for (int j = 0; j < E; j++) {
            y.x[i * E + j] = some.x[j];
            amax = sol_max_f32(amax, sol_f32_bits(sol_bits_f32(some.x[j]) & 0x7fffffffu));
        }
    }
#pragma unroll
    for (int half = 4; half > 0; half /= 2)
        amax = sol_max_f32(amax, __shfl_xor_sync(SOL_MOE_ALL, amax, half));
    scale = sol_moe_scale(amax, power);
    const float inverse = sol_div_f32(1.0f, scale);
#pragma unroll
    for (int i = 0; i < 16; i++)
        y.x[i] = sol_mul_f32(y.x[i], inverse);
    return sol_pack<SOL_FLOAT8_E4M3>(y);
}

/* The lane's vectors of a piece, as they travel; `scales`: lane v's are those of the warp's v-th
 * row of vectors. Columns beyond the row are zeros. */
template <int D, bool QUANT, bool EXACT>
SOL_GPU_FN void sol_moe_fetch(const struct sol_moe_kernel &m,
                              const struct sol_moe_dispatch_call &call, uint32_t token,
                              uint32_t piece, uint32_t lane,
                              struct sol_vector (&v)[SOL_MOE_VECTORS], struct sol_vector &scales)
{
    enum { S = QUANT ? 16 / sol_element<D>::count : 1 }; /* vectors of x to one */
    enum { AT_ONCE = S == 4 ? 2 : SOL_MOE_VECTORS };
    const char *row = call.x + (uint64_t)token * m.row;
#pragma unroll
    for (int begin = 0; begin < SOL_MOE_VECTORS; begin += AT_ONCE) {
        struct sol_vector x[AT_ONCE * S];
#pragma unroll
        for (int i = 0; i < AT_ONCE * S; i++) {
            const uint32_t at =
                (piece * SOL_MOE_PIECE + ((begin + i / S) * 32 + lane) * 16) * S + i % S * 16;
            x[i].a = x[i].b = 0;
            if (at < m.row)
                x[i] = sol_moe_load<EXACT>(row + at, m.row - at);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (!QUANT) {
                v[begin + i] = x[i];
                continue;
            }
            float scale;
            v[begin + i] = sol_moe_quantise<D, S>(&x[i * S], call.power, scale);
            struct sol_vector four;
            const uint32_t bits = sol_bits_f32(scale);
            four.a = __shfl_sync(SOL_MOE_ALL, bits, 0) | (uint64_t)__shfl_sync(SOL_MOE_ALL, bits, 8)
                                                             << 32;
            four.b = __shfl_sync(SOL_MOE_ALL, bits, 16) |
                     (uint64_t)__shfl_sync(SOL_MOE_ALL, bits, 24) << 32;
            if (lane == (uint32_t)(begin + i))
                scales = four;
        }
    }
}

template <int D, bool QUANT, bool EXACT>
SOL_GPU_FN void sol_moe_send_piece(const struct sol_moe_kernel &m,
                                   const struct sol_moe_dispatch_call &call, uint64_t epoch,
                                   uint32_t token, uint32_t piece, uint32_t lane)
{
    struct sol_vector v[SOL_MOE_VECTORS], scales = {0, 0};
    const int32_t entry = sol_moe_entry(m, call, token, lane);
    const uint32_t mask = sol_moe_mask(m, entry);
    const uint32_t begin = piece * (m.head * 16 + SOL_MOE_PIECE), data = begin + m.head * 16;
    const uint32_t bytes = m.row_sent - piece * SOL_MOE_PIECE; /* or more than the piece has */
    const struct sol_session s = sol_moe_slots(m.there, token, epoch);
    if (piece == 0 && lane == 0)
        sol_moe_keep(m.masks, token, mask);
    if (mask == 0)
        return;
    sol_moe_fetch<D, QUANT, EXACT>(m, call, token, piece, lane, v, scales);
    for (int k = 1; k <= m.nranks; k++) {
        const int to = m.rank + k < m.nranks ? m.rank + k : m.rank + k - m.nranks;
        if (!(mask >> to & 1))
            continue;
        char *out = sol_moe_out(m.there, s, to);
#pragma unroll
        for (int i = 0; i < SOL_MOE_VECTORS; i++) {
            const uint32_t at = (i * 32 + lane) * 16;
            if (at < bytes)
                sol_session_send_at(m.there, s, out, data + at, v[i]);
        }
        if (QUANT && lane < SOL_MOE_VECTORS)
            sol_session_send_at(m.there, s, out, data - SOL_MOE_VECTORS * 16 + lane * 16, scales);
    }
    if (piece == 0) /* the rest of the row is on its way already */
        sol_moe_send_heads(m, call, s, token, mask, lane, entry);
}

/* --- dispatch: counts --------------------------------------------------------------------------
 */

/* All threads of a CTA: what rank `to` needs to know of this rank's tokens. `counts`: scratch. */
SOL_GPU_FN void sol_moe_send_words(const struct sol_moe_kernel &m,
                                   const struct sol_moe_dispatch_call &call, uint64_t epoch, int to,
                                   uint32_t *counts)
{
    const uint32_t first = m.first[to], local = m.first[to + 1] - first, lane = threadIdx.x & 31;
    __syncthreads(); /* (of another rank's, before) */
    for (uint32_t e = threadIdx.x; e < local; e += blockDim.x)
        counts[e] = 0;
    __syncthreads();
    for (uint32_t base = 0; base < call.tokens; base += blockDim.x) {
        const uint32_t t = base + threadIdx.x;
        bool comes = false;
        for (uint32_t from = 0; from < m.top_k && t < call.tokens; from += 8) {
            int32_t e[8], before[8];
            sol_moe_numbers(m, call, t, from, e);
#pragma unroll
            for (int i = 63; i > 0; i--) /* the later of two of a kind goes: last ones first */
                if (i / 8 > i % 8)
                    e[i / 8] = e[i / 8] == e[i % 8] ? -1 : e[i / 8];
            for (uint32_t to8 = 0; to8 < from; to8 += 8) {
                sol_moe_numbers(m, call, t, to8, before);
#pragma unroll
                for (int i = 0; i < 64; i++)
                    e[i / 8] = e[i / 8] == before[i % 8] ? -1 : e[i / 8];
            }
#pragma unroll
            for (int i = 0; i < 8; i++)
                if ((uint32_t)e[i] - first < local) {
                    atomicAdd(&counts[(uint32_t)e[i] - first], 1u);
                    comes = true;
                }
        }
        const uint32_t bits = __ballot_sync(SOL_MOE_ALL, comes);
        const uint32_t word = (base + (threadIdx.x & ~31u)) / 16 + lane;
        if (lane < 2 && word * 16 < call.tokens)
            sol_moe_send_word(m, to, epoch, 1 + word, bits >> 16 * lane & 0xffff);
    }
    __syncthreads();
    if (threadIdx.x == 0)
        sol_moe_send_word(m, to, epoch, 0, call.tokens);
    for (uint32_t e = threadIdx.x; e < local; e += blockDim.x)
        sol_moe_send_word(m, to, epoch, m.count_at + e, counts[e]);
}

/* All threads of a CTA: from the counts of all sources, the first row of each expert and what lies
 * before each source's. False, to all: gave up. */
SOL_GPU_FN bool sol_moe_read_words(const struct sol_moe_kernel &m,
                                   const struct sol_moe_dispatch_call &call, uint64_t epoch,
                                   struct sol_moe_shared &shared)
{
    const uint32_t words = m.local + 1, lane = threadIdx.x & 31;
    bool lost = false;
    __syncthreads(); /* (what was sent from the same memory) */
    for (uint32_t i = threadIdx.x; i < words * m.nranks && !lost; i += blockDim.x) {
        const uint32_t source = i / words, e = i % words;
        uint32_t value = 0;
        lost = !sol_moe_await_word(m, call.story, (int)source, epoch,
                                   e < m.local ? m.count_at + e : 0, value);
        if (e < m.local)
            shared.before[source * m.local + e] = value;
        else
            shared.tokens[source] = value;
    }
    if (__syncthreads_or(lost))
        return false;
    for (uint32_t e = threadIdx.x; e < m.local; e += blockDim.x) {
        uint32_t sum = 0;
        for (int s = 0; s < m.nranks; s++) {
            const uint32_t count = shared.before[s * m.local + e];
            shared.before[s * m.local + e] = sum;
            sum += count;
        }
        shared.total[e] = sum;
    }
    __syncthreads();
    for (uint32_t base = 0, at = 0; threadIdx.x < 32 && base <= m.local; base += 32) {
        const uint32_t e = base + lane;
        uint32_t room = 0, sum;
        if (e < m.local)
            room =
                m.align ? (shared.total[e] + m.align - 1) / m.align * m.align : m.rows_per_expert;
        sum = room;
        for (int by = 1; by < 32; by *= 2) {
            const uint32_t left = __shfl_up_sync(SOL_MOE_ALL, sum, (unsigned)by);
            sum += lane >= (uint32_t)by ? left : 0;
        }
        if (e <= m.local)
            shared.first[e] = at + sum - room;
        at += __shfl_sync(SOL_MOE_ALL, sum, 31);
    }
    __syncthreads();
    return true;
}

SOL_GPU_FN void sol_moe_tell_counts(const struct sol_moe_kernel &m,
                                    const struct sol_moe_dispatch_call &call,
                                    const struct sol_moe_shared &shared)
{
    for (uint32_t e = threadIdx.x; e <= m.local; e += blockDim.x) {
        if (e < m.local)
            sol_moe_store_u32(call.recv_counts + 4 * e, shared.total[e]);
        if (call.recv_offsets)
            sol_moe_store_u32(call.recv_offsets + 4 * e, shared.first[e]);
    }
    if (threadIdx.x < (unsigned)m.nranks)
        sol_moe_keep(m.came, threadIdx.x, shared.tokens[threadIdx.x]);
}

/* --- dispatch: arrival -------------------------------------------------------------------------
 */

/* The bits that a warp has seen last: it goes through tokens in order, a piece after the other. */
struct sol_moe_seen {
    int source;
    uint32_t word, bits;
};

/* Has the token been sent here? False: gave up. */
SOL_GPU_FN bool sol_moe_comes(const struct sol_moe_kernel &m,
                              const struct sol_moe_dispatch_call &call, uint64_t epoch, int source,
                              uint32_t token, uint32_t piece, uint32_t lane,
                              struct sol_moe_seen &seen, bool &comes)
{
    if (seen.source != source || seen.word != token / 16) {
        seen.source = source;
        seen.word = token / 16;
        bool lost = !sol_moe_await_word(m, call.story, source, epoch, 1 + token / 16, seen.bits);
        if (sol_level_any(SOL_WARP, lost))
            return false;
    }
    comes = seen.bits >> token % 16 & 1;
    if (piece == 0 && lane == 0)
        sol_moe_keep(m.came, SOL_DEV_MAX_RANKS + source * m.max_tokens + token, comes);
    return true;
}

/* The piece and its head out of the slot. False: gave up. */
SOL_GPU_FN bool sol_moe_take(const struct sol_moe_kernel &m,
                             const struct sol_moe_dispatch_call &call, uint64_t epoch, int source,
                             uint32_t token, uint32_t piece, uint32_t lane,
                             struct sol_vector (&v)[SOL_MOE_VECTORS], struct sol_vector &head)
{
    const struct sol_session s = sol_moe_slots(m.there, token, epoch);
    const uint32_t begin = piece * (m.head * 16 + SOL_MOE_PIECE), data = begin + m.head * 16;
    const uint32_t bytes = m.row_sent - piece * SOL_MOE_PIECE;
    struct sol_watch watch = {0, 0};
    uint32_t verdict = 1;
    while (verdict == 1) {
        uint32_t state = 0;
#pragma unroll
        for (int i = 0; i < SOL_MOE_VECTORS; i++) {
            const uint32_t at = (i * 32 + lane) * 16;
            if (at < bytes)
                state |= sol_moe_look(m.there, s, source, data + at, v[i]);
        }
        if (lane < m.head)
            state |= sol_moe_look(m.there, s, source, begin + lane * 16, head);
        verdict = sol_moe_vote(m.there, call.story, watch, source, state);
    }
    if (verdict == 2)
        return false;
    char *in = sol_session_in(m.there, s, source);
#pragma unroll
    for (int i = 0; i < SOL_MOE_VECTORS; i++) {
        const uint32_t at = (i * 32 + lane) * 16;
        if (at < bytes)
            sol_reset_vector(in + data + at);
    }
    if (lane < m.head)
        sol_reset_vector(in + begin + lane * 16);
    return true;
}

/* Lane j: the row of entry j, or -1; and the plan of the way back, by the first piece's warp. */
SOL_GPU_FN int32_t sol_moe_row(const struct sol_moe_kernel &m,
                               const struct sol_moe_dispatch_call &call,
                               const struct sol_moe_shared &shared, int source, uint32_t token,
                               uint32_t piece, uint32_t lane, const struct sol_vector &head)
{
    const uint64_t low = __shfl_sync(SOL_MOE_ALL, head.a, (int)lane / 2);
    const uint64_t high = __shfl_sync(SOL_MOE_ALL, head.b, (int)lane / 2);
    const uint64_t word = lane & 1 ? high : low;
    const uint32_t expert = (uint32_t)word & 0xffff, place = (uint32_t)(word >> 16) & 0xffff;
    const uint32_t weight = (uint32_t)(word >> 32);
    const bool here = lane < m.top_k && expert != SOL_MOE_NOBODY;
    int32_t row = -1;
    if (here)
        row = (int32_t)(shared.first[expert] + shared.before[source * m.local + expert] + place);
    if (piece != 0)
        return row;
    const uint32_t all = __ballot_sync(SOL_MOE_ALL, here);
    const uint32_t count = sol_moe_bits(all), rank = sol_moe_bits(all & ((1u << lane) - 1));
    char *plan = m.plan + ((uint64_t)source * m.max_tokens + token) * m.top_k * 8;
    if (here)
        sol_moe_keep(plan, 2 * rank, (uint32_t)row), sol_moe_keep(plan, 2 * rank + 1, weight);
    if (lane >= count && lane < m.top_k)
        sol_moe_keep(plan, 2 * lane, 0xffffffffu);
    if (here && call.recv_weights)
        sol_moe_store_u32(call.recv_weights + 4 * (uint64_t)(uint32_t)row, weight);
    return row;
}

/* False: gave up. */
template <bool QUANT, bool EXACT>
SOL_GPU_FN bool
sol_moe_recv_piece(const struct sol_moe_kernel &m, const struct sol_moe_dispatch_call &call,
                   const struct sol_moe_shared &shared, uint64_t epoch, int source, uint32_t token,
                   uint32_t piece, uint32_t lane, struct sol_moe_seen &seen)
{
    struct sol_vector v[SOL_MOE_VECTORS], head = {0, 0};
    bool comes;
    if (!sol_moe_comes(m, call, epoch, source, token, piece, lane, seen, comes))
        return false;
    if (!comes)
        return true;
    if (!sol_moe_take(m, call, epoch, source, token, piece, lane, v, head))
        return false;
    const int32_t own = sol_moe_row(m, call, shared, source, token, piece, lane, head);
    const uint32_t meta = QUANT ? m.head - SOL_MOE_VECTORS : m.head;
    for (uint32_t j = 0; j < m.top_k; j++) {
        const int32_t row = __shfl_sync(SOL_MOE_ALL, own, (int)j);
        if (row < 0)
            continue;
        char *to = call.recv_x + (uint64_t)(uint32_t)row * m.row_sent;
#pragma unroll
        for (int i = 0; i < SOL_MOE_VECTORS; i++) {
            const uint32_t at = piece * SOL_MOE_PIECE + (i * 32 + lane) * 16;
            if (at < m.row_sent)
                sol_moe_store<EXACT>(to + at, m.row_sent - at, v[i]);
        }
        const uint32_t scale = (piece * SOL_MOE_VECTORS + lane - meta) * 4; /* the lane's first */
        if (QUANT && lane >= meta && lane < m.head && scale < m.scales)
            sol_moe_store<EXACT>(call.recv_scales +
                                     ((uint64_t)(uint32_t)row * m.scales + scale) * 4,
                                 (m.scales - scale) * 4, head);
    }
    return true;
}

/*
 * The first nranks CTAs count, the others send; then all receive. A CTA's warps get pieces that lie
 * far apart, so that a few pieces are on many SMs.
 */
template <int D, bool QUANT, bool EXACT>
__global__ void __launch_bounds__(SOL_MOE_THREADS, 1)
    sol_moe_dispatch_kernel(const __grid_constant__ struct sol_moe_kernel m,
                            const __grid_constant__ struct sol_moe_dispatch_call call)
{
    SOL_SHARED(struct sol_moe_shared, shared);
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32, n = (uint32_t)m.nranks;
    sol_await_predecessors();
    sol_admit_successor();
    const uint64_t epoch = sol_moe_epoch(m, 0);
    if (call.halves & 1) {
        const uint32_t counters = gridDim.x > n ? n : 0, senders = gridDim.x - counters;
        const uint32_t step = senders * (blockDim.x / 32);
        for (uint32_t to = blockIdx.x; to < n; to += gridDim.x)
            sol_moe_send_words(m, call, epoch, (int)to, shared.total);
        for (uint32_t u = warp * senders + blockIdx.x - counters;
             blockIdx.x >= counters && u < call.tokens * m.pieces; u += step)
            sol_moe_send_piece<D, QUANT, EXACT>(m, call, epoch, u / m.pieces, u % m.pieces, lane);
    }
    if (!(call.halves & 2))
        return;
    sol_moe_leave(m, 0, epoch);
    if (!sol_moe_read_words(m, call, epoch, shared))
        return;
    if (blockIdx.x == 0)
        sol_moe_tell_counts(m, call, shared);
    struct sol_moe_seen seen = {-1, 0, 0};
    const uint32_t units = sol_moe_tokens(shared, m.nranks) * m.pieces;
    for (uint32_t u = warp * gridDim.x + blockIdx.x; u < units; u += gridDim.x * blockDim.x / 32) {
        int source;
        uint32_t token;
        sol_moe_locate(shared, m.nranks, u / m.pieces, source, token);
        if (!sol_moe_recv_piece<QUANT, EXACT>(m, call, shared, epoch, source, token, u % m.pieces,
                                              lane, seen))
            return;
    }
}

/* --- combine: the way back ---------------------------------------------------------------------
 */

/* acc = or += x * weight: a product and a sum, each rounded. */
template <int D>
SOL_GPU_FN void sol_moe_add(struct sol_lanes<D> &acc, struct sol_vector v, float weight, bool first)
{
    struct sol_lanes<D> x = sol_unpack<D>(v);
#pragma unroll
    for (int i = 0; i < sol_element<D>::count; i++) {
        const float term = sol_mul_f32(x.x[i], weight);
        acc.x[i] = first ? term : sol_add_f32(acc.x[i], term);
    }
}

template <int D, bool EXACT>
SOL_GPU_FN void sol_moe_return_piece(const struct sol_moe_kernel &m,
                                     const struct sol_moe_combine_call &call, uint64_t epoch,
                                     int source, uint32_t token, uint32_t piece, uint32_t lane)
{
    const uint64_t which = (uint64_t)source * m.max_tokens + token;
    struct sol_lanes<D> acc[SOL_MOE_BACK];
    int32_t own = -1;
    uint32_t weight = 0;
    if (!sol_moe_kept(m.came, SOL_DEV_MAX_RANKS + which))
        return;
    if (lane < m.top_k) {
        own = (int32_t)sol_moe_kept(m.plan, 2 * (which * m.top_k + lane));
        weight = sol_moe_kept(m.plan, 2 * (which * m.top_k + lane) + 1);
    }
    if (call.weights && own >= 0)
        weight = (uint32_t)sol_moe_load_ragged(call.weights + 4 * (uint64_t)(uint32_t)own, 4).a;
    const uint32_t count = sol_moe_bits(__ballot_sync(SOL_MOE_ALL, own >= 0));
    for (uint32_t j = 0; j < count; j += SOL_MOE_ROWS) {
        struct sol_vector y[SOL_MOE_ROWS][SOL_MOE_BACK];
#pragma unroll
        for (int q = 0; q < SOL_MOE_ROWS; q++) {
            const uint32_t row = (uint32_t)__shfl_sync(SOL_MOE_ALL, own, (int)(j + q) & 31);
#pragma unroll
            for (int i = 0; i < SOL_MOE_BACK; i++) {
                const uint32_t at = piece * SOL_MOE_BACK_PIECE + (i * 32 + lane) * 16;
                y[q][i].a = y[q][i].b = 0;
                if (j + q < count && at < m.row)
                    y[q][i] = sol_moe_load<EXACT>(call.y + (uint64_t)row * m.row + at, m.row - at);
            }
        }
#pragma unroll
        for (int q = 0; q < SOL_MOE_ROWS; q++) {
            const float w = sol_f32_bits(__shfl_sync(SOL_MOE_ALL, weight, (int)(j + q) & 31));
#pragma unroll
            for (int i = 0; i < SOL_MOE_BACK; i++)
                if (j + q < count)
                    sol_moe_add<D>(acc[i], y[q][i], w, j + q == 0);
        }
    }
    const struct sol_session s = sol_moe_slots(m.back, token, epoch);
    char *out = sol_moe_out(m.back, s, source);
#pragma unroll
    for (int i = 0; i < SOL_MOE_BACK; i++) {
        const uint32_t at = piece * SOL_MOE_BACK_PIECE + (i * 32 + lane) * 16;
        if (at < m.row)
            sol_session_send_at(m.back, s, out, at, sol_pack<D>(acc[i]));
    }
}

/* What the ranks of `mask` have sent of a piece. False: gave up. */
template <int N>
SOL_GPU_FN bool sol_moe_gather(const struct sol_moe_kernel &m,
                               const struct sol_moe_combine_call &call, uint64_t epoch,
                               uint32_t token, uint32_t piece, uint32_t lane, uint32_t mask,
                               struct sol_vector (&x)[N][SOL_MOE_BACK])
{
    const struct sol_session s = sol_moe_slots(m.back, token, epoch);
    struct sol_watch watch = {0, 0};
    uint32_t verdict = 1;
    while (verdict == 1) {
        uint32_t state = 0;
        int awaited = 0;
#pragma unroll
        for (int r = 0; r < N; r++) {
#pragma unroll
            for (int i = 0; i < SOL_MOE_BACK; i++) {
                const uint32_t at = piece * SOL_MOE_BACK_PIECE + (i * 32 + lane) * 16;
                if (!(mask >> r & 1) || at >= m.row)
                    continue;
                const uint32_t one = sol_moe_look(m.back, s, r, at, x[r][i]);
                awaited = one ? r : awaited;
                state |= one;
            }
        }
        verdict = sol_moe_vote(m.back, call.story, watch, awaited, state);
    }
    if (verdict == 2)
        return false;
#pragma unroll
    for (int r = 0; r < N; r++) {
#pragma unroll
        for (int i = 0; i < SOL_MOE_BACK; i++) {
            const uint32_t at = piece * SOL_MOE_BACK_PIECE + (i * 32 + lane) * 16;
            if ((mask >> r & 1) && at < m.row)
                sol_reset_vector(sol_session_in(m.back, s, r) + at);
        }
    }
    return true;
}

/* False: gave up. */
template <int D, int N, bool EXACT>
SOL_GPU_FN bool sol_moe_sum_piece(const struct sol_moe_kernel &m,
                                  const struct sol_moe_combine_call &call, uint64_t epoch,
                                  uint32_t token, uint32_t piece, uint32_t lane)
{
    const uint32_t mask = sol_moe_kept(m.masks, token);
    struct sol_vector x[N][SOL_MOE_BACK];
    if (!sol_moe_gather<N>(m, call, epoch, token, piece, lane, mask, x))
        return false;
#pragma unroll
    for (int i = 0; i < SOL_MOE_BACK; i++) {
        const uint32_t at = piece * SOL_MOE_BACK_PIECE + (i * 32 + lane) * 16;
        struct sol_lanes<D> acc;
        bool any = false;
#pragma unroll
        for (int e = 0; e < sol_element<D>::count; e++)
            acc.x[e] = 0;
#pragma unroll
        for (int r = 0; r < N; r++) {
            if (!(mask >> r & 1))
                continue;
            struct sol_lanes<D> p = sol_unpack<D>(x[r][i]);
#pragma unroll
            for (int e = 0; e < sol_element<D>::count; e++)
                acc.x[e] = any ? sol_add_f32(acc.x[e], p.x[e]) : p.x[e];
            any = true;
        }
        if (at < m.row)
            sol_moe_store<EXACT>(call.out + (uint64_t)token * m.row + at, m.row - at,
                                 sol_pack<D>(acc));
    }
    return true;
}

template <int D, int N, bool EXACT>
__global__ void __launch_bounds__(SOL_MOE_THREADS, 1)
    sol_moe_combine_kernel(const __grid_constant__ struct sol_moe_kernel m,
                           const __grid_constant__ struct sol_moe_combine_call call)
{
    SOL_SHARED(struct sol_moe_shared, shared);
    const uint32_t lane = threadIdx.x & 31;
    const uint32_t begin = threadIdx.x / 32 * gridDim.x + blockIdx.x;
    const uint32_t step = gridDim.x * (blockDim.x / 32);
    sol_await_predecessors();
    sol_admit_successor();
    const uint64_t epoch = sol_moe_epoch(m, 1);
    if (call.halves & 1) {
        if (threadIdx.x < (unsigned)m.nranks)
            shared.tokens[threadIdx.x] = sol_moe_kept(m.came, threadIdx.x);
        __syncthreads();
        const uint32_t units = sol_moe_tokens(shared, m.nranks) * m.pieces_back;
        for (uint32_t u = begin; u < units; u += step) {
            int source;
            uint32_t token;
            sol_moe_locate(shared, m.nranks, u / m.pieces_back, source, token);
            sol_moe_return_piece<D, EXACT>(m, call, epoch, source, token, u % m.pieces_back, lane);
        }
    }
    if (!(call.halves & 2))
        return;
    sol_moe_leave(m, 1, epoch);
    for (uint32_t u = begin; u < call.tokens * m.pieces_back; u += step)
        if (!sol_moe_sum_piece<D, N, EXACT>(m, call, epoch, u / m.pieces_back, u % m.pieces_back,
                                            lane))
            return;
}

#endif
