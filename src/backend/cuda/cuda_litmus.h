/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_litmus.h: what was found untrue of this machine's GPUs. Some protocols may
 * rest on more than PTX promises: that a store of 16 bytes, or a warp's of a
 * 128-byte line, is seen whole by a peer. `solccl info --litmus` tries both on every
 * pair of GPUs and writes what it found into a file; whatever would rest on what
 * has failed there is not taken: by the plan, and in LINE channels of a device
 * communicator.
 *
 * The file: SOLCCL_LITMUS_FILE, else $XDG_CACHE_HOME/solccl/litmus, else
 * $HOME/.cache/solccl/litmus.
 *
 *   solccl-litmus 1
 *   <UUID of who stores> <of who reads> <vectors read> <torn in 16> <torn in 128>
 *
 * UUIDs are 32 hexadecimal digits. No file, or no line for a GPU: nothing is known
 * against it, and the assumptions hold. A file that cannot be read as one: both are
 * taken as failed, and a warning says so. Pure host logic: no CUDA here.
 */
#ifndef SOL_CUDA_LITMUS_H
#define SOL_CUDA_LITMUS_H

#include "solccl/device.h"

#include "base/base.h"

/* What may be rested on, as bits; and what has failed, likewise. */
#define SOL_CUDA_WHOLE_16 1u
#define SOL_CUDA_WHOLE_128 2u

/* What has failed on a pair that this GPU is in. False: a line (from 1, in *line) is none. */
bool sol_cuda_litmus_parse(const char *text, const unsigned char uuid[16], unsigned *failed,
                           int *line);
/* The same of this machine's file. Logs a warning where it cannot be read. */
unsigned sol_cuda_litmus_read(const unsigned char uuid[16]);
/* The first channel that may not be, because of what has failed; -1: none. */
int sol_cuda_litmus_channel(const sol_dev_config_t *config, unsigned failed);

#endif
