/* SPDX-License-Identifier: Apache-2.0 */
/*
 * near.h: where thread-local variables on the path of every operation are put:
 * near, at one load's distance, in a block that is laid out when a program starts.
 *
 * There is little room in it for libraries that are opened later, as Python and
 * inference engines do (1.6 KB for all of them), and a library's variables are
 * all there or none. So there are few, words, and none is near where the CUDA
 * runtime, which has two pages of them, is in the library. tests/abi looks.
 */
#ifndef SOL_BASE_NEAR_H
#define SOL_BASE_NEAR_H

#if defined(__GNUC__) && !defined(SOL_WITH_CUDA)
#define SOL_NEAR __attribute__((tls_model("initial-exec")))
#else
#define SOL_NEAR
#endif

#endif
