/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_args.h: what the test programs of the emulator take on the command line, and
 * their rounds over seeds and ranks. An option that is not known ends the program,
 * and so does a run in which nothing ran: status 2.
 */
#ifndef EMU_ARGS_H
#define EMU_ARGS_H

#include <stdbool.h>
#include <stdint.h>

struct emu_args {
    unsigned seeds; /* rounds; set before emu_args_read: without --quick and --seeds */
    int low, high;  /* ranks */
    uint64_t seed;  /* not 0: this program alone; its last byte is the ranks */
    bool few;       /* bf16 only, stop at the first failure: mutants */
    bool verbose;
    const char *op; /* of several in one program; "": all */
    int passed, failed;
};

/* `quick`: rounds of --quick. */
void emu_args_read(struct emu_args *args, int argc, char **argv, unsigned quick);

/* Not so many failures yet that more say nothing. */
bool emu_args_goes_on(const struct emu_args *args);

/* All programs of these arguments. `of`: for the caller's own use. */
void emu_args_run(struct emu_args *args, void (*run)(const void *of, uint64_t seed, int nranks),
                  const void *of);

/* Prints the sum. Returns the program's status. */
int emu_args_end(const struct emu_args *args);

#endif
