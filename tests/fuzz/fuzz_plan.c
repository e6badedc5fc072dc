/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_plan.c: tuning files, as SOLCCL_TUNING_FILE names them. What is read can be looked up.
 */
#include "backend/cuda/cuda_plan.h"

#include <stdlib.h>
#include <string.h>

static int algorithm(const char *name)
{
    return strcmp(name, "one_shot") == 0 ? 1 : strcmp(name, "two_shot") == 0 ? 2 : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sol_cuda_plan plan;
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    memset(&plan, 0, sizeof(plan));
    if (sol_cuda_plan_parse(&plan, text, "NVIDIA H200", 2, algorithm) == SOL_OK)
        for (size_t bytes = 1; bytes < (size_t)1 << 30; bytes *= 2)
            (void)sol_cuda_plan_find(&plan, SOL_FUNC_ALL_REDUCE, SOL_FLOAT32, bytes);
    sol_cuda_plan_close(&plan);
    free(text);
    return 0;
}
