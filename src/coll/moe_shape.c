/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe_shape.c: see moe.h: what follows from a config.
 */
#include "coll/moe.h"
#include "coll/shares.h"

#include <string.h>

#define RECORD_STEP 64

static size_t up(size_t value, size_t step)
{
    return (value + step - 1) / step * step;
}

void sol_moe_shape_of(sol_moe_shape_t *shape, const sol_moe_config_t *config, int rank, int nranks)
{
    const size_t experts = (size_t)config->experts, tokens = config->max_tokens;
    memset(shape, 0, sizeof *shape);
    shape->rank = rank;
    shape->nranks = nranks;
    shape->max_tokens = (uint32_t)tokens;
    shape->hidden = (uint32_t)config->hidden;
    shape->top_k = (uint32_t)config->top_k;
    for (int r = 0; r < nranks; r++) {
        shape->first[r] = (uint32_t)sol_share(experts, 1, nranks, r).begin;
    }
    shape->first[nranks] = (uint32_t)experts;
    shape->local = shape->first[rank + 1] - shape->first[rank];
    shape->dtype = config->dtype;
    shape->quant = config->quant;
    if (config->quant != SOL_QUANT_NONE) {
        shape->scales =
            (uint32_t)(up(config->hidden, SOL_QUANT_GROUP_COLUMNS) / SOL_QUANT_GROUP_COLUMNS);
    }
    shape->row = config->hidden * sol_dtype_size(config->dtype);
    shape->row_sent = shape->scales ? config->hidden : shape->row;
    shape->rows_per_expert = (size_t)nranks * tokens;
    shape->rows = shape->local * shape->rows_per_expert;
    if (config->layout == SOL_MOE_PACKED) {
        size_t most = shape->top_k < shape->local ? shape->top_k : shape->local;
        shape->align = config->align > 0 ? (uint32_t)config->align : 1;
        shape->rows = most * shape->rows_per_expert + (size_t)shape->local * (shape->align - 1);
    }
    size_t record =
        shape->top_k * sizeof(sol_moe_entry_t) + shape->scales * sizeof(float) + shape->row_sent;
    shape->stride = up(record > shape->row ? record : shape->row, RECORD_STEP);
}
