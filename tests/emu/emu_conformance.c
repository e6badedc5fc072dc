/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_conformance: the conformance suite with --backend cuda, on emulated GPUs:
 * the whole library, from the public functions through the plan and the host
 * side of GPU ranks to the built-in kernels, without CUDA.
 *
 *   emu_conformance [--emu-seed S] [what conformance takes]
 *
 * Ranks are threads of this process. Since the system decides which of them
 * calls when, a seed draws the machine's choices and does not repeat a run.
 * Exit status: the suite's; 1 if the machine found an error, which is printed.
 */
#include "conformance/conf.h"
#include "emu/emu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    struct emu_options options = {.seed = 1, .devices = 8, .sms = 8, .threads = true};
    char *words[64];
    int count = 0;
    words[count++] = argv[0];
    words[count++] = "--backend";
    words[count++] = "cuda";
    words[count++] = "--one-process";
    for (int i = 1; i < argc && count < 62; i++) {
        if (strcmp(argv[i], "--emu-seed") == 0 && i + 1 < argc)
            options.seed = strtoull(argv[++i], NULL, 0);
        else
            words[count++] = argv[i];
    }
    words[count] = NULL;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!emu_open(&options)) {
        fputs("emu_conformance: the system refused memory\n", stderr);
        return 2;
    }
    int code = conf_main(count, words);
    if (emu_failed()) {
        fputs(emu_report(), stdout);
        code = 1;
    }
    emu_close();
    return code;
}
