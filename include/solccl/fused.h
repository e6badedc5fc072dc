/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fused.h: the operations around the collective, in one call with it.
 *
 *     struct sol_norm_args args = SOL_NORM_ARGS_INIT;
 *     args.tokens = 32, args.hidden = 8192, args.dtype = SOL_BFLOAT16;
 *     args.input = partial, args.residual = residual, args.residual_out = residual;
 *     args.weight = gamma, args.epsilon = 1e-6f;
 *     args.output = normed, args.output_dtype = SOL_BFLOAT16;
 *     sol_all_reduce_norm(&args, comm, stream);
 *
 * The rules of solccl.h hold here too: return values, counts, pointers without
 * alignment, ordering, streams, bounded waits, thread-safety.
 */
#ifndef SOLCCL_FUSED_H
#define SOLCCL_FUSED_H

#include "solccl/solccl.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Which norm of a token's row. */
typedef enum sol_norm {
    SOL_NORM_RMS = 0,  /**< h / sqrt(mean(h^2) + epsilon) */
    SOL_NORM_LAYER = 1 /**< (h - mean(h)) / sqrt(mean((h - mean(h))^2) + epsilon) */
} sol_norm_t;

/** How the output is scaled before it is rounded to an 8-bit type. */
typedef enum sol_quant {
    SOL_QUANT_NONE = 0,      /**< not at all: output_dtype is FLOAT32, FLOAT16 or BFLOAT16 */
    SOL_QUANT_STATIC = 1,    /**< by one scale that the caller gives */
    SOL_QUANT_TOKEN = 2,     /**< by one scale a token, found from the row and written */
    SOL_QUANT_GROUP = 3,     /**< by one scale for every 128 columns of a token */
    SOL_QUANT_GROUP_POW2 = 4 /**< the same, rounded up to a power of two */
} sol_quant_t;

/**
 * How sol_all_reduce_norm goes about it. The bits of the results are the same.
 *
 * ONE_SHOT: every rank gets all contributions and normalises all tokens. TWO_SHOT: each token has
 * an owner, who alone adds it up, normalises and quantises it, and sends the finished row to the
 * others. Then all ranks must pass equal arguments, but for addresses, and the same pointers NULL.
 */
typedef enum sol_norm_form {
    SOL_NORM_ONE_SHOT = 0,
    SOL_NORM_TWO_SHOT = 1,
    SOL_NORM_ANY = 2 /**< the library chooses; all ranks' arguments are alike, as for TWO_SHOT */
} sol_norm_form_t;

/** In sol_norm_args.shards, with TWO_SHOT or ANY: of which matrices a rank has its own tokens' rows
 * only, those from sol_norm_first_token(tokens, nranks, rank) to the next rank's first, from row 0
 * on. */
#define SOL_NORM_SHARD_RESIDUAL 1u /**< residual and residual_out */
#define SOL_NORM_SHARD_OUTPUT 2u   /**< output and scales: reduce_scatter and norm */

/** The first token that `rank` owns; of rank `nranks`: tokens. */
static inline size_t sol_norm_first_token(size_t tokens, int nranks, int rank)
{
    const size_t n = (size_t)nranks, r = (size_t)rank;
    return tokens / n * r + tokens % n * r / n;
}

/** Columns of a group of SOL_QUANT_GROUP and SOL_QUANT_GROUP_POW2; a row's last may be shorter. */
#define SOL_QUANT_GROUP_COLUMNS 128

/**
 * What sol_all_reduce_norm works on. Initialise it with SOL_NORM_ARGS_INIT. All matrices are
 * row-major without gaps: `tokens` rows of `hidden` elements. On GPU ranks all memory is the
 * GPU's. Fields are only ever added at the end.
 */
typedef struct sol_norm_args {
    size_t size; /**< sizeof(sol_norm_args_t) of the caller */
    size_t tokens, hidden;
    sol_dtype_t dtype; /**< of input, residual, residual_out, weight, bias: FLOAT32, FLOAT16 or
                            BFLOAT16 */
    sol_norm_t norm;
    const void *input;    /**< this rank's contribution to the sum */
    const void *residual; /**< equal on all ranks; NULL: zeros */
    void *residual_out;   /**< the new residual, before the norm; may be `residual` or `input`
                               itself; NULL: not wanted */
    const void *weight;   /**< `hidden` elements; NULL: ones, and weight_bias is not added */
    const void *bias;     /**< `hidden` elements, added last; NULL: none */
    float weight_bias;    /**< added to every weight: 0, or 1 for models that store weight - 1 */
    float epsilon;        /**< not negative */
    void *output;         /**< may be `input` itself if its elements are as large */
    sol_dtype_t output_dtype; /**< as dtype's, or FLOAT8_E4M3, FLOAT8_E5M2, INT8 with a quant */
    sol_quant_t quant;
    const float *static_scale; /**< SOL_QUANT_STATIC: one float; the output is divided by it */
    float *scales;        /**< written: SOL_QUANT_TOKEN: `tokens` floats; groups: tokens rows of
                               ceil(hidden / 128) floats; otherwise not used */
    sol_norm_form_t form; /**< from here on: a caller with a smaller `size` gets zeros */
    unsigned shards;      /**< SOL_NORM_SHARD_*; 0: all ranks have all rows of everything */
} sol_norm_args_t;

