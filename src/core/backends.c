/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backends.c: the backends of this build. A new one is one line here.
 */
#include "core/setup.h"

const sol_backend_t *const sol_backends[] = {
#ifdef SOL_WITH_CUDA
    &sol_backend_cuda,
#endif
    &sol_backend_shm, /* last: it takes every thread that no other wants */
    NULL,
};
