/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe.cuh: tokens to experts and back (solccl/moe.h), one hop each way, written on
 * solccl/device.h alone. What is computed is said there; coll/moe.c is the twin for
 * CPU ranks, with the same bits.
 *
 * A token's row is cut into pieces, each the work of one warp: a whole warp sends,
 * receives or adds up a piece. There is no grid barrier, and no wait for a peer before
 * the CTA has sent all that it has to send.
 *
 *   dispatch   owner of a token                        rank of an expert
 *     idx -> which ranks; piece of x (or as FP8) -----> slot [source][token][piece]
 *     bits [expert][token]: how many tokens before
 *     this one go where                          -----> head of the slot: expert, place, weight
 *     n CTAs count: tokens, a bit for each, rows -----> words [source]: counts of all sources give
 *     of each expert there                              each expert's first row, then:
 *                                                       slot -> row of each expert of the token
 *   combine    rank of an expert                       owner of a token
 *     rows of the token's experts here, weighted -----> slot [rank][token][piece]: added up in the
 *     and added up                                      order of ranks
 *
 * A CTA works out by itself how many tokens come before its own ones: it reads all of topk_idx into
 * a table of bits in its shared memory, some tokens (a chunk) at a time. That is one latency, where
 * to be told by another CTA is three.
 *
 * What a rank has for its own experts (`direct`) does not go through slots: where a call is send
 * and receive in one and its tokens fit into one chunk, a warp keeps the piece that it has sent
 * last, and stores it to its rows when the counts have come; and in a combine adds up its own
 * experts' rows where it adds up what came from the others. Nobody else sees which way a rank has
 * taken.
 *
 * A call executes nearly all of its instructions once, and then each costs some 2.5 ns, because it
 * has to be fetched: so the way of a piece through this file is short rather than general, and what
 * is seldom needed is a call out of the way (SOL_GPU_RARE). (`bench/NOTES.md`, Experts.)
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

/* Of a CTA: where a warp would have two units and more, and else, where the next kernel's CTAs find
 * room beside this one's then. And words of 32 tokens that a chunk has at most. */
#ifdef SOL_EMU
#define SOL_MOE_THREADS 64
#define SOL_MOE_FEW_THREADS 64
#define SOL_MOE_MOST_MARKS 1
#else
#define SOL_MOE_THREADS 512
#define SOL_MOE_FEW_THREADS 256
#define SOL_MOE_MOST_MARKS 8
#endif
/* Most of a dispatch's: four vectors of fp32 to one of FP8 take too many registers. */
constexpr unsigned sol_moe_threads(int dtype, bool quant)
{
    return quant && dtype == SOL_FLOAT32 ? SOL_MOE_FEW_THREADS : SOL_MOE_THREADS;
}
#define SOL_MOE_VECTORS 4 /* of 16 bytes that a lane has of a piece of a dispatch */
#ifndef SOL_MOE_BACK
#define SOL_MOE_BACK 2 /* and of a combine */
#endif
#define SOL_MOE_ROWS 4  /* of experts that are fetched at once */
#define SOL_MOE_BATCH 4 /* entries of topk_idx that a thread reads at once */
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
    char *came;   /* u32: tokens of each source */
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
    uint32_t head;  /* vectors at the beginning of a piece: expert and place, then scales */
    uint32_t marks; /* words of bits that an expert can have in a chunk */
    uint32_t per_k, per_piece, per_back; /* for sol_moe_divide: by top_k, pieces, pieces_back */
};

struct sol_moe_dispatch_call {
    const char *x, *idx, *weights;
    char *recv_x, *recv_scales, *recv_weights, *recv_counts, *recv_offsets;
    struct sol_story story;
    uint32_t tokens;
    uint8_t idx_bytes, halves, power, direct;
};

struct sol_moe_combine_call {
    const char *y, *weights;
    char *out;
    struct sol_story story;
    uint32_t tokens;
    uint8_t halves, direct;
};

#define SOL_MOE_TABLE (SOL_MOE_MAX_EXPERTS + SOL_DEV_MAX_RANKS)
/* Small enough for two CTAs on an SM: the next kernel's are there when this one ends. */
struct sol_moe_shared {
    uint32_t bits[SOL_MOE_TABLE]; /* [expert][word]: which tokens of the chunk want it; when
                                     all has been sent, the table of rows: [source][expert
                                     here]: the first one */
    uint16_t counted[SOL_MOE_MAX_EXPERTS]; /* tokens of the chunks before */
    uint32_t tokens[SOL_DEV_MAX_RANKS];
    uint32_t sums[SOL_MOE_THREADS / 32];
};