#define SOL_NORM_ARGS_INIT                                                                         \
    {                                                                                              \
        sizeof(sol_norm_args_t), 0, 0, SOL_BFLOAT16, SOL_NORM_RMS, NULL, NULL, NULL, NULL, NULL,   \
            0.0f, 0.0f, NULL, SOL_BFLOAT16, SOL_QUANT_NONE, NULL, NULL, SOL_NORM_ONE_SHOT, 0       \
    }

/**
 * Sum over the ranks, add the residual, normalise, scale, and round: what follows every attention
 * and every feed-forward block of a transformer whose layers are split across ranks.
 *
 * All arithmetic is IEEE fp32, each operation rounded to nearest even. Of token t and column i:
 *
 *   h = round_to_dtype(((x_0 + x_1) + ...) + residual)       ranks in order; to residual_out
 *   r = 1 / sqrt(sum(h^2) * (1 / hidden) + epsilon)          (RMS)
 *   y = (h * r) * (weight + weight_bias) + bias
 *   m = sum(h) * (1 / hidden), r from (h - m)^2,             (LAYER)
 *   y = ((h - m) * r) * (weight + weight_bias) + bias
 *
 * and the output is y, or q = y * (1 / scale), rounded once to output_dtype. The two sums have an
 * order that depends on `hidden` and `dtype` alone (docs/fused.md), so that a token's result has
 * the same bits on every rank, from CPU and GPU ranks, and in every batch that the token is in.
 * Scales are amax / L with amax the largest |y| of the token or group, at least 2^-100, and L the
 * largest finite value of output_dtype (INT8: 127). FP8 saturates; INT8 rounds to nearest even
 * and saturates at -127 and 127. A NaN in a row makes its scale NaN; INT8 then holds 0.
 *
 * Collective over `comm`: all ranks pass equal tokens, hidden, dtype, norm, form and shards, and a
 * residual (with equal contents, unless it is in shards) or none; what else they pass may differ in
 * ONE_SHOT, as a rank's outputs are its own.
 * tokens or hidden 0: takes part in ordering and moves nothing. Stream-ordered and legal in a
 * capture on GPU ranks, blocking on CPU ranks; not legal inside a group. Each of the matrices may
 * be given by any pointer, aligned or not; multiples of 16 bytes, also of the rows, are fastest.
 * Errors: as the collectives'; STATE (a group is open); UNSUPPORTED (GPU ranks without peer
 * access; a row larger than a staging slot, with shards than half of one, with staging_bytes made
 * small).
 */
SOL_API sol_status_t sol_all_reduce_norm(const sol_norm_args_t *args, sol_comm_t comm,
                                         void *stream);

/** Most starts of a handle that may be under way. */
#define SOL_NORM_MAX_DEPTH 8

/** What a handle of sol_norm_start is for. Equal on all ranks. Initialise it with
 * SOL_NORM_CONFIG_INIT; fields are only ever added at the end. */
typedef struct sol_norm_config {
    size_t size;          /**< sizeof(sol_norm_config_t) of the caller */
    size_t max_tokens;    /**< of one start: 1 or more */
    size_t hidden;        /**< elements of a token: 1 or more */
    sol_dtype_t dtype;    /**< of input, as in sol_norm_args_t */
    sol_norm_form_t form; /**< ANY: TWO_SHOT with shards, ONE_SHOT without */
    unsigned shards;      /**< SOL_NORM_SHARD_*; 0 with ONE_SHOT */
    int depth;            /**< starts under way at once: 1 to SOL_NORM_MAX_DEPTH; 0: 2 */
    int start_ctas;       /**< GPU ranks: CTAs of a start, at most: what is computed meanwhile has
                               the other SMs; 0: 16. Ranks may differ in it */
} sol_norm_config_t;

