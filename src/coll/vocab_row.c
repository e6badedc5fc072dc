/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vocab_row.c: see vocab_row.h. The k largest so far are a heap whose root is the
 * smallest of them: nearly every logit costs one comparison.
 */
#include "coll/vocab_row.h"

#include "coll/convert.h"
#include "coll/vocab.h"

static float logit(const void *row, sol_dtype_t dtype, size_t i)
{
    uint16_t half;
    float value;
    if (dtype == SOL_FLOAT32) {
        memcpy(&value, (const char *)row + 4 * i, 4);
        return value;
    }
    memcpy(&half, (const char *)row + 2 * i, 2);
    return dtype == SOL_FLOAT16 ? sol_fp16_to_float(half) : sol_bf16_to_float(half);
}

/* The smallest of heap[0 ... n-1] is at 0, but for the root, which may be too large. */
static void sink(uint64_t *heap, size_t n)
{
    size_t at = 0;
    for (;;) {
        size_t least = at, left = 2 * at + 1;
        if (left < n && heap[left] < heap[least])
            least = left;
        if (left + 1 < n && heap[left + 1] < heap[least])
            least = left + 1;
        if (least == at)
            return;
        uint64_t key = heap[at];
        heap[at] = heap[least];
        heap[least] = key;
        at = least;
    }
}

/* A heap to a descending list. */
static void unheap(uint64_t *heap, size_t n)
{
    while (n > 1) {
        uint64_t least = heap[0];
        heap[0] = heap[n - 1];
        heap[--n] = least;
        sink(heap, n);
    }
}

void sol_vocab_local(const sol_vocab_args_t *args, size_t token, uint64_t *message)
{
    const size_t pitch = args->pitch != 0 ? args->pitch : args->columns;
    const size_t k = args->k > 0 ? args->k : 1;
    const char *row = args->logits; /* may be NULL if there are no columns */
    if (args->columns != 0) {
        row += token * pitch * sol_dtype_size(args->dtype);
    }
    memset(message, 0, k * sizeof *message); /* a heap of what every key beats */
    for (size_t i = 0; i < args->columns; i++) {
        float x = logit(row, args->dtype, i);
        uint64_t key = sol_vocab_key(sol_vocab_bits(x), (uint32_t)(args->first + i));
        if (key > message[0]) {
            message[0] = key;
            sink(message, k);
        }
    }
    unheap(message, k);
    if (args->log_sum_exp == NULL)
        return;
    const uint32_t bits = sol_vocab_value(message[0]);
    const float largest = sol_vocab_float(bits);
    const int fraction = sol_vocab_fraction(args->columns);
    uint64_t terms = 0;
    for (size_t i = 0; i < args->columns && sol_vocab_finite(bits); i++)
        terms += sol_vocab_term(logit(row, args->dtype, i), largest, fraction);
    message[k] = sol_vocab_sum(terms, fraction);
}

/* The k largest of two descending lists. */
static void join(uint64_t *best, const uint64_t *list, size_t k)
{
    uint64_t both[SOL_VOCAB_MAX_K];
    size_t a = 0, b = 0;
    for (size_t i = 0; i < k; i++)
        both[i] = best[a] >= list[b] ? best[a++] : list[b++];
    memcpy(best, both, k * sizeof *best); /* cppcheck-suppress uninitvar; k may be 0 */
}

void sol_vocab_merge(const sol_vocab_args_t *args, size_t token, const uint64_t *messages,
                     size_t stride, int nranks)
{
    uint64_t best[SOL_VOCAB_MAX_K] = {0};
    const size_t k = args->k;
    for (int r = 0; r < nranks; r++)
        join(best, messages + (size_t)r * stride, k);
    for (size_t i = 0; i < k; i++) {
        const uint32_t value = sol_vocab_value(best[i]);
        const int64_t index = sol_vocab_index(best[i]);
        if (args->values != NULL)
            memcpy((char *)args->values + (token * k + i) * sizeof value, &value, sizeof value);
        if (args->indices != NULL)
            memcpy((char *)args->indices + (token * k + i) * sizeof index, &index, sizeof index);
    }
    if (args->log_sum_exp != NULL) {
        const uint32_t words = sol_vocab_words(args->k, true);
        const uint32_t value = sol_vocab_total(messages, (uint32_t)stride, words, nranks);
        memcpy((char *)args->log_sum_exp + token * sizeof value, &value, sizeof value);
    }
}
