/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_env.c: the strict readers of environment variables, and unique ids. What they accept has to
 * be within the limits that they were given.
 */
#include "base/base.h"
#include "core/unique_id.h"

#include <stdlib.h>
#include <string.h>

static void check(bool holds)
{
    if (!holds)
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const choices[] = {"auto", "cpu", "cuda", NULL};
    char text[256], why[64];
    long number = 7;
    size_t bytes = 4096;
    int choice = 1;
    sol_unique_id_t id;
    sol_id_content_t content;
    size_t length = size < sizeof(text) - 1 ? size : sizeof(text) - 1;
    memcpy(text, data, length);
    text[length] = '\0';
    if (setenv("SOLCCL_FUZZ", text, 1) != 0)
        return 0;
    sol_env_int("SOLCCL_FUZZ", -5, 86400000, &number, why, sizeof(why));
    check(number >= -5 && number <= 86400000);
    sol_env_size("SOLCCL_FUZZ", 64, (size_t)1 << 40, &bytes, why, sizeof(why));
    check(bytes >= 64 && bytes <= (size_t)1 << 40);
    sol_env_choice("SOLCCL_FUZZ", choices, &choice, why, sizeof(why));
    check(choice >= 0 && choice < 3);
    check(sol_env_path("SOLCCL_FUZZ") == NULL || text[0] != '\0');
    memset(&id, 0, sizeof(id));
    memcpy(&id, data, size < sizeof(id) ? size : sizeof(id));
    (void)sol_id_read(&id, &content);
    (void)sol_id_tag(&id);
    return 0;
}