#define SOL_NORM_CONFIG_INIT                                                                       \
    {                                                                                              \
        sizeof(sol_norm_config_t), 0, 0, SOL_BFLOAT16, SOL_NORM_ONE_SHOT, 0, 0, 0                  \
    }

/** A handle: memory for the contributions of `depth` starts. */
typedef struct sol_norm_halves *sol_norm_halves_t;

/**
 * Make a handle for sol_all_reduce_norm in halves, with all the memory that it will ever use
 * (docs/fused.md says how much). Collective over `comm`; blocks; not legal in a group.
 * Any number per communicator; while there is one the communicator cannot sleep. Errors: ARGUMENT
 * (a field is not within its bounds; the text says which), STATE (a group is open), MISMATCH (ranks
 * pass different configs; the communicator stays usable), MEMORY, UNSUPPORTED (GPU ranks without
 * peer access; a start that needs 2 GiB and more), TIMEOUT.
 */
SOL_API sol_status_t sol_norm_create(sol_norm_halves_t *halves, const sol_norm_config_t *config,
                                     sol_comm_t comm);

/**
 * Free it. Local: waits for no other rank. This rank's calls on it must have completed.
 * sol_comm_destroy does it for all that are left. A start that was not waited for is dropped: what
 * has reached the others is theirs, and their later starts fail (STATE; on GPU ranks nobody may
 * start after a peer has destroyed its handle). NULL is SOL_OK.
 */
SOL_API sol_status_t sol_norm_destroy(sol_norm_halves_t halves);

/**
 * sol_all_reduce_norm in halves, for what is to be computed between them: the other half of the
 * tokens.
 *
 *     sol_norm_start(halves, &a, stream);   // a's partial sums leave
 *     compute(b, stream);                   // the next product of the other half
 *     sol_norm_start(halves, &b, stream);
 *     sol_norm_wait(halves, &a, stream);    // a: sum, residual, norm, output
 *     compute(a, stream); ...
 *
 * Start sends `input` and waits for no rank. Wait waits for the others' starts and does all the
 * rest. The bits are those of sol_all_reduce_norm. Each reads its part of `args`: start size,
 * tokens, hidden, dtype, shards and input; wait all of them, with those equal to what the start of
 * it was given (form: the handle's; it is not looked at). `input` is read by both: it stays as it
 * is until wait has completed. All else may change, or come to be, up to wait.
 *
 * Up to `depth` starts may be under way; a wait finishes the oldest. Collective: all ranks make the
 * same calls on a handle in the same order. Between them any other call on the communicator is
 * legal, on other handles too. tokens 0: moves nothing and waits for nobody, in both halves.
 *
 * CPU ranks: start blocks no longer than its copies take, wait blocks; `stream` is NULL. GPU
 * ranks: each is one kernel, stream-ordered, and legal in a capture; a start on a stream of its
 * own goes on beside what is computed. A graph that is replayed has as many waits as starts, and
 * begins and ends with none of its handle under way. Not legal inside a group. Errors: as
 * sol_all_reduce_norm's; STATE also: `depth` starts are under way; no start is; CPU ranks: a peer
 * has destroyed its handle. MISMATCH, where CPU ranks started different numbers of tokens, makes
 * the communicator unusable; GPU ranks notice with `check` alone.
 */
SOL_API sol_status_t sol_norm_start(sol_norm_halves_t halves, const sol_norm_args_t *args,
                                    void *stream);
SOL_API sol_status_t sol_norm_wait(sol_norm_halves_t halves, const sol_norm_args_t *args,
                                   void *stream);

/** Most entries of a token's result. */
#define SOL_VOCAB_MAX_K 128

/**
 * What sol_vocab_topk works on. Initialise it with SOL_VOCAB_ARGS_INIT. On GPU ranks all memory is
 * the GPU's. Fields are only ever added at the end.
 */
typedef struct sol_vocab_args {
    size_t size; /**< sizeof(sol_vocab_args_t) of the caller */
    size_t tokens;
    size_t columns;     /**< of this rank's shard of the vocabulary; 0 is legal */
    size_t pitch;       /**< elements from a row to the next; 0: columns */
    uint64_t first;     /**< index in the vocabulary of this shard's column 0; with `columns` added
                             at most 2^32 - 1 */
    sol_dtype_t dtype;  /**< of logits: FLOAT32, FLOAT16 or BFLOAT16 */
    unsigned k;         /**< 0 to SOL_VOCAB_MAX_K */
    const void *logits; /**< `tokens` rows of `columns` elements, `pitch` apart */
    float *values;      /**< written: tokens rows of k; NULL: not wanted */
    int64_t *indices;   /**< written: tokens rows of k; NULL: not wanted */
    float *log_sum_exp; /**< written: tokens; NULL, on all ranks: not wanted */
} sol_vocab_args_t;

