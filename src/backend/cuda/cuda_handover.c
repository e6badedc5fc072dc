/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_handover.c: reading the thresholds, and what was measured. */
#include "backend/cuda/cuda_handover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE "SOLCCL_NCCL_ABOVE"
#define WORD 64

/* Where NCCL was faster in plain graphs (bench/results): 1 GB on two H200, NCCL 2.28.9, all_reduce
 * by 0.6% and broadcast by 2%; at 256 MB ours was ahead by 10% and 2%. Nothing else was. */
static const struct {
    const char *machine; /* part of the GPU's name */
    int nranks;
    sol_func_t func;
    size_t above;
} measured[] = {
    {"H200", 2, SOL_FUNC_ALL_REDUCE, (size_t)1 << 30},
    {"H200", 2, SOL_FUNC_BROADCAST, (size_t)1 << 30},
};

void sol_cuda_handover_none(struct sol_cuda_handover *handover)
{
    for (int f = 0; f < SOL_CUDA_HANDOVER_FUNCS; f++) {
        handover->above[f] = SIZE_MAX;
    }
    handover->any = false;
}

static void set(struct sol_cuda_handover *handover, int func, size_t above)
{
    handover->above[func] = above != 0 ? above : SIZE_MAX; /* 0: never, as for all of them */
}

static void take_measured(struct sol_cuda_handover *handover, const char *machine, int nranks)
{
    for (size_t i = 0; i < sizeof measured / sizeof measured[0]; i++) {
        if (measured[i].nranks == nranks && strstr(machine, measured[i].machine) != NULL) {
            set(handover, (int)measured[i].func, measured[i].above);
        }
    }
}

static int func_of(const char *name)
{
    for (int f = 0; f < SOL_CUDA_HANDOVER_FUNCS; f++) {
        if (strcmp(name, sol_func_name((sol_func_t)f)) == 0) {
            return f;
        }
    }
    return -1;
}

/* "broadcast=1G", which is cut to pieces. */
static bool take_pair(struct sol_cuda_handover *handover, char *pair)
{
    size_t above = 0;
    char *size = strchr(pair, '=');
    if (size == NULL) {
        return false;
    }
    *size++ = '\0';
    int func = func_of(pair);
    if (func < 0 || !sol_read_size(size, &above)) {
        return false;
    }
    set(handover, func, above);
    return true;
}

static bool take_pairs(struct sol_cuda_handover *handover, const char *text)
{
    while (true) {
        char pair[WORD];
        size_t length = strcspn(text, ",");
        if (length >= sizeof pair) {
            return false;
        }
        memcpy(pair, text, length);
        pair[length] = '\0';
        if (!take_pair(handover, pair)) {
            return false;
        }
        if (text[length] == '\0') {
            return true;
        }
        text += length + 1;
    }
}

sol_status_t sol_cuda_handover_open(struct sol_cuda_handover *handover, const char *machine,
                                    int nranks, char *why, size_t why_bytes)
{
    size_t above = 0;
    const char *text = getenv(VARIABLE);
    bool good = true;
    sol_cuda_handover_none(handover);
    if (text == NULL || text[0] == '\0') {
        return SOL_OK;
    }
    if (strcmp(text, "auto") == 0) {
        take_measured(handover, machine, nranks);
    } else if (sol_read_size(text, &above)) {
        for (int f = 0; f < SOL_CUDA_HANDOVER_FUNCS; f++) {
            set(handover, f, above);
        }
    } else {
        good = take_pairs(handover, text);
    }
    if (!good) {
        sol_cuda_handover_none(handover);
        snprintf(why, why_bytes,
                 "environment variable %s is \"%.100s\": expected a size such as 64M, auto, or "
                 "sizes of all_reduce, all_gather, reduce_scatter, broadcast and reduce such as "
                 "broadcast=1G,all_reduce=512M",
                 VARIABLE, text);
        return SOL_ERR_ARGUMENT;
    }
    for (int f = 0; f < SOL_CUDA_HANDOVER_FUNCS; f++) {
        handover->any = handover->any || handover->above[f] != SIZE_MAX;
    }
    return SOL_OK;
}

uint64_t sol_cuda_handover_digest(const struct sol_cuda_handover *handover)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a, word by word: only equality counts */
    for (int f = 0; f < SOL_CUDA_HANDOVER_FUNCS; f++) {
        hash = (hash ^ handover->above[f]) * 1099511628211u;
    }
    return hash;
}

void sol_cuda_handover_describe(const struct sol_cuda_handover *handover, char *text, size_t bytes)
{
    size_t used = 0;
    snprintf(text, bytes, "nothing");
    for (int f = 0; f < SOL_CUDA_HANDOVER_FUNCS && used < bytes; f++) {
        if (handover->above[f] != SIZE_MAX) {
            int more =
                snprintf(text + used, bytes - used, "%s%s from %zu bytes", used != 0 ? ", " : "",
                         sol_func_name((sol_func_t)f), handover->above[f]);
            used += more > 0 ? (size_t)more : 0;
        }
    }
}
