/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe.h: experts that are split over the ranks: tokens go to the ranks of their
 * experts (dispatch), and the experts' outputs come back as one weighted sum a
 * token (combine). For token generation: few tokens, low latency.
 *
 *     sol_moe_config_t config = SOL_MOE_CONFIG_INIT;
 *     config.max_tokens = 128, config.hidden = 7168, config.top_k = 8, config.experts = 256;
 *     config.quant = SOL_QUANT_GROUP;                        // FP8 on the way there
 *     sol_moe_create(&moe, &config, comm);                   // all memory is asked for here
 *
 *     sol_moe_dispatch_args_t d = SOL_MOE_DISPATCH_ARGS_INIT;
 *     d.tokens = n, d.x = x, d.topk_idx = idx, d.topk_weights = weights;
 *     d.recv_x = rows, d.recv_scales = scales, d.recv_counts = counts;
 *     sol_moe_dispatch(moe, &d, stream);
 *     grouped_product(rows, scales, counts, y, stream);      // yours
 *     sol_moe_combine_args_t c = SOL_MOE_COMBINE_ARGS_INIT;
 *     c.tokens = n, c.y = y, c.out = out;
 *     sol_moe_combine(moe, &c, stream);
 *
 * The rules of solccl.h hold here too: return values, pointers without alignment,
 * any bit pattern, ordering, streams, bounded waits, thread-safety. How many tokens
 * go where is never seen by the host: calls can be captured once and replayed with
 * other routes.
 */
#ifndef SOLCCL_MOE_H
#define SOLCCL_MOE_H

#include "solccl/fused.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SOL_MOE_MAX_TOKENS 32768 /* of a rank in a dispatch */
#define SOL_MOE_MAX_TOP_K 32
#define SOL_MOE_MAX_EXPERTS 2048 /* of all ranks */

/** Where an expert's rows lie in recv_x, recv_scales, recv_weights and y. */
typedef enum sol_moe_layout {
    SOL_MOE_PADDED = 0, /**< local expert e's rows begin at row e * rows_per_expert, which is n *
                             max_tokens: for masked grouped products. Rows beyond the expert's
                             count are not touched */
    SOL_MOE_PACKED = 1  /**< experts one after the other; each begins at a multiple of `align`
                             rows: for grouped products with offsets; least memory */
} sol_moe_layout_t;

/** What a handle is for. Equal on all ranks. Initialise it with SOL_MOE_CONFIG_INIT; fields are
 * only ever added at the end. */
typedef struct sol_moe_config {
    size_t size;       /**< sizeof(sol_moe_config_t) of the caller */
    size_t max_tokens; /**< of a rank in one dispatch: 1 to SOL_MOE_MAX_TOKENS */
    size_t hidden;     /**< elements of a token: 1 or more */
    int top_k;         /**< experts of a token: 1 to SOL_MOE_MAX_TOP_K */
    int experts;       /**< of all ranks: 1 to SOL_MOE_MAX_EXPERTS. Rank r of n has a contiguous
                            part of them: the first experts % n ranks one more than the others */
    sol_dtype_t dtype; /**< of tokens, outputs and results: BFLOAT16, FLOAT16 or FLOAT32 */
    sol_quant_t quant; /**< SOL_QUANT_NONE: rows arrive as they are; SOL_QUANT_GROUP and
                            _GROUP_POW2: as FLOAT8_E4M3 with a scale for every 128 columns */
    sol_moe_layout_t layout;
    int align; /**< SOL_MOE_PACKED: rows; 0: 1 */
} sol_moe_config_t;

#define SOL_MOE_CONFIG_INIT                                                                        \
    {                                                                                              \
        sizeof(sol_moe_config_t), 0, 0, 0, 0, SOL_BFLOAT16, SOL_QUANT_NONE, SOL_MOE_PADDED, 0      \
    }

/** A handle: one exchange at a time. Two of them for two halves of a batch that overlap. */
typedef struct sol_moe *sol_moe_t;

/** Sizes, for the caller's allocations. Set `size` first; fields are only added. */
typedef struct sol_moe_info {
    size_t size;            /**< in: sizeof(sol_moe_info_t) of the caller */
    int first_expert;       /**< of this rank */
    int local_experts;      /**< how many it has; may be 0 */
    size_t rows;            /**< that recv_x, recv_scales, recv_weights and y need room for:
                                 local_experts * rows_per_expert; SOL_MOE_PACKED: the worst case */
    size_t rows_per_expert; /**< n * max_tokens: the most tokens that one expert can get */
    size_t scales_per_row;  /**< ceil(hidden / 128), or 0 without a quant */
    size_t memory_bytes;    /**< that the handle holds on this rank */
} sol_moe_info_t;

/**
 * Make a handle, with all the memory that it will ever use. Collective over `comm`; blocks; not
 * legal in a group or a capture. Any number per communicator.
 * Errors: ARGUMENT (a limit is not within its bounds; the text says which), MISMATCH (ranks pass
 * different configs; the communicator stays usable), MEMORY, UNSUPPORTED (GPU ranks: more than 8,
 * or without peer access; rows and tokens that together need more than 2 GiB), TIMEOUT.
 */
SOL_API sol_status_t sol_moe_create(sol_moe_t *moe, const sol_moe_config_t *config,
                                    sol_comm_t comm);

/** Free it. Local: waits for no other rank. This rank's calls on it must have completed.
 * sol_comm_destroy does it for all that are left. NULL is SOL_OK. */