/* x / y, where `per` is 2^32 / y, or all bits for 1: it may be one too small at first. */
SOL_GPU_FN uint32_t sol_moe_divide(uint32_t x, uint32_t y, uint32_t per)
{
    const uint32_t q = (uint32_t)((uint64_t)x * per >> 32);
    return x - q * y >= y ? q + 1 : q;
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

/* Four bytes. */
template <bool EXACT> SOL_GPU_FN uint32_t sol_moe_load_u32(const char *p)
{
    return EXACT ? sol_load_unit((const uint32_t *)p) : (uint32_t)sol_moe_load_ragged(p, 4).a;
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

/* Entries first, first + step ... of topk_idx, as they are; from `end` on all bits are set. Loads
 * only: nothing here waits for them. */
template <bool EXACT, int Q>
SOL_GPU_FN void sol_moe_entries(const struct sol_moe_dispatch_call &call, uint32_t first,
                                uint32_t step, uint32_t end, uint64_t (&x)[Q])
{
#pragma unroll
    for (int q = 0; q < Q; q++) {
        const uint32_t i = first + q * step;
        const char *p = call.idx + (uint64_t)i * call.idx_bytes;
        x[q] = ~(uint64_t)0;
        if (i >= end)
            continue;
        if (!EXACT)
            x[q] = sol_moe_load_ragged(p, call.idx_bytes).a;
        else if (call.idx_bytes == 8)
            x[q] = sol_load_unit((const uint64_t *)p);
        else
            x[q] = sol_load_unit((const uint32_t *)p);
    }
}

/* The expert's number, or -1. */
SOL_GPU_FN int32_t sol_moe_expert(const struct sol_moe_kernel &m, uint64_t entry)
{
    return entry < m.experts ? (int32_t)entry : -1;
}

/* --- epochs and words --------------------------------------------------------------------------
 */

SOL_GPU_FN uint64_t sol_moe_epoch(const struct sol_moe_kernel &m, int clock)
{
    return m.first_epoch + sol_poll_word(m.epochs + 64 * clock);
}

/* All threads of the CTA meet, and each has the epoch: its value is looked at, because a barrier
 * alone does not wait for a load, and what follows lets others move the epoch on. */
SOL_GPU_FN void sol_moe_meet(uint64_t epoch)
{
    if (__syncthreads_or(epoch == 0))
        sol_fence_system(); /* never: epochs begin at 1 */
}

/* After a barrier behind which all threads of the CTA have read the epoch: one thread says so. The
 * answer is needed later: nobody waits for it here. */
SOL_GPU_FN uint32_t sol_moe_leave(const struct sol_moe_kernel &m, int clock)
{
    return threadIdx.x == 0 ? atomicAdd((uint32_t *)(m.epochs + 64 * clock + 8), 1u) : SOL_MOE_ALL;
}

/* With that answer: the last CTA to leave moves the epoch on. */
SOL_GPU_FN void sol_moe_left(const struct sol_moe_kernel &m, int clock, uint64_t epoch,
                             uint32_t arrived)
{
    if (arrived == gridDim.x - 1) {
        sol_push_u32((uint32_t *)(m.epochs + 64 * clock + 8), 0);
        sol_push_word(m.epochs + 64 * clock, epoch - m.first_epoch + 1);
    }
}

SOL_GPU_FN void sol_moe_send_word(const struct sol_moe_kernel &m, int to, uint64_t epoch,
                                  uint32_t word, uint32_t value)
{
    char *words = m.words_out[to] + (epoch & 1) * m.words_parity;
    sol_push_word(words + 8 * word, epoch << 16 | value);
}

SOL_GPU_FN const char *sol_moe_word_at(const struct sol_moe_kernel &m, int from, uint64_t epoch,
                                       uint32_t word)
{
    return m.words_in + (epoch & 1) * m.words_parity + (uint64_t)from * m.words_source + 8 * word;
}

SOL_GPU_FN bool sol_moe_word_here(uint64_t w, uint64_t epoch)
{
    return w >> 16 == (epoch & 0xffffffffffffull);
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

/* A vector that has come and looks suspicious: as it was meant; `failed`: its escape word has not
 * come. */
SOL_GPU_RARE struct sol_settled sol_moe_settle(const struct sol_channel &ch, uint64_t epoch,
                                               uint32_t base, const char *in, int source,
                                               uint32_t at, struct sol_vector v)
{
    struct sol_settled r = {v, 0};
    const bool a = v.a == SOL_WORD_ESCAPE, b = v.b == SOL_WORD_ESCAPE;
    if (!a && !b)
        return r;
    const uint64_t e = sol_poll_word(in + sol_session_escape(ch, base, source, at));
    r.v.a = a ? SOL_WORD_MARK | (e & 1) : v.a;
    r.v.b = b ? SOL_WORD_MARK | (e >> 1 & 1) : v.b;
    r.failed = e >> 2 != epoch;
    return r;
}

/* Of what a lane saw at byte `at` of the slot `in`: 0: it is in `v`; 1: it, or its escape word, has
 * not come. */
SOL_GPU_FN uint32_t sol_moe_judge(const struct sol_channel &ch, const struct sol_session &s,
                                  int source, const char *in, uint32_t at, struct sol_vector &v)
{
    if (!SOL_UNLIKELY(sol_vector_suspect(v)))
        return 0;
    if (sol_vector_missing(v))
        return 1;
    const struct sol_settled r = sol_moe_settle(ch, s.epoch, s.base, in, source, at, v);
    v = r.v;
    return r.failed;
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

/* Unit u of pieces that come from others (and, with sources = nranks, last from this rank): token
 * by token, so that it does not depend on how many each source has. */
SOL_GPU_FN void sol_moe_locate(int rank, int nranks, uint32_t sources, uint32_t pieces,
                               uint32_t per_piece, uint32_t u, int &source, uint32_t &token,
                               uint32_t &piece)
{
    const uint32_t both = sol_moe_divide(u, pieces, per_piece);
    piece = u - both * pieces;
    token = sources == 1 ? both : sources == 2 ? both / 2 : both / sources;
    source = rank + 1 + (int)(both - token * sources);
    source = source < nranks ? source : source - nranks;
}

/* --- dispatch: routes --------------------------------------------------------------------------
 */

/* Lane j has entry j of a token: -1 if it is named before. */
SOL_GPU_FN int32_t sol_moe_named_once(const struct sol_moe_kernel &m, uint32_t lane, int32_t e)
{
    bool again = false;
#pragma unroll 1
    for (uint32_t group = 0; group < m.top_k; group += 8) {
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) { /* (lanes beyond top_k have -1) */
            const int32_t other = __shfl_sync(SOL_MOE_ALL, e, (int)(group + j));
            again |= group + j < lane && other == e;
        }
    }
    return again ? -1 : e;
}

/* Which ranks have an expert of the token. The same to all lanes. */
template <int N> SOL_GPU_FN uint32_t sol_moe_mask(const struct sol_moe_kernel &m, int32_t entry)
{
    uint32_t mask = 0;
#pragma unroll
    for (int r = 0; r < N; r++) { /* (a rank that is not there has no experts) */
        const bool has = entry >= (int32_t)m.first[r] && entry < (int32_t)m.first[r + 1];
        mask |= (uint32_t)(__ballot_sync(SOL_MOE_ALL, has) != 0) << r;
    }
    return mask;
}

/* All threads of the CTA: the bits of a chunk are none. `later`: those of the chunk before count.
 */
SOL_GPU_FN void sol_moe_clear(const struct sol_moe_kernel &m, struct sol_moe_shared &shared,
                              uint32_t marks, bool later, bool first)
{
    if (!later) {
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < m.experts * marks; i += blockDim.x)
            shared.bits[i] = 0;
        return;
    }
#pragma unroll 1
    for (uint32_t e = threadIdx.x; e < m.experts; e += blockDim.x) {
        uint32_t count = first ? 0 : shared.counted[e];
#pragma unroll 1
        for (uint32_t w = 0; w < marks; w++) {
            count += sol_count_bits(shared.bits[e * marks + w]);
            shared.bits[e * marks + w] = 0;
        }
        shared.counted[e] = (uint16_t)count;
    }
}

/* Bits for entries first, first + step ... of the chunk, of which `left` are there from the CTA's
 * first on. */
SOL_GPU_FN void sol_moe_mark(const struct sol_moe_kernel &m, struct sol_moe_shared &shared,
                             uint32_t marks, uint32_t first, uint32_t left,
                             const uint64_t (&entry)[SOL_MOE_BATCH])
{
#pragma unroll
    for (uint32_t q = 0; q < SOL_MOE_BATCH; q++) {
        if (q * blockDim.x >= left)
            break;
        const int32_t e = sol_moe_expert(m, entry[q]);
        const uint32_t t = sol_moe_divide(first + q * blockDim.x, m.top_k, m.per_k);
        if (e >= 0)
            atomicOr(&shared.bits[(uint32_t)e * marks + t / 32], 1u << t % 32);
    }
}

/* Lane j: how many tokens before the chunk's t-th want the expert of its entry (if that is one). */
SOL_GPU_FN uint32_t sol_moe_place(const struct sol_moe_shared &shared, uint32_t marks, bool later,
                                  uint32_t t, int32_t entry)
{
    const uint32_t e = entry < 0 ? 0 : (uint32_t)entry, *bits = &shared.bits[e * marks];
    uint32_t place = later ? shared.counted[e] : 0;
#pragma unroll 1
    for (uint32_t w = 0; w < t / 32; w++)
        place += sol_count_bits(bits[w]);
    return place + sol_count_bits(bits[t / 32] & ((1u << t % 32) - 1));
}

/* Lane j's entry in a head for rank `to`. */
SOL_GPU_FN uint64_t sol_moe_word(const struct sol_moe_kernel &m, int to, int32_t entry,
                                 uint32_t place, uint32_t weight)
{
    const uint32_t first = m.first[to], end = m.first[to + 1], e = (uint32_t)entry;
    const uint64_t word = entry >= 0 && e >= first && e < end ? e - first : SOL_MOE_NOBODY;
    return word | (uint64_t)place << 16 | (uint64_t)weight << 32;
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

/* The lane's vectors of a piece of x. Columns beyond the row are zeros. Loads only. */
#define SOL_MOE_X(D, QUANT) (SOL_MOE_VECTORS * ((QUANT) ? 16 / sol_element<D>::count : 1))
template <int D, bool QUANT, bool EXACT>
SOL_GPU_FN void sol_moe_load_piece(const struct sol_moe_kernel &m,
                                   const struct sol_moe_dispatch_call &call, uint32_t token,
                                   uint32_t piece, uint32_t lane,
                                   struct sol_vector (&x)[SOL_MOE_X(D, QUANT)])
{
    enum { S = SOL_MOE_X(D, QUANT) / SOL_MOE_VECTORS }; /* vectors of x to one */
    const char *row = call.x + (uint64_t)token * m.row;
#pragma unroll
    for (int i = 0; i < SOL_MOE_VECTORS * S; i++) {
        const uint32_t at = (piece * SOL_MOE_PIECE + (i / S * 32 + lane) * 16) * S + i % S * 16;
        x[i].a = x[i].b = 0;
        if (at < m.row)
            x[i] = sol_moe_load<EXACT>(row + at, m.row - at);
    }
}

/* As it travels; lane `meta` + v gets the scales of the warp's v-th row of vectors. */
template <int D, bool QUANT>
SOL_GPU_FN void sol_moe_make_piece(const struct sol_moe_dispatch_call &call,
                                   const struct sol_vector (&x)[SOL_MOE_X(D, QUANT)], uint32_t meta,
                                   uint32_t lane, struct sol_vector (&v)[SOL_MOE_VECTORS],
                                   struct sol_vector &scales)
{
    enum { S = SOL_MOE_X(D, QUANT) / SOL_MOE_VECTORS };
#pragma unroll
    for (int i = 0; i < SOL_MOE_VECTORS; i++) {
        if (!QUANT) {
            v[i] = x[i];
            continue;
        }
        float scale;
        v[i] = sol_moe_quantise<D, S>(&x[i * S], call.power, scale);
        struct sol_vector four;
        const uint32_t bits = sol_bits_f32(scale);
        four.a = __shfl_sync(SOL_MOE_ALL, bits, 0) | (uint64_t)__shfl_sync(SOL_MOE_ALL, bits, 8)
                                                         << 32;
        four.b = __shfl_sync(SOL_MOE_ALL, bits, 16) | (uint64_t)__shfl_sync(SOL_MOE_ALL, bits, 24)
                                                          << 32;
        if (lane == meta + (uint32_t)i)
            scales = four;
    }
}

/* A piece with its head, in the registers of a warp: lane i of `head` has the i-th vector of it. */
struct sol_moe_hand {
    struct sol_vector v[SOL_MOE_VECTORS], head;
    uint32_t token, piece;
    int source;
};

/* Of a unit that is to be sent: x; and, lane j, entry j and its weight. */
template <int D, bool QUANT> struct sol_moe_raw {
    struct sol_vector x[SOL_MOE_X(D, QUANT)];
    uint64_t entry[1];
    uint32_t weight, token, piece;
};

template <int D, bool QUANT, bool EXACT>
SOL_GPU_FN void sol_moe_pick(const struct sol_moe_kernel &m,
                             const struct sol_moe_dispatch_call &call, uint32_t base, uint32_t u,
                             uint32_t lane, struct sol_moe_raw<D, QUANT> &raw)
{
    const uint32_t t = sol_moe_divide(u, m.pieces, m.per_piece), i = (base + t) * m.top_k + lane;
    raw.token = base + t;
    raw.piece = u - t * m.pieces;
    sol_moe_entries<EXACT, 1>(call, i, 0, lane < m.top_k ? i + 1 : 0, raw.entry);
    raw.weight = 0x3f800000u;
    if (call.weights && lane < m.top_k)
        raw.weight = sol_moe_load_u32<EXACT>(call.weights + 4 * (uint64_t)i);
    sol_moe_load_piece<D, QUANT, EXACT>(m, call, raw.token, raw.piece, lane, raw.x);
}

/* The piece and its head to the slot `out`. */
SOL_GPU_FN void sol_moe_push(const struct sol_moe_kernel &m, const struct sol_session &s, char *out,
                             uint32_t lane, const struct sol_moe_hand &hand)
{
    const uint32_t begin = hand.piece * (m.head * 16 + SOL_MOE_PIECE) + lane * 16;
    const uint32_t data = begin + m.head * 16;
    const uint32_t bytes = m.row_sent - hand.piece * SOL_MOE_PIECE; /* or more than a piece has */
    bool suspect = sol_vector_suspect(hand.head);
#pragma unroll
    for (int i = 0; i < SOL_MOE_VECTORS; i++)
        suspect |= sol_vector_suspect(hand.v[i]);
    if (SOL_UNLIKELY(suspect)) {
#pragma unroll
        for (int i = 0; i < SOL_MOE_VECTORS; i++)
            if (i * 512 + lane * 16 < bytes)
                sol_session_send_at(m.there, s, out, data + i * 512, hand.v[i]);
        if (lane < m.head)
            sol_session_send_at(m.there, s, out, begin, hand.head);
        return;
    }
#pragma unroll
    for (int i = 0; i < SOL_MOE_VECTORS; i++)
        if (i * 512 + lane * 16 < bytes)
            sol_push_vector(out + data + i * 512, hand.v[i]);
    if (lane < m.head)
        sol_push_vector(out + begin, hand.head);
}

/* Lane i < (top_k + 1) / 2: two entries of the head for rank `to`, where lane j has entry j. */
SOL_GPU_FN void sol_moe_make_head(const struct sol_moe_kernel &m, int to, int32_t entry,
                                  uint32_t place, uint32_t weight, uint32_t meta, uint32_t lane,
                                  struct sol_vector &head)
{
    const uint64_t word = sol_moe_word(m, to, entry, place, weight);
    struct sol_vector both;
    both.a = __shfl_sync(SOL_MOE_ALL, word, (int)(2 * lane) & 31);
    both.b = __shfl_sync(SOL_MOE_ALL, word, (int)(2 * lane + 1) & 31);
    if (lane < meta)
        head = both;
}

/* The unit in `raw` to all ranks of its token. `keep`: not to this one: it stays in hand. */
template <int D, int N, bool QUANT>
SOL_GPU_FN void
sol_moe_send_unit(const struct sol_moe_kernel &m, const struct sol_moe_dispatch_call &call,
                  const struct sol_moe_shared &shared, uint64_t epoch, uint32_t base,
                  uint32_t marks, uint32_t lane, bool keep, const struct sol_moe_raw<D, QUANT> &raw,
                  struct sol_moe_hand &hand)
{
    const uint32_t meta = (m.top_k + 1) / 2;
    __syncwarp();
    const int32_t all = sol_moe_expert(m, raw.entry[0]), entry = sol_moe_named_once(m, lane, all);
    const uint32_t place = sol_moe_place(shared, marks, base > 0, raw.token - base, entry);
    const uint32_t mask = sol_moe_mask<N>(m, all);
    const struct sol_session s = sol_moe_slots(m.there, raw.token, epoch);
    hand.token = raw.token, hand.piece = raw.piece, hand.source = m.rank;
    hand.head.a = hand.head.b = 0;
    sol_moe_make_piece<D, QUANT>(call, raw.x, meta, lane, hand.v, hand.head);
    if (hand.piece == 0 && lane == 0)
        sol_moe_keep(m.masks, hand.token, mask);
#pragma unroll 1
    for (int k = 1; k <= m.nranks; k++) { /* this rank last */
        const int to = m.rank + k < m.nranks ? m.rank + k : m.rank + k - m.nranks;
        const bool stays = keep && k == m.nranks;
        if (!stays && !(mask >> to & 1))
            continue;
        sol_moe_make_head(m, to, entry, place, raw.weight, meta, lane, hand.head);
        if (!stays)
            sol_moe_push(m, s, sol_moe_out(m.there, s, to), lane, hand);
    }
}

/* --- dispatch: counts --------------------------------------------------------------------------
 */

/* All threads of a CTA: which tokens of the chunk rank `to` gets: sixteen a word. */
SOL_GPU_FN void sol_moe_send_bits(const struct sol_moe_kernel &m,
                                  const struct sol_moe_dispatch_call &call,
                                  const struct sol_moe_shared &shared, uint64_t epoch, int to,
                                  uint32_t base, uint32_t marks)
{
    const uint32_t lane = threadIdx.x & 31, left = call.tokens - base;
#pragma unroll 1
    for (uint32_t w = threadIdx.x / 32; w < marks && w * 32 < left; w += blockDim.x / 32) {
        uint32_t comes = 0;
#pragma unroll 1
        for (uint32_t e = m.first[to] + lane; e < m.first[to + 1]; e += 32)
            comes |= shared.bits[e * marks + w];
#pragma unroll
        for (int half = 16; half > 0; half /= 2)
            comes |= __shfl_xor_sync(SOL_MOE_ALL, comes, half);
        if (lane < 2 && w * 32 + lane * 16 < left)
            sol_moe_send_word(m, to, epoch, 1 + base / 16 + 2 * w + lane,
                              comes >> 16 * lane & 0xffff);
    }
}

/* All threads of a CTA, after the last chunk: how many tokens this rank has, and how many rows each
 * expert of rank `to` gets from it. `later`: there was a chunk before. */
SOL_GPU_FN void sol_moe_send_counts(const struct sol_moe_kernel &m,
                                    const struct sol_moe_dispatch_call &call,
                                    const struct sol_moe_shared &shared, uint64_t epoch, int to,
                                    uint32_t marks, bool later)
{
    const uint32_t first = m.first[to], local = m.first[to + 1] - first;
#pragma unroll 1
    for (uint32_t e = threadIdx.x; e < local; e += blockDim.x) {
        uint32_t count = later ? shared.counted[first + e] : 0;
#pragma unroll 1
        for (uint32_t w = 0; w < marks; w++)
            count += sol_count_bits(shared.bits[(first + e) * marks + w]);
        sol_moe_send_word(m, to, epoch, m.count_at + e, count);
    }
    if (threadIdx.x == blockDim.x - 1)
        sol_moe_send_word(m, to, epoch, 0, call.tokens);
}

/* All threads of a CTA: what the chunk of tokens from `base` on asks for; loads only. */
template <int D, bool QUANT, bool EXACT>
SOL_GPU_FN void
sol_moe_load_chunk(const struct sol_moe_kernel &m, const struct sol_moe_dispatch_call &call,
                   uint32_t base, uint32_t count, uint32_t first, uint32_t lane,
                   uint64_t (&table)[SOL_MOE_BATCH], struct sol_moe_raw<D, QUANT> &raw)
{
    const uint32_t from = base * m.top_k;
    sol_moe_entries<EXACT, SOL_MOE_BATCH>(call, from + threadIdx.x, blockDim.x,
                                          from + count * m.top_k, table);
    if (first < count * m.pieces)
        sol_moe_pick<D, QUANT, EXACT>(m, call, base, first, lane, raw);
}

/* All threads of a CTA: the table of bits of a chunk; `table` has the first entries. */
template <bool EXACT>
SOL_GPU_FN void sol_moe_mark_chunk(const struct sol_moe_kernel &m,
                                   const struct sol_moe_dispatch_call &call,
                                   struct sol_moe_shared &shared, uint64_t epoch, uint32_t base,
                                   uint32_t count, uint32_t marks, uint64_t (&table)[SOL_MOE_BATCH])
{
    const uint32_t from = base * m.top_k, all = count * m.top_k;
    sol_moe_clear(m, shared, marks, base > 0, base == 32 * marks);
    __syncthreads();
#pragma unroll 1
    for (uint32_t i = 0;;) {
        sol_moe_mark(m, shared, marks, i + threadIdx.x, all - i, table);
        i += SOL_MOE_BATCH * blockDim.x;
        if (i >= all)
            break;
        sol_moe_entries<EXACT, SOL_MOE_BATCH>(call, from + i + threadIdx.x, blockDim.x, from + all,
                                              table);
    }
    sol_moe_meet(epoch);
}

/* All threads of a CTA: all that this rank sends. Loads that depend on nothing are all under way
 * before the epoch, or anything else, is waited for. The first nranks CTAs send the counts and,
 * where there are others, nothing else. `first`, `step`: the warp's units of a chunk. True: the
 * last of them is in hand. */
template <int D, int N, bool QUANT, bool EXACT>
SOL_GPU_FN bool
sol_moe_send(const struct sol_moe_kernel &m, const struct sol_moe_dispatch_call &call,
             struct sol_moe_shared &shared, uint64_t &epoch, uint32_t marks, uint32_t first,
             uint32_t step, uint32_t lane, struct sol_moe_hand &hand)
{
    const uint32_t chunk = 32 * marks;
    uint32_t base = 0, count = call.tokens < chunk ? call.tokens : chunk;
    struct sol_moe_raw<D, QUANT> raw;
    uint64_t table[SOL_MOE_BATCH];
    const uint64_t number = sol_poll_word(m.epochs);
    sol_moe_load_chunk<D, QUANT, EXACT>(m, call, base, count, first, lane, table, raw);
    epoch = m.first_epoch + number;
#pragma unroll 1
    for (;;) { /* (once for a rank without tokens, too) */
        const uint32_t units = count * m.pieces;
        const bool more = base + count < call.tokens;
        sol_moe_mark_chunk<EXACT>(m, call, shared, epoch, base, count, marks, table);
#pragma unroll 1
        for (int to = (int)blockIdx.x; to < m.nranks; to += (int)gridDim.x) {
            if (!more)
                sol_moe_send_counts(m, call, shared, epoch, to, marks, base > 0);
            sol_moe_send_bits(m, call, shared, epoch, to, base, marks);
        }
#pragma unroll 1
        for (uint32_t u = first; u < units;) {
            const bool last = u + step >= units;
            sol_moe_send_unit<D, N, QUANT>(m, call, shared, epoch, base, marks, lane,
                                           call.direct && last, raw, hand);
            u += step;
            if (!last)
                sol_moe_pick<D, QUANT, EXACT>(m, call, base, u, lane, raw);
        }
        if (!more)
            return call.direct && first < units;
        base += count;
        count = call.tokens - base < chunk ? call.tokens - base : chunk;
        sol_moe_load_chunk<D, QUANT, EXACT>(m, call, base, count, first, lane, table, raw);
        __syncthreads(); /* all have counted bits */
    }
}

/* All threads of a CTA: from the counts of all sources the first row of each source and expert, to
 * rows[source][expert]. Thread e has expert e, then e + threads; those behind the last expert have
 * the number of each source's tokens. False, to all: gave up. */
template <int N>
SOL_GPU_FN bool sol_moe_read_words(const struct sol_moe_kernel &m,
                                   const struct sol_moe_dispatch_call &call, uint64_t epoch,
                                   struct sol_moe_shared &shared, uint32_t *rows)
{
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32, n = (uint32_t)m.nranks;
    const bool tell = blockIdx.x == 0;
    bool lost = false;
#pragma unroll 1
    for (uint32_t base = 0, at = 0; base < m.local + n; base += blockDim.x) {
        const uint32_t e = base + threadIdx.x, s0 = e - m.local; /* expert, or source */
        const bool expert = e < m.local;
        const uint32_t wanted = expert ? n : s0 < n ? 1 : 0;
        const char *words = sol_moe_word_at(m, expert ? 0 : (int)(s0 < n ? s0 : 0), epoch,
                                            expert ? m.count_at + e : 0);
        struct sol_watch watch = {0, 0};
        uint64_t word[N];
        uint32_t total = 0, room = 0, missing;
        __syncwarp(); /* (what is polled together begins here) */
        do {
            missing = 0;
#pragma unroll
            for (int s = 0; s < N; s++)
                if ((uint32_t)s < wanted)
                    word[s] = sol_poll_word(words + (uint64_t)s * m.words_source);
#pragma unroll
            for (int s = 0; s < N; s++)
                if ((uint32_t)s < wanted && !sol_moe_word_here(word[s], epoch))
                    missing = s + 1;
            if (missing != 0)
                lost = sol_watch_expired(m.there.bound, call.story, watch,
                                         (int)(expert ? missing - 1 : s0));
        } while (missing != 0 && !lost);
        __syncwarp();
        if (!expert && wanted) {
            shared.tokens[s0] = (uint32_t)word[0] & 0xffff;
            if (tell)
                sol_moe_keep(m.came, s0, (uint32_t)word[0] & 0xffff);
        }
#pragma unroll
        for (int s = 0; s < N; s++)
            total += expert && (uint32_t)s < n ? (uint32_t)word[s] & 0xffff : 0;
        if (expert)
            room = m.align == 0   ? m.rows_per_expert
                   : m.align == 1 ? total
                                  : (total + m.align - 1) / m.align * m.align;
        uint32_t sum = room;
#pragma unroll
        for (int by = 1; by < 32; by *= 2) {
            const uint32_t left = __shfl_up_sync(SOL_MOE_ALL, sum, (unsigned)by);
            sum += lane >= (uint32_t)by ? left : 0;
        }
        if (base > 0)
            __syncthreads(); /* (the sums before have been read) */
        if (lane == 31)
            shared.sums[warp] = sum;
        if (__syncthreads_or(lost))
            return false;
        uint32_t row = at + sum - room;
#pragma unroll
        for (uint32_t w = 0; w < SOL_MOE_THREADS / 32; w++) {
            const uint32_t theirs = w < blockDim.x / 32 ? shared.sums[w] : 0;
            row += w < warp ? theirs : 0;
            at += theirs;
        }
        if (tell && expert)
            sol_moe_store_u32(call.recv_counts + 4 * e, total);
        if (tell && e <= m.local && call.recv_offsets)
            sol_moe_store_u32(call.recv_offsets + 4 * e, row);
#pragma unroll
        for (int s = 0; s < N; s++)
            if (expert && (uint32_t)s < n) {
                rows[(uint32_t)s * m.local + e] = row;
                row += (uint32_t)word[s] & 0xffff;
            }
    }
    __syncthreads();
    return true;
}

/* --- dispatch: arrival -------------------------------------------------------------------------
 */

/* A look at the slot of a piece: loads only. */
SOL_GPU_FN void sol_moe_look(const struct sol_moe_kernel &m, uint64_t epoch, uint32_t lane,
                             struct sol_moe_hand &a)
{
    const struct sol_session s = sol_moe_slots(m.there, a.token, epoch);
    const char *in =
        sol_session_in(m.there, s, a.source) + a.piece * (m.head * 16 + SOL_MOE_PIECE) + lane * 16;
    const uint32_t bytes = m.row_sent - a.piece * SOL_MOE_PIECE;
#pragma unroll
    for (int i = 0; i < SOL_MOE_VECTORS; i++) {
        a.v[i].a = a.v[i].b = 0;
        if (i * 512 + lane * 16 < bytes)
            a.v[i] = sol_poll_vector(in + m.head * 16 + i * 512);
    }
    a.head.a = a.head.b = 0;
    if (lane < m.head)
        a.head = sol_poll_vector(in);
}

/* What was seen. 0: all that the lane wants is there. */
SOL_GPU_FN uint32_t sol_moe_seen(const struct sol_moe_kernel &m, uint64_t epoch, uint32_t lane,
                                 struct sol_moe_hand &a)
{
    bool suspect = sol_vector_suspect(a.head);
#pragma unroll
    for (int i = 0; i < SOL_MOE_VECTORS; i++)
        suspect |= sol_vector_suspect(a.v[i]);
    if (!SOL_UNLIKELY(suspect))
        return 0;
    const struct sol_session s = sol_moe_slots(m.there, a.token, epoch);
    const char *in = sol_session_in(m.there, s, a.source);
    const uint32_t begin = a.piece * (m.head * 16 + SOL_MOE_PIECE) + lane * 16;
    uint32_t state = sol_moe_judge(m.there, s, a.source, in, begin, a.head);
#pragma unroll
    for (int i = 0; i < SOL_MOE_VECTORS; i++)
        state |= sol_moe_judge(m.there, s, a.source, in, begin + m.head * 16 + i * 512, a.v[i]);
    return state;
}

SOL_GPU_FN void sol_moe_empty(const struct sol_moe_kernel &m, uint64_t epoch, uint32_t lane,
                              const struct sol_moe_hand &a)
{
    const struct sol_session s = sol_moe_slots(m.there, a.token, epoch);
    char *in =
        sol_session_in(m.there, s, a.source) + a.piece * (m.head * 16 + SOL_MOE_PIECE) + lane * 16;
    const uint32_t bytes = m.row_sent - a.piece * SOL_MOE_PIECE;
#pragma unroll
    for (int i = 0; i < SOL_MOE_VECTORS; i++)
        if (i * 512 + lane * 16 < bytes)
            sol_reset_vector(in + m.head * 16 + i * 512);
    if (lane < m.head)
        sol_reset_vector(in);
}

/* Keep the way back of a token: lane j's word is entry j of the head, `row` its row or -1. */
SOL_GPU_FN void sol_moe_keep_plan(const struct sol_moe_kernel &m,
                                  const struct sol_moe_dispatch_call &call, int source,
                                  uint32_t token, uint32_t lane, int32_t row, uint32_t weight)
{
    const bool here = row >= 0;
    const uint32_t all = __ballot_sync(SOL_MOE_ALL, here), count = sol_count_bits(all);
    const uint32_t before = sol_count_bits(all & ((1u << lane) - 1));
    uint64_t *plan = (uint64_t *)m.plan + ((uint64_t)source * m.max_tokens + token) * m.top_k;
    if (here)
        sol_store_unit(plan + before, (uint64_t)weight << 32 | (uint32_t)row);
    if (lane >= count && lane < m.top_k)
        sol_store_unit(plan + lane, (uint64_t)SOL_MOE_ALL);
    if (here && call.recv_weights)
        sol_moe_store_u32(call.recv_weights + 4 * (uint64_t)(uint32_t)row, weight);
}

/* A piece to the row of each of its token's experts here. */
template <bool QUANT, bool EXACT>
SOL_GPU_FN void sol_moe_store_hand(const struct sol_moe_kernel &m,
                                   const struct sol_moe_dispatch_call &call, const uint32_t *rows,
                                   uint32_t lane, const struct sol_moe_hand &a)
{
    const uint64_t low = __shfl_sync(SOL_MOE_ALL, a.head.a, (int)lane / 2);
    const uint64_t high = __shfl_sync(SOL_MOE_ALL, a.head.b, (int)lane / 2);
    const uint64_t word = lane & 1 ? high : low; /* lane j: entry j */
    const uint32_t expert = (uint32_t)word & 0xffff, place = (uint32_t)(word >> 16) & 0xffff;
    const uint32_t begin = a.piece * SOL_MOE_PIECE + lane * 16;
    const uint32_t which = lane - (m.top_k + 1) / 2; /* row of vectors whose scales the lane has */
    const uint32_t scale = (a.piece * SOL_MOE_VECTORS + which) * 4; /* the first of them */
    int32_t own = -1;
    if (lane < m.top_k && expert != SOL_MOE_NOBODY)
        own = (int32_t)(rows[(uint32_t)a.source * m.local + expert] + place);
#pragma unroll 1
    for (uint32_t all = __ballot_sync(SOL_MOE_ALL, own >= 0); all != 0; all &= all - 1) {
        const uint32_t j = sol_count_bits((all & (0 - all)) - 1);
        const uint32_t row = (uint32_t)__shfl_sync(SOL_MOE_ALL, own, (int)j);
        char *to = call.recv_x + (uint64_t)row * m.row_sent + begin;
#pragma unroll
        for (int i = 0; i < SOL_MOE_VECTORS; i++)
            if (begin + i * 512 < m.row_sent)
                sol_moe_store<EXACT>(to + i * 512, m.row_sent - begin - i * 512, a.v[i]);
        if (QUANT && which < SOL_MOE_VECTORS && scale < m.scales)
            sol_moe_store<EXACT>(call.recv_scales + ((uint64_t)row * m.scales + scale) * 4,
                                 (m.scales - scale) * 4, a.head);
    }
    if (a.piece == 0)
        sol_moe_keep_plan(m, call, a.source, a.token, lane, own, (uint32_t)(word >> 32));
}

/* Does the unit come through a slot? Direct: of this rank's own, the last of each warp does not. */
SOL_GPU_FN bool sol_moe_comes(const struct sol_moe_kernel &m,
                              const struct sol_moe_dispatch_call &call,
                              const struct sol_moe_shared &shared, uint32_t step,
                              const struct sol_moe_hand &a)
{
    if (a.token >= shared.tokens[a.source])
        return false;
    return !call.direct || a.source != m.rank ||
           a.token * m.pieces + a.piece + step < call.tokens * m.pieces;
}

/* All that comes to this rank. `a`: what the warp has in hand for its own experts (`own`), or has
 * seen of its first unit, `u`. A unit that is not there yet may never come: then a bit says so. */
template <bool QUANT, bool EXACT>
SOL_GPU_FN void sol_moe_receive(const struct sol_moe_kernel &m,
                                const struct sol_moe_dispatch_call &call,
                                const struct sol_moe_shared &shared, const uint32_t *rows,
                                uint64_t epoch, uint32_t sources, uint32_t u, uint32_t step,
                                uint32_t lane, bool own, struct sol_moe_hand &a)
{
    struct sol_watch watch = {0, 0};
    uint32_t most = 0;
#pragma unroll 1
    for (int s = 0; s < m.nranks; s++)
        most = shared.tokens[s] > most ? shared.tokens[s] : most;
    for (;;) {
        bool done = true;
        __syncwarp();
        if (own || sol_moe_comes(m, call, shared, step, a)) {
            const uint32_t state = own ? 0 : sol_moe_seen(m, epoch, lane, a);
            const uint32_t verdict = sol_moe_vote(m.there, call.story, watch, a.source, state);
            if (verdict == 2)
                return;
            if (verdict == 0) {
                sol_moe_store_hand<QUANT, EXACT>(m, call, rows, lane, a);
                if (!own)
                    sol_moe_empty(m, epoch, lane, a);
            } else {
                const uint64_t bits =
                    sol_poll_word(sol_moe_word_at(m, a.source, epoch, 1 + a.token / 16));
                /* (if all lanes see the word of this epoch, they see the same) */
                done = __all_sync(SOL_MOE_ALL,
                                  sol_moe_word_here(bits, epoch) && !(bits >> a.token % 16 & 1));
                if (done && a.piece == 0 && lane == 0) /* no way back */
                    sol_store_unit((uint64_t *)m.plan +
                                       ((uint64_t)a.source * m.max_tokens + a.token) * m.top_k,
                                   (uint64_t)SOL_MOE_ALL);
            }
        }
        if (done) {
            u += own ? 0 : gridDim.x * (blockDim.x / 32);
            own = false;
            watch.polls = 0, watch.deadline = 0;
            if (sources == 0)
                return;
            sol_moe_locate(m.rank, m.nranks, sources, m.pieces, m.per_piece, u, a.source, a.token,
                           a.piece);
            if (a.token >= most)
                return;
        }
        sol_moe_look(m, epoch, lane, a);
    }
}

/*
 * The first nranks CTAs count, the others send; then all receive. A CTA's warps get pieces that lie
 * far apart, so that a few pieces are on many SMs, and those that a warp receives are not those
 * that it sends.
 */
template <int D, int N, bool QUANT, bool EXACT>
__global__ void __launch_bounds__(sol_moe_threads(D, QUANT), 1)
    sol_moe_dispatch_kernel(const __grid_constant__ struct sol_moe_kernel m,
                            const __grid_constant__ struct sol_moe_dispatch_call call)
{
    SOL_SHARED(struct sol_moe_shared, shared);
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32, n = (uint32_t)m.nranks;
    const uint32_t counters = gridDim.x > n ? n : 0, senders = gridDim.x - counters;
    const uint32_t step = senders * (blockDim.x / 32);
    const uint32_t wanted = (call.tokens + 31) / 32, marks = wanted < m.marks ? wanted : m.marks;
    const uint32_t first =
        blockIdx.x < counters ? SOL_MOE_ALL : warp * senders + blockIdx.x - counters;
    struct sol_moe_hand hand;
    bool own = false;
    sol_await_predecessors();
    sol_admit_successor();
    uint64_t epoch;
    if (call.halves & 1)
        own = sol_moe_send<D, N, QUANT, EXACT>(m, call, shared, epoch, marks, first, step, lane,
                                               hand);
    else
        epoch = sol_moe_epoch(m, 0);
    if (!(call.halves & 2))
        return;
    if (!(call.halves & 1))
        sol_moe_meet(epoch); /* (sending has done so) */
    const uint32_t arrived = sol_moe_leave(m, 0);
    const uint32_t sources = call.direct && call.tokens * m.pieces <= step ? n - 1 : n;
    const uint32_t u = (blockDim.x / 32 - 1 - warp) * gridDim.x + blockIdx.x;
    uint32_t *rows = shared.bits; /* (nobody counts bits any more when they are written) */
    if (!own) {
        hand.token = SOL_MOE_ALL, hand.source = 0;
        if (sources > 0)
            sol_moe_locate(m.rank, m.nranks, sources, m.pieces, m.per_piece, u, hand.source,
                           hand.token, hand.piece);
        if (hand.token < m.max_tokens) /* whether or not there is such a token */
            sol_moe_look(m, epoch, lane, hand);
    }
    const bool told = sol_moe_read_words<N>(m, call, epoch, shared, rows);
    sol_moe_left(m, 0, epoch, arrived);
    if (told)
        sol_moe_receive<QUANT, EXACT>(m, call, shared, rows, epoch, sources, u, step, lane, own,
                                      hand);
}

/* --- combine: the way back ---------------------------------------------------------------------
 */

/* acc += x * weight: a product and a sum, each rounded. What it begins with is -0: to add to it
 * gives the first product, its sign with it. */
template <int D>
SOL_GPU_FN void sol_moe_add(struct sol_lanes<D> &acc, struct sol_vector v, float weight)
{
    struct sol_lanes<D> x = sol_unpack<D>(v);
#pragma unroll
    for (int i = 0; i < sol_element<D>::count; i++)
        acc.x[i] = sol_add_f32(acc.x[i], sol_mul_f32(x.x[i], weight));
}

/* Lane j: entry j of the way back of a token: row, weight << 32; -1: none. */
SOL_GPU_FN uint64_t sol_moe_plan(const struct sol_moe_kernel &m, int source, uint32_t token,
                                 uint32_t lane)
{
    const uint64_t *plan = (const uint64_t *)m.plan;
    if (lane >= m.top_k)
        return SOL_MOE_ALL;
    return sol_load_unit(plan + ((uint64_t)source * m.max_tokens + token) * m.top_k + lane);
}

/* A piece of what this rank's experts have for a token, in the order of topk_idx. `plan`: as above;
 * its first is one. */
template <int D, bool EXACT>
SOL_GPU_FN void sol_moe_partial(const struct sol_moe_kernel &m,
                                const struct sol_moe_combine_call &call, uint64_t plan,
                                uint32_t piece, uint32_t lane,
                                struct sol_vector (&sum)[SOL_MOE_BACK])
{
    struct sol_lanes<D> acc[SOL_MOE_BACK];
    const int32_t own = (int32_t)(uint32_t)plan;
    uint32_t weight = (uint32_t)(plan >> 32);
    if (call.weights && own >= 0)
        weight = sol_moe_load_u32<EXACT>(call.weights + 4 * (uint64_t)(uint32_t)own);
    const uint32_t count = sol_count_bits(__ballot_sync(SOL_MOE_ALL, own >= 0));
#pragma unroll
    for (int i = 0; i < SOL_MOE_BACK; i++)
#pragma unroll
        for (int e = 0; e < sol_element<D>::count; e++)
            acc[i].x[e] = -0.0f;
#pragma unroll 1
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
                    sol_moe_add<D>(acc[i], y[q][i], w);
        }
    }
#pragma unroll
    for (int i = 0; i < SOL_MOE_BACK; i++)
        sum[i] = sol_pack<D>(acc[i]);
}

SOL_GPU_FN void sol_moe_push_partial(const struct sol_moe_kernel &m, uint64_t epoch, int to,
                                     uint32_t token, uint32_t piece, uint32_t lane,
                                     const struct sol_vector (&sum)[SOL_MOE_BACK])
{
    const struct sol_session s = sol_moe_slots(m.back, token, epoch);
    char *out = sol_moe_out(m.back, s, to);
#pragma unroll
    for (int i = 0; i < SOL_MOE_BACK; i++) {
        const uint32_t at = piece * SOL_MOE_BACK_PIECE + (i * 32 + lane) * 16;
        if (at < m.row)
            sol_session_send_at(m.back, s, out, at, sum[i]);
    }
}

/* The warp: sums for tokens of others (and, not direct, of this rank). The plan of the next unit is
 * on its way while this one is worked on. Lane s of `tokens`: how many source s has. */
template <int D, bool EXACT>
SOL_GPU_FN void sol_moe_return(const struct sol_moe_kernel &m,
                               const struct sol_moe_combine_call &call, uint64_t epoch,
                               uint32_t tokens, uint32_t sources, uint32_t begin, uint32_t step,
                               uint32_t lane)
{
    int source;
    uint32_t token, piece, most = 0;
    uint64_t plan = SOL_MOE_ALL;
    sol_moe_locate(m.rank, m.nranks, sources, m.pieces_back, m.per_back, begin, source, token,
                   piece);
    if (token < m.max_tokens) /* as it is, whether or not there is such a token */
        plan = sol_moe_plan(m, source, token, lane);
#pragma unroll 1
    for (int s = 0; s < m.nranks; s++) {
        const uint32_t theirs = __shfl_sync(SOL_MOE_ALL, tokens, s);
        most = (s != m.rank || !call.direct) && theirs > most ? theirs : most;
    }
#pragma unroll 1
    for (uint32_t u = begin; token < most;) {
        const uint32_t theirs = __shfl_sync(SOL_MOE_ALL, tokens, source);
        const bool comes =
            token < theirs && (uint32_t)__shfl_sync(SOL_MOE_ALL, plan, 0) != SOL_MOE_ALL;
        const uint64_t now = plan;
        const int to = source;
        const uint32_t of = token, which = piece;
        u += step;
        sol_moe_locate(m.rank, m.nranks, sources, m.pieces_back, m.per_back, u, source, token,
                       piece);
        if (token < most)
            plan = sol_moe_plan(m, source, token, lane);
        if (comes) {
            struct sol_vector sum[SOL_MOE_BACK];
            sol_moe_partial<D, EXACT>(m, call, now, which, lane, sum);
            sol_moe_push_partial(m, epoch, to, of, which, lane, sum);
        }
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
        /* loads, all of them, before what depends on any */
#pragma unroll
        for (int r = 0; r < N; r++) {
#pragma unroll
            for (int i = 0; i < SOL_MOE_BACK; i++) {
                const uint32_t at = piece * SOL_MOE_BACK_PIECE + (i * 32 + lane) * 16;
                if ((mask >> r & 1) && at < m.row)
                    x[r][i] = sol_poll_vector(sol_session_in(m.back, s, r) + at);
            }
        }
#pragma unroll
        for (int r = 0; r < N; r++) {
#pragma unroll
            for (int i = 0; i < SOL_MOE_BACK; i++) {
                const uint32_t at = piece * SOL_MOE_BACK_PIECE + (i * 32 + lane) * 16;
                if (!(mask >> r & 1) || at >= m.row)
                    continue;
                const uint32_t one =
                    sol_moe_judge(m.back, s, r, sol_session_in(m.back, s, r), at, x[r][i]);
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

/* The warp: the sums of this rank's tokens. Direct: what its own experts have is added up here, and
 * loaded before what others send is waited for. */
template <int D, int N, bool EXACT>
SOL_GPU_FN void sol_moe_sum(const struct sol_moe_kernel &m, const struct sol_moe_combine_call &call,
                            uint64_t epoch, uint32_t begin, uint32_t step, uint32_t lane,
                            uint32_t mask, uint64_t plan)
{
#pragma unroll 1
    for (uint32_t u = begin; u < call.tokens * m.pieces_back;) {
        const uint32_t token = sol_moe_divide(u, m.pieces_back, m.per_back), ranks = mask;
        const uint32_t piece = u - token * m.pieces_back;
        const uint64_t now = plan;
        struct sol_vector x[N][SOL_MOE_BACK], own[SOL_MOE_BACK];
        u += step;
        if (u < call.tokens * m.pieces_back) { /* the next one's are on their way */
            mask = sol_moe_kept(m.masks, sol_moe_divide(u, m.pieces_back, m.per_back));
            plan = sol_moe_plan(m, m.rank, sol_moe_divide(u, m.pieces_back, m.per_back), lane);
        }
        const bool here = call.direct && ranks >> m.rank & 1;
        if (here)
            sol_moe_partial<D, EXACT>(m, call, now, piece, lane, own);
        if (!sol_moe_gather<N>(m, call, epoch, token, piece, lane,
                               here ? ranks & ~(1u << m.rank) : ranks, x))
            return;
#pragma unroll
        for (int i = 0; i < SOL_MOE_BACK; i++) {
            const uint32_t at = piece * SOL_MOE_BACK_PIECE + (i * 32 + lane) * 16;
            struct sol_lanes<D> acc;
#pragma unroll
            for (int e = 0; e < sol_element<D>::count; e++)
                acc.x[e] = ranks ? -0.0f : 0.0f; /* as in sol_moe_add */
#pragma unroll
            for (int r = 0; r < N; r++) {
                if (!(ranks >> r & 1))
                    continue;
                struct sol_lanes<D> p = sol_unpack<D>(here && r == m.rank ? own[i] : x[r][i]);
#pragma unroll
                for (int e = 0; e < sol_element<D>::count; e++)
                    acc.x[e] = sol_add_f32(acc.x[e], p.x[e]);
            }
            if (at < m.row)
                sol_moe_store<EXACT>(call.out + (uint64_t)token * m.row + at, m.row - at,
                                     sol_pack<D>(acc));
        }
    }
}

template <int D, int N, bool EXACT>
__global__ void __launch_bounds__(N == 2 ? SOL_MOE_THREADS : SOL_MOE_FEW_THREADS, 1)
    sol_moe_combine_kernel(const __grid_constant__ struct sol_moe_kernel m,
                           const __grid_constant__ struct sol_moe_combine_call call)
{
    const uint32_t lane = threadIdx.x & 31;
    const uint32_t warp = threadIdx.x / 32, step = gridDim.x * (blockDim.x / 32);
    const uint32_t begin = warp * gridDim.x + blockIdx.x; /* of what others get, and */
    const uint32_t own = (blockDim.x / 32 - 1 - warp) * gridDim.x + blockIdx.x;
    const uint32_t sources = (uint32_t)m.nranks - (call.direct ? 1 : 0);
    uint32_t mask = 0, tokens = 0;
    uint64_t plan = SOL_MOE_ALL;
    sol_await_predecessors();
    sol_admit_successor();
    const uint64_t number = sol_poll_word(m.epochs + 64); /* loads first; nothing waits for one */
    if ((call.halves & 1) && lane < (uint32_t)m.nranks)
        tokens = sol_moe_kept(m.came, lane);
    if ((call.halves & 2) && own < call.tokens * m.pieces_back) {
        mask = sol_moe_kept(m.masks, sol_moe_divide(own, m.pieces_back, m.per_back));
        plan = sol_moe_plan(m, m.rank, sol_moe_divide(own, m.pieces_back, m.per_back), lane);
    }
    const uint64_t epoch = m.first_epoch + number;
    if ((call.halves & 1) && sources > 0)
        sol_moe_return<D, EXACT>(m, call, epoch, tokens, sources, begin, step, lane);
    if (!(call.halves & 2))
        return;
    sol_moe_meet(epoch);
    const uint32_t arrived = sol_moe_leave(m, 1);
    sol_moe_sum<D, N, EXACT>(m, call, epoch, own, step, lane, mask, plan);
    sol_moe_left(m, 1, epoch, arrived);
}

#endif
