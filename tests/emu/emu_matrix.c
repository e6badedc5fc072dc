/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_matrix: the fault matrix with --backend cuda on emulated GPUs, those of its cells whose ranks
 * are threads: the whole library but for the driver, without CUDA.
 *
 *   emu_matrix [--emu-seed S] [what matrix takes]
 *
 * The machine is made once; each cell is a process and has a copy of it. Its clock is not ours:
 * what a kernel waits for is right, how long it took says nothing. CI runs some of them (--quick);
 * all 86 take a minute.
 */
#include "emu/emu.h"
#include "matrix/matrix.h"

#include <stdlib.h>
#include <string.h>

static const char *verdict(void)
{
    return emu_failed() ? emu_report() : NULL;
}

int main(int argc, char **argv)
{
    struct emu_options options = {.seed = 1, .devices = 2, .sms = 16, .threads = true};
    char *words[32];
    int count = 0;
    words[count++] = argv[0];
    words[count++] = "--backend";
    words[count++] = "cuda";
    for (int i = 1; i < argc && count < 31; i++) {
        if (strcmp(argv[i], "--emu-seed") == 0 && i + 1 < argc)
            options.seed = strtoull(argv[++i], NULL, 0);
        else
            words[count++] = argv[i];
    }
    words[count] = NULL;
    if (!emu_open(&options)) {
        fputs("emu_matrix: the system refused memory\n", stderr);
        return 2;
    }
    matrix_verdict = verdict;
    int code = matrix_main(count, words);
    emu_close();
    return code;
}
