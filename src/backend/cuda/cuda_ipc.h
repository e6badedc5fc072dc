/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_ipc.h: symmetric memory of plain cudaMalloc memory and legacy IPC
 * handles, for devices and systems without exportable virtual memory.
 *
 * Two things are worse than with virtual memory, which is why it is the second
 * choice. Allocating and freeing wait for all kernels of the device; and memory
 * must not be freed while another process has it open. Nothing may wait for
 * other ranks at destroy, so a page that all ranks share counts those that have
 * let go, and what cannot be freed yet is put aside and freed by a later call
 * of this process. If a rank died, it stays until the process ends.
 */
#ifndef SOL_CUDA_IPC_H
#define SOL_CUDA_IPC_H

#include "base/base.h"

#include <cuda_runtime_api.h>

#define SOL_CUDA_IPC_HANDLE 64 /* sizeof(cudaIpcMemHandle_t) */

/* Counts the ranks that have let go of one memory. */
struct sol_cuda_ipc_page;

/* Device memory of this process and its handle. */
cudaError_t sol_cuda_ipc_make(size_t bytes, char **base, unsigned char *handle);

/* A peer's memory: of this process (at `address`), or of another one. */
cudaError_t sol_cuda_ipc_map(const unsigned char *handle, uint64_t address, bool same_process,
                             char **base);
void sol_cuda_ipc_unmap(char *base);

/* A descriptor of a fresh page; -1: none (errno). And the page behind one, or NULL. */
int sol_cuda_ipc_page_make(void);
struct sol_cuda_ipc_page *sol_cuda_ipc_page_map(int fd);

/* This rank uses no peer's memory any more: free `own` (may be NULL) now, or once all of `nranks`
 * have come here. The page is gone for the caller; NULL: nobody can have opened `own`. */
void sol_cuda_ipc_let_go(struct sol_cuda_ipc_page *page, char *own, int nranks);

#endif