#define SOL_VOCAB_ARGS_INIT                                                                        \
    {                                                                                              \
        sizeof(sol_vocab_args_t), 0, 0, 0, 0, SOL_BFLOAT16, 0, NULL, NULL, NULL, NULL              \
    }

/**
 * The k largest logits of each token, with their indices, and the log of the sum of all logits'
 * exponentials, where each rank holds some columns of the vocabulary: what sampling the next token
 * needs of it. k = 1 is argmax. One small collective: each rank sends its own k pairs (and one sum)
 * a token, in place of its logits.
 *
 * values: as fp32, descending. Equal values: ascending index. NaN counts as larger than every
 * number and all NaNs as equal; it is returned as the canonical NaN. -0 counts as, and is returned
 * as, +0. Where all shards together have fewer than k columns, the rest is -infinity with index -1.
 *
 * log_sum_exp: NaN if a logit is; +infinity if one is; -infinity if none is larger. Otherwise
 * within 1e-6 * (1 + |result|) of the exact one. It depends on the logits and on how the vocabulary
 * is divided, and on nothing else: not on the batch, the launch or the kind of ranks
 * (docs/fused.md).
 *
 * All results have the same bits on all ranks. Collective over `comm`: all ranks pass equal tokens
 * and k, and log_sum_exp or none. Their shards may be of any sizes and types, in any order, but
 * must not overlap (that is not checked). tokens 0 takes part in ordering and moves nothing.
 * Stream-ordered and legal in a capture on GPU ranks, blocking on CPU ranks; not legal inside a
 * group. Errors: as the collectives'; STATE (a group is open); UNSUPPORTED (GPU ranks without peer
 * access).
 */
SOL_API sol_status_t sol_vocab_topk(const sol_vocab_args_t *args, sol_comm_t comm, void *stream);

/** Most tokens of sol_linear_all_reduce. */
#define SOL_LINEAR_MAX_TOKENS 16

/**
 * What sol_linear_all_reduce works on. Initialise it with SOL_LINEAR_ARGS_INIT. All matrices are
 * row-major without gaps. On GPU ranks all memory is the GPU's. Fields are only ever added at the
 * end.
 */
typedef struct sol_linear_args {
    size_t size;              /**< sizeof(sol_linear_args_t) of the caller */
    size_t tokens;            /**< 0 to SOL_LINEAR_MAX_TOKENS */
    size_t inputs;            /**< columns of this rank's weights; ranks may differ; 0 is legal */
    size_t outputs;           /**< rows of the weights */
    sol_dtype_t weight_dtype; /**< BFLOAT16, FLOAT8_E4M3 or FLOAT8_E5M2 */
    const void *input;        /**< tokens rows of `inputs`, bf16 */
    const void *weight;       /**< outputs rows of `inputs`, of weight_dtype */
    const float *scales;      /**< `outputs` floats that its rows are multiplied by; NULL: ones */
    void *output;             /**< tokens rows of `outputs`, bf16; not `input` */
} sol_linear_args_t;

#define SOL_LINEAR_ARGS_INIT                                                                       \
    {                                                                                              \
        sizeof(sol_linear_args_t), 0, 0, 0, SOL_BFLOAT16, NULL, NULL, NULL, NULL                   \
    }

/**
 * Multiply a few tokens by weights whose columns are divided among the ranks, and sum over the
 * ranks: the second half of an attention or feed-forward block in token generation. On GPU ranks
 * each piece of a product is sent as soon as it is finished.
 *
 * A rank's product p is summed in fp32 by fused multiply-adds, in an order that depends on `inputs`
 * and weight_dtype alone (docs/fused.md), multiplied by the row's scale, and rounded to bf16; the
 * output is sol_all_reduce's sum of these. So a token's result has the same bits on every rank,
 * from CPU and GPU ranks, and in every batch that the token is in.
 *
 * Collective over `comm`: all ranks pass equal tokens and outputs. tokens or outputs 0 takes part
 * in ordering and moves nothing. Stream-ordered and legal in a capture on GPU ranks, blocking on
 * CPU ranks; not legal inside a group. Multiples of 16 bytes, also of rows, are fastest. Errors: as
 * the collectives'; STATE (a group is open); UNSUPPORTED (GPU ranks without peer access).
 */
SOL_API sol_status_t sol_linear_all_reduce(const sol_linear_args_t *args, sol_comm_t comm,
                                           void *stream);

#ifdef __cplusplus
}
#endif
#endif /* SOLCCL_FUSED_H */