SOL_API sol_status_t sol_moe_destroy(sol_moe_t moe);

/** Fill `info`. Local. Errors: ARGUMENT. */
SOL_API sol_status_t sol_moe_query(sol_moe_t moe, sol_moe_info_t *info);

/**
 * What dispatch works on. Initialise it with SOL_MOE_DISPATCH_ARGS_INIT. Matrices are row-major
 * without gaps; on GPU ranks all memory is the GPU's. The send half reads the first part, the
 * receive half writes the second.
 */
typedef struct sol_moe_dispatch_args {
    size_t size;               /**< sizeof(sol_moe_dispatch_args_t) of the caller */
    size_t tokens;             /**< of this rank: 0 to max_tokens; ranks may differ */
    const void *x;             /**< tokens x hidden of dtype */
    const void *topk_idx;      /**< tokens x top_k numbers of experts. One that is no expert's (-1)
                                    is none; of one that a token names twice the first counts */
    sol_dtype_t idx_dtype;     /**< of topk_idx: INT32 or INT64 */
    const float *topk_weights; /**< tokens x top_k; NULL: ones */

    void *recv_x;          /**< rows x hidden of dtype, or of FLOAT8_E4M3 with a quant */
    float *recv_scales;    /**< rows x scales_per_row; with a quant */
    float *recv_weights;   /**< rows: the weight that each row's token gave its expert; NULL: not
                                wanted */
    int32_t *recv_counts;  /**< local_experts: rows of each */
    int32_t *recv_offsets; /**< local_experts + 1: first row of each, and where the last one ends
                                (PADDED: of its room); NULL: not wanted */
} sol_moe_dispatch_args_t;

#define SOL_MOE_DISPATCH_ARGS_INIT                                                                 \
    {                                                                                              \
        sizeof(sol_moe_dispatch_args_t), 0, NULL, NULL, SOL_INT64, NULL, NULL, NULL, NULL, NULL,   \
            NULL                                                                                   \
    }

/**
 * Each token to every rank that has one of its experts, once; there it becomes a row of each of
 * these experts. An expert's rows are in the order of (source rank, token), in every run. With a
 * quant, of each group of 128 columns: scale = amax / 448 as fused.h has it, and the row is
 * x * (1 / scale), rounded once to E4M3; NaNs and infinities as there.
 *
 * Collective: all ranks of the communicator call the functions of a handle in the same order:
 * dispatch, then combine or the next dispatch. Stream-ordered and legal in a capture on GPU ranks,
 * where the calls of a handle are on one stream or ordered by events; blocking on CPU ranks; not
 * legal inside a group.
 * Errors: ARGUMENT, STATE (a group is open; a half without its other), TIMEOUT, PEER, ABORTED,
 * MISMATCH, DEVICE.
 */
SOL_API sol_status_t sol_moe_dispatch(sol_moe_t moe, const sol_moe_dispatch_args_t *args,
                                      void *stream);
/** Its halves, for what is to be computed between them: send waits for no rank, and x, topk_idx
 * and topk_weights may be written to after it; recv waits. Each reads its part of `args` alone
 * (recv also `tokens`). On CPU ranks send keeps the tokens, and recv moves them. */
SOL_API sol_status_t sol_moe_dispatch_send(sol_moe_t moe, const sol_moe_dispatch_args_t *args,
                                           void *stream);
SOL_API sol_status_t sol_moe_dispatch_recv(sol_moe_t moe, const sol_moe_dispatch_args_t *args,
                                           void *stream);

/** What combine works on. Initialise it with SOL_MOE_COMBINE_ARGS_INIT. */
typedef struct sol_moe_combine_args {
    size_t size;          /**< sizeof(sol_moe_combine_args_t) of the caller */
    size_t tokens;        /**< as in the dispatch before */
    const void *y;        /**< rows x hidden of dtype: the experts' outputs, where dispatch put
                               their inputs */
    const float *weights; /**< one for each row; NULL: those that came with the tokens */
    void *out;            /**< tokens x hidden of dtype */
} sol_moe_combine_args_t;

#define SOL_MOE_COMBINE_ARGS_INIT                                                                  \
    {                                                                                              \
        sizeof(sol_moe_combine_args_t), 0, NULL, NULL, NULL                                        \
    }

/**
 * The weighted sum of a token's experts, on the rank that the token came from:
 *
 *   p_r = round_to_dtype((w_a * y_a + w_b * y_b) + ...)    on rank r: its experts of this token, in
 *                                                          the order of topk_idx; sent as one row
 *   out = round_to_dtype((p_0 + p_1) + ...)                ranks that have any, in order
 *
 * in IEEE fp32, each operation rounded to nearest even; +0 for a token without experts; NaNs
 * canonical. So a token's result has the same bits in every batch, from CPU and GPU ranks. One
 * combine for each dispatch. Collective, and errors, as dispatch's.
 */
SOL_API sol_status_t sol_moe_combine(sol_moe_t moe, const sol_moe_combine_args_t *args,
                                     void *stream);
/** Its halves: send reads y and weights, which may be written to after it; recv writes out. */
SOL_API sol_status_t sol_moe_combine_send(sol_moe_t moe, const sol_moe_combine_args_t *args,
                                          void *stream);
SOL_API sol_status_t sol_moe_combine_recv(sol_moe_t moe, const sol_moe_combine_args_t *args,
                                          void *stream);

#ifdef __cplusplus
}
#endif
#endif /* SOLCCL_MOE_H */
